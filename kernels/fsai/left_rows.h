// Rows of G that a device has left to the host. Internal to this room and its tests.
#pragma once

#include <cstdint>

#include "kernels/fsai/fsai.h"

namespace spaid::kernels {

// Makes the rows of result.g_rows that have no entries, and adds them to its figures, of which
// quality.steps and kaporin_by_step are there. `pattern`: as of BuildFsaiOn, or, where `grow`, of
// BuildFsai, with its diagonal; null: the diagonal. How many there were. Errors: those of
// CheckSymmetric; stop statuses. Throws std::bad_alloc.
Result<int64_t> MakeLeftRows(const CscView& a, const PatternView* pattern, bool grow,
                             const FsaiOptions& options, const Context& context,
                             FsaiResult& result);

}  // namespace spaid::kernels
