// Everything that a client can get wrong: the code, the reason, the text; and the daemon lives on.
#include <zlib.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class BadInput : public testing::Test {
 protected:
  void TearDown() override { h_.ExpectLives(); }

  grpc::Status UploadStatus(const v1::MatrixHeader& header,
                            const std::vector<v1::ArrayChunk>& chunks) {
    return h_.Upload(header, chunks).status;
  }
  grpc::Status UploadStatus(const Csc& a) { return UploadStatus(HeaderOf(a), ChunksOf(a)); }

  grpc::Status BuildStatus(const v1::BuildHeader& header) {
    BuildCall call = OpenBuild(h_);
    call.Head(header).Done();
    return call.Finish();
  }
  // A solve of diag(1, 2, 3) with a good right-hand side.
  grpc::Status SolveStatus(const v1::SolveHeader& header,
                           const std::vector<double>& b = {1, 2, 3}) {
    SolveCall call = OpenSolve(h_);
    call.Head(header).Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, b)).Done();
    return call.Finish();
  }

  Harness h_;
  const Csc a_ = DiagonalMatrix(3);
};

TEST_F(BadInput, NotSquare) {
  v1::MatrixHeader header = HeaderOf(a_);
  header.set_n_columns(4);
  const grpc::Status status = UploadStatus(header, {});
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "NOT_SQUARE", "3 x 4");
  EXPECT_EQ(Decode(status).field, "header.n_columns");
}

TEST_F(BadInput, SizesOutOfRange) {
  for (const int64_t n : {int64_t{0}, int64_t{-1}, int64_t{1} << 31}) {
    v1::MatrixHeader header = HeaderOf(a_);
    header.set_n(n);
    EXPECT_RPC_ERROR(UploadStatus(header, {}), INVALID_ARGUMENT, "BAD_SIZE", std::to_string(n));
  }
  v1::MatrixHeader header = HeaderOf(a_);
  header.set_nnz(-1);
  EXPECT_RPC_ERROR(UploadStatus(header, {}), INVALID_ARGUMENT, "BAD_SIZE", "nnz is -1");
}

TEST_F(BadInput, IndexOutOfRange) {
  Csc a = a_;
  a.indices[1] = 7;
  EXPECT_RPC_ERROR(UploadStatus(a), INVALID_ARGUMENT, "INDEX_OUT_OF_RANGE", "7");
}

TEST_F(BadInput, PointersThatDoNotAddUp) {
  Csc a = a_;
  a.pointers = {0, 2, 1, 3};
  EXPECT_RPC_ERROR(UploadStatus(a), INVALID_ARGUMENT, "BAD_POINTERS", "");
}

TEST_F(BadInput, UnsortedIsRefusedUnlessAskedFor) {
  Csc a;
  a.n = 2;
  a.pointers = {0, 2, 3};
  a.indices = {1, 0, 1};
  a.values = {5, 1, 2};
  EXPECT_RPC_ERROR(UploadStatus(a), INVALID_ARGUMENT, "UNSORTED_INDICES", "sort_and_sum");
  v1::MatrixHeader header = HeaderOf(a);
  header.set_sort_and_sum(true);
  const Uploaded good = h_.Upload(header, ChunksOf(a));
  EXPECT_TRUE(good.status.ok()) << good.status.error_message();
  EXPECT_EQ(good.matrix.nnz(), 3);
}

TEST_F(BadInput, DuplicatesAreRefusedUnlessAskedFor) {
  Csc a;
  a.n = 2;
  a.pointers = {0, 2, 3};
  a.indices = {0, 0, 1};
  a.values = {5, 1, 2};
  EXPECT_RPC_ERROR(UploadStatus(a), INVALID_ARGUMENT, "DUPLICATE_ENTRY", "sort_and_sum");
  v1::MatrixHeader header = HeaderOf(a);
  header.set_sort_and_sum(true);
  const Uploaded good = h_.Upload(header, ChunksOf(a));
  EXPECT_TRUE(good.status.ok()) << good.status.error_message();
  EXPECT_EQ(good.matrix.nnz(), 2);
}

