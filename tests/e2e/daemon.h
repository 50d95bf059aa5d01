// The real daemon as a child process: started on a free port, waited for by its port file, killed
// by its pid.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace spaid::e2e {

// A folder of its own that goes away with it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The program under test: $SPAID_DAEMON, or `spaid` beside this test's program, or in ../../../bin
// as `cmake --install` lays them out. Aborts where there is none.
std::string DaemonProgram();

class Daemon {
 public:
  // Starts `spaid --address=HOST --port-file=… --ops-address=127.0.0.1:0 flags…` and returns when
  // the port file is written, or the daemon has ended, or half a minute has passed (then it is
  // killed).
  explicit Daemon(const std::vector<std::string>& flags = {}, const char* host = "127.0.0.1:0");
  // Kills what is still running.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  bool serving() const { return !address_.empty(); }
  const std::string& address() const { return address_; }  // 127.0.0.1:PORT; empty: did not start
  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // The exit status (negative: the signal that killed it), or nothing after `limit`.
  std::optional<int> WaitForExit(std::chrono::milliseconds limit = std::chrono::seconds(60));
  std::string log() const;  // stdout and stderr so far
  int64_t ResidentBytes() const;
  int64_t PeakResidentBytes() const;  // since the start, or ForgetPeak
  void ForgetPeak() const;
  int OpenDescriptors() const;
  // HOST:PORT of the operator's port.
  std::string ops_address() const;

 private:
  TempDir folder_;
  std::string address_;
  pid_t pid_ = -1;
  int pid_fd_ = -1;
  std::optional<int> exit_;
};

// Runs a program to its end; its exit status, and what it wrote to stdout and stderr.
struct Ran {
  int status = -1;
  std::string output;
};
Ran RunProgram(const std::vector<std::string>& command);

}  // namespace spaid::e2e
