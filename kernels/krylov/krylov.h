// CG, MINRES, BiCGSTAB, IDR(s) and GMRES(m), right-preconditioned (CG and MINRES symmetric), fp64.
//
//   SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8};
//   Result<SolveResult> r = Solve(a, &m, b, x0, options, context);
//   if (r->rhs[0].outcome == Outcome::kConverged) use(r->x);
//
// A solve that does not converge is not an error: the outcome says how it ended, the best iterate
// and its recomputed residual come back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/precision.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

enum class Method { kAuto, kCg, kBicgstab, kGmres, kMinres, kIdr };

// True where the method is for symmetric A, with an M that is symmetric positive definite.
constexpr bool ForSymmetric(Method method) {
  return method == Method::kCg || method == Method::kMinres;
}

enum class Outcome {
  kConverged,  // ‖b − A x‖ ≤ max(rtol ‖b‖, atol), recomputed in fp64
  kMaxIterations,
  kStagnated,   // the true residual stopped falling although the recursion went on
  kBreakdown,   // a denominator of the method vanished
  kIndefinite,  // CG met pᵀAp ≤ 0 or rᵀMr ≤ 0, MINRES the latter
  kNonFinite,
  kTimeLimit,
  kCancelled,
};

// A square operator that multiplies one vector at a time. Thread-safe.
class LinearOperator {
 public:
  virtual ~LinearOperator() = default;
  virtual int64_t n() const = 0;
  // y = Op x; x and y are n, not overlapping.
  virtual void Apply(std::span<const double> x, std::span<double> y, int threads) const = 0;
  // Bytes one application must move at the least.
  virtual int64_t bytes_per_apply() const = 0;
};

// How the values of an explicit M are stored while a solve multiplies by it. Arithmetic is fp64 all
// the same.
using Storage = Precision;

// The turn of a solve on a device that others wait for.
class Turn {
 public:
  virtual ~Turn() = default;
  // It is over: the solve should Yield. Asked at each residual check, of a GPU between segments of
  // iterations: quick.
  virtual bool Over() const = 0;
  // Returns when the solve may go on, or was told to stop. Called where nothing of the solve's is
  // at work, no lock is held, and no thread of the pool.
  virtual void Yield() = 0;
};

class NullSpace;  // null_space.h

inline constexpr int kMostShadowVectors = 16;  // s of IDR(s), at most

struct SolveOptions {
  Method method = Method::kBicgstab;  // kAuto is resolved by the engine
  double rtol = 1e-8;                 // > 0, or 0 with atol > 0; finite
  double atol = 0;                    // >= 0
  int64_t max_iterations =
      10000;             // 1 .. 2^31 - 1; a BiCGSTAB iteration is two products, counted once
  int64_t restart = 50;  // m of GMRES(m); >= 1
  // A cycle of GMRES grows beyond `restart`, as long as its basis takes no more bytes; 0: it does
  // not. >= 0.
  int64_t basis_bytes = 0;
  int64_t shadow_vectors = 4;          // s of IDR(s); 1 .. kMostShadowVectors
  bool keep_history = true;            // false: residuals go to the progress sink alone
  Storage m_storage = Storage::kAuto;  // read by the engine, which makes the operators
  // Borrowed; null: none is known. Read where A is the matrix it was made of, ignored elsewhere.
  const NullSpace* null_space = nullptr;
  Turn* turn = nullptr;  // borrowed; null: nobody interrupts the solve. Results are the same bits

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("method", self.method, UpTo(Method::kIdr));
    visit("rtol", self.rtol, OptionRange{.reason = "BAD_TOLERANCE"});
    visit("atol", self.atol, OptionRange{.reason = "BAD_TOLERANCE"});
    visit("max_iterations", self.max_iterations, OptionRange{1, INT32_MAX});
    visit("restart", self.restart, OptionRange{1});
    visit("basis_bytes", self.basis_bytes, OptionRange{0});
    visit("shadow_vectors", self.shadow_vectors, OptionRange{1, kMostShadowVectors});
    visit("preconditioner_storage", self.m_storage, UpTo(Precision::kFp32));
  }
};

// INVALID_ARGUMENT/BAD_TOLERANCE, /BAD_MAX_ITERATIONS, /BAD_RESTART, /BAD_BASIS_BYTES,
// /BAD_SHADOW_VECTORS, with the field as clients know it.
Status CheckSolveOptions(const SolveOptions& options);

