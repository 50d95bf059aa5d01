// have / wait / need, layouts and types, timings.
#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "server/base/digest.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

v1::MatrixHeader WithDigests(const Csc& a) {
  v1::MatrixHeader header = HeaderOf(a);
  header.mutable_digest()->set_pattern(PatternDigest(a.n, a.pointers, a.indices).ToBytes());
  header.mutable_digest()->set_values(ValueDigest(a.values).ToBytes());
  return header;
}

TEST(Upload, NeedNamesEveryArrayAndDoneDescribesTheMatrix) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  const Uploaded uploaded = h.Upload(HeaderOf(a), ChunksOf(a));
  ASSERT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
  ASSERT_EQ(uploaded.events.size(), 2u);
  ASSERT_EQ(uploaded.events[0].need().ranges_size(), 3);
  EXPECT_EQ(uploaded.events[0].need().ranges(0).count(), 5);
  EXPECT_EQ(uploaded.events[0].need().ranges(2).array(), v1::ARRAY_KIND_VALUES);
  EXPECT_EQ(uploaded.matrix.n(), 4);
  EXPECT_EQ(uploaded.matrix.name().rfind("matrices/", 0), 0u);
  EXPECT_TRUE(uploaded.matrix.diagnosis().numerically_symmetric());
  EXPECT_EQ(uploaded.matrix.digest().values(), ValueDigest(a.values).ToBytes());
  EXPECT_EQ(uploaded.events[1].done().timings().bytes_up(), 5 * 8 + 4 * 4 + 4 * 8);
  EXPECT_GT(uploaded.events[1].done().timings().upload_ms(), 0);
  EXPECT_FALSE(uploaded.events[1].done().timings().reused());
}

TEST(Upload, KnownContentNeedNotBeSent) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  const std::string handle = h.Store(a);
  const Uploaded again = h.Upload(WithDigests(a), {});
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  ASSERT_EQ(again.events.size(), 2u);
  EXPECT_EQ(again.events[0].have().name(), handle);
  EXPECT_EQ(again.matrix.name(), handle);
  EXPECT_TRUE(again.events[1].done().timings().reused());
  // Without digests the bytes come again, and are the same matrix.
  const Uploaded third = h.Upload(HeaderOf(a), ChunksOf(a));
  EXPECT_EQ(third.matrix.name(), handle);
  EXPECT_TRUE(third.events[1].done().timings().reused());
}

TEST(Upload, ContentOnItsWayIsWaitedFor) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  UploadCall first = OpenUpload(h);
  first.Head(WithDigests(a));
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(first.Read(&response));
  ASSERT_TRUE(response.has_need());
  UploadCall second = OpenUpload(h);
  second.Head(WithDigests(a));
  ASSERT_TRUE(second.Read(&response));
  ASSERT_TRUE(response.has_wait()) << response.DebugString();
  for (const auto& chunk : ChunksOf(a)) first.Chunk(chunk);
  EXPECT_TRUE(first.Done().Finish().ok());
  ASSERT_TRUE(second.Read(&response));
  ASSERT_TRUE(response.has_have()) << response.DebugString();
  EXPECT_TRUE(second.Done().Finish().ok());
}

TEST(Upload, AWaiterTakesOverWhenTheFirstGivesUp) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  UploadCall first = OpenUpload(h);
  first.Head(WithDigests(a));
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(first.Read(&response));
  UploadCall second = OpenUpload(h);
  second.Head(WithDigests(a));
  ASSERT_TRUE(second.Read(&response));
  ASSERT_TRUE(response.has_wait());
  first.Cancel();
  ASSERT_TRUE(second.Read(&response));
  ASSERT_TRUE(response.has_need()) << response.DebugString();
  for (const auto& chunk : ChunksOf(a)) second.Chunk(chunk);
  EXPECT_TRUE(second.Done().Finish().ok());
  EXPECT_FALSE(first.Finish().ok());
}

// `wait` cannot get out, so `need` is due only when the input is complete and being stored.
TEST(Upload, AWaiterThatReadsNothingBeforeItHasSentAllIsServed) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  UploadCall first = OpenUpload(h);
  first.Head(WithDigests(a));
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(first.Read(&response));
  ASSERT_TRUE(response.has_need());

  grpc::ChannelArguments narrow;  // windows of less than a message
  narrow.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 5);
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto channel = h.NewChannel(narrow);
  const auto stub = v1::MatrixService::NewStub(channel);
  UploadCall second(Context(), &v1::MatrixService::Stub::UploadMatrix, *stub);
  second.Head(WithDigests(a));
  while (h.backend->streams().outgoing_bytes() == 0) std::this_thread::yield();
  first.Cancel();
  EXPECT_FALSE(first.Finish().ok());
  for (const auto& chunk : ChunksOf(a)) second.Chunk(chunk);
  second.Done();
  while (h.backend->matrices().stats().entries == 0) std::this_thread::yield();
  EXPECT_GT(h.backend->streams().outgoing_bytes(), 0) << "`wait` was to be stuck";

  std::vector<v1::UploadMatrixResponse> events;
  const grpc::Status status = second.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(events[0].has_wait());
  EXPECT_EQ(events[1].need().ranges_size(), 3);
  EXPECT_EQ(events[2].done().matrix().n(), 4);
}

