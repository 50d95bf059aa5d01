#include "client/cli/terminal.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "client/cli/interrupt.h"

namespace spaid::cli {

TerminalSize SizeOf(FILE* stream) {
  TerminalSize size;
  winsize window = {};
  if (ioctl(fileno(stream), TIOCGWINSZ, &window) != 0) return size;
  if (window.ws_col > 0) size.columns = window.ws_col;
  if (window.ws_row > 0) size.rows = window.ws_row;
  return size;
}

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text;
    for (const char* c = value; *c != '\0'; ++c) {
      if (*c != '-') text += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    return text.find("utf8") != std::string::npos;
  }
  return false;
}

bool TakesEscapes() {
  const char* term = std::getenv("TERM");
  return term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

int ScreenWidth(std::string_view line) {
  int width = 0;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\033') {  // to the letter that ends it
      at = std::min(line.find_first_of("ABCDEFGHJKSTfhlmnsu", at), line.size() - 1);
    } else if ((line[at] & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

void LiveLines::Draw(const std::vector<std::string>& lines) {
  if (lines.empty() && widths_.empty()) return;
  const TerminalSize size = SizeOf(stream_);
  int up = 0;  // a line that is wider than a window made narrower takes several rows
  for (const int width : widths_) up += std::max(1, (width + size.columns - 1) / size.columns);
  up = std::min(up, size.rows - 1);
  const auto above = [](int rows) {
    return rows > 0 ? "\r\033[" + std::to_string(rows) + "A" : std::string("\r");
  };
  std::string body;
  widths_.clear();
  for (const std::string& line : lines) {
    body += line + "\033[K\n";
    widths_.push_back(ScreenWidth(line));
  }
  const auto count = static_cast<int>(lines.size());
  if (count < up) body += "\033[J";
  // The place below the lines is kept (ESC 7), to come back to (ESC 8) from an unfinished drawing.
  Write(above(up) + body + "\0337", lines.empty() ? "" : "\0338" + above(count) + body + "\033[J");
}

void LiveLines::Leave() {
  widths_.clear();
  Write("", "");
}

void LiveLines::Write(const std::string& text, std::string screen) {
  // The lock keeps the answer to Ctrl-C from coming between the question and the drawing.
  flockfile(stream_);
  if (!Interrupt::Answered()) std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
  if (stream_ == stderr) Interrupt::SetScreen(std::move(screen));
  funlockfile(stream_);
}

}  // namespace spaid::cli
