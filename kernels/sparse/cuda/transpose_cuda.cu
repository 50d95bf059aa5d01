#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/base/cuda/scan_sort_cuda.h"
#include "kernels/sparse/cuda/transpose_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that go through one column
// Rows of more entries than this, or so many pairs of entries in one row for each entry on average,
// and a sort of all entries is faster than counting in each row which come before which.
constexpr int kMostRanked = 4096;
constexpr int64_t kMostPairs = 512;

// For so much work, of which a block has `a_block` at once.
int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

__device__ int64_t Team() { return (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kTeam; }
__device__ int64_t Teams() { return int64_t{gridDim.x} * (kThreads / kTeam); }
__device__ int64_t Thread() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t Threads() { return int64_t{gridDim.x} * kThreads; }

using Count = unsigned long long;  // what atomics take

__global__ void CountKernel(const int32_t* row_idx, int64_t nnz, Count* count) {
  for (int64_t p = Thread(); p < nnz; p += Threads()) atomicAdd(count + row_idx[p], Count{1});
}

struct Survey {
  Count pairs;  // of entries in one row
  int32_t longest;
};

__global__ void SurveyKernel(const int64_t* row_ptr, int64_t n, Survey* survey) {
  int32_t longest = 0;
  Count pairs = 0;
  for (int64_t i = Thread(); i < n; i += Threads()) {
    const int64_t count = row_ptr[i + 1] - row_ptr[i];
    longest = max(longest, static_cast<int32_t>(count));
    pairs += static_cast<Count>(count * count);
  }
  longest = __reduce_max_sync(~0u, longest);
  for (int step = 16; step > 0; step /= 2) pairs += __shfl_xor_sync(~0u, pairs, step);
  if (threadIdx.x % 32 != 0) return;
  atomicMax(&survey->longest, longest);
  atomicAdd(&survey->pairs, pairs);
}

// An entry in its row: its column, and where A has it.
struct alignas(8) Entry {
  int32_t column;
  uint32_t place;
};

// To their rows, in any order; `next`: of each row where the next entry goes.
__global__ void ScatterKernel(PatternRef a, Count* next, Entry* to) {
  for (int64_t j = Team(); j < a.n; j += Teams()) {
    for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
      to[atomicAdd(next + a.row_idx[p], Count{1})] = {static_cast<int32_t>(j),
                                                      static_cast<uint32_t>(p)};
    }
  }
}

constexpr int kSlots = 4;  // entries that a lane has at once
// The entries of a row that so many lanes take on.
template <int kLanes>
constexpr int kRanked = kLanes == kThreads ? kMostRanked
                        : kLanes == 32     ? 512
                                           : 64;

template <int kLanes>
__device__ void SyncLanes() {
  if constexpr (kLanes > 32) {
    __syncthreads();
  } else {
    constexpr unsigned kAll = kLanes == 32 ? ~0u : (1u << kLanes % 32) - 1;
    __syncwarp(kAll << threadIdx.x % 32 / kLanes * kLanes);
  }
}

// Rows of more than `least` entries, and no more than kLanes take on, in the order of columns: an
// entry's place is the number of those that come before.
template <int kLanes, class Value>
__global__ void __launch_bounds__(kThreads)
    RankKernel(int64_t n, int32_t least, const int64_t* row_ptr, const Entry* entries,
               const double* values, int32_t* cols, Value* to) {
  constexpr int kMost = kRanked<kLanes>, kRows = kThreads / kLanes;
  // Teams of a warp read from banks of their own.
  __shared__ alignas(16) int32_t all_columns[kRows][kMost + 4];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  int32_t* const columns = all_columns[threadIdx.x / kLanes];
  for (int64_t i = int64_t{blockIdx.x} * kRows + threadIdx.x / kLanes; i < n;
       i += int64_t{gridDim.x} * kRows) {
    const int64_t begin = row_ptr[i], length = row_ptr[i + 1] - begin;
    if (length <= least || length > kMost) continue;
    const int count = static_cast<int>(length);
    for (int e = lane; e < (count + 3) / 4 * 4; e += kLanes) {
      columns[e] = e < count ? entries[begin + e].column : INT32_MAX;
    }
    SyncLanes<kLanes>();
    for (int first = lane; first < count; first += kSlots * kLanes) {
      Entry own[kSlots];
      double value[kSlots] = {};
      int rank[kSlots] = {};
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        own[s] = {};
        if (first + s * kLanes >= count) continue;
        own[s] = entries[begin + first + s * kLanes];
        if (values != nullptr) value[s] = values[own[s].place];
      }
      for (int e = 0; e < count; e += 4) {
        const int4 others = *reinterpret_cast<const int4*>(columns + e);
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
          const int32_t column = own[s].column;
          rank[s] +=
              (others.x < column) + (others.y < column) + (others.z < column) + (others.w < column);
        }
      }
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        if (first + s * kLanes >= count) continue;
        cols[begin + rank[s]] = own[s].column;
        if (values != nullptr) to[begin + rank[s]] = static_cast<Value>(value[s]);
      }
    }
    SyncLanes<kLanes>();
  }
}

__global__ void ColumnOfEntryKernel(PatternRef a, int32_t* column) {
  for (int64_t j = Team(); j < a.n; j += Teams()) {
    for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
      column[p] = static_cast<int32_t>(j);
    }
  }
}

