// A square sparse matrix by rows for solves that live on the chip (persistent_smem.h): a block of
// threads on every multiprocessor, as a rank of a distributed solver, keeps a range of rows with
// their entries in its shared memory. Entries name their columns by where the block has them: at
// one of its own rows, or in its halo, the list of rows of other blocks that its entries need.
//
// Within a block rows are in the order of their lengths, the longest first, which is their place.
// Long ones are cut into pieces of about equal length. Slices of 32 pieces, entry by entry
// (SELL-32, as in csr.h), come first from all rows, their first pieces, then from what is
// left of the long ones.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

inline constexpr int kChipThreads = 512;  // a block
inline constexpr int kChipWarps = kChipThreads / 32;
inline constexpr int kChipMostRows = 6;  // of a thread
inline constexpr int kChipMostBlocks = kChipThreads;

// One block's share.
struct ChipShare {
  int64_t entries;               // where they begin
  int32_t first, rows;           // its rows
  int32_t slice, slices, tails;  // slices: where they begin, of first pieces, of the others
  int32_t halo, halo_rows;       // where its list begins, and its length
  int32_t tail, split;  // where the ends below begin; rows of several pieces, the first ones
  int32_t tail_steps;   // of every slice of those
  int32_t stored;       // entries with the ends of slices
};

// What kernels read. Places are those of all rows: a block's begin at its first row.
struct ChipRef {
  const ChipShare* shares;   // of each block
  const int32_t* order;      // the row at each place
  const int32_t* halo;       // places
  const int32_t* slice_end;  // of each slice, in steps of 32 entries from where the share begins
  const int32_t* tail_end;  // of each row of several pieces, in pieces beyond the first of all rows
  const uint16_t* cols;     // own row, counted from 0, or behind those an element of the halo
  const double* values;
};

// Shared memory that a block needs for its share, in a solve with kChipHalo vectors of the halo.
inline constexpr int kChipHalo = 4;
__host__ __device__ inline int64_t ChipBytes(const ChipShare& s) {
  const auto doubles = int64_t{s.stored} + s.rows + s.halo_rows * (1 + kChipHalo) + 32 * s.tails;
  const auto ints = int64_t{s.halo_rows} + s.slices + s.tails + s.split;
  return 8 * doubles + 4 * ints + 2 * int64_t{s.stored};
}

// Of one context; not thread-safe.
class ChipRows {
 public:
  // None where the matrix does not fit: more rows than kChipMostRows a thread in some block, or
  // more bytes than a block can have. Throws CudaFault::kOutOfMemory. Waits for the device.
  static std::optional<ChipRows> Make(Context& context, const CsrRef& a, const double* values,
                                      int64_t nnz);

  // New values for the same pattern, by columns: on the context's stream, without a wait.
  void UpdateValues(const Context& context, const PatternRef& pattern, const double* values);

  int blocks() const { return static_cast<int>(shares_.size()); }
  int rows_a_thread() const { return rows_a_thread_; }    // at most
  int64_t shared_bytes() const { return shared_bytes_; }  // of a block, at most
  int64_t bytes() const;                                  // of the device, that this holds
  ChipRef ref() const;

 private:
  int rows_a_thread_ = 1;
  int64_t shared_bytes_ = 0;
  Buffer<ChipShare> shares_;
  Buffer<int32_t> order_, halo_, slice_end_, tail_end_, tail_row_;
  Buffer<uint16_t> cols_;
  Buffer<double> values_;
};

}  // namespace spaid::cuda
