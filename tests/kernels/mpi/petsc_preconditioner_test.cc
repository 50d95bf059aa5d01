// ParaSails, BoomerAMG and GAMG by BuildPetsc: what PETSc makes of them itself, by the options that
// are passed on, and what is told where that fails.
#include "kernels/mpi/petsc_preconditioner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/gallery/gallery.h"
#include "tests/kernels/mpi/support.h"
#include "tests/oracle/gallery.h"

namespace spaid::kernels::mpi {
namespace {

constexpr PetscMethod kMethods[] = {PetscMethod::kParasails, PetscMethod::kBoomeramg,
                                    PetscMethod::kGamg};

// 7 points a row.
CscMatrix Cube(int64_t m) { return oracle::From(gallery::ConvectionDiffusion3d(m, 0)); }

PetscBuilt Built(const SpreadMatrix& a, PetscMethod method, const PetscEngineOptions& options = {},
                 std::span<const double> near_null = {}) {
  auto built = BuildPetsc(a, method, options, near_null, {});
  EXPECT_TRUE(built.ok()) << built.status().message();
  return built.ok() ? *std::move(built) : PetscBuilt{};
}

// Solves for ones, with a guess of zero.
RhsResult SolvedBy(const SpreadMatrix& a, Mat m, const SolveOptions& options) {
  std::vector<double> b(static_cast<size_t>(a.own().size()), 1.0), x(b.size());
  auto solved = SolveSpread(a, m, b, x, options, {});
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  return solved.ok() ? *std::move(solved) : RhsResult{};
}

// The whole matrix of what multiplies, column by column, on rank 0.
std::vector<double> Dense(const SpreadMatrix& a, Mat m) {
  Vec x = nullptr, y = nullptr;
  Must(MatCreateVecs(a.rows.get(), &x, &y));
  const VecOwner own_x(x), own_y(y);
  Array<double> columns;
  for (int64_t j = 0; j < a.n; ++j) {
    Must(VecSet(x, 0));
    if (j >= a.own().begin && j < a.own().end) {
      Must(VecSetValue(x, static_cast<PetscInt>(j), 1, INSERT_VALUES));
    }
    Must(VecAssemblyBegin(x));
    Must(VecAssemblyEnd(x));
    Must(MatMult(m, x, y));
    const PetscScalar* values = nullptr;
    Must(VecGetArrayRead(y, &values));
    std::vector<Array<double>> to(static_cast<size_t>(Ranks()));
    to[0].assign(values, values + a.own().size());
    Must(VecRestoreArrayRead(y, &values));
    const Array<double> column = ExchangeAll(PETSC_COMM_WORLD, std::move(to));
    columns.insert(columns.end(), column.begin(), column.end());
  }
  return std::vector<double>(columns.begin(), columns.end());
}

// The largest difference; sums over ranks come in any order, so that bits are not those of before.
double Distance(const std::vector<double>& x, const std::vector<double>& y) {
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

TEST(PetscPreconditioner, CutsTheIterationsOfEachMethod) {
  for (const CscMatrix& whole : {Cube(12), oracle::ConvectionDiffusion(20, 20, 0.5)}) {
    const SpreadMatrix a = Spread(whole);
    const bool symmetric = whole.n_cols == 12 * 12 * 12;
    for (const PetscMethod method : kMethods) {
      PetscEngineOptions options;
      options.symmetry = symmetric ? ParasailsSymmetry::kSpd : ParasailsSymmetry::kGeneral;
      const PetscBuilt built = Built(a, method, options);
      for (const Method by : {Method::kCg, Method::kBicgstab, Method::kGmres}) {
        if (by == Method::kCg && !symmetric) continue;
        const SolveOptions solve{.method = by, .rtol = 1e-9};
        const RhsResult with = SolvedBy(a, built.m.get(), solve);
        const RhsResult without = SolvedBy(a, nullptr, solve);
        EXPECT_EQ(with.outcome, Outcome::kConverged) << with.detail;
        EXPECT_LE(with.true_relative_residual, 1e-9);
        EXPECT_LT(with.iterations, without.iterations)
            << static_cast<int>(method) << " by " << static_cast<int>(by);
      }
    }
  }
}

// On a diagonal matrix ParaSails is its inverse, and multigrid is so by its smoother, or nearly.
TEST(PetscPreconditioner, InvertsADiagonal) {
  CscMatrix whole{9, 9, {0}, {}, {}};
  for (int32_t j = 0; j < 9; ++j) {
    whole.row_idx.push_back(j);
    whole.values.push_back(1 << j);
    whole.col_ptr.push_back(j + 1);
  }
  const SpreadMatrix a = Spread(whole);
  for (const PetscMethod method : kMethods) {
    const std::vector<double> m = Dense(a, Built(a, method).m.get());
    for (size_t i = 0; i < m.size(); ++i) {
      EXPECT_NEAR(m[i], i / 9 == i % 9 ? std::ldexp(1.0, -static_cast<int>(i / 9)) : 0, 1e-12);
    }
  }
}

// CG takes it: that M is symmetric positive definite is not taken on trust.
TEST(PetscPreconditioner, IsSymmetricWhereCgTakesIt) {
  const CscMatrix whole = Cube(4);
  const SpreadMatrix a = Spread(whole);
  const auto n = static_cast<size_t>(a.n);
  for (const PetscMethod method : kMethods) {
    PetscEngineOptions options;
    options.symmetry = ParasailsSymmetry::kSpd;
    const std::vector<double> m = Dense(a, Built(a, method, options).m.get());
    for (size_t i = 0; i < m.size(); ++i) {
      EXPECT_NEAR(m[i], m[(i % n) * n + i / n], 1e-12) << static_cast<int>(method);
    }
    for (size_t i = 0; i < m.size(); i += n + 1) EXPECT_GT(m[i], 0);
  }
}

TEST(PetscPreconditioner, OptionsComeToWhereTheyBelong) {
  const SpreadMatrix a = Spread(Cube(8));
  const auto differs = [&](PetscMethod method, const PetscEngineOptions& options) {
    return Distance(Dense(a, Built(a, method).m.get()),
                    Dense(a, Built(a, method, options).m.get())) > 1e-9;
  };
  const auto expect = [&](PetscMethod method, auto member, auto value, const char* name) {
    PetscEngineOptions options;
    options.*member = value;
    const bool other = differs(method, options);
    EXPECT_TRUE(other || Rank() != 0) << name;
  };
  using O = PetscEngineOptions;
  expect(PetscMethod::kParasails, &O::levels, 0, "levels");
  expect(PetscMethod::kParasails, &O::threshold, 0.5, "threshold");
  expect(PetscMethod::kParasails, &O::filter, 0.0, "filter");
  expect(PetscMethod::kParasails, &O::symmetry, ParasailsSymmetry::kSpd, "symmetry");
  expect(PetscMethod::kBoomeramg, &O::strong_threshold, 0.95, "strong_threshold");
  for (const auto coarsening : {BoomeramgCoarsening::kFalgout, BoomeramgCoarsening::kCljp}) {
    expect(PetscMethod::kBoomeramg, &O::coarsening, coarsening, "coarsening");
  }
  for (const auto interpolation :
       {BoomeramgInterpolation::kClassical, BoomeramgInterpolation::kDirect,
        BoomeramgInterpolation::kStandard, BoomeramgInterpolation::kMultipass}) {
    expect(PetscMethod::kBoomeramg, &O::interpolation, interpolation, "interpolation");
  }
  expect(PetscMethod::kBoomeramg, &O::interpolation_entries, 1, "interpolation_entries");
  expect(PetscMethod::kBoomeramg, &O::aggressive_levels, 1, "aggressive_levels");
  expect(PetscMethod::kBoomeramg, &O::max_levels, 2, "max_levels");
  expect(PetscMethod::kGamg, &O::drop_threshold, 0.5, "drop_threshold");
  expect(PetscMethod::kGamg, &O::smooths, 0, "smooths");
  // None keeps what another one had.
  EXPECT_FALSE(differs(PetscMethod::kParasails, {}));
  EXPECT_FALSE(differs(PetscMethod::kBoomeramg, {}));
  EXPECT_FALSE(differs(PetscMethod::kGamg, {}));
}

TEST(PetscPreconditioner, GamgTellsItsLevels) {
  const SpreadMatrix a = Spread(Cube(12));
  const PetscBuilt gamg = Built(a, PetscMethod::kGamg);
  EXPECT_GE(gamg.quality.levels, 2);
  EXPECT_GT(gamg.quality.grid_complexity, 1);
  EXPECT_GT(gamg.quality.operator_complexity, 1);
  EXPECT_LT(gamg.quality.operator_complexity, 3);
  EXPECT_EQ(gamg.nnz, std::llround(gamg.quality.operator_complexity * static_cast<double>(a.nnz)));
  const PetscBuilt boomer = Built(a, PetscMethod::kBoomeramg);
  EXPECT_EQ(boomer.quality.levels, 0);
  EXPECT_EQ(boomer.nnz, 0);
  EXPECT_GE(boomer.bytes, 12 * a.columns.nnz());
}

TEST(PetscPreconditioner, NearNullVectorsReachGamg) {
  const SpreadMatrix a = Spread(Cube(8));
  const auto own = static_cast<size_t>(a.own().size());
  std::vector<double> ones(own, 3.0), wild(own);
  for (size_t i = 0; i < own; ++i) {
    wild[i] = 2 + std::sin(7.0 * static_cast<double>(static_cast<size_t>(a.own().begin) + i));
  }
  const auto with = [&](std::span<const double> near_null) {
    return Dense(a, Built(a, PetscMethod::kGamg, {}, near_null).m.get());
  };
  const std::vector<double> standard = with({});
  EXPECT_LT(Distance(with(ones), standard), 1e-9) << "constants are what it takes itself";
  const double by_wild = Distance(with(wild), standard);
  EXPECT_TRUE(Rank() != 0 || by_wild > 1e-3) << by_wild;
  EXPECT_LT(Distance(with({}), standard), 1e-9) << "the vectors of one are gone for the next one";

  std::vector<double> twice(ones);
  twice.insert(twice.end(), ones.begin(), ones.end());
  if (own > 0) {
    ExpectRefused(BuildPetsc(a, PetscMethod::kGamg, {}, twice, {}).status(),
                  StatusCode::kInvalidArgument, "RANK_DEFICIENT", "near_null_space", 1);
  }
}

TEST(PetscPreconditioner, ASetUpThatFailsIsToldAndTheNextOneIsMade) {
  CscMatrix whole = oracle::Laplacian2d(12, 12);
  for (int64_t j = 0; j < whole.n_cols; ++j) {  // row and column 70 store zeros
    for (int64_t p = whole.col_ptr[static_cast<size_t>(j)];
         p < whole.col_ptr[static_cast<size_t>(j) + 1]; ++p) {
      if (j == 70 || whole.row_idx[static_cast<size_t>(p)] == 70) {
        whole.values[static_cast<size_t>(p)] = 0;
      }
    }
  }
  const SpreadMatrix singular = Spread(whole), a = Spread(oracle::Laplacian2d(12, 12));
  PetscEngineOptions options;
  options.symmetry = ParasailsSymmetry::kSpd;
  for (int again = 0; again < 2; ++again) {
    ExpectRefused(BuildPetsc(singular, PetscMethod::kParasails, options, {}, {}).status(),
                  StatusCode::kFailedPrecondition, "SET_UP_FAILED", "values");
    for (const PetscMethod method : kMethods) {
      EXPECT_EQ(SolvedBy(a, Built(a, method, options).m.get(), {.method = Method::kCg}).outcome,
                Outcome::kConverged);
    }
  }
}

// Matrices of each difficulty: an outcome, judged by the residual, or an error; nothing else.
TEST(PetscPreconditioner, EveryMatrixOfTheZooEndsInAnOutcome) {
  int converged = 0;
  for (const oracle::NamedMatrix& entry : oracle::Zoo(3)) {
    const SpreadMatrix a = Spread(entry.a);
    for (const PetscMethod method : kMethods) {
      auto built = BuildPetsc(a, method, {}, {}, {});
      if (!built.ok()) {
        const std::string reason = built.status().reason();
        EXPECT_TRUE(reason == "SET_UP_FAILED" || reason == "ZERO_DIAGONAL") << entry.name;
        continue;
      }
      const RhsResult solved = SolvedBy(
          a, built->m.get(), {.method = Method::kGmres, .rtol = 1e-8, .max_iterations = 300});
      if (solved.outcome != Outcome::kConverged) continue;
      ++converged;
      EXPECT_LE(solved.true_relative_residual, 1e-8) << entry.name;
    }
  }
  EXPECT_GT(converged, 20);
}

TEST(PetscPreconditioner, FewerRowsThanRanks) {
  for (const int64_t n : {1, 2, 3}) {
    const SpreadMatrix a = Spread(oracle::Laplacian2d(n, 1));
    for (const PetscMethod method : kMethods) {
      const RhsResult solved = SolvedBy(a, Built(a, method).m.get(), {.method = Method::kGmres});
      EXPECT_EQ(solved.outcome, Outcome::kConverged) << n << ", " << solved.detail;
    }
  }
}

TEST(PetscPreconditioner, RefusesOnAllRanksWhatOneFinds) {
  const SpreadMatrix a = Spread(oracle::Laplacian2d(6, 7));
  PetscEngineOptions options;
  options.filter = 1;
  ExpectRefused(BuildPetsc(a, PetscMethod::kParasails, options, {}, {}).status(),
                StatusCode::kInvalidArgument, "BAD_PETSC_OPTION", "filter");
  StopSource cancelled;
  if (Rank() == 0) cancelled.Request(StopReason::kCancelled);
  EXPECT_EQ(BuildPetsc(a, PetscMethod::kGamg, {}, {}, {.stop = cancelled.token()}).status().code(),
            StatusCode::kCancelled);
  if (Ranks() > 1) {
    options.filter = Rank() == 1 ? 0.2 : 0.1;
    ExpectRefused(BuildPetsc(a, PetscMethod::kParasails, options, {}, {}).status(),
                  StatusCode::kInvalidArgument, "OPTIONS_DIFFER", "options");
    const PetscMethod method = Rank() == 1 ? PetscMethod::kGamg : PetscMethod::kBoomeramg;
    ExpectRefused(BuildPetsc(a, method, {}, {}, {}).status(), StatusCode::kInvalidArgument,
                  "OPTIONS_DIFFER", "options");
    const std::vector<double> ones(Rank() == 1 ? static_cast<size_t>(a.own().size()) : 0, 1.0);
    ExpectRefused(BuildPetsc(a, PetscMethod::kGamg, {}, ones, {}).status(),
                  StatusCode::kInvalidArgument, "BAD_NEAR_NULL_SPACE", "near_null_space");
  }
}

}  // namespace
}  // namespace spaid::kernels::mpi
