// The handle of a job: it goes on behind the last event whatever breaks, and says how the job
// ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using ::testing::ElementsAre;
using testing::Refusal;
using testing::ScriptedServer;

using Writer = grpc::ServerWriter<v1::WatchJobResponse>;
using SolveStream = grpc::ServerReaderWriter<v1::SolveResponse, v1::SolveRequest>;
using BuildStream =
    grpc::ServerReaderWriter<v1::BuildPreconditionerResponse, v1::BuildPreconditionerRequest>;

const std::vector<double> kB{1, 2, 3}, kX{4, 5, 6};

grpc::Status Broken() { return {grpc::StatusCode::UNAVAILABLE, "Socket closed"}; }

// Event `number` of a job that has `count` of them; the last one says that it succeeded.
v1::WatchJobResponse Event(int64_t number, int64_t count) {
  v1::WatchJobResponse response;
  v1::JobEvent& event = *response.mutable_event();
  event.set_number(number);
  if (number == count) {
    v1::Job& job = *event.mutable_finished()->mutable_job();
    job.set_name("jobs/1");
    job.set_state(v1::JOB_STATE_SUCCEEDED);
    job.mutable_end_time()->set_seconds(1);
    job.add_outcomes()->set_outcome(v1::OUTCOME_CONVERGED);
  } else if (number == 1) {
    event.mutable_queued()->set_job("jobs/1");
  } else {
    event.mutable_progress()->set_stage(v1::STAGE_SOLVE);
    event.mutable_progress()->set_done(number);
  }
  return response;
}

v1::WatchJobResponse Heartbeat() {
  v1::WatchJobResponse response;
  response.mutable_event()->mutable_heartbeat()->set_state(v1::JOB_STATE_RUNNING);
  return response;
}

void WriteSolution(Writer& writer) {
  v1::WatchJobResponse response;
  response.mutable_solution()->set_n(3);
  response.mutable_solution()->set_rhs_count(1);
  writer.Write(response);
  response.Clear();
  response.mutable_chunk()->set_array(v1::ARRAY_KIND_SOLUTION);
  response.mutable_chunk()->set_data(std::string(reinterpret_cast<const char*>(kX.data()), 24));
  writer.Write(response);
}

// Numbered events as a callback sees them.
struct Seen {
  std::vector<int64_t> numbers;
  CallOptions Call() {
    return {.on_progress = [this](const Progress& progress) {
      if (progress.event_number == 0) return;
      EXPECT_EQ(progress.job, "jobs/1");
      numbers.push_back(progress.event_number);
    }};
  }
};

std::vector<int64_t> UpTo(int64_t last) {
  std::vector<int64_t> numbers;
  for (int64_t k = 1; k <= last; ++k) numbers.push_back(k);
  return numbers;
}

TEST(Job, OutlivesMoreBrokenStreamsThanAttemptsAsLongAsEachBringsSomething) {
  constexpr int64_t kEvents = 12;
  std::vector<int64_t> asked;
  // Each stream brings one event and breaks; one brings a heartbeat alone.
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        asked.push_back(request.first_event());
        if (asked.size() == 5) {
          writer.Write(Heartbeat());
          return Broken();
        }
        writer.Write(Event(request.first_event(), kEvents));
        return request.first_event() == kEvents ? grpc::Status::OK : Broken();
      }});
  Client client({.address = server.address(), .max_attempts = 2});
  Job job = client.OpenJob("jobs/1");
  Seen seen;
  const auto info = job.Watch(seen.Call());
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->state, JobState::kSucceeded);
  EXPECT_EQ(seen.numbers, UpTo(kEvents));
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(job.last_event(), kEvents);
}

TEST(Job, GivesUpWhereNothingComesAndGoesOnWhereItWas) {
  std::atomic<int> streams = 0;
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        ++streams;
        if (streams == 1) {
          writer.Write(Event(1, 3));
          writer.Write(Event(2, 3));
        }
        if (streams <= 4) return Broken();
        for (int64_t k = request.first_event(); k <= 3; ++k) writer.Write(Event(k, 3));
        return grpc::Status::OK;
      }});
  Client client({.address = server.address(), .max_attempts = 3});
  Job job = client.OpenJob("jobs/1");
  Seen seen;
  EXPECT_EQ(job.Watch(seen.Call()).error().reason, "CONNECTION_LOST");
  EXPECT_EQ(streams, 4);  // the one that brought something, and three in a row that did not
  EXPECT_EQ(job.last_event(), 2);
  EXPECT_TRUE(job.Watch(seen.Call()).ok());
  EXPECT_EQ(seen.numbers, UpTo(3));
}

