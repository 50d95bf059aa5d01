#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/parallel.h"
#include "kernels/base/reasons.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/m_storage.h"
#include "kernels/engine/options.h"
#include "kernels/krylov/krylov_cuda.h"

namespace spaid::kernels {
namespace {

Status NoBuild() {
  return Status(StatusCode::kInvalidArgument, "NOTHING_TO_BUILD",
                "engine NONE has nothing to build; solve without a preconditioner")
      .At("engine");
}

Status PlanMismatch(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, reason::kPlanMismatch,
                what + "; make a plan for this matrix and spec")
      .At("plan");
}

// What of the options decides which pattern a plan has: a limit that it met is of no matter.
PatternOptions Shape(PatternOptions options) {
  options.max_nnz = 0;
  return options;
}

// "pattern_power 2 (not 1), keep_tau": what differs.
std::string Differences(const PatternOptions& plan, const PatternOptions& spec) {
  std::string out;
  const auto add = [&out](bool differs, const std::string& what) {
    if (differs) out += (out.empty() ? "" : ", ") + what;
  };
  add(plan.power != spec.power,
      "pattern_power " + std::to_string(plan.power) + " (not " + std::to_string(spec.power) + ")");
  add(plan.keep_tau != spec.keep_tau, "another keep_tau");
  add(plan.ensure_row != spec.ensure_row, "another ensure_row");
  add(plan.row_match != spec.row_match, "another row_match");
  return out;
}

// "1, 2"
std::string Names(const std::vector<int>& devices) {
  std::string names;
  for (const int device : devices) names += (names.empty() ? "" : ", ") + std::to_string(device);
  return names;
}

Status NotOurs() {
  return Status(StatusCode::kInvalidArgument, "PRECONDITIONER_MISMATCH",
                "the preconditioner was made by another engine; build it with this one")
      .At("preconditioner");
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
  const CudaOperator& op() const { return *op_; }
  const std::shared_ptr<const CudaOperator>& shared() const { return op_; }

 private:
  const std::shared_ptr<const CudaOperator> op_;
};

Result<std::shared_ptr<const DeviceOperator>> Placed(
    Result<std::shared_ptr<const CudaOperator>> op) {
  if (!op.ok()) return op.status();
  return std::shared_ptr<const DeviceOperator>(std::make_shared<PlacedOperator>(*std::move(op)));
}

class DevicesEngine final : public Engine {
 public:
  DevicesEngine(bool cpu, std::vector<std::shared_ptr<CudaDevice>> gpus)
      : gpus_(std::move(gpus)), first_gpu_(cpu ? 1 : 0) {}

  std::vector<DeviceInfo> Devices() const override {
    std::vector<DeviceInfo> devices;
    if (first_gpu_ > 0) devices.push_back(CpuDevice());
    for (const auto& gpu : gpus_) devices.push_back(gpu->info());
    return devices;
  }

  DeviceState State(int device) const override {
    const auto gpu = Gpu(device);
    if (gpu == nullptr) return {};
    return {
        .lost = gpu->lost(), .used_bytes = gpu->used_bytes(), .limit_bytes = gpu->memory_limit()};
  }

  Status Probe(int device) const override {
    const auto gpu = Gpu(device);
    return gpu == nullptr ? Status() : gpu->Probe();
  }

  Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView& a,
                               const Diagnosis& diagnosis, const PatternView* user_pattern,
                               const Context& context) const override {
    return ResolveSpec(spec, a, diagnosis, user_pattern, context);
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView* user_pattern,
                                 const Context& context) const override {
    if (Status s = CheckSpec(spec); !s.ok()) return s;
    auto estimate = EstimateBuild(spec, a, user_pattern, context);
    if (estimate.ok() && gpus_.empty()) {
      estimate->device_bytes = estimate->device_bytes_min = 0;
      estimate->predicted_device_ms = 0;
    }
    return estimate;
  }

