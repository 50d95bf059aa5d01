#include "tests/server/rpc/harness.h"

#include <chrono>
#include <fstream>

#include "google/protobuf/any.pb.h"

namespace spaid::server {
namespace {

template <class T>
bool Unpack(const google::protobuf::Any& any, T* out) {
  const std::string suffix = "/" + std::string(T::descriptor()->full_name());
  const std::string& url = any.type_url();
  return url.size() >= suffix.size() &&
         url.compare(url.size() - suffix.size(), suffix.size(), suffix) == 0 &&
         out->ParseFromString(any.value());
}

}  // namespace

ErrorView Decode(const grpc::Status& status) {
  ErrorView view;
  view.code = status.error_code();
  view.message = status.error_message();
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) ADD_FAILURE() << "undecodable details";
  if (!status.ok() && !details.details().empty()) {
    EXPECT_EQ(details.code(), static_cast<int>(status.error_code()));
    EXPECT_EQ(details.message(), status.error_message());
  }
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    google::rpc::BadRequest bad;
    if (Unpack(any, &info)) {
      EXPECT_EQ(info.domain(), "spaid");
      view.reason = info.reason();
      view.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (Unpack(any, &retry)) {
      view.retry_ms = static_cast<double>(retry.retry_delay().seconds()) * 1e3 +
                      retry.retry_delay().nanos() / 1e6;
    } else if (Unpack(any, &bad) && bad.field_violations_size() > 0) {
      view.field = bad.field_violations(0).field();
    }
  }
  return view;
}

Csc DiagonalMatrix(int64_t n, double first) {
  Csc a;
  a.n = n;
  for (int64_t j = 0; j < n; ++j) {
    a.pointers.push_back(j);
    a.indices.push_back(static_cast<int32_t>(j));
    a.values.push_back(first + static_cast<double>(j));
  }
  a.pointers.push_back(n);
  return a;
}

v1::MatrixHeader HeaderOf(const Csc& a) {
  v1::MatrixHeader header;
  header.set_n(a.n);
  header.set_nnz(a.nnz());
  header.set_layout(v1::LAYOUT_CSC);
  header.set_value_type(v1::VALUE_TYPE_FLOAT64);
  return header;
}

std::vector<v1::ArrayChunk> ChunksOf(const Csc& a) {
  return {ChunkOf(v1::ARRAY_KIND_POINTERS, 0, a.pointers),
          ChunkOf(v1::ARRAY_KIND_INDICES, 0, a.indices),
          ChunkOf(v1::ARRAY_KIND_VALUES, 0, a.values)};
}

v1::PreconditionerSpec Jacobi() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_JACOBI);
  return spec;
}
v1::PreconditionerSpec StaticSpai() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  return spec;
}
v1::PreconditionerSpec None() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_NONE);
  return spec;
}

BackendOptions Harness::SmallBackend() {
  BackendOptions options;
  options.version = "test";
  options.max_matrix_bytes = 1 << 20;
  options.matrix_store_bytes = 4 << 20;
  options.preconditioner_store_bytes = 4 << 20;
  options.plan_cache_bytes = 1 << 20;
  options.rhs_bytes = 64 << 20;
  options.threads = 1;
  options.slots = 1;  // so that a job that is held holds up those behind it
  options.streams.tick = std::chrono::milliseconds(5);
  return options;
}

Harness::Harness(Options options) : engine(options.devices) {
  const auto parse = [](const std::string& text) {
    if (text.empty()) return Tokens();
    auto parsed = Tokens::Parse(text);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return *std::move(parsed);
  };
  backend = std::make_unique<Backend>(
      options.backend, engine,
      Authenticator({.credentials_wanted = !options.tokens.empty() && !options.allow_anonymous,
                     .trust_tenant_header = options.trust_tenant_header},
                    parse(options.tokens), parse(options.admin_tokens)),
      &metrics);
  auto credentials = MakeServerCredentials(options.tls);
  EXPECT_TRUE(credentials.ok()) << credentials.status();
  options.server.address = "127.0.0.1:0";
  options.server.credentials = *credentials;
  auto started = RpcServer::Start(options.server, backend.get());
  EXPECT_TRUE(started.ok()) << started.status();
  server = *std::move(started);
  channel = NewChannel();
  matrices = v1::MatrixService::NewStub(channel);
  preconditioners = v1::PreconditionerService::NewStub(channel);
  solver = v1::SolverService::NewStub(channel);
  jobs = v1::JobService::NewStub(channel);
  info = v1::ServerService::NewStub(channel);
}

