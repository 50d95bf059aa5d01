#include "server/rpc/matrix_input.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/affinity.h"
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
                         const std::string& field, const char* of) {
  if (promised.empty() || DigestOf(promised) == actual) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kDigestMismatch,
                   absl::StrCat("the ", what, " digest of ", of, " is ", actual.ToHex(),
                                " and the header says ", DigestOf(promised).ToHex(),
                                "; digests are XXH3-128 in canonical form"))
      .Field(absl::StrCat(field, ".", what))
      .Meta("actual", actual.ToHex());
}

// Beside the arrays, by columns or not: what Prepare takes at most.
int64_t PreparationBytes(const v1::MatrixHeader& header) {
  const kernels::Layout layout =
      header.layout() == v1::LAYOUT_CSR ? kernels::Layout::kCsr : kernels::Layout::kCsc;
  return EngineAdapter::PrepareBytes(
      header.n(), header.nnz(), layout,
      {.sort_and_sum = header.sort_and_sum(), .pattern_only = header.pattern_only()});
}

}  // namespace

ContentClaim::ContentClaim(const v1::MatrixHeader& header, std::string_view affinity)
    : by_rows_(header.has_sent_digest()), pattern_only_(header.pattern_only()) {
  const v1::MatrixDigest& digest = by_rows_ ? header.sent_digest() : header.digest();
  if (digest.pattern().empty()) return;
  pattern_key_ = StoredPattern::Key(DigestOf(digest.pattern()), by_rows_);
  if (!digest.pattern_sha256().empty()) {
    pattern_sha256_ = DigestOf<Sha256>(digest.pattern_sha256());
  }
  if (digest.values().empty() && !pattern_only_) return;
  std::optional<Digest> values;
  if (!pattern_only_) values = DigestOf(digest.values());
  key_ = KeyUnder(Matrix::ContentKey(DigestOf(digest.pattern()), values, by_rows_), affinity);
  if (!digest.values_sha256().empty()) values_sha256_ = DigestOf<Sha256>(digest.values_sha256());
}

ContentClaim::Match ContentClaim::Matches(const StoredPattern& stored) const {
  const Sha256* known = stored.known_sha256(by_rows_);
  if (known == nullptr) return Match::kMaybe;
  return *known == *pattern_sha256_ ? Match::kYes : Match::kNo;
}

ContentClaim::Match ContentClaim::Matches(const Matrix& stored) const {
  if (stored.over != nullptr) {
    const Matrix::OverSha256* known = stored.known_over_sha256(by_rows_);
    if (pattern_only_) return Match::kNo;
    if (known == nullptr) return Match::kMaybe;
    return known->pattern == *pattern_sha256_ && known->values == *values_sha256_ ? Match::kYes
                                                                                  : Match::kNo;
  }
  const Match pattern = Matches(*stored.pattern);
  if (pattern == Match::kNo || pattern_only_ != stored.pattern_only) return Match::kNo;
  if (pattern_only_) return pattern;
  const Sha256* known = stored.known_values_sha256(by_rows_);
  if (known == nullptr) return Match::kMaybe;
  return *known == *values_sha256_ ? pattern : Match::kNo;
}

bool ContentClaim::Holds(Backend* backend, const std::string& tenant, const Matrix& stored) const {
  if (stored.over != nullptr) {
    stored.over_sha256(by_rows_,
                       [&] { return backend->adapter().HashOverRanks(stored, by_rows_); });
    return Matches(stored) == Match::kYes;
  }
  if (pattern_only_ != stored.pattern_only || !Holds(*stored.pattern)) return false;
  if (pattern_only_) return true;
  if (!by_rows_) return stored.values_sha256() == *values_sha256_;
  const auto places = backend->adapter().PlacesByRows(tenant, *stored.pattern, {});
  return places.ok() && stored.values_sha256_by_rows(**places) == *values_sha256_;
}

