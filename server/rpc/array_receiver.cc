#include "server/rpc/array_receiver.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/digest.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/base/text.h"

namespace spaid::server {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// Up to so many bytes an array is taken for a promise.
constexpr int64_t kPromiseBytes = 1 << 20;

constexpr size_t kMaxLabelBytes = 200;
constexpr size_t kDigestBytes = 16;
constexpr size_t kSha256Bytes = 32;

std::string NameOf(v1::ArrayKind kind) {
  switch (kind) {
    case v1::ARRAY_KIND_POINTERS:
      return "pointers";
    case v1::ARRAY_KIND_INDICES:
      return "indices";
    case v1::ARRAY_KIND_VALUES:
      return "values";
    case v1::ARRAY_KIND_RHS:
      return "rhs";
    case v1::ARRAY_KIND_INITIAL_GUESS:
      return "initial_guess";
    default:
      return absl::StrCat("array ", static_cast<int>(kind));
  }
}

ErrorBuilder Bad(std::string_view why, v1::ArrayKind kind, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, why, absl::StrCat(NameOf(kind), ": ", what))
      .Meta("array", NameOf(kind));
}

absl::Status BadHeader(std::string_view why, std::string_view field, const char* name,
                       const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, why, absl::StrCat(name, " ", what))
      .Field(absl::StrCat(absl::string_view(field.data(), field.size()), ".", name));
}

// Returns the CRC-32 of the whole, or 0 where nobody asks for it: taken piece by piece, while each
// is in the cache.
uint32_t CopyPieces(const ChunkView& chunk, char* to) {
  uint32_t crc = 0;
  for (const std::string_view piece : chunk.pieces) {
    std::memcpy(to, piece.data(), piece.size());
    if (chunk.crc32) crc = Crc32({to, piece.size()}, crc);
    to += piece.size();
  }
  return crc;
}

// The same of float32, whose pieces may end within an element.
template <class T>
uint32_t WidenPieces(const ChunkView& chunk, T* to) {
  uint32_t crc = 0;
  char element[4];
  size_t have = 0;  // bytes of `element`
  const auto widen = [&to](const char* from) {
    float value;
    std::memcpy(&value, from, 4);
    *to++ = static_cast<T>(value);
  };
  for (std::string_view piece : chunk.pieces) {
    if (chunk.crc32) crc = Crc32(piece, crc);
    if (have > 0) {
      const size_t more = std::min(4 - have, piece.size());
      std::memcpy(element + have, piece.data(), more);
      piece.remove_prefix(more);
      have += more;
      if (have < 4) continue;
      widen(element);
    }
    size_t at = 0;
    for (; at + 4 <= piece.size(); at += 4) widen(piece.data() + at);
    have = piece.size() - at;
    std::memcpy(element, piece.data() + at, have);
  }
  return crc;
}

}  // namespace

template <class T>
absl::Status ArrayReceiver<T>::Check(const ChunkView& chunk) const {
  const int64_t element = from_float32_ ? 4 : static_cast<int64_t>(sizeof(T));
  if (chunk.bytes == 0 || chunk.bytes % element != 0) {
    return Bad(reason::kChunkNotWhole, kind_,
               absl::StrCat("the chunk at element ", chunk.offset, " has ", chunk.bytes,
                            " bytes; send a positive multiple of ", element))
        .Field("chunk.data")
        .Index(chunk.offset);
  }
  if (chunk.offset != received_) {
    return Bad(reason::kChunkOutOfOrder, kind_,
               absl::StrCat("a chunk begins at element ", chunk.offset, ", but the next one is ",
                            received_, "; send the chunks of an array in order, each once"))
        .Field("chunk.offset")
        .Index(chunk.offset)
        .Meta("expected", received_);
  }
  const int64_t count = chunk.bytes / element;
  if (count > size_ - received_) {
    return Bad(reason::kChunkBeyondEnd, kind_,
               absl::StrCat("the chunk at element ", chunk.offset, " has ", count,
                            " elements and the array only ", size_,
                            "; the header and the arrays must agree"))
        .Field("chunk.data")
        .Index(size_)
        .Meta("size", size_);
  }
  return absl::OkStatus();
}

