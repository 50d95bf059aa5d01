// Many small solves from many threads: errors, latency, the daemon's memory.
#include <spaid/client.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/bench/bench.h"

namespace spaid::bench {
namespace {

std::optional<Engine> EngineOf(const std::string& name) {
  for (Engine engine : {Engine::kAuto, Engine::kNone, Engine::kJacobi, Engine::kStaticSpai}) {
    if (Name(engine) == name) return engine;
  }
  return std::nullopt;
}

// A one-dimensional convection-diffusion problem; the seed moves its coefficients.
CscMatrix Problem(int64_t n, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> coefficient(0.1, 0.9);
  CscMatrix a{.n = n, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = std::max<int64_t>(0, j - 1); i <= std::min(n - 1, j + 1); ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 2.5 : -coefficient(generator));
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

double ResidentMib(int64_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024.0;
  }
  return -1;
}

// Least squares; y per unit of x.
double Slope(const std::vector<std::pair<double, double>>& points) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [px, py] : points) x += px, y += py;
  const auto count = static_cast<double>(points.size());
  for (const auto& [px, py] : points) {
    xx += (px - x / count) * (px - x / count);
    xy += (px - x / count) * (py - y / count);
  }
  return xx > 0 ? xy / xx : 0;
}

struct Tally {
  std::mutex mutex;
  std::vector<double> latencies_ms;
  std::map<std::string, int64_t> errors, outcomes;
  std::vector<std::pair<double, double>> memory;  // jobs done, MiB
};

}  // namespace

int RunSmallJobs(const SmallJobs& bench) {
  const std::optional<Engine> engine = EngineOf(bench.engine);
  if (!engine) {
    std::cerr << "error: no engine is called " << bench.engine << '\n';
    return 2;
  }
  if (bench.daemon_pid > 0 && ResidentMib(bench.daemon_pid) < 0) {
    std::cerr << "error: no process " << bench.daemon_pid << " whose memory can be read\n";
    return 2;
  }
  std::vector<CscMatrix> matrices;
  for (int i = 0; i < bench.matrices; ++i) {
    matrices.push_back(Problem(bench.n, static_cast<unsigned>(i)));
  }
  Client client({.address = bench.address});
  Tally tally;
  std::atomic<int64_t> next = 0, done = 0;
  const int64_t sample_every = std::max<int64_t>(1, bench.jobs / 100);

  auto work = [&] {
    std::vector<double> b(static_cast<size_t>(bench.n));
    for (int64_t job = next++; job < bench.jobs; job = next++) {
      std::mt19937_64 generator(static_cast<uint64_t>(job));
      std::uniform_real_distribution<double> entry(-1, 1);
      for (double& value : b) value = entry(generator);
      const CscMatrix& a = matrices[static_cast<size_t>(job % bench.matrices)];
      const auto start = std::chrono::steady_clock::now();
      const auto solved = client.Solve(a, b, {.engine = *engine, .method = Method::kBicgstab});
      const std::chrono::duration<double, std::milli> elapsed =
          std::chrono::steady_clock::now() - start;
      const int64_t count = ++done;
      const std::lock_guard lock(tally.mutex);
      tally.latencies_ms.push_back(elapsed.count());
      if (solved.ok()) {
        ++tally.outcomes[std::string(Name(solved->rhs[0].outcome))];
      } else {
        ++tally.errors[solved.error().reason.empty() ? solved.error().message
                                                     : solved.error().reason];
      }
      if (bench.daemon_pid > 0 && count % sample_every == 0) {
        tally.memory.emplace_back(static_cast<double>(count), ResidentMib(bench.daemon_pid));
      }
    }
  };
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < bench.threads; ++i) threads.emplace_back(work);
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;

  std::sort(tally.latencies_ms.begin(), tally.latencies_ms.end());
  const auto quantile = [&](double q) {
    const auto last = static_cast<double>(tally.latencies_ms.size() - 1);
    return tally.latencies_ms[static_cast<size_t>(q * last + 0.5)];
  };
  nlohmann::ordered_json result = {
      {"benchmark", "small-jobs"},  {"jobs", bench.jobs},
      {"threads", bench.threads},   {"n", bench.n},
      {"matrices", bench.matrices}, {"engine", bench.engine},
      {"wall_s", wall.count()},     {"jobs_per_s", static_cast<double>(bench.jobs) / wall.count()},
      {"p50_ms", quantile(0.5)},    {"p99_ms", quantile(0.99)},
      {"max_ms", quantile(1)},      {"outcomes", tally.outcomes},
      {"errors", tally.errors},
  };
  if (tally.memory.size() >= 4) {
    // The first half fills stores and arenas up to their limits; a leak shows in the second.
    const std::vector<std::pair<double, double>> settled(
        tally.memory.begin() + static_cast<ptrdiff_t>(tally.memory.size() / 2), tally.memory.end());
    result["rss_first_mib"] = tally.memory.front().second;
    result["rss_last_mib"] = tally.memory.back().second;
    result["rss_slope_kib_per_1000_jobs"] = Slope(settled) * 1000 * 1024;
  }
  std::cout << result.dump(2) << std::endl;
  return tally.errors.empty() ? 0 : 1;
}

}  // namespace spaid::bench
