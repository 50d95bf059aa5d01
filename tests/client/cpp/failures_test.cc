// How calls end when they do not succeed: retries, refusals, stops, deadlines, options that cannot
// work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using std::chrono::milliseconds;
using testing::Done;
using ::testing::HasSubstr;
using testing::Refusal;
using testing::ScriptedServer;
using testing::Small;

using UploadStream = grpc::ServerReaderWriter<v1::UploadMatrixResponse, v1::UploadMatrixRequest>;
using SolveStream = grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>;
using BuildStream =
    grpc::ServerReaderWriter<v1::BuildPreconditionerResponse, v1::BuildPreconditionerRequest>;

const std::vector<double> kB{1, 2, 3};

auto Matrix3() {
  return [](grpc::ServerContext&, const v1::GetMatrixRequest& request,
            v1::GetMatrixResponse& response) {
    response.mutable_matrix()->set_name(request.name());
    response.mutable_matrix()->set_n(3);
    return grpc::Status::OK;
  };
}

// Heartbeats until the client is gone; true where it went by cancelling.
bool WaitForCancel(grpc::ServerContext& context, SolveStream& stream) {
  v1::SolveResponse response;
  response.mutable_job()->mutable_heartbeat()->set_state(v1::JOB_STATE_RUNNING);
  while (stream.Write(response)) {
  }
  return context.IsCancelled();
}

TEST(Refusals, EndAnUploadAtOnceWithTheServersReason) {
  std::atomic<int64_t> chunks = 0;
  ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
    v1::UploadMatrixRequest request;
    stream.Read(&request);
    stream.Read(&request);
    ++chunks;
    return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "MATRIX_TOO_LARGE", "too large", "nnz");
  }});
  CscMatrix big{.n = 1'000'000, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int j = 0; j < big.n; ++j) {
    big.row_idx.insert(big.row_idx.end(), {0, 1, 2, 3});
    big.col_ptr.push_back(4 * (j + 1));
  }
  big.values.assign(big.row_idx.size(), 1.0);
  Client client({.address = server.address(), .send_digests = false});
  int64_t sent = 0, total = 0;
  const auto info = client.Upload(big, "", {.on_progress = [&](const Progress& progress) {
                                    sent = progress.done;
                                    total = progress.total;
                                  }});
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.error().code, Code::kResourceExhausted);
  EXPECT_EQ(info.error().reason, "MATRIX_TOO_LARGE");
  EXPECT_EQ(info.error().message, "too large");
  EXPECT_EQ(info.error().field, "nnz");
  EXPECT_GT(total, 0);
  EXPECT_LT(sent, total);
}

