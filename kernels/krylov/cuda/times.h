// Times work on a context's stream by the device's clock. For .cu files.
#pragma once

#include <vector>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// Holds the stream for a while, so that the host has launched all that is timed before it begins;
// else the time between two events would include the host's time for a launch.
static __global__ void HoldKernel(int64_t ns) {
  const auto now = [] {
    int64_t t = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  };
  const int64_t begin = now();
  while (now() - begin < ns) __nanosleep(1000);
}

class Events {
 public:
  explicit Events(int count) : events_(static_cast<size_t>(count)) {
    for (cudaEvent_t& event : events_) Check(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~Events() {
    for (const cudaEvent_t event : events_) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  cudaEvent_t operator[](int i) const { return events_[static_cast<size_t>(i)]; }

 private:
  std::vector<cudaEvent_t> events_;
};

// Milliseconds of work(i) for each i < count, launched one after the other behind HoldKernel;
// `count` is small enough that the stream takes them all without making the host wait. Waits.
template <class Work>
std::vector<double> TimeEach(const Context& context, int count, const Work& work) {
  const Events begin(count), end(count);
  HoldKernel<<<1, 1, 0, context.stream>>>(int64_t{15000} * count);
  CheckLaunch("HoldKernel");
  for (int i = 0; i < count; ++i) {
    Check(cudaEventRecord(begin[i], context.stream), "cudaEventRecord");
    work(i);
    Check(cudaEventRecord(end[i], context.stream), "cudaEventRecord");
  }
  context.Synchronize();
  std::vector<double> ms;
  for (int i = 0; i < count; ++i) {
    float one = 0;
    Check(cudaEventElapsedTime(&one, begin[i], end[i]), "cudaEventElapsedTime");
    ms.push_back(one);
  }
  return ms;
}

}  // namespace spaid::cuda
