#include "server/base/digest.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <xxhash.h>
#if defined(__x86_64__)
// After xxhash.h: from here on, XXH3_128bits_update chooses AVX2 or AVX-512 where the CPU has it.
#include <xxh_x86dispatch.h>
#endif

#include <bit>
#include <cstdlib>
#include <new>

#include "server/base/checksum.h"
#include "server/base/sha256.h"

namespace spaid::server {

static_assert(std::endian::native == std::endian::little,
              "digests and chunks are little-endian; this host would have to swap bytes");

std::string Digest::ToHex() const {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t b : bytes) {
    hex += kHex[b >> 4];
    hex += kHex[b & 15];
  }
  return hex;
}

namespace {
XXH3_state_t* State(void* state) { return static_cast<XXH3_state_t*>(state); }
}  // namespace

Digester::Digester() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(State(state_.get()));
}

void Digester::Free::operator()(void* state) const { XXH3_freeState(State(state)); }

Digester& Digester::Update(const void* data, size_t size) {
  // XXH3 wants a pointer even for nothing.
  if (size > 0) XXH3_128bits_update(State(state_.get()), data, size);
  return *this;
}

Digest Digester::Finish() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(State(state_.get())));
  Digest digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest.bytes));
  for (size_t i = 0; i < digest.bytes.size(); ++i) digest.bytes[i] = canonical.digest[i];
  return digest;
}

Digester PatternDigester(int64_t n, int64_t nnz) {
  Digester digester;
  digester.Update(&n, sizeof(n)).Update(&nnz, sizeof(nnz));
  return digester;
}

Digest PatternDigest(int64_t n, std::span<const int64_t> col_ptr,
                     std::span<const int32_t> row_idx) {
  return PatternDigester(n, static_cast<int64_t>(row_idx.size()))
      .Update(col_ptr)
      .Update(row_idx)
      .Finish();
}

Digest ValueDigest(std::span<const double> values) { return Digester().Update(values).Finish(); }

namespace {

EVP_MD_CTX* ContextOf(void* context) { return static_cast<EVP_MD_CTX*>(context); }

// OpenSSL's default provider has what we ask for, or this is not the library we were built for.
void Require(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

Sha256Hasher::Sha256Hasher() : context_(EVP_MD_CTX_new()) {
  if (context_ == nullptr) throw std::bad_alloc();
  Require(EVP_DigestInit_ex(ContextOf(context_.get()), EVP_sha256(), nullptr) == 1);
}
void Sha256Hasher::Update(const void* data, size_t size) {
  Require(EVP_DigestUpdate(ContextOf(context_.get()), data, size) == 1);
}
Sha256 Sha256Hasher::Finish() {
  Sha256 sha256;
  Require(EVP_DigestFinal_ex(ContextOf(context_.get()), sha256.bytes.data(), nullptr) == 1);
  return sha256;
}
void Sha256Hasher::Free::operator()(void* context) const { EVP_MD_CTX_free(ContextOf(context)); }

namespace {

// The key is `given`, if there is one, else drawn; by the first call.
const FingerprintKey& KeyOfFingerprints(const FingerprintKey* given = nullptr) {
  static const FingerprintKey key = [given] {
    if (given != nullptr) return *given;
    FingerprintKey drawn;
    Require(RAND_bytes(drawn.data(), static_cast<int>(drawn.size())) == 1);
    return drawn;
  }();
  return key;
}

class Fingerprinter {
 public:
  Fingerprinter() : context_(EVP_MAC_CTX_new(Poly1305())) {
    if (context_ == nullptr) throw std::bad_alloc();
    const FingerprintKey& key = KeyOfFingerprints();
    Require(EVP_MAC_init(context_.get(), key.data(), key.size(), nullptr) == 1);
  }
  void Update(const void* data, size_t size) {
    Require(EVP_MAC_update(context_.get(), static_cast<const unsigned char*>(data), size) == 1);
  }
  Fingerprint Finish() {
    Fingerprint fingerprint;
    size_t size = 0;
    Require(EVP_MAC_final(context_.get(), fingerprint.bytes.data(), &size,
                          fingerprint.bytes.size()) == 1);
    return fingerprint;
  }

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  };

  static EVP_MAC* Poly1305() {  // fetched once: that takes longer than a small matrix
    static EVP_MAC* const mac = [] {
      EVP_MAC* fetched = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
      Require(fetched != nullptr);
      return fetched;
    }();
    return mac;
  }

  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

template <class Hasher>
auto OfPattern(int64_t n, std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx) {
  const auto nnz = static_cast<int64_t>(row_idx.size());
  Hasher hasher;
  hasher.Update(&n, sizeof(n));
  hasher.Update(&nnz, sizeof(nnz));
  hasher.Update(col_ptr.data(), col_ptr.size_bytes());
  hasher.Update(row_idx.data(), row_idx.size_bytes());
  return hasher.Finish();
}

template <class Hasher>
auto OfValues(std::span<const double> values) {
  Hasher hasher;
  hasher.Update(values.data(), values.size_bytes());
  return hasher.Finish();
}

}  // namespace

Sha256 PatternSha256(int64_t n, std::span<const int64_t> col_ptr,
                     std::span<const int32_t> row_idx) {
  return OfPattern<Sha256Hasher>(n, col_ptr, row_idx);
}

Sha256 ValueSha256(std::span<const double> values) { return OfValues<Sha256Hasher>(values); }

Sha256 ValueSha256(std::span<const double> values, std::span<const int32_t> places) {
  Sha256Hasher hasher;
  std::array<double, 4096> piece;
  for (size_t p = 0; p < places.size(); p += piece.size()) {
    const auto of = places.subspan(p, std::min(piece.size(), places.size() - p));
    for (size_t k = 0; k < of.size(); ++k) piece[k] = values[static_cast<size_t>(of[k])];
    hasher.Update(piece.data(), of.size() * sizeof(double));
  }
  return hasher.Finish();
}

Fingerprint PatternFingerprint(int64_t n, std::span<const int64_t> col_ptr,
                               std::span<const int32_t> row_idx) {
  return OfPattern<Fingerprinter>(n, col_ptr, row_idx);
}

Fingerprint ValueFingerprint(std::span<const double> values) {
  return OfValues<Fingerprinter>(values);
}

FingerprintKey CurrentFingerprintKey() { return KeyOfFingerprints(); }

bool UseFingerprintKey(const FingerprintKey& key) { return KeyOfFingerprints(&key) == key; }

uint64_t Checksum(const void* data, size_t size, uint64_t seed) {
  return size > 0 ? XXH3_64bits_withSeed(data, size, seed) : XXH3_64bits_withSeed("", 0, seed);
}

Sha256 Sha256Of(std::string_view data) {
  Sha256Hasher hasher;
  hasher.Update(data.data(), data.size());
  return hasher.Finish();
}

uint32_t Crc32(std::string_view data, uint32_t crc) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

}  // namespace spaid::server
