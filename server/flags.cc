#include "server/flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "server/base/address.h"
#include "server/base/cidr.h"
#include "server/base/text.h"
#include "server/engine/devices.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;

constexpr int kWrongUsage = 2;
constexpr int64_t kMiB = int64_t{1} << 20;

// Adds a flag for a number of bytes: 1073741824, 512MiB, 8GiB.
void AddBytes(CLI::App& app, const std::string& name, int64_t* value, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [value, name](const std::string& text) {
           const size_t digits = text.find_first_not_of("0123456789");
           const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
           int64_t number = 0;
           int shift = unit.empty()    ? 0
                       : unit == "KiB" ? 10
                       : unit == "MiB" ? 20
                       : unit == "GiB" ? 30
                       : unit == "TiB" ? 40
                                       : -1;
           if (shift < 0 || !absl::SimpleAtoi(text.substr(0, digits), &number) ||
               number > (INT64_MAX >> shift)) {
             throw CLI::ValidationError(name, "'" + text +
                                                  "' is not a number of bytes like "
                                                  "1073741824, 512MiB or 8GiB");
           }
           *value = number << shift;
         },
         help)
      ->type_name("BYTES")
      ->default_str(absl::StrCat(*value / kMiB, "MiB"));
}

// Adds a flag for a time span: 500ms, 30s, 5m.
void AddTime(CLI::App& app, const std::string& name, milliseconds* value, const std::string& help,
             bool zero_allowed) {
  app.add_option_function<std::string>(
         name,
         [value, name, zero_allowed](const std::string& text) {
           absl::Duration span;
           if (!absl::ParseDuration(text, &span) || span < absl::ZeroDuration() ||
               span > absl::Hours(24 * 365) || (!zero_allowed && span < absl::Milliseconds(1))) {
             throw CLI::ValidationError(name, "'" + text +
                                                  "' is not a time span like 500ms, 30s or 5m" +
                                                  (zero_allowed ? "" : ", at least 1ms"));
           }
           *value = absl::ToChronoMilliseconds(span);
         },
         help)
      ->type_name("TIME")
      ->default_str(absl::FormatDuration(absl::FromChrono(*value)));
}

// NAME=WEIGHT.
void SetWeight(const std::string& text, std::map<std::string, double>* weights) {
  const size_t equals = text.rfind('=');
  double weight = 0;
  if (equals == std::string::npos || equals == 0 ||
      !absl::SimpleAtod(text.substr(equals + 1), &weight) || !(weight >= 0.01 && weight <= 100)) {
    throw CLI::ValidationError("--tenant-weight", "'" + text +
                                                      "' is not NAME=WEIGHT like alice=2, with a "
                                                      "weight of 0.01 to 100");
  }
  (*weights)[text.substr(0, equals)] = weight;
}

// ADDRESS or ADDRESS/BITS, separated by commas.
void AddRanges(const std::string& text, std::vector<Cidr>* ranges) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const auto range = Cidr::Parse({part.data(), part.size()});
    if (!range) {
      throw CLI::ValidationError(
          "--trusted-proxies",
          "'" + std::string(part) + "' is not a range of addresses like 10.0.0.0/8 or fd00::/8");
    }
    ranges->push_back(*range);
  }
}

// UID or UID:TENANT.
uid_t ParseUid(const std::string& flag, absl::string_view text) {
  uint32_t uid = 0;
  if (!absl::SimpleAtoi(text, &uid) || uid == UINT32_MAX) {
    throw CLI::ValidationError(flag, "'" + std::string(text) + "' is not the number of a user");
  }
  return uid;
}

void AddSpillFlags(CLI::App& app, SpillOptions* spill) {
  spill->max_bytes = int64_t{64} << 30;
  app.add_option("--spill-dir", spill->folder,
                 "Folder of this daemon alone that keeps matrices, preconditioners and detached "
                 "jobs beyond eviction and restarts; without it nothing is kept");
  AddBytes(app, "--spill-bytes", &spill->max_bytes, "Bytes of files in --spill-dir");
  app.add_option_function<std::string>(
         "--spill-sync",
         [spill](const std::string& text) {
           spill->sync = text == "none"   ? SpillSync::kNone
                         : text == "data" ? SpillSync::kData
                                          : SpillSync::kFull;
         },
         "Writes to --spill-dir that are waited for to be on the disk, against a loss of the "
         "machine's power: none, data (all but the newest names) or full; by default full")
      ->check(CLI::IsMember({"none", "data", "full"}));
}

