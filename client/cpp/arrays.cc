#include "client/cpp/arrays.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <isa-l/crc.h>
#include <xxhash.h>
#if defined(__x86_64__)
// After xxhash.h: from here on, XXH3_128bits_update chooses AVX2 or AVX-512 where the CPU has it.
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "client/cpp/errors.h"

namespace spaid::internal {
namespace {

// Grows a received array in one step only as far as this; a header that promises more is believed
// as the bytes come.
constexpr int64_t kTrustedReserveBytes = int64_t{64} << 20;

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_.get());
  }
  void Add(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string Finish() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    return {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// Without a branch for each entry: rows are in range, and a row that is not below the one before it
// begins a column.
bool IsCanonicalCsc(const CscView& a) {
  if (a.by_rows || a.col_ptr.front() != 0) return false;
  const auto nnz = static_cast<int64_t>(a.row_idx.size());
  if (a.col_ptr.back() != nnz || !std::is_sorted(a.col_ptr.begin(), a.col_ptr.end())) return false;
  const int32_t* const rows = a.row_idx.data();
  const auto last = static_cast<uint32_t>(a.n - 1);
  const auto beyond = [last](int32_t row) {  // the sign bit: below 0 or above the last
    return static_cast<uint32_t>(row) | (last - static_cast<uint32_t>(row));
  };
  uint32_t outside = nnz > 0 ? beyond(rows[0]) : 0;
  int64_t steps_back = 0, before = 0;
  constexpr int64_t kBlock = 1 << 12;  // its steps are counted in 32 bits, as wide as the rows
  for (int64_t begin = 1; begin < nnz; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, nnz);
    int32_t in_block = 0;
    for (int64_t p = begin; p < end; ++p) {
      outside |= beyond(rows[p]);
      in_block += rows[p] <= rows[p - 1] ? 1 : 0;
    }
    steps_back += in_block;
  }
  for (const int64_t begin : a.col_ptr) {
    if (begin > before && begin < nnz) {
      steps_back -= rows[begin] <= rows[begin - 1] ? 1 : 0;
      before = begin;
    }
  }
  return outside >> 31 == 0 && steps_back == 0;
}

// The tag and the length of a field of `size` bytes.
void AppendLength(int field, size_t size, std::string& message) {
  constexpr uint32_t kLengthDelimited = 2;
  google::protobuf::io::StringOutputStream stream(&message);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(static_cast<uint32_t>(field) << 3 | kLengthDelimited);
  out.WriteVarint32(static_cast<uint32_t>(size));
}

Error Mismatch(std::string field, const std::string& what) {
  return MakeError(Code::kInvalidArgument, kSizeMismatch, field + ": " + what, field);
}

}  // namespace

ChunkSource::ChunkSource(std::vector<OutgoingArray> arrays, int64_t chunk_bytes, bool checksums)
    : arrays_(std::move(arrays)), chunk_bytes_(chunk_bytes / 8 * 8), checksums_(checksums) {}

void ChunkSource::WantAll() {
  for (const OutgoingArray& array : arrays_) Want(array.kind, 0, array.count());
}

bool ChunkSource::Want(v1::ArrayKind kind, int64_t offset, int64_t count) {
  const auto found = std::find_if(arrays_.begin(), arrays_.end(),
                                  [&](const OutgoingArray& array) { return array.kind == kind; });
  if (found == arrays_.end() || offset < 0 || count < 0 || offset > found->count() ||
      count > found->count() - offset) {
    return false;
  }
  if (count == 0) return true;
  wanted_.push_back({static_cast<size_t>(found - arrays_.begin()), offset, count});
  total_bytes_ += count * static_cast<int64_t>(found->element_size);
  return true;
}

