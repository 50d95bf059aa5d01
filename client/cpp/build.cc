// Client::Build by handle: header, then job events, then M where it is asked for.
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/arrays.h"
#include "client/cpp/convert.h"
#include "client/cpp/csc_sink.h"
#include "client/cpp/events.h"
#include "client/cpp/exchange.h"
#include "client/cpp/impl.h"

namespace spaid {

using namespace internal;  // NOLINT(build/namespaces): our own, in our own file

Expected<BuildResult> Client::Impl::Build(const std::string& matrix, const PreconditionerSpec& spec,
                                          bool fetch_result, const CscMatrix* known,
                                          const Call& call) {
  Expected<v1::JobLimits> limits = call.Limits();
  if (!limits.ok()) return limits.error();
  if (fetch_result && TraitsOf(spec.engine).by_parts) {
    return MakeError(Code::kInvalidArgument, kPartNeeded,
                     "M of " + std::string(TraitsOf(spec.engine).title) +
                         " is a cycle and no matrix that could be fetched: solve with it, or build "
                         "it without fetching and download its parts one by one",
                     "part");
  }
  if (fetch_result && TraitsOf(spec.engine).ranks_alone) {
    return MakeError(
        Code::kFailedPrecondition, kMatrixOverRanks,
        "M of " + std::string(TraitsOf(spec.engine).title) +
            " lies over the server's ranks and is not sent: build it without fetching, "
            "and solve with its handle",
        "engine");
  }
  v1::BuildPreconditionerRequest header_request;
  v1::BuildHeader& header = *header_request.mutable_header();
  header.set_matrix(matrix);
  *header.mutable_spec() = ToProto(spec);
  header.set_stream_result(fetch_result);
  header.set_partial_result(fetch_result);
  header.set_detach(call.options().detach);
  header.set_priority(ToProto(call.options().priority));
  *header.mutable_limits() = *limits;
  if (fetch_result) {
    Expected<std::string> known_pattern = KnownPattern(known);
    if (!known_pattern.ok()) return known_pattern.error();
    if (known_pattern->empty()) known = nullptr;
    header.set_known_pattern(*std::move(known_pattern));
  }

  auto once = [&](Replica& replica, grpc::ClientContext& context) -> Expected<BuildResult> {
    JobFollower follower(call);
    std::optional<CscSink> sink;
    std::optional<BuildResult> result;
    bool is_factor = false;

    Exchange<v1::BuildPreconditionerResponse> exchange(
        context, replica.channel, "/spaid.v1.PreconditionerService/BuildPreconditioner");
    auto next = [&](grpc::ByteBuffer& request) {
      request = Serialized(header_request);
      return Feed::kLast;
    };
    auto take = [&](v1::BuildPreconditionerResponse& response) -> std::optional<Error> {
      switch (response.event_case()) {
        case v1::BuildPreconditionerResponse::kJob:
          return follower.Take(response.job());
        case v1::BuildPreconditionerResponse::kResult: {
          // A second result voids what came before: the build began anew.
          auto created = CscSink::Create(response.result(), known);
          if (!created.ok()) return created.error();
          sink.emplace(*std::move(created));
          is_factor = response.result().is_factor();
          break;
        }
        case v1::BuildPreconditionerResponse::kChunk:
          if (!sink) return ProtocolViolation("a chunk before the result's header");
          if (auto error = sink->Take(std::move(*response.mutable_chunk()))) return error;
          // One thing at a time: while M is being built, progress is that of the build.
          if (follower.finished() || follower.job().empty()) {
            call.ReportTransfer(Stage::kDownload, sink->received_bytes(), sink->total_bytes());
          }
          break;
        case v1::BuildPreconditionerResponse::kDone:
          result.emplace();
          result->preconditioner = FromProto(response.done().preconditioner());
          result->timings = FromProto(response.done().timings());
          break;
        case v1::BuildPreconditionerResponse::kMatrix:
        case v1::BuildPreconditionerResponse::kNeed:
        case v1::BuildPreconditionerResponse::EVENT_NOT_SET:
          break;
      }
      return std::nullopt;
    };
    if (auto error = exchange.Run(replica.address, next, take, [] {})) {
      if (sink && sink->received_bytes() > 0) {
        error->message += " (of the preconditioner " + std::to_string(sink->received_bytes()) +
                          " bytes had come, which were discarded)";
      }
      return *std::move(error);
    }
    if (!result) return ProtocolViolation("a build ended without its result");
    if (fetch_result) {
      if (!sink) return ProtocolViolation("the result that was asked for did not come");
      Expected<CscMatrix> m = sink->Finish();
      if (!m.ok()) return m.error();
      result->m = *std::move(m);
      result->m->is_factor = is_factor;
    }
    return *std::move(result);
  };
  // A detached build is still one build when it is asked for twice: the daemon joins them by
  // content.
  return Attempt<BuildResult>(call, AffinityOf(matrix), Repeat::kSafe, once);
}

}  // namespace spaid
