#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <utility>

#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/aggregation.h"
#include "kernels/amg/cuda/boxes.h"
#include "kernels/amg/cuda/coarse_inverse.h"
#include "kernels/amg/cuda/factors.h"
#include "kernels/amg/cuda/lanes.h"
#include "kernels/amg/cuda/node_prolongation.h"
#include "kernels/amg/cuda/prolongation.h"
#include "kernels/amg/cuda/scaling.h"
#include "kernels/amg/cuda/set_up.h"
#include "kernels/amg/cuda/spai_smoother.h"
#include "kernels/amg/cuda/strength.h"
#include "kernels/amg/cuda/tentative.h"
#include "kernels/amg/cuda/worker.h"
#include "kernels/amg/cycle.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/amg/smoothers.h"
#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"

namespace spaid::cuda {
namespace {

using kernels::AmgOptions, kernels::AmgQuality, kernels::SmootherKind;
using layout::Blocks, layout::kThreads, layout::ThreadOfGrid, layout::ThreadsOfGrid;

__global__ void __launch_bounds__(kThreads)
    RootsKernel(int64_t n, const double* __restrict__ from, double* __restrict__ to) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) to[i] = sqrt(from[i]);
}

struct FactorRef {
  const double* of;
  bool over;
  __device__ double At(int64_t i) const {
    const double factor = of[i];
    return !over ? factor : factor != 0 ? 1 / factor : 0;
  }
};

// kLanes a row.
template <class Value, int kLanes>
__global__ void __launch_bounds__(kThreads)
    LayOutKernel(PatternRef rows, const double* __restrict__ values, FactorRef left,
                 FactorRef right, double* to, int32_t* bad) {
  const int64_t lane = ThreadOfGrid() % kLanes;
  bool finite = true;
  for (int64_t i = ThreadOfGrid() / kLanes; i < rows.n; i += ThreadsOfGrid() / kLanes) {
    const double factor = left.of != nullptr ? left.At(i) : 1;
    for (int64_t p = rows.col_ptr[i] + lane; p < rows.col_ptr[i + 1]; p += kLanes) {
      double value = values[p];
      if (left.of != nullptr) value *= factor;
      if (right.of != nullptr) value *= right.At(rows.row_idx[p]);
      const auto rounded = static_cast<Value>(value);
      finite &= isfinite(rounded);
      if (to != nullptr) to[p] = static_cast<double>(rounded);
    }
  }
  if (!finite) *bad = 1;
}

// Bytes an entry and a row of A that are left, at least, where G is made beside other work: several
// times what both take. M of static SPAI takes SpaiScratchBytes besides.
constexpr int64_t kEntryBytesBeside = 64, kRowBytesBeside = 1024;

// Ends a set-up that is the host's after all.
struct LeftToTheHost {};

// One coarsening after the other.
class Builder {
 public:
  // Makes a plan.
  Builder(Context& context, bool symmetric, const AmgOptions& options, const kernels::Context& host)
      : context_(context), host_(host), plan_(std::in_place) {
    made_.options = options;
    made_.symmetric = symmetric;
    block_ = options.block_size;
  }
  // Goes by one.
  Builder(Context& context, const SetUpPlan& from, const kernels::Context& host)
      : context_(context), host_(host), from_(&from), other_(context, 1) {
    made_.options = from_->options;
    made_.symmetric = from_->symmetric;
    block_ = from_->options.block_size;
    other_.Fill(0);
  }

