// The numerics as the daemon uses them: absl::Status, jobs, digests, the plan cache. Works over any
// kernels::Engine, real or fake.
//
//   EngineAdapter adapter(*kernels::MakeCpuEngine(), {.threads = 0, .plan_cache_bytes = 1 << 30});
//   ASSIGN_OR_RETURN(auto a, adapter.Prepare(std::move(raw), kernels::Layout::kCsc, {}));
//   ASSIGN_OR_RETURN(auto spec, adapter.Resolve(parsed, *a, nullptr));
//   ASSIGN_OR_RETURN(auto m, adapter.Build(tenant, spec, *a, nullptr, &job));
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/ladder.h"
#include "kernels/engine/reordered.h"
#include "server/base/clock.h"
#include "server/engine/convert.h"
#include "server/engine/device_cache.h"
#include "server/engine/learned_rungs.h"
#include "server/engine/stored_types.h"
#include "server/engine/streaming_checks.h"
#include "server/sched/scheduler.h"
#include "server/store/byte_budget.h"
#include "server/store/byte_lru.h"

namespace spaid::server {

class Job;
class Metrics;

struct EngineAdapterOptions {
  int threads = 0;  // of one job; 0: all cores
  // Host bytes. On a GPU, plans may keep half of what the daemon may take of it, and matrices and
  // preconditioners a quarter.
  int64_t plan_cache_bytes = int64_t{1} << 30;
  ShareRules shares = {};       // of all that: each is one tenant's
  int64_t max_build_bytes = 0;  // upper bound on the estimated host bytes of a build; 0: none
  int max_devices = 1;          // GPUs that one build may be split over
  // Work that ranks can do is theirs, however long it takes elsewhere.
  bool ranks_first = false;
  int64_t max_result_bytes = 0;  // upper bound on the arrays of M, where it must be stored; 0: none
  // Bytes that all rungs of AUTO behind its first choices may take at once, and unknowns up to
  // which one is dense LU.
  int64_t ladder_bytes = int64_t{1} << 30;
  int64_t max_lu_n = 10000;
  // Values of fewer bytes are not sent to a GPU ahead: that would take a copy a fraction of a
  // millisecond.
  int64_t least_ahead_bytes = int64_t{8} << 20;
  const Clock* clock = &RealClock();
  Metrics* metrics = nullptr;  // borrowed; may be null
};

struct PrepareOptions {
  bool sort_and_sum = false;
  bool pattern_only = false;
  ArrayFacts arrived = {};  // of `raw`: what is known is not looked for again
  std::string label = {};
  kernels::StopToken stop = {};  // looked at between the passes over the arrays
};

// Devices of the engine on which a job may run.
struct Placement {
  DeviceMask devices = kAnyDevice;
  DeviceMask fallback = 0;   // once those are lost
  bool on_gpu = false;       // something is computed there, or over ranks
  int64_t device_bytes = 0;  // that may be taken of the GPU's memory, within its limit
  std::string why;           // empty where there was nothing to choose from
  bool host_alone = false;   // no GPU could build it (GpuBuilds::host_alone)
  bool over_ranks = false;   // on_gpu, but there is none: the ranks compute
  // Over ranks: of a build, predicted, and host bytes that it takes on rank 0.
  double predicted_ms = 0;
  int64_t host_bytes = 0;
};

struct InOrder;     // in_order.h
struct ParsedSpec;  // resolved_build.h
struct ResolvedBuild;

// Tells of each entry by rows its place by columns (kernels::TurnedRows).
using RowPlaces = std::shared_ptr<const kernels::Array<int32_t>>;

// A pattern that is here before the values of a matrix are.
struct KnownPattern {
  std::shared_ptr<const StoredPattern> pattern;  // null: it is still to come
  RowPlaces places = nullptr;  // where values by rows go; null: they come in order
  // The matrix over the ranks that has it, in place of `pattern`; null: none.
  std::shared_ptr<const kernels::OverRanks> over = nullptr;
};

// Kept of a pattern, one of the three: a plan of a spec, the order of a solve's unknowns, or the
// places of entries by rows.
struct KeptPlan {
  std::shared_ptr<const kernels::Plan> plan;
  kernels::UnknownOrder order = {};
  RowPlaces places = nullptr;
  std::shared_ptr<const FirstCounts> first_counts = {};  // of the M that the plan was made with
};

struct BuiltPreconditioner {
  std::shared_ptr<const kernels::Preconditioner> kernel;
  v1::BuildQuality quality;
  // Disjoint.
  double plan_ms = 0, build_ms = 0, assemble_ms = 0, host_to_device_ms = 0, device_to_host_ms = 0;
  bool rebuild = false;  // the plan came from the cache
  // Preconditioner's.
  std::shared_ptr<FirstCounts> first_counts = std::make_shared<FirstCounts>();
  std::shared_ptr<const FirstCounts> earlier_counts;
};

// Entries of M, or of both factors, that a solve stores and a product with M reads; of `nnz` of the
// preconditioner's matrix. A diagonal counts as a vector: 0.
int64_t StoredEntries(kernels::EngineKind kind, int64_t n, int64_t nnz);

struct Solved {
  kernels::SolveResult result;
  std::vector<kernels::Rung> rungs;  // empty: AUTO did not climb, or was not asked
  // If AUTO was asked: what ended it, or came closest.
  std::optional<LearnedRung> rung;
  double copy_bytes_per_second = 0;  // of where it was computed, as MeasureCopy found it
};

// Thread-safe. Blocking calls; those that take a Job report progress to it and stop when it is told
// to.
class EngineAdapter {
 public:
  // `engine` and what the options borrow outlive the adapter. Where the engine has a GPU several
  // times, the first is the device and the others are further slots of it (OpenEngine).
  EngineAdapter(const kernels::Engine& engine, EngineAdapterOptions options);

