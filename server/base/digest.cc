#include "server/base/digest.h"

#include <isa-l/crc.h>
#include <xxhash.h>
#if defined(__x86_64__)
// After xxhash.h: from here on, XXH3_128bits_update chooses AVX2 or AVX-512 where the CPU has it.
#include <xxh_x86dispatch.h>
#endif

#include <bit>
#include <cstdlib>
#include <new>

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

uint32_t Crc32(std::string_view data, uint32_t crc) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(data.data()), data.size());
}

}  // namespace spaid::server
