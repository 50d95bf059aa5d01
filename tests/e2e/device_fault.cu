// Preloaded into a daemon: breaks its first GPU for good when the file $SPAID_FAULT_FILE is there,
// by what it says, and removes the file then. "trap": a kernel fails, and with it all that the
// process has there; "hang": kernels that go on and on leave no room for any other.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

__global__ void Trap() { asm("trap;"); }

// A minute: for the daemon no end, and no card is left spinning by a test that failed.
__global__ void Spin() {
  for (long i = 0; i < 60'000'000; ++i) __nanosleep(1000);
}

void Break(const std::string& fault) {
  cudaSetDevice(0);
  if (fault == "trap") {
    Trap<<<1, 1>>>();
    cudaDeviceSynchronize();
    return;
  }
  int processors = 0, threads = 0;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, 0);
  cudaStream_t apart = nullptr;
  cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking);
  Spin<<<processors*(threads / 1024), 1024, 0, apart>>>();
  cudaStreamQuery(apart);
}

[[maybe_unused]] const bool started = [] {
  const char* const file = std::getenv("SPAID_FAULT_FILE");
  if (file == nullptr) return false;
  std::thread([path = std::filesystem::path(file)] {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      std::string fault;
      if (!(std::ifstream(path) >> fault)) continue;
      Break(fault);
      std::filesystem::remove(path);
    }
  }).detach();
  return true;
}();

}  // namespace