  // Devices that work is placed on, the CPU first where it is among them; and their names.
  const std::vector<kernels::DeviceInfo>& devices() const { return devices_; }
  const std::vector<std::string>& device_names() const { return names_; }
  // `device`: index in devices(). Its bytes are those of all its slots.
  kernels::DeviceState DeviceState(size_t device) const;
  // Computations that run side by side on a GPU, each in memory of its own: of the first slot what
  // is left, of the others `slot_bytes`. 1 and 0 of the CPU, which divides nothing.
  struct Slots {
    int count = 1;
    int64_t slot_bytes = 0;
  };
  Slots slots(size_t device) const;
  // Finds out what copying reaches on it (Engine::CopyBytesPerSecond; with the first device on the
  // host, too), which solves there report beside their own speed from then on. A fraction of a
  // second of work; before the first solve, on whichever thread. Errors: Probe's, where a GPU gave
  // no figure.
  absl::Status MeasureCopy(size_t device);
  // A small piece of work on it, in the slot that is said, where nothing else may run meanwhile.
  // Errors: UNAVAILABLE/DEVICE_LOST.
  absl::Status Probe(size_t device, size_t slot) const;
  // Drops what is kept on a device for speed alone: cached plans, matrices and preconditioners.
  // How many there were.
  int64_t DropKept(size_t device) const;

  // Validates, converts to canonical CSC, diagnoses, digests. Takes the arrays over. O(nnz) time:
  // not for a reactor's thread. Errors: kernels/sparse/validation.h, with the fields as they are
  // named there
  // ("pointers", "indices", "values" of the header's layout are the caller's to explain); of a stop
  // CANCELLED or DEADLINE_EXCEEDED.
  absl::StatusOr<std::shared_ptr<Matrix>> Prepare(kernels::CscMatrix raw, kernels::Layout layout,
                                                  const PrepareOptions& options) const;
  // The same of values that came alone, and lie in the order of the pattern by columns.
  absl::StatusOr<std::shared_ptr<Matrix>> PrepareValues(KnownPattern on,
                                                        kernels::Array<double> values,
                                                        const PrepareOptions& options) const;

