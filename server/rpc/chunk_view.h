// Reads a chunk of an array in place, in the buffers of gRPC that brought it, and sends one from
// where its data lies, without a copy into a protobuf. Large arrays pass through here, so each copy
// of them counts.
//
//   ChunkView chunk;
//   if (ReadChunk(&message, v1::UploadMatrixRequest::kChunkFieldNumber, &chunk)) {
//     for (std::string_view piece : chunk.pieces) Use(piece);  // while `message` lives
//   }
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "spaid/v1/arrays.pb.h"

namespace spaid::server {

// A v1::ArrayChunk whose data is borrowed in pieces, or is still to be read.
struct ChunkView {
  ChunkView() = default;
  ChunkView(const v1::ArrayChunk& chunk);  // NOLINT(google-explicit-constructor): a view of it

  v1::ArrayKind array = v1::ARRAY_KIND_UNSPECIFIED;
  int64_t offset = 0;
  std::optional<uint32_t> crc32;
  std::vector<std::string_view> pieces;  // none is empty
  int64_t bytes = 0;                     // sum over all pieces
  // If set there are no pieces: copies `bytes` bytes to `to`. An error says why they cannot be had.
  std::function<absl::Status(char* to)> read;
};

// Reads a serialized message that is one ArrayChunk in the field `field` and nothing else, each of
// its fields at most once, as every client sends it. Returns false for any other bytes, which
// protobuf then parses. `message` is not changed.
bool ReadChunk(grpc::ByteBuffer* message, int field, ChunkView* chunk);

// Returns the other way round a serialized message that is `chunk`, whose own data is empty, with
// `data` in the field `field`. Copies no data.
grpc::ByteBuffer WriteChunk(int field, const v1::ArrayChunk& chunk, grpc::Slice data);

}  // namespace spaid::server
