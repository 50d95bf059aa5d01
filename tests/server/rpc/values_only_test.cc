// A pattern that is here already: values alone come, by columns or by rows.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/base/digest.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

// Not symmetric, also in its pattern: [4 0 1; 2 5 0; 0 0 3] times `factor`.
Csc Small(double factor = 1) {
  Csc a{3, {0, 2, 3, 5}, {0, 1, 1, 0, 2}, {4, 2, 5, 1, 3}};
  for (double& value : a.values) value *= factor;
  return a;
}
// The same by rows.
Csc SmallByRows(double factor = 1) {
  Csc a{3, {0, 2, 4, 5}, {0, 2, 0, 1, 2}, {4, 1, 2, 5, 3}};
  for (double& value : a.values) value *= factor;
  return a;
}

v1::MatrixHeader ByRows(const Csc& a) {
  v1::MatrixHeader header = HeaderOf(a);
  header.set_layout(v1::LAYOUT_CSR);
  return header;
}

enum class Prove { kNothing, kPattern, kAll };

v1::MatrixDigest DigestsOf(const Csc& a, Prove prove) {
  v1::MatrixDigest digest;
  digest.set_pattern(PatternDigest(a.n, a.pointers, a.indices).ToBytes());
  digest.set_values(ValueDigest(a.values).ToBytes());
  if (prove != Prove::kNothing) {
    digest.set_pattern_sha256(PatternSha256(a.n, a.pointers, a.indices).ToBytes());
  }
  if (prove == Prove::kAll) digest.set_values_sha256(ValueSha256(a.values).ToBytes());
  return digest;
}

v1::MatrixHeader Digested(const Csc& a, Prove prove) {
  v1::MatrixHeader header = HeaderOf(a);
  *header.mutable_digest() = DigestsOf(a, prove);
  return header;
}

v1::MatrixHeader DigestedByRows(const Csc& a, Prove prove) {
  v1::MatrixHeader header = ByRows(a);
  *header.mutable_sent_digest() = DigestsOf(a, prove);
  return header;
}

std::vector<v1::ArrayChunk> ValuesOf(const Csc& a) {
  return {ChunkOf(v1::ARRAY_KIND_VALUES, 0, a.values)};
}

const Matrix& Stored(Harness& h, const std::string& handle) {
  return *h.backend->matrices().Get("default", handle)->value;
}

void ExpectValuesAlone(const v1::UploadNeed& need, int64_t count) {
  ASSERT_EQ(need.ranges_size(), 1);
  EXPECT_EQ(need.ranges(0).array(), v1::ARRAY_KIND_VALUES);
  EXPECT_EQ(need.ranges(0).offset(), 0);
  EXPECT_EQ(need.ranges(0).count(), count);
}

TEST(ValuesOnly, AProvenPatternNeedNotBeSent) {
  Harness h;
  const std::string first = h.Store(Small());
  const int64_t bytes = h.backend->matrices().stats().bytes;
  const Csc drifted = Small(1.5);
  const Uploaded second = h.Upload(Digested(drifted, Prove::kPattern), ValuesOf(drifted));
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  ExpectValuesAlone(second.events[0].need(), 5);
  EXPECT_EQ(second.events.back().done().timings().bytes_up(), 5 * 8);
  EXPECT_EQ(second.matrix.digest().values(), ValueDigest(drifted.values).ToBytes());
  EXPECT_NE(second.matrix.name(), first);
  EXPECT_EQ(Stored(h, first).pattern, Stored(h, second.matrix.name()).pattern);
  EXPECT_EQ(h.backend->matrices().stats().bytes - bytes,
            Stored(h, second.matrix.name()).own_bytes());
  const std::string saved = std::to_string(8 * (Small().n + 1) + 4 * 5);
  EXPECT_THAT(h.metrics.Serialize(),
              testing::HasSubstr("spaid_array_bytes_saved_total{by=\"pattern\"} " + saved + "\n"));
  // Its diagnosis is that of the whole matrix.
  const Uploaded whole = Harness().Upload(HeaderOf(drifted), ChunksOf(drifted));
  EXPECT_EQ(second.matrix.diagnosis().SerializeAsString(),
            whole.matrix.diagnosis().SerializeAsString());
}

TEST(ValuesOnly, AnEqualPatternThatWasSentIsSharedToo) {
  Harness h;
  const std::string first = h.Store(Small()), second = h.Store(Small(2));
  EXPECT_EQ(Stored(h, first).pattern, Stored(h, second).pattern);
  const Csc rows = SmallByRows(3);
  const Uploaded third = h.Upload(ByRows(rows), ChunksOf(rows));
  EXPECT_EQ(Stored(h, first).pattern, Stored(h, third.matrix.name()).pattern);
}

