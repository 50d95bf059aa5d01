// M of A by way of a scaled A: by hand, against the product made entry by entry, and by what
// scaling must not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/scaled_solve.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/scaling.h"
#include "tests/kernels/base/recording_sink.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

PreconditionerSpec Scaled(EngineKind kind, ScalingMode mode) {
  PreconditionerSpec spec = Spec(kind);
  spec.scaling = mode;
  return spec;
}

// D_r A P D_c with powers of two up to 2^±most and, where `permute`, a permutation, all random;
// D A D where `symmetric`.
CscMatrix Spoilt(const CscMatrix& a, int most, bool permute, bool symmetric, uint64_t seed) {
  oracle::Random random(seed);
  const int64_t n = a.n_cols;
  std::vector<int> row(Z(n)), column(Z(n));
  std::vector<int64_t> order(Z(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < n; ++i) {
    row[Z(i)] = static_cast<int>(random.Below(2 * most + 1)) - most;
    column[Z(i)] = symmetric ? row[Z(i)] : static_cast<int>(random.Below(2 * most + 1)) - most;
    if (permute) std::swap(order[Z(i)], order[Z(random.Below(i + 1))]);
  }
  CscMatrix out;
  out.n_rows = out.n_cols = n;
  out.col_ptr.push_back(0);
  for (int64_t k = 0; k < n; ++k) {
    const int64_t j = order[Z(k)];
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
      out.row_idx.push_back(a.row_idx[Z(p)]);
      out.values.push_back(std::ldexp(a.values[Z(p)], row[Z(a.row_idx[Z(p)])] + column[Z(k)]));
    }
    out.col_ptr.push_back(static_cast<int64_t>(out.row_idx.size()));
  }
  return out;
}

Scaling Choose(const CscMatrix& a, ScalingMode mode) {
  auto s = ChooseScaling(a, Diagnose(a), mode, {});
  EXPECT_TRUE(s.ok());
  return *std::move(s);
}

TEST(ScaledBuild, OfAPermutedDiagonalIsTheInverse) {
  const auto engine = MakeCpuEngine();
  for (const CscMatrix& a :
       {Rows({{0, 0x1p20}, {-0x1p-30, 0}}), Rows({{0, 0x1p-40, 0}, {0, 0, 0x1p35}, {4, 0, 0}})}) {
    const BuildResult built =
        MustBuild(*engine, Scaled(EngineKind::kStaticSpai, ScalingMode::kMatching), a);
    const CscMatrix& m = built.preconditioner->matrix();
    const int64_t n = a.n_cols;
    ASSERT_EQ(m.nnz(), n);
    const oracle::Dense product =
        oracle::Multiply(oracle::ToDense(CscView(a)), oracle::ToDense(CscView(m)));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) EXPECT_EQ(product(i, j), i == j ? 1 : 0);
    }
    EXPECT_EQ(built.quality.residual_frobenius, 0);
    EXPECT_EQ(built.quality.residual_quantiles, std::vector<double>(8, 0));
    EXPECT_EQ(built.quality.density, 1);
    EXPECT_EQ(built.quality.scaling, ScalingMode::kMatching);
    EXPECT_FALSE(built.quality.scaling_reused);
    EXPECT_THAT(built.quality.warnings, IsEmpty());
  }
}

TEST(ScaledBuild, FiguresAreOfTheCallersMatrix) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Rows({{3, 0x1p30, 0}, {1, 0x1p31, 2}, {0x1p-20, 0, 0x1p-20}});
  for (const ScalingMode mode : {ScalingMode::kEquilibrate, ScalingMode::kMatching}) {
    const BuildResult built = MustBuild(*engine, Scaled(EngineKind::kStaticSpai, mode), a);
    const oracle::Dense product = oracle::Multiply(
        oracle::ToDense(CscView(a)), oracle::ToDense(CscView(built.preconditioner->matrix())));
    double sum = 0, worst = -1;
    int64_t worst_column = -1;
    for (int64_t j = 0; j < 3; ++j) {
      double of_column = 0;
      for (int64_t i = 0; i < 3; ++i) of_column += std::pow(product(i, j) - (i == j ? 1 : 0), 2);
      sum += of_column;
      if (of_column > worst) {
        worst = of_column;
        worst_column = j;
      }
    }
    EXPECT_NEAR(built.quality.residual_frobenius, std::sqrt(sum), 1e-12 * std::sqrt(sum));
    EXPECT_EQ(built.quality.worst_column, worst_column);
    ASSERT_EQ(built.quality.residual_quantiles.size(), 8u);
    EXPECT_NEAR(built.quality.residual_quantiles[7], std::sqrt(worst), 1e-12 * std::sqrt(worst));
  }
}

