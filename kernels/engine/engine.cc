#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/parallel.h"
#include "kernels/engine/cuda_library.h"
#include "kernels/engine/ladder_rungs.h"
#include "kernels/engine/m_storage.h"
#include "kernels/engine/options.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/engine/scaled_plan.h"
#include "kernels/engine/scaled_solve.h"
#include "kernels/krylov/null_space.h"
#include "kernels/krylov/solve_device_estimate.h"

namespace spaid::kernels {
namespace {

// "1, 2"
std::string Names(const std::vector<int>& devices) {
  std::string names;
  for (const int device : devices) names += (names.empty() ? "" : ", ") + std::to_string(device);
  return names;
}

Status SolveNeedsValues() {
  return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                "the matrix holds a pattern only; a solve needs its values")
      .At("values");
}

Status NoGpu() {
  return Status(StatusCode::kInternal, "NO_SUCH_DEVICE",
                "nothing can be placed on a device that is no GPU of this engine's");
}

class PlacedOperator final : public DeviceOperator {
 public:
  explicit PlacedOperator(std::shared_ptr<const CudaOperator> op) : op_(std::move(op)) {}
  int64_t device_bytes() const override { return op_->device_bytes(); }
  const void* order() const override { return op_->order(); }
  const CudaOperator& op() const { return *op_; }
  const std::shared_ptr<const CudaOperator>& shared() const { return op_; }

 private:
  const std::shared_ptr<const CudaOperator> op_;
};

Engine::Placed AsPlaced(Result<std::shared_ptr<const CudaOperator>> op) {
  if (!op.ok()) return op.status();
  return std::shared_ptr<const DeviceOperator>(std::make_shared<PlacedOperator>(*std::move(op)));
}

// The same over ranks.
class SpreadOperator final : public DeviceOperator {
 public:
  explicit SpreadOperator(std::shared_ptr<const OverRanks> over) : over_(std::move(over)) {}
  int64_t device_bytes() const override { return over_->bytes(); }
  const OverRanks& over() const { return *over_; }

 private:
  const std::shared_ptr<const OverRanks> over_;
};

Engine::Placed AsPlaced(RanksDevice::Made over) {
  if (!over.ok()) return over.status();
  return std::shared_ptr<const DeviceOperator>(std::make_shared<SpreadOperator>(*std::move(over)));
}

// Refuses work on a stand-in.
Status NotHere(const std::string& why) {
  return Status(StatusCode::kFailedPrecondition, "MATRIX_OVER_RANKS",
                "the matrix lies over the ranks alone: " + why +
                    "; they build Jacobi, SPAI, FSAI, ParaSails, BoomerAMG and GAMG, and solve by "
                    "CG, BiCGSTAB and GMRES")
      .At("matrix");
}

// Says what AUTO misses there.
constexpr char kLadderOverRanks[] =
    "the matrix lies over the ranks, which have no multigrid, MINRES, IDR or dense LU and do not "
    "scale it, so that a solve goes on with FSAI, static and dynamic SPAI alone";

// A band of some columns of the mean length of A's.
Pattern BandLike(const RanksDevice::Shares& a) {
  constexpr int64_t kMostColumns = 4096;
  const int64_t n = std::min(a.n, kMostColumns);
  const int64_t length = std::clamp<int64_t>((a.nnz + a.n / 2) / a.n, 1, n);
  Pattern band{n, n, {0}, {}};
  for (int64_t j = 0; j < n; ++j) {
    const int64_t first = std::clamp<int64_t>(j - length / 2, 0, n - length);
    for (int64_t i = first; i < first + length; ++i) {
      band.row_idx.push_back(static_cast<int32_t>(i));
    }
    band.col_ptr.push_back(std::ssize(band.row_idx));
  }
  return band;
}

// Refuses an engine that ranks alone build, where they do not.
Status RanksNeeded(const EngineTraits& engine) {
  return Status(StatusCode::kFailedPrecondition, "RANKS_NEEDED",
                std::string(engine.name) +
                    " is built by the ranks of MPI alone, device mpi:P, which is not this one; "
                    "start the server as mpiexec -n P spaid --devices=mpi, or name another engine")
      .At("engine");
}

Result<ResolvedSpec> ResolveOverRanks(const PreconditionerSpec& spec, const CscView& a,
                                      const Diagnosis& diagnosis, const PatternView* user_pattern,
                                      const Context& context) {
  if (user_pattern != nullptr) return NotHere("a pattern of yours cannot be spread beside it");
  ResolvedSpec resolved{spec, ""};
  if (spec.engine == EngineKind::kAuto) {
    auto chosen = FindEngine(spec.engine)->Resolve(spec, a, diagnosis, user_pattern, context);
    if (!chosen.ok()) return chosen.status();
    resolved = *std::move(chosen);
    resolved.spec.scaling = ScalingMode::kNone;
    resolved.reason += std::string("; ") + kLadderOverRanks;
  }
  const PreconditionerEngine& engine = *FindEngine(resolved.spec.engine);
  if (engine.traits().kind == EngineKind::kNone) return resolved;
  if (!engine.traits().over_ranks) {
    return NotHere(std::string(engine.traits().name) + " is not built over ranks");
  }
  if (engine.traits().ranks_alone) {
    return engine.Resolve(resolved.spec, a, diagnosis, user_pattern, context);
  }
  resolved.spec = engine.OwnOptions(resolved.spec);
  if (resolved.spec.block_size != 1) return NotHere("they do not invert blocks of its diagonal");
  if (resolved.spec.scaling != ScalingMode::kNone) return NotHere("they do not scale it");
  if (resolved.spec.static_spai.pattern.row_match) return NotHere("they do not match its rows");
  if (engine.TimeDecides(resolved.spec)) return NotHere("no clock ends growth there (time_budget)");
  return resolved;
}

class DevicesEngine final : public Engine {
 public:
  DevicesEngine(bool cpu, std::vector<std::shared_ptr<CudaDevice>> gpus,
                std::shared_ptr<RanksDevice> ranks)
      : gpus_(std::move(gpus)), first_gpu_(cpu ? 1 : 0), ranks_(std::move(ranks)) {}

