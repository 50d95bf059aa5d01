// M for a client that has its pattern: values alone come, of a build also while it is being built.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "server/base/digest.h"
#include "server/rpc/download.h"
#include "tests/server/rpc/large_results.h"

namespace spaid::server {
namespace {

using std::chrono::seconds;

// The pattern of M of all matrices of this size.
std::string PatternOfM(int64_t n = kN) {
  const Csc m = DiagonalMatrix(n);
  return PatternDigest(n, m.pointers, m.indices).ToBytes();
}

v1::BuildHeader Known(const std::string& matrix, const std::string& pattern = PatternOfM()) {
  v1::BuildHeader header = Partial(matrix);
  header.set_known_pattern(pattern);
  return header;
}

void ExpectValuesAlone(const Received& received, double first = 1) {
  EXPECT_TRUE(received.header.values_only());
  EXPECT_EQ(received.header.nnz(), kN);
  EXPECT_TRUE(received.pointers.empty());
  EXPECT_TRUE(received.indices.empty());
  const bool narrow = received.header.value_type() == v1::VALUE_TYPE_FLOAT32;
  ASSERT_EQ(received.values.size(), static_cast<size_t>(kN));
  for (size_t k = 0; k < received.values.size(); ++k) {
    const double value = 1 / (first + static_cast<double>(k));
    ASSERT_EQ(received.values[k], narrow ? static_cast<float>(value) : value);
  }
  EXPECT_EQ(received.done.timings().bytes_down(), (narrow ? 4 : 8) * kN);
}

TEST(KnownPattern, ValuesAloneComeWhileTheLastAreBeingBuilt) {
  for (const v1::ValueType type : {v1::VALUE_TYPE_FLOAT64, v1::VALUE_TYPE_FLOAT32}) {
    for (const kernels::DeviceInfo& device : {FakeCpu(), FakeGpu(0)}) {
      SCOPED_TRACE(device.name + ", " + v1::ValueType_Name(type));
      Harness h(Large({device}));
      h.engine.HoldBuildsShown(kShown);
      v1::BuildHeader header = Known(StoreLarge(h));
      header.set_result_type(type);
      BuildCall call = OpenBuild(h);
      call.Head(header).Done();
      Received received;
      ReadValues(call, kValuesOfChunk, &received);
      EXPECT_FALSE(received.finished);
      EXPECT_EQ(GetJob(h, received.job).state(), v1::JOB_STATE_RUNNING);
      h.engine.ReleaseShown();
      const grpc::Status status = ReadRest(call, &received);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(received.headers, 1);
      ExpectValuesAlone(received);
    }
  }
}

// New values on an old plan, as in a time step.
TEST(KnownPattern, ARebuildSendsValuesAlone) {
  Harness h(Large());
  BuildCall first = OpenBuild(h);
  Received whole;
  ASSERT_TRUE(ReadRest(first.Head(Partial(StoreLarge(h))).Done(), &whole).ok());
  whole.ExpectWhole();
  BuildCall second = OpenBuild(h);
  Received values;
  const std::string pattern = PatternDigest(kN, whole.pointers, whole.indices).ToBytes();
  ASSERT_TRUE(ReadRest(second.Head(Known(StoreLarge(h, 7), pattern)).Done(), &values).ok());
  EXPECT_TRUE(values.done.timings().rebuild());
  ExpectValuesAlone(values, 7);
}

TEST(KnownPattern, WithoutPartialResultTheyComeInTheEnd) {
  Harness h(Large());
  v1::BuildHeader header = Known(StoreLarge(h));
  header.set_partial_result(false);
  for (const bool stored : {false, true}) {
    BuildCall call = OpenBuild(h);
    Received received;
    ASSERT_TRUE(ReadRest(call.Head(header).Done(), &received).ok());
    EXPECT_EQ(received.done.timings().reused(), stored);
    EXPECT_FALSE(received.header_before_end && !stored);
    ExpectValuesAlone(received);
  }
}

TEST(KnownPattern, OfAnotherPatternAllComes) {
  Harness h(Large());
  h.engine.HoldBuildsShown(kShown);
  BuildCall call = OpenBuild(h);
  call.Head(Known(StoreLarge(h), PatternOfM(kN - 1))).Done();
  Received received;
  ReadValues(call, kValuesOfChunk, &received);
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(call, &received).ok());
  EXPECT_FALSE(received.header.values_only());
  received.ExpectWhole();
}

// It may have another pattern now.
TEST(KnownPattern, IsComparedAgainWhereTheBuildBeginsAnew) {
  Harness h(Large({FakeGpu(0)}));
  h.engine.HoldBuildsShown(kShown);
  BuildCall call = OpenBuild(h);
  call.Head(Known(StoreLarge(h))).Done();
  Received received;
  ReadValues(call, kValuesOfChunk, &received);
  h.engine.out_of_memory = 1;
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(call, &received).ok());
  EXPECT_EQ(received.headers, 2);
  EXPECT_TRUE(received.header.values_only());
  EXPECT_TRUE(received.pointers.empty());
  ASSERT_EQ(received.values.size(), static_cast<size_t>(kN));
  EXPECT_EQ(received.values.back(), 1.0 / kN);
}

