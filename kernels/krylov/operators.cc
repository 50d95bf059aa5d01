#include "kernels/krylov/operators.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/krylov/vectors.h"
#include "kernels/sparse/row_runs.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

// Work (entries + rows) of one block of rows: some 10 µs, large against taking it from the queue.
constexpr int64_t kBlockWork = 16384;
// Below this a second thread costs more to wake than it saves.
constexpr int64_t kSerialWork = 4 * kBlockWork;
// Columns of the test for symmetry that one thread takes at a time.
constexpr int64_t kSymmetryColumns = 2048;

template <class Value>
double RowProduct(const int32_t* column, const Value* value, int64_t count, const double* x) {
  // Four accumulators hide the latency of the additions in long rows.
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t p = 0;
  for (; p + 4 <= count; p += 4) {
    s0 += value[p] * x[column[p]];
    s1 += value[p + 1] * x[column[p + 1]];
    s2 += value[p + 2] * x[column[p + 2]];
    s3 += value[p + 3] * x[column[p + 3]];
  }
  for (; p < count; ++p) s0 += value[p] * x[column[p]];
  return (s0 + s1) + (s2 + s3);
}

SPAID_HOT_KERNEL void MultiplyInRuns(const CscView& rows, const Array<uint8_t>& runs,
                                     const double* value, int64_t begin, int64_t end,
                                     const double* x, double* y) {
  MultiplyRuns<4>(rows.col_ptr.data(), rows.row_idx.data(), value, runs.data(), begin, end, x,
                  [y](int64_t i, double sum) { y[i] = sum; });
}
SPAID_HOT_KERNEL void MultiplyInRuns(const CscView& rows, const Array<uint8_t>& runs,
                                     const float* value, int64_t begin, int64_t end,
                                     const double* x, double* y) {
  MultiplyRuns<4>(rows.col_ptr.data(), rows.row_idx.data(), value, runs.data(), begin, end, x,
                  [y](int64_t i, double sum) { y[i] = sum; });
}

// `runs`: empty, or those of the rows.
template <class Value>
void MultiplyRows(const CscView& rows, const Array<uint8_t>& runs, const Value* value,
                  int64_t begin, int64_t end, const double* x, double* y) {
  const int64_t* ptr = rows.col_ptr.data();
  const int32_t* column = rows.row_idx.data();
  if (!runs.empty()) return MultiplyInRuns(rows, runs, value, begin, end, x, y);
  for (int64_t i = begin; i < end; ++i) {
    y[i] = RowProduct(column + ptr[i], value + ptr[i], ptr[i + 1] - ptr[i], x);
  }
}

template <class Value>
void MultiplyBlocks(const CscView& rows, const Array<uint8_t>& runs, const Value* value,
                    const std::vector<int64_t>& block_begin, const double* x, double* y,
                    int threads) {
  if (threads <= 1 || rows.nnz() + rows.n_cols < kSerialWork) {
    MultiplyRows(rows, runs, value, 0, rows.n_cols, x, y);
    return;
  }
  ParallelFor(static_cast<int64_t>(block_begin.size()) - 1, 1, threads,
              [&rows, &runs, &block_begin, value, x, y](int64_t begin, int64_t end, int) {
                MultiplyRows(rows, runs, value, block_begin[static_cast<size_t>(begin)],
                             block_begin[static_cast<size_t>(end)], x, y);
              });
}

}  // namespace

Result<bool> IsExactlySymmetric(const CscView& a, const Context& with_progress) {
  Context context = with_progress;
  context.progress = nullptr;  // a step of something else
  // Each entry under the diagonal has an equal one above it, and there are no others: mirrors of
  // different entries differ, so equal counts say the rest.
  std::atomic<bool> differs{false};
  std::atomic<int64_t> below{0}, above{0};
  const StopReason stopped = ParallelFor(
      a.n_cols, kSymmetryColumns, context, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
        if (differs.load(std::memory_order_relaxed)) return;
        int64_t own_below = 0, own_above = 0;
        for (int64_t j = begin; j < end; ++j) {
          const auto rows = a.column(j);
          const auto values = a.column_values(j);
          for (size_t p = 0; p < rows.size(); ++p) {
            const int64_t i = rows[p];
            if (i < j) ++own_above;
            if (i <= j) continue;
            ++own_below;
            const auto row = a.column(i);
            const auto at = std::lower_bound(row.begin(), row.end(), static_cast<int32_t>(j));
            if (at == row.end() || *at != j ||
                a.column_values(i)[static_cast<size_t>(at - row.begin())] != values[p]) {
              differs.store(true, std::memory_order_relaxed);
              return;
            }
          }
        }
        below.fetch_add(own_below, std::memory_order_relaxed);
        above.fetch_add(own_above, std::memory_order_relaxed);
      });
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the test for symmetry");
  return !differs && below == above;
}

