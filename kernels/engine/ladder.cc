#include "kernels/engine/ladder.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/norm.h"
#include "kernels/base/parallel.h"
#include "kernels/dense/lu.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/ladder_rungs.h"
#include "kernels/engine/lu_operator.h"
#include "kernels/engine/over_ranks_operator.h"
#include "kernels/engine/spec.h"
#include "kernels/krylov/null_space.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/scaling.h"

namespace spaid::kernels {
namespace {

double ToDouble(int64_t x) { return static_cast<double>(x); }
size_t Z(int64_t i) { return static_cast<size_t>(i); }

using Looks = std::function<StallWatch::Look()>;

// Solves of one rung, each of the residual that the one before it left in the caller's system.
constexpr int kRefinements = 8;
constexpr double kLeastRefined = 0.1;  // each must leave no more of the scaled residual
constexpr double kHarder = 1e-2;       // of the target, where the one before it did not do
constexpr double kLeastRtol = 1e-13, kMostRtol = 0.5;
constexpr int64_t kRowsAtOnce = 4096;
constexpr int64_t kEntryBytes = sizeof(int32_t) + sizeof(double);

bool SawIndefinite(const SolveResult& solved) {
  return std::any_of(solved.rhs.begin(), solved.rhs.end(),
                     [](const RhsResult& rhs) { return rhs.outcome == Outcome::kIndefinite; });
}

class Ladder {
 public:
  Ladder(const Engine& engine, const LadderCase& c, LadderSink& sink, const Context& context)
      : engine_(engine),
        c_(c),
        sink_(sink),
        context_(context),
        n_(c.a.n_cols),
        on_gpu_(c.solve_there && c.backend == Backend::kCuda) {}

  Result<LadderResult> Run(SolveResult solved, Rung first) {
    Begin(std::move(solved));
    const RungKind start = first.kind;
    positive_ = MayBePositive(start) && !SawIndefinite(best_);
    const bool scaled = first.scaled;
    first.relative_residual = Worst();
    if (first.left.empty()) first.left = WhyLeft(best_, /*stalled=*/true);
    Tell(std::move(first));
    return Rise(start, start, scaled);
  }

  Result<LadderResult> RunFrom(RungKind start, std::span<const double> x0) {
    const size_t n_rhs = c_.b.size() / std::max<size_t>(1, Z(n_));
    SolveResult none;
    none.rhs.resize(n_rhs);
    none.x.assign(x0.begin(), x0.end());
    for (RhsResult& rhs : none.rhs) rhs.outcome = Outcome::kStagnated;
    Begin(std::move(none));
    if (on_gpu_) r_norm_ = x0.empty() ? b_norm_ : Norms(Residuals(x_));
    positive_ = MayBePositive(start);
    return Rise(start, std::nullopt, false);
  }

 private:
  void Begin(SolveResult solved) {
    x_ = std::move(solved.x);
    best_ = std::move(solved);
    for (size_t v = 0; v < best_.rhs.size(); ++v) {
      b_norm_.push_back(NormOf(c_.b.subspan(v * Z(n_), Z(n_))));
      spent_.push_back(best_.rhs[v].iterations);
      r_norm_.push_back(best_.rhs[v].true_residual);
    }
    if (on_gpu_) return;
    FormResiduals();
    r_norm_ = Norms(residual_);
  }
  // Forms those of x_, where the host goes on from it.
  void FormResiduals() {
    if (x_.empty()) x_.assign(c_.b.size(), 0.0);
    from_ = x_;
    residual_ = Residuals(x_);
  }

  // Rungs that serve an indefinite A alone tell that it is so, where they are begun with.
  bool MayBePositive(RungKind start) const {
    return TakenForPositive(c_) && start != RungKind::kMinres && start != RungKind::kStaticSpai;
  }

