// AUTO's ladder: from the cheapest preconditioner and method rung by rung to stronger ones, each
// from the best iterate so far. What is left, and when, follows from residuals and counts alone,
// with no clock: the same request ends the same way.
//
//   const LadderCase c{a, diagnosis, b, options};
//   StallWatch watch(first.method, options.rtol,
//                    [&] { return FirstLook(engine, c, first, context); },
//                    options.max_iterations, progress, stop);
//   ... the first rung's solve, with watch as its progress and watch.token() as its stop ...
//   if (MayClimb(solved)) auto climbed = Climb(engine, c, std::move(solved), first, sink, context);
//
// or, where it is known what solved the pattern before: ClimbFrom(engine, c, {}, start, ...).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/amg/suitability.h"
#include "kernels/base/context.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/spec.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// The rungs there are, from the bottom up.
enum class RungKind {
  kBottom,  // what AUTO resolves to (auto_engine.cc): Jacobi, or nothing
  kAmg,     // where the matrix suits it (kernels/amg/suitability.h)
  kMinres,
  kLightAfsai,  // adaptive FSAI that ends soon, on a GPU in place of static FSAI
  kFsai,
  kAfsai,
  kStaticSpai,
  kDynamicSpai,
  kLargeDynamicSpai,
  kDenseLu,
  kLongCycles  // GMRES whose cycles grow, with the M that came closest
};

// One attempt, as it ended.
struct Rung {
  RungKind kind = RungKind::kBottom;
  bool scaled = false;  // of A equilibrated, or matched and scaled
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
  // A rung that takes up to so many host bytes, and is predicted to take so long before it is
  // judged, is about to be entered. An error: it is not, and its text says why.
  virtual Status Enter(const std::string& what, int64_t host_bytes, double predicted_ms) = 0;
  virtual void OnRung(const Rung& rung) = 0;
};

struct LadderOptions {
  // The last rung takes LU factors of A as a dense matrix, n² numbers, where n is at most this; 0:
  // it is left out.
  int64_t max_lu_n = 10000;
  bool to_build = false;  // leaves out rungs that no engine builds
};

using LadderSolve = std::function<Result<SolveResult>(
    const std::shared_ptr<const Preconditioner>& m, std::span<const double> b,
    std::span<const double> x0, const SolveOptions& options, const Context& context)>;

// Keeps what a look at A found for those that come after. Thread-safe.
class AmgLook {
 public:
  // As LookForAmg, which the first call is.
  const AmgSuitability& Of(const CscView& a, int64_t longest, int threads) {
    std::call_once(once_, [&] { found_ = LookForAmg(a, longest, threads); });
    return found_;
  }
  // Takes what a sample of A told for a look at it; not after the first call of Of.
  void Take(const AmgSuitability& told) {
    std::call_once(once_, [&] { found_ = told; });
  }

 private:
  std::once_flag once_;
  AmgSuitability found_;
};

struct LadderCase {
  CscView a;  // with values, or a stand-in
  const Diagnosis& diagnosis;
  std::span<const double> b;  // n x n_rhs
  // Method as the caller had it: kAuto, or the one that all rungs take.
  const SolveOptions& options;
  LadderOptions ladder = {};
  // Options of static SPAI, as the caller wants them.
  StaticSpaiOptions static_spai = {};
  // The place where iterations run; set-ups and iterations are predicted for it.
  Backend backend = Backend::kCpu;
  int threads = 1;  // of the CPU, to look at A
  // Solves A x = b with a rung's M where that need not be on the host, on context's terms; null:
  // all solves are the host's. `x0` may be empty.
  LadderSolve solve_there = {};
  // A, where `a` is a stand-in: it lies over the ranks alone (kernels/mpi/ranks_device.h), where
  // context.device builds and solve_there, which is set then, solves. Null: it is here.
  const OverRanks* over = nullptr;

  // Shared by cases of one A; never null.
  std::shared_ptr<AmgLook> look = std::make_shared<AmgLook>();

  int64_t nnz() const;  // of A, wherever it is
};

struct LadderResult {
  // The solution of the last rung or, where none solved it, the best one; iterations, times and
  // figures of all rungs.
  SolveResult solved;
  std::vector<Rung> rungs;  // the first one too; the last one is whose solution that is
  // The rung that ended it, or else came closest; and whether that is of A scaled.
  RungKind best = RungKind::kBottom;
  bool scaled = false;
};

// A rung above the bottom, on the terms of `c`.
struct RungTerms {
  PreconditionerSpec spec;  // kNone: nothing that an engine builds
  SolveOptions options;     // those of `c` with the rung's method and lengths
  std::string name;
};
// Empty: A has no such rung.
std::optional<RungTerms> TermsOf(RungKind kind, const LadderCase& c);

// Lists what AUTO, asked by `asked`, may build: of the bottom and of every rung that has an engine.
std::vector<PreconditionerSpec> SpecsOfRungs(const PreconditionerSpec& asked);

// Whether `solved` ended in a way that another rung may mend; not where it converged or was told to
// stop by others than its watch.
bool MayClimb(const SolveResult& solved);

// Returns when the first rung is to be judged: after iterations that cost some times what the next
// one's set-up is predicted to cost (cost.h), or as LookAfter says.
StallWatch::Look FirstLook(const Engine& engine, const LadderCase& c, const Rung& first,
                           const Context& context);

// Goes on from `solved`, with which the rung `first` ended, until every right-hand side has
// converged, all rungs were tried, or a right-hand side has had options.max_iterations. Rungs are,
// where the caller's method allows:
//   - multigrid, where A suits it and is taken to be positive definite, or is not symmetric, with
//     CG or BiCGSTAB;
//   - behind CG, unless A has shown itself indefinite: static FSAI, then FSAI on a pattern that
//     grows, with CG; on a GPU FSAI that grows little in place of static FSAI, and before
//     multigrid that the host would set up;
//   - MINRES, where A is symmetric and not positive definite;
//   - static SPAI, where A is not taken to be positive definite;
//   - dynamic SPAI, a small one with IDR(8) and a large one with GMRES;
//   - LU factors of A as a dense matrix, with GMRES; before adaptive FSAI or dynamic SPAI
//     where these are predicted to cost more;
//   - at last what came closest once more, without a watch, by GMRES whose cycles grow.
// Rungs below `first` come behind those over it, but for a `first` that is the bottom.
// All but multigrid and FSAI are of A equilibrated, or matched and scaled, where that changes A
// (kernels/sparse/scaling.h). Over ranks there is no multigrid, MINRES and dense LU, A is not
// scaled, GMRES takes the place of IDR, and its long cycles have one length. Builds run on
// context.device, solves as LadderCase says. A rung whose build fails, or for which there is no
// memory, is left with that error. A stop is an outcome, as of Engine::Solve, and ends the ladder.
// Errors: those of Engine::Solve. Thread-safe.
Result<LadderResult> Climb(const Engine& engine, const LadderCase& c, SolveResult solved,
                           Rung first, LadderSink& sink, const Context& context);
// The same from the rung `start` and from `x0`: n x n_rhs, or empty. Where A has no such rung, from
// the next one that it has. From kBottom on it builds what AUTO resolves to.
Result<LadderResult> ClimbFrom(const Engine& engine, const LadderCase& c,
                               std::span<const double> x0, RungKind start, LadderSink& sink,
                               const Context& context);

}  // namespace spaid::kernels
