// have / wait / need, layouts and types, timings.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/base/digest.h"
#include "tests/server/forged.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

v1::MatrixHeader WithXxh3(const Csc& a) {
  v1::MatrixHeader header = HeaderOf(a);
  header.mutable_digest()->set_pattern(PatternDigest(a.n, a.pointers, a.indices).ToBytes());
  header.mutable_digest()->set_values(ValueDigest(a.values).ToBytes());
  return header;
}

v1::MatrixHeader WithDigests(const Csc& a) {
  v1::MatrixHeader header = WithXxh3(a);
  header.mutable_digest()->set_pattern_sha256(PatternSha256(a.n, a.pointers, a.indices).ToBytes());
  header.mutable_digest()->set_values_sha256(ValueSha256(a.values).ToBytes());
  return header;
}

// Another matrix of the same XXH3 digests.
Csc Forged(Csc a) {
  a.values = SameXxh3(a.values);
  return a;
}

// What the server answers `header`, up to `have` or `need`.
std::vector<v1::UploadMatrixResponse> AnswerTo(UploadCall& call, const v1::MatrixHeader& header) {
  call.Head(header);
  std::vector<v1::UploadMatrixResponse> events(1);
  while (call.Read(&events.back()) && events.back().has_wait()) events.emplace_back();
  return events;
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
  EXPECT_EQ(again.matrix.digest().SerializeAsString(), WithDigests(a).digest().SerializeAsString());
  // Without digests the bytes come again, and are the same matrix.
  const Uploaded third = h.Upload(HeaderOf(a), ChunksOf(a));
  EXPECT_EQ(third.matrix.name(), handle);
  EXPECT_TRUE(third.events[1].done().timings().reused());
  // Five pointers, four indices and four values were saved, once.
  EXPECT_THAT(h.metrics.Serialize(),
              testing::HasSubstr("spaid_array_bytes_saved_total{by=\"content\"} 88\n"));
}

TEST(Upload, Xxh3AloneIsNoAnswerButAHint) {
  Harness h;
  const Csc a = DiagonalMatrix(160);
  UploadCall unknown = OpenUpload(h);
  auto events = AnswerTo(unknown, WithXxh3(a));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].need().ranges_size(), 3);
  unknown.Cancel();
  EXPECT_FALSE(unknown.Finish().ok());
  // Its turn at sending ends with it, which the client does not see.
  ASSERT_TRUE(
      h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(30)));

  const std::string handle = h.Store(a);
  EXPECT_EQ(h.backend->matrices().Get("default", handle)->value->known_values_sha256(), nullptr)
      << "hashed before anybody asked";
  UploadCall known = OpenUpload(h);
  events = AnswerTo(known, WithXxh3(a));
  ASSERT_EQ(events.size(), 2u) << "wait, need: something of these digests is here";
  EXPECT_EQ(events[1].need().ranges_size(), 3);
  events = AnswerTo(known, WithDigests(a));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].have().name(), handle);
  EXPECT_TRUE(known.Finish().ok());
  // Who has no SHA-256 sends the arrays.
  const Uploaded sent = h.Upload(WithXxh3(a), ChunksOf(a));
  EXPECT_EQ(sent.matrix.name(), handle);
  EXPECT_EQ(sent.events.back().done().timings().bytes_up(), 161 * 8 + 160 * 12);
}

TEST(Upload, ADigestWithNothingBehindItIsAQuestion) {
  Harness h;
  const Csc a = DiagonalMatrix(160);
  Uploaded asked = h.Upload(WithDigests(a), {});
  EXPECT_TRUE(asked.status.ok()) << asked.status.error_message();
  ASSERT_EQ(asked.events.size(), 1u);
  EXPECT_TRUE(asked.events[0].has_need());
  h.Store(a);
  asked = h.Upload(WithXxh3(a), {});
  EXPECT_TRUE(asked.status.ok());
  ASSERT_EQ(asked.events.size(), 2u);
  EXPECT_TRUE(asked.events[0].has_wait());
  EXPECT_TRUE(asked.events[1].has_need());
  EXPECT_TRUE(h.Upload(WithDigests(a), {}).events.back().has_done());
  EXPECT_RPC_ERROR(h.Upload(HeaderOf(a), {}).status, INVALID_ARGUMENT, "ARRAY_INCOMPLETE", "0 of");
  EXPECT_EQ(h.backend->matrices().stats().reserved_bytes, 0);
}

