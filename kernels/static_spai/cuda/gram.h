// The numeric phase of static SPAI on a device by the Gram path: for each group, ÂᵀÂ on the tensor
// cores (fp64), its Cholesky factor, the solutions with explicit residuals, and corrected steps if
// they are not at the minimum (kernels/static_spai/group_solver.cc explains why): one, or by blocks
// and clusters, for which QR would take longest, as many as a weak problem needs. Groups whose Gram
// matrix is too ill-conditioned, or that no kernel takes, keep flags of 0: QR solves them.
#pragma once

#include <cstdint>

#include "kernels/static_spai/cuda/plan.h"

namespace spaid::cuda {

// Arguments of a Gram kernel; outputs by column of M.
struct GramArgs {
  const int64_t* a_ptr;
  const double* a_values;  // each column times its scale
  const double* scale;     // scales of A's columns: powers of two that bring their norms near 1
  const int64_t* m_ptr;
  const int32_t* m_idx;
  const int32_t* members;
  const int32_t* group_ptr;
  const int32_t* structure_of;
  const Structure* structures;
  const uint32_t* tables;
  const int32_t* groups;  // the groups to solve
  int32_t count;
  int32_t* next;  // the queue's head, 0 at the start
  double pivot_limit, post_filter;
  double* m_values;
  double* residual_norms;
  double* pivots;
  uint8_t* flags;
};

// Solves args.count groups of one class (ClassOf in plan.cu) with a persistent grid.
void LaunchWarpGram(const Context& context, const Branch& branch, int tiles, bool wide,
                    const GramArgs& args);
void LaunchBlockGram(const Context& context, const Branch& branch, int tiles, const GramArgs& args);

// Bytes of workspace that a cluster of blocks of LargeGram needs.
int64_t LargeGramBytes(const LargestLocal& largest, int64_t n);
// Solves problems in global memory, with as many clusters of blocks as memory suffices for.
struct LargeGram {
  LargeGram() = default;
  // Takes the workspace from the arena. `n`: columns of A.
  LargeGram(Context& context, const LargestLocal& largest, int64_t n, int32_t count);
  // `a_rows`: row_idx of A. This object must outlive the work.
  void Launch(const Branch& branch, const int32_t* a_rows, const GramArgs& args) const;

 private:
  int64_t n_ = 0, tile_doubles_ = 0, slots_ = 0;
  int clusters_ = 0, blocks_ = 0;  // blocks a cluster
  Buffer<double> memory_;
  Buffer<int32_t> table_;
};

}  // namespace spaid::cuda
