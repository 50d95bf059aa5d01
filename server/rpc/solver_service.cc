#include "server/rpc/solver_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "server/base/affinity.h"
#include "server/engine/resolved_build.h"
#include "server/rpc/array_receiver.h"
#include "server/rpc/chunk_source.h"
#include "server/rpc/kept_jobs.h"
#include "server/rpc/work_stream.h"

namespace spaid::server {
namespace {

class SolveStream final : public WorkStream<v1::SolveRequest, v1::SolveResponse> {
 public:
  SolveStream(grpc::CallbackServerContext* context, Backend* backend)
      : WorkStream(context, "SolverService/Solve", backend) {}

 private:
  absl::Status TakeHeader(const v1::SolveHeader& header) override {
    ASSIGN_OR_RETURN(solve_, ParseSolve(header, "header"));
    ASSIGN_OR_RETURN(terms_, backend_->Terms(header, *context_));
    terms_.trace = trace();
    switch (header.preconditioning_case()) {
      case v1::SolveHeader::kPreconditioner: {
        ASSIGN_OR_RETURN(preconditioner_,
                         backend_->preconditioners().Look(tenant(), header.preconditioner()));
        break;
      }
      case v1::SolveHeader::kSpec:
        RETURN_IF_ERROR(ParseSpec(header.spec(), "header.spec"));
        spec_ = header.spec();
        break;
      default:
        return MakeError(absl::StatusCode::kInvalidArgument, reason::kMissingField,
                         "the header says nothing of preconditioning; set `preconditioner`, or "
                         "`spec` (ENGINE_KIND_NONE for a solve without)")
            .Field("header.spec");
    }
    // n < 2^31 and rhs_count <= 1024: no overflow.
    const int64_t size = n_locked() * solve_.rhs_count;
    const int64_t arrays = header.has_initial_guess() ? 3 : 2;  // b, x, and the guess
    const int64_t null_size = n_locked() * solve_.null_vectors;
    const int64_t bytes = (arrays * size + null_size) * 8;
    if (const int64_t limit = backend_->rhs_budget().limit(); bytes > limit) {
      return MakeError(absl::StatusCode::kResourceExhausted, reason::kRhsTooLarge,
                       absl::StrCat(solve_.rhs_count, " right-hand sides of ", n_locked(),
                                    " numbers, with guess", null_size > 0 ? ", null vectors" : "",
                                    " and solution, take ", bytes, " bytes; the limit is ", limit,
                                    " (--rhs-bytes); send fewer at once"))
          .Field("header.rhs_count")
          .Meta("actual", bytes)
          .Meta("limit", limit);
    }
    // Taken as chunks arrive: a header alone costs nobody anything.
    ASSIGN_OR_RETURN(share_, backend_->rhs_budget().Take(tenant(), 0));
    b_.emplace(v1::ARRAY_KIND_RHS, size);
    if (header.has_initial_guess()) x0_.emplace(v1::ARRAY_KIND_INITIAL_GUESS, size);
    if (null_size > 0) null_.emplace(v1::ARRAY_KIND_NULL_SPACE, null_size);
    omit_solution_ = header.omit_solution();
    if (header.detach() && backend_->kept_jobs() != nullptr) kept_header_ = header;
    if (header.has_solution_segment() && !omit_solution_) {
      RETURN_IF_ERROR(TakeSolutionSegment(header.solution_segment(), 8 * size));
    }
    return absl::OkStatus();
  }

  // Now, not when the solve is done, for what can be told now.
  absl::Status TakeSolutionSegment(const v1::ArraySegment& segment, int64_t bytes) {
    static constexpr char kField[] = "header.solution_segment";
    ASSIGN_OR_RETURN(place_, backend_->segments().Find(tenant(), segment, kField));
    const auto bad = [](const char* field, const std::string& what) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadSegment, what)
          .Field(absl::StrCat(kField, field));
    };
    if (segment.array() != v1::ARRAY_KIND_SOLUTION || segment.start() != 0) {
      return bad(".array", "a whole ARRAY_KIND_SOLUTION goes into a solution's segment");
    }
    if (segment.bytes() != bytes) {
      return bad(".bytes", absl::StrCat("the solution has ", bytes, " bytes, and its place ",
                                        segment.bytes(), "; they must be the same"));
    }
    if (!place_->segment->writable()) {
      return bad(".lease",
                 "the segment of the solution can only be read; leave out F_SEAL_WRITE and send a "
                 "descriptor that is open for writing, too");
    }
    return absl::OkStatus();
  }

