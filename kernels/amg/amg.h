// Algebraic multigrid: M is one cycle on a hierarchy A_0 = A, A_{l+1} = R_l A_l P_l, with the
// smoothers of this house. By smoothed aggregation (Vaněk, Mandel, Brezina, Computing 56 (1996);
// for R of an A that is not symmetric Sala, Tuminaro, SISC 31 (2008)), or classical (classical.h).
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
#include <variant>
#include <vector>

#include "kernels/amg/scaling.h"
#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/precision.h"
#include "kernels/base/status.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

inline constexpr int kMostUnknowns = 8;  // of a node

enum class Coarsening { kSmoothedAggregation, kPlainAggregation, kClassical };
enum class SmootherKind { kAuto, kL1Jacobi, kJacobi, kChebyshev, kFsai, kAfsai, kStaticSpai };
enum class CycleKind { kV, kW };

std::string_view Name(SmootherKind kind);

// Unknowns of a node by the pattern alone: the largest b of 6, 4, 3, 2 that divides n, where the
// columns of 9 of 10 nodes have the same rows, those of whole nodes, and not their own alone; else
// 1. O(nnz). Thread-safe.
int DetectBlockSize(const PatternView& a, int threads = 1);

struct AmgOptions {
  Coarsening coarsening = Coarsening::kSmoothedAggregation;
  double strength_threshold = 0.15;  // θ: 0 <= θ < 1; θ² counts for nodes of several unknowns
  // Unknowns of a node, consecutive: 1 .. kMostUnknowns, of which n is a multiple; 0:
  // DetectBlockSize.
  int block_size = 0;
  SmootherKind smoother = SmootherKind::kAuto;
  int pre_sweeps = 1, post_sweeps = 1;  // 0 .. 4, not both 0; M is symmetric where they are equal
  int chebyshev_degree = 2;             // 1 .. 4
  CycleKind cycle = CycleKind::kV;
  int max_levels = 20;                 // 1 .. 50
  int64_t max_coarse_size = 500;       // rows that are inverted: 1 .. 5000
  double max_growth = 0.7;             // of entries, level to level: over it P is not smoothed
  double max_operator_complexity = 3;  // entries of all levels over those of A: 1 .. 10
  // Precision of the cycle, its vectors and arithmetic. kAuto: kFp32, or kFp64 where A is neither
  // symmetric nor nearly dominant.
  Precision hierarchy_precision = Precision::kAuto;
  // Growth of G's rows, where the smoother is kAfsai (FsaiOptions).
  int k_max = 3, per_step = 2;
  double epsilon = 1e-3;

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("coarsening", self.coarsening, UpTo(Coarsening::kClassical));
    visit("strength_threshold", self.strength_threshold, kBelowOne);
    visit("node_size", self.block_size, OptionRange{0, kMostUnknowns});
    visit("smoother", self.smoother, UpTo(SmootherKind::kStaticSpai));
    visit("pre_sweeps", self.pre_sweeps, OptionRange{0, 4});
    visit("post_sweeps", self.post_sweeps, OptionRange{0, 4});
    visit("chebyshev_degree", self.chebyshev_degree, OptionRange{1, 4});
    visit("cycle", self.cycle, UpTo(CycleKind::kW));
    visit("max_levels", self.max_levels, OptionRange{1, 50});
    visit("max_coarse_size", self.max_coarse_size, OptionRange{1, 5000});
    visit("max_growth", self.max_growth, OptionRange{0, 10});
    visit("max_operator_complexity", self.max_operator_complexity, OptionRange{1, 10});
    visit("hierarchy_precision", self.hierarchy_precision, UpTo(Precision::kFp32));
    visit("k_max", self.k_max, OptionRange{0, kMaxFsaiSteps});
    visit("step_size", self.per_step, OptionRange{1, kMaxFsaiPerStep});
    visit("epsilon", self.epsilon, kBelowOne);
  }
};

// INVALID_ARGUMENT/BAD_AMG_OPTION, with the field as clients know it.
Status CheckAmgOptions(const AmgOptions& options);

struct AmgLevelQuality {
  int64_t rows = 0, nnz = 0;
  int64_t aggregates = 0;  // or coarse unknowns, of kClassical; 0 on the last level
  int64_t isolated = 0;    // what neither has a part in
  bool guarded = false;    // P was not smoothed, for A would have grown
  double rho = 0;          // of P's smoother
  int64_t nnz_p = 0;
  int64_t nnz_smoother = 0;  // of G or M
  bool boxes = false;        // aggregates are boxes of a grid (boxes.h)

  // visit(name, figure), by the names that clients know.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("rows", rows);
    visit("nnz", nnz);
    visit("aggregates", aggregates);
    visit("isolated", isolated);
    visit("guarded", guarded);
    visit("rho", rho);
    visit("nnz_p", nnz_p);
    visit("nnz_smoother", nnz_smoother);
    visit("boxes", boxes);
  }
};

struct AmgQuality {
  std::vector<AmgLevelQuality> levels;
  SmootherKind smoother = SmootherKind::kL1Jacobi;
  Precision precision = Precision::kFp32;
  int block_size = 1;
  double operator_complexity = 1, grid_complexity = 1;
  double near_null_rayleigh = 0;  // cᵀÂc / cᵀc of the near-null vectors: small where they are that
  double beta = 0;                // max_i Σ_j |a_ij| / |a_ii|
  int64_t singular_coarse_pivots = 0;
  bool inverted = true;  // the last level; else it is smoothed alone
  bool reused = false;   // aggregates of other values

