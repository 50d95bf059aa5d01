// Singular systems: by hand, against dense least squares, and what a projection promises.
#include "kernels/krylov/null_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels::krylov_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Space = std::shared_ptr<const NullSpace>;

constexpr Method kMethods[] = {Method::kCg, Method::kMinres, Method::kBicgstab, Method::kGmres,
                               Method::kIdr};

Space Find(const CscView& a, const NullSpaceRequest& request = {}) {
  auto space = MakeNullSpace(a, Diagnose(a), request);
  EXPECT_TRUE(space.ok()) << space.status().message();
  return space.ok() ? *space : nullptr;
}

Space Given(const CscView& a, const Vector& vectors) {
  return Find(a, {.choice = NullSpaceChoice::kGiven, .vectors = vectors});
}

SolveOptions With(const Space& space, Method method, double rtol = 1e-10) {
  return {.method = method, .rtol = rtol, .null_space = space.get()};
}

double Dot(std::span<const double> x, std::span<const double> y) {
  long double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<long double>(x[i]) * y[i];
  return static_cast<double>(sum);
}

void Orthonormalise(std::vector<Vector>& vectors) {
  for (size_t k = 0; k < vectors.size(); ++k) {
    for (int twice = 0; twice < 2; ++twice) {
      for (size_t j = 0; j < k; ++j) {
        const double dot = Dot(vectors[k], vectors[j]);
        for (size_t i = 0; i < vectors[k].size(); ++i) vectors[k][i] -= dot * vectors[j][i];
      }
    }
    const double norm = Norm(vectors[k]);
    for (double& v : vectors[k]) v /= norm;
  }
}

std::vector<Vector> RandomOrthonormal(int64_t n, int count, uint64_t seed) {
  std::vector<Vector> vectors;
  for (int k = 0; k < count; ++k) {
    vectors.push_back(RandomVector(n, seed + static_cast<uint64_t>(k)));
  }
  Orthonormalise(vectors);
  return vectors;
}

Vector Columns(const std::vector<Vector>& vectors) {
  Vector all;
  for (const Vector& v : vectors) all.insert(all.end(), v.begin(), v.end());
  return all;
}

void TakeOut(const std::vector<Vector>& vectors, Vector& v) {
  for (const Vector& z : vectors) {
    const double dot = Dot(z, v);
    for (size_t i = 0; i < v.size(); ++i) v[i] -= dot * z[i];
  }
}

// (E − W Wᵀ) B (E − Z Zᵀ).
CscMatrix Projected(const oracle::Dense& b, const std::vector<Vector>& left,
                    const std::vector<Vector>& right, int64_t n) {
  const auto projector = [n](const std::vector<Vector>& vectors) {
    oracle::Dense p = oracle::Identity(n);
    for (const Vector& v : vectors) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          p(i, j) -= v[static_cast<size_t>(i)] * v[static_cast<size_t>(j)];
        }
      }
    }
    return p;
  };
  return oracle::FromDense(
      oracle::Multiply(projector(left), oracle::Multiply(b, projector(right))));
}

// Convection and diffusion on a ring: rows and columns sum to zero. With
// `closed` its ends are not joined but reflect: rows alone sum to zero.
CscMatrix Ring(int64_t n, double wind, bool closed = false) {
  oracle::Dense a = oracle::Identity(n);
  for (int64_t i = 0; i < n; ++i) {
    a(i, i) = 0;
    const auto add = [&](int64_t j, double v) {
      if (closed && (j < 0 || j >= n)) return;
      a(i, (j + n) % n) -= v;
      a(i, i) += v;
    };
    add(i - 1, 1 + wind);
    add(i + 1, 1);
  }
  return oracle::FromDense(a);
}

