// Sizes up to which each variant of a kernel is used, where more than one could be: measured on one
// NVIDIA H100 80GB HBM3 (docs/decisions/static-spai.md).
#pragma once

#include <cstdint>

namespace spaid::cuda {

// Up to which sizes one variant of a kernel takes what the next one could take, too. What is over
// the first one's memory is the next one's, whatever these say. And which layouts are left out.
struct Variants {
  // Find J: a column of a power by a warp, by the elements of its lists; else by a block, and
  // then by a bitmap of n bits in shared memory where that has at most so many words for each
  // entry.
  int32_t union_warp_elements, union_bitmap_words;
  // Find I: the table of a local problem in the registers of a warp, in its shared memory, by the
  // entries of Â; else by a block.
  int32_t table_register_entries, table_warp_entries;
  // Gram matrix, factor, solve: a thread a local problem, by |J|; else a warp.
  int32_t lane_columns;
  // Operators whose entries take at most so many bytes by rows are laid out so, those of few
  // diagonals or of nodes, too; and solves with such operators alone run several iterations in one
  // persistent kernel: within shared memory (kernels/krylov/cuda/persistent_smem_block.h), or else
  // (fused_steps.h) where all of its blocks fit on the device at once.
  int64_t rows_bytes;
};

namespace tuning {

// A part of the names of the devices that these, and all other measured numbers of the kernels, are
// of. Every device uses them, as the nearest there are.
inline constexpr char kMeasuredOn[] = "NVIDIA H100";

inline constexpr Variants kVariants{
    8192,        // union_warp_elements
    16,          // union_bitmap_words
    64,          // table_register_entries
    1024,        // table_warp_entries
    10,          // lane_columns
    24'000'000,  // rows_bytes
};

}  // namespace tuning
}  // namespace spaid::cuda
