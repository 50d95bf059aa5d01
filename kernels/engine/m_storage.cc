#include "kernels/engine/m_storage.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/engine/engine_parts.h"

namespace spaid::kernels {
namespace {

double Best(std::span<const ResidualPoint> points) {
  double best = std::numeric_limits<double>::infinity();
  for (const ResidualPoint& point : points) best = std::min(best, point.relative_residual);
  return best;
}

// Decimal digits that the residual has come down by; 0 where it has not.
double Digits(const std::vector<ResidualPoint>& points) {
  if (points.empty()) return 0;
  const double best = Best(points);
  const double digits = std::log10(points.front().relative_residual / best);
  return std::isfinite(digits) ? std::max(0.0, digits) : 0;
}

// Listens to a solve with M in fp32. Holds the first residuals back until it is known whether they
// count, and stops the solve where they do not.
class Listener final : public ProgressSink {
 public:
  Listener(const Context& caller, double target, int64_t max_iterations)
      : caller_(caller), target_(target), max_iterations_(max_iterations) {}

  Context context() {
    Context own = caller_;
    own.stop = source_.token();
    own.progress = this;
    return own;
  }

  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (caller_.progress != nullptr) caller_.progress->OnProgress(stage, done, total);
  }

  void OnResidual(const ResidualPoint& point) override {
    if (const StopReason told = caller_.stop.Poll(); told != StopReason::kNone) {
      source_.Request(told);
    }
    if (ended_) return;
    if (passed_on_) {
      if (caller_.progress != nullptr) caller_.progress->OnResidual(point);
      return;
    }
    held_.push_back(point);
    if (point.rhs != 0) {
      // Of a block that goes on without the first, which ended before it was told.
      if (point.iteration > kTrialIterations) PassOn();
      return;
    }
    points_.push_back(point);
    if (static_cast<int64_t>(points_.size()) <= kTrialIterations) return;
    predicted_ = Predicted();
    if (predicted_ > static_cast<double>(kNoTrialUpTo)) {
      ended_ = true;
      source_.Request(StopReason::kCancelled);
      return;
    }
    PassOn();
  }

  // The first residuals count.
  void PassOn() {
    if (std::exchange(passed_on_, true) || caller_.progress == nullptr) return;
    for (const ResidualPoint& point : held_) caller_.progress->OnResidual(point);
  }

  bool ended() const { return ended_; }  // for the trial; by nobody else
  const std::vector<ResidualPoint>& points() const { return points_; }
  double predicted() const { return predicted_; }  // iterations in all; 0: it ended before

 private:
  double Predicted() const {
    constexpr int64_t kHalf = kTrialIterations / 2;
    const double best = Best(points_);
    const auto most = static_cast<double>(max_iterations_);
    if (best <= target_) return static_cast<double>(kTrialIterations);
    // The first iterations often bring more than any that follow.
    const double digits = std::log10(Best(std::span(points_).first(kHalf + 1)) / best);
    if (!(digits > 0) || target_ <= 0) return most;
    const double to_go = std::log10(best / target_) / digits * (kTrialIterations - kHalf);
    return std::min(most, static_cast<double>(kTrialIterations) + to_go);
  }

  const Context& caller_;
  const double target_;
  const int64_t max_iterations_;
  StopSource source_;
  std::vector<ResidualPoint> points_;  // of the first right-hand side
  std::vector<ResidualPoint> held_;    // of all, until they count
  double predicted_ = 0;
  bool passed_on_ = false, ended_ = false;
};

std::string Moved(const MStorageCase& m) {
  return "an iteration moves " + Figure(m.bytes_fp32 * 1e-6) + " MB, " +
         Figure(m.bytes_fp64 * 1e-6) + " with fp64";
}

// On ‖b − A x‖ / ‖b‖ of the first right-hand side.
double RelativeTarget(const MStorageCase& m, std::span<const double> b,
                      const SolveOptions& options) {
  if (options.atol == 0) return options.rtol;
  double sum = 0;
  for (const double v : b.first(static_cast<size_t>(m.n))) sum += v * v;
  return sum > 0 ? std::max(options.rtol, options.atol / std::sqrt(sum)) : options.rtol;
}

Result<SolveResult> Stored(Storage storage, std::string reason, Result<SolveResult> solved) {
  if (!solved.ok()) return solved;
  solved->m_storage = storage;
  solved->storage_reason = std::move(reason);
  return solved;
}

}  // namespace