  // `nodes`: A by nodes, where that is known.
  std::optional<Hierarchy> Build(RowMatrix a, const kernels::GivenVectors& given,
                                 std::optional<NodeMatrix> nodes = std::nullopt) {
    if (made_.symmetric) known_nodes_ = std::move(nodes);
    if (a.nnz > std::numeric_limits<int32_t>::max()) plan_.reset();  // of Transposition
    if (!made_.symmetric) {
      mirror_ = std::move(a);
      a = from_ != nullptr ? TransposeOn(context_, mirror_, from_->by_rows)
          : plan_          ? Transpose(context_, mirror_, plan_->by_rows)
                           : Transpose(context_, mirror_);
      if (plan_) plan_->by_columns = CopyPattern(context_, mirror_);
    }
    auto scaled = ScaleToUnitDiagonal(context_, std::move(a), made_.symmetric, given, block_);
    if (!scaled) return std::nullopt;
    AmgOptions& options = made_.options;
    AmgQuality& quality = made_.quality;
    quality.beta = made_.beta = scaled->beta;
    quality.block_size = block_;
    quality.near_null_rayleigh = scaled->rayleigh;
    quality.smoother = from_ != nullptr
                           ? from_->smoother
                           : ChooseSmoother(options.smoother, made_.symmetric, scaled->beta);
    quality.reused = from_ != nullptr;
    if (!IsDiagonal(quality.smoother) && !IsMatrix(quality.smoother)) return std::nullopt;
    if (from_ != nullptr && scaled->near_count != from_->near_count) return std::nullopt;
    if (plan_) {
      plan_->options = options;
      plan_->near_count = scaled->near_count;
      plan_->symmetric = made_.symmetric;
      plan_->smoother = quality.smoother;
    }
    if (options.hierarchy_precision == kernels::Precision::kAuto) {
      options.hierarchy_precision = kernels::ChoosePrecision(made_.symmetric, scaled->beta);
    }
    quality.precision = options.hierarchy_precision;
    made_.scale = std::move(scaled->scale);
    made_.sign = scaled->sign;
    near_count_ = scaled->near_count;
    near_null_ = std::move(scaled->near_null);
    of_levels_.push_back(std::move(scaled->rows));
    scaled.reset();
    all_entries_ = of_levels_.back().nnz;
    for (;;) {
      CheckStop();
      Report();
      RowMatrix& rows = of_levels_.back();
      quality.levels.push_back({.rows = rows.n, .nnz = rows.nnz});
      if (!MayCoarsen(rows) || !Coarsen(rows)) break;
      of_levels_.push_back(std::move(coarse_));
    }
    DropFactor();
    if (from_ != nullptr && Read(context_, other_, 0) != 0) return std::nullopt;
    if (plan_) plan_->last = CopyPattern(context_, of_levels_.back());
    Finish(std::move(of_levels_.back()));
    made_.plan = std::move(plan_);
    return std::move(made_);
  }

 private:
  using MadeFactor = std::optional<SmootherFactor>;  // nothing: the host's

  static bool IsDiagonal(SmootherKind kind) {
    return kind == SmootherKind::kL1Jacobi || kind == SmootherKind::kJacobi ||
           kind == SmootherKind::kChebyshev;
  }
  // G, or M of static SPAI.
  bool IsMatrix(SmootherKind kind) const {
    const bool factored = kind == SmootherKind::kFsai || kind == SmootherKind::kAfsai;
    return kind == SmootherKind::kStaticSpai || (made_.symmetric && factored);
  }

  // The host's Builder::Threshold.
  double Threshold() const {
    const double theta = made_.options.strength_threshold;
    return made_.options.block_size > 1 ? theta * theta : theta;
  }

  void CheckStop() const {
    const kernels::StopReason stopped = host_.stop.Poll();
    if (stopped != kernels::StopReason::kNone) {
      throw Refusal{kernels::StopStatus(stopped, "the set-up of multigrid")};
    }
  }

  void Report() const {
    if (host_.progress == nullptr) return;
    const auto done = static_cast<int64_t>(made_.levels.size());
    host_.progress->OnProgress(kernels::Stage::kBuild, done, done + 1);
  }

  bool MayCoarsen(const RowMatrix& rows) const {
    if (from_ != nullptr) return made_.levels.size() < from_->levels.size();
    return rows.n > made_.options.max_coarse_size &&
           static_cast<int>(made_.levels.size()) + 1 < made_.options.max_levels;
  }

  int64_t MostEntries() const {
    return kernels::MostEntries(made_.options, made_.quality.levels.front().nnz, all_entries_);
  }

  int64_t MostBetween() const {
    return kernels::MostProductEntries(made_.quality.levels.front().nnz);
  }

