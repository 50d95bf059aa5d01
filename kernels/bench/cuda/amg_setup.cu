#include <algorithm>
#include <array>
#include <vector>

#include "kernels/base/cuda/device.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/base/cuda/shared_memory.h"
#include "kernels/bench/cuda/amg_setup.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/sums.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::kernels::bench {
namespace {

using namespace cuda;
using namespace cuda::layout;
using cuda::Context;

constexpr int kRuns = 5;
constexpr int32_t kFree = -1;
constexpr int64_t kTooLong = 8192;

template <class Work>
double MedianMs(Context& context, const Work& work) {
  std::vector<double> ms;
  for (int run = 0; run < kRuns; ++run) {
    Stopwatch watch(context);
    work();
    ms.push_back(watch.Stop());
  }
  std::nth_element(ms.begin(), ms.begin() + kRuns / 2, ms.end());
  return ms[kRuns / 2];
}

// For each row of C the products that it sums.
__global__ void ProductsKernel(PatternRef a, PatternRef b, int64_t* products) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    int64_t sum = 0;
    for (int64_t p = a.col_ptr[i]; p < a.col_ptr[i + 1]; ++p) {
      const int32_t k = a.row_idx[p];
      sum += b.col_ptr[k + 1] - b.col_ptr[k];
    }
    products[i] = sum;
  }
}

// Lists the rows whose size is in (from, to].
__global__ void BinKernel(int64_t n, const int64_t* size, int64_t from, int64_t to, int32_t* list,
                          int32_t* count) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (size[i] > from && size[i] <= to) list[atomicAdd(count, 1)] = static_cast<int32_t>(i);
  }
}

__device__ uint32_t HashOf(int32_t column) { return static_cast<uint32_t>(column) * 2654435761u; }

// A table of kSlots for kLanes lanes that share a row of C.
template <int kLanes, int kSlots, bool kValues>
__global__ void __launch_bounds__(kThreads)
    RowsKernel(PatternRef a, const double* a_values, PatternRef b, const double* b_values,
               const int32_t* list, int32_t count, int64_t* entries, const int64_t* c_ptr,
               int32_t* c_cols, double* c_values) {
  constexpr int kRows = kThreads / kLanes;
  extern __shared__ double memory[];
  double* const all_values = memory;
  int32_t* const all_keys = reinterpret_cast<int32_t*>(memory + (kValues ? kRows * kSlots : 0));
  const int own = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const uint32_t mask = kLanes == 32
                            ? ~0u
                            : ((1u << (kLanes % 32)) - 1)
                                  << (static_cast<int>(threadIdx.x) % 32 / kLanes * kLanes);
  int32_t* const keys = all_keys + own * kSlots;
  double* const values = kValues ? all_values + own * kSlots : nullptr;
  const int64_t at = int64_t{blockIdx.x} * kRows + own;
  if (at >= count) return;
  const int32_t row = list[at];
  for (int s = lane; s < kSlots; s += kLanes) {
    keys[s] = kFree;
    if constexpr (kValues) values[s] = 0;
  }
  __syncwarp(mask);
  int fresh = 0;
  const int64_t end = a.col_ptr[row + 1];
  for (int64_t p = a.col_ptr[row]; p < end; ++p) {
    const int32_t k = a.row_idx[p];
    const double left = kValues ? a_values[p] : 0;
    for (int64_t q = b.col_ptr[k] + lane; q < b.col_ptr[k + 1]; q += kLanes) {
      const int32_t column = b.row_idx[q];
      uint32_t s = HashOf(column) % kSlots;
      while (true) {
        const int32_t found = atomicCAS(keys + s, kFree, column);
        if (found == kFree) ++fresh;
        if (found == kFree || found == column) break;
        s = (s + 1) % kSlots;
      }
      if constexpr (kValues) values[s] = fma(left, b_values[q], values[s]);
    }
    __syncwarp(mask);
  }
  if constexpr (!kValues) {
    for (int step = kLanes / 2; step > 0; step /= 2) fresh += __shfl_xor_sync(mask, fresh, step);
    if (lane == 0) entries[row] = fresh;
    return;
  }
  // To the front, lane by lane.
  int filled = 0;
  for (int begin = 0; begin < kSlots; begin += kLanes) {
    const int32_t key = keys[begin + lane];
    const double value = kValues ? values[begin + lane] : 0;
    const uint32_t some = __ballot_sync(mask, key != kFree) & mask;
    __syncwarp(mask);
    if (key != kFree) {
      const uint32_t before = some & ((1u << (threadIdx.x % 32)) - 1);
      keys[filled + __popc(before)] = key;
      if constexpr (kValues) values[filled + __popc(before)] = value;
    }
    filled += __popc(some);
    __syncwarp(mask);
  }
  const int64_t to = c_ptr[row];
  for (int e = lane; e < filled; e += kLanes) {
    const int32_t key = keys[e];
    int before = 0;
    for (int other = 0; other < filled; ++other) before += keys[other] < key ? 1 : 0;
    c_cols[to + before] = key;
    if constexpr (kValues) c_values[to + before] = values[e];
  }
}

