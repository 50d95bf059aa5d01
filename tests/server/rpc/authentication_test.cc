// Tenants: what is whose, and who says so.
#include "server/rpc/authentication.h"

#include <grpcpp/test/server_context_test_spouse.h>
#include <sys/stat.h>
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
  TenantOf(h, "", "", &status);
  EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "NO_CREDENTIALS", "--tokens");
  TenantOf(h, "", "anna", &status);
  EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "NO_CREDENTIALS", "Bearer TOKEN");
  for (const char* bad : {"Bearer nobody-0123456789012", "Basic YTpi", "Bearer "}) {
    TenantOf(h, bad, "", &status);
    EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "BAD_TOKEN", "--tokens");
  }
}

TEST(Tokens, AnonymousCallersAreServedWhereTheyAreAllowed) {
  Harness h({.backend = Harness::SmallBackend(),
             .tokens = std::string(kAnna) + " anna\n",
             .allow_anonymous = true});
  grpc::Status status;
  EXPECT_EQ(TenantOf(h, std::string("Bearer ") + kAnna, "", &status), "anna");
  EXPECT_EQ(TenantOf(h, "", "", &status), "default");
  // The header is not believed unless the operator says so.
  EXPECT_EQ(TenantOf(h, "", "anna", &status), "default");
  TenantOf(h, "Bearer nobody-0123456789012", "", &status);
  EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "BAD_TOKEN", "--tokens");
}

TEST(Tokens, EveryCallWantsCredentials) {
  Harness h({.backend = Harness::SmallBackend(), .tokens = std::string(kAnna) + " anna\n"});
  const auto refused = [](const grpc::Status& status) {
    EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "NO_CREDENTIALS", "");
  };
  refused(OpenUpload(h).Finish());
  refused(OpenBuild(h).Finish());
  refused(OpenSolve(h).Finish());
  const auto call = [&](auto& stub, auto method, auto request, auto response) {
    auto context = Context();
    refused((stub.*method)(context.get(), request, &response));
  };
  using v1::JobService, v1::MatrixService, v1::PreconditionerService;
  call(*h.matrices, &MatrixService::Stub::GetMatrix, v1::GetMatrixRequest(),
       v1::GetMatrixResponse());
  call(*h.matrices, &MatrixService::Stub::ListMatrices, v1::ListMatricesRequest(),
       v1::ListMatricesResponse());
  call(*h.matrices, &MatrixService::Stub::DeleteMatrix, v1::DeleteMatrixRequest(),
       v1::DeleteMatrixResponse());
  call(*h.preconditioners, &PreconditionerService::Stub::EstimateBuild, v1::EstimateBuildRequest(),
       v1::EstimateBuildResponse());
  call(*h.preconditioners, &PreconditionerService::Stub::GetPreconditioner,
       v1::GetPreconditionerRequest(), v1::GetPreconditionerResponse());
  call(*h.preconditioners, &PreconditionerService::Stub::ListPreconditioners,
       v1::ListPreconditionersRequest(), v1::ListPreconditionersResponse());
  call(*h.preconditioners, &PreconditionerService::Stub::DeletePreconditioner,
       v1::DeletePreconditionerRequest(), v1::DeletePreconditionerResponse());
  call(*h.jobs, &JobService::Stub::GetJob, v1::GetJobRequest(), v1::GetJobResponse());
  call(*h.jobs, &JobService::Stub::ListJobs, v1::ListJobsRequest(), v1::ListJobsResponse());
  call(*h.jobs, &JobService::Stub::CancelJob, v1::CancelJobRequest(), v1::CancelJobResponse());
  call(*h.info, &v1::ServerService::Stub::GetServerInfo, v1::GetServerInfoRequest(),
       v1::GetServerInfoResponse());
  {
    auto context = Context();
    auto stream = h.preconditioners->DownloadPreconditioner(context.get(), {});
    v1::DownloadPreconditionerResponse response;
    EXPECT_FALSE(stream->Read(&response));
    refused(stream->Finish());
  }
  auto context = Context();
  auto stream = h.jobs->WatchJob(context.get(), {});
  v1::WatchJobResponse response;
  EXPECT_FALSE(stream->Read(&response));
  refused(stream->Finish());
}

TEST(Tokens, OfTwoHeadersNoneIsTaken) {
  Harness h({.backend = Harness::SmallBackend(),
             .tokens = std::string(kAnna) + " anna\n" + kBert + " bert\n"});
  auto context = Context();
  context->AddMetadata("authorization", std::string("Bearer ") + kAnna);
  context->AddMetadata("authorization", std::string("Bearer ") + kBert);
  v1::GetServerInfoResponse response;
  EXPECT_RPC_ERROR(h.info->GetServerInfo(context.get(), {}, &response), UNAUTHENTICATED,
                   "BAD_TOKEN", "one header");
}

TEST(Tokens, MayBeHashed) {
  // printf %s anna-token-0123456789 | sha256sum
  constexpr char kHash[] = "e9f28c90499e814247c39baa979f2b68d9ae3e56a23ab27484a3d99c1177e337";
  Harness h({.backend = Harness::SmallBackend(),
             .tokens = std::string("sha256:") + kHash + " anna\n" + kBert + " bert\n"});
  grpc::Status status;
  EXPECT_EQ(TenantOf(h, std::string("Bearer ") + kAnna, "", &status), "anna");
  EXPECT_EQ(TenantOf(h, std::string("Bearer ") + kBert, "", &status), "bert");
  for (const std::string& stolen : {std::string(kHash), std::string("sha256:") + kHash}) {
    TenantOf(h, "Bearer " + stolen, "", &status);
    EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "BAD_TOKEN", "");
  }
  const auto twice = Tokens::Parse(std::string("sha256:") + kHash + " anna\n" + kAnna + " b\n");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("line 2"), absl::string_view::npos);
}

