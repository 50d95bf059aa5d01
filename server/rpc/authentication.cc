#include "server/rpc/authentication.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

constexpr size_t kMinTokenBytes = 16;
constexpr size_t kMaxNameBytes = 200;

absl::Status BadLine(size_t line, std::string_view what) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, reason::kBadTokensFile,
      absl::StrCat("line ", line, " of the tokens file: ",
                   absl::string_view(what.data(), what.size()), "; a line is TOKEN NAME"));
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

// The value of metadata `key`, or null where there is none.
const grpc::string_ref* Find(const grpc::CallbackServerContext& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

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
    const absl::string_view token = line.substr(0, blank);
    const absl::string_view name = absl::StripAsciiWhitespace(line.substr(blank));
    if (token.size() < kMinTokenBytes) {
      return BadLine(number, "the token is shorter than 16 characters");
    }
    if (!std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; })) {
      return BadLine(number, "the token has a character that is not printable ASCII");
    }
    if (name.size() > kMaxNameBytes) return BadLine(number, "the name is over 200 bytes");
    if (tokens.Find({token.data(), token.size()}) != nullptr) {
      return BadLine(number, "the token stands here for the second time");
    }
    tokens.tokens_.emplace_back(token, name);
  }
  if (tokens.empty()) return BadLine(number, "there is no token in the whole file");
  return tokens;
}

absl::StatusOr<Tokens> Tokens::ReadFile(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadTokensFile,
                     absl::StrCat("--tokens=", file, " cannot be read: ", std::strerror(errno)));
  }
  return Parse(std::string{std::istreambuf_iterator<char>(in), {}});
}

const std::string* Tokens::Find(std::string_view token) const {
  const std::string* name = nullptr;
  for (const auto& [known, its_name] : tokens_) {
    if (EqualInConstantTime(known, token)) name = &its_name;
  }
  return name;
}

absl::StatusOr<std::string> Authenticator::Tenant(
    const grpc::CallbackServerContext& context) const {
  const auto auth = context.auth_context();
  if (auth != nullptr && auth->IsPeerAuthenticated()) {
    const auto subject = auth->FindPropertyValues(GRPC_X509_SUBJECT_PROPERTY_NAME);
    if (!subject.empty() && !subject.front().empty()) {
      return std::string(subject.front().data(), subject.front().size());
    }
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kBadTenant,
                     "the client certificate has no subject, which names the tenant; use one that "
                     "has");
  }
  if (const grpc::string_ref* header = Find(context, "authorization")) {
    const absl::string_view value(header->data(), header->size());
    constexpr absl::string_view kBearer = "bearer ";
    if (absl::StartsWithIgnoreCase(value, kBearer)) {
      const absl::string_view token = value.substr(kBearer.size());
      if (const std::string* name = tokens_.Find({token.data(), token.size()})) return *name;
    }
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kBadToken,
                     "the server does not know the token in `authorization`; send `Bearer TOKEN` "
                     "with a token from the server's --tokens file, or none at all");
  }
  if (trust_tenant_header_) {
    if (const grpc::string_ref* header = Find(context, "x-spaid-tenant")) {
      if (header->empty() || header->size() > kMaxNameBytes) {
        return MakeError(absl::StatusCode::kInvalidArgument, reason::kBadTenant,
                         absl::StrCat("x-spaid-tenant has ", header->size(),
                                      " bytes; a tenant's name has 1 .. 200"))
            .Field("x-spaid-tenant");
      }
      return std::string(header->data(), header->size());
    }
  }
  return std::string("default");
}

}  // namespace spaid::server
