// The daemon but for what it computes with: wiring -> wait for a signal -> drain.
#pragma once

#include "absl/status/status.h"
#include "server/engine/devices.h"
#include "server/flags.h"
#include "server/ops/signals.h"

namespace spaid::server {

// Until a signal comes, or no device is left that works; then drains. Errors: what cannot be served
// (files, addresses); UNAVAILABLE/DEVICE_LOST after the loss of the last device.
absl::Status Serve(Flags flags, const kernels::Engine& engine, ShutdownSignals& signals);

}  // namespace spaid::server
