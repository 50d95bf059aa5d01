// Input that a daemon must refuse, with a reason that a program and a text that a person can use;
// and afterwards it serves as before. Most through the client library; what that would not send,
// raw.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spaid/client.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "client/cpp/errors.h"
#include "spaid/v1/matrix.grpc.pb.h"
#include "spaid/v1/preconditioner.grpc.pb.h"
#include "spaid/v1/solver.grpc.pb.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/problems.h"

namespace spaid::e2e {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMaxMatrixBytes = 1 << 20;

class BadInput : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    daemon_ = new Daemon({"--max-matrix-bytes=" + std::to_string(kMaxMatrixBytes)});
  }
  static void TearDownTestSuite() {
    delete daemon_;
    daemon_ = nullptr;
  }
  void SetUp() override {
    ASSERT_TRUE(daemon_->serving()) << daemon_->log();
    channel_ = grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
  }
  // The daemon lives on: it solves.
  void TearDown() override {
    const CscMatrix a = Poisson(6, 6);
    const auto solved =
        client_.Solve(a, SmoothRhs(a), {.engine = Engine::kJacobi, .method = Method::kCg});
    ASSERT_TRUE(solved.ok()) << solved.error().message << "\n" << daemon_->log();
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged);
  }

  void ExpectRefused(const CscView& a, const char* reason) {
    const auto stored = client_.Upload(a);
    ASSERT_FALSE(stored.ok()) << "accepted, should be " << reason;
    EXPECT_EQ(stored.error().code, Code::kInvalidArgument) << stored.error().message;
    EXPECT_EQ(stored.error().reason, reason) << stored.error().message;
    EXPECT_FALSE(stored.error().message.empty());
  }

  // Sends a header and chunks as they are; the server's error.
  Error Raw(const v1::MatrixHeader& header, const std::vector<v1::ArrayChunk>& chunks) {
    const auto stub = v1::MatrixService::NewStub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const auto stream = stub->UploadMatrix(&context);
    v1::UploadMatrixRequest request;
    *request.mutable_header() = header;
    bool open = stream->Write(request);
    for (const v1::ArrayChunk& chunk : chunks) {
      if (!open) break;
      *request.mutable_chunk() = chunk;
      open = stream->Write(request);
    }
    stream->WritesDone();
    v1::UploadMatrixResponse response;
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    if (status.ok()) {
      Error none;
      none.code = Code::kOk;
      return none;
    }
    return internal::FromStatus(status, daemon_->address());
  }

  static Daemon* daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  Client client_{{.address = daemon_->address()}};
};
Daemon* BadInput::daemon_ = nullptr;

v1::MatrixHeader Header(int64_t n, int64_t nnz) {
  v1::MatrixHeader header;
  header.set_n(n);
  header.set_nnz(nnz);
  header.set_layout(v1::LAYOUT_CSC);
  header.set_value_type(v1::VALUE_TYPE_FLOAT64);
  return header;
}

template <class T>
v1::ArrayChunk Chunk(v1::ArrayKind kind, int64_t offset, std::vector<T> values) {
  v1::ArrayChunk chunk;
  chunk.set_array(kind);
  chunk.set_offset(offset);
  chunk.set_data(values.data(), sizeof(T) * values.size());
  return chunk;
}

// The 2 × 2 identity.
std::vector<v1::ArrayChunk> Identity() {
  return {Chunk<int64_t>(v1::ARRAY_KIND_POINTERS, 0, {0, 1, 2}),
          Chunk<int32_t>(v1::ARRAY_KIND_INDICES, 0, {0, 1}),
          Chunk<double>(v1::ARRAY_KIND_VALUES, 0, {1, 1})};
}

TEST_F(BadInput, NoneYet) { EXPECT_EQ(Raw(Header(2, 2), Identity()).code, Code::kOk); }

TEST_F(BadInput, NotSquare) {
  v1::MatrixHeader header = Header(2, 2);
  header.set_n_columns(3);
  EXPECT_EQ(Raw(header, Identity()).reason, "NOT_SQUARE");
}

TEST_F(BadInput, IndexOutOfRange) {
  CscMatrix a = Poisson(3, 3);
  a.row_idx[4] = 9;
  ExpectRefused(a, "INDEX_OUT_OF_RANGE");
  a.row_idx[4] = -1;
  ExpectRefused(a, "INDEX_OUT_OF_RANGE");
}

