// AUTO's way on where its first choice does not solve a system: rung by rung to stronger
// preconditioners and methods, from the best iterate so far. What is left, and when, follows from
// residuals and counts alone, with no clock: the same request ends the same way.
//
//   const LadderCase c{a, diagnosis, b, options};
//   StallWatch watch(options.rtol, [&] { return FirstLook(engine, c, first, context); },
//                    options.max_iterations, progress, stop);
//   ... the first rung's solve, with watch as its progress and watch.token() as its stop ...
//   if (MayClimb(solved)) auto climbed = Climb(engine, c, std::move(solved), first, sink, context);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// One attempt, as it ended.
struct Rung {
  EngineKind engine = EngineKind::kNone;
  Method method = Method::kAuto;
  std::string what;        // "dynamic SPAI (tol 0.1, 20 x 5) of A matched and scaled, GMRES(200)"
  std::string left;        // why it was left; empty: the system is solved
  int64_t iterations = 0;  // of all right-hand sides
  double relative_residual = 0;  // ‖b − A x‖ / ‖b‖ of the worst right-hand side
  int64_t nnz_m = 0;             // StoredEntries of M: what a product reads
  double setup_ms = 0, solve_ms = 0;
};

// Is asked and told about rungs, on the thread that climbs.
class LadderSink {
 public:
  virtual ~LadderSink() = default;
  // A rung that takes up to so many host bytes is about to be entered. An error: it is not, and its
  // text says why.
  virtual Status Enter(const std::string& what, int64_t host_bytes) = 0;
  virtual void OnRung(const Rung& rung) = 0;
};

struct LadderOptions {
  // The last rung takes the inverse, n² numbers, where n is at most this; 0: it is left out.
  int64_t max_inverse_n = 4000;
};

struct LadderCase {
  const CscView& a;  // with values
  const Diagnosis& diagnosis;
  std::span<const double> b;  // n x n_rhs
  const SolveOptions&
      options;  // method as the caller had it: kAuto, or the one that all rungs take
  LadderOptions ladder = {};
};

struct LadderResult {
  // The solution of the last rung or, where none solved it, the best one; iterations, times and
  // figures of all rungs.
  SolveResult solved;
  std::vector<Rung> rungs;  // the first one too; the last one is whose solution that is
};

// Whether `solved` ended in a way that another rung may mend; not where it converged or was told to
// stop by others than its watch.
bool MayClimb(const SolveResult& solved);

// When the first rung, with an M of `nnz_m` stored entries, is to be judged (StallWatch):
// iterations that cost four times what the next rung's set-up is predicted to cost (cost.h); 0: no
// rung is behind it.
int64_t FirstLook(const Engine& engine, const LadderCase& c, const Rung& first,
                  const Context& context);

// Goes on from `solved`, with which the rung `first` ended, until every right-hand side has
// converged, all rungs were tried, or a right-hand side has had options.max_iterations. Rungs are,
// where the caller's method allows:
//   - behind CG, unless A has shown itself indefinite: static FSAI, then FSAI on a pattern that
//     grows, with CG;
//   - dynamic SPAI of A equilibrated, or matched and scaled (kernels/sparse/scaling.h), a small one
//     with IDR(8) and a large one with GMRES;
//   - the inverse by LU, which GMRES refines;
//   - at last what came closest once more, without a watch, by GMRES whose cycles grow.
// Builds run on context.device, solves on the host. A rung whose build fails, or for which there is
// no memory, is left with that error. A stop is an outcome, as of Engine::Solve, and ends the
// ladder. Errors: those of Engine::Solve. Thread-safe.
Result<LadderResult> Climb(const Engine& engine, const LadderCase& c, SolveResult solved,
                           Rung first, LadderSink& sink, const Context& context);

}  // namespace spaid::kernels
