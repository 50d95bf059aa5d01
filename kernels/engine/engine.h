// The one face of the numerics: Estimate -> Plan -> Build (or rebuild) -> Solve. The daemon sees
// this face only; a fake behind it serves the daemon's tests. What is asked for is in spec.h, what
// a build leaves in build_result.h: this header knows no engine's options and figures.
//
// An engine computes on the devices that it was made with. SPAI and FSAI are planned and
// built on the one that the context names; M, or G, always comes back to the host. SolveOnDevice
// runs there too; Jacobi is built, and Solve runs, on the host's cores, whichever device the
// context names.
//
// Where context.devices names several CUDA devices, a plan of SPAI or FSAI is for all of
// them: each computes columns (rows of G) of about equal work, on a thread of its own, and they go
// straight to where they belong in M, the same as one device makes it, bit for bit but for what
// kernels/static_spai/static_spai_cuda.h says. Each takes the device bytes that Estimate predicts
// for one. A G is joined on the first device and stays there for solves, as one device's does; an
// explicit M has no copy on a device: Place lays it out from the host, when a solve needs it. From
// where on it pays GpuBuilds::splits_from_ms says; this engine splits whatever it is told to.
//
// A build of SPAI, static or dynamic, shows M to context.result while it makes it: on the CPU as
// its columns are finished, on devices as their pieces come back, in order. A post-filter, which
// decides the sizes, puts that off to the end. Jacobi and FSAI show nothing: one is done at once,
// and a column of G has entries of rows up to the last, which are what is made one after the other.
//
//   std::unique_ptr<Engine> engine = MakeCpuEngine();
//   auto choice = engine->Resolve(spec, a, diagnosis, nullptr, context);  // AUTO -> concrete, why
//   auto plan = engine->MakePlan(choice->spec, a, nullptr, context);
//   auto built = (*plan)->Build(choice->spec, a, context);
//   auto solved = engine->Solve(a, built->preconditioner.get(), b, {}, options, context);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/copy_ahead.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/diagnosis.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/scan.h"
#include "kernels/sparse/validation.h"

namespace spaid::kernels {

class AmgHierarchy;  // kernels/amg/amg.h
class CudaDevice;
class OverRanks;    // kernels/mpi/ranks_device.h
class RanksDevice;  // the same

struct BuildResult;         // build_result.h
struct PreconditionerSpec;  // spec.h
struct ResolvedSpec;

struct BuildEstimate {
  int64_t host_bytes = 0;    // upper bound: plan + build + result
  int64_t device_bytes = 0;  // upper bound: plan + build on a CUDA device; 0 without one, or where
                             // nothing is computed on it
  // The least bytes of a CUDA device that do, bounded from above: with gather tables made in
  // waves, each time, where they have no room; of FSAI, with fewer rows at a time; at most
  // device_bytes.
  int64_t device_bytes_min = 0;
  // Entries of M, or of G where M = GᵀG: upper bound; exact for static SPAI without keep_tau,
  // row_match and post-filter.
  int64_t nnz_m = 0;
  int64_t download_bytes = 0;  // CSC of that in fp64
  // Over ranks, upper bounds for the rank with most: all that it takes, and of that what it fetches
  // from others. 0: no ranks build it, or nobody can tell, of a matrix that lies there alone.
  int64_t rank_bytes = 0, halo_bytes = 0;
  double predicted_ms = 0;         // on the CPU
  double predicted_device_ms = 0;  // on a CUDA device, from host to host; 0: not predicted
  double flops = 0;
  int64_t n1_max = 0, n2_max = 0;  // of the local problems; zeros where those grow, or M = GᵀG
  int64_t gram_nnz = 0;            // of dynamic SPAI: entries of AᵀA, upper bound
};

// Times of a plan or a build on a CUDA device; zeros on the CPU but for assemble_ms. Milliseconds
// of wall clock, disjoint; of several devices the longest of each, and the most bytes of one.
struct DeviceTimings {
  double host_to_device_ms = 0;
  double device_to_host_ms = 0;
  // The layouts of M for products on the host (also on the CPU). An explicit M that a device has
  // made gets none until a solve of the host wants it (SolveFigures::place_ms).
  double assemble_ms = 0;
  int64_t device_bytes = 0;  // at once, at the most
  int waves = 0;  // of rows of G, or columns that grow, as memory allows; 0: none were made there
  int64_t host_columns = 0;  // of M, or rows of G, that the device left to the host
  // Gather tables have no room in the device's memory: each build makes them again, in waves.
  bool tables_in_waves = false;
};

// All that depends on the pattern of A (and of a user pattern) and the spec alone, or, where the
// pattern grows, also on the values that a build grew it for (BuildResult::grown). Immutable;
// thread-safe.
class Plan {
 public:
  virtual ~Plan() = default;
  virtual int device() const { return 0; }  // that it is for: index in Engine::Devices()
  // All that it is for, device() first.
  virtual std::vector<int> devices() const { return {device()}; }
  virtual int64_t host_bytes() const = 0;
  virtual int64_t device_bytes() const { return 0; }    // held, on each of its devices at the most
  virtual DeviceTimings timings() const { return {}; }  // of its making
  // False where the plan read values (keep_tau, drop_tol), or where a build is to grow the pattern:
  // it is not worth keeping for new values.
  virtual bool serves_new_values() const = 0;

