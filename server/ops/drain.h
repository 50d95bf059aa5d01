// Shuts down without losing what can be kept: not ready first, still serving for the grace time
// (load balancers take that long to notice), then no new work, running work finished up to the
// deadline, every stream ended.
#pragma once

#include <chrono>
#include <functional>

#include "server/base/clock.h"

namespace spaid::server {

struct DrainOptions {
  std::chrono::milliseconds grace{5'000};      // not ready, but serving
  std::chrono::milliseconds deadline{60'000};  // for running work; from the end of the grace time
};

// The steps of a drain, in this order. All set; called on the draining thread.
struct DrainSteps {
  std::function<void()> not_ready;
  // Waits up to `grace`. True: somebody wants it quicker (a second signal).
  std::function<bool(std::chrono::milliseconds grace)> wait;
  std::function<void()> refuse_new;
  // Lets queued and running work finish; stops what is left at `deadline`. False: something hangs.
  std::function<bool(TimePoint deadline)> finish_work;
  // Lets open streams take their results; false: some were still open at `deadline`.
  std::function<bool(TimePoint deadline)> finish_streams;
  // Ends the rest and closes the port.
  std::function<void()> shut_down;
};

// Runs the steps and logs each. Returns true if everything finished by itself.
bool Drain(const DrainOptions& options, const DrainSteps& steps);

}  // namespace spaid::server
