// Storms: hundreds of streams at once that are cancelled, time out, are refused, lose their device
// or are drained. Of each: every job ends once and says so to everyone who waits, with its own
// reason; nobody else is harmed; nothing is left behind.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/log.h"
#include "server/sched/job.h"
#include "tests/server/rpc/harness.h"
#include "tests/server/rpc/proxy.h"

namespace spaid::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A matrix whose M takes 8 MB: far more than any window on the way to who does not read.
constexpr int64_t kLargeN = 400'000;

// Tries until it holds or a minute has passed.
bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));  // leaves the cores to what it looks at
  }
  return true;
}

// `count` threads; each is told which one it is.
void AtOnce(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(run, t);
  for (std::thread& thread : threads) thread.join();
}

// Somebody with a connection of their own.
struct Peer {
  explicit Peer(Harness& h, std::string its_tenant = "", const std::string& address = "")
      : tenant(std::move(its_tenant)),
        channel(h.NewChannel({}, address)),
        preconditioners(v1::PreconditionerService::NewStub(channel)),
        solver(v1::SolverService::NewStub(channel)),
        jobs(v1::JobService::NewStub(channel)) {}

  std::unique_ptr<grpc::ClientContext> Within(milliseconds deadline) const {
    auto context = Context(tenant);
    context->set_deadline(std::chrono::system_clock::now() + deadline);
    // Of hundreds that connect at once gRPC 1.51 fails one now and then by itself.
    context->set_wait_for_ready(true);
    return context;
  }
  BuildCall Build(const v1::BuildHeader& header, milliseconds deadline = seconds(60)) {
    BuildCall call(Within(deadline), &v1::PreconditionerService::Stub::BuildPreconditioner,
                   *preconditioners);
    call.Head(header).Done();
    return call;
  }
  // Of diag(2, 3, 4) and b = (2, 6, 12): x = (1, 2, 3).
  SolveCall Solve(const v1::SolveHeader& header, milliseconds deadline = seconds(60)) {
    SolveCall call(Within(deadline), &v1::SolverService::Stub::Solve, *solver);
    call.Head(header).Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12})).Done();
    return call;
  }
  void Cancel(const std::string& job) {
    auto context = Context(tenant);
    v1::CancelJobRequest request;
    request.set_name(job);
    v1::CancelJobResponse response;
    const grpc::Status status = jobs->CancelJob(context.get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  std::string tenant;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::PreconditionerService::Stub> preconditioners;
  std::unique_ptr<v1::SolverService::Stub> solver;
  std::unique_ptr<v1::JobService::Stub> jobs;
};

void ExpectAnswer(SolveCall& call) {
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(events.back().has_done());
  EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  const std::vector<double> want{1, 2, 3};
  EXPECT_EQ(events[events.size() - 2].chunk().data(),
            std::string(reinterpret_cast<const char*>(want.data()), 24));
}

class Storm : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([](LogLevel, const std::string&) {});
  }
  void TearDown() override { SetLogSink(nullptr); }

  static Harness::Options Large(int slots) {
    Harness::Options options{.backend = Harness::SmallBackend(), .trust_tenant_header = true};
    options.backend.slots = slots;
    options.backend.max_matrix_bytes = options.backend.matrix_store_bytes = 64 << 20;
    options.backend.preconditioner_store_bytes = 64 << 20;
    return options;
  }

  // All that has ended did so once, with an event that says so and is the last; nothing else is
  // known, queued, running, streaming or held.
  static void ExpectQuiet(Harness& h) {
    Backend& b = *h.backend;
    ASSERT_TRUE(b.streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(60)));
    ASSERT_TRUE(Eventually([&] {
      const Scheduler::Load load = b.scheduler().load();
      return load.queued == 0 && load.running == 0;
    }));
    // The last one may still be on its way from its worker to the table.
    int64_t ended = 0;
    ASSERT_TRUE(Eventually([&] {
      ended = 0;
      for (const auto& [state, count] : h.metrics.totals().jobs_by_state) ended += count;
      return static_cast<int64_t>(b.jobs().LastEnded(100'000).size()) == b.jobs().size();
    }));
    EXPECT_EQ(b.jobs().size(), ended);
    for (const auto& job : b.jobs().LastEnded(100'000)) {
      const JobEvents read = job->Read(1, 100'000);
      ASSERT_TRUE(job->ended() && read.end) << job->name();
      for (size_t e = 0; e < read.events.size(); ++e) {
        ASSERT_EQ(read.events[e].number(), static_cast<int64_t>(e) + 1);
        ASSERT_EQ(read.events[e].has_finished(), e + 1 == read.events.size());
      }
    }
    EXPECT_EQ(b.streams().outgoing_bytes(), 0);
    EXPECT_EQ(b.matrices().stats().reserved_bytes, 0);
    EXPECT_TRUE(Eventually([&] {
      return b.matrices().stats().zombie_bytes == 0 &&
             b.preconditioners().stats().zombie_bytes == 0;
    }));
    // Solutions that nobody fetched wait for who might, and go when their room is wanted.
    b.jobs().DropResults(INT64_MAX, [](const std::string&) { return true; });
    EXPECT_TRUE(Eventually([&] { return b.rhs_budget().used() == 0; })) << b.rhs_budget().used();
  }
};

// --- All at once ---

// 320 clients, each with its own connection: builds (some of them the same), solves, watchers, and
// readers that read nothing; and others who ask for lists all the while.
TEST_F(Storm, HundredsOfClientsAndReadersThatReadNothing) {
  constexpr int kClients = 320, kListers = 4;
  Harness h(Large(/*slots=*/2));
  const std::string matrix = h.Store(DiagonalMatrix(3, 2));
  v1::BuildHeader large = BuildOf(h.Store(DiagonalMatrix(kLargeN)), Jacobi());
  Peer first(h);
  ASSERT_TRUE(first.Build(large).Finish().ok());
  large.set_stream_result(true);

  std::vector<std::string> matrices;
  for (int i = 0; i < 16; ++i) matrices.push_back(h.Store(DiagonalMatrix(3, 100 + i)));
  h.engine.HoldBuilds();
  h.engine.HoldSolves();
  SolveCall held = first.Solve(SolveOf(matrix, None()));
  const std::string watched = JobName(held);

  std::atomic<int> done{0}, listed{0};
  std::atomic<bool> over{false};
  std::promise<void> let_go;
  const auto gone = let_go.get_future().share();
  std::thread listers([&] {
    AtOnce(kListers, [&](int) {
      Peer peer(h);
      while (!over) {
        auto context = peer.Within(seconds(60));
        v1::ListJobsResponse response;
        EXPECT_TRUE(peer.jobs->ListJobs(context.get(), {}, &response).ok());
        EXPECT_GT(response.jobs_size(), 0);
        ++listed;
      }
    });
  });
  std::thread clients([&] {
    AtOnce(kClients, [&](int i) {
      Peer peer(h);
      if (i % 8 == 0) {  // a black hole
        auto call = peer.Build(large);
        gone.wait();
        call.Cancel();
        EXPECT_FALSE(call.Finish().ok());
        return;
      }
      switch (i % 4) {
        case 1: {
          auto call = peer.Build(BuildOf(matrices[static_cast<size_t>(i) % 16], Jacobi()));
          const grpc::Status status = call.Finish();
          EXPECT_TRUE(status.ok()) << status.error_message();
          break;
        }
        case 2: {
          auto context = peer.Within(seconds(60));
          v1::WatchJobRequest request;
          request.set_name(watched);
          auto stream = peer.jobs->WatchJob(context.get(), request);
          v1::WatchJobResponse response;
          while (stream->Read(&response)) {
          }
          EXPECT_TRUE(response.event().has_finished());
          EXPECT_TRUE(stream->Finish().ok());
          break;
        }
        default: {
          SolveCall call = peer.Solve(SolveOf(matrix, i % 3 == 0 ? None() : Jacobi()));
          ExpectAnswer(call);
        }
      }
      ++done;
    });
  });
  // All of them are there before anything moves.
  EXPECT_TRUE(Eventually([&] { return h.backend->streams().size() == kClients + 1; }))
      << h.backend->streams().size();
  h.engine.Release();
  ExpectAnswer(held);
  // The others are through while the black holes still hold what they were sent.
  EXPECT_TRUE(Eventually([&] { return done == kClients - kClients / 8; })) << done;
  EXPECT_TRUE(Eventually([&] { return h.backend->streams().size() == kClients / 8; }));
  over = true;
  listers.join();
  EXPECT_GT(h.backend->streams().outgoing_bytes(), 0);
  EXPECT_TRUE(Eventually([&] {
    return h.backend->streams().outgoing_bytes() <= kClients / 8 * ((1 << 20) + 1000);
  })) << h.backend->streams().outgoing_bytes();
  EXPECT_GT(listed, kListers);
  let_go.set_value();
  clients.join();
  EXPECT_LE(h.engine.builds, 1 + 16 + 1);
  ExpectQuiet(h);
}

// --- Cancellation ---

enum class Stop { kCancelJob, kReset, kDetachedReset, kNothing };

// Jobs of one client of a cancel storm, each stopped in another way, in whatever state it is in.
// `held`: none can end by itself.
void CancelThem(Harness& h, int client, const std::vector<std::string>& matrices, bool held) {
  std::mt19937 random(static_cast<unsigned>(client) + (held ? 1000 : 0));
  Peer peer(h, "stormy"), other(h, "stormy");
  for (int i = 0; i < 3; ++i) {
    const auto how = static_cast<Stop>(random() % (held ? 3 : 4));
    const bool early = random() % 4 == 0;  // before it is known whether there is a job
    if (random() % 2 == 0) {
      // One that is cancelled by name is cancelled for all who share it.
      const std::string matrix =
          how == Stop::kReset
              ? matrices[random() % matrices.size()]
              : h.Store(DiagonalMatrix(3, 1000.0 * (held ? 1 : 2) + 3 * client + i), "stormy");
      v1::BuildHeader header = BuildOf(matrix, Jacobi());
      header.set_detach(how == Stop::kDetachedReset);
      BuildCall call = peer.Build(header);
      if (how == Stop::kReset && early) {
        call.Cancel();
        (void)call.Finish();
        continue;
      }
      const bool nameless = !held && how == Stop::kReset;  // its M may be there
      const std::string job = nameless ? "" : JobName(call);
      if (how == Stop::kReset || how == Stop::kDetachedReset) call.Cancel();
      if (how == Stop::kCancelJob || how == Stop::kDetachedReset) other.Cancel(job);
      const grpc::Status status = call.Finish();
      if (how == Stop::kNothing) {
        EXPECT_TRUE(status.ok()) << status.error_message();
      } else if (!status.ok() || held) {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
      }
      if (how == Stop::kCancelJob && !status.ok()) {
        EXPECT_EQ(Decode(status).reason, "CANCELLED");
      }
    } else {
      v1::SolveHeader header = SolveOf(matrices[0], None());
      header.set_detach(how == Stop::kDetachedReset);
      SolveCall call = peer.Solve(header);
      if (how == Stop::kReset && early) {
        call.Cancel();
        (void)call.Finish();
        continue;
      }
      const std::string job = JobName(call);
      if (how == Stop::kReset || how == Stop::kDetachedReset) call.Cancel();
      if (how == Stop::kCancelJob || how == Stop::kDetachedReset) other.Cancel(job);
      std::vector<v1::SolveResponse> events;
      const grpc::Status status = call.Finish(&events);
      if (how == Stop::kNothing) {
        EXPECT_TRUE(status.ok()) << status.error_message();
      } else if (!status.ok()) {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
      } else if (held) {  // it ran: what it had comes, and says what it is
        EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_CANCELLED);
      }
    }
  }
}

TEST_F(Storm, CancelledInEveryStateFromEverywhere) {
  constexpr int kClients = 100, kCalm = 24, kBroken = 8, kOnEach = 6;
  Harness h(Large(/*slots=*/4));
  std::vector<std::string> matrices, calm_matrices;
  for (int i = 0; i < 12; ++i) matrices.push_back(h.Store(DiagonalMatrix(3, 2 + i), "stormy"));
  const std::string calm_matrix = h.Store(DiagonalMatrix(3, 2), "calm");
  h.engine.HoldBuilds();
  h.engine.HoldSolves();

  // Somebody else's, of the lowest class: they wait behind the storm, and are not touched by it.
  std::vector<std::unique_ptr<Peer>> calm;
  std::vector<SolveCall> solves;
  for (int i = 0; i < kCalm; ++i) {
    calm.push_back(std::make_unique<Peer>(h, "calm"));
    v1::SolveHeader header = SolveOf(calm_matrix, i % 2 == 0 ? None() : Jacobi());
    header.set_priority(v1::PRIORITY_BULK);
    solves.push_back(calm.back()->Solve(header));
    JobName(solves.back());
  }
  // And some whose connections break under all of their streams.
  std::vector<std::unique_ptr<Proxy>> proxies;
  for (int i = 0; i < kBroken; ++i) {
    proxies.push_back(std::make_unique<Proxy>(h.server->address()));
  }
  std::thread broken([&] {
    AtOnce(kBroken, [&](int i) {
      Proxy& proxy = *proxies[static_cast<size_t>(i)];
      Peer peer(h, "stormy", proxy.address());
      std::vector<SolveCall> own;
      for (int k = 0; k < kOnEach; ++k) {
        own.push_back(peer.Solve(SolveOf(matrices[0], None())));
        JobName(own.back());
      }
      proxy.Cut();
      for (SolveCall& call : own) {
        EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
      }
    });
  });
  AtOnce(kClients, [&](int client) { CancelThem(h, client, matrices, /*held=*/true); });
  broken.join();
  // Nothing could end by itself, and nothing of the storm's is left: of queued ones not either.
  EXPECT_TRUE(Eventually([&] {
    const Scheduler::Load load = h.backend->scheduler().load();
    return load.queued + load.running == kCalm;
  })) << h.backend->scheduler().load().queued;
  h.engine.Release();
  for (SolveCall& solve : solves) ExpectAnswer(solve);
  // The same where jobs end while they are cancelled.
  AtOnce(kClients, [&](int client) { CancelThem(h, client, matrices, /*held=*/false); });
  ExpectQuiet(h);
  h.ExpectLives();
}

// Results that are on their way down when their readers leave: each at another place.
TEST_F(Storm, ReadersLeaveInTheMiddleOfTheirResults) {
  constexpr int kReaders = 120;
  Harness h(Large(/*slots=*/2));
  v1::BuildHeader header = BuildOf(h.Store(DiagonalMatrix(kLargeN)), Jacobi());
  header.set_stream_result(true);
  h.engine.HoldBuilds();
  std::atomic<int> whole{0};
  std::thread readers([&] {
    AtOnce(kReaders, [&](int i) {
      Peer peer(h);
      BuildCall call = peer.Build(header);
      v1::BuildPreconditionerResponse response;
      int64_t bytes = 0;
      for (int chunks = 0; call.Read(&response);) {
        if (!response.has_chunk()) continue;
        bytes += static_cast<int64_t>(response.chunk().data().size());
        if (++chunks > i % 16) call.Cancel();  // there are ten
      }
      const grpc::Status status = call.Finish();
      if (!status.ok()) {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
      } else {
        EXPECT_EQ(bytes, (kLargeN + 1) * 8 + kLargeN * 12);
        ++whole;
      }
    });
  });
  EXPECT_TRUE(Eventually([&] { return h.backend->streams().size() == kReaders; }));
  h.engine.Release();
  readers.join();
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, kReaders);
  EXPECT_EQ(h.engine.builds, 1) << "one build for all of them";
  ExpectQuiet(h);
  auto peer = Peer(h);
  EXPECT_TRUE(peer.Build(header).Finish().ok()) << "it is still there";
}