TEST(KnownPattern, ABuildThatFailsEndsTheStream) {
  Harness h(Large());
  h.engine.HoldBuildsShown(kShown);
  BuildCall call = OpenBuild(h);
  call.Head(Known(StoreLarge(h))).Done();
  Received received;
  ReadValues(call, kValuesOfChunk, &received);
  h.engine.FailBuilds(
      kernels::Status(kernels::StatusCode::kFailedPrecondition, "SINGULAR_BLOCK", "by design"));
  h.engine.ReleaseShown();
  EXPECT_RPC_ERROR(ReadRest(call, &received), FAILED_PRECONDITION, "SINGULAR_BLOCK", "by design");
}

// Holds the threads that compare patterns until this ends; `full`: and nobody else's task is taken.
class Held {
 public:
  Held(Backend* backend, bool full) {
    const auto wait = [state = state_] {
      ++state->running;
      state->running.notify_one();
      state->released.wait();
    };
    const auto put = [&] {
      return backend->Run(Backend::Pool::kCount, "default", wait, [](const absl::Status&) {}).ok();
    };
    // As many as the backend gives to a tenant.
    const int threads = std::clamp(kernels::CpuDevice().threads / 4, 2, 8);
    for (int i = 0; i < threads; ++i) EXPECT_TRUE(put());
    for (int now = state_->running; now < threads; now = state_->running) {
      state_->running.wait(now);
    }
    while (full && put()) {
    }
  }
  ~Held() { state_->released.count_down(); }

 private:
  struct State {
    std::atomic<int> running{0};
    std::latch released{1};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(KnownPattern, WithNoRoomToCompareAllComes) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  h.engine.HoldBuilds();
  BuildCall call = OpenBuild(h);
  call.Head(Known(matrix)).Done();
  h.engine.WaitForBuilds(1);
  Received received;
  {
    const Held held(h.backend.get(), /*full=*/true);
    h.engine.Release();
    ReadValues(call, kValuesOfChunk, &received);
  }
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(call, &received).ok());
  EXPECT_FALSE(received.header.values_only());
  received.ExpectWhole();
}

TEST(KnownPattern, WhereComparingFailsAllComes) {
  Harness h(Large());
  const Csc a = DiagonalMatrix(5);
  const std::vector<double> values(5, 1);
  auto m = std::make_shared<PartialMatrix>([] {});
  m->OnPattern(a.pointers, a.indices, values);
  const auto download = std::make_shared<Download>(m, v1::VALUE_TYPE_FLOAT64, PatternOfM(5));
  std::mutex mutex;
  std::atomic<int> calls{0};
  std::latch resumed(1);
  const auto resume = [&](const std::function<void()>& task) {
    if (calls++ == 0) throw std::bad_alloc();
    {
      const std::lock_guard lock(mutex);
      task();
    }
    resumed.count_down();
  };
  const auto comparing = [&] {
    const std::lock_guard lock(mutex);
    return download->Waits(h.backend.get(), "", resume);
  };
  EXPECT_TRUE(comparing());
  resumed.wait();
  EXPECT_FALSE(comparing());
  EXPECT_EQ(calls, 2);
  v1::DownloadPreconditionerResponse message;
  grpc::Slice lent;
  const auto filled =
      download->Next(&message, &v1::DownloadPreconditionerResponse::mutable_header, 1 << 20, &lent);
  EXPECT_TRUE(filled.ok() && *filled);
  EXPECT_EQ(message.header().nnz(), 5);
  EXPECT_FALSE(message.header().values_only());
  m->OnWithdrawn();
}

