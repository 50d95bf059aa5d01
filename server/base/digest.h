// Names of content: XXH3-128 and SHA-256, as proto/spaid/v1/arrays.proto defines them, fingerprints
// for the keys of this process; and CRC-32 of chunks.
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
// Starts a pattern digest to which col_ptr and then row_idx are given in pieces.
Digester PatternDigester(int64_t n, int64_t nnz);

// Proves that content is equal: XXH3 only finds candidates, for anybody can make two contents with
// the same XXH3, and nobody can with the same SHA-256.
struct Sha256 {
  std::array<uint8_t, 32> bytes{};

  std::string ToBytes() const { return std::string(bytes.begin(), bytes.end()); }
  friend bool operator==(const Sha256&, const Sha256&) = default;
};
// Hash the same bytes as PatternDigest and ValueDigest.
Sha256 PatternSha256(int64_t n, std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx);
Sha256 ValueSha256(std::span<const double> values);
// The same of the values in another order: values[places[0]], values[places[1]], …
Sha256 ValueSha256(std::span<const double> values, std::span<const int32_t> places);

// Names content within this process, four times as fast as SHA-256: Poly1305 under a key that is
// drawn at the first use and never leaves, as no fingerprint may. Whoever does not know the key
// makes two contents of L bytes of one fingerprint with a chance under L / 2^106.
struct Fingerprint {
  std::array<uint8_t, 16> bytes{};

  std::string ToBytes() const { return std::string(bytes.begin(), bytes.end()); }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
// Take the same bytes as PatternDigest and ValueDigest.
Fingerprint PatternFingerprint(int64_t n, std::span<const int64_t> col_ptr,
                               std::span<const int32_t> row_idx);
Fingerprint ValueFingerprint(std::span<const double> values);

// Returns zlib's CRC-32 of `data`, continued from `crc`, that of the bytes before it.
uint32_t Crc32(std::string_view data, uint32_t crc = 0);

}  // namespace spaid::server