// All that Solve refuses but the size of the basis, in its words. `m_n`: rows of M, or n where
// there is none.
Status CheckSolveInput(int64_t n, int64_t m_n, std::span<const double> b,
                       std::span<const double> x0, const SolveOptions& options, int threads = 1);

// Columns of a cycle of GMRES, at most, for a matrix of n >= 1 rows: `restart`, or what basis_bytes
// have room for, if that is more; no more than n, or than there may be iterations.
int64_t RestartLength(const SolveOptions& options, int64_t n);

// Says, for people, why the host alone has what these options ask for; empty: CUDA devices have it,
// too. `options.method` resolved, or kAuto, which never is such a method.
std::string_view HostAlone(const SolveOptions& options);

struct RhsResult {
  Outcome outcome = Outcome::kMaxIterations;
  int64_t iterations = 0;
  double true_residual = 0;           // ‖b − A x‖₂, recomputed
  double true_relative_residual = 0;  // the same / ‖b‖₂ (0 for b = 0 and x = 0)
  std::string detail;                 // for people: what happened, where
  // With a null space. The share of ‖b‖ that no x reaches, and whether that alone is over the
  // tolerance: then no other method or preconditioner will do better.
  double unreachable = 0;
  bool beyond_reach = false;
  // With keep_history: every iteration, iteration 0 first; over 100,000 points every second one
  // goes, and so on.
  std::vector<ResidualPoint> history;
};

// Times of a solve's phases, in milliseconds that do not overlap, and the bytes that its iterations
// moved.
struct SolveFigures {
  double place_ms = 0;           // operators laid out; the engine's
  double host_to_device_ms = 0;  // right-hand sides and guesses on their way to a GPU
  double iterate_ms = 0;
  double check_ms = 0;           // b − A x formed anew
  double device_to_host_ms = 0;  // solutions on their way back
  int64_t iterations = 0;        // sum over all right-hand sides
  // Bytes that these iterations moved at the least: each product's matrix, structure, x and y once;
  // each vector once in every pass over it.
  double bytes = 0;

  // visit(name, figure), by the names that clients know; all but `bytes`.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("place_ms", place_ms);
    visit("host_to_device_ms", host_to_device_ms);
    visit("iterate_ms", iterate_ms);
    visit("check_ms", check_ms);
    visit("device_to_host_ms", device_to_host_ms);
    visit("iterations", iterations);
  }
};

struct SolveResult {
  Array<double> x;  // n x n_rhs, column-major: the best iterate of each
  std::vector<RhsResult> rhs;
  double solve_ms = 0;
  SolveFigures figures;
  // By the engine: how an explicit M was stored, and where the engine chose, why so; kAuto: there
  // is none.
  Storage m_storage = Storage::kAuto;
  std::string storage_reason;
};

// SolveFigures::bytes of so many iterations on the host, with a matrix of n rows. `a_bytes`,
// `m_bytes`: of one product with A and with M (bytes_per_apply); 0: there is no M.
double CountedBytes(int64_t n, int64_t a_bytes, int64_t m_bytes, const SolveOptions& options,
                    int64_t iterations);

// b: n x n_rhs column-major. x0: empty (zero) or n x n_rhs. `m` may be null (no preconditioner).
// Right-hand sides are solved one after the other; b = 0 gives x = 0, kConverged. With
// options.null_space the part of b that A reaches is solved for, in the iteration's residuals, too;
// the result is told of the whole of b (null_space.h). Beside the result
// a solve takes some ten vectors of n, IDR 3 s + 5, GMRES RestartLength() + 6, once for all
// right-hand sides; those of GMRES's basis are taken as its cycles grow. Results are the same bits
// for any number of threads. Errors: INVALID_ARGUMENT/METHOD_NOT_RESOLVED, those of
// CheckSolveOptions, /PRECONDITIONER_SIZE_MISMATCH, /RHS_LENGTH_MISMATCH, /NON_FINITE_VALUE (field
// rhs or initial_guess, first index); RESOURCE_EXHAUSTED/BASIS_TOO_LARGE where the basis of GMRES
// would take over half of the usable memory. A stop is not an error here: outcome kCancelled or
// kTimeLimit.
Result<SolveResult> Solve(const LinearOperator& a, const LinearOperator* m,
                          std::span<const double> b, std::span<const double> x0,
                          const SolveOptions& options, const Context& context);

}  // namespace spaid::kernels
