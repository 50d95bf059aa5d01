#include "kernels/amg/amg_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/amg/scaling.h"

namespace spaid::kernels {
namespace {

constexpr double kMostInRow = 12;  // aggregates of a row of P (prolongation.h)
constexpr double kMostAllRows =
    5;                         // rows of all levels over n: each has at most 0.8 of the one above
constexpr double kEntry = 12;  // bytes of an index and a value
constexpr double kProductEntries =
    4;  // of A P over those of A, where near-null vectors are as many as unknowns

constexpr double kFlops = 20;  // an entry of A, about: A P, R A P and P of all levels

}  // namespace

AmgCounts EstimateAmg(const PatternView& a, int near_null, const AmgOptions& options) {
  const auto n = static_cast<double>(a.n_cols), nnz = static_cast<double>(a.nnz());
  const double block = options.block_size > 0 ? options.block_size : DetectBlockSize(a);
  const double vectors = near_null > 0 ? near_null : block;
  const double wider = std::max(1.0, vectors / block);
  const double all = options.max_operator_complexity * nnz;  // entries of A_l
  const double rows = kMostAllRows * n;
  const double p = std::min(kMostInRow * vectors * rows, all * wider + rows);
  double smoother = 0;  // of G and Gᵀ, or M and Mᵀ
  switch (options.smoother) {
    case SmootherKind::kL1Jacobi:
    case SmootherKind::kJacobi:
    case SmootherKind::kChebyshev:
      break;
    case SmootherKind::kAfsai:
      smoother = 2 * std::min(rows * (1 + options.k_max * options.per_step), all + rows);
      break;
    default:
      smoother = 2 * (all + rows);
  }
  const double coarse = static_cast<double>(options.max_coarse_size * options.max_coarse_size);
  AmgCounts counts;
  counts.nnz = static_cast<int64_t>(all + 2 * p + smoother + coarse);
  // Matrices of all levels in fp64 with their pointers, kept patterns, A P, and what a level takes
  // meanwhile: couplings, A_F and mirrors; vectors of cycle and set-up; the dense inverse.
  const double product = kProductEntries * nnz * wider;
  counts.host_bytes = static_cast<int64_t>(
      kEntry * (all + 2 * p + smoother + product) + 4 * (all + 2 * p + product) + 4 * kEntry * nnz +
      8 * rows * 12 + 8 * n * (2 * vectors + 8) + 3 * 8 * coarse);
  counts.work = {.rows = n, .nnz_a = nnz, .entries = nnz, .flops = kFlops * nnz};
  return counts;
}

bool MaySetUpOnDevice(const PatternView& a, const NearNullInput& near_null,
                      const AmgOptions& options) {
  if (options.coarsening == Coarsening::kClassical || near_null.dimension > 0 ||
      near_null.count > 1) {
    return false;
  }
  switch (options.smoother) {
    case SmootherKind::kAuto:
    case SmootherKind::kL1Jacobi:
    case SmootherKind::kJacobi:
    case SmootherKind::kChebyshev:
      return (options.block_size > 0 ? options.block_size : DetectBlockSize(a)) == 1;
    default:
      return false;
  }
}

int64_t SetUpDeviceBytes(int64_t n, int64_t nnz, const AmgOptions& options) {
  const double all = options.max_operator_complexity * static_cast<double>(nnz);
  const double rows = kMostAllRows * static_cast<double>(n);
  const double p = std::min(kMostInRow * rows, all + rows);
  // Stays: entries of A, P and R; pointers, diagonals, scales and near-null vectors. Beside
  // them, of the level at hand: A as it comes and its transpose, couplings and the strong graph of
  // both, the filtered matrix, A P, and the scratch of sorts.
  const double stays = kEntry * (all + 2 * p) + 8 * 8 * rows;
  const double meanwhile = kEntry * static_cast<double>(nnz) * (2 + 4 + 1 + kProductEntries + 2);
  const double vectors = 160 * static_cast<double>(n);
  constexpr double kFixed = 16 << 20;
  return static_cast<int64_t>(stays + meanwhile + vectors + kFixed);
}

}  // namespace spaid::kernels
