#include "client/load/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>

#include "client/cli/options.h"
#include "kernels/gallery/gallery.h"

namespace spaid::load {
namespace {

using cli::Fraction;
using cli::NotNegative;
using cli::Positive;
using cli::Whole;

constexpr int64_t kClosedConcurrency = 8, kOpenConcurrency = 256;
constexpr double kDefaultDuration = 10;

constexpr char kFooter[] =
    "A job is one matrix that is uploaded (or found by its digests, which sends nothing) and\n"
    "one solve with its right-hand sides, in which the preconditioner is built or found; or,\n"
    "for --build-share of the jobs, a build alone. b = A x with x random in [-1, 1]. Variants\n"
    "of a matrix are A times a number near 1: other values, as hard to solve.\n"
    "\n"
    "A closed loop (--concurrency) sends the next job when one is done: a server that stalls\n"
    "gets fewer jobs, and its latencies look better than users would find them. An open loop\n"
    "(--rate) sends jobs when they arrive, whatever the server does, and counts latency from\n"
    "the scheduled arrival, so that a stalled server is not flattered. At most --concurrency\n"
    "jobs are under way; what arrives beyond that begins late, which its latency counts and\n"
    "the report says. All that arrived within --duration is run, however long that takes.\n"
    "\n"
    "With --time-steps=K each of the --concurrency workers is a simulation: K times new values\n"
    "on one pattern, each solved by one call that brings the values alone and keeps M while it\n"
    "serves, the matrix of the step before deleted; then the next simulation. The report holds\n"
    "first steps beside later ones.\n"
    "\n"
    "With --cancel jobs are cancelled on purpose, and the report says how long they took to end,\n"
    "from when the cancellation was sent; what had ended before is a job like any other.\n"
    "\n"
    "Latencies are of jobs that succeeded; failures are counted by reason. A job that is\n"
    "refused for now (QUEUE_FULL and its like), or whose daemon goes away, has failed unless\n"
    "--retries lets it come back.\n"
    "Percentiles are at most 0.8 % above the truth. Ctrl-C ends the run, cancels what is under\n"
    "way, and reports. Matrices stay on the server, which evicts them in time; a second run\n"
    "with the same --seed finds those that are left.\n"
    "\n"
    "Examples:\n"
    "  spaid-load --duration=30\n"
    "  spaid-load --concurrency=32 --jobs=10000 --mix=poisson:10 --engines=static-spai\n"
    "  spaid-load --mix=poisson:16=3,p27:10=1 --engines=jacobi=4,static-spai=1,auto=1\n"
    "  spaid-load --rate=200 --duration=60 --warmup=5 --deadline=2 --expect=TIMEOUT\n"
    "  spaid-load --time-steps=50 --mix=p27:20 --engines=afsai --concurrency=4\n"
    "  spaid-load --tenants=4 --concurrency=16 --json=load.json\n"
    "  spaid-load --mix=p27:40 --engines=static-spai --cancel=queue,build --cancel-after=0.1\n"
    "Exit codes: 0 done, 1 a job failed (for a reason that --expect does not name) or no\n"
    "daemon, 2 wrong usage, 3 a solve did not converge (likewise).";

constexpr CancelIn kCancelIn[] = {CancelIn::kUpload,  CancelIn::kQueue,    CancelIn::kPlan,
                                  CancelIn::kBuild,   CancelIn::kAssemble, CancelIn::kSolve,
                                  CancelIn::kDownload};

std::string States() {
  std::string states;
  for (const CancelIn state : kCancelIn) {
    states += (states.empty() ? "" : ", ") + std::string(Name(state));
  }
  return states;
}

void AddLoad(CLI::App& app, LoadOptions& o) {
  const std::string group = "Load";
  app.add_option("--concurrency", o.concurrency,
                 "Jobs at a time: as many in a closed loop (8), at most as many with --rate (256)")
      ->check(Whole(1, 4096))
      ->type_name("N")
      ->group(group);
  app.add_option("--rate", o.rate, "Open loop: jobs that arrive per second, as a Poisson process")
      ->check(Positive())
      ->type_name("R")
      ->group(group);
  app.add_option("--duration", o.duration_s,
                 "For how long jobs begin after the warm-up (10, unless --jobs is given)")
      ->check(Positive())
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--jobs", o.jobs, "End after this many jobs")
      ->check(Whole(1, int64_t{1} << 52))
      ->type_name("N")
      ->group(group);
  app.add_option("--warmup", o.warmup_s,
                 "Jobs that begin within this time from the start are not measured")
      ->check(NotNegative())
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", o.seed, "Seed of arrivals, choices, values and right-hand sides")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

void AddWork(CLI::App& app, LoadOptions& o) {
  const std::string group = "Jobs";
  std::string families;
  for (const gallery::Family& f : gallery::Families()) {
    families += (families.empty() ? "" : ", ") + std::string(f.name);
  }
  app.add_option_function<std::string>(
         "--mix",
         [&o](const std::string& text) {
           auto shares = ParseShares(text);
           if (!shares.ok()) throw CLI::ValidationError("--mix", shares.error().message);
           o.mix = *std::move(shares);
         },
         "Matrices of the gallery and their weights: " + families)
      ->type_name("NAME:SIZE=W,...")
      ->default_str(ToText(o.mix))
      ->group(group);
  std::string engines;
  for (const EngineTraits& engine : kEngines) engines += ", " + std::string(engine.name);
  app.add_option_function<std::string>(
         "--engines",
         [&o](const std::string& text) {
           auto shares = ParseEngines(text);
           if (!shares.ok()) throw CLI::ValidationError("--engines", shares.error().message);
           o.engines = *std::move(shares);
         },
         "Engines and their weights: " + engines.substr(2))
      ->type_name("ENGINE=W,...")
      ->default_str(ToText(o.engines))
      ->group(group);
  app.add_option(
         "--variants", o.variants,
         "Different values of each matrix; more than the stores hold is a test of eviction; "
         "0: no two jobs have the same")
      ->check(Whole(0, 1 << 20))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  auto* builds = app.add_option("--build-share", o.build_share,
                                "Part of the jobs that build a preconditioner and solve nothing")
                     ->check(Fraction())
                     ->type_name("F")
                     ->capture_default_str()
                     ->group(group);
  app.add_option("--time-steps", o.time_steps, "Simulations of this many steps; closed loop")
      ->check(Whole(1, int64_t{1} << 40))
      ->type_name("K")
      ->excludes("--rate")
      ->excludes(builds)
      ->group(group);
  cli::AddChoice(&app, "--reuse", o.reuse, "What becomes of M from step to step",
                 {ReuseMode::kKeep, ReuseMode::kRebuild, ReuseMode::kAuto})
      ->needs("--time-steps")
      ->group(group);
  app.add_option("--rhs", o.rhs, "Right-hand sides per solve")
      ->check(Whole(1, 1024))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  cli::AddChoice(&app, "--method", o.method, "Krylov method",
                 {Method::kAuto, Method::kCg, Method::kBicgstab, Method::kGmres, Method::kMinres,
                  Method::kIdr})
      ->group(group);
  app.add_option("--rtol", o.rtol, "Converged when |b - Ax| <= rtol |b|")
      ->check(Positive())
      ->type_name("R")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-iterations", o.max_iterations, "Give up after this many iterations")
      ->check(Whole(1, 2147483647))
      ->type_name("K")
      ->capture_default_str()
      ->group(group);
}

void AddLimits(CLI::App& app, LoadOptions& o) {
  const std::string group = "Limits and failures";
  app.add_option("--deadline", o.deadline_s,
                 "Deadline of each job, from its beginning, including retries")
      ->check(Positive())
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--max-queue", o.max_queue_s, "Longest wait of each job in the server's queue")
      ->check(Positive())
      ->type_name("SECONDS")
      ->group(group);
  cli::AddChoice(&app, "--priority", o.priority, "Class of each job in the server's queue",
                 {Priority::kInteractive, Priority::kNormal, Priority::kBulk})
      ->group(group);
  app.add_option("--retries", o.retries,
                 "Times that a job comes back after it was refused for now, when the server says")
      ->check(Whole(0, 1'000'000))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option_function<std::vector<std::string>>(
         "--cancel",
         [&o](const std::vector<std::string>& names) {
           for (const std::string& name : names) {
             const auto* state = std::find_if(std::begin(kCancelIn), std::end(kCancelIn),
                                              [&](CancelIn in) { return Name(in) == name; });
             if (state == std::end(kCancelIn)) {
               throw CLI::ValidationError("--cancel", "'" + name + "' is none of " + States());
             }
             o.cancel.push_back(*state);
           }
         },
         "Cancel every job, in these states in turn: " + States())
      ->delimiter(',')
      ->type_name("STATE,...")
      ->group(group);
  app.add_option("--cancel-after", o.cancel_after_s,
                 "Cancel a job at random within this time after it came into the state")
      ->check(NotNegative())
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(group);
  app.add_option("--expect", o.expect,
                 "Reasons of errors and outcomes that are no failure of the run: QUEUE_FULL, "
                 "TIMEOUT, MAX_ITERATIONS, ...")
      ->delimiter(',')
      ->type_name("REASON,...")
      ->group(group);
}

void AddClients(CLI::App& app, LoadOptions& o) {
  const std::string group = "Server";
  auto* tenants =
      app.add_option("--tenants", o.tenants,
                     "Jobs of several tenants in turn: how many (load-0, ...), or their names; for "
                     "a daemon with --trust-tenant-header")
          ->type_name("N|NAME,...")
          ->excludes("--tenant")
          ->group(group);
  app.add_option("--tokens", o.tokens_file,
                 "The same, a tenant for each token of this file: lines TOKEN NAME")
      ->check(cli::ReadableFile())
      ->type_name("FILE")
      ->excludes(tenants)
      ->excludes("--token")
      ->group(group);
  app.add_option("--connections", o.connections, "Connections of each tenant")
      ->check(Whole(1, 1024))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_option("--daemon-pid", o.daemon_pid,
                 "Watch the memory of this process, which is on this machine")
      ->check(Whole(1, int64_t{1} << 40))
      ->type_name("PID")
      ->group(group);
  app.add_option("--json", o.json_file,
                 "Write the report here, with the options, as JSON; -: to stdout, in place of the "
                 "table")
      ->type_name("FILE")
      ->group("Output");
}

}  // namespace

std::optional<cli::ExitCode> ParseCommandLine(int argc, const char* const* argv,
                                              LoadOptions& options) {
  CLI::App app(
      "spaid-load sends jobs to a spaid daemon, many at a time or at a rate, and reports\n"
      "throughput, latency and errors as a client sees them.",
      "spaid-load");
  app.set_version_flag("--version", "spaid-load " SPAID_VERSION);
  app.get_formatter()->column_width(34);
  app.footer(kFooter);
  options.global.program = "spaid-load";
  cli::AddServer(app, options.global.client);
  AddLoad(app, options);
  AddWork(app, options);
  AddLimits(app, options);
  AddClients(app, options);
  cli::AddLooks(app, options.global);
  try {  // CLI11 speaks in exceptions, for --help too
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error, std::cout, std::cerr);
      return cli::ExitCode::kOk;
    }
    std::cerr << "spaid-load: " << error.what() << "\nTry `spaid-load --help`.\n";
    return cli::ExitCode::kUsage;
  }
  if (options.concurrency == 0) {
    options.concurrency = options.open_loop() ? kOpenConcurrency : kClosedConcurrency;
  }
  if (options.duration_s == 0 && options.jobs == 0) options.duration_s = kDefaultDuration;
  options.global.json = options.json_file == "-";
  return std::nullopt;
}

}  // namespace spaid::load