  // But for `reused`, which is told as of any engine's pattern.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("levels", levels);
    visit("smoother", smoother);
    visit("precision", precision);
    visit("node_size", block_size);
    visit("operator_complexity", operator_complexity);
    visit("grid_complexity", grid_complexity);
    visit("near_null_rayleigh", near_null_rayleigh);
    visit("beta", beta);
    visit("singular_coarse_pivots", singular_coarse_pivots);
    visit("inverted", inverted);
  }
};

// Names a part of a hierarchy: kScale n x 2, columns `in` and `out`; kSmoother a diagonal, G or M.
enum class AmgPartKind { kScale, kA, kP, kR, kSmoother, kNearNull, kCoarseInverse };

std::string_view Name(AmgPartKind kind);

struct AmgPart {
  int level = 0;
  AmgPartKind kind = AmgPartKind::kA;
  int64_t rows = 0, cols = 0, nnz = 0;
  // For kSmoother: x += S (r - A x), with S the diagonal; ω GᵀG of the FSAIs; M of kStaticSpai (Mᵀ
  // behind the coarse level, where A is symmetric). kChebyshev, with the diagonal D⁻¹ and a β for
  // each degree: d = 4/(3ρ) D⁻¹r; for i = 1 …: x += β_i d, and but for the last r -= A d,
  // d = (2i-1)/(2i+3) d + (8i+4)/((2i+3)ρ) D⁻¹r.
  SmootherKind smoother = SmootherKind::kAuto;
  double rho = 0, omega = 1;
  std::vector<double> coefficients = {};
};

template <class Value>
struct CycleParts;  // cycle_parts.h

// Immutable but for spare vectors; thread-safe.
class AmgHierarchy : public LinearOperator {
 public:
  // In the order of a cycle's way down. z = out ∘ cycle(in ∘ r); a level that is inverted has no A,
  // others smooth, x += P cycle(R (r - A x)), and smooth again; the last, where it is not inverted,
  // smooths twice.
  virtual std::vector<AmgPart> parts() const = 0;
  // A copy by columns, canonical, in fp64, of what the cycle has in its precision. Errors:
  // INVALID_ARGUMENT/UNKNOWN_PART; RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
  virtual Result<CscMatrix> Part(int level, AmgPartKind kind) const = 0;
  virtual int64_t host_bytes() const = 0;
  virtual int64_t nnz() const = 0;     // entries of all its matrices
  virtual bool symmetric() const = 0;  // M is symmetric positive definite: for CG
  // Returns the hierarchy as the host has it, to be applied there: of one that a device has made
  // (amg_cuda.h) the first call downloads it. Errors: those of CudaDevice::Failed; stop statuses;
  // RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
  virtual Result<const AmgHierarchy*> OnHost(const Context& /*context*/) const { return this; }
  // Bytes on the device that made it; DropDeviceCopy gives them back, after a download.
  virtual int64_t device_bytes() const { return 0; }
  virtual void DropDeviceCopy() const {}
  // All that a cycle reads, for those that lay it out elsewhere (amg_cuda.h); of the host's.
  virtual std::variant<const CycleParts<float>*, const CycleParts<double>*> cycle() const = 0;
};

// All that was decided from the first values, and serves others on the pattern: aggregates, guards,
// the patterns of all matrices, those that smoothers grew. Immutable; thread-safe.
struct AmgPlan;  // amg_plan.h
// Bytes of all that it holds; patterns that hierarchies share with it count there, too.
int64_t HostBytes(const AmgPlan& plan);

// The same on the device that has made it (amg_cuda.h). Immutable; thread-safe.
class AmgPlanThere {
 public:
  virtual ~AmgPlanThere() = default;
  virtual int64_t device_bytes() const = 0;
};

struct AmgResult {
  std::shared_ptr<const AmgHierarchy> hierarchy;
  std::shared_ptr<const AmgPlan> plan;        // of a build by the host
  std::shared_ptr<const AmgPlanThere> there;  // of one by a device
  AmgQuality quality;
};

// `a`: square, canonical, by columns. `symmetric`: but for rounding. `options` are checked. Reports
// progress in levels. Errors: those of ScaleToUnitDiagonal and MakeNearNull;
// INVALID_ARGUMENT/BAD_AMG_OPTION where block_size does not divide n;
// FAILED_PRECONDITION/NO_COARSE_LEVEL where no coupling is strong, or the first coarse level too
// large, and A is larger than max_coarse_size, /FLOAT32_OVERFLOW; stop statuses;
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY. The same bits for any number of threads.
Result<AmgResult> BuildAmg(const CscView& a, bool symmetric, const NearNullInput& near_null,
                           const AmgOptions& options, const Context& context);

// The same of a matrix with the pattern of the plan's, on its aggregates: with the plan's own
// values the same bits. Errors besides: INVALID_ARGUMENT/PLAN_MISMATCH.
Result<AmgResult> RebuildAmg(std::shared_ptr<const AmgPlan> plan, const CscView& a,
                             const NearNullInput& near_null, const Context& context);

}  // namespace spaid::kernels
