// spaid-load against the real daemon: its loops, its sums, its exit codes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spaid/client.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/cli/run_spaidctl.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"

extern char** environ;

namespace spaid::e2e {
namespace {

using cli::Finished;
using nlohmann::json;
using ::testing::HasSubstr;

Finished RunLoad(const Daemon& daemon, std::vector<std::string> args) {
  args.insert(args.begin(), {cli::ProgramPath("spaid-load"), "--address=" + daemon.address()});
  return cli::RunProgram(args);
}

// What must hold of every run's report.
void ExpectSums(const json& report) {
  EXPECT_EQ(report.at("jobs").get<int64_t>(),
            report.at("succeeded").get<int64_t>() + report.at("failed").get<int64_t>());
  EXPECT_EQ(report.at("succeeded").get<int64_t>(),
            report.at("solves").get<int64_t>() + report.at("builds").get<int64_t>());
  const auto sum = [](const json& counts) {
    int64_t all = 0;
    for (const json& count : counts) all += count.get<int64_t>();
    return all;
  };
  EXPECT_EQ(sum(report.at("outcomes")), report.at("solves"));
  EXPECT_EQ(sum(report.at("errors")), report.at("failed"));
  for (const char* groups : {"by_work", "by_tenant"}) {
    int64_t succeeded = 0, failed = 0;
    for (const json& group : report.at(groups)) {
      succeeded += group.at("job").at("count").get<int64_t>();
      failed += group.at("errors").get<int64_t>();
    }
    EXPECT_EQ(succeeded, report.at("succeeded")) << groups;
    EXPECT_EQ(failed, report.at("failed")) << groups;
  }
  const json& latency = report.at("latency");
  EXPECT_EQ(latency.at("job").at("count"), report.at("succeeded"));
  // A time step brings its values along.
  EXPECT_EQ(latency.at("upload").at("count"),
            report.at("options").at("time_steps") == 0 ? report.at("succeeded") : json(0));
  EXPECT_EQ(latency.at("solve").at("count"), report.at("solves"));
  EXPECT_EQ(latency.at("build").at("count"), report.at("builds"));
  for (const json& times : latency) {
    EXPECT_LE(times.at("p50_ms"), times.at("p90_ms"));
    EXPECT_LE(times.at("p90_ms"), times.at("p99_ms"));
    EXPECT_LE(times.at("p99_ms"), times.at("p999_ms"));
    EXPECT_LE(times.at("p999_ms"), times.at("max_ms"));
  }
}

class Load : public ::testing::Test {
 protected:
  static json Report(const Daemon& daemon, std::vector<std::string> args, int exit_code = 0) {
    args.emplace_back("--json=-");
    const Finished finished = RunLoad(daemon, args);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.out << finished.err;
    json report = json::parse(finished.out);
    ExpectSums(report);
    return report;
  }
  TempDir folder_;
};

TEST_F(Load, AClosedLoopRunsItsJobs) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const json report =
      Report(daemon, {"--jobs=60", "--concurrency=4", "--mix=poisson:6=3,convdiff:5=1",
                      "--engines=jacobi=2,static_spai=1", "--build-share=0.3", "--variants=4",
                      "--rhs=2", "--daemon-pid=" + std::to_string(daemon.pid())});
  EXPECT_EQ(report.at("jobs"), 60);
  EXPECT_EQ(report.at("failed"), 0);
  EXPECT_GT(report.at("builds"), 0);
  EXPECT_EQ(report.at("outcomes").at("CONVERGED"), report.at("solves"));
  EXPECT_GT(report.at("jobs_per_s"), 0);
  EXPECT_GT(report.at("bytes_up"), 0);
  // Two solutions of each solve come down.
  EXPECT_GE(report.at("bytes_down").get<int64_t>(),
            report.at("solves").get<int64_t>() * 2 * 125 * 8);
  EXPECT_GT(report.at("reused"), 0);  // there are no more than 16 pairs of values and engine
  EXPECT_EQ(report.at("options").at("mix"), "poisson:6=3,convdiff:5=1");
  EXPECT_EQ(report.at("options").at("engines"), "jacobi=2,static-spai=1");
  const json& latency = report.at("latency");
  EXPECT_GE(latency.at("job").at("max_ms"), latency.at("solve").at("max_ms"));
  EXPECT_FALSE(latency.contains("lag"));
}

TEST_F(Load, AnOpenLoopCountsFromTheArrival) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  // One at a time, for jobs that arrive far faster than they are done: each waits for all before.
  const json report = Report(daemon, {"--rate=1000000", "--jobs=30", "--concurrency=1",
                                      "--mix=poisson:8", "--variants=1"});
  EXPECT_EQ(report.at("options").at("loop"), "open");
  EXPECT_EQ(report.at("jobs"), 30);
  const json& latency = report.at("latency");
  // From its own start the last one would take about a thirtieth of it all.
  EXPECT_GE(latency.at("job").at("max_ms").get<double>(),
            0.3 * 1000 * report.at("wall_s").get<double>());
  EXPECT_GT(latency.at("lag").at("p50_ms"), latency.at("solve").at("p50_ms"));
  const Finished text = RunLoad(daemon, {"--rate=1000000", "--jobs=30", "--concurrency=1",
                                         "--mix=poisson:8", "--variants=1"});
  EXPECT_THAT(text.out, HasSubstr("latency from the scheduled arrival"));
  EXPECT_THAT(text.out, HasSubstr("give more --concurrency"));
}