grpc::ByteBuffer ChunkSource::Next(int field) {
  Range& range = wanted_.front();
  const OutgoingArray& array = arrays_[range.array];
  const auto element = static_cast<int64_t>(array.element_size);
  const int64_t count = std::min(range.count, chunk_bytes_ / element);
  const auto bytes = array.bytes.subspan(static_cast<size_t>(range.offset * element),
                                         static_cast<size_t>(count * element));
  uint32_t crc = 0;
  const grpc::Slice data = buffers_.Copy(bytes, [&](std::span<const std::byte> piece) {
    if (checksums_) crc = Crc32(piece, crc);
  });
  // Serialized messages behind one another are one message: what stands before and behind the data
  // is protobuf's own work.
  v1::ArrayChunk before, behind;
  before.set_array(array.kind);
  before.set_offset(range.offset);
  if (checksums_) behind.set_crc32(crc);
  std::string head = before.SerializeAsString();
  AppendLength(v1::ArrayChunk::kDataFieldNumber, data.size(), head);
  const std::string tail = behind.SerializeAsString();
  std::string message;
  AppendLength(field, head.size() + data.size() + tail.size(), message);
  message += head;
  const std::array<grpc::Slice, 3> slices{grpc::Slice(message), data, grpc::Slice(tail)};

  sent_bytes_ += static_cast<int64_t>(bytes.size());
  range.offset += count;
  range.count -= count;
  if (range.count == 0) wanted_.pop_front();
  return grpc::ByteBuffer(slices.data(), tail.empty() ? 2 : 3);
}

template <class T>
std::optional<Error> ArraySink<T>::Take(const v1::ArrayChunk& chunk) {
  const std::string& data = chunk.data();
  if (chunk.array() != kind_) return ProtocolViolation("a chunk of an array nobody asked for");
  if (chunk.offset() != received()) return ProtocolViolation("a chunk out of order");
  if (data.empty() || data.size() % sizeof(T) != 0) {
    return ProtocolViolation("a chunk that is not a whole number of elements");
  }
  const auto elements = static_cast<int64_t>(data.size() / sizeof(T));
  if (elements > count_ - received()) return ProtocolViolation("a chunk beyond its array's end");
  if (chunk.has_crc32() && Crc32(std::as_bytes(std::span(data))) != chunk.crc32()) {
    return MakeError(Code::kDataLoss, kChecksumMismatch,
                     "a received chunk at element " + std::to_string(chunk.offset()) +
                         " does not match its CRC-32; fetch the result again");
  }
  const auto before = values_.size();
  if (values_.capacity() < before + static_cast<size_t>(elements)) {
    const int64_t trusted = kTrustedReserveBytes / static_cast<int64_t>(sizeof(T));
    const int64_t doubled = std::max(received() + elements, 2 * received());
    values_.reserve(static_cast<size_t>(std::min(count_, std::max(doubled, trusted))));
  }
  values_.resize(before + static_cast<size_t>(elements));
  std::memcpy(values_.data() + before, data.data(), data.size());
  return std::nullopt;
}

template class ArraySink<int64_t>;
template class ArraySink<int32_t>;
template class ArraySink<double>;

std::optional<Error> CheckSpans(const CscView& a) {
  constexpr int64_t kMaxN = std::numeric_limits<int32_t>::max();
  if (a.n < 1 || a.n > kMaxN) {
    return Mismatch("n", std::to_string(a.n) + " is not in 1 .. " + std::to_string(kMaxN));
  }
  if (static_cast<int64_t>(a.col_ptr.size()) != a.n + 1) {
    return Mismatch("col_ptr", "has " + std::to_string(a.col_ptr.size()) +
                                   " elements, n + 1 = " + std::to_string(a.n + 1) + " are needed");
  }
  if (!a.values.empty() && !a.values_f32.empty()) {
    return Mismatch("values_f32", "values are given twice, as fp64 and as fp32; give one");
  }
  const size_t values = a.values.empty() ? a.values_f32.size() : a.values.size();
  if (values != 0 && values != a.row_idx.size()) {
    return Mismatch(a.values.empty() ? "values_f32" : "values",
                    "has " + std::to_string(values) + " elements, row_idx has " +
                        std::to_string(a.row_idx.size()) + "; they must agree");
  }
  return std::nullopt;
}

bool IsPattern(const CscView& a) {
  return a.values.empty() && a.values_f32.empty() && !a.row_idx.empty();
}