// Q D_c M' D_r entry by entry, or G' D, of the engine's own M' of S.
TEST(ScaledBuild, IsTheEnginesOwnOfTheScaledMatrix) {
  const auto engine = MakeCpuEngine();
  for (const EngineKind kind : EngineKinds()) {
    const EngineTraits& traits = TraitsOf(kind);
    if (kind == EngineKind::kAuto || kind == EngineKind::kNone || traits.by_parts ||
        traits.ranks_alone)
      continue;
    for (const ScalingMode mode :
         {ScalingMode::kEquilibrate, ScalingMode::kMatching, ScalingMode::kAuto}) {
      if (mode == ScalingMode::kMatching && (traits.factored || traits.may_be_diagonal)) continue;
      SCOPED_TRACE(std::string(traits.name) + ", mode " + std::to_string(static_cast<int>(mode)));
      const CscMatrix a = Spoilt(oracle::RandomSpd(80, 5, 3), 20, mode == ScalingMode::kMatching,
                                 mode != ScalingMode::kMatching, 7);
      const Scaling s = Choose(a, mode);
      ASSERT_FALSE(s.identity());
      const auto scaled = ScaledMatrix(a, s, {});
      ASSERT_TRUE(scaled.ok());
      const oracle::Dense inner = oracle::ToDense(
          CscView(MustBuild(*engine, Spec(kind), *scaled).preconditioner->matrix()));
      const BuildResult built = MustBuild(*engine, Scaled(kind, mode), a);
      const oracle::Dense m = oracle::ToDense(CscView(built.preconditioner->matrix()));
      for (int64_t j = 0; j < 80; ++j) {
        for (int64_t k = 0; k < 80; ++k) {
          const int64_t i = s.column_of_row.empty() ? k : s.column_of_row[Z(k)];
          const double expected = traits.factored ? inner(k, j) * s.column[Z(j)]
                                                  : s.column[Z(k)] * inner(k, j) * s.row[Z(j)];
          ASSERT_EQ(m(i, j), expected) << i << ' ' << j;
        }
      }
      EXPECT_EQ(built.quality.scaling, s.kind);
      EXPECT_EQ(built.preconditioner->form(),
                traits.factored ? MForm::kMatrix : MForm::kScaledRows);
    }
  }
}

TEST(ScaledBuild, AWellScaledMatrixKeepsItsBits) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(12, 9, 1.0);
  const PreconditionerSpec spec = Scaled(EngineKind::kStaticSpai, ScalingMode::kAuto);
  RecordingSink sink;
  const Context context{.result = &sink};
  const BuildResult built = MustBuild(*engine, spec, a, context);
  EXPECT_EQ(built.preconditioner->matrix().values,
            MustBuild(*engine, Spai(), a).preconditioner->matrix().values);
  EXPECT_EQ(sink.patterns, 1) << "M' is M, and is shown";
  EXPECT_EQ(built.quality.scaling, ScalingMode::kNone);
  EXPECT_EQ(built.preconditioner->form(), MForm::kMatrix);
}

// The pattern that comes along is M's: that of A⁻¹ makes M the inverse.
TEST(ScaledBuild, AUsersPatternIsThatOfM) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Rows({{0, 0x1p20, 0}, {0, 1, 0x1p-9}, {3, 0, 0x1p-12}});
  // A⁻¹: x0 = (b2 - 2^-12 x2) / 3, x1 = 2^-20 b0, x2 = 2^9 (b1 - x1).
  const CscMatrix inverse = Rows({{1, 1, 1}, {1, 0, 0}, {1, 1, 0}});
  const PatternView pattern = inverse.pattern();
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kDynamicSpai}) {
    PreconditionerSpec spec = Scaled(kind, ScalingMode::kMatching);
    spec.dynamic_spai.max_steps = 0;
    const auto estimate = engine->Estimate(spec, a, &pattern, {});
    ASSERT_TRUE(estimate.ok());
    const auto plan = engine->MakePlan(spec, a, &pattern, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto built = (*plan)->Build(spec, a, {});
    ASSERT_TRUE(built.ok()) << built.status().message();
    EXPECT_LT(built->quality.residual_frobenius, 1e-8);
    EXPECT_GE(estimate->nnz_m, built->preconditioner->matrix().nnz());
  }
}

