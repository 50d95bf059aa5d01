#include "server/engine/adapter.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/parallel.h"
#include "kernels/base/reasons.h"
#include "kernels/engine/build_result.h"
#include "kernels/sparse/preparation.h"
#include "kernels/sparse/transpose.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/sha256.h"
#include "server/base/status.h"
#include "server/engine/devices.h"
#include "server/engine/job_bridge.h"
#include "server/engine/near_null.h"
#include "server/engine/partial_matrix.h"
#include "server/engine/resolved_build.h"
#include "server/sched/job.h"

namespace spaid::server {
namespace {

static_assert(reason::kDeviceOutOfMemory == kernels::reason::kDeviceOutOfMemory);

// Bytes of an entry of M in CSC: what max_build_bytes leaves for the pattern, at the very most.
constexpr int64_t kBytesPerEntry = sizeof(int32_t) + sizeof(double);

// Findings of a pattern alone: as if every entry were 1, less what that says of values.
kernels::Diagnosis DiagnosePattern(const kernels::PatternView& pattern, int threads) {
  kernels::Array<double> ones;
  ones.assign(pattern.row_idx.size(), 1.0);
  kernels::Diagnosis diagnosis = kernels::Diagnose(kernels::CscView{pattern, ones}, threads);
  diagnosis.numerically_symmetric = false;
  diagnosis.max_asymmetry = 0;
  diagnosis.not_dominant_rows = {};
  diagnosis.min_abs_value = diagnosis.max_abs_value = 0;
  return diagnosis;
}

constexpr char kPreparing[] = "the validation of the matrix";
constexpr char kLiesOverRanks[] =
    "The matrix lies over the ranks alone: Jacobi, SPAI and FSAI are built there, CG, BiCGSTAB and "
    "GMRES solve there; rank 0 keeps neither it nor its M, and a spill folder the matrix alone.";

absl::Status CheckStop(const kernels::StopToken& stop, const char* what) {
  const kernels::StopReason reason = stop.Poll();
  if (reason == kernels::StopReason::kNone) return absl::OkStatus();
  return ToAbsl(kernels::StopStatus(reason, what));
}

// The engine's devices that compute it.
std::vector<size_t> DevicesOf(const kernels::Context& context) {
  if (context.devices.empty()) return {static_cast<size_t>(context.device)};
  return {context.devices.begin(), context.devices.end()};
}

// A build with a time budget is no other one's: time decides what it becomes.
std::string NeverTheSame() {
  static std::atomic<uint64_t> count{0};
  return absl::StrCat("|", ++count);
}

absl::Status ValuesNeeded(const char* what) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason::kValuesNeeded,
                   absl::StrCat("the matrix is a pattern without values, which ", what,
                                " needs; upload it with values"));
}

}  // namespace

int64_t StoredEntries(kernels::EngineKind kind, int64_t n, int64_t nnz) {
  const kernels::EngineTraits& engine = kernels::TraitsOf(kind);
  if (engine.may_be_diagonal && nnz == n) return 0;
  return engine.factored ? 2 * nnz : nnz;
}

EngineAdapter::EngineAdapter(const kernels::Engine& engine, EngineAdapterOptions options)
    : engine_(engine),
      options_(options),
      plans_(options.plan_cache_bytes, ShareOfDevices(engine, 2), options.shares),
      on_devices_(engine, options.shares, *options.clock),
      ladder_bytes_("rungs of engine AUTO (half of --max-build-bytes)", options.ladder_bytes, {},
                    options.shares) {
  const std::vector<kernels::DeviceInfo> all = engine.Devices();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string name = DeviceName(all[i]);
    const auto known = std::find(names_.begin(), names_.end(), name);
    if (known != names_.end()) {
      slots_[static_cast<size_t>(known - names_.begin())].push_back(i);
      continue;
    }
    if (all[i].backend == kernels::Backend::kRanks) ranks_ = devices_.size();
    devices_.push_back(all[i]);
    names_.push_back(name);
    slots_.push_back({i});
  }
  device_copy_.resize(devices_.size());
}

