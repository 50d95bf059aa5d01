#include "server/rpc/matrix_input.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/backend.h"

namespace spaid::server {
namespace {

// `bytes`: 16 of them (CheckMatrixHeader saw to it).
Digest DigestOf(const std::string& bytes) {
  Digest digest;
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

std::string ContentKeyOf(const v1::MatrixHeader& header) {
  const v1::MatrixDigest& digest = header.digest();
  if (digest.pattern().empty() || (digest.values().empty() && !header.pattern_only())) return "";
  std::optional<Digest> values;
  if (!header.pattern_only()) values = DigestOf(digest.values());
  return Matrix::ContentKey(DigestOf(digest.pattern()), values);
}

absl::Status MatrixInput::Check(const Backend& backend, const v1::MatrixHeader& header,
                                std::string_view field) {
  return CheckMatrixHeader(
      header, field,
      std::min(backend.options().max_matrix_bytes, backend.options().matrix_store_bytes));
}

absl::StatusOr<std::shared_ptr<MatrixInput>> MatrixInput::Begin(Backend* backend,
                                                                const std::string& tenant,
                                                                const v1::MatrixHeader& header,
                                                                std::string_view field) {
  RETURN_IF_ERROR(Check(*backend, header, field));
  ASSIGN_OR_RETURN(Reservation reservation, backend->matrices().Reserve(PromisedBytes(header)));
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
  // Room first: the receiver commits the memory. A chunk that it would refuse is not counted.
  const bool widened =
      chunk.array == v1::ARRAY_KIND_VALUES && header_.value_type() == v1::VALUE_TYPE_FLOAT32;
  const int64_t stored = widened ? 2 * chunk.bytes : chunk.bytes;
  if (MatrixReceiver::Takes(chunk.array) &&
      stored <= reservation_.bytes() - reservation_.arrived()) {
    RETURN_IF_ERROR(reservation_.Arrive(stored));
  }
  RETURN_IF_ERROR(receiver_.Add(chunk));
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
  // Where that fails, or there is no room for it, Store looks at the rest.
  const bool runs =
      backend_->Run(Backend::Lane::kLook, tenant_, std::move(look), [](const absl::Status&) {})
          .ok();
  if (!runs) looking_ = false;
}

absl::StatusOr<Stored<Matrix>> MatrixInput::Store(kernels::StopToken stop) {
  ASSIGN_OR_RETURN(const kernels::Layout layout, ParseLayout(header_.layout(), field_));
  Arrived arrived = receiver_.Look();
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
  std::string key = matrix->ContentKey();
  return backend_->matrices().Put(tenant_, std::move(matrix), bytes, key, std::move(reservation_));
}

}  // namespace spaid::server
