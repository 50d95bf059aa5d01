// A small HTTP/1.1 server for read-only pages: one request per connection, no bodies, no ranges.
//
// One thread polls all connections, so that a slow client costs a connection and no thread; a
// second one makes the pages. The number of connections and the bytes and time of a request are
// bounded: when there are too many connections the oldest is closed.
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
  // Time for a whole request to arrive, and again for its whole answer to be taken.
  std::chrono::milliseconds timeout{5000};
  size_t max_head_bytes = 16 << 10;
};

// Counts connections: open now, and cut since the start.
struct HttpFigures {
  int64_t open = 0, limit = 0;
  // Cut: to make room for others; by the timeout; for a head that is too large.
  int64_t crowded_out = 0, timed_out = 0, too_large = 0;
};

// Serves until it dies. Thread-safe.
class HttpServer {
 public:
  // Answer GET and HEAD; other methods are refused before. Each runs on one thread at a time.
  struct Pages {
    // Runs on the polling thread, so that its pages are answered whatever the others do; must not
    // block. Returns nullopt if the request is for `make`.
    std::function<std::optional<HttpResponse>(const HttpRequest&)> at_once;
    std::function<HttpResponse(const HttpRequest&)> make;
  };

  // Starts serving. `host`: a name or an address, without brackets; port 0 picks one. UNAVAILABLE,
  // with a text for people, if it cannot listen there.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           HttpOptions options, Pages pages);
  // Cuts the connections; waits for the page that is being made.
  ~HttpServer();

  int port() const;
  HttpFigures figures() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace spaid::server