absl::Status EngineAdapter::MeasureCopy(size_t device) {
  const TimePoint start = options_.clock->Now();
  kernels::Context context;
  context.device = static_cast<int>(slots_[device].front());
  context.threads = options_.threads;
  if (device == 0) host_copy_ = engine_.CopyBytesPerSecond(context, /*on_host=*/true);
  if (devices_[device].backend != kernels::Backend::kCpu) {
    device_copy_[device] = engine_.CopyBytesPerSecond(context, /*on_host=*/false);
  }
  Log(LogLevel::kDebug, "copy_measured",
      {{"device", names_[device]}, {"took_ms", ToMs(options_.clock->Now() - start)}});
  // No figure: its memory may be full, or the device dead.
  const bool gpu = devices_[device].backend != kernels::Backend::kCpu;
  return gpu && device_copy_[device] <= 0 ? Probe(device, 0) : absl::OkStatus();
}

kernels::DeviceState EngineAdapter::DeviceState(size_t device) const {
  kernels::DeviceState state = engine_.State(static_cast<int>(slots_[device].front()));
  for (size_t slot = 1; slot < slots_[device].size(); ++slot) {
    const kernels::DeviceState more = engine_.State(static_cast<int>(slots_[device][slot]));
    state.lost = state.lost || more.lost;
    state.used_bytes += more.used_bytes;
    state.limit_bytes += more.limit_bytes;
  }
  return state;
}

EngineAdapter::Slots EngineAdapter::slots(size_t device) const {
  if (slots_[device].size() == 1) return {};
  return {static_cast<int>(slots_[device].size()),
          engine_.State(static_cast<int>(slots_[device][1])).limit_bytes};
}

absl::Status EngineAdapter::Probe(size_t device, size_t slot) const {
  const std::vector<size_t>& slots = slots_[device];
  return ToAbsl(engine_.Probe(static_cast<int>(slots[std::min(slot, slots.size() - 1)])));
}

int64_t EngineAdapter::DropKept(size_t device) const { return DropKeptIn(slots_[device]); }

int64_t EngineAdapter::DropKeptIn(const std::vector<size_t>& devices) const {
  int64_t dropped = 0;
  for (const size_t d : devices) dropped += plans_.DropPool(d) + on_devices_.Drop(d);
  return dropped;
}

void EngineAdapter::MakeRoom(const std::vector<size_t>& devices, const std::string& device,
                             const Job& job, const absl::Status& out_of_memory) const {
  const int64_t dropped = DropKeptIn(devices);
  Log(LogLevel::kWarning, "device_out_of_memory",
      {{"device", device},
       {"job", job.name()},
       {"dropped", dropped},
       {"error", std::string(out_of_memory.message())}});
}

absl::StatusOr<std::shared_ptr<Matrix>> EngineAdapter::Prepare(
    kernels::CscMatrix raw, kernels::Layout layout, const PrepareOptions& options) const {
  RETURN_IF_ERROR(CheckStop(options.stop, kPreparing));
  auto canonical = kernels::Canonicalize(std::move(raw), layout,
                                         {.sort_and_sum = options.sort_and_sum,
                                          .require_square = true,
                                          .pattern_only = options.pattern_only,
                                          .threads = options_.threads,
                                          .known = options.arrived.known});
  if (!canonical.ok()) return ToAbsl(canonical.status());
  RETURN_IF_ERROR(CheckStop(options.stop, kPreparing));
  kernels::CscMatrix csc = std::move(canonical).value();
  // Columns that need not be sorted are stored as they came.
  const bool as_they_came = layout == kernels::Layout::kCsc && !options.sort_and_sum;
  ArrayDigests digests = as_they_came ? options.arrived.digests : ArrayDigests{};
  if (!digests.pattern) digests.pattern = PatternDigest(csc.n_cols, csc.col_ptr, csc.row_idx);
  // Entries that were in order: none has been added to another one since.
  const kernels::KnownOfArrays& known = options.arrived.known;
  const bool range_known = known.canonical_indices && known.range;
  auto matrix = std::make_shared<Matrix>();
  matrix->pattern = std::make_shared<const StoredPattern>(
      kernels::Pattern{csc.n_rows, csc.n_cols, std::move(csc.col_ptr), std::move(csc.row_idx)},
      *digests.pattern);
  matrix->values = std::move(csc.values);
  Describe(options, range_known ? &*known.range : nullptr, digests.values, matrix.get());
  RETURN_IF_ERROR(CheckStop(options.stop, kPreparing));
  return matrix;
}

