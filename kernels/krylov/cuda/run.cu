#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/cuda/device.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/krylov/cuda/run.h"
#include "kernels/krylov/solve_device_estimate.h"

namespace spaid::kernels::krylov {

using cuda::SegmentEnd;

template <class Work>
bool CudaRun::Ask(const Work& work) {
  if (!status_.ok()) return false;
  status_ = cuda::Guard(*a_.device(), [&](cuda::Context&) { work(); });
  if (status_.ok()) return true;
  // Nobody reads it: the solve fails.
  for (const auto& column : columns_) column->End(Outcome::kNonFinite, "");
  return false;
}

double CudaColumn::TrueResidual(bool of_best, bool adopt) {
  const auto start = Clock::now();
  double norm = std::numeric_limits<double>::quiet_NaN();
  run_.Ask([&] { norm = run_.solve_->TrueResidual(column_, of_best, adopt); });
  run_.timings_.check_ms += MsSince(start);
  return norm;
}

void CudaColumn::Restore(bool of_best) {
  run_.Ask([&] { of_best ? run_.solve_->UseBest(column_) : run_.solve_->UseGuess(column_); });
}

void CudaColumn::Begin(double norm) {
  basis_columns_ = 0;
  const cuda::SolveStart start{target(), norm, best_norm_, initial_, round_};
  run_.Ask([&] { run_.solve_->Begin(column_, start); });
}

void CudaColumn::Begin() {
  initial_ = TrueResidual(false, true);
  if (run_.status_.ok() && Judge::Begin(initial_)) Begin(initial_);
}

int32_t CudaColumn::Limit() {
  if (!MayIterate()) return 0;
  const int64_t left = options().max_iterations - iterations();
  const bool gmres = options().method == Method::kGmres;
  return static_cast<int32_t>(std::min(left, gmres ? restart_ - basis_columns_ : UntilVerify()));
}

void CudaColumn::OnNorms(std::span<const double> norms) {
  for (size_t i = 0; i < norms.size() && !ended(); ++i) RecordNorm(norms[i]);
}

void CudaColumn::Verify(double norm) {
  const double truth = TrueResidual(false, false);
  if (!run_.status_.ok() || Compare(norm, truth) != Verdict::kRestart) return;
  TrueResidual(false, true);
  Begin(truth);
}

void CudaColumn::Broken(const char* what) {
  const double truth = TrueResidual(false, true);
  if (!run_.status_.ok()) return;
  if (!StartAfresh(truth, std::string(what) + " at iteration " + std::to_string(iterations()) +
                              " and restarts do not help; use GMRES or another preconditioner")) {
    return;
  }
  ++round_;
  Begin(truth);
}

void CudaColumn::NonFinite(const char* what) {
  End(Outcome::kNonFinite, NotFinite(what, iterations()));
}

void CudaColumn::ContinueCycle(const cuda::Segment& segment) {
  basis_columns_ += segment.iterations;
  if (segment.end == SegmentEnd::kPaused && basis_columns_ < restart_) return;
  const double truth = TrueResidual(false, true);
  if (run_.status_.ok() &&
      NextCycle(segment.last_norm, truth, segment.end == SegmentEnd::kExhausted, run_.m_ != nullptr,
                restart_)) {
    Begin(truth);
  }
}

void CudaColumn::OnSegment(const cuda::Segment& segment) {
  best_norm_ = segment.best_norm;
  if (ended()) return;
  switch (segment.end) {
    case SegmentEnd::kPaused:
    case SegmentEnd::kUnderTarget:
      if (options().method == Method::kGmres) return ContinueCycle(segment);
      if (segment.iterations > 0 && VerifyDue(segment.last_norm)) Verify(segment.last_norm);
      return;
    case SegmentEnd::kExhausted:
      return ContinueCycle(segment);
    case SegmentEnd::kIndefiniteM:
      End(Outcome::kIndefinite, NotDefinite("the preconditioner is not positive definite: rᵀMr",
                                            segment.value, iterations()));
      return;
    case SegmentEnd::kIndefiniteA:
      End(Outcome::kIndefinite,
          NotDefinite("A is not positive definite: pᵀAp", segment.value, iterations()));
      return;
    case SegmentEnd::kNonFiniteM:
      End(Outcome::kNonFinite, "rᵀMr is not finite: the preconditioner overflows");
      return;
    case SegmentEnd::kNonFiniteA:
      End(Outcome::kNonFinite,
          "pᵀAp is not finite at iteration " + std::to_string(iterations()) + "; rescale A");
      return;
    case SegmentEnd::kHalfStep: {
      // Truth a little above the target, s a little under it: go on from the truth.
      const double truth = TrueResidual(false, true);
      if (!run_.status_.ok() || Compare(segment.last_norm, truth) == Verdict::kEnd) return;
      TrueResidual(false, true);
      return Begin(truth);
    }
    case SegmentEnd::kOmegaVanished:
      return Broken("omega vanished");
    case SegmentEnd::kRhoVanished:
      return Broken("rho vanished");
    case SegmentEnd::kAlphaVanished:
      return Broken("the denominator of alpha vanished");
    case SegmentEnd::kPOverflowed:
      return Broken("the direction p overflowed");
    case SegmentEnd::kDiverged:
      if (best_norm_ < segment.last_norm) UseBest();
      return Broken("the residual grew by 1/eps over the best");
    case SegmentEnd::kNonFiniteAMr:
      return NonFinite("A M r");
    case SegmentEnd::kNonFiniteS:
      return NonFinite("s");
    case SegmentEnd::kNonFiniteAMs:
      return NonFinite("A M s");
    case SegmentEnd::kNonFiniteAMv:
      return NonFinite("A M v");
    case SegmentEnd::kNonFiniteBeta:
      return NonFinite("beta");
    default:
      End(Outcome::kNonFinite,
          "the residual is not finite at iteration " + std::to_string(iterations()));
  }
}

CudaRun::CudaRun(const CudaOperator& a, const CudaOperator* m, std::span<const Task> tasks,
                 std::unique_lock<std::mutex>* lock, SolveCudaTimings* timings)
    : a_(a), m_(m), lock_(*lock), timings_(*timings) {
  for (size_t v = 0; v < tasks.size(); ++v) {
    columns_.push_back(std::make_unique<CudaColumn>(this, static_cast<int32_t>(v), tasks[v]));
  }
}

Status CudaRun::Open() {
  const auto start = Clock::now();
  const double* b[kMostCudaColumns] = {};
  const double* x0[kMostCudaColumns] = {};
  for (size_t v = 0; v < columns_.size(); ++v) {
    const System& system = columns_[v]->system();
    b[v] = system.b.data();
    x0[v] = system.x0.empty() ? nullptr : system.x0.data();
  }
  const Status status = cuda::Guard(*a_.device(), [&](cuda::Context& context) {
    const cuda::Operator& a = *cuda::There(a_).op;
    cuda::Factors m;
    if (m_ != nullptr) m = {cuda::There(*m_).op.get(), cuda::There(*m_).then.get()};
    const cuda::UnknownOrder* const unknowns = cuda::There(a_).unknowns.get();
    const cuda::RightHandSides rhs{static_cast<int>(columns_.size()), b, x0,
                                   unknowns != nullptr ? unknowns->order.get() : nullptr};
    const Method method = columns_[0]->options().method;
    solve_ =
        method == Method::kCg ? cuda::MakeCg(context, a, m, rhs)
        : method == Method::kBicgstab
            ? cuda::MakeBicgstab(context, a, m, rhs)
            : cuda::MakeGmres(context, a, m, static_cast<int32_t>(columns_[0]->restart()), rhs);
  });
  timings_.host_to_device_ms += MsSince(start);
  return status;
}

Status CudaRun::Conduct() {
  for (const auto& column : columns_) column->Begin();
  Iterate();
  double* x[kMostCudaColumns] = {};
  for (size_t v = 0; v < columns_.size(); ++v) {
    columns_[v]->Conclude();
    x[v] = columns_[v]->system().x.data();
  }
  const auto start = Clock::now();
  Ask([&] { solve_->Download(x); });
  timings_.device_to_host_ms += MsSince(start);
  return status_;
}

// Between segments no work is in flight, and the solve's data is in memory of its own.
void CudaRun::YieldIfOver() {
  Turn* const turn = columns_[0]->options().turn;
  if (turn == nullptr || !turn->Over()) return;
  lock_.unlock();
  turn->Yield();
  lock_ = a_.device()->Lock();
}

void CudaRun::Iterate() {
  while (status_.ok()) {
    YieldIfOver();
    int32_t limits[kMostCudaColumns] = {};
    for (size_t v = 0; v < columns_.size(); ++v) limits[v] = columns_[v]->Limit();
    if (std::all_of(limits, limits + columns_.size(), [](int32_t limit) { return limit == 0; }))
      return;
    cuda::Segment segments[kMostCudaColumns] = {};
    const auto on_norms = [&](int32_t column, std::span<const double> norms) {
      CudaColumn& own = *columns_[static_cast<size_t>(column)];
      own.OnNorms(norms);
      return own.stop_requested();
    };
    double ms = 0;
    if (!Ask([&] { ms = solve_->Advance(limits, on_norms, segments); })) return;
    timings_.iterate_ms += ms;
    for (const cuda::Segment& segment : segments) timings_.bytes += segment.bytes;
    for (size_t v = 0; v < columns_.size() && status_.ok(); ++v) {
      if (limits[v] > 0) columns_[v]->OnSegment(segments[v]);
    }
  }
}

}  // namespace spaid::kernels::krylov
