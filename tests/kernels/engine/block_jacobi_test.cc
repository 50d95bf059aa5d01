// Block Jacobi: by hand, against dense inverses of the blocks, and what mathematics promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PreconditionerSpec Blocks(int size) {
  PreconditionerSpec spec = Spec(EngineKind::kJacobi);
  spec.block_size = size;
  return spec;
}

Status BuildStatus(const CscView& a, int size) {
  const auto engine = MakeCpuEngine();
  const auto plan = engine->MakePlan(Blocks(size), a, nullptr, {});
  EXPECT_TRUE(plan.ok());
  return (*plan)->Build(Blocks(size), a, {}).status();
}

// The inverses of A's diagonal blocks; nothing where one is singular.
std::optional<oracle::Dense> BlockInverses(const oracle::Dense& a, int64_t size) {
  oracle::Dense m(a.rows, a.cols);
  for (int64_t first = 0; first < a.rows; first += size) {
    const int64_t count = std::min(size, a.rows - first);
    oracle::Dense block(count, count);
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < count; ++i) block(i, j) = a(first + i, first + j);
    }
    for (int64_t j = 0; j < count; ++j) {
      Vector e(static_cast<size_t>(count), 0.0);
      e[static_cast<size_t>(j)] = 1;
      const auto x = oracle::LuSolve(block, e);
      if (!x) return std::nullopt;
      for (int64_t i = 0; i < count; ++i) m(first + i, first + j) = (*x)[static_cast<size_t>(i)];
    }
  }
  return m;
}

// A of full blocks on the diagonal, and nothing else; the last one smaller.
CscMatrix BlockDiagonal(int64_t n, int64_t size, uint64_t seed) {
  oracle::Random random(seed);
  oracle::Dense a(n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j / size * size; i < std::min(n, j / size * size + size); ++i) {
      a(i, j) = random.Uniform(-1, 1) + (i == j ? 3.0 * (i % 2 == 0 ? 1 : -1) : 0);
    }
  }
  return oracle::FromDense(a);
}

// A with rows and columns in the order of `order`.
CscMatrix Permuted(const CscMatrix& a, const std::vector<int64_t>& order) {
  const oracle::Dense from = oracle::ToDense(a);
  oracle::Dense to(from.rows, from.cols);
  for (int64_t j = 0; j < from.cols; ++j) {
    for (int64_t i = 0; i < from.rows; ++i) {
      to(i, j) = from(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
    }
  }
  return oracle::FromDense(to);
}

int64_t Iterations(const CscMatrix& a, const PreconditionerSpec& spec, Method method) {
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, spec, a);
  const auto r = engine->Solve(a, built.preconditioner.get(), SmoothRhs(a), {},
                               {.method = method, .rtol = 1e-9}, {});
  EXPECT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->rhs[0].outcome, Outcome::kConverged) << r->rhs[0].detail;
  return r->rhs[0].iterations;
}

