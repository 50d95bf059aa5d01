// The numerics behind the daemon, without numerics: a diagonal M, solves of diagonal systems, and
// holds, so that a test decides when a build or a solve goes on. Honours stop tokens as the real
// engine does.
//
//   FakeEngine engine;
//   engine.HoldBuilds();
//   ... ask the server for a build ...
//   engine.WaitForBuilds(1);          // it runs, and is held
//   ... cancel it, or engine.Release() ...
//
//   FakeEngine two({FakeCpu(), FakeGpu(0)});
//   two.BreakDevice(1);               // what is asked of it next loses it
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/engine/engine.h"

namespace spaid::server {

kernels::DeviceInfo FakeCpu();
kernels::DeviceInfo FakeGpu(int index);

// Thread-safe.
class FakeEngine : public kernels::Engine {
 public:
  explicit FakeEngine(std::vector<kernels::DeviceInfo> devices = {FakeCpu()});

  // The next plan, build or probe on it fails with UNAVAILABLE/DEVICE_LOST, and it stays so. A
  // build that is held fails when it goes on. `after_builds`: so many of all builds on it come
  // before.
  void BreakDevice(int device, int64_t after_builds = 0);
  // Builds on it that begin from now on never end, nor hear of stops; nor does the engine's life.
  void HangDevice(int device);
  // The next `times` builds fail with RESOURCE_EXHAUSTED/DEVICE_OUT_OF_MEMORY.
  void RunOutOfDeviceMemory(int times);
  // What estimates say, and what plans on a GPU hold of its memory of 1000 bytes. `least`: that
  // will do, too.
  void SetDeviceBytes(int64_t bytes);
  void SetDeviceBytes(int64_t bytes, int64_t least);
  // The next `times` plans find no room for their tables.
  void PlanInWaves(int times);
  // Until `device` has been probed `count` times.
  void WaitForProbes(int device, int64_t count);
  int64_t builds_on(int device) const;

  // Builds (solves, estimates) that begin from now on wait for Release, a stop, or the end of the
  // engine's life.
  void HoldBuilds();
  void HoldSolves();
  void HoldEstimates();
  void HoldCopies();  // measurements of what a copy reaches: Release alone ends them
  void Release();
  // Builds that begin from now on show M: its pattern, then its first columns, so many of them;
  // then they wait for ReleaseShown, a stop, or the end of the engine's life.
  void HoldBuildsShown(int64_t columns);
  void ReleaseShown();
  // Until `count` builds (solves) have begun in all.
  void WaitForBuilds(int64_t count);
  void WaitForSolves(int64_t count);
  void WaitForEstimates(int64_t count);
  int64_t builds() const;
  int64_t solves() const;
  int64_t plans() const;
  // The next builds fail with this; `deadly`: and break their devices.
  void FailBuilds(kernels::Status status, bool deadly = false);
  // The next estimates throw: bad_alloc, or a runtime_error of this text.
  void ThrowFromEstimates(std::optional<std::string> what);
  // What estimates say of every build; and of one on a GPU (0: nothing).
  void SetPredictedMs(double ms);
  void SetPredictedDeviceMs(double ms);
  // Whether builds of AFSAI and dynamic SPAI leave a plan that serves new values, with what GPUs
  // hold of it.
  void GrowPlans();
  // What `Resolve` makes of AUTO (default JACOBI).
  void SetAutoChoice(kernels::EngineKind kind);
  // Threads of the last Resolve, its spec, and whether it was given a pattern.
  int resolve_threads() const;
  kernels::PreconditionerSpec resolve_spec() const;
  bool resolve_had_pattern() const;
  // Those that the last plan was made for, where several share it.
  std::vector<int> plan_devices() const;
  // Whether GPUs solve, with matrices and preconditioners that are placed there (100 bytes each);
  // how many have been, and are there now; and what solves say that they take, GMRES 10 more for
  // each column of its basis.
  void SolveOnGpus(int64_t bytes = 100);
  int64_t placements() const;
  int64_t placed() const;
  int64_t replaced() const;  // matrices that took another one's place
  // The next `times` find that its layout does not serve them.
  void RefuseToReplace(int times);
  int64_t solves_on(int device) const;
  // The most entries of an M that a solve was said to take to a device.
  int64_t most_nnz_m() const;
  // How often somebody asked what a copy reaches.
  int64_t copies_measured() const { return copies_measured_; }
  // Residuals that each solve reports per right-hand side (default 3).
  void SetResiduals(int count);
  // So many of them come once a solve that was held goes on.
  void SetResidualsAfterHold(int count);

