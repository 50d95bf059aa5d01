// The adapter's solves: what they take, where A and M are for them, and how AUTO climbs on.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/first_rung.h"
#include "kernels/engine/over_ranks_operator.h"
#include "kernels/krylov/krylov.h"
#include "server/base/metrics.h"
#include "server/base/status.h"
#include "server/engine/adapter.h"
#include "server/engine/devices.h"
#include "server/engine/in_order.h"
#include "server/engine/job_bridge.h"
#include "server/engine/reached_rhs.h"

namespace spaid::server {
namespace {

constexpr int64_t kBytesPerEntry = sizeof(int32_t) + sizeof(double);  // of the rows of A

// Takes the bytes of one rung at a time, and tells the job of those that are left.
class JobRungs final : public kernels::LadderSink {
 public:
  // `reordered`: rungs are of A in another order than the caller's, but for a bottom that was
  // first. Their names say so: an index in what they tell is one of that.
  JobRungs(Job& job, ByteBudget& budget, JobTurn* turn, bool reordered = false,
           bool bottom_first = true)
      : job_(job), budget_(budget), turn_(turn), reordered_(reordered), bottom_(bottom_first) {}

  kernels::Status Enter(const std::string& what, int64_t host_bytes, double predicted_ms) override {
    share_.Release();
    auto share = budget_.Take(job_.tenant(), host_bytes);
    if (!share.ok()) {
      return kernels::Status(kernels::StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                             "no memory for it: " + std::string(share.status().message()));
    }
    share_ = *std::move(share);
    if (turn_ != nullptr) turn_->Expect(predicted_ms);
    job_.SetWhat(what);
    return {};
  }
  void OnRung(const kernels::Rung& rung) override {
    kernels::Rung told = rung;
    NameOrder(&told);
    job_.ReportRung(ToProto(told));
  }
  void NameOrder(kernels::Rung* rung) const {
    const bool as_it_came = bottom_ && rung->kind == kernels::RungKind::kBottom;
    if (reordered_ && !as_it_came) rung->what += ", reordered";
  }

 private:
  Job& job_;
  ByteBudget& budget_;
  JobTurn* const turn_;
  const bool reordered_, bottom_;
  BudgetShare share_;
};

absl::Status OfSolve(const kernels::Status& status) {
  return ToAbsl(status, status.field() == "preconditioner_storage" ? "header" : "");
}

// Vectors of n that a solve has at its peak beside b, the guess and the answers, at most.
int64_t SolveVectors(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                     const kernels::SolveOptions& options, kernels::MForm form) {
  int64_t own = 8;  // BiCGSTAB's, and the best iterate
  if (options.method == kernels::Method::kCg) own = 5;
  if (options.method == kernels::Method::kMinres) own = 9;
  if (options.method == kernels::Method::kIdr) own = 3 * options.shadow_vectors + 4;
  if (options.method == kernels::Method::kGmres) own = kernels::RestartLength(options, a.n()) + 5;
  // Right-hand side and guess where they must be scaled, and a product between two factors of M.
  own += 2 + (nnz_m > 0 ? 1 : 0);
  // A null space, one vector of scratch for it, and what it leaves of right-hand sides and guesses,
  // twice where AUTO may climb.
  if (options.null_space != nullptr)
    own += options.null_space->bytes() / (8 * a.n()) + 1 + 3 * n_rhs;
  // SolveByScaledRows; vectors of a cycle.
  if (form == kernels::MForm::kParts ||
      (form == kernels::MForm::kScaledRows && !kernels::ForSymmetric(options.method))) {
    own += 8;
  }
  // A GPU keeps its own, but takes up to four right-hand sides at once.
  return std::max(own, 2 * std::min<int64_t>(n_rhs, 4) + 1);
}

}  // namespace

int64_t EngineAdapter::SolveHostBytes(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                                      const kernels::SolveOptions& options,
                                      kernels::MForm form) const {
  // Over ranks what counts here is vectors.
  const auto n = static_cast<double>(a.n()),
             nnz = a.over != nullptr ? 0 : static_cast<double>(a.nnz());
  const double bytes = (static_cast<double>(SolveVectors(a, nnz_m, n_rhs, options, form)) +
                        static_cast<double>(n_rhs)) *
                       n * 8;
  double rotated = 0;  // the small triangle of GMRES
  if (options.method == kernels::Method::kGmres) {
    const auto restart = static_cast<double>(kernels::RestartLength(options, a.n()));
    rotated = 4 * restart * (restart + 10);
  }
  const double in_fp32 = options.m_storage == kernels::Storage::kFp64 || a.over != nullptr
                             ? 0
                             : 4 * static_cast<double>(nnz_m);
  // Each thread that lays the rows out counts some of the entries of all of them.
  const int threads = kernels::ResolveThreads(options_.threads);
  const double counters = 4 * n * std::clamp(nnz / n, 1.0, std::max(1.0, double{1} * threads));
  const double rows = nnz * kBytesPerEntry + 8 * (n + 1) + counters;
  return static_cast<int64_t>(std::min(bytes + rotated + rows + in_fp32, 9e18));
}

absl::Status EngineAdapter::AdmitSolve(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                                       const kernels::SolveOptions& options,
                                       kernels::MForm form) const {
  const int64_t actual = SolveHostBytes(a, nnz_m, n_rhs, options, form);
  if (options_.max_build_bytes <= 0 || actual <= options_.max_build_bytes) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kSolveTooLarge,
                   absl::StrCat("the solve needs ", SolveVectors(a, nnz_m, n_rhs, options, form),
                                " vectors of ", a.n(),
                                " numbers, as many as there are right-hand sides (", n_rhs,
                                ") and the rows of the matrix, in all ", actual,
                                " bytes, over the limit of ", options_.max_build_bytes,
                                " (--max-build-bytes); use a shorter restart, fewer basis_bytes or "
                                "BiCGSTAB, or send "
                                ""
                                "fewer right-hand sides at a time"))
      .Meta("actual", actual)
      .Meta("limit", options_.max_build_bytes);
}

