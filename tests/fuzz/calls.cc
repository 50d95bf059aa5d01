// Sequences of calls to the whole RPC layer over the fake engine: uploads, builds, solves, watches
// and deletions of three tenants, in any order, broken in any place. Each call ends with a status
// that is documented; a tenant never sees another one's things; behind the last call nothing is
// left open, reserved, queued or running, and the daemon goes on.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "server/base/digest.h"
#include "tests/fuzz/input.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

using fuzz::Input;
using fuzz::Require;
using std::chrono::steady_clock;

constexpr std::array<const char*, 3> kTenants = {"", "alice", "bob"};
constexpr std::chrono::seconds kPatience{60};

struct Known {
  std::string name;
  int tenant = 0;
};

// The server outlives all inputs.
Harness& Server() {
  static Harness* const harness = [] {
    Harness::Options options{.backend = Harness::SmallBackend(), .trust_tenant_header = true};
    options.backend.streams.max_streams = 12;
    options.backend.max_queued_jobs = 6;
    options.backend.matrix_store_bytes = 16 << 10;
    options.backend.max_matrix_bytes = 4 << 10;
    options.backend.preconditioner_store_bytes = 16 << 10;
    options.backend.rhs_bytes = 8 << 10;
    options.backend.ended_job_bytes = 64 << 10;
    return new Harness(options);
  }();
  return *harness;
}

void RequireDocumented(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::OK:
    case grpc::CANCELLED:  // by us
      return;
    case grpc::INVALID_ARGUMENT:
    case grpc::NOT_FOUND:
    case grpc::RESOURCE_EXHAUSTED:
    case grpc::FAILED_PRECONDITION:
    case grpc::DEADLINE_EXCEEDED:
    case grpc::PERMISSION_DENIED:
      Require(!Decode(status).reason.empty(), "an error without a reason");
      return;
    case grpc::UNAVAILABLE:
      // The connection of a client that gives up hundreds of calls at once is cut; gRPC makes
      // another one.
      if (Decode(status).reason.empty()) return;
      [[fallthrough]];
    default:
      std::fprintf(stderr, "code %d: %s\n", status.error_code(), status.error_message().c_str());
      Require(false, "a code that no client expects here");
  }
}

// One input's worth of calls.
class Session {
 public:
  explicit Session(Input input) : in_(input), h_(Server()) {}

  void Run() {
    for (int calls = 0; calls < 40 && !in_.empty(); ++calls) Step();
    while (!streams_.empty()) End(streams_.size() - 1, in_.Below(2) == 0);
    h_.engine.ThrowFromEstimates(std::nullopt);
    h_.engine.FailBuilds({});
    for (const Known& job : jobs_) Cancel(job.name, job.tenant);
    RequireQuiet();
  }

 private:
  using Stream = std::variant<UploadCall, BuildCall, SolveCall>;
  struct Open {
    Stream stream;
    int tenant;
  };

  int Tenant() { return in_.Below(static_cast<int>(kTenants.size())); }
  std::unique_ptr<grpc::ClientContext> For(int tenant) { return Context(kTenants[tenant]); }

  std::string Text(int bytes) {
    std::string text = in_.Bytes(static_cast<size_t>(bytes));
    for (char& c : text) c = static_cast<char>(c & 0x7f);  // protobuf sends UTF-8 alone
    return text;
  }

  // Mostly a name that there is; tenant -1: one that nobody has.
  Known Pick(const std::vector<Known>& known, const char* prefix) {
    const int form = in_.Below(16);
    if (known.empty() || form == 0) return {prefix + Text(in_.Below(40)), -1};
    Known picked = known[static_cast<size_t>(in_.Below(static_cast<int>(known.size())))];
    if (form == 1) picked = {picked.name + "0", -1};
    return picked;
  }

