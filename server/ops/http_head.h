// Parses the head of an HTTP/1.x request, as far as a read-only page needs it.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace spaid::server {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/status", as sent
  std::string query;   // what follows its '?'
  std::string host;    // the header; empty: none
  // Returns true if the query has this name, with a value or without.
  bool HasParameter(absl::string_view name) const;
};

struct HttpHead {
  int error = 0;  // the HTTP status that refuses it; 0: `request` is set
  HttpRequest request;
};

// Parses a head; nullopt while the empty line that ends it has not come. Headers except Host are
// ignored.
std::optional<HttpHead> ParseHttpHead(absl::string_view bytes);

}  // namespace spaid::server