// The iteration is that of S with M', however A is scaled and ordered; its end is A's.
TEST(ScaledSolve, ScalesAndOrderDoNotMatter) {
  const auto engine = MakeCpuEngine();
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kDynamicSpai}) {
    for (const uint64_t seed : {1, 2, 3}) {
      const CscMatrix a = Spoilt(oracle::RandomIrregular(300, 6, seed), 40, true, false, seed);
      const PreconditionerSpec spec = Scaled(kind, ScalingMode::kMatching);
      const BuildResult built = MustBuild(*engine, spec, a);
      const Scaling s = Choose(a, ScalingMode::kMatching);
      const auto scaled = ScaledMatrix(a, s, {});
      ASSERT_TRUE(scaled.ok());
      const BuildResult inner = MustBuild(*engine, Spec(kind), *scaled);
      const Vector b = RowSums(a);
      Vector of_scaled = b;
      ScaleRhs(s, b, of_scaled);
      for (const Method method : {Method::kBicgstab, Method::kGmres, Method::kIdr}) {
        SCOPED_TRACE(std::string(TraitsOf(kind).name) + ", seed " + std::to_string(seed) +
                     ", method " + std::to_string(static_cast<int>(method)));
        const SolveOptions options{.method = method, .rtol = 1e-9};
        const auto direct =
            engine->Solve(*scaled, inner.preconditioner.get(), of_scaled, {}, options, {});
        ASSERT_TRUE(direct.ok());
        ASSERT_EQ(direct->rhs[0].outcome, Outcome::kConverged);
        const auto solved = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
        ASSERT_TRUE(solved.ok()) << solved.status().message();
        EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
        EXPECT_LE(TrueRelative(a, solved->x, b), 1.001e-9);
        EXPECT_NEAR(solved->rhs[0].true_relative_residual, TrueRelative(a, solved->x, b), 1e-11);
        const auto& history = solved->rhs[0].history;
        const auto there = std::find_if(history.begin(), history.end(), [](const auto& point) {
          return point.relative_residual <= 1e-9;
        });
        ASSERT_NE(there, history.end());
        const auto iterations = static_cast<double>(direct->rhs[0].iterations);
        EXPECT_NEAR(static_cast<double>(there->iteration), iterations,
                    std::max(2.0, 0.2 * iterations));
      }
    }
  }
}

// M is as good as that of the matrix before it was spoilt.
TEST(ScaledSolve, AMatrixThatIsSpoiltTakesNoMoreIterations) {
  const auto engine = MakeCpuEngine();
  const CscMatrix plain = oracle::ConvectionDiffusion(20, 17, 1.0);
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kDynamicSpai}) {
    const auto iterations = [&](const CscMatrix& a) {
      const BuildResult built = MustBuild(*engine, Scaled(kind, ScalingMode::kMatching), a);
      const SolveOptions options{.method = Method::kGmres, .rtol = 1e-9};
      const Vector b = RowSums(a);
      const auto solved = engine->Solve(a, built.preconditioner.get(), b, {}, options, {});
      EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
      EXPECT_LE(TrueRelative(a, solved->x, b), 1.001e-9);
      const auto& history = solved->rhs[0].history;
      const auto there = std::find_if(history.begin(), history.end(), [](const auto& point) {
        return point.relative_residual <= 1e-9;
      });
      return there != history.end() ? static_cast<double>(there->iteration) : 1e9;
    };
    const double of_plain = iterations(plain);
    for (const uint64_t seed : {1, 2, 3}) {
      EXPECT_NEAR(iterations(Spoilt(plain, 40, true, false, seed)), of_plain, 0.2 * of_plain)
          << TraitsOf(kind).name << ", seed " << seed;
    }
  }
}

TEST(ScaledSolve, WithoutItTheSpoiltMatrixIsNotSolved) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Spoilt(oracle::ConvectionDiffusion(20, 17, 1.0), 40, true, false, 1);
  const BuildResult built = MustBuild(*engine, Spai(), a);
  const auto solved = engine->Solve(a, built.preconditioner.get(), RowSums(a), {},
                                    {.method = Method::kBicgstab, .max_iterations = 300}, {});
  ASSERT_TRUE(solved.ok());
  EXPECT_NE(solved->rhs[0].outcome, Outcome::kConverged);
}

