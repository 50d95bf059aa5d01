// Options, clients, and memory shared with the daemon.
#include <cstdlib>
#include <new>
#include <string>

#include "client/c/last_error.h"
#include "client/c/objects.h"

using spaid::c::Fail;
using spaid::c::Guard;
using spaid::c::RequireAll;

namespace spaid::c {
namespace {

void SetFrom(const char* variable, std::string& member) {
  const char* const text = std::getenv(variable);
  if (text != nullptr && *text != '\0') member = text;
}

}  // namespace

internal::OptionSet DefaultOptions() {
  internal::OptionSet set;
  SetFrom("SPAID_ADDRESS", set.client.address);
  SetFrom("SPAID_TOKEN", set.client.token);
  return set;
}

}  // namespace spaid::c

const char* spaid_version(void) { return SPAID_VERSION; }

const char* spaid_status_name(int status) {
  static constexpr const char* kErrors[] = {"CANCELLED",
                                            "UNKNOWN",
                                            "INVALID_ARGUMENT",
                                            "DEADLINE_EXCEEDED",
                                            "NOT_FOUND",
                                            "ALREADY_EXISTS",
                                            "PERMISSION_DENIED",
                                            "RESOURCE_EXHAUSTED",
                                            "FAILED_PRECONDITION",
                                            "ABORTED",
                                            "OUT_OF_RANGE",
                                            "UNIMPLEMENTED",
                                            "INTERNAL",
                                            "UNAVAILABLE",
                                            "DATA_LOSS",
                                            "UNAUTHENTICATED"};
  if (status >= 0) return spaid::Name(static_cast<spaid::Outcome>(status)).data();
  return status >= SPAID_UNAUTHENTICATED ? kErrors[-status - 1] : "unknown";
}

int spaid_options_new(spaid_options** options) {
  return Guard([&] {
    if (const int status = RequireAll({{"options", options}})) return status;
    *options = nullptr;
    *options = new spaid_options{spaid::c::DefaultOptions()};
    return 0;
  });
}

int spaid_options_set(spaid_options* options, const char* name, const char* value) {
  return Guard([&] {
    if (const int status = RequireAll({{"options", options}, {"name", name}, {"value", value}})) {
      return status;
    }
    auto error = spaid::internal::SetOption(options->set, name, value);
    return error ? Fail(*std::move(error)) : 0;
  });
}

void spaid_options_free(spaid_options* options) { delete options; }

int spaid_client_new(const spaid_options* options, spaid_client** client) {
  return Guard([&] {
    if (const int status = RequireAll({{"client", client}})) return status;
    *client = nullptr;
    spaid::ClientOptions chosen =
        options != nullptr ? options->set.client : spaid::c::DefaultOptions().client;
    *client = new spaid_client{std::make_shared<spaid::c::Connection>(std::move(chosen))};
    return 0;
  });
}

void spaid_client_free(spaid_client* client) { delete client; }

int spaid_client_info(spaid_client* client, spaid_report** report) {
  return Guard([&] {
    if (report != nullptr) *report = nullptr;
    if (const int status = RequireAll({{"client", client}, {"report", report}})) return status;
    spaid::Client& daemon = client->connection->client;
    auto info = daemon.GetServerInfo();
    if (!info.ok()) return Fail(info.error());
    *report = new spaid_report{spaid::c::FiguresOf(*info, daemon.GetLocalStatus()), {}};
    return 0;
  });
}

int spaid_allocate(spaid_client* client, spaid_long bytes, void** memory) {
  return Guard([&] {
    if (memory != nullptr) *memory = nullptr;
    if (const int status = RequireAll({{"client", client}, {"memory", memory}})) return status;
    if (bytes < 1) {
      return Fail(spaid::Code::kInvalidArgument, "BAD_OPTION",
                  "bytes is " + std::to_string(bytes) + "; at least 1 is needed", "bytes");
    }
    spaid::c::Connection& connection = *client->connection;
    auto array = connection.client.Allocate<std::byte>(bytes);
    if (!array.ok()) return Fail(array.error());
    void* const begin = array->data();
    const std::lock_guard lock(connection.mutex);
    connection.memory.emplace(begin, *std::move(array));
    *memory = begin;
    return 0;
  });
}

int spaid_release(spaid_client* client, void* memory) {
  return Guard([&] {
    if (const int status = RequireAll({{"client", client}})) return status;
    const std::lock_guard lock(client->connection->mutex);
    if (memory == nullptr || client->connection->memory.erase(memory) == 1) return 0;
    return Fail(spaid::Code::kInvalidArgument, "BAD_OPTION",
                "memory is none that spaid_allocate of this client gave, or released already",
                "memory");
  });
}