TEST(NullSpace, TwoByTwoByHand) {
  const CscMatrix a = Rows({{1, -1}, {-1, 1}});
  const Space space = Find(a);
  ASSERT_NE(space, nullptr);
  EXPECT_EQ(space->what(), "constants");
  for (const Method method : kMethods) {
    const SolveOptions options = With(space, method);
    SolveResult r = MustSolve(a, nullptr, Vector{1, -1}, options);
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << Name(method) << r.rhs[0].detail;
    EXPECT_NEAR(r.x[0], 0.5, 1e-15) << Name(method);
    EXPECT_NEAR(r.x[1], -0.5, 1e-15) << Name(method);
    EXPECT_NEAR(r.rhs[0].unreachable, 0, 1e-16);
    EXPECT_FALSE(r.rhs[0].beyond_reach);
    EXPECT_THAT(r.rhs[0].detail, IsEmpty());

    // b = (2, −2) + (1, 1): √2 of √10 cannot be reached.
    r = MustSolve(a, nullptr, Vector{3, -1}, options);
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated) << Name(method);
    EXPECT_NEAR(r.x[0], 1, 1e-15) << Name(method);
    EXPECT_NEAR(r.x[1], -1, 1e-15) << Name(method);
    EXPECT_NEAR(r.rhs[0].unreachable, std::sqrt(0.2), 1e-15);
    EXPECT_TRUE(r.rhs[0].beyond_reach);
    EXPECT_NEAR(r.rhs[0].true_residual, std::sqrt(2.0), 1e-15);
    EXPECT_NEAR(r.rhs[0].true_relative_residual, std::sqrt(0.2), 1e-15);
    EXPECT_THAT(r.rhs[0].detail,
                HasSubstr("b has a part of relative size 0.447 that no x reaches (along the null "
                          "space of Aᵀ); the rest is solved to"));

    // Nothing of it can be reached: no noise is solved for.
    r = MustSolve(a, nullptr, Vector{5, 5}, options);
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated) << Name(method);
    EXPECT_EQ(r.rhs[0].iterations, 0);
    EXPECT_EQ(r.rhs[0].unreachable, 1);
    EXPECT_EQ(r.x[0], 0);
    EXPECT_THAT(r.rhs[0].detail, HasSubstr("relative size 1 that no x reaches"));

    // Within the caller's tolerance it is solved.
    r = MustSolve(a, nullptr, Vector{3, -1}, With(space, method, 0.5));
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << Name(method) << r.rhs[0].detail;
    EXPECT_LE(r.rhs[0].true_relative_residual, 0.5);
    EXPECT_FALSE(r.rhs[0].beyond_reach);
  }
}

TEST(NullSpace, RoundingOfBIsNotBeyondReach) {
  const CscMatrix a = Ring(50, 0.3);
  const Space space = Find(a);
  const Vector b = Product(a, RandomVector(50, 4));
  const SolveResult r = MustSolve(a, nullptr, b, With(space, Method::kGmres, 1e-300));
  EXPECT_FALSE(r.rhs[0].beyond_reach);
  EXPECT_GT(r.rhs[0].unreachable, 0);
  EXPECT_NE(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_LE(r.rhs[0].true_relative_residual, 1e-14);
}

TEST(NullSpace, TheGuessKeepsNothingOfIt) {
  const CscMatrix a = Rows({{1, -1}, {-1, 1}});
  const Space space = Find(a);
  const SolveResult r =
      MustSolve(a, nullptr, Vector{1, -1}, With(space, Method::kCg), Vector{100.5, 99.5});
  EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged);
  EXPECT_EQ(r.rhs[0].iterations, 0);
  EXPECT_NEAR(r.x[0], 0.5, 1e-13);
  EXPECT_NEAR(r.x[1], -0.5, 1e-13);
}

TEST(NullSpace, BeyondTheRangeOfSquares) {
  const CscMatrix a = Rows({{1, -1}, {-1, 1}});
  const Space space = Find(a);
  for (const double scale : {1e-200, 1e200}) {
    const SolveResult r =
        MustSolve(a, nullptr, Vector{3 * scale, -scale, scale, -scale}, With(space, Method::kCg));
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated);
    EXPECT_NEAR(r.x[0] / scale, 1, 1e-14);
    EXPECT_NEAR(r.rhs[0].unreachable, std::sqrt(0.2), 1e-14);
    EXPECT_EQ(r.rhs[1].outcome, Outcome::kConverged) << r.rhs[1].detail;
    EXPECT_NEAR(r.x[2] / scale, 0.5, 1e-14);
  }
}

