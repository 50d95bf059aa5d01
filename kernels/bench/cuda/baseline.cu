#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/bench/cuda/baseline.h"
#include "kernels/bench/cuda/memory.h"

namespace spaid::kernels::bench {
namespace {

constexpr int kThreads = 128;

// What a column's group of threads reads and writes. Tile of column k: n1[k] x n2, column-major,
// from tile[k - first] on, after it the right-hand side.
struct Wave {
  const int64_t* a_ptr;
  const int32_t* a_idx;
  const double* a_values;
  int32_t first, count;  // columns [first, first + count)
  const int64_t* rows;   // of each column: where its I begins, at most Σ|A(:,j)| long
  const int64_t* tile;
  int32_t* i;
  int32_t* n1;
  double* tiles;
  double* m;
  int q;  // threads a column: a power of two up to 32
};

struct Group {
  __device__ explicit Group(const Wave& wave) : q(wave.q) {
    const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    local = static_cast<int32_t>(thread / q);
    rank = static_cast<int>(threadIdx.x) % q;
    active = local < wave.count;
    k = wave.first + min(local, wave.count - 1);
    begin = wave.a_ptr[k];
    n2 = static_cast<int>(wave.a_ptr[k + 1] - begin);
    mask = q == 32 ? ~0u : ((1u << q) - 1) << (threadIdx.x % 32 / q * q);
  }
  __device__ double Sum(double value) const {
    for (int step = q / 2; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
    return value;
  }
  __device__ void Sync() const { __syncwarp(mask); }

  int q, rank, n2;
  int32_t local, k;
  int64_t begin;
  unsigned mask;
  bool active;
};

// Where `row` stands in I, of n1 rows; -1: nowhere. All threads of the group get the answer.
__device__ int Find(const Group& group, const int32_t* i, int n1, int32_t row) {
  for (int at = 0; at < n1; at += group.q) {
    const bool here = at + group.rank < n1 && i[at + group.rank] == row;
    const unsigned vote = __ballot_sync(group.mask, here) & group.mask;
    if (vote != 0) return at + (__ffs(static_cast<int>(vote)) - 1) % group.q;
  }
  return -1;
}

__global__ void FindRowsKernel(Wave wave) {
  const Group group(wave);
  if (!group.active) return;
  int32_t* const i = wave.i + wave.rows[group.local];
  int n1 = 0;
  for (int a = 0; a < group.n2; ++a) {
    const int32_t j = wave.a_idx[group.begin + a];
    for (int64_t p = wave.a_ptr[j]; p < wave.a_ptr[j + 1]; ++p) {
      const int32_t row = wave.a_idx[p];
      if (Find(group, i, n1, row) >= 0) continue;
      if (group.rank == 0) i[n1] = row;
      ++n1;
      group.Sync();
    }
  }
  if (group.rank == 0) wave.n1[group.local] = n1;
}

__global__ void BuildKernel(Wave wave) {
  const Group group(wave);
  if (!group.active) return;
  const int32_t* const i = wave.i + wave.rows[group.local];
  const int n1 = wave.n1[group.local];
  double* const tile = wave.tiles + wave.tile[group.local];
  for (int64_t e = group.rank; e < int64_t{n1} * (group.n2 + 1); e += group.q) tile[e] = 0;
  group.Sync();
  for (int a = 0; a < group.n2; ++a) {
    const int32_t j = wave.a_idx[group.begin + a];
    for (int64_t p = wave.a_ptr[j]; p < wave.a_ptr[j + 1]; ++p) {
      const int row = Find(group, i, n1, wave.a_idx[p]);
      if (group.rank == 0) tile[int64_t{a} * n1 + row] = wave.a_values[p];
    }
  }
  const int target = Find(group, i, n1, group.k);
  if (group.rank == 0 && target >= 0) tile[int64_t{group.n2} * n1 + target] = 1;
}

// Householder, column by column, the right-hand side with them.
__global__ void QrKernel(Wave wave) {
  const Group group(wave);
  if (!group.active) return;
  const int n1 = wave.n1[group.local];
  double* const tile = wave.tiles + wave.tile[group.local];
  for (int j = 0; j < min(group.n2, n1); ++j) {
    double* const v = tile + int64_t{j} * n1;
    double squared = 0;
    for (int r = j + 1 + group.rank; r < n1; r += group.q) squared += v[r] * v[r];
    squared = group.Sum(squared);
    const double x = v[j];
    if (squared == 0) continue;
    const double norm = sqrt(x * x + squared), to = x > 0 ? -norm : norm;
    const double first = x - to, tau = 2 / (first * first + squared);
    for (int c = j + 1; c <= group.n2; ++c) {
      double* const column = tile + int64_t{c} * n1;
      double dot = 0;
      for (int r = j + 1 + group.rank; r < n1; r += group.q) dot += v[r] * column[r];
      const double w = tau * (group.Sum(dot) + first * column[j]);
      group.Sync();
      for (int r = j + 1 + group.rank; r < n1; r += group.q) column[r] -= w * v[r];
      if (group.rank == 0) column[j] -= w * first;
      group.Sync();
    }
    if (group.rank == 0) v[j] = to;
    group.Sync();
  }
}

__global__ void SolveKernel(Wave wave) {
  const Group group(wave);
  if (!group.active) return;
  const int n1 = wave.n1[group.local];
  double* const tile = wave.tiles + wave.tile[group.local];
  double* const y = tile + int64_t{group.n2} * n1;
  for (int i = group.n2 - 1; i >= 0; --i) {
    const double x = y[i] / tile[int64_t{i} * n1 + i];
    for (int r = group.rank; r < i; r += group.q) y[r] -= x * tile[int64_t{i} * n1 + r];
    if (group.rank == 0) wave.m[group.begin + i] = x;
    group.Sync();
  }
}

class Clock {
 public:
  Clock() {
    Check(cudaEventCreate(&begin_));
    Check(cudaEventCreate(&end_));
  }
  ~Clock() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class Work>
  void Add(double& ms, const Work& work) {
    Check(cudaEventRecord(begin_));
    work();
    Check(cudaGetLastError());
    Check(cudaEventRecord(end_));
    Check(cudaEventSynchronize(end_));
    float passed = 0;
    Check(cudaEventElapsedTime(&passed, begin_, end_));
    ms += passed;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace

std::string RunBaseline(int64_t n, const int64_t* col_ptr, const int32_t* row_idx,
                        const double* values, int64_t wave_bytes, double* m, BaselineTimes* times) {
  try {
    const auto size = static_cast<size_t>(n), nnz = static_cast<size_t>(col_ptr[n]);
    const Memory<int64_t> a_ptr(col_ptr, size + 1);
    const Memory<int32_t> a_idx(row_idx, nnz);
    const Memory<double> a_values(values, nnz), m_values(nnz);
    Clock clock;
    Wave wave{};
    wave.a_ptr = a_ptr.get();
    wave.a_idx = a_idx.get();
    wave.a_values = a_values.get();
    wave.m = m_values.get();
    int64_t n2_max = 1;
    for (int64_t k = 0; k < n; ++k) n2_max = std::max(n2_max, col_ptr[k + 1] - col_ptr[k]);
    wave.q = 1;
    while (wave.q < 32 && wave.q < n2_max) wave.q *= 2;
    for (int64_t first = 0; first < n;) {
      // As many columns as their I, at its longest, leave room for.
      std::vector<int64_t> rows{0};
      int64_t last = first, dense = 0;
      for (; last < n; ++last) {
        int64_t entries = 0;
        for (int64_t p = col_ptr[last]; p < col_ptr[last + 1]; ++p) {
          entries += col_ptr[row_idx[p] + 1] - col_ptr[row_idx[p]];
        }
        dense += entries * (col_ptr[last + 1] - col_ptr[last] + 1) * 8;
        if (last > first && dense > 4 * wave_bytes) break;  // I is about a fourth of its bound
        rows.push_back(rows.back() + entries);
      }
      wave.first = static_cast<int32_t>(first);
      wave.count = static_cast<int32_t>(last - first);
      const auto count = static_cast<size_t>(wave.count);
      const Memory<int64_t> rows_there(rows.data(), count + 1);
      const Memory<int32_t> i(static_cast<size_t>(rows.back())), n1_there(count);
      wave.rows = rows_there.get();
      wave.i = i.get();
      wave.n1 = n1_there.get();
      const auto blocks =
          static_cast<unsigned>((int64_t{wave.count} * wave.q + kThreads - 1) / kThreads);
      clock.Add(times->find_ms, [&] { FindRowsKernel<<<blocks, kThreads>>>(wave); });
      std::vector<int32_t> n1(count);
      Check(cudaMemcpy(n1.data(), n1_there.get(), count * sizeof(int32_t), cudaMemcpyDeviceToHost));
      std::vector<int64_t> tile{0};
      for (size_t c = 0; c < count; ++c) {
        const auto k = static_cast<size_t>(first) + c;
        tile.push_back(tile.back() + n1[c] * (col_ptr[k + 1] - col_ptr[k] + 1));
      }
      const Memory<int64_t> tile_there(tile.data(), count + 1);
      const Memory<double> tiles(static_cast<size_t>(tile.back()));
      wave.tile = tile_there.get();
      wave.tiles = tiles.get();
      clock.Add(times->build_ms, [&] { BuildKernel<<<blocks, kThreads>>>(wave); });
      clock.Add(times->qr_ms, [&] { QrKernel<<<blocks, kThreads>>>(wave); });
      clock.Add(times->solve_ms, [&] { SolveKernel<<<blocks, kThreads>>>(wave); });
      first = last;
    }
    Check(cudaMemcpy(m, m_values.get(), nnz * sizeof(double), cudaMemcpyDeviceToHost));
    return {};
  } catch (const Failed& failed) {
    return cudaGetErrorString(failed.error);
  }
}

}  // namespace spaid::kernels::bench
