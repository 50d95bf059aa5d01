// AUTO's ladder, where its first choice does not solve a system: each rung provoked, left, and
// told.
#include "kernels/engine/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/engine/cost.h"
#include "kernels/engine/ladder_rungs.h"
#include "kernels/sparse/products.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class Sink : public LadderSink {
 public:
  Status Enter(const std::string& what, int64_t host_bytes, double predicted_ms) override {
    EXPECT_GT(host_bytes, 0) << what;
    EXPECT_GT(predicted_ms, 0) << what;
    entered.push_back(what);
    return what.starts_with(refused)
               ? Status(StatusCode::kResourceExhausted, "OUT_OF_MEMORY", "nothing is left for it")
               : Status();
  }
  void OnRung(const Rung& rung) override {
    left.push_back(rung.what);
    if (rung.what.starts_with(stop_after)) stop.Request(StopReason::kCancelled);
  }

  std::string refused = "-", stop_after = "-";
  std::vector<std::string> entered, left;
  StopSource stop;
};

// A system whose first rung brought nothing.
struct Case {
  explicit Case(CscMatrix matrix, int64_t n_rhs = 1)
      : a(std::move(matrix)), n(a.n_cols), diagnosis(Diagnose(a)) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> x(static_cast<size_t>(n * n_rhs));
    for (double& x_i : x) x_i = uniform(random);
    b = Times(x);
    options.method = Method::kAuto;
  }

  std::vector<double> Times(const std::vector<double>& x) const {
    std::vector<double> y(x.size(), 0.0);
    for (size_t v = 0; v < x.size(); v += static_cast<size_t>(n)) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
          y[v + static_cast<size_t>(a.row_idx[p])] += a.values[p] * x[v + static_cast<size_t>(j)];
        }
      }
    }
    return y;
  }

  LadderResult Climb(EngineKind first = EngineKind::kJacobi, int threads = 2) {
    const int64_t n_rhs = static_cast<int64_t>(b.size()) / n;
    SolveResult solved;
    solved.x.assign(b.size(), 0.0);
    for (int64_t v = 0; v < n_rhs; ++v) {
      RhsResult& rhs = solved.rhs.emplace_back();
      rhs.outcome = Outcome::kBreakdown;
      rhs.detail = "told to";
    }
    if (!start.empty()) solved.x.assign(start.begin(), start.end());
    const std::vector<double> ax = Times({solved.x.begin(), solved.x.end()});
    for (size_t i = 0; i < b.size(); ++i) {
      double& norm = solved.rhs[i / static_cast<size_t>(n)].true_residual;
      norm = std::hypot(norm, b[i] - ax[i]);
    }
    Rung rung;
    rung.kind = first == EngineKind::kFsai ? RungKind::kFsai : RungKind::kBottom;
    rung.engine = first;
    rung.method = ResolveMethod(options.method, TraitsOf(first).for_cg, diagnosis).value();
    rung.what = "the first";
    const Context context{.stop = sink.stop.token(), .progress = nullptr, .threads = threads};
    return Checked(
        kernels::Climb(*MakeCpuEngine(), Terms(), std::move(solved), rung, sink, context));
  }

  LadderResult ClimbFrom(RungKind kind) {
    const Context context{.stop = sink.stop.token(), .progress = nullptr, .threads = 2};
    return Checked(kernels::ClimbFrom(*MakeCpuEngine(), Terms(), start, kind, sink, context));
  }

  LadderCase Terms() const {
    return {.a = view,
            .diagnosis = diagnosis,
            .b = b,
            .options = options,
            .ladder = ladder,
            .static_spai = static_spai,
            .backend = backend,
            .threads = 2,
            .solve_there = solve_there};
  }

  LadderResult Checked(Result<LadderResult> climbed) const {
    EXPECT_TRUE(climbed.ok()) << climbed.status().message();
    if (!climbed.ok()) return {};
    EXPECT_THAT(sink.left, SizeIs(climbed->rungs.size()));
    CheckResiduals(climbed->solved);
    return *std::move(climbed);
  }

  // Residuals that are told are those of x.
  void CheckResiduals(const SolveResult& solved) const {
    const std::vector<double> ax = Times({solved.x.begin(), solved.x.end()});
    for (size_t v = 0; v < solved.rhs.size(); ++v) {
      double r2 = 0, b2 = 0;
      for (size_t i = v * static_cast<size_t>(n); i < (v + 1) * static_cast<size_t>(n); ++i) {
        r2 += (b[i] - ax[i]) * (b[i] - ax[i]);
        b2 += b[i] * b[i];
      }
      const RhsResult& rhs = solved.rhs[v];
      EXPECT_NEAR(rhs.true_residual, std::sqrt(r2), 1e-6 * std::sqrt(r2) + 1e-12 * std::sqrt(b2));
      EXPECT_EQ(rhs.outcome == Outcome::kConverged, std::sqrt(r2) <= options.rtol * std::sqrt(b2));
    }
  }

  CscMatrix a;
  const CscView view = a;  // borrowed by cases
  const int64_t n;
  Diagnosis diagnosis;
  std::vector<double> b, start;
  SolveOptions options;
  LadderOptions ladder;
  StaticSpaiOptions static_spai;
  Backend backend = Backend::kCpu;
  LadderSolve solve_there;
  Sink sink;
};

