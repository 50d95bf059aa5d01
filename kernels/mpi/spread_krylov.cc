#include "kernels/mpi/spread_krylov.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/krylov/judge.h"
#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

// Ranks ask each other for a stop so often: well under the second that is promised, and seldom
// beside the sums of an iteration.
constexpr double kAskEveryMs = 100;
constexpr int64_t kMostUnasked = 1000;  // iterations

Status CheckSpread(const SpreadMatrix& a, Mat m, std::span<const double> b,
                   std::span<const double> x, const SolveOptions& options) {
  const auto invalid = [](const char* reason, std::string message, const char* field,
                          int64_t index = -1) {
    return Status(StatusCode::kInvalidArgument, reason, std::move(message)).At(field, index);
  };
  if (options.method != Method::kCg && options.method != Method::kBicgstab &&
      options.method != Method::kGmres) {
    return invalid("METHOD_NOT_SPREAD",
                   "several ranks solve by CG, BiCGSTAB and GMRES; choose one of them", "method");
  }
  if (Status status = CheckSolveOptions(options); !status.ok()) return status;
  const IndexRange own = a.own();
  if (std::ssize(b) != own.size() || std::ssize(x) != own.size()) {
    return invalid("RHS_LENGTH_MISMATCH",
                   "rank " + std::to_string(RankOf(a.comm)) + " has " + std::to_string(b.size()) +
                       " values of rhs and " + std::to_string(x.size()) +
                       " of the initial guess for " + std::to_string(own.size()) + " rows",
                   "rhs");
  }
  if (m != nullptr) {
    PetscInt begin = 0, end = 0;
    Must(MatGetOwnershipRange(m, &begin, &end));
    if (begin != own.begin || end != own.end) {
      return invalid("PRECONDITIONER_SIZE_MISMATCH",
                     "the preconditioner is not spread as the matrix is", "preconditioner");
    }
  }
  for (const auto& [vector, field] : {std::pair(b, "rhs"), std::pair(x, "initial_guess")}) {
    for (size_t i = 0; i < vector.size(); ++i) {
      if (std::isfinite(vector[i])) continue;
      const int64_t at = own.begin + static_cast<int64_t>(i);
      return invalid("NON_FINITE_VALUE",
                     std::string(field) + "[" + std::to_string(at) +
                         "] is NaN or infinite; send finite values",
                     field, at);
    }
  }
  return {};
}

VecOwner MakeVector(const SpreadMatrix& a) {
  Vec made = nullptr;
  Must(MatCreateVecs(a.rows.get(), &made, nullptr));
  return VecOwner(made);
}

VecOwner MakeVector(const SpreadMatrix& a, std::span<const double> values) {
  VecOwner made = MakeVector(a);
  PetscScalar* to = nullptr;
  Must(VecGetArrayWrite(made.get(), &to));
  std::ranges::copy(values, to);
  Must(VecRestoreArrayWrite(made.get(), &to));
  return made;
}

double NormOf(Vec v, NormType type = NORM_2) {
  PetscReal norm = 0;
  Must(VecNorm(v, type, &norm));
  return norm;
}

// ‖b − A x‖.
double ResidualNorm(const SpreadMatrix& a, Vec b, Vec x) {
  const VecOwner residual = MakeVector(a);
  Must(MatMult(a.rows.get(), x, residual.get()));
  Must(VecAYPX(residual.get(), -1, b));
  return NormOf(residual.get());
}

// Squares of b must neither overflow nor underflow: beyond these, b and the guess are scaled by a
// power of two.
constexpr double kLargest = 1e100, kSmallest = 1e-100;

// v times 2^exponent. False: a number has become infinite, on whatever rank.
bool Scale(Vec v, int exponent) {
  if (exponent == 0) return true;
  PetscInt size = 0;
  PetscScalar* values = nullptr;
  Must(VecGetLocalSize(v, &size));
  Must(VecGetArray(v, &values));
  for (PetscInt i = 0; i < size; ++i) values[i] = std::ldexp(values[i], exponent);
  Must(VecRestoreArray(v, &values));
  return std::isfinite(NormOf(v, NORM_INFINITY));
}