TEST(Retries, AnIdempotentCallIsTriedAgain) {
  std::atomic<int> calls = 0;
  ScriptedServer server({.get_matrix = [&](grpc::ServerContext&, const v1::GetMatrixRequest&,
                                           v1::GetMatrixResponse& response) {
    if (++calls < 2) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
    response.mutable_matrix()->set_name("matrices/a");
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  const auto info = client.GetMatrix("matrices/a");
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(calls, 2);
}

TEST(Retries, ACallThatMayHaveEndedTheServerIsRepeatedOnce) {
  std::atomic<int> uploads = 0, builds = 0, solves = 0;
  const grpc::Status broken(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  ScriptedServer server({.upload =
                             [&](grpc::ServerContext&, UploadStream&) {
                               ++uploads;
                               return broken;
                             },
                         .get_matrix = Matrix3(),
                         .build =
                             [&](grpc::ServerContext&, BuildStream&) {
                               ++builds;
                               return broken;
                             },
                         .solve =
                             [&](grpc::ServerContext&, SolveStream&) {
                               // Refused in between: that is not counted.
                               return ++solves == 2
                                          ? Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING",
                                                    "going down", "", milliseconds(1))
                                          : broken;
                             }});
  Client client({.address = server.address(), .max_attempts = 10});
  const std::vector<int64_t> pointers{0, 1};
  const std::vector<int32_t> indices{0};
  const std::vector<double> values{1};
  EXPECT_EQ(client.Upload({.n = 1, .col_ptr = pointers, .row_idx = indices, .values = values})
                .error()
                .reason,
            "CONNECTION_LOST");
  EXPECT_EQ(uploads, 2);
  EXPECT_FALSE(client.Build("matrices/a", PreconditionerSpec{}).ok());
  EXPECT_EQ(builds, 2);
  EXPECT_FALSE(client.Solve("matrices/a", kB).ok());
  EXPECT_EQ(solves, 3);
}

TEST(Retries, HaveAnEnd) {
  std::atomic<int> calls = 0;
  ScriptedServer server({.get_matrix = [&](grpc::ServerContext&, const v1::GetMatrixRequest&,
                                           v1::GetMatrixResponse&) {
    ++calls;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  }});
  Client client({.address = server.address(), .max_attempts = 2});
  EXPECT_EQ(client.GetMatrix("matrices/a").error().reason, "CONNECTION_LOST");
  EXPECT_EQ(calls, 2);
}

TEST(Retries, AFullQueueIsComeBackToAsTheServerSays) {
  std::atomic<int> calls = 0;
  std::chrono::steady_clock::time_point first, second;
  ScriptedServer server({.build = [&](grpc::ServerContext&, BuildStream& stream) {
    if (++calls == 1) {
      first = std::chrono::steady_clock::now();
      return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", "",
                     milliseconds(120));
    }
    second = std::chrono::steady_clock::now();
    v1::BuildPreconditionerResponse response;
    response.mutable_done()->mutable_preconditioner()->set_name("preconditioners/p");
    stream.Write(response);
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  const auto built = client.Build("matrices/a", PreconditionerSpec{});
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(built->preconditioner.name, "preconditioners/p");
  EXPECT_EQ(calls, 2);
  EXPECT_GE(second - first, milliseconds(120));
}

TEST(Retries, WhatIsNotIdempotentIsNotRepeated) {
  std::atomic<int> deletes = 0, solves = 0;
  ScriptedServer server(
      {.get_matrix = Matrix3(),
       .delete_matrix =
           [&](grpc::ServerContext&, const v1::DeleteMatrixRequest&, v1::DeleteMatrixResponse&) {
             ++deletes;
             return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
           },
       .solve =
           [&](grpc::ServerContext&, SolveStream&) {
             ++solves;
             return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
           }});
  Client client({.address = server.address(), .max_attempts = 2});
  EXPECT_EQ(client.DeleteMatrix("matrices/a")->reason, "CONNECTION_LOST");
  EXPECT_EQ(deletes, 1);
  EXPECT_FALSE(client.Solve("matrices/a", kB, {}, {.detach = true}).ok());
  EXPECT_EQ(solves, 1);
  EXPECT_FALSE(client.Solve("matrices/a", kB).ok());
  EXPECT_EQ(solves, 3);
}

TEST(Retries, NeverPassTheDeadline) {
  std::atomic<int> calls = 0;
  ScriptedServer server({.get_matrix = [&](grpc::ServerContext&, const v1::GetMatrixRequest&,
                                           v1::GetMatrixResponse&) {
    ++calls;
    return Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", "going down", "",
                   milliseconds(20'000));
  }});
  Client client({.address = server.address()});
  const auto start = std::chrono::steady_clock::now();
  const auto info = client.GetMatrix("matrices/a", {.timeout = milliseconds(10'000)});
  EXPECT_EQ(info.error().reason, "DRAINING");  // not TIMEOUT: the caller learns why
  EXPECT_EQ(info.error().retry_after, milliseconds(20'000));
  EXPECT_EQ(calls, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(9'000));
}

TEST(Stops, EndTheWaitBeforeARetry) {
  std::stop_source source;
  ScriptedServer server({.get_matrix = [&](grpc::ServerContext&, const v1::GetMatrixRequest&,
                                           v1::GetMatrixResponse&) {
    source.request_stop();
    return Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", "going down", "",
                   milliseconds(25'000));
  }});
  Client client({.address = server.address()});
  const auto start = std::chrono::steady_clock::now();
  const auto info = client.GetMatrix("matrices/a", {.stop = source.get_token()});
  EXPECT_EQ(info.error().code, Code::kCancelled);
  EXPECT_EQ(info.error().reason, "STOP_REQUESTED");
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(20'000));
}

TEST(Stops, BeforeTheCallSendNothing) {
  std::atomic<int> calls = 0;
  ScriptedServer server({.get_matrix = [&](grpc::ServerContext&, const v1::GetMatrixRequest&,
                                           v1::GetMatrixResponse&) {
    ++calls;
    return grpc::Status::OK;
  }});
  std::stop_source source;
  source.request_stop();
  Client client({.address = server.address()});
  EXPECT_EQ(client.GetMatrix("matrices/a", {.stop = source.get_token()}).error().reason,
            "STOP_REQUESTED");
  EXPECT_EQ(calls, 0);
}

TEST(Stops, CancelARunningSolve) {
  std::promise<bool> cancelled;
  ScriptedServer server(
      {.get_matrix = Matrix3(), .solve = [&](grpc::ServerContext& context, SolveStream& stream) {
         cancelled.set_value(WaitForCancel(context, stream));
         return grpc::Status::CANCELLED;
       }});
  Client client({.address = server.address()});
  std::stop_source source;
  const auto solved =
      client.Solve("matrices/a", kB, {},
                   {.stop = source.get_token(), .on_progress = [&](const Progress& progress) {
                      if (progress.kind == Progress::Kind::kHeartbeat) source.request_stop();
                    }});
  EXPECT_EQ(solved.error().code, Code::kCancelled);
  EXPECT_EQ(solved.error().reason, "STOP_REQUESTED");
  EXPECT_TRUE(cancelled.get_future().get());  // the server was told
}

TEST(Deadlines, CoverARunningSolve) {
  ScriptedServer server(
      {.get_matrix = Matrix3(), .solve = [&](grpc::ServerContext& context, SolveStream& stream) {
         WaitForCancel(context, stream);
         return grpc::Status::CANCELLED;
       }});
  Client client({.address = server.address()});
  const auto solved = client.Solve("matrices/a", kB, {}, {.timeout = milliseconds(200)});
  EXPECT_EQ(solved.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(solved.error().reason, "TIMEOUT");
}

TEST(Deadlines, ThatHavePassedSendNothing) {
  Client client({.address = "127.0.0.1:1"});
  const auto info = client.GetServerInfo({.timeout = milliseconds(0)});
  EXPECT_EQ(info.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(info.error().field, "timeout");
}

TEST(Exceptions, OfACallbackPassThroughCancelTheCallAndLeaveTheClientUsable) {
  std::promise<bool> cancelled;
  ScriptedServer server(
      {.get_matrix = Matrix3(), .solve = [&](grpc::ServerContext& context, SolveStream& stream) {
         cancelled.set_value(WaitForCancel(context, stream));
         return grpc::Status::CANCELLED;
       }});
  Client client({.address = server.address()});
  const CallOptions call{.on_progress = [](const Progress& progress) {
    if (progress.kind == Progress::Kind::kHeartbeat) throw std::runtime_error("enough");
  }};
  EXPECT_THROW((void)client.Solve("matrices/a", kB, {}, call), std::runtime_error);
  EXPECT_TRUE(cancelled.get_future().get());
  EXPECT_TRUE(client.GetMatrix("matrices/a").ok());
}

TEST(Unreachable, IsSaidWithAddressAndCure) {
  Client client({.address = "127.0.0.1:1", .max_attempts = 2});
  for (const Error& error :
       {client.GetServerInfo().error(), client.Upload(Small()).error(),
        client.Download("preconditioners/p").error(), client.Solve(Small(), kB).error(),
        client.Watch("jobs/1", {}).error(), *client.DeleteMatrix("matrices/a")}) {
    EXPECT_EQ(error.code, Code::kUnavailable);
    EXPECT_EQ(error.reason, "UNREACHABLE") << error.message;
    EXPECT_THAT(error.message, HasSubstr("127.0.0.1:1"));
    EXPECT_THAT(error.message, HasSubstr("spaid --address"));
  }
}

TEST(Unreachable, ADaemonThatComesBackIsFoundAgain) {
  auto server = std::make_unique<ScriptedServer>(testing::Script{.get_matrix = Matrix3()});
  const std::string address = server->address();
  Client client({.address = address, .max_attempts = 1});
  ASSERT_TRUE(client.GetMatrix("matrices/a").ok());
  server.reset();
  EXPECT_EQ(client.GetMatrix("matrices/a").error().code, Code::kUnavailable);
  server = std::make_unique<ScriptedServer>(testing::Script{.get_matrix = Matrix3()}, address);
  Client patient({.address = address});
  EXPECT_TRUE(patient.GetMatrix("matrices/a").ok());
  // The first client's channel is in its back-off (2 s at most); single attempts see it end.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  bool found = false;
  while (!found && std::chrono::steady_clock::now() < limit) {
    found = client.GetMatrix("matrices/a").ok();
  }
  EXPECT_TRUE(found);
}

void ExpectBroken(ClientOptions options, const char* reason, const char* field) {
  Client client(std::move(options));
  const Error error = client.GetServerInfo().error();
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_EQ(error.reason, reason);
  EXPECT_EQ(error.field, field);
  // Every kind of call says the same.
  EXPECT_EQ(client.Upload(Small()).error().field, field);
  EXPECT_EQ(client.Build("matrices/a", PreconditionerSpec{}).error().field, field);
  EXPECT_EQ(client.Solve("matrices/a", kB).error().field, field);
  EXPECT_EQ(client.Download("preconditioners/p").error().field, field);
  EXPECT_EQ(client.Watch("jobs/a", {}).error().field, field);
  EXPECT_EQ(client.ListJobs().error().field, field);
  EXPECT_EQ(client.DeletePreconditioner("preconditioners/p")->field, field);
}

TEST(Options, ThatCannotWorkAreNamedByEveryCall) {
  ExpectBroken({.address = ""}, "BAD_OPTION", "address");
  ExpectBroken({.max_attempts = 0}, "BAD_OPTION", "max_attempts");
  ExpectBroken({.chunk_bytes = 7}, "BAD_OPTION", "chunk_bytes");
  ExpectBroken({.chunk_bytes = int64_t{4} << 20}, "BAD_OPTION", "chunk_bytes");
  ExpectBroken({.token = "line\nend"}, "BAD_OPTION", "token");
  ExpectBroken({.tenant = "\x01"}, "BAD_OPTION", "tenant");
  ExpectBroken({.key_file = "/dev/null"}, "BAD_OPTION", "certificate_file");
  ExpectBroken({.certificate_file = "/dev/null"}, "BAD_OPTION", "key_file");
  ExpectBroken({.ca_file = "/nonexistent/ca.pem"}, "UNREADABLE_FILE", "ca_file");
  ExpectBroken({.ca_file = "/"}, "UNREADABLE_FILE", "ca_file");
}

TEST(Arguments, AreCheckedBeforeAnythingIsSent) {
  ScriptedServer server({.get_matrix = Matrix3()});  // a solve would be UNIMPLEMENTED
  Client client({.address = server.address()});
  const std::vector<double> four{1, 2, 3, 4};
  EXPECT_EQ(client.Solve("matrices/a", four).error().field, "b");
  EXPECT_EQ(client.Solve("matrices/a", {}).error().field, "b");
  EXPECT_EQ(client.Solve("matrices/a", kB, {.initial_guess = four}).error().field, "initial_guess");
  EXPECT_EQ(client.Solve("matrices/a", kB, {}, {.max_run = milliseconds(0)}).error().field,
            "max_run");
  EXPECT_EQ(client.Build("matrices/a", PreconditionerSpec{}, false, {.max_queue = milliseconds(-1)})
                .error()
                .field,
            "max_queue");
  CscView broken = Small();
  broken.n = 4;
  EXPECT_EQ(client.Upload(broken).error().field, "col_ptr");
}

}  // namespace
}  // namespace spaid