// Room in data_ for so many elements.
template <class T>
absl::Status ArrayReceiver<T>::MakeRoom(int64_t elements, BookBytes book) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(T));
  auto room = data_ ? static_cast<int64_t>(data_->size()) : 0;
  bool committed = committed_;
  std::shared_ptr<kernels::Array<T>> larger;
  if (scatters()) elements = size_;  // they go everywhere
  if (elements > room) {
    const int64_t promise = kPromiseBytes / kElement;
    const bool whole = elements > promise || size_ <= 2 * elements;
    room = whole ? size_ : std::min(2 * elements, promise);
    try {
      const size_t reused = kernels::ReusedLargeBytes();
      larger = std::make_shared<kernels::Array<T>>(static_cast<size_t>(room));
      committed = kernels::ReusedLargeBytes() != reused;
    } catch (const std::bad_alloc&) {
      return MakeError(absl::StatusCode::kResourceExhausted, reason::kOutOfMemory,
                       absl::StrCat("no memory for ", room, " elements of ", NameOf(kind_),
                                    "; the server is short of memory, try later"));
    }
  }
  const auto touched = static_cast<size_t>((committed ? room : elements) * kElement);
  const auto bytes =
      static_cast<int64_t>(kernels::CommittedBytes(static_cast<size_t>(room * kElement), touched));
  if (bytes > booked_) {
    RETURN_IF_ERROR(book(bytes - booked_));
    booked_ = bytes;
  }
  if (larger == nullptr) return absl::OkStatus();
  const std::span<const T> come = so_far();
  if (!come.empty()) std::memcpy(larger->data(), come.data(), come.size_bytes());
  data_ = std::move(larger);
  committed_ = committed;
  return absl::OkStatus();
}

template <class T>
absl::Status ArrayReceiver<T>::Add(const ChunkView& chunk, BookBytes book) {
  RETURN_IF_ERROR(Check(chunk));
  const int64_t count = chunk.bytes / (from_float32_ ? 4 : static_cast<int64_t>(sizeof(T)));
  if (!passes_) RETURN_IF_ERROR(MakeRoom(received_ + count, book));
  // Into its place at once, and checked there: a chunk that is refused now stands beyond the
  // elements that count as received.
  const bool aside = scatters() || passes_;
  if (aside) last_.resize(static_cast<size_t>(count));
  T* const to = aside ? last_.data() : data_->data() + received_;
  if (chunk.read) RETURN_IF_ERROR(chunk.read(reinterpret_cast<char*>(to)));
  const uint32_t crc =
      from_float32_ ? WidenPieces(chunk, to) : CopyPieces(chunk, reinterpret_cast<char*>(to));
  RETURN_IF_ERROR(CheckCrc(chunk, crc));
  if (scatters()) {
    const int32_t* const places = places_.data() + received_;
    T* const data = data_->data();
    for (size_t i = 0; i < last_.size(); ++i) data[places[i]] = last_[i];
  }
  received_ += count;
  return absl::OkStatus();
}

template <class T>
absl::Status ArrayReceiver<T>::CheckCrc(const ChunkView& chunk, uint32_t crc) const {
  if (!chunk.crc32 || crc == *chunk.crc32) return absl::OkStatus();
  return Bad(reason::kChecksumMismatch, kind_,
             absl::StrCat("the chunk at element ", chunk.offset, " has CRC-32 ", crc, " and says ",
                          *chunk.crc32,
                          "; it was damaged on its way (or the CRC is not zlib's): send it again"))
      .Field("chunk.crc32")
      .Index(chunk.offset);
}

template <class T>
absl::Status ArrayReceiver<T>::CheckComplete() const {
  if (complete()) return absl::OkStatus();
  return Bad(reason::kArrayIncomplete, kind_,
             absl::StrCat("the input ended after ", received_, " of ", size_,
                          " elements; send the rest before the half-close"))
      .Field("chunk")
      .Index(received_)
      .Meta("received", received_)
      .Meta("size", size_);
}

template <class T>
kernels::Array<T> ArrayReceiver<T>::Take() {
  received_ = booked_ = 0;
  return data_ ? std::move(*std::exchange(data_, nullptr)) : kernels::Array<T>();
}

template class ArrayReceiver<int64_t>;
template class ArrayReceiver<int32_t>;
template class ArrayReceiver<double>;

