#include "kernels/static_spai/residual_quantiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

constexpr std::array<double, 8> kShares = {0, 0.10, 0.25, 0.50, 0.75, 0.90, 0.99, 1};
constexpr size_t kSample = 1024;  // norms of the sample that locates the quantiles
constexpr int64_t kPart = 8192;   // norms that fit the first-level cache

// An interval that contains a quantile, ends included.
struct Bracket {
  double low, high;
};

// Counts of one part's norms against one bracket.
struct Found {
  size_t below = 0, at_low = 0, at_high = 0;
  std::vector<double> between;  // neither end
};

std::vector<double> Sample(std::span<const double> norms) {
  std::minstd_rand random;  // a stride would be that of a grid
  std::vector<double> sample(kSample);
  for (double& norm : sample) norm = norms[random() % norms.size()];
  std::ranges::sort(sample);
  return sample;
}

// The true quantile lies within four standard deviations of the sample's, or is looked for again.
Bracket Around(double share, const std::vector<double>& sample) {
  const double last = static_cast<double>(sample.size() - 1), middle = share * last;
  const double apart = 1 + 4 * std::sqrt(share * (1 - share) * static_cast<double>(sample.size()));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double low = std::floor(middle - apart), high = std::ceil(middle + apart);
  return {low < 0 ? -kInfinity : sample[static_cast<size_t>(low)],
          high > last ? kInfinity : sample[static_cast<size_t>(high)]};
}

Found Scan(std::span<const double> part, const Bracket& bracket) {
  Found found;
  std::array<double, kPart> between;
  size_t count = 0;
  for (const double norm : part) {
    found.below += norm < bracket.low ? 1 : 0;
    found.at_low += norm == bracket.low ? 1 : 0;
    found.at_high += norm == bracket.high ? 1 : 0;
    between[count] = norm;
    count += norm > bracket.low && norm < bracket.high ? 1 : 0;
  }
  found.between.assign(between.begin(), between.begin() + static_cast<ptrdiff_t>(count));
  return found;
}

double Select(std::vector<double>& norms, size_t rank) {
  const auto at = norms.begin() + static_cast<ptrdiff_t>(rank);
  std::nth_element(norms.begin(), at, norms.end());
  return *at;
}

// The norm of that rank, from what all parts have found.
double Choose(size_t rank, const Bracket& bracket, std::span<const std::vector<Found>> parts,
              size_t quantile, std::span<const double> norms) {
  size_t below = 0, at_low = 0, at_high = 0;
  std::vector<double> between;
  for (const std::vector<Found>& part : parts) {
    const Found& found = part[quantile];
    below += found.below;
    at_low += found.at_low;
    at_high += found.at_high;
    between.insert(between.end(), found.between.begin(), found.between.end());
  }
  if (rank >= below && rank < below + at_low) return bracket.low;
  const size_t first = below + at_low;
  if (rank >= first && rank < first + between.size()) return Select(between, rank - first);
  const size_t second = first + between.size();
  if (rank >= second && rank < second + at_high) return bracket.high;
  std::vector<double> all(norms.begin(), norms.end());
  return Select(all, rank);
}

}  // namespace

std::vector<double> ResidualQuantiles(std::span<const double> norms, int threads) {
  if (norms.empty()) return {};
  const auto n = static_cast<int64_t>(norms.size());
  const auto rank = [&](size_t q) {
    return static_cast<size_t>(std::floor(kShares[q] * static_cast<double>(n - 1) + 0.5));
  };
  std::vector<double> quantiles(kShares.size());
  if (n <= kPart) {
    std::vector<double> all(norms.begin(), norms.end());
    for (size_t q = 0; q < kShares.size(); ++q) quantiles[q] = Select(all, rank(q));
    return quantiles;
  }
  const std::vector<double> sample = Sample(norms);
  std::array<Bracket, kShares.size()> brackets;
  for (size_t q = 0; q < kShares.size(); ++q) brackets[q] = Around(kShares[q], sample);
  std::vector<std::vector<Found>> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  ParallelFor(n, kPart, threads, [&](int64_t begin, int64_t end, int) {
    const auto part = norms.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    for (const Bracket& bracket : brackets) {
      parts[static_cast<size_t>(begin / kPart)].push_back(Scan(part, bracket));
    }
  });
  ParallelFor(static_cast<int64_t>(kShares.size()), 1, threads, [&](int64_t begin, int64_t, int) {
    const auto q = static_cast<size_t>(begin);
    quantiles[q] = Choose(rank(q), brackets[q], parts, q, norms);
  });
  return quantiles;
}

}  // namespace spaid::kernels
