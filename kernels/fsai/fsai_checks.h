// Checks of the input before a build. Internal to this room and its tests.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/fsai/fsai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// INVALID_ARGUMENT/NOT_SQUARE, /BAD_FSAI_OPTION.
Status CheckFsai(const PatternView& a, const FsaiOptions& options);

struct Diagonal {
  Array<double> values;  // n, all positive
  Array<int64_t> at;     // their positions among the entries
};
// FAILED_PRECONDITION/NOT_POSITIVE_DEFINITE: the first that is not positive, or not stored.
Result<Diagonal> PositiveDiagonal(const CscView& a, int threads);

// A, symmetric within the tolerance, and the checks' findings.
struct SymmetricMatrix {
  CscView a;
  Diagonal diagonal;
  bool symmetric_pattern = true;
};
// As PositiveDiagonal; FAILED_PRECONDITION/NOT_SYMMETRIC; stop statuses.
Result<SymmetricMatrix> CheckSymmetric(const CscView& a, const FsaiOptions& options,
                                       const Context& context);

// Whether the pattern equals its transpose's, entry by entry.
bool IsSymmetricPattern(const PatternView& a, int threads);

// `pattern`: by rows, canonical, each row i below or at i, with its diagonal last.
// INVALID_ARGUMENT/PATTERN_SIZE_MISMATCH, /PATTERN_NOT_LOWER.
Status CheckLowerPattern(const PatternView& pattern, int64_t n);

}  // namespace spaid::kernels