TEST_F(BadInput, NonFiniteValuesWithTheFirstPlace) {
  for (const double bad : {kNan, kInf, -kInf}) {
    Csc a = a_;
    a.values[1] = bad;
    a.values[2] = bad;
    const grpc::Status status = UploadStatus(a);
    EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "NON_FINITE_VALUE", "1");
    EXPECT_EQ(Decode(status).metadata["index"], "1");
  }
}

TEST_F(BadInput, WrongChecksum) {
  std::vector<v1::ArrayChunk> chunks = ChunksOf(a_);
  const std::string& data = chunks[2].data();
  const auto right = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
  chunks[2].set_crc32(right + 1);
  const grpc::Status status = UploadStatus(HeaderOf(a_), chunks);
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "CHECKSUM_MISMATCH", "values");
  chunks[2].set_crc32(right);
  EXPECT_TRUE(UploadStatus(HeaderOf(a_), chunks).ok());
}

TEST_F(BadInput, ChunkOutOfOrder) {
  std::vector<v1::ArrayChunk> chunks = ChunksOf(a_);
  chunks[1].set_offset(1);
  const grpc::Status status = UploadStatus(HeaderOf(a_), chunks);
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "CHUNK_OUT_OF_ORDER", "element 1");
  EXPECT_EQ(Decode(status).metadata["expected"], "0");
  chunks[1].set_offset(-5);
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), chunks), INVALID_ARGUMENT, "CHUNK_OUT_OF_ORDER",
                   "-5");
}

TEST_F(BadInput, ChunkBeyondTheEnd) {
  Csc longer = a_;
  longer.values.push_back(9);
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), ChunksOf(longer)), INVALID_ARGUMENT,
                   "CHUNK_BEYOND_END", "only 3");
  // Also one more chunk behind a complete array.
  std::vector<v1::ArrayChunk> chunks = ChunksOf(a_);
  chunks.push_back(ChunkOf(v1::ARRAY_KIND_VALUES, 3, std::vector<double>{1}));
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), chunks), INVALID_ARGUMENT, "CHUNK_BEYOND_END",
                   "element 3");
}

TEST_F(BadInput, ChunkMissing) {
  std::vector<v1::ArrayChunk> chunks = ChunksOf(a_);
  chunks.pop_back();
  const grpc::Status status = UploadStatus(HeaderOf(a_), chunks);
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "ARRAY_INCOMPLETE", "0 of 3");
  EXPECT_EQ(Decode(status).metadata["array"], "values");
}

TEST_F(BadInput, ChunkNotWholeOrEmpty) {
  std::vector<v1::ArrayChunk> chunks = ChunksOf(a_);
  chunks[2].mutable_data()->pop_back();
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), chunks), INVALID_ARGUMENT, "CHUNK_NOT_WHOLE",
                   "multiple of 8");
  chunks[2].clear_data();
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), chunks), INVALID_ARGUMENT, "CHUNK_NOT_WHOLE",
                   "0 bytes");
}

TEST_F(BadInput, PromiseOf2To62EntriesAllocatesNothing) {
  v1::MatrixHeader header = HeaderOf(a_);
  header.set_nnz(int64_t{1} << 62);
  const grpc::Status status = UploadStatus(header, {});
  EXPECT_RPC_ERROR(status, RESOURCE_EXHAUSTED, "MATRIX_TOO_LARGE", "--max-matrix-bytes");
  EXPECT_EQ(Decode(status).metadata["limit"], std::to_string(1 << 20));
  EXPECT_FALSE(Decode(status).metadata["actual"].empty());
  EXPECT_EQ(h_.backend->matrices().stats().reserved_bytes, 0);
}