// One solve: what PETSc iterates, judged as kernels/krylov judges. All decisions are the same on
// all ranks, as they follow from norms, which PETSc sums for all, and from agreed stops.
class SpreadRun final : public krylov::Judge {
 public:
  // `op`: A, or what stands for it.
  SpreadRun(const SpreadMatrix& a, Mat op, Mat m, Vec b, Vec x, const StopToken& stop,
            StopSource& agreed, const krylov::Terms& terms, RhsResult* out)
      : Judge(terms, out),
        a_(a),
        op_(op),
        m_(m),
        b_(b),
        x_(x),
        stop_(stop),
        agreed_(agreed),
        guess_(MakeVector(a)),
        residual_(MakeVector(a)) {
    Must(VecCopy(x, guess_.get()));
  }

  void Solve() {
    const KspOwner ksp = MakeKsp();
    if (!Begin(TrueResidual())) return;
    while (Asked()) {
      last_ = 0;
      Must(KSPSolve(ksp.get(), b_, x_));
      KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
      Must(KSPGetConvergedReason(ksp.get(), &reason));
      if (ended() || !Caught(ksp.get()) || !GoesOn(reason)) return;
    }
  }

  // ‖b − A x‖, also when the solve is over.
  double TrueResidual() {
    Must(MatMult(op_, x_, residual_.get()));
    Must(VecAYPX(residual_.get(), -1, b_));
    return NormOf(residual_.get());
  }

 private:
  KspOwner MakeKsp() {
    KSP made = nullptr;
    Must(KSPCreate(a_.comm, &made));
    KspOwner ksp(made);
    Must(KSPSetOperators(made, op_, m_ != nullptr ? m_ : op_));
    PC pc = nullptr;
    Must(KSPGetPC(made, &pc));
    Must(PCSetType(pc, m_ != nullptr ? PCMAT : PCNONE));
    const Method method = options().method;
    Must(KSPSetType(made, method == Method::kCg         ? KSPCG
                          : method == Method::kBicgstab ? KSPBCGS
                                                        : KSPGMRES));
    Must(KSPSetPCSide(made, method == Method::kCg ? PC_LEFT : PC_RIGHT));
    Must(KSPSetNormType(made, KSP_NORM_UNPRECONDITIONED));
    if (method == Method::kGmres) {
      restart_ = RestartLength(Plain(options()), a_.n);
      Must(KSPGMRESSetRestart(made, static_cast<PetscInt>(restart_)));
    }
    Must(KSPSetInitialGuessNonzero(made, PETSC_TRUE));
    Must(KSPSetTolerances(made, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT,
                          std::numeric_limits<PetscInt>::max()));
    Must(KSPSetConvergenceTest(made, Test, this, nullptr));
    return ksp;
  }

  // Records an iteration in which PETSc left without asking whether it has converged. False: the
  // outcome is set.
  bool Caught(KSP ksp) {
    PetscInt done = 0;
    PetscReal norm = 0;
    Must(KSPGetIterationNumber(ksp, &done));
    Must(KSPGetResidualNorm(ksp, &norm));
    if (done <= last_) return true;
    norm_ = norm;
    return RecordNorm(norm);
  }

  // PETSc's basis does not grow.
  static SolveOptions Plain(SolveOptions options) {
    options.basis_bytes = 0;
    return options;
  }

  static PetscErrorCode Test(KSP, PetscInt iteration, PetscReal norm, KSPConvergedReason* reason,
                             void* run) {
    *reason = static_cast<SpreadRun*>(run)->Look(iteration, norm);
    return static_cast<PetscErrorCode>(0);
  }

  KSPConvergedReason Look(PetscInt iteration, double norm) {
    if (iteration == 0) {
      norm_ = norm;
      return KSP_CONVERGED_ITERATING;
    }
    if (iteration == last_) {
      // A new cycle of GMRES begins with b − A x.
      return NextCycle(norm_, norm, false, m_ != nullptr, restart_) ? KSP_CONVERGED_ITERATING
                                                                    : KSP_DIVERGED_ITS;
    }
    last_ = iteration;
    norm_ = norm;
    if (!RecordNorm(norm)) return KSP_DIVERGED_NANORINF;
    if (norm <= target()) return KSP_CONVERGED_RTOL;
    if (Diverged(norm)) return KSP_DIVERGED_DTOL;
    return Asked() ? KSP_CONVERGED_ITERATING : KSP_DIVERGED_ITS;
  }

