#include "server/base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spaid::server {
namespace {

using testing::HasSubstr;

TEST(MetricsTest, CountsWhatHappened) {
  Metrics metrics;
  metrics.JobSubmitted("build");
  metrics.JobEnded("build", "failed", "MAX_RUN", 0.5, 2);
  metrics.RpcStarted("SolverService/Solve");
  metrics.RpcEnded("SolverService/Solve", "OK", "", 0.01);
  metrics.SolveEnded("cg", "converged", 42, 0.1);
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("spaid_jobs_submitted_total{kind=\"build\"} 1"));
  EXPECT_THAT(text, HasSubstr("state=\"failed\""));
  EXPECT_THAT(text, HasSubstr("reason=\"MAX_RUN\""));
  EXPECT_THAT(text, HasSubstr("spaid_rpcs_live{method=\"SolverService/Solve\"} 0"));
  // A bucket of the fixed set: 42 iterations are over 30 and not over 100.
  EXPECT_THAT(text, HasSubstr("spaid_solve_iterations_bucket{method=\"cg\",le=\"30\"} 0"));
  EXPECT_THAT(text, HasSubstr("spaid_solve_iterations_bucket{method=\"cg\",le=\"100\"} 1"));
}

TEST(MetricsTest, TenantsTimeIsACounter) {
  Metrics metrics;
  metrics.SetTenantTime("alice", 1.25);
  metrics.SetTenantTime("", 7);
  EXPECT_THAT(metrics.Serialize(),
              HasSubstr("spaid_tenant_device_seconds_total{tenant=\"alice\"} 1.25"));
  metrics.SetTenantTime("alice", 2.5);
  metrics.SetTenantTime("alice", 2);  // told late: a counter does not fall
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("spaid_tenant_device_seconds_total{tenant=\"alice\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("spaid_tenant_device_seconds_total{tenant=\"\"} 7"));
}

TEST(MetricsTest, SumsForPeople) {
  Metrics metrics;
  metrics.JobEnded("build", "failed", "MAX_RUN", 0.5, 2);
  metrics.JobEnded("solve", "failed", "MAX_RUN", 0.5, 2);
  metrics.JobEnded("solve", "succeeded", "", 0.5, 2);
  metrics.JobRefused("solve", "QUEUE_FULL");
  metrics.Columns("rescued", 7);
  metrics.SolveEnded("cg", "converged", 42, 0.1);
  metrics.BytesReceived(640);
  metrics.Rebuild();
  const Metrics::Totals totals = metrics.totals();
  using Sums = std::map<std::string, int64_t>;
  EXPECT_EQ(totals.jobs_by_state, (Sums{{"failed", 2}, {"succeeded", 1}}));
  EXPECT_EQ(totals.jobs_by_reason, (Sums{{"MAX_RUN", 2}}));
  EXPECT_EQ(totals.refused, (Sums{{"QUEUE_FULL", 1}}));
  EXPECT_EQ(totals.columns, (Sums{{"rescued", 7}}));
  EXPECT_EQ(totals.outcomes, (Sums{{"converged", 1}}));
  EXPECT_EQ(totals.bytes_received, 640);
  EXPECT_EQ(totals.rebuilds, 1);
  EXPECT_EQ(totals.shared, 0);
}

TEST(MetricsTest, AsksTheStoresWhenItIsScraped) {
  Metrics metrics;
  int64_t evictions = 3;
  metrics.OnScrape(
      [&] { metrics.SetStore("matrices", {.entries = 2, .bytes = 640, .evictions = evictions}); });
  EXPECT_THAT(metrics.Serialize(), HasSubstr("spaid_store_evictions_total{store=\"matrices\"} 3"));
  evictions = 5;
  const std::string text = metrics.Serialize();
  EXPECT_THAT(text, HasSubstr("spaid_store_evictions_total{store=\"matrices\"} 5"));
  EXPECT_THAT(text, HasSubstr("spaid_store_bytes{store=\"matrices\"} 640"));
}

}  // namespace
}  // namespace spaid::server
