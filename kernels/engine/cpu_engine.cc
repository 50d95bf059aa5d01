#include "kernels/engine/cpu_engine.h"

#include <chrono>
#include <string>

#include "kernels/engine/jacobi.h"
#include "kernels/engine/options.h"

namespace spaid::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Status NoBuild() {
  return Status(StatusCode::kInvalidArgument, "NOTHING_TO_BUILD",
                "engine NONE has nothing to build; solve without a preconditioner")
      .At("engine");
}

Status PlanMismatch(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "PLAN_MISMATCH",
                what + "; make a plan for this matrix and spec")
      .At("plan");
}

// What of the options decides which pattern a plan has: a limit that it met is of no matter.
PatternOptions Shape(PatternOptions options) {
  options.max_nnz = 0;
  return options;
}

// "pattern_power 2 (not 1), keep_tau": what differs.
std::string Differences(const PatternOptions& plan, const PatternOptions& spec) {
  std::string out;
  const auto add = [&out](bool differs, const std::string& what) {
    if (differs) out += (out.empty() ? "" : ", ") + what;
  };
  add(plan.power != spec.power,
      "pattern_power " + std::to_string(plan.power) + " (not " + std::to_string(spec.power) + ")");
  add(plan.keep_tau != spec.keep_tau, "another keep_tau");
  add(plan.ensure_row != spec.ensure_row, "another ensure_row");
  add(plan.row_match != spec.row_match, "another row_match");
  return out;
}

std::string Columns(int64_t count, int64_t n, int64_t first) {
  return std::to_string(count) + " of " + std::to_string(n) + " columns (first " +
         std::to_string(first) + ")";
}

// One sentence per thing that was repaired, rescued or is weak.
std::vector<std::string> Warnings(const StaticSpaiQuality& q, const StaticSpaiOptions& options,
                                  int64_t n) {
  std::vector<std::string> out;
  if (q.zero_columns > 0) {
    const bool cured = options.pattern.ensure_row || options.pattern.row_match;
    out.push_back(
        Columns(q.zero_columns, n, q.first_zero_column) +
        " of M are zero: no column of their pattern reaches the row of the unit vector; " +
        (cured ? "these rows of A hold no usable entry, M is singular"
               : "M is singular, set ensure_row or row_match"));
  }
  if (q.non_finite_columns > 0) {
    out.push_back(Columns(q.non_finite_columns, n, q.first_non_finite) +
                  " of M came out NaN or infinite and were set to zero; rescale A");
  }
  if (q.rank_deficient_columns > 0) {
    out.push_back(Columns(q.rank_deficient_columns, n, q.first_rank_deficient) +
                  " have a rank-deficient local problem: dependent directions were left out; A may "
                  "be singular there, a smaller pattern_power helps if it is not");
  }
  if (q.not_converged_columns > 0) {
    out.push_back(
        Columns(q.not_converged_columns, n, q.first_not_converged) +
        " have a local problem too large for a dense factor, and its iteration met its limit: "
        "these columns are less accurate; a smaller pattern_power or keep_tau makes them small");
  }
  if (q.rescued_columns > 0) {
    out.push_back(Columns(q.rescued_columns, n, q.first_rescued) +
                  " were too ill-conditioned for the Gram path (smallest scaled pivot " +
                  Figure(q.min_scaled_pivot) +
                  ") and were solved again by QR; local_solver = QR avoids the second try");
  }
  return out;
}