TEST_F(BadInput, UnsortedAndDuplicateUnlessAsked) {
  CscMatrix unsorted = Poisson(3, 3);
  std::swap(unsorted.row_idx[0], unsorted.row_idx[1]);
  const auto refused = client_.Upload(unsorted);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().reason, "UNSORTED_INDICES");
  EXPECT_THAT(refused.error().message, HasSubstr("column 0"));
  CscMatrix duplicate = Poisson(3, 3);
  duplicate.row_idx[1] = duplicate.row_idx[0];
  ExpectRefused(duplicate, "DUPLICATE_ENTRY");
  CscView asked = duplicate;
  asked.sort_and_sum = true;
  const auto summed = client_.Upload(asked);
  ASSERT_TRUE(summed.ok()) << summed.error().message;
  EXPECT_EQ(summed->nnz, static_cast<int64_t>(duplicate.row_idx.size()) - 1);
}

TEST_F(BadInput, NonFiniteValues) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CscMatrix a = Poisson(3, 3);
    a.values[5] = bad;
    ExpectRefused(a, "NON_FINITE_VALUE");
  }
}

TEST_F(BadInput, BrokenPointers) {
  for (const int64_t bad : {int64_t{-1}, int64_t{1} << 62, int64_t{1000}}) {
    CscMatrix a = Poisson(3, 3);
    a.col_ptr[4] = bad;
    const auto stored = client_.Upload(a);
    ASSERT_FALSE(stored.ok());
    EXPECT_EQ(stored.error().code, Code::kInvalidArgument);
    EXPECT_FALSE(stored.error().reason.empty());
  }
}

TEST_F(BadInput, WrongCrc) {
  auto chunks = Identity();
  chunks[2].set_crc32(0x12345678);
  EXPECT_EQ(Raw(Header(2, 2), chunks).reason, "CHECKSUM_MISMATCH");
}

TEST_F(BadInput, WrongDigest) {
  v1::MatrixHeader header = Header(2, 2);
  header.mutable_digest()->set_pattern(std::string(16, 'p'));
  header.mutable_digest()->set_values(std::string(16, 'v'));
  EXPECT_EQ(Raw(header, Identity()).reason, "DIGEST_MISMATCH");
  header.mutable_digest()->set_pattern("short");
  EXPECT_EQ(Raw(header, Identity()).reason, "BAD_DIGEST");
}

TEST_F(BadInput, ChunksThatDoNotFit) {
  auto gap = Identity();
  gap[0].set_offset(1);
  EXPECT_EQ(Raw(Header(2, 2), gap).reason, "CHUNK_OUT_OF_ORDER");
  auto twice = Identity();
  twice.push_back(twice[1]);
  EXPECT_EQ(Raw(Header(2, 2), twice).code, Code::kInvalidArgument);
  auto beyond = Identity();
  beyond[2] = Chunk<double>(v1::ARRAY_KIND_VALUES, 0, {1, 1, 1});
  EXPECT_EQ(Raw(Header(2, 2), beyond).reason, "CHUNK_BEYOND_END");
  auto broken = Identity();
  broken[2].mutable_data()->pop_back();
  EXPECT_EQ(Raw(Header(2, 2), broken).reason, "CHUNK_NOT_WHOLE");
  auto missing = Identity();
  missing.pop_back();
  EXPECT_EQ(Raw(Header(2, 2), missing).reason, "ARRAY_INCOMPLETE");
  auto empty = Identity();
  empty[0].clear_data();
  EXPECT_EQ(Raw(Header(2, 2), empty).code, Code::kInvalidArgument);
  auto negative = Identity();
  negative[0].set_offset(-1);
  EXPECT_EQ(Raw(Header(2, 2), negative).code, Code::kInvalidArgument);
  auto stray = Identity();
  stray[0].set_array(v1::ARRAY_KIND_RHS);
  EXPECT_EQ(Raw(Header(2, 2), stray).code, Code::kInvalidArgument);
}

