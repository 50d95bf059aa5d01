// Time steps, and solves by an M that is there, beside the numerics in them; by turns in one run,
// medians. Transfers alone: client/cpp/bench.
//
//   spaid_calls steps [--steps=100]     all sent, values alone, M kept, by shared memory
//   spaid_calls warm [--rounds=21]      by the wire and by shared memory, beside one in process
//
// Daemons are started on --devices=cpu, with all cores, or what is named; the solve in process is
// the CPU's. SPAID_DAEMON names another daemon.
#include <spaid/client.h>
#include <spaid/system.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/spec.h"
#include "kernels/gallery/gallery.h"
#include "tests/e2e/daemon.h"

namespace spaid::e2e {
namespace {

double Milliseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(std::vector<double> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

template <class T>
T Need(Expected<T> got) {
  if (got.ok()) return *std::move(got);
  std::fprintf(stderr, "%s: %s\n", got.error().reason.c_str(), got.error().message.c_str());
  std::exit(1);
}

template <class T>
T Need(kernels::Result<T> got) {
  if (got.ok()) return *std::move(got);
  std::fprintf(stderr, "%s\n", got.status().message().c_str());
  std::exit(1);
}

void Need(const std::optional<Error>& error) {
  if (error) Need(Expected<bool>(*error));
}

CscView View(const gallery::Matrix& a) {
  return {.n = a.n, .col_ptr = a.col_ptr, .row_idx = a.row_idx, .values = a.values};
}

template <class T>
SharedArray<T> Shared(Client& client, const std::vector<T>& values) {
  auto array = Need(client.Allocate<T>(static_cast<int64_t>(values.size())));
  std::copy(values.begin(), values.end(), array.begin());
  return array;
}

// A daemon with a client that shares memory with it.
struct Served {
  explicit Served(const std::string& devices)
      : daemon({"--devices=" + devices, "--drain-grace=0s",
                "--local-socket=" + (folder / "local").string(), "--local-bytes=2GiB"}),
        client({.address = daemon.address(), .local_socket = (folder / "local").string()}) {
    if (daemon.serving()) return;
    std::fprintf(stderr, "the daemon did not start:\n%s\n", daemon.log().c_str());
    std::exit(1);
  }
  TempDir folder;
  Daemon daemon;
  Client client;
};

// The value of --NAME=, or `otherwise`.
std::string Option(int argc, char** argv, std::string_view name, std::string otherwise) {
  const std::string key = "--" + std::string(name) + "=";
  for (int i = 2; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(key)) return argv[i] + key.size();
  }
  return otherwise;
}

// A simulation's matrices: D A D, D a diagonal that drifts. Symmetric and positive as A.
class Drift {
 public:
  Drift(const gallery::Matrix& a, double phase) : a_(a), phase_(phase) {}
  void Values(int64_t step, std::span<double> values) const {
    std::vector<double> d(static_cast<size_t>(a_.n));
    for (size_t i = 0; i < d.size(); ++i) {
      d[i] = 1 + 0.1 * std::sin(0.02 * static_cast<double>(step) + phase_ +
                                0.1 * static_cast<double>(i % 1000));
    }
    for (size_t j = 0; j < d.size(); ++j) {
      for (auto p = static_cast<size_t>(a_.col_ptr[j]); p < static_cast<size_t>(a_.col_ptr[j + 1]);
           ++p) {
        values[p] = a_.values[p] * d[j] * d[static_cast<size_t>(a_.row_idx[p])];
      }
    }
  }