// --- Deadlines ---

TEST_F(Storm, EveryDeadlineIsItsOwn) {
  constexpr int kClients = 100;
  Harness h(Large(/*slots=*/4));
  const std::string matrix = h.Store(DiagonalMatrix(3, 2));
  std::vector<std::string> matrices;
  for (int i = 0; i < 40; ++i) matrices.push_back(h.Store(DiagonalMatrix(3, 50 + i)));
  h.engine.HoldBuilds();
  h.engine.HoldSolves();
  // One that has no deadline, and that many watch with one.
  Peer patient(h);
  SolveCall held = patient.Solve(SolveOf(matrix, None()));
  const std::string watched = JobName(held);
  WaitStarted(held);

  std::mutex mutex;
  std::map<std::string, int> reasons;
  const auto count = [&](const std::string& reason) {
    const std::lock_guard lock(mutex);
    ++reasons[reason];
  };
  AtOnce(kClients, [&](int client) {
    std::mt19937 random(static_cast<unsigned>(client));
    Peer peer(h);
    for (int i = 0; i < 3; ++i) {
      const auto nanos = [&] { return static_cast<int32_t>(1 + random() % 100) * 1'000'000; };
      const auto soon = milliseconds(1 + random() % 150);
      switch ((client + i) % 4) {
        case 0: {  // the call's own
          const grpc::Status status =
              random() % 2 == 0
                  ? peer.Build(BuildOf(matrices[random() % 40], Jacobi()), soon).Finish()
                  : peer.Solve(SolveOf(matrix, None()), soon).Finish();
          EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
              << status.error_message();
          const std::string reason = Decode(status).reason;  // none: the client's own clock
          EXPECT_TRUE(reason.empty() || reason == "DEADLINE" || reason == "DEADLINE_INFEASIBLE")
              << reason;
          count("call " + reason);
          break;
        }
        case 1: {
          v1::BuildHeader header = BuildOf(matrices[random() % 40], Jacobi());
          header.mutable_limits()->mutable_max_queue()->set_nanos(nanos());
          header.mutable_limits()->mutable_max_run()->set_nanos(nanos());
          const grpc::Status status = peer.Build(header).Finish();
          EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
          const std::string reason = Decode(status).reason;
          EXPECT_TRUE(reason == "MAX_QUEUE" || reason == "MAX_RUN") << reason;
          count(reason);
          break;
        }
        case 2: {  // of a solve that ran its iterate is there, and says so
          v1::SolveHeader header = SolveOf(matrix, None());
          header.mutable_limits()->mutable_max_queue()->set_nanos(nanos());
          header.mutable_limits()->mutable_max_run()->set_nanos(nanos());
          std::vector<v1::SolveResponse> events;
          const grpc::Status status = peer.Solve(header).Finish(&events);
          if (status.ok()) {
            EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_TIME_LIMIT);
            count("TIME_LIMIT");
          } else {
            EXPECT_RPC_ERROR(status, DEADLINE_EXCEEDED, "MAX_QUEUE", "max_queue");
            count("MAX_QUEUE");
          }
          break;
        }
        default: {
          auto context = peer.Within(soon);
          v1::WatchJobRequest request;
          request.set_name(watched);
          auto stream = peer.jobs->WatchJob(context.get(), request);
          v1::WatchJobResponse response;
          while (stream->Read(&response)) {
          }
          EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
        }
      }
    }
  });
  // Nothing runs on but what has no deadline, though nothing was let go.
  EXPECT_TRUE(Eventually([&] {
    const Scheduler::Load load = h.backend->scheduler().load();
    return load.queued == 0 && load.running == 1 && h.backend->streams().size() == 1;
  }));
  EXPECT_EQ(h.backend->jobs().Get("default", watched).value()->state(), v1::JOB_STATE_RUNNING);
  EXPECT_GT(reasons["MAX_QUEUE"], 0);
  EXPECT_GT(reasons["MAX_RUN"] + reasons["TIME_LIMIT"], 0);
  h.engine.Release();
  ExpectAnswer(held);
  ExpectQuiet(h);
}