MatrixReceiver::MatrixReceiver(const v1::MatrixHeader& header, KnownPattern known)
    : n_(header.n()),
      pattern_only_(header.pattern_only()),
      turns_(header.layout() == v1::LAYOUT_CSR && !pattern_only_ &&
             header.nnz() <= std::numeric_limits<int32_t>::max()),
      pointers_(v1::ARRAY_KIND_POINTERS, known.pattern ? 0 : header.n() + 1),
      indices_(v1::ARRAY_KIND_INDICES, known.pattern ? 0 : header.nnz()),
      values_(v1::ARRAY_KIND_VALUES, header.pattern_only() ? 0 : header.nnz(),
              header.value_type() == v1::VALUE_TYPE_FLOAT32),
      look_(header.n(), header.nnz()) {
  if (known.pattern) Know(std::move(known));
}

void MatrixReceiver::Know(KnownPattern known) {
  known_ = std::move(known);
  if (known_.places) values_.Scatter(*known_.places);
}

bool MatrixReceiver::MayEndRows(const ChunkView& chunk) const {
  if (!turns_ || known_.pattern || values_.received() > 0) return false;
  return chunk.array == v1::ARRAY_KIND_INDICES
             ? pointers_.complete() && indices_.received() + chunk.bytes / 4 >= indices_.size()
             : chunk.array == v1::ARRAY_KIND_POINTERS && indices_.complete() &&
                   pointers_.received() + chunk.bytes / 8 >= pointers_.size();
}

bool MatrixReceiver::rows_complete() const {
  return turns_ && !known_.pattern && values_.received() == 0 && pointers_.complete() &&
         indices_.complete();
}

kernels::PatternView MatrixReceiver::rows() const {
  return {n_, n_, pointers_.so_far(), indices_.so_far()};
}

kernels::Pattern MatrixReceiver::TakeRows() {
  {
    const std::lock_guard lock(come_mutex_);
    come_ = {};
  }
  kernels::Pattern rows{n_, n_, pointers_.Take(), indices_.Take()};
  pointers_ = {v1::ARRAY_KIND_POINTERS, 0};
  indices_ = {v1::ARRAY_KIND_INDICES, 0};
  return rows;
}

bool MatrixReceiver::Takes(v1::ArrayKind kind) {
  return kind == v1::ARRAY_KIND_POINTERS || kind == v1::ARRAY_KIND_INDICES ||
         kind == v1::ARRAY_KIND_VALUES;
}

absl::Status MatrixReceiver::Add(const ChunkView& chunk, BookBytes book) {
  if (known_.pattern && chunk.array != v1::ARRAY_KIND_VALUES && Takes(chunk.array)) {
    return UnexpectedArray(chunk, "values alone: the pattern is here");
  }
  switch (chunk.array) {
    case v1::ARRAY_KIND_POINTERS:
      RETURN_IF_ERROR(pointers_.Add(chunk, book));
      break;
    case v1::ARRAY_KIND_INDICES:
      RETURN_IF_ERROR(indices_.Add(chunk, book));
      break;
    case v1::ARRAY_KIND_VALUES:
      if (pattern_only_) return UnexpectedArray(chunk, "no values: the header says pattern_only");
      RETURN_IF_ERROR(values_.Add(chunk, book));
      break;
    default:
      return UnexpectedArray(chunk, "pointers, indices or values");
  }
  bytes_up_ += chunk.bytes;
  if (values_.scatters()) {
    const std::lock_guard lock(look_mutex_);
    look_.LookAtValues(values_.last());
    return absl::OkStatus();
  }
  Arrays come{pointers_.so_far(),
              indices_.so_far(),
              values_.so_far(),
              {pointers_.hold(), indices_.hold(), values_.hold()},
              values_.in_place()};
  const std::lock_guard lock(come_mutex_);
  std::swap(come_, come);
  return absl::OkStatus();
}

MatrixReceiver::Arrays MatrixReceiver::Come() const {
  const std::lock_guard lock(come_mutex_);
  return come_;
}

void MatrixReceiver::LookAtNew() {
  const std::lock_guard lock(look_mutex_);
  for (;;) {
    const Arrays come = Come();
    const bool news = look_.Look(come.pointers, come.indices, come.values);
    if (ahead_ != nullptr && come.values_in_place) {
      ahead_->Come(come.values.data(), static_cast<int64_t>(come.values.size()));
    }
    if (!news) return;
  }
}

