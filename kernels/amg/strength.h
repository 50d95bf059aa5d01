// Which couplings of a matrix are strong: those that an aggregate may follow.
//
//   Result<CscMatrix> s = Couplings(a_rows, /*symmetric=*/true, /*block=*/1, context);
//   Result<StrongGraph> graph = FindStrong(*s, 0.15, context);
//
// Matrices are by rows: column i of a view is row i. A node is `block` consecutive unknowns.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// By which thresholds are multiplied, so that exact ties do not hang on rounding.
inline constexpr double kStrengthTie = 1 - 1e-9;

// Graph of nodes that are strongly coupled, both ends agreeing: symmetric, without loops.
struct StrongGraph {
  int64_t n = 0;              // nodes
  Array<int64_t> ptr;         // n + 1
  Array<int32_t> neighbours;  // ascending in each row
  Array<double> weights;      // s_ij > 0, of each
  // The strongest of the couplings of i that only i itself finds strong (ties: the lower number);
  // -1: none.
  Array<int32_t> leader;

  std::span<const int32_t> of(int64_t i) const {
    return {neighbours.data() + ptr[static_cast<size_t>(i)],
            static_cast<size_t>(ptr[static_cast<size_t>(i) + 1] - ptr[static_cast<size_t>(i)])};
  }
  std::span<const double> weights_of(int64_t i) const {
    return {weights.data() + ptr[static_cast<size_t>(i)],
            static_cast<size_t>(ptr[static_cast<size_t>(i) + 1] - ptr[static_cast<size_t>(i)])};
  }
};

// The couplings s_ij of nodes, i != j, by rows; symmetric in pattern and, but for rounding, in
// value. With one unknown a node s_ij = -(σ_i â_ij + σ_j â_ji) / 2, with â = a / √|a_ii a_jj| and σ
// the sign of the diagonal: positive where an error of both smooths out. With more, s_ij is the
// Frobenius norm of the scaled block, of the mean of both blocks' where A is not symmetric.
// `a_rows`: square, canonical, n a multiple of `block`, no zero on the diagonal. `symmetric`: A =
// Aᵀ, pattern and all. Errors: stop statuses. Thread-safe.
Result<CscMatrix> Couplings(const CscView& a_rows, bool symmetric, int block,
                            const Context& context);

// i and j are strong where s_ij > 0 and s_ij >= θ max_k s_ik, and the same of j. Tests are of θ
// kStrengthTie. Errors: stop statuses.
Result<StrongGraph> FindStrong(const CscView& couplings, double theta, const Context& context);

// Row i has the j that i depends on: s_ij > 0 and s_ij >= θ max_k s_ik, whatever j finds, of the k
// that are the same unknown of their nodes as i. `unknown_of`: which that is; empty: nodes have
// one. Ties, errors as above.
Result<Pattern> FindDependences(const CscView& couplings, double theta,
                                std::span<const uint8_t> unknown_of, const Context& context);

}  // namespace spaid::kernels
