#include "kernels/amg/amg.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/amg_plan.h"
#include "kernels/amg/boxes.h"
#include "kernels/amg/classical.h"
#include "kernels/amg/coarse_inverse.h"
#include "kernels/amg/cycle.h"
#include "kernels/amg/prolongation.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/smoothers.h"
#include "kernels/amg/strength.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/products.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {
namespace {

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
    smoothing_ = step_;
    if (context.progress != nullptr) smoothing_.progress = &pulse_;
  }

  Result<AmgResult> Build(const CscView& a, bool symmetric, const NearNullInput& input) {
    if (options_.block_size == 0) {
      options_.block_size = input.dimension > 0
                                ? input.dimension
                                : DetectBlockSize(a, ResolveThreads(context_.threads));
    }
    if (a.n_cols % options_.block_size != 0) {
      return BadOption("node_size = " + std::to_string(options_.block_size) +
                           " does not divide the " + std::to_string(a.n_cols) +
                           " rows of the matrix; give the unknowns of a node, or 0 to find out",
                       "node_size");
    }
    if (from_ != nullptr) made_->rows = from_->rows;
    auto scaled = ScaleToUnitDiagonal(a, symmetric, made_->rows, step_);
    if (!scaled.ok()) return scaled.status();
    symmetric_ = symmetric;
    columns_ = a;
    block_ = quality_.block_size = options_.block_size;
    quality_.beta = scaled->beta;
    quality_.smoother = from_ != nullptr
                            ? from_->smoother
                            : ChooseSmoother(options_.smoother, symmetric, scaled->beta);
    quality_.reused = from_ != nullptr;
    made_->options = options_;
    made_->symmetric = symmetric;
    made_->smoother = quality_.smoother;
    if (options_.hierarchy_precision == Precision::kAuto) {
      options_.hierarchy_precision = ChoosePrecision(symmetric, scaled->beta);
    }
    quality_.precision = options_.hierarchy_precision;
    auto near = MakeNearNull(*scaled, input, block_, step_, &quality_.near_null_rayleigh);
    if (!near.ok()) return near.status();
    near_ = *std::move(near);
    if (options_.coarsening == Coarsening::kClassical && block_ > 1) {
      if (input.count > 0 || input.dimension > 0) return NotForClassical();
      UnknownsApart(a.n_cols);
    }
    SharedMatrix rows = std::exchange(scaled->rows, {});
    entries_of_a_ = all_entries_ = rows.nnz();
    for (;;) {
      Report();
      quality_.levels.push_back({.rows = rows.n(), .nnz = rows.nnz()});
      Result<bool> goes_on = MayCoarsen(rows) ? Coarsen(rows) : false;
      if (!goes_on.ok()) return goes_on.status();
      if (!*goes_on) break;
      rows = std::exchange(coarse_, {});
    }
    return Finish(std::move(rows), *std::move(scaled));
  }

 private:
  bool MayCoarsen(const SharedMatrix& rows) const {
    if (from_ != nullptr) return levels_.size() < from_->levels.size();
    return rows.n() > options_.max_coarse_size &&
           static_cast<int>(levels_.size()) + 1 < options_.max_levels;
  }

  static Status NotForClassical() {
    return BadOption(
        "classical coarsening interpolates each unknown of a node by itself, and near-null vectors "
        "or "
        "coordinates of nodes with several unknowns are nothing to it; leave them out, or coarsen "
        "by "
        "smoothed aggregation",
        "coarsening");
  }

  // Each unknown of a node has a vector of near_ that is zero but for it: they become one.
  void UnknownsApart(int64_t n) {
    NearNull one{.n = n, .count = 1, .values = Array<double>(static_cast<size_t>(n))};
    unknown_of_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t unknown = i % block_;
      unknown_of_[static_cast<size_t>(i)] = static_cast<uint8_t>(unknown);
      one.values[static_cast<size_t>(i)] = near_.values[static_cast<size_t>(unknown * n + i)];
    }
    near_ = std::move(one);
    block_ = 1;
  }

  double LeastLeft() const { return kernels::LeastLeft(symmetric_); }

  // A block that P leaves out of A takes the motions of its nodes along: an elastic mesh needs 45
  // iterations for 14, where scalar weak entries go to the diagonal and leave constants alone.
  double Threshold() const {
    const double theta = options_.strength_threshold;
    return options_.block_size > 1 ? theta * theta : theta;
  }

  // A smoother may take minutes: that it works shows as the level again.
  class Pulse final : public ProgressSink {
   public:
    explicit Pulse(Builder& of) : of_(of) {}
    void OnProgress(Stage, int64_t, int64_t) override { of_.Report(); }
    void OnResidual(const ResidualPoint&) override {}

   private:
    Builder& of_;
  };

  void Report() {
    if (context_.progress == nullptr) return;
    const auto done = static_cast<int64_t>(levels_.size());
    context_.progress->OnProgress(Stage::kBuild, done, done + 1);
  }

  // Makes coarse_ and a level of `rows`, which goes into it. False: there is nothing coarser, and
  // `rows` stays.
  Result<bool> Coarsen(SharedMatrix& rows) {
    AmgLevelQuality& quality = quality_.levels.back();
    AmgPlan::Level kept;
    if (from_ != nullptr) kept = from_->levels[levels_.size()];
    // Vectors of other zeros may have given the level above another P, and this one another A.
    const bool same_pattern = kept.a == rows.pattern;
    if (from_ == nullptr) {
      auto aggregated = Aggregated(rows, &kept);
      if (!aggregated.ok()) return aggregated.status();
      if (!*aggregated) return false;
    }
    const Aggregates& aggregates = kept.aggregates;
    quality.aggregates = aggregates.count;
    quality.isolated = aggregates.isolated;
    quality.boxes = aggregates.boxes;
    AmgLevel level;
    NearNull coarse_near;
    const Status made = options_.coarsening == Coarsening::kClassical
                            ? ClassicalGalerkin(rows, kept, &level, &coarse_near)
                            : AggregatedGalerkin(rows, kept, &level, &coarse_near);
    if (!made.ok()) return made;
    quality.guarded = kept.guarded;
    if (coarse_.pattern == nullptr || coarse_.nnz() > MostEntries()) {
      coarse_ = {};
      too_large_ = true;
      return false;
    }
    all_entries_ += coarse_.nnz();
    quality.nnz_p = level.p.nnz();
    if (from_ != nullptr && !same_pattern) ForgetPatternOfA(&kept.smoother);
    auto smoother = MakeSmoother(quality_.smoother, rows, symmetric_, levels_.empty(), options_,
                                 kept.smoother, smoothing_);
    if (!smoother.ok()) return smoother.status();
    level.smoother = *std::move(smoother);
    quality.nnz_smoother = level.smoother.rows.nnz();
    kept.a = rows.pattern;
    level.a = std::move(rows);
    level.near_null = std::exchange(near_, std::move(coarse_near));
    block_ = near_.count;
    levels_.push_back(std::move(level));
    made_->levels.push_back(std::move(kept));
    return true;
  }

  // Finds strong couplings and aggregates of the level that is `rows`. False: they are no coarse
  // level.
  Result<bool> Aggregated(const SharedMatrix& rows, AmgPlan::Level* kept) {
    auto couplings = Couplings(rows, symmetric_, block_, step_);
    if (!couplings.ok()) return couplings.status();
    if (options_.coarsening == Coarsening::kClassical) return Split(*couplings, kept);
    auto graph = FindStrong(*couplings, Threshold(), step_);
    if (!graph.ok()) return graph.status();
    *couplings = {};
    auto aggregates = FindAggregates(rows, *graph);
    if (!aggregates.ok()) return aggregates.status();
    kept->aggregates = *std::move(aggregates);
    graph_ = *std::move(graph);
    graph_.weights = {};
    return IsCoarser(kept->aggregates.count, std::ssize(kept->aggregates.of_node));
  }

  // Boxes as long as there is a grid of them (boxes.h). P of plain aggregation is too rough for
  // them.
  Result<Aggregates> FindAggregates(const SharedMatrix& rows, const StrongGraph& graph) {
    if (levels_.empty() && options_.coarsening == Coarsening::kSmoothedAggregation) {
      grid_ = FindGrid(CscView(rows).column(0), graph.n, block_);
    }
    if (auto boxes = AggregateByBoxes(graph, grid_, step_.threads)) return *std::move(boxes);
    return Aggregate(graph, static_cast<int>(levels_.size()), step_);
  }

  // The same of classical coarsening.
  Result<bool> Split(const CscView& couplings, AmgPlan::Level* kept) {
    auto depends = FindDependences(couplings, options_.strength_threshold, unknown_of_, step_);
    if (!depends.ok()) return depends.status();
    auto coarse = SplitPmis(*depends, static_cast<int>(levels_.size()), step_);
    if (!coarse.ok()) return coarse.status();
    kept->right.filtered = std::make_shared<Pattern>(*std::move(depends));
    kept->aggregates = *std::move(coarse);
    if (!unknown_of_.empty()) {
      Array<uint8_t> of_coarse;
      of_coarse.reserve(static_cast<size_t>(kept->aggregates.count));
      for (size_t i = 0; i < unknown_of_.size(); ++i) {
        if (kept->aggregates.of_node[i] >= 0) of_coarse.push_back(unknown_of_[i]);
      }
      unknown_of_ = std::move(of_coarse);
    }
    return IsCoarser(kept->aggregates.count, std::ssize(kept->aggregates.of_node));
  }

  // G's pattern that grew serves other patterns of A, too.
  void ForgetPatternOfA(KeptSmoother* kept) const {
    kept->spai = nullptr;
    if (quality_.smoother == SmootherKind::kFsai) kept->g = nullptr;
  }

  Status AggregatedGalerkin(const SharedMatrix& rows, AmgPlan::Level& kept, AmgLevel* level,
                            NearNull* coarse_near) {
    auto tentative = MakeTentative(kept.aggregates, near_, block_, step_, kept.tentative);
    if (!tentative.ok()) return tentative.status();
    kept.tentative = tentative->p.pattern;
    const Status made = options_.coarsening == Coarsening::kPlainAggregation || kept.guarded
                            ? Galerkin(rows, tentative->p, kept, level)
                            : SmoothedGalerkin(rows, *tentative, kept, level);
    *coarse_near = std::move(tentative->coarse);
    return made;
  }

  Status ClassicalGalerkin(const SharedMatrix& rows, AmgPlan::Level& kept, AmgLevel* level,
                           NearNull* coarse_near) {
    *coarse_near = Injected(near_, kept.aggregates);
    auto p = Interpolated(rows, kept, kept.right);
    if (!p.ok()) return p.status();
    if (symmetric_) return Galerkin(rows, *std::move(p), kept, level);
    auto mirror = Mirror(rows, kept.mirror);
    if (!mirror.ok()) return mirror.status();
    auto of_r = Interpolated(*mirror, kept, kept.left);
    if (!of_r.ok()) return of_r.status();
    return Galerkin(rows, *std::move(p), kept, level, &*of_r);
  }

  Result<SharedMatrix> Interpolated(const SharedMatrix& rows, const AmgPlan::Level& level,
                                    AmgPlan::Smoothing& kept) const {
    auto p = ExtendedInterpolation(rows, *level.right.filtered, level.aggregates, near_, symmetric_,
                                   LeastLeft(), kept.p.cut, step_);
    if (p.ok()) kept.p.cut = p->pattern;
    return p;
  }

  // A_c = R A P, where R is the transpose of P, or of `of_r`.
  Status Galerkin(const SharedMatrix& rows, SharedMatrix p, AmgPlan::Level& kept, AmgLevel* level,
                  const SharedMatrix* of_r = nullptr) {
    auto ap = Multiply(rows, p, kept.ap, step_, RowOrder::kAsFound);
    if (!ap.ok()) return ap.status();
    auto r = Transpose(of_r == nullptr ? p : *of_r, kept.r, step_);
    if (!r.ok()) return r.status();
    return Coarse(MostEntries(), *std::move(r), *ap, std::move(p), kept, level).status();
  }

  // False: A_c would have more entries than that.
  Result<bool> Coarse(int64_t most_entries, SharedMatrix r, const SharedMatrix& ap, SharedMatrix p,
                      AmgPlan::Level& kept, AmgLevel* level) {
    auto coarse = MultiplyUpTo(most_entries, r, ap, kept.coarse, step_);
    if (!coarse.ok()) return coarse.status();
    if (coarse->pattern == nullptr) return false;
    coarse_ = FillEmptyRows(*std::move(coarse), kept.filled);
    level->p = std::move(p);
    level->r = std::move(r);
    return true;
  }

  // The same with the smoothed P, where that does not let A grow too much.
  Status SmoothedGalerkin(const SharedMatrix& rows, const Tentative& tentative,
                          AmgPlan::Level& kept, AmgLevel* level) {
    auto smoothed = SmoothedOf(rows, tentative, kept.aggregates, kept.right);
    if (!smoothed.ok()) return smoothed.status();
    quality_.levels.back().rho = smoothed->rho;
    SharedMatrix p = std::move(smoothed->p), of_r;
    if (!symmetric_) {  // R = (P of Aᵀ)ᵀ
      auto mirror = Mirror(rows, kept.mirror);
      if (!mirror.ok()) return mirror.status();
      smoothed = SmoothedOf(*mirror, tentative, kept.aggregates, kept.left);
      if (!smoothed.ok()) return smoothed.status();
      of_r = std::move(smoothed->p);
    }
    auto r = Transpose(symmetric_ ? p : of_r, kept.r, step_);
    if (!r.ok()) return r.status();
    of_r = {};
    auto ap = Multiply(rows, p, kept.ap, step_, RowOrder::kAsFound);
    if (!ap.ok()) return ap.status();
    auto made = Coarse(MostCoarse(rows.nnz()), *std::move(r), *ap, std::move(p), kept, level);
    if (!made.ok() || *made) return made.status();
    kept.guarded = true;
    kept.right = kept.left = {};
    kept.mirror = nullptr;
    return Galerkin(rows, tentative.p, kept, level);
  }

  // Aᵀ, of which the first level has its columns.
  Result<SharedMatrix> Mirror(const SharedMatrix& rows, KeptTranspose& kept) const {
    if (!levels_.empty() || made_->rows.by_rows == nullptr) return Transpose(rows, kept, step_);
    SharedMatrix columns{.pattern = made_->rows.by_rows->of, .values = {}};
    columns.values.resize(columns_.values.size());
    ParallelCopy(columns_.values, columns.values, step_.threads);
    return columns;
  }

  // The smoothed P of `rows`.
  Result<Smoothed> SmoothedOf(const SharedMatrix& rows, const Tentative& tentative,
                              const Aggregates& aggregates, AmgPlan::Smoothing& kept) {
    SharedMatrix filtered;
    if (kept.filtered != nullptr) {
      auto again = FilterWeakOn(kept.filtered, rows, near_, block_, LeastLeft(), step_);
      if (!again.ok()) return again.status();
      filtered = *std::move(again);
    } else {
      auto found = FilterWeak(rows, graph_, aggregates, near_, block_, LeastLeft(), step_);
      if (!found.ok()) return found.status();
      filtered = Share(*std::move(found));
      if (filtered.nnz() == rows.nnz()) filtered.pattern = rows.pattern;  // all are strong
    }
    kept.filtered = filtered.pattern;
    return SmoothProlongation(std::move(filtered), tentative, kept.p, step_);
  }

  // Entries of A_c that max_operator_complexity allows; of other values they are known.
  int64_t MostEntries() const {
    if (from_ != nullptr) return std::numeric_limits<int64_t>::max();
    return kernels::MostEntries(options_, entries_of_a_, all_entries_);
  }

  // Entries of A_c that max_growth allows beside those of A; of other values they are known.
  int64_t MostCoarse(int64_t nnz) const {
    if (from_ != nullptr) return std::numeric_limits<int64_t>::max();
    return kernels::MostCoarse(options_, nnz);
  }

  Result<AmgResult> Finish(SharedMatrix rows, UnitScaled scaled) {
    const int64_t n = rows.n();
    AmgLevel last;
    CoarseInverse inverse;
    if (n <= options_.max_coarse_size) {
      auto inverted = InvertCoarse(rows, symmetric_, step_);
      if (!inverted.ok()) return inverted.status();
      inverse = *std::move(inverted);
      quality_.singular_coarse_pivots = inverse.singular_pivots;
    } else if (levels_.empty()) {
      return NoCoarseLevel(n, entries_of_a_, too_large_);
    } else {
      quality_.inverted = false;
      if (from_ != nullptr) {
        made_->last = from_->last;
        if (from_->last_a != rows.pattern) ForgetPatternOfA(&made_->last);
      }
      made_->last_a = rows.pattern;
      AmgOptions smoothed = options_;
      smoothed.chebyshev_degree = kLastChebyshevDegree;
      const SmootherKind kind = SmootherOfLast(symmetric_, quality_.smoother);
      auto smoother =
          MakeSmoother(kind, rows, symmetric_, levels_.empty(), smoothed, made_->last, smoothing_);
      if (!smoother.ok()) return smoother.status();
      last.smoother = *std::move(smoother);
      quality_.levels.back().nnz_smoother = last.smoother.rows.nnz();
    }
    last.a = std::move(rows);
    last.near_null = std::move(near_);
    if (inverse.n > 0)
      last.smoother.kind = SmootherKind::kChebyshev;  // none: its level is not scaled
    levels_.push_back(std::move(last));
    SumUp(&quality_);
    auto hierarchy =
        MakeCycle(std::move(levels_), std::move(inverse), std::move(scaled), options_, step_);
    if (!hierarchy.ok()) return hierarchy.status();
    return AmgResult{.hierarchy = *std::move(hierarchy),
                     .plan = std::move(made_),
                     .there = nullptr,
                     .quality = std::move(quality_)};
  }

  AmgOptions options_;
  const AmgPlan* const from_;  // null: nothing is decided yet
  std::shared_ptr<AmgPlan> made_ = std::make_shared<AmgPlan>();
  const Context& context_;
  Pulse pulse_{*this};
  Context step_, smoothing_;
  bool symmetric_ = false;
  int block_ = 1;
  NearNull near_;
  Array<uint8_t> unknown_of_;  // kClassical, nodes of several unknowns: which of them; else empty
  CscView columns_;            // A as it comes
  StrongGraph graph_;          // of the level at hand
  Grid grid_;                  // of its nodes, as long as they are one
  SharedMatrix coarse_;
  int64_t entries_of_a_ = 0, all_entries_ = 0;
  bool too_large_ = false;  // a level was, for max_operator_complexity
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

