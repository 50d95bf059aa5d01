// A hierarchy's parts, and the cycle by its definition from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

using ::testing::Each;
using Vector = std::vector<double>;

// y + factor A x.
Vector Plus(Vector y, double factor, const CscView& a, const Vector& x) {
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    y[static_cast<size_t>(i)] += factor * v * x[static_cast<size_t>(j)];
  });
  return y;
}
Vector Times(const CscView& a, const Vector& x) {
  return Plus(Vector(static_cast<size_t>(a.n_rows), 0.0), 1, a, x);
}

// The cycle as the comments of AmgPart and AmgHierarchy tell it, in fp64.
class Reference {
 public:
  Reference(const AmgHierarchy& from, const AmgOptions& options, bool symmetric)
      : options_(options), symmetric_(symmetric) {
    for (const AmgPart& part : from.parts()) {
      auto matrix = from.Part(part.level, part.kind);
      EXPECT_TRUE(matrix.ok()) << matrix.status().message();
      EXPECT_EQ(matrix->n_rows, part.rows);
      EXPECT_EQ(matrix->n_cols, part.cols);
      EXPECT_EQ(matrix->nnz(), part.nnz);
      ExpectCanonical(matrix->pattern());
      if (part.kind == AmgPartKind::kSmoother) smoothers_[part.level] = part;
      matrices_[{part.level, part.kind}] = *std::move(matrix);
    }
  }

  Vector Apply(const Vector& r) const {
    const CscView scale = Get(0, AmgPartKind::kScale);
    const auto in = scale.column_values(0), out = scale.column_values(1);
    Vector scaled(r.size());
    for (size_t i = 0; i < r.size(); ++i) scaled[i] = in[i] * r[i];
    Vector z = Visit(0, scaled);
    for (size_t i = 0; i < r.size(); ++i) z[i] *= out[i];
    return z;
  }

  bool Has(int level, AmgPartKind kind) const { return matrices_.count({level, kind}) > 0; }
  const CscMatrix& Get(int level, AmgPartKind kind) const { return matrices_.at({level, kind}); }

 private:
  Vector Visit(int l, const Vector& r) const {
    if (Has(l, AmgPartKind::kCoarseInverse)) return Times(Get(l, AmgPartKind::kCoarseInverse), r);
    const CscView a = Get(l, AmgPartKind::kA);
    Vector x(r.size(), 0.0);
    if (!Has(l, AmgPartKind::kP)) {
      Smooth(l, r, false, x);
      Smooth(l, r, true, x);
      return x;
    }
    for (int sweep = 0; sweep < options_.pre_sweeps; ++sweep) Smooth(l, r, false, x);
    for (int visit = 0; visit < (options_.cycle == CycleKind::kW ? 2 : 1); ++visit) {
      const Vector below = Times(Get(l, AmgPartKind::kR), Plus(r, -1, a, x));
      x = Plus(x, 1, Get(l, AmgPartKind::kP), Visit(l + 1, below));
    }
    for (int sweep = 0; sweep < options_.post_sweeps; ++sweep) Smooth(l, r, true, x);
    return x;
  }

  void Smooth(int l, const Vector& of, bool behind, Vector& x) const {
    const CscView a = Get(l, AmgPartKind::kA), s = Get(l, AmgPartKind::kSmoother);
    const AmgPart& part = smoothers_.at(l);
    const CscMatrix st = Transpose(s);
    Vector r = Plus(of, -1, a, x);
    switch (part.smoother) {
      case SmootherKind::kFsai:
      case SmootherKind::kAfsai:
        x = Plus(x, part.omega, st, Times(s, r));
        return;
      case SmootherKind::kStaticSpai:
        x = Plus(x, 1, behind && symmetric_ ? CscView(st) : s, r);
        return;
      case SmootherKind::kChebyshev: {
        Vector d = Plus(Vector(r.size(), 0.0), 4 / (3 * part.rho), s, r);
        for (size_t i = 1; i <= part.coefficients.size(); ++i) {
          for (size_t k = 0; k < x.size(); ++k) x[k] += part.coefficients[i - 1] * d[k];
          if (i == part.coefficients.size()) return;
          r = Plus(r, -1, a, d);
          const auto order = static_cast<double>(i);
          for (double& value : d) value *= (2 * order - 1) / (2 * order + 3);
          d = Plus(d, (8 * order + 4) / ((2 * order + 3) * part.rho), s, r);
        }
        return;
      }
      default:
        x = Plus(x, 1, s, r);
    }
  }

  const AmgOptions options_;
  const bool symmetric_;
  std::map<std::pair<int, AmgPartKind>, CscMatrix> matrices_;
  std::map<int, AmgPart> smoothers_;
};