TEST(Upload, AsksOnceAgainAndOfTheSameMatrixAlone) {
  Harness h;
  const Csc a = DiagonalMatrix(160), b = DiagonalMatrix(160, 5);
  h.Store(a);
  const auto second = [&](const v1::MatrixHeader& first, const v1::MatrixHeader& header) {
    UploadCall call = OpenUpload(h);
    EXPECT_TRUE(AnswerTo(call, first).back().has_need());
    return call.Head(header).Finish();
  };
  EXPECT_RPC_ERROR(second(WithXxh3(a), WithDigests(b)), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE",
                   "second header");
  EXPECT_RPC_ERROR(second(WithXxh3(a), WithXxh3(a)), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "");
  EXPECT_RPC_ERROR(second(WithDigests(b), WithDigests(b)), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE",
                   "");
  v1::MatrixHeader bad = WithDigests(a);
  bad.mutable_digest()->set_pattern("short");
  EXPECT_RPC_ERROR(second(WithXxh3(a), bad), INVALID_ARGUMENT, "BAD_DIGEST", "16 bytes");
  UploadCall begun = OpenUpload(h);
  AnswerTo(begun, WithXxh3(a));
  EXPECT_RPC_ERROR(begun.Chunk(ChunksOf(a)[0]).Head(WithDigests(a)).Finish(), INVALID_ARGUMENT,
                   "UNEXPECTED_MESSAGE", "second header");
}

TEST(Upload, Sha256StandsBesideXxh3) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  const auto refused = [&](const std::function<void(v1::MatrixDigest*)>& change) {
    v1::MatrixHeader header = WithDigests(a);
    change(header.mutable_digest());
    EXPECT_RPC_ERROR(h.Upload(header, ChunksOf(a)).status, INVALID_ARGUMENT, "BAD_DIGEST", "32");
  };
  refused([](auto* digest) { digest->set_pattern_sha256("short"); });
  refused([](auto* digest) { digest->set_values_sha256(std::string(33, 'v')); });
  refused([](auto* digest) { digest->clear_values(); });
  refused([](auto* digest) { digest->clear_pattern(), digest->clear_values(); });
}

// A forger who came first, and one who came second; known content, and content on its way.
TEST(Upload, AForgedMatrixIsAnotherOne) {
  for (const bool forger_first : {true, false}) {
    Harness h;
    const Csc honest = DiagonalMatrix(160), forged = Forged(honest);
    const Csc& one = forger_first ? forged : honest;
    const Csc& two = forger_first ? honest : forged;
    ASSERT_EQ(WithXxh3(one).SerializeAsString(), WithXxh3(two).SerializeAsString());
    const Uploaded first = h.Upload(WithXxh3(one), ChunksOf(one));
    const Uploaded second = h.Upload(HeaderOf(two), ChunksOf(two));
    ASSERT_TRUE(second.status.ok()) << second.status.error_message();
    EXPECT_NE(first.matrix.name(), second.matrix.name());
    EXPECT_FALSE(second.events.back().done().timings().reused());
    EXPECT_EQ(h.Upload(HeaderOf(one), ChunksOf(one)).matrix.name(), first.matrix.name());
    EXPECT_EQ(h.Upload(WithXxh3(two), ChunksOf(two)).matrix.name(), second.matrix.name());
    EXPECT_EQ(h.Upload(WithDigests(one), {}).matrix.name(), first.matrix.name());
    EXPECT_EQ(h.Upload(WithDigests(two), {}).matrix.name(), second.matrix.name());
    // And each solves as itself.
    SolveCall solve = OpenSolve(h);
    solve.Head(SolveOf(second.matrix.name(), None()));
    solve.Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>(160, 1.0))).Done();
    const auto solution = solve.ReadUntil([](const auto& r) { return r.has_chunk(); });
    double x[160];
    ASSERT_EQ(solution.chunk().data().size(), sizeof(x));
    std::memcpy(x, solution.chunk().data().data(), sizeof(x));
    for (size_t i = 0; i < 160; ++i) EXPECT_EQ(x[i], 1 / two.values[i]) << i;
    EXPECT_TRUE(solve.Finish().ok());
  }
}

