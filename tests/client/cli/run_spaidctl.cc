#include "tests/client/cli/run_spaidctl.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "tests/client/cli/temp_folder.h"

extern char** environ;

namespace spaid::cli {

std::string ProgramPath(const std::string& name) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto beside = folder / name;
  if (std::filesystem::exists(beside)) return beside.string();
  return (folder / "../../../bin" / name).lexically_normal().string();
}

std::string SpaidctlPath() { return ProgramPath("spaidctl"); }

Finished RunProgram(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment) {
  const TempFolder folder;
  const std::string out = folder.File("out"), err = folder.File("err");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<std::string> words = command, settings = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("SPAID_") && !text.starts_with("NO_COLOR=")) settings.emplace_back(text);
  }
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& setting : settings) envp.push_back(setting.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(failed, 0) << "cannot start " << command[0];
  Finished finished;
  if (failed != 0) return finished;
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) finished.exit_code = WEXITSTATUS(status);
  finished.out = TempFolder::Read(out);
  finished.err = TempFolder::Read(err);
  return finished;
}

Finished RunSpaidctl(const std::vector<std::string>& args,
                     const std::vector<std::string>& environment) {
  std::vector<std::string> command = {SpaidctlPath()};
  command.insert(command.end(), args.begin(), args.end());
  return RunProgram(command, environment);
}

}  // namespace spaid::cli