absl::StatusOr<std::shared_ptr<Matrix>> EngineAdapter::PrepareValues(
    KnownPattern on, kernels::Array<double> values, const PrepareOptions& options) const {
  auto matrix = std::make_shared<Matrix>();
  matrix->pattern = std::move(on.pattern);
  matrix->values = std::move(values);
  const std::optional<kernels::ValueRange>& range = options.arrived.known.range;
  if (!range || !range->finite) {
    const std::span<const int32_t> places =
        on.places ? std::span<const int32_t>(*on.places) : std::span<const int32_t>();
    if (const auto checked = kernels::CheckFinite(matrix->csc(), places, options_.threads);
        !checked.ok()) {
      return ToAbsl(checked);
    }
  }
  RETURN_IF_ERROR(CheckStop(options.stop, kPreparing));
  const std::optional<Digest> digest = on.places ? std::nullopt : options.arrived.digests.values;
  on.places.reset();  // the diagnosis takes memory, too
  Describe(options, range ? &*range : nullptr, digest, matrix.get());
  RETURN_IF_ERROR(CheckStop(options.stop, kPreparing));
  return matrix;
}

void EngineAdapter::Describe(const PrepareOptions& options, const kernels::ValueRange* range,
                             const std::optional<Digest>& values, Matrix* matrix) const {
  matrix->pattern_only = options.pattern_only;
  matrix->diagnosis = options.pattern_only
                          ? DiagnosePattern(matrix->csc(), options_.threads)
                          : kernels::Diagnose(matrix->csc(), options_.threads, range,
                                              matrix->pattern->structural_rank());
  if (matrix->diagnosis.explicit_zeros == 0) {
    matrix->pattern->LearnRank(matrix->diagnosis.structural_rank);
  }
  if (!options.pattern_only) matrix->value_digest = values ? *values : ValueDigest(matrix->values);
  matrix->label = options.label;
  matrix->created = options_.clock->WallNow();
}

int64_t EngineAdapter::RanksBytes() const { return ranks_ ? devices_[*ranks_].memory_bytes : 0; }

template <class Begin>
absl::StatusOr<std::unique_ptr<kernels::RanksInput>> EngineAdapter::BeginInput(
    const Begin& begin, const GiveUp& give_up) const {
  const auto full = [](const auto& input) {
    return input.status().reason() == reason::kDeviceOutOfMemory;
  };
  auto input = begin();
  if (full(input) && DropKept(*ranks_) > 0) input = begin();
  while (full(input) && give_up && give_up()) input = begin();
  if (!input.ok()) return ToAbsl(input.status());
  return *std::move(input);
}

absl::StatusOr<std::unique_ptr<kernels::RanksInput>> EngineAdapter::BeginOverRanks(
    std::span<const int64_t> pointers, int64_t nnz, kernels::Layout layout, bool sort_and_sum,
    const GiveUp& give_up) const {
  return BeginInput(
      [&] { return engine_.Ranks()->BeginInput(pointers, nnz, layout, sort_and_sum); }, give_up);
}

absl::StatusOr<std::unique_ptr<kernels::RanksInput>> EngineAdapter::BeginOverRanks(
    const kernels::OverRanks& like, kernels::Layout layout, const GiveUp& give_up) const {
  return BeginInput([&] { return engine_.Ranks()->BeginInput(like, layout); }, give_up);
}

