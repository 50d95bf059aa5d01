#include "kernels/amg/amg_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/amg/scaling.h"
#include "kernels/amg/set_up_rules.h"

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

AmgCounts EstimateAmg(const PatternView& a, int near_null, const AmgOptions& options, int threads) {
  const auto n = static_cast<double>(a.n_cols), nnz = static_cast<double>(a.nnz());
  AmgCounts counts;
  counts.block = options.block_size > 0 ? options.block_size : DetectBlockSize(a, threads);
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
  if (options.smoother == SmootherKind::kAfsai || options.smoother == SmootherKind::kStaticSpai) {
    counts.work.gathered = n;
  }
  return counts;
}

double UsualAmgEntries(int64_t n, int64_t nnz, const AmgOptions& options) {
  constexpr double kAll = 2, kFactors = 16;
  const bool spai = options.smoother == SmootherKind::kStaticSpai;  // M has about A's entries
  return (spai ? 2 : 1) * kAll * static_cast<double>(nnz) +
         (options.smoother == SmootherKind::kAfsai ? kFactors * static_cast<double>(n) : 0);
}

bool MaySetUpOnDevice(int64_t n, const NearNullInput& near_null, const AmgOptions& options) {
  if (options.coarsening == Coarsening::kClassical) return false;
  const int block = options.block_size > 0 ? options.block_size : near_null.dimension;
  return block == 0 || n % block == 0;
}

namespace {

// Bytes of a set-up on a device, level by level. Each aggregate has two nodes or more, so that
// nodes are halved at least, and of one unknown a node P has no more entries than A less its rows,
// since a row of A has two of the aggregate that it is in. A level has at most max_growth of the
// entries of the one above where P is smoothed, else at most as many for each vector and unknown of
// a node, and all together at most max_operator_complexity of A's.
class DeviceBound {
 public:
  DeviceBound(int64_t n, int64_t nnz, int block, int vectors, const AmgOptions& options, bool waves)
      : options_(options),
        nnz_(static_cast<double>(nnz)),
        vectors_(vectors),
        wider_(static_cast<double>(vectors) / block),
        of_nodes_(block > 1 || vectors > 1) {
    const auto rows = static_cast<double>(n);
    const double coarse = static_cast<double>(options.max_coarse_size * options.max_coarse_size);
    constexpr double kFixed = 4 << 20;
    between_ = of_nodes_ ? kBlockEntry * kProductEntries * std::max(1.0, wider_) * nnz_
               : waves   ? kLeastBetween * nnz_
                         : static_cast<double>(kEntryBytes * MostProductEntries(nnz));
    const double scaling = 44 * nnz_ + 64 * rows;  // Aᵀ, and the scratch of its sort
    bytes_ = kFixed + 16 * coarse + static_cast<double>(MostPlanBytes(n, nnz)) +
             (of_nodes_ ? 24 * vectors_ * rows : 0) +
             std::max(scaling, From(rows, nnz_, (options.max_operator_complexity - 1) * nnz_, 0));
  }
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }

 private:
  static constexpr double kLeastBetween = 6;  // bytes an entry of A, of a wave
  // An entry with its share of the same matrix by nodes, of two unknowns at least.
  static constexpr double kBlockEntry = kEntry + kEntry / 4;

  double EntriesOfP(double n, double nnz) const {
    return std::min(kMostInRow * vectors_ * n, vectors_ * nnz);
  }

  // Bounds the bytes of a level while it is made: A and Aᵀ with couplings and the strong graph of
  // both, or with P of both and their filtered matrices, or A, P, R, A P and A_c. Blocks of nodes
  // have norms besides, of as many as A has entries where these are all apart.
  double Meanwhile(double n, double nnz, double coarse) const {
    const double p = EntriesOfP(n, nnz);
    const double nodes = of_nodes_ ? (kEntry / 4) * nnz + 48 * vectors_ * n : 0;
    const double norms = of_nodes_ ? 2 * kEntry * nnz : 0;
    const double smoothing = std::max(76 * nnz + norms, 64 * nnz + 24 * p);
    const double products = 32 * nnz + 36 * p + between_ + kBlockEntry * coarse;
    return 96 * n + nodes + std::max(smoothing, products);
  }