Harness::~Harness() {
  engine.Release();
  if (server != nullptr) server->Shutdown(std::chrono::milliseconds(2000));
}

std::shared_ptr<grpc::Channel> Harness::NewChannel(grpc::ChannelArguments arguments,
                                                   const std::string& address) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address.empty() ? server->address() : address,
                                   grpc::InsecureChannelCredentials(), arguments);
}

std::unique_ptr<grpc::ClientContext> Context(const std::string& tenant) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  if (!tenant.empty()) context->AddMetadata("x-spaid-tenant", tenant);
  return context;
}

Uploaded Harness::Upload(const v1::MatrixHeader& header, const std::vector<v1::ArrayChunk>& chunks,
                         const std::string& tenant) {
  Uploaded uploaded;
  UploadCall call = OpenUpload(*this, tenant);
  call.Head(header);
  for (const auto& chunk : chunks) call.Chunk(chunk);
  call.Done();
  uploaded.status = call.Finish(&uploaded.events);
  if (uploaded.status.ok() && !uploaded.events.empty()) {
    uploaded.matrix = uploaded.events.back().done().matrix();
  }
  return uploaded;
}

std::string Harness::Store(const Csc& a, const std::string& tenant) {
  const Uploaded uploaded = Upload(HeaderOf(a), ChunksOf(a), tenant);
  EXPECT_TRUE(uploaded.status.ok()) << uploaded.status.error_message();
  return uploaded.matrix.name();
}

void Harness::ExpectLives() {
  engine.Release();
  const Csc a = DiagonalMatrix(3, 2);
  const std::string matrix = Store(a);
  ASSERT_FALSE(matrix.empty());
  SolveCall call = OpenSolve(*this);
  call.Head(SolveOf(matrix, Jacobi()))
      .Chunk(ChunkOf(v1::ARRAY_KIND_RHS, 0, std::vector<double>{2, 6, 12}))
      .Done();
  std::vector<v1::SolveResponse> events;
  const grpc::Status status = call.Finish(&events);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_TRUE(events.back().has_done());
  EXPECT_EQ(events.back().done().outcomes(0).outcome(), v1::OUTCOME_CONVERGED);
  std::vector<double> x(3);
  for (const auto& event : events) {
    if (!event.has_chunk()) continue;
    ASSERT_EQ(event.chunk().data().size(), 24u);
    std::memcpy(x.data(), event.chunk().data().data(), 24);
  }
  EXPECT_EQ(x, (std::vector<double>{1, 2, 3}));
}

BuildCall OpenBuild(Harness& h, const std::string& tenant) {
  return BuildCall(Context(tenant), &v1::PreconditionerService::Stub::BuildPreconditioner,
                   *h.preconditioners);
}
SolveCall OpenSolve(Harness& h, const std::string& tenant) {
  return SolveCall(Context(tenant), &v1::SolverService::Stub::Solve, *h.solver);
}
UploadCall OpenUpload(Harness& h, const std::string& tenant) {
  return UploadCall(Context(tenant), &v1::MatrixService::Stub::UploadMatrix, *h.matrices);
}

v1::BuildHeader BuildOf(const std::string& matrix, const v1::PreconditionerSpec& spec) {
  v1::BuildHeader header;
  header.set_matrix(matrix);
  *header.mutable_spec() = spec;
  return header;
}

v1::SolveHeader SolveOf(const std::string& matrix, const v1::PreconditionerSpec& spec) {
  v1::SolveHeader header;
  header.set_matrix(matrix);
  *header.mutable_spec() = spec;
  header.set_method(v1::METHOD_AUTO);
  header.set_rtol(1e-8);
  return header;
}

v1::Job WaitEnded(Harness& h, const std::string& job, const std::string& tenant) {
  auto context = Context(tenant);
  v1::WatchJobRequest request;
  request.set_name(job);
  auto stream = h.jobs->WatchJob(context.get(), request);
  v1::WatchJobResponse response;
  v1::Job last;
  while (stream->Read(&response)) {
    if (response.event().has_finished()) last = response.event().finished().job();
  }
  const grpc::Status status = stream->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return last;
}

}  // namespace spaid::server