TEST(ScaledSolve, FactorsOfASymmetricMatrixAreThoseOfItsScaledOne) {
  const auto engine = MakeCpuEngine();
  const CscMatrix plain = oracle::Laplacian2d(25, 20);
  const CscMatrix a = Spoilt(plain, 40, false, true, 4);
  const SolveOptions options{.method = Method::kCg, .rtol = 1e-9};
  for (const EngineKind kind : {EngineKind::kFsai, EngineKind::kAfsai, EngineKind::kJacobi}) {
    const auto iterations = [&](const CscMatrix& of) {
      const BuildResult built = MustBuild(*engine, Scaled(kind, ScalingMode::kEquilibrate), of);
      const Vector b = RowSums(of);
      const auto solved = engine->Solve(of, built.preconditioner.get(), b, {}, options, {});
      EXPECT_TRUE(solved.ok());
      EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
      EXPECT_LE(TrueRelative(of, solved->x, b), 1.001e-9);
      return static_cast<double>(solved->rhs[0].iterations);
    };
    // The caller's residual is in a norm of its own.
    EXPECT_LE(iterations(a), 3 * iterations(plain)) << TraitsOf(kind).name;
  }
}

// CG and MINRES have M alone; the bits are those of the same M without rows to scale.
TEST(ScaledSolve, CgDoesNotLookAtRows) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Spoilt(oracle::Laplacian2d(9, 8), 10, false, true, 4);
  const BuildResult built =
      MustBuild(*engine, Scaled(EngineKind::kJacobi, ScalingMode::kEquilibrate), a);
  const BuildResult own = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  ASSERT_EQ(built.preconditioner->form(), MForm::kScaledRows);
  EXPECT_EQ(built.preconditioner->matrix().values, own.preconditioner->matrix().values);
  for (const Method method : {Method::kCg, Method::kMinres}) {
    const SolveOptions options{.method = method, .rtol = 1e-9};
    const auto x = engine->Solve(a, built.preconditioner.get(), RowSums(a), {}, options, {});
    const auto y = engine->Solve(a, own.preconditioner.get(), RowSums(a), {}, options, {});
    EXPECT_EQ(x->x, y->x);
    EXPECT_THAT(HostAlone(options, MForm::kScaledRows), HostAlone(options, MForm::kMatrix));
  }
  EXPECT_THAT(HostAlone({.method = Method::kBicgstab}, MForm::kScaledRows),
              HasSubstr("rows scaled"));
  EXPECT_THAT(HostAlone({.method = Method::kBicgstab}, MForm::kMatrix), IsEmpty());
}

struct Recorded : ProgressSink {
  std::vector<ResidualPoint> points;
  void OnProgress(Stage, int64_t, int64_t) override {}
  void OnResidual(const ResidualPoint& point) override { points.push_back(point); }
};

