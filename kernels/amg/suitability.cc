#include "kernels/amg/suitability.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/jacobi_column.h"

namespace spaid::kernels {

namespace {

struct Facts {
  double rayleigh = 0, beta = 0;
};

Facts FactsOf(const CscView& a, int threads) {
  constexpr int64_t kColumns = 4096;  // that are summed by themselves, whoever does it
  const auto n = static_cast<size_t>(a.n_cols);
  const auto block = static_cast<size_t>(DetectBlockSize(a));
  Array<double> diagonal(n), over_root(n);  // D, D^(-1/2)
  Array<uint8_t> unknown(n);                // of its node
  std::atomic<bool> zero = false;
  ParallelFor(a.n_cols, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const double d = std::fabs(EntryOf(a, j, j));
      if (!(d > 0)) zero = true;
      unknown[static_cast<size_t>(j)] = static_cast<uint8_t>(static_cast<size_t>(j) % block);
      diagonal[static_cast<size_t>(j)] = d;
      over_root[static_cast<size_t>(j)] = 1 / std::sqrt(d);
    }
  });
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (zero) return {kInfinity, kInfinity};
  struct Sums {
    std::array<double, kMostUnknowns> energy{}, squares{};
    double scaled = 0, beta = 0;
  };
  std::vector<Sums> parts((n + kColumns - 1) / kColumns);
  ParallelFor(a.n_cols, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    Sums& sums = parts[static_cast<size_t>(begin / kColumns)];
    for (int64_t column = begin; column < end; ++column) {
      const auto j = static_cast<size_t>(column);
      const auto rows = a.column(column);
      const auto values = a.column_values(column);
      const uint8_t own = unknown[j];
      double of_column = 0, scaled = 0, absolute = 0;
      for (size_t p = 0; p < rows.size(); ++p) {
        const auto i = static_cast<size_t>(rows[p]);
        of_column += unknown[i] == own ? values[p] : 0;
        scaled += values[p] * over_root[i];
        absolute += std::fabs(values[p]);
      }
      sums.energy[own] += of_column;
      sums.squares[own] += diagonal[j];
      sums.scaled += scaled * over_root[j];
      sums.beta = std::max(sums.beta, absolute / diagonal[j]);
    }
  });
  Sums all;
  for (const Sums& sums : parts) {
    for (size_t k = 0; k < block; ++k) {
      all.energy[k] += sums.energy[k];
      all.squares[k] += sums.squares[k];
    }
    all.scaled += sums.scaled;
    all.beta = std::max(all.beta, sums.beta);
  }
  double worst = 0;
  for (size_t k = 0; k < block; ++k) {
    worst = std::max(worst, std::fabs(all.energy[k]) / all.squares[k]);
  }
  if (block == 1) worst = std::min(worst, std::fabs(all.scaled) / static_cast<double>(n));
  return {worst, all.beta};
}

}  // namespace

double NearNullRayleigh(const CscView& a, int threads) { return FactsOf(a, threads).rayleigh; }

AmgSuitability LookForAmg(const CscView& a, int64_t longest, int threads) {
  const double mean =
      static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(1, a.n_cols));
  if (a.n_cols < kLeastRowsForAmg || static_cast<double>(longest) > kMostUnevenForAmg * mean) {
    return {};
  }
  const Facts facts = FactsOf(a, threads);
  return {facts.rayleigh <= kMostRayleighForAmg, facts.beta};
}

}  // namespace spaid::kernels
