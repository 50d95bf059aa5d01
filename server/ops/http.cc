#include "server/ops/http.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
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

constexpr int kThreads = 4;
constexpr time_t kTimeoutSeconds = 5;  // of a slow or silent client
constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kJson[] = "application/json";

// A page holds no script, and a browser is to run none, fetch nothing for it, and show it in no
// other page.
const httplib::Headers& SafeHeaders() {
  static const auto* headers = new httplib::Headers{
      {"Content-Security-Policy",
       "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
       "form-action 'none'; frame-ancestors 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"}};
  return *headers;
}

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

void Route(httplib::Server& http, std::shared_ptr<const OpsSources> sources) {
  using httplib::Request;
  using httplib::Response;
  http.set_pre_routing_handler([](const Request& request, Response& response) {
    if (request.method == "GET" || request.method == "HEAD") {
      return httplib::Server::HandlerResponse::Unhandled;
    }
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    response.set_content("this port is read only\n", kText);
    return httplib::Server::HandlerResponse::Handled;
  });
  http.Get("/metrics", [sources](const Request&, Response& response) {
    response.set_content(sources->metrics->Serialize(), Metrics::kContentType);
  });
  http.Get("/healthz",
           [](const Request&, Response& response) { response.set_content("ok\n", kText); });
  http.Get("/readyz", [sources](const Request&, Response& response) {
    const bool yes = sources->ready();
    response.status = yes ? 200 : 503;
    response.set_content(yes ? "ok\n" : "not ready\n", kText);
  });
  const auto misdirected = [sources](const Request& request, Response& response) {
    const std::string host = request.get_header_value("Host");
    if (IsOurs(host, sources->host_names)) return false;
    response.status = 421;
    response.set_content(
        "the status is not shown under this name; ask by address, or start spaid with "
        "--ops-host=NAME\n",
        kText);
    return true;
  };
  const auto page = [=](const Request& request, Response& response) {
    if (misdirected(request, response)) return;
    StatusPageOptions options;
    if (request.has_param("refresh")) options.refresh_seconds = 0;
    response.set_content(StatusPage(sources->status(), options), kHtml);
  };
  http.Get("/", page);
  http.Get("/status", page);
  http.Get("/status.json", [=](const Request& request, Response& response) {
    if (misdirected(request, response)) return;
    response.set_content(StatusJson(sources->status()), kJson);
  });
}

}  // namespace

struct OpsServer::Impl {
  httplib::Server http;
  std::string address;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(const std::string& address,
                                                            OpsSources sources) {
  const std::optional<HostPort> parsed = ParseHostPort(address);
  if (!parsed) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, reason::kBadFlag,
        absl::StrCat("--ops-address=", address, " is not HOST:PORT; empty turns the port off"));
  }
  int port = parsed->port;
  const std::string bind_host = WithoutBrackets(parsed->host);
  sources.host_names.insert(sources.host_names.end(), {"localhost", bind_host});

  auto impl = std::make_unique<Impl>();
  httplib::Server& http = impl->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // The library's default sets SO_REUSEPORT: two daemons would share the port silently.
  http.set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  // A connection that is kept open keeps a thread: one question each.
  http.set_keep_alive_max_count(1);
  http.set_read_timeout(kTimeoutSeconds);
  http.set_write_timeout(kTimeoutSeconds);
  http.set_payload_max_length(1024);
  http.set_default_headers(SafeHeaders());
  Route(http, std::make_shared<const OpsSources>(std::move(sources)));

  const bool bound = port == 0 ? (port = http.bind_to_any_port(bind_host)) > 0
                               : http.bind_to_port(bind_host, port);
  if (!bound) {
    return MakeError(absl::StatusCode::kUnavailable, reason::kCannotListen,
                     absl::StrCat("cannot listen on --ops-address=", address,
                                  ": the port is taken, or the address is not one of this "
                                  "machine; choose another (port 0 picks a free one)"));
  }
  impl->address = absl::StrCat(parsed->host, ":", port);
  impl->thread = std::thread([&http] { http.listen_after_bind(); });
  // stop() before the loop runs would be lost.
  while (!http.is_running()) std::this_thread::yield();
  return std::unique_ptr<OpsServer>(new OpsServer(std::move(impl)));
}

OpsServer::OpsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

OpsServer::~OpsServer() {
  impl_->http.stop();
  impl_->thread.join();
}

const std::string& OpsServer::address() const { return impl_->address; }

}  // namespace spaid::server
