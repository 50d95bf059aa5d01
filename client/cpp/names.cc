#include <cstddef>
#include <string_view>

#include "spaid/client.h"

namespace spaid {
namespace {

// The value of an enum that a caller forged out of range has no name; it must not read past the
// table.
template <size_t kCount, class Enum>
std::string_view Pick(const std::string_view (&names)[kCount], Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kCount ? names[index] : std::string_view("unknown");
}

}  // namespace

std::string_view Name(Engine value) { return TraitsOf(value).name; }

std::string_view Name(LocalSolver value) {
  static constexpr std::string_view kNames[] = {"auto", "qr", "gram"};
  return Pick(kNames, value);
}

std::string_view Name(Learned value) {
  static constexpr std::string_view kNames[] = {"on", "off"};
  return Pick(kNames, value);
}

std::string_view Name(ThreadStrategy value) {
  static constexpr std::string_view kNames[] = {"auto", "constant", "variable", "paper"};
  return Pick(kNames, value);
}

std::string_view Name(Scaling value) {
  static constexpr std::string_view kNames[] = {"auto", "none", "equilibrate", "matching"};
  return Pick(kNames, value);
}

std::string_view Name(Coarsening value) {
  static constexpr std::string_view kNames[] = {"smoothed-aggregation", "plain-aggregation",
                                                "classical"};
  return Pick(kNames, value);
}

std::string_view Name(Smoother value) {
  static constexpr std::string_view kNames[] = {"auto", "l1-jacobi", "jacobi",     "chebyshev",
                                                "fsai", "afsai",     "static-spai"};
  return Pick(kNames, value);
}

std::string_view Name(Cycle value) {
  static constexpr std::string_view kNames[] = {"v", "w"};
  return Pick(kNames, value);
}

std::string_view Name(ParasailsSymmetry value) {
  static constexpr std::string_view kNames[] = {"auto", "general", "spd"};
  return Pick(kNames, value);
}

std::string_view Name(BoomeramgCoarsening value) {
  static constexpr std::string_view kNames[] = {"hmis", "pmis", "falgout", "cljp"};
  return Pick(kNames, value);
}

std::string_view Name(BoomeramgInterpolation value) {
  static constexpr std::string_view kNames[] = {"extended", "classical", "direct", "standard",
                                                "multipass"};
  return Pick(kNames, value);
}

std::string_view Name(PartKind value) {
  static constexpr std::string_view kNames[] = {"unknown",  "scale",          "a",        "p", "r",
                                                "smoother", "coarse-inverse", "near-null"};
  return Pick(kNames, value);
}

std::string_view Name(Method value) {
  static constexpr std::string_view kNames[] = {"auto", "cg", "bicgstab", "gmres", "minres", "idr"};
  return Pick(kNames, value);
}

std::string_view Name(Precision value) {
  static constexpr std::string_view kNames[] = {"auto", "fp64", "fp32"};
  return Pick(kNames, value);
}

std::string_view Name(NullSpace value) {
  static constexpr std::string_view kNames[] = {"auto", "none", "constants"};
  return Pick(kNames, value);
}

std::string_view Name(ReuseMode value) {
  static constexpr std::string_view kNames[] = {"keep", "rebuild", "auto"};
  return Pick(kNames, value);
}

std::string_view Name(ReuseDecision value) {
  static constexpr std::string_view kNames[] = {"kept", "rebuilt", "regrown"};
  return Pick(kNames, value);
}

std::string_view Name(Outcome value) {
  static constexpr std::string_view kNames[] = {"converged",  "max-iterations", "stagnated",
                                                "breakdown",  "indefinite",     "non-finite",
                                                "time-limit", "cancelled"};
  return Pick(kNames, value);
}

std::string_view Name(Priority value) {
  static constexpr std::string_view kNames[] = {"interactive", "normal", "bulk"};
  return Pick(kNames, value);
}

std::string_view Name(JobState value) {
  static constexpr std::string_view kNames[] = {"queued", "running", "succeeded", "failed",
                                                "cancelled"};
  return Pick(kNames, value);
}

std::string_view Name(JobKind value) {
  static constexpr std::string_view kNames[] = {"build", "solve"};
  return Pick(kNames, value);
}

std::string_view Name(Stage value) {
  static constexpr std::string_view kNames[] = {"upload",   "plan",  "build",
                                                "assemble", "solve", "download"};
  return Pick(kNames, value);
}

}  // namespace spaid
