#include "client/cpp/arrays.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "client/cpp/buffer_pool.h"
#include "client/cpp/chunk_source.h"
#include "client/cpp/csc_sink.h"
#include "client/cpp/errors.h"
#include "tests/client/cpp/scripted_server.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spaid::internal {
namespace {

using spaid::testing::NextChunk;
using spaid::testing::Small;

// The digest of arrays.proto, written down a second time: one buffer, one call.
std::string Reference(const std::vector<std::pair<const void*, size_t>>& parts) {
  std::string bytes;
  for (const auto& [data, size] : parts) bytes.append(static_cast<const char*>(data), size);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return {reinterpret_cast<const char*>(canonical.digest), 16};
}

TEST(Digest, IsThatOfTheContract) {
  const CscMatrix& a = Small();
  const auto digest = Digest(a);
  ASSERT_TRUE(digest);
  const int64_t sizes[] = {3, 7};
  EXPECT_EQ(digest->pattern(), Reference({{sizes, 16},
                                          {a.col_ptr.data(), 8 * a.col_ptr.size()},
                                          {a.row_idx.data(), 4 * a.row_idx.size()}}));
  EXPECT_EQ(digest->values(), Reference({{a.values.data(), 8 * a.values.size()}}));
}

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[c & 15];
  }
  return hex;
}

// By Python's hashlib.sha256 of struct.pack("<6q7i", 3, 7, *col_ptr, *row_idx), and of
// struct.pack("<7d", *values).
TEST(Sha256, IsThatOfTheContract) {
  v1::MatrixDigest digest;
  ASSERT_TRUE(AddSha256(Small(), {}, digest));
  EXPECT_EQ(Hex(digest.pattern_sha256()),
            "b2aff799df5d197f1746ad6eef8d1541773a62da3580d1b82bcbf9b0a58f3b21");
  EXPECT_EQ(Hex(digest.values_sha256()),
            "dd91ad5150fd05a6a7621f418129ba04f9ff26cc825afeab7b88f81867ef5b5c");
  const std::vector<float> narrow(Small().values.begin(), Small().values.end());
  CscView fp32 = Small();
  fp32.values = {};
  fp32.values_f32 = narrow;
  v1::MatrixDigest widened, pattern;
  ASSERT_TRUE(AddSha256(fp32, {}, widened));
  EXPECT_EQ(widened.SerializeAsString(), digest.SerializeAsString());
  fp32.values_f32 = {};
  ASSERT_TRUE(AddSha256(fp32, {}, pattern));
  EXPECT_EQ(pattern.pattern_sha256(), digest.pattern_sha256());
  EXPECT_EQ(pattern.values_sha256(), "");
}

TEST(Sha256, IsNothingWhereItWasStopped) {
  std::stop_source source;
  source.request_stop();
  v1::MatrixDigest digest;
  EXPECT_FALSE(AddSha256(Small(), source.get_token(), digest));
  EXPECT_EQ(digest.SerializeAsString(), "");
}

TEST(Digest, Fp32IsWidened) {
  const CscMatrix& a = Small();
  const std::vector<float> narrow(a.values.begin(), a.values.end());
  CscView view = a;
  view.values = {};
  view.values_f32 = narrow;
  EXPECT_EQ(Digest(view)->SerializeAsString(), Digest(a)->SerializeAsString());
}