  absl::Status TakeChunk(const ChunkView& chunk) override {
    backend_->metrics().BytesReceived(chunk.bytes);
    switch (chunk.array) {
      case v1::ARRAY_KIND_RHS:
        return Add(&*b_, chunk, "rhs", /*copies=*/2);  // the solution will be as large
      case v1::ARRAY_KIND_INITIAL_GUESS:
        if (x0_) return Add(&*x0_, chunk, "initial_guess", /*copies=*/1);
        return UnexpectedArray(chunk, "no initial guess: the header does not announce one");
      case v1::ARRAY_KIND_NULL_SPACE:
        if (null_) return Add(&*null_, chunk, "null_space", /*copies=*/1);
        return UnexpectedArray(chunk, "no null vectors: the header does not announce any");
      default:
        return UnexpectedArray(chunk, absl::StrCat("rhs", x0_ ? " or initial_guess" : "",
                                                   null_ ? " or null_space" : ""));
    }
  }

  // Too many elements is a vector of the wrong length, and said so; the rest is the receiver's.
  // `copies`: of the array's bytes, that are taken from the budget.
  absl::Status Add(ArrayReceiver<double>* receiver, const ChunkView& chunk, const char* name,
                   int64_t copies) {
    const int64_t elements = chunk.bytes / 8;
    if (chunk.offset == receiver->received() && elements > receiver->size() - chunk.offset) {
      return WrongLength(*receiver, name, "at least ", chunk.offset + elements);
    }
    return receiver->Add(chunk,
                         [this, copies](int64_t bytes) { return share_.Grow(copies * bytes); });
  }