// A few random entries a row: sparse inverses are poor, and short bases bring nothing.
CscMatrix Random(int64_t n) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(-1, 1);
  oracle::Dense a = oracle::Identity(n);
  for (int64_t i = 0; i < n; ++i) {
    a(i, i) = 0.1 * uniform(random);
    for (int k = 0; k < 12; ++k) {
      a(i, static_cast<int64_t>(random() % static_cast<uint64_t>(n))) = uniform(random);
    }
  }
  return oracle::FromDense(a);
}

TEST(Ladder, SymmetricPositiveIsFsaisWithCg) {
  Case c(oracle::Laplacian2d(30, 30));
  const LadderResult climbed = c.Climb();
  ASSERT_THAT(climbed.rungs, SizeIs(2));
  EXPECT_EQ(climbed.rungs[0].left, "told to");
  EXPECT_EQ(climbed.rungs[1].what, "static FSAI, CG");
  EXPECT_EQ(climbed.rungs[1].engine, EngineKind::kFsai);
  EXPECT_EQ(climbed.rungs[1].method, Method::kCg);
  EXPECT_THAT(climbed.rungs[1].left, IsEmpty());
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kConverged);
  EXPECT_THAT(climbed.solved.rhs[0].detail, IsEmpty());
  EXPECT_EQ(climbed.solved.rhs[0].iterations, climbed.rungs[1].iterations);
}

std::vector<RungKind> FirstKinds(const Case& of, Backend backend) {
  LadderCase c = of.Terms();
  c.backend = backend;
  std::vector<RungKind> kinds;
  for (const PlannedRung& rung : PlannedRungs(c, /*positive=*/true)) kinds.push_back(rung.kind);
  kinds.resize(std::min<size_t>(kinds.size(), 3));
  return kinds;
}

TEST(Ladder, OnAGpuFsaiThatGrowsLittleStandsBeforeWhatTheHostSetsUp) {
  const Case small(oracle::Laplacian2d(30, 30));
  EXPECT_THAT(FirstKinds(small, Backend::kCpu),
              ElementsAre(RungKind::kFsai, RungKind::kAfsai, RungKind::kMinres));
  EXPECT_THAT(FirstKinds(small, Backend::kCuda),
              ElementsAre(RungKind::kLightAfsai, RungKind::kAfsai, RungKind::kMinres));
  // β = 2: a GPU sets multigrid up.
  const Case large(oracle::Laplacian2d(150, 150));
  EXPECT_THAT(FirstKinds(large, Backend::kCuda),
              ElementsAre(RungKind::kAmg, RungKind::kLightAfsai, RungKind::kAfsai));
  // β of its square is 64 / 20: multigrid smooths by FSAI, which the host sets up.
  const Case plate(*Multiply(large.view, large.view, {}));
  EXPECT_THAT(FirstKinds(plate, Backend::kCuda),
              ElementsAre(RungKind::kLightAfsai, RungKind::kAmg, RungKind::kAfsai));
  EXPECT_THAT(FirstKinds(plate, Backend::kCpu),
              ElementsAre(RungKind::kAmg, RungKind::kFsai, RungKind::kAfsai));
  // By its kind alone, as a later solve knows it.
  const auto terms = TermsOf(RungKind::kLightAfsai, small.Terms());
  ASSERT_TRUE(terms.has_value());
  EXPECT_EQ(terms->spec.engine, EngineKind::kAfsai);
  EXPECT_EQ(terms->spec.fsai.min_gain, 1e-2);
}