absl::StatusOr<FoundOfMatrix> FindOfMatrix(Backend* backend, const std::string& tenant,
                                           const v1::MatrixHeader& header,
                                           const ContentClaim& claim, std::string_view field,
                                           bool may_compute, kernels::StopToken stop) {
  using Match = ContentClaim::Match;
  FoundOfMatrix found;
  if (claim.strong() && !claim.key().empty()) {
    const MatrixStore::Same same = [&](const Matrix& stored) {
      const Match match = claim.Matches(stored);
      if (match == Match::kMaybe && !may_compute) found.more = true;
      return match == Match::kYes ||
             (match == Match::kMaybe && may_compute && claim.Holds(backend, tenant, stored));
    };
    MatrixStore& matrices = backend->matrices();
    found.content = may_compute ? matrices.FindOrLoad(tenant, claim.key(), same)
                                : matrices.Find(tenant, claim.key(), same);
    if (!may_compute && !found.content && matrices.Spilled(tenant, claim.key())) found.more = true;
    if (found.content || found.more) return found;
  }
  if (header.pattern_only()) return found;
  if (!header.same_pattern_as().empty()) {
    ASSIGN_OR_RETURN(Stored<Matrix> other,
                     backend->matrices().Look(tenant, header.same_pattern_as()));
    if (other.value == nullptr && !may_compute) {
      found.more = true;
      return found;
    }
    if (other.value == nullptr) {
      ASSIGN_OR_RETURN(other, backend->matrices().Load(tenant, header.same_pattern_as()));
    }
    if (const Matrix& of = *other.value; of.n() != header.n() || of.nnz() != header.nnz()) {
      return MakeError(absl::StatusCode::kInvalidArgument, reason::kPatternSizeMismatch,
                       absl::StrCat("the header says n = ", header.n(), ", nnz = ", header.nnz(),
                                    ", and the matrix of same_pattern_as has n = ", of.n(),
                                    ", nnz = ", of.nnz(),
                                    "; name a matrix with this very pattern, or none"))
          .Field(absl::StrCat(absl::string_view(field.data(), field.size()), ".same_pattern_as"));
    }
    if (other.value->over != nullptr) {
      found.pattern.over = other.value->over;
    } else {
      found.pattern.pattern = other.value->pattern;
    }
  } else if (!claim.pattern_key().empty()) {
    const std::function<bool(const StoredPattern&)> same = [&](const StoredPattern& stored) {
      // A header may claim the pattern of another size.
      if (stored.n() != header.n() || stored.nnz() != header.nnz()) return false;
      if (!claim.proves_pattern()) {
        found.pattern_hint = true;
        return false;
      }
      const Match match = claim.Matches(stored);
      if (match == Match::kMaybe && !may_compute) found.more = true;
      return match == Match::kYes || (match == Match::kMaybe && may_compute && claim.Holds(stored));
    };
    MatrixStore& matrices = backend->matrices();
    const bool may_read = may_compute && claim.proves_pattern();
    found.pattern.pattern =
        may_read ? matrices.FindPartOrLoad<StoredPattern>(tenant, claim.pattern_key(), same)
                 : matrices.FindPart<StoredPattern>(tenant, claim.pattern_key(), same);
    if (!may_read && !found.pattern.pattern &&
        matrices.Spilled(tenant, claim.pattern_key(), /*part=*/true)) {
      (claim.proves_pattern() ? found.more : found.pattern_hint) = true;
    }
  }
  const bool by_rows = header.layout() == v1::LAYOUT_CSR;
  if (!found.pattern.pattern || !by_rows) return found;
  if (header.nnz() > std::numeric_limits<int32_t>::max()) {
    found.pattern = {};  // no room for so large places
    return found;
  }
  if (!may_compute) {
    found.more = true;
    return found;
  }
  ASSIGN_OR_RETURN(found.pattern.places,
                   backend->adapter().PlacesByRows(tenant, *found.pattern.pattern, stop));
  backend->adapter().KeepPlaces(tenant, found.pattern);
  return found;
}