TEST(NullSpace, SymmetricSystemsAreLeastSquaresOfLeastNorm) {
  constexpr int64_t kN = 24;
  for (const int count : {1, 2, 5}) {
    const std::vector<Vector> z = RandomOrthonormal(kN, count, 31);
    const CscMatrix a = Projected(oracle::ToDense(oracle::RandomSpd(kN, 6, 5)), z, z, kN);
    const Vector mixed = [&] {  // any basis of it will do
      std::vector<Vector> basis = z;
      for (size_t i = 0; i < basis[0].size(); ++i) {
        for (size_t k = 1; k < basis.size(); ++k) basis[k][i] = 1e3 * basis[k][i] + basis[0][i];
      }
      return Columns(basis);
    }();
    const Space space = Given(a, mixed);
    ASSERT_NE(space, nullptr);
    const Vector b = RandomVector(kN, 7);
    Vector least = oracle::LeastSquares(oracle::ToDense(a), b, 1e-10);
    TakeOut(z, least);
    Vector reached = b;
    TakeOut(z, reached);
    Vector diagonal = DiagonalOf(a);
    for (double& d : diagonal) d = 1 / d;
    const DiagonalOperator jacobi(diagonal);
    for (const Method method : kMethods) {
      for (const LinearOperator* m : {static_cast<const LinearOperator*>(nullptr),
                                      static_cast<const LinearOperator*>(&jacobi)}) {
        const std::string what = Name(method) + (m != nullptr ? ", Jacobi" : "");
        SolveResult r = MustSolve(a, m, b, With(space, method, 1e-11));
        EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated) << what;
        EXPECT_NEAR(r.rhs[0].true_residual,
                    oracle::LeastSquaresResidual(oracle::ToDense(a), b, 1e-10), 1e-9)
            << what << r.rhs[0].detail;
        EXPECT_NEAR(r.rhs[0].unreachable * Norm(b), r.rhs[0].true_residual, 1e-9) << what;
        for (size_t i = 0; i < least.size(); ++i) EXPECT_NEAR(r.x[i], least[i], 1e-8) << what;

        r = MustSolve(a, m, reached, With(space, method, 1e-11));
        EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << what << r.rhs[0].detail;
        for (size_t i = 0; i < least.size(); ++i) EXPECT_NEAR(r.x[i], least[i], 1e-8) << what;
      }
    }
  }
}

TEST(NullSpace, OfANonsymmetricMatrixTheLeftOneMayBeUnknown) {
  constexpr int64_t kN = 20;
  const std::vector<Vector> right = RandomOrthonormal(kN, 2, 41),
                            left = RandomOrthonormal(kN, 2, 43);
  const CscMatrix a =
      Projected(oracle::ToDense(oracle::RandomIrregular(kN, 5, 9)), left, right, kN);
  const Space space = Given(a, Columns(right));
  ASSERT_NE(space, nullptr);
  EXPECT_EQ(space->right().size(), 2u);
  EXPECT_TRUE(space->left().empty());
  const Vector b = Product(a, RandomVector(kN, 3));
  Vector least = oracle::LeastSquares(oracle::ToDense(a), b, 1e-10);
  TakeOut(right, least);
  for (const Method method : {Method::kBicgstab, Method::kGmres, Method::kIdr}) {
    const SolveResult r = MustSolve(a, nullptr, b, With(space, method, 1e-11));
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << Name(method) << r.rhs[0].detail;
    EXPECT_EQ(r.rhs[0].unreachable, 0);
    for (size_t i = 0; i < least.size(); ++i) EXPECT_NEAR(r.x[i], least[i], 1e-7) << Name(method);
  }
}

TEST(NullSpace, VectorsOfBothSidesCountForBoth) {
  constexpr int64_t kN = 20;
  const std::vector<Vector> z = RandomOrthonormal(kN, 2, 51);
  const CscMatrix a = Projected(oracle::ToDense(oracle::RandomIrregular(kN, 5, 9)), z, z, kN);
  const Space space = Given(a, Columns(z));
  ASSERT_NE(space, nullptr);
  EXPECT_EQ(space->left().size(), 2u);
  const Vector b = RandomVector(kN, 3);
  for (const Method method : {Method::kBicgstab, Method::kGmres, Method::kIdr}) {
    const SolveResult r = MustSolve(a, nullptr, b, With(space, method, 1e-11));
    EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated) << Name(method);
    EXPECT_NEAR(r.rhs[0].true_residual, oracle::LeastSquaresResidual(oracle::ToDense(a), b, 1e-10),
                1e-8)
        << Name(method) << r.rhs[0].detail;
  }
}