// The device is the host here: a rung that it can have is solved as it came, from the last iterate.
TEST(Ladder, OnAGpuRungsGoOnFromTheIterateThatThereIs) {
  Case c(oracle::Laplacian2d(30, 30), /*n_rhs=*/3);
  const auto engine = MakeCpuEngine();
  // The second of three right-hand sides is solved already, and not sent again.
  c.start.assign(c.b.size(), 0.25);
  std::vector<double> one(c.b.size(), 1.0);
  const std::vector<double> second = c.Times(one);
  std::copy_n(second.begin(), c.n, c.b.begin() + c.n);
  std::fill_n(c.start.begin() + c.n, c.n, 1.0);
  int calls = 0;
  c.backend = Backend::kCuda;
  c.solve_there = [&](const std::shared_ptr<const Preconditioner>& m, std::span<const double> b,
                      std::span<const double> x0, const SolveOptions& options,
                      const Context& context) {
    ++calls;
    EXPECT_EQ(b.size(), static_cast<size_t>(2 * c.n));
    EXPECT_THAT(x0, Each(0.25));
    EXPECT_EQ(options.rtol, c.options.rtol) << "of the caller's own system";
    return engine->Solve(c.view, m.get(), b, x0, options, context);
  };
  const LadderResult climbed = c.Climb();
  EXPECT_EQ(calls, 1);
  ASSERT_THAT(climbed.rungs, SizeIs(2));
  EXPECT_EQ(climbed.rungs[1].what, "adaptive FSAI (min_gain 0.01), CG");
  EXPECT_THAT(climbed.rungs[1].left, IsEmpty());
  EXPECT_EQ(climbed.best, RungKind::kLightAfsai);
  EXPECT_EQ(climbed.solved.rhs[1].iterations, 0);
  EXPECT_GT(climbed.solved.rhs[2].iterations, 0);
}

TEST(Ladder, OnAGpuJacobiIsJudgedByWhatFsaiCosts) {
  const Case of(oracle::Laplacian2d(30, 30));
  LadderCase c = of.Terms();
  c.backend = Backend::kCuda;
  const auto engine = MakeCpuEngine();
  Rung first;
  first.engine = EngineKind::kJacobi;
  first.method = Method::kCg;
  const StallWatch::Look look = FirstLook(*engine, c, first, {});
  EXPECT_EQ(look.first, 100);
  PreconditionerSpec light{.engine = EngineKind::kAfsai};
  light.fsai.min_gain = 1e-2;
  const double setup_ms = engine->Estimate(light, of.a, nullptr, {.threads = 1})->predicted_ms;
  SolveWork work{.method = Method::kCg, .n = 900, .nnz_a = 4380};
  const double jacobi = IterationMs(work, Backend::kCuda, 1);
  work.nnz_m = 2 * 5 * 900;
  const double fsai = IterationMs(work, Backend::kCuda, 1);
  // FSAI takes 0.3 of the iterations, and of Jacobi's come half as many more as are foretold.
  EXPECT_NEAR(look.let_pass, setup_ms / (jacobi - 0.3 * fsai) / 1.5, 1e-9 * look.let_pass);
  first.method = Method::kBicgstab;  // whose residuals leap
  EXPECT_EQ(FirstLook(*engine, c, first, {}).let_pass, 0);
}

// The host would take longer to predict what stands behind it than iterations there take.
TEST(Ladder, OnAGpuNobodyPredictsStaticSpai) {
  const Case of(oracle::RowPermuted(8000, 3));
  LadderCase c = of.Terms();
  c.backend = Backend::kCuda;
  const auto engine = MakeCpuEngine();
  std::vector<PlannedRung> rungs = PlannedRungs(c, /*positive=*/false);
  PlannedRung& spai = rungs[PlaceOf(rungs, RungKind::kStaticSpai)];
  ASSERT_EQ(spai.kind, RungKind::kStaticSpai);
  EXPECT_EQ(LookAfter(*engine, c, &spai, Method::kBicgstab, 4000, /*parts=*/true, {}).first, 400);
  // By the size of A, about.
  const auto there = LookAfter(*engine, c, &spai, Method::kBicgstab, 0, /*parts=*/false, {});
  EXPECT_FALSE(spai.setup_ms.has_value()) << "it was predicted";
  const SolveWork work{.method = Method::kBicgstab,
                       .n = static_cast<double>(c.a.n_cols),
                       .nnz_a = static_cast<double>(c.a.nnz())};
  const double setup_ms = SetupMs(*engine, c, {}, &spai);
  EXPECT_GE(there.first, StallWatch::kLeastLook);
  EXPECT_NEAR(static_cast<double>(there.first) * IterationMs(work, Backend::kCuda, 1), setup_ms,
              0.5 * setup_ms);
  c.backend = Backend::kCpu;
  spai.setup_ms.reset();
  LookAfter(*engine, c, &spai, Method::kBicgstab, 0, /*parts=*/false, {});
  EXPECT_TRUE(spai.setup_ms.has_value());
}

