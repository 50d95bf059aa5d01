// Multigrid on the first CUDA device, a line of CSV for each problem on standard output: solves
// with a hierarchy that the CPU has built, and with one that the device has, whose time is from A
// there to the levels there, once more for the same values on its aggregates; and the parts of
// which that set-up is made.
//
//   spaid_amg_cuda_times [only=NAME] [setup=1] [rhs=1] [rounds=5] [OPTION=NUMBER...]
//
// On the problems of the tables of GPUs, of which motions40 and motions60 are elast40 and elast60
// by the motions of a body. b = A x with a seeded random x in [-1, 1], x0 = 0, relative residual
// 1e-7, CG where A is symmetric, else BiCGSTAB. Milliseconds are medians of so many rounds. Options
// are those of AmgOptions, choices by their numbers. `setup`: the parts, too, with whether the
// product has the host's bits. `rhs`: in place of all that, solves of one, two, four and
// eight right-hand sides, one after another and together.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/base/clock.h"
#include "kernels/base/cuda/device.h"
#include "kernels/base/device.h"
#include "kernels/base/memory.h"
#include "kernels/base/parallel.h"
#include "kernels/bench/cuda/amg_setup.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/products.h"

namespace spaid::kernels::bench {
namespace {

using Device = std::shared_ptr<CudaDevice>;

double Median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
  return of[of.size() / 2];
}

// Coordinates of the nodes of Elasticity(m), by columns: one face is held.
std::vector<double> NodesOfElasticity(int m) {
  std::vector<double> nodes;
  for (int k = 0; k < 3; ++k) {
    for (int z = 0; z < m; ++z) {
      for (int y = 0; y < m; ++y) {
        for (int x = 1; x < m; ++x) nodes.push_back(k == 0 ? x : k == 1 ? y : z);
      }
    }
  }
  return nodes;
}

// The median of products, or cycles, each alone.
double ProductMs(const CudaOperator& op) {
  constexpr int kProducts = 100;
  double ms = 0;
  const auto lock = op.device()->Lock();
  const Status status = cuda::Guard(*op.device(), [&](cuda::Context& context) {
    ms = cuda::TimeProducts(context, *cuda::There(op).op, kProducts);
  });
  if (!status.ok()) Die(status.message());
  return ms;
}

Context OnAllCores() { return {.stop = {}, .progress = nullptr, .threads = 0}; }

// `near`: none where constants are the near-null vectors.
void Solves(const Device& device, const std::string& name, const CscMatrix& a,
            const NearNullInput& near, const AmgOptions& options, int rounds) {
  const Context context = OnAllCores();
  const bool symmetric = Must(IsExactlySymmetric(a, {}));
  const auto building = Clock::now();
  const AmgResult built = Must(BuildAmg(a, symmetric, near, options, context));
  const double build_ms = MsSince(building);
  const CsrOperator op = CsrOperator::FromColumns(a);
  std::mt19937_64 random(12345);
  std::vector<double> x(static_cast<size_t>(a.n_cols)), b(x.size());
  for (double& v : x) v = 0x1.0p-52 * static_cast<double>(random() >> 11) - 1;
  op.Apply(x, b, ResolveThreads(0));
  const SolveOptions solve{.method = symmetric ? Method::kCg : Method::kBicgstab,
                           .rtol = 1e-7,
                           .max_iterations = 1000,
                           .keep_history = false};
  const auto a_there = Must(CudaOperator::OfMatrix(device, a, /*fp32=*/false, context));
  std::vector<double> place, iterate;
  std::shared_ptr<const CudaOperator> m;
  RhsResult solved;
  for (int round = 0; round < rounds; ++round) {
    m = nullptr;
    const auto placing = Clock::now();
    m = Must(PlaceAmgOnCuda(device, *built.hierarchy, context, a_there.get()));
    place.push_back(MsSince(placing));
    SolveCudaTimings timings;
    solved = Must(SolveCuda(*a_there, m.get(), a, b, {}, solve, context, &timings)).rhs[0];
    iterate.push_back(timings.iterate_ms);
  }
  const auto here = Must(Solve(op, built.hierarchy.get(), b, {}, solve, context)).rhs[0];
  const double ms = Median(iterate);
  const double device_mb = 1e-6 * static_cast<double>(m->device_bytes());
  const double cycle_ms = ProductMs(*m);
  m = nullptr;
  // The same with the set-up there, A there.
  std::vector<double> set_up, set_up_again, place_there, both;
  double set_up_mb = 0, kept_mb = 0, iterations_there = 0;
  for (int round = 0; round < rounds; ++round) {
    AmgCudaTimings timings;
    const auto there = Must(BuildAmgOnCuda(device, a, near, options, context, &timings));
    if (!there) break;
    const auto placing = Clock::now();
    m = Must(PlaceAmgOnCuda(device, *there->hierarchy, context, a_there.get()));
    place_there.push_back(MsSince(placing));
    set_up.push_back(timings.device_ms);
    SolveCudaTimings solving;
    iterations_there = static_cast<double>(
        Must(SolveCuda(*a_there, m.get(), a, b, {}, solve, context, &solving)).rhs[0].iterations);
    both.push_back(timings.device_ms + place_there.back() + solving.iterate_ms);
    set_up_mb = 1e-6 * static_cast<double>(timings.device_bytes);
    m = nullptr;
    if (there->there == nullptr) continue;
    kept_mb = 1e-6 * static_cast<double>(there->there->device_bytes());
    AmgCudaTimings again;
    if (!Must(RebuildAmgOnCuda(device, there->there, a, near, context, &again))) {
      Die("the same values are to be built anew");
    }
    set_up_again.push_back(again.device_ms);
  }
  const AmgCounts counts = EstimateAmg(a,
                                       near.dimension == 3   ? 6
                                       : near.dimension == 2 ? 3
                                                             : near.count,
                                       options);
  const auto median_or_none = [](const std::vector<double>& of) {
    return of.empty() ? std::string("-") : std::to_string(Median(of));
  };
  std::printf(
      "%s,%lld,%lld,%s,%d,%.2f,%d,%d,%s,%.1f,%.1f,%.2f,%.4f,%.4f,%.4f,%.1f,%s,%s,%s,%.0f,"
      "%.1f,%s,%.1f,%.1f\n",
      name.c_str(), static_cast<long long>(a.n_cols), static_cast<long long>(a.nnz()),
      Name(built.quality.smoother).data(), static_cast<int>(built.quality.levels.size()),
      built.quality.operator_complexity, static_cast<int>(here.iterations),
      static_cast<int>(solved.iterations), solved.outcome == Outcome::kConverged ? "yes" : "no",
      build_ms, Median(place), ms,
      ms / static_cast<double>(std::max<int64_t>(1, solved.iterations)), cycle_ms,
      ProductMs(*a_there), device_mb, median_or_none(set_up).c_str(),
      median_or_none(place_there).c_str(), median_or_none(both).c_str(), iterations_there,
      set_up_mb, median_or_none(set_up_again).c_str(), kept_mb,
      1e-6 * static_cast<double>(
                 SetUpDeviceBytes(a.n_cols, a.nnz(), counts.block, counts.vectors, options)));
  std::fflush(stdout);
}

// Solves of several right-hand sides, one after another and together.
void RightHandSides(const Device& device, const std::string& name, const CscMatrix& a,
                    const NearNullInput& near, const AmgOptions& options, int rounds) {
  const Context context = OnAllCores();
  const bool symmetric = Must(IsExactlySymmetric(a, {}));
  const auto there = Must(BuildAmgOnCuda(device, a, near, options, context));
  const AmgResult built = there ? *there : Must(BuildAmg(a, symmetric, near, options, context));
  const auto a_there = Must(CudaOperator::OfMatrix(device, a, /*fp32=*/false, context));
  const auto m = Must(PlaceAmgOnCuda(device, *built.hierarchy, context, a_there.get()));
  const CsrOperator op = CsrOperator::FromColumns(a);
  const auto n = static_cast<size_t>(a.n_cols);
  constexpr size_t kMost = 8;
  std::mt19937_64 random(12345);
  std::vector<double> x(n), b(kMost * n);
  for (size_t v = 0; v < kMost; ++v) {
    for (double& value : x) value = 0x1.0p-52 * static_cast<double>(random() >> 11) - 1;
    op.Apply(x, std::span(b).subspan(v * n, n), ResolveThreads(0));
  }
  const SolveOptions solve{.method = symmetric ? Method::kCg : Method::kBicgstab,
                           .rtol = 1e-7,
                           .max_iterations = 1000,
                           .keep_history = false};
  // Adds up milliseconds and iterations.
  const auto run = [&](size_t first, size_t count, double* ms, int64_t* iterations) {
    SolveCudaTimings timings;
    const SolveResult solved =
        Must(SolveCuda(*a_there, m.get(), a, std::span(b).subspan(first * n, count * n), {}, solve,
                       context, &timings));
    *ms += timings.iterate_ms;
    for (const RhsResult& rhs : solved.rhs) *iterations += rhs.iterations;
  };
  for (const size_t count : {1, 2, 4, 8}) {
    std::vector<double> alone, together;
    int64_t alone_iterations = 0, together_iterations = 0;
    for (int round = 0; round < rounds; ++round) {
      double alone_ms = 0, together_ms = 0;
      alone_iterations = together_iterations = 0;
      for (size_t v = 0; v < count; ++v) run(v, 1, &alone_ms, &alone_iterations);
      run(0, count, &together_ms, &together_iterations);
      alone.push_back(alone_ms);
      together.push_back(together_ms);
    }
    std::printf("%s,%d,%lld,%lld,%.2f,%.2f,%.2f,%.2f\n", name.c_str(), static_cast<int>(count),
                static_cast<long long>(alone_iterations),
                static_cast<long long>(together_iterations), Median(alone), Median(together),
                Median(together) / static_cast<double>(count), Median(alone) / Median(together));
    std::fflush(stdout);
  }
}

// By rows.
CscMatrix RowsOf(const AmgHierarchy& hierarchy, int level, AmgPartKind kind) {
  return Transpose(CscView(Must(hierarchy.Part(level, kind))));
}

void Product(const Device& device, const std::string& name, int level, const char* what,
             const CscMatrix& a, const CscMatrix& b, RowOrder order, CscMatrix* c) {
  const ProductTimes times = Must(TimeSparseProduct(*device, a, b, order, c));
  const CscMatrix truth = Must(Multiply(a, b, OnAllCores()));
  const bool equal =
      c->col_ptr == truth.col_ptr && c->row_idx == truth.row_idx && c->values == truth.values;
  const int64_t products = ProductsOf(a.pattern(), b.pattern(), 0);
  std::printf("%s,%d %s,%lld,%lld,%.3f,%.3f,%.2f,%s\n", name.c_str(), level, what,
              static_cast<long long>(products), static_cast<long long>(truth.nnz()), times.whole_ms,
              times.values_ms, 1e-6 * static_cast<double>(products) / times.whole_ms,
              equal ? "yes" : "no");
  std::fflush(stdout);
}

void Setup(const Device& device, const std::string& name, const CscMatrix& a,
           const AmgOptions& options) {
  const bool symmetric = Must(IsExactlySymmetric(a, {}));
  const AmgResult built = Must(BuildAmg(a, symmetric, {}, options, OnAllCores()));
  CscMatrix graph = a;
  graph.col_ptr = {0};
  graph.row_idx.clear();
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j) + 1];
         ++p) {
      const int32_t i = a.row_idx[static_cast<size_t>(p)];
      if (i != j) graph.row_idx.push_back(i);
    }
    graph.col_ptr.push_back(static_cast<int64_t>(graph.row_idx.size()));
  }
  const SetTimes set = Must(
      TimeIndependentSet(*device, PatternView{a.n_cols, a.n_cols, graph.col_ptr, graph.row_idx}));
  std::printf("%s,independent set,%d rounds,%lld,%.3f,,,\n", name.c_str(), set.rounds,
              static_cast<long long>(set.roots), set.ms);
  for (int l = 0; l + 1 < static_cast<int>(built.quality.levels.size()); ++l) {
    CscMatrix ap, coarse;
    Product(device, name, l, "AP", RowsOf(*built.hierarchy, l, AmgPartKind::kA),
            RowsOf(*built.hierarchy, l, AmgPartKind::kP), RowOrder::kAsFound, &ap);
    Product(device, name, l, "R(AP)", RowsOf(*built.hierarchy, l, AmgPartKind::kR), ap,
            RowOrder::kAscending, &coarse);
  }
}

