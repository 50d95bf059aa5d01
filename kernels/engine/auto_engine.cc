// AUTO as an engine, and NONE. AUTO resolves to the bottom of its ladder (ladder.h), what costs
// least; a solve climbs on from there, and a build takes what a solve has come to:
//   1. a column that stores nothing: none. No pattern of M can avoid that column of A, so static
//      SPAI has no plan, and Jacobi has no diagonal entry there;
//   2. zero diagonal entries, or some too small to invert: none, as Jacobi cannot be built;
//   3. negative diagonal entries, and MINRES: none, as Jacobi is not positive definite;
//   4. a pattern that came along: static SPAI on it, unless the method takes no such M;
//   5. else Jacobi.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "kernels/base/option_range.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/ladder.h"
#include "kernels/engine/options.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/engine/static_spai_engine.h"

namespace spaid::kernels {
namespace {

// What the caller asked for that the choice does not use: a clause for the reason, or nothing.
std::string Dropped(const PreconditionerSpec& spec, const PatternView* user_pattern) {
  const StaticSpaiOptions& given = spec.static_spai;
  const StaticSpaiOptions standard;
  std::string names;
  const auto drop = [&names](bool changed, const char* name) {
    if (changed) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  drop(user_pattern != nullptr, "pattern_matrix");
  drop(given.pattern.power != standard.pattern.power, "pattern_power");
  drop(given.pattern.keep_tau.has_value(), "keep_tau");
  drop(given.pattern.ensure_row, "ensure_row");
  drop(given.pattern.row_match, "row_match");
  drop(given.post_filter != standard.post_filter, "post_filter");
  drop(given.local_solver != standard.local_solver, "local_solver");
  drop(given.thread_strategy != standard.thread_strategy, "thread_strategy");
  drop(given.gram_pivot_limit != standard.gram_pivot_limit, "gram_pivot_limit");
  if (names.empty()) return names;
  return "; not used, as it is for static SPAI alone: " + names;
}

ResolvedSpec ChooseNone(const PreconditionerSpec& spec, const PatternView* user_pattern,
                        int64_t empty_column) {
  return {PreconditionerSpec{.engine = EngineKind::kNone},
          "none: column " + std::to_string(empty_column) +
              " of A stores no entry, which neither Jacobi nor static SPAI can invert; A is "
              "singular, and a solve converges only if b allows it" +
              Dropped(spec, user_pattern)};
}

// `uninvertible`: diagonal entries that Jacobi cannot divide by, at least one.
ResolvedSpec ChooseForZeroDiagonal(const PreconditionerSpec& spec, const PatternView* user_pattern,
                                   const Diagnosis& d, const Occurrence& uninvertible) {
  ResolvedSpec out{PreconditionerSpec{.engine = EngineKind::kNone}, ""};
  out.reason =
      "none: " + std::to_string(uninvertible.count) + " of " + std::to_string(d.n) +
      " diagonal entries are zero" +
      (uninvertible.count > d.zero_diagonal.count ? " or too small to invert" : "") +
      " (first: column " + std::to_string(uninvertible.first) +
      "), which Jacobi and FSAI cannot divide by" +
      (spec.method == Method::kCg ? "; A is not positive definite then, and CG may well find that"
                                  : "");
  if (d.structural_rank >= 0 && d.structural_rank < d.n) {
    out.reason += "; A has structural rank " + std::to_string(d.structural_rank) + " of " +
                  std::to_string(d.n) +
                  ": it is singular, and a solve converges only if b allows it";
  }
  out.reason += Dropped(spec, user_pattern);
  return out;
}

// MINRES wants an M that is positive definite, which a diagonal with negative entries is not.
ResolvedSpec ChooseForNegativeDiagonal(const PreconditionerSpec& spec,
                                       const PatternView* user_pattern, const Diagnosis& d) {
  return {PreconditionerSpec{.engine = EngineKind::kNone},
          "none: " + std::to_string(d.negative_diagonal.count) + " of " + std::to_string(d.n) +
              " diagonal entries are negative (first: column " +
              std::to_string(d.negative_diagonal.first) +
              "), so that neither Jacobi nor FSAI is positive definite, as MINRES needs" +
              Dropped(spec, user_pattern)};
}

Result<ResolvedSpec> Choose(const PreconditionerSpec& spec, const CscView& a,
                            const Diagnosis& diagnosis, const PatternView* user_pattern) {
  if (spec.block_size != 1) {
    PreconditionerSpec without = spec;
    without.block_size = 1;
    auto chosen = Choose(without, a, diagnosis, user_pattern);
    if (chosen.ok()) chosen->reason += "; block_size is not used: name engine JACOBI for it";
    return chosen;
  }
  if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
    return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                  "engine AUTO chooses by the values, and the matrix holds a pattern only; name an "
                  "engine or send values")
        .At("engine");
  }
  // Does any of the columns without a nonzero value store nothing?
  if (diagnosis.empty_columns.count > 0 && !IsStandIn(a)) {
    if (const int64_t empty = FirstEmptyColumn(a); empty >= 0) {
      return ChooseNone(spec, user_pattern, empty);
    }
  }
  Occurrence uninvertible = diagnosis.zero_diagonal;
  // Only a subnormal number has no reciprocal.
  if (diagnosis.min_abs_value < std::numeric_limits<double>::min()) {
    if (IsStandIn(a)) {
      return ResolvedSpec{PreconditionerSpec{.engine = EngineKind::kNone},
                          "none: A holds numbers that are too small to invert, perhaps on its "
                          "diagonal" +
                              Dropped(spec, user_pattern)};
    }
    uninvertible = UninvertibleDiagonal(a);
  }
  if (uninvertible.count > 0) {
    return ChooseForZeroDiagonal(spec, user_pattern, diagnosis, uninvertible);
  }
  if (spec.method == Method::kMinres && diagnosis.negative_diagonal.count > 0) {
    return ChooseForNegativeDiagonal(spec, user_pattern, diagnosis);
  }
  if (user_pattern != nullptr && !ForSymmetric(spec.method)) {
    PreconditionerSpec on_pattern{.engine = EngineKind::kStaticSpai};
    on_pattern.static_spai = spec.static_spai;
    return ResolvedSpec{on_pattern, "static SPAI: on the pattern that came along"};
  }
  return ResolvedSpec{PreconditionerSpec{.engine = EngineKind::kJacobi},
                      "Jacobi: what costs least; a solve that it does not bring to its end goes on "
                      "with stronger ones" +
                          Dropped(spec, user_pattern)};
}

// Hands the caller's scaling to the chosen engine, where that can have it. kAuto: none.
void PassScaling(ScalingMode asked, ResolvedSpec* chosen) {
  chosen->spec.scaling = ScalingMode::kNone;
  if (asked == ScalingMode::kNone || asked == ScalingMode::kAuto) return;
  chosen->spec.scaling = asked;
  if (CheckSpec(chosen->spec).ok()) return;
  chosen->spec.scaling = ScalingMode::kNone;
  chosen->reason += "; scaling is not used: the engine cannot have " + WireName(asked);
}

class Auto final : public PreconditionerEngine {
 public:
  Auto()
      : PreconditionerEngine({.kind = EngineKind::kAuto,
                              .name = "auto",
                              .options_field = "static_spai",
                              .takes_pattern = true,
                              .on_gpu = &StaticSpaiOnGpu()}) {}

