// spaid_bench: the numerics' benchmarks. JSON by --benchmark_format=json or --benchmark_out=FILE.

#include <benchmark/benchmark.h>

#include <string>

#include "kernels/base/device.h"
#include "kernels/base/memory.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const spaid::kernels::DeviceInfo cpu = spaid::kernels::CpuDevice();
  benchmark::AddCustomContext("device", cpu.name);
  benchmark::AddCustomContext("device_threads", std::to_string(cpu.threads));
  const spaid::kernels::CudaDevices& cuda = spaid::kernels::ListCudaDevices();
  benchmark::AddCustomContext("cuda", cuda.status);
  if (cuda.available) benchmark::AddCustomContext("cuda_device", cuda.devices[0].name);
  spaid::kernels::KeepFreedMemory();  // as the daemon does
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