TEST(Job, TellsNothingTwiceWhatEverTheServerRepeats) {
  std::atomic<int> streams = 0;
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest&, Writer& writer) {
        const int64_t last = ++streams == 1 ? 3 : 4;
        for (int64_t k = 1; k <= last; ++k) writer.Write(Event(k, 4));
        return last == 4 ? grpc::Status::OK : Broken();
      }});
  Client client({.address = server.address()});
  Seen seen;
  EXPECT_TRUE(client.OpenJob("jobs/1").Watch(seen.Call()).ok());
  EXPECT_EQ(seen.numbers, UpTo(4));
}

TEST(Job, WaitBringsTheSolutionOnceItComesWhole) {
  std::vector<int64_t> asked;
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        asked.push_back(request.first_event());
        for (int64_t k = request.first_event(); k <= 2; ++k) writer.Write(Event(k, 2));
        if (!request.with_solution()) return grpc::Status::OK;
        if (asked.size() == 1) {
          v1::WatchJobResponse response;
          response.mutable_solution()->set_n(3);
          response.mutable_solution()->set_rhs_count(1);
          writer.Write(response);
          return Broken();
        }
        WriteSolution(writer);
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  Job job = client.OpenJob("jobs/1");
  Seen seen;
  const auto end = job.Wait(seen.Call());
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->info.outcomes.at(0).outcome, Outcome::kConverged);
  ASSERT_TRUE(end->solution);
  EXPECT_EQ(end->solution->x, kX);
  EXPECT_FALSE(end->solution_error);
  EXPECT_EQ(seen.numbers, UpTo(2));
  EXPECT_THAT(asked, ElementsAre(1, 3));
  // A watch of what has ended asks nobody; a second Wait asks for the solution alone.
  EXPECT_TRUE(job.Watch().ok());
  EXPECT_EQ(job.Wait()->solution->x, kX);
  EXPECT_THAT(asked, ElementsAre(1, 3, 3));
}

TEST(Job, ASolutionThatAlwaysBreaksOffIsNotAskedForForEver) {
  std::atomic<int> streams = 0;
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        ++streams;
        for (int64_t k = request.first_event(); k <= 2; ++k) writer.Write(Event(k, 2));
        v1::WatchJobResponse response;
        response.mutable_solution()->set_n(3);
        response.mutable_solution()->set_rhs_count(1);
        writer.Write(response);
        return Broken();
      }});
  Client client({.address = server.address(), .max_attempts = 2});
  EXPECT_EQ(client.OpenJob("jobs/1").Wait().error().reason, "CONNECTION_LOST");
  EXPECT_EQ(streams, 3);
}

TEST(Job, WaitSaysHowTheJobEndedWhereTheSolutionIsGone) {
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        for (int64_t k = request.first_event(); k <= 2; ++k) writer.Write(Event(k, 2));
        return Refusal(grpc::StatusCode::NOT_FOUND, "SOLUTION_GONE", "not kept");
      }});
  Client client({.address = server.address()});
  const auto end = client.OpenJob("jobs/1").Wait();
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->info.outcomes.at(0).outcome, Outcome::kConverged);
  EXPECT_FALSE(end->solution);
  ASSERT_TRUE(end->solution_error);
  EXPECT_EQ(end->solution_error->reason, "SOLUTION_GONE");
}

TEST(Job, WaitForABuildNeedsNoSolution) {
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        if (request.with_solution()) {
          return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "NOT_A_SOLVE", "a build");
        }
        for (int64_t k = request.first_event(); k <= 2; ++k) writer.Write(Event(k, 2));
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  Seen seen;
  const auto end = client.OpenJob("jobs/1").Wait(seen.Call());
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->info.state, JobState::kSucceeded);
  EXPECT_EQ(end->solution_error->reason, "NOT_A_SOLVE");
  EXPECT_EQ(seen.numbers, UpTo(2));
}

