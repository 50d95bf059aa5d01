// The null space of a singular A, as far as it is known: vectors z with A z = 0, and w with Aᵀ w =
// 0. A solve that is given it (SolveOptions::null_space) solves for the part of b that A reaches,
// keeps the iteration out of both spaces, and gives the solution that is orthogonal to every z.
//
//   auto space = MakeNullSpace(a, diagnosis, {});  // constants, where the diagnosis found them
//   if (space.ok()) options.null_space = space->get();
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/krylov/krylov.h"
#include "kernels/krylov/vectors.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/scaling.h"

namespace spaid::kernels {

inline constexpr int kMostNullVectors = 32;
// A vector is taken for one of the null space where ‖A z‖ is at most this share of ‖A‖ ‖z‖, with
// √(‖A‖₁ ‖A‖∞) for ‖A‖. What is between this and rounding may be a smooth eigenvector of a large
// mesh, which must not be projected out.
inline constexpr double kMostOfNullSpace = 1e-10;

enum class NullSpaceChoice {
  kAuto,       // constants, where the diagnosis finds them on either side
  kNone,       // nothing is projected out
  kConstants,  // constants, which must be in the null space
  kGiven,      // the caller's vectors
};

struct NullSpaceRequest {
  NullSpaceChoice choice = NullSpaceChoice::kAuto;
  std::span<const double> vectors = {};  // kGiven: n x k column-major, k = 1 .. kMostNullVectors
};

// Orthonormal vectors. Immutable; thread-safe.
class NullSpace {
 public:
  // By orthonormal columns of n; `left` where it is not `right` itself.
  NullSpace(const CscView& of, std::vector<Array<double>> right, std::vector<Array<double>> left,
            bool left_is_right, std::string what);

  int64_t n() const { return n_; }
  // Whether it was made of this very matrix, by where its arrays are.
  bool IsOf(const CscView& a) const {
    return a.col_ptr.data() == col_ptr_ && a.values.data() == values_;
  }
  const std::vector<Array<double>>& right() const { return right_; }
  const std::vector<Array<double>>& left() const { return left_is_right_ ? right_ : left_; }
  const std::string& what() const { return what_; }  // "constants", "3 given vectors"
  int64_t bytes() const {
    return static_cast<int64_t>((right_.size() + left_.size()) * sizeof(double)) * n_;
  }

  // Takes the components along the right (left) vectors out of v, in one pass of Gram-Schmidt.
  // Returns the norm of what went.
  double RemoveRight(std::span<double> v, krylov::Team* team) const;
  double RemoveLeft(std::span<double> v, krylov::Team* team) const;

 private:
  int64_t n_;
  const int64_t* col_ptr_;
  const double* values_;
  std::vector<Array<double>> right_, left_;
  bool left_is_right_;
  std::string what_;
};

// Null: there is nothing to project out. The left vectors are the right ones where A is numerically
// symmetric or they are left ones as well, by the same measure; else constants, where the columns
// of A sum to zero; else none is known. Two passes over A and k more, on the calling thread.
// Errors, all of field null_space: INVALID_ARGUMENT/BAD_NULL_SPACE (too many or no vectors, another
// length than n's multiple; or, with the index of the vector, one that depends on those before it),
// /NON_FINITE_VALUE (index of the element), /NOT_IN_NULL_SPACE (index of the vector).
Result<std::shared_ptr<const NullSpace>> MakeNullSpace(const CscView& a, const Diagnosis& d,
                                                       const NullSpaceRequest& request);

// The null space of B = D_r A Q D_c (kernels/sparse/scaling.h) from that of A. `scaled`: B.
// Null where scaling makes vectors of it dependent.
std::shared_ptr<const NullSpace> ScaledNullSpace(const NullSpace& space, const Scaling& s,
                                                 const CscView& scaled);

// A right-hand side, split into what A reaches and what is along the left null vectors.
struct Reach {
  Array<double> b;         // what is reached; zero where that is rounding alone
  double norm = 0;         // of the whole
  double unreachable = 0;  // norm of what is not reached

  // The bound on ‖b − A x‖ that the options set.
  double Target(const SolveOptions& options) const {
    return std::max(options.rtol * norm, options.atol);
  }
  // A norm that b has without its part along the left null vectors is rounding alone.
  bool IsRounding(double left) const;
  // No x meets the tolerance, and that is not for rounding of b alone.
  bool Beyond(const SolveOptions& options) const;
  // The bound on the residual of the part that is reached, whose norm is `b_norm`: together with
  // the other part it is within Target; where that is beyond reach, relative to b_norm.
  double TargetOfReached(const SolveOptions& options, double b_norm) const;
};
Reach SplitRhs(const NullSpace& space, std::span<const double> b, krylov::Team* team);

// Says of a solve of what is reached of b how it ended for the whole of b: x without its components
// along the right null vectors, the residual b − A x recomputed, `unreachable`, and an outcome that
// is not kConverged where the residual is over the target, with the part that cannot be reached in
// the detail.
void TellOfWhole(const LinearOperator& a, const NullSpace& space, std::span<const double> b,
                 const Reach& reach, const SolveOptions& options, krylov::Team* team,
                 std::span<double> x, RhsResult* out);
// The same where x is without those components already, and `residual` is ‖b − A x‖.
void TellOfWhole(const Reach& reach, double residual, const SolveOptions& options, RhsResult* out);

}  // namespace spaid::kernels
