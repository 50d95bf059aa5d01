// AUTO where A has a diagonal: predicts what each engine would take, set-up and solve to 1e-7, from
// the diagnosis and a look at some columns, and chooses the least.
#pragma once

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/spec.h"
#include "kernels/sparse/diagnosis.h"

namespace spaid::kernels {

// `spec` is kAuto, its options and `a` (with values, every diagonal entry invertible) checked:
//   - CG, named or what A's symmetry and positive diagonal suggest, goes with Jacobi, static FSAI
//     and a light adaptive FSAI, on a GPU also one of thirty steps; BiCGSTAB and GMRES, where
//     named, with static SPAI, too. A symmetric A that shows itself indefinite (the sum of all
//     entries, or a local pivot, is negative) gets static SPAI, or for a named CG Jacobi. A
//     `user_pattern`, which is static SPAI's, rules FSAI out.
//   - Where A is not symmetric, or its diagonal not positive: Jacobi and static SPAI.
// Iterations come from how much of a diagonal entry the entries before it explain, costs from
// counts (cost.h), of spec.n_rhs right-hand sides on spec.backend: no clock and no device,
// the same choice for every call. Jacobi keeps its place unless another is clearly ahead. Takes the
// time of one product with A or two at the most, of a count of the pattern where that of M is not
// simply A's, or is large and may be chosen. Errors: those of Estimate. Thread-safe.
Result<ResolvedSpec> ChooseEngine(const PreconditionerSpec& spec, const CscView& a,
                                  const Diagnosis& diagnosis, const PatternView* user_pattern,
                                  const Context& context);

}  // namespace spaid::kernels
