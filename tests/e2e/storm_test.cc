// Storms against the real daemon: clients by the hundred, killed ones among them, and SIGTERM in
// the middle of it; round after round, and what it holds afterwards. (What each job is told in a
// storm is tested in tests/server/rpc/storm_test.cc.)
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <spaid/client.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"
#include "tests/e2e/victim.h"

namespace spaid::e2e {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Tries until it holds or a minute has passed.
bool Eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));  // leaves the cores to what it looks at
  }
  return true;
}

void AtOnce(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back(run, t);
  for (std::thread& thread : threads) thread.join();
}

// The same pattern with values of its own.
CscMatrix Scaled(CscMatrix a, double by) {
  for (double& value : a.values) value *= by;
  return a;
}

class Storm : public ::testing::Test {
 protected:
  void Serve(const std::vector<std::string>& flags) {
    daemon.emplace(flags);
    ASSERT_TRUE(daemon->serving()) << daemon->log();
    ASSERT_EQ(Gauge("spaid_ready"), 1);
    constant.emplace(Connect());
    ASSERT_TRUE(constant->GetServerInfo().ok());
  }
  Client Connect() const { return Client({.address = daemon->address(), .max_attempts = 1}); }

  // The sum of a gauge over its labels that contain `label`; -1: there is none.
  double Gauge(const std::string& name, const std::string& label = "") const {
    httplib::Client http("http://" + daemon->ops_address());
    const auto metrics = http.Get("/metrics");
    if (!metrics) return -1;
    double sum = 0;
    bool found = false;
    size_t at = 0;
    while ((at = metrics->body.find("\n" + name, at)) != std::string::npos) {
      const std::string line = metrics->body.substr(at + 1, metrics->body.find('\n', at + 1) - at);
      at += line.size();
      const char next = line[name.size()];
      if ((next != '{' && next != ' ') || line.find(label) == std::string::npos) continue;
      found = true;
      sum += std::stod(line.substr(line.rfind(' ')));
    }
    return found ? sum : -1;
  }
  // Nothing is queued, runs, streams, or is held for what does.
  bool Quiet() const {
    return Gauge("spaid_queue_jobs") == 0 && Gauge("spaid_jobs_running") == 0 &&
           Gauge("spaid_streams_open") == 0 && Gauge("spaid_outgoing_bytes") == 0 &&
           Gauge("spaid_store_reserved_bytes") == 0 && Gauge("spaid_preparing_queued") == 0;
  }
  // Everything that is stored goes; afterwards the stores hold nothing.
  void DeleteAll() {
    const auto preconditioners = constant->ListPreconditioners();
    const auto matrices = constant->ListMatrices();
    ASSERT_TRUE(preconditioners.ok() && matrices.ok());
    for (const auto& m : *preconditioners) constant->DeletePreconditioner(m.name);
    for (const auto& a : *matrices) constant->DeleteMatrix(a.name);
    EXPECT_EQ(Gauge("spaid_store_bytes", "matrices"), 0);
    EXPECT_EQ(Gauge("spaid_store_bytes", "preconditioners"), 0);
  }

  std::optional<Daemon> daemon;
  // As long as one is there, this process need not take gRPC down and up again.
  std::optional<Client> constant;
};

// What a client of a storm does, one thing after the other; some of it is cut short on the way.
// What went wrong; empty: nothing.
std::string BeClient(const std::string& address, int number, int round) {
  std::mt19937 random(static_cast<unsigned>(1000 * round + number));
  Client client({.address = address});
  const auto a = Scaled(Poisson(40, 40), 1 + 0.001 * (round * 1000 + number));
  for (int i = 0; i < 3; ++i) {
    std::stop_source stop;
    CallOptions cut;
    switch (random() % 4) {
      case 0:  // by a deadline, wherever that comes
        cut.timeout = milliseconds(1 + random() % 40);
        break;
      case 1: {  // when something has happened
        const auto at = static_cast<int>(random() % 6);
        cut.stop = stop.get_token();
        cut.on_progress = [&stop, at, seen = 0](const Progress&) mutable {
          if (++seen > at) stop.request_stop();
        };
        break;
      }
      default:
        break;
    }
    const bool whole = !cut.timeout && !cut.stop.stop_possible();
    if (random() % 2 == 0) {
      const auto solved = client.Solve(a, SmoothRhs(a), {.engine = Engine::kJacobi}, cut);
      if (whole && !solved.ok()) return solved.error().message;
      if (whole && RelativeResidual(a, solved->x, SmoothRhs(a)) > 1e-7) return "a wrong solution";
    } else {
      const auto built = client.Build(a, {.engine = Engine::kStaticSpai}, true, cut);
      if (whole && !built.ok()) return built.error().message;
      if (whole && built->m->n != a.n) return "another M";
    }
    if (whole && !client.ListJobPage({.page_size = 10}).ok()) return "no list";
  }
  return "";
}

