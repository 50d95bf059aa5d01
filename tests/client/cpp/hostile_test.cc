// A server that lies: figures that overflow, sizes that nobody has, lists without end. Each ends in
// an error or in a bounded value, which the sanitizers watch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using testing::Done;
using ::testing::HasSubstr;
using testing::Need;
using testing::ScriptedServer;
using testing::Small;

using BuildStream =
    grpc::ServerReaderWriter<v1::BuildPreconditionerResponse, v1::BuildPreconditionerRequest>;
using SolveStream = grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>;
using UploadStream = grpc::ServerReaderWriter<v1::UploadMatrixResponse, v1::UploadMatrixRequest>;
using DownloadWriter = grpc::ServerWriter<v1::DownloadPreconditionerResponse>;
using WatchWriter = grpc::ServerWriter<v1::WatchJobResponse>;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

template <class T>
void ExpectViolation(const Expected<T>& result, const std::string& says) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().reason, "PROTOCOL_VIOLATION") << result.error().message;
  EXPECT_THAT(result.error().message, HasSubstr(says));
}

Expected<CscMatrix> DownloadOf(int64_t n, int64_t nnz, const v1::ArrayChunk& chunk) {
  ScriptedServer server(
      {.download = [&](grpc::ServerContext&, const v1::DownloadPreconditionerRequest&,
                       DownloadWriter& writer) {
        v1::DownloadPreconditionerResponse response;
        response.mutable_header()->set_n(n);
        response.mutable_header()->set_nnz(nnz);
        response.mutable_header()->set_value_type(v1::VALUE_TYPE_FLOAT64);
        writer.Write(response);
        *response.mutable_chunk() = chunk;
        writer.Write(response);
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  return client.Download("preconditioners/x");
}

v1::ArrayChunk EightBytes(v1::ArrayKind kind, int64_t offset) {
  v1::ArrayChunk chunk;
  chunk.set_array(kind);
  chunk.set_offset(offset);
  chunk.set_data(std::string(8, '\0'));
  return chunk;
}

TEST(Hostile, SizesOfAResult) {
  const v1::ArrayChunk chunk = EightBytes(v1::ARRAY_KIND_POINTERS, 0);
  constexpr int64_t kMaxN = std::numeric_limits<int32_t>::max();
  for (const auto& [n, nnz] : std::vector<std::pair<int64_t, int64_t>>{{0, 0},
                                                                       {-1, 1},
                                                                       {kMost, 1},
                                                                       {kLeast, kLeast},
                                                                       {kMaxN, kMost},
                                                                       {kMaxN, kMaxN * kMaxN},
                                                                       {3, -1},
                                                                       {3, 10}}) {
    ExpectViolation(DownloadOf(n, nnz, chunk), "a result of ");
  }
  // As large as can be: believed as bytes come, of which there are eight.
  ExpectViolation(DownloadOf(kMaxN, kMost / 16, chunk), "ended before all");
}

TEST(Hostile, OffsetsOfChunks) {
  for (const int64_t offset : {int64_t{1}, int64_t{-1}, kMost, kLeast}) {
    ExpectViolation(DownloadOf(3, 7, EightBytes(v1::ARRAY_KIND_POINTERS, offset)), "out of order");
  }
}

// Solve's stream: these events, then an outcome.
Expected<SolveResult> SolveWith(const std::vector<v1::SolveResponse>& events) {
  ScriptedServer server({.upload =
                             [](grpc::ServerContext&, UploadStream& stream) {
                               stream.Write(Done("matrices/a", 3));
                               return grpc::Status::OK;
                             },
                         .solve =
                             [&](grpc::ServerContext&, SolveStream& stream) {
                               for (const v1::SolveResponse& event : events) stream.Write(event);
                               v1::SolveResponse done;
                               v1::SolveDone& end = *done.mutable_done();
                               end.add_outcomes()->set_iterations(kLeast);
                               end.mutable_timings()->set_bytes_up(kMost);
                               stream.Write(done);
                               return grpc::Status::OK;
                             }});
  Client client({.address = server.address()});
  return client.Solve(Small(), std::vector<double>{1, 2, 3}, {.omit_solution = true});
}

TEST(Hostile, ResidualsOfNothing) {
  for (const auto& [rhs, iteration] : std::vector<std::pair<int32_t, int32_t>>{
           {-1, 0}, {INT32_MIN, 0}, {1 << 20, 0}, {INT32_MAX, 0}, {0, -1}, {0, INT32_MIN}}) {
    v1::SolveResponse response;
    v1::Residual& residual = *response.mutable_job()->mutable_residuals()->add_residuals();
    residual.set_rhs(rhs);
    residual.set_iteration(iteration);
    ExpectViolation(SolveWith({response}), "a residual of ");
  }
}

TEST(Hostile, ResidualsWithoutEnd) {
  v1::SolveResponse response;
  for (int k = 0; k < 200'000; ++k) {
    response.mutable_job()->mutable_residuals()->add_residuals()->set_iteration(k);
  }
  ExpectViolation(SolveWith(std::vector(11, response)), "residuals without end");
  EXPECT_TRUE(SolveWith(std::vector(9, response)).ok());
}

TEST(Hostile, SumsOfCounters) {
  const auto result = SolveWith({});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_GT(result->timings.bytes_up, 0);  // the upload's added
}

TEST(Hostile, RangesThatAnUploadNeeds) {
  const auto upload = [](const std::vector<v1::UploadMatrixResponse>& needs) {
    ScriptedServer server({.upload = [&](grpc::ServerContext&, UploadStream& stream) {
      v1::UploadMatrixResponse all;
      for (const auto& need : needs) all.MergeFrom(need);
      stream.Write(all);
      v1::UploadMatrixRequest request;
      while (stream.Read(&request)) {
      }
      stream.Write(Done("matrices/a", 3));
      return grpc::Status::OK;
    }});
    Client client({.address = server.address()});
    return client.Upload(Small());
  };
  EXPECT_TRUE(
      upload({Need(v1::ARRAY_KIND_INDICES, 0, 3), Need(v1::ARRAY_KIND_INDICES, 3, 4)}).ok());
  for (const auto& [offset, count] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 8}, {7, 1}, {-1, 1}, {1, -1}, {kMost, kMost}, {1, kMost}, {kLeast, kMost}}) {
    ExpectViolation(upload({Need(v1::ARRAY_KIND_INDICES, offset, count)}), "it needs a part");
  }
  // The same again and again: it would be sent for ever.
  ExpectViolation(upload({Need(v1::ARRAY_KIND_INDICES, 0, 7), Need(v1::ARRAY_KIND_INDICES, 0, 7)}),
                  "or one twice");
}

TEST(Hostile, ListsWithoutEnd) {
  std::atomic<int> pages = 0;
  ScriptedServer server(
      {.list_matrices =
           [&](grpc::ServerContext&, const v1::ListMatricesRequest& request,
               v1::ListMatricesResponse& response) {
             ++pages;
             const std::string& at = request.page_token();
             response.set_next_page_token(at == "a" ? "b" : at == "b" ? "c" : "a");
             return grpc::Status::OK;
           },
       .list_jobs =
           [](grpc::ServerContext&, const v1::ListJobsRequest&, v1::ListJobsResponse& response) {
             response.set_next_page_token("same");
             return grpc::Status::OK;
           }});
  Client client({.address = server.address()});
  ExpectViolation(client.ListMatrices(), "no end");
  EXPECT_EQ(pages, 4);
  ExpectViolation(client.ListJobs(), "no end");
}

TEST(Hostile, ListsThatGrowWithoutEnd) {
  int64_t bytes = 0;
  v1::ListMatricesResponse page;
  page.add_matrices()->set_label(std::string(3 << 20, 'x'));
  ScriptedServer server({.list_matrices = [&](grpc::ServerContext&, const v1::ListMatricesRequest&,
                                              v1::ListMatricesResponse& response) {
    bytes += 3 << 20;
    page.set_next_page_token(std::to_string(bytes));
    response = page;
    return grpc::Status::OK;
  }});
  ExpectViolation(Client({.address = server.address()}).ListMatrices(), "no end");
  EXPECT_LE(bytes, 260 << 20);
}

TEST(Hostile, DelaysOfAges) {
  int64_t seconds = kMost;
  int32_t nanos = INT32_MAX;
  ScriptedServer server({.info = [&](grpc::ServerContext&, const v1::GetServerInfoRequest&,
                                     v1::GetServerInfoResponse&) {
    google::rpc::Status status;
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(seconds);
    retry.mutable_retry_delay()->set_nanos(nanos);
    status.add_details()->PackFrom(retry);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "later", status.SerializeAsString());
  }});
  Client client({.address = server.address()});
  const auto asked = client.GetServerInfo();  // at once: nobody waits that long
  ASSERT_FALSE(asked.ok());
  ASSERT_TRUE(asked.error().retry_after);
  EXPECT_LE(*asked.error().retry_after, std::chrono::hours(24 * 367));
  seconds = kLeast;
  nanos = INT32_MIN;
  Client once({.address = server.address(), .max_attempts = 1});
  EXPECT_EQ(once.GetServerInfo().error().retry_after, std::chrono::milliseconds(0));
}

