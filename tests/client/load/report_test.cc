#include "client/load/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace spaid::load {
namespace {

using cli::ExitCode;
using ::testing::HasSubstr;

Record Solved(double ms) {
  Record record;
  record.work = "poisson:4 jacobi";
  record.tenant = "default";
  record.job_ms = ms;
  record.upload_ms = ms / 4;
  record.solve_ms = ms / 2;
  record.timings.solve_ms = ms / 8;
  record.bytes_up = 100;
  return record;
}

Record Failed(Code code, const char* reason) {
  Record record = Solved(1);
  Error& error = record.error.emplace();
  error.code = code;
  error.reason = reason;
  return record;
}

class ReportTest : public ::testing::Test {
 protected:
  ExitCode Left() const { return CodeOf({options, result, memory}); }
  LoadOptions options;
  RunResult result{.tally = {}, .wall_s = 2, .interrupted = false};
  MemoryTrack memory;
};

TEST_F(ReportTest, AddsUp) {
  Tally& t = result.tally;
  for (int k = 1; k <= 10; ++k) t.Add(Solved(k));
  t.Add(Failed(Code::kResourceExhausted, "QUEUE_FULL"));
  t.Add(Failed(Code::kInternal, ""));
  Record limited = Solved(3);
  limited.outcome = Outcome::kMaxIterations;
  t.Add(limited);
  const auto json = ReportJson({options, result, memory});
  EXPECT_EQ(json["jobs"], 13);
  EXPECT_EQ(json["succeeded"], 11);
  EXPECT_EQ(json["failed"], 2);
  EXPECT_EQ(json["jobs_per_s"], 5.5);
  EXPECT_EQ(json["errors"]["QUEUE_FULL"], 1);
  EXPECT_EQ(json["errors"]["INTERNAL"], 1);
  EXPECT_EQ(json["outcomes"]["CONVERGED"], 10);
  EXPECT_EQ(json["outcomes"]["MAX_ITERATIONS"], 1);
  EXPECT_EQ(json["latency"]["job"]["count"], 11);  // failures are in no latency
  EXPECT_EQ(json["latency"]["job"]["max_ms"], 10);
  EXPECT_EQ(json["latency"]["upload"]["max_ms"], 2.5);
  EXPECT_EQ(json["latency"]["build"]["count"], 0);
  EXPECT_EQ(json["by_work"]["poisson:4 jacobi"]["errors"], 2);
  EXPECT_EQ(json["mb_per_s_up"], 13 * 100 / 1e6 / 2);
  EXPECT_FALSE(json.contains("daemon_memory"));
  const std::string text = ReportText({options, result, memory}, false);
  EXPECT_THAT(text, HasSubstr("1 INTERNAL, 1 QUEUE_FULL"));
  EXPECT_THAT(text, HasSubstr("10 CONVERGED, 1 MAX_ITERATIONS"));
}

TEST_F(ReportTest, LeavesByWhatWasNotExpected) {
  EXPECT_EQ(Left(), ExitCode::kError);  // nothing was measured
  result.interrupted = true;
  EXPECT_EQ(Left(), ExitCode::kOk);
  result.tally.Add(Solved(1));
  EXPECT_EQ(Left(), ExitCode::kOk);
  Record limited = Solved(1);
  limited.outcome = Outcome::kMaxIterations;
  result.tally.Add(limited);
  EXPECT_EQ(Left(), ExitCode::kNotConverged);
  options.expect = {"MAX_ITERATIONS"};
  EXPECT_EQ(Left(), ExitCode::kOk);
  result.tally.Add(Failed(Code::kResourceExhausted, "QUEUE_FULL"));
  EXPECT_EQ(Left(), ExitCode::kError);
  options.expect.emplace_back("QUEUE_FULL");
  EXPECT_EQ(Left(), ExitCode::kOk);
}

}  // namespace
}  // namespace spaid::load