void AddLocalFlags(CLI::App& app, LocalSocketOptions* local, SegmentLimits* segments) {
  app.add_option("--local-socket", local->path,
                 "Unix socket at which clients of this host share memory, which their calls then "
                 "name in place of arrays; without it there is none");
  app.add_option_function<std::string>(
         "--local-uids",
         [local](const std::string& text) {
           for (const absl::string_view uid : absl::StrSplit(text, ',')) {
             local->uids.insert(ParseUid("--local-uids", uid));
           }
         },
         "Users that may connect to --local-socket, beside the daemon's own; by number, separated "
         "by commas")
      ->type_name("UID,...");
  app.add_option_function<std::string>(
         "--local-tenants",
         [local](const std::string& text) {
           for (const absl::string_view pair : absl::StrSplit(text, ',')) {
             const std::vector<std::string> parts = absl::StrSplit(pair, absl::MaxSplits(':', 1));
             if (parts.size() != 2 || parts[1].empty() || !IsPlainText(parts[1])) {
               throw CLI::ValidationError("--local-tenants", "'" + std::string(pair) +
                                                                 "' is not UID:TENANT like "
                                                                 "1000:alice");
             }
             local->tenants[ParseUid("--local-tenants", parts[0])] = parts[1];
           }
         },
         "Tenants of users that connect to --local-socket without a token; who has neither is an "
         "anonymous caller")
      ->type_name("UID:TENANT,...");
  app.add_option("--local-connections", local->max_connections,
                 "Connections to --local-socket that may be open at once")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}));
  AddBytes(app, "--local-bytes", &segments->max_bytes,
           "Bytes of memory that clients of --local-socket may share");
  AddBytes(app, "--local-bytes-per-tenant", &segments->max_bytes_per_tenant,
           "Of these, bytes of one tenant; 0: no limit of its own");
  app.add_option("--local-segments", segments->max_segments,
                 "Segments of such memory, each of which takes a descriptor")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option("--local-segments-per-tenant", segments->max_segments_per_tenant,
                 "Of these, segments of one tenant; 0: no limit of its own")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
}

int WrongUsage(const std::string& what) {
  std::fprintf(stderr, "spaid: %s (spaid --help lists the flags)\n", what.c_str());
  return kWrongUsage;
}

// Checks the flags that say who may call, and as whom; returns the error, or "".
std::string CheckCredentials(const Flags& flags) {
  const bool tokens = !flags.tokens_file.empty() || !flags.admin_tokens_file.empty();
  const char* const flag = flags.tokens_file.empty() ? "--admin-tokens" : "--tokens";
  if (tokens && !flags.tokens_in_clear && !flags.tls.any() && !IsLoopback(flags.address)) {
    return absl::StrCat(
        flag, " with --address=", flags.address,
        ", which is open to other machines, needs TLS; give --tls-cert and --tls-key, or say "
        "--tokens-in-clear if a proxy before it ends TLS");
  }
  if (flags.trust_tenant_header && tokens) {
    return absl::StrCat("--trust-tenant-header and ", flag,
                        " exclude each other: anybody could name the tenant of somebody's token");
  }
  if (flags.trust_tenant_header && flags.allow_anonymous && !flags.tls.client_ca.empty()) {
    return "--trust-tenant-header, --tls-client-ca and --allow-anonymous exclude each other: "
           "anybody could name the subject of somebody's certificate";
  }
  if (!flags.admin_subjects.empty() && flags.tls.client_ca.empty()) {
    return "--admin-subject needs --tls-client-ca, which tells whose certificate it is";
  }
  return "";
}

