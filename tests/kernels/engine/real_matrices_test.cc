// The whole way - diagnosis, AUTO, estimate, plan, build, solve - on the real matrices of the
// folder SPAID_MATRICES; skipped where there is none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/kernels/engine/helpers.h"
#include "tests/oracle/matrix_market.h"

namespace spaid::kernels::engine_test {
namespace {

struct Named {
  std::string name;
  CscMatrix a;
};

// Everything in the folder that is square and not too large for a test; what is left out is named,
// with the reason.
constexpr int64_t kMaxNnz = 2'000'000;

std::vector<Named> Matrices() {
  std::vector<Named> out;
  const char* folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr) return out;
  for (const std::string& path : oracle::MatrixMarketFiles(folder)) {
    std::string name = path.substr(path.rfind('/') + 1);
    name = name.substr(0, name.find('.'));
    auto a = oracle::ReadMatrixMarket(path);
    std::string why;
    if (!a) {
      why = "not a matrix that the reader of the tests knows";
    } else if (a->n_rows != a->n_cols) {
      why = std::to_string(a->n_rows) + " x " + std::to_string(a->n_cols) + ", not square";
    } else if (a->nnz() > kMaxNnz) {
      why = std::to_string(a->nnz()) + " entries, over " + std::to_string(kMaxNnz);
    }
    if (why.empty()) {
      out.push_back({name, *std::move(a)});
    } else {
      std::printf("left out: %s (%s)\n", name.c_str(), why.c_str());
    }
  }
  return out;
}

// Enough for most of them to converge; where it is not, the outcome must say so.
constexpr int64_t kMaxIterations = 400;

TEST(RealMatrices, OutcomesAreHonestAndAutoCanBeBuilt) {
  const std::vector<Named> matrices = Matrices();
  if (matrices.empty()) GTEST_SKIP() << "SPAID_MATRICES names no folder with matrices";
  const auto engine = MakeCpuEngine();
  int converged = 0, solves = 0;
  for (const auto& [name, a] : matrices) {
    const Diagnosis diagnosis = Diagnose(a);
    const Vector b = SmoothRhs(a);
    const auto chosen = engine->Resolve(Spec(EngineKind::kAuto), a, diagnosis, nullptr, {});
    ASSERT_TRUE(chosen.ok()) << name << ": " << chosen.status().message();
    EXPECT_FALSE(chosen->reason.empty()) << name;
    for (const PreconditionerSpec& spec :
         {Spec(EngineKind::kNone), Spec(EngineKind::kJacobi), chosen->spec}) {
      SCOPED_TRACE(name + ", engine " + std::to_string(static_cast<int>(spec.engine)));
      std::shared_ptr<const Preconditioner> m;
      if (spec.engine != EngineKind::kNone) {
        const auto estimate = engine->Estimate(spec, a, nullptr, {});
        ASSERT_TRUE(estimate.ok()) << estimate.status().message();
        const auto plan = engine->MakePlan(spec, a, nullptr, {});
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        const auto built = (*plan)->Build(spec, a, {});
        if (!built.ok()) {
          EXPECT_EQ(built.status().reason(), "ZERO_DIAGONAL");
          EXPECT_EQ(spec.engine, EngineKind::kJacobi);
          EXPECT_EQ(built.status().index(), diagnosis.zero_diagonal.first);
          continue;
        }
        m = built->preconditioner;
        EXPECT_GE(estimate->nnz_m, m->matrix().nnz());
        EXPECT_GE(estimate->host_bytes, (*plan)->host_bytes() + m->host_bytes());
        if (built->quality.zero_columns + built->quality.rank_deficient_columns > 0) {
          EXPECT_FALSE(built->quality.warnings.empty());
        }
      }
      for (const Method method : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
        const auto resolved = ResolveMethod(method, ForCg(spec), diagnosis);
        if (!resolved.ok()) {
          EXPECT_EQ(method, Method::kCg);
          continue;
        }
        SolveOptions options{.method = *resolved, .rtol = 1e-8};
        options.max_iterations = kMaxIterations;
        const auto r = engine->Solve(a, m.get(), b, {}, options, {});
        ASSERT_TRUE(r.ok()) << r.status().message();
        const RhsResult& rhs = r->rhs[0];
        const double truth = TrueRelative(a, r->x, b);
        EXPECT_LE(truth, 1 + 1e-9) << "worse than x = 0";
        EXPECT_NEAR(rhs.true_relative_residual, truth, 1e-6 * truth + 1e-11) << rhs.detail;
        if (rhs.outcome == Outcome::kConverged) {
          EXPECT_LE(truth, 1.001e-8);
          ++converged;
        } else {
          EXPECT_FALSE(rhs.detail.empty());
        }
        EXPECT_NE(rhs.outcome, Outcome::kNonFinite) << rhs.detail;
        ++solves;
      }
    }
  }
  std::printf("%d of %d solves of %zu matrices converged within %d iterations\n", converged, solves,
              matrices.size(), static_cast<int>(kMaxIterations));
  EXPECT_GT(solves, 0);
  EXPECT_GT(converged, solves / 4) << "the test shows little where next to nothing converges";
}

}  // namespace
}  // namespace spaid::kernels::engine_test
