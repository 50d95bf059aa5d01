// Matrices that are made a row at a time, on all threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/parallel.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

inline constexpr int64_t kRowsOfOneThread = 512;

// body(i) for each row; no stop, no progress: for passes of a millisecond.
template <class Body>
void ForRows(int64_t n, const Context& context, const Body& body) {
  ParallelFor(n, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

// Takes the entries of a batch of rows, one after the other.
class RowSink {
 public:
  void Add(int32_t column, double value) {
    if (count_ == columns_.size()) Grow();
    columns_[count_] = column;
    values_[count_++] = value;
  }

 private:
  template <class MakeRow>
  friend Result<CscMatrix> MakeRows(int64_t, int64_t, const Context&, std::string_view,
                                    const MakeRow&);
  void Grow() {
    columns_.resize(std::max<size_t>(16 * kRowsOfOneThread, 2 * count_));
    values_.resize(columns_.size());
  }
  Array<int32_t> columns_;  // of so many, `count_` are there
  Array<double> values_;
  size_t count_ = 0;
};

// A matrix by rows: make_row(i, sink, worker) adds the entries of row i in ascending order of their
// columns. It runs on several threads (worker < ResolveThreads(context.threads)), and what it makes
// must not depend on that. Errors: stop statuses, of `what`; RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
template <class MakeRow>
Result<CscMatrix> MakeRows(int64_t rows, int64_t columns, const Context& with_progress,
                           std::string_view what, const MakeRow& make_row) {
  return GuardMemory(what, [&]() -> Result<CscMatrix> {
    Context context = with_progress;
    context.progress = nullptr;  // a step of something else
    const auto z = [](int64_t i) { return static_cast<size_t>(i); };
    CscMatrix made{.n_rows = columns, .n_cols = rows, .col_ptr = {}, .row_idx = {}, .values = {}};
    made.col_ptr.resize(z(rows) + 1);
    made.col_ptr[0] = 0;
    std::vector<RowSink> pieces(z((rows + kRowsOfOneThread - 1) / kRowsOfOneThread));
    StopReason stopped = ParallelFor(rows, kRowsOfOneThread, context, Stage::kBuild,
                                     [&](int64_t begin, int64_t end, int worker) {
                                       RowSink& piece = pieces[z(begin / kRowsOfOneThread)];
                                       for (int64_t i = begin; i < end; ++i) {
                                         make_row(i, piece, worker);
                                         made.col_ptr[z(i) + 1] =
                                             static_cast<int64_t>(piece.count_);
                                       }
                                     });
    if (stopped != StopReason::kNone) return StopStatus(stopped, what);
    // Ends within a batch, then of all.
    int64_t before = 0;
    for (size_t k = 0; k < pieces.size(); ++k) {
      const int64_t begin = static_cast<int64_t>(k) * kRowsOfOneThread;
      const int64_t end = std::min(rows, begin + kRowsOfOneThread);
      for (int64_t i = begin; i < end; ++i) made.col_ptr[z(i) + 1] += before;
      before = made.col_ptr[z(end)];
    }
    made.row_idx.resize(z(before));
    made.values.resize(z(before));
    ParallelFor(static_cast<int64_t>(pieces.size()), 1, context.threads,
                [&](int64_t begin, int64_t end, int) {
                  for (int64_t k = begin; k < end; ++k) {
                    const RowSink piece = std::exchange(pieces[z(k)], {});
                    const int64_t to = made.col_ptr[z(k * kRowsOfOneThread)];
                    std::copy_n(piece.columns_.begin(), piece.count_, made.row_idx.begin() + to);
                    std::copy_n(piece.values_.begin(), piece.count_, made.values.begin() + to);
                  }
                });
    return made;
  });
}

}  // namespace spaid::kernels