  // Makes coarse_ and a level of `rows`, which stays. False: there is nothing coarser.
  bool Coarsen(const RowMatrix& rows) {
    SetUpLevel level;
    level.n = rows.n;
    SetUpPlan::Level kept;
    by_nodes_.push_back(NodesOfA(rows));
    const SmootherKind kind = made_.quality.smoother;
    if (IsMatrix(kind)) BeginMatrix(rows, kind);
    if (from_ != nullptr) {
      MakeCoarseAgain(rows, from_->levels[made_.levels.size()], level);
    } else if (!MakeCoarse(rows, kept, level)) {
      return false;
    }
    CheckStop();
    all_entries_ += coarse_.nnz;
    made_.quality.levels.back().nnz_p = level.p.nnz;
    if (!IsMatrix(kind)) Smooth(rows, kind, made_.options.chebyshev_degree, level);
    if (plan_) {
      kept.a = CopyPattern(context_, rows);
      if (by_nodes_.back()) kept.nodes.a = CopyPattern(context_, by_nodes_.back()->nodes);
      plan_->levels.push_back(std::move(kept));
      const kernels::AmgLevelQuality& first = made_.quality.levels.front();
      if (HeldBytes(*plan_) > kernels::MostPlanBytes(first.rows, first.nnz)) plan_.reset();
    }
    level.near_count = block_ = near_count_;
    level.near_null = std::exchange(near_null_, std::move(coarse_near_));
    made_.levels.push_back(std::move(level));
    return true;
  }

  // Aᵀ, or Pᵀ, of which a plan keeps the pattern.
  RowMatrix Turned(const RowMatrix& of, Transposition& kept) {
    return plan_ ? Transpose(context_, of, kept) : Transpose(context_, of);
  }

  // The host's.
  Aggregates FindAggregates(const RowMatrix& rows, const StrongGraph& graph) {
    const bool smoothed = made_.options.coarsening == kernels::Coarsening::kSmoothedAggregation;
    if (made_.levels.empty() && smoothed) grid_ = FindGrid(context_, rows, block_);
    if (auto boxes = AggregateByBoxes(context_, graph, grid_)) return *std::move(boxes);
    return Aggregate(context_, graph, static_cast<int>(made_.levels.size()));
  }

  // A of the level at hand by nodes; nothing where they are not whole.
  std::optional<NodeMatrix> NodesOfA(const RowMatrix& rows) {
    if (!HasNodeProducts(block_)) return std::nullopt;
    std::optional<NodeMatrix> known = std::exchange(known_nodes_, std::nullopt);
    if (from_ != nullptr && !known) {
      const RowMatrix& nodes = from_->levels[made_.levels.size()].nodes.a;
      return NodeMatrix{.nodes = CopyPattern(context_, nodes),
                        .rows = block_,
                        .columns = block_,
                        .of = &rows,
                        .values = rows.values.get()};
    }
    if (!known) return ByNodes(context_, rows, block_, block_);
    known->of = &rows;
    known->values = rows.values.get();
    return known;
  }

  // Decides what a plan keeps, and makes coarse_, its near-null vectors, and P and R of the level.
  bool MakeCoarse(const RowMatrix& rows, SetUpPlan::Level& kept, SetUpLevel& level) {
    kernels::AmgLevelQuality& quality = made_.quality.levels.back();
    if (!made_.symmetric && !made_.levels.empty()) {
      mirror_ = Turned(rows, kept.mirror);
    }
    StrongGraph graph =
        FindStrong(context_, rows, made_.symmetric ? nullptr : &mirror_, Threshold(), block_,
                   by_nodes_.back() ? &*by_nodes_.back() : nullptr);
    kept.aggregates = FindAggregates(rows, graph);
    const Aggregates& aggregates = kept.aggregates;
    if (!kernels::IsCoarser(aggregates.count, graph.n)) {
      mirror_ = {};
      return false;
    }
    graph.weights = {};
    quality.aggregates = aggregates.count;
    quality.isolated = aggregates.isolated;
    quality.boxes = aggregates.boxes;
    CheckStop();
    Tentative tentative = BeginTentative(context_, aggregates, near_null_, near_count_, block_,
                                         plan_ ? &kept.members : nullptr);
    coarse_near_ = std::move(tentative.coarse);
    const bool smoothed = made_.options.coarsening == kernels::Coarsening::kSmoothedAggregation;
    if (!smoothed || !SmoothedGalerkin(rows, std::move(graph), tentative, kept, level)) {
      quality.guarded = kept.guarded = smoothed;
      graph = {};
      mirror_ = {};
      kept.right = {};
      kept.left = {};
      kept.mirror = {};
      NeedTentative(kept, tentative);
      level.r = Turned(tentative.p, kept.r);
      level.p = std::move(tentative.p);
      auto coarse = Galerkin(context_, MostEntries(), level.r, rows, level.p, MostBetween(),
                             plan_ ? &kept.product : nullptr);
      coarse_ = coarse ? *std::move(coarse) : RowMatrix();
    }
    if (coarse_.n > 0 && coarse_.nnz <= MostEntries()) return true;
    coarse_ = {};
    too_large_ = true;
    return false;
  }

