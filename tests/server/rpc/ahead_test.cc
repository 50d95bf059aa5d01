// Values on a known pattern go to the GPU while the client still sends the last ones, and nothing
// is left of them there where that was in vain.
#include <gmock/gmock.h>

#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "server/base/digest.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;

// Room for a matrix and two copies of M in what a fake GPU keeps.
constexpr int64_t kN = 6, kBytes = 8 * kN;

Harness::Options Options(std::vector<kernels::DeviceInfo> devices) {
  Harness::Options options{.backend = Harness::SmallBackend(), .devices = std::move(devices)};
  options.backend.threads = 4;  // arriving arrays are looked at beside the thread that receives
  options.backend.least_ahead_bytes = 1;
  return options;
}

class Ahead : public ::testing::Test {
 protected:
  explicit Ahead(std::vector<kernels::DeviceInfo> devices = {FakeGpu(0)})
      : Ahead(Options(std::move(devices))) {}
  explicit Ahead(Harness::Options options) : h_(std::move(options)) {
    first_ = h_.Store(DiagonalMatrix(kN));
    Build(first_);
  }

  void Build(const std::string& matrix) {
    BuildCall call = OpenBuild(h_);
    const grpc::Status status = call.Head(BuildOf(matrix, StaticSpai())).Done().Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  // Returns the header of a matrix on the pattern of the first one.
  v1::MatrixHeader Header(const Csc& a) const {
    v1::MatrixHeader header = HeaderOf(a);
    header.set_same_pattern_as(first_);
    return header;
  }
  static v1::ArrayChunk Values(const Csc& a, int64_t from, int64_t to) {
    return ChunkOf(v1::ARRAY_KIND_VALUES, from,
                   std::vector(a.values.begin() + from, a.values.begin() + to));
  }
  Uploaded Upload(const Csc& a) {
    return h_.Upload(Header(a), {Values(a, 0, 3), Values(a, 3, kN)});
  }
  // Waits for the device to have the first values of an upload that is not at its end: half of
  // them, with which the array gets its place.
  UploadCall BeginUpload(const v1::MatrixHeader& header, const Csc& a) {
    const int64_t before = h_.engine.ahead_there;
    UploadCall call = OpenUpload(h_);
    call.Head(header).Chunk(Values(a, 0, 3));
    h_.engine.WaitForAhead(before + 24);
    return call;
  }
  void ExpectBytes(int64_t sent, int64_t taken, int64_t wasted) {
    const std::string metrics = h_.metrics.Serialize();
    for (const auto& [what, bytes] :
         {std::pair("sent", sent), std::pair("taken", taken), std::pair("wasted", wasted)}) {
      EXPECT_THAT(metrics, HasSubstr("spaid_ahead_bytes_total{what=\"" + std::string(what) +
                                     "\"} " + std::to_string(bytes) + "\n"));
    }
    EXPECT_EQ(h_.engine.ahead_differ, 0);
  }
  // That upload ends in vain, and the device has nothing of it.
  void ExpectWasted(UploadCall& call, grpc::StatusCode code, const std::string& reason) {
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_EQ(Decode(status).reason, reason);
    EXPECT_TRUE(h_.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + minutes(1)));
    EXPECT_EQ(h_.engine.ahead_held, 0);
    EXPECT_EQ(h_.engine.ahead_taken, 0);
  }

  Harness h_;
  std::string first_;
};

TEST_F(Ahead, TheFirstValuesAreOnTheDeviceBeforeTheLastAreSent) {
  const Csc a = DiagonalMatrix(kN, 3);
  UploadCall call = BeginUpload(Header(a), a);
  EXPECT_EQ(h_.engine.ahead_held, kBytes);
  call.Chunk(Values(a, 3, 5));
  h_.engine.WaitForAhead(40);
  call.Chunk(Values(a, 5, kN)).Done();
  const auto done = call.ReadUntil([](const auto& r) { return r.has_done(); });
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(h_.engine.ahead_taken, 0);
  Build(done.done().matrix().name());
  EXPECT_EQ(h_.engine.ahead_taken, kBytes);
  EXPECT_EQ(h_.engine.ahead_held, 0) << "the build has them";
  ExpectBytes(kBytes, kBytes, 0);
}