TEST_F(Load, AnOpenLoopKeepsItsRate) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const json report = Report(
      daemon, {"--rate=40", "--duration=2", "--warmup=0.5", "--mix=poisson:4", "--variants=2"});
  // Poisson: 80 in the mean, nine deviations either way.
  EXPECT_GT(report.at("jobs"), 0);
  EXPECT_LT(report.at("jobs"), 160);
  EXPECT_GT(report.at("jobs_of_warmup"), 0);
  EXPECT_EQ(report.at("failed"), 0);
}

// Cancelled in every state that a job of static SPAI comes through, and of the calls themselves.
TEST_F(Load, CancelledJobsAreTimedToTheirEnd) {
  Daemon daemon({"--lanes=1"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const json report = Report(
      daemon, {"--jobs=36", "--concurrency=3", "--mix=p27:24", "--engines=static-spai",
               "--method=bicgstab", "--rtol=1e-300", "--max-iterations=100000", "--variants=0",
               "--cancel=upload,queue,plan,build,assemble,solve", "--expect=STAGNATED,BREAKDOWN"});
  int64_t cancelled = 0;
  for (const auto& [state, times] : report.at("cancelled").items()) {
    cancelled += times.at("count").get<int64_t>();
    EXPECT_LE(times.at("p50_ms"), times.at("max_ms"));
  }
  EXPECT_EQ(cancelled + report.at("jobs").get<int64_t>(), 36) << "cancelled jobs are in no sum";
  // A solve that cannot converge is in that state for long.
  EXPECT_EQ(report.at("cancelled").at("solve").at("count"), 6);
  EXPECT_EQ(report.at("cancelled").at("queue").at("count"), 6);
  EXPECT_EQ(report.at("options").at("cancel").size(), 6);
  EXPECT_GE(report.at("latency").at("job").at("count"), 0);
  Client client({.address = daemon.address()});
  const auto page = client.ListJobPage({.state = JobState::kCancelled, .page_size = 50});
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_GE(page->jobs.size(), 12U);
}

TEST_F(Load, TimeStepsTellTheFirstFromTheLater) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const std::string file = folder_ / "report.json";
  const Finished finished =
      RunLoad(daemon, {"--time-steps=5", "--jobs=20", "--concurrency=2", "--mix=p27:6",
                       "--engines=static-spai", "--reuse=rebuild", "--json=" + file});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("first step"));
  EXPECT_THAT(finished.out, HasSubstr("later steps"));
  std::ifstream in(file);
  const json report = json::parse(in);
  ExpectSums(report);
  EXPECT_EQ(report.at("jobs"), 20);
  const int64_t first = report.at("by_step").at("first step").at("job").at("count");
  const int64_t later = report.at("by_step").at("later steps").at("job").at("count");
  EXPECT_EQ(first + later, 20);
  EXPECT_GE(first, 4);
  EXPECT_EQ(report.at("reused"), 0);    // every step has values of its own
  EXPECT_GE(report.at("rebuilt"), 16);  // on the one pattern
  Client client({.address = daemon.address()});
  EXPECT_TRUE(client.ListMatrices()->empty());  // each step deletes the last one's
}

