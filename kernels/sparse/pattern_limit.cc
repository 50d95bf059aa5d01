// Apart from the rest of pattern.h, as libspaid_cuda.so has it, too.
#include <string>

#include "kernels/sparse/pattern.h"

namespace spaid::kernels {

Status PatternTooLarge(int64_t at_least, const PatternLimit& limit) {
  return Status(StatusCode::kResourceExhausted, "PATTERN_TOO_LARGE",
                "the pattern of the preconditioner would have at least " +
                    std::to_string(at_least) + " entries, " +
                    (limit.own ? "the limit is" : "the memory of this machine holds") + " " +
                    std::to_string(limit.nnz) +
                    "; use a lower power, a threshold (keep_tau), or raise the limit");
}

}  // namespace spaid::kernels
