#include "server/ops/otlp_exporter.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

namespace otlp = opentelemetry::proto;
using Request = otlp::collector::trace::v1::ExportTraceServiceRequest;
using Response = otlp::collector::trace::v1::ExportTraceServiceResponse;

constexpr char kMethod[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr std::chrono::milliseconds kLast{1000};  // of the last request, when the daemon ends

absl::Status BadFlag(const std::string& name, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadFlag,
                   absl::StrCat(name, ": ", what))
      .Field(name);
}

void Set(otlp::common::v1::KeyValue* to, const std::string& key, const Span::Value& value) {
  to->set_key(key);
  auto* any = to->mutable_value();
  if (const auto* text = std::get_if<std::string>(&value)) any->set_string_value(*text);
  if (const auto* whole = std::get_if<int64_t>(&value)) any->set_int_value(*whole);
  if (const auto* real = std::get_if<double>(&value)) any->set_double_value(*real);
}

uint64_t Nanoseconds(WallTime time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

template <size_t kSize>
std::string Bytes(const std::array<uint8_t, kSize>& id) {
  return std::string(id.begin(), id.end());
}

void Fill(const Span& span, otlp::trace::v1::Span* to) {
  to->set_trace_id(Bytes(span.of->trace));
  to->set_span_id(Bytes(span.id));
  to->set_trace_state(span.of->state);
  if (span.parent != SpanId{}) to->set_parent_span_id(Bytes(span.parent));
  to->set_name(span.name);
  to->set_kind(span.is_call ? otlp::trace::v1::Span::SPAN_KIND_SERVER
                            : otlp::trace::v1::Span::SPAN_KIND_INTERNAL);
  to->set_start_time_unix_nano(Nanoseconds(span.begin));
  to->set_end_time_unix_nano(Nanoseconds(span.end));
  to->set_flags(1);  // sampled
  for (const auto& [key, value] : span.attributes) Set(to->add_attributes(), key, value);
  if (!span.error.empty()) {
    to->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
    to->mutable_status()->set_message(span.error);
  }
}

absl::StatusOr<Sampling> SamplingOf(const std::string& name, const std::string& argument) {
  Sampling sampling;
  absl::string_view kind = name;
  sampling.by_parent = absl::ConsumePrefix(&kind, "parentbased_");
  if (kind == "always_on") return sampling;
  sampling.ratio = 0;
  if (kind == "always_off") return sampling;
  if (kind != "traceidratio") {
    return BadFlag("OTEL_TRACES_SAMPLER",
                   absl::StrCat("'", name,
                                "' is none of always_on, always_off, traceidratio, and these "
                                "behind parentbased_"));
  }
  sampling.ratio = 1;
  if (!argument.empty() && !(absl::SimpleAtod(argument, &sampling.ratio) && sampling.ratio >= 0 &&
                             sampling.ratio <= 1)) {
    return BadFlag("OTEL_TRACES_SAMPLER_ARG",
                   absl::StrCat("'", argument, "' is no ratio from 0 to 1"));
  }
  return sampling;
}

}  // namespace

