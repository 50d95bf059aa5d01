#include "kernels/engine/scaled_solve.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/norm.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/engine_parts.h"

namespace spaid::kernels {
namespace {

// Solves of one right-hand side, each of the residual that the one before it left.
constexpr int kSolves = 8;
constexpr double kFirstShare = 0.9;  // of the caller's target, that the first one aims at
constexpr double kHarder = 1e-2;     // of the share before, where that did not do
constexpr double kLeastRtol = 1e-13, kMostRtol = 0.5;
constexpr double kLeastRefined = 0.1;  // one for all that fp64 has must leave no more

constexpr int64_t kPart = 1 << 15;

void Multiply(std::span<const double> by, std::span<const double> x, std::span<double> out,
              int threads) {
  ParallelFor(std::ssize(x), kPart, threads, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      out[i] = x[i] * by[i];
    }
  });
}

// D A.
class ScaledRows final : public LinearOperator {
 public:
  ScaledRows(const LinearOperator& a, std::span<const double> rows) : a_(a), rows_(rows) {}
  int64_t n() const override { return a_.n(); }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override {
    a_.Apply(x, y, threads);
    Multiply(rows_, y, y, threads);
  }
  int64_t bytes_per_apply() const override { return a_.bytes_per_apply() + 24 * n(); }

 private:
  const LinearOperator& a_;
  const std::span<const double> rows_;
};

// M D⁻¹, one product at a time: that of a solve.
class UnscaledRows final : public LinearOperator {
 public:
  UnscaledRows(const LinearOperator& m, std::span<const double> rows) : m_(m) {
    inverse_.resize(rows.size());
    scaled_.resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) inverse_[i] = 1 / rows[i];
  }
  int64_t n() const override { return m_.n(); }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override {
    Multiply(inverse_, x, scaled_, threads);
    m_.Apply(scaled_, y, threads);
  }
  int64_t bytes_per_apply() const override { return m_.bytes_per_apply() + 24 * n(); }

 private:
  const LinearOperator& m_;
  Array<double> inverse_;
  mutable Array<double> scaled_;
};

// Tells residuals of a solve as those of the right-hand side that it goes on with.
class Renumbered final : public ProgressSink {
 public:
  Renumbered(ProgressSink* next, int32_t rhs, int64_t before, double unit)
      : next_(next), rhs_(rhs), before_(static_cast<int32_t>(before)), unit_(unit) {}
  ResidualPoint Told(const ResidualPoint& point) const {
    return {rhs_, before_ + point.iteration, point.relative_residual * unit_};
  }
  // Its first one has been told as the last one of the solve before it.
  bool Tells(const ResidualPoint& point) const { return point.iteration > 0 || before_ == 0; }
  void OnProgress(Stage stage, int64_t done, int64_t total) override {
    if (next_ != nullptr) next_->OnProgress(stage, done, total);
  }
  void OnResidual(const ResidualPoint& point) override {
    if (next_ != nullptr && Tells(point)) next_->OnResidual(Told(point));
  }

 private:
  ProgressSink* const next_;
  const int32_t rhs_, before_;
  const double unit_;
};

class ScaledSolve {
 public:
  ScaledSolve(const LinearOperator& a, const LinearOperator& m, std::span<const double> rows,
              const SolveOptions& options, const Context& context)
      : a_(a),
        m_(m),
        rows_(rows),
        scaled_a_(a, rows),
        scaled_m_(m, rows),
        options_(options),
        context_(context),
        threads_(ResolveThreads(context.threads)) {
    for (Array<double>* v : {&from_, &residual_, &next_, &next_residual_, &scaled_}) {
      v->resize(rows.size());
    }
  }

