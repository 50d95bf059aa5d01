// Which of several daemons a call goes to: rendezvous, the dead and their return, what calls carry.
#include "client/cpp/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>
#include <spaid/system.h>

#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "client/cpp/errors.h"
#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using internal::MakeError;
using internal::RendezvousOrder;
using internal::Replicas;
using std::chrono::seconds;
using testing::Done;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Refusal;
using testing::ScriptedServer;
using testing::Small;

std::vector<std::string> Affinities(int count) {
  std::mt19937 random(1);
  std::vector<std::string> affinities;
  for (int k = 0; k < count; ++k) {
    char text[9];
    std::snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(random()));
    affinities.push_back(text);
  }
  return affinities;
}

// By another program, printf %s 'a1b2c3d4 a:1' | sha256sum and so on: b629… of a, 43ec… of b, abf8…
// of c.
TEST(Rendezvous, IsWhatTheContractSays) {
  EXPECT_THAT(RendezvousOrder({"a:1", "b:1", "c:1"}, "a1b2c3d4"), ElementsAre(0, 2, 1));
  EXPECT_THAT(RendezvousOrder({"c:1", "a:1", "b:1"}, ""), ElementsAre(0, 1, 2));
}

TEST(Rendezvous, OneThatLeavesMovesItsOwnAlone) {
  const std::vector<std::string> all{"spaid-0:7433", "spaid-1:7433", "spaid-2:7433"};
  const std::vector<std::string> left{all[0], all[2]};
  int moved = 0;
  for (const std::string& affinity : Affinities(1000)) {
    const std::string& before = all[RendezvousOrder(all, affinity)[0]];
    const std::string& after = left[RendezvousOrder(left, affinity)[0]];
    if (before == all[1]) {
      ++moved;
    } else {
      EXPECT_EQ(before, after);
    }
  }
  EXPECT_GE(moved, 270);
  EXPECT_LE(moved, 400);
}

