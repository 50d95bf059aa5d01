// Chunks read out of gRPC's buffers, against protobuf's reading of the same bytes.
#include "server/rpc/chunk_view.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "server/base/digest.h"
#include "server/base/status.h"
#include "server/rpc/array_receiver.h"
#include "spaid/v1/matrix.pb.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

constexpr int kField = v1::UploadMatrixRequest::kChunkFieldNumber;

// In slices of `piece` bytes, as they may come off the wire.
grpc::ByteBuffer Buffer(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.data() + at, std::min(piece, bytes.size() - at));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

v1::ArrayChunk Chunk(int64_t offset, const std::string& data) {
  v1::ArrayChunk chunk;
  chunk.set_array(v1::ARRAY_KIND_VALUES);
  chunk.set_offset(offset);
  chunk.set_data(data);
  chunk.set_crc32(Crc32(data));
  return chunk;
}

std::string Message(const v1::ArrayChunk& chunk) {
  v1::UploadMatrixRequest request;
  *request.mutable_chunk() = chunk;
  return request.SerializeAsString();
}

std::string Text(const ChunkView& chunk) {
  std::string text;
  for (const std::string_view piece : chunk.pieces) text += piece;
  return text;
}

TEST(ReadChunk, ReadsWhatProtobufReadsHoweverItIsCut) {
  std::string data(1000, '\0');
  std::mt19937 generator(1);
  for (char& c : data) c = static_cast<char>(generator());
  v1::ArrayChunk bare;  // every field at its default
  v1::ArrayChunk unknown_kind = Chunk(5, data);
  unknown_kind.set_array(static_cast<v1::ArrayKind>(-7));
  v1::ArrayChunk no_crc = Chunk(int64_t{1} << 40, data);
  no_crc.clear_crc32();
  for (const v1::ArrayChunk& chunk :
       {bare, unknown_kind, no_crc, Chunk(0, ""), Chunk(-1, data), Chunk(17, data)}) {
    const std::string bytes = Message(chunk);
    for (const size_t piece : {1, 2, 3, 7, 64, 5000}) {
      grpc::ByteBuffer buffer = Buffer(bytes, piece);
      ChunkView view;
      ASSERT_TRUE(ReadChunk(&buffer, kField, &view)) << chunk.ShortDebugString();
      EXPECT_EQ(view.array, chunk.array());
      EXPECT_EQ(view.offset, chunk.offset());
      EXPECT_EQ(view.crc32.has_value(), chunk.has_crc32());
      EXPECT_EQ(view.crc32.value_or(0), chunk.crc32());
      EXPECT_EQ(view.bytes, static_cast<int64_t>(chunk.data().size()));
      EXPECT_TRUE(Text(view) == chunk.data());
      EXPECT_TRUE(Text(ChunkView(chunk)) == chunk.data());
    }
  }
}

TEST(ReadChunk, LeavesAllElseToProtobuf) {
  const std::string chunk = Message(Chunk(1, "12345678"));
  v1::UploadMatrixRequest header;
  header.mutable_header()->set_n(3);
  std::string unknown_field = Chunk(1, "12345678").SerializeAsString();
  unknown_field += "\x58\x01";  // field 11
  const auto wrapped = [](const std::string& inside) {
    return std::string("\x12") + static_cast<char>(inside.size()) + inside;
  };
  for (const std::string& bytes :
       {std::string(), header.SerializeAsString(), chunk + chunk,
        chunk + header.SerializeAsString(), wrapped(unknown_field), wrapped("\x10\x01\x10\x02"),
        wrapped("\x1a\x05 abc"), wrapped("\x10"), wrapped("\x25\x01"), std::string("\x12\x80")}) {
    for (const size_t piece : {1, 1000}) {
      grpc::ByteBuffer buffer = Buffer(bytes, piece);
      ChunkView view;
      EXPECT_FALSE(ReadChunk(&buffer, kField, &view)) << bytes;
    }
  }
  // Cut off or longer than it says: at every place.
  for (size_t length = 0; length < chunk.size(); ++length) {
    grpc::ByteBuffer buffer = Buffer(chunk.substr(0, length), 1000);
    ChunkView view;
    EXPECT_FALSE(ReadChunk(&buffer, kField, &view)) << length;
  }
}

