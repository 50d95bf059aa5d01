// Tenants: what is whose, and who says so.
#include "server/rpc/authentication.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "server/base/status.h"
#include "server/rpc/credentials.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

constexpr char kAnna[] = "anna-token-0123456789";
constexpr char kBert[] = "bert-token-0123456789";

std::string TenantOf(Harness& h, const std::string& authorization, const std::string& header,
                     grpc::Status* status) {
  auto context = Context(header);
  if (!authorization.empty()) context->AddMetadata("authorization", authorization);
  v1::GetServerInfoResponse response;
  *status = h.info->GetServerInfo(context.get(), {}, &response);
  return response.tenant();
}

TEST(Tokens, NameTheTenant) {
  Harness h({.backend = Harness::SmallBackend(),
             .tokens = std::string(kAnna) + " anna\n# comment\n" + kBert + "\tbert k.\n"});
  grpc::Status status;
  EXPECT_EQ(TenantOf(h, std::string("Bearer ") + kAnna, "", &status), "anna");
  EXPECT_EQ(TenantOf(h, std::string("bearer ") + kBert, "", &status), "bert k.");
  EXPECT_EQ(TenantOf(h, "", "", &status), "default");
  // The header is not believed unless the operator says so.
  EXPECT_EQ(TenantOf(h, "", "anna", &status), "default");
  for (const char* bad : {"Bearer nobody-0123456789012", "Basic YTpi", "Bearer "}) {
    TenantOf(h, bad, "", &status);
    EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "BAD_TOKEN", "--tokens");
  }
}

TEST(Tokens, WithoutAFileATokenIsRefusedNotIgnored) {
  Harness h;
  grpc::Status status;
  TenantOf(h, std::string("Bearer ") + kAnna, "", &status);
  EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "BAD_TOKEN", "");
  // Streams too.
  auto context = Context();
  context->AddMetadata("authorization", "Bearer what");
  UploadCall call(std::move(context), &v1::MatrixService::Stub::UploadMatrix, *h.matrices);
  EXPECT_RPC_ERROR(call.Finish(), UNAUTHENTICATED, "BAD_TOKEN", "");
}

TEST(Tokens, BadFilesNameTheLineAndNotTheToken) {
  for (const std::string text : {"short name\n", "long-enough-token-0123\n", "", "# nothing\n",
                                 "twice-the-token-01234 a\ntwice-the-token-01234 b\n",
                                 "tok\x01"
                                 "en-0123456789012345 a\n"}) {
    const auto tokens = Tokens::Parse(text);
    ASSERT_FALSE(tokens.ok()) << text;
    EXPECT_EQ(ReasonOf(tokens.status()), "BAD_TOKENS_FILE");
    EXPECT_NE(tokens.status().message().find("line "), absl::string_view::npos);
    EXPECT_EQ(tokens.status().message().find("0123"), absl::string_view::npos);
  }
  const auto missing = Tokens::ReadFile("/nonexistent/tokens");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("/nonexistent/tokens"), absl::string_view::npos);
}

TEST(TenantHeader, IsBelievedWhereTrustedAndBounded) {
  Harness h({.backend = Harness::SmallBackend(), .trust_tenant_header = true});
  grpc::Status status;
  EXPECT_EQ(TenantOf(h, "", "anna", &status), "anna");
  TenantOf(h, "", std::string(201, 'x'), &status);
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "BAD_TENANT", "201 bytes");
}

TEST(Tenants, SeeNothingOfEachOther) {
  Harness h({.backend = Harness::SmallBackend(), .trust_tenant_header = true});
  const Csc a = DiagonalMatrix(3);
  const std::string hers = h.Store(a, "anna");
  const std::string his = h.Store(a, "bert");
  EXPECT_NE(hers, his);
  BuildCall call = OpenBuild(h, "bert");
  call.Head(BuildOf(hers, Jacobi())).Done();
  EXPECT_RPC_ERROR(call.Finish(), NOT_FOUND, "HANDLE_UNKNOWN", hers);

  BuildCall good = OpenBuild(h, "anna");
  std::vector<v1::BuildPreconditionerResponse> events;
  ASSERT_TRUE(good.Head(BuildOf(hers, Jacobi())).Done().Finish(&events).ok());
  const std::string m = events.back().done().preconditioner().name();
  {
    auto context = Context("bert");
    v1::GetPreconditionerRequest request;
    request.set_name(m);
    v1::GetPreconditionerResponse response;
    EXPECT_RPC_ERROR(h.preconditioners->GetPreconditioner(context.get(), request, &response),
                     NOT_FOUND, "HANDLE_UNKNOWN", m);
  }
  auto context = Context("bert");
  v1::ListJobsResponse listed;
  ASSERT_TRUE(h.jobs->ListJobs(context.get(), {}, &listed).ok());
  EXPECT_EQ(listed.jobs_size(), 0);
  auto mine = Context("anna");
  ASSERT_TRUE(h.jobs->ListJobs(mine.get(), {}, &listed).ok());
  EXPECT_EQ(listed.jobs_size(), 1);
}

