#include "kernels/amg/suitability.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/jacobi_column.h"

namespace spaid::kernels {

namespace {

constexpr int64_t kColumns = 4096;  // that are summed by themselves, whoever does it

// Calls add(sums, j) for every column; returns the sums in their order.
template <class Sums, class Add>
std::vector<Sums> SumColumns(int64_t n, int threads, const Add& add) {
  std::vector<Sums> parts(static_cast<size_t>((n + kColumns - 1) / kColumns));
  ParallelFor(n, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    Sums& sums = parts[static_cast<size_t>(begin / kColumns)];
    for (int64_t j = begin; j < end; ++j) add(sums, j);
  });
  return parts;
}

struct Facts {
  double rayleigh = 0, beta = 0;
  int block = 1;
};

// Returns the quotient of constants for each unknown of a node, and β.
Facts OfConstants(const CscView& a, int block, int threads) {
  const auto b = static_cast<size_t>(block);
  Array<uint8_t> unknown;  // of its node
  if (b > 1) unknown.resize(static_cast<size_t>(a.n_cols));
  for (size_t j = 0; j < unknown.size(); ++j) unknown[j] = static_cast<uint8_t>(j % b);
  struct Sums {
    std::array<double, kMostUnknowns> energy{}, squares{};
    double beta = 0;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto parts = SumColumns<Sums>(a.n_cols, threads, [&](Sums& sums, int64_t j) {
    const auto rows = a.column(j);
    const auto values = a.column_values(j);
    const uint8_t own = b > 1 ? unknown[static_cast<size_t>(j)] : 0;
    double of_column = 0, absolute = 0, diagonal = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      const auto i = static_cast<size_t>(rows[p]);
      if (b == 1 || unknown[i] == own) of_column += values[p];
      absolute += std::fabs(values[p]);
      if (rows[p] == j) diagonal = std::fabs(values[p]);
    }
    sums.energy[own] += of_column;
    sums.squares[own] += diagonal;
    sums.beta = std::max(sums.beta, diagonal > 0 ? absolute / diagonal : kInfinity);
  });
  Sums all;
  for (const Sums& sums : parts) {
    for (size_t k = 0; k < b; ++k) {
      all.energy[k] += sums.energy[k];
      all.squares[k] += sums.squares[k];
    }
    all.beta = std::max(all.beta, sums.beta);
  }
  double worst = all.beta < kInfinity ? 0 : kInfinity;
  for (size_t k = 0; k < b; ++k) {
    worst = std::max(worst, std::fabs(all.energy[k]) / all.squares[k]);
  }
  return {worst, all.beta, block};
}

// Returns the quotient of D^(-1/2) 1. No diagonal entry is zero.
double OfScaledConstants(const CscView& a, int threads) {
  Array<double> over_root(static_cast<size_t>(a.n_cols));  // D^(-1/2)
  ParallelFor(a.n_cols, kColumns, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      over_root[static_cast<size_t>(j)] = 1 / std::sqrt(std::fabs(EntryOf(a, j, j)));
    }
  });
  const auto parts = SumColumns<double>(a.n_cols, threads, [&](double& sum, int64_t j) {
    const auto rows = a.column(j);
    const auto values = a.column_values(j);
    double scaled = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      scaled += values[p] * over_root[static_cast<size_t>(rows[p])];
    }
    sum += scaled * over_root[static_cast<size_t>(j)];
  });
  return std::fabs(std::accumulate(parts.begin(), parts.end(), 0.0)) /
         static_cast<double>(a.n_cols);
}

// The quotient up to which it is enough need not be the least.
Facts FactsOf(const CscView& a, double enough, int threads) {
  const int block = DetectBlockSize(a, threads);
  Facts facts = OfConstants(a, block, threads);
  if (block == 1 && facts.rayleigh > enough && std::isfinite(facts.beta)) {
    facts.rayleigh = std::min(facts.rayleigh, OfScaledConstants(a, threads));
  }
  return facts;
}

}  // namespace

double NearNullRayleigh(const CscView& a, int threads) {
  return FactsOf(a, /*enough=*/0, threads).rayleigh;
}

bool MaySuitAmg(const PatternView& a, int64_t longest) {
  const double mean =
      static_cast<double>(a.nnz()) / static_cast<double>(std::max<int64_t>(1, a.n_cols));
  return a.n_cols >= kLeastRowsForAmg && static_cast<double>(longest) <= kMostUnevenForAmg * mean;
}

AmgSuitability LookForAmg(const CscView& a, int64_t longest, int threads) {
  if (!MaySuitAmg(a, longest)) return {};
  const Facts facts = FactsOf(a, kMostRayleighForAmg, threads);
  return {facts.rayleigh <= kMostRayleighForAmg, facts.beta, facts.block};
}

}  // namespace spaid::kernels
