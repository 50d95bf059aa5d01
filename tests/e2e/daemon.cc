#include "tests/e2e/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace spaid::e2e {
namespace {

constexpr std::chrono::seconds kStartLimit(30);

[[noreturn]] void Die(const std::string& what) {
  std::perror(what.c_str());
  std::abort();
}

std::string ReadWhole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// A child with stdout and stderr in `output`; it dies with this process.
pid_t Spawn(const std::vector<std::string>& command, const std::filesystem::path& output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) Die(output.string());
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {  // async-signal-safe calls alone: this process has threads
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(fd, 1);
    dup2(fd, 2);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(fd);
  return child;
}

int ExitStatus(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

int64_t StatusKib(pid_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  }
  return -1;
}

}  // namespace

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "spaid-e2e-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) Die(name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string DaemonProgram() {
  if (const char* named = std::getenv("SPAID_DAEMON")) return named;
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const auto& candidate : {here / "spaid", here / "../../../bin/spaid"}) {
    if (std::filesystem::exists(candidate)) return candidate.string();
  }
  std::fprintf(stderr, "no daemon beside %s; build the target spaid, or name it by SPAID_DAEMON\n",
               here.c_str());
  std::abort();
}

Daemon::Daemon(const std::vector<std::string>& flags, const char* host) {
  const std::filesystem::path port_file = folder_ / "port";
  const int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch < 0 ||
      inotify_add_watch(watch, port_file.parent_path().c_str(), IN_CLOSE_WRITE | IN_MOVED_TO) < 0) {
    Die("inotify");
  }
  std::vector<std::string> command{DaemonProgram(), std::string("--address=") + host,
                                   "--port-file=" + port_file.string(),
                                   "--ops-address=127.0.0.1:0"};
  command.insert(command.end(), flags.begin(), flags.end());
  pid_ = Spawn(command, folder_ / "log");
  pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pid_fd_ < 0) Die("pidfd_open");

  const auto end = std::chrono::steady_clock::now() + kStartLimit;
  while (address_.empty() && !exit_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      Signal(SIGKILL);
      WaitForExit();
      break;
    }
    pollfd events[] = {{watch, POLLIN, 0}, {pid_fd_, POLLIN, 0}};
    poll(events, 2, static_cast<int>(left.count()));
    if (events[1].revents != 0) {
      WaitForExit();
      break;
    }
    char drained[4096];
    while (read(watch, drained, sizeof(drained)) > 0) {
    }
    std::string text = ReadWhole(port_file);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    address_ = text;
  }
  close(watch);
}

Daemon::~Daemon() {
  if (!exit_) {
    Signal(SIGKILL);
    WaitForExit();
  }
  if (pid_fd_ >= 0) close(pid_fd_);
}

void Daemon::Signal(int number) const {
  if (!exit_) kill(pid_, number);
}

std::optional<int> Daemon::WaitForExit(std::chrono::milliseconds limit) {
  if (exit_) return exit_;
  pollfd event{pid_fd_, POLLIN, 0};
  if (poll(&event, 1, static_cast<int>(limit.count())) != 1) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) Die("waitpid");
  exit_ = ExitStatus(status);
  return exit_;
}

std::string Daemon::log() const { return ReadWhole(folder_ / "log"); }
int64_t Daemon::ResidentBytes() const { return StatusKib(pid_, "VmRSS:") * 1024; }
int64_t Daemon::PeakResidentBytes() const { return StatusKib(pid_, "VmHWM:") * 1024; }

void Daemon::ForgetPeak() const {
  std::ofstream file("/proc/" + std::to_string(pid_) + "/clear_refs");
  if (!(file << "5" << std::flush)) Die("clear_refs");
}

int Daemon::OpenDescriptors() const {
  std::error_code ignored;
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid_) + "/fd",
                                                    ignored);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

std::string Daemon::ops_address() const {
  const std::string text = log(), key = " ops_address=";
  const size_t at = text.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return text.substr(begin, text.find(' ', begin) - begin);
}

Ran RunProgram(const std::vector<std::string>& command) {
  const TempDir folder;
  const pid_t child = Spawn(command, folder / "output");
  int status = 0;
  if (waitpid(child, &status, 0) != child) Die("waitpid");
  return {ExitStatus(status), ReadWhole(folder / "output")};
}

}  // namespace spaid::e2e
