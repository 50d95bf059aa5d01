// Static SPAI of matrices on grids, by diagonals.
//
// If A and the pattern of M have few distinct diagonals (row less column), A is stored by diagonals
// and B = AᵀA is formed once, by diagonals too: the Gram matrix of a column of M is then gathered,
// entry (a, b) of B(J, J) from diagonal J_a − J_b, and no group forms its own. If the unknowns of a
// node share their pattern (blocks of b columns and rows), all of this works on nodes, with b × b
// entries each; the b columns of a node share a factor.
//
// Work is done by ranges of nodes, so that B takes bounded memory: the products of a range, its
// factors and solutions (one thread, eight threads or one block of threads a node), and explicit
// residuals; if these are not at the minimum, a corrected step and residuals once more
// (kernels/static_spai/group_solver.cc explains why). Columns that the Gram path cannot solve keep
// flags of 0.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/offsets.h"

namespace spaid::cuda {

// Distinct diagonals of M, at most, and unknowns of a local problem (slots: for each diagonal of M
// one for each unknown of a node).
inline constexpr int kMaxOffsets = 32;
inline constexpr int kMaxThreadSlots = 9;  // one thread a column
inline constexpr int kMaxTeamSlots = 30;   // eight threads a column
// Diagonals of B's lower half, at most, and pairs of A's diagonals with a product in it.
inline constexpr int kMaxProducts = kMaxOffsets * (kMaxOffsets - 1) / 2 + 1;
inline constexpr int kMaxPairs = kMaxDiagonals * (kMaxDiagonals + 1) / 2 + kMaxProducts;

// The index tables of a matrix. Offsets are in nodes and ascend.
struct DiaTables {
  int32_t diagonals = 0;  // diagonals of A
  int32_t offsets = 0;    // diagonals of M
  int32_t products = 0;   // diagonals of B, lower half
  int32_t rows = 0;       // entries of `row`
  int32_t a_offset[kMaxDiagonals] = {};
  int32_t m_offset[kMaxOffsets] = {};
  int32_t target[kMaxOffsets] = {};  // A's diagonal with the entries of row k in each column, or −1
  int32_t b_offset[kMaxProducts] = {};
  // The products that make a diagonal d of B: first | second << 8, diagonals of A of column c and
  // of column c + d; kNoPair alone where it is zero.
  int32_t pair_begin[kMaxProducts + 1] = {};
  uint16_t pair[kMaxPairs] = {};
  static constexpr uint16_t kNoPair = 0xffff;
  // B's diagonal m_offset[p] − m_offset[q], q <= p, at p (p + 1) / 2 + q.
  uint16_t place[kMaxOffsets * (kMaxOffsets + 1) / 2] = {};
  // Rows of Â, each entry by entry: offset of M | diagonal of A << 8, flags.
  uint32_t row[kMaxDiagonals * kMaxOffsets] = {};
  static constexpr uint32_t kLast = 1u << 16;    // the row's last entry
  static constexpr uint32_t kTarget = 1u << 17;  // in row k
};

struct DiaPlan {
  int32_t node = 0;  // unknowns of a node; 0: the matrix is not for this path
  int32_t nodes = 0;
  int32_t diagonals = 0, offsets = 0, products = 0;
  int32_t pairs = 0;                // pairs of all products
  int32_t lowest = 0, highest = 0;  // offsets of M
  int32_t range = 0;                // nodes at once
  Buffer<DiaTables> tables;
  Buffer<uint64_t> a_mask;  // for each node, a bit for each diagonal of A that it has
  Buffer<uint32_t> m_mask;  // the same for M