// A rung that solves the system is the last that is looked for: multigrid behind it takes a look.
TEST(Ladder, OnAGpuNobodyLooksAtAForARungThatIsNotEntered) {
  Case c(oracle::Laplacian2d(150, 150));
  const auto engine = MakeCpuEngine();
  c.backend = Backend::kCuda;
  c.solve_there = [&](const std::shared_ptr<const Preconditioner>& m, std::span<const double> b,
                      std::span<const double> x0, const SolveOptions& options,
                      const Context& context) {
    EXPECT_THAT(x0, IsEmpty()) << "no zeros are sent";
    SolveOptions at_once = options;
    at_once.rtol = 0.9;  // it ends before it is judged
    return engine->Solve(c.view, m.get(), b, x0, at_once, context);
  };
  c.options.rtol = 0.9;
  const LadderCase terms = c.Terms();
  const auto climbed = kernels::ClimbFrom(*engine, terms, {}, RungKind::kLightAfsai, c.sink, {});
  ASSERT_TRUE(climbed.ok()) << climbed.status().message();
  EXPECT_THAT(climbed->rungs, SizeIs(1));
  EXPECT_EQ(climbed->best, RungKind::kLightAfsai);
  c.CheckResiduals(climbed->solved);
  // The first look is the one that is kept: that of an A of a hub tells that nobody had looked.
  EXPECT_FALSE(terms.look->Of(c.view, 1'000'000, 1).suits);
}

TEST(Ladder, WhatWasTriedIsNotTriedAgain) {
  Case c(oracle::Laplacian2d(30, 30));
  const LadderResult climbed = c.Climb(EngineKind::kFsai);
  ASSERT_THAT(climbed.rungs, SizeIs(2));
  EXPECT_EQ(climbed.rungs[1].what, "adaptive FSAI, CG");
}

TEST(Ladder, AZeroDiagonalIsMatchedAway) {
  Case c(oracle::RowPermuted(400, 3));
  const LadderResult climbed = c.Climb();
  ASSERT_THAT(climbed.rungs, SizeIs(2));
  EXPECT_THAT(climbed.rungs[1].what, StartsWith("static SPAI of A matched and scaled, BiCGSTAB"));
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kConverged);
}

// Symmetric, and as indefinite as they come: eigenvalues on both sides.
CscMatrix Shifted(int64_t n, double shift) {
  CscMatrix a = oracle::Laplacian2d(n, n);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (a.row_idx[p] == j) a.values[p] -= shift;
    }
  }
  return a;
}

TEST(Ladder, SymmetricAndIndefiniteIsMinres) {
  Case negative(Shifted(12, 4.5));  // its diagonal says so
  const LadderResult climbed = negative.ClimbFrom(RungKind::kBottom);
  ASSERT_GE(climbed.rungs.size(), 2u);
  EXPECT_EQ(climbed.rungs[1].method, Method::kMinres) << climbed.rungs[1].what;
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kConverged);
  Case hidden(Shifted(12, 2.0));  // CG finds out
  hidden.ladder.max_lu_n = 0;
  const LadderResult found = hidden.ClimbFrom(RungKind::kBottom);
  EXPECT_EQ(found.rungs[0].method, Method::kCg);
  EXPECT_EQ(found.rungs[1].method, Method::kMinres) << "no FSAI any more";
  EXPECT_EQ(found.solved.rhs[0].outcome, Outcome::kConverged);
  // The rung that it came to is begun with.
  Case again(Shifted(12, 2.0));
  EXPECT_EQ(again.ClimbFrom(RungKind::kMinres).rungs[0].method, Method::kMinres);
}

