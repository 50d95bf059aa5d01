#include "server/base/address.h"

#include <gtest/gtest.h>

namespace spaid::server {
namespace {

TEST(ParseHostPort, TakesHostAndPort) {
  const auto ip = ParseHostPort("127.0.0.1:7433");
  ASSERT_TRUE(ip);
  EXPECT_EQ(ip->host, "127.0.0.1");
  EXPECT_EQ(ip->port, 7433);
  const auto six = ParseHostPort("[::1]:0");
  ASSERT_TRUE(six);
  EXPECT_EQ(six->host, "[::1]");
  EXPECT_EQ(six->port, 0);
  EXPECT_EQ(ParseHostPort("localhost:65535")->port, 65535);
}

TEST(ParseHostPort, RefusesAllElse) {
  for (const char* wrong :
       {"", ":", ":80", "localhost", "localhost:", "localhost:http", "h:65536", "h:-1", "h:+1",
        "h: 1", "h:99999999999999999999", "::1", "::1:80", "[]:80", "[::1]", "h]:80"}) {
    EXPECT_FALSE(ParseHostPort(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace spaid::server
