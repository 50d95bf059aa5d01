#include "client/cpp/arrays.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#if defined(__x86_64__)
// After xxhash.h: from here on, XXH3_128bits_update chooses AVX2 or AVX-512 where the CPU has it.
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
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

class Sha256 {
 public:
  explicit Sha256(std::stop_token stop) : stop_(std::move(stop)), context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr) throw std::bad_alloc();
    Require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
  }
  void Add(std::span<const std::byte> bytes) {
    constexpr size_t kPiece = size_t{16} << 20;  // some 10 ms: a stop is seen soon
    while (!bytes.empty() && !stop_.stop_requested()) {
      const auto piece = bytes.first(std::min(kPiece, bytes.size()));
      Require(EVP_DigestUpdate(context_.get(), piece.data(), piece.size()));
      bytes = bytes.subspan(piece.size());
    }
  }
  std::string Finish() {
    std::array<unsigned char, 32> sha256;
    Require(EVP_DigestFinal_ex(context_.get(), sha256.data(), nullptr));
    return {sha256.begin(), sha256.end()};
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  // SHA-256 is in every OpenSSL.
  static void Require(int ok) {
    if (ok != 1) std::abort();
  }
  const std::stop_token stop_;
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

// Are rows in range, and strictly increasing in each column? Without a branch for each entry: a row
// that is not below the one before it begins a column.
class RowOrder {
 public:
  explicit RowOrder(const CscView& a) : a_(a), last_(static_cast<uint32_t>(a.n - 1)) {}

  // The entries [begin, end), which follow those of the call before.
  void Add(size_t begin, size_t end) {
    const int32_t* const rows = a_.row_idx.data();
    if (begin == 0 && end > 0) outside_ |= Beyond(rows[0]);
    const size_t first = std::max<size_t>(begin, 1);
    uint32_t outside = 0;
    int32_t steps_back = 0;
    for (size_t p = first; p < end; ++p) {
      outside |= Beyond(rows[p]);
      steps_back += rows[p] <= rows[p - 1] ? 1 : 0;
    }
    outside_ |= outside;
    steps_back_ += steps_back;
    size_t before = first - 1;
    for (; column_ < a_.col_ptr.size(); ++column_) {
      const auto p = static_cast<size_t>(a_.col_ptr[column_]);
      if (p >= end) break;
      if (p <= before) continue;  // an empty column's
      steps_back_ -= rows[p] <= rows[p - 1] ? 1 : 0;
      before = p;
    }
  }
  // Returns true if all entries so far are in range and sorted.
  bool holds() const { return outside_ >> 31 == 0 && steps_back_ == 0; }

 private:
  // The sign bit: below 0 or above the last.
  uint32_t Beyond(int32_t row) const {
    return static_cast<uint32_t>(row) | (last_ - static_cast<uint32_t>(row));
  }

  const CscView a_;
  const uint32_t last_;
  uint32_t outside_ = 0;
  int64_t steps_back_ = 0;
  size_t column_ = 0;
};

int64_t PhysicalBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// Page faults are a good part of what it costs to receive much.
void AskForHugePages(void* memory, size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  void* whole = memory;
  size_t left = bytes;
  if (std::align(kHugePage, kHugePage, whole, left) == nullptr) return;
  (void)madvise(whole, left / kHugePage * kHugePage, MADV_HUGEPAGE);
}

Error Mismatch(std::string field, const std::string& what) {
  return MakeError(Code::kInvalidArgument, kSizeMismatch, field + ": " + what, field);
}

}  // namespace

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
  // Memory that is not written to costs nothing. Who promises more than this machine has is
  // believed as it comes.
  if (values_.empty() && count_ <= PhysicalBytes() / static_cast<int64_t>(sizeof(T))) {
    values_.reserve(static_cast<size_t>(count_));
    AskForHugePages(values_.data(), values_.capacity() * sizeof(T));
  }
  const auto before = values_.size();
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
  if (!a.col_ptr.empty() && !a.col_ptr_32.empty()) {
    return Mismatch("col_ptr_32", "pointers are given twice, with 64 and with 32 bits; give one");
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

WidePointers::WidePointers(const CscView& a)
    : copy_(a.col_ptr_32.begin(), a.col_ptr_32.end()), view_(a) {
  if (a.col_ptr_32.empty() || !a.col_ptr.empty()) return;  // both: CheckSpans refuses
  view_.col_ptr = copy_;
  view_.col_ptr_32 = {};
}

bool IsPattern(const CscView& a) {
  return a.values.empty() && a.values_f32.empty() && !a.row_idx.empty();
}

namespace {

std::array<int64_t, 2> Sizes(const CscView& a) {
  return {a.n, static_cast<int64_t>(a.row_idx.size())};
}

// Nothing where the arrays are not canonical. Each block of indices is read from memory once.
std::optional<std::string> PatternDigest(const CscView& a) {
  const size_t nnz = a.row_idx.size();
  if (a.col_ptr.front() != 0 || a.col_ptr.back() != static_cast<int64_t>(nnz) ||
      !std::is_sorted(a.col_ptr.begin(), a.col_ptr.end())) {
    return std::nullopt;
  }
  Hasher pattern;
  const std::array<int64_t, 2> sizes = Sizes(a);
  pattern.Add(std::as_bytes(std::span(sizes)));
  pattern.Add(std::as_bytes(a.col_ptr));
  RowOrder order(a);
  constexpr size_t kBlock = 1 << 14;  // inside a second-level cache
  for (size_t begin = 0; begin < nnz; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, nnz);
    order.Add(begin, end);
    if (!order.holds()) return std::nullopt;
    pattern.Add(std::as_bytes(a.row_idx.subspan(begin, end - begin)));
  }
  return pattern.Finish();
}

template <class Hash>
std::string HashOfValues(const CscView& a, Hash values) {
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

// hash(a) beside what the caller does meanwhile, who waits for the server or has it wait: of a
// large matrix, two threads look at it. Not valid for a pattern.
template <class HashOf>
std::future<std::string> HashValues(const CscView& a, HashOf hash) {
  constexpr size_t kLargeEntries = 1 << 20;
  if (IsPattern(a)) return {};
  // Both: here, where no thread can be had.
  const auto policy = a.row_idx.size() >= kLargeEntries ? std::launch::async | std::launch::deferred
                                                        : std::launch::deferred;
  return std::async(policy, std::move(hash), a);
}

}  // namespace

std::optional<v1::MatrixDigest> Digest(const CscView& a) {
  std::future<std::string> values =
      HashValues(a, [](const CscView& of) { return HashOfValues(of, Hasher()); });
  auto pattern = PatternDigest(a);
  if (!pattern) return std::nullopt;
  v1::MatrixDigest digest;
  digest.set_pattern(*std::move(pattern));
  if (values.valid()) digest.set_values(values.get());
  return digest;
}

std::string PatternAffinity(const v1::MatrixDigest& digest) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const char c : digest.pattern().substr(0, 4)) {
    text += kHex[static_cast<unsigned char>(c) >> 4];
    text += kHex[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string PatternAffinity(const CscView& a) {
  Hasher pattern;
  const std::array<int64_t, 2> sizes = Sizes(a);
  pattern.Add(std::as_bytes(std::span(sizes)));
  pattern.Add(std::as_bytes(a.col_ptr));
  pattern.Add(std::as_bytes(a.row_idx));
  v1::MatrixDigest digest;
  digest.set_pattern(pattern.Finish());
  return PatternAffinity(digest);
}

Expected<std::string> KnownPattern(const CscMatrix* known) {
  if (known == nullptr) return std::string();
  if (auto error = CheckSpans(*known)) return *std::move(error);
  return PatternDigest(*known).value_or("");
}

bool AddSha256(const CscView& a, const std::stop_token& stop, v1::MatrixDigest& digest,
               bool pattern_alone) {
  std::future<std::string> values;
  if (!pattern_alone) {
    values = HashValues(a, [&stop](const CscView& of) { return HashOfValues(of, Sha256(stop)); });
  }
  Sha256 pattern(stop);
  const std::array<int64_t, 2> sizes = Sizes(a);
  pattern.Add(std::as_bytes(std::span(sizes)));
  pattern.Add(std::as_bytes(a.col_ptr));
  pattern.Add(std::as_bytes(a.row_idx));
  std::string value_hash = values.valid() ? values.get() : "";
  if (stop.stop_requested()) return false;
  digest.set_pattern_sha256(pattern.Finish());
  digest.set_values_sha256(std::move(value_hash));
  return true;
}

uint32_t Crc32(std::span<const std::byte> bytes, uint32_t crc) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace spaid::internal