TEST(Hostile, TimesOfAJob) {
  ScriptedServer server(
      {.get_job = [](grpc::ServerContext&, const v1::GetJobRequest&, v1::GetJobResponse& response) {
        v1::Job& job = *response.mutable_job();
        job.mutable_create_time()->set_seconds(kMost);
        job.mutable_start_time()->set_seconds(kLeast);
        job.mutable_start_time()->set_nanos(INT32_MIN);
        job.mutable_end_time()->set_seconds(kMost);
        job.mutable_end_time()->set_nanos(INT32_MAX);
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  const auto job = client.GetJob("jobs/1");
  ASSERT_TRUE(job.ok());
  EXPECT_GT((*job->ended - *job->started).count(), 0);
  EXPECT_EQ(job->started->time_since_epoch().count(), 0);
}

// Event numbers as large as there are: the next stream goes on there, without a number beyond.
TEST(Hostile, NumbersOfEvents) {
  std::vector<int64_t> asked_from;
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, WatchWriter& writer) {
        asked_from.push_back(request.first_event());
        v1::WatchJobResponse response;
        response.mutable_event()->set_number(asked_from.size() == 1 ? kMost : 0);
        response.mutable_event()->mutable_finished()->mutable_job()->set_name("jobs/1");
        if (asked_from.size() == 1) response.mutable_event()->mutable_heartbeat();
        writer.Write(response);
        return asked_from.size() == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")
                                      : grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  const auto ended = client.Watch("jobs/1", {});
  ASSERT_TRUE(ended.ok()) << ended.error().message;
  EXPECT_EQ(asked_from, (std::vector<int64_t>{1, kMost}));
}

TEST(Hostile, SizesOfASolution) {
  const auto watch = [](int64_t n, int32_t count, int headers) {
    ScriptedServer server(
        {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest&, WatchWriter& writer) {
          v1::WatchJobResponse response;
          response.mutable_solution()->set_n(n);
          response.mutable_solution()->set_rhs_count(count);
          for (int k = 0; k < headers; ++k) writer.Write(response);
          v1::WatchJobResponse chunk;
          *chunk.mutable_chunk() = EightBytes(v1::ARRAY_KIND_SOLUTION, 0);
          writer.Write(chunk);
          v1::WatchJobResponse event;
          event.mutable_event()->mutable_finished()->mutable_job()->set_name("jobs/1");
          writer.Write(event);
          return grpc::Status::OK;
        }});
    Client client({.address = server.address()});
    Solution solution;
    return client.Watch("jobs/1", {}, 1, &solution);
  };
  EXPECT_TRUE(watch(1, 1, 1).ok());
  ExpectViolation(watch(INT32_MAX, 1 << 20, 1), "ended early");
  ExpectViolation(watch(kMost, 1, 1), "impossible size");
  ExpectViolation(watch(1, INT32_MAX, 1), "impossible size");
  ExpectViolation(watch(-1, -1, 1), "impossible size");
  ExpectViolation(watch(1, 1, 2), "a second solution");
  ExpectViolation(watch(1, 1, 0), "before the solution's size");
}

}  // namespace
}  // namespace spaid
