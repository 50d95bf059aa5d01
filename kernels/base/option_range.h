// Options described once: a struct of options lists them by
//
//   template <class Self, class Visit>
//   static void Fields(Self& self, Visit&& visit) {
//     visit("k_max", self.k_max, OptionRange{0, 512});
//
// with the name that clients know and the range. CheckRanges is the one check of them; whoever
// converts options walks the same list.
#pragma once

#include <limits>
#include <string>
#include <type_traits>

#include "kernels/base/status.h"

namespace spaid::kernels {

// Finite numbers from min to max; of an enum the values so.
struct OptionRange {
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool below_max = false;        // max itself is out of range
  const char* reason = nullptr;  // of the refusal; null: BAD_ and the name, or the struct's own
};

inline constexpr OptionRange kFlag = {0, 1};
inline constexpr OptionRange kFraction = {0, 1};
inline constexpr OptionRange kBelowOne = {0, 1, true};
template <class Enum>
constexpr OptionRange UpTo(Enum last) {
  return {0, static_cast<double>(last)};
}

bool Contains(const OptionRange& range, double value);
// INVALID_ARGUMENT: the field, its value, the range. `reason`: null: BAD_ and the name.
Status OutOfRange(const char* name, double value, const OptionRange& range, const char* reason);

// The first option that is out of its range. `reason`: of all that have none of their own.
template <class Options>
Status CheckRanges(const Options& options, const char* reason = nullptr) {
  Status status;
  Options::Fields(options, [&](const char* name, const auto& member, const OptionRange& range) {
    double value = 0;
    if constexpr (requires { member.has_value(); }) {
      if (!member) return;
      value = static_cast<double>(*member);
    } else {
      value = static_cast<double>(member);
    }
    if (!status.ok() || Contains(range, value)) return;
    status = OutOfRange(name, value, range, range.reason != nullptr ? range.reason : reason);
  });
  return status;
}

}  // namespace spaid::kernels
