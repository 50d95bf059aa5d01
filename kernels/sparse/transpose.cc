#include "kernels/sparse/transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// Entries between two looks at the stop token, and the least that is worth a part of its own.
constexpr int64_t kEntriesPerPoll = int64_t{1} << 20;
constexpr int64_t kEntriesPerPart = int64_t{1} << 16;
// Rows whose parts' counts are summed by one thread at a time.
constexpr int64_t kRowsPerBatch = 4096;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Columns are cut into parts of about equal entries. Each part counts its entries of every row; the
// sums over rows, then parts, say where each part's entries of a row go. So each entry's place
// depends neither on the number of parts nor on who scatters when. Counter: holds nnz.
template <class Counter>
class Transposer {
 public:
  Transposer(const PatternView& a, const Context& context) : a_(a), context_(context) {
    context_.progress = nullptr;  // a transpose is a step of something else
    // A part has a counter for each row: more parts than entries a row would count more than move.
    const int64_t worthwhile =
        std::min(a.nnz() / kEntriesPerPart, a.nnz() / std::max<int64_t>(1, a.n_rows));
    const int64_t parts =
        std::clamp<int64_t>(worthwhile, 1, static_cast<int64_t>(ResolveThreads(context.threads)));
    for (int64_t p = 0; p <= parts; ++p) {
      // The first column that begins at or after the part's share of the entries.
      const auto share = a.nnz() / parts * p;
      const auto at = std::lower_bound(a.col_ptr.begin(), a.col_ptr.end() - 1, share);
      begin_.push_back(p == parts ? a.n_cols : at - a.col_ptr.begin());
    }
    next_.resize(Z(parts));
  }

  // Row counts, then their running sum: the result's col_ptr.
  StopReason Count(Array<int64_t>& ptr) {
    StopReason stopped = ForParts([this](int64_t part) {
      Array<Counter>& next = next_[Z(part)];
      next.assign(Z(a_.n_rows), 0);
      return Walk(part, [&](int64_t, int64_t p) { ++next[Z(a_.row_idx[Z(p)])]; });
    });
    ptr.resize(Z(a_.n_rows) + 1);
    ptr[0] = 0;
    if (stopped != StopReason::kNone) return stopped;
    stopped = ForRows([&](int64_t i) {
      int64_t sum = 0;
      for (const Array<Counter>& next : next_) sum += next[Z(i)];
      ptr[Z(i) + 1] = sum;
    });
    if (stopped != StopReason::kNone) return stopped;
    for (int64_t i = 0; i < a_.n_rows; ++i) ptr[Z(i) + 1] += ptr[Z(i)];
    // Within a row, the parts one after the other.
    return ForRows([&](int64_t i) {
      auto at = static_cast<Counter>(ptr[Z(i)]);
      for (Array<Counter>& next : next_) at += std::exchange(next[Z(i)], at);
    });
  }

  // place(p, q, j): entry p of `a`, of column j, is entry q of the result.
  template <class Place>
  StopReason Scatter(const Place& place) {
    return ForParts([&](int64_t part) {
      Array<Counter>& next = next_[Z(part)];
      return Walk(part, [&](int64_t j, int64_t p) {
        place(Z(p), static_cast<size_t>(next[Z(a_.row_idx[Z(p)])]++), static_cast<int32_t>(j));
      });
    });
  }

 private:
  // Walks the parts. Returns why ParallelFor, or a walk, was cut short.
  template <class WalkPart>
  StopReason ForParts(const WalkPart& walk) {
    const auto parts = static_cast<int64_t>(next_.size());
    const StopReason stopped =
        ParallelFor(parts, 1, context_, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
          for (int64_t p = begin; p < end; ++p) walk(p);
        });
    return stopped != StopReason::kNone ? stopped : context_.stop.Poll();
  }

  template <class Use>
  StopReason ForRows(const Use& use) {
    return ParallelFor(a_.n_rows, kRowsPerBatch, context_, Stage::kPlan,
                       [&](int64_t begin, int64_t end, int) {
                         for (int64_t i = begin; i < end; ++i) use(i);
                       });
  }

  // use(j, p) for each entry p of each column j of the part, until a stop.
  template <class Use>
  void Walk(int64_t part, const Use& use) const {
    const int64_t last = begin_[Z(part) + 1];
    int64_t poll_at = a_.col_ptr[Z(begin_[Z(part)])] + kEntriesPerPoll;
    for (int64_t j = begin_[Z(part)]; j < last; ++j) {
      const int64_t end = a_.col_ptr[Z(j) + 1];
      for (int64_t p = a_.col_ptr[Z(j)]; p < end; ++p) use(j, p);
      if (end >= poll_at) {
        if (context_.stop.stop_requested()) return;
        poll_at = end + kEntriesPerPoll;
      }
    }
  }

  const PatternView a_;
  Context context_;
  std::vector<int64_t> begin_;        // first column of each part, and the end
  std::vector<Array<Counter>> next_;  // of each part: where its next entry of each row goes
};

