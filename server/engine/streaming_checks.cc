#include "server/engine/streaming_checks.h"

#include <algorithm>
#include <cstddef>

namespace spaid::server {
namespace {

// Read from memory for the digest, from the cache for the rest.
constexpr size_t kPieceBytes = 256 << 10;

template <class T>
size_t PieceEnd(std::span<const T> array, size_t begin) {
  return std::min(array.size(), begin + kPieceBytes / sizeof(T));
}

}  // namespace

StreamingChecks::StreamingChecks(int64_t n, int64_t nnz)
    : n_(static_cast<size_t>(n)),
      nnz_(static_cast<size_t>(nnz)),
      pattern_(PatternDigester(n, nnz)),
      scan_(n) {}

bool StreamingChecks::Behind(std::span<const int64_t> pointers, std::span<const int32_t> indices,
                             std::span<const double> values) const {
  return pointers.size() > pointers_ || values.size() > values_ ||
         (pointers.size() > n_ && indices.size() > indices_);
}

bool StreamingChecks::Look(std::span<const int64_t> pointers, std::span<const int32_t> indices,
                           std::span<const double> values) {
  if (!Behind(pointers, indices, values)) return false;
  pattern_.Update(pointers.subspan(pointers_));
  pointers_ = pointers.size();
  while (pointers_ > n_ && indices_ < indices.size()) {
    const size_t end = PieceEnd(indices, indices_);
    pattern_.Update(indices.subspan(indices_, end - indices_));
    scan_.AddIndices(pointers, indices.first(end), static_cast<int64_t>(indices_));
    indices_ = end;
  }
  while (values_ < values.size()) {
    const size_t end = PieceEnd(values, values_);
    const auto piece = values.subspan(values_, end - values_);
    value_digester_.Update(piece);
    scan_.AddValues(piece);
    values_ = end;
  }
  return true;
}

void StreamingChecks::LookAtValues(std::span<const double> piece) {
  value_digester_.Update(piece);
  scan_.AddValues(piece);
  values_ += piece.size();
}

ArrayFacts StreamingChecks::Finish() const {
  ArrayFacts arrived;
  arrived.known = scan_.Known(static_cast<int64_t>(nnz_));
  if (pointers_ > n_ && indices_ == nnz_) arrived.digests.pattern = pattern_.Finish();
  if (values_ == nnz_) arrived.digests.values = value_digester_.Finish();
  return arrived;
}

}  // namespace spaid::server
