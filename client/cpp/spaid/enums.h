// The engines, methods, outcomes and other choices that the client names: <spaid/types.h> includes
// this.
#pragma once

#include <string_view>

namespace spaid {

// kFsai, kAfsai: M = GᵀG of a symmetric positive definite A, G on a prescribed pattern, or on one
// that grows; for CG. kDynamicSpai: as kStaticSpai, on a pattern that grows. kAmg: M is a cycle of
// multigrid, which is no matrix. kParasails, kBoomeramg, kGamg: of hypre and PETSc, by servers that
// run on MPI; M stays there.
// The value is the number of the same EngineKind on the wire.
enum class Engine {
  kAuto = 1,
  kNone,
  kJacobi,
  kStaticSpai,
  kFsai,
  kAfsai,
  kDynamicSpai,
  kAmg,
  kParasails,
  kBoomeramg,
  kGamg,
};
// All there is to know of an engine without its options: the table is all of the client that a new
// one has to be entered in.
struct EngineTraits {
  Engine engine = Engine::kNone;
  std::string_view name = "unknown";   // of flags and JSON
  std::string_view title = "unknown";  // of sentences
  bool estimated = false;              // a build takes long enough to be asked for its time before
  bool for_cg = true;                  // M is symmetric positive definite where A is
  bool factored = false;     // what is built is G of M = GᵀG, and A must be positive definite
  bool has_power = false;    // reads pattern_power
  bool has_blocks = false;   // reads block_size
  bool by_parts = false;     // M is no matrix: its Parts are downloaded one by one
  bool ranks_alone = false;  // of servers that run on MPI; M lies over their ranks, and stays there
};
inline constexpr EngineTraits kEngines[] = {
    {.engine = Engine::kAuto, .name = "auto", .title = "auto"},
    {.engine = Engine::kNone, .name = "none", .title = "no preconditioner"},
    {.engine = Engine::kJacobi, .name = "jacobi", .title = "Jacobi", .has_blocks = true},
    {.engine = Engine::kStaticSpai,
     .name = "static-spai",
     .title = "static SPAI",
     .estimated = true,
     .for_cg = false,
     .has_power = true},
    {.engine = Engine::kFsai,
     .name = "fsai",
     .title = "FSAI",
     .estimated = true,
     .factored = true,
     .has_power = true},
    {.engine = Engine::kAfsai,
     .name = "afsai",
     .title = "adaptive FSAI",
     .estimated = true,
     .factored = true},
    {.engine = Engine::kDynamicSpai,
     .name = "dynamic-spai",
     .title = "dynamic SPAI",
     .estimated = true,
     .for_cg = false},
    {.engine = Engine::kAmg,
     .name = "amg",
     .title = "multigrid",
     .estimated = true,
     .by_parts = true},
    {.engine = Engine::kParasails,
     .name = "parasails",
     .title = "ParaSails",
     .estimated = true,
     .ranks_alone = true},
    {.engine = Engine::kBoomeramg,
     .name = "boomeramg",
     .title = "BoomerAMG",
     .estimated = true,
     .ranks_alone = true},
    {.engine = Engine::kGamg,
     .name = "gamg",
     .title = "GAMG",
     .estimated = true,
     .ranks_alone = true},
};
// A value that is forged out of range has those of the name "unknown".
constexpr EngineTraits TraitsOf(Engine engine) {
  for (const EngineTraits& traits : kEngines) {
    if (traits.engine == engine) return traits;
  }
  return {};
}
enum class LocalSolver { kAuto, kQr, kGram };
// Whether AUTO begins with what solved a system on the same pattern before.
enum class Learned { kOn, kOff };
// Threads per column on a GPU with local_solver kQr: the same for all columns, or by column length.
enum class ThreadStrategy { kAuto, kConstant, kVariable, kPaper };
// How A is scaled before M is made: see Scaling in proto/spaid/v1/preconditioner_spec.proto.
enum class Scaling { kAuto, kNone, kEquilibrate, kMatching };
// How multigrid comes to coarser levels, smooths each, and visits the coarser one: see Coarsening,
// Smoother and Cycle in proto/spaid/v1/preconditioner_spec.proto.
enum class Coarsening { kSmoothedAggregation, kPlainAggregation, kClassical };
enum class Smoother { kAuto, kL1Jacobi, kJacobi, kChebyshev, kFsai, kAfsai, kStaticSpai };
enum class Cycle { kV, kW };
// See ParasailsSymmetry, BoomeramgCoarsening and BoomeramgInterpolation in
// proto/spaid/v1/preconditioner_spec.proto.
enum class ParasailsSymmetry { kAuto, kGeneral, kSpd };
enum class BoomeramgCoarsening { kHmis, kPmis, kFalgout, kCljp };
enum class BoomeramgInterpolation { kExtended, kClassical, kDirect, kStandard, kMultipass };
// Matrices that M of multigrid consists of: see PartKind in proto/spaid/v1/preconditioner.proto.
enum class PartKind { kScale = 1, kA, kP, kR, kSmoother, kCoarseInverse, kNearNull };
enum class Method { kAuto, kCg, kBicgstab, kGmres, kMinres, kIdr };
// How a solve stores the values of M, unless that is a diagonal; arithmetic is fp64 all the same.
// kAuto: fp32 where that fits and spares a twentieth or more of the bytes an iteration moves.
enum class Precision { kAuto, kFp64, kFp32 };
// Chooses what a solve of a singular A projects out, beside SolveOptions::null_vectors. kAuto:
// constants, where the diagnosis has them; kConstants: refused where they are not in the null
// space.
enum class NullSpace { kAuto, kNone, kConstants };
// Chooses what becomes of the M that SolveOptions::preconditioner names, which was built of an
// earlier A: see ReuseMode in proto/spaid/v1/solve_types.proto.
enum class ReuseMode { kKeep, kRebuild, kAuto };
// Says what became of it: kRegrown is rebuilt on a pattern, or by a scaling, found anew.
enum class ReuseDecision { kKept, kRebuilt, kRegrown };
enum class Outcome {
  kConverged,
  kMaxIterations,
  kStagnated,
  kBreakdown,
  kIndefinite,
  kNonFinite,
  kTimeLimit,
  kCancelled,
};
// Classes of jobs, which get 16, 4 and 1 parts of the tenant's time while each has work.
enum class Priority { kInteractive, kNormal, kBulk };
enum class JobState { kQueued, kRunning, kSucceeded, kFailed, kCancelled };
enum class JobKind { kBuild, kSolve };
enum class Stage { kUpload, kPlan, kBuild, kAssemble, kSolve, kDownload };

// The names used on the wire's enums, in lower case with dashes: "static-spai", "max-iterations".
std::string_view Name(Engine), Name(LocalSolver), Name(Learned), Name(ThreadStrategy),
    Name(Scaling), Name(Coarsening), Name(Smoother), Name(Cycle), Name(ParasailsSymmetry),
    Name(BoomeramgCoarsening), Name(BoomeramgInterpolation), Name(PartKind), Name(Method),
    Name(Precision), Name(NullSpace), Name(ReuseMode), Name(ReuseDecision), Name(Outcome),
    Name(Priority), Name(JobState), Name(JobKind), Name(Stage);

}  // namespace spaid
