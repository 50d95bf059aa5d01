#include "server/rpc/matrix_input.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/backend.h"

namespace spaid::server {
namespace {

// Less than this is taken without being booked, by as many threads as prepare matrices.
constexpr int64_t kUnbookedBytes = 1 << 20;

// `bytes`: as many as D has (CheckMatrixHeader saw to it).
template <class D = Digest>
D DigestOf(const std::string& bytes) {
  D digest;
  std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

absl::Status CheckDigest(const std::string& promised, const Digest& actual, const char* what,
                         const std::string& field) {
  if (promised.empty() || DigestOf(promised) == actual) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kDigestMismatch,
                   absl::StrCat("the ", what, " digest of the matrix as stored is ", actual.ToHex(),
                                " and the header says ", DigestOf(promised).ToHex(),
                                "; digests are XXH3-128 over the sorted CSC in canonical form"))
      .Field(absl::StrCat(field, ".digest.", what))
      .Meta("actual", actual.ToHex());
}

}  // namespace

ContentClaim::ContentClaim(const v1::MatrixHeader& header) {
  const v1::MatrixDigest& digest = header.digest();
  const bool pattern_only = header.pattern_only();
  if (digest.pattern().empty() || (digest.values().empty() && !pattern_only)) return;
  std::optional<Digest> values;
  if (!pattern_only) values = DigestOf(digest.values());
  key_ = Matrix::ContentKey(DigestOf(digest.pattern()), values);
  if (digest.pattern_sha256().empty() || (digest.values_sha256().empty() && !pattern_only)) return;
  sha256_.emplace();
  sha256_->pattern = DigestOf<Sha256>(digest.pattern_sha256());
  if (!pattern_only) sha256_->values = DigestOf<Sha256>(digest.values_sha256());
}

ContentClaim::Match ContentClaim::Matches(const Matrix& stored) const {
  const Matrix::ContentSha256* known = stored.known_sha256();
  if (known == nullptr) return Match::kMaybe;
  return *known == *sha256_ ? Match::kYes : Match::kNo;
}

absl::Status MatrixInput::Check(const Backend& backend, const v1::MatrixHeader& header,
                                std::string_view field) {
  const int64_t store = backend.options().matrix_store_bytes;
  RETURN_IF_ERROR(
      CheckMatrixHeader(header, field, std::min(backend.options().max_matrix_bytes, store)));
  const int64_t work = WorkBytes(header);
  if (work <= store - PromisedBytes(header)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kMatrixTooLarge,
                   absl::StrCat("the matrix takes ", PromisedBytes(header), " bytes, and ", work,
                                " more while it is validated and diagnosed; together they are "
                                "over the limit of ",
                                store,
                                " (--matrix-store-bytes of the daemon); send it by columns, "
                                "sorted, or a smaller one"))
      .Field(absl::StrCat(absl::string_view(field.data(), field.size()), ".nnz"))
      .Meta("limit", store)
      .Meta("actual", PromisedBytes(header) + work);
}

int64_t MatrixInput::WorkBytes(const v1::MatrixHeader& header) {
  const kernels::Layout layout =
      header.layout() == v1::LAYOUT_CSR ? kernels::Layout::kCsr : kernels::Layout::kCsc;
  const int64_t bytes = EngineAdapter::PrepareBytes(
      header.n(), header.nnz(), layout,
      {.sort_and_sum = header.sort_and_sum(), .pattern_only = header.pattern_only()});
  return bytes > kUnbookedBytes ? bytes : 0;
}

absl::StatusOr<std::shared_ptr<MatrixInput>> MatrixInput::Begin(Backend* backend,
                                                                const std::string& tenant,
                                                                const v1::MatrixHeader& header,
                                                                std::string_view field) {
  RETURN_IF_ERROR(Check(*backend, header, field));
  ASSIGN_OR_RETURN(Reservation reservation,
                   backend->matrices().Reserve(tenant, PromisedBytes(header)));
  return std::shared_ptr<MatrixInput>(
      new MatrixInput(backend, tenant, header, field, std::move(reservation)));
}

MatrixInput::MatrixInput(Backend* backend, std::string tenant, const v1::MatrixHeader& header,
                         std::string_view field, Reservation reservation)
    : backend_(backend),
      tenant_(std::move(tenant)),
      header_(header),
      field_(field),
      reservation_(std::move(reservation)),
      receiver_(header_) {}

absl::Status MatrixInput::Add(const ChunkView& chunk, std::shared_ptr<void> stream) {
  backend_->metrics().BytesReceived(chunk.bytes);
  RETURN_IF_ERROR(
      receiver_.Add(chunk, [this](int64_t bytes) { return reservation_.Arrive(bytes); }));
  if (backend_->look_aside()) {
    LookAside(std::move(stream));
  } else {
    receiver_.LookAtNew();
  }
  return absl::OkStatus();
}

void MatrixInput::LookAside(std::shared_ptr<void> stream) {
  if (looking_.exchange(true)) return;  // it will come by what is new
  auto look = [self = shared_from_this(), stream = std::move(stream)]() mutable {
    do {
      self->receiver_.LookAtNew();
      self->looking_ = false;
    } while (self->receiver_.HasNew() && !self->looking_.exchange(true));
    self.reset();  // with its room in the store, before the stream leaves the registry
    stream.reset();
  };
  // If that fails, or there is no room for it, Store looks at the rest.
  const bool runs =
      backend_->Run(Backend::Pool::kLook, tenant_, std::move(look), [](const absl::Status&) {})
          .ok();
  if (!runs) looking_ = false;
}

absl::StatusOr<Stored<Matrix>> MatrixInput::Store(kernels::StopToken stop) {
  ASSIGN_OR_RETURN(const kernels::Layout layout, ParseLayout(header_.layout(), field_));
  if (const int64_t work = WorkBytes(header_); work > 0) {
    RETURN_IF_ERROR(reservation_.Extend(work));
  }
  ArrayFacts arrived = receiver_.Look();
  ASSIGN_OR_RETURN(std::shared_ptr<const Matrix> matrix,
                   backend_->adapter().Prepare(receiver_.Take(), layout,
                                               {.sort_and_sum = header_.sort_and_sum(),
                                                .pattern_only = header_.pattern_only(),
                                                .arrived = arrived,
                                                .label = header_.label(),
                                                .stop = std::move(stop)}));
  RETURN_IF_ERROR(
      CheckDigest(header_.digest().pattern(), matrix->pattern_digest, "pattern", field_));
  if (matrix->value_digest) {
    RETURN_IF_ERROR(
        CheckDigest(header_.digest().values(), *matrix->value_digest, "values", field_));
  }
  const int64_t bytes = matrix->bytes();
  const std::string key = matrix->ContentKey();
  const auto same = [this, &mine = *matrix](const Matrix& stored) {
    if (mine.SameContent(stored)) return true;
    // Nobody meets that by chance.
    Log(LogLevel::kWarning, "digest_forged",
        {{"tenant", tenant_}, {"label", stored.label}, {"other_label", mine.label}});
    return false;
  };
  return backend_->matrices().Put(tenant_, matrix, bytes, key, std::move(reservation_), same);
}

}  // namespace spaid::server