  // Bounds those of a level and of all below it, which have `left` entries together at most.
  double From(double n, double nnz, double left, int level) const {
    const double grown = std::min(options_.max_growth * nnz, left);
    const double made = Meanwhile(n, nnz, std::min(std::max(grown, nnz), left));
    if (level + 1 >= options_.max_levels || left <= 0 ||
        n <= static_cast<double>(options_.max_coarse_size)) {
      return made;
    }
    const double a = (of_nodes_ ? kBlockEntry : kEntry) * nnz + (48 + 8 * vectors_) * n;
    const bool widens = level == 0 && of_nodes_;
    const double below = n / 2 * (widens ? wider_ : 1);
    const double smoothed =
        a + 2 * kEntry * EntriesOfP(n, nnz) + From(below, grown, left - grown, level + 1);
    const double same = std::min(nnz * (widens ? std::max(1.0, wider_ * wider_) : 1), left);
    const double plain = a + 2 * kEntry * n + From(below, same, left - same, level + 1);
    return std::max({made, smoothed, plain});
  }

  const AmgOptions& options_;
  const double nnz_, vectors_, wider_;
  const bool of_nodes_;
  double between_ = 0, bytes_ = 0;
};

// Bytes of G, Gᵀ, and one of them as it is made, on all levels, or of M likewise, with what that
// takes of the first A. `waves`: of M's tables; AUTO goes without M where there is no more room.
double SmootherBytes(double rows, double all, int64_t n, int64_t nnz, SmootherKind kind,
                     const AmgOptions& options, bool waves) {
  constexpr double kPacked = 16;
  const double packed = kPacked * static_cast<double>(nnz);
  switch (kind) {
    case SmootherKind::kAuto: {
      const double grown = SmootherBytes(rows, all, n, nnz, SmootherKind::kAfsai, options, waves);
      const double spai =
          SmootherBytes(rows, all, n, nnz, SmootherKind::kStaticSpai, options, waves);
      return waves ? grown : std::max(grown, spai);
    }
    case SmootherKind::kAfsai:
      return 3 * kEntry * rows * (1 + options.k_max * options.per_step) + packed;
    case SmootherKind::kFsai:
      return 3 * kEntry * (all / 2 + rows) + packed;
    case SmootherKind::kStaticSpai:
      return 3 * kEntry * (all + rows) +
             static_cast<double>(SpaiScratchBytes(n, nnz) -
                                 (waves ? SpaiTableBytes(nnz) - SpaiTableBytes(0) : 0));
    default:
      return 0;
  }
}

int64_t DeviceBytes(int64_t n, int64_t nnz, int block, int vectors, const AmgOptions& options,
                    bool waves) {
  const double rows =
      static_cast<double>(n) * (1 + std::max(1.0, static_cast<double>(vectors) / block));
  const double all = options.max_operator_complexity * static_cast<double>(nnz);
  return DeviceBound(n, nnz, block, vectors, options, waves).bytes() +
         static_cast<int64_t>(SmootherBytes(rows, all, n, nnz, options.smoother, options, waves));
}

}  // namespace

int64_t SpaiTableBytes(int64_t nnz) {
  constexpr int64_t kLeast = 16 << 20, kOfEntry = 128;
  return kLeast + kOfEntry * nnz;
}

int64_t SpaiScratchBytes(int64_t n, int64_t nnz) {
  constexpr int64_t kOfRow = 512, kOfEntry = 64;
  return kOfRow * n + kOfEntry * nnz + SpaiTableBytes(nnz);
}

int64_t SetUpDeviceBytes(int64_t n, int64_t nnz, int block, int vectors,
                         const AmgOptions& options) {
  return DeviceBytes(n, nnz, block, vectors, options, /*waves=*/false);
}
int64_t LeastSetUpDeviceBytes(int64_t n, int64_t nnz, int block, int vectors,
                              const AmgOptions& options) {
  return DeviceBytes(n, nnz, block, vectors, options, /*waves=*/true);
}

}  // namespace spaid::kernels
