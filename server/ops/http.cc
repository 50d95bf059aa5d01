#include "server/ops/http.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/address.h"
#include "server/base/metrics.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/ops/status_page.h"

namespace spaid::server {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kJson[] = "application/json";

std::string WithoutBrackets(const std::string& host) {
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return host;
  return host.substr(1, host.size() - 2);
}

// Whether the header `Host` of a request (empty: no browser sent it) is an address, or one of
// `names`, with any port.
bool IsOurs(const std::string& header, const std::vector<std::string>& names) {
  const std::optional<HostPort> parsed = ParseHostPort(header);
  const std::string host = WithoutBrackets(parsed ? parsed->host : header);
  std::array<unsigned char, sizeof(in6_addr)> address{};
  if (host.empty() || inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
      inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    return true;
  }
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return absl::EqualsIgnoreCase(absl::StripSuffix(host, "."), name);
  });
}

HttpResponse Text(int status, std::string text) {
  return {.status = status, .type = kText, .body = std::move(text)};
}

// Answers probes, without waiting for any page.
std::optional<HttpResponse> Probe(const OpsSources& sources, const HttpRequest& request) {
  if (request.path == "/healthz") {
    return sources.alive() ? Text(200, "ok\n") : Text(503, "deaf\n");
  }
  if (request.path == "/readyz") {
    return sources.ready() ? Text(200, "ok\n") : Text(503, "not ready\n");
  }
  return std::nullopt;
}

HttpResponse Page(const OpsSources& sources, const HttpRequest& request) {
  if (request.path == "/metrics") {
    const bool with_tenants = IsOurs(request.host, sources.host_names);
    return {.type = Metrics::kContentType, .body = sources.metrics->Serialize(with_tenants)};
  }
  const bool json = request.path == "/status.json";
  if (request.path != "/" && request.path != "/status" && !json) {
    return Text(404, "there is no such page\n");
  }
  if (!IsOurs(request.host, sources.host_names)) {
    return Text(421,
                "the status is not shown under this name; ask by address, or start spaid with "
                "--ops-host=NAME\n");
  }
  if (json) return {.type = kJson, .body = StatusJson(sources.status())};
  StatusPageOptions options;
  if (request.HasParameter("refresh")) options.refresh_seconds = 0;
  return {.type = kHtml, .body = StatusPage(sources.status(), options)};
}

}  // namespace

struct OpsServer::Impl {
  OpsSources sources;
  std::string address;
  std::unique_ptr<HttpServer> http;
};

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(const std::string& address,
                                                            OpsSources sources) {
  const std::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, reason::kBadFlag,
        absl::StrCat("--ops-address=", address, " is not HOST:PORT; empty turns the port off"));
  }
  const std::string bind_host = WithoutBrackets(parsed->host);
  sources.host_names.insert(sources.host_names.end(), {"localhost", bind_host});

  auto impl = std::make_unique<Impl>();
  impl->sources = std::move(sources);
  const OpsSources& kept = impl->sources;
  auto http = HttpServer::Start(
      bind_host, parsed->port, kept.http,
      {.at_once = [&kept](const HttpRequest& request) { return Probe(kept, request); },
       .make = [&kept](const HttpRequest& request) { return Page(kept, request); }});
  if (!http.ok()) {
    return MakeError(
        absl::StatusCode::kUnavailable, reason::kCannotListen,
        absl::StrCat("cannot listen on --ops-address=", address, " (", http.status().message(),
                     "): the port is taken, or the address is not one of this "
                     "machine; choose another (port 0 picks a free one)"));
  }
  impl->http = *std::move(http);
  impl->address = absl::StrCat(parsed->host, ":", impl->http->port());
  return std::unique_ptr<OpsServer>(new OpsServer(std::move(impl)));
}

OpsServer::OpsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OpsServer::~OpsServer() = default;

HttpFigures OpsServer::figures() const { return impl_->http->figures(); }
const std::string& OpsServer::address() const { return impl_->address; }

}  // namespace spaid::server
