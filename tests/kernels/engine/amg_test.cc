// Multigrid as an engine: what it refuses, says and keeps, and when AUTO comes to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kernels/amg/suitability.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/ladder.h"
#include "kernels/gallery/gallery.h"
#include "tests/kernels/engine/helpers.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

CscMatrix Poisson(int64_t m) { return oracle::From(gallery::ConvectionDiffusion3d(m, 0)); }

PreconditionerSpec Amg() { return Spec(EngineKind::kAmg); }

int64_t Iterations(const CscMatrix& a, const Preconditioner& m, Method method) {
  Vector b(static_cast<size_t>(a.n_cols));
  for (size_t i = 0; i < b.size(); ++i) b[i] = std::sin(1.0 + 3.0 * static_cast<double>(i));
  const auto solved = MakeCpuEngine()->Solve(a, &m, b, {}, {.method = method, .rtol = 1e-8}, {});
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  if (!solved.ok()) return -1;
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(TrueRelative(a, solved->x, b), 1.01e-8);
  return solved->rhs[0].iterations;
}

TEST(AmgEngine, SolvesInIterationsThatDoNotGrow) {
  const auto engine = MakeCpuEngine();
  for (const int64_t m : {12, 24}) {
    const CscMatrix a = Poisson(m);
    const BuildResult built = MustBuild(*engine, Amg(), a);
    ASSERT_TRUE(built.quality.amg.has_value());
    EXPECT_GE(built.quality.amg->levels.size(), 2u);
    EXPECT_THAT(built.quality.warnings, IsEmpty());
    EXPECT_GT(built.quality.density, 1) << "all parts over A";
    EXPECT_LE(Iterations(a, *built.preconditioner, Method::kCg), 15) << m;
    EXPECT_LE(Iterations(a, *built.preconditioner, Method::kBicgstab), 12) << m;
  }
}

TEST(AmgEngine, UnequalSweepsAreNotForCg) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Poisson(10);
  PreconditionerSpec spec = Amg();
  EXPECT_TRUE(ForCg(spec));
  spec.amg.post_sweeps = 2;
  EXPECT_FALSE(ForCg(spec));
  const BuildResult built = MustBuild(*engine, spec, a);
  EXPECT_FALSE(built.preconditioner->for_cg());
  EXPECT_EQ(*ResolveMethod(Method::kAuto, ForCg(spec), Diagnose(a)), Method::kBicgstab);
  const auto refused =
      engine->Solve(a, built.preconditioner.get(), RowSums(a), {}, {.method = Method::kCg}, {});
  EXPECT_EQ(refused.status().reason(), "PRECONDITIONER_NOT_SPD");
  EXPECT_LE(Iterations(a, *built.preconditioner, Method::kBicgstab), 10);
}

TEST(AmgEngine, SolvesAreForGpusButNotForRanks) {
  for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
    EXPECT_THAT(HostAlone({.method = method}, MForm::kParts), IsEmpty());
    EXPECT_THAT(NotOverRanks({.method = method}, MForm::kParts), HasSubstr("multigrid"));
  }
  EXPECT_THAT(HostAlone({.method = Method::kIdr}, MForm::kParts), HasSubstr("host alone"));
}