TEST(ScaledSolve, RightHandSidesGuessesAndEnds) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Spoilt(oracle::ConvectionDiffusion(10, 9, 1.0), 12, true, false, 5);
  const int64_t n = a.n_cols;
  const BuildResult built =
      MustBuild(*engine, Scaled(EngineKind::kStaticSpai, ScalingMode::kMatching), a);
  const Preconditioner* m = built.preconditioner.get();
  // Zero, two others, and one whose guess is its solution.
  Vector b(Z(4 * n), 0.0), x0(Z(4 * n), 0.0);
  const Vector sums = RowSums(a), smooth = SmoothRhs(a);
  std::copy(sums.begin(), sums.end(), b.begin() + n);
  std::copy(smooth.begin(), smooth.end(), b.begin() + 2 * n);
  std::copy(sums.begin(), sums.end(), b.begin() + 3 * n);
  std::fill(x0.begin() + 3 * n, x0.end(), 1.0);
  Recorded recorded;
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8};
  const auto solved = engine->Solve(a, m, b, x0, options, {.progress = &recorded});
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  ASSERT_EQ(solved->rhs.size(), 4u);
  int64_t all = 0;
  for (const RhsResult& rhs : solved->rhs) {
    EXPECT_EQ(rhs.outcome, Outcome::kConverged) << rhs.detail;
    ASSERT_FALSE(rhs.history.empty());
    EXPECT_EQ(rhs.history.back().iteration, rhs.iterations);
    all += rhs.iterations;
  }
  EXPECT_EQ(solved->figures.iterations, all);
  EXPECT_EQ(solved->rhs[0].iterations, 0);
  EXPECT_EQ(solved->rhs[3].iterations, 0);
  EXPECT_LE(solved->rhs[3].true_relative_residual, 1e-8);
  for (size_t i = 1; i < recorded.points.size(); ++i) {
    const ResidualPoint &last = recorded.points[i - 1], &point = recorded.points[i];
    EXPECT_TRUE(point.rhs > last.rhs ||
                (point.rhs == last.rhs && point.iteration == last.iteration + 1));
  }
  // A right-hand side is solved as if it were alone, and on any number of threads.
  for (const int threads : {1, 3}) {
    const auto alone = engine->Solve(a, m, std::span(b).subspan(Z(2 * n), Z(n)), {}, options,
                                     {.threads = threads});
    ASSERT_TRUE(alone.ok());
    EXPECT_TRUE(std::equal(alone->x.begin(), alone->x.end(), solved->x.begin() + 2 * n));
  }
  // Ends that are none of convergence.
  SolveOptions few = options;
  few.max_iterations = 2;
  const auto cut = engine->Solve(a, m, sums, {}, few, {});
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->rhs[0].outcome, Outcome::kMaxIterations);
  EXPECT_EQ(cut->rhs[0].iterations, 2);
  StopSource stop;
  stop.Request(StopReason::kCancelled);
  const auto stopped = engine->Solve(a, m, sums, {}, options, {.stop = stop.token()});
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->rhs[0].outcome, Outcome::kCancelled);
  SolveOptions hard = options;
  hard.rtol = 1e-30;
  const auto stagnated = engine->Solve(a, m, sums, {}, hard, {});
  ASSERT_TRUE(stagnated.ok());
  EXPECT_EQ(stagnated->rhs[0].outcome, Outcome::kStagnated) << stagnated->rhs[0].detail;
  EXPECT_FALSE(stagnated->rhs[0].detail.empty());
  // An absolute tolerance is the caller's, too.
  SolveOptions absolute = options;
  absolute.rtol = 0;
  absolute.atol = 1e-3 * std::sqrt(std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0));
  const auto by_atol = engine->Solve(a, m, sums, {}, absolute, {});
  ASSERT_TRUE(by_atol.ok());
  EXPECT_EQ(by_atol->rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(by_atol->rhs[0].true_residual, absolute.atol);
  // Refusals are those of any solve.
  Vector bad = sums;
  bad[3] = std::nan("");
  EXPECT_EQ(engine->Solve(a, m, bad, {}, options, {}).status().reason(), "NON_FINITE_VALUE");
  SolveOptions none = options;
  none.rtol = 0;
  EXPECT_EQ(engine->Solve(a, m, sums, {}, none, {}).status().reason(), "BAD_TOLERANCE");
  EXPECT_EQ(engine->Solve(a, m, sums, sums.size() > 1 ? Vector(1, 0.0) : sums, options, {})
                .status()
                .reason(),
            "RHS_LENGTH_MISMATCH");
}

// Small in the scaled rows is not small in the caller's: what is left is solved for once more.
TEST(ScaledSolve, GoesOnUntilTheCallersResidualIsMet) {
  const CscMatrix plain = oracle::ConvectionDiffusion(12, 12, 1.0);
  const int64_t n = plain.n_cols;
  const auto engine = MakeCpuEngine();
  const BuildResult of_plain = MustBuild(*engine, Spai(), plain);
  const CsrOperator m = CsrOperator::FromColumns(of_plain.preconditioner->matrix());
  const CsrOperator a = CsrOperator::FromColumns(CscView(plain));
  // One row counts for nothing in the iteration, and for all of the caller's residual.
  Vector rows(Z(n), 1.0), b(Z(n), 1.0);
  rows[40] = 0x1p-20;
  const SolveOptions options{.method = Method::kGmres, .rtol = 1e-10};
  const auto solved = SolveByScaledRows(a, m, rows, b, {}, options, {});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  EXPECT_LE(TrueRelative(plain, solved->x, b), 1.001e-10);
}