  // Enters the rungs from `start` up, then those below it. `entered`: the one that was, before; it
  // is tried again where that was not of A scaled, and here is.
  Result<LadderResult> Rise(RungKind start, std::optional<RungKind> entered, bool scaled) {
    if (entered > RungKind::kBottom && !scaled && c_.over == nullptr) {
      const Status made = GuardMemory("scaling", [&] { return MakeScaled(); });
      scaled = made.ok() && scaling_->identity();
    }
    std::vector<PlannedRung> rungs = PlannedRungs(c_, positive_, start);
    if (entered != RungKind::kBottom) {
      auto bottom = Bottom();
      if (!bottom.ok()) return bottom.status();
      // If something is to be built, iterations without it tell nothing.
      if (bottom->spec.engine != EngineKind::kNone || !c_.ladder.to_build) {
        rungs.insert(rungs.begin(), *std::move(bottom));
      }
    }
    const auto first = static_cast<std::ptrdiff_t>(PlaceOf(rungs, start));
    std::rotate(rungs.begin(), rungs.begin() + first, rungs.end());
    // Long cycles are for what came closest, unless it is known that they serve.
    std::erase_if(rungs, [&](const PlannedRung& rung) {
      return rung.kind == RungKind::kLongCycles && start != RungKind::kLongCycles;
    });
    const auto next_of = [&](size_t i) {
      const auto was_entered = [&](const PlannedRung& rung) {
        return rung.kind == entered && (scaled || !rung.scaled);
      };
      while (i < rungs.size() && (!Fits(rungs[i], c_, positive_) || was_entered(rungs[i]))) ++i;
      // Not before the start: what is known to serve.
      if (i > 0 || start == RungKind::kBottom) PutLuBefore(i, engine_, c_, context_, &rungs);
      return i;
    };
    for (size_t i = next_of(0); i < rungs.size() && GoesOn(); i = GoesOn() ? next_of(i + 1) : i) {
      // Found when it is asked for: whether multigrid is next takes a look at A.
      const auto next = [&]() -> PlannedRung* {
        const size_t k = next_of(i + 1);
        return k < rungs.size() ? &rungs[k] : nullptr;
      };
      Status status = Enter(rungs[i], next);
      if (!status.ok()) return status;
    }
    if (GoesOn() && closest_) {
      Status status = Again(*closest_);
      if (!status.ok()) return status;
    }
    return Finish();
  }

  Result<PlannedRung> Bottom() const {
    PlannedRung bottom;
    auto resolved = engine_.Resolve({.engine = EngineKind::kAuto, .method = c_.options.method},
                                    c_.a, c_.diagnosis, nullptr, context_);
    if (!resolved.ok()) return resolved.status();
    bottom.spec = resolved->spec;
    auto method = ResolveMethod(c_.options.method, ForCg(bottom.spec), c_.diagnosis);
    if (!method.ok()) return method.status();
    bottom.method = *method;
    bottom.restart = c_.options.restart;
    bottom.name = std::string(TraitsOf(bottom.spec.engine).name);
    return bottom;
  }

  // A rung's M and matrix, kept for another try.
  struct Closest {
    PlannedRung rung;
    std::shared_ptr<const Preconditioner> m;
    int64_t nnz_m = 0;
    double relative_residual = 0;
  };

  double Target(int64_t v) const {
    return std::max(c_.options.rtol * b_norm_[Z(v)], c_.options.atol);
  }
  bool Converged(int64_t v) const { return r_norm_[Z(v)] <= Target(v); }
  double Relative(int64_t v) const {
    return b_norm_[Z(v)] > 0 ? r_norm_[Z(v)] / b_norm_[Z(v)] : r_norm_[Z(v)];
  }
  double Worst() const {
    double worst = 0;
    for (int64_t v = 0; v < Count(); ++v) worst = std::max(worst, Relative(v));
    return worst;
  }
  int64_t Count() const { return static_cast<int64_t>(spent_.size()); }
  int64_t Left() const {
    int64_t left = c_.options.max_iterations;
    for (int64_t v = 0; v < Count(); ++v) {
      if (!Converged(v)) left = std::min(left, c_.options.max_iterations - spent_[Z(v)]);
    }
    return left;
  }
  bool AllConverged() const {
    for (int64_t v = 0; v < Count(); ++v) {
      if (!Converged(v)) return false;
    }
    return true;
  }
  bool GoesOn() const {
    return !AllConverged() && Left() > 0 && !stopped_ && !context_.stop.stop_requested();
  }

