// What the yardsticks on a CUDA device share: calls that may fail, and times.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/krylov/cuda/times.h"

namespace spaid::kernels::bench {

// The first failure of a chain of calls.
class Calls {
 public:
  void operator()(cudaError_t error) { (*this)(error == cudaSuccess, cudaGetErrorString(error)); }
  void operator()(bool ok, const std::string& why) {
    if (!ok && failure_.empty()) failure_ = why;
  }
  const std::string& failure() const { return failure_; }

 private:
  std::string failure_;
};

// The median time of `work`, each alone, on this stream; before each `between`, which is not timed.
template <class Between, class Work>
double MedianMs(int count, Calls& call, cudaStream_t stream, const Between& between,
                const Work& work) {
  for (int i = 0; i < 3; ++i) {
    between();
    work();
  }
  call(cudaStreamSynchronize(stream));
  std::vector<cudaEvent_t> begin(static_cast<size_t>(count)), end(begin.size());
  for (size_t i = 0; i < begin.size(); ++i) {
    call(cudaEventCreate(&begin[i]));
    call(cudaEventCreate(&end[i]));
  }
  // For as long as the host takes to launch the lot.
  spaid::cuda::HoldKernel<<<1, 1, 0, stream>>>(int64_t{25000} * count);
  for (size_t i = 0; i < begin.size(); ++i) {
    between();
    call(cudaEventRecord(begin[i], stream));
    work();
    call(cudaEventRecord(end[i], stream));
  }
  call(cudaStreamSynchronize(stream));
  std::vector<float> ms(begin.size());
  for (size_t i = 0; i < begin.size(); ++i) {
    call(cudaEventElapsedTime(&ms[i], begin[i], end[i]));
    call(cudaEventDestroy(begin[i]));
    call(cudaEventDestroy(end[i]));
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

// The same on the default stream, with nothing between.
template <class Work>
double MedianMs(int count, Calls& call, const Work& work) {
  return MedianMs(
      count, call, nullptr, [] {}, work);
}

}  // namespace spaid::kernels::bench
