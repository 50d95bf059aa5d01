// The model of time, by what must hold whatever the rates are.
#include "kernels/engine/cost.h"

#include <gtest/gtest.h>

#include "kernels/engine/engine_traits.h"

namespace spaid::kernels {
namespace {

constexpr SolveWork kLarge{.method = Method::kCg, .n = 200'000, .nnz_a = 5.4e6};
constexpr SolveWork kSmall{.method = Method::kCg, .n = 1000, .nnz_a = 5000};

SolveWork With(SolveWork work, int64_t n_rhs, double nnz_m = 0) {
  work.n_rhs = n_rhs;
  work.nnz_m = nnz_m;
  return work;
}

double OnGpu(const SolveWork& work) { return IterationMs(work, Backend::kCuda, 2); }
double OnCpu(const SolveWork& work, int threads = 2) {
  return IterationMs(work, Backend::kCpu, threads);
}

TEST(Cost, AnIterationByHand) {
  // 5000 entries and 8.2 passes over 1000, 0.88 ns each, on two threads.
  EXPECT_NEAR(OnCpu(kSmall), 1e-6 * 0.88 / 2 * (5000 + 8200), 1e-12);
  EXPECT_DOUBLE_EQ(OnCpu(kSmall, 4), OnCpu(kSmall, 64)) << "the others wait for memory";
  SolveWork bicgstab = kSmall;
  bicgstab.method = Method::kBicgstab;
  EXPECT_DOUBLE_EQ(OnCpu(bicgstab), 2 * OnCpu(kSmall));
  bicgstab.method = Method::kAuto;
  EXPECT_DOUBLE_EQ(OnCpu(bicgstab), 2 * OnCpu(kSmall));
  EXPECT_GT(OnCpu(With(kSmall, 1, 5000)), OnCpu(kSmall));
}

TEST(Cost, OfSeveralRightHandSidesIterationsCount) {
  for (const SolveWork& of : {kLarge, kSmall}) {
    for (const double nnz_m : {0.0, 6 * of.n}) {
      EXPECT_DOUBLE_EQ(OnCpu(With(of, 8, nnz_m)), 8 * OnCpu(With(of, 1, nnz_m)));
    }
  }
  // Blocks of four read A once; on the chip one comes after the other.
  EXPECT_LT(OnGpu(With(kLarge, 4)), 3 * OnGpu(With(kLarge, 1)));
  EXPECT_DOUBLE_EQ(OnGpu(With(kLarge, 7)),
                   OnGpu(With(kLarge, 4)) + OnGpu(With(kLarge, 2)) + OnGpu(With(kLarge, 1)));
  EXPECT_DOUBLE_EQ(OnGpu(With(kSmall, 4)), 4 * OnGpu(With(kSmall, 1)));
}

TEST(Cost, AGpuNeedsManyUnknownsToBeAhead) {
  SolveWork tiny = kSmall;
  tiny.n = 100;
  tiny.nnz_a = 500;
  EXPECT_LT(OnGpu(kLarge), 0.1 * OnCpu(kLarge));
  EXPECT_GT(OnGpu(tiny), 10 * OnCpu(tiny));
  const BuildWork few{.rows = 100, .nnz_a = 500, .entries = 500, .gathered = 2500};
  BuildWork many = few;
  for (double* count : {&many.rows, &many.nnz_a, &many.entries, &many.gathered}) *count *= 1e4;
  for (const EngineKind kind :
       {EngineKind::kStaticSpai, EngineKind::kFsai, EngineKind::kAfsai, EngineKind::kDynamicSpai}) {
    const BuildRates& rates = TraitsOf(kind).rates;
    EXPECT_GT(DeviceBuildMs(rates, few), BuildMs(rates, few, 16));
    EXPECT_LT(DeviceBuildMs(rates, many), BuildMs(rates, many, 1));
  }
}

// Multigrid as it took on an H200 and the 16 cores beside it (docs/decisions/multigrid.md): within
// a factor of 2, but for circuits, whose hubs nothing counts; and so the GPU is taken for all.
TEST(Cost, MultigridIsPredictedAsItTook) {
  struct Case {
    const char* name;
    double n, nnz, on_cores_ms, there_ms;
    Method method;
    double nnz_m, iteration_ms, of_four_ms;
    double within;
    double grown = 0;  // rows of G, where FSAI smooths
  };
  const Case cases[] = {
      {"poisson128", 2097152, 14581760, 738, 16.9, Method::kCg, 42e6, 0.405, 0.98, 2},
      {"aniso1640", 2689600, 24186724, 830, 14.6, Method::kCg, 49e6, 0.451, 1.19, 2},
      {"convdiff100", 1e6, 6.94e6, 463, 12.4, Method::kBicgstab, 19e6, 0.531, 0.92, 2},
      {"circuit300k", 3e5, 1.35e6, 262, 25.5, Method::kBicgstab, 4.2e6, 0.621, 0.76, 5},
      {"elast60", 637200, 49902300, 1665, 25.8, Method::kCg, 81.3e6, 0.486, 1.01, 2, 637200},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const BuildRates& rates = TraitsOf(EngineKind::kAmg).rates;
    const BuildWork work{.rows = c.n, .nnz_a = c.nnz, .entries = c.nnz, .gathered = c.grown};
    const double cpu = BuildMs(rates, work, 16), gpu = DeviceBuildMs(rates, work),
                 took = MoveMs(c.nnz) + c.there_ms;
    EXPECT_LE(cpu, c.within * c.on_cores_ms);
    EXPECT_GE(cpu, c.on_cores_ms / c.within);
    EXPECT_LE(gpu, c.within * took);
    EXPECT_GE(gpu, took / c.within);
    EXPECT_LT(4 * gpu, cpu);
    const SolveWork iteration{
        .method = c.method, .n = c.n, .nnz_a = c.nnz, .nnz_m = c.nnz_m, .parts = true};
    EXPECT_LE(OnGpu(iteration), c.within * c.iteration_ms);
    EXPECT_GE(OnGpu(iteration), c.iteration_ms / c.within);
    EXPECT_LT(OnGpu(iteration), OnCpu(iteration, 16));
    SolveWork of_four = iteration;
    of_four.n_rhs = 4;
    EXPECT_LE(OnGpu(of_four), c.within * c.of_four_ms);
    EXPECT_GE(OnGpu(of_four), c.of_four_ms / c.within);
    EXPECT_LT(OnGpu(of_four), 4 * OnGpu(iteration));
    // GMRES has one right-hand side after the other.
    of_four.method = Method::kGmres;
    SolveWork of_one = of_four;
    of_one.n_rhs = 1;
    EXPECT_DOUBLE_EQ(OnGpu(of_four), 4 * OnGpu(of_one));
  }
  // A small system is the CPU's.
  const BuildWork small{.rows = 5000, .nnz_a = 35000, .entries = 35000};
  EXPECT_LT(BuildMs(TraitsOf(EngineKind::kAmg).rates, small, 16),
            DeviceBuildMs(TraitsOf(EngineKind::kAmg).rates, small));
}

TEST(Cost, MoreWorkTakesLongerAndMoreThreadsDoNot) {
  const BuildWork base{.rows = 1e5, .nnz_a = 7e5, .entries = 7e5, .gathered = 5e6, .flops = 1e7};
  for (const EngineKind kind : EngineKinds()) {
    if (kind == EngineKind::kAuto || kind == EngineKind::kNone) continue;  // nothing to build
    const BuildRates& rates = TraitsOf(kind).rates;
    for (double BuildWork::*const count :
         {&BuildWork::rows, &BuildWork::nnz_a, &BuildWork::entries, &BuildWork::gathered,
          &BuildWork::flops, &BuildWork::longest}) {
      BuildWork more = base;
      more.*count = 2 * more.*count + 100;
      EXPECT_GE(BuildMs(rates, more, 4), BuildMs(rates, base, 4));
      EXPECT_GE(DeviceBuildMs(rates, more), DeviceBuildMs(rates, base));
    }
    double last = BuildMs(rates, base, 1);
    for (const int threads : {2, 8, 64}) {
      const double ms = BuildMs(rates, base, threads);
      EXPECT_LT(ms, last);
      last = ms;
    }
  }
  // One local problem is one thread's, however many there are.
  BuildWork arrow = base;
  arrow.longest = 2000;
  EXPECT_GT(BuildMs(TraitsOf(EngineKind::kStaticSpai).rates, arrow, 64), 0.9e-7 * 8e9 / 3);
}

TEST(Cost, GuessesGrowWithSize) {
  EXPECT_DOUBLE_EQ(GuessedIterations(0), GuessedIterations(1));
  EXPECT_GT(GuessedIterations(1e6), 2 * GuessedIterations(1e4));
  EXPECT_LT(GuessedIterations(1e6), 1000);
}

}  // namespace
}  // namespace spaid::kernels