TEST_F(BadInput, MatrixOverTheLimitSaysBothNumbers) {
  v1::MatrixHeader header = HeaderOf(a_);
  header.set_nnz(100'000);
  const grpc::Status status = UploadStatus(header, {});
  EXPECT_RPC_ERROR(status, RESOURCE_EXHAUSTED, "MATRIX_TOO_LARGE",
                   "bytes and the limit is 1048576");
  EXPECT_EQ(Decode(status).metadata["limit"], "1048576");
  const int64_t actual = std::stoll(Decode(status).metadata["actual"]);
  EXPECT_EQ(actual, 1200032 + static_cast<int64_t>(sizeof(Matrix) + sizeof(StoredPattern)));
}

// The limit is of what is stored: told by the header, not when all has been sent.
TEST_F(BadInput, AMatrixAtTheLimitIsAcceptedOrRefusedByItsHeader) {
  Harness::Options options{.backend = Harness::SmallBackend()};
  const Csc a = DiagonalMatrix(1000);
  const int64_t bytes =
      8 * 1001 + 12 * 1000 + static_cast<int64_t>(sizeof(Matrix) + sizeof(StoredPattern));
  options.backend.max_matrix_bytes = bytes;
  Harness h(options);
  EXPECT_NE(h.Store(a), "");
  v1::MatrixHeader header = HeaderOf(a);
  header.set_label("x");
  EXPECT_RPC_ERROR(h.Upload(header, {}).status, RESOURCE_EXHAUSTED, "MATRIX_TOO_LARGE",
                   std::to_string(bytes + 1));
}

TEST_F(BadInput, UploadCutInTheMiddleLeavesNothing) {
  {
    UploadCall call = OpenUpload(h_);
    call.Head(HeaderOf(a_)).Chunk(ChunksOf(a_)[0]);
    v1::UploadMatrixResponse response;
    ASSERT_TRUE(call.Read(&response));  // `need`: the server is in the middle of it
    EXPECT_GT(h_.backend->matrices().stats().reserved_bytes, 0);
    call.Cancel();
    EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  ASSERT_TRUE(
      h_.backend->streams().WaitEmpty(std::chrono::steady_clock::now() + std::chrono::seconds(30)));
  EXPECT_EQ(h_.backend->matrices().stats().reserved_bytes, 0);
}

TEST_F(BadInput, UnknownEnumsAreNamed) {
  v1::MatrixHeader header = HeaderOf(a_);
  header.set_layout(static_cast<v1::Layout>(9));
  grpc::Status status = UploadStatus(header, {});
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "UNKNOWN_ENUM", "9");
  EXPECT_EQ(Decode(status).field, "header.layout");
  header = HeaderOf(a_);
  header.clear_value_type();
  EXPECT_RPC_ERROR(UploadStatus(header, {}), INVALID_ARGUMENT, "UNKNOWN_ENUM", "value_type");

  std::vector<v1::ArrayChunk> chunks = ChunksOf(a_);
  chunks[0].set_array(static_cast<v1::ArrayKind>(42));
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), chunks), INVALID_ARGUMENT, "UNKNOWN_ENUM", "42");
  chunks[0].set_array(v1::ARRAY_KIND_RHS);
  EXPECT_RPC_ERROR(UploadStatus(HeaderOf(a_), chunks), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE",
                   "rhs");

  const std::string matrix = h_.Store(a_);
  v1::PreconditionerSpec spec;
  status = BuildStatus(BuildOf(matrix, spec));
  EXPECT_EQ(Decode(status).code, grpc::StatusCode::INVALID_ARGUMENT);
  spec.set_engine(static_cast<v1::EngineKind>(77));
  status = BuildStatus(BuildOf(matrix, spec));
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "UNKNOWN_ENUM", "77");
  EXPECT_EQ(Decode(status).field, "header.spec.engine");
  v1::BuildHeader build = BuildOf(matrix, Jacobi());
  build.set_result_type(static_cast<v1::ValueType>(5));
  EXPECT_RPC_ERROR(BuildStatus(build), INVALID_ARGUMENT, "UNKNOWN_ENUM", "result_type");
  v1::SolveHeader solve = SolveOf(matrix, None());
  solve.set_method(static_cast<v1::Method>(8));
  EXPECT_RPC_ERROR(SolveStatus(solve), INVALID_ARGUMENT, "UNKNOWN_ENUM", "8");

  auto context = Context();
  v1::ListJobsRequest list;
  list.set_state(static_cast<v1::JobState>(66));
  v1::ListJobsResponse listed;
  EXPECT_RPC_ERROR(h_.jobs->ListJobs(context.get(), list, &listed), INVALID_ARGUMENT,
                   "UNKNOWN_ENUM", "66");
}