TEST(ValuesOnly, Xxh3OfThePatternIsAHint) {
  Harness h;
  h.Store(Small());
  const Csc drifted = Small(1.5);
  UploadCall call = OpenUpload(h);
  v1::UploadMatrixResponse answer;
  ASSERT_TRUE(call.Head(Digested(drifted, Prove::kNothing)).Read(&answer));
  EXPECT_EQ(answer.need().ranges_size(), 3) << "forged patterns have equal XXH3";
  EXPECT_TRUE(answer.need().pattern_known());
  ASSERT_TRUE(call.Head(Digested(drifted, Prove::kPattern)).Read(&answer));
  ExpectValuesAlone(answer.need(), 5);
  EXPECT_FALSE(answer.need().pattern_known());
  call.Chunk(ValuesOf(drifted)[0]).Done();
  EXPECT_TRUE(call.ReadUntil([](const auto& r) { return r.has_done(); }).done().has_matrix());
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_FALSE(
      h.Upload(Digested(DiagonalMatrix(4), Prove::kNothing), {}).events[0].need().pattern_known());
}

TEST(ValuesOnly, AFalseProofGetsNothing) {
  Harness h;
  h.Store(Small());
  v1::MatrixHeader header = Digested(Small(1.5), Prove::kPattern);
  header.mutable_digest()->set_pattern_sha256(std::string(32, 'x'));
  const Uploaded asked = h.Upload(header, {});
  EXPECT_EQ(asked.events[0].need().ranges_size(), 3);
  EXPECT_FALSE(asked.events[0].need().pattern_known());
}

// A true proof of a pattern, in a header of another size: by columns, and by rows, where values
// would go to places that are not there.
TEST(ValuesOnly, AProofOfAnotherSizeGetsNothing) {
  Harness h;
  const Csc rows = SmallByRows();
  h.Upload(ByRows(rows), ChunksOf(rows));
  // One after the other: an upload of content that is on its way waits for that.
  const auto asks_for = [&h](const v1::MatrixHeader& header) {
    const Uploaded asked = h.Upload(header, {});
    EXPECT_TRUE(
        h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
    return asked.events[0].need().ranges_size();
  };
  for (v1::MatrixHeader header :
       {Digested(Small(1.5), Prove::kPattern), DigestedByRows(SmallByRows(1.5), Prove::kPattern)}) {
    EXPECT_EQ(asks_for(header), 1);
    header.set_nnz(9);
    EXPECT_EQ(asks_for(header), 3);
    header.set_nnz(5);
    header.set_n(4);
    EXPECT_EQ(asks_for(header), 3);
  }
  h.ExpectLives();
}

TEST(ValuesOnly, AHandleVouchesForThePattern) {
  Harness h;
  const std::string first = h.Store(Small());
  for (const bool by_rows : {false, true}) {
    const double factor = by_rows ? 3 : 2;
    v1::MatrixHeader header = by_rows ? ByRows(SmallByRows()) : HeaderOf(Small());
    header.set_same_pattern_as(first);
    const Uploaded sent = h.Upload(header, ValuesOf(by_rows ? SmallByRows(factor) : Small(factor)));
    ASSERT_TRUE(sent.status.ok()) << sent.status.error_message();
    ExpectValuesAlone(sent.events[0].need(), 5);
    EXPECT_EQ(sent.events.back().done().timings().bytes_up(), 5 * 8);
    EXPECT_EQ(Stored(h, sent.matrix.name()).pattern, Stored(h, first).pattern);
    EXPECT_EQ(sent.matrix.digest().values(), ValueDigest(Small(factor).values).ToBytes());
  }
}

TEST(ValuesOnly, AHandleMustFit) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  options.trust_tenant_header = true;
  Harness h(std::move(options));
  const std::string first = h.Store(Small(), "alice");
  v1::MatrixHeader header = HeaderOf(Small());
  header.set_same_pattern_as(first);
  EXPECT_RPC_ERROR(h.Upload(header, {}, "bob").status, NOT_FOUND, "HANDLE_UNKNOWN", "no matrix");
  header = HeaderOf(DiagonalMatrix(3));
  header.set_same_pattern_as(first);
  EXPECT_RPC_ERROR(h.Upload(header, {}, "alice").status, INVALID_ARGUMENT, "PATTERN_SIZE_MISMATCH",
                   "nnz = 5");
  header = HeaderOf(Small());
  header.set_same_pattern_as(first);
  header.set_pattern_only(true);
  EXPECT_RPC_ERROR(h.Upload(header, {}, "alice").status, INVALID_ARGUMENT, "UNEXPECTED_MESSAGE",
                   "pattern_only");
  header.set_pattern_only(false);
  EXPECT_RPC_ERROR(h.Upload(header, ChunksOf(Small()), "alice").status, INVALID_ARGUMENT,
                   "UNEXPECTED_MESSAGE", "values alone");
  EXPECT_RPC_ERROR(h.Upload(header, {}, "alice").status, INVALID_ARGUMENT, "ARRAY_INCOMPLETE",
                   "0 of 5");
}

