// Drops small entries of G and scales its rows again. Internal to this room.
#pragma once

#include "kernels/base/context.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_checks.h"

namespace spaid::kernels {

// options.post_filter on the rows of `result`, whose g_rows and psi_ratio change. Rows that would
// not be positive stay as they are, and are counted in `tally`. kNone, or why it stopped.
struct RowTally;
StopReason FilterRows(const SymmetricMatrix& a, const FsaiOptions& options, const Context& context,
                      RowTally& tally, FsaiResult& result);

}  // namespace spaid::kernels
