#include "tests/server/fake_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/base/result_sink.h"

namespace spaid::server {
namespace {

using kernels::Result;
using kernels::Status;
using kernels::StatusCode;

constexpr int64_t kGpuBytes = 1000;
constexpr int64_t kCopyBytes = 100;  // of a preconditioner, on a GPU

class FakePlan : public kernels::Plan {
 public:
  FakePlan(bool serves_new_values, int device, int64_t device_bytes, bool in_waves)
      : serves_new_values_(serves_new_values),
        device_(device),
        device_bytes_(device_bytes),
        in_waves_(in_waves) {}
  int device() const override { return device_; }
  int64_t host_bytes() const override { return 64; }
  int64_t device_bytes() const override { return device_bytes_; }
  bool serves_new_values() const override { return serves_new_values_; }
  kernels::DeviceTimings timings() const override {
    kernels::DeviceTimings timings;
    timings.host_to_device_ms = device_bytes_ > 0 ? 2 : 0;
    timings.tables_in_waves = in_waves_;
    return timings;
  }

 private:
  const bool serves_new_values_;
  const int device_;
  const int64_t device_bytes_;
  const bool in_waves_;
};

class FakePreconditioner : public kernels::Preconditioner {
 public:
  FakePreconditioner(kernels::EngineKind kind, kernels::CscMatrix m, int64_t device_bytes)
      : kind_(kind), m_(std::move(m)), device_bytes_(device_bytes) {}
  kernels::EngineKind kind() const override { return kind_; }
  const kernels::CscMatrix& matrix() const override { return m_; }
  int64_t host_bytes() const override { return m_.bytes(); }
  int64_t device_bytes() const override { return device_bytes_; }
  void DropDeviceCopy() const override { device_bytes_ = 0; }

