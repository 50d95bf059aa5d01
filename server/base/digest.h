// XXH3-128 digests, as proto/spaid/v1/arrays.proto defines them, and CRC-32 of chunks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spaid::server {

// 16 bytes in XXH3's canonical (big-endian) form. All zero: unset (never happens by content, for
// all practical purposes).
struct Digest {
  std::array<uint8_t, 16> bytes{};

  std::string ToBytes() const { return std::string(bytes.begin(), bytes.end()); }
  std::string ToHex() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};

// Streaming XXH3-128, seed 0. Thread-compatible.
class Digester {
 public:
  Digester();

  Digester& Update(const void* data, size_t size);
  template <class T>
  Digester& Update(std::span<const T> data) {
    return Update(data.data(), data.size_bytes());
  }
  Digest Finish() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

// Digests of a matrix's arrays, where they are known already.
struct ArrayDigests {
  std::optional<Digest> pattern, values;
};

// Pattern digest: n, nnz (int64), col_ptr (int64), row_idx (int32) of the sorted CSC; value digest:
// the fp64 bits in that order. Little-endian hosts only (checked at compile time).
Digest PatternDigest(int64_t n, std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx);
Digest ValueDigest(std::span<const double> values);
// For col_ptr and row_idx in pieces, in that order.
Digester PatternDigester(int64_t n, int64_t nnz);

// zlib's CRC-32; `crc`: of what stands before `data`.
uint32_t Crc32(std::string_view data, uint32_t crc = 0);

}  // namespace spaid::server
