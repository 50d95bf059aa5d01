// What a terminal can show, and lines on it that are drawn over and over again.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace spaid::cli {

struct TerminalSize {
  int columns = 80, rows = 24;
};
TerminalSize SizeOf(FILE* stream);

// By LC_ALL, LC_CTYPE and LANG, of which the first that is set counts. Not by what locales are
// installed here: the terminal may be at the far end of an ssh.
bool LocaleIsUtf8();
// TERM is not "dumb" and not empty.
bool TakesEscapes();

// Characters that a line takes on the screen: neither escape sequences nor UTF-8's later bytes.
int ScreenWidth(std::string_view line);

// Draws lines over those drawn before. Between two drawings the cursor stands at the start of the
// line below the last one, and it is never hidden, so that whatever ends the program leaves a
// usable terminal. Each drawing is one write. On stderr, Ctrl-C (interrupt.h) is answered below the
// lines, and nothing is drawn after it.
class LiveLines {
 public:
  explicit LiveLines(FILE* stream) : stream_(stream) {}

  void Draw(const std::vector<std::string>& lines);
  void Erase() { Draw({}); }
  // What was drawn stays; the next drawing begins below.
  void Leave();
  bool drawn() const { return !widths_.empty(); }

 private:
  // `screen`: see Interrupt::SetScreen.
  void Write(const std::string& text, std::string screen);

  FILE* stream_;
  std::vector<int> widths_;  // of the lines that stand
};

}  // namespace spaid::cli