// Checks what the values must satisfy together; returns the error, or "".
std::string CheckTogether(const Flags& flags, int64_t usable_memory) {
  if (!absl::StartsWith(flags.address, "unix") && !ParseHostPort(flags.address)) {
    return absl::StrCat("--address=", flags.address,
                        " is not HOST:PORT like 127.0.0.1:7433 or [::1]:0");
  }
  if (!flags.ops_address.empty() && !ParseHostPort(flags.ops_address)) {
    return absl::StrCat("--ops-address=", flags.ops_address,
                        " is not HOST:PORT like 127.0.0.1:7434; off turns it off");
  }
  if (flags.insecure && flags.tls.any()) return "--insecure and --tls-... exclude each other";
  if (!flags.tls.any() && !flags.insecure && !IsLoopback(flags.address)) {
    return absl::StrCat("--address=", flags.address,
                        " is open to other machines and has no TLS; give --tls-cert and --tls-key, "
                        "or say --insecure if the network is trusted");
  }
  if (!flags.ops_address.empty() && !flags.ops_insecure && !flags.insecure &&
      !IsLoopback(flags.ops_address)) {
    return absl::StrCat("--ops-address=", flags.ops_address,
                        " is open to other machines and plain HTTP; say --ops-insecure if the "
                        "network is trusted");
  }
  if (std::string wrong = CheckCredentials(flags); !wrong.empty()) return wrong;
  const BackendOptions& b = flags.backend;
  const bool local = !flags.local.path.empty();
  if (!local && !(flags.local.uids.empty() && flags.local.tenants.empty())) {
    return "--local-uids and --local-tenants go with --local-socket";
  }
  if (b.max_matrix_bytes > b.matrix_store_bytes) {
    return absl::StrCat("--max-matrix-bytes (", b.max_matrix_bytes,
                        ") is over --matrix-store-bytes (", b.matrix_store_bytes, ")");
  }
  const double total = static_cast<double>(b.matrix_store_bytes) +
                       static_cast<double>(b.preconditioner_store_bytes) +
                       static_cast<double>(b.plan_cache_bytes) + static_cast<double>(b.rhs_bytes) +
                       static_cast<double>(b.max_build_bytes) +
                       static_cast<double>(local ? b.segments.max_bytes : 0);
  if (total > static_cast<double>(usable_memory)) {
    return absl::StrCat("the byte limits of stores, plan cache, right-hand sides and a build",
                        local ? ", and memory of local clients" : "", " sum to ",
                        static_cast<int64_t>(total / kMiB), " MiB, and this process may use ",
                        usable_memory / kMiB, " MiB (its cgroup's limit, or the machine's memory)");
  }
  return "";
}

}  // namespace