TEST(Upload, AForgedMatrixDoesNotStandInForWhatIsOnItsWay) {
  Harness h;
  const Csc honest = DiagonalMatrix(160), forged = Forged(honest);
  UploadCall forger = OpenUpload(h);
  ASSERT_TRUE(AnswerTo(forger, WithDigests(forged)).back().has_need());
  UploadCall victim = OpenUpload(h);
  victim.Head(WithDigests(honest));
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(victim.Read(&response));
  ASSERT_TRUE(response.has_wait()) << response.DebugString();
  // Without SHA-256 there is no waiting.
  UploadCall other = OpenUpload(h);
  EXPECT_EQ(AnswerTo(other, WithXxh3(honest)).size(), 2u);
  for (const auto& chunk : ChunksOf(forged)) forger.Chunk(chunk);
  EXPECT_TRUE(forger.Done().Finish().ok());
  ASSERT_TRUE(victim.Read(&response));
  ASSERT_TRUE(response.has_need()) << response.DebugString();
  ASSERT_EQ(response.need().ranges_size(), 1) << "the pattern is not forged";
  victim.Chunk(ChunksOf(honest)[2]).Done();
  for (const auto& chunk : ChunksOf(honest)) other.Chunk(chunk);
  other.Done();
  std::vector<v1::UploadMatrixResponse> events, others;
  EXPECT_TRUE(victim.Finish(&events).ok());
  EXPECT_TRUE(other.Finish(&others).ok());
  EXPECT_EQ(events.back().done().matrix().name(), others.back().done().matrix().name());
  EXPECT_EQ(h.backend->matrices().stats().entries, 2);
}

// A claim of another's SHA-256 with forged arrays: nobody is told that they are what it claims.
TEST(Upload, AFalseSha256IsBelievedByNobody) {
  Harness h;
  const Csc honest = DiagonalMatrix(160), forged = Forged(honest);
  const Uploaded liar = h.Upload(WithDigests(honest), ChunksOf(forged));
  ASSERT_TRUE(liar.status.ok()) << liar.status.error_message();
  UploadCall victim = OpenUpload(h);
  const auto answer = AnswerTo(victim, WithDigests(honest)).back();
  ASSERT_EQ(answer.need().ranges_size(), 1) << "the pattern is what it claims, the values are not";
  victim.Chunk(ChunksOf(honest)[2]);
  std::vector<v1::UploadMatrixResponse> events;
  EXPECT_TRUE(victim.Done().Finish(&events).ok());
  EXPECT_NE(events.back().done().matrix().name(), liar.matrix.name());
}

// Sixty-four ranks with one matrix, none of which has made SHA-256 before it is told to.
TEST(Upload, ManyAtOnceSendOnce) {
  Harness h;
  const Csc a = DiagonalMatrix(160);
  UploadCall first = OpenUpload(h);
  ASSERT_EQ(AnswerTo(first, WithXxh3(a)).size(), 1u);
  std::vector<UploadCall> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(OpenUpload(h));
    ASSERT_EQ(AnswerTo(others.back(), WithXxh3(a)).size(), 2u) << "it is on its way";
    others.back().Head(WithDigests(a));
    v1::UploadMatrixResponse response;
    ASSERT_TRUE(others.back().Read(&response));
    ASSERT_TRUE(response.has_wait());
  }
  for (const auto& chunk : ChunksOf(a)) first.Chunk(chunk);
  EXPECT_TRUE(first.Done().Finish().ok());
  for (UploadCall& call : others) {
    const auto have = call.ReadUntil([](const auto& r) { return !r.has_wait(); });
    EXPECT_TRUE(have.has_have()) << have.DebugString();
    EXPECT_TRUE(call.Finish().ok());
  }
  EXPECT_EQ(h.backend->matrices().stats().entries, 1);
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

