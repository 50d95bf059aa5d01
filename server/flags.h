// The daemon's flags: declared, explained and checked in one place.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/base/log.h"
#include "server/ops/drain.h"
#include "server/ops/http_server.h"
#include "server/rpc/backend.h"
#include "server/rpc/credentials.h"
#include "server/rpc/local_socket.h"
#include "server/store/spill_folder.h"

namespace spaid::server {

struct Flags {
  std::string address = "127.0.0.1:7433";
  std::string port_file;
  std::string ops_address = "127.0.0.1:7434";
  std::vector<std::string> ops_hosts;
  bool insecure = false;
  bool ops_insecure = false;
  TlsFiles tls;
  std::string tokens_file, admin_tokens_file;
  std::vector<std::string> admin_subjects;
  bool allow_anonymous = false;
  bool tokens_in_clear = false;
  bool trust_tenant_header = false;
  HttpOptions ops;
  bool reflection = false;
  std::chrono::milliseconds self_probe{10'000};  // 0: never
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  std::string otlp_endpoint;  // empty: no spans
  LogLimits log_limits;
  // The memory of large freed arrays waits this long for new ones of their size: a client that
  // sends or builds in a loop reuses it.
  std::chrono::milliseconds keep_freed{5000};
  std::string devices = "auto";  // as OpenEngine takes it
  std::string on_device_loss;    // "exit", "degrade"; empty: exit if `devices` names some
  int gpu_slots = 2;
  int64_t device_memory = 0;  // bytes per GPU; 0: all
  LocalSocketOptions local;   // path empty: none
  SpillOptions spill;         // folder empty: none
  BackendOptions backend;
  DrainOptions drain;
};

// The result of parsing the command line: flags to serve with, or an exit code to leave with at
// once
// (--help, --version, wrong usage: everything has been printed).
struct ParsedFlags {
  std::optional<int> exit_code;
  Flags flags;
  std::string given;  // flags and their values, from the command line or a file: NAME=VALUE ...
};

// Parses and checks the command line. `usable_memory`: bytes this process may use; the byte limits
// default to shares of it.
ParsedFlags ParseFlags(int argc, char** argv, int64_t usable_memory);

}  // namespace spaid::server
