// Krylov iterations: time and bytes of one iteration against the copy bandwidth of this machine,
// which is the floor. Bytes are counted: products at LinearOperator::bytes_per_apply(), vector
// passes at 8 bytes an element read or written.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"

namespace spaid::kernels::bench {
namespace {

const Problem kProblems[] = {
    {"P7_100", [] { return ConvectionDiffusion(100, 0); }},
    {"P7_37", [] { return ConvectionDiffusion(37, 0); }},
    {"P27_60", [] { return Laplacian27(60); }},
    {"convdiff_100", [] { return ConvectionDiffusion(100, 400); }},
};

// Bytes a second of y = x over vectors far larger than the caches, on `threads` threads.
void Copy(benchmark::State& state, int threads) {
  const int64_t n = int64_t{1} << 24;
  const Array<double> x(static_cast<size_t>(n), 1.0);
  Array<double> y(static_cast<size_t>(n), 0.0);
  for (auto _ : state) {
    ParallelFor(n, 1 << 16, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i];
    });
    benchmark::DoNotOptimize(y.data());
  }
  state.counters["bytes_rate"] = benchmark::Counter(16.0 * static_cast<double>(n),
                                                    benchmark::Counter::kIsIterationInvariantRate);
}

// Best of a few copies, once per number of threads.
double CopyBytesPerSecond(int threads) {
  static std::map<int, double> measured;
  auto [at, fresh] = measured.try_emplace(threads);
  if (!fresh) return at->second;
  const int64_t n = int64_t{1} << 24;
  const Array<double> x(static_cast<size_t>(n), 1.0);
  Array<double> y(static_cast<size_t>(n), 0.0);
  for (int run = 0; run < 7; ++run) {
    const auto start = std::chrono::steady_clock::now();
    ParallelFor(n, 1 << 16, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) y[i] = x[i];
    });
    benchmark::DoNotOptimize(y.data());
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
    at->second = std::max(at->second, 16.0 * static_cast<double>(n) / s.count());
  }
  return at->second;
}

void Iteration(benchmark::State& state, const Problem& problem, Method method, int threads) {
  const CscMatrix& a = Get(problem);
  const CsrOperator op = CsrOperator::FromColumns(a);
  Array<double> inverse(static_cast<size_t>(a.n_cols));
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (a.row_idx[p] == j) inverse[j] = 1 / a.values[p];
    }
  }
  const DiagonalOperator m(inverse);
  Array<double> b(static_cast<size_t>(a.n_cols));
  for (size_t i = 0; i < b.size(); ++i) b[i] = 1 + static_cast<double>(i % 17);
  SolveOptions options{.method = method, .rtol = 1e-300};
  options.max_iterations = 50;
  const Context context{.stop = {}, .progress = nullptr, .threads = threads};
  int64_t iterations = 0;
  for (auto _ : state) {
    const auto r = Solve(op, &m, b, {}, options, context);
    if (!r.ok() || r->rhs[0].iterations == 0) {
      state.SkipWithError("the solve did not iterate");
      return;
    }
    iterations += r->rhs[0].iterations;
  }
  const double bytes = CountedBytes(op.n(), op.bytes_per_apply(), m.bytes_per_apply(), options,
                                    options.max_iterations) /
                       static_cast<double>(options.max_iterations);
  const double copy = CopyBytesPerSecond(threads);
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = static_cast<double>(a.nnz());
  state.counters["bytes_per_iteration"] = bytes;
  state.counters["floor_us"] = 1e6 * bytes / copy;
  state.counters["copy_bytes_per_s"] = copy;
  const auto count = static_cast<double>(iterations);
  state.counters["s_per_iteration"] =
      benchmark::Counter(count, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  // Above 1: slower than copying the counted bytes.
  state.counters["time_over_floor"] = benchmark::Counter(
      count * bytes / copy, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

const bool kRegistered = [] {
  constexpr std::pair<const char*, Method> kMethods[] = {{"cg", Method::kCg},
                                                         {"minres", Method::kMinres},
                                                         {"bicgstab", Method::kBicgstab},
                                                         {"idr", Method::kIdr},
                                                         {"gmres", Method::kGmres}};
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark(("Copy/threads:" + std::to_string(threads)).c_str(),
                                 [threads](benchmark::State& state) { Copy(state, threads); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  for (const Problem& problem : kProblems) {
    for (const auto& [method_name, method] : kMethods) {
      if (ForSymmetric(method) && std::string(problem.name) == "convdiff_100") continue;
      for (const int threads : {1, 2}) {
        const std::string name = std::string("Krylov/") + problem.name + "/" + method_name +
                                 "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&problem, method = method, threads](benchmark::State& state) {
                                       Iteration(state, problem, method, threads);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
