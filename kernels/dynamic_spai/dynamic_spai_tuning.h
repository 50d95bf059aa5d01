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

// nnz(M) is about so many times nnz(A) / tol² where growth may go on until then: 0.06 to 0.2 of the
// matrices of kernels/bench/results/cpu_dynamic_spai.json, FEM with long columns less.
inline constexpr double kEntriesForTol = 0.1;

// Nanoseconds of one thread. Of a product of AᵀA; of a column that grows; of an entry of it, for
// each entry of its column of AᵀA, and again for each step; of an entry whose value is solved for,
// for each entry of its column of A, and for each other entry.
inline constexpr double kProductNs = 2.5;
inline constexpr double kColumnNs = 300;
inline constexpr double kAddedNs = 60, kAddedEntryNs = 2, kStepEntryNs = 0.75;
inline constexpr double kSolvedNs = 120, kSolvedEntryNs = 6, kSolvedSquareNs = 4;

}  // namespace spaid::kernels::dynamic_spai_tuning
