// Runs the daemon, except for the engine it computes with: wiring, wait for a signal, drain.
#pragma once

#include "absl/status/status.h"
#include "server/engine/devices.h"
#include "server/flags.h"
#include "server/ops/signals.h"

namespace spaid::server {

// Serves until a signal comes or the remaining devices do not suffice (Backend::usable), then
// drains. Errors: flags that cannot be served (files, addresses); UNAVAILABLE/DEVICE_LOST. If a
// computation hangs it does not return, but ends the process as main does.
absl::Status Serve(Flags flags, const kernels::Engine& engine, ShutdownSignals& signals);

// Writes the error that the daemon ended with, if any, to standard error; returns the exit code.
int ReportEnd(const absl::Status& status);

}  // namespace spaid::server
