// Tells what a terminal can show, and draws lines on it over and over again.
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

// Returns true if the first that is set of LC_ALL, LC_CTYPE and LANG says so. Installed locales do
// not matter: the terminal may be at the far end of an ssh.
bool LocaleIsUtf8();
// Returns true if TERM is not "dumb" and not empty.
bool TakesEscapes();

// Returns the columns that a line takes on the screen, without escape sequences and UTF-8's later
// bytes.
int ScreenWidth(std::string_view line);

// Draws lines over those drawn before. Between two drawings the cursor is at the start of the line
// below the last one, and it is never hidden, so that whatever ends the program leaves a usable
// terminal. Each drawing is one write. On stderr, Ctrl-C (interrupt.h) is answered below the lines,
// and nothing is drawn after it.
class LiveLines {
 public:
  explicit LiveLines(FILE* stream) : stream_(stream) {}

  void Draw(const std::vector<std::string>& lines);
  void Erase() { Draw({}); }
  // Leaves the drawing on the screen; the next one begins below.
  void Leave();
  bool drawn() const { return !widths_.empty(); }

 private:
  // `screen`: see Interrupt::SetScreen.
  void Write(const std::string& text, std::string screen);

  FILE* stream_;
  std::vector<int> widths_;  // widths of the lines on the screen
};

}  // namespace spaid::cli
