// All options of a call by the names of spaidctl's flags, set from texts: for programs and
// languages that take options so. What proto/spaid/v1/options.proto describes is here by itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cpp/options.h"
#include "spaid/client.h"

namespace spaid::internal {

// With the defaults of the structs; `reuse` with that of System, which alone reads it.
struct OptionSet {
  ClientOptions client;
  SolveOptions solve;  // `spec` and `engine`, too
  ReusePolicy reuse = {.mode = ReuseMode::kAuto};
  CallOptions call;
};

// Options without a description in the contract: the engine, those of the connection and of calls.
OptionInfo PlainOption(const char* flag, const char* value, const char* help, const char* group);

// visit(info, member) for every option; one whose flag several members have comes once for each.
// Thread-safe.
template <class Visit>
void VisitOptionSet(OptionSet& set, Visit&& visit) {
  const char* const server = "Server";
  visit(PlainOption("--address", "HOST:PORT", "Daemon to talk to", server), set.client.address);
  visit(PlainOption("--tls-ca", "FILE", "Use TLS; trust this authority (PEM)", server),
        set.client.ca_file);
  visit(PlainOption("--tls-cert", "FILE", "Client certificate for mutual TLS (PEM)", server),
        set.client.certificate_file);
  visit(PlainOption("--tls-key", "FILE", "Its private key (PEM)", server), set.client.key_file);
  visit(PlainOption("--token", "TOKEN", "Bearer token", server), set.client.token);
  visit(PlainOption("--tenant", "NAME", "Tenant to ask for", server), set.client.tenant);
  visit(PlainOption("--local-socket", "PATH", "Share memory with a daemon on this host", server),
        set.client.local_socket);
  visit(PlainOption("--timeout", "SECONDS", "Deadline of the whole call", server),
        set.call.timeout);
  visit(PlainOption("--max-queue", "SECONDS", "Give up after waiting this long in the queue", ""),
        set.call.max_queue);
  visit(PlainOption("--max-run", "SECONDS", "Stop the job after running this long", ""),
        set.call.max_run);
  visit(PlainOption("--priority", "", "Class of the job", ""), set.call.priority);
  visit(PlainOption("--engine", "", "Preconditioner", ""), set.solve.engine);
  visit(PlainOption("--null-space", "", "Of a singular A, projected out", ""),
        set.solve.null_space);
  SolveOptions::Fields(
      set.solve, [&](const char* name, auto& member) { visit(*FindSolveOption(name), member); });
  ReusePolicy::Fields(
      set.reuse, [&](const char* name, auto& member) { visit(*FindReuseOption(name), member); });
  VisitOptions(set.solve.spec, std::nullopt, visit);
}

// All names, sorted: flags without their dashes.
std::vector<std::string> OptionNames();

// Sets the option `name` ("k-max") from `text`: numbers in C's notation whatever the locale, times
// in seconds, choices by their names, "true" or "false". Changes nothing on an Error:
// UNKNOWN_OPTION, BAD_OPTION, both with the name as field.
std::optional<Error> SetOption(OptionSet& set, std::string_view name, std::string_view text);

}  // namespace spaid::internal