struct Binned {
  Buffer<int32_t> list;
  std::array<int32_t, 8> begin = {}, count = {};
};

// Slots of the tables, of which at most half are used where sizes are entries.
constexpr std::array<int64_t, 7> kBins = {32, 64, 128, 512, 2048, 4096, kTooLong};

class SparseProduct {
 public:
  SparseProduct(Context& context, const CscView& a, const CscView& b)
      : context_(context),
        a_(UploadMatrix(context, a, a.values.data())),
        b_(UploadMatrix(context, b, b.values.data())),
        size_(context, a_.n + 1),
        ptr_(context, a_.n + 1) {
    lanes_ = b_.nnz < 6 * b_.n ? 4 : b_.nnz < 12 * b_.n ? 8 : b_.nnz < 24 * b_.n ? 16 : 32;
  }

  ProductTimes Run(CscMatrix* c) {
    ProductTimes times;
    times.count_ms = MedianMs(context_, [&] { times.fits = Count(&times.products); });
    if (!times.fits) return times;
    times.entries = Read(context_, ptr_, a_.n);
    cols_ = Buffer<int32_t>(context_, times.entries);
    values_ = Buffer<double>(context_, times.entries);
    times.values_ms = MedianMs(context_, [&] { times.fits = times.fits && Values(); });
    c->n_rows = b_.n;
    c->n_cols = a_.n;
    c->col_ptr.resize(static_cast<size_t>(a_.n) + 1);
    c->row_idx.resize(static_cast<size_t>(times.entries));
    c->values.resize(static_cast<size_t>(times.entries));
    ptr_.CopyOut(c->col_ptr.data(), a_.n + 1);
    cols_.CopyOut(c->row_idx.data(), times.entries);
    values_.CopyOut(c->values.data(), times.entries);
    context_.Synchronize();
    return times;
  }

 private:
  // Rows by sizes; a wait for the host, as a set-up would have one.
  Binned Bin() {
    Binned binned;
    binned.list = Buffer<int32_t>(context_, static_cast<int64_t>(kBins.size()) * a_.n);
    const Buffer<int32_t> count(context_, static_cast<int64_t>(kBins.size()));
    count.Fill(0);
    int64_t from = 0;
    for (size_t k = 0; k < kBins.size(); ++k) {
      BinKernel<<<Blocks(context_, a_.n, kThreads), kThreads, 0, context_.stream>>>(
          a_.n, size_.get(), from, kBins[k], binned.list.get() + static_cast<int64_t>(k) * a_.n,
          count.get() + k);
      CheckLaunch("BinKernel");
      from = kBins[k];
    }
    count.CopyOut(binned.count.data(), static_cast<int64_t>(kBins.size()));
    context_.Synchronize();
    return binned;
  }