void MatrixReceiver::SendAhead(std::shared_ptr<ValuesAhead> ahead) {
  const std::lock_guard lock(look_mutex_);
  ahead_ = std::move(ahead);
}

bool MatrixReceiver::HasNew() {
  const std::lock_guard lock(look_mutex_);
  const Arrays come = Come();
  return look_.Behind(come.pointers, come.indices, come.values);
}

ArrayFacts MatrixReceiver::Look(std::shared_ptr<ValuesAhead>* ahead) {
  LookAtNew();
  const std::lock_guard lock(look_mutex_);
  const auto sent = std::exchange(ahead_, nullptr);
  if (ahead != nullptr) *ahead = sent;
  return look_.Finish();
}

absl::Status MatrixReceiver::CheckComplete() const {
  RETURN_IF_ERROR(pointers_.CheckComplete());
  RETURN_IF_ERROR(indices_.CheckComplete());
  return values_.CheckComplete();
}

bool MatrixReceiver::complete() const {
  return pointers_.complete() && indices_.complete() && values_.complete();
}

v1::UploadNeed MatrixReceiver::Need() const {
  v1::UploadNeed need;
  AddNeed(pointers_, &need);
  AddNeed(indices_, &need);
  AddNeed(values_, &need);
  return need;
}

kernels::CscMatrix MatrixReceiver::Take() {
  kernels::CscMatrix raw;
  {
    const std::lock_guard lock(come_mutex_);
    come_ = {};
  }
  raw.n_rows = n_;
  raw.n_cols = n_;
  raw.col_ptr = pointers_.Take();
  raw.row_idx = indices_.Take();
  raw.values = values_.Take();
  known_ = {};
  return raw;
}

namespace {

absl::Status CheckDigests(const v1::MatrixHeader& header, const v1::MatrixDigest& digest,
                          std::string_view field, const char* name) {
  const bool pattern_ok = digest.pattern().empty() || digest.pattern().size() == kDigestBytes;
  const bool values_ok =
      digest.values().empty() || (digest.values().size() == kDigestBytes &&
                                  !header.pattern_only() && !digest.pattern().empty());
  const auto sha256_ok = [](const std::string& sha256, const std::string& beside) {
    return sha256.empty() || (sha256.size() == kSha256Bytes && !beside.empty());
  };
  if (pattern_ok && values_ok && sha256_ok(digest.pattern_sha256(), digest.pattern()) &&
      sha256_ok(digest.values_sha256(), digest.values())) {
    return absl::OkStatus();
  }
  return BadHeader(reason::kBadDigest, field, name,
                   "must have 16 bytes for the pattern and 16 for the values (none for a "
                   "pattern-only matrix), and beside either 32 of SHA-256 or none, or be left "
                   "out");
}

}  // namespace