 private:
  const gallery::Matrix& a_;
  double phase_;
};

// One way to take the steps, with a daemon of its own.
struct Way {
  std::string name;
  std::function<SolveResult(std::span<const double> values)> step;
  std::vector<double> total = {}, inside = {};
  int64_t bytes_up = 0, iterations = 0;
};

void Steps(const char* title, const gallery::Matrix& a, int64_t steps, const std::string& devices) {
  const auto n = static_cast<size_t>(a.n);
  const std::vector<double> b(n, 1.0);
  const SolveOptions options{.engine = Engine::kFsai, .method = Method::kCg};
  std::vector<double> assembled(a.values.size());
  CscView view = View(a);
  view.values = assembled;
  Served cold(devices), by_values(devices), kept(devices), shared(devices);
  System rebuilding(by_values.client, view, options, {.mode = ReuseMode::kRebuild});
  System keeping(kept.client, view, options);
  const auto col_ptr = Shared(shared.client, a.col_ptr);
  const auto row_idx = Shared(shared.client, a.row_idx);
  const auto in_place = Shared(shared.client, assembled), b_there = Shared(shared.client, b),
             x_there = Shared(shared.client, b);
  SolveOptions into = options;
  into.solution = x_there;
  System sharing(shared.client,
                 {.n = a.n, .col_ptr = col_ptr, .row_idx = row_idx, .values = in_place}, into);
  std::vector<Way> ways;
  ways.push_back({"pattern and values, M built", [&](std::span<const double>) {
                    SolveResult solved = Need(cold.client.Solve(view, b, options));
                    return solved;
                  }});
  ways.push_back({"values alone, M built", [&](std::span<const double> values) {
                    Need(rebuilding.SetValues(values));
                    return Need(rebuilding.Solve(b));
                  }});
  ways.push_back({"values alone, M kept", [&](std::span<const double> values) {
                    Need(keeping.SetValues(values));
                    return Need(keeping.Solve(b));
                  }});
  ways.push_back({"shared memory, M kept", [&](std::span<const double>) {
                    Need(sharing.SetValues(in_place));
                    return Need(sharing.Solve(b_there));
                  }});
  const Drift drift(a, 0);
  for (int64_t step = 0; step < steps; ++step) {
    drift.Values(step, assembled);
    std::copy(assembled.begin(), assembled.end(), in_place.begin());
    for (Way& way : ways) {
      SolveResult solved;
      const double total = Milliseconds([&] { solved = way.step(assembled); });
      if (&way == ways.data()) Need(cold.client.DeleteMatrix(solved.matrix));
      if (step == 0) continue;  // all of them send and build everything in the first
      way.total.push_back(total);
      way.inside.push_back(solved.timings.setup_ms() + solved.timings.solve_ms);
      way.bytes_up += solved.timings.bytes_up;
      way.iterations += solved.figures.iterations;
    }
  }
  std::printf("%s: n = %lld, %zu entries, %lld steps\n", title, static_cast<long long>(a.n),
              a.values.size(), static_cast<long long>(steps));
  for (const Way& way : ways) {
    const auto count = static_cast<double>(way.total.size());
    std::printf("%-28s %8.1f ms a step, over the kernels' %5.3f, %6.2f MB up, %5.1f iterations\n",
                way.name.c_str(), Median(way.total), Median(way.total) / Median(way.inside),
                static_cast<double>(way.bytes_up) / count / 1e6,
                static_cast<double>(way.iterations) / count);
  }
}

void Warm(const char* title, const gallery::Matrix& a, int64_t rounds, const std::string& devices) {
  const std::vector<double> b(static_cast<size_t>(a.n), 1.0);
  Served served(devices);
  Client& client = served.client;
  const std::string matrix = Need(client.Upload(View(a))).name;
  const std::string m = Need(client.Build(matrix, {.engine = Engine::kFsai})).preconditioner.name;
  const auto b_there = Shared(client, b), x_there = Shared(client, b);
  SolveOptions by_wire{.preconditioner = m, .method = Method::kCg}, in_place = by_wire;
  in_place.solution = x_there;

  const kernels::CscView there{{a.n, a.n, a.col_ptr, a.row_idx}, a.values};
  const auto engine = kernels::MakeCpuEngine();
  kernels::Context context;
  context.threads = static_cast<int>(std::thread::hardware_concurrency());
  const kernels::PreconditionerSpec spec{.engine = kernels::EngineKind::kFsai};
  const auto plan = Need(engine->MakePlan(spec, there, nullptr, context));
  const auto built = Need(plan->Build(spec, there, context));
  const kernels::SolveOptions terms{.method = kernels::Method::kCg, .keep_history = false};
  std::vector<double> process, wire, shared;
  int64_t iterations = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    process.push_back(Milliseconds([&] {
      iterations = Need(engine->Solve(there, built.preconditioner.get(), b, {}, terms, context))
                       .rhs[0]
                       .iterations;
    }));
    wire.push_back(Milliseconds([&] { Need(client.Solve(matrix, b, by_wire)); }));
    shared.push_back(Milliseconds([&] { Need(client.Solve(matrix, b_there, in_place)); }));
  }
  const double floor = Median(process);
  std::printf(
      "%s, %lld iterations: in process %.2f ms; by the wire %.2f (%.3f times, or %+.2f ms);"
      " by shared memory %.2f (%.3f, %+.2f)\n",
      title, static_cast<long long>(iterations), floor, Median(wire), Median(wire) / floor,
      Median(wire) - floor, Median(shared), Median(shared) / floor, Median(shared) - floor);
}

int Run(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what != "steps" && what != "warm") {
    std::fprintf(
        stderr,
        "spaid_calls steps|warm [--steps= --rounds= --poisson= --elasticity= --devices=]\n");
    return 2;
  }
  const auto number = [&](std::string_view name, const char* otherwise) {
    return std::atoll(Option(argc, argv, name, otherwise).c_str());
  };
  const std::string devices = Option(argc, argv, "devices", "cpu");
  for (const auto& [title, a] :
       {std::pair{"poisson", gallery::ConvectionDiffusion3d(number("poisson", "60"), 0)},
        std::pair{"elasticity", gallery::Elasticity3d(number("elasticity", "20"))}}) {
    if (what == "steps") {
      Steps(title, a, number("steps", "100"), devices);
    } else {
      Warm(title, a, number("rounds", "21"), devices);
    }
  }
  return 0;
}

}  // namespace
}  // namespace spaid::e2e

int main(int argc, char** argv) { return spaid::e2e::Run(argc, argv); }
