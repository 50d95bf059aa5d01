// Bearer tokens and the names that they stand for, from a file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace spaid::server {

// Tokens and their names, from lines `TOKEN NAME`, or `sha256:HEX NAME` with the SHA-256 of the
// token's bytes; blank lines and lines that start with # are skipped. A token is at least 16
// characters, of printable ASCII without blanks, and stands once; a name is 1 .. 200 bytes of plain
// text. Hashes alone are kept in memory. Errors, INVALID_ARGUMENT/BAD_TOKENS_FILE, name the line,
// never the token.
class Tokens {
 public:
  static absl::StatusOr<Tokens> Parse(std::string_view text);
  // Reads a regular file of at most 1 MiB that nobody but its owner and group can read or write.
  // `flag` ("--tokens") is for the errors.
  static absl::StatusOr<Tokens> ReadFile(std::string_view flag, const std::string& file);

  // Returns the name of `token`, or null. Compares in constant time.
  const std::string* Find(std::string_view token) const;
  bool empty() const { return tokens_.empty(); }
  size_t size() const { return tokens_.size(); }

 private:
  using Hash = std::array<uint8_t, 32>;  // SHA-256
  static Hash HashOf(std::string_view token);
  const std::string* Find(const Hash& hash) const;

  std::vector<std::pair<Hash, std::string>> tokens_;  // hash of the token, its name
};

}  // namespace spaid::server
