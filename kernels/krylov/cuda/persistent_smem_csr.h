// A square sparse matrix by rows for persistent solves within shared memory
// (persistent_smem_block.h): a block of threads on every multiprocessor, like a rank of a
// distributed solver, keeps a range of rows with their entries in its shared memory. Entries refer
// to their columns by the block's own indices: one of its own rows, or an element of its halo, the
// list of other blocks' rows that its entries need.
//
// Within a block rows are sorted by length, the longest first; a row's index in that order is its
// place. Long rows are cut into pieces of about equal length. SELL slices of 32 pieces (sell.h)
// have first the first pieces of all rows, then the further pieces of the long ones.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

inline constexpr int kSmemThreads = 512;  // threads a block
inline constexpr int kSmemWarps = kSmemThreads / 32;
inline constexpr int kSmemMostRows = 6;  // rows a thread
inline constexpr int kSmemMostBlocks = kSmemThreads;

// One block's share.
struct SmemShare {
  int64_t entries;               // offset of its entries
  int32_t first, rows;           // its first row, and their number
  int32_t slice, slices, tails;  // offset of its slices; slices of first and of further pieces
  int32_t halo, halo_rows;       // offset and length of its halo
  int32_t tail, split;           // offset in tail_end; its first rows, those of several pieces
  int32_t tail_steps;            // steps of every slice of further pieces
  int32_t stored;                // entries, padding included
};

// The arrays as kernels see them. Places are numbered over all rows: a block's begin at its first
// row.
struct SmemCsrRef {
  const SmemShare* shares;   // one a block
  const int32_t* order;      // the row at each place
  const int32_t* halo;       // places
  const int32_t* slice_end;  // end of each slice, in steps of 32 entries from the share's first
  const int32_t* tail_end;   // end of each split row in the list of further pieces
  const uint16_t* cols;      // a row of the block, counted from 0, or after those a halo element
  const double* values;
};

// Bytes of shared memory that a block needs for its share, in a solve that keeps the halo of
// kSmemHalos vectors.
inline constexpr int kSmemHalos = 4;
__host__ __device__ inline int64_t SmemBytes(const SmemShare& s) {
  const auto doubles = int64_t{s.stored} + s.rows + s.halo_rows * (1 + kSmemHalos) + 32 * s.tails;
  const auto ints = int64_t{s.halo_rows} + s.slices + s.tails + s.split;
  return 8 * doubles + 4 * ints + 2 * int64_t{s.stored};
}

// The matrix in this layout. Belongs to one context; not thread-safe.
class SmemCsr {
 public:
  // Nothing where the matrix does not fit: more rows than kSmemMostRows a thread in some block, or
  // more bytes than a block can have. Throws CudaFault::kOutOfMemory. Waits for the device.
  static std::optional<SmemCsr> Make(Context& context, const CsrArrays& a, const double* values,
                                     int64_t nnz);

  // Sets new values, by columns, for the same pattern: on the context's stream, without a wait.
  void UpdateValues(const Context& context, const PatternRef& pattern, const double* values);

  int blocks() const { return static_cast<int>(shares_.size()); }
  int rows_a_thread() const { return rows_a_thread_; }    // at most
  int64_t shared_bytes() const { return shared_bytes_; }  // a block needs, at most
  int64_t bytes() const;                                  // device bytes that this holds
  SmemCsrRef ref() const;

 private:
  int rows_a_thread_ = 1;
  int64_t shared_bytes_ = 0;
  Buffer<SmemShare> shares_;
  Buffer<int32_t> order_, halo_, slice_end_, tail_end_, tail_row_;
  Buffer<uint16_t> cols_;
  Buffer<double> values_;
};

}  // namespace spaid::cuda
