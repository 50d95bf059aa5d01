// ReadChunk against protobuf, for any bytes in any slices: where it reads a chunk, protobuf reads
// the same one; a chunk that protobuf wrote, it reads.
#include "server/rpc/chunk_view.h"

#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "spaid/v1/matrix.pb.h"
#include "tests/fuzz/input.h"

namespace spaid::server {
namespace {

using fuzz::Require;

constexpr int kField = v1::UploadMatrixRequest::kChunkFieldNumber;

grpc::ByteBuffer Slices(std::string_view bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const std::string_view cut = bytes.substr(at, piece);
    slices.emplace_back(cut.data(), cut.size());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void RequireSame(const ChunkView& view, const v1::ArrayChunk& chunk) {
  std::string data;
  for (const std::string_view piece : view.pieces) {
    Require(!piece.empty(), "an empty piece");
    data += piece;
  }
  Require(data == chunk.data(), "data");
  Require(view.bytes == static_cast<int64_t>(data.size()), "bytes");
  Require(view.array == chunk.array(), "array");
  Require(view.offset == chunk.offset(), "offset");
  Require(view.crc32.has_value() == chunk.has_crc32(), "has crc32");
  Require(view.crc32.value_or(0) == chunk.crc32(), "crc32");
}

}  // namespace
}  // namespace spaid::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Protobuf would tell of every text that is no UTF-8.
  [[maybe_unused]] static auto* const silent = google::protobuf::SetLogHandler(nullptr);
  using namespace spaid;          // NOLINT(google-build-using-namespace)
  using namespace spaid::server;  // NOLINT(google-build-using-namespace)
  fuzz::Input input(data, size);
  const size_t piece = 1 + static_cast<size_t>(input.Below(40));
  const std::string_view bytes = input.rest();
  v1::UploadMatrixRequest request;
  const bool parses = request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));

  grpc::ByteBuffer buffer = Slices(bytes, piece);
  ChunkView view;
  if (ReadChunk(&buffer, kField, &view)) {
    fuzz::Require(parses && request.has_chunk(), "protobuf does not read it");
    RequireSame(view, request.chunk());
  }
  fuzz::Require(buffer.Length() == bytes.size(), "the message was changed");

  if (!parses || !request.has_chunk()) return 0;
  request.DiscardUnknownFields();
  const std::string written = request.SerializeAsString();
  grpc::ByteBuffer again = Slices(written, piece);
  fuzz::Require(ReadChunk(&again, kField, &view), "a plain chunk is not read");
  RequireSame(view, request.chunk());
  return 0;
}