TEST(Rendezvous, OneThatJoinsTakesItsShareAndMovesNothingElse) {
  const std::vector<std::string> old{"spaid-0:7433", "spaid-1:7433", "spaid-2:7433"};
  std::vector<std::string> all = old;
  all.push_back("spaid-3:7433");
  int joined = 0;
  for (const std::string& affinity : Affinities(1000)) {
    const std::string& after = all[RendezvousOrder(all, affinity)[0]];
    if (after == all[3]) {
      ++joined;
    } else {
      EXPECT_EQ(after, old[RendezvousOrder(old, affinity)[0]]);
    }
  }
  EXPECT_GE(joined, 200);
  EXPECT_LE(joined, 330);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

TEST(Replicas, ADeadOneIsSkippedAndTriedByOneCallAfterAWhile) {
  const Error lost = MakeError(Code::kUnavailable, internal::kUnreachable, "gone");
  Replicas replicas({"a:1", "b:1"}, Connect);
  auto now = Replicas::Clock::now();
  auto& first = replicas.Pick("", now);
  EXPECT_EQ(first.address, "a:1");
  EXPECT_TRUE(replicas.Ended(first, &lost, now));
  EXPECT_EQ(replicas.Pick("", now).address, "b:1");
  now += seconds(1);
  EXPECT_EQ(replicas.Pick("", now).address, "a:1");
  EXPECT_EQ(replicas.Pick("", now).address, "b:1") << "one call tries it, the others do not wait";
  EXPECT_TRUE(replicas.Ended(first, &lost, now));
  EXPECT_TRUE(replicas.Ended(first, &lost, now)) << "of a call from before: still one failure";
  now += seconds(1);
  EXPECT_EQ(replicas.Pick("", now).address, "b:1") << "twice as long";
  now += seconds(1);
  EXPECT_EQ(replicas.Pick("", now).address, "a:1");
  EXPECT_FALSE(replicas.Ended(first, nullptr, now));
  EXPECT_EQ(replicas.Pick("", now).address, "a:1") << "it is back";
}

TEST(Replicas, AnAnswerIsNoDeath) {
  Replicas replicas({"a:1", "b:1", "c:1"}, Connect);
  auto& first = replicas.Pick("");
  for (const auto& [code, reason] :
       {std::pair(Code::kNotFound, "HANDLE_UNKNOWN"), std::pair(Code::kUnavailable, "DEVICE_LOST"),
        std::pair(Code::kDeadlineExceeded, "TIMEOUT"),
        std::pair(Code::kResourceExhausted, "QUEUE_FULL")}) {
    const Error error = MakeError(code, reason, "");
    EXPECT_FALSE(replicas.Ended(first, &error)) << reason;
    EXPECT_EQ(&replicas.Pick(""), &first) << reason;
  }
}

TEST(Replicas, WhereAllAreDeadTheFirstIsAsked) {
  Replicas replicas({"a:1", "b:1", "c:1"}, Connect);
  const Error lost = MakeError(Code::kUnavailable, internal::kConnectionLost, "gone");
  const auto now = Replicas::Clock::now();
  std::set<std::string> seen;
  for (int k = 0; k < 3; ++k) {
    auto& replica = replicas.Pick("a1b2c3d4", now);
    seen.insert(replica.address);
    EXPECT_EQ(replicas.Ended(replica, &lost, now), k < 2);
  }
  EXPECT_EQ(seen.size(), 3u);
  const std::vector<std::string> all{"a:1", "b:1", "c:1"};
  EXPECT_EQ(replicas.Pick("a1b2c3d4", now).address, all[RendezvousOrder(all, "a1b2c3d4")[0]]);
}

// Holds what each call to a server carried: method -> affinity ("": none).
struct Carried {
  std::mutex mutex;
  std::multimap<std::string, std::string> seen;
  void Note(const char* method, const grpc::ServerContext& context) {
    const auto [begin, end] = context.client_metadata().equal_range("x-spaid-affinity");
    const std::lock_guard lock(mutex);
    if (begin == end) seen.emplace(method, "");
    for (auto it = begin; it != end; ++it) {
      seen.emplace(method, std::string(it->second.data(), it->second.size()));
    }
  }
};

using UploadStream = grpc::ServerReaderWriter<v1::UploadMatrixResponse, v1::UploadMatrixRequest>;

testing::Script Noting(Carried& carried) {
  testing::Script script;
  script.upload = [&carried](grpc::ServerContext& context, UploadStream& stream) {
    carried.Note("upload", context);
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    stream.Write(Done("matrices/1-a1b2c3d4", request.header().n()));
    return grpc::Status::OK;
  };
  script.get_matrix = [&carried](grpc::ServerContext& context, const v1::GetMatrixRequest& request,
                                 v1::GetMatrixResponse& response) {
    carried.Note("get", context);
    response.mutable_matrix()->set_name(request.name());
    response.mutable_matrix()->set_n(3);
    return grpc::Status::OK;
  };
  script.list_matrices = [&carried](grpc::ServerContext& context, const v1::ListMatricesRequest&,
                                    v1::ListMatricesResponse&) {
    carried.Note("list", context);
    return grpc::Status::OK;
  };
  return script;
}

TEST(Affinity, IsOfThePatternOrOfTheHandle) {
  const CscMatrix& a = Small();
  const std::string own = AffinityOf(CscView(a));
  EXPECT_EQ(own.size(), 8u);
  CscMatrix other = a;
  other.values[0] = 5;
  EXPECT_EQ(AffinityOf(CscView(other)), own) << "of the pattern alone";
  CscView rows(a);
  rows.by_rows = true;
  EXPECT_EQ(AffinityOf(rows), own) << "a symmetric pattern has one";
  EXPECT_EQ(AffinityOf("matrices/0123-a1b2c3d4"), "a1b2c3d4");
  EXPECT_EQ(AffinityOf("matrices/0123-none"), "");
  EXPECT_EQ(AffinityOf("matrices/0123"), "");
  other.col_ptr.pop_back();
  EXPECT_EQ(AffinityOf(CscView(other)), "");
}

TEST(Affinity, EveryCallCarriesWhatItIsAbout) {
  Carried carried;
  const ScriptedServer server(Noting(carried));
  for (const bool digests : {true, false}) {
    Client client({.address = server.address(), .send_digests = digests});
    ASSERT_TRUE(client.Upload(Small()).ok());
    ASSERT_TRUE(client.Upload(Small(), "", {.affinity = "00000001"}).ok());
  }
  Client client({.address = server.address()});
  ASSERT_TRUE(client.UploadValues("matrices/1-a1b2c3d4", Small()).ok());
  ASSERT_TRUE(client.GetMatrix("matrices/1-a1b2c3d4").ok());
  ASSERT_TRUE(client.GetMatrix("matrices/1-none").ok());
  ASSERT_TRUE(client.ListMatrices().ok());
  const std::string own = AffinityOf(CscView(Small()));
  const std::multimap<std::string, std::string> expected{
      {"upload", own},        {"upload", "00000001"}, {"upload", own}, {"upload", "00000001"},
      {"upload", "a1b2c3d4"}, {"get", "a1b2c3d4"},    {"get", ""},     {"list", ""}};
  EXPECT_EQ(carried.seen, expected);
  const auto bad = client.Upload(Small(), "", {.affinity = "A1B2C3D4"});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().reason, "BAD_OPTION");
  EXPECT_EQ(bad.error().field, "affinity");
}