TEST(ScaledPlan, FactorsAreKeptAsLongAsTheyDo) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = Spoilt(oracle::RandomSpd(90, 5, 3), 15, false, true, 7);
  CscMatrix near = a, far = a;
  for (double& v : near.values) v *= 1.25;
  // D A D again, with another D: nothing is left of the first one's sense.
  for (int64_t j = 0; j < far.n_cols; ++j) {
    for (int64_t p = far.col_ptr[Z(j)]; p < far.col_ptr[Z(j) + 1]; ++p) {
      const int power = 30 * static_cast<int>(j % 3 + far.row_idx[Z(p)] % 3);
      far.values[Z(p)] = std::ldexp(far.values[Z(p)], power);
    }
  }
  for (const EngineKind kind : {EngineKind::kJacobi, EngineKind::kStaticSpai, EngineKind::kFsai,
                                EngineKind::kAfsai, EngineKind::kDynamicSpai}) {
    const EngineTraits& traits = TraitsOf(kind);
    SCOPED_TRACE(traits.name);
    const PreconditionerSpec spec = Scaled(kind, ScalingMode::kEquilibrate);
    auto plan = engine->MakePlan(spec, a, nullptr, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto first = (*plan)->Build(spec, a, {});
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_FALSE(first->quality.scaling_reused);
    EXPECT_EQ(first->grown != nullptr, traits.grows_pattern);
    const std::shared_ptr<const Plan> kept = traits.grows_pattern ? first->grown : *plan;
    EXPECT_TRUE(kept->serves_new_values());
    EXPECT_GT(kept->host_bytes(), 0);
    const auto same = kept->Build(spec, a, {});
    EXPECT_FALSE(same->quality.scaling_reused) << "they are its own";
    const auto again = kept->Build(spec, near, {});
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE(again->quality.scaling_reused);
    EXPECT_EQ(again->quality.pattern_reused, traits.grows_pattern);
    EXPECT_EQ(again->grown, nullptr);
    const auto other = kept->Build(spec, far, {});
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_FALSE(other->quality.scaling_reused);
    ASSERT_NE(other->grown, nullptr);
    if (!traits.grows_pattern) {
      EXPECT_EQ(other->preconditioner->matrix().values,
                MustBuild(*engine, spec, far).preconditioner->matrix().values);
    }
    const auto of_others = other->grown->Build(spec, far, {});
    EXPECT_FALSE(of_others->quality.scaling_reused);
    EXPECT_EQ(of_others->grown, nullptr);
    EXPECT_EQ(of_others->preconditioner->matrix().values, other->preconditioner->matrix().values);
  }
}

// Other values may match other columns: the plan of the pattern goes, too.
TEST(ScaledPlan, AnotherOrderIsAnotherPlan) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomIrregular(60, 4, 3);
  CscMatrix b = a;
  // The second entry of each column becomes the largest by far.
  for (int64_t j = 0; j < b.n_cols; ++j) {
    for (int64_t p = b.col_ptr[Z(j)]; p < b.col_ptr[Z(j) + 1]; ++p) {
      if (b.row_idx[Z(p)] == j) b.values[Z(p)] *= 0x1p-40;
    }
  }
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kDynamicSpai}) {
    const PreconditionerSpec spec = Scaled(kind, ScalingMode::kMatching);
    const auto plan = engine->MakePlan(spec, a, nullptr, {});
    ASSERT_TRUE(plan.ok());
    const auto first = (*plan)->Build(spec, a, {});
    ASSERT_TRUE(first.ok());
    const Plan& kept = first->grown != nullptr ? *first->grown : **plan;
    const auto other = kept.Build(spec, b, {});
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_FALSE(other->quality.scaling_reused);
    EXPECT_FALSE(other->quality.pattern_reused);
    ASSERT_NE(other->grown, nullptr);
    const BuildResult fresh = MustBuild(*engine, spec, b);
    EXPECT_EQ(other->preconditioner->matrix().row_idx, fresh.preconditioner->matrix().row_idx);
    EXPECT_EQ(other->preconditioner->matrix().values, fresh.preconditioner->matrix().values);
  }
}