  absl::Status WrongLength(const ArrayReceiver<double>& receiver, const char* name,
                           const char* bound, int64_t actual) const {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kRhsLengthMismatch,
                     absl::StrCat(name, " has ", bound, actual, " elements and must have ",
                                  receiver.size(), " (n = ", n_locked(), " times ",
                                  &receiver == (null_ ? &*null_ : nullptr)
                                      ? absl::StrCat("null_vectors = ", solve_.null_vectors)
                                      : absl::StrCat("rhs_count = ", solve_.rhs_count),
                                  ")"))
        .Field(name)
        .Meta("expected", receiver.size())
        .Meta("actual", actual);
  }

  bool wants_chunks() const override { return true; }

  absl::Status CheckComplete() override {
    if (!b_->complete()) return WrongLength(*b_, "rhs", "", b_->received());
    if (x0_ && !x0_->complete()) return WrongLength(*x0_, "initial_guess", "", x0_->received());
    if (null_ && !null_->complete())
      return WrongLength(*null_, "null_space", "", null_->received());
    return absl::OkStatus();
  }

  absl::StatusOr<Started> Submit() override {
    if (preconditioner_ && preconditioner_->value == nullptr) {
      ASSIGN_OR_RETURN(preconditioner_,
                       backend_->preconditioners().Load(tenant(), preconditioner_->handle));
    }
    JobFactory::SolveRequest request{
        .tenant = tenant(),
        .matrix = *matrix_,
        .preconditioner = std::move(preconditioner_),
        .spec = std::move(spec_),
        .solve = solve_,
        .b = b_->Take(),
        .x0 = x0_ ? x0_->Take() : kernels::Array<double>(),
        .null_vectors = null_ ? null_->Take() : kernels::Array<double>(),
        .share = std::move(share_),
        .terms = terms_,
        .stop = stop()};
    std::shared_ptr<JobPromise> promise;
    if (kept_header_) {
      request.job_name = NewHandle("jobs/", AffinityOf(matrix_->handle));
      ASSIGN_OR_RETURN(promise,
                       backend_->kept_jobs()->KeepSolve({.tenant = tenant(),
                                                         .name = request.job_name,
                                                         .header = *kept_header_,
                                                         .matrix = *matrix_,
                                                         .b = request.b,
                                                         .x0 = request.x0,
                                                         .null_vectors = request.null_vectors}));
      request.promise = promise;
    }
    auto ticket = backend_->job_factory().StartSolve(std::move(request));
    if (!ticket.ok()) {
      if (promise != nullptr) promise->Fulfilled();  // nobody has heard of it
      return ticket.status();
    }
    return Started{std::move(ticket->job), std::move(ticket->waiter)};
  }

  bool NextResult(v1::SolveResponse* message) override {
    if (!outcome_) {
      outcome_ = std::static_pointer_cast<const SolveOutcome>(feed_.job()->result());
      download_start_ = Clock::now();
      if (place_ && StartToWrite()) return false;
      if (!omit_solution_) solution_ = ChunkSource::OfSolution(outcome_, outcome_->x);
    }
    if (writing_) return false;
    auto more = solution_.Next(message->mutable_chunk(), backend_->streams().ChunkBytes(), &lent_);
    if (!more.ok()) {
      EndLocked(more.status());
      return false;
    }
    if (*more) return true;
    if (std::exchange(done_, true)) return false;
    *message->mutable_done() = outcome_->done;
    v1::Timings* timings = message->mutable_done()->mutable_timings();
    AddTransport(timings);
    if (!omit_solution_) timings->set_download_ms(ToMs(Clock::now() - download_start_));
    timings->set_bytes_down(solution_.bytes_down() + written_);
    message->mutable_done()->set_solution_bytes(written_);
    feed_.job()->Delivered();
    EndLocked(absl::OkStatus());
    return true;
  }

  // False: there is no thread for it, and the solution goes out as chunks.
  bool StartToWrite() {
    auto self = std::static_pointer_cast<SolveStream>(shared_from_this());
    writing_ = backend_
                   ->Run(
                       Backend::Pool::kSend, tenant(), [self] { self->WriteSolution(); },
                       [self](const absl::Status& error) { self->Wrote(error); })
                   .ok();
    return writing_;
  }

  // On an executor, without the mutex; `outcome_` and `place_` are not touched meanwhile.
  void WriteSolution() {
    constexpr size_t kPieceBytes = 1 << 20;
    std::span<const char> left(reinterpret_cast<const char*>(outcome_->x.data()),
                               8 * outcome_->x.size());
    absl::Status status;
    for (int64_t at = place_->offset; status.ok() && !left.empty() && !stop().stop_requested();) {
      const auto piece = left.first(std::min(left.size(), kPieceBytes));
      status = place_->segment->Write(at, piece);
      at += static_cast<int64_t>(piece.size());
      left = left.subspan(piece.size());
    }
    if (status.ok() && !left.empty()) status = absl::CancelledError();
    Wrote(status);
  }

  // A client that has taken its memory away gets chunks: what was solved is not lost by that.
  void Wrote(const absl::Status& status) {
    Section section(this);
    writing_ = false;
    if (status.ok()) {
      written_ = static_cast<int64_t>(8 * outcome_->x.size());
      backend_->metrics().SegmentBytes("written", written_);
    } else {
      GuardLocked([this] { solution_ = ChunkSource::OfSolution(outcome_, outcome_->x); });
    }
    PumpLocked();
  }

  void ReleaseHandles() override {
    WorkStream::ReleaseHandles();
    preconditioner_.reset();
  }

  ParsedSolve solve_;
  JobFactory::Terms terms_;
  std::optional<v1::SolveHeader> kept_header_;  // of a job that outlives the daemon
  std::optional<Stored<Preconditioner>> preconditioner_;
  std::optional<v1::PreconditionerSpec> spec_;
  BudgetShare share_;
  std::optional<ArrayReceiver<double>> b_, x0_, null_;
  bool omit_solution_ = false, done_ = false;
  std::optional<SegmentRange> place_;  // of the solution
  bool writing_ = false;               // there, on an executor
  int64_t written_ = 0;
  std::shared_ptr<const SolveOutcome> outcome_;
  ChunkSource solution_;
  Clock::time_point download_start_{};
};

}  // namespace

RawBidiReactor* SolverService::Solve(grpc::CallbackServerContext* context) {
  return Launch<SolveStream>(context, backend_);
}

void SolverService::AddTo(Methods* methods) {
  methods->Add("SolverService/Solve", this, &SolverService::Solve);
}

}  // namespace spaid::server
