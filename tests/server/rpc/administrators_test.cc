// What callers learn and do of others' work: administrators, and everybody else.
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/base/status.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

constexpr char kAnna[] = "anna-token-0123456789";
constexpr char kBert[] = "bert-token-0123456789";
constexpr char kRoot[] = "root-token-0123456789";

std::unique_ptr<grpc::ClientContext> As(const std::string& token) {
  auto context = Context();
  context->AddMetadata("authorization", "Bearer " + token);
  return context;
}

// Anna's build is held on the CPU, and her second waits behind it.
class Administrators : public testing::Test {
 protected:
  explicit Administrators(std::vector<kernels::DeviceInfo> devices = {FakeCpu(), FakeGpu(0)})
      : h_({.backend = Harness::SmallBackend(),
            .tokens = std::string(kAnna) + " anna\n" + kBert + " bert\n",
            .admin_tokens = std::string(kRoot) + " operators\n",
            .devices = std::move(devices)}) {}

  std::string Upload(const char* token, double first) {
    UploadCall call(As(token), &v1::MatrixService::Stub::UploadMatrix, *h_.matrices);
    const Csc a = DiagonalMatrix(3, first);
    call.Head(HeaderOf(a));
    for (const auto& chunk : ChunksOf(a)) call.Chunk(chunk);
    std::vector<v1::UploadMatrixResponse> events;
    const grpc::Status status = call.Done().Finish(&events);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return events.back().done().matrix().name();
  }
  // A detached build; its name.
  std::string Build(const char* token, double first) {
    BuildCall call(As(token), &v1::PreconditionerService::Stub::BuildPreconditioner,
                   *h_.preconditioners);
    v1::BuildHeader header = BuildOf(Upload(token, first), StaticSpai());
    header.set_detach(true);
    call.Head(header).Done();
    std::string name = JobName(call);
    call.Cancel();
    return name;
  }
  v1::GetServerInfoResponse Info(const char* token) {
    auto context = As(token);
    v1::GetServerInfoResponse info;
    const grpc::Status status = h_.info->GetServerInfo(context.get(), {}, &info);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return info;
  }
  grpc::Status List(const char* token, bool all, std::map<std::string, std::string>* tenants) {
    v1::ListJobsRequest request;
    request.set_all_tenants(all);
    request.set_page_size(2);
    do {
      auto context = As(token);
      v1::ListJobsResponse response;
      const grpc::Status status = h_.jobs->ListJobs(context.get(), request, &response);
      if (!status.ok()) return status;
      for (const v1::Job& job : response.jobs()) (*tenants)[job.name()] = job.tenant();
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return grpc::Status::OK;
  }

  // Anna's job, watched to its end.
  v1::Job WaitEndedAs(const std::string& job) {
    auto context = As(kAnna);
    v1::WatchJobRequest request;
    request.set_name(job);
    auto stream = h_.jobs->WatchJob(context.get(), request);
    v1::WatchJobResponse response;
    v1::Job ended;
    while (stream->Read(&response)) {
      if (response.event().has_finished()) ended = response.event().finished().job();
    }
    EXPECT_TRUE(stream->Finish().ok());
    return ended;
  }

  Harness h_;
};

TEST_F(Administrators, SeeTheQueueOfAllAndOthersTheirOwnPart) {
  h_.engine.HoldBuilds();
  for (int k = 0; k < 4; ++k) Build(kAnna, 10 + k);
  Build(kBert, 2);
  h_.engine.WaitForBuilds(1);
  const auto root = Info(kRoot), anna = Info(kAnna), bert = Info(kBert);
  EXPECT_TRUE(root.administrator());
  EXPECT_EQ(root.tenant(), "operators");
  EXPECT_EQ(root.queue().queued() + root.queue().running(), 5);
  EXPECT_EQ(root.devices(1).uuid(), FakeGpu(0).uuid);
  EXPECT_FALSE(root.devices(1).uuid().empty());
  for (const auto& [info, jobs] : {std::pair(&anna, 4), std::pair(&bert, 1)}) {
    EXPECT_FALSE(info->administrator());
    EXPECT_EQ(info->queue().queued() + info->queue().running(), jobs) << info->tenant();
    EXPECT_EQ(info->queue().estimate_ratios_size(), 0);
    ASSERT_EQ(info->queue().classes_size(), 3);
    EXPECT_EQ(info->queue().classes(1).queued(), info->queue().queued());
    for (const v1::Device& device : info->devices()) EXPECT_EQ(device.uuid(), "");
  }
  h_.engine.Release();
}

TEST_F(Administrators, SeeRatiosAndOthersDoNot) {
  WaitEndedAs(Build(kAnna, 2));
  // Learned by the scheduler's thread, a moment before or after everybody hears of the end.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (Info(kRoot).queue().estimate_ratios_size() == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  EXPECT_EQ(Info(kAnna).queue().estimate_ratios_size(), 0);
}

TEST_F(Administrators, ListGetAndCancelJobsOfAllTenants) {
  h_.engine.HoldBuilds();
  const std::string hers = Build(kAnna, 2), his = Build(kBert, 3), other = Build(kBert, 4);
  std::map<std::string, std::string> jobs;
  ASSERT_TRUE(List(kRoot, true, &jobs).ok());
  EXPECT_EQ(jobs,
            (std::map<std::string, std::string>{{hers, "anna"}, {his, "bert"}, {other, "bert"}}));
  jobs.clear();
  ASSERT_TRUE(List(kRoot, false, &jobs).ok());
  EXPECT_TRUE(jobs.empty());
  ASSERT_TRUE(List(kBert, false, &jobs).ok());
  EXPECT_EQ(jobs, (std::map<std::string, std::string>{{his, ""}, {other, ""}}));
  EXPECT_RPC_ERROR(List(kBert, true, &jobs), PERMISSION_DENIED, "NOT_ADMINISTRATOR",
                   "--admin-tokens");

  v1::CancelJobRequest cancel;
  cancel.set_name(hers);
  v1::CancelJobResponse cancelled;
  auto context = As(kBert);
  EXPECT_RPC_ERROR(h_.jobs->CancelJob(context.get(), cancel, &cancelled), NOT_FOUND,
                   "HANDLE_UNKNOWN", hers);
  context = As(kRoot);
  const grpc::Status status = h_.jobs->CancelJob(context.get(), cancel, &cancelled);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(cancelled.job().tenant(), "anna");
  const v1::Job ended = WaitEndedAs(hers);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ended.tenant(), "");

