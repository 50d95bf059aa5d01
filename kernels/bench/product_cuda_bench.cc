// y = A x on the first CUDA device, A resident there as it is laid out for solves (by diagonals, or
// by rows), and by rows (kernels/krylov/cuda), by the device's clock, against what must move at the
// bandwidth of a copy: the floor. Nothing is registered where there is no device.

#include <benchmark/benchmark.h>

#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/bench/cuda/yardsticks.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/cuda/blocks.h"
#include "kernels/sparse/cuda/reorder.h"

namespace spaid::kernels::bench {
namespace {

constexpr int kProducts = 51;

struct Multiplied : Problem {
  bool of_m;  // M of static SPAI with A's pattern, in place of A
};

const Multiplied kProblems[] = {
    {"P7_37", [] { return ConvectionDiffusion(37, 0); }, false},
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }, false},
    {"P7_128_M", [] { return ConvectionDiffusion(128, 0); }, true},
    {"P27_100", [] { return Laplacian27(100); }, false},
    {"E80_40", [] { return Elasticity(40); }, false},
    {"E80_60", [] { return Elasticity(60); }, false},
    {"E80_60_symmetric", [] { return Symmetrized(Elasticity(60)); }, false},
    {"E80_60_M", [] { return Elasticity(60); }, true},
    {"E80_40_permuted", [] { return PermuteNodes(Elasticity(40), 3, 1 << 14); }, false},
    {"P7_128_scattered", [] { return Scattered(ConvectionDiffusion(128, 0), 1); }, false},
    {"E80_40_scattered", [] { return Scattered(Elasticity(40), 3); }, false},
    {"aniso_1640", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }, false},
    {"aniso_1640_M", [] { return Anisotropic(1640, 1e-3, std::numbers::pi / 8); }, true},
    {"convdiff_100", [] { return ConvectionDiffusion(100, 400); }, false},
    {"convdiff_100_M", [] { return ConvectionDiffusion(100, 400); }, true},
    {"circuit_300k", [] { return Circuit(300000, 12, 700); }, false},
    {"circuit_300k_M", [] { return Circuit(300000, 12, 700); }, true},
};

// The matrix of the benchmark before is kept: those of one matrix follow one another.
const CscMatrix& Kept(const Multiplied& problem) {
  static const Multiplied* made = nullptr;
  static CscMatrix matrix;
  if (made != &problem) {
    matrix = {};
    matrix = problem.make();
    made = &problem;
  }
  return matrix;
}

double CopyRate() {
  static const double rate = DeviceCopyBytesPerSecond();
  return rate;
}

void Report(benchmark::State& state, const CscMatrix& a, double ms, int64_t bytes) {
  const double rate = static_cast<double>(bytes) / (ms * 1e-3);
  state.counters["n"] = static_cast<double>(a.n_cols);
  state.counters["nnz"] = static_cast<double>(a.nnz());
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["GB_per_s"] = rate * 1e-9;
  if (CopyRate() > 0) {
    state.counters["copy_GB_per_s"] = CopyRate() * 1e-9;
    state.counters["share_of_copy"] = rate / CopyRate();
  }
}

void Run(benchmark::State& state, const Multiplied& problem, bool fp32, bool by_rows) {
  const CscMatrix& a = Kept(problem);
  cuda::Variants variants = cuda::tuning::kVariants;
  variants.rows_bytes = by_rows ? std::numeric_limits<int64_t>::max() : 0;
  cuda::Context context(ListCudaDevices().devices[0].index, 0, variants);
  const auto make = [&] {
    const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
    if (!problem.of_m) {
      const auto symmetric = IsExactlySymmetric(a, {});
      return cuda::MakeOperator(
          context, matrix.pattern(), matrix.values.get(),
          symmetric.ok() && *symmetric ? cuda::Order::kBoth : cuda::Order::kColumns, fp32);
    }
    PlanThere plan = PlanSpaiThere(context, matrix, {}, {0, a.n_cols});
    const BuildThere built = BuildSpaiThere(context, plan.plan, matrix, {});
    return cuda::MakeOperator(context, plan.plan.pattern(), built.m.values.get(),
                              cuda::Order::kColumns, fp32);
  };
  const cuda::Operator op = make();
  double ms = 0;
  const int64_t bytes = cuda::BytesPerProduct(op);
  for (auto _ : state) {
    ms = cuda::TimeProducts(context, op, kProducts);
    state.SetIterationTime(ms * 1e-3);
  }
  Report(state, a, ms, bytes);
}

