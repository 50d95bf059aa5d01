#include "server/rpc/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

sockaddr_in V4(const std::string& address, int port) {
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, address.c_str(), &peer.sin_addr);
  return peer;
}

sockaddr_in6 V6(const std::string& address, int port) {
  sockaddr_in6 peer{};
  peer.sin6_family = AF_INET6;
  peer.sin6_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET6, address.c_str(), &peer.sin6_addr);
  return peer;
}

// Connected sockets of which the table believes that they are of any peer that a test names.
class Table : public ::testing::Test {
 protected:
  ~Table() override {
    for (const int fd : fds_) close(fd);
  }

  Connections& Limit(ConnectionLimits limits) {
    connections_ = std::make_unique<Connections>(std::move(limits), &metrics_);
    return *connections_;
  }

  // The watched descriptor; -1: refused.
  template <class Address>
  int Open(const Address& peer) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    fds_.insert(fds_.end(), pair, pair + 2);
    return connections_->Open(pair[0], reinterpret_cast<const sockaddr*>(&peer), now_);
  }
  int Open(const char* address) { return Open(V4(address, ++port_)); }

  static bool HungUp(int watched) {
    pollfd wanted{.fd = watched, .events = 0, .revents = 0};
    return poll(&wanted, 1, 0) == 1 && (wanted.revents & POLLHUP) != 0;
  }

  Connections::Call Begin(const std::string& address) {
    return connections_->Begin(absl::StrCat("ipv4:", address, ":", port_));
  }

  Metrics metrics_;
  std::unique_ptr<Connections> connections_;
  Connections::Clock::time_point now_ = Connections::Clock::now();
  int port_ = 1000;
  std::vector<int> fds_;
};

TEST_F(Table, APeerHasALimitAndLoopbackAndProxiesHaveNone) {
  Limit({.max_connections = 100, .max_per_peer = 2, .trusted = {*Cidr::Parse("10.1.0.0/16")}});
  EXPECT_GE(Open("192.0.2.1"), 0);
  const int second = Open("192.0.2.1");
  EXPECT_GE(second, 0);
  EXPECT_EQ(Open("192.0.2.1"), -1);
  EXPECT_GE(Open("192.0.2.2"), 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_GE(Open("127.0.0.1"), 0);
    EXPECT_GE(Open("10.1.2.3"), 0);
  }
  // A network of 64 bits is one peer.
  EXPECT_GE(Open(V6("2001:db8::1", 1)), 0);
  EXPECT_GE(Open(V6("2001:db8::2", 1)), 0);
  EXPECT_EQ(Open(V6("2001:db8::3", 1)), -1);
  EXPECT_GE(Open(V6("2001:db8:0:1::3", 1)), 0);
  // IPv4 is the same mapped into IPv6.
  EXPECT_EQ(Open(V6("::ffff:192.0.2.1", 9)), -1);
  connections_->Closed(second);
  EXPECT_GE(Open("192.0.2.1"), 0);
  EXPECT_NE(metrics_.Serialize().find("spaid_connections_refused_total{limit=\"peer\"} 3"),
            std::string::npos);
}

TEST_F(Table, TheOldestThatNeverAskedGivesWay) {
  Limit({.max_connections = 2});
  const int first = Open("127.0.0.1");
  auto call = Begin("127.0.0.1");
  connections_->Asked(*call.connection, false);
  connections_->Known(*call.connection);
  const int second = Open("127.0.0.1");
  EXPECT_EQ(Open("127.0.0.1"), -1) << "both may be about to ask";
  now_ += seconds(2);
  EXPECT_GE(Open("127.0.0.1"), 0);
  EXPECT_TRUE(HungUp(second));
  EXPECT_FALSE(HungUp(first));
  EXPECT_EQ(Open("127.0.0.1"), -1) << "one has asked, the other is new";
  connections_->End(*call.connection, true);
}

// Who asked once, and has not for long, does not keep its place from those who come.
TEST_F(Table, WhereAllAreKnownTheLongestIdleOfTheMostNumerousGivesWay) {
  Limit({.max_connections = 4});
  const auto known = [&](const char* address) {
    const int watched = Open(address);
    auto call = Begin(address);
    connections_->Asked(*call.connection, false);
    connections_->Known(*call.connection);
    return std::pair(watched, call.connection);
  };
  const auto busy = known("192.0.2.1"), idle = known("192.0.2.1"), last = known("192.0.2.1"),
             other = known("192.0.2.2");
  for (const auto& [watched, connection] : {other, idle, last}) {
    connections_->End(*connection, true);
  }
  EXPECT_EQ(Open("192.0.2.3"), -1) << "nobody has been idle for long";
  now_ += seconds(10);
  EXPECT_GE(Open("192.0.2.3"), 0);
  EXPECT_TRUE(HungUp(idle.first));
  for (const int open : {busy.first, last.first, other.first}) EXPECT_FALSE(HungUp(open));
  connections_->End(*busy.second, true);
}

TEST_F(Table, FewerDescriptorsAllowFewer) {
  Limit({.max_connections = 100});
  connections_->LimitTo(1);
  EXPECT_EQ(connections_->most(), 1);
  EXPECT_GE(Open("127.0.0.1"), 0);
  EXPECT_EQ(Open("127.0.0.1"), -1);
  const sockaddr_in own = V4("127.0.0.1", ++port_);
  connections_->ExpectOwn(reinterpret_cast<const sockaddr*>(&own));
  EXPECT_EQ(Open(V4("127.0.0.2", port_)), -1) << "a stranger of this port";
  EXPECT_EQ(Open(V4("127.0.0.1", port_ + 1)), -1) << "a stranger in between";
  EXPECT_GE(Open(own), 0) << "the self-probe has a place of its own";
  EXPECT_EQ(Open(own), -1) << "once";
}