  v1::GetJobRequest get;
  get.set_name(his);
  v1::GetJobResponse got;
  context = As(kRoot);
  ASSERT_TRUE(h_.jobs->GetJob(context.get(), get, &got).ok());
  EXPECT_EQ(got.job().tenant(), "bert");
  // What a job brings is its tenant's alone.
  v1::WatchJobRequest watch;
  watch.set_name(his);
  context = As(kRoot);
  auto stream = h_.jobs->WatchJob(context.get(), watch);
  v1::WatchJobResponse event;
  EXPECT_FALSE(stream->Read(&event));
  EXPECT_RPC_ERROR(stream->Finish(), NOT_FOUND, "HANDLE_UNKNOWN", his);
  h_.engine.Release();
}

TEST(NoAdministrators, AreThereUnlessTheOperatorSaysSo) {
  Harness h;
  auto context = Context();
  v1::ListJobsRequest request;
  request.set_all_tenants(true);
  v1::ListJobsResponse response;
  EXPECT_RPC_ERROR(h.jobs->ListJobs(context.get(), request, &response), PERMISSION_DENIED,
                   "NOT_ADMINISTRATOR", "all_tenants");
}

TEST(Handles, OverLongAndUnprintableOnesAreUnknownAndNotRepeated) {
  Harness h;
  for (const size_t size : {size_t{65}, size_t{2000}, size_t{20'000}, size_t{1'000'000}}) {
    const std::string name(size, 'm');
    const auto unknown = [&](const grpc::Status& status) {
      EXPECT_RPC_ERROR(status, NOT_FOUND, "HANDLE_UNKNOWN", std::to_string(size) + " bytes");
      EXPECT_LT(status.error_message().size() + status.error_details().size(), 1000u);
      EXPECT_EQ(status.error_message().find(std::string(65, 'm')), std::string::npos);
    };
    const auto call = [&](auto& stub, auto method, auto request, auto response) {
      request.set_name(name);
      auto context = Context();
      unknown((stub.*method)(context.get(), request, &response));
    };
    using v1::JobService, v1::MatrixService, v1::PreconditionerService;
    call(*h.matrices, &MatrixService::Stub::GetMatrix, v1::GetMatrixRequest(),
         v1::GetMatrixResponse());
    call(*h.matrices, &MatrixService::Stub::DeleteMatrix, v1::DeleteMatrixRequest(),
         v1::DeleteMatrixResponse());
    call(*h.preconditioners, &PreconditionerService::Stub::GetPreconditioner,
         v1::GetPreconditionerRequest(), v1::GetPreconditionerResponse());
    call(*h.preconditioners, &PreconditionerService::Stub::DeletePreconditioner,
         v1::DeletePreconditionerRequest(), v1::DeletePreconditionerResponse());
    call(*h.jobs, &JobService::Stub::GetJob, v1::GetJobRequest(), v1::GetJobResponse());
    call(*h.jobs, &JobService::Stub::CancelJob, v1::CancelJobRequest(), v1::CancelJobResponse());
    unknown(OpenBuild(h).Head(BuildOf(name, Jacobi())).Done().Finish());
    unknown(OpenSolve(h).Head(SolveOf(name, Jacobi())).Done().Finish());
    v1::PreconditionerSpec patterned = StaticSpai();
    patterned.mutable_static_spai()->set_pattern_matrix(name);
    patterned.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_AUTO);
    unknown(OpenBuild(h).Head(BuildOf(h.Store(DiagonalMatrix(3)), patterned)).Done().Finish());
    v1::SolveHeader with = SolveOf(h.Store(DiagonalMatrix(3)), None());
    with.set_preconditioner(name);
    unknown(OpenSolve(h)
                .Head(with)
                .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{1, 2, 3}))
                .Done()
                .Finish());
    auto context = Context();
    v1::EstimateBuildRequest estimate;
    estimate.set_matrix(name);
    *estimate.mutable_spec() = Jacobi();
    v1::EstimateBuildResponse estimated;
    unknown(h.preconditioners->EstimateBuild(context.get(), estimate, &estimated));
    context = Context();
    v1::WatchJobRequest watch;
    watch.set_name(name);
    auto stream = h.jobs->WatchJob(context.get(), watch);
    v1::WatchJobResponse event;
    EXPECT_FALSE(stream->Read(&event));
    unknown(stream->Finish());
  }
  auto context = Context();
  v1::GetMatrixRequest request;
  request.set_name("matrices/\x1b[2J");
  v1::GetMatrixResponse response;
  EXPECT_RPC_ERROR(h.matrices->GetMatrix(context.get(), request, &response), NOT_FOUND,
                   "HANDLE_UNKNOWN", "13 bytes");
}

