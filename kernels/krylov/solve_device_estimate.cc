#include "kernels/krylov/solve_device_estimate.h"

#include <algorithm>
#include <bit>

namespace spaid::kernels {

// Columns without a right-hand side cost nearly as much as others: on an H100 a block of four takes
// 90 ms by Jacobi-CG on P7 128³, one of two and one alone 79.
int32_t CudaColumnsFor(Method method, int64_t n_rhs) {
  if (method == Method::kGmres) return 1;
  return static_cast<int32_t>(
      std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(n_rhs, kMostCudaColumns))));
}

int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                         const SolveOptions& options) {
  // An entry by rows takes 12 bytes, 24 with the worst padding of slices; sorting one matrix by
  // rows takes 36 more of each of its entries at most, beside its columns. Vectors: those of
  // BiCGSTAB, and a diagonal M. The order of scattered unknowns, and finding it, take 16 a row.
  constexpr int64_t kRows = 24, kSorting = 48, kSlack = 1 << 20;
  const int64_t vectors = 8 * (12 * CudaColumnsFor(options.method, n_rhs) + 4);
  // The layout for solves within shared memory (persistent_smem_csr.h): 10 bytes an entry, twice
  // that with the padding of slices, and the halo; at most the shared memory of all
  // multiprocessors.
  const auto on_chip = [n](int64_t nnz) {
    constexpr int64_t kEntry = 24, kRow = 8, kMost = 48 << 20;
    return std::min(kEntry * nnz + kRow * n, kMost);
  };
  const int64_t bytes = kRows * (nnz_a + nnz_m) + on_chip(nnz_a) + on_chip(nnz_m) +
                        kSorting * std::max(nnz_a, nnz_m) + (vectors + 4 * 16 + 16) * n + kSlack;
  if (options.method != Method::kGmres) return bytes;
  // The basis, columns of R, and partial sums of up to 512 blocks of threads for each product with
  // it.
  const auto columns = static_cast<double>(RestartLength(options, n)) + 1;
  const double basis = 8 * columns * (static_cast<double>(n) + 64 + columns / 2 + 512 + 8);
  constexpr double kMost = 9e18;
  return static_cast<int64_t>(std::min(kMost, static_cast<double>(bytes) + basis));
}

}  // namespace spaid::kernels
