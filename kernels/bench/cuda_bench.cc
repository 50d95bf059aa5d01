#include "kernels/bench/cuda_bench.h"

#include <cstdio>
#include <cstdlib>

namespace spaid::kernels::bench {

void OrDie(int32_t result, const char* message) {
  if (result == kSpaidCudaOk) return;
  std::fprintf(stderr, "spaid_bench: %s\n", message);
  std::exit(1);
}

const std::shared_ptr<CudaDevice>& Device() {
  static const std::shared_ptr<CudaDevice> device = [] {
    auto opened = CudaDevice::Open(ListCudaDevices().devices[0], 0);
    if (!opened.ok()) OrDie(kSpaidCudaError, opened.status().message().c_str());
    return *opened;
  }();
  return device;
}

}  // namespace spaid::kernels::bench