CsrOperator CsrOperator::FromColumns(const CscView& a) {
  return *FromColumns(a, Context{.stop = {}, .progress = nullptr, .threads = 1});
}

Result<CsrOperator> CsrOperator::FromColumns(const CscView& a, const Context& context) {
  CsrOperator op;
  const Result<bool> symmetric = IsExactlySymmetric(a, context);
  if (!symmetric.ok()) return symmetric.status();
  if (*symmetric) {
    op.rows_ = a;
  } else {
    auto rows = Transpose(a, context);
    if (!rows.ok()) return rows.status();
    op.owned_ = *std::move(rows);
    op.rows_ = op.owned_;  // moving a vector keeps its buffer, so the view survives a move of this
  }
  op.CutIntoBlocks(context.threads);
  return Result<CsrOperator>(std::move(op));
}

CsrOperator CsrOperator::FromRows(const CscView& rows, int threads) {
  CsrOperator op;
  op.rows_ = rows;
  op.CutIntoBlocks(threads);
  return op;
}

CsrOperator CsrOperator::FromRows(CscMatrix&& rows, int threads) {
  CsrOperator op;
  op.owned_ = std::move(rows);
  op.rows_ = op.owned_;  // as above
  op.CutIntoBlocks(threads);
  return op;
}

void CsrOperator::CutIntoBlocks(int threads) {
  runs_ = FindRowRuns(rows_, threads);
  int64_t begin_work = 0;
  block_begin_.push_back(0);
  for (int64_t i = 0; i < n(); ++i) {
    const int64_t work = rows_.col_ptr[i + 1] + i + 1;
    const bool ends_run = runs_.empty() || i + 1 == n() || runs_[static_cast<size_t>(i + 1)] > 0;
    if (ends_run && (work - begin_work >= kBlockWork || i + 1 == n())) {
      block_begin_.push_back(i + 1);
      begin_work = work;
    }
  }
}

void CsrOperator::Apply(std::span<const double> x, std::span<double> y, int threads) const {
  MultiplyBlocks(rows_, runs_, rows_.values.data(), block_begin_, x.data(), y.data(), threads);
}

int64_t CsrOperator::bytes_per_apply() const { return BytesPerApply(rows_); }

int64_t CsrOperator::BytesPerApply(const CscView& a) {
  return a.nnz() * static_cast<int64_t>(sizeof(double) + sizeof(int32_t)) +
         a.n_cols * static_cast<int64_t>(sizeof(int64_t) + 2 * sizeof(double));
}

int64_t CsrOperator::HostBytes(const CscView& a) {
  // A block has more work than kBlockWork but for the last; their list may have room for twice.
  const int64_t blocks = (a.nnz() + a.n_cols) / kBlockWork + 2;
  return a.nnz() * static_cast<int64_t>(sizeof(double) + sizeof(int32_t)) + a.n_cols +
         (a.n_cols + 1 + 2 * blocks) * static_cast<int64_t>(sizeof(int64_t));
}

int64_t CsrOperator::host_bytes() const {
  return owned_.bytes() + static_cast<int64_t>(runs_.size()) +
         static_cast<int64_t>(block_begin_.capacity() * sizeof(int64_t));
}

Result<FactoredOperator> FactoredOperator::FromRows(const CscView& g_rows, const Context& context) {
  // The columns as they are serve as the rows of Gᵀ.
  auto transposed = CsrOperator::FromColumns(g_rows, context);
  if (!transposed.ok()) return transposed.status();
  const auto g = std::make_shared<CsrOperator>(CsrOperator::FromRows(g_rows, context.threads));
  const auto gt = std::make_shared<CsrOperator>(*std::move(transposed));
  FactoredOperator op(g, gt);
  op.own_bytes_ = g->host_bytes() + gt->host_bytes();
  return Result<FactoredOperator>(std::move(op));
}