absl::StatusOr<std::unique_ptr<kernels::RanksOutput>> EngineAdapter::BeginOutput(
    const kernels::OverRanks& of, kernels::Layout layout) const {
  auto output = engine_.Ranks()->BeginOutput(of, layout);
  if (output.status().reason() == reason::kDeviceOutOfMemory && DropKept(*ranks_) > 0) {
    output = engine_.Ranks()->BeginOutput(of, layout);
  }
  if (!output.ok()) return ToAbsl(output.status());
  return *std::move(output);
}

Matrix::OverSha256 EngineAdapter::HashOverRanks(const Matrix& a, bool by_rows) const {
  constexpr int64_t kPiece = 1 << 17;  // elements
  const auto from = BeginOutput(*a.over, by_rows ? kernels::Layout::kCsr : kernels::Layout::kCsc);
  if (!from.ok()) return {};
  const int64_t n = (*from)->n(), nnz = (*from)->nnz();
  bool read = true;
  const auto hash = [&]<class T>(Sha256Hasher& hasher, int64_t count, T) {
    std::vector<T> piece;
    for (int64_t first = 0; first < count && read; first += kPiece) {
      piece.resize(static_cast<size_t>(std::min(kPiece, count - first)));
      read = (*from)->Read(first, std::span<T>(piece)).ok();
      hasher.Update(std::span<const T>(piece));
    }
  };
  Sha256Hasher pattern, values;
  pattern.Update(&n, sizeof n);
  pattern.Update(&nnz, sizeof nnz);
  hash(pattern, n + 1, int64_t{});
  hash(pattern, nnz, int32_t{});
  hash(values, nnz, double{});
  if (!read) return {};
  return {pattern.Finish(), values.Finish()};
}

bool EngineAdapter::SameOverRanks(const Matrix& a, const Matrix& b) const {
  if (a.over == nullptr || b.over == nullptr) return false;
  const auto same = engine_.Ranks()->Same(*a.over, *b.over);
  return same.ok() && *same;
}

absl::StatusOr<std::shared_ptr<Matrix>> EngineAdapter::PrepareOverRanks(
    kernels::RanksInput& input, const PrepareOptions& options) const {
  auto arrived = input.Finish({.stop = options.stop, .progress = nullptr, .threads = 0});
  if (!arrived.ok()) return ToAbsl(arrived.status());
  auto matrix = std::make_shared<Matrix>();
  kernels::CscMatrix& stand_in = arrived->stand_in;
  const Digest digest = PatternDigest(stand_in.n_cols, stand_in.col_ptr, stand_in.row_idx);
  matrix->values = std::move(stand_in.values);
  matrix->pattern = std::make_shared<const StoredPattern>(
      kernels::Pattern{stand_in.n_rows, stand_in.n_cols, std::move(stand_in.col_ptr),
                       std::move(stand_in.row_idx)},
      digest);
  matrix->value_digest = ValueDigest(matrix->values);
  matrix->over = std::move(arrived->matrix);
  matrix->diagnosis = std::move(arrived->diagnosis);
  matrix->diagnosis.findings.emplace_back(kLiesOverRanks);
  matrix->label = options.label;
  matrix->created = options_.clock->WallNow();
  return matrix;
}

absl::StatusOr<bool> EngineAdapter::CheckRows(const kernels::PatternView& rows,
                                              const PrepareOptions& options) const {
  auto sorted = kernels::CheckRows(rows, {.sort_and_sum = options.sort_and_sum,
                                          .threads = options_.threads,
                                          .known = options.arrived.known});
  if (!sorted.ok()) return ToAbsl(sorted.status());
  return *sorted;
}

absl::StatusOr<KnownPattern> EngineAdapter::TurnRows(kernels::Pattern rows,
                                                     const PrepareOptions& options) const {
  RETURN_IF_ERROR(CheckStop(options.stop, kPreparing));
  auto turned = kernels::TurnRows(
      std::move(rows), {.stop = options.stop, .progress = nullptr, .threads = options_.threads});
  if (!turned.ok()) return ToAbsl(turned.status());
  kernels::Pattern& columns = turned->columns;
  const Digest digest = PatternDigest(columns.n_cols, columns.col_ptr, columns.row_idx);
  return KnownPattern{std::make_shared<const StoredPattern>(std::move(columns), digest),
                      std::make_shared<const kernels::Array<int32_t>>(std::move(turned->to))};
}