absl::Status CheckMatrixHeader(const v1::MatrixHeader& header, std::string_view field,
                               int64_t max_matrix_bytes) {
  if (header.n_columns() != 0 && header.n_columns() != header.n()) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kNotSquare,
                     absl::StrCat("the matrix is ", header.n(), " x ", header.n_columns(),
                                  "; it must be square"))
        .Field(absl::StrCat(absl::string_view(field.data(), field.size()), ".n_columns"))
        .Meta("n", header.n())
        .Meta("n_columns", header.n_columns());
  }
  constexpr int64_t kMaxN = std::numeric_limits<int32_t>::max();
  if (header.n() < 1 || header.n() > kMaxN) {
    return BadHeader(reason::kBadSize, field, "n",
                     absl::StrCat("is ", header.n(), "; it must be 1 .. ", kMaxN));
  }
  if (header.nnz() < 0) {
    return BadHeader(reason::kBadSize, field, "nnz",
                     absl::StrCat("is ", header.nnz(), "; it must be 0 or more"));
  }
  if (header.layout() != v1::LAYOUT_CSC && header.layout() != v1::LAYOUT_CSR) {
    return BadHeader(
        reason::kUnknownEnum, field, "layout",
        absl::StrCat("is ", static_cast<int>(header.layout()), "; send LAYOUT_CSC or LAYOUT_CSR"));
  }
  const bool typed = header.value_type() == v1::VALUE_TYPE_FLOAT64 ||
                     header.value_type() == v1::VALUE_TYPE_FLOAT32;
  if (!typed && !(header.pattern_only() && header.value_type() == v1::VALUE_TYPE_UNSPECIFIED)) {
    return BadHeader(reason::kUnknownEnum, field, "value_type",
                     absl::StrCat("is ", static_cast<int>(header.value_type()),
                                  "; send VALUE_TYPE_FLOAT64 or VALUE_TYPE_FLOAT32 (unspecified "
                                  "goes with pattern_only alone)"));
  }
  if (header.label().size() > kMaxLabelBytes) {
    return BadHeader(
        reason::kBadLabel, field, "label",
        absl::StrCat("has ", header.label().size(), " bytes; it must have at most 200"));
  }
  if (!IsPlainText(header.label())) {
    return BadHeader(reason::kBadLabel, field, "label",
                     "holds control characters, or marks that turn the direction of writing; send "
                     "plain text");
  }
  RETURN_IF_ERROR(CheckDigests(header, header.digest(), field, "digest"));
  RETURN_IF_ERROR(CheckDigests(header, header.sent_digest(), field, "sent_digest"));
  if (header.has_sent_digest() && header.layout() != v1::LAYOUT_CSR) {
    return BadHeader(reason::kBadDigest, field, "sent_digest",
                     "is of arrays by rows; with LAYOUT_CSC send `digest`");
  }
  if (!header.same_pattern_as().empty() && header.pattern_only()) {
    return BadHeader(reason::kUnexpectedMessage, field, "same_pattern_as",
                     "names the pattern of another matrix, and the header says pattern_only: there "
                     "is nothing to send; use that matrix");
  }
  // 8 (n + 1) + 12 nnz without overflow: compare against the limit before multiplying.
  const int64_t per_entry = header.pattern_only() ? 4 : 12;
  // As Matrix::bytes will count: the arrays and the object around them.
  const int64_t pointer_bytes = 8 * (header.n() + 1) +
                                static_cast<int64_t>(sizeof(Matrix) + sizeof(StoredPattern)) +
                                static_cast<int64_t>(header.label().size());
  if (pointer_bytes > max_matrix_bytes ||
      header.nnz() > (max_matrix_bytes - pointer_bytes) / per_entry) {
    const double actual = static_cast<double>(pointer_bytes) +
                          static_cast<double>(per_entry) * static_cast<double>(header.nnz());
    const std::string actual_text =
        header.nnz() <= (std::numeric_limits<int64_t>::max() - pointer_bytes) / per_entry
            ? absl::StrCat(pointer_bytes + per_entry * header.nnz())
            : absl::StrCat(actual);
    return MakeError(
               absl::StatusCode::kResourceExhausted, reason::kMatrixTooLarge,
               absl::StrCat("the matrix (n = ", header.n(), ", nnz = ", header.nnz(), ") takes ",
                            actual_text, " bytes and the limit is ", max_matrix_bytes,
                            "; raise --max-matrix-bytes and --matrix-store-bytes of the "
                            "daemon, or send a smaller matrix"))
        .Field(absl::StrCat(absl::string_view(field.data(), field.size()), ".nnz"))
        .Meta("limit", max_matrix_bytes)
        .Meta("actual", actual_text);
  }
  return absl::OkStatus();
}

int64_t PromisedBytes(const v1::MatrixHeader& header) {
  return 8 * (header.n() + 1) + (header.pattern_only() ? 4 : 12) * header.nnz();
}

absl::Status UnexpectedArray(const ChunkView& chunk, std::string_view expected) {
  const bool known =
      v1::ArrayKind_IsValid(chunk.array) && chunk.array != v1::ARRAY_KIND_UNSPECIFIED;
  return MakeError(absl::StatusCode::kInvalidArgument,
                   known ? reason::kUnexpectedMessage : reason::kUnknownEnum,
                   absl::StrCat("a chunk of ", NameOf(chunk.array), " has no place here; expected ",
                                absl::string_view(expected.data(), expected.size())))
      .Field("chunk.array");
}

}  // namespace spaid::server