  Result<std::shared_ptr<const Plan>> MakePlan(const PreconditionerSpec& spec, const CscView& a,
                                               const PatternView* user_pattern,
                                               const Context& context) const override {
    if (Status s = CheckResolved(spec); !s.ok()) return s;
    std::vector<std::shared_ptr<CudaDevice>> gpus;
    if (Status s = FindGpus(spec, context, &gpus); !s.ok()) return s;
    auto plan = std::make_shared<EnginePlan>();
    plan->on_devices = DevicesOf(spec, context);
    plan->kind = spec.engine;
    plan->n = a.n_cols;
    plan->nnz = a.nnz();
    switch (spec.engine) {
      case EngineKind::kAuto:
      case EngineKind::kNone:
        return NoBuild();
      case EngineKind::kJacobi:
        plan->block_size = spec.block_size;
        break;
      case EngineKind::kStaticSpai: {
        auto made = PlanSpai(spec.static_spai, a, user_pattern, gpus, context, &plan->made_in);
        if (!made.ok()) return made.status();
        plan->static_spai = *std::move(made);
        plan->pattern = Shape(spec.static_spai.pattern);
        plan->reads_values = spec.static_spai.pattern.keep_tau.has_value();
        break;
      }
      case EngineKind::kFsai:
      case EngineKind::kAfsai: {
        auto made = PlanFsai(spec, a, user_pattern, gpus, context, &plan->made_in);
        if (!made.ok()) return made.status();
        plan->fsai = *std::move(made);
        plan->reads_values = spec.engine == EngineKind::kAfsai || spec.fsai.drop_tol > 0;
        break;
      }
      case EngineKind::kDynamicSpai: {
        auto made = PlanDynamicSpai(spec.dynamic_spai, a, user_pattern, context);
        if (!made.ok()) return made.status();
        plan->dynamic_spai = *std::move(made);
        plan->reads_values = true;
        break;
      }
    }
    return std::shared_ptr<const Plan>(std::move(plan));
  }

