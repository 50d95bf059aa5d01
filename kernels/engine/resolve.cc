// What AUTO chooses:
//   1. a column that stores nothing: none. No pattern of M can avoid that column of A, so static
//      SPAI has no plan, and Jacobi has no diagonal entry there.
//   2. zero diagonal entries, or some too small to invert: Jacobi cannot be built. Static SPAI with
//      ensure_row, so that no column of M is zero for want of a pattern. Whether A has full
//      structural rank is said, and changes nothing. For CG, which takes no such M: none.
//   3. else what is predicted to take the least time with the method that it is for
//      (engine_choice.h).
#include <cstdio>
#include <limits>
#include <string>

#include "kernels/engine/engine_choice.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/options.h"

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

ResolvedSpec None(const PreconditionerSpec& spec, const PatternView* user_pattern,
                  int64_t empty_column) {
  return {PreconditionerSpec{.engine = EngineKind::kNone, .static_spai = {}, .block_size = 1},
          "none: column " + std::to_string(empty_column) +
              " of A stores no entry, which neither Jacobi nor static SPAI can invert; A is "
              "singular, and a solve converges only if b allows it" +
              Dropped(spec, user_pattern)};
}

// `uninvertible`: diagonal entries that Jacobi cannot divide by, at least one.
ResolvedSpec ChooseForZeroDiagonal(const PreconditionerSpec& spec, const PatternView* user_pattern,
                                   const Diagnosis& d, const Occurrence& uninvertible) {
  ResolvedSpec out{PreconditionerSpec{}, ""};
  if (spec.method == Method::kCg) {
    out.spec.engine = EngineKind::kNone;
    out.reason = "none: " + std::to_string(uninvertible.count) + " of " + std::to_string(d.n) +
                 " diagonal entries cannot be inverted (first: column " +
                 std::to_string(uninvertible.first) +
                 "), which Jacobi and FSAI need, and CG takes no static SPAI; A is not positive "
                 "definite then, and CG may well find that" +
                 Dropped(spec, user_pattern);
    return out;
  }
  out.spec.engine = EngineKind::kStaticSpai;
  out.spec.static_spai = spec.static_spai;
  out.spec.static_spai.pattern.ensure_row = true;
  out.reason = "static SPAI with ensure_row: " + std::to_string(uninvertible.count) + " of " +
               std::to_string(d.n) + " diagonal entries are zero" +
               (uninvertible.count > d.zero_diagonal.count ? " or too small to invert" : "") +
               " (first: column " + std::to_string(uninvertible.first) +
               "), which Jacobi cannot invert, and every column of M must reach its row";
  if (d.structural_rank >= 0 && d.structural_rank < d.n) {
    out.reason += "; A has structural rank " + std::to_string(d.structural_rank) + " of " +
                  std::to_string(d.n) +
                  ": it is singular, and a solve converges only if b allows it";
  }
  return out;
}

}  // namespace

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

int64_t FirstEmptyColumn(const PatternView& a) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    if (a.col_ptr[j] == a.col_ptr[j + 1]) return j;
  }
  return -1;
}