  // Makes P0, unless it is there.
  void NeedTentative(SetUpPlan::Level& kept, Tentative& tentative) {
    if (tentative.p.n > 0) return;
    if (block_ > 1 || near_count_ > 1) plan_.reset();  // plans of several unknowns go by nodes
    FinishTentative(context_, kept.aggregates, near_count_, block_, tentative);
    if (plan_) kept.tentative = CopyPattern(context_, tentative.p);
  }

  // False: A_c would grow too much.
  bool SmoothedGalerkin(const RowMatrix& rows, StrongGraph graph, Tentative& tentative,
                        SetUpPlan::Level& kept, SetUpLevel& level) {
    const int32_t* const of_node = kept.aggregates.of_node.get();
    const auto& by_nodes = by_nodes_.back();
    if (by_nodes && made_.symmetric) {
      auto smoothed =
          SmoothNodes(context_, *by_nodes, graph.ref(), kept.aggregates, tentative, near_count_);
      if (smoothed) return NodeGalerkin(rows.nnz, *std::move(smoothed), kept.nodes, level);
    }
    NeedTentative(kept, tentative);
    const auto smooth = [&](const RowMatrix& of, KeptProlongation& patterns) {
      RowMatrix filtered = block_ > 1 || near_count_ > 1
                               ? FilterNodes(context_, of, graph.ref(), of_node, block_)
                               : FilterWeak(context_, of, graph.ref(), of_node, near_null_.get(),
                                            kernels::LeastLeft(made_.symmetric));
      DeviceProlongation made =
          SmoothProlongation(context_, std::move(filtered), tentative.p, coarse_near_.get(),
                             near_count_, plan_ ? &patterns : nullptr);
      if (patterns.filtered.nnz == of.nnz) patterns.filtered = {};  // all are strong
      return made;
    };
    DeviceProlongation right = smooth(rows, kept.right);
    made_.quality.levels.back().rho = right.rho;
    if (made_.symmetric) {
      level.r = Turned(right.p, kept.r);
    } else {  // R = (P of Aᵀ)ᵀ
      level.r = Turned(smooth(mirror_, kept.left).p, kept.r);
    }
    graph = {};
    mirror_ = {};
    level.p = std::move(right.p);
    CheckStop();
    return Take(Galerkin(context_, kernels::MostCoarse(made_.options, rows.nnz), level.r, rows,
                         level.p, MostBetween(), plan_ ? &kept.product : nullptr));
  }

  // The same with products by nodes.
  bool NodeGalerkin(int64_t nnz, NodeProlongation smoothed, SetUpPlan::KeptNodes& kept,
                    SetUpLevel& level) {
    made_.quality.levels.back().rho = smoothed.rho;
    NodeMatrix p = NodesOf(smoothed.p, block_, near_count_);
    NodeProduct turned = Transpose(context_, p);
    NodeMatrix r = NodesOf(turned, near_count_, block_);
    CheckStop();
    auto coarse = Galerkin(context_, kernels::MostCoarse(made_.options, nnz), r, *by_nodes_.back(),
                           p, &kept.ap);
    level.p = std::move(smoothed.p.whole);
    level.r = std::move(turned.whole);
    if (!coarse) return false;
    if (coarse->nodes.n > 0) {
      if (plan_) kept.coarse = CopyPattern(context_, coarse->nodes);
      known_nodes_ = NodesOf(*coarse, near_count_, near_count_);
    } else {
      plan_.reset();
    }
    kept.filtered = std::move(smoothed.filtered);
    kept.p = PatternOf(std::move(p.nodes));
    kept.r = std::move(r.nodes);
    coarse_ = std::move(coarse->whole);
    return true;
  }

  bool Take(std::optional<RowMatrix> coarse) {
    if (coarse) coarse_ = *std::move(coarse);
    return coarse.has_value();
  }

