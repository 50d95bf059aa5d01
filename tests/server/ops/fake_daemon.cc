// The daemon over the fake engine: $SPAID_FAKE_DEVICES ("cpu", "gpu", "cpu,gpu") are its devices.
// The last of them is lost by the first build on it where that is a GPU, or, where
// $SPAID_FAKE_FAULT is "hangs", whatever it is, that build never ends.
#include <cstdlib>
#include <string>
#include <vector>

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
  const int last = static_cast<int>(infos.size()) - 1;
  FakeEngine engine(std::move(infos));
  const char* fault = std::getenv("SPAID_FAKE_FAULT");
  if (fault != nullptr && std::string(fault) == "hangs") {
    engine.HangDevice(last);
  } else if (has_gpu) {
    engine.BreakDevice(gpu);
  }

  const ParsedFlags parsed = ParseFlags(argc, argv, spaid::kernels::UsableMemoryBytes());
  if (parsed.exit_code) return *parsed.exit_code;
  ShutdownSignals signals;
  return ReportEnd(Serve(parsed.flags, engine, signals));
}
