#include "tests/server/fake_engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <new>
#include <span>
#include <stdexcept>
#include <thread>

#include "kernels/base/result_sink.h"
#include "kernels/engine/build_result.h"

namespace spaid::server {

// NOLINTNEXTLINE: a fake of all of it.
using namespace kernels;
using Status = kernels::Status;

namespace {

constexpr int64_t kGpuBytes = 1000;
constexpr int64_t kRanksBytes = 100'000'000;
constexpr int64_t kCopyBytes = 100;  // of a matrix, or a preconditioner, on a GPU

void SleepABit() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// Until nothing holds, or `stop` stops, which cannot be waited on: looked at as often as an
// engine's loop would.
Status WaitWhile(const std::atomic<bool>& held, const StopToken& stop, const char* what) {
  while (held && !stop.stop_requested()) SleepABit();
  const StopReason reason = stop.Poll();
  return reason == StopReason::kNone ? Status() : StopStatus(reason, what);
}

// Whether one of so many was left.
bool TakeOne(std::atomic<int>& times) {
  int left = times;
  while (left > 0 && !times.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

struct FakePreconditioner : kernels::Preconditioner {
  EngineKind kind_ = EngineKind::kNone;
  CscMatrix m;
  mutable std::atomic<int64_t> copy_bytes{0};

  EngineKind kind() const override { return kind_; }
  const CscMatrix& matrix() const override { return m; }
  int64_t host_bytes() const override { return m.bytes(); }
  int64_t device_bytes() const override { return copy_bytes; }
  void DropDeviceCopy() const override { copy_bytes = 0; }
};

double Diagonal(const CscView& a, int64_t j) {
  for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
    if (a.row_idx[p] == j) return a.values[p];
  }
  return 0;
}

// A's diagonal; 1 for 0.
CscMatrix Inverse(const CscView& a) {
  CscMatrix m;
  m.n_rows = m.n_cols = a.n_cols;
  m.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const double d = Diagonal(a, j);
    m.row_idx.push_back(static_cast<int32_t>(j));
    m.values.push_back(d != 0 ? 1 / d : 1);
    m.col_ptr.push_back(j + 1);
  }
  return m;
}

}  // namespace

// Bytes that were sent and are not there yet lie in buffers, as the host's array may go or change.
class FakeEngine::Ahead final : public CopyAhead {
 public:
  Ahead(FakeEngine& told, int device, const double* host, int64_t count)
      : told_(told),
        device_(device),
        host_(reinterpret_cast<const char*>(host)),
        there_(static_cast<size_t>(count) * sizeof(double)),
        thread_([this] { Work(); }) {
    told_.ahead_held += device_bytes();
  }
  ~Ahead() override {
    Drop();
    thread_.join();
  }

  Result<int64_t> Send(int64_t final) override {
    const std::lock_guard lock(mutex_);
    if (dropped_) return sent_;
    if (told_.break_ahead.exchange(false)) {
      told_.of(device_).broken = told_.of(device_).lost = true;
      DropLocked();
      return Status(StatusCode::kUnavailable, "DEVICE_LOST", "the fake device is broken");
    }
    if (final > sent_ && buffers_.size() < kBuffers) {
      buffers_.emplace_back(host_ + sent_, host_ + final);
      sent_ = final;
      came_.notify_one();
    }
    return sent_;
  }
  void Drop() override {
    const std::lock_guard lock(mutex_);
    DropLocked();
  }
  int64_t taken() const override { return taken_; }
  int64_t device_bytes() const override {
    return dropped_ ? 0 : static_cast<int64_t>(there_.size());
  }

  // Compares what was sent with that array, if this is of it and of that device; waits for it.
  void Take(int device, std::span<const double> values) {
    if (device != device_ || reinterpret_cast<const char*>(values.data()) != host_) return;
    std::unique_lock lock(mutex_);
    copied_.wait(lock, [this] { return dropped_ || buffers_.empty(); });
    if (dropped_) return;
    if (std::memcmp(there_.data(), host_, static_cast<size_t>(sent_)) != 0) ++told_.ahead_differ;
    taken_ = sent_;
    told_.ahead_taken += sent_;
  }

 private:
  static constexpr size_t kBuffers = 2;

  void DropLocked() {
    if (dropped_) return;
    told_.ahead_held -= device_bytes();
    dropped_ = true;
    came_.notify_one();
    copied_.notify_all();
  }
  void Work() {
    size_t at = 0;
    for (;;) {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [this] { return dropped_ || !buffers_.empty(); });
      while (!dropped_ && told_.hold_ahead) {
        lock.unlock();
        SleepABit();
        lock.lock();
      }
      if (dropped_) return;
      std::copy(buffers_.front().begin(), buffers_.front().end(),
                there_.begin() + static_cast<ptrdiff_t>(at));
      at += buffers_.front().size();
      told_.ahead_there += static_cast<int64_t>(buffers_.front().size());
      buffers_.pop_front();
      copied_.notify_all();
    }
  }