// Sets the option that `given` names, "name=number". False: it names none.
bool SetOption(std::string_view given, AmgOptions* options) {
  bool found = false;
  AmgOptions::Fields(*options, [&](std::string_view name, auto& field, const auto&) {
    if (!given.starts_with(name) || !given.substr(name.size()).starts_with("=")) return;
    const std::string number(given.substr(name.size() + 1));
    field = static_cast<std::remove_reference_t<decltype(field)>>(std::atof(number.c_str()));
    found = true;
  });
  return found;
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  AmgOptions options;
  std::string_view only;
  bool setup = false, several = false;
  int rounds = 5;
  for (int k = 1; k < argc; ++k) {
    const std::string_view given = argv[k];
    if (given.starts_with("only=")) {
      only = given.substr(5);
    } else if (given == "setup=1") {
      setup = true;
    } else if (given == "rhs=1") {
      several = true;
    } else if (given.starts_with("rounds=")) {
      rounds = std::max(1, std::atoi(argv[k] + 7));
    } else if (!SetOption(given, &options)) {
      Die("no option: " + std::string(given));
    }
  }
  if (const Status status = CheckAmgOptions(options); !status.ok()) Die(status.message());
  const CudaDevices& found = ListCudaDevices();
  if (!found.available) Die(found.status);
  const Device device = Must(cuda::OpenDevice(found.devices[0], 0));
  std::printf("# %s; a barrier of the grid %.2f us\n", found.devices[0].name.c_str(),
              Must(TimeGridBarrier(*device)));
  std::printf(
      several ? "case,right-hand sides,iterations one after another,iterations together,one after "
                "another ms,together ms,together ms each,gain\n"
      : setup ? "case,part,products,entries,ms,values alone ms,products a ns,host's bits\n"
              : "case,n,nnz,smoother,levels,operator complexity,iterations on the CPU,"
                "iterations,converged,build ms on the CPU,place ms,iterate ms,an iteration "
                "ms,a cycle ms,a product with A ms,device MB,set-up on device ms,place from "
                "there ms,set-up and place and iterate ms,iterations by it,set-up MB,set-up again "
                "ms,MB kept for that,MB bound\n");
  constexpr double kSixth = 0.5235987755982988;
  const auto measure = [&](const char* name, const auto& make, const NearNullInput& near = {}) {
    if (!std::string_view(name).starts_with(only)) return;
    const CscMatrix a = make();
    if (several) return RightHandSides(device, name, a, near, options, rounds);
    setup ? Setup(device, name, a, options) : Solves(device, name, a, near, options, rounds);
  };
  measure("poisson128", [] { return ConvectionDiffusion(128, 0); });
  measure("aniso1640", [] { return Symmetrized(Anisotropic(1640, 1e-3, kSixth)); });
  measure("convdiff100", [] { return Transpose(CscView(ConvectionDiffusion(100, 20))); });
  measure("circuit300k", [] { return Transpose(CscView(Circuit(300000, 12, 700))); });
  measure("elast40", [] { return Symmetrized(Elasticity(40)); });
  measure("elast60", [] { return Symmetrized(Elasticity(60)); });
  if (setup) return 0;
  // By the motions of a body, six coarse unknowns a node.
  for (const int m : {40, 60}) {
    const std::vector<double> nodes = NodesOfElasticity(m);
    measure(m == 40 ? "motions40" : "motions60", [&] { return Symmetrized(Elasticity(m)); },
            {.vectors = {}, .count = 0, .coordinates = nodes, .dimension = 3});
  }
  return 0;
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) { return spaid::kernels::bench::Main(argc, argv); }