  template <int kLanes, int kSlots, bool kValues>
  void Launch(const Binned& binned, size_t bin) {
    constexpr int kRows = kThreads / kLanes;
    constexpr int kBytes = kRows * kSlots * (4 + (kValues ? 8 : 0));
    if constexpr (kBytes <= 200 << 10) {
      const auto kernel = &RowsKernel<kLanes, kSlots, kValues>;
      AllowSharedMemory(context_, kernel, kBytes);
      const int32_t count = binned.count[bin];
      kernel<<<static_cast<unsigned>((count + kRows - 1) / kRows), kThreads, kBytes,
               context_.stream>>>(a_.pattern(), a_.values.get(), b_.pattern(), b_.values.get(),
                                  binned.list.get() + static_cast<int64_t>(bin) * a_.n, count,
                                  ptr_.get(), ptr_.get(), cols_.get(), values_.get());
      CheckLaunch("RowsKernel");
    } else {
      throw Failure(CudaFault::kError, "no table of so many slots for so many rows");
    }
  }
  template <bool kValues>
  bool LaunchAll(const Binned& binned) {
    // Slots are twice the entries, or the products.
    const auto bin = [&](auto lanes, auto slots, size_t k) {
      if (binned.count[k] > 0) Launch<lanes, slots, kValues>(binned, k);
    };
    const auto with = [&](auto lanes) {
      bin(lanes, std::integral_constant<int, 64>{}, 0);
      bin(lanes, std::integral_constant<int, 128>{}, 1);
      bin(lanes, std::integral_constant<int, 256>{}, 2);
    };
    switch (lanes_) {
      case 4: {
        bin(std::integral_constant<int, 4>{}, std::integral_constant<int, 64>{}, 0);
        bin(std::integral_constant<int, 4>{}, std::integral_constant<int, 128>{}, 1);
        bin(std::integral_constant<int, 8>{}, std::integral_constant<int, 256>{}, 2);
        break;
      }
      case 8:
        with(std::integral_constant<int, 8>{});
        break;
      case 16:
        with(std::integral_constant<int, 16>{});
        break;
      default:
        with(std::integral_constant<int, 32>{});
    }
    using Warp = std::integral_constant<int, 32>;
    bin(Warp{}, std::integral_constant<int, 1024>{}, 3);
    for (size_t k = 4; k < kBins.size(); ++k) {
      if (binned.count[k] == 0) continue;
      // More numbers of entries fit than values.
      if constexpr (kValues) {
        if (k > 4) return false;
        Launch<32, 2048, true>(binned, k);
      } else {
        if (k == 4) Launch<32, 4096, false>(binned, k);
        if (k == 5) Launch<32, 4096, false>(binned, k);
        if (k > 5) return false;
      }
    }
    return true;
  }

  bool Count(int64_t* products) {
    ProductsKernel<<<Blocks(context_, a_.n, kThreads), kThreads, 0, context_.stream>>>(
        a_.pattern(), b_.pattern(), size_.get());
    CheckLaunch("ProductsKernel");
    ptr_.Fill(0);
    const bool fits = LaunchAll<false>(Bin());
    Copy(context_, ptr_, size_, a_.n);
    cuda::Scan(context_, ptr_, a_.n + 1);
    if (*products == 0) {
      const Buffer<int64_t> all(context_, a_.n + 1);
      ProductsKernel<<<Blocks(context_, a_.n, kThreads), kThreads, 0, context_.stream>>>(
          a_.pattern(), b_.pattern(), all.get());
      CheckLaunch("ProductsKernel");
      cuda::Scan(context_, all, a_.n + 1);
      *products = Read(context_, all, a_.n);
    }
    return fits;
  }
  bool Values() { return LaunchAll<true>(Bin()); }

  Context& context_;
  const Matrix a_, b_;
  int lanes_ = 4;
  Buffer<int64_t> size_, ptr_;
  Buffer<int32_t> cols_;
  Buffer<double> values_;
};

__device__ uint64_t KeyOf(int64_t i) {
  uint64_t h = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ULL;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
  return (h >> 33 << 32 | static_cast<uint64_t>(i)) + 1;
}

// Keys: of the undecided their own, 0 of roots, the largest number of those that are out.
constexpr uint64_t kOut = ~uint64_t{0};