void FactoredOperator::Apply(std::span<const double> x, std::span<double> y, int threads) const {
  Array<double> gx;
  {
    const std::lock_guard<std::mutex> lock(spare_->mutex);
    if (!spare_->vectors.empty()) {
      gx = std::move(spare_->vectors.back());
      spare_->vectors.pop_back();
    }
  }
  gx.resize(static_cast<size_t>(n()));
  g_->Apply(x, gx, threads);
  transposed_->Apply(gx, y, threads);
  const std::lock_guard<std::mutex> lock(spare_->mutex);
  spare_->vectors.push_back(std::move(gx));
}

int64_t FactoredOperator::host_bytes() const {
  const std::lock_guard<std::mutex> lock(spare_->mutex);
  return own_bytes_ +
         static_cast<int64_t>(spare_->vectors.size() * static_cast<size_t>(n()) * sizeof(double));
}

CsrFloatOperator::CsrFloatOperator(const CsrOperator& of, int threads)
    : of_(of), values_(of.rows_.values.size()) {
  ParallelFor(of.rows_.nnz(), kBlockWork, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) values_[p] = static_cast<float>(of_.rows_.values[p]);
  });
}

void CsrFloatOperator::Apply(std::span<const double> x, std::span<double> y, int threads) const {
  MultiplyBlocks(of_.rows_, of_.runs_, values_.data(), of_.block_begin_, x.data(), y.data(),
                 threads);
}

int64_t CsrFloatOperator::bytes_per_apply() const {
  return of_.bytes_per_apply() -
         of_.rows_.nnz() * static_cast<int64_t>(sizeof(double) - sizeof(float));
}

Status CheckFitsFloat(const CscView& m, const char* what, int threads) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> over{kNone}, under{kNone};
  ParallelFor(m.n_cols, kSymmetryColumns, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      double largest = 0;
      for (const double v : m.column_values(j)) largest = std::max(largest, std::abs(v));
      if (largest > std::numeric_limits<float>::max()) Lower(over, j);
      if (largest > 0 && largest < std::numeric_limits<float>::min()) Lower(under, j);
    }
  });
  const int64_t j = std::min(over.load(), under.load());
  if (j == kNone) return {};
  const bool large = over.load() == j;
  return Status(StatusCode::kFailedPrecondition, large ? "FLOAT32_OVERFLOW" : "FLOAT32_UNDERFLOW",
                std::string(what) + " " + std::to_string(j) + " of M has values " +
                    (large ? "beyond" : "that are all under") +
                    " the range of fp32; store M in fp64, or rescale A")
      .At("preconditioner_storage", j);
}

bool AllFitFloat(std::span<const double> values, int threads) {
  std::atomic<bool> all = true;
  ParallelFor(static_cast<int64_t>(values.size()), kBlockWork, threads,
              [&](int64_t begin, int64_t end, int) {
                if (!all.load(std::memory_order_relaxed)) return;
                bool fit = true;
                for (int64_t p = begin; p < end; ++p) {
                  const double v = std::abs(values[static_cast<size_t>(p)]);
                  fit &= v == 0 || (v >= std::numeric_limits<float>::min() &&
                                    v <= std::numeric_limits<float>::max());
                }
                if (!fit) all.store(false, std::memory_order_relaxed);
              });
  return all.load();
}

void DiagonalOperator::Apply(std::span<const double> x, std::span<double> y, int threads) const {
  const double* d = diagonal_.data();
  const double* xs = x.data();
  double* ys = y.data();
  krylov::ForBlocks(n(), threads, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ys[i] = d[i] * xs[i];
  });
}

void ColumnOperator::Apply(std::span<const double> x, std::span<double> y, int) const {
  std::fill(y.begin(), y.end(), 0.0);
  for (int64_t j = 0; j < n(); ++j) {
    for (int64_t p = a_.col_ptr[j]; p < a_.col_ptr[j + 1]; ++p) {
      y[a_.row_idx[p]] += a_.values[p] * x[j];
    }
  }
}

int64_t ColumnOperator::bytes_per_apply() const {
  return a_.nnz() * static_cast<int64_t>(sizeof(double) + sizeof(int32_t)) +
         n() * static_cast<int64_t>(sizeof(int64_t) + 2 * sizeof(double));
}

}  // namespace spaid::kernels