TEST_F(BadInput, RightHandSideOfWrongLength) {
  const v1::SolveHeader header = SolveOf(h_.Store(a_), None());
  grpc::Status status = SolveStatus(header, {1, 2});
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "RHS_LENGTH_MISMATCH", "must have 3");
  EXPECT_EQ(Decode(status).metadata["actual"], "2");
  EXPECT_RPC_ERROR(SolveStatus(header, {1, 2, 3, 4}), INVALID_ARGUMENT, "RHS_LENGTH_MISMATCH",
                   "must have 3");
  v1::SolveHeader guess = header;
  guess.set_has_initial_guess(true);
  EXPECT_RPC_ERROR(SolveStatus(guess), INVALID_ARGUMENT, "RHS_LENGTH_MISMATCH", "initial_guess");
}

TEST_F(BadInput, NullVectors) {
  v1::SolveHeader header = SolveOf(h_.Store(a_), None());
  const auto solve = [&](const std::vector<double>& vectors) {
    SolveCall call = OpenSolve(h_);
    call.Head(header)
        .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2, 3}))
        .Chunk(ChunkOf(v1::ARRAY_KIND_NULL_SPACE, 0, vectors))
        .Done();
    return call.Finish();
  };
  EXPECT_RPC_ERROR(solve({1, 1, 1}), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "no null vectors");
  header.set_null_vectors(2);
  EXPECT_RPC_ERROR(SolveStatus(header), INVALID_ARGUMENT, "RHS_LENGTH_MISMATCH",
                   "null_space has 0 elements and must have 6 (n = 3 times null_vectors = 2)");
  EXPECT_RPC_ERROR(solve({1, 1, 1, 1, 1, 1, 1}), INVALID_ARGUMENT, "RHS_LENGTH_MISMATCH",
                   "at least 7");
  const grpc::Status status = solve({1, 1, 1, 1, 1, 2});
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "NOT_IN_NULL_SPACE", "vector 0");
  EXPECT_EQ(Decode(status).field, "null_space");
  EXPECT_EQ(Decode(status).metadata["index"], "0");
  header.set_null_vectors(33);
  EXPECT_RPC_ERROR(SolveStatus(header), INVALID_ARGUMENT, "BAD_NULL_SPACE", "give 1 to 32");
}

TEST_F(BadInput, MessagesInTheWrongOrder) {
  {
    UploadCall call = OpenUpload(h_);
    call.Chunk(ChunksOf(a_)[0]).Done();
    EXPECT_RPC_ERROR(call.Finish(), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "before the header");
  }
  {
    UploadCall call = OpenUpload(h_);
    call.Head(HeaderOf(a_)).Head(HeaderOf(a_)).Done();
    EXPECT_RPC_ERROR(call.Finish(), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "second header");
  }
  {
    UploadCall call = OpenUpload(h_);
    call.Done();
    EXPECT_RPC_ERROR(call.Finish(), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "before the header");
  }
  {
    SolveCall call = OpenSolve(h_);
    call.Done();
    EXPECT_RPC_ERROR(call.Finish(), INVALID_ARGUMENT, "UNEXPECTED_MESSAGE", "before the header");
  }
  {
    BuildCall call = OpenBuild(h_);
    v1::BuildHeader header;
    *header.mutable_spec() = Jacobi();
    call.Head(header).Done();
    EXPECT_RPC_ERROR(call.Finish(), INVALID_ARGUMENT, "MISSING_FIELD", "names no matrix");
  }
}

TEST_F(BadInput, UnknownHandles) {
  EXPECT_RPC_ERROR(BuildStatus(BuildOf("matrices/nowhere", Jacobi())), NOT_FOUND, "HANDLE_UNKNOWN",
                   "matrices/nowhere");
  EXPECT_RPC_ERROR(SolveStatus(SolveOf("", None())), NOT_FOUND, "HANDLE_UNKNOWN", "");
  v1::SolveHeader solve = SolveOf(h_.Store(a_), None());
  solve.set_preconditioner("preconditioners/nowhere");
  EXPECT_RPC_ERROR(SolveStatus(solve), NOT_FOUND, "HANDLE_UNKNOWN", "preconditioners/nowhere");
  auto context = Context();
  v1::GetJobRequest job;
  job.set_name("jobs/nowhere");
  v1::GetJobResponse got;
  EXPECT_RPC_ERROR(h_.jobs->GetJob(context.get(), job, &got), NOT_FOUND, "HANDLE_UNKNOWN",
                   "jobs/nowhere");
}

