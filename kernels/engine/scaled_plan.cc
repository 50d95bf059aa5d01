#include "kernels/engine/scaled_plan.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/norm.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/options.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/scaling.h"
#include "kernels/static_spai/residual_quantiles.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kColumnsPerBatch = 1024;
// At most so many make residuals: each has vectors of its own.
constexpr int kResidualThreads = 8;

// Nanoseconds of a thread for each entry of A, and of M, that scaling and its undoing take: on two
// cores, of p27 with 64,000 unknowns and of convection with 125,000.
constexpr double kNsPerEntry = 60, kNsPerEntryOfM = 20;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

bool Permutes(const Scaling& s) { return !s.column_of_row.empty(); }

// Tells values apart that a plan was made for.
uint64_t HashOf(std::span<const double> values) {
  uint64_t hash = values.size();
  for (const double value : values) {
    hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

// Whether the engine's M may be of a permuted A.
bool MayMatch(const EngineTraits& engine, ScalingMode mode) {
  return !engine.factored && !engine.may_be_diagonal &&
         (mode == ScalingMode::kMatching || mode == ScalingMode::kAuto);
}

Result<Scaling> ScalingFor(const EngineTraits& engine, const CscView& a, ScalingMode mode,
                           const Context& context) {
  Diagnosis diagnosis;
  if (mode != ScalingMode::kMatching && !engine.factored) diagnosis = Diagnose(a, context.threads);
  // It refuses an A that is not, by its own tolerance.
  if (engine.factored) diagnosis.numerically_symmetric = true;
  auto scaling = ChooseScaling(a, diagnosis, mode, context);
  if (scaling.ok() && Permutes(*scaling) && !MayMatch(engine, mode)) {
    return ChooseScaling(a, diagnosis, ScalingMode::kEquilibrate, context);
  }
  return scaling;
}

// The pattern of M' that a pattern of M = Q D_c M' D_r is: rows go to the places of Q's columns.
Pattern PatternOfScaled(const PatternView& of_m, const Scaling& s, int threads) {
  Array<int32_t> place(of_m.col_ptr.size() - 1);
  for (int64_t k = 0; k < std::ssize(s.column_of_row); ++k) {
    place[Z(s.column_of_row[Z(k)])] = static_cast<int32_t>(k);
  }
  Pattern out;
  out.n_rows = of_m.n_rows;
  out.n_cols = of_m.n_cols;
  out.col_ptr.resize(of_m.col_ptr.size());
  out.row_idx.resize(of_m.row_idx.size());
  ParallelCopy(of_m.col_ptr, out.col_ptr, threads);
  ParallelFor(of_m.n_cols, kColumnsPerBatch, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const auto first = out.row_idx.begin() + of_m.col_ptr[Z(j)];
      const auto last = out.row_idx.begin() + of_m.col_ptr[Z(j) + 1];
      std::transform(of_m.row_idx.begin() + of_m.col_ptr[Z(j)],
                     of_m.row_idx.begin() + of_m.col_ptr[Z(j) + 1], first,
                     [&](int32_t row) { return place[Z(row)]; });
      std::sort(first, last);
    }
  });
  return out;
}

Status NotSquare(const PatternView& a) {
  return Status(StatusCode::kInvalidArgument, "NOT_SQUARE",
                "the matrix is " + std::to_string(a.n_rows) + " by " + std::to_string(a.n_cols) +
                    "; give a square one")
      .At("n_cols");
}

// An error of S as one of A.
Status OfScaled(const Status& status, const Scaling& s) {
  if (status.index() < 0 || !Permutes(s)) return status;
  return Status(status.code(), status.reason(),
                status.message() + "; so of A matched and scaled, whose column k is the one of A " +
                    "that is matched to row k")
      .At(status.field(), status.index());
}