  // Bytes of all ranks, as much of a matrix as may come to them alone; 0: there are no ranks.
  int64_t RanksBytes() const;
  // Begins a matrix that comes to the ranks alone: by its pointers, or values on the pattern of one
  // that lies there. Where they have no memory, drops what is kept for speed, then gives matrices
  // up for it as long as give_up() does. Errors: RanksDevice::BeginInput's.
  using GiveUp = std::function<bool()>;  // false: there was none
  absl::StatusOr<std::unique_ptr<kernels::RanksInput>> BeginOverRanks(
      std::span<const int64_t> pointers, int64_t nnz, kernels::Layout layout, bool sort_and_sum,
      const GiveUp& give_up) const;
  absl::StatusOr<std::unique_ptr<kernels::RanksInput>> BeginOverRanks(
      const kernels::OverRanks& like, kernels::Layout layout, const GiveUp& give_up) const;
  // Begins to bring A or M from the ranks, piece by piece. Blocks. Errors:
  // RanksDevice::BeginOutput's.
  absl::StatusOr<std::unique_ptr<kernels::RanksOutput>> BeginOutput(
      const kernels::OverRanks& of, kernels::Layout layout = kernels::Layout::kCsc) const;
  // SHA-256 of a matrix that lies there, as it would be sent; zeros, which nothing has, where the
  // ranks cannot bring it. Blocks for O(nnz).
  Matrix::OverSha256 HashOverRanks(const Matrix& a, bool by_rows) const;
  // Tells whether two that lie there are the same, to the last bit. Blocks.
  bool SameOverRanks(const Matrix& a, const Matrix& b) const;
  // Ends it: all has been added. Only the options stop and label are read. Errors: Prepare's.
  absl::StatusOr<std::shared_ptr<Matrix>> PrepareOverRanks(kernels::RanksInput& input,
                                                           const PrepareOptions& options) const;

  // Validates a pattern that came by rows. False: it must be sorted, and may be
  // (options.sort_and_sum). Errors: as Prepare's. O(nnz) unless that is known.
  absl::StatusOr<bool> CheckRows(const kernels::PatternView& rows,
                                 const PrepareOptions& options) const;
  // Turns a pattern that CheckRows has found sorted, of fewer than 2^31 entries. O(nnz). Errors:
  // of a stop.
  absl::StatusOr<KnownPattern> TurnRows(kernels::Pattern rows, const PrepareOptions& options) const;
  // Keeps the places among the plans.
  void KeepPlaces(const std::string& tenant, const KnownPattern& of) const;
  // Finds them there, or makes them in O(nnz). Errors: of a stop.
  absl::StatusOr<RowPlaces> PlacesByRows(const std::string& tenant, const StoredPattern& pattern,
                                         kernels::StopToken stop) const;
  // Host bytes that TurnRows takes at its peak beside what it is given, and Prepare of values.
  static int64_t TurnBytes(int64_t n, int64_t nnz);
  static int64_t DiagnoseBytes(int64_t n, int64_t nnz);

  // Host bytes that this takes at its peak, at most, beside the arrays of `raw`; of `options`
  // sort_and_sum and pattern_only are read.
  static int64_t PrepareBytes(int64_t n, int64_t nnz, kernels::Layout layout,
                              const PrepareOptions& options);

  // `pattern`: the base pattern's matrix where the spec names one, else null. Errors:
  // FAILED_PRECONDITION/VALUES_NEEDED (`a` without values, and the spec cannot be decided or built
  // without), INVALID_ARGUMENT/PATTERN_SIZE_MISMATCH, those of Engine::Resolve. `for_estimate`: a
  // pattern-only matrix will do.
  absl::StatusOr<ResolvedBuild> Resolve(const ParsedSpec& spec, const Matrix& a,
                                        const Matrix* pattern, bool for_estimate = false,
                                        kernels::StopToken stop = {}) const;