  // Errors: those of the engine's room, such as FAILED_PRECONDITION/NOT_SYMMETRIC;
  // INVALID_ARGUMENT/PLAN_MISMATCH where the plan is for another kind, size or pattern, or for
  // other pattern options (max_nnz aside: the plan met its own), another block size, or other
  // devices than the context's. The plan's user pattern counts. An engine that grows patterns
  // does so where the plan has no grown pattern, and reads the options of growth then alone.
  // FAILED_PRECONDITION/VALUES_NEEDED for a pattern alone. On a CUDA device as Engine::MakePlan.
  virtual Result<BuildResult> Build(const PreconditionerSpec& spec, const CscView& a,
                                    const Context& context) const = 0;
};

// A finished preconditioner, M explicit or of two factors. Immutable; thread-safe.
class Preconditioner {
 public:
  virtual ~Preconditioner() = default;
  virtual EngineKind kind() const = 0;
  // M in CSC; for kJacobi a diagonal matrix, or one of full blocks on the diagonal; where
  // is_factor() G, lower triangular; where M is of parts n x n without entries.
  virtual const CscMatrix& matrix() const = 0;
  virtual const AmgHierarchy* hierarchy() const { return nullptr; }  // those parts; null: a matrix
  virtual int64_t nnz() const { return matrix().nnz(); }             // of all parts
  bool is_factor() const { return TraitsOf(kind()).factored; }       // M = GᵀG
  virtual bool for_cg() const { return TraitsOf(kind()).for_cg; }    // as ForCg of its spec
  virtual int64_t host_bytes() const = 0;  // everything it holds, apply layout included
  // kScaledRows: solves by BiCGSTAB, GMRES and IDR take the residual of the scaled rows, in which M
  // was made, for their iteration (Engine::Solve).
  virtual MForm form() const { return MForm::kMatrix; }
  // Returns M where form() is kOverRanks; else null.
  virtual std::shared_ptr<const OverRanks> over_ranks() const { return nullptr; }

  // A build on a GPU leaves a copy there, for solves to come: its bytes, with those of the plan
  // that it keeps; 0: none (any more). The copy goes with the preconditioner, or before, when its
  // memory is wanted.
  virtual int64_t device_bytes() const { return 0; }
  virtual void DropDeviceCopy() const {}
};

// A matrix, or a preconditioner, laid out on a CUDA device for solves there. Immutable;
// thread-safe; its memory goes with its last owner.
class DeviceOperator {
 public:
  virtual ~DeviceOperator() = default;
  virtual int64_t device_bytes() const = 0;  // held
  // Names the order of the unknowns in which it lies, as long as this or another operator has it;
  // null: their own.
  virtual const void* order() const { return nullptr; }
};

// Places a preconditioner on a device with its values stored so, or finds it there; empty: there is
// no preconditioner.
using PlaceM = std::function<Result<std::shared_ptr<const DeviceOperator>>(Storage)>;

// How a device is.
struct DeviceState {
  bool lost = false;        // it answers nothing more in this process
  int64_t used_bytes = 0;   // of a CUDA device, by this engine; while it computes: before that
  int64_t limit_bytes = 0;  // that this engine may take of it; 0 for the CPU
};

// Thread-safe: several plans, builds and solves may run at once.
class Engine {
 public:
  virtual ~Engine() = default;