Result<SolveResult> SolveByStorage(const MStorageCase& m, std::span<const double> b,
                                   const SolveOptions& options, const Context& context,
                                   const SolveStored& solve) {
  if (options.m_storage == Storage::kFp64) {
    return Stored(Storage::kFp64, "", solve(Storage::kFp64, b, options, context));
  }
  if (options.m_storage == Storage::kFp32) {
    if (Status fits = m.fits_fp32(); !fits.ok()) return fits;
    return Stored(Storage::kFp32, "", solve(Storage::kFp32, b, options, context));
  }
  const auto in_fp64 = [&](const std::string& why) {
    return Stored(Storage::kFp64, "fp64: " + why, solve(Storage::kFp64, b, options, context));
  };
  if (m.bytes_fp64 < kWorthBytes) {
    return in_fp64("an iteration moves " + Figure(m.bytes_fp64 * 1e-6) +
                   " MB, too little for fp32 to pay");
  }
  if (1 - m.bytes_fp32 / m.bytes_fp64 < kWorthSharing) {
    return in_fp64("with fp32 " + Moved(m) + ", which is not worth it");
  }
  if (Status fits = m.fits_fp32(); !fits.ok()) return in_fp64(fits.message());

  const auto start = Clock::now();
  Listener listener(context, RelativeTarget(m, b, options), options.max_iterations);
  auto first = solve(Storage::kFp32, b, options, listener.context());
  if (!first.ok()) return first;
  if (!listener.ended()) {
    listener.PassOn();
    const std::string why =
        listener.predicted() == 0
            ? "the first right-hand side ended before there was anything to compare"
            : "after " + std::to_string(kTrialIterations) + " iterations the residual was " +
                  Figure(listener.points().back().relative_residual) + ", so that some " +
                  std::to_string(std::llround(listener.predicted())) +
                  " were to be expected, too few to try fp64";
    return Stored(Storage::kFp32, "fp32: " + why + "; " + Moved(m), std::move(first));
  }

  first->x = Array<double>();  // its memory is wanted for the answers
  SolveOptions few = options;
  few.max_iterations = kTrialIterations;
  few.keep_history = true;
  Context quiet = context;
  quiet.progress = nullptr;
  auto other = solve(Storage::kFp64, b.first(static_cast<size_t>(m.n)), few, quiet);
  if (!other.ok() && other.status().code() == StatusCode::kResourceExhausted) {
    return Stored(Storage::kFp32,
                  "fp32: there was no room for a trial of fp64 beside it; " + Moved(m),
                  solve(Storage::kFp32, b, options, context));
  }
  if (!other.ok()) return other;
  const double trial_ms = MsSince(start);
  const double fp32 = Digits(listener.points()), fp64 = Digits(other->rhs[0].history);
  other->x = Array<double>();
  // Bytes a digit.
  const Storage chosen =
      fp64 * m.bytes_fp32 > fp32 * m.bytes_fp64 ? Storage::kFp64 : Storage::kFp32;
  const std::string why = std::string(chosen == Storage::kFp32 ? "fp32" : "fp64") + ": " +
                          std::to_string(kTrialIterations) +
                          " iterations of each brought the residual to " +
                          Figure(Best(listener.points())) + ", and to " +
                          Figure(Best(other->rhs[0].history)) + " with fp64; " + Moved(m);
  auto solved = solve(chosen, b, options, context);
  if (solved.ok()) solved->figures.trial_ms += trial_ms;
  return Stored(chosen, why, std::move(solved));
}

}  // namespace spaid::kernels