  // From the patterns alone. O(nnz)-ish time: not for a reactor's thread. `kNone`: zeros. Errors:
  // the kernels', those of a stop among them.
  absl::StatusOr<kernels::BuildEstimate> Estimate(const ResolvedBuild& build, const Matrix& a,
                                                  const Matrix* pattern,
                                                  kernels::StopToken stop = {}) const;
  // Sends values on a pattern that is here to the GPU where the last ones were wanted, while they
  // come. Null: there is none, they are too few, or there is no free room for them. Fast.
  std::shared_ptr<ValuesAhead> BeginAhead(
      const std::string& tenant, const std::shared_ptr<const StoredPattern>& pattern) const;
  // The place of a build. One that can be a GPU's: there where the CPU would take long enough
  // (EngineTraits::on_gpu), and longer than there, or AUTO's solve runs there (for_gpu), and its
  // memory suffices, else on the CPU where
  // that is among the devices. Memory suffices where it does with gather tables, or rows of G, made
  // in waves; GPUs with room for all come first. All else is work of the host: the CPU's where that
  // is among the devices, else done on the thread of any GPU's worker. Errors:
  // RESOURCE_EXHAUSTED/BUILD_TOO_LARGE (limit, actual: the least device bytes),
  // UNAVAILABLE/DEVICE_LOST.
  absl::StatusOr<Placement> Place(const ResolvedBuild& build,
                                  const kernels::BuildEstimate& estimate) const;
  Placement PlaceHostWork() const;
  // Decides where a solve runs that was predicted to take the CPU so long, with an M of `nnz_m`
  // StoredEntries, and why: on a GPU that has the memory, where the CPU would take long enough
  // (kernels/engine/cost.h) or is not among the devices; else as work of the host, as is all that
  // kernels::HostAlone names. `form`, here and below: that M has, or may have, once it is built.
  Placement PlaceSolve(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                       const kernels::SolveOptions& options, double predicted_ms,
                       kernels::MForm form = kernels::MForm::kMatrix) const;
  // Devices where `a` is laid out for solves; where there is a plan of that build.
  Residence LaidOutOn(const Matrix& a) const;
  Residence PlannedOn(const std::string& tenant, const ResolvedBuild& build) const;
  int threads() const;  // that one job computes on
  // Says, for people, why the host alone solves so, where a GPU or the ranks would else; empty:
  // they do, too.
  static std::string_view HostAlone(bool over_ranks, const kernels::SolveOptions& options,
                                    kernels::MForm form);
  // Over how many GPUs a build may be split: 1 where that does not pay
  // (GpuBuilds::splits_from_ms).
  int MaxDevices(const ResolvedBuild& build, const kernels::BuildEstimate& estimate) const;
  // RESOURCE_EXHAUSTED/BUILD_TOO_LARGE (limit, actual) where the estimate is over max_build_bytes.
  absl::Status AdmitBuild(const kernels::BuildEstimate& estimate) const;
  // The same where M could not be stored afterwards: over max_result_bytes.
  absl::Status AdmitResult(const kernels::BuildEstimate& estimate) const;
  // Host bytes that a solve of `n_rhs` right-hand sides takes at its peak, at most, beside A, M, b
  // and the guess: its vectors (the basis of GMRES is what counts), the rows of A, an M of `nnz_m`
  // StoredEntries in fp32, the answers. `options.method` resolved.
  int64_t SolveHostBytes(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                         const kernels::SolveOptions& options,
                         kernels::MForm form = kernels::MForm::kMatrix) const;
  // SOLVE_TOO_LARGE where these are over max_build_bytes.
  absl::Status AdmitSolve(const Matrix& a, int64_t nnz_m, int64_t n_rhs,
                          const kernels::SolveOptions& options,
                          kernels::MForm form = kernels::MForm::kMatrix) const;

  // Plans (or takes a cached plan of this tenant) and builds there: `at` names one of
  // device_names(), or several GPUs that share the work. Where that is out of memory, its cached
  // plans go, and it is tried once more. The job of a build has a PartialMatrix meanwhile. Errors:
  // the kernels'.
  absl::StatusOr<BuiltPreconditioner> Build(const std::string& tenant, const ResolvedBuild& build,
                                            const Matrix& a, const Matrix* pattern,
                                            const Assignment& at, Job& job) const;

