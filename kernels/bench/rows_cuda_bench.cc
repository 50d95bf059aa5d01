// y = A x and xᵀ y by rows on the first CUDA device, as solves form them, A too irregular for
// diagonals or nodes: by the loop that the lengths of rows tell, by the other one, and by cuSPARSE
// with and without the dot product, all between the updates of CG's vectors. Nothing is registered
// where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/cuda/rows_on_device.h"
#include "kernels/bench/cuda/yardsticks.h"
#include "kernels/bench/problems.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels::bench {
namespace {

constexpr int kProducts = 51, kLayouts = 5;

// A by rows, of length(i, u) entries, u uniform in [0, 1), at random columns, the diagonal among
// them. std::mt19937_64.
CscMatrix RandomRows(int64_t n, uint64_t seed,
                     const std::function<int64_t(int64_t i, double u)>& length) {
  std::mt19937_64 generator(seed);
  const auto uniform = [&] { return static_cast<double>(generator() >> 11) * 0x1.0p-53; };
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  std::vector<int32_t> row;
  for (int64_t i = 0; i < n; ++i) {
    row.assign(1, static_cast<int32_t>(i));
    const int64_t count = length(i, uniform());
    for (int64_t k = 1; k < count; ++k) {
      row.push_back(static_cast<int32_t>(static_cast<double>(n) * uniform()));
    }
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    for (const int32_t j : row) {
      a.row_idx.push_back(j);
      a.values.push_back(uniform() - 0.5);
    }
    a.col_ptr.push_back(a.nnz());
  }
  return a;
}

CscMatrix PowerLaw(int64_t n, double least, double exponent, int64_t most) {
  return RandomRows(n, 1, [=](int64_t, double u) {
    return std::min(most, static_cast<int64_t>(least / std::pow(u + 1e-7, exponent)));
  });
}

constexpr int64_t kAll = int64_t{1} << 40;  // rows that are permuted among one another

struct Problem {
  const char* name;
  CscMatrix (*make)();  // A by rows
};

constexpr Problem kProblems[] = {
    {"circuit_300k", [] { return Circuit(300000, 12, 700); }},
    {"circuit_1M", [] { return Circuit(1000000, 12, 700); }},
    {"circuit_3M", [] { return Circuit(3000000, 12, 700); }},
    {"power_law_1M", [] { return PowerLaw(1000000, 4, 0.7, 20000); }},
    {"power_law_3M", [] { return PowerLaw(3000000, 1.5, 0.6, 2000); }},
    {"random_1M", [] { return RandomRows(1000000, 2, [](int64_t, double) { return 16; }); }},
    {"P7_80_permuted", [] { return PermuteNodes(ConvectionDiffusion(80, 0), 1, kAll); }},
    {"P7_128_permuted", [] { return PermuteNodes(ConvectionDiffusion(128, 0), 1, kAll); }},
    {"P27_100_permuted", [] { return PermuteNodes(Laplacian27(100), 1, kAll); }},
    {"aniso_1640_permuted",
     [] { return PermuteNodes(Anisotropic(1640, 1e-3, std::numbers::pi / 8), 1, kAll); }},
    {"E80_30_permuted", [] { return PermuteNodes(Elasticity(30), 3, kAll); }},
    {"E80_40_permuted", [] { return PermuteNodes(Elasticity(40), 3, kAll); }},
    {"dense_rows",
     [] {
       return RandomRows(1000000, 3, [](int64_t i, double) { return i % 20011 == 0 ? 200000 : 5; });
     }},
    {"short_rows",
     [] {
       return RandomRows(8000000, 4,
                         [](int64_t, double u) { return 1 + static_cast<int64_t>(3 * u); });
     }},
    {"long_rows",
     [] {
       return RandomRows(60000, 5,
                         [](int64_t, double u) { return 200 + static_cast<int64_t>(100 * u); });
     }},
};

struct Placed {
  CscMatrix by_rows, by_columns;
};

// To make one takes longer than to measure it: all of them are made beside one another when the
// first is asked for.
const Placed& Get(const Problem& problem) {
  static std::vector<std::shared_future<Placed>> all = [] {
    std::vector<std::shared_future<Placed>> made;
    for (const Problem& own : kProblems) {
      made.push_back(std::async(std::launch::async, [make = own.make] {
                       Placed placed;
                       placed.by_rows = make();
                       placed.by_columns = Transpose(placed.by_rows);
                       return placed;
                     }).share());
    }
    return made;
  }();
  return all[static_cast<size_t>(&problem - kProblems)].get();
}

void Run(benchmark::State& state, const Problem& problem, bool fp32) {
  const Placed& placed = Get(problem);
  const CscMatrix& a = placed.by_columns;
  RowsOptions options;
  options.fp32 = fp32;
  RowsOnDevice rows(a, options);
  const RowsLoop rule = rows.loop();
  double rule_ms = 0;
  for (auto _ : state) {
    state.counters["rule_loop"] = static_cast<double>(rule);
    state.counters["alone_ms"] = rows.Time(kProducts, false);
    if (rule != RowsLoop::kPlain) {
      for (const RowsLoop loop : {RowsLoop::kShortChunks, RowsLoop::kLongChunks}) {
        rows.set_loop(loop);
        const double ms = rows.Time(kProducts, true);
        state.counters[loop == RowsLoop::kLongChunks ? "long_ms" : "short_ms"] = ms;
        if (loop == rule) rule_ms = ms;
      }
    } else {
      rule_ms = rows.Time(kProducts, true);
    }
    state.counters["rule_ms"] = rule_ms;
    state.SetIterationTime(rule_ms * 1e-3);
  }
  // By the layouts that the rule chooses between.
  for (const RowsLayout layout : {RowsLayout::kSlices, RowsLayout::kTiles}) {
    options.layout = layout;
    RowsOnDevice own(a, options);
    const bool tiles = layout == RowsLayout::kTiles;
    if (tiles && !own.in_tiles()) break;
    state.counters[tiles ? "tiles_ms" : "slices_ms"] = own.Time(kProducts, true);
    state.counters[tiles ? "tiles_alone_ms" : "slices_alone_ms"] = own.Time(kProducts, false);
    state.counters[tiles ? "tiles_stored" : "slices_stored"] = own.stored();
    state.counters[tiles ? "tiles_layout_ms" : "slices_layout_ms"] = own.TimeLayout(kLayouts);
  }
  state.counters["layout_ms"] = rows.TimeLayout(kLayouts);
  state.counters["in_tiles"] = rows.in_tiles() ? 1 : 0;
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = static_cast<double>(a.nnz());
}

void RunCusparse(benchmark::State& state, const Problem& problem, int algorithm) {
  const CscMatrix& a = Get(problem).by_rows;
  for (auto _ : state) {
    CusparseTimes times;
    const std::string why = TimeCusparse(a.n_cols, a.col_ptr.data(), a.row_idx.data(),
                                         a.values.data(), algorithm, kProducts, &times);
    if (!why.empty()) {
      state.SkipWithError(why.c_str());
      return;
    }
    state.SetIterationTime(times.with_dot_ms * 1e-3);
    state.counters["alone_ms"] = times.in_cg_ms;
    state.counters["one_after_the_other_ms"] = times.alone_ms;
  }
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  const auto add = [](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(("CudaRows/" + name).c_str(), run)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(1);
  };
  for (const Problem& problem : kProblems) {
    const std::string name = problem.name;
    for (const bool fp32 : {false, true}) {
      add(name + (fp32 ? "/fp32" : "/fp64"),
          [&problem, fp32](benchmark::State& state) { Run(state, problem, fp32); });
    }
    for (const int algorithm : {1, 2}) {
      add(name + "/cusparse_alg" + std::to_string(algorithm),
          [&problem, algorithm](benchmark::State& state) {
            RunCusparse(state, problem, algorithm);
          });
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
