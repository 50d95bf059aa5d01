#include "server/ops/otlp_exporter.h"

#include <google/protobuf/arena.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <future>
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

constexpr absl::string_view kPackage = "spaid.v1.";

otlp::common::v1::AnyValue* Attribute(
    absl::string_view key, google::protobuf::RepeatedPtrField<otlp::common::v1::KeyValue>* to) {
  auto* const added = to->Add();
  added->set_key(key.data(), key.size());
  return added->mutable_value();
}

uint64_t Nanoseconds(WallTime time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// As semantic conventions name it.
void FillCall(const Span& call, otlp::trace::v1::Span* to) {
  const absl::string_view method(call.name.data(), call.name.size());
  const std::pair<absl::string_view, absl::string_view> name =
      absl::StrSplit(method, absl::MaxSplits('/', 1));
  to->set_name(absl::StrCat(kPackage, method));
  auto* const attributes = to->mutable_attributes();
  Attribute("rpc.system", attributes)->set_string_value("grpc");
  Attribute("rpc.service", attributes)->set_string_value(absl::StrCat(kPackage, name.first));
  Attribute("rpc.method", attributes)->set_string_value(name.second.data(), name.second.size());
  Attribute("rpc.grpc.status_code", attributes)->set_int_value(call.code);
  if (!call.job.empty()) Attribute("spaid.job", attributes)->set_string_value(call.job);
  if (call.code == 0) return;
  Attribute("error.type", attributes)->set_string_value(call.reason);
  to->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
  to->mutable_status()->set_message(call.error);
}

void Fill(const Span& span, otlp::trace::v1::Span* to) {
  to->set_trace_id(span.of->trace.data(), span.of->trace.size());
  to->set_span_id(span.id.data(), span.id.size());
  to->set_trace_state(span.of->state);
  if (span.parent != SpanId{}) to->set_parent_span_id(span.parent.data(), span.parent.size());
  to->set_kind(span.is_call ? otlp::trace::v1::Span::SPAN_KIND_SERVER
                            : otlp::trace::v1::Span::SPAN_KIND_INTERNAL);
  to->set_start_time_unix_nano(Nanoseconds(span.begin));
  to->set_end_time_unix_nano(Nanoseconds(span.end));
  to->set_flags(1);  // sampled
  if (span.is_call) {
    FillCall(span, to);
  } else {
    to->set_name(span.name.data(), span.name.size());
  }
  for (const Span::Residual& residual : span.residuals) {
    auto* const event = to->add_events();
    event->set_time_unix_nano(Nanoseconds(residual.time));
    event->set_name("residual");
    auto* const attributes = event->mutable_attributes();
    Attribute("spaid.iteration", attributes)->set_int_value(residual.iteration);
    Attribute("spaid.relative_residual", attributes)->set_double_value(residual.relative_residual);
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
    : options_(std::move(options)), channel_(std::move(channel)) {
  waiting_.reserve(options_.queue);
  thread_ = std::thread([this] {
    // The process's signals are for others.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    Run();
  });
}

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
  std::vector<Span> spans;
  spans.reserve(options_.queue);
  bool patient = false;  // nobody took the last ones
  for (bool last = false; !last;) {
    {
      std::unique_lock lock(mutex_);
      some_.wait_for(lock, options_.delay,
                     [&] { return stopping_ || (!patient && waiting_.size() >= options_.batch); });
      last = stopping_;
      if (waiting_.empty()) continue;
    }
    // Spans that find nobody wait on, and cost nothing more: the queue is full before long.
    patient = channel_->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_TRANSIENT_FAILURE;
    if (patient && !last) continue;
    {
      const std::lock_guard lock(mutex_);
      spans.swap(waiting_);
      full_ = false;
    }
    const auto count = static_cast<int64_t>(spans.size());
    patient = !Export(spans, last ? kLast : options_.timeout);
    (patient ? failed_ : exported_) += count;
    spans.clear();
  }
}

// All that waits in one request: the queue bounds it.
bool OtlpExporter::Export(const std::vector<Span>& spans, std::chrono::milliseconds timeout) {
  google::protobuf::Arena arena;
  auto* const request = google::protobuf::Arena::CreateMessage<Request>(&arena);
  auto* const resource = request->add_resource_spans();
  for (const auto& [key, value] : options_.resource) {
    Attribute(key, resource->mutable_resource()->mutable_attributes())->set_string_value(value);
  }
  auto* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("spaid");
  scope->mutable_spans()->Reserve(static_cast<int>(spans.size()));
  for (const Span& span : spans) Fill(span, scope->add_spans());

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  grpc::TemplatedGenericStub<Request, Response> stub(channel_);
  Response response;
  // By a callback: a queue of completions would make this thread one of gRPC's that read sockets,
  // all the time that a slow collector takes.
  const auto ended = std::make_shared<std::promise<grpc::Status>>();
  auto end = ended->get_future();
  stub.UnaryCall(&context, kMethod, {}, request, &response,
                 [ended](grpc::Status status) { ended->set_value(std::move(status)); });
  const grpc::Status status = end.get();
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
