// Defines pages of lists, newest first.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace spaid::server {

// Everything listed has a sequence number that grows; a page holds those under `before`.
struct PageRequest {
  std::string list = {};  // names the list and its owner: its tokens are good for no other list
  int32_t size = 100;
  uint64_t before = std::numeric_limits<uint64_t>::max();
};

// Parses a request for a page; `size` 0 means 100. Errors: INVALID_ARGUMENT/BAD_PAGE_SIZE
// (negative, over 1000), /BAD_PAGE_TOKEN (also a token of another list, or of an earlier daemon).
absl::StatusOr<PageRequest> ParsePage(std::string list, int32_t size, std::string_view token);

// Returns the token of the page behind one whose last item has this sequence number. It is
// encrypted by a key of this process and bound to its list: sequence numbers count over all
// tenants, and would tell each how much the others do. Thread-safe.
std::string PageToken(std::string_view list, uint64_t last_sequence);

}  // namespace spaid::server