namespace {

std::string PlacesKey(const std::string& tenant, const StoredPattern& pattern) {
  return absl::StrCat("places|", tenant.size(), ":", tenant, pattern.fingerprint().ToBytes());
}

}  // namespace

void EngineAdapter::KeepPlaces(const std::string& tenant, const KnownPattern& of) const {
  plans_.Put(tenant, PlacesKey(tenant, *of.pattern),
             std::make_shared<const KeptPlan>(KeptPlan{.plan = nullptr, .places = of.places}),
             static_cast<int64_t>(of.places->size() * sizeof(int32_t)));
}

absl::StatusOr<RowPlaces> EngineAdapter::PlacesByRows(const std::string& tenant,
                                                      const StoredPattern& pattern,
                                                      kernels::StopToken stop) const {
  if (const auto kept = plans_.Get(PlacesKey(tenant, pattern))) return kept->places;
  auto places = kernels::PlacesByRows(
      pattern.csc(), {.stop = std::move(stop), .progress = nullptr, .threads = options_.threads});
  if (!places.ok()) return ToAbsl(places.status());
  return std::make_shared<const kernels::Array<int32_t>>(std::move(places).value());
}

int64_t EngineAdapter::TurnBytes(int64_t n, int64_t nnz) {
  return nnz * static_cast<int64_t>(sizeof(int32_t)) + (n + 1) * 8 +
         n * static_cast<int64_t>(sizeof(int32_t));
}

int64_t EngineAdapter::DiagnoseBytes(int64_t n, int64_t nnz) {
  return kernels::DiagnoseBytes(n, nnz);
}

int64_t EngineAdapter::PrepareBytes(int64_t n, int64_t nnz, kernels::Layout layout,
                                    const PrepareOptions& options) {
  // A pattern is diagnosed with values of 1.
  const int64_t ones = options.pattern_only ? nnz * static_cast<int64_t>(sizeof(double)) : 0;
  return std::max(kernels::CanonicalizeBytes(
                      n, nnz, layout,
                      {.sort_and_sum = options.sort_and_sum, .pattern_only = options.pattern_only}),
                  kernels::DiagnoseBytes(n, nnz) + ones);
}

std::shared_ptr<ValuesAhead> EngineAdapter::BeginAhead(
    const std::string& tenant, const std::shared_ptr<const StoredPattern>& pattern) const {
  const int device = pattern->values_go_to();
  const int64_t bytes = pattern->nnz() * int64_t{sizeof(double)};
  if (device == StoredPattern::kNowhere || bytes < options_.least_ahead_bytes) return nullptr;
  return on_devices_.BeginAhead(tenant, device, pattern, options_.metrics);
}

int EngineAdapter::threads() const { return kernels::ResolveThreads(options_.threads); }