  std::vector<kernels::DeviceInfo> Devices() const override { return devices_; }
  kernels::DeviceState State(int device) const override;
  kernels::Status Probe(int device) const override;
  kernels::Result<kernels::ResolvedSpec> Resolve(const kernels::PreconditionerSpec& spec,
                                                 const kernels::CscView& a,
                                                 const kernels::Diagnosis& diagnosis,
                                                 const kernels::PatternView* user_pattern,
                                                 const kernels::Context& context) const override;
  kernels::Result<kernels::BuildEstimate> Estimate(const kernels::PreconditionerSpec& spec,
                                                   const kernels::CscView& a,
                                                   const kernels::PatternView* user_pattern,
                                                   const kernels::Context& context) const override;
  kernels::Result<std::shared_ptr<const kernels::Plan>> MakePlan(
      const kernels::PreconditionerSpec& spec, const kernels::CscView& a,
      const kernels::PatternView* user_pattern, const kernels::Context& context) const override;
  kernels::Result<kernels::BuildResult> Build(const kernels::Plan& plan,
                                              const kernels::PreconditionerSpec& spec,
                                              const kernels::CscView& a,
                                              const kernels::Context& context) const override;
  kernels::Result<kernels::Method> ResolveMethod(
      kernels::Method method, kernels::EngineKind kind,
      const kernels::Diagnosis& diagnosis) const override;
  kernels::Result<kernels::SolveResult> Solve(const kernels::CscView& a,
                                              const kernels::Preconditioner* preconditioner,
                                              std::span<const double> b, std::span<const double> x0,
                                              const kernels::SolveOptions& options,
                                              const kernels::Context& context) const override;
  bool SolvesOnDevice(const kernels::Context& context) const override;
  int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                           const kernels::SolveOptions& options) const override;
  kernels::Result<std::shared_ptr<const kernels::DeviceOperator>> Place(
      const kernels::CscView& a, const kernels::Context& context) const override;
  kernels::Result<std::shared_ptr<const kernels::DeviceOperator>> Replace(
      std::shared_ptr<const kernels::DeviceOperator> old, const kernels::CscView& a,
      const kernels::Context& context) const override;
  kernels::Result<std::shared_ptr<const kernels::DeviceOperator>> Place(
      const kernels::Preconditioner& m, kernels::Storage storage,
      const kernels::Context& context) const override;
  kernels::Result<kernels::SolveResult> SolveOnDevice(
      const kernels::CscView& a, const kernels::DeviceOperator& a_there,
      const kernels::Preconditioner* preconditioner, const kernels::PlaceM& place_m,
      std::span<const double> b, std::span<const double> x0, const kernels::SolveOptions& options,
      const kernels::Context& context) const override;
  double CopyBytesPerSecond(const kernels::Context& context, bool on_host) const override;

 private:
  // Until nothing holds, or `stop` stops; what it says.
  kernels::StopReason WaitWhile(const bool& held, const kernels::StopToken& stop) const;
  void WaitFor(const int64_t& counter, int64_t count) const;
  // DEVICE_LOST where the device is broken.
  kernels::Status TouchLocked(int device) const;

  struct Device {
    bool broken = false, lost = false, hangs = false;
    int64_t probes = 0, builds = 0, solves = 0;
    int64_t last_build = std::numeric_limits<int64_t>::max();  // it breaks behind it
  };

  const std::vector<kernels::DeviceInfo> devices_;
  mutable std::vector<Device> states_;
  mutable int out_of_memory_ = 0;
  mutable int plans_in_waves_ = 0;
  int64_t device_bytes_ = 100, device_bytes_min_ = 100;
  int64_t solve_bytes_ = 0;  // 0: GPUs do not solve
  mutable int64_t most_nnz_m_ = 0;
  mutable int64_t placements_ = 0, replaced_ = 0;
  mutable int refuse_to_replace_ = 0;
  const std::shared_ptr<std::atomic<int64_t>> placed_ = std::make_shared<std::atomic<int64_t>>(0);

  mutable std::atomic<int64_t> copies_measured_{0};
  mutable std::mutex mu_;
  mutable std::condition_variable changed_;
  bool hold_builds_ = false, hold_solves_ = false, hold_estimates_ = false;
  bool hold_copies_ = false;
  bool hold_shown_ = false;
  std::optional<int64_t> show_columns_;
  mutable int64_t builds_ = 0, solves_ = 0, plans_ = 0, estimates_ = 0;
  kernels::Status fail_builds_;
  bool deadly_ = false;
  std::optional<std::string> throw_from_estimates_;
  double predicted_ms_ = 10, predicted_device_ms_ = 0;
  bool grow_plans_ = false;
  kernels::EngineKind auto_choice_ = kernels::EngineKind::kJacobi;
  mutable int resolve_threads_ = 0;
  mutable kernels::PreconditionerSpec resolve_spec_;
  mutable bool resolve_had_pattern_ = false;
  mutable std::vector<int> plan_devices_;
  int residuals_ = 3, residuals_after_hold_ = 0;
};

}  // namespace spaid::server