  Status Check(const PreconditionerSpec& spec) const override {
    return CheckRanges(spec.static_spai);
  }

  Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView& a,
                               const Diagnosis& diagnosis, const PatternView* user_pattern,
                               const Context&) const override {
    auto chosen = Choose(spec, a, diagnosis, user_pattern);
    if (chosen.ok()) PassScaling(spec.scaling, &*chosen);
    return chosen;
  }

  // The largest of what AUTO may come to.
  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    BuildEstimate bound;
    if (FirstEmptyColumn(a) >= 0) return bound;  // AUTO is NONE there
    for (const PreconditionerSpec& rung : SpecsOfRungs(spec)) {
      const bool on_pattern = rung.engine == EngineKind::kStaticSpai;
      const auto estimate =
          FindEngine(rung.engine)->Estimate(rung, a, on_pattern ? user_pattern : nullptr, context);
      if (!estimate.ok()) return estimate.status();
      bound = Larger(bound, *estimate);
    }
    return bound;
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView&,
                                               const PatternView*, PlanFor,
                                               const Context&) const override {
    return CheckResolved(spec);
  }
};

class None final : public PreconditionerEngine {
 public:
  None() : PreconditionerEngine({.kind = EngineKind::kNone, .name = "none"}) {}

  Result<BuildEstimate> Estimate(const PreconditionerSpec&, const CscView&, const PatternView*,
                                 const Context&) const override {
    return BuildEstimate{};
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec&, const CscView&,
                                               const PatternView*, PlanFor,
                                               const Context&) const override {
    return Status(StatusCode::kInvalidArgument, "NOTHING_TO_BUILD",
                  "engine NONE has nothing to build; solve without a preconditioner")
        .At("engine");
  }
};

}  // namespace

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

