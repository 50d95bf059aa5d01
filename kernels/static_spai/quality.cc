#include "kernels/static_spai/quality.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/residual_quantiles.h"

namespace spaid::kernels {
namespace {

// A flagged kind of columns: how many, and the first.
struct Tally {
  int64_t StaticSpaiQuality::*count;
  int64_t StaticSpaiQuality::*first;  // null: not told
  uint8_t flag;
};
constexpr Tally kTallies[] = {
    {&StaticSpaiQuality::gram_columns, nullptr, kColumnGram},
    {&StaticSpaiQuality::qr_columns, nullptr, kColumnQr},
    {&StaticSpaiQuality::iterative_columns, &StaticSpaiQuality::first_iterative, kColumnIterative},
    {&StaticSpaiQuality::rescued_columns, &StaticSpaiQuality::first_rescued, kColumnRescued},
    {&StaticSpaiQuality::rank_deficient_columns, &StaticSpaiQuality::first_rank_deficient,
     kColumnRankDeficient},
    {&StaticSpaiQuality::zero_columns, &StaticSpaiQuality::first_zero_column, kColumnZero},
    {&StaticSpaiQuality::non_finite_columns, &StaticSpaiQuality::first_non_finite,
     kColumnNonFinite},
    {&StaticSpaiQuality::not_converged_columns, &StaticSpaiQuality::first_not_converged,
     kColumnNotConverged},
};

// The quality of columns [begin, end).
struct PartSummary {
  StaticSpaiQuality quality;
  double squares = 0, worst = -1;

  void Add(int64_t k, double norm, double pivot, uint8_t flags) {
    squares += norm * norm;
    if (norm > worst) {
      worst = norm;
      quality.worst_column = k;
    }
    quality.min_scaled_pivot = std::min(quality.min_scaled_pivot, pivot);
    for (const Tally& tally : kTallies) {
      if ((flags & tally.flag) == 0) continue;
      if (quality.*tally.count == 0 && tally.first != nullptr) quality.*tally.first = k;
      ++(quality.*tally.count);
    }
  }
  // Adds the summary of later columns.
  void Add(const PartSummary& later) {
    squares += later.squares;
    if (later.worst > worst) {
      worst = later.worst;
      quality.worst_column = later.quality.worst_column;
    }
    quality.min_scaled_pivot = std::min(quality.min_scaled_pivot, later.quality.min_scaled_pivot);
    for (const Tally& tally : kTallies) {
      if (quality.*tally.count == 0 && tally.first != nullptr) {
        quality.*tally.first = later.quality.*tally.first;
      }
      quality.*tally.count += later.quality.*tally.count;
    }
  }
};

}  // namespace

void Summarise(const Array<uint8_t>& flags, int64_t nnz_a, int threads, StaticSpaiResult& result) {
  const auto n = static_cast<int64_t>(flags.size());
  constexpr int64_t kPart = 8192;
  std::vector<PartSummary> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  ParallelFor(n, kPart, threads, [&](int64_t begin, int64_t end, int) {
    PartSummary part;  // local: its fields change all the time
    for (int64_t k = begin; k < end; ++k) {
      const auto at = static_cast<size_t>(k);
      part.Add(k, result.residual_norms[at], result.min_scaled_pivots[at], flags[at]);
    }
    parts[static_cast<size_t>(begin / kPart)] = part;
  });
  PartSummary all;
  for (const PartSummary& part : parts) all.Add(part);
  result.quality = std::move(all.quality);
  result.quality.residual_frobenius = std::sqrt(all.squares);
  result.quality.residual_quantiles = ResidualQuantiles(result.residual_norms, threads);
  result.quality.density = static_cast<double>(result.m.nnz()) / static_cast<double>(nnz_a);
}

}  // namespace spaid::kernels
