// Sends spans to a collector by OTLP over gRPC (proto/opentelemetry). Nobody waits for it: what
// finds no room, or what a collector does not take in time, is dropped and counted. While none is
// there the queue stays full, and nobody makes any more.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/trace.h"

namespace grpc {
class Channel;
}

namespace spaid::server {

// Holds what the environment of OpenTelemetry says, by its names.
struct OtlpOptions {
  std::string endpoint;  // "http://HOST:PORT", or https; empty: nothing is exported
  std::string ca_file;   // for https; empty: the system's authorities
  // Attributes of the resource: service.name, service.instance.id, …
  std::vector<std::pair<std::string, std::string>> resource;
  Sampling sampling;
  size_t queue = 2048;                        // spans that may wait, and those of one request
  size_t batch = 512;                         // spans that are sent at once
  std::chrono::milliseconds delay{5000};      // of fewer, and behind a request that failed
  std::chrono::milliseconds timeout{10'000};  // of a request
};

// Reads OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_CERTIFICATE,
// OTEL_TRACES_SAMPLER and its _ARG, the part of the options beside the endpoint. `variable`: as
// getenv; null: unset. `version`: the daemon's. Errors: INVALID_ARGUMENT/BAD_FLAG, with the
// variable's name.
absl::StatusOr<OtlpOptions> OtlpFromEnvironment(
    const std::function<const char*(const char*)>& variable, const std::string& version);

struct SpanCounts {
  int64_t exported = 0, queue_full = 0, failed = 0;  // the last: refused, or nobody took them
};

// Thread-safe.
class OtlpExporter final : public SpanSink {
 public:
  // Errors: INVALID_ARGUMENT/BAD_FLAG for an endpoint that is no URL, or a file that cannot be
  // read.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Start(OtlpOptions options);
  // Sends what waits, for a second at most.
  ~OtlpExporter() override;

  void Add(Span span) override;
  bool HasRoom() override;
  SpanCounts counts() const;

 private:
  OtlpExporter(OtlpOptions options, std::shared_ptr<grpc::Channel> channel);
  void Run();
  bool Export(const std::vector<Span>& spans, std::chrono::milliseconds timeout);

  const OtlpOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;
  std::condition_variable some_;
  std::vector<Span> waiting_;      // guarded by mutex_
  std::atomic<bool> full_{false};  // the queue was, when a span came; until it is taken
  bool stopping_ = false;          // guarded by mutex_
  std::atomic<int64_t> exported_{0}, queue_full_{0}, failed_{0};
  std::thread thread_;
};

}  // namespace spaid::server