TEST(Labels, WithControlCharactersAreRefused) {
  Harness h;
  const Csc a = DiagonalMatrix(3);
  for (const char* bad : {"\x1b]0;owned\x07", "two\nlines",
                          "\xc2\x9b"
                          "2J",
                          "\xe2\x80\xaetxt.exe"}) {
    v1::MatrixHeader header = HeaderOf(a);
    header.set_label(bad);
    const Uploaded uploaded = h.Upload(header, ChunksOf(a));
    EXPECT_RPC_ERROR(uploaded.status, INVALID_ARGUMENT, "BAD_LABEL", "plain text");
    EXPECT_EQ(Decode(uploaded.status).field, "header.label");
  }
  v1::MatrixHeader header = HeaderOf(a);
  header.set_label("Brücke, 3 m (行列)");
  EXPECT_EQ(h.Upload(header, ChunksOf(a)).matrix.label(), "Brücke, 3 m (行列)");
}

// Ones of FSAI, whose figures of each step make a list of a thousand larger than a message.
TEST(ListPreconditioners, FitsAMessageWhateverTheyHold) {
  Harness h;
  BuildCall call = OpenBuild(h);
  std::vector<v1::BuildPreconditionerResponse> events;
  ASSERT_TRUE(call.Head(BuildOf(h.Store(DiagonalMatrix(3)), Jacobi())).Done().Finish(&events).ok());
  const auto built =
      h.backend->preconditioners().Get("default", events.back().done().preconditioner().name());
  ASSERT_TRUE(built.ok());
  auto large = std::make_shared<Preconditioner>();
  large->kernel = built->value->kernel;
  large->quality = built->value->quality;
  for (int k = 0; k < 1200; ++k) large->quality.mutable_fsai()->add_kaporin_by_step(1.5);
  for (int k = 0; k < 600; ++k) {
    ASSERT_TRUE(h.backend->preconditioners().Put("default", large, 100, "").ok());
  }
  std::set<std::string> seen;
  v1::ListPreconditionersRequest request;
  request.set_page_size(1000);
  int pages = 0;
  do {
    auto context = Context();
    v1::ListPreconditionersResponse response;
    const grpc::Status status =
        h.preconditioners->ListPreconditioners(context.get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_LE(response.ByteSizeLong(), size_t{4} << 20);
    for (const auto& item : response.preconditioners()) {
      EXPECT_TRUE(seen.insert(item.name()).second) << "twice: " << item.name();
    }
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_EQ(seen.size(), 601u);
  EXPECT_GE(pages, 3);
}

class AdministratorsOfACpu : public Administrators {
 protected:
  AdministratorsOfACpu() : Administrators({FakeCpu()}) {}
};

// The wait of a job of one's own does not tell what others have queued.
TEST_F(AdministratorsOfACpu, AloneLearnHowMuchOthersHaveQueued) {
  h_.engine.HoldBuilds();
  for (int k = 0; k < 2; ++k) Build(kAnna, 10 + k);
  h_.engine.WaitForBuilds(1);
  Build(kBert, 2);
  for (int k = 2; k < 40; ++k) Build(kAnna, 10 + k);
  const double queued_ms = Info(kRoot).queue().classes(1).predicted_ms();
  ASSERT_GT(queued_ms, 0);
  // Both wait for the job that runs; what Anna has queued is before her own alone.
  EXPECT_GT(Info(kAnna).queue().eta_ms(), Info(kBert).queue().eta_ms() + queued_ms / 2);
  h_.engine.Release();
}

// A token names a place among all that were ever made, so that in a list of one's own that grows as
// one likes it would count what others make.
TEST(PageTokens, OfOneListAreGoodForNoOther) {
  Harness h({.backend = Harness::SmallBackend(), .trust_tenant_header = true});
  for (const std::string tenant : {"anna", "bert"}) {
    for (int k = 0; k < 2; ++k) h.Store(DiagonalMatrix(2, 1 + k), tenant);
  }
  v1::ListMatricesRequest request;
  request.set_page_size(1);
  v1::ListMatricesResponse response;
  ASSERT_TRUE(h.matrices->ListMatrices(Context("bert").get(), request, &response).ok());
  request.set_page_token(response.next_page_token());
  EXPECT_TRUE(h.matrices->ListMatrices(Context("bert").get(), request, &response).ok());
  EXPECT_RPC_ERROR(h.matrices->ListMatrices(Context("anna").get(), request, &response),
                   INVALID_ARGUMENT, "BAD_PAGE_TOKEN", "for this list");
  v1::ListJobsRequest jobs;
  jobs.set_page_token(request.page_token());
  v1::ListJobsResponse none;
  EXPECT_RPC_ERROR(h.jobs->ListJobs(Context("bert").get(), jobs, &none), INVALID_ARGUMENT,
                   "BAD_PAGE_TOKEN", "for this list");
  v1::ListPreconditionersRequest built;
  built.set_page_token(request.page_token());
  v1::ListPreconditionersResponse nothing;
  EXPECT_RPC_ERROR(h.preconditioners->ListPreconditioners(Context("bert").get(), built, &nothing),
                   INVALID_ARGUMENT, "BAD_PAGE_TOKEN", "for this list");
}

TEST(PageTokens, OfOneTenantDoNotCountWhatOthersDo) {
  Harness h({.backend = Harness::SmallBackend(), .trust_tenant_header = true});
  const auto token = [&] {
    auto context = Context("bert");
    v1::ListMatricesRequest request;
    request.set_page_size(1);
    v1::ListMatricesResponse response;
    EXPECT_TRUE(h.matrices->ListMatrices(context.get(), request, &response).ok());
    return response.next_page_token();
  };
  for (int k = 0; k < 2; ++k) h.Store(DiagonalMatrix(2, 1 + k), "bert");
  const std::string before = token();
  for (int k = 0; k < 5; ++k) h.Store(DiagonalMatrix(2, 1 + k), "anna");
  EXPECT_EQ(token(), before) << "it names a place in bert's list, where nothing has come";
  h.Store(DiagonalMatrix(2, 9), "bert");
  const std::string after = token();
  int same = 0;
  for (size_t k = 0; k < after.size(); ++k) same += after[k] == before[k];
  EXPECT_LT(same, 16) << before << " " << after;
}

}  // namespace
}  // namespace spaid::server
