#include "kernels/sparse/reorder.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kEntriesPerBatch = int64_t{1} << 15;
// Entries looked at between two looks at the stop token.
constexpr int64_t kStepsPerPoll = 8192;
// Breadth-first searches for the start of a component, at most: few components take more than four.
constexpr int kMaxSearches = 8;

constexpr int64_t kColumnsPerRun = 64;
constexpr int64_t kEntriesLookedAt = int64_t{1} << 20;
constexpr int kLineShift = 3;  // doubles of a cache line

size_t Z(int64_t i) { return static_cast<size_t>(i); }

int64_t ColumnsPerBatch(const PatternView& a) {
  return std::max<int64_t>(1, a.n_cols * kEntriesPerBatch / std::max<int64_t>(1, a.nnz()));
}

struct Sums {
  int64_t entries = 0, scattered = 0, bandwidth = 0;
  double distance = 0;
};

// Looks at columns [begin, end), each beside the one before.
Sums LookAtColumns(const PatternView& a, int64_t begin, int64_t end) {
  Sums sums;
  for (int64_t j = std::max<int64_t>(begin, 1); j < end; ++j) {
    const auto before = a.column(j - 1);
    size_t q = 0;
    for (const int32_t i : a.column(j)) {
      const int64_t distance = std::abs(i - j);
      ++sums.entries;
      sums.distance += static_cast<double>(distance);
      sums.bandwidth = std::max(sums.bandwidth, distance);
      // The line of row i − 1 or of row i.
      const int32_t line = std::max(i - 1, 0) >> kLineShift;
      while (q < before.size() && before[q] >> kLineShift < line) ++q;
      const bool streams = q < before.size() && before[q] >> kLineShift <= i >> kLineShift;
      sums.scattered += distance > kFarRows && !streams;
    }
  }
  return sums;
}

// Neighbours of each node, itself included where the diagonal is stored.
class CuthillMcKee {
 public:
  CuthillMcKee(const PatternView& graph, const StopToken& stop) : graph_(graph), stop_(stop) {
    order_.reserve(Z(graph.n_cols));
    seen_.assign(Z(graph.n_cols), 0);
  }

  StopReason Run() {
    for (int64_t j = 0; j < graph_.n_cols && stopped_ == StopReason::kNone; ++j) {
      if (seen_[Z(j)] == 0) Component(static_cast<int32_t>(j));
    }
    std::reverse(order_.begin(), order_.end());
    return stopped_;
  }

  Array<int32_t> Take() { return std::move(order_); }

 private:
  int64_t Degree(int32_t j) const { return graph_.col_ptr[Z(j) + 1] - graph_.col_ptr[Z(j)]; }
  bool Stopped(int64_t steps) {
    steps_ += steps;
    if (steps_ >= kStepsPerPoll && stopped_ == StopReason::kNone) {
      steps_ = 0;
      stopped_ = stop_.Poll();
    }
    return stopped_ != StopReason::kNone;
  }

  // Appends the component of `start`, in the order in which a search from there meets it;
  // neighbours by degree where `by_degree`. Returns the number of levels, and where the last one
  // begins.
  std::pair<int64_t, size_t> Search(int32_t start, bool by_degree) {
    size_t head = order_.size(), level = head;
    int64_t levels = 0;
    order_.push_back(start);
    seen_[Z(start)] = 1;
    while (head < order_.size()) {
      level = head;
      ++levels;
      for (const size_t end = order_.size(); head < end; ++head) {
        const int32_t j = order_[head];
        if (Stopped(1 + Degree(j))) return {levels, level};
        const auto first = std::ssize(order_);
        for (const int32_t i : graph_.column(j)) {
          if (seen_[Z(i)] != 0) continue;
          seen_[Z(i)] = 1;
          order_.push_back(i);
        }
        if (by_degree && std::ssize(order_) - first > 1) {
          std::sort(order_.begin() + first, order_.end(), [this](int32_t x, int32_t y) {
            return std::pair(Degree(x), x) < std::pair(Degree(y), y);
          });
        }
      }
    }
    return {levels, level};
  }

  void Forget(size_t begin) {
    for (size_t k = begin; k < order_.size(); ++k) seen_[Z(order_[k])] = 0;
    order_.resize(begin);
  }

  // From a node of the last level, of least degree, as long as that makes more levels.
  void Component(int32_t start) {
    const size_t begin = order_.size();
    int64_t most = 0;
    int32_t best = start;
    for (int search = 0; search < kMaxSearches; ++search) {
      const auto [levels, last] = Search(start, false);
      if (stopped_ != StopReason::kNone) return;
      int32_t far = order_[last];
      for (size_t k = last; k < order_.size(); ++k) {
        far = std::min(far, order_[k], [this](int32_t x, int32_t y) {
          return std::pair(Degree(x), x) < std::pair(Degree(y), y);
        });
      }
      Forget(begin);
      if (levels <= most) break;
      most = levels;
      best = start;
      start = far;
    }
    Search(best, true);
  }

  const PatternView graph_;
  const StopToken stop_;
  StopReason stopped_ = StopReason::kNone;
  int64_t steps_ = 0;
  Array<int32_t> order_;
  Array<uint8_t> seen_;
};

