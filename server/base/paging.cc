#include "server/base/paging.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace spaid::server {

absl::StatusOr<PageRequest> ParsePage(int32_t size, std::string_view token) {
  PageRequest page;
  if (size < 0 || size > 1000) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadPageSize,
                     absl::StrCat("page_size is ", size, "; give 1 to 1000, or 0 for 100"))
        .Field("page_size");
  }
  if (size > 0) page.size = size;
  if (!token.empty()) {
    const char* end = token.data() + token.size();
    const auto parsed = std::from_chars(token.data(), end, page.before, 16);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadPageToken,
                       "page_token is not one that this server gave; leave it empty for the first "
                       "page")
          .Field("page_token");
    }
  }
  return page;
}

std::string PageToken(uint64_t last_sequence) {
  char buffer[16];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), last_sequence, 16).ptr;
  return std::string(buffer, end);
}

}  // namespace spaid::server
