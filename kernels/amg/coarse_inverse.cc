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
  Inverter(int64_t n, Array<double> a, const Context& context)
      : n_(n), a_(std::move(a)), context_(context), exchanged_(Z(n)), done_(Z(n), 0) {
    for (const double value : a_) largest_ = std::max(largest_, std::fabs(value));
    for (int64_t i = 0; i < n; ++i) diagonal_.push_back(std::fabs(At(i, i)));
  }

  // No rows are exchanged: the next unknown is that of which most is left of the diagonal.
  StopReason Symmetric() {
    const double rounding = kPivotRounding * static_cast<double>(n_);
    for (int64_t step = 0; step < n_; ++step) {
      if (const StopReason stopped = context_.stop.Poll(); stopped != StopReason::kNone)
        return stopped;
      const auto left = [&](int64_t i) { return std::fabs(At(i, i)) / diagonal_[Z(i)]; };
      int64_t k = -1;
      for (int64_t i = 0; i < n_; ++i) {
        // Passed by, not the end: a part without a boundary may be one unknown, of rounding alone.
        if (done_[Z(i)] != 0 || !(std::fabs(At(i, i)) > rounding)) continue;
        if (k < 0 || left(i) > left(k)) k = i;
      }
      if (k < 0 || !(left(k) > kSingularPivot)) break;  // and so are all others
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
      if (std::fabs(At(k, k)) > kSingularPivot * largest_) Eliminate(k);
    }
    return StopReason::kNone;
  }

  CoarseInverse Finish(bool symmetric) {
    return FinishInverse(n_, std::move(a_), done_, exchanged_, symmetric);
  }

 private:
  double& At(int64_t i, int64_t j) { return a_[Z(i * n_ + j)]; }

  void Eliminate(int64_t k) {
    done_[Z(k)] = 1;
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
  Array<double> a_;
  const Context& context_;
  double largest_ = 0;
  std::vector<double> diagonal_;  // as it was
  std::vector<int64_t> exchanged_;
  std::vector<uint8_t> done_;
};

}  // namespace

CoarseInverse FinishInverse(int64_t n, Array<double> rows, std::span<const uint8_t> done,
                            std::span<const int64_t> exchanged, bool symmetric) {
  const auto at = [&](int64_t i, int64_t j) -> double& { return rows[Z(i * n + j)]; };
  CoarseInverse made{.n = n, .rows = {}, .singular_pivots = 0};
  for (int64_t k = 0; k < n; ++k) {
    if (done[Z(k)] != 0) continue;
    ++made.singular_pivots;
    for (int64_t i = 0; i < n; ++i) at(i, k) = at(k, i) = 0;
  }
  for (int64_t i = 0; symmetric && i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) at(i, j) = at(j, i) = 0.5 * (at(i, j) + at(j, i));
  }
  // Rows of A that were exchanged are columns of its inverse.
  for (int64_t k = n - 1; !symmetric && k >= 0; --k) {
    if (exchanged[Z(k)] == k) continue;
    for (int64_t i = 0; i < n; ++i) std::swap(at(i, k), at(i, exchanged[Z(k)]));
  }
  made.rows = std::move(rows);
  return made;
}

Result<CoarseInverse> InvertCoarse(const CscView& a, bool symmetric, const Context& context) {
  return GuardMemory("the coarse inverse", [&]() -> Result<CoarseInverse> {
    const int64_t n = a.n_cols;
    Array<double> dense(Z(n * n), 0.0);
    for (int64_t i = 0; i < n; ++i) {
      for (size_t p = 0; p < a.column(i).size(); ++p) {
        const double value = a.column_values(i)[p];
        if (!std::isfinite(value)) {
          return Status(StatusCode::kFailedPrecondition, "NON_FINITE_VALUE",
                        "a coarse matrix of multigrid has values that are not finite: those of A "
                        "differ by too many orders of magnitude. Take another engine")
              .At("values");
        }
        dense[Z(i * n + a.column(i)[p])] = value;
      }
    }
    Inverter inverter(n, std::move(dense), context);
    const StopReason stopped = symmetric ? inverter.Symmetric() : inverter.General();
    if (stopped != StopReason::kNone) return StopStatus(stopped, "the coarse inverse");
    return inverter.Finish(symmetric);
  });
}

}  // namespace spaid::kernels
