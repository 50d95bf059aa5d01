#include "client/c/last_error.h"

#include "spaid/spaid.h"

namespace spaid::c {
namespace {

struct LastError {
  Error error;
  std::string retry_after_ms;
  bool set = false;
  bool without_memory = false;
};

LastError& Last() {
  thread_local LastError last;
  return last;
}

constexpr const char* kNoMemory =
    "this process has no memory left for the call; free some, or copy less (SPAID_COPY)";

const char* DetailWithoutMemory(std::string_view name) {
  return name == "reason" ? "OUT_OF_MEMORY" : nullptr;
}

const char* Detail(const LastError& last, std::string_view name) {
  const auto some = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  if (name == "reason") return some(last.error.reason);
  if (name == "field") return some(last.error.field);
  if (name == "retry-after-ms") return some(last.retry_after_ms);
  for (const auto& [key, value] : last.error.metadata) {
    if (key == name) return value.c_str();
  }
  return nullptr;
}

}  // namespace

int Fail(Error error) noexcept {
  LastError& last = Last();
  // A status of 0 would be success.
  const Code code = error.code == Code::kOk ? Code::kUnknown : error.code;
  last.retry_after_ms.clear();
  if (error.retry_after) last.retry_after_ms = std::to_string(error.retry_after->count());
  last.error = std::move(error);
  last.set = true;
  last.without_memory = false;
  return -static_cast<int>(code);
}

int Fail(Code code, std::string_view reason, std::string message, std::string field) {
  Error error;
  error.code = code;
  error.reason = reason;
  error.message = std::move(message);
  error.field = std::move(field);
  return Fail(std::move(error));
}

int FailWithoutMemory() noexcept {
  Last().set = Last().without_memory = true;
  return SPAID_RESOURCE_EXHAUSTED;
}

int FailUnexpected(const char* what) noexcept {
  try {
    return Fail(Code::kInternal, "INTERNAL",
                std::string("the library failed: ") + what +
                    "; this is its own fault: report it with the call that it was");
  } catch (const std::exception&) {
    return FailWithoutMemory();
  }
}

int RequireAll(std::initializer_list<std::pair<const char*, const void*>> arguments) {
  for (const auto& [name, argument] : arguments) {
    if (argument != nullptr) continue;
    return Fail(Code::kInvalidArgument, "NULL_ARGUMENT",
                std::string(name) + " is NULL; this function needs it", name);
  }
  return 0;
}

}  // namespace spaid::c

const char* spaid_last_error(void) {
  const spaid::c::LastError& last = spaid::c::Last();
  if (last.without_memory) return spaid::c::kNoMemory;
  return last.set ? last.error.message.c_str() : "";
}

const char* spaid_last_error_detail(const char* name) {
  const spaid::c::LastError& last = spaid::c::Last();
  if (name == nullptr || !last.set) return nullptr;
  return last.without_memory ? spaid::c::DetailWithoutMemory(name) : spaid::c::Detail(last, name);
}
