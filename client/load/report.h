// Reports on a run: a table for people, JSON for scripts, an exit code.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "client/cli/arguments.h"
#include "client/load/memory.h"
#include "client/load/options.h"
#include "client/load/runner.h"

namespace spaid::load {

struct Report {
  const LoadOptions& options;
  const RunResult& result;
  const MemoryTrack& memory;
};

std::string ReportText(const Report& report, bool color);
// Returns the report as JSON. Its keys are a promise to scripts: they are added to, not changed.
nlohmann::ordered_json ReportJson(const Report& report);
// Returns kError if a job failed for a reason that --expect does not name, or none was measured;
// kNotConverged if a solve had such an outcome.
cli::ExitCode CodeOf(const Report& report);

// Returns one line about the state of a run.
std::string ProgressLine(const LoadOptions& options, const Tally& tally, double seconds);

}  // namespace spaid::load
