// The daemon but for what it computes with: wiring -> wait for a signal -> drain.
#pragma once

#include "absl/status/status.h"
#include "server/engine/devices.h"
#include "server/flags.h"
#include "server/ops/signals.h"

namespace spaid::server {

// Until a signal comes, or the devices that are left do not suffice (Backend::usable); then drains.
// Errors: what cannot be served (files, addresses); UNAVAILABLE/DEVICE_LOST. Where a computation
// hangs, it does not return, but ends the process as main does.
absl::Status Serve(Flags flags, const kernels::Engine& engine, ShutdownSignals& signals);

// Says on standard error what the daemon ended with, if anything; its exit code.
int ReportEnd(const absl::Status& status);

}  // namespace spaid::server