bool MatrixInput::GoesOverRanks(const Backend& backend, const v1::MatrixHeader& header) {
  const int64_t most =
      std::min(backend.options().max_matrix_bytes, backend.options().matrix_store_bytes);
  return backend.adapter().RanksBytes() > 0 && !header.pattern_only() &&
         (header.nnz() > most / 12 || PromisedBytes(header) > most);
}

absl::Status MatrixInput::Check(const Backend& backend, const v1::MatrixHeader& header,
                                std::string_view field) {
  const int64_t store = backend.options().matrix_store_bytes;
  if (header.n() > 0 && header.nnz() >= 0 && GoesOverRanks(backend, header)) {
    return CheckMatrixHeader(header, field, backend.adapter().RanksBytes());
  }
  RETURN_IF_ERROR(
      CheckMatrixHeader(header, field, std::min(backend.options().max_matrix_bytes, store)));
  // By rows, sorted, a matrix takes less, if its values come behind the pattern.
  const bool turns = header.layout() == v1::LAYOUT_CSR && !header.pattern_only() &&
                     !header.sort_and_sum() && header.nnz() <= std::numeric_limits<int32_t>::max();
  const int64_t work =
      turns ? EngineAdapter::TurnBytes(header.n(), header.nnz()) : PreparationBytes(header);
  if (work <= std::max(store - PromisedBytes(header), kUnbookedBytes)) return absl::OkStatus();
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

absl::StatusOr<std::shared_ptr<MatrixInput>> MatrixInput::Begin(
    Backend* backend, const std::string& tenant, const std::string& affinity,
    const v1::MatrixHeader& header, std::string_view field, KnownPattern known) {
  RETURN_IF_ERROR(Check(*backend, header, field));
  const bool over_ranks = GoesOverRanks(*backend, header);
  if (over_ranks ? known.pattern != nullptr : known.over != nullptr) {
    return MatrixOverRanks(over_ranks ? "the one of same_pattern_as does not; send all of it"
                                      : "this one does not; send all of it",
                           over_ranks ? "matrix" : "matrix of same_pattern_as")
        .Field(absl::StrCat(absl::string_view(field.data(), field.size()), ".same_pattern_as"));
  }
  const int64_t bytes = over_ranks      ? SpreadReceiver::Bytes(header)
                        : known.pattern ? 8 * header.nnz()
                                        : PromisedBytes(header);
  ASSIGN_OR_RETURN(Reservation reservation, backend->matrices().Reserve(tenant, bytes));
  return std::shared_ptr<MatrixInput>(new MatrixInput(backend, tenant, affinity, header, field,
                                                      std::move(reservation), std::move(known)));
}

MatrixInput::MatrixInput(Backend* backend, std::string tenant, std::string affinity,
                         const v1::MatrixHeader& header, std::string_view field,
                         Reservation reservation, KnownPattern known)
    : backend_(backend),
      tenant_(std::move(tenant)),
      affinity_(std::move(affinity)),
      header_(header),
      field_(field),
      reservation_(std::move(reservation)),
      spread_(GoesOverRanks(*backend, header_)
                  ? std::make_unique<SpreadReceiver>(
                        backend->adapter(), header_, std::exchange(known.over, nullptr),
                        [backend, tenant = tenant_] { return backend->GiveUpOverRanks(tenant); })
                  : nullptr),
      receiver_(header_, std::move(known)),
      pattern_was_here_(receiver_.known().pattern != nullptr),
      look_aside_(backend->look_aside(/*sender_idle=*/false)),
      may_send_ahead_(pattern_was_here_ && receiver_.known().places == nullptr) {}

void MatrixInput::SenderIsIdle() { look_aside_ = backend_->look_aside(/*sender_idle=*/true); }

absl::Status MatrixInput::Add(const ChunkView& chunk, std::shared_ptr<void> stream) {
  backend_->metrics().BytesReceived(chunk.bytes);
  if (spread_ != nullptr) {
    return spread_->Add(chunk, [this](int64_t bytes) { return reservation_.Arrive(bytes); });
  }
  RETURN_IF_ERROR(
      receiver_.Add(chunk, [this](int64_t bytes) { return reservation_.Arrive(bytes); }));
  if (look_aside_) {
    SendAhead();
    LookAside(std::move(stream));
  } else {
    receiver_.LookAtNew();
  }
  return absl::OkStatus();
}

// Beside the thread that receives alone: it would take that longer than it spares others.
void MatrixInput::SendAhead() {
  if (!std::exchange(may_send_ahead_, false)) return;
  receiver_.SendAhead(backend_->adapter().BeginAhead(tenant_, receiver_.known().pattern));
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

absl::Status MatrixInput::BookWork(int64_t bytes) {
  const int64_t more = bytes - work_bytes_;
  if (bytes <= kUnbookedBytes || more <= 0) return absl::OkStatus();
  RETURN_IF_ERROR(reservation_.Extend(more));
  work_bytes_ = bytes;
  return absl::OkStatus();
}

PrepareOptions MatrixInput::Options(ArrayFacts arrived, kernels::StopToken stop) const {
  return {.sort_and_sum = header_.sort_and_sum(),
          .pattern_only = header_.pattern_only(),
          .arrived = arrived,
          .label = header_.label(),
          .stop = std::move(stop)};
}

std::shared_ptr<const StoredPattern> MatrixInput::Shared(
    std::shared_ptr<const StoredPattern> pattern, const std::optional<Digest>& by_rows) {
  std::vector<std::string> keys{StoredPattern::Key(pattern->digest(), false)};
  if (by_rows) keys.push_back(StoredPattern::Key(*by_rows, true));
  return backend_->matrices().ShareByKeys<StoredPattern>(
      tenant_, pattern, keys,
      [&mine = *pattern](const StoredPattern& known) { return mine.SameContent(known); });
}

absl::Status MatrixInput::Turn(kernels::StopToken stop) {
  if (spread_ != nullptr) return spread_->Flush();
  const ArrayFacts arrived = receiver_.Look();
  const PrepareOptions options = Options(arrived, std::move(stop));
  ASSIGN_OR_RETURN(const bool sorted, backend_->adapter().CheckRows(receiver_.rows(), options));
  if (!sorted) {
    in_order_ = true;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(BookWork(EngineAdapter::TurnBytes(header_.n(), header_.nnz())));
  ASSIGN_OR_RETURN(KnownPattern known, backend_->adapter().TurnRows(receiver_.TakeRows(), options));
  known.pattern = Shared(std::move(known.pattern), arrived.digests.pattern);
  // Its places are kept when other values come: most patterns come once.
  receiver_.Know(std::move(known));
  return absl::OkStatus();
}

absl::Status MatrixInput::CheckDigests(const Matrix& matrix, const ArrayFacts& arrived) const {
  const auto check = [this](const v1::MatrixDigest& promised, const char* name,
                            const std::optional<Digest>& pattern,
                            const std::optional<Digest>& values, const char* of) -> absl::Status {
    const std::string field = absl::StrCat(field_, ".", name);
    if (pattern) {
      RETURN_IF_ERROR(CheckDigest(promised.pattern(), *pattern, "pattern", field, of));
    }
    if (values) RETURN_IF_ERROR(CheckDigest(promised.values(), *values, "values", field, of));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(check(header_.digest(), "digest", matrix.pattern->digest(), matrix.value_digest,
                        "the sorted CSC as stored"));
  // Arrays that did not come were found by these digests, or vouched for.
  return check(header_.sent_digest(), "sent_digest", arrived.digests.pattern,
               arrived.digests.values, "the arrays by rows as they came");
}

absl::StatusOr<Stored<Matrix>> MatrixInput::Store(kernels::StopToken stop) {
  if (spread_ != nullptr) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Matrix> there,
                     spread_->Finish(Options({}, std::move(stop))));
    const int64_t own_bytes = there->bytes();
    // As it came: rank 0 knows no other form. Nobody asks by that of entries that had to be sorted.
    ArrayDigests came = spread_->digests();
    const bool by_rows = header_.layout() == v1::LAYOUT_CSR;
    const std::string& promised =
        by_rows ? header_.sent_digest().pattern() : header_.digest().pattern();
    if (!came.pattern && !promised.empty()) came.pattern = DigestOf(promised);
    const std::string key =
        came.pattern ? KeyUnder(Matrix::ContentKey(*came.pattern, came.values, by_rows), affinity_)
                     : "";
    const auto same = [this, &mine = *there](const Matrix& stored) {
      return backend_->adapter().SameOverRanks(mine, stored);
    };
    return backend_->matrices().Put(tenant_, std::move(there), own_bytes, key,
                                    std::move(reservation_), same, affinity_);
  }
  ASSIGN_OR_RETURN(const kernels::Layout layout, ParseLayout(header_.layout(), field_));
  KnownPattern known = receiver_.known();
  const bool turned = known.pattern != nullptr;
  RETURN_IF_ERROR(BookWork(turned ? EngineAdapter::DiagnoseBytes(header_.n(), header_.nnz())
                                  : PreparationBytes(header_)));
  std::shared_ptr<ValuesAhead> ahead;
  const ArrayFacts arrived = receiver_.Look(&ahead);
  const PrepareOptions options = Options(arrived, std::move(stop));
  std::shared_ptr<Matrix> matrix;
  if (turned) {
    kernels::Array<double> values = receiver_.Take().values;
    ASSIGN_OR_RETURN(
        matrix, backend_->adapter().PrepareValues(std::move(known), std::move(values), options));
  } else {
    ASSIGN_OR_RETURN(matrix, backend_->adapter().Prepare(receiver_.Take(), layout, options));
  }
  RETURN_IF_ERROR(CheckDigests(*matrix, arrived));
  if (pattern_was_here_) {
    backend_->metrics().BytesSaved("pattern", PromisedBytes(header_) - 8 * header_.nnz());
  }
  matrix->ahead = std::move(ahead);
  const ContentClaim claim(header_, affinity_);
  std::vector<std::string> keys{KeyUnder(matrix->ContentKey(), affinity_)};
  // By rows, if they were sorted: so they may be asked for again.
  const bool by_rows = layout == kernels::Layout::kCsr && !in_order_ && arrived.digests.values &&
                       (turned || arrived.known.canonical_indices);
  std::optional<Digest> rows_digest;
  if (by_rows) {
    rows_digest = arrived.digests.pattern;
    if (!rows_digest && claim.by_rows() && header_.same_pattern_as().empty())
      rows_digest = DigestOf(header_.sent_digest().pattern());
    if (rows_digest) {
      keys.push_back(
          KeyUnder(Matrix::ContentKey(*rows_digest, arrived.digests.values, true), affinity_));
    }
  }
  if (!turned) matrix->pattern = Shared(std::move(matrix->pattern), rows_digest);
  const auto same = [this, &mine = *matrix](const Matrix& stored) {
    if (mine.SameContent(stored)) return true;
    // Nobody meets that by chance.
    Log(LogLevel::kWarning, "digest_forged",
        {{"tenant", tenant_}, {"label", stored.label}, {"other_label", mine.label}});
    return false;
  };
  const HandleTable::Part part{matrix->pattern, matrix->pattern->bytes()};
  const int64_t bytes = matrix->own_bytes();
  return backend_->matrices().Put(tenant_, std::move(matrix), bytes, keys, std::move(reservation_),
                                  same, part, affinity_);
}

}  // namespace spaid::server