TEST_F(Table, ResetsWithoutARequestAreCounted) {
  Limit({});
  const int watched = Open("127.0.0.1");
  for (int i = 0; i < 450; ++i) {
    auto call = Begin("127.0.0.1");
    ASSERT_TRUE(call.served);
    connections_->End(*call.connection, false);
    auto good = Begin("127.0.0.1");
    connections_->Asked(*good.connection, false);
    connections_->Known(*good.connection);
    connections_->End(*good.connection, true);
  }
  EXPECT_FALSE(HungUp(watched));
  for (int i = 0; i < 450; ++i) connections_->End(*Begin("127.0.0.1").connection, false);
  EXPECT_TRUE(HungUp(watched));
  EXPECT_FALSE(Begin("127.0.0.1").served) << "a call that was on its way";
}

TEST_F(Table, StrangersMayResetLess) {
  Limit({});
  const int watched = Open("127.0.0.1");
  for (int i = 0; i < 150; ++i) connections_->End(*Begin("127.0.0.1").connection, false);
  EXPECT_FALSE(HungUp(watched));
  for (int i = 0; i < 150; ++i) connections_->End(*Begin("127.0.0.1").connection, false);
  EXPECT_TRUE(HungUp(watched));
}

// Calls that a flood left behind go first.
TEST_F(Table, NobodyIsLetInWhileCallsOfACutConnectionLinger) {
  Limit({});
  const int watched = Open("127.0.0.1");
  std::vector<Connections::Call> calls;
  while (!HungUp(watched)) calls.push_back(Begin("127.0.0.1"));
  EXPECT_TRUE(connections_->clogged());
  for (const auto& call : calls) connections_->End(*call.connection, false);
  while (connections_->clogged()) std::this_thread::yield();  // what has not come up yet, a moment
}

// They begin only when the thread that reads their connection is through with it.
TEST_F(Table, CallsThatDoNotBeginAreAFlood) {
  Limit({});
  const int watched = Open("127.0.0.1");
  pollfd alarm{.fd = connections_->alarm(), .events = POLLIN, .revents = 0};
  for (int64_t i = 0; i < Connections::kFlood; ++i) connections_->Made();
  EXPECT_FALSE(connections_->flooded());
  EXPECT_EQ(poll(&alarm, 1, 0), 0);
  connections_->Made();
  EXPECT_TRUE(connections_->flooded());
  EXPECT_TRUE(connections_->clogged());
  EXPECT_EQ(poll(&alarm, 1, 0), 1);
  connections_->End(*Begin("127.0.0.1").connection, false);
  EXPECT_FALSE(connections_->flooded());
  EXPECT_FALSE(connections_->clogged());
  EXPECT_FALSE(HungUp(watched));
}

TEST_F(Table, MoreCallsThanStreamsAreNotWhatAClientHas) {
  Limit({.max_streams = 10});
  const int watched = Open("127.0.0.1");
  for (int i = 0; i < 148; ++i) EXPECT_TRUE(Begin("127.0.0.1").served);
  EXPECT_FALSE(HungUp(watched));
  EXPECT_FALSE(Begin("127.0.0.1").served);
  EXPECT_TRUE(HungUp(watched));
}

TEST_F(Table, WhoHasMostCallsIsRefusedFirst) {
  Limit({.max_calls = 100});
  Open("192.0.2.1");
  std::vector<Connections::Call> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(Begin("192.0.2.1"));
    ASSERT_TRUE(calls.back().served);
  }
  EXPECT_FALSE(Begin("192.0.2.1").served);
  Open("192.0.2.2");
  EXPECT_TRUE(Begin("192.0.2.2").served);
}

TEST_F(Table, AConnectionWithoutACallIsClosed) {
  Limit({.idle = milliseconds(1000)});
  const int idle = Open("127.0.0.1");
  const int busy = Open("127.0.0.1");
  auto call = Begin("127.0.0.1");
  connections_->Look(now_ + seconds(10));
  EXPECT_FALSE(HungUp(idle)) << "gRPC does that, and politely";
  connections_->Look(now_ + seconds(40));
  EXPECT_TRUE(HungUp(idle));
  EXPECT_FALSE(HungUp(busy));
}

TEST(Cidrs, AreRangesOfAddresses) {
  const auto in = [](const char* range, const std::string& address) {
    const auto v4 = V4(address, 1);
    return Cidr::Parse(range)->Contains(*AddressBytes(reinterpret_cast<const sockaddr*>(&v4)));
  };
  EXPECT_TRUE(in("10.0.0.0/8", "10.255.1.2"));
  EXPECT_FALSE(in("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(in("192.0.2.4/30", "192.0.2.7"));
  EXPECT_FALSE(in("192.0.2.4/30", "192.0.2.8"));
  EXPECT_TRUE(in("192.0.2.1", "192.0.2.1"));
  EXPECT_TRUE(in("0.0.0.0/0", "203.0.113.9"));
  EXPECT_FALSE(in("::/64", "203.0.113.9"));
  for (const char* wrong : {"", "x", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1",
                            "::1/129", "fd00::1/8", "10.0.0.0/8/8", "1.2.3"}) {
    EXPECT_FALSE(Cidr::Parse(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace spaid::server