  // b − A x of every right-hand side, by columns.
  Array<double> Residuals(const Array<double>& x) const {
    Array<double> residual;
    residual.assign(c_.b.begin(), c_.b.end());
    if (c_.over != nullptr) {
      const OverRanksOperator a(*engine_.Ranks(), *c_.over, n_);
      Array<double> product(Z(n_));
      for (int64_t v = 0; v < Count(); ++v) {
        a.Apply({x.data() + v * n_, Z(n_)}, product, /*threads=*/1);
        for (int64_t i = 0; i < n_; ++i) residual[Z(v * n_ + i)] -= product[Z(i)];
      }
      return residual;
    }
    // Then its columns are its rows, which threads share.
    const bool symmetric = c_.diagnosis.structurally_symmetric && c_.diagnosis.max_asymmetry == 0;
    for (int64_t v = 0; v < Count(); ++v) {
      double* const r = residual.data() + v * n_;
      if (symmetric) {
        ParallelFor(n_, kRowsAtOnce, c_.threads, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) {
            for (int64_t p = c_.a.col_ptr[Z(i)]; p < c_.a.col_ptr[Z(i) + 1]; ++p) {
              r[i] -= c_.a.values[Z(p)] * x[Z(v * n_ + c_.a.row_idx[Z(p)])];
            }
          }
        });
        continue;
      }
      for (int64_t j = 0; j < n_; ++j) {
        const double x_j = x[Z(v * n_ + j)];
        if (x_j == 0) continue;
        for (int64_t p = c_.a.col_ptr[Z(j)]; p < c_.a.col_ptr[Z(j) + 1]; ++p) {
          r[c_.a.row_idx[Z(p)]] -= c_.a.values[Z(p)] * x_j;
        }
      }
    }
    return residual;
  }
  // By parts, which any number of threads share.
  double NormOf(std::span<const double> v) const {
    std::vector<double> parts(Z((std::ssize(v) + kRowsAtOnce - 1) / kRowsAtOnce));
    ParallelFor(std::ssize(v), kRowsAtOnce, c_.threads, [&](int64_t begin, int64_t end, int) {
      parts[Z(begin / kRowsAtOnce)] = Norm(v.subspan(Z(begin), Z(end - begin)));
    });
    return Norm(parts);
  }
  std::vector<double> Norms(const Array<double>& vectors) const {
    std::vector<double> norms;
    for (int64_t v = 0; v < Count(); ++v) {
      norms.push_back(NormOf({vectors.data() + v * n_, Z(n_)}));
    }
    return norms;
  }
  static double Largest(const std::vector<double>& norms, const std::vector<int64_t>& of) {
    double largest = 0;
    for (const int64_t v : of) largest = std::max(largest, norms[Z(v)]);
    return largest;
  }
  // In the norm of the system that is solved.
  std::vector<double> NormsThere(const Array<double>& residual, bool scaled) const {
    if (!scaled) return Norms(residual);
    Array<double> there;
    there.resize(residual.size());
    for (int64_t v = 0; v < Count(); ++v) {
      ScaleRhs(*scaling_, {residual.data() + v * n_, Z(n_)}, {there.data() + v * n_, Z(n_)});
    }
    return Norms(there);
  }

  Status MakeScaled() {
    if (scaling_) return {};
    auto scaling = ChooseScaling(c_.a, c_.diagnosis, ScalingMode::kAuto, context_);
    if (!scaling.ok()) return scaling.status();
    if (!scaling->identity()) {
      auto matrix = ScaledMatrix(c_.a, *scaling, context_);
      if (!matrix.ok()) return matrix.status();
      scaled_ = *std::move(matrix);
      if (c_.options.null_space != nullptr) {
        scaled_space_ = ScaledNullSpace(*c_.options.null_space, *scaling, scaled_);
      }
    }
    scaling_ = *std::move(scaling);
    return {};
  }

  CscView MatrixOf(const PlannedRung& rung) const {
    return rung.scaled && !scaling_->identity() ? CscView(scaled_) : c_.a;
  }

  // Stands for A⁻¹ in a rung's iterations; both null: nothing does.
  struct Made {
    std::shared_ptr<const Preconditioner> m;
    std::shared_ptr<const DenseLu> lu;
  };