  // Decides kAuto and refuses what cannot work. Errors: kernels::ResolveMethod.
  absl::StatusOr<kernels::Method> ResolveMethod(kernels::Method method, bool for_cg,
                                                const Matrix& a) const;

  // Finds what a solve of `a` projects out; null: nothing. O(nnz) time for each vector: not for a
  // reactor's thread. Errors: those of kernels::MakeNullSpace.
  absl::StatusOr<std::shared_ptr<const kernels::NullSpace>> FindNullSpace(
      const Matrix& a, const kernels::NullSpaceRequest& request) const;

  // The terms on which a solve with AUTO's choice climbs on where that does not do.
  struct Ladder {
    kernels::SolveOptions asked = {};  // by the caller
    LearnedRung rung = {};
    kernels::EngineKind engine = kernels::EngineKind::kNone;
    std::string what;                             // engine and method of `rung`, for people
    kernels::StaticSpaiOptions static_spai = {};  // as asked
    double setup_ms = 0;
    bool straight = false;  // to `rung`, of which the ladder makes all: `m` is null
    std::string reason;     // why BeginAbove begins there, for people
    std::shared_ptr<kernels::AmgLook> look = {};  // at A, by FirstRung; may be null
  };
  // Has AUTO's solve begin above the bottom where it is foretold to end sooner so on the device of
  // `at` (kernels/engine/first_rung.h): `ladder->rung`, straight, with the reason. O(nnz) at most.
  // `ladder->asked` is set; `b`: n x rhs.
  void BeginAbove(const Matrix& a, std::span<const double> b, const Assignment& at,
                  Ladder* ladder) const;
  // `options.method` resolved; `m` may be null; `b` n x rhs, `x0` the same or empty. `at` names one
  // of device_names(): where that is a GPU with memory for it, A and M are laid out there, and
  // stay for the next solve; where a matrix of the job's tenant with A's pattern was, and is no
  // more, A's values take its place. Where the GPU is out of memory, what is kept there goes, and
  // it is tried once more. `ladder`: null, or AUTO made `m`: rungs that are left are reported to
  // the job; those on A scaled are the host's work. Of right-hand sides that no x reaches to the
  // tolerance rungs have the part that is reached (SolveOptions::null_space). `leg`: null, or which
  // of the job's right-hand sides these are; residuals are reported by their numbers, and
  // CountSolve is the caller's to call. Errors: the kernels'.
  absl::StatusOr<Solved> Solve(const std::shared_ptr<const Matrix>& a,
                               const std::shared_ptr<const kernels::Preconditioner>& m,
                               std::span<const double> b, std::span<const double> x0,
                               const kernels::SolveOptions& options, const Assignment& at, Job& job,
                               const Ladder* ladder = nullptr, const SolveLeg* leg = nullptr) const;
  // Counts an ended solve in the metrics.
  void CountSolve(kernels::Method method, const kernels::SolveResult& solved) const;

  // The rung that solves A x = b of a random x to 1e-6, or comes closest, where nothing is known of
  // A's pattern: AUTO's choice for a build. Reports to the job as a solve's rungs do.
  absl::StatusOr<LearnedRung> Probe(const std::shared_ptr<const Matrix>& a,
                                    const kernels::StaticSpaiOptions& static_spai,
                                    const Assignment& at, Job& job) const;

  bool HasRanks() const { return ranks_.has_value(); }
  ByteLru<KeptPlan>::Stats plan_cache() const { return plans_.stats(); }