TEST(Job, OpenedBehindItsEndSaysHowItEnded) {
  ScriptedServer server({.watch = [](grpc::ServerContext&, const v1::WatchJobRequest&,
                                     Writer&) { return grpc::Status::OK; },
                         .get_job =
                             [](grpc::ServerContext&, const v1::GetJobRequest& request,
                                v1::GetJobResponse& response) {
                               response.mutable_job()->set_name(request.name());
                               response.mutable_job()->set_state(v1::JOB_STATE_CANCELLED);
                               response.mutable_job()->mutable_end_time()->set_seconds(1);
                               return grpc::Status::OK;
                             }});
  Client client({.address = server.address()});
  const auto info = client.OpenJob("jobs/1", 1000).Watch();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->state, JobState::kCancelled);
}

TEST(Job, ThatTheServerHasForgottenIsAnErrorAtOnce) {
  std::atomic<int> streams = 0;
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest&, Writer& writer) {
        if (++streams == 1) {
          writer.Write(Event(1, 3));
          return Broken();
        }
        return Refusal(grpc::StatusCode::NOT_FOUND, "HANDLE_UNKNOWN", "no such job");
      }});
  Client client({.address = server.address(), .max_attempts = 100});
  EXPECT_EQ(client.OpenJob("jobs/1").Watch().error().reason, "HANDLE_UNKNOWN");
  EXPECT_EQ(streams, 2);
}

