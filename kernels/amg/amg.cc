#include "kernels/amg/amg.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/coarse_inverse.h"
#include "kernels/amg/cycle.h"
#include "kernels/amg/prolongation.h"
#include "kernels/amg/smoothers.h"
#include "kernels/amg/strength.h"
#include "kernels/amg/tentative.h"
#include "kernels/sparse/products.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

// A level that has more aggregates than so many of its nodes is the last.
constexpr double kMostAggregates = 0.8;

// One coarsening after the other.
class Builder {
 public:
  Builder(const AmgOptions& options, const Context& context)
      : options_(options), context_(context) {
    step_ = context;
    step_.progress = nullptr;
    step_.result = nullptr;
  }

  Result<AmgResult> Build(const CscView& a, bool symmetric, const NearNullInput& input) {
    auto scaled = ScaleToUnitDiagonal(a, symmetric, step_);
    if (!scaled.ok()) return scaled.status();
    symmetric_ = symmetric;
    block_ = options_.block_size;
    quality_.beta = scaled->beta;
    quality_.smoother = ChooseSmoother(options_.smoother, symmetric, scaled->beta);
    auto near = MakeNearNull(*scaled, input, block_, step_, &quality_.near_null_rayleigh);
    if (!near.ok()) return near.status();
    near_ = *std::move(near);
    CscMatrix rows = std::exchange(scaled->rows, {});
    entries_of_a_ = all_entries_ = rows.nnz();
    for (;;) {
      Report();
      quality_.levels.push_back({.rows = rows.n_cols, .nnz = rows.nnz()});
      Result<bool> goes_on = MayCoarsen(rows) ? Coarsen(rows) : Result<bool>(false);
      if (!goes_on.ok()) return goes_on.status();
      if (!*goes_on) break;
      rows = std::exchange(coarse_, {});
    }
    return Finish(std::move(rows), *std::move(scaled));
  }

 private:
  bool MayCoarsen(const CscView& rows) const {
    return rows.n_cols > options_.max_coarse_size &&
           static_cast<int>(levels_.size()) + 1 < options_.max_levels;
  }

  void Report() {
    if (context_.progress == nullptr) return;
    const auto done = static_cast<int64_t>(levels_.size());
    context_.progress->OnProgress(Stage::kBuild, done, done + 1);
  }

  // Makes coarse_ and a level of `rows`, which goes into it. False: there is nothing coarser, and
  // `rows` stays.
  Result<bool> Coarsen(CscMatrix& rows) {
    AmgLevelQuality& quality = quality_.levels.back();
    auto couplings = Couplings(rows, symmetric_, block_, step_);
    if (!couplings.ok()) return couplings.status();
    auto graph = FindStrong(*couplings, options_.strength_threshold, step_);
    if (!graph.ok()) return graph.status();
    *couplings = {};
    auto aggregates = Aggregate(*graph, static_cast<int>(levels_.size()), step_);
    if (!aggregates.ok()) return aggregates.status();
    quality.aggregates = aggregates->count;
    quality.isolated = aggregates->isolated;
    if (aggregates->count == 0 ||
        static_cast<double>(aggregates->count) > kMostAggregates * static_cast<double>(graph->n)) {
      return false;
    }
    auto tentative = MakeTentative(*aggregates, near_, block_, step_);
    if (!tentative.ok()) return tentative.status();
    AmgLevel level;
    Status made = options_.coarsening == Coarsening::kPlainAggregation
                      ? Galerkin(rows, CscMatrix(tentative->p), &level)
                      : SmoothedGalerkin(rows, *graph, *aggregates, *tentative, &level);
    if (!made.ok()) return made;
    const double entries = static_cast<double>(all_entries_ + coarse_.nnz());
    if (entries > options_.max_operator_complexity * static_cast<double>(entries_of_a_)) {
      coarse_ = {};
      return false;
    }
    all_entries_ += coarse_.nnz();
    quality.nnz_p = level.p.nnz();
    auto smoother = MakeSmoother(quality_.smoother, rows, symmetric_, options_, step_);
    if (!smoother.ok()) return smoother.status();
    level.smoother = *std::move(smoother);
    quality.nnz_smoother = level.smoother.rows.nnz();
    level.a = std::move(rows);
    levels_.push_back(std::move(level));
    near_ = std::move(tentative->coarse);
    block_ = near_.count;
    return true;
  }

  // A_c = R A P.
  Status Galerkin(const CscMatrix& rows, CscMatrix p, AmgLevel* level) {
    auto ap = Multiply(rows, p, step_);
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

  Status SmoothedGalerkin(const CscMatrix& rows, const StrongGraph& graph,
                          const Aggregates& aggregates, const Tentative& tentative,
                          AmgLevel* level) {
    auto filtered = FilterWeak(rows, graph, aggregates, near_, block_, step_);
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
    auto ap = Multiply(rows, smoothed->p, step_);
    if (!ap.ok()) return ap.status();
    const auto limit = options_.max_growth * static_cast<double>(rows.nnz());
    auto entries = CountProduct(r, *ap, step_);
    if (!entries.ok()) return entries.status();
    if (static_cast<double>(*entries) > limit) {
      quality_.levels.back().guarded = true;
      return Galerkin(rows, CscMatrix(tentative.p), level);
    }
    auto coarse = Multiply(r, *ap, step_);
    if (!coarse.ok()) return coarse.status();
    coarse_ = *std::move(coarse);
    level->p = std::move(smoothed->p);
    level->r = std::move(r);
    return {};
  }

  // R = (P of Aᵀ)ᵀ.
  Status RestrictionOf(const CscMatrix& rows, const StrongGraph& graph,
                       const Aggregates& aggregates, const Tentative& tentative, CscMatrix* r) {
    auto mirror = Transpose(CscView(rows), step_);
    if (!mirror.ok()) return mirror.status();
    auto filtered = FilterWeak(*mirror, graph, aggregates, near_, block_, step_);
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
      auto smoother = MakeSmoother(kind, rows, symmetric_, smoothed, step_);
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
    return AmgResult{.hierarchy = *std::move(hierarchy), .quality = std::move(quality_)};
  }

  const AmgOptions& options_;
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

Result<AmgResult> BuildAmg(const CscView& a, bool symmetric, const NearNullInput& near_null,
                           const AmgOptions& options, const Context& context) {
  return GuardMemory("multigrid",
                     [&] { return Builder(options, context).Build(a, symmetric, near_null); });
}

}  // namespace spaid::kernels