TEST(Digest, WideningInPiecesIsSeamless) {
  CscMatrix a{.n = 1000, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int j = 0; j < 1000; ++j) {
    for (int i = 0; i < 10; ++i) {
      a.row_idx.push_back(i);
      a.values.push_back(j * 0.25 + i);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  const std::vector<float> narrow(a.values.begin(), a.values.end());
  CscView view = a;
  view.values = {};
  view.values_f32 = narrow;
  EXPECT_EQ(Digest(view)->values(), Reference({{a.values.data(), 8 * a.values.size()}}));
}

TEST(Digest, OfALargeMatrixIsThatOfTheContract) {  // two threads share the work
  CscMatrix a{.n = 1 << 19, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int j = 0; j < 1 << 19; ++j) {
    for (int i = j % 3; i < j % 3 + 3; ++i) {
      a.row_idx.push_back(i);
      a.values.push_back(j - 0.5 * i);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  const auto digest = Digest(a);
  ASSERT_TRUE(digest);
  const int64_t sizes[] = {a.n, static_cast<int64_t>(a.row_idx.size())};
  EXPECT_EQ(digest->pattern(), Reference({{sizes, 16},
                                          {a.col_ptr.data(), 8 * a.col_ptr.size()},
                                          {a.row_idx.data(), 4 * a.row_idx.size()}}));
  EXPECT_EQ(digest->values(), Reference({{a.values.data(), 8 * a.values.size()}}));
  std::swap(a.row_idx[1'000'000], a.row_idx[1'000'001]);
  EXPECT_FALSE(Digest(a));
}

TEST(Digest, KeepsTheSignOfZero) {
  CscMatrix plus = Small(), minus = Small();
  plus.values[3] = 0.0;
  minus.values[3] = -0.0;
  EXPECT_NE(Digest(plus)->values(), Digest(minus)->values());
  EXPECT_EQ(Digest(plus)->pattern(), Digest(minus)->pattern());
}

TEST(Digest, OfAPatternHasNoValues) {
  CscView view = Small();
  view.values = {};
  ASSERT_TRUE(IsPattern(view));
  EXPECT_EQ(Digest(view)->values(), "");
  EXPECT_EQ(Digest(view)->pattern(), Digest(Small())->pattern());
}

TEST(Digest, ByRowsIsThatOfTheSameArrays) {
  CscView by_rows = Small();
  by_rows.by_rows = true;
  EXPECT_EQ(Digest(by_rows)->SerializeAsString(), Digest(Small())->SerializeAsString());
}

TEST(WidePointers, AreThoseOf32Bits) {
  const CscMatrix a = Small();
  const std::vector<int32_t> narrow(a.col_ptr.begin(), a.col_ptr.end());
  CscView view = a;
  view.col_ptr = {};
  view.col_ptr_32 = narrow;
  const WidePointers wide(view);
  EXPECT_FALSE(CheckSpans(wide.view()));
  EXPECT_TRUE(std::ranges::equal(wide.view().col_ptr, a.col_ptr));
  view.col_ptr = a.col_ptr;
  EXPECT_EQ(CheckSpans(WidePointers(view).view())->field, "col_ptr_32");
}

TEST(Digest, NoneOfWhatTheServerWouldStoreDifferently) {
  CscMatrix unsorted = Small();
  std::swap(unsorted.row_idx[0], unsorted.row_idx[1]);
  EXPECT_FALSE(Digest(unsorted));
  CscMatrix duplicate = Small();
  duplicate.row_idx[1] = 0;
  EXPECT_FALSE(Digest(duplicate));
  CscMatrix outside = Small();
  outside.row_idx[6] = 3;
  EXPECT_FALSE(Digest(outside));
  CscMatrix negative = Small();
  negative.row_idx[0] = -1;
  EXPECT_FALSE(Digest(negative));
  for (const int64_t bad : {int64_t{-1}, int64_t{8}, INT64_MAX, INT64_MIN}) {
    CscMatrix pointers = Small();
    pointers.col_ptr[1] = bad;
    EXPECT_FALSE(Digest(pointers)) << bad;
  }
  CscMatrix short_end = Small();
  short_end.col_ptr[3] = 6;
  EXPECT_FALSE(Digest(short_end));
  CscMatrix late_start = Small();
  late_start.col_ptr[0] = 1;
  EXPECT_FALSE(Digest(late_start));
}

TEST(Crc32, IsZlibs) {
  const std::string text = "123456789";
  EXPECT_EQ(Crc32(std::as_bytes(std::span(text))), 0xCBF43926u);
  EXPECT_EQ(Crc32(std::as_bytes(std::span(text))),
            crc32(0, reinterpret_cast<const Bytef*>(text.data()), 9));
}

TEST(CheckSpans, NamesTheFieldThatDoesNotFit) {
  EXPECT_FALSE(CheckSpans(Small()));
  CscMatrix a = Small();
  a.col_ptr.push_back(7);
  EXPECT_EQ(CheckSpans(a)->field, "col_ptr");
  a = Small();
  a.values.pop_back();
  EXPECT_EQ(CheckSpans(a)->field, "values");
  a = Small();
  a.n = 0;
  EXPECT_EQ(CheckSpans(a)->field, "n");
  a.n = int64_t{1} << 31;
  EXPECT_EQ(CheckSpans(a)->field, "n");
  const std::vector<float> narrow(7);
  CscView both = Small();
  both.values_f32 = narrow;
  EXPECT_EQ(CheckSpans(both)->field, "values_f32");
  EXPECT_EQ(CheckSpans(both)->reason, kSizeMismatch);
  EXPECT_EQ(CheckSpans(both)->code, Code::kInvalidArgument);
}

TEST(CheckSpans, AMatrixWithoutEntriesIsNoPattern) {
  const CscMatrix empty{.n = 2, .col_ptr = {0, 0, 0}, .row_idx = {}, .values = {}};
  EXPECT_FALSE(CheckSpans(empty));
  EXPECT_FALSE(IsPattern(empty));
}

TEST(ChunkSource, CutsWithoutGapsAndPutsTogetherAgain) {
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  for (const auto ahead : {ChunkSource::Ahead::kNever, ChunkSource::Ahead::kAlways}) {
    ChunkSource source({Outgoing(v1::ARRAY_KIND_VALUES, std::span<const double>(values))}, 100,
                       true, ahead);
    source.WantAll();
    ArraySink<double> sink(v1::ARRAY_KIND_VALUES, 1000);
    int chunks = 0;
    while (!source.Empty()) {
      const v1::ArrayChunk chunk = NextChunk(source);
      ++chunks;
      EXPECT_LE(chunk.data().size(), 96u);  // whole elements only
      EXPECT_EQ(chunk.crc32(), crc32(0, reinterpret_cast<const Bytef*>(chunk.data().data()),
                                     static_cast<uInt>(chunk.data().size())));
      ASSERT_FALSE(sink.Take(chunk));
      EXPECT_EQ(source.sent_bytes(), 8 * sink.received());
    }
    EXPECT_EQ(chunks, 84);
    EXPECT_EQ(source.sent_bytes(), 8000);
    EXPECT_EQ(source.total_bytes(), 8000);
    ASSERT_TRUE(sink.Complete());
    EXPECT_EQ(sink.Release(), values);
  }
}

TEST(ChunkSource, MakesAheadWhatIsWantedLaterAndCanBeLeftEarly) {
  const std::vector<int32_t> indices{0, 1, 2, 3, 4, 5};
  const OutgoingArray array = Outgoing(v1::ARRAY_KIND_INDICES, std::span<const int32_t>(indices));
  ChunkSource source({array}, 8, false, ChunkSource::Ahead::kAlways);
  ASSERT_TRUE(source.Want(v1::ARRAY_KIND_INDICES, 4, 2));
  EXPECT_EQ(NextChunk(source).offset(), 4);
  EXPECT_TRUE(source.Empty());
  EXPECT_FALSE(source.Want(v1::ARRAY_KIND_INDICES, 0, 6)) << "more than there is, in all";
  ASSERT_TRUE(source.Want(v1::ARRAY_KIND_INDICES, 0, 4));
  EXPECT_EQ(NextChunk(source).offset(), 0);
  EXPECT_EQ(source.sent_bytes(), 16);
  EXPECT_FALSE(source.Empty());  // and its thread ends with it
}

// The message is put together by hand around the data: byte for byte what protobuf would make.
TEST(ChunkSource, WritesWhatProtobufWrites) {
  std::vector<double> values(50'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 7;
  for (const bool checksums : {false, true}) {
    ChunkSource source({Outgoing(v1::ARRAY_KIND_VALUES, std::span<const double>(values))}, 100'000,
                       checksums);
    source.WantAll();
    for (int64_t offset = 0; !source.Empty(); offset += 12'500) {
      grpc::ByteBuffer message = source.Next(v1::UploadMatrixRequest::kChunkFieldNumber);
      grpc::Slice bytes;
      ASSERT_TRUE(message.DumpToSingleSlice(&bytes).ok());
      v1::UploadMatrixRequest expected;
      v1::ArrayChunk& chunk = *expected.mutable_chunk();
      chunk.set_array(v1::ARRAY_KIND_VALUES);
      chunk.set_offset(offset);
      chunk.set_data(&values[static_cast<size_t>(offset)], 100'000);
      if (checksums) {
        chunk.set_crc32(static_cast<uint32_t>(
            crc32(0, reinterpret_cast<const Bytef*>(chunk.data().data()), 100'000)));
      }
      EXPECT_TRUE(std::string(bytes.begin(), bytes.end()) == expected.SerializeAsString())
          << offset;
    }
  }
}

TEST(BufferPool, ABufferMayOutliveItsPool) {
  const std::string text(200'000, 'x');
  grpc::Slice slice;
  {
    BufferPool pool;
    std::string seen;
    slice = pool.Copy(std::as_bytes(std::span(text)), [&](std::span<const std::byte> piece) {
      seen.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
    EXPECT_EQ(seen, text);
  }
  EXPECT_TRUE(std::string(slice.begin(), slice.end()) == text);
}

TEST(BufferPool, ABufferIsFilledAgainOnceItIsFree) {
  const std::string first(1000, 'a'), second(1000, 'b'), longer(1001, 'c');
  const auto nothing = [](std::span<const std::byte>) {};
  BufferPool pool;
  grpc::Slice a = pool.Copy(std::as_bytes(std::span(first)), nothing);
  const grpc::Slice b = pool.Copy(std::as_bytes(std::span(second)), nothing);
  EXPECT_NE(a.begin(), b.begin());
  const uint8_t* const memory = a.begin();
  a = grpc::Slice();  // gRPC lets go of it
  a = pool.Copy(std::as_bytes(std::span(second)), nothing);
  EXPECT_EQ(a.begin(), memory);
  const grpc::Slice c = pool.Copy(std::as_bytes(std::span(longer)), nothing);
  EXPECT_TRUE(std::string(c.begin(), c.end()) == longer);
  EXPECT_TRUE(std::string(b.begin(), b.end()) == second);
}

TEST(ChunkSource, SendsTheRangesThatAreWantedAndNoOthers) {
  const std::vector<int32_t> indices{0, 1, 2, 3, 4, 5};
  ChunkSource source({Outgoing(v1::ARRAY_KIND_INDICES, std::span<const int32_t>(indices))}, 1024,
                     false);
  EXPECT_TRUE(source.Want(v1::ARRAY_KIND_INDICES, 4, 2));
  EXPECT_FALSE(source.Want(v1::ARRAY_KIND_INDICES, 5, 2));
  EXPECT_FALSE(source.Want(v1::ARRAY_KIND_INDICES, -1, 2));
  EXPECT_FALSE(source.Want(v1::ARRAY_KIND_INDICES, 1, INT64_MAX));
  EXPECT_FALSE(source.Want(v1::ARRAY_KIND_VALUES, 0, 1));
  const v1::ArrayChunk chunk = NextChunk(source);
  EXPECT_TRUE(source.Empty());
  EXPECT_EQ(chunk.offset(), 4);
  EXPECT_FALSE(chunk.has_crc32());
  EXPECT_EQ(0, std::memcmp(chunk.data().data(), &indices[4], 8));
}

v1::ArrayChunk Piece(int64_t offset, const std::string& data,
                     v1::ArrayKind kind = v1::ARRAY_KIND_VALUES) {
  v1::ArrayChunk chunk;
  chunk.set_array(kind);
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

TEST(ArraySink, RefusesWhatDoesNotFit) {
  ArraySink<double> sink(v1::ARRAY_KIND_VALUES, 2);
  EXPECT_EQ(sink.Take(Piece(1, std::string(8, 0)))->reason, kProtocolViolation);
  EXPECT_EQ(sink.Take(Piece(0, ""))->reason, kProtocolViolation);
  EXPECT_EQ(sink.Take(Piece(0, std::string(7, 0)))->reason, kProtocolViolation);
  EXPECT_EQ(sink.Take(Piece(0, std::string(24, 0)))->reason, kProtocolViolation);
  EXPECT_EQ(sink.Take(Piece(0, std::string(8, 0), v1::ARRAY_KIND_RHS))->reason, kProtocolViolation);
  v1::ArrayChunk wrong = Piece(0, std::string(8, 1));
  wrong.set_crc32(1);
  EXPECT_EQ(sink.Take(wrong)->reason, kChecksumMismatch);
  EXPECT_EQ(sink.received(), 0);
  EXPECT_FALSE(sink.Take(Piece(0, std::string(16, 0))));
  EXPECT_TRUE(sink.Complete());
}

TEST(ArraySink, APromiseTakesNoMemory) {
  ArraySink<double> sink(v1::ARRAY_KIND_VALUES, int64_t{1} << 60);
  EXPECT_FALSE(sink.Take(Piece(0, std::string(8, 0))));
  EXPECT_FALSE(sink.Complete());
}

CscSink Filled(std::vector<int64_t> pointers, std::vector<int32_t> indices,
               CscSink::Aside aside = CscSink::Aside::kNever) {
  auto sink = CscSink::Create(2, 2, v1::VALUE_TYPE_FLOAT64, aside);
  const std::vector<double> values{1, 2};
  ChunkSource source({Outgoing(v1::ARRAY_KIND_POINTERS, std::span<const int64_t>(pointers)),
                      Outgoing(v1::ARRAY_KIND_INDICES, std::span<const int32_t>(indices)),
                      Outgoing(v1::ARRAY_KIND_VALUES, std::span<const double>(values))},
                     1 << 20, true);
  source.WantAll();
  while (!source.Empty()) EXPECT_FALSE(sink->Take(NextChunk(source)));
  return *std::move(sink);
}

TEST(CscSink, ChecksWhatCame) {
  for (const auto aside : {CscSink::Aside::kNever, CscSink::Aside::kAlways}) {
    auto good = Filled({0, 1, 2}, {1, 0}, aside).Finish();
    ASSERT_TRUE(good.ok());
    EXPECT_EQ(good->row_idx, (std::vector<int32_t>{1, 0}));
    EXPECT_EQ(good->values, (std::vector<double>{1, 2}));
    EXPECT_FALSE(Filled({0, 3, 2}, {1, 0}, aside).Finish().ok());
    EXPECT_FALSE(Filled({0, 1, 1}, {1, 0}, aside).Finish().ok());
    EXPECT_FALSE(Filled({0, 1, 2}, {1, 2}, aside).Finish().ok());
    EXPECT_FALSE(Filled({0, 1, 2}, {-1, 0}, aside).Finish().ok());
  }
}

TEST(CscSink, TellsAnErrorOfItsThreadWithALaterChunkOrAtTheEnd) {
  constexpr int64_t kN = 1000;
  auto sink = CscSink::Create(kN, kN, v1::VALUE_TYPE_FLOAT64, CscSink::Aside::kAlways);
  v1::ArrayChunk chunk;
  chunk.set_array(v1::ARRAY_KIND_POINTERS);
  chunk.set_data(std::string(8, 0));
  chunk.set_crc32(1);  // of other data
  std::optional<Error> error;
  for (int64_t k = 0; k < kN && !error; ++k) {
    chunk.set_offset(k);
    error = sink->Take(chunk);
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->reason, kChecksumMismatch);
  EXPECT_EQ(sink->Finish().error().reason, kChecksumMismatch);
}

TEST(CscSink, OneThatIsLeftTakesItsThreadWithIt) {
  for (int k = 0; k < 20; ++k) {
    CscSink sink = Filled({0, 1, 2}, {1, 0}, CscSink::Aside::kAlways);
    CscSink moved = std::move(sink);
    EXPECT_EQ(moved.received_bytes(), moved.total_bytes());
  }
}

TEST(CscSink, RefusesImpossibleHeaders) {
  EXPECT_FALSE(CscSink::Create(0, 0, v1::VALUE_TYPE_FLOAT64).ok());
  EXPECT_FALSE(CscSink::Create(2, 5, v1::VALUE_TYPE_FLOAT64).ok());
  EXPECT_FALSE(CscSink::Create(2, -1, v1::VALUE_TYPE_FLOAT64).ok());
  EXPECT_FALSE(CscSink::Create(INT64_MAX, 1, v1::VALUE_TYPE_FLOAT64).ok());
  EXPECT_FALSE(CscSink::Create(2, 2, v1::VALUE_TYPE_FLOAT32).ok());
  auto unfinished = CscSink::Create(2, 2, v1::VALUE_TYPE_FLOAT64);
  EXPECT_EQ(unfinished->Finish().error().reason, kProtocolViolation);
}

}  // namespace
}  // namespace spaid::internal
