// Flags of a column of M: how it was solved, on any backend. Internal to this room.
#pragma once

#include <cstdint>

namespace spaid::kernels {

// Bits.
enum ColumnFlag : uint8_t {
  kColumnGram = 1,       // solved by the Gram path
  kColumnQr = 2,         // solved by QR, from the start or as a rescue
  kColumnIterative = 4,  // solved by CGLS
  kColumnRescued = 8,    // Gram gave it up
  kColumnRankDeficient = 16,
  kColumnZero = 32,           // k is not in I
  kColumnNonFinite = 64,      // set to zero
  kColumnNotConverged = 128,  // CGLS reached its limit
};

}  // namespace spaid::kernels