  v1::MatrixHeader Header() {
    v1::MatrixHeader header = HeaderOf(DiagonalMatrix(1 + in_.Below(12)));
    switch (in_.Below(12)) {
      case 0:
        header.set_nnz(in_.Below(40) - 2);
        break;
      case 1:
        header.set_n(in_.Below(2000) - 2);
        break;
      case 2:
        header.set_layout(static_cast<v1::Layout>(in_.Below(4)));
        break;
      case 3:
        header.set_pattern_only(true);
        break;
      case 4:
        header.set_value_type(v1::VALUE_TYPE_FLOAT32);
        break;
      case 5:
        header.mutable_digest()->set_pattern(in_.Bytes(16));
        break;
      case 6:
        header.set_label(Text(in_.Below(4)));
        break;
      case 7:
        header.set_sort_and_sum(true);
        break;
      case 8:
        header.set_same_pattern_as(Pick(matrices_, "matrices/").name);
        break;
      case 9:
        header.set_layout(v1::LAYOUT_CSR);  // a diagonal is the same by rows
        *header.mutable_sent_digest() = Digests(header.n());
        break;
      case 10:
        header.set_wait_for_need(true);
        *header.mutable_digest() = Digests(header.n());
        break;
      default:
        break;
    }
    return header;
  }

  std::string DiagonalPattern(int64_t n) {
    const Csc a = DiagonalMatrix(n);
    return PatternDigest(n, a.pointers, a.indices).ToBytes();
  }

  // Mostly those of a matrix that Send sends.
  v1::MatrixDigest Digests(int64_t n) {
    const Csc a = DiagonalMatrix(n, 1 + in_.Below(3));
    v1::MatrixDigest digest;
    digest.set_pattern(in_.Below(8) == 0 ? in_.Bytes(16) : DiagonalPattern(n));
    digest.set_values(ValueDigest(a.values).ToBytes());
    if (const int sha256 = in_.Below(4); sha256 > 0) {
      digest.set_pattern_sha256(PatternSha256(n, a.pointers, a.indices).ToBytes());
      if (sha256 > 1) digest.set_values_sha256(ValueSha256(a.values).ToBytes());
    }
    return digest;
  }

  // Which way M comes down, or A up.
  void Arrays(v1::BuildHeader* header) {
    const int form = in_.Below(8);
    header->set_stream_result(form > 0 && form < 5);
    header->set_partial_result(form == 2 || form == 3);
    if (form == 3 || form == 4) header->set_known_pattern(DiagonalPattern(1 + in_.Below(12)));
    if (form == 5) *header->mutable_inline_matrix() = Header();
  }

  v1::PreconditionerSpec Spec() {
    v1::PreconditionerSpec spec;
    spec.set_engine(static_cast<v1::EngineKind>(in_.Below(9)));
    if (in_.Below(8) == 0) spec.mutable_static_spai()->set_pattern_power(in_.Below(20));
    if (in_.Below(8) == 0)
      spec.mutable_static_spai()->set_pattern_matrix(Pick(matrices_, "matrices/").name);
    if (in_.Below(8) == 1) {
      spec.set_scaling(static_cast<v1::Scaling>(in_.Below(6)));
      spec.mutable_automatic()->set_learned(static_cast<v1::Learned>(in_.Below(4)));
      spec.set_regrow(in_.Below(2) == 1);
    }
    return spec;
  }

  template <class AnyHeader>
  void Terms(AnyHeader* header) {
    header->set_detach(in_.Below(4) == 0);
    header->set_priority(static_cast<v1::Priority>(in_.Below(5)));
    if (in_.Below(8) == 0)
      header->mutable_limits()->mutable_max_run()->set_seconds(in_.Below(3) - 1);
  }

