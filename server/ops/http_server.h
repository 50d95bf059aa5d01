// A small HTTP/1.1 server for pages that are only read: one request a connection, no bodies, no
// ranges.
//
// One thread polls all connections, so that a slow client costs a place and no thread; a second one
// makes the pages. Neither the number of connections nor the bytes and the time of a request are
// without a bound: of too many connections the oldest is closed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/ops/http_head.h"

namespace spaid::server {

struct HttpResponse {
  int status = 200;
  std::string type, body;
  std::string headers = {};  // further lines, each with its "\r\n"
};

struct HttpOptions {
  int64_t max_connections = 64;
  // For a request to come in all, and again for its answer to be taken in all.
  std::chrono::milliseconds timeout{5000};
  size_t max_head_bytes = 16 << 10;
};

// Counts of now (`open`), and since the start.
struct HttpFigures {
  int64_t open = 0, limit = 0;
  // Cut off: to make place for others; by the timeout; with more than a head may have.
  int64_t crowded_out = 0, timed_out = 0, too_large = 0;
};

// Serves until it dies. Thread-safe.
class HttpServer {
 public:
  // GET and HEAD alone come to them. Both run on one thread at a time each.
  struct Pages {
    // On the polling thread, so that these are answered whatever the others do: must not block.
    // nullopt: the request is for `make`.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> at_once;
    std::function<HttpResponse(const HttpRequest&)> make;
  };

  // `host`: a name or an address, without brackets; port 0 picks one. UNAVAILABLE with a text for
  // people where it cannot listen there.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           HttpOptions options, Pages pages);
  // Connections are cut; waits for the page that is being made.
  ~HttpServer();

  int port() const;
  HttpFigures figures() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace spaid::server