TEST_F(Ahead, OfAnInlineMatrixToo) {
  const Csc a = DiagonalMatrix(kN, 3);
  v1::BuildHeader header = BuildOf("", StaticSpai());
  *header.mutable_inline_matrix() = Header(a);
  BuildCall call = OpenBuild(h_);
  call.Head(header).Chunk(Values(a, 0, 5));
  h_.engine.WaitForAhead(40);
  ASSERT_TRUE(call.Chunk(Values(a, 5, kN)).Done().Finish().ok());
  EXPECT_EQ(h_.engine.ahead_held, 0);
  ExpectBytes(kBytes, kBytes, 0);
}

TEST_F(Ahead, ASolveTakesThem) {
  h_.engine.SolveOnGpus();
  const auto solve = [&](const std::string& matrix) {
    SolveCall call = OpenSolve(h_);
    return call.Head(SolveOf(matrix, None()))
        .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>(kN, 1)))
        .Done()
        .Finish()
        .ok();
  };
  ASSERT_TRUE(solve(first_));
  const Csc a = DiagonalMatrix(kN, 3);
  const Uploaded uploaded = Upload(a);
  EXPECT_EQ(h_.engine.ahead_held, kBytes);
  ASSERT_TRUE(solve(uploaded.matrix.name()));
  EXPECT_EQ(h_.engine.ahead_held, 0);
  ExpectBytes(kBytes, kBytes, 0);
}

TEST_F(Ahead, Float32IsSentAsItIsStored) {
  const Csc a = DiagonalMatrix(kN, 3);
  v1::MatrixHeader header = Header(a);
  header.set_value_type(v1::VALUE_TYPE_FLOAT32);
  const std::vector<float> narrow(a.values.begin(), a.values.end());
  const Uploaded uploaded = h_.Upload(header, {ChunkOf(v1::ARRAY_KIND_VALUES, 0, narrow)});
  Build(uploaded.matrix.name());
  ExpectBytes(kBytes, kBytes, 0);
}