__global__ void KeysKernel(PatternRef graph, uint64_t* key) {
  for (int64_t i = ThreadOfGrid(); i < graph.n; i += ThreadsOfGrid()) {
    key[i] = graph.col_ptr[i] == graph.col_ptr[i + 1] ? kOut : KeyOf(i);
  }
}
__global__ void __launch_bounds__(kThreads)
    NearestKernel(PatternRef graph, const uint64_t* __restrict__ key,
                  uint64_t* __restrict__ least) {
  for (int64_t i = ThreadOfGrid(); i < graph.n; i += ThreadsOfGrid()) {
    uint64_t own = key[i];
    for (int64_t p = graph.col_ptr[i]; p < graph.col_ptr[i + 1]; ++p) {
      own = min(own, key[graph.row_idx[p]]);
    }
    least[i] = own;
  }
}
__global__ void __launch_bounds__(kThreads)
    DecideKernel(PatternRef graph, const uint64_t* __restrict__ least, uint64_t* key,
                 int32_t* undecided) {
  for (int64_t i = ThreadOfGrid(); i < graph.n; i += ThreadsOfGrid()) {
    const uint64_t mine = key[i];
    if (mine == 0 || mine == kOut) continue;
    uint64_t own = least[i];
    for (int64_t p = graph.col_ptr[i]; p < graph.col_ptr[i + 1]; ++p) {
      own = min(own, least[graph.row_idx[p]]);
    }
    if (own == 0) {
      key[i] = kOut;
    } else if (own == mine) {
      key[i] = 0;
    } else {
      *undecided = 1;
    }
  }
}
__global__ void RootsKernel(int64_t n, const uint64_t* key, int32_t* roots) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    if (key[i] == 0) atomicAdd(roots, 1);
  }
}

__global__ void __launch_bounds__(kSumThreads) BarriersKernel(int count, SumSpace space) {
  __shared__ unsigned barriers;
  if (threadIdx.x == 0) barriers = 0;
  __syncthreads();
  space.barriers = &barriers;
  for (int i = 0; i < count; ++i) GridBarrier(space);
}

}  // namespace

Result<ProductTimes> TimeSparseProduct(CudaDevice& device, const CscView& a, const CscView& b,
                                       CscMatrix* c) {
  ProductTimes times;
  const auto lock = device.Lock();
  const Status status =
      Guard(device, [&](Context& context) { times = SparseProduct(context, a, b).Run(c); });
  if (!status.ok()) return status;
  return times;
}

Result<SetTimes> TimeIndependentSet(CudaDevice& device, const PatternView& graph) {
  SetTimes times;
  const auto lock = device.Lock();
  const Status status = Guard(device, [&](Context& context) {
    const Matrix there = UploadMatrix(context, graph, nullptr);
    const int blocks = Blocks(context, there.n, kThreads);
    const Buffer<uint64_t> key(context, there.n), least(context, there.n);
    const Buffer<int32_t> flag(context, 1);
    times.ms = MedianMs(context, [&] {
      KeysKernel<<<blocks, kThreads, 0, context.stream>>>(there.pattern(), key.get());
      times.rounds = 0;
      for (int32_t left = 1; left != 0;) {
        flag.Fill(0);
        for (int two = 0; two < 2; ++two, ++times.rounds) {
          if (two == 1) flag.Fill(0);
          NearestKernel<<<blocks, kThreads, 0, context.stream>>>(there.pattern(), key.get(),
                                                                 least.get());
          DecideKernel<<<blocks, kThreads, 0, context.stream>>>(there.pattern(), least.get(),
                                                                key.get(), flag.get());
          CheckLaunch("DecideKernel");
        }
        left = Read(context, flag, 0);
      }
    });
    flag.Fill(0);
    RootsKernel<<<blocks, kThreads, 0, context.stream>>>(there.n, key.get(), flag.get());
    times.roots = Read(context, flag, 0);
  });
  if (!status.ok()) return status;
  return times;
}

Result<double> TimeGridBarrier(CudaDevice& device) {
  constexpr int kCount = 1000;
  double us = 0;
  const auto lock = device.Lock();
  const Status status = Guard(device, [&](Context& context) {
    const Buffer<unsigned> arrived(context, 2);
    us = 1e3 / kCount * MedianMs(context, [&] {
           arrived.Fill(0);
           SumSpace space{nullptr, arrived.get()};
           int count = kCount;
           void* arguments[] = {&count, &space};
           Check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&BarriersKernel),
                                             dim3(static_cast<unsigned>(context.multiprocessors)),
                                             dim3(kSumThreads), arguments, 0, context.stream),
                 "cudaLaunchCooperativeKernel");
         });
  });
  if (!status.ok()) return status;
  return us;
}

}  // namespace spaid::kernels::bench