namespace {

std::string PatternDigest(const CscView& a) {
  Hasher pattern;
  const std::array<int64_t, 2> sizes{a.n, static_cast<int64_t>(a.row_idx.size())};
  pattern.Add(std::as_bytes(std::span(sizes)));
  pattern.Add(std::as_bytes(a.col_ptr));
  pattern.Add(std::as_bytes(a.row_idx));
  return pattern.Finish();
}

std::string ValueDigest(const CscView& a) {
  Hasher values;
  values.Add(std::as_bytes(a.values));
  // fp32 is stored as fp64: widened in pieces, so that no second copy of the matrix is made.
  std::array<double, 4096> wide;
  for (size_t at = 0; at < a.values_f32.size(); at += wide.size()) {
    const auto piece = a.values_f32.subspan(at, std::min(wide.size(), a.values_f32.size() - at));
    std::copy(piece.begin(), piece.end(), wide.begin());
    values.Add(std::as_bytes(std::span(wide).first(piece.size())));
  }
  return values.Finish();
}

}  // namespace

std::optional<v1::MatrixDigest> Digest(const CscView& a) {
  // The server waits for this: of a large matrix, two threads look at it.
  constexpr size_t kLargeEntries = 1 << 20;
  const bool large = a.row_idx.size() >= kLargeEntries;
  std::future<std::string> values;  // nothing is begun for a pattern
  if (!IsPattern(a)) {
    // Both: here, where no thread can be had.
    const auto policy = large ? std::launch::async | std::launch::deferred : std::launch::deferred;
    values = std::async(policy, ValueDigest, a);
  }
  if (!IsCanonicalCsc(a)) return std::nullopt;
  v1::MatrixDigest digest;
  digest.set_pattern(PatternDigest(a));
  if (values.valid()) digest.set_values(values.get());
  return digest;
}

uint32_t Crc32(std::span<const std::byte> bytes, uint32_t crc) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

CscSink::CscSink(int64_t n, int64_t nnz)
    : n_(n),
      nnz_(nnz),
      pointers_(v1::ARRAY_KIND_POINTERS, n + 1),
      indices_(v1::ARRAY_KIND_INDICES, nnz),
      values_(v1::ARRAY_KIND_VALUES, nnz) {}

Expected<CscSink> CscSink::Create(int64_t n, int64_t nnz, v1::ValueType type) {
  if (n < 1 || n > std::numeric_limits<int32_t>::max() || nnz < 0 || nnz > n * n) {
    return ProtocolViolation("a result of " + std::to_string(n) + " columns and " +
                             std::to_string(nnz) + " entries");
  }
  if (type != v1::VALUE_TYPE_FLOAT64) return ProtocolViolation("values that are not fp64");
  return CscSink(n, nnz);
}

std::optional<Error> CscSink::Take(const v1::ArrayChunk& chunk) {
  switch (chunk.array()) {
    case v1::ARRAY_KIND_POINTERS:
      return pointers_.Take(chunk);
    case v1::ARRAY_KIND_INDICES:
      return indices_.Take(chunk);
    case v1::ARRAY_KIND_VALUES:
      return values_.Take(chunk);
    default:
      return ProtocolViolation("a chunk of an array that a matrix does not have");
  }
}

Expected<CscMatrix> CscSink::Finish() {
  if (!pointers_.Complete() || !indices_.Complete() || !values_.Complete()) {
    return ProtocolViolation("the result ended before all of its arrays had come");
  }
  CscMatrix m{n_, pointers_.Release(), indices_.Release(), values_.Release()};
  if (m.col_ptr.front() != 0 || m.col_ptr.back() != nnz_ ||
      !std::is_sorted(m.col_ptr.begin(), m.col_ptr.end()) ||
      std::any_of(m.row_idx.begin(), m.row_idx.end(),
                  [&](int32_t row) { return row < 0 || row >= n_; })) {
    return ProtocolViolation("a result that is not a CSC matrix");
  }
  return m;
}

int64_t CscSink::received_bytes() const {
  return 8 * pointers_.received() + 4 * indices_.received() + 8 * values_.received();
}

int64_t CscSink::total_bytes() const { return 8 * (n_ + 1) + 12 * nnz_; }

}  // namespace spaid::internal
