#include "kernels/krylov/cuda_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace spaid::kernels::krylov {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

CudaRun::CudaRun(const CudaOperator& a, const CudaOperator* m, const System& system,
                 const Terms& terms, SolveCudaTimings* timings, RhsResult* out)
    : Judge(terms, out),
      a_(a),
      m_(m),
      system_(system),
      restart_(RestartLength(options(), a.n())),
      api_(a.device()->api()),
      timings_(*timings),
      solve_(a.device(), &SpaidCudaInterface::free_solve) {
  solve_.locked = true;
}

bool CudaRun::Ask(int32_t result) {
  if (result == kSpaidCudaOk) return true;
  status_ = a_.device()->Failed(result, message_);
  End(Outcome::kNonFinite, "");  // nobody reads it: the solve fails
  return false;
}

double CudaRun::TrueResidual(bool of_best, bool adopt) {
  const auto start = Clock::now();
  double norm = std::numeric_limits<double>::quiet_NaN();
  if (status_.ok()) {
    Ask(api_.true_residual(solve_.object, of_best ? 1 : 0, adopt ? 1 : 0, &norm, message_,
                           sizeof(message_)));
  }
  timings_.check_ms += MsSince(start);
  return norm;
}

void CudaRun::Restore(bool of_best) {
  if (status_.ok()) {
    Ask(api_.restore_solve(solve_.object, of_best ? 1 : 0, message_, sizeof(message_)));
  }
}

void CudaRun::Begin(double norm) {
  columns_ = 0;
  const SpaidCudaSolveStart start{target(), norm, best_norm_, initial_, round_};
  Ask(api_.begin_solve(solve_.object, &start, message_, sizeof(message_)));
}

Status CudaRun::Conduct() {
  auto start = Clock::now();
  const auto method = static_cast<int32_t>(options().method);
  const bool opened = Ask(api_.open_solve(a_.object(), m_ != nullptr ? m_->object() : nullptr,
                                          method, static_cast<int32_t>(restart_), system_.b.data(),
                                          system_.x0.empty() ? nullptr : system_.x0.data(),
                                          &solve_.object, message_, sizeof(message_)));
  timings_.host_to_device_ms += MsSince(start);
  if (!opened) return status_;
  initial_ = TrueResidual(false, true);
  if (status_.ok() && Judge::Begin(initial_)) {
    Begin(initial_);
    Iterate();
  }
  Conclude();
  start = Clock::now();
  if (status_.ok()) {
    Ask(api_.download_x(solve_.object, system_.x.data(), message_, sizeof(message_)));
  }
  timings_.device_to_host_ms += MsSince(start);
  return status_;
}

int32_t CudaRun::OnNorms(void* self, const double* norms, int32_t count) {
  auto& run = *static_cast<CudaRun*>(self);
  for (int32_t i = 0; i < count && run.finite_; ++i) run.finite_ = run.RecordNorm(norms[i]);
  return !run.finite_ || run.terms().context->stop.stop_requested() ? 1 : 0;
}

void CudaRun::Iterate() {
  while (status_.ok() && MayIterate()) {
    const int64_t left = options().max_iterations - iterations();
    const int64_t due = options().method == Method::kGmres ? restart_ - columns_ : UntilVerify();
    SpaidCudaSolveInfo info{};
    const SpaidCudaSolveOptions with{&OnNorms, this};
    if (!Ask(api_.advance_solve(solve_.object, static_cast<int32_t>(std::min(left, due)), &with,
                                &info, message_, sizeof(message_)))) {
      return;
    }
    timings_.iterate_ms += info.ms;
    timings_.bytes +=
        static_cast<double>(info.iterations) * static_cast<double>(info.bytes_per_iteration);
    best_norm_ = info.best_norm;
    if (!finite_ || !Continue(info)) return;
  }
}

bool CudaRun::Verify(double norm) {
  const double truth = TrueResidual(false, false);
  if (!status_.ok()) return false;
  switch (Compare(norm, truth)) {
    case Verdict::kEnd:
      return false;
    case Verdict::kContinue:
      return true;
    case Verdict::kRestart:
      break;
  }
  TrueResidual(false, true);
  Begin(truth);
  return status_.ok();
}

bool CudaRun::Broken(const char* what) {
  const double truth = TrueResidual(false, true);
  if (!status_.ok()) return false;
  if (!StartAfresh(truth, std::string(what) + " at iteration " + std::to_string(iterations()) +
                              " and restarts do not help; use GMRES or another preconditioner")) {
    return false;
  }
  ++round_;
  Begin(truth);
  return status_.ok();
}

bool CudaRun::NonFinite(const char* what) {
  End(Outcome::kNonFinite, NotFinite(what, iterations()));
  return false;
}

bool CudaRun::ContinueCycle(const SpaidCudaSolveInfo& info) {
  columns_ += info.iterations;
  if (info.status == kSpaidCudaSolvePaused && columns_ < restart_) return true;
  const double truth = TrueResidual(false, true);
  if (!status_.ok() || !NextCycle(info.last_norm, truth, info.status == kSpaidCudaSolveExhausted,
                                  m_ != nullptr, restart_)) {
    return false;
  }
  if (status_.ok()) Begin(truth);
  return status_.ok();
}

bool CudaRun::Continue(const SpaidCudaSolveInfo& info) {
  switch (info.status) {
    case kSpaidCudaSolvePaused:
    case kSpaidCudaSolveUnderTarget:
      if (options().method == Method::kGmres) return ContinueCycle(info);
      return info.iterations == 0 || !VerifyDue(info.last_norm) || Verify(info.last_norm);
    case kSpaidCudaSolveExhausted:
      return ContinueCycle(info);
    case kSpaidCudaSolveIndefiniteM:
      End(Outcome::kIndefinite, NotDefinite("the preconditioner is not positive definite: rᵀMr",
                                            info.value, iterations()));
      return false;
    case kSpaidCudaSolveIndefiniteA:
      End(Outcome::kIndefinite,
          NotDefinite("A is not positive definite: pᵀAp", info.value, iterations()));
      return false;
    case kSpaidCudaSolveNonFiniteM:
      End(Outcome::kNonFinite, "rᵀMr is not finite: the preconditioner overflows");
      return false;
    case kSpaidCudaSolveNonFiniteA:
      End(Outcome::kNonFinite,
          "pᵀAp is not finite at iteration " + std::to_string(iterations()) + "; rescale A");
      return false;
    case kSpaidCudaSolveHalfStep: {
      // Truth a little above the target, s a little under it: go on from the truth.
      const double truth = TrueResidual(false, true);
      if (!status_.ok() || Compare(info.last_norm, truth) == Verdict::kEnd) return false;
      TrueResidual(false, true);
      Begin(truth);
      return status_.ok();
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
      return false;
  }
}

}  // namespace spaid::kernels::krylov