absl::StatusOr<ResolvedBuild> EngineAdapter::Resolve(const ParsedSpec& spec, const Matrix& a,
                                                     const Matrix* pattern, bool for_estimate,
                                                     kernels::StopToken stop) const {
  const bool takes_pattern = spec.given.as == GivenMatrix::As::kPattern;
  if (pattern && takes_pattern && pattern->n() != a.n()) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kPatternSizeMismatch,
                     absl::StrCat("pattern_matrix is of size ", pattern->n(), ", the matrix of ",
                                  a.n(), "; they must be equal"))
        .Field(absl::StrCat(std::string(kernels::TraitsOf(spec.spec.engine).options_field),
                            ".pattern_matrix"));
  }
  kernels::PreconditionerSpec asked = spec.spec;
  if (pattern && !takes_pattern) {
    ASSIGN_OR_RETURN(asked.near_null,
                     NearNullOf(*pattern, spec.given.as, a.n(),
                                std::string(kernels::TraitsOf(spec.spec.engine).options_field)));
  }
  ResolvedBuild build;
  if (for_estimate && spec.spec.engine == kernels::EngineKind::kAuto) {
    build.spec = spec.spec;
    build.choice.set_reason(
        "AUTO has not yet built on this pattern, and finds out by solves; the figures bound "
        "whatever "
        "it may come to");
  } else {
    if (a.pattern_only && !for_estimate) return ValuesNeeded("a build");
    const kernels::PatternView user =
        pattern ? kernels::PatternView(pattern->csc()) : kernels::PatternView{};
    auto resolved =
        engine_.Resolve(asked, a.csc(), a.diagnosis, pattern && takes_pattern ? &user : nullptr,
                        {.stop = stop, .progress = nullptr, .threads = options_.threads});
    if (!resolved.ok()) return ToAbsl(resolved.status());
    build.spec = resolved->spec;
    build.choice.set_reason(resolved->reason);
  }
  build.over_ranks = a.over != nullptr;
  build.by_auto = spec.spec.engine == kernels::EngineKind::kAuto;
  build.choice.set_engine(ToProto(build.spec.engine));
  const kernels::EngineTraits& engine = kernels::TraitsOf(build.spec.engine);
  const bool scaled = build.spec.scaling != kernels::ScalingMode::kNone;
  build.regrow = spec.regrow && (engine.grows_pattern || scaled);
  build.proto = ToProto(build.spec, spec.given, build.regrow);
  if (for_estimate || build.spec.engine == kernels::EngineKind::kNone) return build;
  // Matrices count by content, not by handle: an upload sent again has another handle.
  const std::string options = ToProto(build.spec, GivenMatrix()).SerializeAsString();
  std::string base = "-";
  if (pattern && engine.takes_pattern && takes_pattern) {
    base = pattern->pattern_fingerprint().ToBytes();
  } else if (build.spec.near_null != nullptr) {
    base = absl::StrCat(static_cast<int>(spec.given.as), pattern->pattern_fingerprint().ToBytes(),
                        pattern->value_fingerprint().ToBytes());
  }
  const std::string own = a.pattern_fingerprint().ToBytes();
  build.plan_key = absl::StrCat(own, base, "|", options);
  build.content_key = absl::StrCat(own, a.value_fingerprint().ToBytes(), base, "|", options);
  if (kernels::TimeDecides(build.spec)) build.content_key += NeverTheSame();
  if (build.regrow) build.content_key += "|regrow";
  return build;
}

absl::StatusOr<kernels::BuildEstimate> EngineAdapter::Estimate(const ResolvedBuild& build,
                                                               const Matrix& a,
                                                               const Matrix* pattern,
                                                               kernels::StopToken stop) const {
  if (build.spec.engine == kernels::EngineKind::kNone) return kernels::BuildEstimate{};
  const kernels::PatternView user =
      pattern ? kernels::PatternView(pattern->csc()) : kernels::PatternView{};
  auto estimate =
      engine_.Estimate(build.spec, a.csc(), pattern ? &user : nullptr,
                       {.stop = stop, .progress = nullptr, .threads = options_.threads});
  if (!estimate.ok()) return ToAbsl(estimate.status());
  return *estimate;
}

absl::Status EngineAdapter::AdmitBuild(const kernels::BuildEstimate& estimate) const {
  if (options_.max_build_bytes <= 0 || estimate.host_bytes <= options_.max_build_bytes) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kBuildTooLarge,
                   absl::StrCat("the build may take ", estimate.host_bytes,
                                " bytes of host memory; the limit is ", options_.max_build_bytes,
                                " (--max-build-bytes); use a lower pattern power, a threshold "
                                "(keep_tau), a sparser pattern or fewer steps (k_max, max_steps)"))
      .Meta("actual", estimate.host_bytes)
      .Meta("limit", options_.max_build_bytes);
}