absl::StatusOr<std::shared_ptr<const kernels::NullSpace>> EngineAdapter::FindNullSpace(
    const Matrix& a, const kernels::NullSpaceRequest& request) const {
  if (a.over != nullptr) {
    // Constants that the diagnosis has found need no look at A; others do.
    const bool looks = request.choice == kernels::NullSpaceChoice::kGiven ||
                       (request.choice == kernels::NullSpaceChoice::kConstants &&
                        !a.diagnosis.constants_in_null_space);
    if (looks) {
      return MatrixOverRanks(
                 "whether vectors are in its null space is not looked at there; ask for constants "
                 "where the diagnosis has them, or none")
          .Field("header.null_space");
    }
  }
  auto space = kernels::MakeNullSpace(a.csc(), a.diagnosis, request);
  if (!space.ok()) return ToAbsl(space.status());
  return *std::move(space);
}

absl::StatusOr<kernels::SolveResult> EngineAdapter::SolveThere(
    const std::shared_ptr<const Matrix>& a, const std::shared_ptr<const kernels::Preconditioner>& m,
    std::span<const double> b, std::span<const double> x0, const kernels::SolveOptions& options,
    const kernels::Context& context, const std::string& tenant) const {
  double place_ms = 0;
  auto a_there = on_devices_.Place(tenant, a, context, &place_ms);
  if (!a_there.ok()) return ToAbsl(a_there.status());
  const kernels::PlaceM place_m = [&](kernels::Storage storage) {
    return on_devices_.Place(tenant, m, storage, **a_there, context, &place_ms);
  };
  auto result =
      engine_.SolveOnDevice(a->csc(), **a_there, m.get(), place_m, b, x0, options, context);
  if (!result.ok()) return OfSolve(result.status());
  result->figures.place_ms = place_ms;
  return *std::move(result);
}

absl::StatusOr<kernels::SolveResult> EngineAdapter::SolveMakingRoom(
    const std::shared_ptr<const Matrix>& a, const std::shared_ptr<const kernels::Preconditioner>& m,
    std::span<const double> b, std::span<const double> x0, const kernels::SolveOptions& options,
    const kernels::Context& context, size_t index, const Assignment& at, Job& job) const {
  auto result = SolveThere(a, m, b, x0, options, context, job.tenant());
  if (ReasonOf(result.status()) != reason::kDeviceOutOfMemory) return result;
  MakeRoom({index}, at.device, job, result.status());
  return SolveThere(a, m, b, x0, options, context, job.tenant());
}

