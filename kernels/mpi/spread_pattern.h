// Patterns over several ranks: powers of them, and parts in numbers of their own. Internal to this
// room.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/spread_groups.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels::mpi {

// Columns of a pattern, `columns` and their rows numbers of the whole, as a square pattern of the
// members of `of`, in which others have no rows.
Pattern Compress(const Numbering& of, std::span<const int32_t> columns,
                 std::span<const int64_t> ptr, std::span<const int32_t> rows);

// The columns that this rank owns of (E + |base|)^p, p = options.power. `base`: the columns that it
// owns of a pattern of a's size. Collective. `what`: for messages. Errors, the same on all ranks:
// those of PowerPattern, HALO_TOO_LARGE, stop statuses.
Result<SpreadPattern> PowerOf(const SpreadMatrix& a, SpreadPattern base,
                              const PatternOptions& options, const Context& context,
                              HaloBudget& budget, std::string_view what);

}  // namespace spaid::kernels::mpi