absl::Status EngineAdapter::AdmitResult(const kernels::BuildEstimate& estimate) const {
  if (options_.max_result_bytes <= 0 || estimate.download_bytes <= options_.max_result_bytes) {
    return absl::OkStatus();
  }
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kBuildTooLarge,
                   absl::StrCat("the preconditioner may take ", estimate.download_bytes,
                                " bytes and could not be stored; the limit is ",
                                options_.max_result_bytes,
                                " (--preconditioner-store-bytes); use a lower pattern power, a "
                                "threshold (keep_tau), a sparser pattern or fewer steps (k_max, "
                                "max_steps)"))
      .Meta("actual", estimate.download_bytes)
      .Meta("limit", options_.max_result_bytes);
}

absl::StatusOr<kernels::BuildResult> EngineAdapter::PlanAndBuild(
    const std::string& tenant, const kernels::PreconditionerSpec& spec, const std::string& key,
    const Matrix& a, const Matrix* pattern, const kernels::Context& context,
    std::shared_ptr<const kernels::Plan>* plan, BuiltPreconditioner* built) const {
  if (!*plan) {
    const TimePoint start = options_.clock->Now();
    const kernels::PatternView user =
        pattern ? kernels::PatternView(pattern->csc()) : kernels::PatternView{};
    const auto make = [&]() -> absl::Status {
      plan->reset();
      auto made = engine_.MakePlan(spec, a.csc(), pattern ? &user : nullptr, context);
      if (!made.ok()) return ToAbsl(made.status());
      *plan = std::move(made).value();
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(make());
    // Each build would pay for what others left on the device.
    if ((*plan)->timings().tables_in_waves && DropKeptIn(DevicesOf(context)) > 0) {
      RETURN_IF_ERROR(make());
    }
    const kernels::DeviceTimings timings = (*plan)->timings();
    const double copies = timings.host_to_device_ms + timings.device_to_host_ms;
    built->plan_ms = std::max(0.0, ToMs(options_.clock->Now() - start) - copies);
    built->host_to_device_ms = timings.host_to_device_ms;
    built->device_to_host_ms = timings.device_to_host_ms;
    if ((*plan)->serves_new_values()) {
      plans_.Put(tenant, key,
                 std::make_shared<const KeptPlan>(
                     KeptPlan{.plan = *plan, .first_counts = built->first_counts}),
                 (*plan)->host_bytes(), DevicesOf(context), (*plan)->device_bytes());
    }
  }
  const TimePoint start = options_.clock->Now();
  auto result = (*plan)->Build(spec, a.csc(), context);
  if (!result.ok()) return ToAbsl(result.status());
  if (result->grown != nullptr) {
    plans_.Put(tenant, key,
               std::make_shared<const KeptPlan>(
                   KeptPlan{.plan = result->grown, .first_counts = built->first_counts}),
               result->grown->host_bytes(), DevicesOf(context), result->grown->device_bytes());
  }
  const kernels::DeviceTimings& timings = result->timings;
  const double others = timings.host_to_device_ms + timings.device_to_host_ms + timings.assemble_ms;
  built->build_ms = std::max(0.0, ToMs(options_.clock->Now() - start) - others);
  built->assemble_ms = timings.assemble_ms;
  built->host_to_device_ms += timings.host_to_device_ms;
  built->device_to_host_ms += timings.device_to_host_ms;
  return std::move(result).value();
}

// A plan is a device's, and a tenant's own: what another tenant computes must not show in one's
// timings.
std::string EngineAdapter::PlanKey(const std::vector<size_t>& devices, const std::string& tenant,
                                   const ResolvedBuild& build) {
  return absl::StrCat(absl::StrJoin(devices, ","), "|", tenant.size(), ":", tenant, build.plan_key);
}

absl::StatusOr<BuiltPreconditioner> EngineAdapter::Build(const std::string& tenant,
                                                         const ResolvedBuild& build,
                                                         const Matrix& a, const Matrix* pattern,
                                                         const Assignment& at, Job& job) const {
  ASSIGN_OR_RETURN(const size_t index, IndexOf(at));
  JobBridge bridge(job, options_.threads);
  kernels::Context context = bridge.context(static_cast<int>(index));
  for (size_t i = 0; at.devices.size() > 1 && i < at.devices.size(); ++i) {
    ASSIGN_OR_RETURN(const size_t shared, IndexOf({.device = at.devices[i]}));
    context.devices.push_back(static_cast<int>(shared));
  }
  const auto sent = a.ahead != nullptr ? a.ahead->copy() : nullptr;
  context.ahead = sent.get();
  // A's own values on one GPU: not those of A scaled, nor on several.
  if (kernels::TraitsOf(build.spec.engine).on_gpu != nullptr && context.devices.empty() &&
      at.device != kCpuName && build.spec.scaling == kernels::ScalingMode::kNone) {
    a.pattern->ValuesGoTo(context.device);
  }
  std::shared_ptr<PartialMatrix> partial;
  if (job.kind() == v1::JOB_KIND_BUILD) {
    partial = std::make_shared<PartialMatrix>([weak = job.weak_from_this()] {
      if (const auto told = weak.lock()) told->TellPartial();
    });
    context.result = partial.get();
    job.SetPartial(partial);
  }
  kernels::PreconditionerSpec spec = build.spec;
  if (options_.max_build_bytes > 0 && a.over == nullptr) {
    spec.max_nnz = std::max<int64_t>(1, options_.max_build_bytes / kBytesPerEntry);
  }
  const std::string key = PlanKey(DevicesOf(context), tenant, build);
  std::shared_ptr<const kernels::Plan> plan;
  const auto kept = build.regrow ? nullptr : plans_.Get(key);
  if (kept) plan = kept->plan;
  BuiltPreconditioner built;
  built.rebuild = plan != nullptr;
  auto result = PlanAndBuild(tenant, spec, key, a, pattern, context, &plan, &built);
  if (ReasonOf(result.status()) == reason::kDeviceOutOfMemory) {
    MakeRoom(DevicesOf(context), at.device, job, result.status());
    result = PlanAndBuild(tenant, spec, key, a, pattern, context, &plan, &built);
  }
  if (!result.ok()) return result.status();
  if (job.kind() == v1::JOB_KIND_BUILD) on_devices_.EndAhead(a);  // a solve may want it, too
  built.kernel = std::move(result->preconditioner);
  if (partial != nullptr) partial->Finish(built.kernel);
  on_devices_.KeepCopy(tenant, index, built.kernel);
  built.quality = ToProto(result->quality);
  if (kept && (result->quality.pattern_reused || result->quality.scaling_reused)) {
    built.earlier_counts = kept->first_counts;
  }
  if (Metrics* metrics = options_.metrics) {
    if (built.rebuild) {
      metrics->Rebuild();
    } else {
      metrics->BuildPhase("plan", built.plan_ms / 1e3);
    }
    metrics->BuildPhase("build", built.build_ms / 1e3);
    metrics->BuildPhase("assemble", built.assemble_ms / 1e3);
    if (at.device != kCpuName) {
      metrics->BuildPhase("host_to_device", built.host_to_device_ms / 1e3);
      metrics->BuildPhase("device_to_host", built.device_to_host_ms / 1e3);
      metrics->Columns("left_to_host", result->timings.host_columns);
    }
    for (const auto& [what, count] : result->quality.Counts()) metrics->Columns(what, count);
  }
  return built;
}

absl::StatusOr<kernels::Method> EngineAdapter::ResolveMethod(kernels::Method method, bool for_cg,
                                                             const Matrix& a) const {
  if (a.pattern_only) return ValuesNeeded("a solve");
  auto resolved = kernels::ResolveMethod(method, for_cg, a.diagnosis);
  if (!resolved.ok()) return ToAbsl(resolved.status(), "header");
  return *resolved;
}

absl::StatusOr<size_t> EngineAdapter::IndexOf(const Assignment& at) const {
  const auto named = std::find(names_.begin(), names_.end(), at.device);
  if (named != names_.end()) {
    const std::vector<size_t>& slots = slots_[static_cast<size_t>(named - names_.begin())];
    return slots[std::min(at.slot, slots.size() - 1)];
  }
  return MakeError(absl::StatusCode::kInternal, reason::kInternal,
                   absl::StrCat("work for '", at.device, "', which is no device here"));
}

}  // namespace spaid::server
