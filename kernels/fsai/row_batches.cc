#include "kernels/fsai/row_batches.h"

#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai_tuning.h"

namespace spaid::kernels {

int64_t BatchRows(int64_t n) {
  return std::max(fsai_tuning::kBatchRows, (n - 1) / fsai_tuning::kMaxBatches + 1);
}

void RowTally::Add(const RowTally& later) {
  if (not_spd == 0) first_not_spd = later.first_not_spd;
  if (not_converged == 0) first_not_converged = later.first_not_converged;
  not_spd += later.not_spd;
  converged += later.converged;
  copied += later.copied;
  slow += later.slow;
  not_converged += later.not_converged;
  flops += later.flops;
}

void RowStore::Extend(RowBatch& batch, int64_t count) {
  if (pieces_.empty() || used_ + count > static_cast<int64_t>(pieces_.back().row_idx.size())) {
    const auto room = static_cast<size_t>(std::max(piece_, 2 * (batch.size + count)));
    Piece piece;
    piece.row_idx.resize(room);
    std::copy_n(batch.row_idx, batch.size, piece.row_idx.data());
    batch.row_idx = piece.row_idx.data();
    if (with_values_) {
      piece.values.resize(room);
      std::copy_n(batch.values, batch.size, piece.values.data());
      batch.values = piece.values.data();
    }
    used_ = batch.size;
    pieces_.push_back(std::move(piece));
  } else if (batch.size == 0) {
    batch.row_idx = pieces_.back().row_idx.data() + used_;
    if (with_values_) batch.values = pieces_.back().values.data() + used_;
  }
  used_ += count;
  batch.size += count;
}

std::vector<RowStore> RowStores(int64_t entries, bool with_values, int threads) {
  const int64_t workers = ResolveThreads(threads);
  return std::vector<RowStore>(static_cast<size_t>(workers),
                               RowStore(entries / workers + 1, with_values));
}

CscMatrix PutTogether(const std::vector<RowBatch>& batches, Array<int64_t> col_ptr, int threads) {
  CscMatrix g;
  g.n_rows = g.n_cols = static_cast<int64_t>(col_ptr.size()) - 1;
  col_ptr[0] = 0;
  for (size_t i = 1; i < col_ptr.size(); ++i) col_ptr[i] += col_ptr[i - 1];
  g.col_ptr = std::move(col_ptr);
  const auto nnz = static_cast<size_t>(g.col_ptr.back());
  g.row_idx.resize(nnz);
  const bool with_values = std::any_of(batches.begin(), batches.end(),
                                       [](const RowBatch& b) { return b.values != nullptr; });
  if (with_values) g.values.resize(nnz);
  const int64_t rows = BatchRows(g.n_cols);
  ParallelFor(static_cast<int64_t>(batches.size()), 1, threads,
              [&](int64_t begin, int64_t end, int) {
                for (int64_t b = begin; b < end; ++b) {
                  const RowBatch& batch = batches[static_cast<size_t>(b)];
                  const int64_t at = g.col_ptr[static_cast<size_t>(b * rows)];
                  std::copy_n(batch.row_idx, batch.size, g.row_idx.begin() + at);
                  if (with_values) std::copy_n(batch.values, batch.size, g.values.begin() + at);
                }
              });
  return g;
}

void Summarise(const RowTally& tally, int64_t nnz_a, int threads, FsaiResult& result) {
  FsaiQuality& quality = result.quality;
  quality.not_spd_rows = tally.not_spd;
  quality.first_not_spd = tally.first_not_spd;
  quality.converged_rows = tally.converged;
  quality.copied_rows = tally.copied;
  quality.slow_rows = tally.slow;
  quality.not_converged_rows = tally.not_converged;
  quality.first_not_converged = tally.first_not_converged;
  quality.flops = tally.flops;
  const CscMatrix& g = result.g_rows;
  quality.density = static_cast<double>(g.nnz()) / static_cast<double>(nnz_a);
  // Sums of batches, one after the other: the same for any number of threads.
  const int64_t n = g.n_cols, rows = BatchRows(n), batches = (n - 1) / rows + 1;
  std::vector<double> logs(static_cast<size_t>(batches));
  std::vector<int64_t> longest(static_cast<size_t>(batches));
  ParallelFor(batches, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      LogProduct product;
      int64_t most = 0;
      for (int64_t i = b * rows; i < std::min(n, (b + 1) * rows); ++i) {
        const auto at = static_cast<size_t>(i);
        product.Multiply(result.psi_ratio[at]);
        most = std::max(most, g.col_ptr[at + 1] - g.col_ptr[at]);
      }
      logs[static_cast<size_t>(b)] = product.Log();
      longest[static_cast<size_t>(b)] = most;
    }
  });
  double log = 0;
  for (const double part : logs) log += part;
  quality.kaporin = std::exp(log / static_cast<double>(n));
  quality.nnz_row_max = *std::max_element(longest.begin(), longest.end());
}

}  // namespace spaid::kernels
