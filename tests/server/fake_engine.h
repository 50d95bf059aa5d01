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
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/engine/engine.h"
#include "kernels/engine/spec.h"

namespace spaid::server {

kernels::DeviceInfo FakeCpu();
kernels::DeviceInfo FakeGpu(int index);
kernels::DeviceInfo FakeRanks(int ranks, int threads);

// Knobs and findings of a test with the engine. Thread-safe.
class FakeEngine {
 public:
  explicit FakeEngine(std::vector<kernels::DeviceInfo> devices = {FakeCpu()});
  ~FakeEngine();
  operator const kernels::Engine&() const { return *face_; }

  // The next plan, build or probe on it fails with UNAVAILABLE/DEVICE_LOST, and it stays so. A
  // build that is held fails when it goes on. `after_builds`: so many of all builds on it come
  // before.
  void BreakDevice(int device, int64_t after_builds = 0) {
    of(device).last_build = after_builds;
    of(device).broken = after_builds == 0;
  }
  // Builds on it that begin from now on never end, nor hear of stops; nor does the engine's life.
  void HangDevice(int device) { of(device).hangs = true; }
  std::atomic<int> break_solves{0};    // so many solves to come end in a breakdown, at x = 0
  std::atomic<int> out_of_memory{0};   // so many builds to come fail with DEVICE_OUT_OF_MEMORY
  std::atomic<int> plans_in_waves{0};  // so many plans to come find no room for their tables
  // What estimates say, and what plans on a GPU hold of its memory of 1000 bytes. `least`: that
  // will do, too.
  void SetDeviceBytes(int64_t bytes) { SetDeviceBytes(bytes, bytes); }
  void SetDeviceBytes(int64_t bytes, int64_t least) {
    device_bytes = bytes;
    device_bytes_min = least;
  }
  std::atomic<int64_t> device_bytes{100}, device_bytes_min{100};

  // Builds (solves, estimates) that begin from now on wait for Release, a stop, or the end of the
  // engine's life; measurements of what a copy reaches for Release alone.
  std::atomic<bool> hold_builds{false}, hold_solves{false}, hold_estimates{false},
      hold_copies{false};
  void HoldBuilds() { hold_builds = true; }
  void HoldSolves() { hold_solves = true; }
  void Release() {
    hold_builds = hold_solves = hold_estimates = hold_copies = hold_ahead = refuse_ahead = false;
  }
  // Builds that begin from now on show M: its pattern, then its first columns, so many of them;
  // then they wait for ReleaseShown, a stop, or the end of the engine's life.
  void HoldBuildsShown(int64_t columns) {
    hold_shown = true;
    show_columns = columns;
  }
  void ReleaseShown() { hold_shown = false; }
  std::atomic<bool> hold_shown{false};
  std::atomic<int64_t> show_columns{-1};

  // Values that come ahead (Engine::BeginCopyAhead) go to a GPU through two buffers by a thread
  // that is the device: it copies nothing while it is held. Refused, none begins.
  std::atomic<bool> hold_ahead{false}, refuse_ahead{false};
  // The next that is sent ahead to it loses the device.
  std::atomic<bool> break_ahead{false};
  // Bytes that it has copied; that are held on it now; that builds and placements took, having
  // compared them with A; where they were not the same.
  std::atomic<int64_t> ahead_there{0}, ahead_held{0}, ahead_taken{0}, ahead_differ{0};
  void WaitForAhead(int64_t bytes) const { WaitFor(ahead_there, bytes); }

  // How many have begun; WaitFor...: until so many have.
  std::atomic<int64_t> builds{0}, solves{0}, plans{0}, estimates{0};
  void WaitForBuilds(int64_t count) const { WaitFor(builds, count); }
  void WaitForSolves(int64_t count) const { WaitFor(solves, count); }
  void WaitForEstimates(int64_t count) const { WaitFor(estimates, count); }
  void WaitForProbes(int device, int64_t count) const { WaitFor(of(device).probes, count); }
  int64_t builds_on(int device) const { return of(device).builds; }
  int64_t solves_on(int device) const { return of(device).solves; }

  // The next builds fail with this; `deadly`: and break their devices.
  void FailBuilds(kernels::Status status, bool deadly = false) {
    const std::lock_guard lock(mu);
    fail_builds = {std::move(status), deadly};
  }
  // The next estimates throw: bad_alloc, or a runtime_error of this text.
  void ThrowFromEstimates(std::optional<std::string> what) {
    const std::lock_guard lock(mu);
    throw_from_estimates = std::move(what);
  }
  // What estimates say of every build; and of one on a GPU (0: nothing).
  std::atomic<double> predicted_ms{10}, predicted_device_ms{0};
  // Whether builds of engines that grow a pattern leave a plan that serves new values, with what
  // GPUs hold of it.
  std::atomic<bool> grow_plans{false};
  // Result of Resolve for AUTO.
  std::atomic<kernels::EngineKind> auto_choice{kernels::EngineKind::kJacobi};
  // Whether GPUs solve, with matrices and preconditioners that are placed there (100 bytes each),
  // and what solves say that they take, GMRES 10 more for each column of its basis.
  void SolveOnGpus(int64_t bytes = 100) { solve_bytes = bytes; }
  std::atomic<int64_t> solve_bytes{1'000'000};
  // How many have been placed, are there now, and took another one's place; so many to come find
  // that its layout does not serve them.
  std::atomic<int64_t> placements{0}, placed{0}, replaced{0};
  std::atomic<int> refuse_to_replace{0};
  std::atomic<int64_t> most_nnz_m{0};       // that a solve was said to take to a device
  std::atomic<int64_t> copies_measured{0};  // somebody asked what a copy reaches
  // Residuals that each solve reports per right-hand side; so many of them come once a solve that
  // was held goes on.
  std::atomic<int> residuals{3}, residuals_after_hold{0};

  // Solves in place of the engine, if it is set before the first solve, once it is no longer held;
  // `held`: whether it was stopped meanwhile; `breaks`: it is one of break_solves.
  std::function<kernels::SolveResult(const kernels::Engine::SolveCase&, const kernels::Context&,
                                     const kernels::Status& held, bool breaks)>
      solve;
  // Builds on a plan that served earlier values, of engines that grow a pattern, say so, and M is
  // so many times the inverse.
  std::atomic<double> reused_times{1};

  // From the last Resolve: its threads, its spec, whether it was given a pattern.
  struct Resolved {
    int threads = 0;
    kernels::PreconditionerSpec spec;
    bool had_pattern = false;
  };
  Resolved resolved() const {
    const std::lock_guard lock(mu);
    return last_resolved;
  }
  // Those that the last plan was made for, where several share it.
  std::vector<int> plan_devices() const {
    const std::lock_guard lock(mu);
    return last_plan_devices;
  }

 private:
  class Ahead;
  class Face;
  struct Device {
    std::atomic<bool> broken{false}, lost{false}, hangs{false};
    std::atomic<int64_t> probes{0}, builds{0}, solves{0};
    std::atomic<int64_t> last_build{std::numeric_limits<int64_t>::max()};  // it breaks behind it
  };
  static void WaitFor(const std::atomic<int64_t>& counter, int64_t count);
  Device& of(int device) const { return states.at(static_cast<size_t>(device)); }

  mutable std::deque<Device> states;
  mutable std::mutex mu;
  std::pair<kernels::Status, bool> fail_builds;
  std::optional<std::string> throw_from_estimates;
  Resolved last_resolved;
  std::vector<int> last_plan_devices;
  std::unique_ptr<const kernels::Engine> face_;
};

}  // namespace spaid::server
