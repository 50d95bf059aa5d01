#include "server/rpc/work_stream.h"

namespace spaid::server {

absl::Status UnexpectedMessage(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kUnexpectedMessage,
                   absl::StrCat("got ", what,
                                "; the order is: one header, the chunks of the arrays it "
                                "announces, half-close"));
}

}  // namespace spaid::server