  // The same by nodes.
  void MakeNodesAgain(const SetUpPlan::Level& kept, SetUpLevel& level) {
    Tentative tentative = BeginTentative(context_, kept.aggregates, near_null_, near_count_, block_,
                                         nullptr, &kept.members);
    const NodeMatrix& a = *by_nodes_.back();
    auto smoothed = SmoothNodesOn(context_, a, kept.nodes.filtered, kept.nodes.p, kept.aggregates,
                                  tentative, near_count_, other_.get());
    if (!smoothed) throw LeftToTheHost();
    made_.quality.levels.back().rho = smoothed->rho;
    const NodeMatrix p = NodesOf(smoothed->p, block_, near_count_);
    NodeProduct turned = TransposeOn(context_, p, kept.nodes.r);
    const NodeMatrix r = NodesOf(turned, near_count_, block_);
    CheckStop();
    auto coarse = GalerkinOn(context_, r, a, p, kept.nodes.ap, kept.nodes.coarse);
    if (!coarse) throw LeftToTheHost();
    level.p = std::move(smoothed->p.whole);
    level.r = std::move(turned.whole);
    coarse_near_ = std::move(tentative.coarse);
    known_nodes_ = NodesOf(*coarse, near_count_, near_count_);
    coarse_ = std::move(coarse->whole);
  }

  // The same by what is known.
  void MakeCoarseAgain(const RowMatrix& rows, const SetUpPlan::Level& kept, SetUpLevel& level) {
    kernels::AmgLevelQuality& quality = made_.quality.levels.back();
    quality.aggregates = kept.aggregates.count;
    quality.isolated = kept.aggregates.isolated;
    quality.boxes = kept.aggregates.boxes;
    quality.guarded = kept.guarded;
    if (kept.nodes.p.n > 0) return MakeNodesAgain(kept, level);
    Tentative tentative = TentativeOn(context_, kept.aggregates, kept.members, kept.tentative,
                                      near_null_, other_.get());
    coarse_near_ = std::move(tentative.coarse);
    const auto smooth = [&](const RowMatrix& of, const KeptProlongation& patterns) {
      RowMatrix filtered = OnPattern(context_, patterns.filtered.n > 0 ? patterns.filtered : of);
      FilterWeakOn(context_, of, near_null_.get(), kernels::LeastLeft(made_.symmetric), filtered);
      return SmoothProlongationOn(context_, std::move(filtered), tentative.p, coarse_near_.get(),
                                  patterns);
    };
    if (kept.right.p.n == 0) {
      level.p = std::move(tentative.p);
    } else {
      DeviceProlongation right = smooth(rows, kept.right);
      quality.rho = right.rho;
      level.p = std::move(right.p);
    }
    if (made_.symmetric || kept.right.p.n == 0) {
      level.r = TransposeOn(context_, level.p, kept.r);
    } else {
      if (!made_.levels.empty()) mirror_ = TransposeOn(context_, rows, kept.mirror);
      level.r = TransposeOn(context_, smooth(mirror_, kept.left).p, kept.r);
    }
    mirror_ = {};
    CheckStop();
    const size_t below = made_.levels.size() + 1;
    coarse_ = GalerkinOn(context_, level.r, rows, level.p, kept.product,
                         below < from_->levels.size() ? from_->levels[below].a : from_->last,
                         MostBetween());
  }

  void Smooth(const RowMatrix& a, SmootherKind kind, int degree, SetUpLevel& level) {
    level.kind = kind;
    const bool l1 = kind == SmootherKind::kL1Jacobi;
    level.diagonal = InverseDiagonal(context_, a, l1, l1 ? kernels::kSmootherStep : 1);
    if (l1) return ScaleBy(level);
    level.rho = SmootherRho(context_, a, level.diagonal);
    if (kind == SmootherKind::kChebyshev) {
      level.coefficients = kernels::ChebyshevCoefficients(degree);
      return;
    }
    level.diagonal = InverseDiagonal(context_, a, /*l1=*/false, kernels::kSmootherStep / level.rho);
    ScaleBy(level);
  }

