#include "kernels/bench/cuda_bench.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/bench/support.h"
#include "kernels/sparse/csc_cuda.h"

namespace spaid::kernels::bench {

void OrDie(int32_t result, const char* message) {
  if (result == kSpaidCudaOk) return;
  std::fprintf(stderr, "spaid_bench: %s\n", message);
  std::exit(1);
}

const std::shared_ptr<CudaDevice>& Device() {
  static const std::shared_ptr<CudaDevice> device =
      Must(CudaDevice::Open(ListCudaDevices().devices[0], 0));
  return device;
}

SpaidCudaMatrix* Upload(SpaidCudaContext* context, const CscView& a) {
  char message[kCudaMessageBytes] = "";
  const SpaidCudaCsc csc = CudaCsc(a);
  SpaidCudaMatrix* matrix = nullptr;
  OrDie(Device()->api().upload_matrix(context, &csc, &matrix, message, sizeof(message)), message);
  return matrix;
}

}  // namespace spaid::kernels::bench
