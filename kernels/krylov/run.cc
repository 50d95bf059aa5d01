#include "kernels/krylov/run.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/clock.h"

namespace spaid::kernels::krylov {

double Team::Norm(std::span<const double> x) {
  const double sum = Dot(x, x);
  if (sum > 1e-280 && sum < 1e280) return std::sqrt(sum);
  double largest = 0;
  for (const double v : x) {
    if (!std::isfinite(v)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, std::abs(v));
  }
  if (largest == 0) return 0;
  const int exponent = std::ilogb(largest);
  const double* xs = x.data();
  const double scaled = Sum<1>([=](int64_t begin, int64_t end) {
    double s = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double v = std::ldexp(xs[i], -exponent);
      s += v * v;
    }
    return std::array<double, 1>{s};
  })[0];
  return std::ldexp(std::sqrt(scaled), exponent);
}

bool Run::MayIterate() {
  if (Turn* const turn = options().turn; turn != nullptr && turn->Over()) {
    const auto start = Clock::now();
    turn->Yield();
    pause_ms_ += MsSince(start);
  }
  return Judge::MayIterate();
}

double Run::TrueResidual(std::span<const double> x, std::span<double> r) {
  const auto start = Clock::now();
  ApplyA(x, r);
  const double* b = system_.b.data();
  double* rs = r.data();
  team_.For([=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rs[i] = b[i] - rs[i];
  });
  const double norm = team_.Norm(r);
  check_ms_ += MsSince(start);
  return norm;
}

bool Run::Start(std::span<double> r) {
  if (!system_.x0.empty()) return Begin(TrueResidual(system_.x, r));
  std::copy(system_.b.begin(), system_.b.end(), r.begin());
  return Begin(terms().b_norm);
}

void Run::Keep(double norm) {
  if (!(norm < best_norm_)) return;
  best_.assign(system_.x.begin(), system_.x.end());
  best_norm_ = norm;
}

Verdict Run::Verify(double norm, std::span<double> scratch, std::span<double> r) {
  spare_ = r;  // may hold the best iterate's residual later
  return Compare(norm, TrueResidual(system_.x, scratch));
}

bool Run::EndCycle(double norm, std::span<double> scratch, std::span<double> r, bool exhausted,
                   int64_t restart) {
  spare_ = r;
  return NextCycle(norm, TrueResidual(system_.x, scratch), exhausted, has_m(), restart);
}

void Run::RestoreBest() {
  if (best_norm_ < previous_norm_) UseBest();
}

bool Run::RestartAfterBreakdown(std::span<double> r, const std::string& detail) {
  return StartAfresh(TrueResidual(system_.x, r), detail);
}

double Run::TrueResidualOfLast() {
  Array<double> scratch(system_.x.size());
  return TrueResidual(system_.x, scratch);
}

double Run::TrueResidualOfBest() {
  if (!ended()) return TrueResidual(best_, spare_);
  Array<double> scratch(system_.x.size());
  return TrueResidual(best_, scratch);
}

void Run::UseBest() { std::copy(best_.begin(), best_.end(), system_.x.begin()); }

void Run::UseGuess() {
  if (system_.x0.empty()) {
    std::fill(system_.x.begin(), system_.x.end(), 0.0);
  } else {
    std::copy(system_.x0.begin(), system_.x0.end(), system_.x.begin());
  }
}

}  // namespace spaid::kernels::krylov
