// Right-hand sides on their way through a Krylov method on a CUDA device, as libspaid_cuda.so takes
// them (CudaLayout::OpenSolve). See kernels/base/cuda_backend.h for errors and threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/base/status.h"

namespace spaid::kernels {

// Right-hand sides of one solve, at most.
inline constexpr int kMostCudaColumns = 4;

// How a segment of a solve ended (CudaSegment). Residuals are the recursion's.
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
struct CudaSolveStart {
  double target;        // on the norm of the residual
  double norm;          // of the residual that it starts from
  double best_norm;     // of the iterate that is kept as the best; infinite: none
  double initial_norm;  // of the initial guess
  // BiCGSTAB: not 0: the shadow residual gets a noise of that number, of the residual's size.
  int32_t round;
};

struct CudaSegment {
  SegmentEnd end;
  int32_t iterations;  // of this segment
  double value;
  double best_norm;  // of the iterate that is kept
  double last_norm;  // of the recursion
  // That its products and vector passes moved at the least; of what columns share, the one with the
  // most iterations has all.
  double bytes;
};

// Called between batches of iterations with the residual norms of a column's new ones. True: stop
// after those that are under way.
using CudaOnNorms = std::function<bool(int32_t column, std::span<const double> norms)>;

class CudaSolve {
 public:
  virtual ~CudaSolve() = default;

  // ‖b − A x‖, or of the best iterate that was kept. `adopt`: the next recursion starts from that
  // residual. Squares that are no longer in the range of fp64 give 0 or an infinity.
  virtual Result<double> TrueResidual(int32_t column, bool of_best, bool adopt) = 0;
  virtual Status Begin(int32_t column, const CudaSolveStart& start) = 0;
  // At most limits[v] iterations of column v, of 128 at most; x is that of the last one (GMRES: of
  // the last cycle). 0: the column stands still, and its segment says nothing. One that is over
  // waits for the others. Without a wait of the device for the host. Returns milliseconds by the
  // device's clock. `on_norms` may be null.
  virtual Result<double> Advance(std::span<const int32_t> limits, const CudaOnNorms& on_norms,
                                 std::span<CudaSegment> segments) = 0;
  // x becomes the best iterate, or the initial guess.
  virtual Status Restore(int32_t column, bool of_best) = 0;
  // Of each column, where it goes; null: nowhere.
  virtual Status Download(std::span<double* const> x) = 0;
};

}  // namespace spaid::kernels