  void OpenStream() {
    if (streams_.size() >= 4) return End(0, true);
    const int tenant = Tenant();
    switch (in_.Below(4)) {
      case 0:
      case 1: {
        UploadCall call = OpenUpload(h_, kTenants[tenant]);
        if (in_.Below(16) != 0) call.Head(Header());
        streams_.push_back({std::move(call), tenant});
        break;
      }
      case 2: {
        BuildCall call = OpenBuild(h_, kTenants[tenant]);
        const Known matrix = Pick(matrices_, "matrices/");  // compilers differ in order
        v1::BuildHeader header = BuildOf(matrix.name, Spec());
        Terms(&header);
        Arrays(&header);
        call.Head(header);
        streams_.push_back({std::move(call), tenant});
        break;
      }
      default: {
        SolveCall call = OpenSolve(h_, kTenants[tenant]);
        const Known matrix = Pick(matrices_, "matrices/");
        v1::SolveHeader header = SolveOf(matrix.name, Spec());
        if (in_.Below(3) == 0) *header.mutable_inline_matrix() = Header();
        if (in_.Below(4) == 0) {
          header.set_preconditioner(Pick(preconditioners_, "preconditioners/").name);
          header.mutable_reuse()->set_mode(static_cast<v1::ReuseMode>(in_.Below(5)));
        }
        header.set_method(static_cast<v1::Method>(in_.Below(8)));
        header.set_rhs_count(in_.Below(4));
        header.set_has_initial_guess(in_.Below(4) == 0);
        if (in_.Below(8) == 1) {
          header.set_null_space(static_cast<v1::NullSpace>(in_.Below(6)));
          header.set_null_vectors(in_.Below(36) - 1);
        }
        Terms(&header);
        call.Head(header);
        streams_.push_back({std::move(call), tenant});
      }
    }
  }

  template <class T>
  v1::ArrayChunk Some(v1::ArrayKind kind, T first, T step) {
    std::vector<T> data;
    for (int i = in_.Below(14); i >= 0; --i) {
      data.push_back(first);
      first += step;
    }
    return ChunkOf(kind, in_.Below(16) == 0 ? in_.Byte() : 0, data);
  }

  // Chunks of a diagonal matrix whose size may be that of the header.
  void Send() {
    if (streams_.empty()) return OpenStream();
    Stream& stream =
        streams_[static_cast<size_t>(in_.Below(static_cast<int>(streams_.size())))].stream;
    std::vector<v1::ArrayChunk> chunks;
    switch (in_.Below(8)) {
      case 0:
        chunks = {Some<int64_t>(v1::ARRAY_KIND_POINTERS, 0, 1)};
        break;
      case 1:
        chunks = {Some<int32_t>(v1::ARRAY_KIND_INDICES, 0, 1)};
        break;
      case 2:
        chunks = {Some<double>(v1::ARRAY_KIND_VALUES, 2, 0.5)};
        break;
      case 3:
      case 4:
        chunks = {Some<double>(v1::ARRAY_KIND_RHS, 1, 1)};
        break;
      case 5:
        chunks = {Some<double>(static_cast<v1::ArrayKind>(in_.Below(8)), 1, 1)};
        break;
      default: {
        const int n = 1 + in_.Below(12);
        chunks = ChunksOf(DiagonalMatrix(n, 1 + in_.Below(3)));
      }
    }
    std::visit(
        [&](auto& call) {
          for (const auto& chunk : chunks) call.Chunk(chunk);
        },
        stream);
  }

  void Learn(const v1::UploadMatrixResponse& event, int tenant) {
    if (event.has_done()) matrices_.push_back({event.done().matrix().name(), tenant});
  }
  void Learn(const v1::BuildPreconditionerResponse& event, int tenant) {
    if (event.has_matrix()) matrices_.push_back({event.matrix().name(), tenant});
    if (event.has_done())
      preconditioners_.push_back({event.done().preconditioner().name(), tenant});
    if (event.job().has_queued()) jobs_.push_back({event.job().queued().job(), tenant});
  }
  void Learn(const v1::SolveResponse& event, int tenant) {
    if (event.has_matrix()) matrices_.push_back({event.matrix().name(), tenant});
    if (event.job().has_queued()) jobs_.push_back({event.job().queued().job(), tenant});
  }