TEST(Tokens, OnesThatAreSetLaterHoldAtOnce) {
  Harness h({.backend = Harness::SmallBackend(), .tokens = std::string(kAnna) + " anna\n"});
  grpc::Status status;
  EXPECT_EQ(TenantOf(h, std::string("Bearer ") + kAnna, "", &status), "anna");
  h.backend->authenticator().SetTokens(*Tokens::Parse(std::string(kBert) + " bert\n"), {});
  EXPECT_EQ(TenantOf(h, std::string("Bearer ") + kBert, "", &status), "bert");
  TenantOf(h, std::string("Bearer ") + kAnna, "", &status);
  EXPECT_RPC_ERROR(status, UNAUTHENTICATED, "BAD_TOKEN", "");
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
  for (const std::string text :
       {"short name\n", "long-enough-token-0123\n", "", "# nothing\n",
        "twice-the-token-01234 a\ntwice-the-token-01234 b\n",
        "tok\x01"
        "en-0123456789012345 a\n",
        "a-token-of-0123456789 esc\x1b[2J\n", "a-token-of-0123456789 \xff\n", "sha256:0123 short\n",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdeg g\n"}) {
    const auto tokens = Tokens::Parse(text);
    ASSERT_FALSE(tokens.ok()) << text;
    EXPECT_EQ(ReasonOf(tokens.status()), "BAD_TOKENS_FILE");
    EXPECT_NE(tokens.status().message().find("line "), absl::string_view::npos);
    EXPECT_EQ(tokens.status().message().find("0123"), absl::string_view::npos);
  }
}

TEST(Tokens, FilesThatAnybodyCanReadAreRefused) {
  const std::string file = testing::TempDir() + "tokens." + std::to_string(getpid());
  std::ofstream(file) << kAnna << " anna\n";
  for (const mode_t mode : {0400, 0440, 0600, 0640}) {
    chmod(file.c_str(), mode);
    const auto read = Tokens::ReadFile("--tokens", file);
    EXPECT_TRUE(read.ok()) << read.status();
  }
  const auto error = [](const std::string& name) {
    const auto read = Tokens::ReadFile("--admin-tokens", name);
    EXPECT_FALSE(read.ok());
    EXPECT_EQ(ReasonOf(read.status()), "BAD_TOKENS_FILE");
    const std::string text(read.status().message());
    EXPECT_EQ(text.rfind("--admin-tokens=" + name, 0), 0u) << text;
    return text;
  };
  for (const mode_t mode : {0604, 0444, 0602}) {
    chmod(file.c_str(), mode);
    EXPECT_NE(error(file).find("chmod o= " + file), std::string::npos);
    // The one behind a link counts, as a secret of Kubernetes is one.
    const std::string link = file + ".link";
    ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
    EXPECT_NE(error(link).find("chmod o= "), std::string::npos);
    unlink(link.c_str());
  }
  chmod(file.c_str(), 0600);
  std::ofstream(file) << std::string((1 << 20) + 1, '#');
  EXPECT_NE(error(file).find("1 MiB"), std::string::npos);
  std::ofstream(file) << "short name\n";
  EXPECT_NE(error(file).find("line 1"), std::string::npos);
  unlink(file.c_str());
  EXPECT_NE(error(file).find("cannot be read"), std::string::npos);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_NE(error(file).find("not a regular file"), std::string::npos);
  unlink(file.c_str());
}

TEST(TenantHeader, IsBelievedWhereTrustedAndBounded) {
  Harness h({.backend = Harness::SmallBackend(), .trust_tenant_header = true});
  grpc::Status status;
  EXPECT_EQ(TenantOf(h, "", "anna", &status), "anna");
  TenantOf(h, "", std::string(201, 'x'), &status);
  EXPECT_RPC_ERROR(status, INVALID_ARGUMENT, "BAD_TENANT", "201 bytes");
  auto context = Context("anna");
  context->AddMetadata("x-spaid-tenant", "bert");
  v1::GetServerInfoResponse response;
  EXPECT_RPC_ERROR(h.info->GetServerInfo(context.get(), {}, &response), INVALID_ARGUMENT,
                   "BAD_TENANT", "2 times");
  // gRPC's client sends no control characters; others may.
  for (const char* bad : {"a\x1b[2J", "a\nb", "\xff", "\xe2\x80\xae"}) {
    grpc::ServerContext server;
    grpc::testing::ServerContextTestSpouse metadata(&server);
    metadata.AddClientMetadata("x-spaid-tenant", bad);
    const auto caller = Authenticator({.trust_tenant_header = true}).Identify(server);
    ASSERT_FALSE(caller.ok());
    EXPECT_EQ(ReasonOf(caller.status()), "BAD_TENANT");
  }
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
  EXPECT_EQ(ReasonOf(CertificateExpiry("tls-cert", garbage).status()), "BAD_CERTIFICATE");
  EXPECT_EQ(ReasonOf(CertificateExpiry("tls-cert", "/nonexistent.pem").status()),
            "BAD_CERTIFICATE");
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
