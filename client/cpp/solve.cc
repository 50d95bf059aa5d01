// Client::Solve: header, right-hand sides, initial guess and null vectors up, or the matrix, too,
// or its values; events, solution, outcomes down.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/arrays.h"
#include "client/cpp/chunk_source.h"
#include "client/cpp/convert.h"
#include "client/cpp/events.h"
#include "client/cpp/exchange.h"
#include "client/cpp/impl.h"
#include "client/cpp/local.h"

namespace spaid {
namespace {

using namespace internal;  // NOLINT(build/namespaces): our own, in our own file

Error WrongLength(const char* field, size_t length, const std::string& wanted) {
  return MakeError(Code::kInvalidArgument, kSizeMismatch,
                   std::string(field) + " has " + std::to_string(length) + " elements; " + wanted,
                   field);
}

Expected<int32_t> CountRightHandSides(int64_t n, std::span<const double> b,
                                      std::span<const double> guess) {
  const auto length = static_cast<int64_t>(b.size());
  if (length == 0 || length % n != 0 || length / n > kMaxRhs) {
    return WrongLength(
        "b", b.size(),
        "n = " + std::to_string(n) + " times the number of right-hand sides is needed");
  }
  if (!guess.empty() && guess.size() != b.size()) {
    return WrongLength("initial_guess", guess.size(),
                       "as many as b has (" + std::to_string(b.size()) + ") are needed, or none");
  }
  return static_cast<int32_t>(length / n);
}

// 0: none, or where `null_space` says otherwise.
Expected<int32_t> CountNullVectors(int64_t n, const SolveOptions& options) {
  const auto length = static_cast<int64_t>(options.null_vectors.size());
  if (length % n != 0 || length / n > kMaxRhs) {
    return WrongLength("null_vectors", options.null_vectors.size(),
                       "n = " + std::to_string(n) + " times the number of vectors is needed");
  }
  return static_cast<int32_t>(length / n);
}

// The daemon, writing in place, must leave alone all that a second attempt would send.
bool Overlaps(std::span<double> solution, const std::vector<OutgoingArray>& arrays) {
  const auto place = std::as_bytes(solution);
  return std::any_of(arrays.begin(), arrays.end(), [&](const OutgoingArray& array) {
    return std::less<>()(array.bytes.data(), place.data() + place.size()) &&
           std::less<>()(place.data(), array.bytes.data() + array.bytes.size());
  });
}

v1::SolveHeader Header(int32_t rhs_count, int32_t null_vectors, const SolveOptions& options,
                       const CallOptions& call, const v1::JobLimits& limits) {
  v1::SolveHeader header;
  if (!options.preconditioner.empty()) {
    header.set_preconditioner(options.preconditioner);
  } else {
    PreconditionerSpec spec = options.spec;
    spec.engine = options.engine;
    *header.mutable_spec() = ToProto(spec);
  }
  if (!options.preconditioner.empty() || options.reuse.mode != ReuseMode::kKeep) {
    *header.mutable_reuse() = ToProto(options.reuse);
  }
  Set(options, &header);
  header.set_rhs_count(rhs_count);
  header.set_has_initial_guess(!options.initial_guess.empty());
  if (options.null_vectors.empty()) {
    header.set_null_space(ToProto(options.null_space));
  } else {
    header.set_null_vectors(null_vectors);
  }
  header.set_omit_solution(options.omit_solution);
  header.set_detach(call.detach);
  header.set_priority(ToProto(call.priority));
  *header.mutable_limits() = limits;
  return header;
}

Expected<SolveResult> Assemble(const v1::SolveDone& done, int32_t rhs_count,
                               const std::vector<Residual>& residuals) {
  if (done.outcomes_size() != rhs_count) {
    return ProtocolViolation("as many outcomes as right-hand sides were expected");
  }
  SolveResult result;
  result.rhs.resize(static_cast<size_t>(rhs_count));
  for (int i = 0; i < rhs_count; ++i) {
    static_cast<JobInfo::RhsOutcome&>(result.rhs[static_cast<size_t>(i)]) =
        FromProto(done.outcomes(i));
  }
  for (const Residual& residual : residuals) {
    if (residual.rhs < 0 || residual.rhs >= rhs_count) {
      return ProtocolViolation("a residual of a right-hand side that was not sent");
    }
    result.rhs[static_cast<size_t>(residual.rhs)].history.push_back(residual);
  }
  result.method = FromProto(done.method());
  result.engine = FromProto(done.choice().engine());
  result.choice_reason = done.choice().reason();
  result.placement = done.placement();
  result.m_placement = done.choice().placement();
  result.m_precision = FromProto(done.preconditioner_storage());
  result.precision_reason = done.storage_reason();
  result.figures = FromProto(done.figures());
  result.matrix = done.matrix();
  result.preconditioner = done.preconditioner();
  result.device = done.device();
  result.job = done.job();
  result.nnz_ratio = done.nnz_ratio();
  if (done.has_quality()) result.quality = FromProto(done.quality());
  result.timings = FromProto(done.timings());
  result.null_space = done.null_space();
  if (done.has_reuse()) result.reuse = FromProto(done.reuse());
  for (const v1::Rung& rung : done.rungs()) result.rungs.push_back(FromProto(rung));
  return result;
}

}  // namespace

Expected<SolveResult> Client::Impl::Solve(const Source& of, int64_t n, std::span<const double> b,
                                          const SolveOptions& solve, const Call& call) {
  const WidePointers wide(of.a != nullptr ? *of.a : CscView{});
  const CscView& a = wide.view();
  if (of.a != nullptr) {
    if (auto error = CheckSpans(a)) return *std::move(error);
  }
  if (!solve.solution.empty() && solve.solution.size() != b.size()) {
    return WrongLength("solution", solve.solution.size(),
                       "as many as b has (" + std::to_string(b.size()) + ") are needed, or none");
  }
  const Source checked{of.matrix, of.a != nullptr ? &a : nullptr};
  return WithLeases(*link,
                    [&](bool shared) { return SolveOver(shared, checked, n, b, solve, call); });
}

Expected<SolveResult> Client::Impl::SolveOver(bool shared, const Source& of, int64_t n,
                                              std::span<const double> b, const SolveOptions& solve,
                                              const Call& call) {
  Expected<v1::JobLimits> limits = call.Limits();
  if (!limits.ok()) return limits.error();
  Expected<int32_t> rhs_count = CountRightHandSides(n, b, solve.initial_guess);
  if (!rhs_count.ok()) return rhs_count.error();
  Expected<int32_t> null_vectors = CountNullVectors(n, solve);
  if (!null_vectors.ok()) return null_vectors.error();
  v1::SolveRequest header_request;
  v1::SolveHeader& header = *header_request.mutable_header();
  header = Header(*rhs_count, *null_vectors, solve, call.options(), *limits);
  const bool values_alone = of.a != nullptr && !of.matrix.empty();
  if (of.a == nullptr) {
    header.set_matrix(of.matrix);
  } else {
    *header.mutable_inline_matrix() = MatrixHeaderOf(*of.a, "");
    if (values_alone) header.mutable_inline_matrix()->set_same_pattern_as(of.matrix);
  }

  std::vector<OutgoingArray> arrays{Outgoing(v1::ARRAY_KIND_RHS, b),
                                    Outgoing(v1::ARRAY_KIND_INITIAL_GUESS, solve.initial_guess),
                                    Outgoing(v1::ARRAY_KIND_NULL_SPACE, solve.null_vectors)};
  if (of.a != nullptr) {
    for (const OutgoingArray& array : ArraysOf(*of.a)) {
      if (!values_alone || array.kind == v1::ARRAY_KIND_VALUES) arrays.push_back(array);
    }
  }
  const Outgoings outgoing(arrays, shared ? link.get() : nullptr);
  if (shared && !solve.omit_solution && !Overlaps(solve.solution, arrays)) {
    if (auto place = link->Find(v1::ARRAY_KIND_SOLUTION, std::as_bytes(solve.solution))) {
      *header.mutable_solution_segment() = *std::move(place);
    }
  }

  std::string affinity = AffinityOf(of.matrix);
  if (affinity.empty() && of.a != nullptr) {
    affinity = AffinityBeside(solve.spec, solve.preconditioner);
    if (affinity.empty() && call.options().affinity.empty()) affinity = PatternAffinity(*of.a);
  }

  auto once = [&](Replica& replica, grpc::ClientContext& context) -> Expected<SolveResult> {
    ArraySource source(outgoing, options.chunk_bytes, options.send_checksums);
    source.WantAll();
    bool header_sent = false;
    JobFollower follower(call);
    ArraySink<double> solution(v1::ARRAY_KIND_SOLUTION, static_cast<int64_t>(b.size()));
    std::optional<v1::SolveDone> done;

    Exchange<v1::SolveResponse> exchange(context, replica.channel, "/spaid.v1.SolverService/Solve");
    auto next = [&](grpc::ByteBuffer& request) {
      if (!header_sent) {
        header_sent = true;
        request = Serialized(header_request);
        return Feed::kMessage;
      }
      // b is not empty, and kLast follows the last of all.
      request = source.Next<v1::SolveRequest>();
      return source.Empty() ? Feed::kLast : Feed::kMessage;
    };
    auto take = [&](const v1::SolveResponse& response) -> std::optional<Error> {
      switch (response.event_case()) {
        case v1::SolveResponse::kJob:
          return follower.Take(response.job());
        case v1::SolveResponse::kChunk:
          if (auto error = solution.Take(response.chunk())) return error;
          call.ReportTransfer(Stage::kDownload, 8 * solution.received(),
                              8 * static_cast<int64_t>(b.size()));
          break;
        case v1::SolveResponse::kDone:
          done = response.done();
          break;
        case v1::SolveResponse::kNeed:
        case v1::SolveResponse::kMatrix:
        case v1::SolveResponse::EVENT_NOT_SET:
          break;
      }
      return std::nullopt;
    };
    auto written = [&] {
      if (source.sent_bytes() > 0) {
        call.ReportTransfer(Stage::kUpload, source.sent_bytes(), source.total_bytes());
      }
    };
    if (auto error = exchange.Run(replica.address, next, take, written)) return *std::move(error);
    if (!done) return ProtocolViolation("a solve ended without its outcome");
    const auto size = static_cast<int64_t>(b.size_bytes());
    const bool in_place = header.has_solution_segment() && done->solution_bytes() == size;
    if (!solve.omit_solution && !in_place && !solution.Complete()) {
      return ProtocolViolation("the solution ended before all of it had come");
    }
    Expected<SolveResult> result = Assemble(*done, *rhs_count, follower.residuals());
    if (in_place) {
      link->CountShared(size);
    } else if (result.ok() && !solve.omit_solution) {
      result->x = solution.Release();
      if (!solve.solution.empty()) {
        std::copy(result->x.begin(), result->x.end(), solve.solution.begin());
        result->x.clear();
      }
    }
    return result;
  };
  // A second detached solve would be a second job that nobody waits for.
  return Attempt<SolveResult>(call, affinity,
                              call.options().detach ? Repeat::kOnlyIfRefused : Repeat::kSafe, once);
}

}  // namespace spaid
