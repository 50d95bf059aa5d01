// The precision of stored values or of a piece of arithmetic, wherever there is a choice.
#pragma once

namespace spaid::kernels {

enum class Precision { kAuto, kFp64, kFp32 };

}  // namespace spaid::kernels
