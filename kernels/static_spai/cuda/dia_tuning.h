// Measured numbers of the path by diagonals. EstimateStaticSpai counts with kLeastFill and
// WorkBytes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace spaid::cuda::dia_tuning {

// Least share of the diagonals' places that entries of A, and of M, fill.
inline constexpr double kLeastFill = 1.0 / 3;

// Bytes of B and of all else for a range, at most. On an H100 four times as many gain
// nothing; a fifth makes P27 30 % slower, since B's columns beside a range are formed for each.
constexpr int64_t WorkBytes(int64_t nnz_a) {
  return std::min(int64_t{256} << 20, 40 * nnz_a + (int64_t{1} << 20));
}

// Nodes of a range, the grain of cancellation and progress: a millisecond or a few of work. One
// that is smaller than the least would keep the device waiting for launches.
constexpr int32_t MostNodes(int slots) {
  return slots <= 10 ? 1 << 19 : slots <= 30 ? 1 << 18 : 1 << 15;
}
inline constexpr int64_t kLeastRange = 1024;

}  // namespace spaid::cuda::dia_tuning
