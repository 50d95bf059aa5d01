// M on the stream of its build before the build has ended.
#include <chrono>
#include <string>
#include <vector>

#include "tests/server/rpc/large_results.h"

namespace spaid::server {
namespace {

using std::chrono::seconds;

TEST(PartialResult, TheFirstColumnsComeWhileTheLastAreBeingBuilt) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  BuildCall call = OpenBuild(h);
  call.Head(Partial(matrix)).Done();
  Received received;
  ReadValues(call, kValuesOfChunk, &received);
  EXPECT_EQ(received.pointers.size(), static_cast<size_t>(kN) + 1);
  EXPECT_EQ(received.indices.size(), static_cast<size_t>(kN));
  EXPECT_EQ(received.values.back(), 1.0 / kValuesOfChunk);
  EXPECT_FALSE(received.finished);
  EXPECT_EQ(GetJob(h, received.job).state(), v1::JOB_STATE_RUNNING);
  h.engine.ReleaseShown();
  const grpc::Status status = ReadRest(call, &received);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(received.headers, 1);
  EXPECT_TRUE(received.finished);
  received.ExpectWhole();
}

// A client of before: everything comes behind the last event, as it is told in the contract.
TEST(PartialResult, ComesToNobodyWhoHasNotAskedForIt) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  v1::BuildHeader header = Partial(matrix);
  header.set_partial_result(false);
  BuildCall old = OpenBuild(h);
  old.Head(header).Done();
  BuildCall call = OpenBuild(h);
  call.Head(Partial(matrix)).Done();
  Received early, late;
  ReadValues(call, kValuesOfChunk, &early);
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(old, &late).ok());
  EXPECT_FALSE(late.header_before_end);
  EXPECT_EQ(late.headers, 1);
  late.ExpectWhole();
  ASSERT_TRUE(ReadRest(call, &early).ok());
  EXPECT_TRUE(early.header_before_end);
}

TEST(PartialResult, WithoutAResultOnTheStreamNothingComes) {
  Harness h(Large());
  v1::BuildHeader header = Partial(StoreLarge(h));
  header.set_stream_result(false);
  BuildCall call = OpenBuild(h);
  Received received;
  ASSERT_TRUE(ReadRest(call.Head(header).Done(), &received).ok());
  EXPECT_EQ(received.headers, 0);
  EXPECT_EQ(received.done.preconditioner().nnz(), kN);
}

// Also of an engine that shows nothing before it is done.
TEST(PartialResult, ComesOnceWhereAllOfItComesInTheEnd) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  BuildCall call = OpenBuild(h);
  Received received;
  ASSERT_TRUE(ReadRest(call.Head(Partial(matrix)).Done(), &received).ok());
  EXPECT_EQ(received.headers, 1);
  received.ExpectWhole();
  // What is stored has no job.
  BuildCall again = OpenBuild(h);
  Received stored;
  ASSERT_TRUE(ReadRest(again.Head(Partial(matrix)).Done(), &stored).ok());
  EXPECT_TRUE(stored.job.empty());
  EXPECT_TRUE(stored.done.timings().reused());
  stored.ExpectWhole();
}

TEST(PartialResult, AFailureBehindTheFirstColumnsEndsTheStream) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  BuildCall call = OpenBuild(h);
  call.Head(Partial(matrix)).Done();
  Received received;
  ReadValues(call, kValuesOfChunk, &received);
  h.engine.FailBuilds(
      kernels::Status(kernels::StatusCode::kFailedPrecondition, "SINGULAR_BLOCK", "by design"));
  h.engine.ReleaseShown();
  EXPECT_RPC_ERROR(ReadRest(call, &received), FAILED_PRECONDITION, "SINGULAR_BLOCK", "by design");
  EXPECT_TRUE(received.finished);
  EXPECT_FALSE(received.done.has_preconditioner());
  EXPECT_EQ(GetJob(h, received.job).state(), v1::JOB_STATE_FAILED);
  h.engine.FailBuilds({});
  h.ExpectLives();
}

// The GPU was full, and is tried once more: what came before is void, and a header says so.
TEST(PartialResult, ABuildThatBeginsAnewIsSentAnew) {
  Harness h(Large({FakeGpu(0)}));
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  BuildCall call = OpenBuild(h);
  call.Head(Partial(matrix)).Done();
  Received received;
  ReadValues(call, kValuesOfChunk, &received);
  h.engine.out_of_memory = 1;
  h.engine.ReleaseShown();
  const grpc::Status status = ReadRest(call, &received);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(received.headers, 2);
  EXPECT_EQ(h.engine.builds, 2);
  ASSERT_EQ(received.values.size(), static_cast<size_t>(kN));
  EXPECT_EQ(received.values.back(), 1.0 / kN);
  EXPECT_GT(received.done.timings().bytes_down(), (kN + 1) * 8 + kN * 12);
}

TEST(PartialResult, TwoWaitersReadOneBuildEachAtItsOwnPace) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  BuildCall first = OpenBuild(h);
  first.Head(Partial(matrix)).Done();
  Received one, two;
  ReadValues(first, kValuesOfChunk, &one);
  BuildCall second = OpenBuild(h);  // joins in the middle, and has it from the beginning
  second.Head(Partial(matrix)).Done();
  ReadValues(second, kValuesOfChunk, &two);
  EXPECT_EQ(two.job, one.job);
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(second, &two).ok());
  ASSERT_TRUE(ReadRest(first, &one).ok());
  EXPECT_EQ(h.engine.builds, 1);
  one.ExpectWhole();
  two.ExpectWhole();
  EXPECT_EQ(one.done.preconditioner().name(), two.done.preconditioner().name());
}