TEST(AmgEngine, RefusesWhatItCannotServe) {
  const auto engine = MakeCpuEngine();
  const auto refusal = [&](const PreconditionerSpec& spec, const CscMatrix& a) {
    const auto plan = engine->MakePlan(spec, a, nullptr, {});
    return plan.ok() ? (*plan)->Build(spec, a, {}).status() : plan.status();
  };
  CscMatrix zero = oracle::Laplacian2d(5, 4);
  for (int64_t p = zero.col_ptr[3]; p < zero.col_ptr[4]; ++p) {
    if (zero.row_idx[p] == 3) zero.values[p] = 0;
  }
  EXPECT_EQ(refusal(Amg(), zero).reason(), "ZERO_DIAGONAL");
  EXPECT_EQ(refusal(Amg(), zero).index(), 3);
  EXPECT_EQ(refusal(Amg(), Rows({{2, 1}, {1, -2}})).reason(), "NOT_POSITIVE_DEFINITE");
  PreconditionerSpec thirds = Amg();
  thirds.amg.block_size = 3;
  const Status uneven = refusal(thirds, oracle::Laplacian2d(5, 4));
  EXPECT_EQ(uneven.reason(), "BAD_AMG_OPTION");
  EXPECT_EQ(uneven.field(), "node_size");
  EXPECT_THAT(uneven.message(), HasSubstr("20 rows"));
  PreconditionerSpec small = Amg();
  small.amg.max_coarse_size = 10;
  CscMatrix diagonal{.n_rows = 40, .n_cols = 40, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int j = 0; j < 40; ++j) {
    diagonal.row_idx.push_back(j);
    diagonal.values.push_back(2);
    diagonal.col_ptr.push_back(j + 1);
  }
  EXPECT_EQ(refusal(small, diagonal).reason(), "NO_COARSE_LEVEL");
  PreconditionerSpec vectors = Amg();
  auto given = std::make_shared<NearNullArrays>();
  given->vectors.assign(40, 1.0);  // twice the same, of 20 rows
  given->count = 2;
  vectors.near_null = given;
  const Status dependent = refusal(vectors, oracle::Laplacian2d(5, 4));
  EXPECT_EQ(dependent.reason(), "RANK_DEFICIENT");
  EXPECT_EQ(dependent.index(), 1);
}

TEST(AmgEngine, TakesMotionsFromCoordinates) {
  const auto engine = MakeCpuEngine();
  const int64_t m = 12;
  const CscMatrix a = oracle::From(gallery::Elasticity3d(m, gallery::Rounding::kBenchmarks));
  EXPECT_EQ(DetectBlockSize(a), 3);
  PreconditionerSpec spec = Amg();
  const BuildResult plain = MustBuild(*engine, spec, a);
  EXPECT_EQ(plain.quality.amg->block_size, 3) << "found by the pattern";
  // The nodes of the grid, without the clamped face.
  auto given = std::make_shared<NearNullArrays>();
  given->dimension = 3;
  for (int axis = 0; axis < 3; ++axis) {
    for (int64_t z = 0; z < m; ++z) {
      for (int64_t y = 0; y < m; ++y) {
        for (int64_t x = 1; x < m; ++x) {
          given->coordinates.push_back(static_cast<double>(axis == 0 ? x : axis == 1 ? y : z));
        }
      }
    }
  }
  ASSERT_EQ(static_cast<int64_t>(given->coordinates.size()), a.n_cols);
  spec.near_null = given;
  const BuildResult motions = MustBuild(*engine, spec, a);
  const int64_t with = Iterations(a, *motions.preconditioner, Method::kCg);
  const int64_t without = Iterations(a, *plain.preconditioner, Method::kCg);
  EXPECT_LT(with, without);
  EXPECT_LE(with, 20);
}

TEST(AmgEngine, WarnsInWords) {
  const auto engine = MakeCpuEngine();
  PreconditionerSpec spec = Amg();
  spec.amg.max_coarse_size = 20;
  // A shifted one: constants are no near-null vectors.
  CscMatrix shifted = oracle::Laplacian2d(150, 150);
  for (int64_t j = 0; j < shifted.n_cols; ++j) {
    for (int64_t p = shifted.col_ptr[j]; p < shifted.col_ptr[j + 1]; ++p) {
      if (shifted.row_idx[p] == j) shifted.values[p] += 1;
    }
  }
  EXPECT_THAT(MustBuild(*engine, spec, shifted).quality.warnings,
              Contains(HasSubstr("constants are not nearly in A's null space")));
  PreconditionerSpec few = spec;
  few.amg.max_levels = 2;
  EXPECT_THAT(MustBuild(*engine, few, oracle::Laplacian2d(40, 40)).quality.warnings,
              Contains(HasSubstr("is smoothed and not inverted")));
  PreconditionerSpec weak = spec;
  weak.amg.smoother = SmootherKind::kL1Jacobi;
  const BuildResult stiff = MustBuild(
      *engine, weak, oracle::From(gallery::Elasticity3d(6, gallery::Rounding::kBenchmarks)));
  if (stiff.quality.amg->beta > 8) {
    EXPECT_THAT(stiff.quality.warnings, Contains(HasSubstr("smooths that badly")));
  } else {
    EXPECT_THAT(stiff.quality.warnings, Not(Contains(HasSubstr("smooths that badly"))));
  }
}