kernels::LadderSolve EngineAdapter::SolvesOf(const std::shared_ptr<const Matrix>& a, size_t index,
                                             const Assignment& at, Job& job) const {
  return
      [this, a, index, &at, &job](
          const std::shared_ptr<const kernels::Preconditioner>& with, std::span<const double> right,
          std::span<const double> x0, const kernels::SolveOptions& terms,
          const kernels::Context& where) -> kernels::Result<kernels::SolveResult> {
        if (!SolvesThere(index, *a, with.get(), terms)) {
          return engine_.Solve(a->csc(), with.get(), right, x0, terms, where);
        }
        auto result = SolveMakingRoom(a, with, right, x0, terms, where, index, at, job);
        if (!result.ok()) {
          return kernels::Status(static_cast<kernels::StatusCode>(result.status().raw_code()),
                                 std::string(ReasonOf(result.status())),
                                 std::string(result.status().message()));
        }
        return *std::move(result);
      };
}

void EngineAdapter::BeginAbove(const Matrix& a, std::span<const double> b, const Assignment& at,
                               Ladder* ladder) const {
  const auto index = IndexOf(at);
  if (!index.ok() || at.device == kCpuName || OverRanks(*index)) return;
  const int threads = kernels::ResolveThreads(options_.threads);
  const kernels::LadderCase of{.a = a.csc(),
                               .diagnosis = a.diagnosis,
                               .b = b,
                               .options = ladder->asked,
                               .backend = kernels::Backend::kCuda,
                               .threads = threads,
                               .over = a.over.get()};
  const kernels::RungKind rung =
      kernels::FirstRung(engine_, of, {.threads = threads, .device = static_cast<int>(*index)});
  ladder->look = of.look;
  if (rung == kernels::RungKind::kBottom) return;
  ladder->rung = {rung, /*scaled=*/false};
  ladder->straight = true;
  if (const auto terms = kernels::TermsOf(rung, of)) {
    ladder->reason =
        absl::StrCat(terms->name,
                     ": foretold to end sooner than Jacobi on this GPU, by the size of "
                     "the matrix and a sample of it; a solve that it does not bring to "
                     "its end goes on with others");
  }
}