// A process of a hundred of them, so that their connections end with it: those of a Client in this
// one stay for as long as its gRPC likes. Arguments: the flag, address, round.
constexpr char kCrowd[] = "--be-a-crowd";
[[noreturn]] void BeCrowd(char** argv) {
  std::atomic<int> failed{0};
  AtOnce(100, [&](int i) {
    const std::string wrong = BeClient(argv[2], i, std::stoi(argv[3]));
    if (wrong.empty()) return;
    std::fprintf(stderr, "client %d: %s\n", i, wrong.c_str());
    ++failed;
  });
  _exit(failed == 0 ? 0 : 1);
}

// Round after round of a hundred clients, a dozen of whom are killed in the middle: what the daemon
// holds afterwards is what it held after the first rounds.
TEST_F(Storm, RoundAfterRoundItHoldsNoMore) {
  constexpr int kWarmUps = 4, kRounds = 6;
  // What malloc keeps; and of killed clients the last solutions (12 MB each), for WatchJob.
  constexpr int64_t kMoreBytes = 48 << 20;
  ASSERT_NO_FATAL_FAILURE(
      Serve({"--keep-freed-memory=100ms", "--ended-job-bytes=1MiB", "--drain-grace=0s"}));
  const auto round = [&](int number) {
    const auto stored = constant->Upload(Poisson(600, 600));
    ASSERT_TRUE(stored.ok()) << stored.error().message;
    const auto built = constant->Build(stored->name, {.engine = Engine::kJacobi});  // of 7 MB
    ASSERT_TRUE(built.ok()) << built.error().message;
    std::thread victims([&] {
      AtOnce(12, [&](int i) {
        const char* const modes[] = {"download", "solve", "download", "upload"};
        const std::string mode = modes[i % 4];
        const Ran victim =
            RunVictim(*daemon, mode, mode == "solve" ? stored->name : built->preconditioner.name);
        EXPECT_EQ(victim.status, -SIGKILL) << mode << ": " << victim.output;
      });
    });
    const Ran crowd = RunProgram({std::filesystem::read_symlink("/proc/self/exe").string(), kCrowd,
                                  daemon->address(), std::to_string(number)});
    EXPECT_EQ(crowd.status, 0) << crowd.output;
    victims.join();
    EXPECT_TRUE(Eventually([&] { return Quiet(); }));
    DeleteAll();
    EXPECT_TRUE(Eventually([&] { return Gauge("spaid_freed_array_bytes") == 0; }));
  };
  // Malloc keeps of a round some tens of megabytes more or less: the most of the warm-ups counts.
  int64_t resident = 0;
  for (int i = 0; i < kWarmUps; ++i) {
    ASSERT_NO_FATAL_FAILURE(round(i));
    resident = std::max(resident, daemon->ResidentBytes());
  }
  const int descriptors = daemon->OpenDescriptors();
  std::vector<int64_t> more;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_NO_FATAL_FAILURE(round(kWarmUps + i));
    // Connections that were just closed may still be on their way out.
    EXPECT_TRUE(Eventually([&] { return daemon->OpenDescriptors() <= descriptors; }))
        << daemon->OpenDescriptors() << " open for " << descriptors;
    more.push_back((daemon->ResidentBytes() - resident) >> 10);
  }
  std::printf("resident after warm-up: %ld KiB; more than that after each round, KiB:",
              static_cast<long>(resident >> 10));
  for (const int64_t kib : more) std::printf(" %ld", static_cast<long>(kib));
  std::printf("\n");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(*std::min_element(more.end() - 3, more.end()) << 10, kMoreBytes);
#endif
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->WaitForExit(), 0) << daemon->log();
}

