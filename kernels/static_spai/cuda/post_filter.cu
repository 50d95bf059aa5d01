#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/static_spai/cuda/post_filter.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes a column
int Blocks(int64_t threads) { return static_cast<int>((threads + kThreads - 1) / kThreads); }

__device__ int64_t Thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__device__ unsigned TeamMask() { return 0xffu << (threadIdx.x % 32 / kTeam * kTeam); }

__global__ void CountUnflaggedKernel(const uint8_t* flags, int64_t n, unsigned long long* count) {
  const int64_t k = Thread();
  const unsigned left = __ballot_sync(~0u, k < n && flags[k] == 0);
  if (left != 0 && threadIdx.x % 32 == 0) {
    atomicAdd(count, static_cast<unsigned long long>(__popc(left)));
  }
}

struct Filter {
  PatternRef m;
  const double* values;
  double delta;

  // Called by a whole team.
  __device__ double Largest(int64_t k) const {
    double largest = 0;
    for (int64_t p = m.col_ptr[k] + threadIdx.x % kTeam; p < m.col_ptr[k + 1]; p += kTeam) {
      largest = fmax(largest, fabs(values[p]));
    }
    for (int step = kTeam / 2; step > 0; step /= 2) {
      largest = fmax(largest, __shfl_xor_sync(TeamMask(), largest, step, kTeam));
    }
    return largest;
  }
  // Both comparisons are false for a NaN, which stays.
  __device__ bool Keeps(int64_t k, int64_t p, double largest) const {
    const double size = fabs(values[p]);
    return m.row_idx[p] == k || !(size < delta * largest || size == 0);
  }
};

__global__ void CountKernel(Filter filter, int64_t* counts) {
  const int64_t k = Thread() / kTeam;
  if (k >= filter.m.n) return;
  const double largest = filter.Largest(k);
  int64_t count = 0;
  for (int64_t p = filter.m.col_ptr[k] + threadIdx.x % kTeam; p < filter.m.col_ptr[k + 1];
       p += kTeam) {
    count += filter.Keeps(k, p, largest) ? 1 : 0;
  }
  for (int step = kTeam / 2; step > 0; step /= 2) {
    count += __shfl_xor_sync(TeamMask(), count, step, kTeam);
  }
  if (threadIdx.x % kTeam == 0) counts[k] = count;
}

__global__ void FillKernel(Filter filter, const int64_t* col_ptr, int32_t* row_idx,
                           double* values) {
  const int64_t k = Thread() / kTeam;
  if (k >= filter.m.n) return;
  const unsigned team = TeamMask();
  const unsigned before = team & ((1u << threadIdx.x % 32) - 1);
  const double largest = filter.Largest(k);
  int64_t at = col_ptr[k];
  const int64_t end = filter.m.col_ptr[k + 1];
  for (int64_t first = filter.m.col_ptr[k]; first < end; first += kTeam) {
    const int64_t p = first + threadIdx.x % kTeam;
    const bool keeps = p < end && filter.Keeps(k, p, largest);
    const unsigned all = __ballot_sync(team, keeps) & team;
    if (keeps) {
      row_idx[at + __popc(all & before)] = filter.m.row_idx[p];
      values[at + __popc(all & before)] = filter.values[p];
    }
    at += __popc(all);
  }
}

}  // namespace

int64_t CountHostColumns(Context& context, const StaticSpaiResult& result) {
  const Buffer<int64_t> count(context, 1);
  count.Fill(0);
  CountUnflaggedKernel<<<Blocks(result.flags.size()), kThreads, 0, context.stream>>>(
      result.flags.get(), result.flags.size(), reinterpret_cast<unsigned long long*>(count.get()));
  CheckLaunch("CountUnflaggedKernel");
  return Read(context, count, 0);
}

bool CompactM(Context& context, const StaticSpaiPlan& plan, double delta,
              StaticSpaiResult& result) {
  const int64_t pointers = Arena::Rounded(8 * (plan.n + 1));
  // The scratch of cub's scan is some bytes for each few hundred values.
  const int64_t scan = (1 << 16) + plan.n / 8;
  const auto room = [&] { return context.arena->limit() - context.arena->used(); };
  if (room() < pointers + scan) return false;
  const Filter filter{plan.pattern(), result.values.get(), delta};
  Buffer<int64_t> col_ptr(context, plan.n + 1);
  col_ptr.Fill(0);
  CountKernel<<<Blocks(plan.n * kTeam), kThreads, 0, context.stream>>>(filter, col_ptr.get());
  CheckLaunch("CountKernel");
  Scan(context, col_ptr, plan.n + 1);
  const int64_t nnz = Read(context, col_ptr, plan.n);
  if (room() < Arena::Rounded(4 * nnz) + Arena::Rounded(8 * nnz)) return false;
  Buffer<int32_t> row_idx(context, nnz);
  Buffer<double> values(context, nnz);
  FillKernel<<<Blocks(plan.n * kTeam), kThreads, 0, context.stream>>>(filter, col_ptr.get(),
                                                                      row_idx.get(), values.get());
  CheckLaunch("FillKernel");
  context.Synchronize();
  result.m_ptr = std::move(col_ptr);
  result.m_idx = std::move(row_idx);
  result.values = std::move(values);
  return true;
}

}  // namespace spaid::cuda
