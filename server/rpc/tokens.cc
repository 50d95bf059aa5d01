#include "server/rpc/tokens.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/base/text.h"

namespace spaid::server {
namespace {

constexpr size_t kMinTokenBytes = 16;
constexpr size_t kMaxNameBytes = 200;
constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status BadFile(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadTokensFile, what);
}

absl::Status BadLine(size_t line, absl::string_view what) {
  return BadFile(absl::StrCat("line ", line, " of the tokens file: ", what,
                              "; a line is TOKEN NAME or sha256:HEX NAME"));
}

struct Descriptor {
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  const int fd;
};

}  // namespace

absl::StatusOr<Tokens> Tokens::Parse(std::string_view text) {
  Tokens tokens;
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    const size_t blank = line.find_first_of(" \t");
    if (blank == absl::string_view::npos) return BadLine(number, "there is no name");
    absl::string_view token = line.substr(0, blank);
    const absl::string_view name = absl::StripAsciiWhitespace(line.substr(blank));
    Hash hash;
    if (absl::ConsumePrefix(&token, "sha256:")) {
      if (token.size() != 2 * hash.size() ||
          !std::all_of(token.begin(), token.end(), absl::ascii_isxdigit)) {
        return BadLine(number, "sha256: wants 64 hexadecimal digits");
      }
      const std::string bytes = absl::HexStringToBytes(token);
      std::copy(bytes.begin(), bytes.end(), hash.begin());
    } else {
      if (token.size() < kMinTokenBytes) {
        return BadLine(number, "the token is shorter than 16 characters");
      }
      if (!std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; })) {
        return BadLine(number, "the token has a character that is not printable ASCII");
      }
      hash = HashOf({token.data(), token.size()});
    }
    if (name.size() > kMaxNameBytes) return BadLine(number, "the name is over 200 bytes");
    if (!IsPlainText({name.data(), name.size()})) {
      return BadLine(number, "the name has control characters or is not UTF-8");
    }
    if (tokens.Find(hash) != nullptr) {
      return BadLine(number, "the token stands here for the second time");
    }
    tokens.tokens_.emplace_back(hash, name);
  }
  if (tokens.empty()) return BadLine(number, "there is no token in the whole file");
  return tokens;
}

absl::StatusOr<Tokens> Tokens::ReadFile(std::string_view flag, const std::string& file) {
  const std::string named = absl::StrCat(absl::string_view(flag.data(), flag.size()), "=", file);
  const auto unreadable = [&] {
    return BadFile(absl::StrCat(named, " cannot be read: ", std::strerror(errno)));
  };
  // A pipe is not waited for.
  const Descriptor in{open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat seen = {};
  if (in.fd < 0 || fstat(in.fd, &seen) != 0) return unreadable();
  if (!S_ISREG(seen.st_mode)) {
    return BadFile(absl::StrCat(named, " is not a regular file; give one"));
  }
  if ((seen.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return BadFile(
        absl::StrCat(named, " can be read or written by everybody on this machine; chmod o= ", file,
                     " (with Kubernetes: defaultMode: 0440 of the secret, and fsGroup)"));
  }
  std::string text;
  char piece[4096];
  while (true) {
    const ssize_t got = read(in.fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable();
    if (got == 0) break;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > kMaxFileBytes) return BadFile(absl::StrCat(named, " is over 1 MiB"));
  }
  auto tokens = Parse(text);
  OPENSSL_cleanse(text.data(), text.size());
  OPENSSL_cleanse(piece, sizeof(piece));
  if (!tokens.ok()) return BadFile(absl::StrCat(named, ": ", tokens.status().message()));
  return tokens;
}

Tokens::Hash Tokens::HashOf(std::string_view token) {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

const std::string* Tokens::Find(std::string_view token) const { return Find(HashOf(token)); }

const std::string* Tokens::Find(const Hash& hash) const {
  const std::string* name = nullptr;
  for (const auto& [known, its_name] : tokens_) {
    if (CRYPTO_memcmp(known.data(), hash.data(), hash.size()) == 0) name = &its_name;
  }
  return name;
}

}  // namespace spaid::server
