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

// Takes the entries of the rows that one thread makes, a batch after the other. They wait in blocks
// that are large arrays (kernels/base/memory.h) where there are many: those are kept, so that a
// next matrix does not wait for their pages.
class alignas(64) RowSink {
 public:
  void Add(int32_t column, double value) {
    if (count_ == room_) Grow();
    columns_[count_] = column;
    values_[count_++] = value;
  }

 private:
  template <class MakeRow>
  friend Result<CscMatrix> MakeRows(int64_t, int64_t, const Context&, std::string_view,
                                    const MakeRow&);
  static constexpr size_t kFirstBlock = 16 * kRowsOfOneThread, kMostBlock = size_t{1} << 20;
  struct Block {
    Array<int32_t> columns;
    Array<double> values;
  };
  struct Batch {
    const int32_t* columns = nullptr;
    const double* values = nullptr;
    size_t count = 0;
  };

  void Begin() {
    columns_ += count_;
    values_ += count_;
    room_ -= std::exchange(count_, 0);
  }
  Batch batch() const { return {columns_, values_, count_}; }

  // A new block, to which the batch at hand moves.
  void Grow() {
    const size_t next =
        std::min(kMostBlock, kFirstBlock << std::min<size_t>(2 * blocks_.size(), 8));
    Block& block = blocks_.emplace_back();
    room_ = std::max(next, 2 * count_);
    block.columns.resize(room_);
    block.values.resize(room_);
    std::copy_n(columns_, count_, block.columns.begin());
    std::copy_n(values_, count_, block.values.begin());
    columns_ = block.columns.data();
    values_ = block.values.data();
  }

  std::vector<Block> blocks_;
  int32_t* columns_ = nullptr;  // of the batch at hand: `count_` of `room_`
  double* values_ = nullptr;
  size_t count_ = 0, room_ = 0;
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
    std::vector<RowSink> sinks(static_cast<size_t>(ResolveThreads(context.threads)));
    std::vector<RowSink::Batch> batches(z((rows + kRowsOfOneThread - 1) / kRowsOfOneThread));
    StopReason stopped = ParallelFor(rows, kRowsOfOneThread, context, Stage::kBuild,
                                     [&](int64_t begin, int64_t end, int worker) {
                                       RowSink& sink = sinks[static_cast<size_t>(worker)];
                                       sink.Begin();
                                       for (int64_t i = begin; i < end; ++i) {
                                         make_row(i, sink, worker);
                                         made.col_ptr[z(i) + 1] = static_cast<int64_t>(sink.count_);
                                       }
                                       batches[z(begin / kRowsOfOneThread)] = sink.batch();
                                     });
    if (stopped != StopReason::kNone) return StopStatus(stopped, what);
    // Ends within a batch, then of all.
    int64_t before = 0;
    for (size_t k = 0; k < batches.size(); ++k) {
      const int64_t begin = static_cast<int64_t>(k) * kRowsOfOneThread;
      const int64_t end = std::min(rows, begin + kRowsOfOneThread);
      for (int64_t i = begin; i < end; ++i) made.col_ptr[z(i) + 1] += before;
      before = made.col_ptr[z(end)];
    }
    made.row_idx.resize(z(before));
    made.values.resize(z(before));
    ParallelFor(static_cast<int64_t>(batches.size()), 1, context.threads,
                [&](int64_t begin, int64_t end, int) {
                  for (int64_t k = begin; k < end; ++k) {
                    const RowSink::Batch& batch = batches[z(k)];
                    const int64_t to = made.col_ptr[z(k * kRowsOfOneThread)];
                    std::copy_n(batch.columns, batch.count, made.row_idx.begin() + to);
                    std::copy_n(batch.values, batch.count, made.values.begin() + to);
                  }
                });
    return made;
  });
}

}  // namespace spaid::kernels
