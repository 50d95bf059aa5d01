// Hierarchies that tests build, apply and solve with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/operators.h"
#include "tests/kernels/amg/problems.h"

namespace spaid::kernels {

inline AmgResult Build(const CscMatrix& a, bool symmetric, AmgOptions options = {},
                       const NearNullInput& near = {}, int threads = 2) {
  auto built = BuildAmg(a, symmetric, near, options, Threads(threads));
  EXPECT_TRUE(built.ok()) << built.status().message();
  return *std::move(built);
}

inline std::vector<double> Applied(const AmgHierarchy& m, std::span<const double> r,
                                   int threads = 2) {
  std::vector<double> z(r.size());
  m.Apply(r, z, threads);
  return z;
}

inline std::vector<double> RandomVector(int64_t n, uint64_t seed) {
  oracle::Random random(seed);
  std::vector<double> x(static_cast<size_t>(n));
  for (double& value : x) value = random.Uniform(-1, 1);
  return x;
}

inline double Dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Iterations to 1e-7 with b = A x, x random.
inline int64_t Iterations(const CscMatrix& a, bool symmetric, const AmgHierarchy& m,
                          double rtol = 1e-7) {
  const CsrOperator op = CsrOperator::FromColumns(a);
  std::vector<double> b(static_cast<size_t>(a.n_cols));
  op.Apply(RandomVector(a.n_cols, 1), b, 2);
  SolveOptions options{
      .method = symmetric ? Method::kCg : Method::kBicgstab, .rtol = rtol, .max_iterations = 500};
  const auto solved = Solve(op, &m, b, {}, options, Threads(2));
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
  return solved->rhs[0].iterations;
}

struct Nodes {
  std::vector<double> xyz;
  NearNullInput input() const {
    return {.vectors = {}, .count = 0, .coordinates = xyz, .dimension = 3};
  }
};
inline Nodes NodesOfElasticity(int64_t m) {
  Nodes nodes;
  for (int k = 0; k < 3; ++k) {
    for (int64_t z = 0; z < m; ++z) {
      for (int64_t y = 0; y < m; ++y) {
        for (int64_t x = 1; x < m; ++x)
          nodes.xyz.push_back(static_cast<double>(k == 0 ? x : k == 1 ? y : z));
      }
    }
  }
  return nodes;
}

inline AmgOptions With(SmootherKind kind, Precision precision = Precision::kFp32) {
  AmgOptions options;
  options.smoother = kind;
  options.hierarchy_precision = precision;
  return options;
}

}  // namespace spaid::kernels
