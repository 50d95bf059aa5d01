#include "kernels/fsai/post_filter.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/fsai/local_rows.h"
#include "kernels/fsai/row_batches.h"

namespace spaid::kernels {
namespace {

// g A gᵀ of one row.
double Energy(const Diagonal& diagonal, LocalRows& local, std::span<const int32_t> indices,
              std::span<const double> values) {
  local.Set(indices);
  double sum = 0;
  for (size_t t = 0; t < indices.size(); ++t) {
    double below = 0;
    local.Below(static_cast<int64_t>(t),
                [&](int64_t s, double v) { below += v * values[static_cast<size_t>(s)]; });
    sum += values[t] * (diagonal.values[static_cast<size_t>(indices[t])] * values[t] + 2 * below);
  }
  local.Clear();
  return sum;
}

}  // namespace

StopReason FilterRows(const SymmetricMatrix& a, const FsaiOptions& options,
                      const Context& with_progress, RowTally& tally, FsaiResult& result) {
  Context context = with_progress;
  context.progress = nullptr;  // a step of something else
  const CscMatrix& g = result.g_rows;
  const int64_t n = g.n_cols, rows = BatchRows(n);
  std::vector<RowBatch> batches(static_cast<size_t>((n - 1) / rows + 1));
  std::vector<RowStore> stores = RowStores(g.nnz(), true, context.threads);
  Array<int64_t> counts(static_cast<size_t>(n) + 1);
  std::vector<std::unique_ptr<LocalRows>> locals(
      static_cast<size_t>(ResolveThreads(context.threads)));
  const StopReason stopped =
      ParallelFor(n, rows, context, Stage::kBuild, [&](int64_t begin, int64_t end, int w) {
        std::unique_ptr<LocalRows>& local = locals[static_cast<size_t>(w)];
        if (!local) local = std::make_unique<LocalRows>(a.a, a.diagonal.at);
        RowBatch& batch = batches[static_cast<size_t>(begin / rows)];
        std::vector<int32_t> indices;
        std::vector<double> values;
        for (int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<size_t>(i);
          const auto all = std::span<const int32_t>(g.row_idx).subspan(
              static_cast<size_t>(g.col_ptr[at]),
              static_cast<size_t>(g.col_ptr[at + 1] - g.col_ptr[at]));
          const double* own = g.values.data() + g.col_ptr[at];
          double squares = 0;
          for (size_t t = 0; t < all.size(); ++t) squares += own[t] * own[t];
          const double least = options.post_filter * std::sqrt(squares);
          indices.clear();
          values.clear();
          for (size_t t = 0; t < all.size(); ++t) {
            if (all[t] != i && std::abs(own[t]) < least) continue;
            indices.push_back(all[t]);
            values.push_back(own[t]);
          }
          const bool dropped = indices.size() < all.size();
          if (dropped) {
            const double energy = Energy(a.diagonal, *local, indices, values);
            if (energy > 0 && std::isfinite(energy)) {
              const double scale = 1 / std::sqrt(energy);
              for (double& v : values) {
                v *= scale;
                if (options.precision == Precision::kFp32) v = RoundToFloat(v);
              }
              result.psi_ratio[at] = 1 / (values.back() * values.back() * a.diagonal.values[at]);
            } else {
              if (batch.tally.not_spd++ == 0) batch.tally.first_not_spd = i;
              indices.assign(all.begin(), all.end());
              values.assign(own, own + all.size());
            }
          }
          const auto count = static_cast<int64_t>(indices.size());
          stores[static_cast<size_t>(w)].Extend(batch, count);
          std::copy_n(indices.begin(), count, batch.row_idx + batch.size - count);
          std::copy_n(values.begin(), count, batch.values + batch.size - count);
          counts[at + 1] = count;
        }
      });
  if (stopped != StopReason::kNone) return stopped;
  RowTally filtered;
  for (const RowBatch& batch : batches) filtered.Add(batch.tally);
  // Rows are counted once, whatever befell them.
  if (tally.not_spd == 0) tally.Add(filtered);
  result.g_rows = PutTogether(batches, std::move(counts), context.threads);
  return StopReason::kNone;
}

}  // namespace spaid::kernels