TEST(ValuesOnly, AnotherPatternIsNotTaken) {
  Harness h;
  h.Store(DiagonalMatrix(3));
  const Csc a = Small();
  EXPECT_EQ(h.Upload(Digested(a, Prove::kPattern), {}).events[0].need().ranges_size(), 3);
}

TEST(ValuesOnly, APatternThatGoesBetweenNeedAndValuesIsStillThere) {
  Harness h;
  const std::string first = h.Store(Small());
  const Csc drifted = Small(1.5);
  UploadCall call = OpenUpload(h);
  v1::UploadMatrixResponse answer;
  ASSERT_TRUE(call.Head(Digested(drifted, Prove::kPattern)).Read(&answer));
  ExpectValuesAlone(answer.need(), 5);
  v1::DeleteMatrixRequest request;
  request.set_name(first);
  v1::DeleteMatrixResponse response;
  ASSERT_TRUE(h.matrices->DeleteMatrix(Context().get(), request, &response).ok());
  call.Chunk(ValuesOf(drifted)[0]).Done();
  const auto done = call.ReadUntil([](const auto& r) { return r.has_done(); });
  EXPECT_EQ(done.done().matrix().digest().pattern(),
            PatternDigest(drifted.n, drifted.pointers, drifted.indices).ToBytes());
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(h.backend->matrices().stats().zombie_bytes, 0);
}

// --- By rows ---

TEST(ByRows, IsTheSameMatrix) {
  Harness h;
  const std::string by_columns = h.Store(Small());
  const Csc rows = SmallByRows();
  const Uploaded sent = h.Upload(DigestedByRows(rows, Prove::kNothing), ChunksOf(rows));
  ASSERT_TRUE(sent.status.ok()) << sent.status.error_message();
  EXPECT_EQ(sent.matrix.name(), by_columns);
  EXPECT_TRUE(sent.events.back().done().timings().reused());
}

TEST(ByRows, KnownContentNeedNotBeSent) {
  Harness h;
  const Csc rows = SmallByRows();
  const std::string handle = h.Upload(ByRows(rows), ChunksOf(rows)).matrix.name();
  const Uploaded again = h.Upload(DigestedByRows(rows, Prove::kAll), {});
  ASSERT_TRUE(again.status.ok());
  EXPECT_EQ(again.matrix.name(), handle);
  EXPECT_TRUE(again.events.back().done().timings().reused());
  // A matrix whose arrays by columns are these is its transpose.
  const Uploaded transposed = h.Upload(Digested(rows, Prove::kAll), {});
  EXPECT_TRUE(transposed.events[0].has_need());
}

TEST(ByRows, ValuesComeAloneToo) {
  Harness h;
  const Csc rows = SmallByRows(), drifted = SmallByRows(1.5);
  h.Upload(ByRows(rows), ChunksOf(rows));
  const Uploaded sent = h.Upload(DigestedByRows(drifted, Prove::kPattern), ValuesOf(drifted));
  ASSERT_TRUE(sent.status.ok()) << sent.status.error_message();
  ExpectValuesAlone(sent.events[0].need(), 5);
  EXPECT_EQ(sent.events.back().done().timings().bytes_up(), 5 * 8);
  EXPECT_EQ(sent.matrix.digest().values(), ValueDigest(Small(1.5).values).ToBytes());
  // And are content that is known by its arrays by rows.
  const Uploaded again = h.Upload(DigestedByRows(drifted, Prove::kAll), {});
  EXPECT_EQ(again.matrix.name(), sent.matrix.name());
  EXPECT_TRUE(again.events.back().done().timings().reused());
}