class CpuEngine final : public Engine {
 public:
  std::vector<DeviceInfo> Devices() const override { return {CpuDevice()}; }

  Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView& a,
                               const Diagnosis& diagnosis, const PatternView* user_pattern,
                               const Context& context) const override {
    return ResolveSpec(spec, a, diagnosis, user_pattern, context);
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const PatternView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    if (Status s = CheckSpec(spec); !s.ok()) return s;
    return EstimateCpuBuild(spec, a, user_pattern, context);
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView& a,
                                               const PatternView* user_pattern,
                                               const Context& context) const override {
    if (Status s = CheckResolved(spec); !s.ok()) return s;
    auto plan = std::make_shared<CpuPlan>();
    plan->kind = spec.engine;
    plan->n = a.n_cols;
    plan->nnz = a.nnz();
    switch (spec.engine) {
      case EngineKind::kAuto:
      case EngineKind::kNone:
        return NoBuild();
      case EngineKind::kJacobi:
        break;
      case EngineKind::kStaticSpai: {
        auto made = PlanStaticSpai(a, user_pattern, spec.static_spai, context);
        if (!made.ok()) return made.status();
        plan->static_spai = std::move(*made);
        plan->pattern = Shape(spec.static_spai.pattern);
        plan->reads_values = spec.static_spai.pattern.keep_tau.has_value();
        break;
      }
    }
    return std::shared_ptr<const Plan>(std::move(plan));
  }

  Result<BuildResult> Build(const Plan& plan, const PreconditionerSpec& spec, const CscView& a,
                            const Context& context) const override {
    const auto start = Clock::now();
    if (Status s = CheckResolved(spec); !s.ok()) return s;
    const auto* mine = dynamic_cast<const CpuPlan*>(&plan);
    if (mine == nullptr) return PlanMismatch("the plan was made by another engine");
    if (mine->kind != spec.engine) return PlanMismatch("the plan is for another kind of engine");
    if (mine->n != a.n_cols || mine->nnz != a.nnz()) {
      return PlanMismatch("the plan is for n = " + std::to_string(mine->n) + " with " +
                          std::to_string(mine->nnz) + " entries, the matrix has n = " +
                          std::to_string(a.n_cols) + " with " + std::to_string(a.nnz()));
    }
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
      return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                    "the matrix holds a pattern only; a build needs its values")
          .At("values");
    }
    if (const PatternOptions shape = Shape(spec.static_spai.pattern);
        spec.engine == EngineKind::kStaticSpai && !(mine->pattern == shape)) {
      return PlanMismatch("the plan is for " + Differences(mine->pattern, shape));
    }
    BuildResult result;
    CscMatrix m;
    switch (spec.engine) {
      case EngineKind::kAuto:
      case EngineKind::kNone:
        return NoBuild();
      case EngineKind::kJacobi: {
        auto built = BuildJacobi(a, context);
        if (!built.ok()) return built.status();
        m = std::move(built->m);
        result.quality = std::move(built->quality);
        break;
      }
      case EngineKind::kStaticSpai: {
        auto built = BuildStaticSpai(*mine->static_spai, a, spec.static_spai, context);
        if (!built.ok()) return built.status();
        m = std::move(built->m);
        static_cast<StaticSpaiQuality&>(result.quality) = std::move(built->quality);
        result.quality.warnings = Warnings(result.quality, spec.static_spai, a.n_cols);
        break;
      }
    }
    auto made = CpuPreconditioner::Make(spec.engine, std::move(m), context);
    if (!made.ok()) return made.status();
    result.preconditioner = *std::move(made);
    result.build_ms = MsSince(start);
    return result;
  }

  Result<Method> ResolveMethod(Method method, EngineKind kind,
                               const Diagnosis& diagnosis) const override {
    return ResolveSolveMethod(method, kind, diagnosis);
  }

  Result<SolveResult> Solve(const CscView& a, const Preconditioner* preconditioner,
                            std::span<const double> b, std::span<const double> x0,
                            const SolveOptions& options, const Context& context) const override {
    const auto start = Clock::now();
    const LinearOperator* m = nullptr;
    if (preconditioner != nullptr) {
      const auto* mine = dynamic_cast<const CpuPreconditioner*>(preconditioner);
      if (mine == nullptr) {
        return Status(StatusCode::kInvalidArgument, "PRECONDITIONER_MISMATCH",
                      "the preconditioner was made by another engine; build it with this one")
            .At("preconditioner");
      }
      if (options.method == Method::kCg && mine->kind() == EngineKind::kStaticSpai) {
        return PreconditionerNotSpd();
      }
      m = &mine->apply();
    }
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
      return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                    "the matrix holds a pattern only; a solve needs its values")
          .At("values");
    }
    const auto rows = CsrOperator::FromColumns(a, context);
    // Only a stop keeps the rows from being made. It is an outcome like any other, with the
    // residual of the initial guess, for which the columns will do.
    const ColumnOperator columns(a);
    const LinearOperator& op = rows.ok() ? static_cast<const LinearOperator&>(*rows) : columns;
    auto solved = kernels::Solve(op, m, b, x0, options, context);
    if (solved.ok()) solved->solve_ms = MsSince(start);  // the row layout of A included
    return solved;
  }
};

}  // namespace

int64_t CpuPlan::host_bytes() const {
  const int64_t own = static_cast<int64_t>(sizeof(CpuPlan));
  return static_spai ? own + Counts(*static_spai).plan_bytes : own;
}

Result<std::shared_ptr<const CpuPreconditioner>> CpuPreconditioner::Make(EngineKind kind,
                                                                         CscMatrix m,
                                                                         const Context& context) {
  std::shared_ptr<CpuPreconditioner> made(new CpuPreconditioner(kind, std::move(m)));
  // The layouts borrow from matrix_, which moves no more.
  if (kind == EngineKind::kJacobi) {
    made->diagonal_.emplace(made->matrix_.values);
  } else {
    auto rows = CsrOperator::FromColumns(made->matrix_, context);
    if (!rows.ok()) return rows.status();
    made->rows_.emplace(*std::move(rows));
  }
  return std::shared_ptr<const CpuPreconditioner>(std::move(made));
}

const LinearOperator& CpuPreconditioner::apply() const {
  if (diagonal_) return *diagonal_;
  return *rows_;
}

int64_t CpuPreconditioner::host_bytes() const {
  return static_cast<int64_t>(sizeof(CpuPreconditioner)) + matrix_.bytes() +
         (rows_ ? rows_->host_bytes() : 0);
}

std::unique_ptr<Engine> MakeCpuEngine() { return std::make_unique<CpuEngine>(); }

}  // namespace spaid::kernels