TEST(Ladder, BeginsWhereItIsTold) {
  Case c(oracle::RowPermuted(300, 4));
  const LadderResult bottom = c.ClimbFrom(RungKind::kBottom);
  EXPECT_EQ(bottom.rungs.front().kind, RungKind::kBottom);
  EXPECT_EQ(bottom.best, bottom.rungs.back().kind);
  EXPECT_NE(bottom.best, RungKind::kBottom);
  EXPECT_TRUE(bottom.scaled);
  Case again(oracle::RowPermuted(300, 4));
  const LadderResult straight = again.ClimbFrom(bottom.best);
  EXPECT_THAT(straight.rungs, SizeIs(1));
  EXPECT_EQ(straight.rungs[0].kind, bottom.best);
  EXPECT_EQ(straight.solved.rhs[0].outcome, Outcome::kConverged);
  // If A has no such rung, from the next.
  Case other(oracle::RowPermuted(300, 4));
  EXPECT_EQ(other.ClimbFrom(RungKind::kFsai).rungs[0].kind, RungKind::kStaticSpai);
  // A start that is near saves iterations.
  Case near(oracle::Laplacian2d(20, 20));
  const LadderResult cold = near.ClimbFrom(RungKind::kFsai);
  near.start.assign(cold.solved.x.begin(), cold.solved.x.end());
  near.sink.left.clear();
  EXPECT_THAT(near.ClimbFrom(RungKind::kFsai).rungs, IsEmpty()) << "nothing is left to do";
}

TEST(Ladder, ToBuildItTakesWhatEnginesBuild) {
  Case c(oracle::RowPermuted(300, 4));
  c.ladder.to_build = true;
  const LadderResult climbed = c.ClimbFrom(RungKind::kBottom);
  for (const Rung& rung : climbed.rungs) EXPECT_NE(rung.engine, EngineKind::kNone) << rung.what;
  const auto terms = TermsOf(climbed.best, c.Terms());
  ASSERT_TRUE(terms.has_value());
  EXPECT_EQ(terms->spec.engine, climbed.rungs.back().engine);
  EXPECT_EQ(terms->options.method, climbed.rungs.back().method);
  EXPECT_FALSE(TermsOf(RungKind::kBottom, c.Terms()).has_value());
  EXPECT_FALSE(TermsOf(RungKind::kFsai, c.Terms()).has_value()) << "A is not symmetric";
}

TEST(Ladder, WhatScalingMendsConverges) {
  // Rows and columns by powers of two up to 2^±40, rows permuted: as before.
  Case plain(oracle::RowPermuted(300, 5));
  CscMatrix scaled = plain.a;
  std::mt19937_64 random(3);
  std::uniform_int_distribution<int> power(-40, 40);
  std::vector<int> row(300), column(300);
  for (int& p : row) p = power(random);
  for (int& p : column) p = power(random);
  for (int64_t j = 0; j < 300; ++j) {
    for (int64_t p = scaled.col_ptr[j]; p < scaled.col_ptr[j + 1]; ++p) {
      const auto i = static_cast<size_t>(scaled.row_idx[p]);
      scaled.values[p] = std::ldexp(scaled.values[p], row[i] + column[static_cast<size_t>(j)]);
    }
  }
  Case harder(std::move(scaled));
  EXPECT_EQ(plain.Climb().solved.rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(harder.Climb().solved.rhs[0].outcome, Outcome::kConverged);
}

TEST(Ladder, TheInverseIsTheLastRung) {
  Case c(Random(600));
  c.options.method = Method::kGmres;
  const LadderResult climbed = c.Climb();
  ASSERT_FALSE(climbed.rungs.empty());
  EXPECT_THAT(climbed.rungs.back().what, StartsWith("dense LU"));
  EXPECT_THAT(climbed.rungs.back().left, IsEmpty());
  EXPECT_EQ(climbed.rungs.back().nnz_m, 600 * 600);
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kConverged);
}

TEST(Ladder, WithoutTheInverseTheClosestIsTriedOnceMore) {
  Case c(Random(600));
  c.ladder.max_lu_n = 0;
  c.options.max_iterations = 250;
  const LadderResult climbed = c.Climb();
  ASSERT_GE(climbed.rungs.size(), 3u);
  for (const Rung& rung : climbed.rungs) EXPECT_THAT(rung.left, Not(IsEmpty())) << rung.what;
  EXPECT_NE(climbed.solved.rhs[0].outcome, Outcome::kConverged);
  EXPECT_THAT(climbed.rungs.back().what, HasSubstr("and up), once more"));
  EXPECT_THAT(climbed.solved.rhs[0].detail, StartsWith("AUTO tried "));
  EXPECT_LE(climbed.solved.rhs[0].iterations, 250);
  EXPECT_LT(climbed.solved.rhs[0].true_relative_residual, 1) << "the best iterate comes back";
}