TEST(Upload, AWaiterSendsItselfWhereTheFirstOneDawdles) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  UploadCall first = OpenUpload(h);
  first.Head(WithDigests(a));
  v1::UploadMatrixResponse response;
  ASSERT_TRUE(first.Read(&response));
  std::vector<UploadCall> others;
  for (int k = 0; k < 2; ++k) {
    others.push_back(OpenUpload(h));
    ASSERT_TRUE(others.back().Head(WithDigests(a)).Read(&response));
    ASSERT_TRUE(response.has_wait());
  }
  // One of them has the lead after kLeaderSpan; the other waits for that one.
  while (h.backend->matrices().stats().reserved_bytes < 2 * (5 * 8 + 4 * 12)) {
    std::this_thread::yield();
  }
  const auto is_need = [](const auto& r) { return r.has_need(); };
  for (UploadCall& call : others) {
    for (const auto& chunk : ChunksOf(a)) call.Chunk(chunk);
    call.Done();
  }
  std::vector<std::string> names;
  int needs = 0;
  for (UploadCall& call : others) {
    std::vector<v1::UploadMatrixResponse> events;
    ASSERT_TRUE(call.Finish(&events).ok());
    needs += static_cast<int>(std::count_if(events.begin(), events.end(), is_need));
    names.push_back(events.back().done().matrix().name());
  }
  EXPECT_GE(needs, 1);  // on a machine that stands still for seconds, both
  EXPECT_EQ(names[0], names[1]);
  // The first one finds it when it comes at last.
  for (const auto& chunk : ChunksOf(a)) first.Chunk(chunk);
  std::vector<v1::UploadMatrixResponse> events;
  ASSERT_TRUE(first.Done().Finish(&events).ok());
  EXPECT_EQ(events.back().done().matrix().name(), names[0]);
  EXPECT_TRUE(events.back().done().timings().reused());
}

struct CountingWaiter : UploadTable::Waiter {
  void Wake() override { ++wakes; }
  int wakes = 0;
};

TEST(UploadTable, ALeadIsKeptByAGoodRateAlone) {
  using std::chrono::milliseconds;
  constexpr int64_t kEnough = int64_t{16} << 20;  // for two seconds
  UploadTable table;
  const auto start = UploadTable::TimePoint{} + std::chrono::hours(1);
  const auto waiter = std::make_shared<CountingWaiter>();
  const auto enter = [&](int ms) {
    return table.Enter("t", "key", waiter, start + milliseconds(ms));
  };
  UploadTable::Turn first = enter(0);
  ASSERT_TRUE(first);
  EXPECT_FALSE(enter(1)) << "nothing is known of it yet";
  EXPECT_FALSE(table.LeaderIsSlow("t", "key", start + milliseconds(1999)));
  first.Came(kEnough, start + milliseconds(2000));
  EXPECT_FALSE(table.LeaderIsSlow("t", "key", start + milliseconds(3999)));
  EXPECT_FALSE(table.LeaderIsSlow("u", "key", start + milliseconds(9000))) << "another tenant's";
  first.Came(kEnough - 1, start + milliseconds(3999));
  EXPECT_TRUE(table.LeaderIsSlow("t", "key", start + milliseconds(4000)));
  EXPECT_TRUE(table.LeaderIsSlow("t", "key", start + milliseconds(4001))) << "until the next span";

  UploadTable::Turn second = enter(4100);
  ASSERT_TRUE(second);
  EXPECT_FALSE(enter(5000));
  first.Came(kEnough, start + milliseconds(5001));  // counts for nobody
  EXPECT_TRUE(table.LeaderIsSlow("t", "key", start + milliseconds(6100)));
  second.CameWhole();
  EXPECT_FALSE(table.LeaderIsSlow("t", "key", start + milliseconds(20000)))
      << "the sender has done its part";
  EXPECT_EQ(waiter->wakes, 0);
  first.End();  // has stored it, perhaps
  EXPECT_EQ(waiter->wakes, 1);
  EXPECT_FALSE(enter(20001)) << "the second still leads";
  second.End();
  EXPECT_EQ(waiter->wakes, 2);
  EXPECT_TRUE(enter(20002));
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
    // Each of a size of its own: a known pattern would not be asked for.
    const Csc a = DiagonalMatrix(300 + static_cast<int64_t>(size), static_cast<double>(size));
    const Uploaded uploaded = h_.Upload(WithDigests(a), CutChunksOf(a, size));
    ASSERT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
    EXPECT_EQ(uploaded.matrix.digest().pattern(),
              PatternDigest(a.n, a.pointers, a.indices).ToBytes());
    EXPECT_EQ(uploaded.matrix.digest().values(), ValueDigest(a.values).ToBytes());
    EXPECT_EQ(uploaded.matrix.diagnosis().max_abs_value(), 2 * static_cast<double>(size) + 299);
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
