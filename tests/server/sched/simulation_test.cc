// Thousands of jobs in virtual time: who waits for how long, whatever the others do.
#include "tests/server/sched/simulation.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace spaid::server {
namespace {

using Record = Simulation::Record;

Work Of(const std::string& tenant, double predicted_ms, Priority priority = Priority::kNormal) {
  Work work;
  work.tenant = tenant;
  work.priority = priority;
  work.what = "build";
  work.predicted_ms = predicted_ms;
  return work;
}

auto Tenant(const std::string& tenant) {
  return [tenant](const Record& record) { return record.work.tenant == tenant; };
}

auto Class(Priority priority) {
  return [priority](const Record& record) { return record.work.priority == priority; };
}

// Poisson arrivals, exponential times, predictions that err by factors.
void AddStream(Simulation& simulation, const std::string& tenant, double every_ms, double mean_ms,
               double until_ms, unsigned seed, Priority priority = Priority::kNormal) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> gap(1 / every_ms), size(1 / mean_ms);
  std::lognormal_distribution<double> error(0, 0.5);
  for (double at = gap(random); at < until_ms; at += gap(random)) {
    const double took = std::max(0.2, size(random));
    simulation.Add({at, Of(tenant, took * error(random), priority), took, {}});
  }
}

DispatcherOptions OneDevice() {
  return {.devices = {{.name = "gpu:0"}}, .max_queued = 100'000, .small_ms = 0};
}

// Two tenants, one of whom sends five thousand jobs at once: the other's waits stay near to what
// they are without that. The longest job that may be in its way runs already.
TEST(SimulationTest, AFloodDoesNotStarveOthers) {
  Simulation solo(OneDevice()), both(OneDevice());
  AddStream(solo, "quiet", 100, 20, 60'000, 1);
  AddStream(both, "quiet", 100, 20, 60'000, 1);
  for (int i = 0; i < 5000; ++i) both.Add({1000, Of("flood", 20), 20, {}});
  solo.Run();
  both.Run();
  const auto latency = [](const Record& record) { return record.ended_ms - record.arrived_ms; };
  const double alone = solo.Quantile(0.99, Tenant("quiet"), latency);
  const double beside = both.Quantile(0.99, Tenant("quiet"), latency);
  EXPECT_LT(beside, 2 * alone);
  EXPECT_GT(both.WaitQuantile(0.99, Tenant("flood")), 10'000);
  for (const auto& [id, record] : both.records) EXPECT_GE(record.ended_ms, 0);
}

// In slots of small jobs it hardly waits at all.
TEST(SimulationTest, AFloodOfSmallJobsLeavesASlot) {
  Simulation simulation({.devices = {{.name = "cpu", .slots = 2}}, .max_queued = 100'000});
  AddStream(simulation, "quiet", 100, 10, 60'000, 1);
  for (int i = 0; i < 5000; ++i) simulation.Add({0, Of("flood", 10), 10, {}});
  simulation.Run(40'000);
  Simulation alone({.devices = {{.name = "cpu", .slots = 2}}, .max_queued = 100'000});
  AddStream(alone, "quiet", 100, 10, 60'000, 1);
  alone.Run(40'000);
  const auto latency = [](const Record& record) { return record.ended_ms - record.arrived_ms; };
  EXPECT_LT(simulation.Quantile(0.9, Tenant("quiet"), latency),
            1.2 * alone.Quantile(0.9, Tenant("quiet"), latency));
  EXPECT_LT(simulation.Quantile(0.99, Tenant("quiet"), latency),
            2 * alone.Quantile(0.99, Tenant("quiet"), latency));
}

TEST(SimulationTest, TenantsShareTimeByWeightWhateverTheirJobs) {
  DispatcherOptions options = OneDevice();
  options.tenant_weights = {{"heavy", 2.0}};
  Simulation simulation(options);
  // All have more to do than there is time: many small jobs, few long ones, and twice the weight.
  for (int i = 0; i < 20'000; ++i) simulation.Add({0, Of("small", 5), 5, {}});
  for (int i = 0; i < 50; ++i) simulation.Add({0, Of("long", 2000), 2000, {}});
  for (int i = 0; i < 2000; ++i) simulation.Add({0, Of("heavy", 50), 50, {}});
  simulation.Run(100'000);
  const double all = 96'000;
  EXPECT_NEAR(simulation.Served(0, all, Tenant("small")) / all, 0.25, 0.03);
  EXPECT_NEAR(simulation.Served(0, all, Tenant("long")) / all, 0.25, 0.03);
  EXPECT_NEAR(simulation.Served(0, all, Tenant("heavy")) / all, 0.5, 0.03);
}

// A tenant whose jobs take ten times what they are predicted to gets no more time for it.
TEST(SimulationTest, UnderestimatesPayBack) {
  Simulation simulation(OneDevice());
  for (int i = 0; i < 2000; ++i) {
    Work work = Of("under", 10);
    work.what = "kind" + std::to_string(i);  // so that no ratio corrects it
    simulation.Add({0, work, 100, {}});
    simulation.Add({0, Of("fair", 100), 100, {}});
  }
  simulation.Run(100'000);
  EXPECT_NEAR(simulation.Served(0, 100'000, Tenant("under")) / 100'000, 0.5, 0.02);
}

TEST(SimulationTest, ClassesGetTheirShares) {
  Simulation simulation(OneDevice());
  for (int i = 0; i < 20'000; ++i) {
    simulation.Add({0, Of("t", 10, Priority::kInteractive), 10, {}});
    simulation.Add({0, Of("t", 10, Priority::kNormal), 10, {}});
    simulation.Add({0, Of("t", 10, Priority::kBulk), 10, {}});
  }
  simulation.Run(100'000);
  EXPECT_NEAR(simulation.Served(0, 1e5, Class(Priority::kInteractive)) / 1e5, 16 / 21., 0.01);
  EXPECT_NEAR(simulation.Served(0, 1e5, Class(Priority::kNormal)) / 1e5, 4 / 21., 0.01);
  EXPECT_NEAR(simulation.Served(0, 1e5, Class(Priority::kBulk)) / 1e5, 1 / 21., 0.01);
}

// Two tenants with the same load, of whom one calls all of it urgent: they have the same.
TEST(SimulationTest, CallingEverythingUrgentTakesNothingFromOthers) {
  Simulation simulation(OneDevice());
  for (int i = 0; i < 5000; ++i) {
    simulation.Add({0, Of("greedy", 10, Priority::kInteractive), 10, {}});
    simulation.Add({0, Of("modest", 10, Priority::kBulk), 10, {}});
  }
  simulation.Run(50'000);
  EXPECT_NEAR(simulation.Served(0, 5e4, Tenant("greedy")) / 5e4, 0.5, 0.01);
  EXPECT_NEAR(simulation.Served(0, 5e4, Tenant("modest")) / 5e4, 0.5, 0.01);
}

// Nobody starves: bulk work goes on under a load of the upper classes that never ends.
TEST(SimulationTest, BulkGoesOnUnderOverload) {
  Simulation simulation(OneDevice());
  AddStream(simulation, "t", 10, 12, 100'000, 3, Priority::kInteractive);  // 1.2 of the device
  for (int i = 0; i < 100; ++i) simulation.Add({0, Of("t", 40, Priority::kBulk), 40, {}});
  simulation.Run();
  const double last = simulation.WaitQuantile(1, Class(Priority::kBulk));
  EXPECT_LT(last, 100 * 40 * 17 * 1.3);
}

// A build of the bulk class that somebody in a hurry joins waits from then on as if it had been
// asked for so, whatever else waits in bulk; the others in bulk wait no longer than they did.
TEST(SimulationTest, AJoinedJobWaitsAsTheMostUrgentDoes) {
  const auto run = [](bool joined) {
    Simulation simulation(OneDevice());
    for (int i = 0; i < 301; ++i) simulation.Add({0, Of("t", 40, Priority::kBulk), 40, {}});
    AddStream(simulation, "t", 10, 8, 120'000, 3, Priority::kInteractive);  // 0.8 of the device
    if (joined) simulation.Reclass(5'000, 301, Priority::kInteractive);
    simulation.Run();
    return simulation;
  };
  const Simulation alone = run(false), joined = run(true);
  const auto last_bulk = [](const Simulation& of) {
    double last = 0;
    for (const auto& [id, record] : of.records) {
      if (id <= 300) last = std::max(last, record.ended_ms);
    }
    return last;
  };
  EXPECT_GT(alone.records.at(301).started_ms, 30'000);
  EXPECT_LT(joined.records.at(301).started_ms, 5'500);
  EXPECT_GT(joined.records.at(301).started_ms, 5'000);
  EXPECT_LT(last_bulk(joined), last_bulk(alone) + 1'000);
}

// Small jobs do not wait behind a build of a minute where a slot is left for them, and a job that
// needs all of a device's memory is not passed over for ever by those that do not.
TEST(SimulationTest, NoHeadOfTheLine) {
  Simulation simulation({.devices = {{.name = "gpu:0", .slots = 4, .memory_bytes = 1000}},
                         .max_queued = 100'000,
                         .small_ms = 20,
                         .max_passed_over = std::chrono::milliseconds(2000)});
  for (int i = 0; i < 5; ++i) simulation.Add({i * 6'000.0, Of("builder", 5'000), 5'000, {}});
  std::mt19937 random(5);
  for (int i = 0; i < 6000; ++i) {
    Work work = Of("t" + std::to_string(random() % 20), 10);
    work.device_bytes = 300;
    simulation.Add({i * 3.5, work, 2.0 + static_cast<double>(random() % 16), {}});
  }
  Work whole = Of("whole", 10);
  whole.device_bytes = 1000;
  simulation.Add({12'000, whole, 10, {}});
  simulation.Run();
  const auto small = [](const Record& record) { return record.work.predicted_ms <= 20; };
  EXPECT_LT(simulation.WaitQuantile(0.99, small), 60);
  EXPECT_GT(simulation.WaitQuantile(1, Tenant("whole")), 100) << "it was passed over";
  EXPECT_LT(simulation.WaitQuantile(1, Tenant("whole")), 2000 + 6000);
}

// Ten times more than the device does: the queue stays at its bound, what is refused is told when
// to come back, what is admitted ends.
TEST(SimulationTest, OverloadIsRefusedNotQueued) {
  DispatcherOptions options = OneDevice();
  options.max_queued = 100;
  options.max_queued_per_tenant = 30;
  Simulation simulation(options);
  for (unsigned t = 0; t < 10; ++t) {
    AddStream(simulation, "t" + std::to_string(t), 20, 20, 20'000, t + 1);
  }
  simulation.Run();
  int refused = 0, ended = 0;
  std::map<std::string, double> served;
  for (const auto& [id, record] : simulation.records) {
    if (!record.refused.empty()) {
      EXPECT_EQ(record.refused, "QUEUE_FULL");
      ++refused;
    } else {
      ASSERT_GE(record.ended_ms, 0);
      ++ended;
      served[record.work.tenant] += record.ended_ms - record.started_ms;
    }
  }
  EXPECT_GE(simulation.most_queued, 88) << "the rest is for those with less than their share";
  EXPECT_LE(simulation.most_queued, 100);
  EXPECT_GT(refused, 7 * ended);
  for (const auto& [tenant, ms] : served) EXPECT_NEAR(ms, 2200, 900) << tenant;
}

// A storm of deadlines, at one and a half times what the device does: what cannot be in time is
// refused at once, and little time is spent on what is cut off.
TEST(SimulationTest, DeadlinesAreRefusedEarlyOrMostlyMet) {
  Simulation simulation(OneDevice());
  std::mt19937 random(11);
  for (int i = 0; i < 4000; ++i) {
    const double took = 5 + static_cast<double>(random() % 40);
    const double deadline = 20 + static_cast<double>(random() % 2000);
    simulation.Add({i * 15.0, Of("t" + std::to_string(i % 7), took), took, deadline});
  }
  simulation.Run();
  int refused = 0, met = 0;
  for (const auto& [id, record] : simulation.records) {
    if (!record.refused.empty()) {
      EXPECT_EQ(record.refused, "DEADLINE_INFEASIBLE");
      ++refused;
    } else {
      ASSERT_GE(record.ended_ms, 0);
      met += record.missed ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 400);
  EXPECT_GT(met, 2000);
  const double useful =
      simulation.Served(0, 60'000, [](const Record& record) { return !record.missed; });
  EXPECT_GT(useful, 0.9 * 60'000);
}

Work Solve(const std::string& tenant, double predicted_ms) {
  Work work = Of(tenant, predicted_ms);
  work.what = "solve";
  work.iterations = 100;
  work.iteration_ms = predicted_ms / 100;
  work.max_iterations = 1e9;
  work.yields = true;
  return work;
}

// Solves without end of one tenant, more of them than may be paused: others wait for a turn of one
// of them, no longer, and the tenant's own next jobs for some turns.
TEST(SimulationTest, EndlessSolvesKeepNobodyWaiting) {
  DispatcherOptions options = OneDevice();
  options.max_paused = 64;  // 4 of one tenant
  Simulation simulation(options);
  for (int i = 0; i < 20; ++i) simulation.Add({0, Solve("evil", 700), 1e9, {}});
  AddStream(simulation, "good", 200, 50, 60'000, 1);
  simulation.Add({30'000, Of("evil", 50, Priority::kInteractive), 50, {}});
  simulation.Run(70'000);
  EXPECT_LT(simulation.WaitQuantile(0.5, Tenant("good")), 300);
  EXPECT_LT(simulation.WaitQuantile(1, Tenant("good")), 2'000) << "that of a first turn: 2 x 700";
  EXPECT_EQ(simulation.dispatcher.paused() + 1, 4);
  int begun = 0;
  for (const auto& [id, record] : simulation.records) {
    if (record.work.tenant == "evil" && record.started_ms >= 0) ++begun;
  }
  EXPECT_EQ(begun, 4 + 1) << "four of those without end, and the short one";
}

// Long solves of two tenants share the device as their weights do, turn by turn, though neither
// says how long it is; one that is not the first of its tenant waits for no other's end.
TEST(SimulationTest, LongSolvesTakeTurnsByWeight) {
  DispatcherOptions options = OneDevice();
  options.tenant_weights = {{"heavy", 3.0}};
  Simulation simulation(options);
  simulation.Add({0, Solve("heavy", 10), 1e9, {}});
  simulation.Add({0, Solve("light", 10), 1e9, {}});
  simulation.Run(100'000);
  EXPECT_NEAR(simulation.turns_ms["heavy"] / 1e5, 0.75, 0.02);
  EXPECT_NEAR(simulation.turns_ms["light"] / 1e5, 0.25, 0.02);
  EXPECT_LE(simulation.records.at(2).wait_ms(), 251);
}

// What a client is told at arrival is about what it waits, where nobody comes later.
TEST(SimulationTest, TimesToStartAreTold) {
  Simulation simulation(OneDevice());
  std::mt19937 random(3);
  simulation.Add({0, Of("first", 20'000), 20'000, {}});
  for (int i = 0; i < 500; ++i) {
    const double took = 1 + static_cast<double>(random() % 100);
    simulation.Add({20.0 * i, Of("t" + std::to_string(i % 5), took), took, {}});
  }
  simulation.Run();
  double error = 0, sum = 0;
  for (const auto& [id, record] : simulation.records) {
    if (id <= 400) continue;  // behind these came others whose turn was first
    error += std::abs(record.eta_ms - record.wait_ms());
    sum += record.wait_ms();
  }
  EXPECT_LT(error / sum, 0.02);
}

TEST(SimulationTest, WorkSpreadsOverDevices) {
  DispatcherOptions options;
  options.devices.assign(4, {.name = "gpu"});
  options.max_queued = 100'000;
  Simulation simulation(options);
  std::mt19937 random(9);
  double all = 0;
  for (int i = 0; i < 3000; ++i) {
    const double took = 10 + static_cast<double>(random() % 100);
    all += took;
    simulation.Add({0, Of("t" + std::to_string(i % 3), took), took, {}});
  }
  simulation.Run();
  EXPECT_LT(simulation.now_ms, all / 4 * 1.02);
}

// The same arrivals make the same schedule.
TEST(SimulationTest, IsDeterministic) {
  const auto run = [] {
    Simulation simulation({.devices = {{.name = "cpu", .slots = 2}, {.name = "gpu:0"}}});
    for (unsigned t = 0; t < 5; ++t) {
      AddStream(simulation, "t" + std::to_string(t), 40, 15, 10'000, t + 20,
                static_cast<Priority>(t % 3));
    }
    simulation.Run();
    std::vector<std::pair<double, std::vector<size_t>>> starts;
    for (const auto& [id, record] : simulation.records) {
      starts.emplace_back(record.started_ms, record.devices);
    }
    return starts;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace spaid::server
