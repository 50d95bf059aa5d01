#include "server/base/guard.h"

#include <exception>
#include <new>
#include <string>

#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

absl::Status OutOfMemory(std::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kOutOfMemory,
                   "the host ran out of memory during " + std::string(what) +
                       "; see EstimateBuild for what a build takes, and try again when less is "
                       "running");
}

// Made before memory is short.
const absl::Status& kPrepared = *new absl::Status(OutOfMemory("the call"));

}  // namespace

absl::Status Guarded(std::string_view what, const std::function<absl::Status()>& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    try {
      return OutOfMemory(what);
    } catch (const std::bad_alloc&) {
      return kPrepared;
    }
  } catch (const std::exception& error) {
    return MakeError(absl::StatusCode::kInternal, reason::kInternal,
                     "unexpected error in " + std::string(what) + ": " + error.what());
  }
}

}  // namespace spaid::server