absl::StatusOr<Solved> EngineAdapter::Solve(const std::shared_ptr<const Matrix>& a,
                                            const std::shared_ptr<const kernels::Preconditioner>& m,
                                            std::span<const double> b, std::span<const double> x0,
                                            const kernels::SolveOptions& options,
                                            const Assignment& at, Job& job, const Ladder* ladder,
                                            const SolveLeg* leg) const {
  ASSIGN_OR_RETURN(const size_t index, IndexOf(at));
  JobBridge bridge(job, options_.threads, at.turn);
  kernels::Context context = bridge.context(static_cast<int>(index));
  // Residuals reach the job as they come; kept a second time they would take memory that no budget
  // counts.
  kernels::SolveOptions without_history = options;
  without_history.keep_history = false;
  without_history.turn = bridge.turn();
  bridge.BeginSolve(static_cast<int64_t>(b.size()) / a->n(), leg);
  Solved solved;
  const int64_t nnz_m = m ? StoredEntries(m->kind(), a->n(), m->nnz()) : 0;
  const bool there = SolvesThere(index, *a, m.get(), options);
  const bool m_over = m != nullptr && m->form() == kernels::MForm::kOverRanks;
  if (!there && (a->over != nullptr || m_over)) {
    return MatrixOverRanks(
        "the solve takes more memory than they have; use a shorter restart, or a sparser M",
        a->over != nullptr ? "matrix" : "preconditioner");
  }
  if (!there) on_devices_.EndAhead(*a);
  const bool straight = ladder != nullptr && ladder->straight;
  if (straight) {  // else the first solve looks
    const kernels::Status bad = kernels::CheckSolveInput(a->n(), a->n(), b, x0, options,
                                                         kernels::ResolveThreads(options_.threads));
    if (!bad.ok()) return OfSolve(bad);
  }
  kernels::SolveOptions as_asked = without_history;
  kernels::Rung first;
  if (ladder != nullptr) {
    as_asked.method = ladder->asked.method;
    as_asked.restart = ladder->asked.restart;
    as_asked.basis_bytes = ladder->asked.basis_bytes;
    as_asked.shadow_vectors = ladder->asked.shadow_vectors;
    first.kind = ladder->rung.kind;
    first.scaled = ladder->rung.scaled;
    first.engine = ladder->engine;
    first.method = options.method;
    first.nnz_m = nnz_m;
    first.setup_ms = ladder->setup_ms;
    first.what = ladder->what;
  }
  std::optional<ReachedRhs> reached;
  const std::span<const double> whole = b;
  if (ladder != nullptr && options.null_space != nullptr) {
    reached.emplace(*options.null_space, b, options, kernels::ResolveThreads(options_.threads));
    b = reached->b();
  }
  kernels::LadderCase of{.a = a->csc(),
                         .diagnosis = a->diagnosis,
                         .b = b,
                         .options = as_asked,
                         .ladder = {options_.max_lu_n},
                         .static_spai = {},
                         .threads = kernels::ResolveThreads(options_.threads),
                         .over = a->over.get()};
  std::optional<kernels::StallWatch> watch;
  if (ladder != nullptr) {
    of.static_spai = ladder->static_spai;
    if (ladder->look != nullptr) of.look = ladder->look;
    if (at.device != kCpuName) {
      if (!OverRanks(index)) of.backend = kernels::Backend::kCuda;
      of.solve_there = SolvesOf(a, index, at, job);
    }
    if (!straight) {
      const kernels::Context outer = context;
      watch.emplace(
          of.diagnosis.numerically_symmetric, options.rtol,
          [&, outer] { return kernels::FirstLook(engine_, of, first, outer); },
          (options.max_iterations + 1) / 2, context.progress, context.stop);
      context.progress = &*watch;
      context.stop = watch->token();
    }
  }
  // Above the bottom, where iterations are many, a scattered A is put in order for the CPU's.
  std::unique_ptr<InOrder> in_order;
  const auto put_in_order = [&](const kernels::Preconditioner* with,
                                std::span<const double> guess) {
    if (ladder == nullptr || at.device != kCpuName) return;
    in_order = PutInOrder(*a, with, b, guess, without_history, job, context);
    if (in_order == nullptr) return;
    of.a = in_order->system->a();
    of.b = b = in_order->b;
    as_asked.null_space = without_history.null_space = in_order->system->null_space();
  };
  const auto climbed = [&](kernels::Result<kernels::LadderResult> result,
                           const JobRungs& rungs) -> absl::Status {
    if (!result.ok()) return OfSolve(result.status());
    solved.result = std::move(result->solved);
    for (kernels::Rung& rung : result->rungs) rungs.NameOrder(&rung);
    if (straight || result->rungs.size() > 1) solved.rungs = std::move(result->rungs);
    solved.rung = LearnedRung{result->best, result->scaled};
    return absl::OkStatus();
  };
  const kernels::Preconditioner* with = m.get();
  const bool bottom_first = first.kind == kernels::RungKind::kBottom;
  if (!bottom_first) put_in_order(with, x0);
  if (in_order != nullptr) {
    with = in_order->m.get();
    x0 = in_order->x;
  }
  if (straight) {
    JobRungs rungs(job, ladder_bytes_, at.turn, in_order != nullptr, bottom_first);
    RETURN_IF_ERROR(
        climbed(kernels::ClimbFrom(engine_, of, x0, ladder->rung.kind, rungs, context), rungs));
  } else if (there) {
    auto result = SolveMakingRoom(a, m, b, x0, without_history, context, index, at, job);
    if (!result.ok()) return result.status();
    solved.result = *std::move(result);
  } else {
    auto result = engine_.Solve(of.a, with, b, x0, without_history, context);
    if (!result.ok()) return OfSolve(result.status());
    solved.result = *std::move(result);
  }
  if (ladder != nullptr && !straight) {
    solved.rung = ladder->rung;
    if (kernels::MayClimb(solved.result)) {
      context = bridge.context(static_cast<int>(index));
      if (in_order == nullptr) {
        put_in_order(nullptr, solved.result.x);
        if (in_order != nullptr) solved.result.x = std::move(in_order->x);
      }
      JobRungs rungs(job, ladder_bytes_, at.turn, in_order != nullptr, bottom_first);
      first.solve_ms = solved.result.solve_ms;
      for (const kernels::RhsResult& rhs : solved.result.rhs) first.iterations += rhs.iterations;
      RETURN_IF_ERROR(climbed(
          kernels::Climb(engine_, of, std::move(solved.result), std::move(first), rungs, context),
          rungs));
    }
  }
  if (in_order != nullptr) {
    in_order->system->TakeBack(solved.result.x);
    solved.result.figures.place_ms += in_order->ms;
    solved.result.solve_ms += in_order->ms;
  }
  if (reached) reached->TellOf(*OperatorOf(*a), whole, &solved.result);
  bridge.EndSolve();
  const auto named = std::find(names_.begin(), names_.end(), at.device);
  solved.copy_bytes_per_second =
      there ? device_copy_[static_cast<size_t>(named - names_.begin())] : host_copy_;
  if (leg == nullptr) CountSolve(options.method, solved.result);
  return solved;
}

