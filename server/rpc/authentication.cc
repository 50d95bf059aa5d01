#include "server/rpc/authentication.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/base/text.h"
#include "server/rpc/call_metadata.h"

namespace spaid::server {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr char kAnonymous[] = "default";

// The subject of the client's certificate; nothing: it has shown none.
absl::StatusOr<std::optional<std::string>> Subject(const grpc::ServerContextBase& context) {
  const auto auth = context.auth_context();
  // "Authenticated" means to gRPC that there is a common name, or an alternative one.
  if (auth == nullptr || auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME).empty()) {
    return std::nullopt;
  }
  const auto found = auth->FindPropertyValues(GRPC_X509_SUBJECT_PROPERTY_NAME);
  std::string subject;
  if (!found.empty()) subject.assign(found.front().data(), found.front().size());
  if (subject.empty() || !IsPlainText(subject)) {
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kBadTenant,
                     "the client certificate has no subject, which names the tenant, or one with "
                     "control characters; use one that has");
  }
  return subject;
}

absl::StatusOr<std::string> TenantOfHeader(const std::vector<absl::string_view>& values) {
  const absl::string_view name = values.front();
  if (values.size() == 1 && !name.empty() && name.size() <= kMaxNameBytes &&
      IsPlainText({name.data(), name.size()})) {
    return std::string(name);
  }
  return MakeError(
             absl::StatusCode::kInvalidArgument, reason::kBadTenant,
             absl::StrCat("x-spaid-tenant came ", values.size(), " times and has ", name.size(),
                          " bytes; it is sent once, and a tenant's name has "
                          "1 .. 200 bytes without control characters"))
      .Field("x-spaid-tenant");
}

}  // namespace

Authenticator::Authenticator(AuthenticationOptions options, Tokens tokens, Tokens admins)
    : options_(std::move(options)), state_(std::make_unique<State>()) {
  SetTokens(std::move(tokens), std::move(admins));
}

void Authenticator::SetTokens(Tokens tokens, Tokens admins) {
  auto known = std::make_shared<const Known>(Known{std::move(tokens), std::move(admins)});
  std::lock_guard lock(state_->mutex);
  state_->known.swap(known);
}

std::optional<Caller> Authenticator::OfToken(std::string_view token) const {
  std::shared_ptr<const Known> known;
  {
    std::lock_guard lock(state_->mutex);
    known = state_->known;
  }
  if (const std::string* name = known->admins.Find(token)) return Caller{*name, true};
  if (const std::string* name = known->tokens.Find(token)) return Caller{*name, false};
  return std::nullopt;
}

absl::StatusOr<Caller> Authenticator::IdentifyLocal(std::string_view token,
                                                    const std::string* tenant) const {
  if (!token.empty()) {
    if (auto caller = OfToken(token)) return *std::move(caller);
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kBadToken,
                     "the server does not know the token; send one from its --tokens or "
                     "--admin-tokens file, or none");
  }
  if (tenant != nullptr) return Caller{*tenant, false};
  if (options_.credentials_wanted) {
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kNoCredentials,
                     "the server wants credentials: send a token from its --tokens file, or be a "
                     "user that its --local-tenants names");
  }
  return Caller{kAnonymous, false};
}

absl::StatusOr<Caller> Authenticator::Identify(const grpc::ServerContextBase& context) const {
  const auto subject = Subject(context);
  if (!subject.ok()) return subject.status();
  if (const auto headers = MetadataOf(context, "authorization"); !headers.empty()) {
    constexpr absl::string_view kBearer = "bearer ";
    if (headers.size() == 1 && absl::StartsWithIgnoreCase(headers.front(), kBearer)) {
      const absl::string_view sent = headers.front().substr(kBearer.size());
      if (auto caller = OfToken({sent.data(), sent.size()})) return *std::move(caller);
    }
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kBadToken,
                     "the server does not know the token in `authorization`; send one header "
                     "`Bearer TOKEN` with a token from the server's --tokens or --admin-tokens "
                     "file");
  }
  if (*subject) {
    const auto& admins = options_.admin_subjects;
    return Caller{**subject, std::find(admins.begin(), admins.end(), **subject) != admins.end()};
  }
  if (options_.credentials_wanted) {
    return MakeError(absl::StatusCode::kUnauthenticated, reason::kNoCredentials,
                     "the server wants credentials: send `authorization: Bearer TOKEN` with a "
                     "token from its --tokens file, or show a client certificate that its "
                     "--tls-client-ca signed");
  }
  if (options_.trust_tenant_header) {
    if (const auto headers = MetadataOf(context, "x-spaid-tenant"); !headers.empty()) {
      auto tenant = TenantOfHeader(headers);
      if (!tenant.ok()) return tenant.status();
      return Caller{*std::move(tenant), false};
    }
  }
  return Caller{kAnonymous, false};
}

}  // namespace spaid::server
