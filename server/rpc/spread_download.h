// Sends a matrix that lies over the ranks alone: piece by piece, so that rank 0 never holds more
// than one, and asks for the next when the client has taken it.
//
//   if (!source.ready()) source.Put(*source.Fetch());   // Fetch blocks: on an executor
//   auto more = source.Next(chunk, most_bytes, lent);   // false: all is out
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/adapter.h"
#include "server/rpc/chunk_source.h"
#include "spaid/v1/arrays.pb.h"

namespace spaid::server {

// Thread-compatible, but for Fetch, which may run beside Next.
class SpreadDownload {
 public:
  SpreadDownload(std::unique_ptr<kernels::RanksOutput> from, bool narrow)
      : from_(std::move(from)), narrow_(narrow) {}

  int64_t n() const { return from_->n(); }
  int64_t nnz() const { return from_->nnz(); }
  int64_t bytes_down() const { return bytes_before_ + chunks_.bytes_down(); }

  // Whether Next has something to send, or nothing at all is left.
  bool ready() const { return more_ || array_ == kEnd; }
  // Brings the next piece here. Blocks until the ranks have done what was asked of them before;
  // one at a time. Errors: the ranks'.
  absl::StatusOr<ChunkSource> Fetch();
  void Put(ChunkSource piece);
  // As ChunkSource::Next, of a source that is `ready`. False: all is out.
  absl::StatusOr<bool> Next(v1::ArrayChunk* chunk, int64_t most_bytes, grpc::Slice* lent);

 private:
  enum Array { kPointers, kIndices, kValues, kEnd };

  const std::unique_ptr<kernels::RanksOutput> from_;
  const bool narrow_;
  // The place of the next piece; Fetch alone writes it.
  Array fetched_ = kPointers;
  int64_t first_ = 0;
  Array array_ = kPointers;  // of what is still to be sent, as far as Put knows
  bool more_ = false;
  ChunkSource chunks_;
  int64_t bytes_before_ = 0;
};

}  // namespace spaid::server
