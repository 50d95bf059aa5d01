// Samples some rows of FSAI, from which the whole build is predicted.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/fsai/fsai.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// Means over the rows looked at. A gain is −ln(ψ_i / a_ii): that of all rows is minus the logarithm
// of the Kaporin reduction.
struct FsaiSample {
  int64_t rows = 0;
  double static_gain = 0;    // on the lower triangle of A, of which a row's last 64 entries count
  double grown_gain = 0;     // grown as the options say
  double grown_entries = 0;  // entries of a grown row of G, with the diagonal
};

// `a`: canonical, square, symmetric with a positive diagonal; `rows`: indices into it, looked at in
// this order until the work exceeds some products with A. `options`: those of adaptive FSAI,
// checked. O(n) besides, on `threads`. The same for every call. Thread-safe.
FsaiSample SampleFsai(const CscView& a, std::span<const int32_t> rows, const FsaiOptions& options,
                      int threads = 1);

}  // namespace spaid::kernels