TEST(Ladder, ANamedMethodIsKept) {
  Case cg(oracle::Laplacian2d(20, 20));
  cg.options.method = Method::kCg;
  const LadderResult by_cg = cg.Climb();
  for (const Rung& rung : by_cg.rungs) {
    EXPECT_TRUE(rung.method == Method::kCg || rung.what == "the first") << rung.what;
  }
  Case bicgstab(oracle::RowPermuted(200, 9));
  bicgstab.options.method = Method::kBicgstab;
  const LadderResult named = bicgstab.Climb();
  for (const Rung& rung : named.rungs) {
    EXPECT_EQ(rung.method, Method::kBicgstab) << rung.what;
  }
}

TEST(Ladder, CgGoesNoFurtherThanItsRungs) {
  const CscMatrix indefinite = Shifted(12, 3.5);
  Case named(indefinite);
  named.options.method = Method::kCg;
  const LadderResult left = named.Climb();
  EXPECT_NE(left.solved.rhs[0].outcome, Outcome::kConverged);
  Case free(indefinite);
  const LadderResult solved = free.Climb();
  EXPECT_EQ(solved.solved.rhs[0].outcome, Outcome::kConverged);
  EXPECT_NE(solved.rungs.back().method, Method::kCg);
}

TEST(Ladder, ARungWithoutMemoryIsLeftOut) {
  Case c(oracle::RowPermuted(300, 4));
  c.sink.refused = "static SPAI";
  const LadderResult climbed = c.Climb();
  ASSERT_GE(climbed.rungs.size(), 3u);
  EXPECT_EQ(climbed.rungs[1].left, "nothing is left for it");
  EXPECT_EQ(climbed.rungs[1].iterations, 0);
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kConverged);
}

TEST(Ladder, ABuildThatFailsIsToldAndTheNextIsTried) {
  // Column 2 holds nothing but zeros: dynamic SPAI does not build, the inverse does not exist, and
  // static SPAI is told what it cannot do.
  CscMatrix a = oracle::Laplacian2d(5, 5);
  for (int64_t p = a.col_ptr[2]; p < a.col_ptr[3]; ++p) a.values[p] = 0;
  Case c(std::move(a));
  c.static_spai.pattern.power = 99;
  const LadderResult climbed = c.Climb();
  ASSERT_THAT(climbed.rungs, SizeIs(5));
  EXPECT_THAT(climbed.rungs[1].left, HasSubstr("pattern_power"));
  EXPECT_THAT(climbed.rungs[2].left, HasSubstr("column 2"));
  EXPECT_THAT(climbed.rungs[4].left, HasSubstr("singular"));
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kBreakdown) << "as the first rung ended";
  EXPECT_THAT(climbed.solved.rhs[0].detail, HasSubstr("singular"));
}

TEST(Ladder, RightHandSidesThatConvergedStay) {
  Case c(oracle::RowPermuted(200, 6), 3);
  // The second one is solved already: b = A x of the start.
  c.start.assign(c.b.size(), 0.0);
  for (size_t i = 200; i < 400; ++i) c.start[i] = 0.01 * static_cast<double>(i);
  const std::vector<double> ax = c.Times(c.start);
  std::copy(ax.begin() + 200, ax.begin() + 400, c.b.begin() + 200);
  const LadderResult climbed = c.Climb();
  for (const RhsResult& rhs : climbed.solved.rhs) EXPECT_EQ(rhs.outcome, Outcome::kConverged);
  EXPECT_EQ(climbed.solved.rhs[1].iterations, 0);
  for (size_t i = 200; i < 400; ++i) EXPECT_EQ(climbed.solved.x[i], c.start[i]);
}

TEST(Ladder, TheSameRequestEndsTheSame) {
  Case once(Random(250)), again(Random(250)), alone(Random(250));
  const LadderResult a = once.Climb(), b = again.Climb(), c = alone.Climb(EngineKind::kJacobi, 1);
  for (const LadderResult* other : {&b, &c}) {
    ASSERT_EQ(a.rungs.size(), other->rungs.size());
    for (size_t i = 0; i < a.rungs.size(); ++i) {
      EXPECT_EQ(a.rungs[i].what, other->rungs[i].what);
      EXPECT_EQ(a.rungs[i].iterations, other->rungs[i].iterations);
    }
    EXPECT_EQ(a.solved.x, other->solved.x);
  }
}