  std::vector<DeviceInfo> Devices() const override {
    std::vector<DeviceInfo> devices;
    if (first_gpu_ > 0) devices.push_back(CpuDevice());
    for (const auto& gpu : gpus_) devices.push_back(gpu->info());
    if (ranks_ != nullptr) devices.push_back(ranks_->info());
    return devices;
  }

  RanksDevice* Ranks() const override { return ranks_.get(); }

  DeviceState State(int device) const override {
    if (IsRanks(device)) {
      return {.used_bytes = ranks_->used_bytes(), .limit_bytes = ranks_->info().memory_bytes};
    }
    const auto gpu = Gpu(device);
    if (gpu == nullptr) return {};
    return {
        .lost = gpu->lost(), .used_bytes = gpu->used_bytes(), .limit_bytes = gpu->memory_limit()};
  }

  Status Probe(int device) const override {
    if (IsRanks(device)) return ranks_->Probe();
    const auto gpu = Gpu(device);
    return gpu == nullptr ? Status() : gpu->Probe();
  }

  Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView& a,
                               const Diagnosis& diagnosis, const PatternView* user_pattern,
                               const Context& context) const override {
    if (Status s = CheckSpec(spec); !s.ok()) return s;
    if (Status s = CheckRanksAreHere(spec); !s.ok()) return s;
    if (IsStandIn(a)) return ResolveOverRanks(spec, a, diagnosis, user_pattern, context);
    return FindEngine(spec.engine)->Resolve(spec, a, diagnosis, user_pattern, context);
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    if (Status s = CheckSpec(spec); !s.ok()) return s;
    if (Status s = CheckRanksAreHere(spec); !s.ok()) return s;
    if (IsStandIn(a)) return GuessOverRanks(spec, a, context);
    const PreconditionerEngine& engine = *FindEngine(spec.engine);
    if (TraitsOf(spec.engine).ranks_alone) {
      return engine.Estimate(spec, a, user_pattern, context);
    }
    auto estimate = EstimateScaled(engine, spec, a, user_pattern, context);
    if (estimate.ok() && ranks_ != nullptr && spec.scaling == ScalingMode::kNone) {
      const auto bound = engine.BoundOverRanks(
          [&](const RanksDevice::BuildToBound& build) { return ranks_->Bound(a, build); }, spec,
          user_pattern, *estimate);
      if (!bound.ok()) return bound.status();
      estimate->rank_bytes = bound->all;
      estimate->halo_bytes = bound->halo;
    }
    if (estimate.ok() && (gpus_.empty() || TraitsOf(spec.engine).on_gpu == nullptr)) {
      estimate->device_bytes = estimate->device_bytes_min = 0;
      estimate->predicted_device_ms = 0;
    }
    return estimate;
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView& a,
                                               const PatternView* user_pattern,
                                               const Context& context) const override {
    if (Status s = CheckResolved(spec); !s.ok()) return s;
    const PreconditionerEngine& engine = *FindEngine(spec.engine);
    PlanFor of{.kind = spec.engine,
               .n = a.n_cols,
               .nnz = a.nnz(),
               .devices = DevicesFor(engine.traits(), context),
               .gpus = {},
               .ranks = nullptr};
    if (of.devices.size() == 1 && IsRanks(context.device)) {
      if (engine.traits().over_ranks) of.ranks = ranks_;  // else rank 0 builds, by itself
    } else if (Status s = FindGpus(of.devices, context, &of.gpus); !s.ok()) {
      return s;
    }
    if (engine.traits().ranks_alone && of.ranks == nullptr) return RanksNeeded(engine.traits());
    if (IsStandIn(a) && of.ranks == nullptr) return NotHere("a device of rank 0 builds nothing");
    if (spec.scaling != ScalingMode::kNone) {
      return MakeScaledPlan(engine, spec, a, user_pattern, std::move(of), context);
    }
    return engine.MakePlan(spec, a, user_pattern, std::move(of), context);
  }

