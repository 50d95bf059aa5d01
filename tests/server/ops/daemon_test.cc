// The program itself: its flags, its refusals, its exit codes. (Its work is tested in tests/e2e.)
#include "tests/e2e/daemon.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

struct Ran {
  int exit_code = -1;
  std::string out, err;
};

std::string Drain(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = read(fd, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

// Runs the daemon; sends SIGTERM once `until` stands on its standard error (empty: never).
Ran RunDaemon(std::vector<std::string> arguments, const std::string& until = "") {
  std::array<int, 2> out{}, err{};
  EXPECT_EQ(pipe(out.data()), 0);
  EXPECT_EQ(pipe(err.data()), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    std::string program = spaid::e2e::DaemonProgram();
    std::vector<char*> argv{program.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Ran ran;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  bool signalled = false;
  while ((got = read(err[0], buffer.data(), buffer.size())) > 0) {
    ran.err.append(buffer.data(), static_cast<size_t>(got));
    if (!signalled && !until.empty() && ran.err.find(until) != std::string::npos) {
      signalled = true;
      kill(pid, SIGTERM);
    }
  }
  close(err[0]);
  ran.out = Drain(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(Daemon, VersionAndHelp) {
  const Ran version = RunDaemon({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("spaid ", 0), 0u) << version.out;
  const Ran help = RunDaemon({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* flag : {"--address", "--port-file", "--ops-address", "--tls-cert", "--tokens",
                           "--drain-grace", "--flagfile", "--matrix-store-bytes"}) {
    EXPECT_NE(help.out.find(flag), std::string::npos) << flag;
  }
}

TEST(Daemon, WrongUsageIsOneLineAndExit2) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--no-such-flag"},
      {"--matrix-store-bytes=lots"},
      {"--drain-grace=-1s"},
      {"--heartbeat-interval=0s"},
      {"--log-level=loud"},
      {"--devices=abacus"},
      {"--devices=gpu:x"},
      {"--devices=cpu,auto"},
      {"--device-memory=much"},
      {"--address=localhost"},
      {"--address=localhost:http"},
      {"--address=127.0.0.1:0", "--ops-address=localhost"},
      {"--address=127.0.0.1:0", "--ops-address=0.0.0.0:0"},
      {"--max-build-bytes=7000000GiB"},
      {"--max-queued-jobs=0"},
      {"--tokens=", "--address=127.0.0.1:0"},
      {"--matrix-store-bytes=8000000GiB"},
      {"--max-matrix-bytes=2GiB", "--matrix-store-bytes=1GiB"},
      {"--address=0.0.0.0:0"},
      {"--address=127.0.0.1:0", "--insecure", "--tls-cert=x", "--tls-key=y"},
      {"--address=127.0.0.1:0", "--tokens=x", "--trust-tenant-header"},
      {"--address=127.0.0.1:0", "--admin-tokens=x", "--trust-tenant-header"},
      {"--address=127.0.0.1:0", "--tls-client-ca=x", "--tls-cert=y", "--tls-key=z",
       "--allow-anonymous", "--trust-tenant-header"},
      {"--address=127.0.0.1:0", "--admin-subject=CN=ann"},
      {"--address=0.0.0.0:0", "--insecure", "--tokens=x"},
      {"--address=0.0.0.0:0", "--insecure", "--admin-tokens=x"},
      {"--address=127.0.0.1:0", "--local-uids=1000"},
      {"--address=127.0.0.1:0", "--local-tenants=1000:alice"},
      {"--local-socket=/tmp/x", "--local-uids=alice"},
      {"--local-socket=/tmp/x", "--local-uids=1,"},
      {"--local-socket=/tmp/x", "--local-uids=4294967295"},
      {"--local-socket=/tmp/x", "--local-tenants=1000"},
      {"--local-socket=/tmp/x", "--local-tenants=1000:"},
      {"--local-socket=/tmp/x", "--local-segments=0"},
      {"--local-socket=/tmp/x", "--local-connections=0"},
      {"--local-socket=/tmp/x", "--local-bytes=7000000GiB"},
  };
  for (const auto& arguments : wrong) {
    const Ran ran = RunDaemon(arguments);
    EXPECT_EQ(ran.exit_code, 2) << arguments[0] << "\n" << ran.err;
    EXPECT_EQ(Lines(ran.err), 1) << ran.err;
    EXPECT_EQ(ran.err.rfind("spaid: ", 0), 0u) << ran.err;
  }
  EXPECT_NE(RunDaemon({"--address=0.0.0.0:0"}).err.find("--insecure"), std::string::npos);
  EXPECT_NE(RunDaemon({"--ops-address=0.0.0.0:0"}).err.find("--ops-insecure"), std::string::npos);
  EXPECT_NE(RunDaemon({"--address=0.0.0.0:0", "--insecure", "--tokens=x"})
                .err.find("say --tokens-in-clear"),
            std::string::npos);
  EXPECT_NE(RunDaemon({"--tokens=x", "--trust-tenant-header"})
                .err.find("--trust-tenant-header and --tokens exclude each other"),
            std::string::npos);
}

TEST(Daemon, WhatCannotBeServedIsOneLineAndExit1) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string taken = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));

  const std::string garbage = testing::TempDir() + "cert." + std::to_string(getpid());
  std::ofstream(garbage) << "this is no certificate\n";
  const std::vector<std::vector<std::string>> wrong = {
      {"--address=" + taken, "--ops-address="},
      {"--address=127.0.0.1:0", "--ops-address=" + taken},
      {"--address=127.0.0.1:0", "--ops-address=", "--local-socket=/nowhere/local"},
      {"--address=127.0.0.1:0", "--ops-address=", "--tls-cert=/nonexistent",
       "--tls-key=" + garbage},
      {"--address=127.0.0.1:0", "--ops-address=", "--tls-cert=" + garbage, "--tls-key=" + garbage},
      {"--address=127.0.0.1:0", "--ops-address=", "--tokens=/nonexistent"},
      {"--address=127.0.0.1:0", "--ops-address=", "--port-file=/nonexistent/port"},
      {"--address=127.0.0.1:0", "--ops-address=", "--devices=cpu,gpu:77"},
      {"--address=127.0.0.1:0", "--ops-address=", "--devices=GPU-none"},
      {"--flagfile=/nonexistent/flags"},
  };
  for (const auto& arguments : wrong) {
    const Ran ran = RunDaemon(arguments);
    EXPECT_EQ(ran.exit_code, 1) << arguments.back() << "\n" << ran.err;
    const size_t last = ran.err.rfind("spaid: ");
    ASSERT_NE(last, std::string::npos) << ran.err;
    EXPECT_EQ(Lines(ran.err.substr(last)), 1) << ran.err;
  }
  EXPECT_NE(RunDaemon(wrong[0]).err.find(taken), std::string::npos);
  const std::string absent = RunDaemon({"--devices=gpu:77"}).err;
  EXPECT_NE(absent.find("--devices=gpu:77: there is no gpu:77; found: cpu"), std::string::npos)
      << absent;
  close(fd);
  std::remove(garbage.c_str());
}

TEST(Daemon, ServesWritesItsPortFileDrainsAndExits0) {
  const std::string port_file = testing::TempDir() + "port." + std::to_string(getpid());
  const std::string flags = testing::TempDir() + "flags." + std::to_string(getpid());
  std::ofstream(flags) << "address=127.0.0.1:0\nops-address=127.0.0.1:0\ndrain-grace=0s\n"
                       << "port-file=" << port_file << "\n";
  const Ran ran = RunDaemon({"--flagfile=" + flags}, "plaintext");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.err.find("serving"), std::string::npos);
  EXPECT_NE(ran.err.find("drain_end"), std::string::npos);
  EXPECT_EQ(access(port_file.c_str(), F_OK), -1);  // taken away again
  std::remove(flags.c_str());
}

}  // namespace