std::string_view Name(AmgPartKind kind) {
  switch (kind) {
    case AmgPartKind::kScale:
      return "scale";
    case AmgPartKind::kA:
      return "A";
    case AmgPartKind::kP:
      return "P";
    case AmgPartKind::kR:
      return "R";
    case AmgPartKind::kSmoother:
      return "smoother";
    case AmgPartKind::kNearNull:
      return "near-null";
    case AmgPartKind::kCoarseInverse:
      return "coarse-inverse";
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
  std::set<const void*> seen;  // levels share patterns
  int64_t all = sizeof(AmgPlan);
  const auto add = [&](const SharedPattern& pattern) {
    if (pattern == nullptr || !seen.insert(pattern.get()).second) return;
    all += bytes(pattern->col_ptr) + bytes(pattern->row_idx);
  };
  const auto add_transpose = [&](const KeptTranspose& kept) {
    if (kept == nullptr || !seen.insert(kept.get()).second) return;
    add(kept->of), add(kept->transpose);
    all += bytes(kept->from);
  };
  const auto add_smoother = [&](const KeptSmoother& kept) {
    add(kept.g), add_transpose(kept.transpose);
    if (kept.spai != nullptr) all += Counts(*kept.spai).plan_bytes;
  };
  const auto add_smoothing = [&](const AmgPlan::Smoothing& kept) {
    add(kept.filtered), add(kept.p.whole.product), add(kept.p.cut);
  };
  add(plan.rows.pattern), add_transpose(plan.rows.by_rows);
  for (const AmgPlan::Level& level : plan.levels) {
    all += bytes(level.aggregates.of_node);
    add(level.a), add(level.tentative), add(level.ap.product), add(level.coarse.product);
    add(level.filled.filled);
    add_smoothing(level.right), add_smoothing(level.left);
    add_transpose(level.mirror), add_transpose(level.r);
    add_smoother(level.smoother);
  }
  add(plan.last_a), add_smoother(plan.last);
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
  return GuardMemory("multigrid", [&]() -> Result<AmgResult> {
    auto built = Builder(plan->options, plan.get(), context).Build(a, plan->symmetric, near_null);
    if (built.ok()) built->plan = std::move(plan);
    return built;
  });
}

}  // namespace spaid::kernels