  // Devices that this engine computes on, the CPU first where it is among them.
  virtual std::vector<DeviceInfo> Devices() const = 0;
  // The ranks that are one of them; null: none. A matrix that came to them alone is named by its
  // stand-in (kernels/mpi/ranks_device.h) in all below, which refuses what ranks do not do:
  // FAILED_PRECONDITION/MATRIX_OVER_RANKS. Figures of an estimate are guesses then, but for
  // rank_bytes and halo_bytes, which are bounds.
  virtual RanksDevice* Ranks() const { return nullptr; }
  // `device`: index in Devices().
  virtual DeviceState State(int device) const = 0;
  // Does a small piece of work on it. Errors: UNAVAILABLE/DEVICE_LOST, and other words of CUDA's.
  virtual Status Probe(int device) const = 0;

  // kAuto becomes the bottom of AUTO's ladder (auto_engine.cc, ladder.h): Jacobi; kNone where that
  // cannot be built (a column of A stores no entry, an entry of the diagonal cannot be inverted) or
  // is not positive definite and the method is MINRES; static SPAI on a `user_pattern` (may be
  // null) where the method takes it. Options of engines not chosen are reset, so that equal builds
  // have equal resolved specs; where that drops what the caller of kAuto gave, the reason says so.
  // Errors: INVALID_ARGUMENT for options out of range (field named);
  // FAILED_PRECONDITION/VALUES_NEEDED for kAuto on a pattern.
  virtual Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView& a,
                                       const Diagnosis& diagnosis, const PatternView* user_pattern,
                                       const Context& context) const = 0;

