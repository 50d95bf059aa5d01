#include "kernels/bench/cuda/times.h"
#include "kernels/bench/cuda/yardsticks.h"

namespace spaid::kernels::bench {

double DeviceCopyBytesPerSecond() {
  constexpr size_t kBytes = size_t{1} << 30;
  Calls call;
  void *from = nullptr, *to = nullptr;
  call(cudaMalloc(&from, kBytes));
  call(cudaMalloc(&to, kBytes));
  double ms = 0;
  if (call.failure().empty()) {
    ms = MedianMs(11, call, [&] {
      call(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, nullptr));
    });
  }
  cudaFree(from);
  cudaFree(to);
  return call.failure().empty() ? 2e3 * static_cast<double>(kBytes) / ms : 0;
}

}  // namespace spaid::kernels::bench
