#include "server/base/paging.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

// The number, and eight bytes of the list's hash, by which one that was not made for it is told.
using Block = std::array<unsigned char, 16>;

Block Plain(std::string_view list, uint64_t sequence) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
  if (EVP_Digest(list.data(), list.size(), hash.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    std::abort();  // what can fail here is memory alone
  }
  Block block;
  std::memcpy(block.data(), &sequence, sizeof(sequence));
  std::memcpy(block.data() + sizeof(sequence), hash.data(), block.size() - sizeof(sequence));
  return block;
}

// One block of AES-128 under a key of this process.
Block Crypt(const Block& in, bool encrypt) {
  static const Block* const key = [] {
    auto* made = new Block;
    if (RAND_bytes(made->data(), static_cast<int>(made->size())) != 1) std::abort();
    return made;
  }();
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> context(
      EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  Block out;
  int size = 0;
  // Only lack of memory can fail here.
  if (context == nullptr ||
      EVP_CipherInit_ex(context.get(), EVP_aes_128_ecb(), nullptr, key->data(), nullptr,
                        encrypt ? 1 : 0) != 1 ||
      EVP_CIPHER_CTX_set_padding(context.get(), 0) != 1 ||
      EVP_CipherUpdate(context.get(), out.data(), &size, in.data(), static_cast<int>(in.size())) !=
          1 ||
      size != static_cast<int>(out.size())) {
    std::abort();
  }
  return out;
}

}  // namespace

absl::StatusOr<PageRequest> ParsePage(std::string list, int32_t size, std::string_view token) {
  PageRequest page{.list = std::move(list)};
  if (size < 0 || size > 1000) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadPageSize,
                     absl::StrCat("page_size is ", size, "; give 1 to 1000, or 0 for 100"))
        .Field("page_size");
  }
  if (size > 0) page.size = size;
  if (token.empty()) return page;
  Block block = {};
  bool good = token.size() == 2 * block.size() &&
              std::all_of(token.begin(), token.end(), absl::ascii_isxdigit);
  if (good) {
    const std::string bytes = absl::HexStringToBytes({token.data(), token.size()});
    std::copy(bytes.begin(), bytes.end(), block.begin());
    block = Crypt(block, /*encrypt=*/false);
    std::memcpy(&page.before, block.data(), sizeof(page.before));
    good = block == Plain(page.list, page.before);
  }
  if (!good) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadPageToken,
                     "page_token is not one that this server gave for this list since it was "
                     "started; leave it empty for the first page")
        .Field("page_token");
  }
  return page;
}

std::string PageToken(std::string_view list, uint64_t last_sequence) {
  const Block block = Crypt(Plain(list, last_sequence), /*encrypt=*/true);
  return absl::BytesToHexString({reinterpret_cast<const char*>(block.data()), block.size()});
}

}  // namespace spaid::server
