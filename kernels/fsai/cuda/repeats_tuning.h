// Sizes of the search for rows of FSAI that repeat others, on a CUDA device.
#pragma once

#include <cstdint>

namespace spaid::cuda::tuning {

// The search goes on where A has at most one kind of row in so many rows; at most as many rows of G
// are grown for it.
inline constexpr int64_t kFsaiRowsPerClass = 8;
inline constexpr int kFsaiRepeatRounds = 8;
// With so many rows or more one in kFsaiSampleStep is looked at first; there is no search where
// more than half of these are unlike all others.
inline constexpr int64_t kFsaiSampledRows = int64_t{1} << 16;
inline constexpr int kFsaiSampleStep = 16;
// A search ends where there are more groups than so many, and than one for each four rows.
inline constexpr int64_t kFsaiAnyGroups = int64_t{1} << 18;

}  // namespace spaid::cuda::tuning