// With the unknowns in the order that scattered ones get, and what that takes.
void RunOrdered(benchmark::State& state, const Multiplied& problem) {
  const CscMatrix& a = Kept(problem);
  cuda::Context context(ListCudaDevices().devices[0].index, 0);
  const cuda::Matrix matrix = cuda::UploadMatrix(context, a, a.values.data());
  const cuda::PatternRef pattern = matrix.pattern();
  const int node = cuda::HasWholeBlocks(context, pattern, 3) ? 3 : 1;
  std::optional<cuda::UnknownOrder> order;
  cuda::Matrix rows;
  double order_ms = 0, permute_ms = 0;
  for (int warm = 0; warm < 3; ++warm) {
    cuda::Stopwatch watch(context);
    order = cuda::FindOrder(context, pattern, node);
    watch.Mark();
    if (!order) return state.SkipWithError("no order is better than another");
    rows = cuda::PermuteByRows(context, pattern, a.nnz(), matrix.values.get(), *order);
    permute_ms = watch.Stop() - watch.Marked();
    order_ms = watch.Marked();
  }
  const auto symmetric = IsExactlySymmetric(a, {});
  const cuda::Operator op = cuda::MakeOperator(
      context, rows.pattern(), rows.values.get(),
      symmetric.ok() && *symmetric ? cuda::Order::kBoth : cuda::Order::kRows, /*fp32=*/false);
  double ms = 0;
  for (auto _ : state) {
    ms = cuda::TimeProducts(context, op, kProducts);
    state.SetIterationTime(ms * 1e-3);
  }
  Report(state, a, ms, cuda::BytesPerProduct(op));
  state.counters["order_ms"] = order_ms;
  state.counters["permute_ms"] = permute_ms;
}

#ifdef SPAID_BENCH_CUSPARSE
// By the bytes of a CSR with 32-bit pointers.
void RunCusparse(benchmark::State& state, const Multiplied& problem) {
  const CscMatrix& a = Kept(problem);
  double ms = 0;
  for (auto _ : state) {
    CusparseTimes times;
    const std::string why = TimeCusparse(a.n_cols, a.col_ptr.data(), a.row_idx.data(),
                                         a.values.data(), 1, kProducts, &times);
    ms = times.alone_ms;
    if (!why.empty()) {
      state.SkipWithError(why.c_str());
      return;
    }
    state.SetIterationTime(ms * 1e-3);
  }
  Report(state, a, ms, 12 * a.nnz() + 20 * a.n_cols);
}
#endif

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  const auto add = [](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(("CudaProduct/" + name).c_str(), run)
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(1);
  };
  const auto add_all = [&](const Multiplied& problem) {
    const std::string& name = problem.name;
    for (const bool by_rows : {false, true}) {
      for (const bool fp32 : {false, true}) {
        add(name + (by_rows ? "/rows" : "") + (fp32 ? "/fp32" : "/fp64"),
            [&problem, fp32, by_rows](benchmark::State& state) {
              Run(state, problem, fp32, by_rows);
            });
      }
    }
    if (problem.of_m) return;
    add(name + "/ordered", [&problem](benchmark::State& state) { RunOrdered(state, problem); });
#ifdef SPAID_BENCH_CUSPARSE
    add(name + "/cusparse", [&problem](benchmark::State& state) { RunCusparse(state, problem); });
#endif
  };
  for (const Multiplied& problem : kProblems) add_all(problem);
  static std::vector<Multiplied> files;
  for (const Problem& file : FileProblems()) files.push_back({file, /*of_m=*/false});
  for (const Multiplied& problem : files) add_all(problem);
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