TEST_F(BadInput, TolerancesThatCannotBe) {
  const std::string matrix = h_.Store(a_);
  for (const double rtol : {0.0, -1e-8, kNan, kInf}) {
    v1::SolveHeader header = SolveOf(matrix, None());
    header.set_rtol(rtol);
    EXPECT_RPC_ERROR(SolveStatus(header), INVALID_ARGUMENT, "BAD_TOLERANCE", "rtol");
  }
  v1::SolveHeader header = SolveOf(matrix, None());
  header.set_atol(kNan);
  EXPECT_RPC_ERROR(SolveStatus(header), INVALID_ARGUMENT, "BAD_TOLERANCE", "atol");
}

TEST_F(BadInput, CgWithAnExplicitM) {
  v1::SolveHeader header = SolveOf(h_.Store(a_), StaticSpai());
  header.set_method(v1::METHOD_CG);
  EXPECT_RPC_ERROR(SolveStatus(header), FAILED_PRECONDITION, "PRECONDITIONER_NOT_SPD", "BiCGSTAB");
}

TEST_F(BadInput, CgWithAnExplicitMByItsHandle) {
  const std::string matrix = h_.Store(a_);
  BuildCall build = OpenBuild(h_);
  std::vector<v1::BuildPreconditionerResponse> events;
  ASSERT_TRUE(build.Head(BuildOf(matrix, StaticSpai())).Done().Finish(&events).ok());
  v1::SolveHeader header = SolveOf(matrix, None());
  header.set_preconditioner(events.back().done().preconditioner().name());
  header.set_method(v1::METHOD_CG);
  const grpc::Status status = SolveStatus(header);
  EXPECT_RPC_ERROR(status, FAILED_PRECONDITION, "PRECONDITIONER_NOT_SPD", "BiCGSTAB");
  EXPECT_EQ(Decode(status).field, "header.method");
  header.set_method(v1::METHOD_BICGSTAB);
  EXPECT_TRUE(SolveStatus(header).ok());
}

TEST_F(BadInput, RightHandSidesThatNeverFit) {
  v1::SolveHeader header = SolveOf(h_.Store(DiagonalMatrix(10'000)), None());
  header.set_rhs_count(1000);
  const grpc::Status status = SolveStatus(header);
  EXPECT_RPC_ERROR(status, RESOURCE_EXHAUSTED, "RHS_TOO_LARGE", "--rhs-bytes");
  EXPECT_EQ(Decode(status).field, "header.rhs_count");
  EXPECT_EQ(Decode(status).metadata["actual"], "160000000");
  EXPECT_EQ(Decode(status).metadata["limit"], std::to_string(64 << 20));
  EXPECT_FALSE(Decode(status).retry_ms.has_value());
}

TEST_F(BadInput, LimitsThatCannotBe) {
  v1::BuildHeader header = BuildOf(h_.Store(a_), Jacobi());
  header.mutable_limits()->mutable_max_run()->set_seconds(-1);
  const grpc::Status status = BuildStatus(header);
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "BAD_LIMIT", "max_run");
}

TEST_F(BadInput, DigestThatDoesNotMatch) {
  v1::MatrixHeader header = HeaderOf(a_);
  header.mutable_digest()->set_pattern(std::string(16, 'p'));
  header.mutable_digest()->set_values(std::string(16, 'v'));
  EXPECT_RPC_ERROR(UploadStatus(header, ChunksOf(a_)), INVALID_ARGUMENT, "DIGEST_MISMATCH",
                   "pattern digest");
  header.mutable_digest()->set_pattern("short");
  EXPECT_RPC_ERROR(UploadStatus(header, {}), INVALID_ARGUMENT, "BAD_DIGEST", "16 bytes");
}

TEST_F(BadInput, ErrorsOfAJobReachTheStream) {
  h_.engine.FailBuilds(kernels::Status(kernels::StatusCode::kFailedPrecondition, "ZERO_DIAGONAL",
                                       "the diagonal is zero at 2; use static SPAI"));
  const grpc::Status status = BuildStatus(BuildOf(h_.Store(DiagonalMatrix(4)), Jacobi()));
  EXPECT_RPC_ERROR(status, FAILED_PRECONDITION, "ZERO_DIAGONAL", "static SPAI");
  h_.engine.FailBuilds({});
}

}  // namespace
}  // namespace spaid::server
