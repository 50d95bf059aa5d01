// The daemon over the fake engine: $SPAID_FAKE_DEVICES ("cpu", "gpu", "cpu,gpu") are its devices,
// and the GPU is lost by the first build on it.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "server/flags.h"
#include "server/ops/signals.h"
#include "server/serve.h"
#include "tests/server/fake_engine.h"

int main(int argc, char** argv) {
  using namespace spaid::server;  // NOLINT(google-build-using-namespace)
  const char* named = std::getenv("SPAID_FAKE_DEVICES");
  const std::string devices = named == nullptr ? "cpu" : named;
  std::vector<spaid::kernels::DeviceInfo> infos;
  if (devices.find("cpu") != std::string::npos) infos.push_back(FakeCpu());
  const int gpu = static_cast<int>(infos.size());
  const bool has_gpu = devices.find("gpu") != std::string::npos;
  if (has_gpu) infos.push_back(FakeGpu(0));
  FakeEngine engine(std::move(infos));
  if (has_gpu) engine.BreakDevice(gpu);

  const ParsedFlags parsed = ParseFlags(argc, argv, spaid::kernels::UsableMemoryBytes());
  if (parsed.exit_code) return *parsed.exit_code;
  ShutdownSignals signals;
  const absl::Status status = Serve(parsed.flags, engine, signals);
  if (!status.ok()) {
    std::fprintf(stderr, "spaid: [%s] %s\n", ReasonOf(status).c_str(),
                 std::string(status.message()).c_str());
  }
  return status.ok() ? 0 : 1;
}
