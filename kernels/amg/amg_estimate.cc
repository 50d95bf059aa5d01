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
  AmgCounts counts;
  counts.block = options.block_size > 0 ? options.block_size : DetectBlockSize(a);
  counts.vectors = near_null > 0 ? near_null : counts.block;
  const double block = counts.block, vectors = counts.vectors;
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

bool MaySetUpOnDevice(int64_t n, const NearNullInput& near_null, const AmgOptions& options) {
  if (options.coarsening == Coarsening::kClassical) return false;
  const int block = options.block_size > 0 ? options.block_size : near_null.dimension;
  if (block > 0 && n % block != 0) return false;
  return options.smoother != SmootherKind::kStaticSpai;
}

int64_t SetUpDeviceBytes(int64_t n, int64_t nnz, int block, int vectors,
                         const AmgOptions& options) {
  const double unknowns = static_cast<double>(n), entries = static_cast<double>(nnz);
  const double wider = std::max(1.0, static_cast<double>(vectors) / block);
  const double all = options.max_operator_complexity * entries;
  // A coarse node has an unknown for each vector.
  const double rows = unknowns * (1 + (kMostAllRows - 1) * wider);
  const double p = std::min(kMostInRow * vectors * rows, all * wider + rows);
  double g = 0;
  if (options.smoother == SmootherKind::kAuto || options.smoother == SmootherKind::kAfsai) {
    g = rows * (1 + options.k_max * options.per_step);
  } else if (options.smoother == SmootherKind::kFsai) {
    g = all / 2 + rows;
  }
  // Stays: entries of A, P, R, G and Gᵀ; pointers, diagonals, scales and near-null vectors. Beside
  // them, of the level at hand: A as it comes and its transpose, couplings and the strong graph of
  // both, the filtered matrix, A P, and the scratch of sorts; after these G, as it is made.
  const double stays = kEntry * (all + 2 * p + 2 * g) + 8 * (7 + vectors) * rows;
  const double meanwhile = kEntry * entries * (2 + 4 + 1 + kProductEntries * wider + 2);
  const double of_vectors = (144 + 24 * vectors) * unknowns * wider;
  constexpr double kFixed = 16 << 20;
  return static_cast<int64_t>(stays + meanwhile + of_vectors + kFixed);
}

}  // namespace spaid::kernels
