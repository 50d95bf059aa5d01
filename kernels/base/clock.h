// Times by the host's clock.
#pragma once

#include <chrono>

namespace spaid::kernels {

using Clock = std::chrono::steady_clock;

inline double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace spaid::kernels
