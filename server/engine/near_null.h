// Vectors of multigrid out of a stored matrix.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/amg/scaling.h"
#include "server/engine/resolved_build.h"
#include "server/engine/stored_types.h"

namespace spaid::server {

// The columns of `given` that store anything, as near-null vectors of an A of n rows, or as its
// nodes' coordinates. `options_field`: of the engine, for errors:
// FAILED_PRECONDITION/VALUES_NEEDED, INVALID_ARGUMENT/ BAD_NEAR_NULL_SPACE, /BAD_COORDINATES
// (another number of rows or columns). O(nnz).
absl::StatusOr<std::shared_ptr<const kernels::NearNullArrays>> NearNullOf(
    const Matrix& given, GivenMatrix::As as, int64_t n, const std::string& options_field);

}  // namespace spaid::server
