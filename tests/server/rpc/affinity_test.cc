// x-spaid-affinity: every handle ends in exactly what its upload carried.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/digest.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

std::unique_ptr<grpc::ClientContext> With(const std::vector<std::string>& affinities) {
  auto context = Context();
  for (const std::string& affinity : affinities) context->AddMetadata("x-spaid-affinity", affinity);
  return context;
}

v1::MatrixHeader Digested(const Csc& a) {
  v1::MatrixHeader header = HeaderOf(a);
  v1::MatrixDigest& digest = *header.mutable_digest();
  digest.set_pattern(PatternDigest(a.n, a.pointers, a.indices).ToBytes());
  digest.set_values(ValueDigest(a.values).ToBytes());
  digest.set_pattern_sha256(PatternSha256(a.n, a.pointers, a.indices).ToBytes());
  digest.set_values_sha256(ValueSha256(a.values).ToBytes());
  return header;
}

// An upload with chunks behind a header that has no digests, or a question.
Uploaded UploadWith(Harness& h, const std::vector<std::string>& affinities,
                    const v1::MatrixHeader& header, const Csc* a) {
  UploadCall call(With(affinities), &v1::MatrixService::Stub::UploadMatrix, *h.matrices);
  call.Head(header);
  if (a != nullptr) {
    for (const auto& chunk : ChunksOf(*a)) call.Chunk(chunk);
  }
  call.Done();
  Uploaded uploaded;
  uploaded.status = call.Finish(&uploaded.events);
  if (uploaded.status.ok() && !uploaded.events.empty()) {
    uploaded.matrix = uploaded.events.back().done().matrix();
  }
  return uploaded;
}

std::string EndOf(const std::string& handle) { return handle.substr(handle.rfind('-') + 1); }

TEST(Affinity, AnUploadsHandleEndsInWhatItCarried) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  EXPECT_EQ(EndOf(UploadWith(h, {"a1b2c3d4"}, HeaderOf(a), &a).matrix.name()), "a1b2c3d4");
  EXPECT_EQ(EndOf(h.Store(DiagonalMatrix(5))), "none");
}

TEST(Affinity, ContentIsFoundUnderTheSameOneAlone) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  const std::string first = UploadWith(h, {"a1b2c3d4"}, HeaderOf(a), &a).matrix.name();
  const Uploaded again = UploadWith(h, {"a1b2c3d4"}, HeaderOf(a), &a);
  EXPECT_EQ(again.matrix.name(), first);
  EXPECT_TRUE(again.events.back().done().timings().reused());
  EXPECT_EQ(UploadWith(h, {"a1b2c3d4"}, Digested(a), nullptr).matrix.name(), first);

  // Another router's, which would not lead to `first`: another handle, on the same pattern.
  const Uploaded asked = UploadWith(h, {"a1b2c3d5"}, Digested(a), nullptr);
  ASSERT_EQ(asked.events.size(), 1u);
  ASSERT_EQ(asked.events[0].need().ranges_size(), 1);
  EXPECT_EQ(asked.events[0].need().ranges(0).array(), v1::ARRAY_KIND_VALUES);
  const std::string other = UploadWith(h, {"a1b2c3d5"}, HeaderOf(a), &a).matrix.name();
  EXPECT_EQ(EndOf(other), "a1b2c3d5");
  const std::string none = h.Store(a);
  EXPECT_EQ(EndOf(none), "none");
  EXPECT_EQ(h.backend->matrices().stats().entries, 3);
}

TEST(Affinity, JobsAndPreconditionersEndInThatOfTheirMatrix) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  const std::string matrix = UploadWith(h, {"a1b2c3d4"}, HeaderOf(a), &a).matrix.name();
  std::vector<std::string> made;
  // Whatever the call carries.
  for (const char* carried : {"a1b2c3d4", "00000000"}) {
    BuildCall call(With({carried}), &v1::PreconditionerService::Stub::BuildPreconditioner,
                   *h.preconditioners);
    call.Head(BuildOf(matrix, Jacobi())).Done();
    std::vector<v1::BuildPreconditionerResponse> events;
    ASSERT_TRUE(call.Finish(&events).ok());
    if (made.empty()) {
      EXPECT_EQ(EndOf(events[0].job().queued().job()), "a1b2c3d4");
    }
    made.push_back(events.back().done().preconditioner().name());
    EXPECT_EQ(EndOf(made.back()), "a1b2c3d4");
  }
  EXPECT_EQ(made[0], made[1]);
  // M of the same content under another handle is another one.
  const std::string other = UploadWith(h, {"a1b2c3d5"}, HeaderOf(a), &a).matrix.name();
  BuildCall call = OpenBuild(h);
  call.Head(BuildOf(other, Jacobi())).Done();
  std::vector<v1::BuildPreconditionerResponse> events;
  ASSERT_TRUE(call.Finish(&events).ok());
  EXPECT_EQ(EndOf(events.back().done().preconditioner().name()), "a1b2c3d5");
}

TEST(Affinity, AnInlineMatrixHasThatOfItsCall) {
  Harness h;
  const Csc a = DiagonalMatrix(3, 2);
  v1::SolveHeader header = SolveOf("", Jacobi());
  *header.mutable_inline_matrix() = HeaderOf(a);
  SolveCall call(With({"a1b2c3d4"}), &v1::SolverService::Stub::Solve, *h.solver);
  call.Head(header);
  for (const auto& chunk : ChunksOf(a)) call.Chunk(chunk);
  call.Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12})).Done();
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(EndOf(events.back().done().matrix()), "a1b2c3d4");
  EXPECT_EQ(EndOf(events.back().done().preconditioner()), "a1b2c3d4");
  EXPECT_EQ(EndOf(events.back().done().job()), "a1b2c3d4");
}

TEST(Affinity, AnyOtherIsRefusedWhereItWouldBeKept) {
  Harness h;
  const Csc a = DiagonalMatrix(4);
  for (const std::vector<std::string>& carried : std::vector<std::vector<std::string>>{
           {""}, {"A1B2C3D4"}, {"a1b2c3"}, {"a1b2c3d4e5"}, {"none"}, {"a1b2c3d4", "a1b2c3d4"}}) {
    EXPECT_RPC_ERROR(UploadWith(h, carried, HeaderOf(a), &a).status, INVALID_ARGUMENT,
                     "BAD_AFFINITY", "x-spaid-affinity");
    SolveCall call(With(carried), &v1::SolverService::Stub::Solve, *h.solver);
    EXPECT_RPC_ERROR(call.Done().Finish(), INVALID_ARGUMENT, "BAD_AFFINITY", "x-spaid-affinity");
  }
  h.ExpectLives();
}

}  // namespace
}  // namespace spaid::server