  // Begins G or M of a level, beside all that is made of it, and below: neither needs the other. A
  // level after the other; all on this thread, and in the end, where memory is short.
  void BeginMatrix(const RowMatrix& a, SmootherKind kind) {
    const bool spai = kind == SmootherKind::kStaticSpai;
    const int64_t left = context_.arena->limit() - context_.arena->used();
    const bool has_room = left >= kEntryBytesBeside * a.nnz + kRowBytesBeside * a.n +
                                      (spai ? kernels::SpaiScratchBytes(a.n, a.nnz) : 0);
    const auto& nodes = by_nodes_.back();
    const size_t level = made_.levels.size();
    const KeptFactor* const known = from_ != nullptr ? &from_->levels[level].factor : nullptr;
    const bool keeps = plan_.has_value();
    auto make = [this, &nodes, &a, kind, spai, level, known, keeps,
                 there = Milestone(context_)](Context& on) {
      on.Enter();
      there.Precede(on);
      const Caller caller(host_.stop, "the set-up of multigrid");
      const bool symmetric = made_.symmetric;
      const NodeMatrix* const by_nodes = nodes ? &*nodes : nullptr;
      MadeFactor made;
      if (spai) {
        made = known != nullptr ? MakeSpaiOn(on, a, symmetric, *known, caller)
                                : MakeSpai(on, a, symmetric, level == 0, keeps, caller);
      } else {
        made = known != nullptr ? MakeFactorOn(on, a, by_nodes, *known, made_.options, caller)
                                : MakeFactor(on, a, by_nodes, kind, made_.options, keeps, caller);
      }
      on.Synchronize();
      return made;
    };
    if (!has_room) {
      factors_.push_back(std::async(std::launch::deferred, std::move(make), std::ref(context_)));
      return;
    }
    if (!worker_) worker_.emplace(context_.Beside());
    factors_.push_back(worker_->Run(Worker<MadeFactor>::Task(std::move(make))));
  }

  // Nobody wants a G of no level.
  void DropFactor() {
    if (factors_.size() <= made_.levels.size()) return;
    if (worker_) factors_.back().wait();  // it reads A
    factors_.pop_back();
  }

  // Waits for G or M of all levels.
  void TakeFactors() {
    std::vector<SmootherFactor> made;
    for (std::future<MadeFactor>& future : factors_) {
      CheckStop();
      Report();
      constexpr std::chrono::milliseconds kPulse(100);
      while (future.wait_for(kPulse) == std::future_status::timeout) Report();
      MadeFactor factor = Taken(future);
      if (!factor && !MayBeDiagonal()) throw LeftToTheHost();
      if (!factor) return TakeDiagonals();
      factor->GoTo(context_);
      made.push_back(*std::move(factor));
    }
    for (size_t l = 0; l < made_.levels.size(); ++l) {
      SetUpLevel& level = made_.levels[l];
      level.a = std::move(of_levels_[l]);  // which nobody reads any more
      if (l >= made.size()) continue;
      level.kind = made_.quality.smoother;
      level.g = std::move(made[l].g);
      level.gt = std::move(made[l].gt);
      level.rho = made[l].rho;
      level.omega = made[l].omega;
      made_.quality.levels[l].nnz_smoother = level.g.nnz;
      if (plan_) plan_->levels[l].factor = std::move(made[l].kept);
    }
    const kernels::AmgLevelQuality& first = made_.quality.levels.front();
    if (plan_ && HeldBytes(*plan_) > kernels::MostPlanBytes(first.rows, first.nnz)) plan_.reset();
  }

  // Whether M of static SPAI is AUTO's choice here: where the device cannot make it, a diagonal
  // smooths, for the host's set-up would take far longer than the iterations that M spares.
  bool MayBeDiagonal() const {
    return from_ == nullptr && made_.options.smoother == SmootherKind::kAuto &&
           made_.quality.smoother == SmootherKind::kStaticSpai;
  }

  MadeFactor Taken(std::future<MadeFactor>& future) const {
    try {
      return future.get();
    } catch (const Failure& failure) {
      if (failure.fault() != CudaFault::kOutOfMemory || !MayBeDiagonal()) throw;
      return std::nullopt;
    }
  }

  // Makes l1-Jacobi of all levels in place of M.
  void TakeDiagonals() {
    worker_.reset();  // ends the M at hand, which nobody wants, and begins no other one
    factors_.clear();
    made_.quality.smoother = SmootherKind::kL1Jacobi;
    if (plan_) plan_->smoother = SmootherKind::kL1Jacobi;
    for (size_t l = 0; l < made_.levels.size(); ++l) {
      SetUpLevel& level = made_.levels[l];
      Smooth(of_levels_[l], SmootherKind::kL1Jacobi, /*degree=*/0, level);
      level.a = std::move(of_levels_[l]);
    }
  }

