#include "kernels/amg/amg.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/amg_plan.h"
#include "kernels/amg/coarse_inverse.h"
#include "kernels/amg/cycle.h"
#include "kernels/amg/prolongation.h"
#include "kernels/amg/smoothers.h"
#include "kernels/amg/strength.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/reasons.h"
#include "kernels/sparse/products.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

// A level that has more aggregates than so many of its nodes is the last.
constexpr double kMostAggregates = 0.8;
// The least share of a diagonal that weak entries are added to. Where A is not symmetric, rows of P
// that grow by the inverse of it are no use to BiCGSTAB (sherman5: 145 iterations by a tenth, 28 by
// a half; 1138_bus, symmetric, 19 and 26).
constexpr double kLeastLeftSymmetric = 0.1, kLeastLeft = 0.5;
// β over which a cycle in fp32 is too rough for BiCGSTAB (epb0: 79 iterations in fp64, none in
// fp32).
constexpr double kFp32UpTo = 3;

Status BadOption(std::string what, const char* field) {
  return Status(StatusCode::kInvalidArgument, "BAD_AMG_OPTION", std::move(what)).At(field);
}

// One coarsening after the other; by a plan, or to one.
class Builder {
 public:
  Builder(const AmgOptions& options, const AmgPlan* from, const Context& context)
      : options_(options), from_(from), context_(context) {
    step_ = context;
    step_.progress = nullptr;
    step_.result = nullptr;
  }

  Result<AmgResult> Build(const CscView& a, bool symmetric, const NearNullInput& input) {
    if (options_.block_size == 0) {
      options_.block_size = input.dimension > 0 ? input.dimension : DetectBlockSize(a);
    }
    if (a.n_cols % options_.block_size != 0) {
      return BadOption("node_size = " + std::to_string(options_.block_size) +
                           " does not divide the " + std::to_string(a.n_cols) +
                           " rows of the matrix; give the unknowns of a node, or 0 to find out",
                       "node_size");
    }
    auto scaled = ScaleToUnitDiagonal(a, symmetric, step_);
    if (!scaled.ok()) return scaled.status();
    symmetric_ = symmetric;
    block_ = quality_.block_size = options_.block_size;
    quality_.beta = scaled->beta;
    quality_.smoother = from_ != nullptr
                            ? from_->smoother
                            : ChooseSmoother(options_.smoother, symmetric, scaled->beta);
    quality_.reused = from_ != nullptr;
    *made_ = {.options = options_,
              .n = a.n_cols,
              .nnz = a.nnz(),
              .symmetric = symmetric,
              .smoother = quality_.smoother,
              .levels = {},
              .grown = {}};
    if (options_.hierarchy_precision == Precision::kAuto) {
      options_.hierarchy_precision =
          symmetric || scaled->beta <= kFp32UpTo ? Precision::kFp32 : Precision::kFp64;
    }
    quality_.precision = options_.hierarchy_precision;
    auto near = MakeNearNull(*scaled, input, block_, step_, &quality_.near_null_rayleigh);
    if (!near.ok()) return near.status();
    near_ = *std::move(near);
    CscMatrix rows = std::exchange(scaled->rows, {});
    entries_of_a_ = all_entries_ = rows.nnz();
    for (;;) {
      Report();
      quality_.levels.push_back({.rows = rows.n_cols, .nnz = rows.nnz()});
      Result<bool> goes_on = MayCoarsen(rows) ? Coarsen(rows) : false;
      if (!goes_on.ok()) return goes_on.status();
      if (!*goes_on) break;
      rows = std::exchange(coarse_, {});
    }
    return Finish(std::move(rows), *std::move(scaled));
  }

 private:
  bool MayCoarsen(const CscView& rows) const {
    if (from_ != nullptr) return levels_.size() < from_->levels.size();
    return rows.n_cols > options_.max_coarse_size &&
           static_cast<int>(levels_.size()) + 1 < options_.max_levels;
  }

  double LeastLeft() const { return symmetric_ ? kLeastLeftSymmetric : kLeastLeft; }

  void Report() {
    if (context_.progress == nullptr) return;
    const auto done = static_cast<int64_t>(levels_.size());
    context_.progress->OnProgress(Stage::kBuild, done, done + 1);
  }

