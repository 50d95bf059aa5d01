// Checksums of what lies in files, and the key that makes fingerprints last longer than a process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/base/digest.h"

namespace spaid::server {

// Returns XXH3-64: for damage, not against anybody.
uint64_t Checksum(const void* data, size_t size, uint64_t seed = 0);

Sha256 Sha256Of(std::string_view data);

// The key of fingerprints (digest.h), drawn where nobody gave one. It may leave the process for a
// file that nobody else can read, and nowhere else.
using FingerprintKey = std::array<uint8_t, 32>;
FingerprintKey CurrentFingerprintKey();
// Makes fingerprints by this key from now on. False: they are made by another one already. Call
// before the first of them. Thread-safe.
bool UseFingerprintKey(const FingerprintKey& key);

}  // namespace spaid::server