 private:
  kernels::EngineKind kind_;
  kernels::CscMatrix m_;
  mutable std::atomic<int64_t> device_bytes_;
};

double Diagonal(const kernels::CscView& a, int64_t j) {
  for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
    if (a.row_idx[p] == j) return a.values[p];
  }
  return 0;
}

bool Grows(kernels::EngineKind kind) {
  return kind == kernels::EngineKind::kAfsai || kind == kernels::EngineKind::kDynamicSpai;
}

double Norm(std::span<const double> v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

}  // namespace

kernels::DeviceInfo FakeCpu() {
  kernels::DeviceInfo cpu;
  cpu.name = "fake CPU";
  cpu.threads = 1;
  return cpu;
}

kernels::DeviceInfo FakeGpu(int index) {
  kernels::DeviceInfo gpu;
  gpu.backend = kernels::Backend::kCuda;
  gpu.index = index;
  gpu.name = "fake GPU";
  gpu.uuid = "GPU-" + std::to_string(index);
  gpu.memory_bytes = kGpuBytes;
  return gpu;
}

FakeEngine::FakeEngine(std::vector<kernels::DeviceInfo> devices)
    : devices_(std::move(devices)), states_(devices_.size()) {}

void FakeEngine::BreakDevice(int device, int64_t after_builds) {
  std::lock_guard lock(mu_);
  Device& own = states_.at(static_cast<size_t>(device));
  own.broken = after_builds == 0;
  own.last_build = after_builds;
}
void FakeEngine::HangDevice(int device) {
  std::lock_guard lock(mu_);
  states_.at(static_cast<size_t>(device)).hangs = true;
}
void FakeEngine::RunOutOfDeviceMemory(int times) {
  std::lock_guard lock(mu_);
  out_of_memory_ = times;
}
void FakeEngine::PlanInWaves(int times) {
  std::lock_guard lock(mu_);
  plans_in_waves_ = times;
}
void FakeEngine::SetDeviceBytes(int64_t bytes) { SetDeviceBytes(bytes, bytes); }
void FakeEngine::SetDeviceBytes(int64_t bytes, int64_t least) {
  std::lock_guard lock(mu_);
  device_bytes_ = bytes;
  device_bytes_min_ = least;
}
void FakeEngine::WaitForProbes(int device, int64_t count) {
  WaitFor(states_.at(static_cast<size_t>(device)).probes, count);
}
int64_t FakeEngine::builds_on(int device) const {
  std::lock_guard lock(mu_);
  return states_.at(static_cast<size_t>(device)).builds;
}

kernels::DeviceState FakeEngine::State(int device) const {
  std::lock_guard lock(mu_);
  const auto i = static_cast<size_t>(device);
  const bool gpu = devices_.at(i).backend == kernels::Backend::kCuda;
  return {.lost = states_[i].lost, .used_bytes = 0, .limit_bytes = gpu ? kGpuBytes : 0};
}

Status FakeEngine::TouchLocked(int device) const {
  Device& own = states_.at(static_cast<size_t>(device));
  own.lost = own.broken = own.broken || own.builds > own.last_build;
  if (!own.lost) return {};
  return Status(StatusCode::kUnavailable, "DEVICE_LOST",
                "the fake device is broken; send the request to another one");
}

Status FakeEngine::Probe(int device) const {
  std::lock_guard lock(mu_);
  ++states_.at(static_cast<size_t>(device)).probes;
  changed_.notify_all();
  return TouchLocked(device);
}

void FakeEngine::HoldBuilds() {
  std::lock_guard lock(mu_);
  hold_builds_ = true;
}
void FakeEngine::HoldSolves() {
  std::lock_guard lock(mu_);
  hold_solves_ = true;
}
void FakeEngine::HoldEstimates() {
  std::lock_guard lock(mu_);
  hold_estimates_ = true;
}
void FakeEngine::HoldCopies() {
  std::lock_guard lock(mu_);
  hold_copies_ = true;
}
void FakeEngine::Release() {
  {
    std::lock_guard lock(mu_);
    hold_builds_ = hold_solves_ = hold_estimates_ = hold_copies_ = false;
  }
  changed_.notify_all();
}
void FakeEngine::HoldBuildsShown(int64_t columns) {
  std::lock_guard lock(mu_);
  hold_shown_ = true;
  show_columns_ = columns;
}
void FakeEngine::ReleaseShown() {
  {
    std::lock_guard lock(mu_);
    hold_shown_ = false;
  }
  changed_.notify_all();
}
void FakeEngine::WaitFor(const int64_t& counter, int64_t count) const {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [&] { return counter >= count; });
}
void FakeEngine::WaitForBuilds(int64_t count) { WaitFor(builds_, count); }
void FakeEngine::WaitForSolves(int64_t count) { WaitFor(solves_, count); }
void FakeEngine::WaitForEstimates(int64_t count) { WaitFor(estimates_, count); }
int64_t FakeEngine::builds() const {
  std::lock_guard lock(mu_);
  return builds_;
}
int64_t FakeEngine::solves() const {
  std::lock_guard lock(mu_);
  return solves_;
}
int64_t FakeEngine::plans() const {
  std::lock_guard lock(mu_);
  return plans_;
}
void FakeEngine::FailBuilds(Status status, bool deadly) {
  std::lock_guard lock(mu_);
  deadly_ = deadly;
  fail_builds_ = std::move(status);
}
void FakeEngine::ThrowFromEstimates(std::optional<std::string> what) {
  std::lock_guard lock(mu_);
  throw_from_estimates_ = std::move(what);
}
void FakeEngine::SetPredictedMs(double ms) {
  std::lock_guard lock(mu_);
  predicted_ms_ = ms;
}
void FakeEngine::SetPredictedDeviceMs(double ms) {
  std::lock_guard lock(mu_);
  predicted_device_ms_ = ms;
}
void FakeEngine::GrowPlans() {
  std::lock_guard lock(mu_);
  grow_plans_ = true;
}
void FakeEngine::SetAutoChoice(kernels::EngineKind kind) {
  std::lock_guard lock(mu_);
  auto_choice_ = kind;
}
int FakeEngine::resolve_threads() const {
  std::lock_guard lock(mu_);
  return resolve_threads_;
}
kernels::PreconditionerSpec FakeEngine::resolve_spec() const {
  std::lock_guard lock(mu_);
  return resolve_spec_;
}
std::vector<int> FakeEngine::plan_devices() const {
  std::lock_guard lock(mu_);
  return plan_devices_;
}