  template <class Stub, class Request, class Response>
  void EndCall(Call<Stub, Request, Response>& call, int tenant, bool properly) {
    if (properly) {
      call.Done();
    } else {
      call.Cancel();
    }
    std::vector<Response> events;
    const grpc::Status status = call.Finish(&events);
    for (const Response& event : events) Learn(event, tenant);
    RequireDocumented(status);
    Require(properly || status.ok() || status.error_code() != grpc::DEADLINE_EXCEEDED,
            "a cancelled call ran into its deadline");
  }

  void End(size_t which, bool properly) {
    Open open = std::move(streams_[which]);
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(which));
    std::visit([&](auto& call) { EndCall(call, open.tenant, properly); }, open.stream);
  }

  // Another tenant's name is as good as none.
  static void RequireOwn(const grpc::Status& status, const Known& thing, int tenant) {
    RequireDocumented(status);
    if (thing.tenant == -1) Require(!status.ok(), "a thing that is not there was found");
    if (thing.tenant >= 0 && thing.tenant != tenant) {
      Require(status.error_code() == grpc::NOT_FOUND, "another tenant's thing was found");
    }
  }

  void Cancel(const std::string& name, int tenant) {
    v1::CancelJobRequest request;
    v1::CancelJobResponse response;
    request.set_name(name);
    RequireDocumented(h_.jobs->CancelJob(For(tenant).get(), request, &response));
  }

  template <class Stub, class Request, class Response>
  void Named(Stub& stub,
             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
             const Known& thing) {
    const int tenant = Tenant();
    Request request;
    Response response;
    request.set_name(thing.name);
    RequireOwn((stub.*method)(For(tenant).get(), request, &response), thing, tenant);
  }

  void Unary() {
    using M = v1::MatrixService::Stub;
    using P = v1::PreconditionerService::Stub;
    using J = v1::JobService::Stub;
    switch (in_.Below(8)) {
      case 0:
        return Named(*h_.matrices, &M::GetMatrix, Pick(matrices_, "matrices/"));
      case 1:
        return Named(*h_.matrices, &M::DeleteMatrix, Pick(matrices_, "matrices/"));
      case 2:
        return Named(*h_.preconditioners, &P::GetPreconditioner,
                     Pick(preconditioners_, "preconditioners/"));
      case 3:
        return Named(*h_.preconditioners, &P::DeletePreconditioner,
                     Pick(preconditioners_, "preconditioners/"));
      case 4:
        return Named(*h_.jobs, &J::GetJob, Pick(jobs_, "jobs/"));
      case 5:
        return Named(*h_.jobs, &J::CancelJob, Pick(jobs_, "jobs/"));
      case 6: {
        v1::EstimateBuildRequest request;
        v1::EstimateBuildResponse response;
        request.set_matrix(Pick(matrices_, "matrices/").name);
        *request.mutable_spec() = Spec();
        return RequireDocumented(
            h_.preconditioners->EstimateBuild(For(Tenant()).get(), request, &response));
      }
      default:
        return List();
    }
  }

  void List() {
    const int tenant = Tenant();
    v1::ListJobsRequest request;
    request.set_page_size(in_.Below(8) - 1);
    for (int pages = 0; pages < 50; ++pages) {
      v1::ListJobsResponse response;
      const grpc::Status status = h_.jobs->ListJobs(For(tenant).get(), request, &response);
      RequireDocumented(status);
      if (!status.ok() || response.next_page_token().empty()) return;
      request.set_page_token(in_.Below(8) == 0 ? Text(12) : response.next_page_token());
    }
  }

  void Watch() {
    const Known job = Pick(jobs_, "jobs/");
    const int tenant = Tenant();
    v1::WatchJobRequest request;
    request.set_name(job.name);
    request.set_first_event(in_.Below(5));
    request.set_with_solution(in_.Below(2) == 0);
    auto context = For(tenant);
    auto stream = h_.jobs->WatchJob(context.get(), request);
    v1::WatchJobResponse response;
    for (int events = in_.Below(6); events > 0 && stream->Read(&response);) --events;
    context->TryCancel();
    while (stream->Read(&response)) {
    }
    RequireDocumented(stream->Finish());
  }

  void Download() {
    const Known thing = Pick(preconditioners_, "preconditioners/");
    const int tenant = Tenant();
    v1::DownloadPreconditionerRequest request;
    request.set_name(thing.name);
    if (in_.Below(4) == 1) request.set_known_pattern(DiagonalPattern(1 + in_.Below(12)));
    auto context = For(tenant);
    auto stream = h_.preconditioners->DownloadPreconditioner(context.get(), request);
    v1::DownloadPreconditionerResponse response;
    while (stream->Read(&response)) {
    }
    RequireOwn(stream->Finish(), thing, tenant);
  }

  // Any bytes where a message should be.
  void Garbage() {
    static constexpr std::array kMethods = {"/spaid.v1.MatrixService/UploadMatrix",
                                            "/spaid.v1.SolverService/Solve",
                                            "/spaid.v1.PreconditionerService/BuildPreconditioner",
                                            "/spaid.v1.JobService/GetJob",
                                            "/spaid.v1.JobService/WatchJob",
                                            "/spaid.v1.ServerService/GetServerInfo"};
    const char* const method = kMethods[static_cast<size_t>(in_.Below(kMethods.size()))];
    grpc::GenericStub stub(h_.channel);
    grpc::CompletionQueue queue;
    auto context = For(Tenant());
    const auto call = stub.PrepareCall(context.get(), method, &queue);
    const std::string bytes = in_.Bytes(static_cast<size_t>(in_.Below(64)));
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer message(&slice, 1);
    void* tag = nullptr;
    bool ok = false;
    const auto wait = [&] { Require(queue.Next(&tag, &ok), "the client's queue ended"); };
    call->StartCall(nullptr);
    wait();
    if (ok) {
      call->WriteLast(message, {}, nullptr);
      wait();
    }
    grpc::ByteBuffer answer;
    do {
      call->Read(&answer, nullptr);
      wait();
    } while (ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    // A unary message that does not parse is gRPC's own to refuse: INTERNAL.
    if (status.error_code() != grpc::INTERNAL) RequireDocumented(status);
  }

  void Step() {
    switch (in_.Below(16)) {
      case 0:
      case 1:
      case 2:
        return OpenStream();
      case 3:
      case 4:
      case 5:
      case 6:
        return Send();
      case 7:
      case 8:
        return streams_.empty()
                   ? OpenStream()
                   : End(static_cast<size_t>(in_.Below(static_cast<int>(streams_.size()))), true);
      case 9:
        return streams_.empty() ? OpenStream() : End(0, false);
      case 10:
        return Unary();
      case 11:
        return Unary();
      case 12:
        return Watch();
      case 13:
        return Download();
      case 14:
        return Garbage();
      default:
        if (in_.Below(2) == 0) return h_.engine.ThrowFromEstimates("bad_alloc");
        h_.engine.FailBuilds(kernels::Status(kernels::StatusCode::kFailedPrecondition,
                                             "ZERO_COLUMN", "as the input wants"));
    }
  }

  // Nothing of it all is left; waits for what is on its way.
  void RequireQuiet() {
    Require(h_.backend->streams().WaitEmpty(steady_clock::now() + kPatience),
            "a stream stays open");
    for (const auto end = steady_clock::now() + kPatience;;) {
      const Scheduler::Load load = h_.backend->scheduler().load();
      if (load.queued == 0 && load.running == 0) break;
      Require(steady_clock::now() < end, "a job does not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    Require(h_.backend->matrices().stats().reserved_bytes == 0, "room is reserved in a store");
    static int inputs = 0;
    if (++inputs % 256 == 0) h_.ExpectLives();
    Require(!testing::UnitTest::GetInstance()->Failed(), "an expectation of the harness");
  }

  Input in_;
  Harness& h_;
  std::vector<Open> streams_;
  std::vector<Known> matrices_, preconditioners_, jobs_;
};

}  // namespace
}  // namespace spaid::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spaid::server::Session(spaid::fuzz::Input(data, size)).Run();
  return 0;
}
