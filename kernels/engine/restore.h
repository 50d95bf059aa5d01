// Takes preconditioners apart, to be kept in files, and makes them of that again.
#pragma once

#include <memory>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"

namespace spaid::kernels {

// D_r where M was made by A with its rows scaled (MForm::kScaledRows); else empty. Lives
// as long as `m`.
std::span<const double> RowScalingOf(const Preconditioner& m);

// Makes a preconditioner of kind() and matrix() of an earlier one, and its row scaling: solves by
// it are the same, but that it has no copy on a device. `matrix` is square and canonical. Errors:
// INVALID_ARGUMENT/PRECONDITIONER_MISMATCH where they do not fit together; stop statuses (the
// factor of a factored one is transposed).
Result<std::shared_ptr<const Preconditioner>> RestorePreconditioner(EngineKind kind,
                                                                    CscMatrix matrix,
                                                                    Array<double> row_scaling,
                                                                    const Context& context);

}  // namespace spaid::kernels
