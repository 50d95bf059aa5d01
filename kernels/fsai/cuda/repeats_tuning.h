// Sizes of the search for rows of FSAI that repeat others, on a CUDA device.
#pragma once

#include <cstdint>

namespace spaid::cuda::tuning {

// They are looked for where A has at most one kind of row in so many rows; as many of those of G,
// at most, are grown for it.
inline constexpr int64_t kFsaiRowsPerClass = 8;
inline constexpr int kFsaiRepeatRounds = 8;
// Where there are so many rows one in kFsaiSampleStep is looked at first: not where more than half
// of those are of kinds of their own.
inline constexpr int64_t kFsaiSampledRows = int64_t{1} << 16;
inline constexpr int kFsaiSampleStep = 16;
// A search ends where there are more groups than so many, and than one for each four rows.
inline constexpr int64_t kFsaiAnyGroups = int64_t{1} << 18;

}  // namespace spaid::cuda::tuning