TEST(ArrayReceiver, TakesChunksInPiecesThatEndWithinAnElement) {
  const std::vector<float> narrow{1.5f, -2.25f, 3, 4};
  const std::vector<double> wide{1.5, -2.25, 3, 4};
  for (const bool from_float32 : {false, true}) {
    const std::string data = from_float32
                                 ? std::string(reinterpret_cast<const char*>(narrow.data()), 16)
                                 : std::string(reinterpret_cast<const char*>(wide.data()), 32);
    grpc::ByteBuffer buffer = Buffer(Message(Chunk(0, data)), 3);
    ChunkView chunk;
    ASSERT_TRUE(ReadChunk(&buffer, kField, &chunk));
    ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, 4, from_float32);
    chunk.crc32 = *chunk.crc32 + 1;
    const auto unbooked = [](int64_t) { return absl::OkStatus(); };
    EXPECT_EQ(ReasonOf(receiver.Add(chunk, unbooked)), "CHECKSUM_MISMATCH");
    EXPECT_EQ(receiver.received(), 0);
    chunk.crc32 = *chunk.crc32 - 1;
    ASSERT_TRUE(receiver.Add(chunk, unbooked).ok());
    EXPECT_EQ(receiver.so_far().size(), 4u);
    const auto array = receiver.Take();
    EXPECT_TRUE(std::equal(array.begin(), array.end(), wide.begin(), wide.end()));
  }
}

// The digests that come with the chunks, and those of a second look.
TEST(MatrixReceiver, DigestsWhatComes) {
  v1::MatrixHeader header;
  header.set_n(2);
  header.set_nnz(3);
  header.set_layout(v1::LAYOUT_CSC);
  header.set_value_type(v1::VALUE_TYPE_FLOAT64);
  const std::vector<int64_t> pointers{0, 2, 3};
  const std::vector<int32_t> indices{0, 1, 1};
  const std::vector<double> values{1, 2, -0.0};
  const auto chunks = [&](bool indices_first) {
    std::vector<v1::ArrayChunk> all{ChunkOf(v1::ARRAY_KIND_POINTERS, 0, pointers),
                                    ChunkOf(v1::ARRAY_KIND_VALUES, 0, values),
                                    ChunkOf(v1::ARRAY_KIND_INDICES, 0, indices)};
    if (indices_first) std::swap(all[0], all[2]);
    return all;
  };
  for (const bool indices_first : {false, true}) {
    MatrixReceiver receiver(header);
    for (const v1::ArrayChunk& chunk : chunks(indices_first)) {
      ASSERT_TRUE(receiver.Add(chunk, [](int64_t) { return absl::OkStatus(); }).ok());
      receiver.LookAtNew();
      EXPECT_FALSE(receiver.HasNew());
    }
    const ArrayFacts arrived = receiver.Look();
    EXPECT_EQ(arrived.digests.values, ValueDigest(values));
    EXPECT_EQ(arrived.digests.pattern, PatternDigest(2, pointers, indices));
    EXPECT_TRUE(arrived.known.canonical_indices);
    ASSERT_TRUE(arrived.known.range);
    EXPECT_EQ(arrived.known.range->largest, 2);
    EXPECT_EQ(arrived.known.range->zeros, 1);
    // Stored, it is the same matrix however it came.
    Harness h;
    Uploaded uploaded = h.Upload(header, chunks(indices_first));
    ASSERT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
    EXPECT_EQ(uploaded.matrix.digest().pattern(), PatternDigest(2, pointers, indices).ToBytes());
    EXPECT_EQ(uploaded.matrix.digest().values(), ValueDigest(values).ToBytes());
  }
}

// Not of the request's type at all: told apart from the end of the input.
TEST(RawStreams, GarbageIsToldSo) {
  Harness h;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(h.channel);
  for (const char* method :
       {"/spaid.v1.MatrixService/UploadMatrix", "/spaid.v1.SolverService/Solve",
        "/spaid.v1.PreconditionerService/BuildPreconditioner"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto stream = stub.PrepareCall(&context, method, &queue);
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    stream->StartCall(nullptr);
    ASSERT_TRUE(wait());
    stream->Write(Buffer("\x0a\xff garbage", 100), nullptr);
    ASSERT_TRUE(wait());
    grpc::Status status;
    stream->Finish(&status, nullptr);
    ASSERT_TRUE(wait());
    EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "cannot be parsed");
    queue.Shutdown();
  }
  h.ExpectLives();
}

}  // namespace
}  // namespace spaid::server
