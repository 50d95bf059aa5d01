// Dynamic SPAI by its definition (Grote, Huckle, SIAM J. Sci. Comput. 18 (1997) 838-853): dense
// least squares by QR, residuals formed, every candidate scored anew in every step.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/oracle/oracle.h"

namespace spaid::oracle {

// Column k of M on the pattern J, and what each index that is not in J would do for it.
struct SpaiScores {
  Vector m;             // length n, zero outside J
  double residual = 0;  // ‖r‖₂, r = A m − e_k
  // ρ_j² = ‖r‖² − (rᵀ A e_j)² / ‖A e_j‖², clipped at 0; ‖r‖² of those that are no candidates: j in
  // J, or a_lj = 0 wherever r_l != 0 or l = k.
  Vector rho2;
  // Least pivot of a QR with column pivoting of A(:, J), its columns scaled to unit length,
  // squared: what the Gram path has to work with; 1 for an empty J.
  double pivot = 1;
};
SpaiScores ScoreSpaiColumn(const Dense& a, int64_t k, const std::vector<int64_t>& j_set);

struct GrownColumn {
  std::vector<int64_t> pattern;  // ascending
  Vector residuals;              // ‖r‖₂ after 0, 1, ... steps
  // The least distance between ρ² of an index that was taken and of one that was not, and between
  // ‖r‖² and tol², over all steps: where it is small, rounding decided.
  double margin = 1;
  double pivot = 1;  // the least of all steps
};
// At most max_steps steps of the s least ρ² (ties: the lower index), until ‖r‖ <= tol, or there are
// max_nnz entries (0: no end), or no candidate lowers ‖r‖² by more than `noise`.
GrownColumn GrowSpaiColumn(const Dense& a, int64_t k, const std::vector<int64_t>& start,
                           int max_steps, int s, double tol, int64_t max_nnz, double noise);

}  // namespace spaid::oracle
