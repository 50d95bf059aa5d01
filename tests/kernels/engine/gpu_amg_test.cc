// Multigrid by the engine on a CUDA device: built there or by its host, M placed there for solves.
#include <cmath>
#include <cstdlib>

#include "kernels/bench/problems.h"
#include "kernels/engine/first_rung.h"
#include "kernels/gallery/gallery.h"
#include "tests/kernels/engine/gpu_helpers.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::engine_test {
namespace {

using GpuAmgEngine = GpuEngine;

TEST_F(GpuAmgEngine, SolvesThereWhatItsHostOrItBuilt) {
  struct Case {
    const char* name;
    CscMatrix a;
    bool symmetric;
    int block = 0;
  };
  const Case cases[] = {
      {"P7_24", oracle::From(gallery::ConvectionDiffusion3d(24, 0)), true},
      {"convdiff_24", oracle::From(gallery::ConvectionDiffusion3d(24, 20)), false},
      {"elasticity_9", oracle::From(gallery::Elasticity3d(9, gallery::Rounding::kBenchmarks)), true,
       3},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    PreconditionerSpec spec = Spec(EngineKind::kAmg);
    spec.amg.block_size = c.block;
    const BuildResult built = MustBuild(*engine_, spec, c.a, {.device = kGpu});
    ASSERT_NE(built.preconditioner, nullptr);
    const Preconditioner& m = *built.preconditioner;
    const auto a_there = engine_->Place(c.a, {.device = kGpu});
    ASSERT_TRUE(a_there.ok()) << a_there.status().message();
    const Vector b = SmoothRhs(c.a);
    for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
      if (!c.symmetric && method == Method::kCg) continue;
      SCOPED_TRACE(static_cast<int>(method));
      EXPECT_TRUE(HostAlone({.method = method}, m.form()).empty());
      const SolveOptions options{.method = method, .rtol = 1e-9};
      const auto cpu = engine_->Solve(c.a, &m, b, {}, options, {.device = kCpu});
      const SolveResult gpu = MustSolveThere(*engine_, c.a, **a_there, m, b, options);
      ASSERT_TRUE(cpu.ok() && !gpu.rhs.empty());
      EXPECT_EQ(gpu.rhs[0].outcome, Outcome::kConverged) << gpu.rhs[0].detail;
      EXPECT_LE(TrueRelative(c.a, gpu.x, b), 1.0001e-9);
      EXPECT_LE(std::abs(gpu.rhs[0].iterations - cpu->rhs[0].iterations), 1);
    }
    const auto m_there = engine_->Place(m, Storage::kFp64, {.device = kGpu}, &**a_there);
    ASSERT_TRUE(m_there.ok()) << m_there.status().message();
    EXPECT_LE((*a_there)->device_bytes() + (*m_there)->device_bytes(),
              engine_->SolveDeviceBytes(c.a.n_cols, c.a.nnz(), m.nnz(), 1, {.method = Method::kCg},
                                        MForm::kParts));
  }
}