TEST(BlockJacobi, TwoByTwoAndALastOneByHand) {
  // [4 2; 2 2]⁻¹ = [1/2 -1/2; -1/2 1], [8]⁻¹ = [1/8]. Columns of A M − E: (0, 0, 1/2), (0, 0,
  // -1/2), (0, 1/8, 0).
  const CscMatrix a = Rows({{4, 2, 0}, {2, 2, 1}, {1, 0, 8}});
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Blocks(2), a);
  const CscMatrix& m = built.preconditioner->matrix();
  EXPECT_EQ(built.preconditioner->kind(), EngineKind::kJacobi);
  EXPECT_THAT(m.col_ptr, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(m.row_idx, ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(m.values, ElementsAre(0.5, -0.5, -0.5, 1, 0.125));
  const Quality& q = built.quality;
  EXPECT_NEAR(q.residual_frobenius, std::sqrt(0.25 + 0.25 + 1.0 / 64), 1e-15);
  EXPECT_EQ(q.worst_column, 0);
  EXPECT_NEAR(q.residual_quantiles.front(), 0.125, 1e-15);
  EXPECT_NEAR(q.residual_quantiles.back(), 0.5, 1e-15);
  EXPECT_NEAR(q.density, 5.0 / 7, 1e-15);
}

TEST(BlockJacobi, EqualsTheOraclesInversesOfTheBlocks) {
  const auto engine = MakeCpuEngine();
  int compared = 0;
  for (const uint64_t seed : {8u, 9u}) {
    for (const oracle::NamedMatrix& named : oracle::Zoo(seed)) {
      const oracle::Dense a = oracle::ToDense(named.a);
      for (const int size : {2, 3, 5, 8, 32}) {
        SCOPED_TRACE(named.name + ", n = " + std::to_string(a.rows) + ", blocks of " +
                     std::to_string(size));
        const auto plan = engine->MakePlan(Blocks(size), named.a, nullptr, {});
        ASSERT_TRUE(plan.ok());
        const auto built = (*plan)->Build(Blocks(size), named.a, {});
        const auto expected = BlockInverses(a, size);
        if (!built.ok()) {
          EXPECT_EQ(built.status().reason(), "SINGULAR_BLOCK");
          continue;
        }
        ASSERT_TRUE(expected.has_value());
        const CscMatrix& m = built->preconditioner->matrix();
        const oracle::Dense own = oracle::ToDense(CscView(m));
        // By ‖A_kk m_k − e_k‖, in which units and conditions do not show.
        const double frobenius = oracle::SpaiFrobenius(a, own);
        EXPECT_NEAR(built->quality.residual_frobenius, frobenius, 1e-10 * (1 + frobenius));
        if (named.name.find("cale") != std::string::npos) continue;
        ++compared;
        for (int64_t j = 0; j < a.cols; ++j) {
          double norm = 0;
          for (int64_t i = 0; i < a.rows; ++i) norm = std::max(norm, std::abs((*expected)(i, j)));
          for (int64_t i = 0; i < a.rows; ++i) {
            EXPECT_NEAR(own(i, j), (*expected)(i, j), 1e-9 * norm) << i << ' ' << j;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(BlockJacobi, BlocksOfOneAreJacobiBitForBit) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomIrregular(61, 5, 4);
  const BuildResult point = MustBuild(*engine, Spec(EngineKind::kJacobi), a);
  const BuildResult one = MustBuild(*engine, Blocks(1), a);
  EXPECT_EQ(one.preconditioner->matrix().values, point.preconditioner->matrix().values);
  EXPECT_EQ(one.quality.residual_frobenius, point.quality.residual_frobenius);
  // And blocks of a diagonal matrix are its diagonal, beside stored zeros.
  CscMatrix diagonal = point.preconditioner->matrix();
  const BuildResult blocks = MustBuild(*engine, Blocks(4), diagonal);
  const oracle::Dense m = oracle::ToDense(CscView(blocks.preconditioner->matrix()));
  for (int64_t k = 0; k < 61; ++k) {
    EXPECT_DOUBLE_EQ(m(k, k), 1 / diagonal.values[static_cast<size_t>(k)]);
  }
  EXPECT_EQ(blocks.preconditioner->matrix().nnz(), 60 * 4 + 1);
}

TEST(BlockJacobi, OfABlockDiagonalMatrixIsItsInverse) {
  for (const int size : {2, 3, 7, 32}) {
    const CscMatrix a = BlockDiagonal(100, size, 5);
    const auto engine = MakeCpuEngine();
    EXPECT_LT(MustBuild(*engine, Blocks(size), a).quality.residual_frobenius, 1e-12);
    EXPECT_EQ(Iterations(a, Blocks(size), Method::kBicgstab), 1);
    EXPECT_EQ(Iterations(a, Blocks(size), Method::kGmres), 1);
  }
}

TEST(BlockJacobi, OneBlockOfAllIsTheInverse) {
  const CscMatrix a = oracle::RandomSpd(20, 5, 3);
  EXPECT_EQ(Iterations(a, Blocks(32), Method::kCg), 1);
}

TEST(BlockJacobi, OfASymmetricMatrixIsSymmetricToTheLastBitAndGoesWithCg) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::RandomSpd(103, 6, 11);
  const int64_t point = Iterations(a, Blocks(1), Method::kCg);
  for (const int size : {2, 5, 16}) {
    const BuildResult built = MustBuild(*engine, Blocks(size), a);
    const oracle::Dense m = oracle::ToDense(CscView(built.preconditioner->matrix()));
    for (int64_t j = 0; j < m.cols; ++j) {
      for (int64_t i = 0; i < j; ++i) EXPECT_EQ(m(i, j), m(j, i));
    }
    const auto method = ResolveMethod(Method::kAuto, true, Diagnose(a));
    ASSERT_TRUE(method.ok());
    EXPECT_EQ(*method, Method::kCg);
    EXPECT_LE(Iterations(a, Blocks(size), Method::kCg), point + 2);
  }
}

TEST(BlockJacobi, PermutingWithinBlocksPermutesM) {
  const CscMatrix a = oracle::RandomIrregular(22, 5, 6);
  std::vector<int64_t> order;
  for (int64_t k = 0; k < 22; ++k) {
    const int64_t first = k / 4 * 4, count = std::min<int64_t>(4, 22 - first);
    order.push_back(first + (k - first + 1) % count);
  }
  const auto engine = MakeCpuEngine();
  const auto m = MustBuild(*engine, Blocks(4), a).preconditioner;
  const auto permuted = MustBuild(*engine, Blocks(4), Permuted(a, order)).preconditioner;
  const oracle::Dense expected = oracle::ToDense(CscView(Permuted(m->matrix(), order)));
  const oracle::Dense own = oracle::ToDense(CscView(permuted->matrix()));
  for (size_t k = 0; k < own.a.size(); ++k) EXPECT_NEAR(own.a[k], expected.a[k], 1e-12);
}

TEST(BlockJacobi, ScalingAScalesM) {
  // (R A C)⁻¹ = C⁻¹ A⁻¹ R⁻¹, block by block, over many decades.
  const CscMatrix a = oracle::RandomIrregular(31, 5, 12);
  CscMatrix scaled = a;
  const auto row = [](int64_t i) { return static_cast<int>(37 * i % 200 - 100); };
  const auto column = [](int64_t j) { return static_cast<int>(91 * j % 160 - 80); };
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      scaled.values[p] = std::ldexp(a.values[p], row(a.row_idx[p]) + column(j));
    }
  }
  const auto engine = MakeCpuEngine();
  const auto plain = MustBuild(*engine, Blocks(3), a).preconditioner;
  const auto own = MustBuild(*engine, Blocks(3), scaled).preconditioner;
  const CscMatrix& m = plain->matrix();
  for (int64_t j = 0; j < m.n_cols; ++j) {
    for (int64_t p = m.col_ptr[j]; p < m.col_ptr[j + 1]; ++p) {
      const double back = std::ldexp(own->matrix().values[p], column(m.row_idx[p]) + row(j));
      EXPECT_NEAR(back, m.values[p], 1e-12);
    }
  }
}

TEST(BlockJacobi, SingularBlocksAreCountedWithTheFirst) {
  // Blocks of two: regular; zero; equal columns; regular.
  const CscMatrix a = Rows({{1, 0, 0, 0, 0, 0, 0},
                            {0, 1, 0, 0, 0, 0, 0},
                            {0, 0, 0, 0, 1, 0, 0},
                            {0, 0, 0, 0, 0, 1, 0},
                            {0, 0, 1, 0, 2, 2, 0},
                            {0, 0, 0, 1, 2, 2, 0},
                            {0, 0, 0, 0, 0, 0, 5}});
  const Status status = BuildStatus(a, 2);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "SINGULAR_BLOCK");
  EXPECT_EQ(status.field(), "values");
  EXPECT_EQ(status.index(), 1);
  EXPECT_THAT(status.message(), HasSubstr("2 of 4 diagonal blocks of 2 cannot be inverted"));
  EXPECT_THAT(status.message(), HasSubstr("block 1 (rows and columns 2 to 3)"));
  EXPECT_THAT(status.message(), HasSubstr("use another block_size, or static SPAI with row_match"));
}

TEST(BlockJacobi, ZeroDiagonalsAreNoObstacle) {
  const CscMatrix a = Rows({{0, 2, 1}, {4, 0, 0}, {0, 0, 3}});
  EXPECT_EQ(BuildStatus(a, 1).reason(), "ZERO_DIAGONAL");
  const auto engine = MakeCpuEngine();
  EXPECT_THAT(MustBuild(*engine, Blocks(2), a).preconditioner->matrix().values,
              ElementsAre(0, 0.5, 0.25, 0, 1.0 / 3));
}

TEST(BlockJacobi, NearlySingularOnesAndThoseOutOfRangeAreSaid) {
  const double eps = std::numeric_limits<double>::epsilon();
  Status status = BuildStatus(Rows({{1, 1}, {1, 1 + eps}}), 2);
  EXPECT_EQ(status.reason(), "SINGULAR_BLOCK");
  EXPECT_EQ(status.index(), 0);
  status = BuildStatus(Rows({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}), 3);
  EXPECT_EQ(status.reason(), "SINGULAR_BLOCK");
  EXPECT_THAT(status.message(), HasSubstr("block 0 (rows and columns 0 to 2)"));
  CscMatrix tiny = Rows({{1, 0}, {0, 1}});
  tiny.values[1] = std::numeric_limits<double>::denorm_min();
  status = BuildStatus(tiny, 2);
  EXPECT_EQ(status.reason(), "SINGULAR_BLOCK");
  EXPECT_THAT(status.message(), HasSubstr("leaves the range of fp64"));
  // Ill-conditioned by units alone: no obstacle.
  EXPECT_TRUE(BuildStatus(Rows({{1e-150, 0}, {0, 1e150}}), 2).ok());
}

TEST(BlockJacobi, FiguresOfEntriesBeyondTheirSquares) {
  const CscMatrix a = Rows({{1, 0, 0}, {0, 1, 0}, {3e200, 4e200, 1}});
  const auto engine = MakeCpuEngine();
  const BuildResult built = MustBuild(*engine, Blocks(2), a);
  EXPECT_NEAR(built.quality.residual_quantiles.back(), 4e200, 1e186);
  EXPECT_EQ(built.quality.worst_column, 1);
  EXPECT_EQ(built.quality.residual_quantiles.front(), 0);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