// --- Full queues ---

TEST_F(Storm, WhatAFullQueueTakesItDoes) {
  constexpr int kClients = 200, kQueued = 7;
  Harness::Options options = Large(/*slots=*/1);
  options.backend.max_queued_jobs = kQueued + 1;  // an eighth is kept for other tenants
  options.backend.max_queued_jobs_per_tenant = kQueued;
  Harness h(options);
  const std::string matrix = h.Store(DiagonalMatrix(3, 2));
  h.engine.HoldSolves();
  std::atomic<int> acknowledged{0}, answered{0}, refused{0};
  std::atomic<bool> first_round{true};
  // One try; true: it was taken.
  const auto attempt = [&](Peer& peer) {
    SolveCall call = peer.Solve(SolveOf(matrix, None()));
    v1::SolveResponse event;
    if (call.Read(&event)) {
      EXPECT_TRUE(event.job().has_queued());
      ++acknowledged;
      ExpectAnswer(call);
      ++answered;
      return true;
    }
    const grpc::Status status = call.Finish();
    EXPECT_RPC_ERROR(status, RESOURCE_EXHAUSTED, "QUEUE_FULL", "--max-queued-jobs");
    EXPECT_TRUE(Decode(status).retry_ms.value_or(0) > 0);
    ++refused;
    return false;
  };
  std::thread clients([&] {
    AtOnce(kClients, [&](int) {
      Peer peer(h);
      if (attempt(peer)) return;
      first_round.wait(true);
      while (!attempt(peer)) {
      }
    });
  });
  // While nothing ends: one runs, the queue is full, everybody else is told so at once.
  EXPECT_TRUE(Eventually([&] { return refused == kClients - kQueued - 1; })) << refused;
  EXPECT_TRUE(Eventually([&] { return acknowledged == kQueued + 1; })) << acknowledged;
  EXPECT_EQ(answered, 0);
  h.engine.Release();
  first_round = false;
  first_round.notify_all();
  clients.join();
  EXPECT_EQ(acknowledged, kClients);
  EXPECT_EQ(answered, kClients);
  EXPECT_EQ(h.metrics.totals().refused.at("QUEUE_FULL"), refused);
  ExpectQuiet(h);
}

