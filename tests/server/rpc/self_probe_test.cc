#include "server/rpc/self_probe.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool DeafWithin(const SelfProbe& probe, seconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!probe.deaf() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return probe.deaf();
}

sockaddr_storage AddressOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return address;
}

TEST(SelfProbe, APortThatConnectsButDoesNotAnswerIsDeaf) {
  Metrics metrics;
  Connections connections({}, &metrics);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  ASSERT_EQ(listen(listener, 16), 0);  // the kernel accepts, and nobody else does
  for (const bool tls : {false, true}) {
    const SelfProbe probe(AddressOf(listener), tls,
                          {.every = milliseconds(5), .timeout = milliseconds(20)}, &connections,
                          &metrics);
    EXPECT_TRUE(DeafWithin(probe, seconds(30)));
  }
  EXPECT_EQ(metrics.Serialize().find("spaid_self_probe_failures_total 0\n"), std::string::npos);
  close(listener);
}

TEST(SelfProbe, OfAServerThatServesNeverFailsNorCounts) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.connections.max_connections = 1;
  options.server.self_probe = {.every = milliseconds(1), .timeout = seconds(30), .failures = 1};
  Harness h(options);
  h.ExpectLives();
  // Its connections come and go beside the one that there may be.
  for (int seen = 0; seen < 20;) {
    seen += h.backend->connections().size() > 1;
    std::this_thread::yield();
  }
  EXPECT_FALSE(h.server->deaf());
  h.ExpectLives();
  EXPECT_NE(h.metrics.Serialize().find("spaid_self_probe_failures_total 0\n"), std::string::npos);
}

}  // namespace
}  // namespace spaid::server