ParsedFlags ParseFlags(int argc, char** argv, int64_t usable_memory) {
  ParsedFlags parsed;
  Flags& flags = parsed.flags;
  BackendOptions& backend = flags.backend;
  backend.version = SPAID_VERSION;
  // 0.9 in all: what is left is for the second copy that an upload by rows or out of order needs,
  // and for rungs of AUTO.
  backend.matrix_store_bytes = usable_memory / 4;
  backend.preconditioner_store_bytes = usable_memory / 5;
  backend.max_matrix_bytes = usable_memory / 10;
  backend.plan_cache_bytes = usable_memory / 10;
  backend.rhs_bytes = usable_memory / 10;
  backend.max_build_bytes = usable_memory / 4;
  backend.segments.max_bytes = usable_memory / 20;

  CLI::App app(
      "spaid: builds sparse approximate inverse preconditioners and solves sparse linear\n"
      "systems for clients that talk gRPC to it. Byte limits default to shares of the memory\n"
      "that this process may use (its cgroup's limit, or the machine's).",
      "spaid");
  app.set_version_flag("--version", "spaid " SPAID_VERSION);
  app.set_config("--flagfile", "", "Read flags from FILE, one NAME=VALUE a line, without dashes");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.option_defaults()->always_capture_default();
  std::string log_level = "info";

  app.add_option("--address", flags.address,
                 "HOST:PORT to serve gRPC on, port 0 picks a free one; or unix:PATH");
  app.add_option("--port-file", flags.port_file,
                 "Write HOST:PORT into FILE, atomically, once the server serves");
  app.add_option(
      "--ops-address", flags.ops_address,
      "HOST:PORT of the status page (/, /status.json), /metrics, /healthz and /readyz; off "
      "(or empty): none");
  app.add_option(
         "--ops-host", flags.ops_hosts,
         "Name under which browsers may ask for the status page, such as that of a proxy or a "
         "Service; may be repeated. Addresses and localhost are always allowed")
      ->type_name("NAME");
  app.add_option("--ops-connections", flags.ops.max_connections,
                 "Most connections to --ops-address at once; beyond that the oldest is closed")
      ->check(CLI::Range(int64_t{4}, int64_t{10'000}));
  AddTime(app, "--ops-timeout", &flags.ops.timeout,
          "Time for a whole request to --ops-address to arrive, and again to take its answer",
          false);
  app.add_flag("--insecure", flags.insecure, "Serve other machines without TLS");
  app.add_flag(
      "--ops-insecure", flags.ops_insecure,
      "Serve --ops-address, which is plain HTTP and shows the jobs of all tenants, to other "
      "machines");
  app.add_option("--tls-cert", flags.tls.certificate, "PEM certificate chain; files are watched");
  app.add_option("--tls-key", flags.tls.key, "PEM private key of --tls-cert");
  app.add_option(
      "--tls-client-ca", flags.tls.client_ca,
      "PEM authority for client certificates (mTLS): a client shows one, whose subject is "
      "its tenant, or sends a token");
  app.add_option("--tokens", flags.tokens_file,
                 "File of lines TOKEN NAME or sha256:HEX NAME: bearer tokens and the tenants they "
                 "stand for. Read again on SIGHUP; refused where everybody can read it");
  app.add_option("--admin-tokens", flags.admin_tokens_file,
                 "The same for administrators, who see and cancel the jobs of all tenants");
  app.add_option("--admin-subject", flags.admin_subjects,
                 "Subject of a client's certificate (CN=...) that makes an administrator; may be "
                 "repeated")
      ->type_name("SUBJECT");
  app.add_flag("--allow-anonymous", flags.allow_anonymous,
               "With --tokens or --tls-client-ca: serve callers without either, as `default`");
  app.add_flag("--tokens-in-clear", flags.tokens_in_clear,
               "Take tokens from other machines without TLS (a proxy in front ends it)");
  app.add_flag("--trust-tenant-header", flags.trust_tenant_header,
               "Believe the metadata x-spaid-tenant (behind a proxy that sets it)");
  app.add_option(
      "--devices", flags.devices,
      "Devices to compute on: cpu, gpu:N or GPU-UUID, separated by commas; auto: the CPU, "
      "and GPU 0 if one answers. Under mpirun or srun also mpi: all processes of the job together, "
      "and the CPU of rank 0 beside them; alone, for what ranks cannot compute, else for what is "
      "predicted to be as fast there");
  app.add_option("--on-device-loss", flags.on_device_loss,
                 "exit: finish what other devices run, then end with status 1; degrade: go on with "
                 "the others, unless the lost one is the CPU. Default: exit if --devices names "
                 "devices, degrade if it is auto")
      ->check(CLI::IsMember({"exit", "degrade"}))
      ->default_str("");
  app.add_option(
         "--hang-limit", backend.hang_limit,
         "A device is lost when its job shows no sign of life (a column, a residual) for this "
         "many times its predicted run; 0: never")
      ->check(CLI::Range(0.0, 1e6));
  AddTime(app, "--hang-floor", &backend.hang_floor,
          "But not before this time, which also limits the measurement and the probe of a device",
          false);
  AddBytes(app, "--device-memory", &flags.device_memory,
           "Bytes to take of each GPU at most; 0: all of it");
  app.add_option("--threads", backend.threads, "Threads of one job; 0: all cores")
      ->check(CLI::Range(0, 4096));
  AddBytes(app, "--matrix-store-bytes", &backend.matrix_store_bytes, "Bytes of stored matrices");
  AddBytes(app, "--max-matrix-bytes", &backend.max_matrix_bytes, "Bytes of one matrix");
  AddBytes(app, "--preconditioner-store-bytes", &backend.preconditioner_store_bytes,
           "Bytes of stored preconditioners");
  AddBytes(app, "--plan-cache-bytes", &backend.plan_cache_bytes,
           "Bytes of plans kept for rebuilds with new values");
  AddBytes(app, "--rhs-bytes", &backend.rhs_bytes,
           "Bytes of right-hand sides, guesses and solutions in flight");
  AddBytes(app, "--max-build-bytes", &backend.max_build_bytes,
           "Bytes that one build may be estimated to take");
  app.add_option(
         "--auto-inverse-unknowns", backend.max_inverse_unknowns,
         "Unknowns up to which engine AUTO takes the inverse of A, by dense LU, where nothing "
         "that costs less solves a system; 0: never")
      ->check(CLI::Range(int64_t{0}, int64_t{20'000}));
  app.add_option("--max-queued-jobs", backend.max_queued_jobs,
                 "Jobs that may wait; the last eighth for tenants under their share of them")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option("--max-queued-jobs-per-tenant", backend.max_queued_jobs_per_tenant,
                 "Jobs of one tenant that may wait; 0: all; by default half of all")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  app.add_option("--max-detached-jobs-per-tenant", backend.max_detached_jobs_per_tenant,
                 "Detached jobs of one tenant, waiting or running; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  app.add_option(
         "--max-paused-jobs", backend.max_paused_jobs,
         "Most paused solves of a device, which wait for their next turn, a 16th of them of "
         "one tenant; 0: solves are not paused")
      ->check(CLI::Range(0, 10'000));
  app.add_option_function<std::vector<std::string>>(
         "--tenant-weight",
         [&backend](const std::vector<std::string>& weights) {
           for (const std::string& text : weights) SetWeight(text, &backend.tenant_weights);
         },
         "Weight of a tenant in sharing device time and all that is bounded; others have 1; may "
         "be repeated")
      ->type_name("NAME=WEIGHT");
  app.add_option(
         "--max-tenants", backend.max_tenants,
         "Tenants without --tenant-weight that have a share each; all others have one share "
         "together")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000}));
  app.add_option("--lanes", backend.slots,
                 "Slots of the CPU: jobs that run side by side, all but one of them small; 0: a "
                 "quarter of its cores, 2 to 8")
      ->check(CLI::Range(0, 64));
  app.add_option("--gpu-lanes", flags.gpu_slots,
                 "Slots of a GPU: jobs that run side by side, all but one of them small; each slot "
                 "for small jobs has a 32nd of the GPU's memory")
      ->check(CLI::Range(1, 16));
  app.add_option("--max-devices-per-job", backend.max_devices_per_job,
                 "Most GPUs that one long build is split over, if they are idle")
      ->check(CLI::Range(1, 64));
  AddTime(app, "--small-job", &backend.small_job, "A job predicted to take no longer is small",
          false);
  app.add_option("--max-streams", backend.streams.max_streams,
                 "Streams that may be open at once; the last eighth for tenants under their share")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  ConnectionLimits& connections = backend.connections;
  app.add_option("--max-connections", connections.max_connections,
                 "Connections to --address that may be open at once; each takes two descriptors")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option("--max-connections-per-peer", connections.max_per_peer,
                 "Connections from one IPv4 address or one IPv6 network of 64 bits")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app.add_option_function<std::string>(
         "--trusted-proxies",
         [&connections](const std::string& text) { AddRanges(text, &connections.trusted); },
         "Addresses without --max-connections-per-peer, like loopback; separated by commas")
      ->type_name("CIDR,...");
  app.add_option("--max-streams-per-connection", connections.max_streams,
                 "Calls that a connection may have open at once")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}));
  app.add_option("--max-calls", connections.max_calls,
                 "Calls that may be open at once, including those without a request")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  AddBytes(app, "--transport-memory", &connections.max_bytes,
           "Bytes of unfinished messages on all connections, beyond which the connection with most "
           "of them is cut; likewise of messages that wait for their readers");
  AddTime(app, "--idle-connection-timeout", &connections.idle,
          "A connection without a call is closed after this", false);
  AddTime(app, "--first-message-timeout", &backend.streams.first_message,
          "A call whose first message is not complete is ended after this", false);
  AddLocalFlags(app, &flags.local, &backend.segments);
  AddSpillFlags(app, &flags.spill);
  AddTime(app, "--self-probe-interval", &flags.self_probe,
          "How often the daemon calls its own port to see that it answers; 0s: never", true);
  app.add_flag("--reflection", flags.reflection, "Serve grpc.reflection.v1alpha, to anybody");
  AddBytes(app, "--ended-job-bytes", &backend.ended_job_bytes,
           "Bytes of events and outcomes kept of ended jobs");
  AddTime(app, "--keep-freed-memory", &flags.keep_freed,
          "How long the memory of a freed array of 4 MiB or more is kept for one of its size",
          true);
  AddTime(app, "--max-queue", &backend.max_queue,
          "Longest wait of a job that names no limit itself; 0s: none", true);
  AddTime(app, "--max-run", &backend.max_run,
          "Longest run of any job, its pauses included; 0s: none", true);
  AddTime(app, "--heartbeat-interval", &backend.heartbeat,
          "How often a stream on which nothing happens gets a heartbeat", false);
  AddTime(app, "--stalled-reader-timeout", &backend.streams.stalled_reader,
          "A stream whose client does not read is cut after this", false);
  AddTime(app, "--stalled-sender-timeout", &backend.streams.stalled_sender,
          "A stream whose client stops sending its input is ended after this", false);
  AddTime(app, "--drain-grace", &flags.drain.grace,
          "After SIGTERM: not ready, but still serving, for this long", true);
  AddTime(app, "--drain-deadline", &flags.drain.deadline,
          "Then: running work may finish for this long", true);
  app.add_option("--log-level", log_level, "debug, info, warning or error");
  app.add_option_function<std::string>(
         "--log-format",
         [&flags](const std::string& text) {
           flags.log_format = text == "json" ? LogFormat::kJson : LogFormat::kText;
         },
         "Lines of text, or of JSON objects: text, json; by default text")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option("--otlp-endpoint", flags.otlp_endpoint,
                 "Collector that takes spans by OTLP over gRPC, http://HOST:PORT or https; without "
                 "it there are none")
      ->envname("OTEL_EXPORTER_OTLP_ENDPOINT");
  app.add_option("--log-lines", flags.log_limits.lines,
                 "Lines that may wait for the reader of standard error; beyond that the oldest are "
                 "dropped, and counted")
      ->check(CLI::Range(int64_t{16}, int64_t{1'000'000}));
  app.add_option("--log-repeats", flags.log_limits.repeats,
                 "Lines per second of one event, code and reason; more are summed up. 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));

  // CLI11 takes `--name=` for a name whose value is the next word. Here it means the empty value,
  // which --ops-address alone has a use for.
  std::vector<std::string> words;  // as CLI11 wants them: the last one first
  for (int i = argc - 1; i > 0; --i) {
    const std::string word = argv[i];
    if (word == "--ops-address=") {
      words.emplace_back("--ops-address=off");
    } else if (word.size() > 3 && absl::StartsWith(word, "--") && word.back() == '=' &&
               word.find('=') == word.size() - 1) {
      parsed.exit_code = WrongUsage(word + " has no value");
      return parsed;
    } else {
      words.push_back(word);
    }
  }
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // --help, --version
    parsed.exit_code = app.exit(asked);
    return parsed;
  } catch (const CLI::FileError& error) {
    std::fprintf(stderr, "spaid: --flagfile: %s\n", error.what());
    parsed.exit_code = 1;
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = WrongUsage(error.what());
    return parsed;
  }
  parsed.given = absl::StrReplaceAll(app.config_to_str(), {{"\n", " "}});
  absl::StripTrailingAsciiWhitespace(&parsed.given);

  if (flags.ops_address == "off") flags.ops_address.clear();
  backend.exit_on_device_loss =
      flags.on_device_loss == "exit" || (flags.on_device_loss.empty() && flags.devices != "auto");
  backend.ranks_first = flags.devices == "mpi";
  std::string wrong;
  if (const absl::Status status = CheckDevicesFlag(flags.devices); !status.ok()) {
    wrong = std::string(status.message());
  } else if (!ParseLogLevel(log_level, &flags.log_level)) {
    wrong = "--log-level: '" + log_level + "' is not debug, info, warning or error";
  } else {
    wrong = CheckTogether(flags, usable_memory);
  }
  if (!wrong.empty()) parsed.exit_code = WrongUsage(wrong);
  // A stalled peer is noticed within an eighth of its limit more, a heartbeat is as punctual.
  StreamLimits& streams = backend.streams;
  const milliseconds shortest = std::min(
      {streams.stalled_reader, streams.stalled_sender, streams.first_message, backend.heartbeat});
  streams.tick = std::clamp(shortest / 8, milliseconds(5), milliseconds(250));
  return parsed;
}

}  // namespace spaid::server