TEST_F(BadInput, AHeaderThatPromisesTheWorld) {
  const int64_t before = daemon_->ResidentBytes();
  for (const int64_t nnz : {int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    const Error error = Raw(Header(2'000'000'000, nnz), {});
    EXPECT_NE(error.code, Code::kOk);
    EXPECT_FALSE(error.reason.empty()) << error.message;
  }
  EXPECT_NE(Raw(Header(-1, 1), {}).code, Code::kOk);
  EXPECT_NE(Raw(Header(0, 0), {}).code, Code::kOk);
  EXPECT_NE(Raw(Header(2, -1), {}).code, Code::kOk);
  EXPECT_NE(Raw(Header(int64_t{1} << 31, 1), {}).code, Code::kOk);
  EXPECT_LT(daemon_->ResidentBytes() - before, int64_t{64} << 20);
}

TEST_F(BadInput, AMatrixOverTheLimitNamesBothNumbers) {
  const CscMatrix a = Band(3 * kMaxMatrixBytes);
  const auto stored = client_.Upload(a);
  ASSERT_FALSE(stored.ok());
  EXPECT_EQ(stored.error().code, Code::kResourceExhausted);
  EXPECT_EQ(stored.error().reason, "MATRIX_TOO_LARGE");
  EXPECT_THAT(stored.error().message, HasSubstr(std::to_string(kMaxMatrixBytes)));
}

TEST_F(BadInput, UnknownEnums) {
  v1::MatrixHeader header = Header(2, 2);
  header.set_layout(v1::LAYOUT_UNSPECIFIED);
  Error error = Raw(header, Identity());
  EXPECT_EQ(error.reason, "UNKNOWN_ENUM");
  EXPECT_THAT(error.field, HasSubstr("layout"));
  header.set_layout(static_cast<v1::Layout>(77));
  EXPECT_EQ(Raw(header, Identity()).reason, "UNKNOWN_ENUM");
  header = Header(2, 2);
  header.set_value_type(static_cast<v1::ValueType>(77));
  EXPECT_EQ(Raw(header, Identity()).reason, "UNKNOWN_ENUM");

  const auto matrix = client_.Upload(Poisson(4, 4));
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(client_.Build(matrix->name, {.engine = static_cast<Engine>(77)}).error().reason,
            "UNKNOWN_ENUM");
  EXPECT_EQ(
      client_.Build(matrix->name, {.local_solver = static_cast<LocalSolver>(77)}).error().reason,
      "UNKNOWN_ENUM");
  const std::vector<double> b(16, 1.0);
  EXPECT_EQ(client_.Solve(matrix->name, b, {.method = static_cast<Method>(77)}).error().reason,
            "UNKNOWN_ENUM");
}

TEST_F(BadInput, AStreamCutInTheMiddle) {
  const auto stub = v1::MatrixService::NewStub(channel_);
  for (int cut = 0; cut <= 2; ++cut) {
    grpc::ClientContext context;
    const auto stream = stub->UploadMatrix(&context);
    v1::UploadMatrixRequest request;
    *request.mutable_header() = Header(2, 2);
    stream->Write(request);
    for (int i = 0; i < cut; ++i) {
      *request.mutable_chunk() = Identity()[static_cast<size_t>(i)];
      stream->Write(request);
    }
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(BadInput, AStreamWithoutAHeader) {
  const auto matrices = v1::MatrixService::NewStub(channel_);
  grpc::ClientContext first;
  const auto chunk_first = matrices->UploadMatrix(&first);
  v1::UploadMatrixRequest request;
  *request.mutable_chunk() = Identity()[0];
  chunk_first->Write(request);
  chunk_first->WritesDone();
  EXPECT_EQ(chunk_first->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  grpc::ClientContext second;
  const auto empty = matrices->UploadMatrix(&second);
  empty->WritesDone();
  EXPECT_EQ(empty->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  const auto solver = v1::SolverService::NewStub(channel_);
  grpc::ClientContext third;
  const auto solve = solver->Solve(&third);
  v1::SolveRequest nothing;
  solve->Write(nothing);
  solve->WritesDone();
  EXPECT_EQ(solve->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(BadInput, RightHandSideOfTheWrongLength) {
  const auto matrix = client_.Upload(Poisson(4, 4));
  ASSERT_TRUE(matrix.ok());
  EXPECT_EQ(client_.Solve(matrix->name, std::vector<double>(15, 1.0)).error().reason,
            "SIZE_MISMATCH");  // the client's own word; the server's, raw:
  const auto solver = v1::SolverService::NewStub(channel_);
  for (const size_t length : {size_t{15}, size_t{17}}) {
    grpc::ClientContext context;
    const auto stream = solver->Solve(&context);
    v1::SolveRequest request;
    v1::SolveHeader& header = *request.mutable_header();
    header.set_matrix(matrix->name);
    header.mutable_spec()->set_engine(v1::ENGINE_KIND_JACOBI);
    header.set_method(v1::METHOD_CG);
    header.set_rtol(1e-6);
    stream->Write(request);
    *request.mutable_chunk() =
        Chunk<double>(v1::ARRAY_KIND_RHS, 0, std::vector<double>(length, 1.0));
    stream->Write(request);
    stream->WritesDone();
    v1::SolveResponse response;
    while (stream->Read(&response)) {
    }
    const Error error = internal::FromStatus(stream->Finish(), daemon_->address());
    EXPECT_EQ(error.code, Code::kInvalidArgument) << length;
    EXPECT_FALSE(error.reason.empty()) << length;
  }
}

TEST_F(BadInput, NonFiniteRightHandSide) {
  const CscMatrix a = Poisson(4, 4);
  std::vector<double> b(16, 1.0);
  b[7] = std::numeric_limits<double>::quiet_NaN();
  const auto solved = client_.Solve(a, b);
  ASSERT_FALSE(solved.ok());
  EXPECT_EQ(solved.error().reason, "NON_FINITE_VALUE");
}

TEST_F(BadInput, UnknownAndDeletedHandles) {
  const std::vector<double> b(16, 1.0);
  for (const std::string name : {"matrices/nothing", "", "preconditioners/x", "../../etc/passwd"}) {
    const Error error = client_.GetMatrix(name).error();
    EXPECT_EQ(error.code, name.empty() ? error.code : Code::kNotFound) << name;
    EXPECT_FALSE(error.reason.empty()) << name;
    EXPECT_FALSE(client_.Build(name, PreconditionerSpec{}).ok()) << name;
  }
  EXPECT_EQ(client_.GetMatrix("matrices/nothing").error().reason, "HANDLE_UNKNOWN");
  EXPECT_EQ(client_.Download("preconditioners/nothing").error().reason, "HANDLE_UNKNOWN");
  EXPECT_EQ(client_.GetJob("jobs/nothing").error().code, Code::kNotFound);
  EXPECT_EQ(client_.Watch("jobs/nothing", {}).error().code, Code::kNotFound);
  EXPECT_EQ(client_.Cancel("jobs/nothing").error().code, Code::kNotFound);
  EXPECT_EQ(client_.DeleteMatrix("matrices/nothing")->reason, "HANDLE_UNKNOWN");
  EXPECT_EQ(
      client_.Solve(Poisson(4, 4), b, {.preconditioner = "preconditioners/nothing"}).error().reason,
      "HANDLE_UNKNOWN");
}

TEST_F(BadInput, AHandleDeletedWhileInUse) {
  const CscMatrix a = ConvectionDiffusion(50, 40, 0.5);
  const auto matrix = client_.Upload(a);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  bool deleted = false;
  const auto built =
      client_.Build(matrix->name, {.pattern_power = 3, .local_solver = LocalSolver::kQr}, true,
                    {.on_progress = [&](const Progress& progress) {
                      if (progress.kind == Progress::Kind::kStarted && !deleted) {
                        deleted = true;
                        EXPECT_FALSE(client_.DeleteMatrix(matrix->name));
                      }
                    }});
  EXPECT_TRUE(deleted);
  ASSERT_TRUE(built.ok()) << built.error().message;  // the job keeps it alive
  EXPECT_NEAR(InverseResidual(a, *built->m), built->preconditioner.quality.residual_frobenius,
              1e-9);
  EXPECT_EQ(client_.GetMatrix(matrix->name).error().code, Code::kNotFound);
}

TEST_F(BadInput, Tolerances) {
  const CscMatrix a = Poisson(4, 4);
  const std::vector<double> b(16, 1.0);
  for (const double rtol : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto solved = client_.Solve(a, b, {.rtol = rtol});
    ASSERT_FALSE(solved.ok()) << rtol;
    EXPECT_EQ(solved.error().code, Code::kInvalidArgument);
    EXPECT_EQ(solved.error().reason, "BAD_TOLERANCE");
  }
  EXPECT_EQ(client_.Solve(a, b, {.rtol = 1e-6, .atol = -1}).error().reason, "BAD_TOLERANCE");
  EXPECT_EQ(client_.Solve(a, b, {.max_iterations = -1}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_.Solve(a, b, {.method = Method::kGmres, .restart = -1}).error().code,
            Code::kInvalidArgument);
}

TEST_F(BadInput, CgWithAnExplicitInverse) {
  const CscMatrix a = Poisson(6, 6);
  const std::vector<double> b = SmoothRhs(a);
  const auto solved = client_.Solve(a, b, {.engine = Engine::kStaticSpai, .method = Method::kCg});
  ASSERT_FALSE(solved.ok());
  EXPECT_EQ(solved.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(solved.error().reason, "PRECONDITIONER_NOT_SPD");
}

TEST_F(BadInput, SpecsOutOfRange) {
  const CscMatrix a = Poisson(4, 4);
  for (const PreconditionerSpec& spec :
       {PreconditionerSpec{.pattern_power = -1}, PreconditionerSpec{.pattern_power = 17},
        PreconditionerSpec{.keep_tau = 1.5}, PreconditionerSpec{.keep_tau = std::nan("")},
        PreconditionerSpec{.post_filter = -0.5}, PreconditionerSpec{.engine = Engine::kNone},
        PreconditionerSpec{.engine = Engine::kJacobi, .block_size = 33},
        PreconditionerSpec{.engine = Engine::kJacobi, .block_size = -1},
        PreconditionerSpec{.engine = Engine::kAfsai, .fsai = {.k_max = 513}},
        PreconditionerSpec{.engine = Engine::kAfsai, .fsai = {.step_size = -1}},
        PreconditionerSpec{.engine = Engine::kAfsai, .fsai = {.epsilon = 1}},
        PreconditionerSpec{.engine = Engine::kAfsai,
        .fsai = {.time_budget = std::chrono::nanoseconds(0)}},
        PreconditionerSpec{.engine = Engine::kFsai, .fsai = {.drop_tol = std::nan("")}},
        PreconditionerSpec{.engine = Engine::kDynamicSpai, .dynamic_spai = {.tol = std::nan("")}},
        PreconditionerSpec{.engine = Engine::kDynamicSpai, .dynamic_spai = {.max_steps = 513}},
        PreconditionerSpec{.engine = Engine::kDynamicSpai, .dynamic_spai = {.step_size = 33}},
        PreconditionerSpec{
            .engine = Engine::kFsai, .pattern_power = 2, .pattern_matrix = "matrices/nothing"}}) {
    const auto built = client_.Build(a, spec);
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.error().code, Code::kInvalidArgument) << built.error().message;
    EXPECT_FALSE(built.error().reason.empty());
  }
  EXPECT_EQ(client_.Build(a, {.pattern_matrix = "matrices/nothing"}).error().code, Code::kNotFound);
  const auto other = client_.Upload(Poisson(5, 5));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(client_.Build(a, {.pattern_matrix = other->name}).error().code, Code::kInvalidArgument);
}

TEST_F(BadInput, ASingularBlock) {
  CscMatrix a = Poisson(5, 4);
  for (int64_t p = a.col_ptr[6]; p < a.col_ptr[8]; ++p) a.values[p] = 0;  // block 3 of two
  const auto built = client_.Build(a, {.engine = Engine::kJacobi, .block_size = 2});
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(built.error().reason, "SINGULAR_BLOCK");
  EXPECT_THAT(built.error().metadata,
              ::testing::Contains(std::pair<std::string, std::string>("index", "3")));
  EXPECT_NE(built.error().message.find("rows and columns 6 to 7"), std::string::npos)
      << built.error().message;
}

TEST_F(BadInput, APatternHasNoValuesToBuildFrom) {
  const CscMatrix a = Poisson(4, 4);
  CscView pattern = a;
  pattern.values = {};
  const auto stored = client_.Upload(pattern);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_TRUE(stored->pattern_only);
  EXPECT_TRUE(client_.Estimate(stored->name, PreconditionerSpec{}).ok());
  const auto built = client_.Build(stored->name, PreconditionerSpec{});
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(built.error().reason, "VALUES_NEEDED");
}

TEST_F(BadInput, AMessageOverTheLimit) {
  auto chunks = Identity();
  chunks[2].set_data(std::string(size_t{5} << 20, 'x'));
  const Error error = Raw(Header(2, 2), chunks);
  EXPECT_EQ(error.code, Code::kResourceExhausted) << error.message;
}

TEST_F(BadInput, BytesThatAreNoMessage) {
  // The right method, the wrong bytes: gRPC's generic client sends what it is given.
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(std::string(100, '\xff'));
  const grpc::ByteBuffer garbage(&slice, 1);
  const auto call =
      stub.PrepareUnaryCall(&context, "/spaid.v1.MatrixService/GetMatrix", garbage, &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok());
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
}

}  // namespace
}  // namespace spaid::e2e