// The union of two canonical patterns of one size.
Pattern Union(const PatternView& a, const PatternView& b, int threads) {
  Pattern sum;
  sum.n_rows = a.n_rows;
  sum.n_cols = a.n_cols;
  sum.col_ptr.resize(a.col_ptr.size());
  sum.col_ptr[0] = 0;
  const int64_t batch = ColumnsPerBatch(a);
  ParallelFor(a.n_cols, batch, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto x = a.column(j), y = b.column(j);
      int64_t both = 0;
      for (size_t p = 0, q = 0; p < x.size() && q < y.size();) {
        const int32_t i = x[p], k = y[q];
        both += i == k;
        p += i <= k;
        q += k <= i;
      }
      sum.col_ptr[Z(j) + 1] = std::ssize(x) + std::ssize(y) - both;
    }
  });
  for (int64_t j = 0; j < a.n_cols; ++j) sum.col_ptr[Z(j) + 1] += sum.col_ptr[Z(j)];
  sum.row_idx.resize(Z(sum.col_ptr[Z(a.n_cols)]));
  ParallelFor(a.n_cols, batch, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto x = a.column(j), y = b.column(j);
      std::set_union(x.begin(), x.end(), y.begin(), y.end(),
                     sum.row_idx.begin() + sum.col_ptr[Z(j)]);
    }
  });
  return sum;
}

}  // namespace

Locality LookAtLocality(const PatternView& a, int threads) {
  Locality locality;
  if (a.n_cols == 0) return locality;
  const int64_t runs = (a.n_cols - 1) / kColumnsPerRun + 1;
  const int64_t stride = std::max<int64_t>(1, a.nnz() / kEntriesLookedAt);
  const int64_t looked_at = (runs - 1) / stride + 1;
  std::mutex mutex;
  Sums sums;
  // Distances are whole numbers with a sum below 2^53: the same in any order.
  ParallelFor(looked_at, 16, threads, [&](int64_t begin, int64_t end, int) {
    Sums part;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k * stride * kColumnsPerRun;
      const Sums run = LookAtColumns(a, first, std::min(first + kColumnsPerRun, a.n_cols));
      part.entries += run.entries;
      part.scattered += run.scattered;
      part.distance += run.distance;
      part.bandwidth = std::max(part.bandwidth, run.bandwidth);
    }
    const std::lock_guard lock(mutex);
    sums.entries += part.entries;
    sums.scattered += part.scattered;
    sums.distance += part.distance;
    sums.bandwidth = std::max(sums.bandwidth, part.bandwidth);
  });
  if (sums.entries == 0) return locality;
  const auto entries = static_cast<double>(sums.entries);
  locality.mean_distance = sums.distance / entries;
  locality.bandwidth = sums.bandwidth;
  locality.scattered_share = static_cast<double>(sums.scattered) / entries;
  return locality;
}

Result<Array<int32_t>> ReverseCuthillMcKee(const PatternView& a, const Context& context) {
  Pattern both;
  PatternView graph = a;
  {
    auto transpose = Transpose(a, context);
    if (!transpose.ok()) return transpose.status();
    if (!std::ranges::equal(transpose->col_ptr, a.col_ptr) ||
        !std::ranges::equal(transpose->row_idx, a.row_idx)) {
      both = Union(a, *transpose, context.threads);
      graph = both;
    }
  }
  CuthillMcKee search(graph, context.stop);
  const StopReason stopped = search.Run();
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the reordering");
  return search.Take();
}

Result<CscMatrix> PermuteSymmetric(const CscView& a, std::span<const int32_t> order,
                                   const Context& context) {
  const int64_t n = a.n_cols;
  Array<int32_t> place(Z(n));
  CscMatrix b;
  b.n_rows = b.n_cols = n;
  b.col_ptr.resize(Z(n) + 1);
  b.col_ptr[0] = 0;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t j = order[Z(k)];
    place[Z(j)] = static_cast<int32_t>(k);
    b.col_ptr[Z(k) + 1] = b.col_ptr[Z(k)] + a.col_ptr[Z(j) + 1] - a.col_ptr[Z(j)];
  }
  b.row_idx.resize(a.row_idx.size());
  b.values.resize(a.values.size());
  Context quiet = context;
  quiet.progress = nullptr;  // a step of something else
  const StopReason stopped =
      ParallelFor(n, ColumnsPerBatch(a), quiet, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
        std::vector<std::pair<int32_t, int64_t>> entries;  // row of b, entry of a
        for (int64_t k = begin; k < end; ++k) {
          const int64_t j = order[Z(k)];
          entries.clear();
          for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
            entries.emplace_back(place[Z(a.row_idx[Z(p)])], p);
          }
          std::sort(entries.begin(), entries.end());
          auto to = Z(b.col_ptr[Z(k)]);
          for (const auto& [row, p] : entries) {
            b.row_idx[to] = row;
            b.values[to] = a.values[Z(p)];
            ++to;
          }
        }
      });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the reordering");
  return b;
}

}  // namespace spaid::kernels
