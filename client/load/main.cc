// spaid-load: parse, make the matrices, connect, run, report.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/cli/interrupt.h"
#include "client/cli/output.h"
#include "client/cli/terminal.h"
#include "client/load/app.h"
#include "client/load/report.h"

namespace spaid::load {
namespace {

using cli::ExitCode;

Error LocalError(const char* reason, std::string message) {
  Error error;
  error.code = Code::kInvalidArgument;
  error.reason = reason;
  error.message = std::move(message);
  return error;
}

ExitCode Main(int argc, char** argv) {
  LoadOptions options;
  if (const auto leave = ParseCommandLine(argc, argv, options)) return *leave;
  const cli::Output out(options.global);
  if (options.daemon_pid > 0 && ResidentMib(options.daemon_pid) < 0) {
    return out.Fail(LocalError(
        "NO_PROCESS",
        "there is no process " + std::to_string(options.daemon_pid) + " whose memory can be read"));
  }
  const bool to_file = !options.json_file.empty() && !options.global.json;
  std::ofstream file;  // a long run must not end with a file that nobody can write
  if (to_file) {
    file.open(options.json_file);
    if (!file) {
      return out.Fail(LocalError("UNWRITABLE_FILE", options.json_file + " cannot be written"));
    }
  }
  cli::Interrupt::Install("spaid-load");
  auto workload = Workload::Make(options);
  if (!workload.ok()) return out.Fail(workload.error());
  auto tenants = [&] {
    const cli::Interrupt::Guard guard("stopping");
    return Connect(options, cli::Interrupt::Token());
  }();
  if (!tenants.ok()) return out.Fail(tenants.error());

  MemoryTrack memory;
  const bool shows = !options.global.json && !options.global.quiet && isatty(STDERR_FILENO) == 1 &&
                     cli::TakesEscapes();
  cli::LiveLines lines(stderr);
  Runner runner(options, *workload, *tenants);
  const RunResult result = [&] {
    const cli::Interrupt::Guard guard("ending the run; the report follows");
    return runner.Run(cli::Interrupt::Token(), [&](const Tally& tally, double seconds) {
      if (shows) lines.Draw({ProgressLine(options, tally, seconds)});
      if (options.daemon_pid > 0 && tally.jobs > 0) {
        const double mib = ResidentMib(options.daemon_pid);
        if (mib >= 0) memory.Add(tally.jobs, mib);
      }
    });
  }();
  if (shows) lines.Erase();

  const Report report{.options = options, .result = result, .memory = memory};
  const nlohmann::ordered_json object = ReportJson(report);
  if (options.global.json) {
    out.PrintJson(object);
  } else {
    out.Print(ReportText(report, out.color()));
  }
  if (to_file && !(file << object.dump(2) << std::endl)) {
    return out.Fail(LocalError("UNWRITABLE_FILE", options.json_file + " was not written"));
  }
  return out.Finish(CodeOf(report));
}

}  // namespace
}  // namespace spaid::load

int main(int argc, char** argv) { return static_cast<int>(spaid::load::Main(argc, argv)); }