// ‖A m_k − e_k‖₂ of each column; infinite where fp64 does not hold it.
Result<Array<double>> ResidualNorms(const CscView& a, const CscView& m, const Context& context) {
  struct Scratch {
    Array<double> residual;
    Array<int32_t> column_of;  // that has written an element
    std::vector<int32_t> touched;
    std::vector<double> gathered;
  };
  const int threads = std::min(ResolveThreads(context.threads), kResidualThreads);
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  Array<double> norms(Z(m.n_cols));
  Context limited = context;
  limited.threads = threads;
  limited.progress = nullptr;
  const auto body = [&](int64_t begin, int64_t end, int worker) {
    Scratch& own = scratch[static_cast<size_t>(worker)];
    if (own.residual.empty()) {
      own.residual.resize(Z(a.n_rows));
      own.column_of.assign(Z(a.n_rows), -1);
    }
    for (int64_t k = begin; k < end; ++k) {
      own.touched.clear();
      const auto add = [&](int32_t row, double value) {
        double& element = own.residual[Z(row)];
        if (own.column_of[Z(row)] != k) {
          own.column_of[Z(row)] = static_cast<int32_t>(k);
          own.touched.push_back(row);
          element = 0;
        }
        element += value;
      };
      const auto places = m.column(k);
      const auto values = m.column_values(k);
      for (size_t p = 0; p < places.size(); ++p) {
        const auto rows = a.column(places[p]);
        const auto entries = a.column_values(places[p]);
        for (size_t q = 0; q < rows.size(); ++q) add(rows[q], entries[q] * values[p]);
      }
      add(static_cast<int32_t>(k), -1);
      own.gathered.clear();
      for (const int32_t row : own.touched) own.gathered.push_back(own.residual[Z(row)]);
      norms[Z(k)] = Norm(own.gathered);
    }
  };
  const StopReason stopped = ParallelFor(m.n_cols, /*batch=*/64, limited, Stage::kAssemble, body);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the residuals of M");
  return norms;
}

void Judge(const Array<double>& norms, int threads, StaticSpaiQuality* quality) {
  quality->residual_frobenius = Norm(norms);
  quality->residual_quantiles = ResidualQuantiles(norms, threads);
  quality->worst_column =
      norms.empty() ? -1 : std::max_element(norms.begin(), norms.end()) - norms.begin();
}

// G = G' D, by rows or by columns of G. `columns`: those of `g` are G's.
Status ScaleFactor(const Array<double>& factors, bool columns, const Context& context,
                   CscMatrix* g) {
  std::atomic<int64_t> first_bad{g->n_cols};
  Context quiet = context;
  quiet.progress = nullptr;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t p = g->col_ptr[Z(j)]; p < g->col_ptr[Z(j) + 1]; ++p) {
        const int64_t column = columns ? j : g->row_idx[Z(p)];
        const double before = g->values[Z(p)];
        g->values[Z(p)] = before * factors[Z(column)];
        if (!std::isfinite(g->values[Z(p)]) && std::isfinite(before)) Lower(first_bad, column);
      }
    }
  };
  const StopReason stopped =
      ParallelFor(g->n_cols, kColumnsPerBatch, quiet, Stage::kAssemble, body);
  if (stopped != StopReason::kNone) return StopStatus(stopped, "the scaling of G");
  if (first_bad == g->n_cols) return {};
  return Status(StatusCode::kFailedPrecondition, "INVERSE_OUT_OF_RANGE",
                "column " + std::to_string(first_bad) +
                    " of G has entries beyond the range of fp64: rows and columns of A differ too "
                    "much; rescale A")
      .At("values", first_bad);
}

// Empty where all rows have one factor, which changes no solve.
Array<double> RowScaling(const Scaling& s) {
  const bool even =
      std::all_of(s.row.begin(), s.row.end(), [&](double f) { return f == s.row[0]; });
  return even ? Array<double>() : s.row;
}

void AddWarnings(const Scaling& s, int64_t n, std::vector<std::string>* warnings) {
  if (s.unmatched_rows.count > 0) {
    warnings->push_back(std::to_string(s.unmatched_rows.count) + " of " + std::to_string(n) +
                        " rows of A (first " + std::to_string(s.unmatched_rows.first) +
                        ") and as many columns (first " +
                        std::to_string(s.unmatched_columns.first) +
                        ") have no partner in the matching: A is structurally singular");
  }
  if (s.matching_too_long) {
    warnings->push_back(
        "a matching of rows and columns, which scaling AUTO wanted, took too long: A was "
        "equilibrated instead, or left as it is");
  }
}