TEST(Loopback, IsToldFromTheRest) {
  for (const char* yes :
       {"localhost:1", "127.0.0.1:0", "127.8.8.8:7433", "[::1]:9", "unix:/tmp/x"}) {
    EXPECT_TRUE(IsLoopback(yes)) << yes;
  }
  for (const char* no : {"0.0.0.0:1", "[::]:1", "192.168.0.1:2", "localhost.example:1", ":7433",
                         "127.evil.example:1"}) {
    EXPECT_FALSE(IsLoopback(no)) << no;
  }
}

TEST(Credentials, BadFilesAreNamed) {
  const std::string garbage = testing::TempDir() + "garbage." + std::to_string(getpid()) + ".pem";
  std::ofstream(garbage) << "-----BEGIN CERTIFICATE-----\nnonsense\n";
  for (const TlsFiles& files :
       {TlsFiles{.certificate = "/nonexistent.pem", .key = garbage, .client_ca = ""},
        TlsFiles{.certificate = garbage, .key = garbage, .client_ca = ""},
        TlsFiles{.certificate = garbage, .key = "", .client_ca = ""},
        TlsFiles{.certificate = "", .key = "", .client_ca = garbage}}) {
    const auto credentials = MakeServerCredentials(files);
    ASSERT_FALSE(credentials.ok());
    EXPECT_EQ(ReasonOf(credentials.status()), "BAD_CERTIFICATE");
    EXPECT_NE(credentials.status().message().find("--tls-"), absl::string_view::npos);
  }
  std::remove(garbage.c_str());
}

TEST(Tenants, HandlesOfAnotherTenantMeanNothing) {
  Harness h({.backend = Harness::SmallBackend(), .trust_tenant_header = true});
  const std::string matrix = h.Store(DiagonalMatrix(3, 2), "alice");
  h.engine.HoldSolves();
  BuildCall build = OpenBuild(h, "alice");
  std::vector<v1::BuildPreconditionerResponse> built;
  ASSERT_TRUE(build.Head(BuildOf(matrix, Jacobi())).Done().Finish(&built).ok());
  const std::string preconditioner = built.back().done().preconditioner().name();
  SolveCall running = OpenSolve(h, "alice");
  const v1::ArrayChunk rhs = ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2, 3});
  running.Head(SolveOf(matrix, None())).Chunk(rhs).Done();
  const std::string job = JobName(running);

  const auto unknown = [](const grpc::Status& status, const std::string& handle) {
    EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_UNKNOWN", handle);
  };
  const auto call = [](auto& stub, auto method, auto request, auto response,
                       const std::string& handle) {
    request.set_name(handle);
    auto context = Context("bob");
    return (stub.*method)(context.get(), request, &response);
  };
  {
    SolveCall solve = OpenSolve(h, "bob");
    solve.Head(SolveOf(matrix, None())).Chunk(rhs).Done();
    unknown(solve.Finish(), matrix);
  }
  {
    v1::SolveHeader header = SolveOf(h.Store(DiagonalMatrix(3, 2), "bob"), None());
    header.set_preconditioner(preconditioner);
    SolveCall solve = OpenSolve(h, "bob");
    solve.Head(header).Chunk(rhs).Done();
    unknown(solve.Finish(), preconditioner);
  }
  {
    BuildCall theirs = OpenBuild(h, "bob");
    theirs.Head(BuildOf(matrix, Jacobi())).Done();
    unknown(theirs.Finish(), matrix);
  }
  unknown(call(*h.matrices, &v1::MatrixService::Stub::DeleteMatrix, v1::DeleteMatrixRequest(),
               v1::DeleteMatrixResponse(), matrix),
          matrix);
  unknown(
      call(*h.preconditioners, &v1::PreconditionerService::Stub::DeletePreconditioner,
           v1::DeletePreconditionerRequest(), v1::DeletePreconditionerResponse(), preconditioner),
      preconditioner);
  unknown(
      call(*h.jobs, &v1::JobService::Stub::GetJob, v1::GetJobRequest(), v1::GetJobResponse(), job),
      job);
  unknown(call(*h.jobs, &v1::JobService::Stub::CancelJob, v1::CancelJobRequest(),
               v1::CancelJobResponse(), job),
          job);
  {
    auto context = Context("bob");
    v1::DownloadPreconditionerRequest request;
    request.set_name(preconditioner);
    auto stream = h.preconditioners->DownloadPreconditioner(context.get(), request);
    v1::DownloadPreconditionerResponse response;
    EXPECT_FALSE(stream->Read(&response));
    unknown(stream->Finish(), preconditioner);
  }
  {
    auto context = Context("bob");
    v1::WatchJobRequest request;
    request.set_name(job);
    request.set_with_solution(true);
    auto stream = h.jobs->WatchJob(context.get(), request);
    v1::WatchJobResponse response;
    EXPECT_FALSE(stream->Read(&response));
    unknown(stream->Finish(), job);
  }
  h.engine.Release();
  EXPECT_TRUE(running.Finish().ok()) << "nobody cancelled it";
}

}  // namespace
}  // namespace spaid::server