TEST(Affinity, WhatGoesTogetherGoesToOnePlace) {
  Carried carried;
  const ScriptedServer server(Noting(carried));
  Client client({.address = server.address()});
  // M of another pattern: A follows it.
  SolveOptions options{.preconditioner = "preconditioners/1-00000002"};
  EXPECT_FALSE(client.Solve(CscView(Small()), std::vector<double>(3), options).ok());
  PreconditionerSpec spec;
  spec.engine = Engine::kStaticSpai;
  spec.pattern_matrix = "matrices/1-00000003";
  EXPECT_FALSE(client.Build(CscView(Small()), spec).ok());
  // The vectors of a system follow its A.
  System system(client, Small(), {.engine = Engine::kAmg});
  const std::vector<double> ones(3, 1.0);
  system.SetNearNullSpace(1, ones);
  EXPECT_FALSE(system.Solve(std::vector<double>(3)).ok());
  const std::multimap<std::string, std::string> expected{
      {"upload", "00000002"}, {"upload", "00000003"}, {"upload", AffinityOf(CscView(Small()))}};
  EXPECT_EQ(carried.seen, expected);
}

TEST(Addresses, AreSeparatedByCommasAlone) {
  for (const char* text : {",", "a:1,", ",a:1", "a:1,,b:1", "a:1,a:1"}) {
    const auto info = Client({.address = text}).GetServerInfo();
    ASSERT_FALSE(info.ok()) << text;
    EXPECT_EQ(info.error().reason, "BAD_OPTION") << text;
    EXPECT_EQ(info.error().field, "address") << text;
  }
}

TEST(Addresses, ADaemonThatIsNotThereIsLeftForTheNext) {
  Carried carried;
  const ScriptedServer server(Noting(carried));
  std::string nobody;
  {
    const ScriptedServer gone({});
    nobody = gone.address();
  }
  // A single attempt names the address that failed; the next call goes on.
  Client once({.address = nobody + "," + server.address(), .max_attempts = 1});
  const auto failed = once.GetServerInfo();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason, "UNREACHABLE");
  EXPECT_THAT(failed.error().message, HasSubstr(nobody));
  EXPECT_TRUE(once.ListMatrices().ok());
  Client client({.address = nobody + "," + server.address()});
  EXPECT_TRUE(client.ListMatrices().ok());
}

TEST(Addresses, ADrainingDaemonIsLeftAtOnce) {
  Carried carried;
  const ScriptedServer other(Noting(carried));
  const ScriptedServer draining(
      {.list_matrices = [](grpc::ServerContext&, const v1::ListMatricesRequest&,
                           v1::ListMatricesResponse&) {
        return Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", "shutting down", "", seconds(20));
      }});
  Client client({.address = draining.address() + "," + other.address()});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(client.ListMatrices().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(15)) << "without its retry delay";
}

TEST(Traceparent, IsTheCallsTheClientsOrTheEnvironments) {
  constexpr char kOf[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  std::string other = kOf;
  other[4] = '0';
  std::vector<std::string> seen;
  const ScriptedServer server(
      {.list_matrices = [&](grpc::ServerContext& context, const v1::ListMatricesRequest&,
                            v1::ListMatricesResponse&) {
        std::string all;
        for (const auto& [key, value] : context.client_metadata()) {
          if (key != "traceparent" && key != "tracestate") continue;
          all += (all.empty() ? "" : " ") + std::string(value.data(), value.size());
        }
        seen.push_back(all);
        return grpc::Status::OK;
      }});
  unsetenv("TRACEPARENT");
  EXPECT_TRUE(Client({.address = server.address()}).ListMatrices().ok());
  Client client({.address = server.address(), .traceparent = kOf, .tracestate = "a=1"});
  EXPECT_TRUE(client.ListMatrices().ok());
  EXPECT_TRUE(client.ListMatrices({.traceparent = other}).ok());
  EXPECT_TRUE(client.ListMatrices({.traceparent = other, .tracestate = "b=2,c=3"}).ok());
  setenv("TRACEPARENT", kOf, 1);
  setenv("TRACESTATE", "d=4", 1);
  EXPECT_TRUE(Client({.address = server.address()}).ListMatrices().ok());
  setenv("TRACEPARENT", "nonsense of somebody else's", 1);
  EXPECT_TRUE(Client({.address = server.address()}).ListMatrices().ok());
  unsetenv("TRACEPARENT");
  unsetenv("TRACESTATE");
  const std::string of = kOf;
  EXPECT_THAT(seen, ElementsAre("", of + " a=1", other, other + " b=2,c=3", of + " d=4", ""));
  for (const auto& [options, field] :
       {std::pair(CallOptions{.traceparent = "00-1-2-3"}, "traceparent"),
        std::pair(CallOptions{.tracestate = "a\n"}, "tracestate")}) {
    const auto bad = client.ListMatrices(options);
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.error().field, field);
  }
}

}  // namespace
}  // namespace spaid
