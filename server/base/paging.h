// Pages of lists, newest first.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace spaid::server {

// Everything listed has a sequence number that grows; a page holds those under `before`.
struct PageRequest {
  int32_t size = 100;
  uint64_t before = std::numeric_limits<uint64_t>::max();
};

// `size` 0 means 100. Errors: INVALID_ARGUMENT/BAD_PAGE_SIZE (negative, over 1000),
// /BAD_PAGE_TOKEN.
absl::StatusOr<PageRequest> ParsePage(int32_t size, std::string_view token);

// The token of the page behind one whose last item has this sequence number.
std::string PageToken(uint64_t last_sequence);

}  // namespace spaid::server