  // MayIterate, with the stops of all ranks.
  bool Asked() {
    if (--unasked_ <= 0) {
      const StopReason reason = stop_.Poll();
      const double each_ms = MsSince(asked_at_) / static_cast<double>(asked_every_);
      const double next = std::clamp(kAskEveryMs / std::max(each_ms, 1e-3), 1.0,
                                     static_cast<double>(std::min(kMostUnasked, 2 * asked_every_)));
      int64_t all[3] = {reason == StopReason::kCancelled, reason == StopReason::kTimeLimit,
                        -static_cast<int64_t>(next)};
      Must(MPI_Allreduce(MPI_IN_PLACE, all, 3, MPI_INT64_T, MPI_MAX, a_.comm));
      if (all[0] != 0) agreed_.Request(StopReason::kCancelled);
      if (all[1] != 0) agreed_.Request(StopReason::kTimeLimit);
      unasked_ = asked_every_ = -all[2];
      asked_at_ = Clock::now();
    }
    return MayIterate();
  }

  // False: the outcome is set. Else another KSPSolve goes on from here.
  bool GoesOn(KSPConvergedReason reason) {
    const std::string at = " at iteration " + std::to_string(iterations());
    switch (reason) {
      case KSP_DIVERGED_DTOL:
        UseGuess();
        return StartAfresh(TrueResidual(), "the residual grew by 1/eps over the best" + at +
                                               "; use another method or preconditioner");
      case KSP_CONVERGED_RTOL:
        return Compare(norm_, TrueResidual()) != krylov::Verdict::kEnd;
      case KSP_DIVERGED_INDEFINITE_MAT:
        End(Outcome::kIndefinite,
            "CG met a direction with pᵀAp <= 0" + at + "; use BiCGSTAB or GMRES");
        return false;
      case KSP_DIVERGED_INDEFINITE_PC:
        End(Outcome::kIndefinite,
            "CG met a residual with rᵀMr <= 0" + at + "; use BiCGSTAB or GMRES");
        return false;
      case KSP_DIVERGED_NANORINF:
        End(Outcome::kNonFinite, krylov::NotFinite("a dot product", iterations()));
        return false;
      case KSP_DIVERGED_BREAKDOWN:
      case KSP_DIVERGED_BREAKDOWN_BICG:
        return StartAfresh(TrueResidual(), "a denominator of the method vanished" + at +
                                               "; use another method or preconditioner");
      default: {  // the Krylov space holds nothing more, or PETSc says so in another way
        const double truth = TrueResidual();
        if (reason > 0) return NextCycle(norm_, truth, true, m_ != nullptr, restart_);
        return StartAfresh(
            truth, std::string("PETSc ended") + at + " with " + KSPConvergedReasons[reason]);
      }
    }
  }

  double TrueResidualOfLast() override { return TrueResidual(); }
  double TrueResidualOfBest() override { return std::numeric_limits<double>::infinity(); }
  void UseBest() override {}
  void UseGuess() override { Must(VecCopy(guess_.get(), x_)); }

  const SpreadMatrix& a_;
  const Mat op_, m_;
  const Vec b_, x_;
  const StopToken stop_;
  StopSource& agreed_;
  const VecOwner guess_, residual_;
  int64_t restart_ = 0;
  PetscInt last_ = 0;
  double norm_ = 0;  // of the last residual of the recursion
  int64_t unasked_ = 0, asked_every_ = 1;
  Clock::time_point asked_at_ = Clock::now();
};

}  // namespace

