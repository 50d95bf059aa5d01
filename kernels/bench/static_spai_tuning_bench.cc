// What the tuning headers of static SPAI on a CUDA device are read from: the thread groups of QR
// (thread_groups_tuning.h), and the variants of each component (variants_tuning.h). Nothing is
// registered where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/static_spai/static_spai_cuda.h"

namespace spaid::kernels::bench {
namespace {

// What thread_groups_tuning.h is fitted to: QR problems of n2 columns and n1 rows, as many as keep
// the device busy, by groups of 2^s threads.
struct Tune {
  int s, n2, n1;
};

constexpr Tune kTunes[] = {
    {0, 1, 3},    {0, 1, 60},    {1, 2, 8},     {1, 2, 90}, {2, 3, 12},   {2, 3, 120},
    {2, 4, 12},   {2, 4, 120},   {3, 3, 12},    {3, 5, 25}, {3, 7, 25},   {3, 7, 126},
    {3, 8, 25},   {3, 8, 126},   {4, 3, 12},    {4, 7, 25}, {4, 12, 40},  {4, 12, 144},
    {4, 16, 40},  {4, 16, 144},  {5, 3, 12},    {5, 7, 25}, {5, 18, 75},  {5, 27, 125},
    {5, 27, 270}, {5, 32, 125},  {6, 3, 12},    {6, 7, 25}, {6, 27, 125}, {6, 50, 200},
    {6, 50, 400}, {6, 64, 200},  {7, 3, 12},    {7, 7, 25}, {7, 27, 125}, {7, 80, 240},
    {7, 80, 400}, {7, 125, 343}, {7, 128, 343}, {8, 3, 12}, {8, 7, 25},   {8, 27, 125},
    {8, 80, 240}, {8, 80, 400},  {8, 125, 343},
};

// Column j of A has the rows j, j + 1, ...; the columns J of M are so far apart that n1 rows meet
// them. One column more, of 2^s entries, sets the size of S1's groups.
void RunTune(benchmark::State& state, const Tune& tune) {
  const int length = std::max(1, tune.n1 / tune.n2);
  const double work = 2.0 * tune.n1 * tune.n2 * tune.n2;
  const auto n = static_cast<int32_t>(std::clamp(1e10 / (work + 2000), 5e3, 5e5));
  CscMatrix a;
  Pattern m;
  a.n_rows = a.n_cols = m.n_rows = m.n_cols = n;
  const int longest = tune.s == 8 ? 200 : 1 << tune.s;
  for (int32_t k = 0; k < n; ++k) {
    const int32_t step = k == n / 2 ? 1 : length;
    // The last ones, which would meet the end, have their diagonal alone.
    const int size = k == n / 2 ? longest : k + length * tune.n2 < n ? tune.n2 : 1;
    a.col_ptr.push_back(a.nnz());
    m.col_ptr.push_back(m.nnz());
    for (int i = 0; i < size; ++i) m.row_idx.push_back(k + i * step);
    for (int32_t i = k; i < std::min(n, k + length); ++i) {
      a.row_idx.push_back(i);
      a.values.push_back(i == k ? 4 : 1.0 / (1 + i - k));
    }
  }
  a.col_ptr.push_back(a.nnz());
  m.col_ptr.push_back(m.nnz());
  const PatternView pattern = m;
  StaticSpaiOptions options;
  options.local_solver = LocalSolver::kQr;
  options.thread_strategy = ThreadStrategy::kConstant;
  const auto plan = Must(PlanStaticSpaiCuda(Device(), a, &pattern, options, {}));
  StaticSpaiCudaTimings timings;
  const auto build = [&] {
    const auto built = Must(BuildStaticSpaiCuda(*plan, a, options, {}, &timings));
  };
  build();
  for (auto _ : state) {
    build();
    state.SetIterationTime(timings.qr_ms * 1e-3);
  }
  const int n1 = length * tune.n2, chunks = (n1 + 31) / 32;
  state.counters["spill"] = tune.n2 + 1 > 1 << tune.s ? 1 : 0;
  state.counters["problems"] = n;
  state.counters["chunks"] = static_cast<double>(n) * chunks;
  state.counters["steps"] = static_cast<double>(n) * chunks * tune.n2;
  state.counters["predicted_ms"] = timings.predicted_qr_ms;
}

// What variants_tuning.h is read from: one matrix, and the part of plan or build in which one
// variant, or the next one, does all the work.
enum class Part { kPattern, kPlan, kBuild };

// Every column has its diagonal and entries at `count` - 1 other rows, anywhere.
CscMatrix Scattered(int32_t n, int count) {
  std::mt19937 random(1);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (int32_t k = 0; k < n; ++k) {
    std::set<int32_t> rows{k};
    while (static_cast<int>(rows.size()) < count) {
      rows.insert(static_cast<int32_t>(random() % static_cast<uint32_t>(n)));
    }
    a.col_ptr.push_back(a.nnz());
    for (const int32_t row : rows) {
      a.row_idx.push_back(row);
      a.values.push_back(row == k ? 4 : 1.0 / count);
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

CscMatrix Banded(int32_t n, int32_t half) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (int32_t k = 0; k < n; ++k) {
    a.col_ptr.push_back(a.nnz());
    for (int32_t row = std::max(0, k - half); row <= std::min(n - 1, k + half); ++row) {
      a.row_idx.push_back(row);
      a.values.push_back(row == k ? 4 : 1.0 / half);
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

// 10,000 columns name `count` columns each, which have as many entries; all others are the
// diagonal.
CscMatrix Wide(int32_t n, int count) {
  constexpr int32_t kOuter = 10'000, kInner = 16'000;
  std::mt19937 random(1);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (int32_t k = 0; k < n; ++k) {
    std::set<int32_t> rows{k};
    while (k < kInner && static_cast<int>(rows.size()) < count) {
      rows.insert(static_cast<int32_t>(k < kOuter ? kOuter + random() % (kInner - kOuter)
                                                  : random() % static_cast<uint32_t>(n)));
    }
    a.col_ptr.push_back(a.nnz());
    for (const int32_t row : rows) {
      a.row_idx.push_back(row);
      a.values.push_back(row == k ? 4 : 1.0 / count);
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

void RunVariant(benchmark::State& state, const CscMatrix& a, int power, Part part,
                const CudaVariants& variants) {
  const auto context = Must(
      ListCudaDevices().backend->OpenContext(ListCudaDevices().devices[0], 0, nullptr, &variants));
  const auto matrix = Upload(*context, a);
  StaticSpaiOptions options;
  options.local_solver = LocalSolver::kGram;
  CudaPatternRequest pattern;
  pattern.options.power = power;
  CudaPlanFigures info;
  const auto run = [&] {
    const auto plan = Must(matrix->PlanStaticSpai(pattern, options.local_solver, std::nullopt, {}));
    info = plan->figures;
    if (part == Part::kBuild) return Must(plan->Build(*matrix, options, {}))->figures.ms;
    return part == Part::kPattern ? info.pattern_ms : info.ms - info.pattern_ms;
  };
  run();
  for (auto _ : state) state.SetIterationTime(run() * 1e-3);
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz_m"] = static_cast<double>(info.nnz_m);
  state.counters["structures"] = static_cast<double>(info.structures);
}

void RegisterVariants() {
  constexpr int32_t kAll = std::numeric_limits<int32_t>::max();
  constexpr CudaVariants kFirst{kAll, 0, kAll, kAll, kAll, 0};  // of each component
  using Make = std::function<CscMatrix()>;
  const auto add = [](const std::string& name, Make make, int power, Part part,
                      CudaVariants variants) {
    benchmark::RegisterBenchmark(
        ("StaticSpaiVariants/" + name).c_str(),
        [make = std::move(make), power, part, variants](benchmark::State& state) {
          RunVariant(state, make(), power, part, variants);
        })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(5);
  };
  // As many columns as have about so many elements together.
  const auto columns = [](int64_t elements, int64_t each) {
    return static_cast<int32_t>(std::clamp<int64_t>(elements / each, 5000, 1'000'000));
  };
  for (const int32_t half : {2, 4, 8, 16, 32, 44}) {
    const int64_t each = (2 * half + 1) * (2 * half + 1);
    const Make make = [n = columns(40'000'000, each), half] { return Banded(n, half); };
    const std::string name = "find_J/elements:" + std::to_string(each);
    add(name + "/warp", make, 2, Part::kPattern, kFirst);
    add(name + "/block", make, 2, Part::kPattern, {0, 0, kAll, kAll, kAll, 0});
  }
  for (const int32_t n : {20'000, 100'000, 320'000}) {
    for (const int count : {22, 40, 74}) {
      const Make make = [n, count] { return Wide(n, count); };
      const std::string name =
          "find_J/entries:" + std::to_string(count * count) + "/n:" + std::to_string(n);
      add(name + "/block", make, 2, Part::kPattern, kFirst);
      add(name + "/bitmap", make, 2, Part::kPattern, {kAll, kAll, kAll, kAll, kAll, 0});
    }
  }
  for (const int count : {3, 5, 6, 8, 10, 16, 24, 32}) {
    const int64_t each = count * count;
    const Make make = [n = columns(20'000'000, each), count] { return Scattered(n, count); };
    const std::string name = "find_I/entries:" + std::to_string(each);
    if (each <= 64) add(name + "/registers", make, 1, Part::kPlan, kFirst);
    add(name + "/warp", make, 1, Part::kPlan, {kAll, 0, 0, kAll, kAll, 0});
    add(name + "/block", make, 1, Part::kPlan, {kAll, 0, 0, 0, kAll, 0});
  }
  for (const int count : {3, 5, 7, 9, 10}) {
    const Make make = [count] { return Periodic(500'000, count); };
    const std::string name = "solve/n2:" + std::to_string(count);
    add(name + "/thread", make, 1, Part::kBuild, kFirst);
    add(name + "/warp", make, 1, Part::kBuild, {kAll, 0, kAll, kAll, 0, 0});
  }
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  for (const Tune& tune : kTunes) {
    const std::string name = "StaticSpaiTune/s:" + std::to_string(tune.s) +
                             "/n2:" + std::to_string(tune.n2) + "/n1:" + std::to_string(tune.n1);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&tune](benchmark::State& state) { RunTune(state, tune); })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(3);
  }
  RegisterVariants();
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