  // Makes coarse_ and a level of `rows`, which goes into it. False: there is nothing coarser, and
  // `rows` stays.
  Result<bool> Coarsen(CscMatrix& rows) {
    AmgLevelQuality& quality = quality_.levels.back();
    Result<AmgPlan::Level> decided = Decide(rows);
    if (!decided.ok()) return decided.status();
    const Aggregates& aggregates = decided->aggregates;
    quality.aggregates = aggregates.count;
    quality.isolated = aggregates.isolated;
    if (aggregates.count == 0 || static_cast<double>(aggregates.count) >
                                     kMostAggregates * static_cast<double>(decided->graph.n)) {
      return false;
    }
    auto tentative = MakeTentative(aggregates, near_, block_, step_);
    if (!tentative.ok()) return tentative.status();
    AmgLevel level;
    Status made = options_.coarsening == Coarsening::kPlainAggregation || decided->guarded
                      ? Galerkin(rows, CscMatrix(tentative->p), &level)
                      : SmoothedGalerkin(rows, &*decided, *tentative, &level);
    if (!made.ok()) return made;
    quality.guarded = decided->guarded;
    const double entries = static_cast<double>(all_entries_ + coarse_.nnz());
    if (entries > options_.max_operator_complexity * static_cast<double>(entries_of_a_)) {
      coarse_ = {};
      return false;
    }
    all_entries_ += coarse_.nnz();
    quality.nnz_p = level.p.nnz();
    auto smoother = MakeSmoother(quality_.smoother, rows, symmetric_, options_,
                                 GrownBefore(decided->grown), step_);
    if (!smoother.ok()) return smoother.status();
    level.smoother = *std::move(smoother);
    Keep(level.smoother, &decided->grown);
    quality.nnz_smoother = level.smoother.rows.nnz();
    level.a = std::move(rows);
    levels_.push_back(std::move(level));
    made_->levels.push_back(*std::move(decided));
    near_ = std::move(tentative->coarse);
    block_ = near_.count;
    return true;
  }

  // Strong couplings and aggregates of the level that is `rows`, or those that were.
  Result<AmgPlan::Level> Decide(const CscView& rows) {
    AmgPlan::Level level;
    if (from_ != nullptr) {
      const AmgPlan::Level& before = from_->levels[levels_.size()];
      return AmgPlan::Level(before);
    }
    auto couplings = Couplings(rows, symmetric_, block_, step_);
    if (!couplings.ok()) return couplings.status();
    auto graph = FindStrong(*couplings, options_.strength_threshold, step_);
    if (!graph.ok()) return graph.status();
    *couplings = {};
    auto aggregates = Aggregate(*graph, static_cast<int>(levels_.size()), step_);
    if (!aggregates.ok()) return aggregates.status();
    level.graph = *std::move(graph);
    level.graph.weights = {};
    level.aggregates = *std::move(aggregates);
    return level;
  }

  // G's pattern of the values before, into `view_`; null: there is none.
  const PatternView* GrownBefore(const Pattern& grown) {
    if (from_ == nullptr || quality_.smoother != SmootherKind::kAfsai || grown.n_cols == 0)
      return nullptr;
    view_ = grown;
    return &view_;
  }
  void Keep(const Smoother& smoother, Pattern* grown) const {
    if (smoother.kind != SmootherKind::kAfsai || from_ != nullptr) return;
    *grown = {.n_rows = smoother.rows.n_rows,
              .n_cols = smoother.rows.n_cols,
              .col_ptr = smoother.rows.col_ptr,
              .row_idx = smoother.rows.row_idx};
  }

  // A_c = R A P.
  Status Galerkin(const CscMatrix& rows, CscMatrix p, AmgLevel* level) {
    auto ap = Multiply(rows, p, step_, RowOrder::kAsFound);
    if (!ap.ok()) return ap.status();
    auto r = Transpose(CscView(p), step_);
    if (!r.ok()) return r.status();
    auto coarse = Multiply(*r, *ap, step_);
    if (!coarse.ok()) return coarse.status();
    coarse_ = *std::move(coarse);
    level->p = std::move(p);
    level->r = *std::move(r);
    return {};
  }