DeviceTimings Sum(const DeviceTimings& x, const DeviceTimings& y) {
  DeviceTimings sum = x;
  sum.host_to_device_ms += y.host_to_device_ms;
  sum.device_to_host_ms += y.device_to_host_ms;
  sum.assemble_ms += y.assemble_ms;
  sum.device_bytes = std::max(sum.device_bytes, y.device_bytes);
  sum.waves = std::max(sum.waves, y.waves);
  sum.host_columns += y.host_columns;
  sum.tables_in_waves = sum.tables_in_waves || y.tables_in_waves;
  return sum;
}

class ScaledPlan final : public EnginePlan {
 public:
  static Result<std::shared_ptr<const Plan>> Make(const PreconditionerEngine& engine,
                                                  const PreconditionerSpec& spec, const CscView& a,
                                                  const PatternView* user_pattern, PlanFor of,
                                                  const Context& context) {
    of.scaling = spec.scaling;
    std::shared_ptr<ScaledPlan> plan(new ScaledPlan(std::move(of), engine));
    if (user_pattern != nullptr && engine.traits().takes_pattern) {
      auto pattern = std::make_shared<Pattern>();
      pattern->n_rows = user_pattern->n_rows;
      pattern->n_cols = user_pattern->n_cols;
      pattern->col_ptr.assign(user_pattern->col_ptr.begin(), user_pattern->col_ptr.end());
      pattern->row_idx.assign(user_pattern->row_idx.begin(), user_pattern->row_idx.end());
      plan->user_pattern_ = std::move(pattern);
    }
    auto scaling = ScalingFor(engine.traits(), a, spec.scaling, context);
    if (!scaling.ok()) return scaling.status();
    plan->Take(*std::move(scaling), a);
    if (Status s = plan->PlanInner(spec, a, context); !s.ok()) return s;
    return std::shared_ptr<const Plan>(std::move(plan));
  }

  int64_t host_bytes() const override {
    return static_cast<int64_t>(sizeof(ScaledPlan) + sizeof(Scaling)) + scaling_->bytes() +
           (user_pattern_ != nullptr
                ? static_cast<int64_t>(user_pattern_->col_ptr.size() * sizeof(int64_t) +
                                       user_pattern_->row_idx.size() * sizeof(int32_t))
                : 0) +
           inner_->host_bytes();
  }
  int64_t device_bytes() const override { return inner_->device_bytes(); }
  bool serves_new_values() const override { return inner_->serves_new_values(); }

 private:
  ScaledPlan(PlanFor of, const PreconditionerEngine& engine)
      : EnginePlan(std::move(of)), engine_(engine) {}
  ScaledPlan(const ScaledPlan&) = default;

  std::string Differences(const PreconditionerSpec& spec) const override {
    return DifferencesOf(*inner_, spec);
  }

  static PreconditionerSpec Unscaled(PreconditionerSpec spec) {
    spec.scaling = ScalingMode::kNone;
    return spec;
  }

  void Take(Scaling scaling, const CscView& a) {
    scaling_ = std::make_shared<const Scaling>(std::move(scaling));
    made_for_values_ = HashOf(a.values);
  }

  // S, or A where that is S. `own`: holds it.
  Result<CscView> MakeScaled(const CscView& a, const Context& context, CscMatrix* own) const {
    if (scaling_->identity()) return a;
    auto scaled = ScaledMatrix(a, *scaling_, context);
    if (!scaled.ok()) return scaled.status();
    *own = *std::move(scaled);
    return CscView(*own);
  }

  Status PlanInner(const PreconditionerSpec& spec, const CscView& a, const Context& context) {
    CscMatrix own;
    const auto scaled = MakeScaled(a, context, &own);
    if (!scaled.ok()) return scaled.status();
    Pattern moved;
    PatternView user;
    const PatternView* pattern = nullptr;
    if (user_pattern_ != nullptr) {
      user = *user_pattern_;
      pattern = &user;
      // The engine refuses one of another size.
      if (Permutes(*scaling_) && user.n_rows == a.n_rows && user.n_cols == a.n_cols) {
        moved = PatternOfScaled(*user_pattern_, *scaling_, ResolveThreads(context.threads));
        user = moved;
      }
    }
    PlanFor of = made_for();
    of.scaling = ScalingMode::kNone;
    auto plan = engine_.MakePlan(Unscaled(spec), *scaled, pattern, std::move(of), context);
    if (!plan.ok()) return OfScaled(plan.status(), *scaling_);
    // Plans of this engine are of one class.
    inner_ = std::static_pointer_cast<const EnginePlan>(*std::move(plan));
    made_in_ = inner_->timings();
    return {};
  }