std::unique_ptr<const kernels::LinearOperator> EngineAdapter::OperatorOf(const Matrix& a) const {
  if (a.over == nullptr) return std::make_unique<kernels::ColumnOperator>(a.csc());
  return std::make_unique<kernels::OverRanksOperator>(*engine_.Ranks(), *a.over, a.n());
}

void EngineAdapter::CountSolve(kernels::Method method, const kernels::SolveResult& solved) const {
  if (options_.metrics == nullptr) return;
  for (const kernels::RhsResult& rhs : solved.rhs) {
    options_.metrics->SolveEnded(Name(method), Name(rhs.outcome), rhs.iterations,
                                 solved.solve_ms / 1e3);
  }
}

absl::StatusOr<LearnedRung> EngineAdapter::Probe(const std::shared_ptr<const Matrix>& a,
                                                 const kernels::StaticSpaiOptions& static_spai,
                                                 const Assignment& at, Job& job) const {
  constexpr uint64_t kSeed = 1;
  constexpr double kRtol = 1e-6;
  constexpr int64_t kMaxIterations = 2000;
  ASSIGN_OR_RETURN(const size_t index, IndexOf(at));
  JobBridge bridge(job, options_.threads, at.turn);
  const auto n = static_cast<size_t>(a->n());
  std::vector<double> x(n), b(n);
  std::mt19937_64 random(kSeed);
  for (double& x_j : x) x_j = std::ldexp(static_cast<double>(random() >> 11), -52) - 1;
  OperatorOf(*a)->Apply(x, b, /*threads=*/1);
  kernels::SolveOptions terms;
  terms.method = kernels::Method::kAuto;
  terms.rtol = kRtol;
  terms.max_iterations = kMaxIterations;
  terms.keep_history = false;
  kernels::LadderCase of{.a = a->csc(),
                         .diagnosis = a->diagnosis,
                         .b = b,
                         .options = terms,
                         .ladder = {.max_lu_n = 0, .to_build = true},
                         .static_spai = static_spai,
                         .over = a->over.get()};
  if (a->over != nullptr) of.solve_there = SolvesOf(a, index, at, job);
  JobRungs rungs(job, ladder_bytes_, at.turn);
  auto climbed = kernels::ClimbFrom(engine_, of, {}, kernels::RungKind::kBottom, rungs,
                                    bridge.context(static_cast<int>(index)));
  if (!climbed.ok()) return ToAbsl(climbed.status());
  return LearnedRung{climbed->best, climbed->scaled};
}

std::string_view EngineAdapter::HostAlone(bool over_ranks, const kernels::SolveOptions& options,
                                          kernels::MForm form) {
  return over_ranks ? kernels::NotOverRanks(options, form) : kernels::HostAlone(options, form);
}

bool EngineAdapter::OverRanks(size_t device) const {
  return ranks_ && slots_[*ranks_].front() == device;
}

bool EngineAdapter::SolvesThere(size_t device, const Matrix& a, const kernels::Preconditioner* m,
                                const kernels::SolveOptions& options) const {
  const bool over_ranks = OverRanks(device);
  const kernels::MForm form = m != nullptr ? m->form() : kernels::MForm::kMatrix;
  if (!HostAlone(over_ranks, options, form).empty()) return false;
  const int64_t nnz_m = m != nullptr ? StoredEntries(m->kind(), a.n(), m->nnz()) : 0;
  const int64_t bytes =
      over_ranks ? kernels::SolveRanksBytes(a.n(), a.nnz(), nnz_m, options)
                 : engine_.SolveDeviceBytes(a.n(), a.nnz(), nnz_m, /*n_rhs=*/1, options, form);
  return bytes <= engine_.State(static_cast<int>(device)).limit_bytes;  // the CPU's is 0
}

}  // namespace spaid::server
