// Assembles arrays from received chunks, and computes digests. Little-endian hosts only, checked
// when this is compiled.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spaid/client.h"
#include "spaid/v1/arrays.pb.h"

namespace spaid::internal {

static_assert(std::endian::native == std::endian::little, "arrays are sent as they lie in memory");

// Takes one array's chunks, in order. Memory grows with the bytes that came, never with a promise.
template <class T>
class ArraySink {
 public:
  ArraySink(v1::ArrayKind kind, int64_t count) : kind_(kind), count_(count) {}
  // Appends a chunk. Wrong order, wrong size, too much or a wrong checksum is an error, and nothing
  // is taken.
  std::optional<Error> Take(const v1::ArrayChunk& chunk);
  bool Complete() const { return static_cast<int64_t>(values_.size()) == count_; }
  void Have(std::vector<T> whole) { values_ = std::move(whole); }
  int64_t received() const { return static_cast<int64_t>(values_.size()); }
  v1::ArrayKind kind() const { return kind_; }
  std::vector<T> Release() { return std::move(values_); }

 private:
  v1::ArrayKind kind_;
  int64_t count_;
  std::vector<T> values_;
};
extern template class ArraySink<int64_t>;
extern template class ArraySink<int32_t>;
extern template class ArraySink<double>;

// Checks the sizes of the spans against n and each other (SIZE_MISMATCH, with the field); the
// server checks the entries.
std::optional<Error> CheckSpans(const CscView& a);

// `a` with 64-bit pointers: its own, or a copy. Lives as long as the view is used.
class WidePointers {
 public:
  explicit WidePointers(const CscView& a);
  WidePointers(const WidePointers&) = delete;
  WidePointers& operator=(const WidePointers&) = delete;
  const CscView& view() const { return view_; }

 private:
  std::vector<int64_t> copy_;
  CscView view_;
};

// Digests the pattern of a matrix that the client has, for a header; empty: nobody has that one
// (null, or not canonical). SIZE_MISMATCH where the arrays do not fit each other.
Expected<std::string> KnownPattern(const CscMatrix* known);

// Returns true for a matrix that leaves out its values; a matrix without entries is not a pattern.
bool IsPattern(const CscView& a);

// Returns the XXH3 digests of the arrays, by columns those of the matrix as the server will store
// it; none if they are not canonical (unsorted, duplicates, broken pointers): the server would
// store others.
std::optional<v1::MatrixDigest> Digest(const CscView& a);

// Returns what calls about this pattern have in common: the first 8 hex digits of Digest's of the
// pattern, of the arrays as they lie there where there is none.
std::string PatternAffinity(const CscView& a);
// The same of a digest that was made.
std::string PatternAffinity(const v1::MatrixDigest& digest);

// Adds SHA-256 of the same bytes to the result of Digest(a), in some six times its time; or, of the
// pattern alone. False: stopped before the end, and nothing is added.
bool AddSha256(const CscView& a, const std::stop_token& stop, v1::MatrixDigest& digest,
               bool pattern_alone = false);

// Returns zlib's CRC-32 of `bytes`, continued from `crc`, that of the bytes before them.
uint32_t Crc32(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace spaid::internal