// The same M, and its estimate bounds what it takes.
TEST_F(GpuAmgEngine, SetsUpThereWhatIsScalar) {
  const CscMatrix a = oracle::From(gallery::ConvectionDiffusion3d(24, 0));
  const PreconditionerSpec spec = Spec(EngineKind::kAmg);
  const BuildResult cpu = MustBuild(*engine_, spec, a, {.device = kCpu});
  const BuildResult gpu = MustBuild(*engine_, spec, a, {.device = kGpu});
  ASSERT_TRUE(cpu.preconditioner != nullptr && gpu.preconditioner != nullptr);
  const Preconditioner& m = *gpu.preconditioner;
  EXPECT_EQ(cpu.preconditioner->device_bytes(), 0);
  EXPECT_GT(m.device_bytes(), 0);
  ASSERT_TRUE(cpu.grown != nullptr && gpu.grown != nullptr);
  EXPECT_TRUE(gpu.grown->serves_new_values());
  EXPECT_GT(gpu.grown->device_bytes(), 0);
  EXPECT_EQ(cpu.grown->device_bytes(), 0);
  const auto estimate = engine_->Estimate(spec, a, nullptr, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_GE(estimate->device_bytes, gpu.timings.device_bytes);
  EXPECT_GT(gpu.timings.device_bytes, 0);
  for (const AmgPart& part : m.hierarchy()->parts()) {
    const auto there = m.hierarchy()->Part(part.level, part.kind);
    const auto here = cpu.preconditioner->hierarchy()->Part(part.level, part.kind);
    ASSERT_TRUE(there.ok() && here.ok());
    EXPECT_TRUE(there->values == here->values) << Name(part.kind) << " " << part.level;
  }
  m.DropDeviceCopy();
  EXPECT_EQ(m.device_bytes(), 0);
  const auto solved = engine_->Solve(a, &m, SmoothRhs(a), {}, {.method = Method::kCg}, {});
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  PreconditionerSpec classical = spec;
  classical.amg.coarsening = Coarsening::kClassical;
  EXPECT_EQ(engine_->Estimate(classical, a, nullptr, {})->device_bytes, 0);
  EXPECT_EQ(MustBuild(*engine_, classical, a, {.device = kGpu}).preconditioner->device_bytes(), 0);
}

// Nodes of three unknowns, with aFSAI, which AUTO comes to.
TEST_F(GpuAmgEngine, SetsUpElasticityThere) {
  const CscMatrix a = oracle::From(gallery::Elasticity3d(16, gallery::Rounding::kBenchmarks));
  const PreconditionerSpec spec = Spec(EngineKind::kAmg);
  const BuildResult gpu = MustBuild(*engine_, spec, a, {.device = kGpu});
  ASSERT_NE(gpu.preconditioner, nullptr);
  EXPECT_EQ(gpu.quality.amg->smoother, SmootherKind::kAfsai);
  EXPECT_EQ(gpu.quality.amg->block_size, 3);
  EXPECT_GT(gpu.preconditioner->device_bytes(), 0);
  const auto estimate = engine_->Estimate(spec, a, nullptr, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_GE(estimate->device_bytes, gpu.timings.device_bytes);
  const auto a_there = engine_->Place(a, {.device = kGpu});
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  const Vector b = SmoothRhs(a);
  const SolveResult there = MustSolveThere(*engine_, a, **a_there, *gpu.preconditioner, b,
                                           {.method = Method::kCg, .rtol = 1e-9});
  EXPECT_EQ(there.rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(TrueRelative(a, there.x, b), 1.0001e-9);
}

// Other values on the aggregates that are there; all anew where they serve no more.
TEST_F(GpuAmgEngine, RebuildsThereWhatItHasSetUp) {
  const CscMatrix a = oracle::From(gallery::ConvectionDiffusion3d(24, 0));
  CscMatrix other = a;
  for (size_t p = 0; p < other.values.size(); ++p) other.values[p] *= 2;
  const PreconditionerSpec spec = Spec(EngineKind::kAmg);
  const BuildResult cpu = MustBuild(*engine_, spec, a, {.device = kCpu});
  const BuildResult gpu = MustBuild(*engine_, spec, a, {.device = kGpu});
  ASSERT_TRUE(cpu.grown != nullptr && gpu.grown != nullptr);
  const auto expect_equal = [&](const CscMatrix& values) {
    const auto there = gpu.grown->Build(spec, values, {.device = kGpu});
    const auto here = cpu.grown->Build(spec, values, {.device = kCpu});
    ASSERT_TRUE(there.ok() && here.ok()) << there.status().message() << here.status().message();
    EXPECT_TRUE(there->quality.pattern_reused);
    EXPECT_EQ(there->grown, nullptr);
    EXPECT_GT(there->preconditioner->device_bytes(), 0);
    for (const AmgPart& part : here->preconditioner->hierarchy()->parts()) {
      const auto x = there->preconditioner->hierarchy()->Part(part.level, part.kind);
      const auto y = here->preconditioner->hierarchy()->Part(part.level, part.kind);
      ASSERT_TRUE(x.ok() && y.ok());
      EXPECT_TRUE(x->values == y->values) << Name(part.kind) << " " << part.level;
    }
  };
  expect_equal(other);
  expect_equal(a);
  // Symmetric no more.
  other.values[1] *= 1.5;
  const auto anew = gpu.grown->Build(spec, other, {.device = kGpu});
  ASSERT_TRUE(anew.ok()) << anew.status().message();
  EXPECT_FALSE(anew->quality.pattern_reused);
  ASSERT_NE(anew->grown, nullptr);
  EXPECT_GT(anew->grown->device_bytes(), 0);
  // As the host says it.
  other = a;
  for (int64_t p = other.col_ptr[77]; p < other.col_ptr[78]; ++p) {
    if (other.row_idx[static_cast<size_t>(p)] == 77) other.values[static_cast<size_t>(p)] = 0;
  }
  const auto refused = gpu.grown->Build(spec, other, {.device = kGpu});
  const auto truth = cpu.grown->Build(spec, other, {.device = kCpu});
  ASSERT_FALSE(refused.ok() || truth.ok());
  EXPECT_EQ(refused.status().reason(), "ZERO_DIAGONAL");
  EXPECT_EQ(refused.status().message(), truth.status().message());
}

// A device that its least bound is too large for: its host sets up, for other values, too.
TEST_F(GpuAmgEngine, WithoutRoomTheHostSetsUp) {
  const CscMatrix a = oracle::From(gallery::ConvectionDiffusion3d(24, 0));
  const PreconditionerSpec spec = Spec(EngineKind::kAmg);
  const int64_t least = engine_->Estimate(spec, a, nullptr, {})->device_bytes_min;
  auto device = CudaDevice::Open(ListCudaDevices().devices[0], least - 1);
  ASSERT_TRUE(device.ok()) << device.status().message();
  const auto narrow = MakeEngine(true, {*device});
  const BuildResult built = MustBuild(*narrow, spec, a, {.device = kGpu});
  ASSERT_NE(built.preconditioner, nullptr);
  EXPECT_EQ(built.preconditioner->device_bytes(), 0);
  ASSERT_NE(built.grown, nullptr);
  EXPECT_EQ(built.grown->device_bytes(), 0);
  EXPECT_TRUE(built.grown->Build(spec, a, {.device = kGpu})->quality.pattern_reused);
}

TEST_F(GpuAmgEngine, MinresAndIdrAreTheHosts) {
  EXPECT_FALSE(HostAlone({.method = Method::kMinres}, MForm::kParts).empty());
  EXPECT_FALSE(HostAlone({.method = Method::kIdr}, MForm::kParts).empty());
}

TEST_F(GpuAmgEngine, ASolveStopsBetweenIterations) {
  const CscMatrix a = oracle::From(gallery::ConvectionDiffusion3d(48, 0));
  const BuildResult built = MustBuild(*engine_, Spec(EngineKind::kAmg), a, {.device = kGpu});
  const auto a_there = engine_->Place(a, {.device = kGpu});
  ASSERT_TRUE(a_there.ok());
  struct StopAtFirst : ProgressSink {
    StopSource source;
    void OnProgress(Stage, int64_t, int64_t) override {}
    void OnResidual(const ResidualPoint&) override { source.Request(StopReason::kCancelled); }
  } stop;
  Context context{.device = kGpu};
  context.stop = stop.source.token();
  context.progress = &stop;
  const SolveResult solved =
      MustSolveThere(*engine_, a, **a_there, *built.preconditioner, SmoothRhs(a),
                     {.method = Method::kCg, .rtol = 1e-300, .max_iterations = 100000}, context);
  ASSERT_FALSE(solved.rhs.empty());
  EXPECT_EQ(solved.rhs[0].outcome, Outcome::kCancelled);
  EXPECT_LE(solved.rhs[0].iterations, 60);
}

struct NoSink final : LadderSink {
  Status Enter(const std::string&, int64_t, double) override { return {}; }
  void OnRung(const Rung&) override {}
};

// Rows that couple strongly in one direction: Jacobi is foretold to take over a thousand
// iterations.
TEST_F(GpuAmgEngine, AutoBeginsWithItWhereJacobiTakesLong) {
  const CscMatrix a = oracle::From(gallery::RotatedAnisotropy2d(1000, 1e-3, 0.39));
  const Diagnosis diagnosis = Diagnose(a);
  const Vector b = SmoothRhs(a);
  const SolveOptions options{.method = Method::kAuto, .rtol = 1e-7};
  const auto a_there = engine_->Place(a, {.device = kGpu});
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  LadderCase c{.a = a,
               .diagnosis = diagnosis,
               .b = b,
               .options = options,
               .backend = Backend::kCuda,
               .threads = 4};
  c.solve_there = [&](const std::shared_ptr<const Preconditioner>& m, std::span<const double> right,
                      std::span<const double> x0, const SolveOptions& terms,
                      const Context& context) {
    const PlaceM place_m = [&](Storage storage) {
      return engine_->Place(*m, storage, context, &**a_there);
    };
    return engine_->SolveOnDevice(a, **a_there, m.get(), place_m, right, x0, terms, context);
  };
  const Context context{.threads = 4, .device = kGpu};
  ASSERT_EQ(FirstRung(*engine_, c, context), RungKind::kAmg);
  NoSink sink;
  const auto climbed = ClimbFrom(*engine_, c, {}, RungKind::kAmg, sink, context);
  ASSERT_TRUE(climbed.ok()) << climbed.status().message();
  ASSERT_EQ(climbed->rungs.size(), 1u);
  EXPECT_EQ(climbed->rungs[0].what, "multigrid, CG");
  EXPECT_LE(climbed->solved.rhs[0].iterations, 80);
  EXPECT_LE(TrueRelative(a, climbed->solved.x, b), 1.0001e-7);
  // A regular grid of few unknowns ends by Jacobi before multigrid is set up.
  const CscMatrix small = oracle::From(gallery::Laplace27(32));
  const Diagnosis of_small = Diagnose(small);
  const LadderCase other{.a = small,
                         .diagnosis = of_small,
                         .b = std::span(b).first(static_cast<size_t>(small.n_cols)),
                         .options = options,
                         .backend = Backend::kCuda,
                         .threads = 4};
  EXPECT_EQ(FirstRung(*engine_, other, context), RungKind::kBottom);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