TEST(Upload, RowsAndFloat32AreConverted) {
  Harness h;
  // [1 2; 0 4] by rows, in float32.
  v1::MatrixHeader header;
  header.set_n(2);
  header.set_nnz(3);
  header.set_layout(v1::LAYOUT_CSR);
  header.set_value_type(v1::VALUE_TYPE_FLOAT32);
  const Uploaded uploaded =
      h.Upload(header, {ChunkOf(v1::ARRAY_KIND_VALUES, 0, std::vector<float>{1, 2, 4}),
                        ChunkOf(v1::ARRAY_KIND_INDICES, 0, std::vector<int32_t>{0, 1, 1}),
                        ChunkOf(v1::ARRAY_KIND_POINTERS, 0, std::vector<int64_t>{0, 2, 3})});
  ASSERT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
  EXPECT_EQ(uploaded.matrix.digest().values(), ValueDigest(std::vector<double>{1, 2, 4}).ToBytes());
  EXPECT_EQ(
      uploaded.matrix.digest().pattern(),
      PatternDigest(2, std::vector<int64_t>{0, 1, 3}, std::vector<int32_t>{0, 0, 1}).ToBytes());
}

TEST(Upload, ManyChunksInterleaved) {
  Harness h;
  const Csc a = DiagonalMatrix(1000);
  UploadCall call = OpenUpload(h);
  call.Head(HeaderOf(a)).Chunk(ChunkOf(v1::ARRAY_KIND_POINTERS, 0, a.pointers));
  for (int64_t k = 0; k < 1000; k += 125) {
    call.Chunk(ChunkOf(v1::ARRAY_KIND_VALUES, k,
                       std::vector<double>(a.values.begin() + k, a.values.begin() + k + 125)));
    call.Chunk(ChunkOf(v1::ARRAY_KIND_INDICES, k,
                       std::vector<int32_t>(a.indices.begin() + k, a.indices.begin() + k + 125)));
  }
  std::vector<v1::UploadMatrixResponse> events;
  ASSERT_TRUE(call.Done().Finish(&events).ok());
  EXPECT_EQ(events.back().done().matrix().digest().values(), ValueDigest(a.values).ToBytes());
}

TEST(Upload, APatternWithoutValuesServesAsAnEstimateAndNotAsAMatrix) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  v1::MatrixHeader header = HeaderOf(a);
  header.set_pattern_only(true);
  header.clear_value_type();
  std::vector<v1::ArrayChunk> chunks = ChunksOf(a);
  chunks.pop_back();
  const Uploaded uploaded = h.Upload(header, chunks);
  ASSERT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
  EXPECT_TRUE(uploaded.matrix.pattern_only());

  auto context = Context();
  v1::EstimateBuildRequest request;
  request.set_matrix(uploaded.matrix.name());
  *request.mutable_spec() = Jacobi();
  v1::EstimateBuildResponse estimate;
  const grpc::Status status = h.preconditioners->EstimateBuild(context.get(), request, &estimate);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(estimate.nnz(), 4);
  EXPECT_EQ(estimate.choice().engine(), v1::ENGINE_KIND_JACOBI);

  BuildCall build = OpenBuild(h);
  build.Head(BuildOf(uploaded.matrix.name(), Jacobi())).Done();
  EXPECT_EQ(build.Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  chunks.push_back(ChunkOf(v1::ARRAY_KIND_VALUES, 0, a.values));
  EXPECT_RPC_ERROR(h.Upload(header, chunks).status, INVALID_ARGUMENT, "UNEXPECTED_MESSAGE",
                   "pattern_only");
}

TEST(Upload, AFullStoreEvictsWhatNobodyUsesAndSaysSoLater) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.backend.matrix_store_bytes = options.backend.max_matrix_bytes = 64 << 10;
  Harness h(options);
  const std::string first = h.Store(DiagonalMatrix(1500, 1));
  const std::string second = h.Store(DiagonalMatrix(1500, 2));
  const std::string third = h.Store(DiagonalMatrix(1500, 3));
  BuildCall call = OpenBuild(h);
  call.Head(BuildOf(first, Jacobi())).Done();
  EXPECT_RPC_ERROR(call.Finish(), NOT_FOUND, "HANDLE_EVICTED", first);
  BuildCall good = OpenBuild(h);
  good.Head(BuildOf(third, Jacobi())).Done();
  EXPECT_TRUE(good.Finish().ok());
}