template <class Counter>
StopReason Fill(const CscView& a, const Context& context, CscMatrix& t) {
  Transposer<Counter> transposer(a, context);
  if (const StopReason stopped = transposer.Count(t.col_ptr); stopped != StopReason::kNone) {
    return stopped;
  }
  t.row_idx.resize(a.row_idx.size());
  t.values.resize(a.values.size());
  return transposer.Scatter([&](size_t p, size_t q, int32_t j) {
    t.row_idx[q] = j;
    t.values[q] = a.values[p];
  });
}

template <class Counter>
StopReason Fill(const PatternView& a, const Context& context, Pattern& t) {
  Transposer<Counter> transposer(a, context);
  if (const StopReason stopped = transposer.Count(t.col_ptr); stopped != StopReason::kNone) {
    return stopped;
  }
  t.row_idx.resize(a.row_idx.size());
  return transposer.Scatter([&](size_t, size_t q, int32_t j) { t.row_idx[q] = j; });
}

template <class Out, class View>
Result<Out> TransposeInto(const View& a, const Context& context) {
  Out t;
  t.n_rows = a.n_cols;
  t.n_cols = a.n_rows;
  const StopReason stopped =
      a.nnz() <= INT32_MAX ? Fill<int32_t>(a, context, t) : Fill<int64_t>(a, context, t);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the transpose");
  return t;
}

}  // namespace

Result<CscMatrix> Transpose(const CscView& a, const Context& context) {
  return TransposeInto<CscMatrix>(a, context);
}

Result<Pattern> Transpose(const PatternView& a, const Context& context) {
  return TransposeInto<Pattern>(a, context);
}

Result<TurnedRows> TurnRows(Pattern rows, const Context& context) {
  TurnedRows turned;
  turned.columns.n_rows = rows.n_cols;
  turned.columns.n_cols = rows.n_rows;
  Array<int32_t>& to = rows.row_idx;  // each index is read once, right before its place is written
  Array<int32_t>& row_idx = turned.columns.row_idx;
  Transposer<int32_t> transposer(rows, context);
  StopReason stopped = transposer.Count(turned.columns.col_ptr);
  if (stopped == StopReason::kNone) {
    row_idx.resize(to.size());
    stopped = transposer.Scatter([&](size_t p, size_t q, int32_t row) {
      row_idx[q] = row;
      to[p] = static_cast<int32_t>(q);
    });
  }
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the transpose");
  turned.to = std::move(to);
  return turned;
}

Result<Array<int32_t>> PlacesByRows(const PatternView& columns, const Context& context) {
  Array<int32_t> to;
  Array<int64_t> row_ptr;
  Transposer<int32_t> transposer(columns, context);
  StopReason stopped = transposer.Count(row_ptr);
  if (stopped == StopReason::kNone) {
    to.resize(columns.row_idx.size());
    stopped =
        transposer.Scatter([&](size_t q, size_t p, int32_t) { to[p] = static_cast<int32_t>(q); });
  }
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the transpose");
  return to;
}

CscMatrix Transpose(const CscView& a) {
  return *Transpose(a, Context{.stop = {}, .progress = nullptr, .threads = 1});
}

Pattern Transpose(const PatternView& a) {
  return *Transpose(a, Context{.stop = {}, .progress = nullptr, .threads = 1});
}

}  // namespace spaid::kernels
