#include "server/ops/health.h"

#include <gtest/gtest.h>

#include "tests/server/ops/health_check.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

using testing::Check;

TEST(HealthBoard, ReadinessFollowsLivenessStays) {
  Harness h;
  HealthBoard board(h.server->health(), RpcServer::ServiceNames());
  EXPECT_EQ(Check(h.channel, "liveness"), 1);
  EXPECT_EQ(Check(h.channel, "readiness"), 2);
  board.SetReady(true);
  for (const char* name :
       {"", "readiness", "liveness", "spaid.v1.SolverService", "spaid.v1.MatrixService",
        "spaid.v1.PreconditionerService", "spaid.v1.JobService", "spaid.v1.ServerService"}) {
    EXPECT_EQ(Check(h.channel, name), 1) << name;
  }
  EXPECT_EQ(Check(h.channel, "nobody"), -1);
  board.SetReady(false);  // draining
  EXPECT_EQ(Check(h.channel, "spaid.v1.SolverService"), 2);
  EXPECT_EQ(Check(h.channel, ""), 2);
  EXPECT_EQ(Check(h.channel, "liveness"), 1);
  h.ExpectLives();  // still serving in the grace time
}

}  // namespace
}  // namespace spaid::server