// Checks what a projection promises: x is orthogonal to the right vectors, and b − A x has along
// the left ones what b has.
void ExpectProjected(const CscView& a, const NullSpace& space, const Vector& b,
                     const SolveResult& r, const std::string& what) {
  const Vector x(r.x.begin(), r.x.end());
  for (const Array<double>& z : space.right()) {
    EXPECT_LE(std::abs(Dot(z, x)), 1e-14 * Norm(x)) << what;
  }
  Vector residual = Product(a, x);
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = b[i] - residual[i];
  for (const Array<double>& w : space.left()) {
    EXPECT_NEAR(Dot(w, residual), Dot(w, b), 1e-11 * Norm(b)) << what;
  }
}

TEST(NullSpace, ConstantsAreFoundOnEitherSide) {
  struct Case {
    std::string name;
    CscMatrix a;
    size_t right, left;
  };
  const auto transposed = [](const CscMatrix& a) {
    return oracle::FromDense(oracle::Transpose(oracle::ToDense(a)));
  };
  const CscMatrix open = Ring(60, 0.5, /*closed=*/true);
  const Case cases[] = {{"Neumann", Neumann(60), 1, 1},
                        {"ring", Ring(60, 0.5), 1, 1},
                        {"reflecting ends", open, 1, 0},
                        // Columns sum to zero: the generator of a Markov chain.
                        {"chain", transposed(open), 0, 1}};
  for (const Case& c : cases) {
    const Space space = Find(c.a);
    ASSERT_NE(space, nullptr) << c.name;
    EXPECT_EQ(space->right().size(), c.right) << c.name;
    EXPECT_EQ(space->left().size(), c.left) << c.name;
    Vector diagonal = DiagonalOf(c.a);
    for (double& d : diagonal) d = 1 / d;
    const DiagonalOperator jacobi(diagonal);
    const Vector consistent = Product(c.a, RandomVector(60, 1));
    Vector inconsistent = consistent;
    for (double& v : inconsistent) v += 0.1;
    for (const Method method : kMethods) {
      if (ForSymmetric(method) && c.name != "Neumann") continue;
      const std::string what = c.name + ", " + Name(method);
      const SolveOptions options = With(space, method, 1e-9);
      SolveResult r = MustSolve(c.a, &jacobi, consistent, options);
      EXPECT_EQ(r.rhs[0].outcome, Outcome::kConverged) << what << ": " << r.rhs[0].detail;
      ExpectProjected(c.a, *space, consistent, r, what);
      ExpectHonest(c.a, consistent, options, r, what);
      if (c.left == 0) continue;
      r = MustSolve(c.a, &jacobi, inconsistent, options);
      EXPECT_EQ(r.rhs[0].outcome, Outcome::kStagnated) << what;
      EXPECT_THAT(r.rhs[0].detail, HasSubstr("the rest is solved to")) << what;
      EXPECT_NEAR(r.rhs[0].unreachable * Norm(inconsistent), 0.1 * std::sqrt(60.0), 1e-12) << what;
      ExpectProjected(c.a, *space, inconsistent, r, what);
    }
  }
}

TEST(NullSpace, NothingIsFoundWhereNothingIs) {
  EXPECT_EQ(Find(oracle::Laplacian2d(5, 5)), nullptr);
  EXPECT_EQ(Find(Neumann(5), {.choice = NullSpaceChoice::kNone}), nullptr);
}

// As Neumann(n), without a dense matrix on the way.
CscMatrix LongNeumann(int64_t n) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = std::max<int64_t>(0, j - 1); i <= std::min(n - 1, j + 1); ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i != j ? -1 : j == 0 || j == n - 1 ? 1 : 2);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

TEST(NullSpace, TheSameBitsForAnyNumberOfThreads) {
  const CscMatrix a = LongNeumann(70000);
  const Space space = Find(a);
  const Vector b = RandomVector(70000, 2);
  SolveOptions options = With(space, Method::kMinres);
  options.max_iterations = 5;
  const SolveResult one = MustSolve(a, nullptr, b, options, {}, {.threads = 1});
  const SolveResult three = MustSolve(a, nullptr, b, options, {}, {.threads = 3});
  EXPECT_EQ(one.x, three.x);
  EXPECT_EQ(one.rhs[0].true_residual, three.rhs[0].true_residual);
  EXPECT_EQ(one.rhs[0].outcome, Outcome::kMaxIterations);
  EXPECT_THAT(one.rhs[0].detail, HasSubstr("the rest is left at"));
}