void ExpectTheSame(const CscMatrix& a, bool symmetric, AmgOptions options) {
  for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
    options.hierarchy_precision = precision;
    const AmgResult built = Build(a, symmetric, options);
    ASSERT_GE(built.quality.levels.size(), 2u);
    const Reference reference(*built.hierarchy, options, symmetric);
    const Vector r = RandomVector(a.n_cols, 5), expected = reference.Apply(r),
                 got = Applied(*built.hierarchy, r);
    double size = 0, off = 0;
    for (size_t i = 0; i < r.size(); ++i) {
      size = std::max(size, std::fabs(expected[i]));
      off = std::max(off, std::fabs(expected[i] - got[i]));
    }
    EXPECT_LE(off, (precision == Precision::kFp64 ? 1e-12 : 1e-5) * size);
  }
}

TEST(Parts, MakeTheCycle) {
  const CscMatrix spd = From(gallery::ConvectionDiffusion3d(12, 0));
  const CscMatrix other = From(gallery::ConvectionDiffusion3d(12, 20));
  for (const SmootherKind kind :
       {SmootherKind::kL1Jacobi, SmootherKind::kJacobi, SmootherKind::kChebyshev,
        SmootherKind::kFsai, SmootherKind::kAfsai, SmootherKind::kStaticSpai}) {
    for (const CycleKind cycle : {CycleKind::kV, CycleKind::kW}) {
      SCOPED_TRACE(std::string(Name(kind)) + (cycle == CycleKind::kV ? ", V" : ", W"));
      AmgOptions options = With(kind);
      options.cycle = cycle;
      options.max_coarse_size = 20;
      ExpectTheSame(spd, true, options);
      options.pre_sweeps = 2, options.post_sweeps = 1;
      ExpectTheSame(spd, true, options);
      options.pre_sweeps = 0;
      if (kind != SmootherKind::kFsai && kind != SmootherKind::kAfsai) {
        ExpectTheSame(other, false, options);
      }
    }
  }
}

TEST(Parts, MakeTheCycleOfScaledTurnedAndBlockedMatrices) {
  AmgOptions options;
  options.max_coarse_size = 40;
  ExpectTheSame(From(gallery::BadlyScaled2d(30, 6)), true, options);
  CscMatrix negative = oracle::Laplacian2d(25, 25);
  for (double& value : negative.values) value = -value;
  ExpectTheSame(negative, true, options);
  options.max_levels = 2;
  options.max_coarse_size = 1;  // the last level is smoothed
  ExpectTheSame(oracle::Laplacian2d(25, 25), true, options);
  AmgOptions blocks;
  blocks.block_size = 3;
  blocks.max_coarse_size = 40;
  ExpectTheSame(From(gallery::Elasticity3d(6)), true, blocks);
}

// R = Pᵀ, A of unit diagonal, and P takes coarse near-null vectors to fine ones up to smoothing.
TEST(Parts, AreWhatTheyAreCalled) {
  const CscMatrix a = From(gallery::BadlyScaled2d(30, 6));
  AmgOptions options = With(SmootherKind::kL1Jacobi, Precision::kFp64);
  options.max_coarse_size = 40;
  const AmgResult built = Build(a, true, options);
  const Reference parts(*built.hierarchy, options, true);
  const CscMatrix r = parts.Get(0, AmgPartKind::kR),
                  pt = Transpose(CscView(parts.Get(0, AmgPartKind::kP)));
  ASSERT_EQ(Copy(r.row_idx), Copy(pt.row_idx));
  for (size_t p = 0; p < r.values.size(); ++p) ASSERT_NEAR(r.values[p], pt.values[p], 1e-14);
  const CscView scale = parts.Get(0, AmgPartKind::kScale);
  size_t p = 0;
  const CscMatrix& scaled = parts.Get(0, AmgPartKind::kA);
  ForEntries(a, [&](int64_t i, int64_t j, double v) {
    const auto k = [](int64_t index) { return static_cast<size_t>(index); };
    const double expected = v * scale.column_values(0)[k(i)] * scale.column_values(1)[k(j)];
    ASSERT_NEAR(scaled.values[p++], expected, 1e-14);
    if (i == j) {
      ASSERT_NEAR(expected, 1, 1e-14);
    }
  });
  const CscMatrix& near = parts.Get(0, AmgPartKind::kNearNull);
  EXPECT_EQ(near.n_cols, 1);
  EXPECT_EQ(parts.Get(1, AmgPartKind::kNearNull).n_rows, built.quality.levels[1].rows);
  EXPECT_THAT(near.values, Each(1));  // Â is the Laplacian's
}

TEST(Parts, RefusesThoseThatAreNotThere) {
  const AmgResult built = Build(oracle::Laplacian2d(30, 30), true);
  ASSERT_EQ(built.quality.levels.size(), 2u);
  for (const auto& [level, kind] : {std::pair(1, AmgPartKind::kA),
                                    {1, AmgPartKind::kP},
                                    {0, AmgPartKind::kCoarseInverse},
                                    {2, AmgPartKind::kNearNull},
                                    {-1, AmgPartKind::kScale}}) {
    const auto part = built.hierarchy->Part(level, kind);
    ASSERT_FALSE(part.ok());
    EXPECT_EQ(part.status().reason(), "UNKNOWN_PART");
  }
}

}  // namespace
}  // namespace spaid::kernels