// --- Failing devices ---

TEST_F(Storm, DevicesFailUnderIt) {
  constexpr int kClients = 60, kEach = 3;
  Harness::Options options = Large(/*slots=*/2);
  options.devices = {FakeCpu(), FakeGpu(0), FakeGpu(1)};
  Harness h(options);
  const std::string matrix = h.Store(DiagonalMatrix(3, 2));
  std::vector<std::string> matrices;
  for (int i = 0; i < kClients * kEach; ++i) {
    matrices.push_back(h.Store(DiagonalMatrix(3, 10 + i)));
  }
  h.engine.HoldBuilds();
  std::atomic<int> built{0}, lost{0};
  std::atomic<bool> broken{false};
  std::thread clients([&] {
    AtOnce(kClients, [&](int client) {
      Peer peer(h);
      std::vector<BuildCall> calls;
      for (int i = 0; i < kEach; ++i) {
        calls.push_back(
            peer.Build(BuildOf(matrices[static_cast<size_t>(client * kEach + i)], StaticSpai())));
      }
      for (BuildCall& call : calls) {
        std::vector<v1::BuildPreconditionerResponse> events;
        const grpc::Status status = call.Finish(&events);
        if (status.ok()) {
          ++built;
          continue;
        }
        EXPECT_RPC_ERROR(status, UNAVAILABLE, "DEVICE_LOST", "send the request");
        ++lost;
      }
      // Work of the host goes on beside it.
      SolveCall solve = peer.Solve(SolveOf(matrix, Jacobi()));
      ExpectAnswer(solve);
    });
  });
  EXPECT_TRUE(Eventually([&] { return h.backend->scheduler().load().queued >= 100; }));
  h.engine.WaitForBuilds(2);  // one on each GPU
  EXPECT_EQ(h.engine.builds_on(1), 1);
  EXPECT_EQ(h.engine.builds_on(2), 1);
  h.engine.BreakDevice(1);
  h.engine.BreakDevice(2, /*after_builds=*/20);  // the rest falls back to the CPU
  h.engine.Release();
  clients.join();
  EXPECT_EQ(lost, 2) << "what ran on each of them, and nothing else";
  EXPECT_EQ(built, kClients * kEach - 2);
  EXPECT_GT(h.engine.builds_on(0), 0);
  EXPECT_FALSE(h.backend->scheduler().DeviceStatus(1).ok());
  EXPECT_FALSE(h.backend->scheduler().DeviceStatus(2).ok());
  EXPECT_TRUE(h.backend->ready());
  ExpectQuiet(h);
}

