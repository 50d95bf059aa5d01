// The kernels' own small Status: a canonical code, a machine-readable reason, and a text that names
// the offending field or index and the cure. `server/engine` converts it to absl::Status.
//
//   Result<CscMatrix> m = Transpose(view);
//   if (!m.ok()) return m.status();
#pragma once

#include <cassert>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace spaid::kernels {

// The subset of the canonical gRPC codes that numerics can produce; values equal gRPC's.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kInternal = 13,
  kUnavailable = 14,
};

// Value type, cheap when OK. Thread-compatible.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // `reason`: UPPER_SNAKE, stable for programs ("NOT_SQUARE"). `message`: for people; says the
  // cure.
  Status(StatusCode code, std::string reason, std::string message)
      : code_(code), reason_(std::move(reason)), message_(std::move(message)) {}

  // `field`: the input that is at fault ("row_idx"). `index`: its 0-based first bad element.
  Status& At(std::string field, int64_t index = -1) & {
    field_ = std::move(field);
    index_ = index;
    return *this;
  }
  Status&& At(std::string field, int64_t index = -1) && {
    return std::move(At(std::move(field), index));
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& reason() const { return reason_; }
  const std::string& message() const { return message_; }
  const std::string& field() const { return field_; }
  int64_t index() const { return index_; }  // -1: none

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string reason_, message_, field_;
  int64_t index_ = -1;
};

// A value or the Status that says why there is none. `value()` on an error is a broken invariant.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                  // NOLINT
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

// RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Status OutOfMemory(std::string_view what);

// compute(), which may run out of memory: its Result, or OutOfMemory(what).
template <class Compute>
auto GuardMemory(std::string_view what, const Compute& compute) -> decltype(compute()) {
  try {
    return compute();
  } catch (const std::bad_alloc&) {
    return OutOfMemory(what);
  }
}

}  // namespace spaid::kernels
