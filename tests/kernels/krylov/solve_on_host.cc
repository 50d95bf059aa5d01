#include "kernels/krylov/operators.h"
#include "tests/kernels/krylov/helpers.h"

namespace spaid::kernels::krylov_test {

Result<SolveResult> SolveHere(const CscView& a, const LinearOperator* m, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context) {
  return Solve(CsrOperator::FromColumns(a), m, b, x0, options, context);
}

bool OnHost() { return true; }

int64_t IterationsAfterStop() { return 0; }

int64_t ColumnsAtOnce() { return 1; }

}  // namespace spaid::kernels::krylov_test