  // In bounded time and memory; `predicted_ms` is for context.threads. From the pattern alone, and
  // `a` may have no values: only predictions of an engine that grows some columns are better with
  // them. kAuto: a bound on whatever it may choose (zeros where that is nothing).
  // Options are checked as by Resolve. Errors besides: those of EstimateStaticSpai; stop statuses.
  virtual Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                         const PatternView* user_pattern,
                                         const Context& context) const = 0;

  // `spec` resolved, not kNone (INVALID_ARGUMENT/ENGINE_NOT_RESOLVED, /NOTHING_TO_BUILD). Errors as
  // of PlanStaticSpai; kJacobi: FAILED_PRECONDITION/ZERO_DIAGONAL, or /SINGULAR_BLOCK of blocks,
  // comes from Build. On CUDA devices (context.device, or context.devices):
  // RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY, UNAVAILABLE/DEVICE_LOST; of several the first one's
  // error, once all have come to their ends. INTERNAL/NO_SUCH_DEVICE, too, where
  // context.devices names several, not all GPUs, or one twice, or does not begin with
  // context.device; Jacobi does not look at it.
  virtual Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec,
                                                       const CscView& a,
                                                       const PatternView* user_pattern,
                                                       const Context& context) const = 0;

  // Parts of a solve on a device: A there, as Place made it, and what places the preconditioner.
  struct OnDevice {
    const DeviceOperator& a;
    const PlaceM& place_m;
  };
  // `options.method` resolved. `preconditioner` may be null; M, or its factors, are stored as
  // options.m_storage says (m_storage.h); a diagonal in fp64. Shapes and errors as of
  // kernels/krylov; besides FAILED_PRECONDITION/FLOAT32_OVERFLOW, /FLOAT32_UNDERFLOW where kFp32 is
  // asked for in vain. `there`: the same on context.device, a CUDA device, with what Place has made
  // of A there, and makes of the preconditioner as it is asked for it; placing M is no part of
  // solve_ms then, and errors besides are RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY,
  // UNAVAILABLE/DEVICE_LOST. Null: on the host, as all that HostAlone names. With an M that
  // of kScaledRows the iteration is that of scaled_solve.h; it ends by the caller's residual.
  struct SolveCase {
    const CscView& a;
    const Preconditioner* preconditioner = nullptr;
    std::span<const double> b, x0;
    const SolveOptions& options;
    const OnDevice* there = nullptr;
  };
  virtual Result<SolveResult> Solve(const SolveCase& c, const Context& context) const = 0;
  Result<SolveResult> Solve(const CscView& a, const Preconditioner* preconditioner,
                            std::span<const double> b, std::span<const double> x0,
                            const SolveOptions& options, const Context& context) const {
    return Solve({a, preconditioner, b, x0, options, nullptr}, context);
  }
  Result<SolveResult> SolveOnDevice(const CscView& a, const DeviceOperator& a_there,
                                    const Preconditioner* preconditioner, const PlaceM& place_m,
                                    std::span<const double> b, std::span<const double> x0,
                                    const SolveOptions& options, const Context& context) const {
    const OnDevice there{a_there, place_m};
    return Solve({a, preconditioner, b, x0, options, &there}, context);
  }

  // Device bytes that a solve on a device takes at most, with what Place makes and takes for it: of
  // n unknowns, `nnz_a` entries of A and `nnz_m` of an explicit M, of both factors, or of all parts
  // (`form`: M's). It needs no more than for one right-hand side; with more it solves several at
  // once.
  virtual int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                                   const SolveOptions& options,
                                   MForm form = MForm::kMatrix) const = 0;

  // To be laid out on a device: A, with values, or a preconditioner.
  struct Operand {
    const CscView* a = nullptr;
    // With A: what Place made there of a matrix with A's pattern, and nobody else holds; A's values
    // take the place of its own, and it is of no use any more.
    std::shared_ptr<const DeviceOperator> old = nullptr;
    const Preconditioner* m = nullptr;
    Storage storage = Storage::kFp64;  // of M, but of a diagonal; not kAuto
    // With M: A, as it lies there, whose order of the unknowns M takes. Over ranks it is not looked
    // at.
    const DeviceOperator* beside = nullptr;
  };
  using Placed = Result<std::shared_ptr<const DeviceOperator>>;
  // Lays it out on context.device, a CUDA device. Errors: those of CudaOperator
  // (kernels/krylov/krylov_cuda.h); FAILED_PRECONDITION/VALUES_NEEDED;
  // INVALID_ARGUMENT/PRECONDITIONER_MISMATCH; INVALID_ARGUMENT/PLAN_MISMATCH where the layout of
  // `old` does not serve these values, or it is another matrix's; then `old` goes.
  virtual Placed Place(Operand operand, const Context& context) const = 0;
  Placed Place(const CscView& a, const Context& context) const { return Place({.a = &a}, context); }
  Placed Replace(std::shared_ptr<const DeviceOperator> old, const CscView& a,
                 const Context& context) const {
    return Place({.a = &a, .old = std::move(old)}, context);
  }
  Placed Place(const Preconditioner& m, Storage storage, const Context& context,
               const DeviceOperator* beside = nullptr) const {
    return Place({.m = &m, .storage = storage, .beside = beside}, context);
  }
  // Begins to copy `values`, of which `count` are to come, to a CUDA device (index in Devices())
  // while they come; what reads A's values there finds them by Context::ahead. Null: the device is
  // none, computes just now or is lost, or there is no room. Errors: those of BeginCopyAhead
  // (kernels/base/copy_ahead.h).
  virtual Result<std::shared_ptr<CopyAhead>> BeginCopyAhead(int device, const double* values,
                                                            int64_t count) const = 0;
  // Bandwidth of copies of arrays, bytes read and written counted: within context.device's memory,
  // or where `on_host`, by context.threads of the host. Measured with the first call of each device
  // (the host: and number of threads), for a fraction of a second; 0: it could not be.
  virtual double CopyBytesPerSecond(const Context& context, bool on_host) const = 0;
};

// kAuto: CG where A is numerically symmetric with a positive diagonal and the preconditioner, if
// any, is `for_cg`; else BiCGSTAB. Errors: FAILED_PRECONDITION/PRECONDITIONER_NOT_SPD (CG or MINRES
// named, and M is not for them), /NOT_SYMMETRIC (the same, A not numerically symmetric; index: the
// column).
Result<Method> ResolveMethod(Method method, bool for_cg, const Diagnosis& diagnosis);

// Says, for people, why the host alone solves so, with an M of that form; empty: CUDA devices do,
// too. `options` as in krylov.h.
std::string_view HostAlone(const SolveOptions& options, MForm form);

// Says why several processes do not solve so (Backend::kRanks); empty: they do.
std::string_view NotOverRanks(const SolveOptions& options, MForm form);
// Bytes of all ranks together that a solve over them takes at most, as SolveDeviceBytes says it of
// a GPU.
int64_t SolveRanksBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, const SolveOptions& options);

std::unique_ptr<Engine> MakeCpuEngine();
// The CPU (`cpu`), then `gpus`, then `ranks`, which may be null; at least one of all.
std::unique_ptr<Engine> MakeEngine(bool cpu, std::vector<std::shared_ptr<CudaDevice>> gpus,
                                   std::shared_ptr<RanksDevice> ranks = nullptr);

}  // namespace spaid::kernels