  Result<Made> MakeM(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                     DeviceTimings* timings) const override {
    return GuardMemory("build by a scaled matrix", [&]() -> Result<Made> {
      if (HashOf(a.values) == made_for_values_) return MakeWith(spec, a, context, timings, false);
      const auto still = StillScales(a, *scaling_, context);
      if (!still.ok()) return still.status();
      if (*still) return MakeWith(spec, a, context, timings, true);
      return MakeAnew(spec, a, context, timings);
    });
  }

  // With other factors, found for these values; the engine's plan stays if columns do.
  Result<Made> MakeAnew(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                        DeviceTimings* timings) const {
    auto scaling = ScalingFor(engine_.traits(), a, spec.scaling, context);
    if (!scaling.ok()) return scaling.status();
    const bool moves = scaling->column_of_row != scaling_->column_of_row;
    std::shared_ptr<ScaledPlan> other(new ScaledPlan(*this));
    other->Take(*std::move(scaling), a);
    if (moves) {
      if (Status s = other->PlanInner(spec, a, context); !s.ok()) return s;
      *timings = Sum(*timings, other->timings());
    }
    auto made = other->MakeWith(spec, a, context, timings, false);
    if (made.ok() && made->grown == nullptr && other->serves_new_values()) {
      made->grown = std::move(other);
    }
    return made;
  }

  Result<Made> MakeWith(const PreconditionerSpec& spec, const CscView& a, const Context& context,
                        DeviceTimings* timings, bool reused) const {
    const Scaling& s = *scaling_;
    Context inner = context;
    if (!s.identity()) inner.result = nullptr;  // M' is no one's
    CscMatrix own;
    const auto scaled = MakeScaled(a, context, &own);
    if (!scaled.ok()) return scaled.status();
    auto made = MakeBy(*inner_, Unscaled(spec), *scaled, inner, timings);
    if (!made.ok()) return OfScaled(made.status(), s);
    own = CscMatrix();
    if (made->grown != nullptr) {
      std::shared_ptr<ScaledPlan> grown(new ScaledPlan(*this));
      grown->inner_ = std::static_pointer_cast<const EnginePlan>(made->grown);
      made->grown = std::move(grown);
    }
    if (!s.identity()) {
      if (Status status = Unscale(a, context, &*made); !status.ok()) return status;
    }
    made->quality.scaling = s.kind;
    made->quality.scaling_reused = reused && !s.identity();
    AddWarnings(s, a.n_cols, &made->quality.warnings);
    return made;
  }

  // Makes M of M'.
  Status Unscale(const CscView& a, const Context& context, Made* made) const {
    const Scaling& s = *scaling_;
    made->on_device = nullptr;
    if (engine_.traits().factored) {
      if (Status status = ScaleFactor(s.row, /*columns=*/false, context, &made->m); !status.ok()) {
        return status;
      }
      return made->g_columns.n_cols == 0
                 ? Status()
                 : ScaleFactor(s.row, /*columns=*/true, context, &made->g_columns);
    }
    made->shown = {};
    auto m = UnscaledInverse(made->m, s, context);
    if (!m.ok()) return m.status();
    made->m = *std::move(m);
    auto norms = ResidualNorms(a, made->m, context);
    if (!norms.ok()) return norms.status();
    Judge(*norms, ResolveThreads(context.threads), &made->quality);
    made->row_scaling = RowScaling(s);
    return {};
  }

  const PreconditionerEngine& engine_;
  std::shared_ptr<const Pattern> user_pattern_;  // null: the engine's own
  std::shared_ptr<const Scaling> scaling_;
  uint64_t made_for_values_ = 0;  // hash of the values that the factors were found for
  std::shared_ptr<const EnginePlan> inner_;
};