  // The same with the smoothed P, where that does not let A grow too much.
  Status SmoothedGalerkin(const CscMatrix& rows, AmgPlan::Level* decided,
                          const Tentative& tentative, AmgLevel* level) {
    const StrongGraph& graph = decided->graph;
    const Aggregates& aggregates = decided->aggregates;
    auto filtered = FilterWeak(rows, graph, aggregates, near_, block_, LeastLeft(), step_);
    if (!filtered.ok()) return filtered.status();
    auto smoothed = SmoothProlongation(*filtered, tentative, step_);
    if (!smoothed.ok()) return smoothed.status();
    quality_.levels.back().rho = smoothed->rho;
    CscMatrix r;
    if (symmetric_) {
      auto transposed = Transpose(CscView(smoothed->p), step_);
      if (!transposed.ok()) return transposed.status();
      r = *std::move(transposed);
    } else {
      Status made = RestrictionOf(rows, graph, aggregates, tentative, &r);
      if (!made.ok()) return made;
    }
    auto ap = Multiply(rows, smoothed->p, step_, RowOrder::kAsFound);
    if (!ap.ok()) return ap.status();
    auto grows = Grows(r, *ap, rows.nnz());
    if (!grows.ok()) return grows.status();
    if (*grows) {
      decided->guarded = true;
      return Galerkin(rows, CscMatrix(tentative.p), level);
    }
    auto coarse = Multiply(r, *ap, step_);
    if (!coarse.ok()) return coarse.status();
    coarse_ = *std::move(coarse);
    level->p = std::move(smoothed->p);
    level->r = std::move(r);
    return {};
  }

  // Whether A_c would have more entries than max_growth allows; of other values that is known.
  Result<bool> Grows(const PatternView& r, const PatternView& ap, int64_t nnz) const {
    if (from_ != nullptr) return false;
    auto entries = CountProduct(r, ap, step_);
    if (!entries.ok()) return entries.status();
    return static_cast<double>(*entries) > options_.max_growth * static_cast<double>(nnz);
  }

  // R = (P of Aᵀ)ᵀ.
  Status RestrictionOf(const CscMatrix& rows, const StrongGraph& graph,
                       const Aggregates& aggregates, const Tentative& tentative, CscMatrix* r) {
    auto mirror = Transpose(CscView(rows), step_);
    if (!mirror.ok()) return mirror.status();
    auto filtered = FilterWeak(*mirror, graph, aggregates, near_, block_, LeastLeft(), step_);
    if (!filtered.ok()) return filtered.status();
    auto smoothed = SmoothProlongation(*filtered, tentative, step_);
    if (!smoothed.ok()) return smoothed.status();
    auto transposed = Transpose(CscView(smoothed->p), step_);
    if (!transposed.ok()) return transposed.status();
    *r = *std::move(transposed);
    return {};
  }

  Result<AmgResult> Finish(CscMatrix rows, UnitScaled scaled) {
    const int64_t n = rows.n_cols;
    AmgLevel last;
    CoarseInverse inverse;
    if (n <= options_.max_coarse_size) {
      auto inverted = InvertCoarse(rows, symmetric_, step_);
      if (!inverted.ok()) return inverted.status();
      inverse = *std::move(inverted);
      quality_.singular_coarse_pivots = inverse.singular_pivots;
    } else if (levels_.empty()) {
      return Status(StatusCode::kFailedPrecondition, "NO_COARSE_LEVEL",
                    "no couplings of the matrix are strong enough to aggregate " +
                        std::to_string(n) + " rows; Jacobi does it")
          .At("strength_threshold");
    } else {
      quality_.inverted = false;
      AmgOptions smoothed = options_;
      smoothed.chebyshev_degree = 4;
      const SmootherKind kind = symmetric_ ? SmootherKind::kChebyshev : quality_.smoother;
      auto smoother = MakeSmoother(kind, rows, symmetric_, smoothed, nullptr, step_);
      if (!smoother.ok()) return smoother.status();
      last.smoother = *std::move(smoother);
      quality_.levels.back().nnz_smoother = last.smoother.rows.nnz();
    }
    last.a = std::move(rows);
    if (inverse.n > 0)
      last.smoother.kind = SmootherKind::kChebyshev;  // none: its level is not scaled
    levels_.push_back(std::move(last));
    int64_t all_rows = 0;
    for (const AmgLevelQuality& level : quality_.levels) all_rows += level.rows;
    quality_.operator_complexity =
        entries_of_a_ > 0 ? static_cast<double>(all_entries_) / static_cast<double>(entries_of_a_)
                          : 1;
    quality_.grid_complexity =
        quality_.levels.front().rows > 0
            ? static_cast<double>(all_rows) / static_cast<double>(quality_.levels.front().rows)
            : 1;
    auto hierarchy =
        MakeCycle(std::move(levels_), std::move(inverse), std::move(scaled), options_, step_);
    if (!hierarchy.ok()) return hierarchy.status();
    return AmgResult{.hierarchy = *std::move(hierarchy),
                     .plan = std::move(made_),
                     .quality = std::move(quality_)};
  }