  FakeEngine& told_;
  const int device_;
  const char* const host_;
  std::mutex mutex_;
  std::condition_variable came_, copied_;
  std::deque<std::vector<char>> buffers_;
  std::vector<char> there_;
  int64_t sent_ = 0;
  std::atomic<int64_t> taken_{0};
  std::atomic<bool> dropped_{false};
  std::thread thread_;
};

class FakeEngine::Face final : public kernels::Engine {
 public:
  Face(FakeEngine& told, std::vector<DeviceInfo> devices)
      : told_(told), devices_(std::move(devices)) {}

  std::vector<DeviceInfo> Devices() const override { return devices_; }
  DeviceState State(int device) const override {
    const DeviceInfo& info = devices_.at(static_cast<size_t>(device));
    return {told_.of(device).lost, /*used_bytes=*/0,
            info.backend == Backend::kCpu ? 0 : info.memory_bytes};
  }
  Status Probe(int device) const override {
    ++told_.of(device).probes;
    return Touch(device);
  }

  Result<ResolvedSpec> Resolve(const PreconditionerSpec& spec, const CscView&, const Diagnosis&,
                               const PatternView* user_pattern,
                               const Context& context) const override {
    const std::lock_guard lock(told_.mu);
    told_.last_resolved = {context.threads, spec, user_pattern != nullptr};
    ResolvedSpec resolved{spec, ""};
    if (spec.engine != EngineKind::kAuto) return resolved;
    resolved.spec.engine = told_.auto_choice;
    const bool standard = resolved.spec.engine == EngineKind::kJacobi;
    resolved.reason = standard ? "the fake always takes Jacobi" : "the fake was told so";
    return resolved;
  }

  Result<BuildEstimate> Estimate(const PreconditionerSpec& spec, const CscView& a,
                                 const PatternView*, const Context& context) const override {
    ++told_.estimates;
    Status held = WaitWhile(told_.hold_estimates, context.stop, "the fake estimate");
    if (!held.ok()) return held;
    const std::lock_guard lock(told_.mu);
    if (const auto& what = told_.throw_from_estimates) {
      if (*what == "bad_alloc") throw std::bad_alloc();
      throw std::runtime_error(*what);
    }
    BuildEstimate estimate;
    estimate.nnz_m = a.n_cols * spec.block_size;
    estimate.download_bytes = 20 * a.n_cols + 8;
    estimate.host_bytes = 64 + estimate.download_bytes;
    estimate.predicted_ms = told_.predicted_ms;
    estimate.predicted_device_ms = told_.predicted_device_ms;
    estimate.device_bytes = told_.device_bytes;
    estimate.device_bytes_min = told_.device_bytes_min;
    estimate.n1_max = estimate.n2_max = 1;
    return estimate;
  }

  Result<std::shared_ptr<const kernels::Plan>> MakePlan(const PreconditionerSpec& spec,
                                                        const CscView&, const PatternView*,
                                                        const Context& context) const override {
    ++told_.plans;
    {
      const std::lock_guard lock(told_.mu);
      told_.last_plan_devices = context.devices;
    }
    if (Status s = Touch(context.device); !s.ok()) return s;
    return NewPlan(!spec.static_spai.pattern.keep_tau.has_value() && !Grows(spec), context.device,
                   TakeOne(told_.plans_in_waves));
  }

  Result<std::shared_ptr<CopyAhead>> BeginCopyAhead(int device, const double* values,
                                                    int64_t count) const override {
    std::shared_ptr<CopyAhead> ahead;
    if (told_.refuse_ahead || told_.of(device).lost || !IsGpu(device)) return ahead;
    ahead = std::make_shared<Ahead>(told_, device, values, count);
    return ahead;
  }

  double CopyBytesPerSecond(const Context&, bool on_host) const override {
    ++told_.copies_measured;
    while (told_.hold_copies) SleepABit();
    return on_host ? 4e9 : 8e9;
  }

