// Segments of a solve: what the host asks of the device, and what it hears.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace spaid::cuda {

// How a segment ended. Residuals are the recursion's.
enum class SegmentEnd : int32_t {
  kRunning,      // on the device only
  kPaused,       // after all iterations that were asked for
  kUnderTarget,  // the residual is
  kNonFinite,    // the residual is not
  // CG; `value`: that product.
  kIndefiniteM,  // rᵀMr <= 0
  kIndefiniteA,  // pᵀAp <= 0
  kNonFiniteM,
  kNonFiniteA,
  // BiCGSTAB. After a half step x has its part along p alone, and the residual is s.
  kHalfStep,       // s is under the target
  kOmegaVanished,  // after a half step
  kRhoVanished,
  kAlphaVanished,  // its denominator
  kPOverflowed,
  kDiverged,  // the residual grew by 1/eps over the best
  kNonFiniteAMr,
  kNonFiniteS,
  kNonFiniteAMs,
  kNonFiniteBeta,
  // GMRES. A cycle ends where its columns are as many as `restart`, and where a segment is neither
  // paused nor running; x has its update then, or when the true residual is asked for.
  kExhausted,  // the Krylov space is
  kNonFiniteAMv,
};

// The start of a recursion from a residual.
struct SolveStart {
  double target;        // on the norm of the residual
  double norm;          // of the residual that it starts from
  double best_norm;     // of the iterate that is kept as the best; infinite: none
  double initial_norm;  // of the initial guess
  // BiCGSTAB: not 0: the shadow residual gets a noise of that number, of the residual's size.
  int32_t round;
};

struct Segment {
  SegmentEnd end;
  int32_t iterations;
  double value;
  double best_norm;  // of the iterate that is kept
  double last_norm;  // of the recursion
  // That its products and vector passes moved at the least; of what columns share, the one with the
  // most iterations has all.
  double bytes;
};

// Called between batches of iterations with the residual norms of a column's new ones. True: stop
// after those that are under way.
using OnNorms = std::function<bool(int32_t column, std::span<const double> norms)>;

}  // namespace spaid::cuda