  int slots() const { return node * offsets; }
  int64_t device_bytes() const;
};

struct StaticSpaiPlan;

// Makes the plan by diagonals for A and the pattern of M in `plan`; its `node` is 0 if the matrix
// is not for this path.
DiaPlan MakeDiaPlan(Context& context, const Matrix& a, const StaticSpaiPlan& plan);

// Arguments of the kernels. Ranges of nodes [begin, end) and of B's columns [low, high).
struct DiaArgs {
  const DiaTables* tables;
  int32_t nodes, begin, end, low, high;
  int32_t b_stride;  // between diagonals of B if a node is one unknown
  int32_t g_stride;  // between slots of `gradient`
  const double* a;   // ((diagonal · node + row) · node + column) · nodes + node of the column
  double* b;         // node = 1: diagonal · b_stride + column − low; else by columns:
                     // ((column − low) · products + diagonal) · node² + row · node + column
  const uint64_t* a_mask;
  const uint32_t* m_mask;
  const double* scale;  // scales of A's columns
  const int64_t* m_ptr;
  double pivot_limit, post_filter;
  double* m_values;
  double* residual_norms;
  double* pivots;
  uint8_t* flags;
  uint8_t* state;    // bits of ColumnState for the range's columns
  int32_t* wanted;   // not 0: a column of the range wants a corrected step
  double* gradient;  // slot · g_stride + column of the range: Âᵀ(e − Âm) if a step is wanted
};

enum ColumnState : uint8_t {
  kStateSolved = 1,  // the factor is good enough
  kStateStrong = 2,  // no pivot under kStrongPivot
  kStateAgain = 4,   // wants a corrected step
};

// Within 1e-14 or so of rsqrt(x), for normal x; not a number for zero and less. Without the
// branches of rsqrt(), between which nothing is scheduled.
__device__ inline double InverseRoot(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));  // 20 bits
  const double error = fma(-x * y, y, 1.0);
  return fma(y * error, fma(0.375, error, 0.5), y);
}

// Whether a column needs no explicit residual. S: its Gram matrix scaled to a unit diagonal, n × n;
// `inverse`: a bound of ‖S⁻¹‖₂, or an estimate of ‖S⁻¹‖_F, which is no smaller.
//
// A Cholesky solution solves a system that is off by |ΔS| <= (3n + 1) u |L||Lᵀ| (Higham, Accuracy
// and Stability of Numerical Algorithms, theorem 10.4), and rows of L have norm 1: no element of
// |L||Lᵀ| is over 1, and ‖ΔS‖₂ at most n (3n + 1) u. Forming S from columns of norm 1 with about n
// entries adds a third of that, and B, whose columns have norms from 0.7 to 1.4, a factor of two.
// So a solution is off by n (3n + 1) u ‖S⁻¹‖ of its norm at most (in practice by the root of that,
// since rounding errors cancel). Scaling by powers of two changes no rounding at all, and D B D for
// another D none of this. If that is below 1e-10, a corrected step would correct nothing that the
// accuracy rule asks for, and ‖r‖² = 1 − (Âm)_k to as many digits, of which enough are left if it
// is over 1e-6. A column without an entry in row k (fit = 0) has to be told from one with zeros
// there.
//
// Bounds: 3 / det, with det the product of the scaled pivots, that is the determinant of S: the
// product of the other eigenvalues, of trace n at most, is at most (n / (n − 1))^(n − 1) < e.
// Estimate: ‖S⁻¹z‖ for random signs z, whose square has the expectation ‖S⁻¹‖_F².
__device__ inline bool IsCertain(int n, double inverse, double fit) {
  return n * (3 * n + 1) * 0x1p-53 * inverse <= 1e-10 && fit > 0 && 1 - fit > 1e-6;
}

// Factors and solves the columns of a range; `again`: adds the corrected step to those that want
// one.
void LaunchDiaThreads(const Context& context, const DiaArgs& args, int slots, bool again);
void LaunchDiaTeams(const Context& context, const DiaArgs& args, int slots, bool again);
void LaunchDiaNodes(const Context& context, const DiaArgs& args, int node, int offsets, bool again);

}  // namespace spaid::cuda