  Result<Made> Build(const PlannedRung& rung) const {
    if (!rung.dense_lu && rung.spec.engine == EngineKind::kNone) return Made{};
    const CscView a = MatrixOf(rung);
    if (rung.dense_lu) {
      const auto fill = [&a](int64_t j, double* column) {
        for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
          column[a.row_idx[Z(p)]] = a.values[Z(p)];
        }
      };
      auto lu = DenseLu::Factor(n_, fill, context_);
      if (!lu.ok()) return lu.status();
      return Made{.m = nullptr, .lu = std::make_shared<DenseLu>(*std::move(lu))};
    }
    auto plan = engine_.MakePlan(rung.spec, a, nullptr, context_);
    if (!plan.ok()) return plan.status();
    auto built = (*plan)->Build(rung.spec, a, context_);
    if (!built.ok()) return built.status();
    return Made{.m = built->preconditioner, .lu = nullptr};
  }

  double Iteration(const PlannedRung& rung, int64_t nnz_m) const {
    return IterationMs({.method = rung.method,
                        .n = ToDouble(n_),
                        .nnz_a = ToDouble(c_.nnz()),
                        .nnz_m = ToDouble(nnz_m),
                        .parts = TraitsOf(rung.spec.engine).by_parts},
                       c_.backend, std::max(1, ResolveThreads(context_.threads)));
  }

  // M = Q D_c M' D_r of an M' of A scaled.
  Result<std::shared_ptr<const Preconditioner>> Unscaled(const Preconditioner& m) const {
    auto of_a = UnscaledInverse(m.matrix(), *scaling_, context_);
    if (!of_a.ok()) return of_a.status();
    auto made = HostPreconditioner::Make(m.kind(), *std::move(of_a), context_, /*on_host=*/true);
    if (!made.ok()) return made.status();
    return std::shared_ptr<const Preconditioner>(*std::move(made));
  }

  // Bytes of a solve, of A as it is scaled, and of the M that is kept for the end.
  int64_t SolveBytes(const PlannedRung& rung) const {
    const int64_t vector = 8 * n_;
    const int64_t basis =
        rung.method == Method::kGmres && c_.over == nullptr
            ? std::min(n_ * vector, std::max(rung.restart * vector, rung.basis_bytes))
            : 0;
    return basis + 40 * vector + scaled_.bytes() + (closest_ ? closest_->m->host_bytes() : 0);
  }

  // `next`: gives null where nothing is behind it but what came closest.
  Status Enter(PlannedRung& rung, const std::function<PlannedRung*()>& next) {
    const auto start = Clock::now();
    Rung told;
    told.kind = rung.kind;
    told.engine = rung.spec.engine;
    told.method = rung.method;
    const auto leave = [&](const Status& status) -> Status {
      told.left = status.message();
      told.relative_residual = Worst();
      told.setup_ms = MsSince(start);
      stopped_ = context_.stop.stop_requested();
      if (!stopped_) Tell(std::move(told));
      return {};
    };
    if (rung.scaled) {
      if (Status status = GuardMemory("scaling", [&] { return MakeScaled(); }); !status.ok()) {
        told.what = Told(rung, nullptr);
        return leave(status);
      }
    }
    told.what = Told(rung, rung.scaled ? &*scaling_ : nullptr);
    told.scaled = rung.scaled && !scaling_->identity();
    const double setup_ms = SetupMs(engine_, c_, context_, &rung);
    const BuildEstimate& estimate = rung.estimate;
    // Behind the last one comes what came closest, by longer cycles, and takes what is left.
    const bool to_end = rung.kind == RungKind::kLongCycles || (rung.dense_lu && next() == nullptr);
    // Predicted when it is asked for: what is behind may take long to predict.
    Looks look;
    if (!to_end) {
      look = [&] {
        return LookAfter(engine_, c_, next(), rung.method, told.nnz_m,
                         TraitsOf(rung.spec.engine).by_parts, context_);
      };
    }
    const int64_t nnz_m = rung.spec.engine == EngineKind::kJacobi ? 0 : estimate.nnz_m;
    const int64_t judged = to_end ? Left() : std::min(StallWatch::kLeastLook, Left());
    const double predicted_ms = setup_ms + ToDouble(judged * Count()) * Iteration(rung, nnz_m);
    if (Status status = sink_.Enter(told.what,
                                    estimate.host_bytes + SolveBytes(rung) +
                                        (told.scaled ? 2 * kEntryBytes * estimate.nnz_m : 0),
                                    predicted_ms);
        !status.ok()) {
      return leave(status);
    }
    auto made = GuardMemory("the rung", [&] { return Build(rung); });
    if (!made.ok()) return leave(made.status());
    const std::shared_ptr<const Preconditioner>& m = made->m;
    if (m != nullptr) told.nnz_m = m->nnz() * (m->is_factor() ? 2 : 1);
    if (made->lu != nullptr) told.nnz_m = n_ * n_;
    told.setup_ms = MsSince(start);
    if (Status status = Solve(rung, *made, look, &told); !status.ok()) return status;
    // The later one of two that come to the same: it is stronger.
    if (m && (!closest_ || told.relative_residual <= closest_->relative_residual)) {
      closest_ = Closest{rung, m, told.nnz_m, told.relative_residual};
    }
    Tell(std::move(told));
    return {};
  }

  Status Again(const Closest& closest) {
    PlannedRung rung = closest.rung;
    if (c_.options.method == Method::kAuto && !ForSymmetric(rung.method)) {
      rung.method = Method::kGmres;
    }
    if (rung.method == Method::kGmres) {
      rung.kind = RungKind::kLongCycles;
      LengthenCycles(c_, &rung);
    }
    Rung told;
    told.kind = rung.kind;
    told.engine = rung.spec.engine;
    told.method = rung.method;
    told.what = Told(rung, rung.scaled ? &*scaling_ : nullptr) + ", once more";
    told.scaled = rung.scaled && !scaling_->identity();
    told.nnz_m = closest.nnz_m;
    const double predicted_ms = ToDouble(Left() * Count()) * Iteration(rung, closest.nnz_m);
    if (Status status = sink_.Enter(told.what, SolveBytes(rung), predicted_ms); !status.ok()) {
      told.left = status.message();
      told.relative_residual = Worst();
      Tell(std::move(told));
      return {};
    }
    Status status = Solve(rung, {closest.m, nullptr}, /*look=*/{}, &told);
    if (status.ok()) Tell(std::move(told));
    return status;
  }

  // Reduces the residuals of all right-hand sides that have not converged, by solves of them.
  // `look`: null: it takes what is left.
  Status Solve(const PlannedRung& rung, const Made& made, const Looks& look, Rung* told) {
    const std::shared_ptr<const Preconditioner>& m = made.m;
    const auto start = Clock::now();
    const bool rung_scaled = rung.scaled && !scaling_->identity();
    if (on_gpu_ && !rung_scaled && made.lu == nullptr) {
      SolveOptions options = c_.options;
      Apply(rung, c_, &options);
      if (HostAlone(options, m != nullptr ? m->form() : MForm::kMatrix).empty()) {
        SolveOnGpu(m, std::move(options), look, told);
        return {};
      }
    }
    if (!rung_scaled || residual_.empty()) FormResiduals();
    from_norm_ = NormsThere(residual_, rung_scaled);
    // M of the caller's A, where what is small in the scaled system is not so in the caller's.
    std::shared_ptr<const Preconditioner> of_a;
    // Half of what is left is the next rungs'.
    int64_t budget = look ? (Left() + 1) / 2 : Left();
    // A share of the caller's target: small in the scaled system need not be small in the caller's.
    double share = 0.9;
    for (int round = 0; round < kRefinements && GoesOn() && budget > 0; ++round) {
      const bool scaled = rung_scaled && (round % 2 == 0 || m == nullptr);
      if (rung_scaled && !scaled && of_a == nullptr && m != nullptr) {
        auto unscaled = GuardMemory("the rung", [&] { return Unscaled(*m); });
        if (!unscaled.ok()) {
          told->left = unscaled.status().message();
          break;
        }
        of_a = *std::move(unscaled);
      }
      const std::shared_ptr<const Preconditioner>& with = of_a && !scaled ? of_a : m;
      std::vector<int64_t> open;
      StallWatch::Numbering numbering;
      const std::vector<double> norms = Norms(residual_);
      double rtol = kMostRtol;
      for (int64_t v = 0; v < Count(); ++v) {
        if (Converged(v)) continue;
        open.push_back(v);
        numbering.rhs.push_back(static_cast<int32_t>(v));
        numbering.before.push_back(spent_[Z(v)]);
        numbering.unit.push_back(Relative(v));
        rtol = std::min(rtol, share * Target(v) / norms[Z(v)]);
      }
      rtol = std::max(rtol, kLeastRtol);
      Array<double> right;
      right.resize(open.size() * Z(n_));
      for (size_t k = 0; k < open.size(); ++k) {
        const std::span<const double> r(residual_.data() + open[k] * n_, Z(n_));
        const std::span<double> to(right.data() + k * Z(n_), Z(n_));
        if (scaled) {
          ScaleRhs(*scaling_, r, to);
        } else {
          std::copy(r.begin(), r.end(), to.begin());
        }
      }
      SolveOptions options = c_.options;
      Apply(rung, c_, &options);
      options.rtol = rtol;
      options.atol = 0;
      options.max_iterations = budget;
      options.keep_history = false;
      if (scaled) options.null_space = scaled_space_.get();
      StallWatch watch(c_.diagnosis.numerically_symmetric, rtol, look, budget, context_.progress,
                       context_.stop, std::move(numbering));
      Context context = context_;
      context.progress = &watch;
      context.stop = watch.token();
      const CscView of = scaled ? MatrixOf(rung) : c_.a;
      const bool there =
          c_.over != nullptr ||
          (c_.solve_there && !scaled && made.lu == nullptr &&
           HostAlone(options, with != nullptr ? with->form() : MForm::kMatrix).empty());
      auto solved = made.lu
                        ? SolveByLu(of, LuOperator(*made.lu), right, std::move(options), context)
                    : there ? c_.solve_there(with, right, {}, options, context)
                            : engine_.Solve(of, with.get(), right, {}, options, context);
      if (!solved.ok()) {
        told->left = solved.status().message();
        break;
      }
      const double before = Largest(from_norm_, open);
      budget -= Add(*solved, open, scaled, rung_scaled, told);
      positive_ = positive_ && !SawIndefinite(*solved);
      told->left = WhyLeft(*solved, watch.stalled());
      const bool through = std::all_of(solved->rhs.begin(), solved->rhs.end(), [](const auto& rhs) {
        return rhs.outcome == Outcome::kConverged;
      });
      stopped_ = context_.stop.stop_requested();
      if (!rung_scaled || (!through && scaled)) break;
      if (!scaled) continue;
      const double now = Largest(from_norm_, open);
      if (rtol <= kLeastRtol && now > kLeastRefined * before) break;
      if (round > 0) share *= kHarder;
    }
    EndSolve(start, told);
    return {};
  }

  // Solves the system itself, from the iterate that there is: the host forms no residual.
  void SolveOnGpu(const std::shared_ptr<const Preconditioner>& m, SolveOptions options,
                  const Looks& look, Rung* told) {
    const auto start = Clock::now();
    std::vector<int64_t> open;
    StallWatch::Numbering numbering;
    for (int64_t v = 0; v < Count(); ++v) {
      if (Converged(v)) continue;
      open.push_back(v);
      numbering.rhs.push_back(static_cast<int32_t>(v));
      numbering.before.push_back(spent_[Z(v)]);
      numbering.unit.push_back(1);
    }
    const bool all = std::ssize(open) == Count();
    Array<double> some_b, some_x;
    for (const int64_t v : open) {
      if (all) break;
      some_b.insert(some_b.end(), c_.b.begin() + v * n_, c_.b.begin() + (v + 1) * n_);
      if (x_.empty()) continue;
      some_x.insert(some_x.end(), x_.begin() + v * n_, x_.begin() + (v + 1) * n_);
    }
    options.max_iterations = look ? (Left() + 1) / 2 : Left();  // half is the next rungs'
    options.keep_history = false;
    StallWatch watch(c_.diagnosis.numerically_symmetric, options.rtol, look, options.max_iterations,
                     context_.progress, context_.stop, std::move(numbering));
    Context context = context_;
    context.progress = &watch;
    context.stop = watch.token();
    auto solved = c_.solve_there(m, all ? c_.b : std::span<const double>(some_b),
                                 all ? std::span<const double>(x_) : some_x, options, context);
    if (!solved.ok()) {
      told->left = solved.status().message();
    } else {
      const bool first = x_.empty(), taken = first && all;
      if (taken) x_ = std::move(solved->x);
      if (first && !all) x_.assign(c_.b.size(), 0.0);
      for (size_t k = 0; k < open.size(); ++k) {
        const int64_t v = open[k];
        const RhsResult& rhs = solved->rhs[k];
        spent_[Z(v)] += rhs.iterations;
        told->iterations += rhs.iterations;
        if (!(rhs.true_residual < r_norm_[Z(v)])) {
          if (taken) std::fill_n(x_.begin() + v * n_, n_, 0.0);
          continue;
        }
        if (!taken) {
          std::copy_n(solved->x.begin() + static_cast<std::ptrdiff_t>(k) * n_, n_,
                      x_.begin() + v * n_);
        }
        r_norm_[Z(v)] = rhs.true_residual;
        last_[v] = rhs;
      }
      AddFigures(*solved);
      positive_ = positive_ && !SawIndefinite(*solved);
      told->left = WhyLeft(*solved, watch.stalled());
      stopped_ = context_.stop.stop_requested();
      residual_.clear();
    }
    EndSolve(start, told);
  }

  void EndSolve(Clock::time_point start, Rung* told) const {
    told->solve_ms += MsSince(start);
    told->relative_residual = Worst();
    if (AllConverged()) {
      told->left.clear();
    } else if (told->left.empty()) {
      told->left = "rounding keeps the residual at " + Figure(told->relative_residual);
    }
  }

  static Result<SolveResult> SolveByLu(const CscView& a, const LuOperator& lu,
                                       std::span<const double> b, SolveOptions options,
                                       const Context& context) {
    const auto start = Clock::now();
    auto rows = CsrOperator::FromColumns(a, context);
    if (!rows.ok()) return rows.status();
    if (options.null_space != nullptr && !options.null_space->IsOf(a)) {
      options.null_space = nullptr;
    }
    auto solved = kernels::Solve(*rows, &lu, b, {}, options, context);
    if (solved.ok()) solved->solve_ms = MsSince(start);
    return solved;
  }

  // Adds corrections that lessen the residual. Returns the most iterations of a right-hand side.
  int64_t Add(const SolveResult& solved, const std::vector<int64_t>& open, bool scaled,
              bool rung_scaled, Rung* told) {
    Array<double> x = from_, step;
    step.resize(Z(n_));
    int64_t most = 0;
    for (size_t k = 0; k < open.size(); ++k) {
      const std::span<const double> y(solved.x.data() + k * Z(n_), Z(n_));
      if (scaled) {
        UnscaleSolution(*scaling_, y, step);
      } else {
        std::copy(y.begin(), y.end(), step.begin());
      }
      for (int64_t i = 0; i < n_; ++i) x[Z(open[k] * n_ + i)] += step[Z(i)];
      spent_[Z(open[k])] += solved.rhs[k].iterations;
      told->iterations += solved.rhs[k].iterations;
      most = std::max(most, solved.rhs[k].iterations);
    }
    const Array<double> residual = Residuals(x);
    const std::vector<double> norms = Norms(residual), there = NormsThere(residual, rung_scaled);
    const auto take = [&](int64_t v, const Array<double>& from, Array<double>* to) {
      std::copy_n(from.begin() + v * n_, n_, to->begin() + v * n_);
    };
    for (size_t k = 0; k < open.size(); ++k) {
      const int64_t v = open[k];
      if (norms[Z(v)] < r_norm_[Z(v)]) {
        take(v, x, &x_);
        r_norm_[Z(v)] = norms[Z(v)];
        last_[v] = solved.rhs[k];
      }
      if (there[Z(v)] < from_norm_[Z(v)]) {
        take(v, x, &from_);
        take(v, residual, &residual_);
        from_norm_[Z(v)] = there[Z(v)];
      }
    }
    AddFigures(solved);
    return most;
  }

  void AddFigures(const SolveResult& solved) {
    SolveFigures& f = best_.figures;
    f.place_ms += solved.figures.place_ms;
    f.iterate_ms += solved.figures.iterate_ms;
    f.check_ms += solved.figures.check_ms;
    f.iterations += solved.figures.iterations;
    f.bytes += solved.figures.bytes;
    best_.solve_ms += solved.solve_ms;
    best_.m_storage = solved.m_storage;
    best_.storage_reason = solved.storage_reason;
  }

  static std::string WhyLeft(const SolveResult& solved, bool stalled) {
    for (const RhsResult& rhs : solved.rhs) {
      switch (rhs.outcome) {
        case Outcome::kConverged:
          continue;
        case Outcome::kCancelled:
          return stalled ? "the end was not in sight" : "cancelled";
        case Outcome::kTimeLimit:
          return "no time is left";
        case Outcome::kMaxIterations:
          return "max_iterations are spent";
        default:
          return rhs.detail;
      }
    }
    return "";
  }

  void Tell(Rung rung) {
    sink_.OnRung(rung);
    rungs_.push_back(std::move(rung));
  }

  Result<LadderResult> Finish() {
    LadderResult out;
    const StopReason stop = context_.stop.Poll();
    for (int64_t v = 0; v < Count(); ++v) {
      RhsResult& rhs = best_.rhs[Z(v)];
      if (const auto last = last_.find(v); last != last_.end()) rhs = last->second;
      rhs.iterations = spent_[Z(v)];
      rhs.true_residual = r_norm_[Z(v)];
      rhs.true_relative_residual = Relative(v);
      if (Converged(v)) {
        rhs.outcome = Outcome::kConverged;
        rhs.detail.clear();
        continue;
      }
      if (stop != StopReason::kNone) {
        rhs.outcome = stop == StopReason::kTimeLimit ? Outcome::kTimeLimit : Outcome::kCancelled;
      } else if (Left() <= 0) {
        rhs.outcome = Outcome::kMaxIterations;
      } else if (rhs.outcome == Outcome::kCancelled || rhs.outcome == Outcome::kConverged) {
        rhs.outcome = Outcome::kStagnated;
      }
      rhs.detail = "AUTO tried " + std::to_string(rungs_.size()) +
                   " preconditioners and methods, and none solves it (the rungs say why); A may be "
                   "singular or as good as singular: look at what `diagnose` says of it, scale it, "
                   "or ask for a larger rtol";
      if (c_.over != nullptr) {
        rhs.detail +=
            "; over ranks there was no multigrid, MINRES, IDR or dense LU to try, and A "
            "was not scaled";
      }
    }
    if (x_.empty()) x_.assign(c_.b.size(), 0.0);
    best_.x = std::move(x_);
    const auto best = std::min_element(
        rungs_.begin(), rungs_.end(),
        [](const Rung& x, const Rung& y) { return x.relative_residual < y.relative_residual; });
    if (best != rungs_.end()) {
      const Rung& by = AllConverged() ? rungs_.back() : *best;
      out.best = by.kind;
      out.scaled = by.scaled;
    }
    out.solved = std::move(best_);
    out.rungs = std::move(rungs_);
    return out;
  }

  const Engine& engine_;
  const LadderCase& c_;
  LadderSink& sink_;
  const Context& context_;
  const int64_t n_;
  const bool on_gpu_;  // where what a solve tells of its residuals is taken for true
  SolveResult best_;   // figures of all rungs; its x is x_ until the end
  // The iterates of least residuals in the caller's norm; empty: zeros yet.
  Array<double> x_;
  std::vector<double> b_norm_, r_norm_;
  // The iterates that the next solve goes on from, and their residuals: the least ones in the norm
  // of the system that the rung solves, which may be the scaled one. Empty: those of x_, which no
  // rung of the host has gone on from yet.
  Array<double> from_, residual_;
  std::vector<double> from_norm_;
  std::vector<int64_t> spent_;         // iterations of each right-hand side
  std::map<int64_t, RhsResult> last_;  // of those that a rung after the first one brought on
  std::optional<Scaling> scaling_;
  CscMatrix scaled_;
  std::shared_ptr<const NullSpace> scaled_space_;  // null: none is known
  std::optional<Closest> closest_;
  bool positive_ = false;  // as far as is known, A is definite
  bool stopped_ = false;
  std::vector<Rung> rungs_;
};

}  // namespace

bool MayClimb(const SolveResult& solved) {
  return std::any_of(solved.rhs.begin(), solved.rhs.end(), [](const RhsResult& rhs) {
    return rhs.outcome != Outcome::kConverged && rhs.outcome != Outcome::kTimeLimit &&
           rhs.outcome != Outcome::kMaxIterations;
  });
}

Result<LadderResult> Climb(const Engine& engine, const LadderCase& c, SolveResult solved,
                           Rung first, LadderSink& sink, const Context& context) {
  return GuardMemory("AUTO's rungs", [&] {
    return Ladder(engine, c, sink, context).Run(std::move(solved), std::move(first));
  });
}

Result<LadderResult> ClimbFrom(const Engine& engine, const LadderCase& c,
                               std::span<const double> x0, RungKind start, LadderSink& sink,
                               const Context& context) {
  return GuardMemory("AUTO's rungs",
                     [&] { return Ladder(engine, c, sink, context).RunFrom(start, x0); });
}

}  // namespace spaid::kernels
