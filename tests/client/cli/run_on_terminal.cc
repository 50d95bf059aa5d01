#include "tests/client/cli/run_on_terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string_view>

extern char** environ;

namespace spaid::cli {

TerminalRun RunOnTerminal(const std::vector<std::string>& command, const TerminalOptions& options) {
  // All of it before the fork: after it, only exec is safe.
  std::vector<std::string> words = command, settings = options.environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool passed = true;
    for (const char* own : {"SPAID_", "NO_COLOR=", "TERM=", "LANG=", "LC_"}) {
      if (text.starts_with(own)) passed = false;
    }
    if (passed) settings.emplace_back(text);
  }
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& setting : settings) envp.push_back(setting.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  winsize size = {};
  size.ws_col = static_cast<unsigned short>(options.columns);
  size.ws_row = static_cast<unsigned short>(options.rows);

  TerminalRun run;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  EXPECT_GT(child, 0) << "no terminal";
  if (child < 0) return run;
  bool interrupted = false;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(terminal, buffer.data(), buffer.size());
    if (count <= 0) break;  // EIO: the last that had it open has closed it
    run.output.append(buffer.data(), static_cast<size_t>(count));
    if (!interrupted && options.interrupt && options.interrupt(run.output)) {
      interrupted = true;
      EXPECT_EQ(write(terminal, "\x03", 1), 1);
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  close(terminal);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  return run;
}

}  // namespace spaid::cli
