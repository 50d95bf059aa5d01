#include "server/ops/http_head.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace spaid::server {
namespace {

// RFC 9110's tokens, of which methods and the names of headers are made.
bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("!#$%&'*+-.^_`|~").find(c) != absl::string_view::npos;
  });
}

bool IsVisible(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c != 0x7f; });
}

// The HTTP status that refuses the line; 0: none does.
int ParseRequestLine(absl::string_view line, HttpRequest* request) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !IsToken(words[0])) return 400;
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") {
    return absl::StartsWith(words[2], "HTTP/") ? 505 : 400;
  }
  request->method = std::string(words[0]);
  const absl::string_view target = words[1];
  const bool whole_server = target == "*";  // OPTIONS has it
  if ((!absl::StartsWith(target, "/") && !whole_server) || !IsVisible(target)) return 400;
  const size_t mark = target.find('?');
  request->path = std::string(target.substr(0, mark));
  if (mark != absl::string_view::npos) request->query = std::string(target.substr(mark + 1));
  return 0;
}

}  // namespace

bool HttpRequest::HasParameter(absl::string_view name) const {
  for (const absl::string_view parameter : absl::StrSplit(query, '&')) {
    if (parameter.substr(0, parameter.find('=')) == name) return true;
  }
  return false;
}

std::optional<HttpHead> ParseHttpHead(absl::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == absl::string_view::npos) return std::nullopt;
  HttpHead head;
  const std::vector<absl::string_view> lines = absl::StrSplit(bytes.substr(0, end), "\r\n");
  head.error = ParseRequestLine(lines.front(), &head.request);
  bool has_host = false;
  for (size_t k = 1; k < lines.size() && head.error == 0; ++k) {
    const size_t colon = lines[k].find(':');
    const absl::string_view name = lines[k].substr(0, colon);
    if (colon == absl::string_view::npos || !IsToken(name)) {
      head.error = 400;
    } else if (absl::EqualsIgnoreCase(name, "Host")) {
      if (has_host) head.error = 400;
      has_host = true;
      head.request.host = std::string(absl::StripAsciiWhitespace(lines[k].substr(colon + 1)));
    }
  }
  return head;
}

}  // namespace spaid::server