  Result<SolveResult> Solve(const SolveCase& c, const Context& context) const override {
    std::shared_ptr<const DeviceOperator> m_there;
    if (c.there != nullptr && c.preconditioner != nullptr) {
      const bool fp32 = c.options.m_storage == Storage::kFp32;
      auto m = c.there->place_m(fp32 ? Storage::kFp32 : Storage::kFp64);
      if (!m.ok()) return m.status();
      m_there = *std::move(m);
    }
    if (c.there != nullptr) {
      if (Status s = Touch(context.device); !s.ok()) return s;
      ++told_.of(context.device).solves;
    }
    if (told_.solve) {
      ++told_.solves;
      const Status held = WaitWhile(told_.hold_solves, context.stop, "the fake solve");
      return told_.solve(c, context, held, TakeOne(told_.break_solves));
    }
    const int all = told_.residuals, late = told_.residuals_after_hold;
    const int64_t n = c.a.n_cols, count = static_cast<int64_t>(c.b.size()) / n;
    const auto report = [&](int begin, int end) {
      for (int32_t r = 0; r < count && context.progress != nullptr; ++r) {
        for (int i = begin; i < end; ++i) {
          context.progress->OnResidual({r, i, std::pow(10.0, -i)});
        }
      }
    };
    report(0, all - late);
    ++told_.solves;
    const Status held = WaitWhile(told_.hold_solves, context.stop, "the fake solve");
    report(all - late, all);
    const bool breaks = TakeOne(told_.break_solves);
    SolveResult result;
    result.x.resize(c.b.size());
    for (int64_t r = 0; r < count; ++r) {
      RhsResult rhs;
      double norm2 = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double d = Diagonal(c.a, j);
        const auto k = static_cast<size_t>(r * n + j);
        result.x[k] = held.ok() && d != 0 ? c.b[k] / d : 0;
        norm2 += c.b[k] * c.b[k];
      }
      rhs.outcome = held.ok()                                      ? Outcome::kConverged
                    : held.code() == StatusCode::kDeadlineExceeded ? Outcome::kTimeLimit
                                                                   : Outcome::kCancelled;
      rhs.iterations = held.ok() ? all : 0;
      rhs.true_residual = held.ok() ? 0 : std::sqrt(norm2);
      rhs.true_relative_residual = held.ok() ? 0 : 1;
      if (breaks) {
        std::fill_n(result.x.begin() + r * n, n, 0.0);
        rhs.outcome = Outcome::kBreakdown;
        rhs.true_residual = std::sqrt(norm2);
        rhs.true_relative_residual = 1;
        rhs.detail = "the fake breaks down";
      }
      result.rhs.push_back(std::move(rhs));
    }
    result.solve_ms = c.options.max_iterations > 0 ? 1 : 0;
    result.m_storage = c.options.m_storage;
    result.storage_reason = "as the fake was told";
    result.figures.iterations = all;
    result.figures.iterate_ms = 2;
    result.figures.bytes = 2e6;
    return result;
  }

  int64_t SolveDeviceBytes(int64_t n, int64_t, int64_t nnz_m, int64_t n_rhs,
                           const SolveOptions& options, MForm) const override {
    if (nnz_m > told_.most_nnz_m) told_.most_nnz_m = nnz_m;
    const bool gmres = options.method == Method::kGmres;
    // Every further right-hand side takes a byte.
    return told_.solve_bytes + (gmres ? 10 * RestartLength(options, n) : 0) + (n_rhs - 1);
  }

  Placed Place(Operand operand, const Context& context) const override {
    if (Status s = Touch(context.device, /*takes_memory=*/operand.old == nullptr); !s.ok())
      return s;
    if (operand.a != nullptr) TakeAhead(*operand.a, context);
    if (operand.old != nullptr) {
      if (TakeOne(told_.refuse_to_replace)) {
        return Status(StatusCode::kInvalidArgument, "PLAN_MISMATCH", "the layout is another one");
      }
      ++told_.replaced;
      return operand.old;
    }
    struct There : DeviceOperator {
      explicit There(std::atomic<int64_t>& count) : placed(count) { ++placed; }
      ~There() override { --placed; }
      int64_t device_bytes() const override { return kCopyBytes; }
      std::atomic<int64_t>& placed;
    };
    ++told_.placements;
    return std::shared_ptr<const DeviceOperator>(std::make_shared<There>(told_.placed));
  }

 private:
  struct Plan : kernels::Plan {
    Plan(const Face& of, bool for_new_values, int on)
        : face(of), lasts(for_new_values), there(on) {}
    const Face& face;
    const bool lasts;
    const int there;
    int64_t bytes = 0;
    DeviceTimings made_in;

    int device() const override { return there; }
    int64_t host_bytes() const override { return 64; }
    int64_t device_bytes() const override { return bytes; }
    bool serves_new_values() const override { return lasts; }
    DeviceTimings timings() const override { return made_in; }
    Result<BuildResult> Build(const PreconditionerSpec& spec, const CscView& a,
                              const Context& context) const override {
      return face.Build(*this, spec, a, context);
    }
  };

  std::shared_ptr<const kernels::Plan> NewPlan(bool lasts, int device, bool in_waves) const {
    auto plan = std::make_shared<Plan>(*this, lasts, device);
    if (IsGpu(device)) plan->bytes = told_.device_bytes;
    plan->made_in.host_to_device_ms = plan->bytes > 0 ? 2 : 0;
    plan->made_in.tables_in_waves = in_waves;
    return plan;
  }

  Result<BuildResult> Build(const Plan& plan, const PreconditionerSpec& spec, const CscView& a,
                            const Context& context) const {
    ++told_.builds;
    ++told_.of(context.device).builds;
    while (told_.of(context.device).hangs) std::this_thread::sleep_for(std::chrono::hours(1));
    if (plan.device() != context.device) {
      return Status(StatusCode::kInvalidArgument, "PLAN_MISMATCH", "the plan is another device's");
    }
    const int64_t n = a.n_cols;
    if (context.progress) context.progress->OnProgress(Stage::kBuild, 0, n);
    Status held = WaitWhile(told_.hold_builds, context.stop, "the fake build");
    if (!held.ok()) return held;
    auto m = std::make_shared<FakePreconditioner>();
    m->kind_ = spec.engine;
    m->m = Inverse(a);
    const bool reused = Grows(spec) && plan.lasts;
    if (reused) {
      for (double& value : m->m.values) value *= told_.reused_times;
    }
    m->copy_bytes = IsGpu(context.device) ? kCopyBytes : 0;
    ShownResult shown;
    if (const int64_t columns = told_.show_columns; columns >= 0) {
      shown.Show(context.result, m->m.col_ptr, m->m.row_idx, m->m.values);
      shown.Finished(0, columns);
      held = WaitWhile(told_.hold_shown, context.stop, "the fake build");
      if (!held.ok()) return held;
    }
    {
      const std::lock_guard lock(told_.mu);
      const auto& [status, deadly] = told_.fail_builds;
      if (!status.ok() && deadly) told_.of(context.device).broken = true;
      if (!status.ok()) return status;
    }
    if (Status s = Touch(context.device, /*takes_memory=*/true); !s.ok()) return s;
    TakeAhead(a, context);
    shown.FinishedAll();
    if (context.progress) context.progress->OnProgress(Stage::kBuild, n, n);
    shown.Keep();
    BuildResult result;
    result.preconditioner = std::move(m);
    if (Grows(spec) && !plan.lasts) result.grown = NewPlan(true, context.device, false);
    result.quality.density = 1;
    result.quality.pattern_reused = reused;
    result.build_ms = 1;
    result.timings.assemble_ms = 0.5;
    result.timings.host_to_device_ms = plan.bytes > 0 ? 1 : 0;
    result.timings.device_to_host_ms = plan.bytes > 0 ? 3 : 0;
    return result;
  }

  static void TakeAhead(const CscView& a, const Context& context) {
    if (context.ahead != nullptr) {
      static_cast<Ahead*>(context.ahead)->Take(context.device, a.values);
    }
  }
  bool IsGpu(int device) const {
    return devices_.at(static_cast<size_t>(device)).backend == Backend::kCuda;
  }
  bool Grows(const PreconditionerSpec& spec) const {
    return told_.grow_plans && TraitsOf(spec.engine).grows_pattern;
  }
  // DEVICE_LOST where the device is broken, else DEVICE_OUT_OF_MEMORY where that was told.
  Status Touch(int device, bool takes_memory = false) const {
    Device& own = told_.of(device);
    if (own.builds > own.last_build) own.broken = true;
    own.lost = own.broken.load();
    if (own.lost) {
      return Status(StatusCode::kUnavailable, "DEVICE_LOST",
                    "the fake device is broken; send the request to another one");
    }
    if (!takes_memory || !TakeOne(told_.out_of_memory)) return {};
    return Status(StatusCode::kResourceExhausted, "DEVICE_OUT_OF_MEMORY",
                  "the fake device is full");
  }

  FakeEngine& told_;
  const std::vector<DeviceInfo> devices_;
};

DeviceInfo FakeCpu() {
  DeviceInfo cpu;
  cpu.name = "fake CPU";
  cpu.threads = 1;
  return cpu;
}

DeviceInfo FakeGpu(int index) {
  DeviceInfo gpu;
  gpu.backend = Backend::kCuda;
  gpu.index = index;
  gpu.name = "fake GPU";
  gpu.uuid = "GPU-" + std::to_string(index);
  gpu.memory_bytes = kGpuBytes;
  return gpu;
}

DeviceInfo FakeRanks(int ranks, int threads) {
  DeviceInfo info;
  info.backend = Backend::kRanks;
  info.index = ranks;
  info.name = "fake ranks";
  info.memory_bytes = kRanksBytes;
  info.threads = threads;
  return info;
}

FakeEngine::FakeEngine(std::vector<DeviceInfo> devices)
    : states(devices.size()), face_(std::make_unique<Face>(*this, std::move(devices))) {}
FakeEngine::~FakeEngine() = default;

void FakeEngine::WaitFor(const std::atomic<int64_t>& counter, int64_t count) {
  while (counter < count) SleepABit();
}

}  // namespace spaid::server
