// Measured numbers of dynamic SPAI on the CPU.
#pragma once

#include <cstdint>

namespace spaid::kernels::dynamic_spai_tuning {

// Columns of AᵀA of a batch: some tenths of a millisecond.
inline constexpr int64_t kGramBatch = 256;
// The rows of a column are sorted by a bitmap where that has at most so many words for each.
inline constexpr int64_t kWordsPerEntry = 4;
// AᵀA may have an entry, of 12 bytes, for so many of the machine's memory.
inline constexpr int64_t kMemoryPerGramEntry = 24;

// An estimate counts the entries of AᵀA where that takes at most so many products; else they are
// bounded.
inline constexpr double kCountedProducts = 1e9;

}  // namespace spaid::kernels::dynamic_spai_tuning
