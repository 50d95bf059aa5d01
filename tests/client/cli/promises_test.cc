// Holds spaidctl to what scripts rely on: every flag of every command with its default, and every
// key of its JSON, as tests/client/cli/golden has them. Additions are added there by hand.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <set>
#include <string>

#include "client/cli/app.h"
#include "client/cli/json.h"
#include "client/cli/solve_report.h"
#include "golden.h"
#include "tests/client/cli/json_keys.h"

namespace spaid::cli {
namespace {

// "solve --rtol R = 1e-08": the names of an option, its value's name and its default.
void AddFlags(const std::string& command, const CLI::App& app, std::set<std::string>* lines) {
  for (const CLI::Option* option : app.get_options()) {
    std::string line = command + " " + option->get_name(true, true);
    if (!option->get_type_name().empty()) line += " " + option->get_type_name();
    if (!option->get_envname().empty()) line += " $" + option->get_envname();
    if (option->get_required()) line += " (required)";
    if (!option->get_default_str().empty()) line += " = " + option->get_default_str();
    lines->insert(line);
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    AddFlags(command + " " + sub->get_name(), *sub, lines);
  }
}

TEST(PromisesTest, EveryFlagIsThereWithItsDefault) {
  Arguments args;
  const auto app = MakeApp(args);
  std::set<std::string> lines;
  AddFlags("spaidctl", *app, &lines);
  EXPECT_EQ(Lines(lines), kGoldenFlags);
}

Quality WholeQuality() {
  Quality quality;
  quality.residual_quantiles = {1, 2, 3, 4, 5, 6, 7, 8};
  quality.warnings = {"w"};
  quality.fsai.emplace().kaporin_by_step = {1};
  quality.dynamic_spai.emplace().residual_by_step = {1};
  quality.amg.emplace().levels.emplace_back();
  quality.petsc.emplace();
  return quality;
}

// With all that may be left out, and, as "bare", without it.
TEST(PromisesTest, EveryJsonKeyIsThere) {
  using nlohmann::json;
  std::set<std::string> lines;
  Error error;
  error.reason = "R";
  error.field = "f";
  error.retry_after = std::chrono::milliseconds(1);
  error.metadata = {{"limit", "1"}};
  AddKeys("error", ToJson(error), &lines);
  AddKeys("error.bare", ToJson(Error()), &lines);
  MatrixInfo matrix;
  matrix.diagnosis.findings = {"f"};
  AddKeys("matrix", ToJson(matrix), &lines);
  AddKeys("quality", ToJson(WholeQuality()), &lines);
  AddKeys("quality.bare", ToJson(Quality()), &lines);
  PreconditionerInfo preconditioner;
  preconditioner.quality = WholeQuality();
  preconditioner.parts.emplace_back().coefficients = {1};
  AddKeys("preconditioner", ToJson(preconditioner), &lines);
  for (const EngineTraits& traits : kEngines) {
    const Engine engine = traits.engine;
    PreconditionerSpec spec;
    spec.engine = engine;
    AddKeys("spec." + std::string(Name(engine)), ToJson(spec), &lines);
    spec.keep_tau = 0.5;
    spec.scaling = Scaling::kEquilibrate;
    spec.fsai.time_budget = std::chrono::seconds(1);
    AddKeys("spec." + std::string(Name(engine)), ToJson(spec), &lines);
  }
  JobInfo job;
  AddKeys("job.bare", ToJson(job), &lines);
  job.started = job.ended = job.created;
  job.devices = {"gpu:0"};
  job.stage = Stage::kBuild;
  job.error = error;
  job.outcomes.emplace_back().outcome = Outcome::kConverged;
  AddKeys("job", ToJson(job), &lines);
  AddKeys("estimate", ToJson(BuildEstimate()), &lines);
  ServerInfo server;
  server.devices.emplace_back();
  server.engines = {Engine::kNone};
  server.methods = {Method::kCg};
  server.estimate_ratios.emplace_back();
  AddKeys("server", ToJson(server), &lines);
  json timings = json::object();
  AddTimings(timings, Timings());
  AddKeys("timings", timings, &lines);

  SolveArgs args;
  SolveResult result;
  result.rhs.emplace_back().outcome = Outcome::kStagnated;
  result.rhs.front().history = {{0, 1, 0.5}};
  const auto report = [&](const std::optional<MatrixInfo>& info,
                          const std::optional<Error>& failed) {
    return SolveJson({.args = args, .result = result, .info = info, .diagnosis_error = failed});
  };
  AddKeys("solve.bare", report({}, {}), &lines);
  args.history = true;
  args.out = args.plot = "file";
  result.m_precision = Precision::kFp32;
  result.quality = WholeQuality();
  result.rungs.emplace_back();
  result.reuse.emplace();
  AddKeys("solve", report(matrix, {}), &lines);
  AddKeys("solve", report({}, error), &lines);
  EXPECT_EQ(Lines(lines), kGoldenKeys);
}

}  // namespace
}  // namespace spaid::cli