bool FakeEngine::resolve_had_pattern() const {
  std::lock_guard lock(mu_);
  return resolve_had_pattern_;
}
void FakeEngine::SetResiduals(int count) {
  std::lock_guard lock(mu_);
  residuals_ = count;
}

void FakeEngine::SetResidualsAfterHold(int count) {
  std::lock_guard lock(mu_);
  residuals_after_hold_ = count;
}

kernels::StopReason FakeEngine::WaitWhile(const bool& held, const kernels::StopToken& stop) const {
  std::unique_lock lock(mu_);
  changed_.notify_all();
  while (held && !stop.stop_requested()) {
    // A stop token cannot be waited on: looked at as often as an engine's loop would.
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  return stop.Poll();
}

Result<kernels::ResolvedSpec> FakeEngine::Resolve(const kernels::PreconditionerSpec& spec,
                                                  const kernels::CscView&,
                                                  const kernels::Diagnosis&,
                                                  const kernels::PatternView* user_pattern,
                                                  const kernels::Context& context) const {
  std::lock_guard lock(mu_);
  resolve_threads_ = context.threads;
  resolve_spec_ = spec;
  resolve_had_pattern_ = user_pattern != nullptr;
  kernels::ResolvedSpec resolved{spec, ""};
  if (spec.engine == kernels::EngineKind::kAuto) {
    resolved.spec.engine = auto_choice_;
    resolved.reason = auto_choice_ == kernels::EngineKind::kJacobi ? "the fake always takes Jacobi"
                                                                   : "the fake was told so";
  }
  return resolved;
}

Result<kernels::BuildEstimate> FakeEngine::Estimate(const kernels::PreconditionerSpec& spec,
                                                    const kernels::CscView& a,
                                                    const kernels::PatternView*,
                                                    const kernels::Context& context) const {
  {
    std::lock_guard lock(mu_);
    ++estimates_;
  }
  const kernels::StopReason stop = WaitWhile(hold_estimates_, context.stop);
  if (stop != kernels::StopReason::kNone) return kernels::StopStatus(stop, "the fake estimate");
  std::lock_guard lock(mu_);
  if (throw_from_estimates_) {
    if (*throw_from_estimates_ == "bad_alloc") throw std::bad_alloc();
    throw std::runtime_error(*throw_from_estimates_);
  }
  kernels::BuildEstimate estimate;
  estimate.nnz_m = a.n_cols * spec.block_size;
  estimate.host_bytes = 64 + 20 * a.n_cols + 8;
  estimate.download_bytes = 20 * a.n_cols + 8;
  estimate.predicted_ms = predicted_ms_;
  estimate.predicted_device_ms = predicted_device_ms_;
  estimate.device_bytes = device_bytes_;
  estimate.device_bytes_min = device_bytes_min_;
  estimate.n1_max = estimate.n2_max = 1;
  return estimate;
}

Result<std::shared_ptr<const kernels::Plan>> FakeEngine::MakePlan(
    const kernels::PreconditionerSpec& spec, const kernels::CscView&, const kernels::PatternView*,
    const kernels::Context& context) const {
  std::lock_guard lock(mu_);
  ++plans_;
  plan_devices_ = context.devices;
  if (Status s = TouchLocked(context.device); !s.ok()) return s;
  const bool gpu = devices_[static_cast<size_t>(context.device)].backend == kernels::Backend::kCuda;
  const bool in_waves = plans_in_waves_ > 0;
  if (in_waves) --plans_in_waves_;
  return std::shared_ptr<const kernels::Plan>(std::make_shared<FakePlan>(
      !spec.static_spai.pattern.keep_tau.has_value() && !(grow_plans_ && Grows(spec.engine)),
      context.device, gpu ? device_bytes_ : 0, in_waves));
}

Result<kernels::BuildResult> FakeEngine::Build(const kernels::Plan& plan,
                                               const kernels::PreconditionerSpec& spec,
                                               const kernels::CscView& a,
                                               const kernels::Context& context) const {
  {
    std::unique_lock lock(mu_);
    ++builds_;
    Device& own = states_.at(static_cast<size_t>(context.device));
    ++own.builds;
    changed_.wait(lock, [&] { return !own.hangs; });
  }
  if (plan.device() != context.device) {
    return Status(StatusCode::kInvalidArgument, "PLAN_MISMATCH", "the plan is another device's");
  }
  const int64_t n = a.n_cols;
  if (context.progress) context.progress->OnProgress(kernels::Stage::kBuild, 0, n);
  const kernels::StopReason stop = WaitWhile(hold_builds_, context.stop);
  if (stop != kernels::StopReason::kNone) return kernels::StopStatus(stop, "the fake build");
  kernels::CscMatrix m;
  m.n_rows = m.n_cols = n;
  m.col_ptr.resize(static_cast<size_t>(n) + 1);
  m.row_idx.resize(static_cast<size_t>(n));
  m.values.resize(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    const double d = Diagonal(a, j);
    m.col_ptr[static_cast<size_t>(j)] = j;
    m.row_idx[static_cast<size_t>(j)] = static_cast<int32_t>(j);
    m.values[static_cast<size_t>(j)] = d != 0 ? 1 / d : 1;
  }
  m.col_ptr[static_cast<size_t>(n)] = n;
  kernels::ShownResult shown;
  std::optional<int64_t> columns;
  {
    std::lock_guard lock(mu_);
    columns = show_columns_;
  }
  if (columns) {
    shown.Show(context.result, m.col_ptr, m.row_idx, m.values);
    shown.Finished(0, *columns);
    const kernels::StopReason late = WaitWhile(hold_shown_, context.stop);
    if (late != kernels::StopReason::kNone) return kernels::StopStatus(late, "the fake build");
  }
  {
    std::lock_guard lock(mu_);
    if (!fail_builds_.ok()) {
      if (deadly_) states_.at(static_cast<size_t>(context.device)).broken = true;
      return fail_builds_;
    }
    if (Status s = TouchLocked(context.device); !s.ok()) return s;
    if (out_of_memory_ > 0) {
      --out_of_memory_;
      return Status(StatusCode::kResourceExhausted, "DEVICE_OUT_OF_MEMORY",
                    "the fake device is full");
    }
  }
  shown.FinishedAll();
  if (context.progress) context.progress->OnProgress(kernels::Stage::kBuild, n, n);
  kernels::BuildResult result;
  const bool gpu =
      devices_.at(static_cast<size_t>(context.device)).backend == kernels::Backend::kCuda;
  result.preconditioner =
      std::make_shared<FakePreconditioner>(spec.engine, std::move(m), gpu ? kCopyBytes : 0);
  shown.Keep();
  result.quality.density = 1;
  {
    std::lock_guard lock(mu_);
    if (grow_plans_ && Grows(spec.engine) && !plan.serves_new_values()) {
      result.grown =
          std::make_shared<FakePlan>(true, context.device, gpu ? device_bytes_ : 0, false);
    }
  }
  result.build_ms = 1;
  result.timings.assemble_ms = 0.5;
  if (plan.device_bytes() > 0) {
    result.timings.host_to_device_ms = 1;
    result.timings.device_to_host_ms = 3;
  }
  return result;
}

double FakeEngine::CopyBytesPerSecond(const kernels::Context&, bool on_host) const {
  std::unique_lock lock(mu_);
  ++copies_measured_;
  changed_.wait(lock, [&] { return !hold_copies_; });
  return on_host ? 4e9 : 8e9;
}

Result<kernels::Method> FakeEngine::ResolveMethod(kernels::Method method, kernels::EngineKind kind,
                                                  const kernels::Diagnosis&) const {
  if (method == kernels::Method::kAuto) return kernels::Method::kBicgstab;
  if (method == kernels::Method::kCg && kernels::IsExplicitSpai(kind)) {
    return Status(StatusCode::kFailedPrecondition, "PRECONDITIONER_NOT_SPD",
                  "CG needs a symmetric positive definite preconditioner, and an explicit M is "
                  "none; use BiCGSTAB or GMRES")
        .At("method");
  }
  return method;
}

Result<kernels::SolveResult> FakeEngine::Solve(const kernels::CscView& a,
                                               const kernels::Preconditioner*,
                                               std::span<const double> b, std::span<const double>,
                                               const kernels::SolveOptions& options,
                                               const kernels::Context& context) const {
  int residuals = 0, late = 0;
  {
    std::lock_guard lock(mu_);
    residuals = residuals_;
    late = residuals_after_hold_;
  }
  const int64_t n = a.n_cols;
  const int64_t count = static_cast<int64_t>(b.size()) / n;
  const auto report = [&](int64_t rhs, int begin, int end) {
    for (int i = begin; i < end && context.progress != nullptr; ++i) {
      context.progress->OnResidual({static_cast<int32_t>(rhs), i, std::pow(10.0, -i)});
    }
  };
  for (int64_t r = 0; r < count; ++r) report(r, 0, residuals - late);
  {
    std::lock_guard lock(mu_);
    ++solves_;
  }
  const kernels::StopReason stop = WaitWhile(hold_solves_, context.stop);
  for (int64_t r = 0; r < count; ++r) report(r, residuals - late, residuals);
  kernels::SolveResult result;
  result.x.resize(b.size());
  for (int64_t r = 0; r < count; ++r) {
    kernels::RhsResult rhs;
    for (int64_t j = 0; j < n; ++j) {
      const double d = Diagonal(a, j);
      const auto k = static_cast<size_t>(r * n + j);
      result.x[k] = stop == kernels::StopReason::kNone && d != 0 ? b[k] / d : 0;
    }
    const auto column = b.subspan(static_cast<size_t>(r * n), static_cast<size_t>(n));
    if (stop == kernels::StopReason::kNone) {
      rhs.outcome = kernels::Outcome::kConverged;
      rhs.iterations = residuals;
    } else {
      rhs.outcome = stop == kernels::StopReason::kTimeLimit ? kernels::Outcome::kTimeLimit
                                                            : kernels::Outcome::kCancelled;
      rhs.true_residual = Norm(column);
      rhs.true_relative_residual = 1;
    }
    result.rhs.push_back(std::move(rhs));
  }
  result.solve_ms = options.max_iterations > 0 ? 1 : 0;
  result.m_storage = options.m_storage;
  result.storage_reason = "as the fake was told";
  result.figures.iterations = residuals;
  result.figures.iterate_ms = 2;
  result.figures.bytes = 2e6;
  return result;
}

namespace {

class FakeOperator final : public kernels::DeviceOperator {
 public:
  explicit FakeOperator(std::shared_ptr<std::atomic<int64_t>> placed) : placed_(std::move(placed)) {
    ++*placed_;
  }
  ~FakeOperator() override { --*placed_; }
  int64_t device_bytes() const override { return 100; }

 private:
  std::shared_ptr<std::atomic<int64_t>> placed_;
};

}  // namespace

void FakeEngine::SolveOnGpus(int64_t bytes) {
  std::lock_guard lock(mu_);
  solve_bytes_ = bytes;
}

int64_t FakeEngine::placements() const {
  std::lock_guard lock(mu_);
  return placements_;
}

int64_t FakeEngine::placed() const { return *placed_; }

int64_t FakeEngine::solves_on(int device) const {
  std::lock_guard lock(mu_);
  return states_[static_cast<size_t>(device)].solves;
}

bool FakeEngine::SolvesOnDevice(const kernels::Context& context) const {
  std::lock_guard lock(mu_);
  return solve_bytes_ > 0 &&
         devices_[static_cast<size_t>(context.device)].backend == kernels::Backend::kCuda;
}

int64_t FakeEngine::most_nnz_m() const {
  std::lock_guard lock(mu_);
  return most_nnz_m_;
}

int64_t FakeEngine::SolveDeviceBytes(int64_t n, int64_t, int64_t nnz_m, int64_t n_rhs,
                                     const kernels::SolveOptions& options) const {
  std::lock_guard lock(mu_);
  most_nnz_m_ = std::max(most_nnz_m_, nnz_m);
  const bool gmres = options.method == kernels::Method::kGmres;
  // Every further right-hand side takes a byte.
  return solve_bytes_ + (gmres ? 10 * kernels::RestartLength(options, n) : 0) + (n_rhs - 1);
}

Result<std::shared_ptr<const kernels::DeviceOperator>> FakeEngine::Place(
    const kernels::CscView&, const kernels::Context& context) const {
  std::lock_guard lock(mu_);
  if (kernels::Status touched = TouchLocked(context.device); !touched.ok()) return touched;
  if (out_of_memory_ > 0) {
    --out_of_memory_;
    return kernels::Status(kernels::StatusCode::kResourceExhausted, "DEVICE_OUT_OF_MEMORY",
                           "no room");
  }
  ++placements_;
  return std::shared_ptr<const kernels::DeviceOperator>(std::make_shared<FakeOperator>(placed_));
}

Result<std::shared_ptr<const kernels::DeviceOperator>> FakeEngine::Place(
    const kernels::Preconditioner&, kernels::Storage, const kernels::Context& context) const {
  return Place(kernels::CscView(), context);
}

Result<std::shared_ptr<const kernels::DeviceOperator>> FakeEngine::Replace(
    std::shared_ptr<const kernels::DeviceOperator> old, const kernels::CscView&,
    const kernels::Context& context) const {
  std::lock_guard lock(mu_);
  if (kernels::Status touched = TouchLocked(context.device); !touched.ok()) return touched;
  if (refuse_to_replace_ > 0) {
    --refuse_to_replace_;
    return kernels::Status(kernels::StatusCode::kInvalidArgument, "PLAN_MISMATCH",
                           "the layout is another one");
  }
  ++replaced_;
  return old;
}

int64_t FakeEngine::replaced() const {
  std::lock_guard lock(mu_);
  return replaced_;
}

void FakeEngine::RefuseToReplace(int times) {
  std::lock_guard lock(mu_);
  refuse_to_replace_ = times;
}

Result<kernels::SolveResult> FakeEngine::SolveOnDevice(
    const kernels::CscView& a, const kernels::DeviceOperator&,
    const kernels::Preconditioner* preconditioner, const kernels::PlaceM& place_m,
    std::span<const double> b, std::span<const double> x0, const kernels::SolveOptions& options,
    const kernels::Context& context) const {
  std::shared_ptr<const kernels::DeviceOperator> m_there;
  if (preconditioner != nullptr) {
    auto placed = place_m(options.m_storage == kernels::Storage::kFp32 ? kernels::Storage::kFp32
                                                                       : kernels::Storage::kFp64);
    if (!placed.ok()) return placed.status();
    m_there = *std::move(placed);
  }
  {
    std::lock_guard lock(mu_);
    if (kernels::Status touched = TouchLocked(context.device); !touched.ok()) return touched;
    ++states_[static_cast<size_t>(context.device)].solves;
  }
  return Solve(a, nullptr, b, x0, options, context);
}

}  // namespace spaid::server
