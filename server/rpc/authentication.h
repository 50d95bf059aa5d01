// Who calls. Everything a client owns belongs to its tenant: the subject of its mTLS certificate;
// else the name of its bearer token; else (where the operator trusts it) the metadata
// x-spaid-tenant; else "default".
#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spaid::server {

// Lines `TOKEN NAME`; blank lines and lines that start with # are skipped. A token is at least 16
// characters, of printable ASCII without blanks, and stands once; a name is 1 .. 200 bytes. Errors,
// INVALID_ARGUMENT/BAD_TOKENS_FILE, name the line, never the token.
class Tokens {
 public:
  static absl::StatusOr<Tokens> Parse(std::string_view text);
  static absl::StatusOr<Tokens> ReadFile(const std::string& file);

  // The name of `token`, or null. Compares in constant time.
  const std::string* Find(std::string_view token) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<std::pair<std::string, std::string>> tokens_;  // token, name
};

// Immutable, thread-safe.
class Authenticator {
 public:
  Authenticator(Tokens tokens, bool trust_tenant_header)
      : tokens_(std::move(tokens)), trust_tenant_header_(trust_tenant_header) {}

  // UNAUTHENTICATED/BAD_TOKEN for a bearer token that is not in the file (also where there is no
  // file: a client that believes it is somebody must not silently become `default`);
  // INVALID_ARGUMENT/BAD_TENANT for an empty or over-long x-spaid-tenant.
  absl::StatusOr<std::string> Tenant(const grpc::CallbackServerContext& context) const;

 private:
  Tokens tokens_;
  bool trust_tenant_header_;
};

}  // namespace spaid::server