TEST(Ladder, AStopEndsIt) {
  Case c(Random(250));
  c.sink.stop_after = "the first";
  const LadderResult climbed = c.Climb();
  EXPECT_THAT(climbed.rungs, SizeIs(1));
  EXPECT_EQ(climbed.solved.rhs[0].outcome, Outcome::kCancelled);
}

// --- The watch ---

struct Told : ProgressSink {
  void OnProgress(Stage, int64_t, int64_t) override {}
  void OnResidual(const ResidualPoint& point) override { points.push_back(point); }
  std::vector<ResidualPoint> points;
};

TEST(StallWatch, StopsWhereTheEndIsNotInSight) {
  // One decimal in 100 iterations: eight take 800, which is not within three times 100 more.
  StallWatch watch(true, 1e-8, [] { return StallWatch::Look{100}; }, 10000, nullptr, {});
  for (int i = 0; i <= 99; ++i) watch.OnResidual({0, i, std::pow(10.0, -i / 100.0)});
  EXPECT_FALSE(watch.token().stop_requested());
  watch.OnResidual({0, 100, 0.1});
  EXPECT_TRUE(watch.token().stop_requested());
  EXPECT_TRUE(watch.stalled());
}

TEST(StallWatch, LetsPassWhatIsNotWorthLeaving) {
  // One decimal in 100 iterations, half of it in the last half: 1, 2 and 4 more by 200, 400 and
  // 800.
  for (const auto& [let_pass, stalled] : {std::pair{699.0, true}, std::pair{701.0, false}}) {
    StallWatch watch(true, 1e-8,
                     [&] {
                       return StallWatch::Look{100, let_pass};
                     },
                     10000, nullptr, {});
    for (int i = 0; i <= 100; ++i) watch.OnResidual({0, i, std::pow(10.0, -i / 100.0)});
    EXPECT_EQ(watch.stalled(), stalled) << let_pass;
  }
}

TEST(StallWatch, LetsASteadySolveEnd) {
  StallWatch watch(true, 1e-8, [] { return StallWatch::Look{100}; }, 10000, nullptr, {});
  for (int i = 0; i <= 400; ++i) watch.OnResidual({0, i, std::pow(10.0, -i / 50.0)});
  EXPECT_FALSE(watch.stalled());
}

TEST(StallWatch, SeesThatASolveSlowsDown) {
  // 0.39 sqrt(i) decimals: eight take 421 iterations; the pace from 50 to 100 would make it 280.
  StallWatch slow(true, 1e-8, [] { return StallWatch::Look{100}; }, 10000, nullptr, {});
  for (int i = 0; i <= 100; ++i) slow.OnResidual({0, i, std::pow(10.0, -0.39 * std::sqrt(i))});
  EXPECT_TRUE(slow.stalled());
  // With 0.41 sqrt(i) it is 381.
  StallWatch near(true, 1e-8, [] { return StallWatch::Look{100}; }, 10000, nullptr, {});
  for (int i = 0; i <= 381; ++i) near.OnResidual({0, i, std::pow(10.0, -0.41 * std::sqrt(i))});
  EXPECT_FALSE(near.stalled());
}

TEST(StallWatch, TakesResidualsThatLeapForSteady) {
  StallWatch leaping(false, 1e-8, [] { return StallWatch::Look{100}; }, 10000, nullptr, {});
  for (int i = 0; i <= 100; ++i) leaping.OnResidual({0, i, std::pow(10.0, -0.39 * std::sqrt(i))});
  EXPECT_FALSE(leaping.stalled());
}

TEST(StallWatch, AHalfIsOneOfTheIterationsThatItLooksAt) {
  // At 90 it goes on by 0.009 decimals an iteration: 324 more. The quick ones before 45, where it
  // was not known yet that 90 would be looked at, are none of its pace.
  StallWatch watch(true, 1e-8, [] { return StallWatch::Look{90}; }, 10000, nullptr, {});
  for (int i = 0; i <= 90; ++i) {
    EXPECT_FALSE(watch.stalled());
    watch.OnResidual({0, i, std::pow(10.0, i <= 25 ? -0.18 * i : -4.5 - 0.009 * (i - 25))});
  }
  EXPECT_TRUE(watch.stalled());
}

