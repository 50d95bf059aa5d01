// What the CPU engine's parts share; nobody outside this room includes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/engine/engine.h"
#include "kernels/krylov/operators.h"

namespace spaid::kernels {

struct CpuPlan final : Plan {
  EngineKind kind = EngineKind::kNone;
  int64_t n = 0;
  int64_t nnz = 0;
  bool reads_values = false;
  PatternOptions pattern;                             // kStaticSpai only; max_nnz is not kept
  std::shared_ptr<const StaticSpaiPlan> static_spai;  // kStaticSpai only

  int64_t host_bytes() const override;
  bool serves_new_values() const override { return !reads_values; }
};

// M by columns as clients download it, and the layout that products want, made once.
class CpuPreconditioner final : public Preconditioner {
 public:
  // Errors: stop statuses (the layout of an explicit M takes about a tenth of its build).
  static Result<std::shared_ptr<const CpuPreconditioner>> Make(EngineKind kind, CscMatrix m,
                                                               const Context& context);
  CpuPreconditioner(const CpuPreconditioner&) = delete;
  CpuPreconditioner& operator=(const CpuPreconditioner&) = delete;

  EngineKind kind() const override { return kind_; }
  const CscMatrix& matrix() const override { return matrix_; }
  int64_t host_bytes() const override;
  const LinearOperator& apply() const;

 private:
  CpuPreconditioner(EngineKind kind, CscMatrix m) : kind_(kind), matrix_(std::move(m)) {}

  EngineKind kind_;
  CscMatrix matrix_;
  std::optional<CsrOperator> rows_;           // explicit M
  std::optional<DiagonalOperator> diagonal_;  // kJacobi; borrows matrix_.values
};

// estimate.cc. `spec` may be kAuto: then the bound covers whatever AUTO can choose.
Result<BuildEstimate> EstimateCpuBuild(const PreconditionerSpec& spec, const PatternView& a,
                                       const PatternView* user_pattern, const Context& context);
// Predicted time of one Jacobi-BiCGSTAB iteration.
double PredictJacobiIterationMs(int64_t n, int64_t nnz, int threads);

std::string Figure(double value);  // "1.23e-08", for texts

// resolve.cc
Result<ResolvedSpec> ResolveSpec(const PreconditionerSpec& spec, const CscView& a,
                                 const Diagnosis& diagnosis, const PatternView* user_pattern,
                                 const Context& context);
// The first column that stores no entry; -1 where all do. O(n).
int64_t FirstEmptyColumn(const PatternView& a);
Result<Method> ResolveSolveMethod(Method method, EngineKind kind, const Diagnosis& diagnosis);
// FAILED_PRECONDITION/PRECONDITIONER_NOT_SPD.
Status PreconditionerNotSpd();

}  // namespace spaid::kernels