TEST(NullSpace, IsCarriedToAScaledMatrix) {
  const CscMatrix a = Ring(12, 0.5);
  const Space space = Find(a);
  Scaling s;
  s.kind = ScalingMode::kMatching;
  for (int i = 0; i < 12; ++i) {
    s.row.push_back(std::ldexp(1.0, i % 5));
    s.column.push_back(std::ldexp(1.0, -(i % 3)));
    s.column_of_row.push_back((5 * i + 1) % 12);
  }
  auto scaled = ScaledMatrix(a, s, {});
  ASSERT_TRUE(scaled.ok());
  const Space carried = ScaledNullSpace(*space, s, *scaled);
  ASSERT_NE(carried, nullptr);
  EXPECT_TRUE(carried->IsOf(*scaled));
  EXPECT_FALSE(carried->IsOf(a));
  EXPECT_LE(Norm(Product(*scaled, carried->right()[0])), 1e-14);
  const CscMatrix transposed = oracle::FromDense(oracle::Transpose(oracle::ToDense(*scaled)));
  EXPECT_LE(Norm(Product(transposed, carried->left()[0])), 1e-14);
}

void ExpectRefused(const CscView& a, const NullSpaceRequest& request, const std::string& reason,
                   int64_t index, const std::string& text) {
  const auto space = MakeNullSpace(a, Diagnose(a), request);
  ASSERT_FALSE(space.ok()) << reason;
  EXPECT_EQ(space.status().reason(), reason);
  EXPECT_EQ(space.status().field(), "null_space");
  EXPECT_EQ(space.status().index(), index);
  EXPECT_THAT(space.status().message(), HasSubstr(text));
}

TEST(NullSpace, Refusals) {
  const CscMatrix a = Neumann(4);
  const auto given = [](const Vector& v) {
    return NullSpaceRequest{.choice = NullSpaceChoice::kGiven, .vectors = v};
  };
  const Vector five(5, 1.0), many(4 * 33, 1.0), nan{1, 1, std::nan(""), 1}, zero(4, 0.0);
  const Vector twice{1, 1, 1, 1, 2, 2, 2, 2}, other{1, 1, 1, 1, 1, 1, 1, 1.001};
  ExpectRefused(a, given({}), "BAD_NULL_SPACE", -1, "1 to 32 vectors of n = 4");
  ExpectRefused(a, given(five), "BAD_NULL_SPACE", -1, "has 5 values");
  ExpectRefused(a, given(many), "BAD_NULL_SPACE", -1, "has 132 values");
  ExpectRefused(a, given(nan), "NON_FINITE_VALUE", 2, "row 2 of vector 0");
  ExpectRefused(a, given(zero), "BAD_NULL_SPACE", 0, "is zero");
  ExpectRefused(a, given(twice), "BAD_NULL_SPACE", 1, "depends on the vectors before it");
  ExpectRefused(a, given(other), "NOT_IN_NULL_SPACE", 1, "|A z| is 0.000177 of |A| |z|");
  ExpectRefused(oracle::Laplacian2d(3, 3), {.choice = NullSpaceChoice::kConstants},
                "NOT_IN_NULL_SPACE", 0, "constants: vector 0");
  // Another size than the matrix that is solved.
  const Space space = Find(a);
  const CscMatrix small = Neumann(3);
  const auto solved = SolveHere(small, nullptr, Vector{1, 0, -1}, {}, With(space, Method::kCg), {});
  ASSERT_FALSE(solved.ok());
  EXPECT_EQ(solved.status().reason(), "BAD_NULL_SPACE");
}

TEST(NullSpace, IsTheHostsAlone) {
  const Space space = Find(Neumann(4));
  EXPECT_THAT(std::string(HostAlone(With(space, Method::kCg))), HasSubstr("null space"));
  EXPECT_THAT(std::string(HostAlone({.method = Method::kCg})), IsEmpty());
}

TEST(NullSpace, ValuesAtTheEndsOfTheRange) {
  for (const double scale : {1e-300, 1e300}) {
    const CscMatrix a = Rows({{scale, -scale}, {-scale, scale}});
    const Vector ones{1e10, 1e10}, other{1, 2};
    EXPECT_NE(Given(a, ones), nullptr) << scale;
    ExpectRefused(a, {.choice = NullSpaceChoice::kGiven, .vectors = other}, "NOT_IN_NULL_SPACE", 0,
                  "|A z| is 0.316");
  }
}

}  // namespace
}  // namespace spaid::kernels::krylov_test
