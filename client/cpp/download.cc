// The server streams: Client::Download and Client::Watch.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/arrays.h"
#include "client/cpp/convert.h"
#include "client/cpp/events.h"
#include "client/cpp/impl.h"

namespace spaid {

using namespace internal;  // NOLINT(build/namespaces): our own, in our own file

Expected<CscMatrix> Client::Impl::Download(const std::string& preconditioner, const Call& call) {
  v1::DownloadPreconditionerRequest request;
  request.set_name(preconditioner);
  request.set_value_type(v1::VALUE_TYPE_FLOAT64);

  auto once = [&](grpc::ClientContext& context) -> Expected<CscMatrix> {
    const std::unique_ptr<grpc::ClientReader<v1::DownloadPreconditionerResponse>> reader =
        preconditioners->DownloadPreconditioner(&context, request);
    v1::DownloadPreconditionerResponse response;
    std::optional<CscSink> sink;
    bool is_factor = false;
    std::optional<Error> own;
    while (!own && reader->Read(&response)) {
      if (response.has_header()) {
        if (sink) {
          own = ProtocolViolation("a second header of the result");
          break;
        }
        auto created = CscSink::Create(response.header().n(), response.header().nnz(),
                                       response.header().value_type());
        if (created.ok()) {
          sink.emplace(*std::move(created));
          is_factor = response.header().is_factor();
        } else {
          own = created.error();
        }
      } else if (response.has_chunk()) {
        own = sink ? sink->Take(response.chunk())
                   : ProtocolViolation("a chunk before the result's header");
        if (!own)
          call.ReportTransfer(Stage::kDownload, sink->received_bytes(), sink->total_bytes());
      }
    }
    if (own) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (own) return *std::move(own);
    if (!status.ok()) return FromStatus(status, options.address);
    if (!sink) return ProtocolViolation("a download ended without the result");
    Expected<CscMatrix> m = sink->Finish();
    if (m.ok()) m->is_factor = is_factor;
    return m;
  };
  return Attempt<CscMatrix>(call, Repeat::kSafe, once);
}

Expected<JobInfo> Client::Impl::Watch(const std::string& name, const Call& call,
                                      int64_t first_event, Solution* solution) {
  JobFollower follower(call, name);
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_first_event(first_event);
  request.set_with_solution(solution != nullptr);

  // One connection. Goes on behind the last event that was seen, so nothing is reported twice.
  auto once = [&](grpc::ClientContext& context) -> Expected<JobInfo> {
    const std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> reader =
        jobs->WatchJob(&context, request);
    v1::WatchJobResponse response;
    std::optional<ArraySink<double>> sink;
    std::optional<Error> own;
    while (!own && reader->Read(&response)) {
      if (response.has_solution() && solution != nullptr && !sink) {
        const int64_t n = response.solution().n(), count = response.solution().rhs_count();
        if (n < 1 || n > INT32_MAX || count < 1 || count > INT32_MAX) {
          own = ProtocolViolation("a solution of an impossible size");
          break;
        }
        solution->n = n;
        solution->rhs_count = static_cast<int32_t>(count);
        sink.emplace(v1::ARRAY_KIND_SOLUTION, n * count);
      } else if (response.has_chunk()) {
        own = sink ? sink->Take(response.chunk())
                   : ProtocolViolation("a chunk before the solution's size");
      } else {
        follower.Take(response.event());
        if (follower.last_event() > 0) request.set_first_event(follower.last_event() + 1);
      }
    }
    if (own) context.TryCancel();
    const grpc::Status status = reader->Finish();
    if (own) return *std::move(own);
    // Of a watch for the events alone, what follows the last of them does not matter.
    if (follower.finished() && solution == nullptr) return *follower.finished();
    if (!status.ok()) return FromStatus(status, options.address);
    if (!follower.finished()) return ProtocolViolation("the events ended before the job had");
    if (sink) {
      if (!sink->Complete()) return ProtocolViolation("the solution ended early");
      solution->x = sink->Release();
    }
    return *follower.finished();
  };
  // As long as new events come, the job is worth reconnecting to: the attempts count from there.
  for (;;) {
    const int64_t seen = follower.last_event();
    Expected<JobInfo> info = Attempt<JobInfo>(call, Repeat::kSafe, once);
    if (info.ok() || info.error().code != Code::kUnavailable || follower.last_event() == seen) {
      return info;
    }
  }
}

}  // namespace spaid
