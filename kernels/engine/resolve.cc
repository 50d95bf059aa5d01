// What AUTO chooses. A first rule, from the diagnosis and counted costs alone; it knows nothing of
// how fast a method will converge:
//   1. zero diagonal entries: Jacobi cannot be built. Static SPAI, with a row matching where A has
//   full
//      structural rank, else with ensure_row, so that no column of M is zero for want of a pattern.
//   2. symmetric with a positive diagonal: Jacobi. It keeps CG, which an explicit M does not.
//   3. otherwise static SPAI, unless its predicted build takes longer than kIterationsWorth
//   iterations
//      of Jacobi-BiCGSTAB, or its bound on memory is over half of what is usable: then Jacobi.
#include <cstdio>
#include <string>

#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/cpu_engine.h"
#include "kernels/engine/options.h"

namespace spaid::kernels {
namespace {

// On the real matrices measured, static SPAI on the pattern of A saves a few hundred iterations
// where Jacobi needs many, and next to nothing where it needs few.
constexpr double kIterationsWorth = 300;

ResolvedSpec ChooseForZeroDiagonal(const PreconditionerSpec& spec, const Diagnosis& d) {
  ResolvedSpec out{spec, ""};
  out.spec.engine = EngineKind::kStaticSpai;
  out.spec.static_spai.pattern.ensure_row = true;
  out.reason = "static SPAI with ensure_row: " + std::to_string(d.zero_diagonal.count) + " of " +
               std::to_string(d.n) + " diagonal entries are zero (first: column " +
               std::to_string(d.zero_diagonal.first) +
               "), which Jacobi cannot invert, and every column of M must reach its row";
  if (d.structural_rank >= 0 && d.structural_rank < d.n) {
    out.reason += "; A has structural rank " + std::to_string(d.structural_rank) + " of " +
                  std::to_string(d.n) +
                  ": it is singular, and a solve converges only if b allows it";
  }
  return out;
}

ResolvedSpec Jacobi(std::string reason) {
  return {PreconditionerSpec{.engine = EngineKind::kJacobi, .static_spai = {}},
          "Jacobi: " + std::move(reason)};
}

Result<ResolvedSpec> ChooseByCost(const PreconditionerSpec& spec, const CscView& a,
                                  const Diagnosis& d) {
  ResolvedSpec out{spec, ""};
  out.spec.engine = EngineKind::kStaticSpai;
  auto estimate = EstimateCpuBuild(out.spec, a, nullptr, Context{});
  if (!estimate.ok()) return estimate.status();
  const double iteration_ms = PredictJacobiIterationMs(d.n, d.nnz, ResolveThreads(0));
  const double worth_ms = kIterationsWorth * iteration_ms;
  const std::string what =
      d.numerically_symmetric
          ? "A is symmetric with " + std::to_string(d.negative_diagonal.count) +
                " negative diagonal entries"
          : "A is not symmetric (first at column " + std::to_string(d.asymmetry_column) + ")";
  const std::string cost = "its build is predicted at " + Figure(estimate->predicted_ms) +
                           " ms and " + Figure(static_cast<double>(estimate->host_bytes)) +
                           " bytes, " + Figure(kIterationsWorth) + " iterations with Jacobi at " +
                           Figure(worth_ms) + " ms";
  const int64_t usable = UsableMemoryBytes() / 2;
  if (estimate->host_bytes > usable) {
    return Jacobi(what + ", but static SPAI may need more than half of the usable memory: " + cost);
  }
  if (estimate->predicted_ms > worth_ms) {
    return Jacobi(what + ", but static SPAI costs more than it is likely to save: " + cost);
  }
  out.reason = "static SPAI: " + what + ", and " + cost;
  return out;
}

}  // namespace

std::string Figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

Result<ResolvedSpec> ResolveSpec(const PreconditionerSpec& spec, const CscView& a,
                                 const Diagnosis& diagnosis) {
  if (Status s = CheckSpec(spec); !s.ok()) return s;
  switch (spec.engine) {
    case EngineKind::kNone:
    case EngineKind::kJacobi:
      // Options of another engine are dropped, so that equal builds have equal resolved specs.
      return ResolvedSpec{PreconditionerSpec{.engine = spec.engine, .static_spai = {}}, ""};
    case EngineKind::kStaticSpai:
      return ResolvedSpec{spec, ""};
    case EngineKind::kAuto:
      break;
  }
  if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
    return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                  "engine AUTO chooses by the values, and the matrix holds a pattern only; name an "
                  "engine or send values")
        .At("engine");
  }
  if (diagnosis.zero_diagonal.count > 0) return ChooseForZeroDiagonal(spec, diagnosis);
  if (diagnosis.numerically_symmetric && diagnosis.negative_diagonal.count == 0) {
    return Jacobi("A is symmetric with a positive diagonal (n = " + std::to_string(diagnosis.n) +
                  "), so that CG applies, which an explicit M would rule out");
  }
  return ChooseByCost(spec, a, diagnosis);
}

Status PreconditionerNotSpd() {
  return Status(StatusCode::kFailedPrecondition, "PRECONDITIONER_NOT_SPD",
                "CG needs a symmetric positive definite preconditioner, and an explicit M from "
                "static SPAI is neither; use BiCGSTAB or GMRES, or Jacobi with CG")
      .At("method");
}

Result<Method> ResolveSolveMethod(Method method, EngineKind kind, const Diagnosis& diagnosis) {
  if (kind == EngineKind::kAuto) {
    return Status(StatusCode::kInvalidArgument, "ENGINE_NOT_RESOLVED",
                  "engine AUTO must be resolved before the method")
        .At("engine");
  }
  const bool explicit_m = kind == EngineKind::kStaticSpai;
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
