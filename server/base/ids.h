// Unguessable names.
#pragma once

#include <string>

namespace spaid::server {

// 128 random bits of the kernel's generator as 32 lower-case hex digits. Crashes where the kernel
// has no randomness (a daemon with guessable handles must not run). Thread-safe.
std::string RandomId();

}  // namespace spaid::server
