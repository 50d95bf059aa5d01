#include "kernels/engine/restore.h"

#include <utility>

#include "kernels/engine/engine_parts.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {

std::span<const double> RowScalingOf(const Preconditioner& m) {
  const auto* const ours = dynamic_cast<const HostPreconditioner*>(&m);
  return ours != nullptr ? ours->row_scaling() : std::span<const double>();
}

Result<std::shared_ptr<const Preconditioner>> RestorePreconditioner(EngineKind kind,
                                                                    CscMatrix matrix,
                                                                    Array<double> row_scaling,
                                                                    const Context& context) {
  const auto n = static_cast<size_t>(matrix.n_cols);
  const bool scaled = !row_scaling.empty();
  if (kind == EngineKind::kAuto || kind == EngineKind::kNone || TraitsOf(kind).by_parts ||
      TraitsOf(kind).ranks_alone || matrix.n_rows != matrix.n_cols ||
      matrix.values.size() != matrix.row_idx.size() || (scaled && row_scaling.size() != n)) {
    return NotOurs();
  }
  CscMatrix by_columns;
  if (TraitsOf(kind).factored) {
    auto rows = Transpose(matrix, context);
    if (!rows.ok()) return rows.status();
    by_columns = std::exchange(matrix, *std::move(rows));
  }
  auto made = HostPreconditioner::Make(kind, std::move(matrix), context, /*on_host=*/false,
                                       std::move(by_columns), {}, std::move(row_scaling));
  if (!made.ok()) return made.status();
  return std::shared_ptr<const Preconditioner>(*std::move(made));
}

}  // namespace spaid::kernels
