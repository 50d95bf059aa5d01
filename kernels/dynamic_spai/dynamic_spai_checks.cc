#include <string>

#include "kernels/dynamic_spai/dynamic_spai.h"

namespace spaid::kernels {

Status CheckDynamicOptions(const DynamicSpaiOptions& options) {
  return CheckRanges(options, "BAD_DYNAMIC_OPTION");
}

Status CheckDynamicSpai(const PatternView& a, const PatternView* initial,
                        const DynamicSpaiOptions& options) {
  if (a.n_rows != a.n_cols) {
    return Status(StatusCode::kInvalidArgument, "NOT_SQUARE",
                  "an approximate inverse needs a square matrix, this one has " +
                      std::to_string(a.n_rows) + " rows and " + std::to_string(a.n_cols) +
                      " columns")
        .At("n_rows");
  }
  if (Status status = CheckDynamicOptions(options); !status.ok()) return status;
  if (initial != nullptr && (initial->n_rows != a.n_rows || initial->n_cols != a.n_cols)) {
    return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                  "the initial pattern is " + std::to_string(initial->n_rows) + " x " +
                      std::to_string(initial->n_cols) + ", the matrix " + std::to_string(a.n_rows) +
                      " x " + std::to_string(a.n_cols))
        .At("user_pattern");
  }
  return {};
}

}  // namespace spaid::kernels
