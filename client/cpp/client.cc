// The public face: checks, unary calls, and the calls that begin with arrays.
#include "spaid/client.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/cpp/arrays.h"
#include "client/cpp/convert.h"
#include "client/cpp/impl.h"

namespace spaid {
namespace {

using internal::Call;
using internal::FromProto;
using internal::Repeat;
using internal::Replica;

constexpr int kPageSize = 200;
constexpr size_t kMaxPages = 100'000;
constexpr size_t kMaxListBytes = size_t{256} << 20;
// Uploads of one matrix in one call: the first, and once more where the server has lost it
// meanwhile.
constexpr int kMaxUploads = 2;

template <class Message>
std::optional<Error> ErrorOf(const Expected<Message>& result) {
  if (result.ok()) return std::nullopt;
  return result.error();
}

// All pages of a list. `page(token) -> Expected<Response>`; `add(response)` takes the items.
template <class Page, class Add>
std::optional<Error> AllPages(Page page, Add add) {
  std::string token;
  std::unordered_set<std::string> seen;
  size_t bytes = 0;
  do {
    auto response = page(token);
    if (!response.ok()) return response.error();
    bytes += response->ByteSizeLong();
    add(*response);
    token = response->next_page_token();
    if (!token.empty() &&
        (!seen.insert(token).second || seen.size() > kMaxPages || bytes > kMaxListBytes)) {
      return internal::ProtocolViolation("a list whose pages have no end");
    }
  } while (!token.empty());
  return std::nullopt;
}

}  // namespace

void internal::AddUpload(const Timings& upload, Timings& timings) {
  timings.upload_ms += upload.upload_ms;
  timings.bytes_up += upload.bytes_up;
  timings.total_ms += upload.total_ms;
}

bool internal::IsGone(const Error& error, const std::string& handle) {
  return error.code == Code::kNotFound &&
         (error.reason == "HANDLE_EVICTED" || error.reason == "HANDLE_UNKNOWN") &&
         std::find(error.metadata.begin(), error.metadata.end(),
                   std::pair<std::string, std::string>("handle", handle)) != error.metadata.end();
}

Client::Client(ClientOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Expected<ServerInfo> Client::GetServerInfo(const CallOptions& options) {
  if (impl_->broken) return *impl_->broken;
  auto response = impl_->Unary(Call(options), "", Repeat::kSafe, &Replica::server,
                               &v1::ServerService::Stub::GetServerInfo, v1::GetServerInfoRequest());
  if (!response.ok()) return response.error();
  return FromProto(*response);
}

Expected<std::shared_ptr<internal::SharedMemory>> Client::AllocateBytes(int64_t count,
                                                                        int64_t each) {
  if (impl_->broken) return *impl_->broken;
  if (count < 1 || count > std::numeric_limits<int64_t>::max() / each) {
    return internal::MakeError(Code::kInvalidArgument, internal::kBadOption,
                               "n is " + std::to_string(count) + "; it must be 0 or more", "n");
  }
  return internal::SharedMemory::Create(count * each, impl_->link);
}

LocalStatus Client::GetLocalStatus() { return impl_->link->Status(); }

Expected<MatrixInfo> Client::Upload(const CscView& a, const std::string& label,
                                    const CallOptions& options, Timings* timings) {
  Timings unwanted;
  return impl_->Upload(a, label, Call(options), timings ? *timings : unwanted);
}

Expected<MatrixInfo> Client::UploadValues(const std::string& same_pattern_as, const CscView& a,
                                          const std::string& label, const CallOptions& options,
                                          Timings* timings) {
  const Call call(options);
  Timings unwanted;
  Timings& told = timings ? *timings : unwanted;
  Expected<MatrixInfo> stored = impl_->Upload(a, label, call, told, same_pattern_as);
  if (stored.ok() || !internal::IsGone(stored.error(), same_pattern_as)) return stored;
  return impl_->Upload(a, label, call, told);
}

Expected<MatrixInfo> Client::UploadVectors(int64_t n, int count, std::span<const double> vectors,
                                           const std::string& label, const CallOptions& options) {
  const auto size = static_cast<int64_t>(vectors.size());
  if (n < 1 || count < 1 || count > n || size / count != n || size % count != 0) {
    return internal::MakeError(Code::kInvalidArgument, internal::kSizeMismatch,
                               "vectors has " + std::to_string(size) + " elements; " +
                                   std::to_string(count) + " vectors of " + std::to_string(n) +
                                   " are n * count, with 1 <= count <= n",
                               "vectors");
  }
  std::vector<int64_t> col_ptr(static_cast<size_t>(n) + 1, size);
  std::vector<int32_t> row_idx(vectors.size());
  for (int64_t k = 0; k < count; ++k) {
    col_ptr[static_cast<size_t>(k)] = k * n;
    std::iota(row_idx.begin() + k * n, row_idx.begin() + (k + 1) * n, 0);
  }
  return Upload({.n = n, .col_ptr = col_ptr, .row_idx = row_idx, .values = vectors}, label,
                options);
}

Expected<MatrixInfo> Client::Impl::GetMatrix(const std::string& name, const Call& call) {
  if (broken) return *broken;
  v1::GetMatrixRequest request;
  request.set_name(name);
  auto response = Unary(call, AffinityOf(name), Repeat::kSafe, &Replica::matrices,
                        &v1::MatrixService::Stub::GetMatrix, request);
  if (!response.ok()) return response.error();
  return FromProto(response->matrix());
}

Expected<MatrixInfo> Client::GetMatrix(const std::string& name, const CallOptions& options) {
  return impl_->GetMatrix(name, Call(options));
}

Expected<std::vector<MatrixInfo>> Client::ListMatrices(const CallOptions& options) {
  if (impl_->broken) return *impl_->broken;
  const Call call(options);
  std::vector<MatrixInfo> all;
  auto error = AllPages(
      [&](const std::string& token) {
        v1::ListMatricesRequest request;
        request.set_page_size(kPageSize);
        request.set_page_token(token);
        return impl_->Unary(call, "", Repeat::kSafe, &Replica::matrices,
                            &v1::MatrixService::Stub::ListMatrices, request);
      },
      [&](const v1::ListMatricesResponse& page) {
        for (const v1::Matrix& matrix : page.matrices()) all.push_back(FromProto(matrix));
      });
  if (error) return *std::move(error);
  return all;
}

std::optional<Error> Client::DeleteMatrix(const std::string& name, const CallOptions& options) {
  if (impl_->broken) return impl_->broken;
  v1::DeleteMatrixRequest request;
  request.set_name(name);
  return ErrorOf(impl_->Unary(Call(options), AffinityOf(name), Repeat::kOnlyIfRefused,
                              &Replica::matrices, &v1::MatrixService::Stub::DeleteMatrix, request));
}

Expected<BuildResult> Client::Build(const std::string& matrix, const PreconditionerSpec& spec,
                                    bool fetch_result, const CallOptions& options,
                                    const CscMatrix* known) {
  return impl_->Build(matrix, spec, fetch_result, known, Call(options));
}

Expected<BuildResult> Client::Build(const CscView& a, const PreconditionerSpec& spec,
                                    bool fetch_result, const CallOptions& options,
                                    const CscMatrix* known) {
  const Call call(options);
  for (int upload = 1;; ++upload) {
    Timings timings;
    Expected<MatrixInfo> matrix =
        impl_->Upload(a, "", call, timings, "", internal::AffinityBeside(spec));
    if (!matrix.ok()) return matrix.error();
    Expected<BuildResult> result = impl_->Build(matrix->name, spec, fetch_result, known, call);
    if (result.ok()) internal::AddUpload(timings, result->timings);
    if (result.ok() || !internal::IsGone(result.error(), matrix->name) || upload == kMaxUploads)
      return result;
  }
}

Expected<BuildEstimate> Client::Estimate(const std::string& matrix, const PreconditionerSpec& spec,
                                         const CallOptions& options) {
  if (impl_->broken) return *impl_->broken;
  v1::EstimateBuildRequest request;
  request.set_matrix(matrix);
  *request.mutable_spec() = internal::ToProto(spec);
  auto response =
      impl_->Unary(Call(options), AffinityOf(matrix), Repeat::kSafe, &Replica::preconditioners,
                   &v1::PreconditionerService::Stub::EstimateBuild, request);
  if (!response.ok()) return response.error();
  return FromProto(*response);
}

Expected<PreconditionerInfo> Client::GetPreconditioner(const std::string& name,
                                                       const CallOptions& options) {
  if (impl_->broken) return *impl_->broken;
  v1::GetPreconditionerRequest request;
  request.set_name(name);
  auto response =
      impl_->Unary(Call(options), AffinityOf(name), Repeat::kSafe, &Replica::preconditioners,
                   &v1::PreconditionerService::Stub::GetPreconditioner, request);
  if (!response.ok()) return response.error();
  return FromProto(response->preconditioner());
}

Expected<std::vector<PreconditionerInfo>> Client::ListPreconditioners(const CallOptions& options) {
  if (impl_->broken) return *impl_->broken;
  const Call call(options);
  std::vector<PreconditionerInfo> all;
  auto error = AllPages(
      [&](const std::string& token) {
        v1::ListPreconditionersRequest request;
        request.set_page_size(kPageSize);
        request.set_page_token(token);
        return impl_->Unary(call, "", Repeat::kSafe, &Replica::preconditioners,
                            &v1::PreconditionerService::Stub::ListPreconditioners, request);
      },
      [&](const v1::ListPreconditionersResponse& page) {
        for (const v1::Preconditioner& item : page.preconditioners())
          all.push_back(FromProto(item));
      });
  if (error) return *std::move(error);
  return all;
}

std::optional<Error> Client::DeletePreconditioner(const std::string& name,
                                                  const CallOptions& options) {
  if (impl_->broken) return impl_->broken;
  v1::DeletePreconditionerRequest request;
  request.set_name(name);
  return ErrorOf(impl_->Unary(Call(options), AffinityOf(name), Repeat::kOnlyIfRefused,
                              &Replica::preconditioners,
                              &v1::PreconditionerService::Stub::DeletePreconditioner, request));
}

Expected<CscMatrix> Client::Download(const std::string& preconditioner, const CallOptions& options,
                                     const CscMatrix* known) {
  return impl_->Download(preconditioner, nullptr, known, Call(options));
}

Expected<CscMatrix> Client::DownloadPart(const std::string& preconditioner, const Part& part,
                                         const CallOptions& options) {
  return impl_->Download(preconditioner, &part, nullptr, Call(options));
}

Expected<SolveResult> Client::Solve(const std::string& matrix, std::span<const double> b,
                                    const SolveOptions& solve, const CallOptions& options) {
  const Call call(options);
  Expected<int64_t> n = impl_->Order(matrix, call);
  if (!n.ok()) return n.error();
  return impl_->Solve({.matrix = matrix}, *n, b, solve, call);
}

Expected<SolveResult> Client::Solve(const CscView& a, std::span<const double> b,
                                    const SolveOptions& solve, const CallOptions& options) {
  const Call call(options);
  for (int upload = 1;; ++upload) {
    Timings timings;
    Expected<MatrixInfo> matrix = impl_->Upload(
        a, "", call, timings, "", internal::AffinityBeside(solve.spec, solve.preconditioner));
    if (!matrix.ok()) return matrix.error();
    Expected<SolveResult> result = impl_->Solve({.matrix = matrix->name}, a.n, b, solve, call);
    if (result.ok()) internal::AddUpload(timings, result->timings);
    if (result.ok() || !internal::IsGone(result.error(), matrix->name) || upload == kMaxUploads)
      return result;
  }
}

Expected<JobPage> Client::ListJobPage(const JobQuery& query, const CallOptions& options) {
  if (impl_->broken) return *impl_->broken;
  v1::ListJobsRequest request;
  request.set_page_size(query.page_size);
  request.set_page_token(query.page_token);
  if (query.state) request.set_state(internal::ToProto(*query.state));
  request.set_all_tenants(query.all_tenants);
  auto response = impl_->Unary(Call(options), "", Repeat::kSafe, &Replica::jobs,
                               &v1::JobService::Stub::ListJobs, request);
  if (!response.ok()) return response.error();
  JobPage page;
  for (const v1::Job& job : response->jobs()) page.jobs.push_back(FromProto(job));
  page.next_page_token = response->next_page_token();
  return page;
}

Expected<std::vector<JobInfo>> Client::ListJobs(std::optional<JobState> state,
                                                const CallOptions& options, bool all_tenants) {
  if (impl_->broken) return *impl_->broken;
  const Call call(options);
  std::vector<JobInfo> all;
  auto error = AllPages(
      [&](const std::string& token) {
        v1::ListJobsRequest request;
        request.set_page_size(kPageSize);
        request.set_page_token(token);
        if (state) request.set_state(internal::ToProto(*state));
        request.set_all_tenants(all_tenants);
        return impl_->Unary(call, "", Repeat::kSafe, &Replica::jobs,
                            &v1::JobService::Stub::ListJobs, request);
      },
      [&](const v1::ListJobsResponse& page) {
        for (const v1::Job& job : page.jobs()) all.push_back(FromProto(job));
      });
  if (error) return *std::move(error);
  return all;
}

}  // namespace spaid