TEST(ByRows, Float32AndPiecesAndAnyOrderOfArrays) {
  Harness h;
  const Csc rows = SmallByRows();
  const std::string handle = h.Store(Small());
  const std::vector<float> narrow(rows.values.begin(), rows.values.end());
  v1::MatrixHeader header = ByRows(rows);
  header.set_value_type(v1::VALUE_TYPE_FLOAT32);
  const auto pointers = ChunkOf(v1::ARRAY_KIND_POINTERS, 0, rows.pointers);
  const auto indices = ChunkOf(v1::ARRAY_KIND_INDICES, 0, rows.indices);
  const auto values = [&](int64_t from, int64_t to) {
    return ChunkOf(v1::ARRAY_KIND_VALUES, from,
                   std::vector<float>(narrow.begin() + from, narrow.begin() + to));
  };
  for (const std::vector<v1::ArrayChunk>& chunks :
       {std::vector{pointers, indices, values(0, 2), values(2, 5)},
        std::vector{indices, pointers, values(0, 5)}, std::vector{values(0, 5), pointers, indices},
        std::vector{pointers, values(0, 2), indices, values(2, 5)}}) {
    const Uploaded sent = h.Upload(header, chunks);
    ASSERT_TRUE(sent.status.ok()) << sent.status.error_message();
    EXPECT_EQ(sent.matrix.name(), handle);
  }
}

TEST(ByRows, RefusalsNameWhatWasSent) {
  Harness h;
  const Csc rows = SmallByRows();
  const auto sent = [&](const Csc& a, v1::MatrixHeader header) {
    return h.Upload(header, ChunksOf(a)).status;
  };
  Csc bad = rows;
  bad.values[2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_RPC_ERROR(sent(bad, ByRows(bad)), INVALID_ARGUMENT, "NON_FINITE_VALUE",
                   "values[2] (row 1, column 0) is NaN");
  bad = rows;
  bad.indices[3] = 7;
  EXPECT_RPC_ERROR(sent(bad, ByRows(bad)), INVALID_ARGUMENT, "INDEX_OUT_OF_RANGE", "col_idx[3]");
  bad = rows;
  std::swap(bad.indices[0], bad.indices[1]);
  EXPECT_RPC_ERROR(sent(bad, ByRows(bad)), INVALID_ARGUMENT, "UNSORTED_INDICES", "col_idx[1]");
  bad = rows;
  bad.pointers[1] = 9;
  EXPECT_RPC_ERROR(sent(bad, ByRows(bad)), INVALID_ARGUMENT, "BAD_POINTERS", "row_ptr[1]");
  // Values that come alone are refused by their own places.
  h.Upload(ByRows(rows), ChunksOf(rows));
  bad = rows;
  bad.values[1] = std::numeric_limits<double>::infinity();
  EXPECT_RPC_ERROR(h.Upload(DigestedByRows(bad, Prove::kPattern), ValuesOf(bad)).status,
                   INVALID_ARGUMENT, "NON_FINITE_VALUE", "values[1] (row 0, column 2) is infinite");
  h.ExpectLives();
}

TEST(ByRows, UnsortedRowsAreSortedWhereThatIsAskedFor) {
  Harness h;
  const std::string handle = h.Store(Small());
  const Csc unsorted{3, {0, 2, 4, 5}, {2, 0, 1, 0, 2}, {1, 4, 5, 2, 3}};
  v1::MatrixHeader header = ByRows(unsorted);
  header.set_sort_and_sum(true);
  const Uploaded sent = h.Upload(header, ChunksOf(unsorted));
  ASSERT_TRUE(sent.status.ok()) << sent.status.error_message();
  EXPECT_EQ(sent.matrix.name(), handle);
}

TEST(ByRows, DigestsAreChecked) {
  Harness h;
  const Csc rows = SmallByRows();
  v1::MatrixHeader header = DigestedByRows(rows, Prove::kNothing);
  header.mutable_sent_digest()->set_values(std::string(16, 'x'));
  EXPECT_RPC_ERROR(h.Upload(header, ChunksOf(rows)).status, INVALID_ARGUMENT, "DIGEST_MISMATCH",
                   "by rows as they came");
  header = DigestedByRows(rows, Prove::kNothing);
  header.mutable_sent_digest()->set_pattern(std::string(16, 'x'));
  EXPECT_RPC_ERROR(h.Upload(header, ChunksOf(rows)).status, INVALID_ARGUMENT, "DIGEST_MISMATCH",
                   "pattern");
  header = Digested(Small(), Prove::kNothing);
  header.mutable_sent_digest()->set_pattern(std::string(16, 'x'));
  EXPECT_RPC_ERROR(h.Upload(header, {}).status, INVALID_ARGUMENT, "BAD_DIGEST", "LAYOUT_CSC");
  // That of what is stored is taken with rows, too.
  header = ByRows(rows);
  *header.mutable_digest() = DigestsOf(Small(), Prove::kNothing);
  EXPECT_TRUE(h.Upload(header, ChunksOf(rows)).status.ok());
}

TEST(ByRows, ManyThreadsWithOnePatternStoreOne) {
  Harness h;
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&h, i] {
      const Csc rows = SmallByRows(i + 1), columns = Small(i + 1);
      const Uploaded sent = i % 2 == 0 ? h.Upload(ByRows(rows), ChunksOf(rows))
                                       : h.Upload(HeaderOf(columns), ChunksOf(columns));
      EXPECT_TRUE(sent.status.ok()) << sent.status.error_message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto all = h.backend->matrices().List("default", {.size = 100});
  ASSERT_EQ(all.items.size(), 16u);
  for (const auto& item : all.items) {
    EXPECT_EQ(item.value->pattern, all.items[0].value->pattern);
  }
}

// --- Inline matrices ---

v1::SolveHeader SolveInline(const v1::MatrixHeader& matrix) {
  v1::SolveHeader header = SolveOf("", None());
  *header.mutable_inline_matrix() = matrix;
  return header;
}

TEST(InlineMatrix, IsAskedForWhatIsNotHere) {
  Harness h;
  const Csc a = DiagonalMatrix(3), drifted = DiagonalMatrix(3, 2);
  const auto rhs = ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12});
  for (const auto& [matrix, ranges] : {std::pair(a, 3), std::pair(a, 0), std::pair(drifted, 1)}) {
    v1::MatrixHeader header = Digested(matrix, Prove::kAll);
    header.set_wait_for_need(true);
    SolveCall call = OpenSolve(h);
    call.Head(SolveInline(header)).Chunk(rhs);
    const auto need = call.ReadUntil([](const auto& r) { return r.has_need(); });
    ASSERT_EQ(need.need().ranges_size(), ranges);
    const std::vector<v1::ArrayChunk> chunks = ChunksOf(matrix);
    for (int i = 3 - ranges; i < 3; ++i) call.Chunk(chunks[static_cast<size_t>(i)]);
    call.Done();
    const auto told = call.ReadUntil([](const auto& r) { return r.has_matrix(); });
    EXPECT_EQ(told.matrix().digest().values(), ValueDigest(matrix.values).ToBytes());
    EXPECT_TRUE(call.Finish().ok());
  }
  const std::string metrics = h.metrics.Serialize();
  for (const char* saved : {"{by=\"content\"} 68\n", "{by=\"pattern\"} 44\n"}) {
    EXPECT_THAT(metrics, testing::HasSubstr(std::string("spaid_array_bytes_saved_total") + saved));
  }
}