TEST(Job, AStopLeavesTheHandleWhereItWas) {
  ScriptedServer server({.watch = [&](grpc::ServerContext& context,
                                      const v1::WatchJobRequest& request, Writer& writer) {
    if (request.first_event() == 1) {
      writer.Write(Event(1, 3));
      writer.Write(Event(2, 3));
      while (!context.IsCancelled()) writer.Write(Heartbeat());
      return grpc::Status::CANCELLED;
    }
    for (int64_t k = request.first_event(); k <= 3; ++k) writer.Write(Event(k, 3));
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  Job job = client.OpenJob("jobs/1");
  std::stop_source stop;
  Seen seen;
  CallOptions call = seen.Call();
  call.stop = stop.get_token();
  call.on_progress = [&, inner = call.on_progress](const Progress& progress) {
    inner(progress);
    if (progress.event_number == 2) stop.request_stop();
  };
  EXPECT_EQ(job.Watch(call).error().reason, "STOP_REQUESTED");
  EXPECT_TRUE(job.Watch(seen.Call()).ok());
  EXPECT_EQ(seen.numbers, UpTo(3));
}

TEST(Job, AnExceptionOfTheCallbackDoesNotBringAnEventTwice) {
  ScriptedServer server(
      {.watch = [&](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
        for (int64_t k = request.first_event(); k <= 3; ++k) writer.Write(Event(k, 3));
        return grpc::Status::OK;
      }});
  Client client({.address = server.address()});
  Job job = client.OpenJob("jobs/1");
  EXPECT_THROW((void)job.Watch({.on_progress =
                                    [](const Progress& progress) {
                                      if (progress.event_number == 2) {
                                        throw std::runtime_error("enough");
                                      }
                                    }}),
               std::runtime_error);
  Seen seen;
  EXPECT_TRUE(job.Watch(seen.Call()).ok());
  EXPECT_THAT(seen.numbers, ElementsAre(3));
}

TEST(Job, SnapshotAndCancelAskTheServerAndOutliveTheClient) {
  std::string cancelled;
  ScriptedServer server({.get_job =
                             [](grpc::ServerContext&, const v1::GetJobRequest& request,
                                v1::GetJobResponse& response) {
                               response.mutable_job()->set_name(request.name());
                               response.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
                               return grpc::Status::OK;
                             },
                         .cancel_job =
                             [&](grpc::ServerContext&, const v1::CancelJobRequest& request,
                                 v1::CancelJobResponse& response) {
                               cancelled = request.name();
                               response.mutable_job()->set_state(v1::JOB_STATE_RUNNING);
                               return grpc::Status::OK;
                             }});
  auto client = std::make_unique<Client>(ClientOptions{.address = server.address()});
  const Job job = client->OpenJob("jobs/1");
  client.reset();
  EXPECT_EQ(job.Snapshot()->state, JobState::kRunning);
  EXPECT_TRUE(job.Cancel().ok());
  EXPECT_EQ(cancelled, "jobs/1");
}

TEST(Start, ASolveLeavesOnceItIsQueuedWithAllItsInput) {
  int64_t chunks = 0;
  bool detached = false;
  ScriptedServer server(
      {.get_matrix =
           [](grpc::ServerContext&, const v1::GetMatrixRequest& request,
              v1::GetMatrixResponse& response) {
             response.mutable_matrix()->set_name(request.name());
             response.mutable_matrix()->set_n(3);
             return grpc::Status::OK;
           },
       .solve =
           [&](grpc::ServerContext& context, SolveStream& stream) {
             v1::SolveRequest request;
             while (stream.Read(&request)) {
               if (request.has_header()) detached = request.header().detach();
               if (request.has_chunk()) ++chunks;
             }
             v1::SolveResponse response;
             *response.mutable_job() = Event(1, 3).event();
             stream.Write(response);
             response.mutable_job()->Clear();
             response.mutable_job()->mutable_heartbeat()->set_state(v1::JOB_STATE_RUNNING);
             while (!context.IsCancelled()) stream.Write(response);
             return grpc::Status::CANCELLED;
           },
       .watch =
           [](grpc::ServerContext&, const v1::WatchJobRequest& request, Writer& writer) {
             for (int64_t k = request.first_event(); k <= 3; ++k) writer.Write(Event(k, 3));
             WriteSolution(writer);
             return grpc::Status::OK;
           }});
  Client client({.address = server.address()});
  Seen seen;
  auto job = client.StartSolve("matrices/a", kB, {}, seen.Call());
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_TRUE(detached);
  EXPECT_EQ(chunks, 1);
  EXPECT_EQ(job->name(), "jobs/1");
  EXPECT_EQ(job->matrix(), "matrices/a");
  const auto end = job->Wait(seen.Call());
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->solution->x, kX);
  EXPECT_EQ(seen.numbers, UpTo(3));  // those of the start and those of the wait
}

TEST(Start, ARefusalHasNoJob) {
  ScriptedServer server({.build = [&](grpc::ServerContext&, BuildStream&) {
    return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "BAD_SPEC", "no");
  }});
  Client client({.address = server.address()});
  EXPECT_EQ(client.StartBuild("matrices/a", PreconditionerSpec{}).error().reason, "BAD_SPEC");
}

TEST(Start, ABuildThatWasThereAlreadyHasEndedWithoutAJob) {
  ScriptedServer server({.build = [&](grpc::ServerContext&, BuildStream& stream) {
    v1::BuildPreconditionerResponse response;
    response.mutable_done()->mutable_preconditioner()->set_name("preconditioners/p");
    stream.Write(response);
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  auto job = client.StartBuild("matrices/a", PreconditionerSpec{});
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->name(), "");
  const auto end = job->Wait();
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->info.state, JobState::kSucceeded);
  EXPECT_EQ(end->info.preconditioner, "preconditioners/p");
  EXPECT_EQ(job->Snapshot()->matrix, "matrices/a");
}

TEST(ListJobPage, AsksForOnePageByStateAndToken) {
  v1::ListJobsRequest asked;
  ScriptedServer server({.list_jobs = [&](grpc::ServerContext&, const v1::ListJobsRequest& request,
                                          v1::ListJobsResponse& response) {
    asked = request;
    response.add_jobs()->set_name("jobs/7");
    response.set_next_page_token("more");
    return grpc::Status::OK;
  }});
  Client client({.address = server.address()});
  const auto page =
      client.ListJobPage({.state = JobState::kFailed, .page_size = 5, .page_token = "from here"});
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(page->jobs.at(0).name, "jobs/7");
  EXPECT_EQ(page->next_page_token, "more");
  EXPECT_EQ(asked.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(asked.page_size(), 5);
  EXPECT_EQ(asked.page_token(), "from here");
}

}  // namespace
}  // namespace spaid