TEST(ScaledPlan, Refusals) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(5, 4);
  CscView pattern = a;
  pattern.values = {};
  const PreconditionerSpec spec = Scaled(EngineKind::kStaticSpai, ScalingMode::kMatching);
  EXPECT_EQ(engine->MakePlan(spec, pattern, nullptr, {}).status().reason(), "VALUES_NEEDED");
  EXPECT_TRUE(engine->Estimate(spec, pattern, nullptr, {}).ok()) << "of A's own pattern";
  const auto message = [&](EngineKind kind, ScalingMode mode) {
    const Status status = engine->MakePlan(Scaled(kind, mode), a, nullptr, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.reason(), "BAD_SCALING");
    EXPECT_EQ(status.field(), "scaling");
    return status.message();
  };
  EXPECT_THAT(message(EngineKind::kFsai, ScalingMode::kMatching),
              HasSubstr("give EQUILIBRATE or AUTO, or name STATIC_SPAI"));
  EXPECT_THAT(message(EngineKind::kAfsai, ScalingMode::kMatching), HasSubstr("symmetric"));
  EXPECT_THAT(message(EngineKind::kJacobi, ScalingMode::kMatching), HasSubstr("diagonal"));
  EXPECT_THAT(message(EngineKind::kNone, ScalingMode::kAuto), HasSubstr("builds nothing"));
  EXPECT_THAT(message(EngineKind::kStaticSpai, static_cast<ScalingMode>(9)),
              HasSubstr("give NONE, EQUILIBRATE, MATCHING or AUTO"));
  // A that is no longer symmetric when it is scaled is refused as it is without.
  const CscMatrix skew = oracle::ConvectionDiffusion(5, 4, 1.0);
  const auto factored =
      engine->MakePlan(Scaled(EngineKind::kFsai, ScalingMode::kEquilibrate), skew, nullptr, {});
  const Status status =
      factored.ok() ? (*factored)
                          ->Build(Scaled(EngineKind::kFsai, ScalingMode::kEquilibrate), skew, {})
                          .status()
                    : factored.status();
  EXPECT_EQ(status.reason(), "NOT_SYMMETRIC");
  // Two columns and one row between them: the matching says so.
  const CscMatrix singular = Rows({{1, 2, 0}, {0, 0, 3}, {0, 0, 4}});
  const BuildResult built = MustBuild(*engine, spec, singular);
  ASSERT_FALSE(built.quality.warnings.empty());
  EXPECT_THAT(built.quality.warnings.back(), HasSubstr("structurally singular"));
  CscMatrix wide = a;
  wide.n_rows = 21;
  EXPECT_EQ(engine->MakePlan(spec, wide, nullptr, {}).status().reason(), "NOT_SQUARE");
  EXPECT_EQ(engine->Estimate(spec, wide, nullptr, {}).status().reason(), "NOT_SQUARE");
  // An inverse that fp64 does not hold.
  const CscMatrix tiny = Rows({{0x1p-1040, 0}, {0, 1}});
  const auto plan = engine->MakePlan(spec, tiny, nullptr, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->Build(spec, tiny, {}).status().reason(), "INVERSE_OUT_OF_RANGE");
  CscMatrix spd = Rows({{1, 0}, {0, 0x1p-1060}});
  PreconditionerSpec fsai = Scaled(EngineKind::kFsai, ScalingMode::kEquilibrate);
  EXPECT_TRUE(engine->MakePlan(fsai, spd, nullptr, {}).ok());
}

TEST(ScaledPlan, AutoHandsOnWhatIsNamed) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(12, 9, 1.0);
  const auto chosen = [&](ScalingMode mode) {
    const auto resolved =
        engine->Resolve(Scaled(EngineKind::kAuto, mode), a, Diagnose(a), nullptr, {});
    EXPECT_TRUE(resolved.ok());
    return resolved->spec.scaling;
  };
  EXPECT_EQ(chosen(ScalingMode::kNone), ScalingMode::kNone);
  EXPECT_EQ(chosen(ScalingMode::kAuto), ScalingMode::kNone);
  EXPECT_EQ(chosen(ScalingMode::kEquilibrate), ScalingMode::kEquilibrate);
  const auto spd = oracle::Laplacian2d(9, 9);
  const auto matched = engine->Resolve(Scaled(EngineKind::kAuto, ScalingMode::kMatching), spd,
                                       Diagnose(spd), nullptr, {});
  ASSERT_TRUE(matched.ok());
  EXPECT_EQ(matched->spec.scaling, ScalingMode::kNone);
  EXPECT_THAT(matched->reason, HasSubstr("scaling is not used: the engine cannot have MATCHING"));
}

}  // namespace
}  // namespace spaid::kernels::engine_test
