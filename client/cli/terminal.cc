#include "client/cli/terminal.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

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
  std::string text = "\033[?25l\r";
  if (up > 0) text += "\033[" + std::to_string(up) + "A";
  if (lines.empty()) text += "\033[J";
  widths_.clear();
  for (const std::string& line : lines) {
    text += line + "\033[K\n";
    widths_.push_back(ScreenWidth(line));
  }
  if (static_cast<int>(lines.size()) < up) text += "\033[J";
  text += "\033[?25h";
  // The lock keeps the answer to Ctrl-C from coming between the question and the drawing.
  flockfile(stream_);
  if (!Interrupt::Answered()) std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
  funlockfile(stream_);
}

}  // namespace spaid::cli