// Two workers and a queue for one: most of eight at a time are refused.
TEST_F(Load, AFullQueueIsRefusalsOrRetries) {
  Daemon daemon({"--max-queued-jobs=1"});
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const std::vector<std::string> load = {"--jobs=40", "--concurrency=8", "--mix=aniso:60",
                                         "--variants=0", "--engines=static-spai"};
  const json refused = Report(daemon, load, 1);
  EXPECT_GT(refused.at("errors").at("QUEUE_FULL"), 0);
  EXPECT_EQ(refused.at("refused"), refused.at("errors").at("QUEUE_FULL"));
  EXPECT_EQ(refused.at("retried"), 0);
  std::vector<std::string> expected = load, patient = load;
  expected.emplace_back("--expect=QUEUE_FULL");
  expected.emplace_back("--seed=2");
  EXPECT_GT(Report(daemon, expected).at("failed"), 0);
  patient.emplace_back("--retries=100000");
  patient.emplace_back("--seed=3");
  const json retried = Report(daemon, patient);
  EXPECT_EQ(retried.at("succeeded"), 40);
  EXPECT_GT(retried.at("refused"), 0);
  EXPECT_EQ(retried.at("refused"), retried.at("retried"));
}

TEST_F(Load, DeadlinesAndOutcomesAreCounted) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const json late =
      Report(daemon,
             {"--jobs=2", "--concurrency=1", "--mix=aniso:300", "--engines=none", "--method=cg",
              "--rtol=1e-300", "--max-iterations=2000000000", "--deadline=0.2"},
             1);
  EXPECT_EQ(late.at("failed"), 2);
  const json limited = Report(
      daemon, {"--jobs=3", "--mix=aniso:20", "--engines=none", "--method=cg", "--max-iterations=2"},
      3);
  EXPECT_EQ(limited.at("outcomes").at("MAX_ITERATIONS"), 3);
  Report(daemon, {"--jobs=3", "--mix=aniso:20", "--engines=none", "--method=cg",
                  "--max-iterations=2", "--expect=MAX_ITERATIONS"});
}

TEST_F(Load, TenantsAreThoseThatTheDaemonBelieves) {
  Daemon trusting({"--trust-tenant-header"});
  ASSERT_TRUE(trusting.serving()) << trusting.log();
  const json report =
      Report(trusting, {"--tenants=3", "--jobs=30", "--concurrency=3", "--mix=poisson:4"});
  ASSERT_EQ(report.at("by_tenant").size(), 3u);
  EXPECT_GT(report.at("by_tenant").at("load-2").at("job").at("count"), 0);
  Daemon other;
  ASSERT_TRUE(other.serving()) << other.log();
  const Finished finished = RunLoad(other, {"--tenants=red", "--jobs=1"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("TENANT_NOT_BELIEVED"));

  const std::string tokens = folder_ / "tokens";
  std::ofstream(tokens) << "0123456789abcdef alice\nfedcba9876543210 bob\n";
  std::filesystem::permissions(tokens, std::filesystem::perms::owner_read);
  Daemon with_tokens({"--tokens=" + tokens});
  ASSERT_TRUE(with_tokens.serving()) << with_tokens.log();
  const json by_token = Report(
      with_tokens, {"--tokens=" + tokens, "--jobs=10", "--concurrency=2", "--mix=poisson:4"});
  EXPECT_GT(by_token.at("by_tenant").at("alice").at("job").at("count"), 0);
  EXPECT_GT(by_token.at("by_tenant").at("bob").at("job").at("count"), 0);
}

TEST_F(Load, CtrlCEndsTheRunWithAReport) {
  Daemon daemon;
  ASSERT_TRUE(daemon.serving()) << daemon.log();
  const std::string file = folder_ / "report.json";
  std::vector<std::string> words = {cli::ProgramPath("spaid-load"), "--address=" + daemon.address(),
                                    "--duration=600", "--mix=poisson:6", "--json=" + file};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {1, 2}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  // Of fifty jobs the eight workers have taken note of all but eight at least.
  Client client({.address = daemon.address()});
  for (bool running = false; !running;) {
    const auto page = client.ListJobPage({.state = JobState::kSucceeded, .page_size = 50});
    ASSERT_TRUE(page.ok()) << page.error().message;
    running = page->jobs.size() == 50;
  }
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::ifstream in(file);
  const json report = json::parse(in);
  ExpectSums(report);
  EXPECT_EQ(report.at("interrupted"), true);
  EXPECT_GT(report.at("jobs"), 0);
  EXPECT_EQ(report.at("failed"), 0);
}

}  // namespace
}  // namespace spaid::e2e
