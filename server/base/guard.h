// Our own code does not throw, the standard library and its allocator may: one request or job must
// not take the daemon with it.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace spaid::server {

// Runs `work` and returns its status; an exception becomes an error:
// RESOURCE_EXHAUSTED/OUT_OF_MEMORY for bad_alloc, INTERNAL/INTERNAL for the rest. Throws nothing,
// even without memory for the text. `what` names the work in the text ("the job").
absl::Status Guarded(std::string_view what, const std::function<absl::Status()>& work);

}  // namespace spaid::server
