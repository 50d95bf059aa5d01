// Packs A as the kernels of FSAI read it.
#pragma once

#include <cstdint>

#include "kernels/fsai/cuda/rows.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda::fsai {

// Faults of A.
struct Faults {
  // The first row whose diagonal entry is missing or not positive; n: none.
  int32_t not_positive;
  // The first column with an entry whose mirror in the lower triangle is missing or differs by more
  // than the tolerance, or with an entry of the lower triangle that has no mirror; n: none.
  int32_t not_symmetric;
  int32_t longest;        // longest row of A
  uint32_t largest_high;  // upper bits of the largest diagonal entry
};

// The lower triangle of A and its mirror, each row's diagonal entry first.
template <class Real>
struct PackedRows {
  Buffer<Entry<Real>> entries;
  const int64_t* ptr = nullptr;  // the matrix's own
  int32_t stride = 0;
  Faults faults{};
  // Entries are those of A times 4^−half_exponent, so that the range of fp32 does not matter.
  int half_exponent = 0;

  Rows<Real> rows() const { return {entries.get(), ptr, stride}; }
};

// Waits for the device. The matrix must outlive the result, which is invalid where A has faults.
template <class Real>
PackedRows<Real> Pack(Context& context, const Matrix& a, double symmetry_tolerance);

}  // namespace spaid::cuda::fsai
