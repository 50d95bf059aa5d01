#include "kernels/amg/coarse_inverse.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/hot_kernel.h"
#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

constexpr double kSingular = 1e-12;  // of what elimination began with
// Bounds, for each row, what Galerkin products leave of a zero: at most 0.7 ε of Neumann problems
// on 24³ to 160³ nodes, whose own diagonal falls by 60 meanwhile; nothing that is regular comes
// under 1e9 ε.
constexpr double kRounding = 64 * std::numeric_limits<double>::epsilon();
constexpr int64_t kRowsAtOnce = 32;
constexpr int64_t kSerialWork = 1 << 16;  // elements that one thread is as quick with

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// to -= factor · from.
SPAID_HOT_KERNEL
void Subtract(double factor, const double* from, int64_t count, double* to) {
  for (int64_t j = 0; j < count; ++j) to[j] = std::fma(-factor, from[j], to[j]);
}

// Inverts in place, an unknown at a time (Gauss, Jordan).
class Inverter {
 public:
  Inverter(int64_t n, Array<double>& a, const Context& context)
      : n_(n), a_(a), context_(context), exchanged_(Z(n)), done_(Z(n), false) {
    for (const double value : a_) largest_ = std::max(largest_, std::fabs(value));
    for (int64_t i = 0; i < n; ++i) diagonal_.push_back(std::fabs(At(i, i)));
  }

  // No rows are exchanged: the next unknown is that of which most is left of the diagonal.
  StopReason Symmetric() {
    const double rounding = kRounding * static_cast<double>(n_);
    for (int64_t step = 0; step < n_; ++step) {
      if (const StopReason stopped = context_.stop.Poll(); stopped != StopReason::kNone)
        return stopped;
      const auto left = [&](int64_t i) { return std::fabs(At(i, i)) / diagonal_[Z(i)]; };
      int64_t k = -1;
      for (int64_t i = 0; i < n_; ++i) {
        // Passed by, not the end: a part without a boundary may be one unknown, of rounding alone.
        if (done_[Z(i)] || !(std::fabs(At(i, i)) > rounding)) continue;
        if (k < 0 || left(i) > left(k)) k = i;
      }
      if (k < 0 || !(left(k) > kSingular)) break;  // and so are all others
      Eliminate(k);
    }
    return StopReason::kNone;
  }

  // Rows are exchanged so that the largest element of a column comes to the diagonal.
  StopReason General() {
    for (int64_t k = 0; k < n_; ++k) {
      if (const StopReason stopped = context_.stop.Poll(); stopped != StopReason::kNone)
        return stopped;
      int64_t pivot = k;
      for (int64_t i = k + 1; i < n_; ++i) {
        if (std::fabs(At(i, k)) > std::fabs(At(pivot, k))) pivot = i;
      }
      exchanged_[Z(k)] = pivot;
      std::swap_ranges(&At(k, 0), &At(k, 0) + (pivot == k ? 0 : n_), &At(pivot, 0));
      if (std::fabs(At(k, k)) > kSingular * largest_) Eliminate(k);
    }
    return StopReason::kNone;
  }

  // Empties rows and columns of unknowns that were left out; returns how many those are.
  int64_t DropRest() {
    for (int64_t k = 0; k < n_; ++k) {
      if (done_[Z(k)]) continue;
      for (int64_t i = 0; i < n_; ++i) At(i, k) = At(k, i) = 0;
    }
    return std::count(done_.begin(), done_.end(), false);
  }

  // Rows of A that were exchanged are columns of its inverse.
  void ExchangeBack() {
    for (int64_t k = n_ - 1; k >= 0; --k) {
      if (exchanged_[Z(k)] == k) continue;
      for (int64_t i = 0; i < n_; ++i) std::swap(At(i, k), At(i, exchanged_[Z(k)]));
    }
  }

 private:
  double& At(int64_t i, int64_t j) { return a_[Z(i * n_ + j)]; }

  void Eliminate(int64_t k) {
    done_[Z(k)] = true;
    double* const row = &At(k, 0);
    const double scale = 1 / std::exchange(row[k], 1.0);
    for (int64_t j = 0; j < n_; ++j) row[j] *= scale;
    ParallelFor(n_, kRowsAtOnce, n_ * n_ < kSerialWork ? 1 : context_.threads,
                [&](int64_t begin, int64_t end, int) {
                  for (int64_t i = begin; i < end; ++i) {
                    if (i != k) Subtract(std::exchange(At(i, k), 0.0), row, n_, &At(i, 0));
                  }
                });
  }

  const int64_t n_;
  Array<double>& a_;
  const Context& context_;
  double largest_ = 0;
  std::vector<double> diagonal_;  // as it was
  std::vector<int64_t> exchanged_;
  std::vector<bool> done_;
};

}  // namespace

Result<CoarseInverse> InvertCoarse(const CscView& a, bool symmetric, const Context& context) {
  return GuardMemory("the coarse inverse", [&]() -> Result<CoarseInverse> {
    const int64_t n = a.n_cols;
    CoarseInverse made{.n = n, .rows = {}, .singular_pivots = 0};
    made.rows.assign(Z(n * n), 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (size_t p = 0; p < a.column(i).size(); ++p) {
        const double value = a.column_values(i)[p];
        if (!std::isfinite(value)) {
          return Status(StatusCode::kFailedPrecondition, "NON_FINITE_VALUE",
                        "a coarse matrix of multigrid has values that are not finite: those of A "
                        "differ by too many orders of magnitude. Take another engine")
              .At("values");
        }
        made.rows[Z(i * n + a.column(i)[p])] = value;
      }
    }
    Inverter inverter(n, made.rows, context);
    const StopReason stopped = symmetric ? inverter.Symmetric() : inverter.General();
    if (stopped != StopReason::kNone) return StopStatus(stopped, "the coarse inverse");
    made.singular_pivots = inverter.DropRest();
    if (symmetric) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < i; ++j) {
          made.rows[Z(i * n + j)] = made.rows[Z(j * n + i)] =
              0.5 * (made.rows[Z(i * n + j)] + made.rows[Z(j * n + i)]);
        }
      }
    } else {
      inverter.ExchangeBack();
    }
    return made;
  });
}

}  // namespace spaid::kernels