// Two dozen builds queued, one at a time running, some of them nobody's but their watchers', and
// results on their way down.
TEST_F(Storm, SigtermUnderLoadLosesNothingThatWasSaidToBeDone) {
  constexpr int kBuilds = 24, kDetached = 8, kReaders = 8;
  ASSERT_NO_FATAL_FAILURE(Serve({"--drain-grace=0s", "--drain-deadline=500ms", "--lanes=1"}));
  const PreconditionerSpec spec{.pattern_power = 4, .local_solver = LocalSolver::kQr};
  const auto matrix = [](int i) { return Scaled(ConvectionDiffusion(90, 90, 0.25), 1 + 0.01 * i); };
  std::string m;
  {
    Client client = Connect();
    const auto large = client.Build(Poisson(600, 600), {.engine = Engine::kJacobi});
    ASSERT_TRUE(large.ok()) << large.error().message;
    m = large->preconditioner.name;
    ASSERT_TRUE(client.Build(matrix(0), spec).ok());  // so that it is known how long they take
  }
  std::vector<std::string> detached;
  Client starter = Connect();
  for (int i = 0; i < kDetached; ++i) {
    const auto job = starter.StartBuild(matrix(100 + i), spec);
    ASSERT_TRUE(job.ok()) << job.error().message;
    detached.push_back(job->name());
  }
  std::atomic<int> queued{0}, finished{0}, done{0}, told{0}, watched{0}, kept{0}, read{0};
  std::atomic<bool> signalled{false};
  std::thread clients([&] {
    AtOnce(kBuilds + kDetached + kReaders, [&](int i) {
      Client client = Connect();
      bool counted = false;
      const CallOptions call{.on_progress = [&](const Progress& progress) {
        if (progress.kind == Progress::Kind::kQueued ||
            (progress.kind == Progress::Kind::kTransfer && progress.stage == Stage::kDownload)) {
          if (!std::exchange(counted, true)) ++queued;
        }
        if (progress.kind == Progress::Kind::kFinished) ++finished;
        // In the middle of its result: when SIGTERM has come it goes on.
        if (i >= kBuilds + kDetached) signalled.wait(false);
      }};
      // On a busy machine a connection may fail that nobody refused.
      const auto reached = [&](const auto& ask) {
        auto answer = ask();
        while (!answer.ok() && answer.error().reason == "UNREACHABLE" && !signalled) answer = ask();
        return answer;
      };
      if (i < kBuilds) {
        const auto built = reached([&] { return client.Build(matrix(1 + i), spec, true, call); });
        if (built.ok()) {
          EXPECT_EQ(built->m->n, 8100);  // it is there as a whole
          ++done;
        } else {
          EXPECT_EQ(built.error().code, Code::kUnavailable) << built.error().message;
          EXPECT_EQ(built.error().reason, "DRAINING") << built.error().message;
          ++told;
        }
      } else if (i < kBuilds + kDetached) {
        const std::string& job = detached[static_cast<size_t>(i - kBuilds)];
        const auto ended = reached([&] { return client.Watch(job, call); });
        ASSERT_TRUE(ended.ok()) << ended.error().message;
        if (ended->state == JobState::kSucceeded) {
          ++kept;
        } else {
          EXPECT_EQ(ended->state, JobState::kFailed);
          EXPECT_EQ(ended->error->reason, "DRAINING") << ended->error->message;
        }
        ++watched;
      } else {
        const auto whole = reached([&] { return client.Download(m, call); });
        // A machine that is busy may not bring it in the time that a drain has.
        if (!whole.ok()) {
          EXPECT_EQ(whole.error().reason, "DRAINING") << whole.error().message;
        }
        ++read;
      }
    });
  });
  EXPECT_TRUE(Eventually([&] { return queued == kBuilds + kDetached + kReaders; })) << queued;
  EXPECT_TRUE(Eventually([&] { return finished > 0; }));
  daemon->Signal(SIGTERM);
  const auto begin = std::chrono::steady_clock::now();
  signalled = true;
  signalled.notify_all();
  clients.join();
  EXPECT_EQ(daemon->WaitForExit(), 0) << daemon->log();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%d builds done, %d told to go elsewhere; of %d detached %d done; %.1f s\n",
              done.load(), told.load(), kDetached, kept.load(), took.count());
  EXPECT_EQ(done + told, kBuilds);
  EXPECT_GT(done + kept, 0);
  EXPECT_GT(told, 0);
  EXPECT_EQ(watched, kDetached);
  EXPECT_EQ(read, kReaders);
  EXPECT_LT(took, seconds(20));
}

}  // namespace
}  // namespace spaid::e2e

int main(int argc, char** argv) {
  if (spaid::e2e::IsVictim(argc, argv)) return spaid::e2e::BeVictim(argv);
  if (argc == 4 && std::string(argv[1]) == spaid::e2e::kCrowd) spaid::e2e::BeCrowd(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
