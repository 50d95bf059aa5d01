// Which token goes out with which call.
#include <gtest/gtest.h>

#include <string>

#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using testing::ScriptedServer;

TEST(AdminToken, IsSentByCallsOfAdministratorsAlone) {
  std::string sent;
  bool all = false;
  ScriptedServer server(
      {.list_jobs = [&](grpc::ServerContext& context, const v1::ListJobsRequest& request, auto&) {
        const auto found = context.client_metadata().find("authorization");
        sent = found == context.client_metadata().end()
                   ? ""
                   : std::string(found->second.data(), found->second.size());
        all = request.all_tenants();
        return grpc::Status::OK;
      }});
  Client client({.address = server.address(), .token = "mine", .admin_token = "root"});
  ASSERT_TRUE(client.ListJobs().ok());
  EXPECT_EQ(sent, "Bearer mine");
  EXPECT_FALSE(all);
  ASSERT_TRUE(client.ListJobs({}, {.as_administrator = true}, true).ok());
  EXPECT_EQ(sent, "Bearer root");
  EXPECT_TRUE(all);
  ASSERT_TRUE(client.ListJobPage({.all_tenants = true}, {.as_administrator = true}).ok());
  EXPECT_TRUE(all);
  // By a certificate's subject: there is no token to send.
  Client by_certificate({.address = server.address(), .token = "mine"});
  ASSERT_TRUE(by_certificate.ListJobs({}, {.as_administrator = true}).ok());
  EXPECT_EQ(sent, "Bearer mine");
  Client bad({.address = server.address(), .admin_token = "two\nlines"});
  EXPECT_EQ(bad.GetServerInfo().error().field, "admin_token");
}

}  // namespace
}  // namespace spaid