  // The level's unknowns are scaled so that a step of its smoother is x += r - A x.
  void ScaleBy(SetUpLevel& level) {
    level.left = Buffer<double>(context_, level.n);
    if (!made_.symmetric) {
      Copy(context_, level.diagonal, level.left, level.n);
      return;
    }
    level.right = Buffer<double>(context_, level.n);
    for (const Buffer<double>* to : {&level.left, &level.right}) {
      RootsKernel<<<Blocks(context_, level.n, kThreads), kThreads, 0, context_.stream>>>(
          level.n, level.diagonal.get(), to->get());
      CheckLaunch("RootsKernel");
    }
  }

  void Finish(RowMatrix rows) {
    AmgQuality& quality = made_.quality;
    SetUpLevel last;
    last.n = rows.n;
    if (rows.n <= made_.options.max_coarse_size) {
      made_.inverse = Invert(rows);
      quality.singular_coarse_pivots = made_.inverse.singular_pivots;
      last.kind = SmootherKind::kChebyshev;  // none: its level is not scaled
    } else if (made_.levels.empty()) {
      throw Refusal{kernels::NoCoarseLevel(rows.n, rows.nnz, too_large_)};
    }
    TakeFactors();
    if (last.n > 0 && made_.inverse.n == 0) {
      quality.inverted = false;
      SmoothLast(rows, last);
      last.a = std::move(rows);
    }
    last.near_count = near_count_;
    last.near_null = std::move(near_null_);
    made_.levels.push_back(std::move(last));
    kernels::SumUp(&quality);
    if (made_.options.hierarchy_precision == kernels::Precision::kFp64) {
      CheckFinite<double>();
    } else {
      CheckFinite<float>();
    }
  }

  void SmoothLast(const RowMatrix& rows, SetUpLevel& last) {
    const SmootherKind kind = kernels::SmootherOfLast(made_.symmetric, made_.quality.smoother);
    if (kind != SmootherKind::kStaticSpai) {
      return Smooth(rows, kind, kernels::kLastChebyshevDegree, last);
    }
    const Caller caller(host_.stop, "the set-up of multigrid");
    auto made =
        MakeSpai(context_, rows, made_.symmetric, /*finest=*/false, /*keeps=*/false, caller);
    if (!made && !MayBeDiagonal()) throw LeftToTheHost();
    if (!made) return Smooth(rows, SmootherKind::kL1Jacobi, /*degree=*/0, last);
    last.kind = kind;
    last.g = std::move(made->g);
    made_.quality.levels.back().nnz_smoother = last.g.nnz;
  }

  CoarseInverse Invert(const RowMatrix& rows) const {
    if (auto there = InvertCoarse(context_, rows, made_.symmetric)) return *std::move(there);
    const auto here = kernels::InvertCoarse(DownloadRows(context_, rows), made_.symmetric, host_);
    if (!here.ok()) throw Refusal{here.status()};
    CoarseInverse sent{here->n, Buffer<double>(context_, here->n * here->n), here->singular_pivots};
    sent.rows.CopyIn(here->rows.data(), sent.rows.size());
    context_.Synchronize();
    return sent;
  }

  // Whether the precision of the cycle holds all of it.
  template <class Value>
  void CheckFinite() {
    const size_t count = made_.levels.size();
    const Buffer<int32_t> bad(context_, static_cast<int64_t>(count));
    bad.Fill(0);
    for (size_t l = 0; l < count; ++l) {
      const SetUpLevel& level = made_.levels[l];
      const auto look = [&](const RowMatrix& rows, const Factor& left, const Factor& right) {
        LayOut<Value>(context_, rows, left, right, nullptr, bad.get() + l);
      };
      look(level.a, {&level.left}, {&level.right});
      look(level.g, {}, {});
      if (l + 1 == count) continue;
      look(level.p, {&level.right, true}, {&made_.levels[l + 1].right});
      look(level.r, {&made_.levels[l + 1].left}, {&level.left, true});
    }
    std::vector<int32_t> found(count);
    context_.Download({bad.To(found.data(), static_cast<int64_t>(count))});
    const auto at = std::find(found.begin(), found.end(), 1);
    if (at != found.end()) {
      throw Refusal{kernels::BeyondPrecision(static_cast<size_t>(at - found.begin()))};
    }
  }