bool MayBePositive(const Diagnosis& d) {
  return d.numerically_symmetric && d.zero_diagonal.count == 0 && d.negative_diagonal.count == 0;
}

int64_t FirstEmptyColumn(const PatternView& a) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    if (a.col_ptr[j] == a.col_ptr[j + 1]) return j;
  }
  return -1;
}

Status PreconditionerNotSpd(Method method) {
  const std::string name = method == Method::kMinres ? "MINRES" : "CG";
  return Status(StatusCode::kFailedPrecondition, "PRECONDITIONER_NOT_SPD",
                name +
                    " needs a symmetric positive definite preconditioner, and neither is an "
                    "explicit M from SPAI, nor one of multigrid with other sweeps before than "
                    "behind; use BiCGSTAB, IDR or GMRES, or Jacobi or FSAI with " +
                    name)
      .At("method");
}

Result<Method> ResolveMethod(Method method, bool for_cg, const Diagnosis& diagnosis) {
  switch (method) {
    case Method::kBicgstab:
    case Method::kGmres:
    case Method::kIdr:
      return method;
    case Method::kCg:
    case Method::kMinres:
      if (!for_cg) return PreconditionerNotSpd(method);
      if (!diagnosis.numerically_symmetric) {
        return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC",
                      std::string(method == Method::kMinres ? "MINRES" : "CG") +
                          " needs a symmetric matrix; a(" +
                          std::to_string(diagnosis.asymmetry_row) + ", " +
                          std::to_string(diagnosis.asymmetry_column) +
                          ") differs from its mirror image; use BiCGSTAB, IDR or GMRES")
            .At("method", diagnosis.asymmetry_column);
      }
      return method;
    case Method::kAuto:
      return MayBePositive(diagnosis) && for_cg ? Method::kCg : Method::kBicgstab;
  }
  return Status(StatusCode::kInvalidArgument, "BAD_METHOD",
                "method = " + std::to_string(static_cast<int>(method)) +
                    " is unknown; give AUTO, CG, BICGSTAB, GMRES, MINRES or IDR")
      .At("method");
}

BuildEstimate Larger(const BuildEstimate& x, const BuildEstimate& y) {
  BuildEstimate e;
  e.host_bytes = std::max(x.host_bytes, y.host_bytes);
  e.device_bytes = std::max(x.device_bytes, y.device_bytes);
  e.device_bytes_min = std::max(x.device_bytes_min, y.device_bytes_min);
  e.nnz_m = std::max(x.nnz_m, y.nnz_m);
  e.download_bytes = std::max(x.download_bytes, y.download_bytes);
  e.rank_bytes = std::max(x.rank_bytes, y.rank_bytes);
  e.halo_bytes = std::max(x.halo_bytes, y.halo_bytes);
  e.predicted_ms = std::max(x.predicted_ms, y.predicted_ms);
  e.flops = std::max(x.flops, y.flops);
  e.n1_max = std::max(x.n1_max, y.n1_max);
  e.n2_max = std::max(x.n2_max, y.n2_max);
  return e;
}

const PreconditionerEngine& AutoEngine() {
  static const Auto engine;
  return engine;
}

const PreconditionerEngine& NoEngine() {
  static const None engine;
  return engine;
}

}  // namespace spaid::kernels