TEST(AmgEngine, NewValuesThatAreSymmetricNoMoreAreBuiltAnew) {
  const auto engine = MakeCpuEngine();
  PreconditionerSpec spec = Amg();
  spec.amg.max_coarse_size = 20;
  const CscMatrix a = oracle::Laplacian2d(15, 15);
  CscMatrix b = a;
  b.values[1] *= 1.5;
  const BuildResult first = MustBuild(*engine, spec, a);
  ASSERT_NE(first.grown, nullptr);
  const auto again = first.grown->Build(spec, b, {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_FALSE(again->quality.pattern_reused);
  ASSERT_NE(again->grown, nullptr) << "for values like these";
  EXPECT_FALSE(again->preconditioner->for_cg());
}

TEST(Suitability, GoesByConstantsRowsAndSize) {
  EXPECT_NEAR(NearNullRayleigh(oracle::Laplacian2d(2, 1)), 0.75, 1e-15) << "(4 + 4 - 2) / 8";
  CscMatrix zero = oracle::Laplacian2d(3, 3);
  zero.values[0] = 0;
  EXPECT_TRUE(std::isinf(NearNullRayleigh(zero)));
  // By other units of each unknown the second candidate is the one.
  CscMatrix scaled = oracle::Laplacian2d(60, 60);
  for (int64_t j = 0; j < scaled.n_cols; ++j) {
    for (int64_t p = scaled.col_ptr[j]; p < scaled.col_ptr[j + 1]; ++p) {
      scaled.values[p] *= std::pow(10.0, static_cast<double>(scaled.row_idx[p] % 3 + j % 3));
    }
  }
  EXPECT_NEAR(NearNullRayleigh(scaled), NearNullRayleigh(oracle::Laplacian2d(60, 60)), 1e-12);
  const CscMatrix large = Poisson(28);
  EXPECT_EQ(NearNullRayleigh(large, 1), NearNullRayleigh(large, 3));
  EXPECT_TRUE(LookForAmg(large, 7).suits);
  EXPECT_EQ(LookForAmg(large, 7, 2).beta, 2) << "6 and six times 1 over 6";
  EXPECT_FALSE(LookForAmg(large, 1000).suits) << "a hub";
  EXPECT_FALSE(LookForAmg(Poisson(20), 7).suits) << "8000 rows";
}

// Notes the rungs.
struct Sink : LadderSink {
  Status Enter(const std::string& what, int64_t host_bytes, double) override {
    EXPECT_GT(host_bytes, 0) << what;
    entered.push_back(what);
    return {};
  }
  void OnRung(const Rung& rung) override { rungs.push_back(rung); }
  std::vector<std::string> entered;
  std::vector<Rung> rungs;
};

TEST(AutoLadder, ComesToMultigridBehindJacobi) {
  const auto engine = MakeCpuEngine();
  for (const auto& [convection, sign] : {std::pair{0.0, 1}, {20.0, 1}, {0.0, -1}}) {
    CscMatrix a = oracle::From(gallery::ConvectionDiffusion3d(28, convection));
    for (double& value : a.values) value *= sign;
    const Diagnosis diagnosis = Diagnose(a);
    Vector b(static_cast<size_t>(a.n_cols));
    for (size_t i = 0; i < b.size(); ++i) b[i] = std::sin(1.0 + 3.0 * static_cast<double>(i));
    const SolveOptions options{.method = Method::kAuto, .rtol = 1e-10};
    LadderCase c{.a = a, .diagnosis = diagnosis, .b = b, .options = options};
    Sink sink;
    const auto climbed = ClimbFrom(*engine, c, {}, RungKind::kAmg, sink, {});
    ASSERT_TRUE(climbed.ok()) << climbed.status().message();
    EXPECT_EQ(climbed->best, RungKind::kAmg);
    EXPECT_LE(climbed->solved.rhs[0].iterations, 20);
    EXPECT_EQ(climbed->rungs.back().what,
              convection > 0 || sign < 0 ? "multigrid, BiCGSTAB" : "multigrid, CG");
    EXPECT_LE(TrueRelative(a, climbed->solved.x, b), 1.01e-10);
    EXPECT_TRUE(TermsOf(RungKind::kAmg, c).has_value());
    c.ladder.to_build = true;
    EXPECT_FALSE(TermsOf(RungKind::kAmg, c).has_value()) << "it is no matrix";
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