// Bytes that a scaled build has beside the engine's own on S, at the most: S, its factors and the
// scratch of their making, M twice, residuals.
int64_t HostBytes(const CscView& a, int64_t nnz_m, const PatternView* user_pattern,
                  const Context& context) {
  const int64_t n = a.n_cols, nnz = a.nnz();
  const int threads = ResolveThreads(context.threads);
  const int64_t factors = 20 * n;
  const int64_t logarithms = (128 + 32) * n;
  const int64_t evened = CscBytes(n, nnz) + 16 * n;
  const int64_t matching = evened + 8 * nnz + (108 + 24) * n;
  const int64_t equilibration = evened + (32 + 4 * static_cast<int64_t>(threads)) * n;
  const int64_t diagnosis = 28 * n + 4 * nnz;
  const int64_t residuals = (16 + 24 * std::min<int64_t>(threads, kResidualThreads)) * n;
  const int64_t patterns =
      user_pattern != nullptr ? 2 * CscBytes(n, user_pattern->nnz()) + 4 * n : 0;
  return static_cast<int64_t>(2 * (sizeof(ScaledPlan) + sizeof(Scaling))) + CscBytes(n, nnz) +
         2 * factors + std::max({logarithms, matching, equilibration, diagnosis}) +
         CscBytes(n, nnz_m) + residuals + patterns + 8 * n;
}

}  // namespace

Result<std::shared_ptr<const Plan>> MakeScaledPlan(const PreconditionerEngine& engine,
                                                   const PreconditionerSpec& spec, const CscView& a,
                                                   const PatternView* user_pattern, PlanFor of,
                                                   const Context& context) {
  if (a.n_rows != a.n_cols) return NotSquare(a);
  if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
    return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                  "the matrix holds a pattern only; a scaling is found by its values")
        .At("values");
  }
  return GuardMemory("plan by a scaled matrix", [&] {
    return ScaledPlan::Make(engine, spec, a, user_pattern, std::move(of), context);
  });
}

Result<BuildEstimate> EstimateScaled(const PreconditionerEngine& engine,
                                     const PreconditionerSpec& spec, const CscView& a,
                                     const PatternView* user_pattern, const Context& context) {
  const bool by_itself =
      engine.traits().kind == EngineKind::kAuto && spec.scaling == ScalingMode::kAuto;
  PreconditionerSpec unscaled = spec;
  unscaled.scaling = ScalingMode::kNone;
  if (spec.scaling == ScalingMode::kNone || by_itself) {
    return engine.Estimate(unscaled, a, user_pattern, context);
  }
  if (a.n_rows != a.n_cols) return NotSquare(a);
  return GuardMemory("estimate by a scaled matrix", [&]() -> Result<BuildEstimate> {
    CscMatrix scaled;
    Pattern moved;
    CscView of = a;
    PatternView user;
    const PatternView* pattern = user_pattern;
    const bool has_values = static_cast<int64_t>(a.values.size()) == a.nnz();
    if (has_values && MayMatch(engine.traits(), spec.scaling) &&
        engine.traits().kind != EngineKind::kAuto) {
      const auto scaling = ScalingFor(engine.traits(), a, spec.scaling, context);
      if (!scaling.ok()) return scaling.status();
      if (Permutes(*scaling)) {
        auto made = ScaledMatrix(a, *scaling, context);
        if (!made.ok()) return made.status();
        scaled = *std::move(made);
        of = scaled;
        if (pattern != nullptr && pattern->n_rows == a.n_rows && pattern->n_cols == a.n_cols) {
          moved = PatternOfScaled(*pattern, *scaling, ResolveThreads(context.threads));
          user = moved;
          pattern = &user;
        }
      }
    }
    auto estimate = engine.Estimate(unscaled, of, pattern, context);
    if (!estimate.ok()) return estimate;
    const int64_t nnz_m = engine.traits().factored ? 0 : estimate->nnz_m;
    estimate->host_bytes += HostBytes(a, nnz_m, user_pattern, context);
    const double ms =
        1e-6 / ResolveThreads(context.threads) *
        (kNsPerEntry * static_cast<double>(a.nnz()) + kNsPerEntryOfM * static_cast<double>(nnz_m));
    estimate->predicted_ms += ms;
    if (estimate->predicted_device_ms > 0) estimate->predicted_device_ms += ms;
    return estimate;
  });
}

}  // namespace spaid::kernels