  Result<BuildResult> Build(const Plan& plan, const PreconditionerSpec& spec, const CscView& a,
                            const Context& context) const override {
    const auto start = Clock::now();
    if (Status s = CheckResolved(spec); !s.ok()) return s;
    const auto* mine = dynamic_cast<const EnginePlan*>(&plan);
    if (mine == nullptr) return PlanMismatch("the plan was made by another engine");
    if (mine->kind != spec.engine) return PlanMismatch("the plan is for another kind of engine");
    if (const std::vector<int> devices = DevicesOf(spec, context); mine->on_devices != devices) {
      return PlanMismatch("the plan is for device " + Names(mine->on_devices) + ", not " +
                          Names(devices));
    }
    std::vector<std::shared_ptr<CudaDevice>> gpus;
    if (Status s = FindGpus(spec, context, &gpus); !s.ok()) return s;
    if (mine->n != a.n_cols || mine->nnz != a.nnz()) {
      return PlanMismatch("the plan is for n = " + std::to_string(mine->n) + " with " +
                          std::to_string(mine->nnz) + " entries, the matrix has n = " +
                          std::to_string(a.n_cols) + " with " + std::to_string(a.nnz()));
    }
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) {
      return Status(StatusCode::kFailedPrecondition, "VALUES_NEEDED",
                    "the matrix holds a pattern only; a build needs its values")
          .At("values");
    }
    if (const PatternOptions shape = Shape(spec.static_spai.pattern);
        spec.engine == EngineKind::kStaticSpai && !(mine->pattern == shape)) {
      return PlanMismatch("the plan is for " + Differences(mine->pattern, shape));
    }
    if (spec.engine == EngineKind::kJacobi && mine->block_size != spec.block_size) {
      return PlanMismatch("the plan is for block_size " + std::to_string(mine->block_size) +
                          " (not " + std::to_string(spec.block_size) + ")");
    }
    if (spec.engine == EngineKind::kFsai &&
        (mine->fsai->power != spec.fsai.power || mine->fsai->drop_tol != spec.fsai.drop_tol)) {
      return PlanMismatch("the plan is for another pattern_power or drop_tol");
    }
    BuildResult result;
    CscMatrix m, g_columns;
    ShownResult shown;
    HostPreconditioner::DeviceCopy on_device;
    switch (spec.engine) {
      case EngineKind::kAuto:
      case EngineKind::kNone:
        return NoBuild();
      case EngineKind::kJacobi: {
        auto built = spec.block_size == 1 ? BuildJacobi(a, context)
                                          : BuildBlockJacobi(a, spec.block_size, context);
        if (!built.ok()) return built.status();
        m = std::move(built->m);
        result.quality = std::move(built->quality);
        break;
      }
      case EngineKind::kStaticSpai: {
        auto built = BuildOnSpaiPlan(mine->static_spai, spec.static_spai, /*grown=*/false, a,
                                     context, &result.timings);
        if (!built.ok()) return built.status();
        m = std::move(built->m);
        shown = std::move(built->shown);
        on_device.m = std::move(built->kept);
        result.quality = std::move(built->quality);
        break;
      }
      case EngineKind::kFsai:
      case EngineKind::kAfsai: {
        auto built = BuildOnFsaiPlan(*mine->fsai, spec, gpus, a, context, &result.timings);
        if (!built.ok()) return built.status();
        m = std::move(built->g_rows);
        g_columns = std::move(built->g_columns);
        on_device.g = std::move(built->kept);
        result.quality = std::move(built->quality);
        if (built->grown != nullptr) {
          auto grown = std::make_shared<EnginePlan>(*mine);
          grown->fsai = std::move(built->grown);
          grown->reads_values = false;
          result.grown = std::move(grown);
        }
        break;
      }
      case EngineKind::kDynamicSpai: {
        auto built = BuildOnDynamicSpaiPlan(*mine->dynamic_spai, spec.dynamic_spai, gpus, a,
                                            context, &result.timings);
        if (!built.ok()) return built.status();
        m = std::move(built->numbers.m);
        shown = std::move(built->numbers.shown);
        on_device.m = std::move(built->numbers.kept);
        result.quality = std::move(built->numbers.quality);
        if (built->grown != nullptr) {
          auto grown = std::make_shared<EnginePlan>(*mine);
          grown->dynamic_spai = std::move(built->grown);
          grown->reads_values = false;
          result.grown = std::move(grown);
        }
        break;
      }
    }
    const auto assembling = Clock::now();
    auto made =
        HostPreconditioner::Make(spec.engine, std::move(m), context, /*on_host=*/gpus.empty(),
                                 std::move(g_columns), std::move(shown));
    if (!made.ok()) return made.status();
    result.timings.assemble_ms = MsSince(assembling);
    (*made)->Keep(std::move(on_device));
    result.preconditioner = *std::move(made);
    result.build_ms = MsSince(start);
    return result;
  }

  Result<Method> ResolveMethod(Method method, EngineKind kind,
                               const Diagnosis& diagnosis) const override {
    return ResolveSolveMethod(method, kind, diagnosis);
  }

  bool SolvesOnDevice(const Context& context) const override {
    return Gpu(context.device) != nullptr;
  }

  int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                           const SolveOptions& options) const override {
    return kernels::SolveDeviceBytes(n, nnz_a, nnz_m, n_rhs, options);
  }

  Result<std::shared_ptr<const DeviceOperator>> Place(const CscView& a,
                                                      const Context& context) const override {
    const auto gpu = Gpu(context.device);
    if (gpu == nullptr) return NoGpu();
    if (Status status = CheckDevice(context.device); !status.ok()) return status;
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) return SolveNeedsValues();
    return Placed(CudaOperator::OfMatrix(gpu, a, /*fp32=*/false, context));
  }

  Result<std::shared_ptr<const DeviceOperator>> Replace(std::shared_ptr<const DeviceOperator> old,
                                                        const CscView& a,
                                                        const Context& context) const override {
    if (Status status = CheckDevice(context.device); !status.ok()) return status;
    if (static_cast<int64_t>(a.values.size()) != a.nnz()) return SolveNeedsValues();
    const auto* placed = dynamic_cast<const PlacedOperator*>(old.get());
    if (placed == nullptr || placed->op().device() != Gpu(context.device)) return NotOurs();
    return Placed(CudaOperator::WithValues(placed->shared(), a, context));
  }

  Result<std::shared_ptr<const DeviceOperator>> Place(const Preconditioner& m, Storage storage,
                                                      const Context& context) const override {
    const auto gpu = Gpu(context.device);
    if (gpu == nullptr) return NoGpu();
    if (Status status = CheckDevice(context.device); !status.ok()) return status;
    const auto* mine = dynamic_cast<const HostPreconditioner*>(&m);
    if (mine == nullptr) return NotOurs();
    if (mine->is_diagonal()) {
      return Placed(CudaOperator::OfDiagonal(gpu, mine->matrix().values));
    }
    const bool fp32 = storage == Storage::kFp32;
    const int64_t n = mine->matrix().n_cols;
    const HostPreconditioner::DeviceCopy copy = mine->device_copy();
    if (copy.g != nullptr && DeviceOf(*copy.g) == gpu) {
      return Placed(CudaOperator::Of(
          gpu, n, [&] { return Object(*copy.g).LayOut(/*transposed=*/false, fp32); },
          [&] { return Object(*copy.g).LayOut(/*transposed=*/true, fp32); }));
    }
    if (copy.m != nullptr && DeviceOf(*copy.m) == gpu) {
      return Placed(CudaOperator::Of(gpu, n, [&] { return Object(*copy.m).LayOut(fp32); }));
    }
    if (mine->is_factor()) {
      return Placed(
          CudaOperator::OfFactors(gpu, mine->matrix(), mine->factor_rows(), fp32, context));
    }
    return Placed(CudaOperator::OfMatrix(gpu, mine->matrix(), fp32, context));
  }

  Result<SolveResult> SolveOnDevice(const CscView& a, const DeviceOperator& a_there,
                                    const Preconditioner* preconditioner, const PlaceM& place_m,
                                    std::span<const double> b, std::span<const double> x0,
                                    const SolveOptions& options,
                                    const Context& context) const override {
    const auto start = Clock::now();
    if (Status status = CheckDevice(context.device); !status.ok()) return status;
    const auto* placed_a = dynamic_cast<const PlacedOperator*>(&a_there);
    if (placed_a == nullptr) return NotOurs();
    const HostPreconditioner* m = nullptr;
    if (Status status = CheckPreconditioner(preconditioner, options.method, &m); !status.ok()) {
      return status;
    }
    auto stored = StorageOf(a, m, options, context);
    if (!stored.ok()) return stored.status();
    double placing_ms = 0;
    const CudaOperator* m_there = nullptr;
    std::shared_ptr<const DeviceOperator> placed;
    if (m != nullptr) {
      const auto placing = Clock::now();
      auto made = place_m(stored->storage);
      placing_ms = MsSince(placing);
      if (!made.ok()) return made.status();
      placed = *std::move(made);
      const auto* placed_m = dynamic_cast<const PlacedOperator*>(placed.get());
      if (placed_m == nullptr) return NotOurs();
      m_there = &placed_m->op();
    }
    auto solved = SolveCuda(placed_a->op(), m_there, a, b, x0, options, context);
    if (solved.ok()) {
      solved->solve_ms = MsSince(start) - placing_ms;
      Tell(m, *std::move(stored), &*solved);
    }
    return solved;
  }

  double CopyBytesPerSecond(const Context& context, bool on_host) const override {
    const auto gpu = on_host ? nullptr : Gpu(context.device);
    return gpu != nullptr ? gpu->CopyBytesPerSecond()
                          : HostCopyBytesPerSecond(ResolveThreads(context.threads));
  }

  Result<SolveResult> Solve(const CscView& a, const Preconditioner* preconditioner,
                            std::span<const double> b, std::span<const double> x0,
                            const SolveOptions& options, const Context& context) const override {
    const auto start = Clock::now();
    const HostPreconditioner* m = nullptr;
    if (Status status = CheckPreconditioner(preconditioner, options.method, &m); !status.ok()) {
      return status;
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
    auto stored = StorageOf(a, m, options, context);
    if (!stored.ok()) return stored.status();
    const LinearOperator* apply = in_fp64;
    std::unique_ptr<const LinearOperator> in_fp32;
    if (stored->storage == Storage::kFp32 && !m_columns) {
      const auto placing = Clock::now();
      in_fp32 = m->InFp32(ResolveThreads(context.threads));
      place_ms += MsSince(placing);
      apply = in_fp32.get();
    }
    auto solved = kernels::Solve(op, apply, b, x0, options, context);
    if (solved.ok()) {
      solved->figures.place_ms = place_ms;
      solved->solve_ms = MsSince(start);  // that included
      Tell(m, *std::move(stored), &*solved);
    }
    return solved;
  }

 private:
  // `m`: the preconditioner as one of ours; null: there is none.
  static Status CheckPreconditioner(const Preconditioner* preconditioner, Method method,
                                    const HostPreconditioner** m) {
    *m = dynamic_cast<const HostPreconditioner*>(preconditioner);
    if (preconditioner != nullptr && *m == nullptr) return NotOurs();
    if (*m != nullptr && (*m)->may_be_indefinite() && method == Method::kCg) {
      return PreconditionerNotSpd();
    }
    return {};
  }

  // Whether there is anything to store in fp32: not without M, nor with a diagonal.
  static bool StoresM(const HostPreconditioner* m) { return m != nullptr && !m->is_diagonal(); }

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

  // Those that share a plan of this spec.
  static std::vector<int> DevicesOf(const PreconditionerSpec& spec, const Context& context) {
    if (context.devices.empty() || spec.engine == EngineKind::kJacobi) return {context.device};
    return context.devices;
  }

  // The GPUs that compute; none: the CPU does.
  Status FindGpus(const PreconditionerSpec& spec, const Context& context,
                  std::vector<std::shared_ptr<CudaDevice>>* gpus) const {
    const std::vector<int> devices = DevicesOf(spec, context);
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

  // Null: `device` is the CPU, or none of ours.
  std::shared_ptr<CudaDevice> Gpu(int device) const {
    const int i = device - first_gpu_;
    return i >= 0 && i < static_cast<int>(gpus_.size()) ? gpus_[static_cast<size_t>(i)] : nullptr;
  }

  Status CheckDevice(int device) const {
    const auto gpu = Gpu(device);
    if (gpu == nullptr) {
      if (first_gpu_ > 0 && device == 0) return {};
      return Status(StatusCode::kInternal, "NO_SUCH_DEVICE",
                    "device " + std::to_string(device) + " is none of this engine's");
    }
    // Host work of a GPU's worker too: after the loss nobody shall think the device serves.
    return gpu->lost()
               ? CudaFailure(CudaFault::kDeviceLost, gpu->info(), "an earlier error was its last")
               : Status();
  }

  const std::vector<std::shared_ptr<CudaDevice>> gpus_;
  const int first_gpu_;  // index in Devices()
};

}  // namespace

int64_t EnginePlan::host_bytes() const {
  const int64_t own = static_cast<int64_t>(sizeof(EnginePlan));
  if (fsai) return own + fsai->bytes();
  if (dynamic_spai) return own + dynamic_spai->bytes();
  return own + static_spai.host_bytes();
}

int64_t EnginePlan::device_bytes() const {
  if (fsai && fsai->there) return DeviceBytes(*fsai->there);
  return dynamic_spai ? dynamic_spai->numbers.device_bytes() : static_spai.device_bytes();
}

std::unique_ptr<Engine> MakeCpuEngine() { return MakeEngine(true, {}); }

std::unique_ptr<Engine> MakeEngine(bool cpu, std::vector<std::shared_ptr<CudaDevice>> gpus) {
  return std::make_unique<DevicesEngine>(cpu, std::move(gpus));
}

}  // namespace spaid::kernels
