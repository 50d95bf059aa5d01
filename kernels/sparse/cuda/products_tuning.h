// The numbers of products on a device (products.cu).
#pragma once

namespace spaid::cuda::tuning {

// Tables of counts have twice as many places as there are products, up to so many; from there on a
// place for so many products. An entry of A P is the sum of 2.5 products (poisson128) to 5, of
// R (A P) of 12; the few rows that do not fit are counted once more.
inline constexpr double kSureSlots = 256, kProductsASlot = 2;
// Places that are looked at for a column, before a row is counted once more.
inline constexpr int kProbes = 32;
// Rows of B of more entries for each lane that a row of C has are a whole warp's: hubs.
inline constexpr int kLongRight = 8;
// Rows in larger tables are sorted, in smaller ones ranked.
inline constexpr int kMostRankedSlots = 256;
// Streams for classes of rows beside the context's; the host forks and joins each.
inline constexpr int kBranches = 2;
// Bytes of the tables in a block, at most: two blocks a multiprocessor.
inline constexpr int kTableBytes = 98304;
// Threads of a block where each has a row: 32 entries of each take 48 KB.
inline constexpr int kSingleThreads = 128;
// Rows without a table that a multiprocessor has at once, and bytes of their sums for each entry of
// the factors, at most.
inline constexpr int kLongBlocks = 2, kLongBytes = 4;

}  // namespace spaid::cuda::tuning
