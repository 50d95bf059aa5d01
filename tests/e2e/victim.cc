#include "tests/e2e/victim.h"

#include <signal.h>
#include <spaid/client.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

constexpr std::string_view kFlag = "--be-a-victim";

// Dies once `stage` has transferred something.
CallOptions DieAmid(Stage stage) {
  return {.on_progress = [stage](const Progress& progress) {
    if (progress.kind != Progress::Kind::kTransfer || progress.stage != stage) return;
    const bool amid = stage == Stage::kUpload ? progress.done > progress.total / 2  // not digests
                                              : progress.done > 0;
    if (amid) kill(getpid(), SIGKILL);
  }};
}

}  // namespace

Ran RunVictim(const Daemon& daemon, const std::string& mode, const std::string& of) {
  return RunProgram({std::filesystem::read_symlink("/proc/self/exe").string(), std::string(kFlag),
                     daemon.address(), mode, of});
}

bool IsVictim(int argc, char** argv) { return argc == 5 && argv[1] == kFlag; }

int BeVictim(char** argv) {
  const std::string mode = argv[3], of = argv[4];
  Client client({.address = argv[2], .chunk_bytes = 64 << 10});
  if (mode == "upload") {
    (void)client.Upload(Band(16 << 20), "", DieAmid(Stage::kUpload));
  } else if (mode == "download") {
    (void)client.Download(of, DieAmid(Stage::kDownload));
  } else if (mode == "solve") {
    const auto matrix = client.GetMatrix(of);
    if (!matrix.ok()) return 1;
    const std::vector<double> b(static_cast<size_t>(4 * matrix->n), 1.0);
    (void)client.Solve(of, b, {.engine = Engine::kNone, .max_iterations = 2},
                       DieAmid(Stage::kDownload));
  } else {
    (void)client.Build(ConvectionDiffusion(120, 110, 0.3),
                       {.pattern_power = 4, .local_solver = LocalSolver::kQr}, false,
                       {.on_progress = [](const Progress& progress) {
                         if (progress.kind == Progress::Kind::kStarted) kill(getpid(), SIGKILL);
                       }});
  }
  return 1;  // it was meant to die
}

}  // namespace spaid::e2e
