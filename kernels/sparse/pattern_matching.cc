// Hopcroft, Karp 1973: phases of a breadth-first search that layers the columns by the length of
// the shortest augmenting path, then depth-first searches along the layers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/sparse/pattern.h"

namespace spaid::kernels {
namespace {

// Steps of a search between two looks at the stop token: some tens of microseconds.
constexpr int64_t kStepsPerPoll = 8192;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

class Matcher {
 public:
  Matcher(const PatternView& a, const StopToken& stop) : a_(a), stop_(stop) {
    row_of_column.assign(Z(a.n_cols), -1);
    column_of_row_.assign(Z(a.n_rows), -1);
    layer_.resize(Z(a.n_cols));
    next_.resize(Z(a.n_cols));
    queue_.resize(Z(a.n_cols));
  }

  StopReason Run() {
    Greedy();
    while (stopped_ == StopReason::kNone && Layers()) {
      std::copy(a_.col_ptr.begin(), a_.col_ptr.end() - 1, next_.begin());
      for (int64_t j = 0; j < a_.n_cols && !Stopped(1); ++j) {
        if (row_of_column[Z(j)] < 0) Augment(j);
      }
    }
    return stopped_;
  }

  Array<int32_t> row_of_column;

 private:
  // Counts `steps` of work; true once the token has been seen to stop.
  bool Stopped(int64_t steps) {
    steps_ += steps;
    if (steps_ >= kStepsPerPoll && stopped_ == StopReason::kNone) {
      steps_ = 0;
      stopped_ = stop_.Poll();
    }
    return stopped_ != StopReason::kNone;
  }

  void Match(int64_t j, int64_t i) {
    row_of_column[Z(j)] = static_cast<int32_t>(i);
    column_of_row_[Z(i)] = static_cast<int32_t>(j);
  }

  // Most of the matching, cheaply: the diagonal, then any free row.
  void Greedy() {
    for (int64_t j = 0; j < std::min(a_.n_rows, a_.n_cols) && !Stopped(1); ++j) {
      const auto rows = a_.column(j);
      if (std::binary_search(rows.begin(), rows.end(), static_cast<int32_t>(j))) Match(j, j);
    }
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (row_of_column[Z(j)] >= 0) continue;
      if (Stopped(1 + a_.col_ptr[Z(j) + 1] - a_.col_ptr[Z(j)])) return;
      for (const int32_t i : a_.column(j)) {
        if (column_of_row_[Z(i)] < 0) {
          Match(j, i);
          break;
        }
      }
    }
  }

  // Layers of columns from the free ones; true if a free row can be reached.
  bool Layers() {
    size_t head = 0, tail = 0;
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      layer_[Z(j)] = -1;
      if (row_of_column[Z(j)] < 0) {
        layer_[Z(j)] = 0;
        queue_[tail++] = static_cast<int32_t>(j);
      }
    }
    int32_t last = -1;  // layer in which a free row was met
    while (head < tail) {
      const int32_t j = queue_[head++];
      if (last >= 0 && layer_[Z(j)] > last) break;
      if (Stopped(1 + a_.col_ptr[Z(j) + 1] - a_.col_ptr[Z(j)])) return false;
      for (const int32_t i : a_.column(j)) {
        const int32_t other = column_of_row_[Z(i)];
        if (other < 0) {
          last = layer_[Z(j)];
        } else if (layer_[Z(other)] < 0) {
          layer_[Z(other)] = layer_[Z(j)] + 1;
          queue_[tail++] = other;
        }
      }
    }
    return last >= 0;
  }

  // Depth first along the layers, without recursion: paths may be as long as the matrix. Each entry
  // is looked at once in a phase, because next_ only moves forward.
  void Augment(int64_t start) {
    path_.assign(1, static_cast<int32_t>(start));
    while (!path_.empty()) {
      if (Stopped(1)) return;  // nothing of this path is matched yet
      const int32_t j = path_.back();
      if (next_[Z(j)] == a_.col_ptr[Z(j) + 1]) {  // a dead end, for the whole phase
        layer_[Z(j)] = -1;
        path_.pop_back();
        if (!path_.empty()) ++next_[Z(path_.back())];
        continue;
      }
      const int32_t i = a_.row_idx[Z(next_[Z(j)])];
      const int32_t other = column_of_row_[Z(i)];
      if (other >= 0) {
        if (layer_[Z(other)] == layer_[Z(j)] + 1) {
          path_.push_back(other);
        } else {
          ++next_[Z(j)];
        }
        continue;
      }
      // A free row: every column of the path takes the row its pointer is at. The columns leave the
      // layers, so that paths of one phase share none.
      for (const int32_t c : path_) {
        Match(c, a_.row_idx[Z(next_[Z(c)])]);
        layer_[Z(c)] = -1;
      }
      return;
    }
  }

  const PatternView a_;
  const StopToken stop_;
  StopReason stopped_ = StopReason::kNone;
  int64_t steps_ = 0;
  Array<int32_t> column_of_row_;
  Array<int32_t> layer_;
  Array<int32_t> queue_;
  Array<int64_t> next_;
  Array<int32_t> path_;
};

}  // namespace

Result<Array<int32_t>> MaximumMatching(const PatternView& a, const Context& context) {
  Matcher matcher(a, context.stop);
  const StopReason stopped = matcher.Run();
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the maximum matching");
  return std::move(matcher.row_of_column);
}

Array<int32_t> MaximumMatching(const PatternView& a) { return *MaximumMatching(a, Context{}); }

}  // namespace spaid::kernels