TEST(StallWatch, AsksWhatIsBehindWhereTheEndIsNotInSight) {
  int asked = 0;
  const auto look = [&asked] {
    ++asked;
    return StallWatch::Look{60};
  };
  StallWatch steady(true, 1e-8, look, 10000, nullptr, {});
  for (int i = 0; i <= 100; ++i) steady.OnResidual({0, i, std::pow(10.0, -0.08 * i)});
  EXPECT_EQ(asked, 0);
  // It comes to a halt at iteration 100: at 200 that is seen.
  StallWatch halting(true, 1e-8, look, 10000, nullptr, {});
  int i = 0;
  while (i < 1000 && !halting.stalled()) {
    ++i;
    halting.OnResidual({0, i, std::pow(10.0, -0.04 * std::min(i, 100))});
  }
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(i, 200);
}

TEST(StallWatch, ABudgetThatDoesNotSufficeIsNotSpent) {
  StallWatch watch(true, 1e-8, [] { return StallWatch::Look{100}; }, 350, nullptr, {});
  for (int i = 0; i <= 100; ++i) watch.OnResidual({0, i, std::pow(10.0, -i / 50.0)});
  EXPECT_TRUE(watch.stalled());
}

TEST(StallWatch, EachRightHandSideHasItsOwnTime) {
  StallWatch watch(true, 1e-8, [] { return StallWatch::Look{100}; }, 10000, nullptr, {});
  for (int rhs = 0; rhs < 5; ++rhs) {
    for (int i = 0; i <= 60; ++i) watch.OnResidual({rhs, i, std::pow(10.0, -i / 7.0)});
  }
  EXPECT_FALSE(watch.stalled());
}

TEST(StallWatch, WithoutANextRungNothingIsStopped) {
  StallWatch never(true, 1e-8, nullptr, 10000, nullptr, {});
  StallWatch none(true, 1e-8, [] { return StallWatch::Look{0}; }, 10000, nullptr, {});
  for (int i = 0; i <= 9000; ++i) {
    never.OnResidual({0, i, 1});
    none.OnResidual({0, i, 1});
  }
  EXPECT_FALSE(never.stalled());
  EXPECT_FALSE(none.stalled());
}

TEST(StallWatch, NumbersAsTheCallerDoes) {
  Told told;
  StallWatch watch(true, 1e-8, nullptr, 10000, &told, {},
                   {.rhs = {2, 5}, .before = {10, 20}, .unit = {0.5, 0.25}});
  watch.OnResidual({0, 3, 1.0});
  watch.OnResidual({1, 4, 0.1});
  ASSERT_THAT(told.points, SizeIs(2));
  EXPECT_EQ(told.points[0].rhs, 2);
  EXPECT_EQ(told.points[0].iteration, 13);
  EXPECT_EQ(told.points[0].relative_residual, 0.5);
  EXPECT_EQ(told.points[1].rhs, 5);
  EXPECT_EQ(told.points[1].iteration, 24);
  EXPECT_EQ(told.points[1].relative_residual, 0.025);
}

TEST(StallWatch, StopsWithWhatItStandsBehind) {
  StopSource outer;
  StallWatch watch(true, 1e-8, nullptr, 10000, nullptr, outer.token());
  EXPECT_EQ(watch.token().Poll(), StopReason::kNone);
  outer.Request(StopReason::kTimeLimit);
  EXPECT_EQ(watch.token().Poll(), StopReason::kTimeLimit);
  EXPECT_FALSE(watch.stalled());
}

TEST(Ladder, ClimbsFromWhatOthersMayMend) {
  SolveResult solved;
  solved.rhs.resize(2);
  solved.rhs[0].outcome = Outcome::kConverged;
  for (const auto& [outcome, climbs] :
       {std::pair{Outcome::kConverged, false}, std::pair{Outcome::kMaxIterations, false},
        std::pair{Outcome::kTimeLimit, false}, std::pair{Outcome::kStagnated, true},
        std::pair{Outcome::kBreakdown, true}, std::pair{Outcome::kIndefinite, true},
        std::pair{Outcome::kNonFinite, true}, std::pair{Outcome::kCancelled, true}}) {
    solved.rhs[1].outcome = outcome;
    EXPECT_EQ(MayClimb(solved), climbs) << static_cast<int>(outcome);
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
