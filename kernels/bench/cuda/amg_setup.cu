#include <algorithm>
#include <vector>

#include "kernels/base/cuda/device.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/bench/cuda/amg_setup.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/sums.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::kernels::bench {
namespace {

using namespace cuda;
using namespace cuda::layout;
using cuda::Context;

constexpr int kRuns = 5;

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
                                       RowOrder order, CscMatrix* c) {
  ProductTimes times;
  const auto lock = device.Lock();
  const Status status = Guard(device, [&](Context& context) {
    const RowMatrix left = UploadRows(context, a, a.values.data());
    const RowMatrix right = UploadRows(context, b, b.values.data());
    RowMatrix made;
    times.whole_ms = MedianMs(context, [&] { made = Multiply(context, left, right, order); });
    times.values_ms = MedianMs(context, [&] { MultiplyOn(context, left, right, made); });
    *c = DownloadRows(context, Multiply(context, left, right));
  });
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