  Context& context_;
  const kernels::Context& host_;
  Hierarchy made_;
  std::optional<SetUpPlan> plan_;    // to be filled in; nothing: `from_` is there, or none is kept
  const SetUpPlan* from_ = nullptr;  // null: nothing is decided yet
  Buffer<int32_t> other_;            // 1 where P0 has not the pattern of `from_`
  int block_ = 1;                    // unknowns of a node of the level at hand
  int near_count_ = 1;
  Buffer<double> near_null_, coarse_near_;  // of that level, and below
  kernels::Grid grid_;                      // of nodes of that level, as long as they are one
  RowMatrix mirror_, coarse_;
  int64_t all_entries_ = 0;
  bool too_large_ = false;  // a level was, for max_operator_complexity
  // A of all levels, and by nodes where these are whole. They stay where they are while G is made.
  std::deque<RowMatrix> of_levels_;
  std::deque<std::optional<NodeMatrix>> by_nodes_;
  std::optional<NodeMatrix> known_nodes_;  // of the A that comes next
  std::vector<std::future<MadeFactor>> factors_;
  std::optional<Worker<MadeFactor>> worker_;  // ends before all these do
};

}  // namespace

template <class Value>
void LayOut(const Context& context, const RowMatrix& rows, const Factor& left, const Factor& right,
            double* to, int32_t* bad) {
  if (rows.n == 0) return;
  const auto ref = [](const Factor& factor) {
    return FactorRef{factor.of != nullptr ? factor.of->get() : nullptr, factor.over};
  };
  WithLanes(rows.nnz, rows.n, [&](auto lanes) {
    LayOutKernel<Value, lanes>
        <<<Blocks(context, rows.n, kThreads / lanes), kThreads, 0, context.stream>>>(
            rows.pattern(), rows.values.get(), ref(left), ref(right), to, bad);
  });
  CheckLaunch("LayOutKernel");
}
template void LayOut<float>(const Context&, const RowMatrix&, const Factor&, const Factor&, double*,
                            int32_t*);
template void LayOut<double>(const Context&, const RowMatrix&, const Factor&, const Factor&,
                             double*, int32_t*);

std::optional<Hierarchy> SetUp(Context& context, RowMatrix a, std::optional<NodeMatrix> nodes,
                               bool symmetric, const kernels::GivenVectors& given,
                               const AmgOptions& options, const kernels::Context& host) {
  if (a.n == 0) return std::nullopt;
  try {
    return Builder(context, symmetric, options, host).Build(std::move(a), given, std::move(nodes));
  } catch (const LeftToTheHost&) {
    return std::nullopt;
  }
}

std::optional<Hierarchy> SetUpAgain(Context& context, const SetUpPlan& plan, RowMatrix a,
                                    std::optional<NodeMatrix> nodes,
                                    const kernels::GivenVectors& given,
                                    const kernels::Context& host) {
  try {
    return Builder(context, plan, host).Build(std::move(a), given, std::move(nodes));
  } catch (const LeftToTheHost&) {
    return std::nullopt;
  }
}

std::optional<NodeMatrix> KnownNodes(Context& context, const SetUpPlan& plan, const RowMatrix& a) {
  if (plan.levels.empty() || plan.levels.front().nodes.a.n == 0) return std::nullopt;
  const int block = plan.options.block_size;
  return NodeMatrix{.nodes = CopyPattern(context, plan.levels.front().nodes.a),
                    .rows = block,
                    .columns = block,
                    .of = &a,
                    .values = a.values.get()};
}

int64_t HeldBytes(const SetUpPlan& plan) {
  int64_t bytes = HeldBytes(plan.by_columns) + HeldBytes(plan.by_rows) + HeldBytes(plan.last);
  for (const SetUpPlan::Level& level : plan.levels) {
    bytes += HeldBytes(level.a) + HeldBytes(level.aggregates.of_node) +
             HeldBytes(level.members.begin) + HeldBytes(level.members.node) +
             HeldBytes(level.tentative) + HeldBytes(level.mirror) + HeldBytes(level.r) +
             HeldBytes(level.product.ap) + HeldBytes(level.product.coarse) +
             HeldBytes(level.factor.pattern) + HeldBytes(level.factor.transposed);
    const SetUpPlan::KeptNodes& nodes = level.nodes;
    for (const RowMatrix* of :
         {&nodes.a, &nodes.filtered, &nodes.p, &nodes.ap, &nodes.coarse, &nodes.r}) {
      bytes += HeldBytes(*of);
    }
    for (const KeptProlongation* of : {&level.right, &level.left}) {
      bytes += HeldBytes(of->filtered) + HeldBytes(of->p);
    }
  }
  return bytes;
}

}  // namespace spaid::cuda
