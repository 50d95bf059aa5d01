// Reasons of a Status on which callers of the kernels act; what is told to people alone stands
// where it is made.
#pragma once

namespace spaid::kernels::reason {

// A plan or a layout was made for another pattern.
inline constexpr char kPlanMismatch[] = "PLAN_MISMATCH";
inline constexpr char kDeviceOutOfMemory[] = "DEVICE_OUT_OF_MEMORY";

}  // namespace spaid::kernels::reason
