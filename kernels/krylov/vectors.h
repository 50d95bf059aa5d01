// Vector loops of the Krylov methods, cut into blocks of fixed size: a block's vectors stay in L1,
// so that an update and the dot products of its result cost one pass through memory, and sums of
// blocks are added in block order, so that results are the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::krylov {

inline constexpr int64_t kBlock = 1024;        // elements; four vectors are 32 KiB
inline constexpr int64_t kBlocksPerTask = 16;  // blocks that a thread takes at a time
inline constexpr int64_t kSerialElements = 2 * kBlock * kBlocksPerTask;

// body(begin, end) for each block of [0, n).
template <class Body>
void ForBlocks(int64_t n, int threads, const Body& body) {
  if (threads <= 1 || n < kSerialElements) {
    for (int64_t begin = 0; begin < n; begin += kBlock) body(begin, std::min(n, begin + kBlock));
    return;
  }
  ParallelFor((n + kBlock - 1) / kBlock, kBlocksPerTask, threads,
              [n, &body](int64_t first, int64_t last, int) {
                for (int64_t k = first; k < last; ++k) {
                  body(k * kBlock, std::min(n, (k + 1) * kBlock));
                }
              });
}

// Sums over [begin, end) with eight accumulators, which the compiler turns into vector registers.
inline double BlockDot(const double* x, const double* y, int64_t begin, int64_t end) {
  double s[8] = {};
  int64_t i = begin;
  for (; i + 8 <= end; i += 8) {
    for (int k = 0; k < 8; ++k) s[k] += x[i + k] * y[i + k];
  }
  for (int k = 0; i < end; ++i, ++k) s[k] += x[i] * y[i];
  return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

// The threads of one solve and the scratch of its reductions. Not thread-safe: one per solve.
class Team {
 public:
  Team(int64_t n, int threads) : n_(n), threads_(threads) {}

  int64_t n() const { return n_; }
  int threads() const { return threads_; }

  template <class Body>
  void For(const Body& body) const {
    ForBlocks(n_, threads_, body);
  }

  // Sums the K values that body(begin, end) returns for each block, in block order.
  template <int K, class Body>
  std::array<double, K> Sum(const Body& body) {
    partial_.resize(static_cast<size_t>((n_ + kBlock - 1) / kBlock * K));
    For([this, &body](int64_t begin, int64_t end) {
      const std::array<double, K> sums = body(begin, end);
      for (int k = 0; k < K; ++k) partial_[static_cast<size_t>(begin / kBlock * K + k)] = sums[k];
    });
    std::array<double, K> total{};
    for (size_t p = 0; p < partial_.size(); p += K) {
      for (int k = 0; k < K; ++k) total[k] += partial_[p + k];
    }
    return total;
  }

  double Dot(std::span<const double> x, std::span<const double> y) {
    const double* xs = x.data();
    const double* ys = y.data();
    return Sum<1>([=](int64_t begin, int64_t end) {
      return std::array<double, 1>{BlockDot(xs, ys, begin, end)};
    })[0];
  }

  // ‖x‖₂ without overflow or underflow of the squares. Not finite where an element is not.
  double Norm(std::span<const double> x);

  // Vector k of a basis, n long, uninitialised when new. Its memory stays until the solve ends, so
  // that the next right-hand side finds its pages touched.
  std::span<double> Basis(size_t k) {
    while (basis_.size() <= k) basis_.emplace_back(static_cast<size_t>(n_));
    return basis_[k];
  }

 private:
  int64_t n_;
  int threads_;
  Array<double> partial_;
  std::vector<Array<double>> basis_;
};

}  // namespace spaid::kernels::krylov