template <class Value>
__global__ void ValuesKernel(PatternRef a, const double* values, const int64_t* row_ptr,
                             const int32_t* cols, Value* to) {
  for (int64_t i = Team(); i < a.n; i += Teams()) {
    for (int64_t p = row_ptr[i] + threadIdx.x % kTeam; p < row_ptr[i + 1]; p += kTeam) {
      to[p] = static_cast<Value>(EntryAt(a, values, i, cols[p]));
    }
  }
}

// All entries at once. Stable, so that columns ascend.
template <class Value>
void SortAll(Context& context, const PatternRef& a, int64_t nnz, const double* values,
             ByRows<Value>& to) {
  {
    const Buffer<int32_t> columns(context, nnz), rows(context, nnz);
    ColumnOfEntryKernel<<<Blocks(context, a.n, kThreads / kTeam), kThreads, 0, context.stream>>>(
        a, columns.get());
    CheckLaunch("ColumnOfEntryKernel");
    int bits = 1;
    while (bits < 31 && a.n - 1 >> bits != 0) ++bits;
    size_t bytes = 0;
    const auto sort = [&](void* scratch) {
      Check(cub::DeviceRadixSort::SortPairs(scratch, bytes, a.row_idx, rows.get(), columns.get(),
                                            to.cols.get(), nnz, 0, bits, context.stream),
            "cub::DeviceRadixSort");
    };
    sort(nullptr);
    const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
    sort(scratch.get());
  }
  if (values == nullptr) return;
  to.values = Buffer<Value>(context, nnz);
  ValuesKernel<<<Blocks(context, a.n, kThreads / kTeam), kThreads, 0, context.stream>>>(
      a, values, to.row_ptr.get(), to.cols.get(), to.values.get());
  CheckLaunch("ValuesKernel");
}

// Row by row, where they were scattered to; the longest row decides who takes part.
template <class Value>
void SortEach(Context& context, const PatternRef& a, int64_t nnz, const double* values,
              int32_t longest, ByRows<Value>& to) {
  if (values != nullptr) to.values = Buffer<Value>(context, nnz);
  const Buffer<Entry> entries(context, nnz);
  {
    const Buffer<Count> next(context, a.n);
    Check(cudaMemcpyAsync(next.get(), to.row_ptr.get(), static_cast<size_t>(a.n) * sizeof(Count),
                          cudaMemcpyDeviceToDevice, context.stream),
          "cudaMemcpyAsync");
    ScatterKernel<<<Blocks(context, a.n, kThreads / kTeam), kThreads, 0, context.stream>>>(
        a, next.get(), entries.get());
    CheckLaunch("ScatterKernel");
  }
  const auto rank = [&](auto kernel, int lanes, int32_t least) {
    if (longest <= least) return;
    kernel<<<Blocks(context, a.n, kThreads / lanes), kThreads, 0, context.stream>>>(
        a.n, least, to.row_ptr.get(), entries.get(), values, to.cols.get(), to.values.get());
    CheckLaunch("RankKernel");
  };
  rank(RankKernel<kTeam, Value>, kTeam, 0);
  rank(RankKernel<32, Value>, 32, kRanked<kTeam>);
  rank(RankKernel<kThreads, Value>, kThreads, kRanked<32>);
}

}  // namespace

template <class Value>
ByRows<Value> SortByRows(Context& context, const PatternRef& a, int64_t nnz, const double* values) {
  ByRows<Value> to;
  to.row_ptr = Buffer<int64_t>(context, a.n + 1);
  to.cols = Buffer<int32_t>(context, nnz);
  to.row_ptr.Fill(0);
  CountKernel<<<Blocks(context, nnz, kThreads), kThreads, 0, context.stream>>>(
      a.row_idx, nnz, reinterpret_cast<Count*>(to.row_ptr.get()));
  CheckLaunch("CountKernel");
  Scan(context, to.row_ptr, a.n + 1);
  const Buffer<Survey> there(context, 1);
  there.Fill(0);
  SurveyKernel<<<Blocks(context, a.n, kThreads), kThreads, 0, context.stream>>>(to.row_ptr.get(),
                                                                                a.n, there.get());
  CheckLaunch("SurveyKernel");
  const Survey survey = Read(context, there, 0);
  if (survey.longest > kMostRanked || nnz > int64_t{UINT32_MAX} ||
      survey.pairs > static_cast<Count>(kMostPairs * nnz)) {
    SortAll(context, a, nnz, values, to);
  } else {
    SortEach(context, a, nnz, values, survey.longest, to);
  }
  return to;
}

template ByRows<double> SortByRows<double>(Context&, const PatternRef&, int64_t, const double*);
template ByRows<float> SortByRows<float>(Context&, const PatternRef&, int64_t, const double*);

Matrix Transpose(Context& context, const PatternRef& a, int64_t nnz, const double* values) {
  ByRows<double> rows = SortByRows<double>(context, a, nnz, values);
  Matrix to;
  to.n = a.n;
  to.nnz = nnz;
  to.col_ptr = std::move(rows.row_ptr);
  to.row_idx = std::move(rows.cols);
  to.values = std::move(rows.values);
  return to;
}

}  // namespace spaid::cuda
