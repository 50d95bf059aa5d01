// Makes what calls about one matrix have in common: AffinityOf (spaid/client.h).
#pragma once

#include <string_view>

namespace spaid::internal {

// Tells if `text` is an affinity: 8 lower-case hex digits.
bool IsAffinity(std::string_view text);

}  // namespace spaid::internal