// In chunks of `size` elements.
std::vector<v1::ArrayChunk> CutChunksOf(const Csc& a, size_t size) {
  std::vector<v1::ArrayChunk> chunks;
  const auto cut = [&](v1::ArrayKind kind, const auto& array) {
    for (size_t at = 0; at < array.size(); at += size) {
      const auto from = array.begin() + static_cast<ptrdiff_t>(at);
      const auto count = static_cast<ptrdiff_t>(std::min(size, array.size() - at));
      chunks.push_back(ChunkOf(kind, static_cast<int64_t>(at), std::vector(from, from + count)));
    }
  };
  cut(v1::ARRAY_KIND_POINTERS, a.pointers);
  cut(v1::ARRAY_KIND_INDICES, a.indices);
  cut(v1::ARRAY_KIND_VALUES, a.values);
  return chunks;
}

// Arriving arrays are looked at by the thread that receives them, or beside it where there are
// cores for that: what is found is the same.
class UploadLookedAt : public ::testing::TestWithParam<int> {
 protected:
  static Harness::Options WithThreads(int threads) {
    Harness::Options options{.backend = Harness::SmallBackend()};
    options.backend.threads = threads;
    return options;
  }
  Harness h_{WithThreads(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(WithThreads, UploadLookedAt, ::testing::Values(1, 4));

TEST_P(UploadLookedAt, InPiecesItIsTheSameMatrix) {
  EXPECT_EQ(h_.backend->look_aside(), GetParam() == 4);
  for (const size_t size : {1u, 7u, 1000u}) {
    const Csc a = DiagonalMatrix(300, static_cast<double>(size));
    const Uploaded uploaded = h_.Upload(WithDigests(a), CutChunksOf(a, size));
    ASSERT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
    EXPECT_EQ(uploaded.matrix.digest().pattern(),
              PatternDigest(a.n, a.pointers, a.indices).ToBytes());
    EXPECT_EQ(uploaded.matrix.digest().values(), ValueDigest(a.values).ToBytes());
    EXPECT_EQ(uploaded.matrix.diagnosis().max_abs_value(), static_cast<double>(size) + 299);
  }
  EXPECT_EQ(h_.backend->matrices().stats().reserved_bytes, 0);
}

TEST_P(UploadLookedAt, WhatIsWrongIsFoundAtItsPlace) {
  Csc a = DiagonalMatrix(300);
  a.values[250] = std::numeric_limits<double>::quiet_NaN();
  const auto upload = [&] { return h_.Upload(HeaderOf(a), CutChunksOf(a, 7)).status; };
  EXPECT_RPC_ERROR(upload(), INVALID_ARGUMENT, "NON_FINITE_VALUE", "values[250]");
  a.values[250] = 1;
  a.indices[123] = 300;
  EXPECT_RPC_ERROR(upload(), INVALID_ARGUMENT, "INDEX_OUT_OF_RANGE", "row_idx[123]");
  a.indices[123] = 123;
  a.pointers[5] = 1'000'000;
  EXPECT_RPC_ERROR(upload(), INVALID_ARGUMENT, "BAD_POINTERS", "col_ptr[5]");
  auto chunks = CutChunksOf(DiagonalMatrix(300), 7);
  chunks[60].set_crc32(12345);
  EXPECT_RPC_ERROR(h_.Upload(HeaderOf(a), chunks).status, INVALID_ARGUMENT, "CHECKSUM_MISMATCH",
                   "CRC-32");
  h_.ExpectLives();
}

TEST_P(UploadLookedAt, WhoLeavesInTheMiddleLeavesNothingBehind) {
  const Csc a = DiagonalMatrix(3000);
  const auto chunks = CutChunksOf(a, 500);
  for (size_t sent = 1; sent < chunks.size(); sent += 3) {
    UploadCall call = OpenUpload(h_);
    call.Head(HeaderOf(a));
    for (size_t k = 0; k < sent; ++k) call.Chunk(chunks[k]);
    call.Cancel();
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(h_.Upload(WithDigests(a), chunks).status.ok());
  // No stream is left while anything of it is still looked at.
  ASSERT_TRUE(
      h_.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  EXPECT_EQ(h_.backend->matrices().stats().reserved_bytes, 0);
}

}  // namespace
}  // namespace spaid::server