  AmgOptions options_;
  const AmgPlan* const from_;  // null: nothing is decided yet
  std::shared_ptr<AmgPlan> made_ = std::make_shared<AmgPlan>();
  PatternView view_;
  const Context& context_;
  Context step_;
  bool symmetric_ = false;
  int block_ = 1;
  NearNull near_;
  CscMatrix coarse_;
  int64_t entries_of_a_ = 0, all_entries_ = 0;
  std::vector<AmgLevel> levels_;
  AmgQuality quality_;
};

}  // namespace

std::string_view Name(SmootherKind kind) {
  switch (kind) {
    case SmootherKind::kAuto:
      return "auto";
    case SmootherKind::kL1Jacobi:
      return "l1-jacobi";
    case SmootherKind::kJacobi:
      return "jacobi";
    case SmootherKind::kChebyshev:
      return "chebyshev";
    case SmootherKind::kFsai:
      return "fsai";
    case SmootherKind::kAfsai:
      return "afsai";
    case SmootherKind::kStaticSpai:
      return "static-spai";
  }
  return "unknown";
}

Status CheckAmgOptions(const AmgOptions& options) {
  if (options.pre_sweeps == 0 && options.post_sweeps == 0) {
    return BadOption(
        "pre_sweeps and post_sweeps are both 0, and nothing would be smoothed; give one",
        "pre_sweeps");
  }
  return CheckRanges(options, "BAD_AMG_OPTION");
}

int64_t HostBytes(const AmgPlan& plan) {
  const auto bytes = [](const auto& array) {
    return static_cast<int64_t>(array.size() * sizeof(array[0]));
  };
  int64_t all =
      static_cast<int64_t>(sizeof(AmgPlan)) + bytes(plan.grown.col_ptr) + bytes(plan.grown.row_idx);
  for (const AmgPlan::Level& level : plan.levels) {
    all += bytes(level.graph.ptr) + bytes(level.graph.neighbours) + bytes(level.graph.leader) +
           bytes(level.aggregates.of_node) + bytes(level.grown.col_ptr) +
           bytes(level.grown.row_idx);
  }
  return all;
}

Result<AmgResult> BuildAmg(const CscView& a, bool symmetric, const NearNullInput& near_null,
                           const AmgOptions& options, const Context& context) {
  return GuardMemory("multigrid", [&] {
    return Builder(options, nullptr, context).Build(a, symmetric, near_null);
  });
}

Result<AmgResult> RebuildAmg(std::shared_ptr<const AmgPlan> plan, const CscView& a,
                             const NearNullInput& near_null, const Context& context) {
  if (a.n_cols != plan->n || a.nnz() != plan->nnz) {
    return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                  "the plan of multigrid is of a matrix with " + std::to_string(plan->nnz) +
                      " entries in " + std::to_string(plan->n) + " columns; this one has " +
                      std::to_string(a.nnz()) + " in " + std::to_string(a.n_cols));
  }
  return GuardMemory("multigrid", [&]() -> Result<AmgResult> {
    auto built = Builder(plan->options, plan.get(), context).Build(a, plan->symmetric, near_null);
    if (built.ok()) built->plan = std::move(plan);
    return built;
  });
}

}  // namespace spaid::kernels
