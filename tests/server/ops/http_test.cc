#include "server/ops/http.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <memory>
#include <string>

#include "server/base/metrics.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

TEST(OpsServer, ServesMetricsHealthAndReadiness) {
  Metrics metrics;
  std::atomic<bool> ready{false};
  auto server = OpsServer::Start("127.0.0.1:0", &metrics, [&] { return ready.load(); });
  ASSERT_TRUE(server.ok()) << server.status();
  metrics.JobSubmitted("build");
  httplib::Client client("http://" + (*server)->address());
  auto response = client.Get("/metrics");
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 200);
  EXPECT_NE(response->body.find("spaid_jobs_submitted_total{kind=\"build\"} 1"), std::string::npos);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  ready = true;
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  EXPECT_EQ(client.Get("/nothing")->status, 404);
}

TEST(OpsServer, RefusesATakenPortAndAMalformedAddress) {
  Metrics metrics;
  auto first = OpsServer::Start("127.0.0.1:0", &metrics, [] { return true; });
  ASSERT_TRUE(first.ok());
  auto second = OpsServer::Start((*first)->address(), &metrics, [] { return true; });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), "CANNOT_LISTEN");
  for (const char* bad : {"nonsense", ":1", "localhost:x", "localhost:70000"}) {
    auto server = OpsServer::Start(bad, &metrics, [] { return true; });
    ASSERT_FALSE(server.ok()) << bad;
    EXPECT_EQ(ReasonOf(server.status()), "BAD_FLAG");
  }
}

}  // namespace
}  // namespace spaid::server
