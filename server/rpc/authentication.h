// Identifies callers. Everything a client owns belongs to its tenant: the name of its bearer token;
// else the subject of its mTLS certificate; else (if the operator trusts it) the metadata
// x-spaid-tenant; else, if anonymous callers are served, "default".
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/tokens.h"

namespace spaid::server {

struct Caller {
  std::string tenant;
  bool administrator = false;  // may see and cancel the jobs of all tenants
};

struct AuthenticationOptions {
  // Refuse callers without a token or a certificate: UNAUTHENTICATED/NO_CREDENTIALS.
  bool credentials_wanted = false;
  bool trust_tenant_header = false;
  std::vector<std::string> admin_subjects = {};  // certificates', as gRPC writes them ("CN=ann")
};

// Thread-safe. Movable before it is used.
class Authenticator {
 public:
  // Callers with a token in `admins` are administrators.
  explicit Authenticator(AuthenticationOptions options = {}, Tokens tokens = {},
                         Tokens admins = {});

  // Returns the tenant of a call. A token goes before a certificate: a caller who sends both is
  // whom the token names, and an administrator only by that token. Errors:
  // UNAUTHENTICATED/NO_CREDENTIALS; UNAUTHENTICATED/BAD_TOKEN for a bearer token that is in no file
  // (also if there is no file, and beside a good certificate: a client that believes it is somebody
  // must not silently become somebody else), or two of them; UNAUTHENTICATED/BAD_TENANT for a
  // certificate without a subject; INVALID_ARGUMENT/BAD_TENANT for an x-spaid-tenant that is empty,
  // over-long, not plain text or sent twice.
  absl::StatusOr<Caller> Identify(const grpc::ServerContextBase& context) const;

  // The same of a process on this host, which sends `token` ("": none). Without one it is `tenant`,
  // or where that is null whoever sends no credentials. Errors: BAD_TOKEN, NO_CREDENTIALS.
  absl::StatusOr<Caller> IdentifyLocal(std::string_view token, const std::string* tenant) const;

  // Replaces the tokens for calls from now on. Open calls go on.
  void SetTokens(Tokens tokens, Tokens admins);

 private:
  struct Known {
    Tokens tokens, admins;
  };
  struct State {
    std::mutex mutex;
    std::shared_ptr<const Known> known;
  };

  // Returns nothing for a token that is in no file.
  std::optional<Caller> OfToken(std::string_view token) const;

  AuthenticationOptions options_;
  std::unique_ptr<State> state_;
};

}  // namespace spaid::server
