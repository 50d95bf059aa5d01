#include "server/ops/http.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "server/base/metrics.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

ServerStatus NoStatus() { return {}; }

TEST(OpsServer, ServesMetricsHealthAndReadiness) {
  Metrics metrics;
  std::atomic<bool> ready{false};
  auto server = OpsServer::Start(
      "127.0.0.1:0",
      {.metrics = &metrics, .ready = [&] { return ready.load(); }, .status = NoStatus});
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

TEST(OpsServer, ServesTheStatusAsAPageAndAsJson) {
  Metrics metrics;
  std::atomic<int> asked{0};
  const auto status = [&] {
    ServerStatus now;
    now.running = ++asked;
    return now;
  };
  auto server = OpsServer::Start(
      "127.0.0.1:0", {.metrics = &metrics, .ready = [] { return true; }, .status = status});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("http://" + (*server)->address());
  for (const char* path : {"/", "/status"}) {
    const auto page = client.Get(path);
    ASSERT_TRUE(page) << path;
    EXPECT_EQ(page->status, 200);
    EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
    EXPECT_NE(page->body.find("http-equiv=\"refresh\""), std::string::npos);
  }
  EXPECT_EQ(client.Get("/?refresh=off")->body.find("http-equiv"), std::string::npos);
  const auto json = client.Get("/status.json");
  EXPECT_EQ(json->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(nlohmann::json::parse(json->body)["queue"]["running"], 4);  // made anew each time
  EXPECT_EQ(client.Get("/status/x")->status, 404);
}

TEST(OpsServer, ChangesNothingAndLetsBrowsersRunNothing) {
  Metrics metrics;
  auto server = OpsServer::Start(
      "127.0.0.1:0", {.metrics = &metrics, .ready = [] { return true; }, .status = NoStatus});
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("http://" + (*server)->address());
  for (const char* path : {"/", "/status.json", "/metrics", "/healthz", "/nothing"}) {
    const auto got = client.Get(path);
    ASSERT_TRUE(got) << path;
    EXPECT_EQ(got->get_header_value("Content-Security-Policy").rfind("default-src 'none'; ", 0),
              0u);
    EXPECT_EQ(got->get_header_value("Cache-Control"), "no-store");
    EXPECT_EQ(got->get_header_value("X-Content-Type-Options"), "nosniff");
    EXPECT_FALSE(got->has_header("Access-Control-Allow-Origin"));
    const auto posted = client.Post(path, "x=1", "application/x-www-form-urlencoded");
    ASSERT_TRUE(posted) << path;
    EXPECT_EQ(posted->status, 405);
    EXPECT_EQ(posted->get_header_value("Allow"), "GET, HEAD");
    EXPECT_EQ(client.Delete(path)->status, 405);
  }
  const auto head = client.Head("/");
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
}

// A page of evil.example whose name now means this address is no reader of the status.
TEST(OpsServer, ShowsTheStatusUnderItsOwnNamesOnly) {
  Metrics metrics;
  auto server = OpsServer::Start("127.0.0.1:0", {.metrics = &metrics,
                                                 .ready = [] { return true; },
                                                 .status = NoStatus,
                                                 .host_names = {"gpu7.cluster.example"}});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto get = [&](const char* path, const char* host) {
    httplib::Client client("http://" + (*server)->address());
    const auto got = client.Get(path, {{"Host", host}});
    EXPECT_TRUE(got) << path << " of " << host;
    return got ? got->status : 0;
  };
  for (const char* path : {"/", "/status", "/status.json", "/?refresh=off"}) {
    for (const char* own : {"10.2.3.4:7434", "[fd00::7]:7434", "[::1]", "127.0.0.1", "localhost",
                            "LocalHost:9999", "gpu7.cluster.example", "GPU7.cluster.example.:80"}) {
      EXPECT_EQ(get(path, own), 200) << path << " of " << own;
    }
    for (const char* other : {"evil.example", "evil.example:7434", "localhost.evil.example",
                              "127.0.0.1.evil.example", "1.2.3.4.5", "cluster.example"}) {
      EXPECT_EQ(get(path, other), 421) << path << " of " << other;
    }
  }
  // Probes and Prometheus have whatever name a cluster gives them, and read nothing of tenants.
  for (const char* path : {"/metrics", "/healthz", "/readyz"}) {
    EXPECT_EQ(get(path, "spaid.numerics.svc.cluster.local:7434"), 200) << path;
  }
  // Who has an own name sees what each tenant took, too.
  metrics.SetTenantTime("alice", 2);
  const auto tells = [&](const char* host) {
    httplib::Client client("http://" + (*server)->address());
    const auto got = client.Get("/metrics", {{"Host", host}});
    return got && got->body.find("alice") != std::string::npos;
  };
  EXPECT_TRUE(tells("10.2.3.4:7434"));
  EXPECT_FALSE(tells("evil.example"));
}

TEST(OpsServer, RefusesATakenPortAndAMalformedAddress) {
  Metrics metrics;
  const OpsSources sources{.metrics = &metrics, .ready = [] { return true; }, .status = NoStatus};
  auto first = OpsServer::Start("127.0.0.1:0", sources);
  ASSERT_TRUE(first.ok());
  auto second = OpsServer::Start((*first)->address(), sources);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), "CANNOT_LISTEN");
  for (const char* bad : {"nonsense", ":1", "localhost:x", "localhost:70000"}) {
    auto server = OpsServer::Start(bad, sources);
    ASSERT_FALSE(server.ok()) << bad;
    EXPECT_EQ(ReasonOf(server.status()), "BAD_FLAG");
  }
}

}  // namespace
}  // namespace spaid::server