Result<ResolvedSpec> ResolveSpec(const PreconditionerSpec& spec, const CscView& a,
                                 const Diagnosis& diagnosis, const PatternView* user_pattern,
                                 const Context& context) {
  if (Status s = CheckSpec(spec); !s.ok()) return s;
  switch (spec.engine) {
    // Options of another engine are dropped, so that equal builds have equal resolved specs.
    case EngineKind::kNone:
      return ResolvedSpec{{.engine = spec.engine, .static_spai = {}, .block_size = 1}, ""};
    case EngineKind::kJacobi:
      return ResolvedSpec{{.engine = spec.engine, .static_spai = {}, .block_size = spec.block_size},
                          ""};
    case EngineKind::kStaticSpai:
      return ResolvedSpec{{.engine = spec.engine, .static_spai = spec.static_spai, .block_size = 1},
                          ""};
    case EngineKind::kFsai:
    case EngineKind::kAfsai:
      return ResolvedSpec{
          {.engine = spec.engine, .static_spai = {}, .block_size = 1, .fsai = FsaiOptionsOf(spec)},
          ""};
    case EngineKind::kDynamicSpai: {
      PreconditionerSpec own;
      own.engine = spec.engine;
      own.dynamic_spai = spec.dynamic_spai;
      return ResolvedSpec{own, ""};
    }
    case EngineKind::kAuto:
      break;
  }
  if (spec.block_size != 1) {
    PreconditionerSpec without = spec;
    without.block_size = 1;
    auto chosen = ResolveSpec(without, a, diagnosis, user_pattern, context);
    if (chosen.ok()) chosen->reason += "; block_size is not used: name engine JACOBI for it";
    return chosen;
  }
  if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
    return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                  "engine AUTO chooses by the values, and the matrix holds a pattern only; name an "
                  "engine or send values")
        .At("engine");
  }
  // Of the columns without a nonzero value, are there any that store nothing?
  if (diagnosis.empty_columns.count > 0) {
    if (const int64_t empty = FirstEmptyColumn(a); empty >= 0) {
      return None(spec, user_pattern, empty);
    }
  }
  Occurrence uninvertible = diagnosis.zero_diagonal;
  // Only a subnormal number has no reciprocal.
  if (diagnosis.min_abs_value < std::numeric_limits<double>::min()) {
    uninvertible = UninvertibleDiagonal(a);
  }
  if (uninvertible.count > 0) {
    return ChooseForZeroDiagonal(spec, user_pattern, diagnosis, uninvertible);
  }
  auto chosen = ChooseEngine(spec, a, diagnosis, user_pattern, context);
  if (chosen.ok() && chosen->spec.engine != EngineKind::kStaticSpai) {
    chosen->reason += Dropped(spec, user_pattern);
  }
  return chosen;
}

Status PreconditionerNotSpd() {
  return Status(StatusCode::kFailedPrecondition, "PRECONDITIONER_NOT_SPD",
                "CG needs a symmetric positive definite preconditioner, and an explicit M from "
                "SPAI is neither; use BiCGSTAB or GMRES, or Jacobi or FSAI with CG")
      .At("method");
}

Result<Method> ResolveSolveMethod(Method method, EngineKind kind, const Diagnosis& diagnosis) {
  if (kind == EngineKind::kAuto) {
    return Status(StatusCode::kInvalidArgument, "ENGINE_NOT_RESOLVED",
                  "engine AUTO must be resolved before the method")
        .At("engine");
  }
  const bool explicit_m = IsExplicitSpai(kind);
  switch (method) {
    case Method::kBicgstab:
    case Method::kGmres:
      return method;
    case Method::kCg:
      if (explicit_m) return PreconditionerNotSpd();
      if (!diagnosis.numerically_symmetric) {
        return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC",
                      "CG needs a symmetric matrix; a(" + std::to_string(diagnosis.asymmetry_row) +
                          ", " + std::to_string(diagnosis.asymmetry_column) +
                          ") differs from its mirror image; use BiCGSTAB or GMRES")
            .At("method", diagnosis.asymmetry_column);
      }
      return method;
    case Method::kAuto: {
      const bool positive =
          diagnosis.zero_diagonal.count == 0 && diagnosis.negative_diagonal.count == 0;
      return diagnosis.numerically_symmetric && positive && !explicit_m ? Method::kCg
                                                                        : Method::kBicgstab;
    }
  }
  return Status(StatusCode::kInvalidArgument, "BAD_METHOD",
                "method = " + std::to_string(static_cast<int>(method)) +
                    " is unknown; give AUTO, CG, BICGSTAB or GMRES")
      .At("method");
}

}  // namespace spaid::kernels