TEST(InlineMatrix, ValuesOfAKnownPatternFollowTheHeader) {
  Harness h;
  const std::string first = h.Store(DiagonalMatrix(3));
  v1::MatrixHeader header = HeaderOf(DiagonalMatrix(3));
  header.set_same_pattern_as(first);
  for (const bool by_rows : {false, true}) {
    if (by_rows) header.set_layout(v1::LAYOUT_CSR);
    SolveCall call = OpenSolve(h);
    call.Head(SolveInline(header))
        .Chunk(ChunkOf(v1::ARRAY_KIND_VALUES, 0, std::vector<double>{2, 3, 4}))
        .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12}))
        .Done();
    std::vector<v1::SolveResponse> events;
    ASSERT_TRUE(call.Finish(&events).ok());
    EXPECT_EQ(events.back().done().timings().bytes_up(), 3 * 8 + 3 * 8);
    EXPECT_EQ(Stored(h, events.back().done().matrix()).pattern, Stored(h, first).pattern);
  }
  header.set_same_pattern_as("matrices/none");
  SolveCall call = OpenSolve(h);
  EXPECT_RPC_ERROR(call.Head(SolveInline(header)).Finish(), NOT_FOUND, "HANDLE_UNKNOWN", "");
}

TEST(InlineMatrix, OfABuildIsAskedForToo) {
  Harness h;
  const Csc a = DiagonalMatrix(3);
  h.Store(a);
  v1::BuildHeader header = BuildOf("", Jacobi());
  *header.mutable_inline_matrix() = Digested(a, Prove::kAll);
  header.mutable_inline_matrix()->set_wait_for_need(true);
  BuildCall call = OpenBuild(h);
  call.Head(header);
  EXPECT_EQ(call.ReadUntil([](const auto& r) { return r.has_need(); }).need().ranges_size(), 0);
  EXPECT_TRUE(call.Done().Finish().ok());
}

}  // namespace
}  // namespace spaid::server
