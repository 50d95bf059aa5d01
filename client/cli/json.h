// The JSON that --json prints. Key names are a promise to scripts: they are added to, not changed.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "client/cpp/spaid/types.h"

namespace spaid::cli {

nlohmann::json ToJson(const Error& error);
nlohmann::json ToJson(const MatrixInfo& info);
nlohmann::json ToJson(const Quality& quality);
nlohmann::json ToJson(const PreconditionerSpec& spec);
nlohmann::json ToJson(const PreconditionerInfo& info);
nlohmann::json ToJson(const JobInfo& job);
nlohmann::json ToJson(const JobInfo::RhsOutcome& outcome);
nlohmann::json ToJson(const Rung& rung);
nlohmann::json ToJson(const BuildEstimate& estimate);
nlohmann::json ToJson(const ServerInfo& info);
nlohmann::json ToJson(const SolveFigures& figures);
nlohmann::json ToJson(const Reuse& reuse);
// setup_ms (plan + build) and every phase by itself, bytes, rebuild, reused; merged into `object`.
void AddTimings(nlohmann::json& object, const Timings& timings);

}  // namespace spaid::cli