// --- Drain ---

// As at SIGTERM, with dozens of jobs queued, running and detached, watchers, and results on their
// way down. `let_go`: what runs can finish; else the deadline ends it.
void DrainUnderLoad(Harness& h, bool let_go) {
  constexpr int kSolves = 40, kDetached = 12, kWatchers = 24, kReaders = 12;
  Peer first(h);
  v1::BuildHeader large = BuildOf(h.Store(DiagonalMatrix(kLargeN)), Jacobi());
  ASSERT_TRUE(first.Build(large).Finish().ok());
  large.set_stream_result(true);
  const std::string matrix = h.Store(DiagonalMatrix(3, 2));
  h.engine.predicted_ms = 1;
  h.engine.HoldSolves();
  std::vector<std::string> detached;
  for (int i = 0; i < kDetached; ++i) {
    v1::SolveHeader header = SolveOf(matrix, None());
    header.set_detach(true);
    SolveCall call = first.Solve(header);
    detached.push_back(JobName(call));
    call.Cancel();
    EXPECT_FALSE(call.Finish().ok());
  }
  std::atomic<int> acknowledged{0}, answered{0}, told{0}, watched{0}, read{0}, watching{0};
  std::promise<void> draining;
  const auto drain_began = draining.get_future().share();
  std::thread clients([&] {
    AtOnce(kSolves + kWatchers + kReaders, [&](int i) {
      Peer peer(h);
      if (i < kSolves) {
        SolveCall call = peer.Solve(SolveOf(matrix, None()));
        JobName(call);
        ++acknowledged;
        std::vector<v1::SolveResponse> events;
        const grpc::Status status = call.Finish(&events);
        if (status.ok()) {
          EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
          ++answered;
        } else {
          EXPECT_RPC_ERROR(status, UNAVAILABLE, "DRAINING", "");
          EXPECT_TRUE(Decode(status).retry_ms.has_value());
          ++told;
        }
      } else if (i < kSolves + kWatchers) {
        auto context = peer.Within(seconds(60));
        v1::WatchJobRequest request;
        request.set_name(detached[static_cast<size_t>(i) % kDetached]);
        auto stream = peer.jobs->WatchJob(context.get(), request);
        v1::WatchJobResponse response;
        EXPECT_TRUE(stream->Read(&response));
        ++watching;
        while (stream->Read(&response)) {
        }
        EXPECT_TRUE(stream->Finish().ok());
        ASSERT_TRUE(response.event().has_finished());
        const v1::Job& job = response.event().finished().job();
        if (job.state() == v1::JOB_STATE_FAILED) {
          EXPECT_EQ(job.error().reason(), "DRAINING");
        } else {
          EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
        }
        ++watched;
      } else {  // in the middle of its result when the drain begins
        BuildCall call = peer.Build(large);
        call.ReadUntil([](const auto& r) { return r.has_chunk(); });
        ++watching;
        drain_began.wait();
        const grpc::Status status = call.Finish();
        EXPECT_TRUE(status.ok()) << status.error_message();
        ++read;
      }
    });
  });
  EXPECT_TRUE(Eventually([&] {
    return acknowledged == kSolves && watching == kWatchers + kReaders;
  })) << acknowledged
      << " " << watching;
  // As Serve does it.
  h.backend->SetDraining();
  h.backend->Refuse();
  if (let_go) h.engine.Release();
  draining.set_value();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(h.backend->scheduler().Drain(begin + (let_go ? seconds(60) : seconds(1))));
  EXPECT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  clients.join();
  EXPECT_EQ(answered + told, kSolves);
  EXPECT_EQ(let_go ? answered : told, kSolves);
  EXPECT_EQ(watched, kWatchers);
  EXPECT_EQ(read, kReaders);
}

TEST_F(Storm, ADrainFinishesAllThatItCan) {
  Harness h(Large(/*slots=*/2));
  DrainUnderLoad(h, /*let_go=*/true);
  ExpectQuiet(h);
  h.server->Shutdown(seconds(5));
}

TEST_F(Storm, ADrainTellsEverybodyWhomItCannotServe) {
  Harness h(Large(/*slots=*/2));
  DrainUnderLoad(h, /*let_go=*/false);
  ExpectQuiet(h);
  h.server->Shutdown(seconds(5));
}

}  // namespace
}  // namespace spaid::server