  int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                           const SolveOptions& options, MForm form) const override {
    // Seven vectors of the levels, each of which has at most 0.8 of the unknowns of the one before
    // it, for one right-hand side, and for a block of them besides; and the scaling of A's.
    const int32_t columns = CudaColumnsFor(options.method, n_rhs);
    const int64_t vectors = 7 * 5 * (columns > 1 ? 1 + columns : 1);
    const int64_t cycle = form == MForm::kParts ? (vectors + 2) * 8 * n : 0;
    return kernels::SolveDeviceBytes(n, nnz_a, nnz_m, n_rhs, options) + cycle;
  }

  Result<SolveResult> Solve(const SolveCase& c, const Context& context) const override {
    if (c.there == nullptr) return SolveHere(c, context);
    const MForm form = c.preconditioner != nullptr ? c.preconditioner->form() : MForm::kMatrix;
    if (IsRanks(context.device)) {
      return NotOverRanks(c.options, form).empty() ? SolveOverRanks(c, *c.there, context)
                                                   : SolveHere(c, context);
    }
    const bool host_alone = c.preconditioner != nullptr && !HostAlone(c.options, form).empty();
    return host_alone ? SolveHere(c, context) : SolveThere(c, *c.there, context);
  }

  Placed Place(Operand operand, const Context& context) const override {
    if (IsRanks(context.device)) return PlaceOverRanks(operand, context);
    const auto gpu = Gpu(context.device);
    if (gpu == nullptr) return NoGpu();
    if (Status status = CheckDevice(context.device); !status.ok()) return status;
    if (operand.a == nullptr) return PlacePreconditioner(operand, gpu, context);
    const CscView& a = *operand.a;
    if (IsStandIn(a)) return NotHere("a GPU of rank 0 cannot have it");
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) return SolveNeedsValues();
    if (operand.old == nullptr) {
      return AsPlaced(Cuda().operator_of_matrix(gpu, a, /*fp32=*/false, context, nullptr));
    }
    const auto* placed = dynamic_cast<const PlacedOperator*>(operand.old.get());
    if (placed == nullptr || placed->op().device() != gpu) return NotOurs();
    return AsPlaced(Cuda().operator_with_values(placed->shared(), a, context));
  }

  Result<std::shared_ptr<CopyAhead>> BeginCopyAhead(int device, const double* values,
                                                    int64_t count) const override {
    const auto gpu = Gpu(device);
    if (gpu == nullptr) return std::shared_ptr<CopyAhead>();
    return Cuda().begin_copy_ahead(gpu, values, count * static_cast<int64_t>(sizeof(double)));
  }

  double CopyBytesPerSecond(const Context& context, bool on_host) const override {
    const auto gpu = on_host ? nullptr : Gpu(context.device);
    return gpu != nullptr ? gpu->CopyBytesPerSecond()
                          : HostCopyBytesPerSecond(ResolveThreads(context.threads));
  }

 private:
  static Placed PlacePreconditioner(const Operand& operand, const std::shared_ptr<CudaDevice>& gpu,
                                    const Context& context) {
    const auto* mine = dynamic_cast<const HostPreconditioner*>(operand.m);
    const auto* placed_a = dynamic_cast<const PlacedOperator*>(operand.beside);
    if (mine == nullptr || (operand.beside != nullptr && placed_a == nullptr)) return NotOurs();
    const CudaOperator* const beside = placed_a != nullptr ? &placed_a->op() : nullptr;
    if (mine->form() == MForm::kParts) {
      return AsPlaced(Cuda().place_amg(gpu, *mine->hierarchy(), context, beside));
    }
    if (mine->is_diagonal()) {
      return AsPlaced(Cuda().operator_of_diagonal(gpu, mine->matrix().values, beside));
    }
    const bool fp32 = operand.storage == Storage::kFp32;
    const std::shared_ptr<const BuiltOnDevice> copy = mine->device_copy();
    if (copy != nullptr && copy->device == gpu) {
      return AsPlaced(Cuda().operator_of_built(*copy, fp32, beside));
    }
    if (mine->is_factor()) {
      return AsPlaced(Cuda().operator_of_factors(gpu, mine->matrix(), mine->factor_rows(), fp32,
                                                 context, beside));
    }
    return AsPlaced(Cuda().operator_of_matrix(gpu, mine->matrix(), fp32, context, beside));
  }

  Status CheckRanksAreHere(const PreconditionerSpec& spec) const {
    const EngineTraits& engine = TraitsOf(spec.engine);
    return engine.ranks_alone && ranks_ == nullptr ? RanksNeeded(engine) : Status();
  }

  // The largest of what AUTO may come to there.
  Result<BuildEstimate> EstimateLadder(const PreconditionerSpec& spec, const CscView& a,
                                       const Context& context) const {
    BuildEstimate bound;
    for (const PreconditionerSpec& rung : SpecsOfRungs(spec)) {
      if (!TraitsOf(rung.engine).over_ranks) continue;
      const auto estimate = GuessOverRanks(rung, a, context);
      if (!estimate.ok()) return estimate.status();
      bound = Larger(bound, *estimate);
    }
    return bound;
  }

  // The cost is a guess by sizes alone: that of a band whose columns have the mean length.
  Result<BuildEstimate> GuessOverRanks(const PreconditionerSpec& spec, const CscView& a,
                                       const Context& context) const {
    if (spec.engine == EngineKind::kAuto) return EstimateLadder(spec, a, context);
    const auto there = ranks_->SpreadMatrix(a, context);
    if (!there.ok()) return there.status();
    const RanksDevice::Shares shares = ranks_->SharesOf(**there);
    const PreconditionerEngine& engine = *FindEngine(spec.engine);
    const EngineTraits& traits = engine.traits();
    if (traits.ranks_alone) {
      return GuessPetsc(spec, a.n_cols, shares.nnz, ResolveThreads(context.threads));
    }
    const Pattern band = BandLike(shares);
    const auto part = engine.Estimate(spec, {band, {}}, nullptr, context);
    if (!part.ok()) return part.status();
    const auto n = static_cast<double>(a.n_cols);
    const double times = n / static_cast<double>(band.n_cols);
    BuildEstimate e;
    e.nnz_m = static_cast<int64_t>(std::min(times * static_cast<double>(part->nnz_m), 9e17));
    e.download_bytes = CscBytes(a.n_cols, e.nnz_m);
    e.host_bytes = 64 * a.n_cols;
    e.predicted_ms = times * part->predicted_ms;
    e.flops = times * part->flops;
    // A bound, unlike all that: it reads what M has at most.
    double most = 1;  // entries of a column
    if (traits.grows_pattern) {
      most += traits.factored ? double(spec.fsai.k_max) * spec.fsai.s
                              : double(spec.dynamic_spai.max_steps) * spec.dynamic_spai.per_step;
    } else if (!traits.may_be_diagonal) {
      const int power = traits.factored ? spec.fsai.power : spec.static_spai.pattern.power;
      most = std::pow(static_cast<double>(shares.longest_column) + 1, power);
    }
    most = std::min(n, most);
    BuildEstimate sizes;
    sizes.nnz_m = static_cast<int64_t>(std::min(n * most, 9e17));
    if (most <= static_cast<double>(shares.longest_column) + 1) {
      sizes.nnz_m = std::min(sizes.nnz_m, shares.nnz + shares.n);
    }
    sizes.n2_max = static_cast<int64_t>(most);
    sizes.gram_nnz = shares.gram_nnz;
    const auto bound = engine.BoundOverRanks(
        [&](const RanksDevice::BuildToBound& build) { return ranks_->Bound(shares, build); }, spec,
        nullptr, sizes);
    if (!bound.ok()) return bound.status();
    e.rank_bytes = bound->all;
    e.halo_bytes = bound->halo;
    return e;
  }

  Placed PlaceOverRanks(const Operand& operand, const Context& context) const {
    if (operand.a != nullptr) {
      const CscView& a = *operand.a;
      if (static_cast<int64_t>(a.values.size()) != a.nnz()) return SolveNeedsValues();
      return AsPlaced(ranks_->SpreadMatrix(a, context));
    }
    const auto* mine = dynamic_cast<const HostPreconditioner*>(operand.m);
    if (mine == nullptr) return NotOurs();
    if (const auto copy = mine->ranks_copy()) return AsPlaced(RanksDevice::Made(copy));
    if (mine->form() != MForm::kMatrix) return NoGpu();
    return AsPlaced(ranks_->SpreadM(mine->matrix(), mine->is_factor(), context));
  }

  Result<SolveResult> SolveOverRanks(const SolveCase& c, const OnDevice& there,
                                     const Context& context) const {
    const auto start = Clock::now();
    const auto* a = dynamic_cast<const SpreadOperator*>(&there.a);
    if (a == nullptr) return NotOurs();
    const HostPreconditioner* m = nullptr;
    if (Status status = CheckPreconditioner(c.preconditioner, c.options.method, &m); !status.ok()) {
      return status;
    }
    double placing_ms = 0;
    std::shared_ptr<const DeviceOperator> placed;
    if (m != nullptr) {
      const auto placing = Clock::now();
      auto made = there.place_m(Storage::kFp64);
      placing_ms = MsSince(placing);
      if (!made.ok()) return made.status();
      placed = *std::move(made);
    }
    const auto* m_there = dynamic_cast<const SpreadOperator*>(placed.get());
    if (m != nullptr && m_there == nullptr) return NotOurs();
    SolveOptions options = c.options;
    if (options.null_space != nullptr && !options.null_space->IsOf(c.a)) {
      options.null_space = nullptr;
    }
    auto solved = ranks_->Solve(a->over(), m_there != nullptr ? &m_there->over() : nullptr, c.b,
                                c.x0, options, context);
    if (solved.ok()) {
      solved->solve_ms = MsSince(start) - placing_ms;
      Tell(m, {Storage::kFp64, "fp64: ranks store it so"}, &*solved);
    }
    return solved;
  }

  Result<SolveResult> SolveThere(const SolveCase& c, const OnDevice& there,
                                 const Context& context) const {
    const auto start = Clock::now();
    if (Status status = CheckDevice(context.device); !status.ok()) return status;
    const auto* placed_a = dynamic_cast<const PlacedOperator*>(&there.a);
    if (placed_a == nullptr) return NotOurs();
    const HostPreconditioner* m = nullptr;
    if (Status status = CheckPreconditioner(c.preconditioner, c.options.method, &m); !status.ok()) {
      return status;
    }
    auto stored = StorageOf(c.a, m, c.options, context);
    if (!stored.ok()) return stored.status();
    double placing_ms = 0;
    const CudaOperator* m_there = nullptr;
    std::shared_ptr<const DeviceOperator> placed;
    if (m != nullptr) {
      const auto placing = Clock::now();
      auto made = there.place_m(stored->storage);
      placing_ms = MsSince(placing);
      if (!made.ok()) return made.status();
      placed = *std::move(made);
      const auto* placed_m = dynamic_cast<const PlacedOperator*>(placed.get());
      if (placed_m == nullptr) return NotOurs();
      m_there = &placed_m->op();
    }
    auto solved =
        Cuda().solve(placed_a->op(), m_there, c.a, c.b, c.x0, c.options, context, nullptr);
    if (solved.ok()) {
      solved->solve_ms = MsSince(start) - placing_ms;
      Tell(m, *std::move(stored), &*solved);
    }
    return solved;
  }

  static Result<SolveResult> SolveHere(const SolveCase& c, const Context& context) {
    const CscView& a = c.a;
    if (IsStandIn(a)) return NotHere("a device of rank 0 solves nothing");
    const auto start = Clock::now();
    const HostPreconditioner* m = nullptr;
    if (Status status = CheckPreconditioner(c.preconditioner, c.options.method, &m); !status.ok()) {
      return status;
    }
    if (m != nullptr && m->form() == MForm::kOverRanks) {
      return NotHere("so does its M, by which a device of rank 0 cannot multiply");
    }
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) return SolveNeedsValues();
    const auto rows = CsrOperator::FromColumns(a, context);
    // Only a stop keeps the rows from being made. It is an outcome like any other, with the
    // residual of the initial guess, for which the columns will do.
    const ColumnOperator columns(a);
    const LinearOperator& op = rows.ok() ? static_cast<const LinearOperator&>(*rows) : columns;
    std::optional<ColumnOperator> m_columns;
    const LinearOperator* in_fp64 = nullptr;
    if (m != nullptr) {
      const auto made = m->Apply(context);
      in_fp64 = made.ok() ? *made : &m_columns.emplace(m->matrix());  // for the same reason
    }
    double place_ms = MsSince(start);
    auto stored = StorageOf(a, m, c.options, context);
    if (!stored.ok()) return stored.status();
    const LinearOperator* apply = in_fp64;
    std::unique_ptr<const LinearOperator> in_fp32;
    if (stored->storage == Storage::kFp32 && !m_columns) {
      const auto placing = Clock::now();
      in_fp32 = m->InFp32(ResolveThreads(context.threads));
      place_ms += MsSince(placing);
      apply = in_fp32.get();
    }
    SolveOptions options = c.options;
    if (options.null_space != nullptr && !options.null_space->IsOf(a)) options.null_space = nullptr;
    // By scaled rows, M is of them; CG and MINRES have the norm of M itself. What a null space
    // leaves is in A's own.
    const bool by_rows = m != nullptr && m->form() == MForm::kScaledRows &&
                         !ForSymmetric(options.method) && options.null_space == nullptr;
    auto solved = by_rows
                      ? SolveByScaledRows(op, *apply, m->row_scaling(), c.b, c.x0, options, context)
                      : kernels::Solve(op, apply, c.b, c.x0, options, context);
    if (solved.ok()) {
      solved->figures.place_ms = place_ms;
      solved->solve_ms = MsSince(start);  // that included
      Tell(m, *std::move(stored), &*solved);
    }
    return solved;
  }

  // `m`: the preconditioner as one of ours; null: there is none.
  static Status CheckPreconditioner(const Preconditioner* preconditioner, Method method,
                                    const HostPreconditioner** m) {
    *m = dynamic_cast<const HostPreconditioner*>(preconditioner);
    if (preconditioner != nullptr && *m == nullptr) return NotOurs();
    if (*m != nullptr && !(*m)->for_cg() && ForSymmetric(method)) {
      return PreconditionerNotSpd(method);
    }
    return {};
  }

  // Whether there is anything to store in fp32: not without M, nor with a diagonal; parts have the
  // precision that they were built in.
  static bool StoresM(const HostPreconditioner* m) {
    return m != nullptr && !m->is_diagonal() && m->form() != MForm::kParts;
  }

  static Result<MStorage> StorageOf(const CscView& a, const HostPreconditioner* m,
                                    const SolveOptions& options, const Context& context) {
    if (!StoresM(m)) return MStorage{};
    const int threads = ResolveThreads(context.threads);
    const ColumnOperator columns(a);
    MStorageCase of;
    of.bytes_fp64 = CountedBytes(a.n_cols, columns.bytes_per_apply(), m->bytes_per_apply(), options,
                                 kCountedIterations) /
                    kCountedIterations;
    const int products = options.method == Method::kBicgstab ? 2 : 1;
    of.bytes_fp32 = of.bytes_fp64 - products * static_cast<double>(m->values_per_product()) *
                                        (sizeof(double) - sizeof(float));
    of.fits_fp32 = [&] { return m->fits_fp32(threads); };
    return ChooseMStorage(of, options.m_storage);
  }

  static void Tell(const HostPreconditioner* m, MStorage stored, SolveResult* solved) {
    if (!StoresM(m)) return;
    solved->m_storage = stored.storage;
    solved->storage_reason = std::move(stored.reason);
  }

  // The GPUs among those that share a plan; none: the CPU computes.
  Status FindGpus(const std::vector<int>& devices, const Context& context,
                  std::vector<std::shared_ptr<CudaDevice>>* gpus) const {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (Status status = CheckDevice(devices[i]); !status.ok()) return status;
      auto gpu = Gpu(devices[i]);
      const bool twice = std::find(gpus->begin(), gpus->end(), gpu) != gpus->end();
      if ((i == 0 && devices[i] != context.device) ||
          (devices.size() > 1 && (gpu == nullptr || twice))) {
        return Status(StatusCode::kInternal, "NO_SUCH_DEVICE",
                      "devices " + Names(devices) +
                          " cannot share a build: name different GPUs, and device " +
                          std::to_string(context.device) + " first");
      }
      if (gpu != nullptr) gpus->push_back(std::move(gpu));
    }
    return {};
  }

  bool IsRanks(int device) const {
    return ranks_ != nullptr && device == first_gpu_ + static_cast<int>(gpus_.size());
  }

  // Null: `device` is the CPU, the ranks, or none of ours.
  std::shared_ptr<CudaDevice> Gpu(int device) const {
    const int i = device - first_gpu_;
    return i >= 0 && i < static_cast<int>(gpus_.size()) ? gpus_[static_cast<size_t>(i)] : nullptr;
  }

  Status CheckDevice(int device) const {
    const auto gpu = Gpu(device);
    if (gpu == nullptr) {
      if ((first_gpu_ > 0 && device == 0) || IsRanks(device)) return {};
      return Status(StatusCode::kInternal, "NO_SUCH_DEVICE",
                    "device " + std::to_string(device) + " is none of this engine's");
    }
    return CheckNotLost(*gpu);
  }

  const std::vector<std::shared_ptr<CudaDevice>> gpus_;
  const int first_gpu_;                       // index in Devices()
  const std::shared_ptr<RanksDevice> ranks_;  // behind the GPUs; null: none
};

}  // namespace

