#include "kernels/krylov/cuda_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/base/clock.h"

namespace spaid::kernels::krylov {

// Columns without a right-hand side cost nearly as much as others: on an H100 a block of four takes
// 90 ms by Jacobi-CG on P7 128³, one of two and one alone 79.
int32_t ColumnsFor(Method method, int64_t n_rhs) {
  if (method == Method::kGmres) return 1;
  return static_cast<int32_t>(
      std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(n_rhs, kSpaidCudaMostColumns))));
}

double CudaColumn::TrueResidual(bool of_best, bool adopt) {
  const auto start = Clock::now();
  double norm = std::numeric_limits<double>::quiet_NaN();
  if (run_.status_.ok()) {
    run_.Ask(run_.api_.true_residual(run_.solve_.object, column_, of_best ? 1 : 0, adopt ? 1 : 0,
                                     &norm, run_.message_, sizeof(run_.message_)));
  }
  run_.timings_.check_ms += MsSince(start);
  return norm;
}

void CudaColumn::Restore(bool of_best) {
  if (!run_.status_.ok()) return;
  run_.Ask(run_.api_.restore_solve(run_.solve_.object, column_, of_best ? 1 : 0, run_.message_,
                                   sizeof(run_.message_)));
}

void CudaColumn::Begin(double norm) {
  if (!run_.status_.ok()) return;
  basis_columns_ = 0;
  const SpaidCudaSolveStart start{target(), norm, best_norm_, initial_, round_};
  run_.Ask(run_.api_.begin_solve(run_.solve_.object, column_, &start, run_.message_,
                                 sizeof(run_.message_)));
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

void CudaColumn::OnNorms(const double* norms, int32_t count) {
  for (int32_t i = 0; i < count && !ended(); ++i) RecordNorm(norms[i]);
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

void CudaColumn::ContinueCycle(const SpaidCudaSolveInfo& info) {
  basis_columns_ += info.iterations;
  if (info.status == kSpaidCudaSolvePaused && basis_columns_ < restart_) return;
  const double truth = TrueResidual(false, true);
  if (run_.status_.ok() && NextCycle(info.last_norm, truth, info.status == kSpaidCudaSolveExhausted,
                                     run_.m_ != nullptr, restart_)) {
    Begin(truth);
  }
}

void CudaColumn::OnSegment(const SpaidCudaSolveInfo& info) {
  best_norm_ = info.best_norm;
  if (ended()) return;
  switch (info.status) {
    case kSpaidCudaSolvePaused:
    case kSpaidCudaSolveUnderTarget:
      if (options().method == Method::kGmres) return ContinueCycle(info);
      if (info.iterations > 0 && VerifyDue(info.last_norm)) Verify(info.last_norm);
      return;
    case kSpaidCudaSolveExhausted:
      return ContinueCycle(info);
    case kSpaidCudaSolveIndefiniteM:
      End(Outcome::kIndefinite, NotDefinite("the preconditioner is not positive definite: rᵀMr",
                                            info.value, iterations()));
      return;
    case kSpaidCudaSolveIndefiniteA:
      End(Outcome::kIndefinite,
          NotDefinite("A is not positive definite: pᵀAp", info.value, iterations()));
      return;
    case kSpaidCudaSolveNonFiniteM:
      End(Outcome::kNonFinite, "rᵀMr is not finite: the preconditioner overflows");
      return;
    case kSpaidCudaSolveNonFiniteA:
      End(Outcome::kNonFinite,
          "pᵀAp is not finite at iteration " + std::to_string(iterations()) + "; rescale A");
      return;
    case kSpaidCudaSolveHalfStep: {
      // Truth a little above the target, s a little under it: go on from the truth.
      const double truth = TrueResidual(false, true);
      if (!run_.status_.ok() || Compare(info.last_norm, truth) == Verdict::kEnd) return;
      TrueResidual(false, true);
      return Begin(truth);
    }
    case kSpaidCudaSolveOmegaVanished:
      return Broken("omega vanished");
    case kSpaidCudaSolveRhoVanished:
      return Broken("rho vanished");
    case kSpaidCudaSolveAlphaVanished:
      return Broken("the denominator of alpha vanished");
    case kSpaidCudaSolvePOverflowed:
      return Broken("the direction p overflowed");
    case kSpaidCudaSolveDiverged:
      if (best_norm_ < info.last_norm) UseBest();
      return Broken("the residual grew by 1/eps over the best");
    case kSpaidCudaSolveNonFiniteAMr:
      return NonFinite("A M r");
    case kSpaidCudaSolveNonFiniteS:
      return NonFinite("s");
    case kSpaidCudaSolveNonFiniteAMs:
      return NonFinite("A M s");
    case kSpaidCudaSolveNonFiniteAMv:
      return NonFinite("A M v");
    case kSpaidCudaSolveNonFiniteBeta:
      return NonFinite("beta");
    default:
      End(Outcome::kNonFinite,
          "the residual is not finite at iteration " + std::to_string(iterations()));
  }
}

CudaRun::CudaRun(const CudaOperator& a, const CudaOperator* m, std::span<const Task> tasks,
                 std::unique_lock<std::mutex>* lock, SolveCudaTimings* timings)
    : a_(a),
      m_(m),
      api_(a.device()->api()),
      lock_(*lock),
      timings_(*timings),
      solve_(a.device(), &SpaidCudaInterface::free_solve) {
  solve_.locked = true;
  for (size_t v = 0; v < tasks.size(); ++v) {
    columns_.push_back(std::make_unique<CudaColumn>(this, static_cast<int32_t>(v), tasks[v]));
  }
}

bool CudaRun::Ask(int32_t result) {
  if (result == kSpaidCudaOk) return true;
  status_ = a_.device()->Failed(result, message_);
  // Nobody reads it: the solve fails.
  for (const auto& column : columns_) column->End(Outcome::kNonFinite, "");
  return false;
}

Status CudaRun::Open() {
  const auto start = Clock::now();
  const auto method = static_cast<int32_t>(columns_[0]->options().method);
  const double* b[kSpaidCudaMostColumns] = {};
  const double* x0[kSpaidCudaMostColumns] = {};
  for (size_t v = 0; v < columns_.size(); ++v) {
    const System& system = columns_[v]->system();
    b[v] = system.b.data();
    x0[v] = system.x0.empty() ? nullptr : system.x0.data();
  }
  const int32_t result = api_.open_solve(
      a_.object(), m_ != nullptr ? m_->object() : nullptr, m_ != nullptr ? m_->then() : nullptr,
      method, static_cast<int32_t>(columns_[0]->restart()), static_cast<int32_t>(columns_.size()),
      b, x0, &solve_.object, message_, sizeof(message_));
  timings_.host_to_device_ms += MsSince(start);
  return result == kSpaidCudaOk ? Status() : a_.device()->Failed(result, message_);
}

Status CudaRun::Conduct() {
  for (const auto& column : columns_) column->Begin();
  Iterate();
  double* x[kSpaidCudaMostColumns] = {};
  for (size_t v = 0; v < columns_.size(); ++v) {
    columns_[v]->Conclude();
    x[v] = columns_[v]->system().x.data();
  }
  const auto start = Clock::now();
  if (status_.ok()) Ask(api_.download_x(solve_.object, x, message_, sizeof(message_)));
  timings_.device_to_host_ms += MsSince(start);
  return status_;
}

int32_t CudaRun::OnNorms(void* self, int32_t column, const double* norms, int32_t count) {
  CudaColumn& own = *static_cast<CudaRun*>(self)->columns_[static_cast<size_t>(column)];
  own.OnNorms(norms, count);
  return own.stop_requested() ? 1 : 0;
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
    int32_t limits[kSpaidCudaMostColumns] = {};
    for (size_t v = 0; v < columns_.size(); ++v) limits[v] = columns_[v]->Limit();
    if (std::all_of(limits, limits + columns_.size(), [](int32_t limit) { return limit == 0; }))
      return;
    SpaidCudaSolveInfo infos[kSpaidCudaMostColumns] = {};
    const SpaidCudaSolveOptions with{&OnNorms, this};
    double ms = 0;
    if (!Ask(api_.advance_solve(solve_.object, limits, &with, infos, &ms, message_,
                                sizeof(message_)))) {
      return;
    }
    timings_.iterate_ms += ms;
    for (const SpaidCudaSolveInfo& info : infos) timings_.bytes += info.bytes;
    for (size_t v = 0; v < columns_.size() && status_.ok(); ++v) {
      if (limits[v] > 0) columns_[v]->OnSegment(infos[v]);
    }
  }
}

}  // namespace spaid::kernels::krylov
