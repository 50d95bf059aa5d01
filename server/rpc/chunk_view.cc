#include "server/rpc/chunk_view.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace spaid::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t Tag(int field, WireFormatLite::WireType type) {
  return WireFormatLite::MakeTag(field, type);
}

void AppendLength(int field, size_t size, std::string* message) {
  google::protobuf::io::StringOutputStream stream(message);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(Tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint32(static_cast<uint32_t>(size));
}

bool ReadPieces(CodedInputStream& in, ChunkView* chunk) {
  uint32_t length = 0;
  if (!in.ReadVarint32(&length)) return false;
  for (int64_t left = length; left > 0;) {
    const void* data = nullptr;
    int size = 0;
    if (!in.GetDirectBufferPointer(&data, &size)) return false;
    size = static_cast<int>(std::min<int64_t>(size, left));
    chunk->pieces.emplace_back(static_cast<const char*>(data), static_cast<size_t>(size));
    if (!in.Skip(size)) return false;
    left -= size;
  }
  chunk->bytes = length;
  return true;
}

bool ReadField(CodedInputStream& in, uint32_t tag, ChunkView* chunk) {
  uint64_t number = 0;
  uint32_t crc = 0;
  switch (tag) {
    case Tag(v1::ArrayChunk::kArrayFieldNumber, WireFormatLite::WIRETYPE_VARINT):
      if (!in.ReadVarint64(&number)) return false;
      chunk->array = static_cast<v1::ArrayKind>(static_cast<int32_t>(number));  // open, in proto3
      return true;
    case Tag(v1::ArrayChunk::kOffsetFieldNumber, WireFormatLite::WIRETYPE_VARINT):
      if (!in.ReadVarint64(&number)) return false;
      chunk->offset = static_cast<int64_t>(number);
      return true;
    case Tag(v1::ArrayChunk::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED):
      return ReadPieces(in, chunk);
    case Tag(v1::ArrayChunk::kCrc32FieldNumber, WireFormatLite::WIRETYPE_FIXED32):
      if (!in.ReadLittleEndian32(&crc)) return false;
      chunk->crc32 = crc;
      return true;
    default:
      return false;
  }
}

}  // namespace

ChunkView::ChunkView(const v1::ArrayChunk& chunk)
    : array(chunk.array()),
      offset(chunk.offset()),
      bytes(static_cast<int64_t>(chunk.data().size())) {
  if (chunk.has_crc32()) crc32 = chunk.crc32();
  if (!chunk.data().empty()) pieces.emplace_back(chunk.data());
}

bool ReadChunk(grpc::ByteBuffer* message, int field, ChunkView* chunk) {
  *chunk = ChunkView();
  grpc::ProtoBufferReader reader(message);
  if (!reader.status().ok()) return false;
  CodedInputStream in(&reader);
  uint32_t length = 0;
  if (in.ReadTag() != Tag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED) ||
      !in.ReadVarint32(&length) ||
      static_cast<uint64_t>(in.CurrentPosition()) + length != message->Length()) {
    return false;
  }
  uint32_t seen = 0;  // a bit per field of the chunk
  while (const uint32_t tag = in.ReadTag()) {
    if (!ReadField(in, tag, chunk)) return false;
    const uint32_t bit = uint32_t{1} << WireFormatLite::GetTagFieldNumber(tag);
    if ((seen & bit) != 0) return false;
    seen |= bit;
  }
  return in.ConsumedEntireMessage();
}

grpc::ByteBuffer WriteChunk(int field, const v1::ArrayChunk& chunk, grpc::Slice data) {
  // Fields may come in any order: the data is the last one.
  std::string head = chunk.SerializeAsString();
  AppendLength(v1::ArrayChunk::kDataFieldNumber, data.size(), &head);
  std::string start;
  AppendLength(field, head.size() + data.size(), &start);
  const std::array<grpc::Slice, 2> slices{grpc::Slice(start + head), std::move(data)};
  return {slices.data(), slices.size()};
}

}  // namespace spaid::server