  // `x`: the guess, becomes the iterate of the least residual.
  Status Run(int32_t rhs, std::span<const double> b, std::span<double> x, RhsResult* out,
             SolveFigures* figures) {
    const double b_norm = Norm(b);
    if (b_norm == 0) {
      std::fill(x.begin(), x.end(), 0.0);
      out->outcome = Outcome::kConverged;
      out->detail = "the right-hand side is zero, so is the solution";
      Tell({rhs, 0, 0.0}, out);
      return {};
    }
    const double target = std::max(options_.rtol * b_norm, options_.atol);
    std::copy(x.begin(), x.end(), from_.begin());
    Residual(b, from_, residual_, figures);
    double least = Norm(residual_), norm = least;
    double scaled = ScaledNorm(residual_);
    if (least <= target) Tell({rhs, 0, least / b_norm}, out);
    double share = kFirstShare;
    Outcome ended = Outcome::kConverged;
    for (int k = 0; k < kSolves && !(least <= target); ++k) {
      // Every other one is in the caller's norm: what is small in the scaled rows need not be
      // there.
      const bool by_rows = k % 2 == 0;
      const int64_t left = options_.max_iterations - out->iterations;
      if (left <= 0) {
        ended = Outcome::kMaxIterations;
        break;
      }
      SolveOptions options = options_;
      options.rtol = std::clamp(share * target / norm, kLeastRtol, kMostRtol);
      if (!(options.rtol > 0)) options.rtol = kLeastRtol;  // a residual that is infinite
      options.atol = 0;
      options.max_iterations = left;
      Renumbered told(context_.progress, rhs, out->iterations, norm / b_norm);
      Context context = context_;
      context.progress = &told;
      if (by_rows) Multiply(rows_, residual_, scaled_, threads_);
      auto solved = by_rows ? kernels::Solve(scaled_a_, &scaled_m_, scaled_, {}, options, context)
                            : kernels::Solve(a_, &m_, residual_, {}, options, context);
      if (!solved.ok()) return solved.status();
      Add(*solved, told, out, figures);
      ended = solved->rhs[0].outcome;
      out->detail = solved->rhs[0].detail;
      for (size_t i = 0; i < next_.size(); ++i) next_[i] = from_[i] + solved->x[i];
      Residual(b, next_, next_residual_, figures);
      const double now = Norm(next_residual_), scaled_now = ScaledNorm(next_residual_);
      if (now < least) {
        least = now;
        std::copy(next_.begin(), next_.end(), x.begin());
      }
      const double before = scaled;
      if (scaled_now < scaled) {
        std::swap(from_, next_);
        std::swap(residual_, next_residual_);
        scaled = scaled_now;
        norm = now;
      }
      if (ended == Outcome::kCancelled || ended == Outcome::kTimeLimit) break;
      if (!by_rows) continue;
      if (ended != Outcome::kConverged) break;
      if (k > 0) share *= kHarder;
      if (options.rtol <= kLeastRtol && scaled > kLeastRefined * before) break;
    }
    out->true_residual = least;
    out->true_relative_residual = least / b_norm;
    if (least <= target) {
      out->outcome = Outcome::kConverged;
      out->detail.clear();
    } else if (ended != Outcome::kConverged) {
      out->outcome = ended;
    } else {
      out->outcome = Outcome::kStagnated;
      out->detail =
          "the residual of the scaled rows is as small as rounding allows, that of A's "
          "own is not: " +
          Figure(least / b_norm) + " of |b|; ask for a larger rtol";
    }
    return {};
  }

 private:
  void Residual(std::span<const double> b, const Array<double>& x, Array<double>& r,
                SolveFigures* figures) const {
    const auto start = Clock::now();
    a_.Apply(x, r, threads_);
    for (size_t i = 0; i < r.size(); ++i) r[i] = b[i] - r[i];
    figures->check_ms += MsSince(start);
  }
  double ScaledNorm(const Array<double>& r) {
    Multiply(rows_, r, scaled_, threads_);
    return Norm(scaled_);
  }
  void Tell(const ResidualPoint& point, RhsResult* out) const {
    if (options_.keep_history) out->history.push_back(point);
    if (context_.progress != nullptr) context_.progress->OnResidual(point);
  }
  static void Add(const SolveResult& solved, const Renumbered& told, RhsResult* out,
                  SolveFigures* figures) {
    for (const ResidualPoint& point : solved.rhs[0].history) {
      if (told.Tells(point)) out->history.push_back(told.Told(point));
    }
    out->iterations += solved.rhs[0].iterations;
    figures->iterate_ms += solved.figures.iterate_ms;
    figures->check_ms += solved.figures.check_ms;
    figures->iterations += solved.figures.iterations;
    figures->bytes += solved.figures.bytes;
  }

  const LinearOperator &a_, &m_;
  const std::span<const double> rows_;
  const ScaledRows scaled_a_;
  const UnscaledRows scaled_m_;
  const SolveOptions& options_;
  const Context& context_;
  const int threads_;
  // The iterate of the least scaled residual, and its own; those that a solve leads to.
  Array<double> from_, residual_, next_, next_residual_;
  Array<double> scaled_;
};

}  // namespace

Result<SolveResult> SolveByScaledRows(const LinearOperator& a, const LinearOperator& m,
                                      std::span<const double> rows, std::span<const double> b,
                                      std::span<const double> x0, const SolveOptions& options,
                                      const Context& context) {
  const auto start = Clock::now();
  if (Status s = CheckSolveInput(a.n(), m.n(), b, x0, options, ResolveThreads(context.threads));
      !s.ok()) {
    return s;
  }
  const size_t n = rows.size(), count = b.size() / n;
  SolveResult result;
  result.x.resize(b.size());
  if (!x0.empty()) {
    std::copy(x0.begin(), x0.end(), result.x.begin());
  } else {
    std::fill(result.x.begin(), result.x.end(), 0.0);
  }
  result.rhs.resize(count);
  ScaledSolve solve(a, m, rows, options, context);
  for (size_t v = 0; v < count; ++v) {
    Status s = solve.Run(static_cast<int32_t>(v), b.subspan(v * n, n),
                         std::span(result.x).subspan(v * n, n), &result.rhs[v], &result.figures);
    if (!s.ok()) return s;
  }
  result.solve_ms = MsSince(start);
  return result;
}

}  // namespace spaid::kernels
