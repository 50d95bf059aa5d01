// Shared by several tests of multigrid.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/prolongation.h"
#include "kernels/amg/scaling.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/smoothers.h"
#include "kernels/base/context.h"
#include "kernels/gallery/gallery.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/transpose.h"
#include "tests/oracle/gallery.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {

inline Context Threads(int threads) {
  return {.stop = {}, .progress = nullptr, .threads = threads};
}

using oracle::From;

// By rows: the dense matrix of a view is its transpose.
inline oracle::Dense DenseOf(const CscView& rows) {
  return oracle::Transpose(oracle::ToDense(rows));
}

// Steps of a set-up of which nothing is kept.
inline Result<UnitScaled> ScaleToUnitDiagonal(const CscView& a, bool symmetric,
                                              const Context& context) {
  KeptRows kept;
  return ScaleToUnitDiagonal(a, symmetric, kept, context);
}
inline Result<Smoothed> SmoothProlongation(const CscMatrix& filtered, const Tentative& tentative,
                                           const Context& context) {
  KeptProlongation kept;
  return SmoothProlongation(Share(filtered), tentative, kept, context);
}
inline Result<Smoother> MakeSmoother(SmootherKind kind, const CscView& a, bool symmetric,
                                     const AmgOptions& options, const Context& context) {
  KeptSmoother kept;
  return MakeSmoother(kind, a, symmetric, /*finest=*/true, options, kept, context);
}

struct Problem {
  std::string name;
  CscMatrix rows;  // by rows
  bool symmetric;
};

// Small matrices without a zero on the diagonal: regular and irregular, reducible, with hubs,
// singular, of one row, with positive couplings, not symmetric.
inline std::vector<Problem> Problems() {
  std::vector<Problem> all;
  const auto symmetric = [&](std::string name, CscMatrix a) {
    all.push_back({std::move(name), std::move(a), true});
  };
  const auto other = [&](std::string name, const CscMatrix& a) {
    all.push_back({std::move(name), Transpose(CscView(a)), false});
  };
  symmetric("one row", oracle::FromRows({{2}}));
  symmetric("a diagonal", oracle::FromRows({{2, 0, 0}, {0, 3, 0}, {0, 0, 4}}));
  symmetric("a path", oracle::Laplacian2d(40, 1));
  symmetric("a grid", oracle::Laplacian2d(13, 11));
  symmetric("hubs", From(gallery::GraphLaplacian(90)));
  symmetric("anisotropy", From(gallery::RotatedAnisotropy2d(9, 1e-3, 0.5236)));
  symmetric("badly scaled", From(gallery::BadlyScaled2d(8, 6)));
  for (uint64_t seed = 1; seed <= 4; ++seed) symmetric("random", oracle::RandomSpd(60, 5, seed));
  other("a star", oracle::Arrow(30));
  other("convection", oracle::ConvectionDiffusion(10, 9, 3.0));
  for (uint64_t seed = 1; seed <= 4; ++seed)
    other("irregular", oracle::RandomIrregular(50, 4, seed));
  other("reducible", oracle::BlockTriangular(40, 8, 3));
  return all;
}

}  // namespace spaid::kernels
