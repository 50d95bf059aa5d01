// Algebraic multigrid by smoothed aggregation: M is one cycle on a hierarchy A_0 = A, A_{l+1} = R_l
// A_l P_l, with the smoothers of this house (Vaněk, Mandel, Brezina, Computing 56 (1996); for R of
// an A that is not symmetric Sala, Tuminaro, SISC 31 (2008)).
//
//   Result<AmgResult> built = BuildAmg(a, /*symmetric=*/true, {}, options, context);
//   built->hierarchy->Apply(r, z, threads);   // z = M r
//   Result<AmgResult> again = RebuildAmg(*built->hierarchy, a2, {}, options, context);  // other
//   values
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/amg/scaling.h"
#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/precision.h"
#include "kernels/base/status.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

enum class Coarsening { kSmoothedAggregation, kPlainAggregation };
enum class SmootherKind { kAuto, kL1Jacobi, kJacobi, kChebyshev, kFsai, kAfsai, kStaticSpai };
enum class CycleKind { kV, kW };

std::string_view Name(SmootherKind kind);

struct AmgOptions {
  Coarsening coarsening = Coarsening::kSmoothedAggregation;
  double strength_threshold = 0.25;  // θ: 0 <= θ < 1
  int block_size = 1;                // unknowns of a node, consecutive: 1 .. 8
  SmootherKind smoother = SmootherKind::kAuto;
  int pre_sweeps = 1, post_sweeps = 1;  // 0 .. 4, not both 0; M is symmetric where they are equal
  int chebyshev_degree = 2;             // 1 .. 4
  CycleKind cycle = CycleKind::kV;
  int max_levels = 20;
  int64_t max_coarse_size = 500;       // rows that are inverted
  double max_growth = 0.7;             // of entries, level to level: over it P is not smoothed
  double max_operator_complexity = 3;  // entries of all levels over those of A
  // Precision of the cycle, its vectors and arithmetic. kAuto: kFp32, or kFp64 where A is neither
  // symmetric nor nearly dominant.
  Precision hierarchy_precision = Precision::kAuto;
  FsaiOptions fsai = {.k_max = 3, .s = 2, .epsilon = 1e-3};
  StaticSpaiOptions static_spai = {};
};

struct AmgLevelQuality {
  int64_t rows = 0, nnz = 0;
  int64_t aggregates = 0, isolated = 0;  // 0 on the last level
  bool guarded = false;                  // P was not smoothed, for A would have grown
  double rho = 0;                        // of P's smoother
  int64_t nnz_p = 0;
  int64_t nnz_smoother = 0;  // of G or M
};

struct AmgQuality {
  std::vector<AmgLevelQuality> levels;
  SmootherKind smoother = SmootherKind::kL1Jacobi;
  Precision precision = Precision::kFp32;
  double operator_complexity = 1, grid_complexity = 1;
  double near_null_rayleigh = 0;  // cᵀÂc / cᵀc of the near-null vectors: small where they are that
  double beta = 0;                // max_i Σ_j |a_ij| / |a_ii|
  int64_t singular_coarse_pivots = 0;
  bool inverted = true;  // the last level; else it is smoothed alone
  bool reused = false;   // aggregates of other values
};

// Immutable but for spare vectors; thread-safe.
class AmgHierarchy : public LinearOperator {
 public:
  virtual int64_t host_bytes() const = 0;
  virtual bool symmetric() const = 0;  // M is symmetric positive definite: for CG
};

// All that was decided from the first values, and serves others on the pattern: strong couplings,
// aggregates, guards, patterns that smoothers grew. Immutable; thread-safe.
struct AmgPlan;  // amg_plan.h
int64_t HostBytes(const AmgPlan& plan);

struct AmgResult {
  std::shared_ptr<const AmgHierarchy> hierarchy;
  std::shared_ptr<const AmgPlan> plan;
  AmgQuality quality;
};

// `a`: square, canonical, by columns. `symmetric`: but for rounding. `options` are in the ranges
// beside their members, block_size divides n; nobody checks that yet. Reports progress in levels.
// Errors: those of ScaleToUnitDiagonal and MakeNearNull; FAILED_PRECONDITION/NO_COARSE_LEVEL where
// no coupling is strong and A is larger than max_coarse_size, /FLOAT32_OVERFLOW; stop statuses;
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY. The same bits for any number of threads.
Result<AmgResult> BuildAmg(const CscView& a, bool symmetric, const NearNullInput& near_null,
                           const AmgOptions& options, const Context& context);

// The same of a matrix with the pattern of the plan's, on its aggregates: with the plan's own
// values the same bits. Errors besides: INVALID_ARGUMENT/PLAN_MISMATCH.
Result<AmgResult> RebuildAmg(std::shared_ptr<const AmgPlan> plan, const CscView& a,
                             const NearNullInput& near_null, const Context& context);

}  // namespace spaid::kernels