std::vector<int> DevicesFor(const EngineTraits& engine, const Context& context) {
  if (context.devices.empty() || engine.on_gpu == nullptr) return {context.device};
  return context.devices;
}

std::string_view HostAlone(const SolveOptions& options, MForm form) {
  const std::string_view why = HostAlone(options);
  if (!why.empty() || form != MForm::kScaledRows || ForSymmetric(options.method)) return why;
  return "solves with an M of A with its rows scaled are computed by the host alone";
}

std::string_view NotOverRanks(const SolveOptions& options, MForm form) {
  switch (options.method) {
    case Method::kMinres:
    case Method::kIdr:
      return "several processes solve by CG, BiCGSTAB and GMRES alone";
    default:
      break;
  }
  if (form == MForm::kParts) return "several processes do not solve with multigrid of ours";
  if (form == MForm::kScaledRows) {
    return "solves with an M of A with its rows scaled are computed by the host alone";
  }
  if (options.m_storage == Storage::kFp32) return "several processes store M in fp64 alone";
  return "";
}

int64_t SolveRanksBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, const SolveOptions& options) {
  constexpr int64_t kEntry = sizeof(int32_t) + sizeof(double), kVector = sizeof(double);
  // A by columns, as it comes, and by rows, which a transpose makes; M by rows, from pieces on
  // their way. PETSc's own methods take a dozen vectors, GMRES two and those of its basis.
  const int64_t basis = options.method == Method::kGmres ? options.restart + 4 : 12;
  const int64_t null_space = options.null_space != nullptr ? options.null_space->bytes() : 0;
  return 4 * nnz_a * kEntry + 4 * nnz_m * kEntry + (basis + 8) * n * kVector + null_space;
}

Status NotOurs() {
  return Status(StatusCode::kInvalidArgument, "PRECONDITIONER_MISMATCH",
                "the preconditioner was made by another engine; build it with this one")
      .At("preconditioner");
}

// Host work of a GPU's worker too: after the loss nobody shall think the device serves.
Status CheckNotLost(CudaDevice& gpu) {
  return gpu.lost() ? gpu.Failed(CudaFault::kDeviceLost, "an earlier error was its last")
                    : Status();
}

std::unique_ptr<Engine> MakeCpuEngine() { return MakeEngine(true, {}); }

std::unique_ptr<Engine> MakeEngine(bool cpu, std::vector<std::shared_ptr<CudaDevice>> gpus,
                                   std::shared_ptr<RanksDevice> ranks) {
  return std::make_unique<DevicesEngine>(cpu, std::move(gpus), std::move(ranks));
}

}  // namespace spaid::kernels