// The device computes just now, and has time later.
TEST_F(Ahead, WhatWasRefusedGoesWithWhatComesNext) {
  h_.engine.refuse_ahead = true;
  const Csc a = DiagonalMatrix(kN, 3);
  UploadCall call = OpenUpload(h_);
  v1::UploadMatrixResponse need;
  ASSERT_TRUE(call.Head(Header(a)).Chunk(Values(a, 0, 3)).Read(&need));
  h_.engine.refuse_ahead = false;
  call.Chunk(Values(a, 3, 5));
  h_.engine.WaitForAhead(40);
  call.Chunk(Values(a, 5, kN)).Done();
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(Ahead, NobodyWaitsForTheDevice) {
  h_.engine.hold_ahead = true;
  const Uploaded uploaded = Upload(DiagonalMatrix(kN, 3));
  ASSERT_TRUE(uploaded.status.ok());
  EXPECT_EQ(h_.engine.ahead_there, 0);
  h_.engine.Release();
  Build(uploaded.matrix.name());
  EXPECT_GT(h_.engine.ahead_taken, 0) << "as far as it went";
  EXPECT_EQ(h_.engine.ahead_differ, 0);
}

TEST_F(Ahead, AnUploadThatIsCancelledLeavesNothing) {
  const Csc a = DiagonalMatrix(kN, 3);
  UploadCall call = BeginUpload(Header(a), a);
  EXPECT_EQ(h_.engine.ahead_held, kBytes);
  call.Cancel();
  ExpectWasted(call, grpc::StatusCode::CANCELLED, "");
  ExpectBytes(24, 0, 24);
  // In vain once: the next waits for a computation that wants values.
  Build(Upload(DiagonalMatrix(kN, 4)).matrix.name());
  ExpectBytes(24, 0, 24);
  Build(Upload(DiagonalMatrix(kN, 5)).matrix.name());
  ExpectBytes(24 + kBytes, kBytes, 24);
}

TEST_F(Ahead, ValuesThatAreRefusedLeaveNothing) {
  Csc a = DiagonalMatrix(kN, 3);
  v1::MatrixHeader header = Header(a);
  header.mutable_digest()->set_pattern(PatternDigest(kN, a.pointers, a.indices).ToBytes());
  header.mutable_digest()->set_values(std::string(16, 'x'));
  UploadCall lie = BeginUpload(header, a);
  lie.Chunk(Values(a, 3, kN)).Done();
  ExpectWasted(lie, grpc::StatusCode::INVALID_ARGUMENT, "DIGEST_MISMATCH");
  Build(Upload(DiagonalMatrix(kN, 4)).matrix.name());  // values are wanted again
  a.values[5] = std::numeric_limits<double>::quiet_NaN();
  UploadCall nan = BeginUpload(Header(a), a);
  nan.Chunk(Values(a, 3, kN)).Done();
  ExpectWasted(nan, grpc::StatusCode::INVALID_ARGUMENT, "NON_FINITE_VALUE");
  ExpectBytes(2 * kBytes, 0, 2 * kBytes);
}

TEST_F(Ahead, OfContentThatIsHereNothingIsLeft) {
  const Uploaded again = Upload(DiagonalMatrix(kN));
  EXPECT_EQ(again.matrix.name(), first_);
  EXPECT_EQ(h_.engine.ahead_held, 0);
  ExpectBytes(kBytes, 0, kBytes);
}

TEST_F(Ahead, GoesWithItsMatrix) {
  const Uploaded uploaded = Upload(DiagonalMatrix(kN, 3));
  EXPECT_EQ(h_.engine.ahead_held, kBytes);
  v1::DeleteMatrixRequest request;
  request.set_name(uploaded.matrix.name());
  v1::DeleteMatrixResponse response;
  ASSERT_TRUE(h_.matrices->DeleteMatrix(Context().get(), request, &response).ok());
  EXPECT_EQ(h_.engine.ahead_held, 0);
}

TEST_F(Ahead, GivesWayWhereAJobIsOutOfMemory) {
  const Uploaded uploaded = Upload(DiagonalMatrix(kN, 3));
  EXPECT_EQ(h_.engine.ahead_held, kBytes);
  h_.engine.out_of_memory = 1;
  Build(uploaded.matrix.name());
  EXPECT_EQ(h_.engine.out_of_memory, 0);
  EXPECT_EQ(h_.engine.ahead_held, 0);
  ExpectBytes(kBytes, 0, kBytes);
}

// Values by rows find their places one by one, and are sent when the job runs.
TEST_F(Ahead, NotByRows) {
  const Csc a = DiagonalMatrix(kN, 3);
  v1::MatrixHeader header = Header(a);
  header.set_layout(v1::LAYOUT_CSR);
  const Uploaded uploaded = h_.Upload(header, {Values(a, 0, 3), Values(a, 3, kN)});
  ASSERT_TRUE(uploaded.status.ok());
  Build(uploaded.matrix.name());
  EXPECT_EQ(h_.engine.ahead_there, 0);
}

class AheadOnFewCores : public Ahead {
 protected:
  AheadOnFewCores()
      : Ahead([] {
          Harness::Options options = Options({FakeGpu(0)});
          options.backend.threads = 1;
          return options;
        }()) {}
};

TEST_F(AheadOnFewCores, NothingIsSent) {
  Build(Upload(DiagonalMatrix(kN, 3)).matrix.name());
  EXPECT_EQ(h_.engine.ahead_there, 0);
}

class AheadBesideTheCpu : public Ahead {
 protected:
  AheadBesideTheCpu() : Ahead({FakeCpu(), FakeGpu(0)}) {
    h_.engine.predicted_ms = 10'000;
    Build(h_.Store(DiagonalMatrix(kN, 2)));
  }
};

TEST_F(AheadBesideTheCpu, AJobThatWentElsewhereLeavesNothing) {
  const Uploaded uploaded = Upload(DiagonalMatrix(kN, 3));
  EXPECT_EQ(h_.engine.ahead_held, kBytes);
  BuildCall call = OpenBuild(h_);
  ASSERT_TRUE(call.Head(BuildOf(uploaded.matrix.name(), Jacobi())).Done().Finish().ok());
  EXPECT_EQ(h_.engine.ahead_held, 0);
  ExpectBytes(kBytes, 0, kBytes);
}

TEST_F(AheadBesideTheCpu, ALostDeviceIsTheJobsToFind) {
  const Csc a = DiagonalMatrix(kN, 3);
  UploadCall call = BeginUpload(Header(a), a);
  h_.engine.break_ahead = true;
  call.Chunk(Values(a, 3, kN)).Done();
  const auto done = call.ReadUntil([](const auto& r) { return r.has_done(); });
  EXPECT_TRUE(call.Finish().ok()) << "the matrix is whole";
  EXPECT_EQ(h_.engine.ahead_held, 0);
  Build(done.done().matrix().name());
  EXPECT_EQ(h_.engine.ahead_taken, 0);
  ExpectBytes(24, 0, 24);
}

}  // namespace
}  // namespace spaid::server