// Who takes nothing holds up neither the build nor the other stream.
TEST(PartialResult, ASlowReaderPausesItsOwnStreamAlone) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  const auto channel = h.NewChannel();
  const auto stub = v1::PreconditionerService::NewStub(channel);
  BuildCall slow(Context(), &v1::PreconditionerService::Stub::BuildPreconditioner, *stub);
  slow.Head(Partial(matrix)).Done();
  Received behind, ahead;
  v1::BuildPreconditionerResponse response;
  while (behind.headers == 0) {
    ASSERT_TRUE(slow.Read(&response));
    behind.Take(response);
  }
  BuildCall fast = OpenBuild(h);
  fast.Head(Partial(matrix)).Done();
  ReadValues(fast, kValuesOfChunk, &ahead);
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(fast, &ahead).ok());
  ahead.ExpectWhole();
  EXPECT_EQ(GetJob(h, ahead.job).state(), v1::JOB_STATE_SUCCEEDED);
  // What waits for the slow one is one message; the rest is M's own arrays.
  EXPECT_LE(h.backend->streams().outgoing_bytes(), (1 << 20) + (16 << 10));
  const grpc::Status status = ReadRest(slow, &behind);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(h.engine.builds, 1);
  behind.ExpectWhole();
}

TEST(PartialResult, AResetInBetweenStopsTheBuild) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  Received received;
  BuildCall call = OpenBuild(h);
  call.Head(Partial(matrix)).Done();
  ReadValues(call, kValuesOfChunk, &received);
  call.Cancel();
  EXPECT_FALSE(ReadRest(call, &received).ok());
  const v1::Job ended = WaitEnded(h, received.job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ended.error().reason(), "ABANDONED");
  ASSERT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  EXPECT_EQ(h.backend->preconditioners().stats().bytes, 0);
}

TEST(PartialResult, ACancelledJobEndsItsStream) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  Received received;
  BuildCall call = OpenBuild(h);
  call.Head(Partial(matrix)).Done();
  ReadValues(call, kValuesOfChunk, &received);
  auto context = Context();
  v1::CancelJobRequest request;
  request.set_name(received.job);
  v1::CancelJobResponse response;
  ASSERT_TRUE(h.jobs->CancelJob(context.get(), request, &response).ok());
  EXPECT_RPC_ERROR(ReadRest(call, &received), CANCELLED, "CANCELLED", "cancelled");
  EXPECT_FALSE(received.done.has_preconditioner());
}

// The stream goes, the job does not: all of M is there for a build, or a download, that comes
// later.
TEST(PartialResult, OfADetachedJobComesAgainFromTheBeginning) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  Received before, after;
  v1::BuildHeader header = Partial(matrix);
  header.set_detach(true);
  BuildCall call = OpenBuild(h);
  call.Head(header).Done();
  ReadValues(call, kValuesOfChunk, &before);
  call.Cancel();
  EXPECT_FALSE(ReadRest(call, &before).ok());
  BuildCall again = OpenBuild(h);
  again.Head(header).Done();
  ReadValues(again, kValuesOfChunk, &after);
  EXPECT_EQ(after.job, before.job);
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(again, &after).ok());
  after.ExpectWhole();
  EXPECT_EQ(h.engine.builds, 1);
  EXPECT_EQ(WaitEnded(h, before.job).state(), v1::JOB_STATE_SUCCEEDED);
}

// Its M is stored all the same, and can be had as float64.
TEST(PartialResult, AValueThatFloat32CannotHoldDoesNotStopTheBuild) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h, 1e-40);
  h.engine.HoldBuildsShown(kShown);
  v1::BuildHeader header = Partial(matrix);
  header.set_result_type(v1::VALUE_TYPE_FLOAT32);
  BuildCall call = OpenBuild(h);
  call.Head(header).Done();
  Received received;
  v1::BuildPreconditionerResponse response;
  while (received.indices.size() < static_cast<size_t>(kN)) {
    ASSERT_TRUE(call.Read(&response));
    received.Take(response);
  }
  EXPECT_EQ(GetJob(h, received.job).state(), v1::JOB_STATE_RUNNING);
  h.engine.ReleaseShown();
  EXPECT_RPC_ERROR(ReadRest(call, &received), FAILED_PRECONDITION, "FLOAT32_OVERFLOW",
                   "ask for float64");
  EXPECT_EQ(GetJob(h, received.job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_GT(h.backend->preconditioners().stats().bytes, 0);
}

// What is read counts as in use: its memory is not free.
TEST(PartialResult, ADownloadKeepsWhatItReads) {
  Harness h(Large());
  BuildCall call = OpenBuild(h);
  Received received;
  ASSERT_TRUE(ReadRest(call.Head(Partial(StoreLarge(h))).Done(), &received).ok());
  const std::string name = received.done.preconditioner().name();
  auto context = Context();
  v1::DownloadPreconditionerRequest request;
  request.set_name(name);
  // Whose windows do not grow: the download cannot end before its reader wants more.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 16);
  const auto channel = h.NewChannel(arguments);
  const auto stub = v1::PreconditionerService::NewStub(channel);
  auto stream = stub->DownloadPreconditioner(context.get(), request);
  v1::DownloadPreconditionerResponse response;
  ASSERT_TRUE(stream->Read(&response));
  auto deleting = Context();
  v1::DeletePreconditionerRequest gone;
  gone.set_name(name);
  v1::DeletePreconditionerResponse none;
  ASSERT_TRUE(h.preconditioners->DeletePreconditioner(deleting.get(), gone, &none).ok());
  EXPECT_GT(h.backend->preconditioners().stats().zombie_bytes, 0);
  int64_t bytes = 0;
  while (stream->Read(&response)) bytes += static_cast<int64_t>(response.chunk().data().size());
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(bytes, (kN + 1) * 8 + kN * 12);
}

}  // namespace
}  // namespace spaid::server
