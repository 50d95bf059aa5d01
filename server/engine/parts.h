// Parts of preconditioners that are no matrix.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/stored_types.h"
#include "server/store/byte_budget.h"
#include "spaid/v1/preconditioner.pb.h"

namespace spaid::server {

// Whether the request names a part where there are some, and none where M is a matrix. Errors:
// INVALID_ARGUMENT/PART_NEEDED, /UNKNOWN_PART, both with the parts there are.
absl::Status CheckPart(const Preconditioner& m, const v1::DownloadPreconditionerRequest& request);

// A copy of a part that is there, which takes its bytes from `budget` as long as it lives. Blocks
// for O(nnz). Errors: ByteBudget::Take's, the kernels'.
absl::StatusOr<std::shared_ptr<const kernels::CscMatrix>> CopyPart(ByteBudget& budget,
                                                                   const std::string& tenant,
                                                                   const Preconditioner& m,
                                                                   const v1::Part& part);

}  // namespace spaid::server
