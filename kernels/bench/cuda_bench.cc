#include "kernels/bench/cuda_bench.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/bench/support.h"

namespace spaid::kernels::bench {

void OrDie(const std::string& failed) {
  if (failed.empty()) return;
  std::fprintf(stderr, "spaid_bench: %s\n", failed.c_str());
  std::exit(1);
}

void OrDie(const Status& status) { OrDie(status.message()); }

const std::shared_ptr<CudaDevice>& Device() {
  static const std::shared_ptr<CudaDevice> device =
      Must(CudaDevice::Open(ListCudaDevices().devices[0], 0));
  return device;
}

std::unique_ptr<CudaMatrix> Upload(CudaContext& context, const CscView& a) {
  return Must(context.UploadMatrix(a, a.values));
}

}  // namespace spaid::kernels::bench