Result<RhsResult> SolveSpread(const SpreadMatrix& a, Mat m, std::span<const double> b,
                              std::span<double> x, const SolveOptions& options,
                              const Context& context, const SpreadNullSpace* space) {
  if (Status s = Agree(a.comm, CheckSpread(a, m, b, x, options)); !s.ok()) return s;
  if (Status s = AgreeOptions(a.comm, options, m != nullptr); !s.ok()) return s;
  RhsResult result;
  const VecOwner rhs = MakeVector(a, b), solution = MakeVector(a, x);
  const auto is_zero = [&] {
    Must(VecSet(solution.get(), 0));
    result.outcome = Outcome::kConverged;
    result.detail = "the right-hand side is zero, so is the solution";
    if (options.keep_history) result.history.push_back({});
    if (context.progress != nullptr) context.progress->OnResidual({});
  };
  const double largest = NormOf(rhs.get(), NORM_INFINITY);
  if (largest == 0) {
    is_zero();
    std::ranges::fill(x, 0.0);
    return result;
  }
  const int exponent = largest < kLargest && largest > kSmallest ? 0 : -std::ilogb(largest);
  Scale(rhs.get(), exponent);
  Scale(solution.get(), exponent);  // where that overflows, the guess's residual says so
  SolveOptions scaled = options;
  scaled.atol = std::ldexp(options.atol, exponent);
  // For a singular A: what it reaches of b, and A and M without what is along its null space.
  VecOwner whole;
  Reach reach;
  MatOwner projected, projected_m;
  if (space != nullptr) {
    whole = MakeVector(a);
    Must(VecCopy(rhs.get(), whole.get()));
    reach = space->Split(rhs.get());
    space->RemoveRight(solution.get());
    projected = space->Projected(a.rows.get());
    if (m != nullptr) projected_m = space->ProjectedM(m);
  }
  const double b_norm = NormOf(rhs.get());
  StopSource agreed;  // the only one that decisions follow
  Context inner = context;
  inner.stop = agreed.token();
  const krylov::Terms terms{.b_norm = b_norm,
                            .target = space != nullptr
                                          ? reach.TargetOfReached(scaled, b_norm)
                                          : std::max(scaled.rtol * b_norm, scaled.atol),
                            .options = &options,
                            .context = &inner};
  SpreadRun run(a, space != nullptr ? projected.get() : a.rows.get(),
                space != nullptr ? projected_m.get() : m, rhs.get(), solution.get(), context.stop,
                agreed, terms, &result);
  if (b_norm == 0) {
    is_zero();
  } else {
    run.Solve();
    run.Conclude();
  }
  if (space != nullptr) {
    space->RemoveRight(solution.get());
    space->RemoveRight(solution.get());
    TellOfWhole(reach, ResidualNorm(a, whole.get(), solution.get()), scaled, &result);
  }
  if (exponent != 0) {
    if (!Scale(solution.get(), -exponent)) {
      result.outcome = Outcome::kNonFinite;
      result.detail = "the solution exceeds the range of fp64; rescale the right-hand side, or A";
      return result;  // x is the guess
    }
    // Parts that were scaled under the range of fp64 are gone, and x is judged so.
    const VecOwner unscaled = MakeVector(a);
    Must(VecCopy(solution.get(), unscaled.get()));
    Scale(solution.get(), exponent);
    const double norm = ResidualNorm(a, space != nullptr ? whole.get() : rhs.get(), solution.get());
    Must(VecCopy(unscaled.get(), solution.get()));
    const double target = space != nullptr ? reach.Target(scaled) : terms.target;
    if (result.outcome == Outcome::kConverged && !(norm <= target)) {
      result.outcome = Outcome::kStagnated;
      result.detail =
          "the solution holds numbers under the range of fp64, whose rounding is larger than the "
          "tolerance; rescale the right-hand side, or A";
    }
    result.true_residual = std::ldexp(norm, -exponent);
    result.true_relative_residual = norm / (space != nullptr ? reach.norm : b_norm);
  }
  const PetscScalar* from = nullptr;
  Must(VecGetArrayRead(solution.get(), &from));
  std::copy_n(from, x.size(), x.data());
  Must(VecRestoreArrayRead(solution.get(), &from));
  return result;
}

}  // namespace spaid::kernels::mpi
