// Cuts the server's arrays into chunks, one at a time, when the stream asks for the next.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/stored_types.h"
#include "spaid/v1/arrays.pb.h"

namespace spaid::server {

// A sequence of borrowed arrays, kept alive by `owner` (null: whoever calls Next sees to it).
// Thread-compatible.
class ChunkSource {
 public:
  ChunkSource() = default;
  // Makes a source for M in CSC: pointers and indices, unless `values_only`, and values (as float32
  // if `narrow`).
  static ChunkSource OfMatrix(std::shared_ptr<const void> owner, const kernels::CscView& m,
                              bool narrow, bool values_only = false);
  // Makes a source for a piece of an array, whose first element is `first` of the whole.
  template <class T>
  static ChunkSource OfPiece(std::shared_ptr<const void> owner, v1::ArrayKind kind, int64_t first,
                             std::span<const T> piece, bool narrow) {
    ChunkSource source;
    source.owner_ = std::move(owner);
    source.parts_ = {Part{kind, reinterpret_cast<const char*>(piece.data()),
                          static_cast<int64_t>(piece.size()), static_cast<int64_t>(sizeof(T)),
                          narrow, first}};
    return source;
  }
  static ChunkSource OfSolution(std::shared_ptr<const void> owner, std::span<const double> x);

  // Says that only `elements` of the last array exist yet: no chunk goes out before it is whole.
  void LimitLast(int64_t elements) { parts_.back().there = elements; }

  // Says who keeps the arrays alive from here on, unchanged.
  void OwnedBy(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

  // Fills the next chunk, with at most `most_bytes` (8 or more) of data, and its CRC; false: all is
  // out, or the rest does not exist yet. Much data of arrays that have an owner is left out of the
  // chunk, and lent in `lent` in its place, which keeps the owner alive. Error:
  // FAILED_PRECONDITION/FLOAT32_OVERFLOW (index: that of the value) if a value does not fit the
  // narrow type.
  absl::StatusOr<bool> Next(v1::ArrayChunk* chunk, int64_t most_bytes, grpc::Slice* lent);
  // Returns true if nothing is left of arrays that are all there.
  bool exhausted() const {
    return part_ == parts_.size() || (part_ + 1 == parts_.size() && offset_ == parts_[part_].count);
  }
  int64_t bytes_down() const { return bytes_down_; }

 private:
  struct Part {
    v1::ArrayKind kind;
    const char* data;
    int64_t count;  // elements
    int64_t element_bytes;
    bool narrow;        // doubles, sent as floats
    int64_t first = 0;  // of the whole array, where this is a piece of it
    int64_t there = count;
  };
  std::shared_ptr<const void> owner_;
  std::vector<Part> parts_;
  size_t part_ = 0;
  int64_t offset_ = 0, bytes_down_ = 0;
};

}  // namespace spaid::server