TEST(KnownPattern, AClientThatGoesMeanwhileIsForgotten) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  h.engine.HoldBuildsShown(kShown);
  h.engine.HoldBuilds();
  BuildCall call = OpenBuild(h), beside = OpenBuild(h);
  call.Head(Known(matrix)).Done();
  beside.Head(Partial(matrix)).Done();
  JobName(call);
  JobName(beside);
  Received none, whole;
  {
    const Held held(h.backend.get(), /*full=*/false);  // what comes now waits for its turn
    h.engine.Release();
    ReadValues(beside, kValuesOfChunk, &whole);
    call.Cancel();
    EXPECT_FALSE(ReadRest(call, &none).ok());
    EXPECT_EQ(none.headers, 0);
  }
  h.engine.ReleaseShown();
  ASSERT_TRUE(ReadRest(beside, &whole).ok());
  whole.ExpectWhole();
  EXPECT_TRUE(h.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + seconds(30)));
  h.ExpectLives();
}

struct Downloaded {
  grpc::Status status;
  v1::CscHeader header;
  int64_t bytes = 0;
};

Downloaded DownloadM(Harness& h, const std::string& name, const std::string& known) {
  auto context = Context();
  v1::DownloadPreconditionerRequest request;
  request.set_name(name);
  request.set_known_pattern(known);
  auto stream = h.preconditioners->DownloadPreconditioner(context.get(), request);
  Downloaded got;
  v1::DownloadPreconditionerResponse response;
  while (stream->Read(&response)) {
    if (response.has_header()) got.header = response.header();
    got.bytes += static_cast<int64_t>(response.chunk().data().size());
  }
  got.status = stream->Finish();
  return got;
}

TEST(KnownPattern, ADownloadSendsValuesAlone) {
  Harness h(Large());
  BuildCall call = OpenBuild(h);
  Received received;
  ASSERT_TRUE(ReadRest(call.Head(Partial(StoreLarge(h))).Done(), &received).ok());
  const std::string name = received.done.preconditioner().name();
  const Downloaded values = DownloadM(h, name, PatternOfM());
  ASSERT_TRUE(values.status.ok()) << values.status.error_message();
  EXPECT_TRUE(values.header.values_only());
  EXPECT_EQ(values.bytes, 8 * kN);
  const Downloaded all = DownloadM(h, name, PatternOfM(kN + 1));
  EXPECT_FALSE(all.header.values_only());
  EXPECT_EQ(all.bytes, (kN + 1) * 8 + kN * 12);
  const Held held(h.backend.get(), /*full=*/true);
  EXPECT_EQ(DownloadM(h, name, PatternOfM()).bytes, all.bytes) << "nobody compares";
}

TEST(KnownPattern, IsADigest) {
  Harness h(Large());
  const std::string matrix = StoreLarge(h);
  BuildCall call = OpenBuild(h);
  Received received;
  EXPECT_RPC_ERROR(ReadRest(call.Head(Known(matrix, "short")).Done(), &received), INVALID_ARGUMENT,
                   "BAD_DIGEST", "header.known_pattern has 5 bytes; it must have 16");
  EXPECT_RPC_ERROR(DownloadM(h, "preconditioners/p", "short").status, INVALID_ARGUMENT,
                   "BAD_DIGEST", "known_pattern has 5 bytes; it must have 16");
}

}  // namespace
}  // namespace spaid::server
