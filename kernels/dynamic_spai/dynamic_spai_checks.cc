#include <string>

#include "kernels/dynamic_spai/dynamic_spai.h"

namespace spaid::kernels {
namespace {

Status Bad(const char* field, const std::string& value, const std::string& range) {
  return Status(StatusCode::kInvalidArgument, "BAD_DYNAMIC_OPTION",
                std::string(field) + " = " + value + " is out of range; give " + range)
      .At(field);
}

}  // namespace

Status CheckDynamicOptions(const DynamicSpaiOptions& options) {
  if (!(options.tol >= 0 && options.tol < 1)) {
    return Bad("tol", std::to_string(options.tol), "a value of at least 0 and under 1");
  }
  if (options.max_steps < 0 || options.max_steps > kMaxDynamicSpaiSteps) {
    return Bad("max_steps", std::to_string(options.max_steps),
               "0 to " + std::to_string(kMaxDynamicSpaiSteps));
  }
  if (options.per_step < 1 || options.per_step > kMaxDynamicSpaiPerStep) {
    return Bad("step_size", std::to_string(options.per_step),
               "1 to " + std::to_string(kMaxDynamicSpaiPerStep));
  }
  if (options.max_column_nnz < 0) {
    return Bad("max_column_nnz", std::to_string(options.max_column_nnz),
               "0 (what the steps add) or a positive count");
  }
  if (!(options.post_filter >= 0 && options.post_filter <= 1)) {
    return Bad("post_filter", std::to_string(options.post_filter), "0 (keep everything) to 1");
  }
  if (options.repeat_hash_bits < 0 || options.repeat_hash_bits > 64) {
    return Bad("repeat_hash_bits", std::to_string(options.repeat_hash_bits), "0 to 64");
  }
  switch (options.local_solver) {
    case LocalSolver::kAuto:
    case LocalSolver::kQr:
    case LocalSolver::kGram:
      return {};
  }
  return Bad("local_solver", std::to_string(static_cast<int>(options.local_solver)),
             "AUTO, QR or GRAM");
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
