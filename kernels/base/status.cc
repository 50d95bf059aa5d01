#include "kernels/base/status.h"

#include <string>
#include <string_view>

#include "kernels/base/context.h"

namespace spaid::kernels {

Status StopStatus(StopReason reason, std::string_view what) {
  switch (reason) {
    case StopReason::kCancelled:
      return Status(StatusCode::kCancelled, "CANCELLED",
                    std::string(what) + " was cancelled before it finished");
    case StopReason::kTimeLimit:
      return Status(StatusCode::kDeadlineExceeded, "TIME_LIMIT",
                    std::string(what) +
                        " reached its time limit before it finished; raise the limit, or ask for "
                        "less work");
    case StopReason::kNone:
      break;
  }
  // The caller took a finished computation for a stopped one.
  return Status(StatusCode::kInternal, "STOP_WITHOUT_REASON",
                std::string(what) + " reported a stop without a reason; this is a bug in spaid");
}

Status OutOfMemory(std::string_view what) {
  return Status(StatusCode::kResourceExhausted, "OUT_OF_MEMORY",
                "the " + std::string(what) +
                    " took more memory than there is; choose a smaller pattern or fewer threads, "
                    "or wait until other work is done");
}

}  // namespace spaid::kernels