 private:
  // The rest of a matrix whose pattern and values are set: diagnosis, digest, label.
  void Describe(const PrepareOptions& options, const kernels::ValueRange* range,
                const std::optional<Digest>& values, Matrix* matrix) const;
  absl::StatusOr<kernels::BuildResult> PlanAndBuild(
      const std::string& tenant, const kernels::PreconditionerSpec& spec, const std::string& key,
      const Matrix& a, const Matrix* pattern, const kernels::Context& context,
      std::shared_ptr<const kernels::Plan>* plan, BuiltPreconditioner* built) const;
  bool OverRanks(size_t device) const;  // the engine's
  template <class Begin>
  absl::StatusOr<std::unique_ptr<kernels::RanksInput>> BeginInput(const Begin& begin,
                                                                  const GiveUp& give_up) const;
  // Whether `device` (the engine's) is a GPU, or ranks, with memory for a solve by `m`, which may
  // be null.
  bool SolvesThere(size_t device, const Matrix& a, const kernels::Preconditioner* m,
                   const kernels::SolveOptions& options) const;
  // The place of a build over ranks; empty: there are none, they do not build it, or it pays
  // elsewhere.
  std::optional<Placement> PlaceOverRanks(const ResolvedBuild& build,
                                          const kernels::BuildEstimate& estimate) const;
  int64_t DropKeptIn(const std::vector<size_t>& devices) const;  // the engine's
  // Does so on `devices`, for another try of `job`; logs it, under the name of `device`.
  void MakeRoom(const std::vector<size_t>& devices, const std::string& device, const Job& job,
                const absl::Status& out_of_memory) const;
  // Devices for which `holds` is true.
  Residence ResidenceOf(absl::FunctionRef<bool(size_t index)> holds) const;
  // The engine's device; the CPU's slots are all the same one.
  absl::StatusOr<size_t> IndexOf(const Assignment& at) const;
  static std::string PlanKey(const std::vector<size_t>& devices, const std::string& tenant,
                             const ResolvedBuild& build);
  absl::StatusOr<kernels::SolveResult> SolveThere(
      const std::shared_ptr<const Matrix>& a,
      const std::shared_ptr<const kernels::Preconditioner>& m, std::span<const double> b,
      std::span<const double> x0, const kernels::SolveOptions& options,
      const kernels::Context& context, const std::string& tenant) const;
  // The same, once more where there was no memory: what was kept there has gone then. `index`: the
  // engine's, of `at`.
  absl::StatusOr<kernels::SolveResult> SolveMakingRoom(
      const std::shared_ptr<const Matrix>& a,
      const std::shared_ptr<const kernels::Preconditioner>& m, std::span<const double> b,
      std::span<const double> x0, const kernels::SolveOptions& options,
      const kernels::Context& context, size_t index, const Assignment& at, Job& job) const;
  // The same for rungs of a ladder, on the host where it must be. Borrows `at` and `job`.
  kernels::LadderSolve SolvesOf(const std::shared_ptr<const Matrix>& a, size_t index,
                                const Assignment& at, Job& job) const;
  // Multiplies by A, wherever it lies. Borrows it.
  std::unique_ptr<const kernels::LinearOperator> OperatorOf(const Matrix& a) const;
  // The order of a pattern's unknowns, kept or found; null: it was stopped.
  std::shared_ptr<const KeptPlan> FindOrder(const std::string& tenant, const Matrix& a,
                                            const kernels::Context& context) const;
  // A solve on the host as it goes fastest through a scattered A; null: that does not pay, cannot
  // be, or was stopped. `m` may be null, `x` empty.
  std::unique_ptr<InOrder> PutInOrder(const Matrix& a, const kernels::Preconditioner* m,
                                      std::span<const double> b, std::span<const double> x,
                                      const kernels::SolveOptions& options, const Job& job,
                                      const kernels::Context& context) const;
  const kernels::Engine& engine_;
  const EngineAdapterOptions options_;
  std::vector<kernels::DeviceInfo> devices_;
  std::vector<std::string> names_;
  std::vector<std::vector<size_t>>
      slots_;                        // of each device: indices in the engine's, its own first
  std::optional<size_t> ranks_;      // the device that is ranks
  double host_copy_ = 0;             // bytes a second; 0: not known
  std::vector<double> device_copy_;  // of each device
  mutable ByteLru<KeptPlan> plans_;
  mutable DeviceCache on_devices_;
  mutable ByteBudget ladder_bytes_;
};

}  // namespace spaid::server
