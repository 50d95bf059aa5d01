#include "kernels/fsai/row_growth_parts.h"

#include <algorithm>
#include <cmath>

#include "kernels/dense/simd.h"

namespace spaid::kernels {

GrowthRules RulesOf(const FsaiOptions& options) {
  return {.k_max = options.k_max,
          .s = options.s,
          .epsilon = options.epsilon,
          .min_gain = options.min_gain,
          .fp32 = options.precision == Precision::kFp32};
}

double RoundToFloat(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(static_cast<double>(static_cast<float>(fraction)), exponent);
}

namespace {

typedef int32_t Int16 __attribute__((vector_size(64), may_alias));

// ranks[m]: how many of `indices`, all different, are lower; for at most kFewEntries.
constexpr int64_t kFewEntries = 32;
SPAID_HOT_KERNEL
void CountLower(const int32_t* indices, int64_t count, int32_t* ranks) {
  constexpr int64_t kWidth = 16;
  for (int64_t v = 0; v < count; v += kWidth) {
    Int16 rank = {};
    const Int16 here = *reinterpret_cast<const Int16*>(indices + v);
    // A sign is a comparison: both are at least 0.
    for (int64_t m = 0; m < count; ++m) rank -= (indices[m] - here) >> 31;
    *reinterpret_cast<Int16*>(ranks + v) = rank;
  }
}

}  // namespace

void SortByIndex(std::vector<RowEntry>& entries) {
  const auto count = static_cast<int64_t>(entries.size());
  if (count > kFewEntries) {
    std::sort(entries.begin(), entries.end(),
              [](const RowEntry& x, const RowEntry& y) { return x.index < y.index; });
    return;
  }
  alignas(64) int32_t indices[kFewEntries] = {}, ranks[kFewEntries];
  RowEntry unsorted[kFewEntries];
  for (int64_t m = 0; m < count; ++m) {
    unsorted[m] = entries[static_cast<size_t>(m)];
    indices[m] = unsorted[m].index;
  }
  CountLower(indices, count, ranks);
  for (int64_t m = 0; m < count; ++m) entries[static_cast<size_t>(ranks[m])] = unsorted[m];
}

void FinishRow(int64_t i, double a_ii, double limit, double epsilon, bool fp32,
               std::span<const double> a_ip, std::vector<RowEntry>& entries,
               std::vector<double>& ratios, RowOutcome& outcome) {
  double psi = a_ii;
  for (size_t m = 0; m < entries.size(); ++m) psi += entries[m].value * a_ip[m];
  // Rounding alone can make it so, of a matrix that is barely definite: then nothing of the row is
  // to be trusted but its diagonal.
  if (!(psi > limit && std::isfinite(psi))) {
    outcome.not_spd = true;
    entries.clear();
    psi = a_ii;
    ratios.assign(1, 1.0);
    outcome.steps = 0;
  }
  const double inverse = 1 / std::sqrt(psi);
  for (RowEntry& entry : entries) entry.value *= inverse;
  SortByIndex(entries);
  entries.push_back({static_cast<int32_t>(i), inverse});
  if (fp32) {
    for (RowEntry& entry : entries) entry.value = RoundToFloat(entry.value);
  }
  outcome.psi_ratio = psi / a_ii;
  outcome.converged = outcome.psi_ratio <= epsilon;
  ratios.back() = outcome.psi_ratio;
}

}  // namespace spaid::kernels
