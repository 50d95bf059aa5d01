#include "kernels/base/option_range.h"

#include <cmath>
#include <cstdio>

namespace spaid::kernels {
namespace {

std::string Number(double x) {
  char text[32];
  const bool whole = std::abs(x) < 1e15 && x == std::floor(x);
  std::snprintf(text, sizeof text, whole ? "%.0f" : "%.6g", x);
  return text;
}

std::string Text(const OptionRange& range) {
  if (range.max == std::numeric_limits<double>::max()) {
    return "a finite value of at least " + Number(range.min);
  }
  if (range.below_max) return "at least " + Number(range.min) + " and under " + Number(range.max);
  return Number(range.min) + " to " + Number(range.max);
}

}  // namespace

bool Contains(const OptionRange& range, double value) {
  return value >= range.min && value <= range.max && !(range.below_max && value == range.max);
}

Status OutOfRange(const char* name, double value, const OptionRange& range, const char* reason) {
  std::string why = "BAD_";
  if (reason != nullptr) {
    why = reason;
  } else {
    for (const char* c = name; *c != '\0'; ++c) {
      why.push_back(static_cast<char>(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c));
    }
  }
  return Status(StatusCode::kInvalidArgument, why,
                std::string(name) + " = " + Number(value) + " is out of range; give " + Text(range))
      .At(name);
}

}  // namespace spaid::kernels