absl::StatusOr<OtlpOptions> OtlpFromEnvironment(
    const std::function<const char*(const char*)>& variable, const std::string& version) {
  const auto text = [&](const char* name) {
    const char* const value = variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  OtlpOptions options;
  const std::string name = text("OTEL_SERVICE_NAME");
  options.ca_file = text("OTEL_EXPORTER_OTLP_CERTIFICATE");
  options.resource = {{"service.name", name.empty() ? "spaid" : name},
                      {"service.version", version}};
  const std::string attributes = text("OTEL_RESOURCE_ATTRIBUTES");
  for (const absl::string_view pair : absl::StrSplit(attributes, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> one = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (one.first.empty() || !absl::StrContains(pair, "=")) {
      return BadFlag("OTEL_RESOURCE_ATTRIBUTES",
                     absl::StrCat("'", pair, "' is not KEY=VALUE; write them with commas between"));
    }
    const auto known = std::find_if(options.resource.begin(), options.resource.end(),
                                    [&](const auto& other) { return other.first == one.first; });
    if (known == options.resource.end()) {
      options.resource.push_back(one);
    } else if (one.first != "service.name" || name.empty()) {
      known->second = one.second;
    }
  }
  const std::string sampler = text("OTEL_TRACES_SAMPLER");
  ASSIGN_OR_RETURN(options.sampling, SamplingOf(sampler.empty() ? "parentbased_always_on" : sampler,
                                                text("OTEL_TRACES_SAMPLER_ARG")));
  return options;
}

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(OtlpOptions options) {
  absl::string_view address = options.endpoint;
  const bool tls = absl::ConsumePrefix(&address, "https://");
  if (!tls && !absl::ConsumePrefix(&address, "http://")) {
    return BadFlag("--otlp-endpoint",
                   absl::StrCat("'", options.endpoint,
                                "' is no URL like http://collector:4317 (gRPC's port)"));
  }
  absl::ConsumeSuffix(&address, "/");
  if (address.empty() || absl::StrContains(address, "/")) {
    return BadFlag("--otlp-endpoint", absl::StrCat("'", options.endpoint,
                                                   "' has no host, or a path, which gRPC has not"));
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (tls) {
    grpc::SslCredentialsOptions ssl;
    if (!options.ca_file.empty()) {
      std::ifstream file(options.ca_file);
      std::ostringstream pem;
      if (!file || !(pem << file.rdbuf())) {
        return BadFlag("OTEL_EXPORTER_OTLP_CERTIFICATE",
                       absl::StrCat("cannot read ", options.ca_file));
      }
      ssl.pem_root_certs = pem.str();
    }
    credentials = grpc::SslCredentials(ssl);
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetUserAgentPrefix("spaid");
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(
      std::move(options), grpc::CreateCustomChannel(std::string(address), credentials, arguments)));
}

OtlpExporter::OtlpExporter(OtlpOptions options, std::shared_ptr<grpc::Channel> channel)
    : options_(std::move(options)), channel_(std::move(channel)), thread_([this] {
        // The process's signals are for others.
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        Run();
      }) {}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  some_.notify_one();
  thread_.join();
}

void OtlpExporter::Add(Span span) {
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= options_.queue) {
      full_ = true;
      ++queue_full_;
      return;
    }
    waiting_.push_back(std::move(span));
    full = waiting_.size() == options_.batch;
  }
  if (full) some_.notify_one();
}

bool OtlpExporter::HasRoom() {
  if (!full_.load(std::memory_order_relaxed)) return true;
  ++queue_full_;
  return false;
}

SpanCounts OtlpExporter::counts() const { return {exported_, queue_full_, failed_}; }

void OtlpExporter::Run() {
  for (bool last = false; !last;) {
    std::vector<Span> spans;
    {
      std::unique_lock lock(mutex_);
      some_.wait_for(lock, options_.delay,
                     [this] { return stopping_ || waiting_.size() >= options_.batch; });
      last = stopping_;
      spans.swap(waiting_);
      full_ = false;
    }
    const auto count = static_cast<int64_t>(spans.size());
    if (count == 0) continue;
    (Export(spans, last ? kLast : options_.timeout) ? exported_ : failed_) += count;
  }
}

// All that waits in one request: the queue bounds it.
bool OtlpExporter::Export(const std::vector<Span>& spans, std::chrono::milliseconds timeout) {
  // Spans are turned into messages only for a collector that is there.
  const auto until = std::chrono::system_clock::now() + timeout;
  if (!channel_->WaitForConnected(std::min(until, std::chrono::system_clock::now() + kLast))) {
    return false;
  }
  Request request;
  auto* const resource = request.add_resource_spans();
  for (const auto& [key, value] : options_.resource) {
    Set(resource->mutable_resource()->add_attributes(), key, value);
  }
  auto* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("spaid");
  for (const Span& span : spans) Fill(span, scope->add_spans());

  grpc::ClientContext context;
  context.set_deadline(until);
  grpc::CompletionQueue queue;
  grpc::TemplatedGenericStub<Request, Response> stub(channel_);
  Response response;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) {
    Log(LogLevel::kWarning, "spans_not_exported",
        {{"endpoint", options_.endpoint},
         {"code", static_cast<int>(status.error_code())},
         {"text", status.error_message()}});
    return false;
  }
  // Those that it refused are gone like the others.
  const int64_t rejected = std::clamp<int64_t>(response.partial_success().rejected_spans(), 0,
                                               static_cast<int64_t>(spans.size()));
  failed_ += rejected;
  exported_ -= rejected;
  return true;
}

}  // namespace spaid::server
