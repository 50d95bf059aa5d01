// Errors of the C interface: no exception leaves it, and each thread remembers its last error.
#pragma once

#include <exception>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "spaid/types.h"

namespace spaid::c {

// Remembers `error` as this thread's last and returns its status, below 0.
int Fail(Error error) noexcept;
int Fail(Code code, std::string_view reason, std::string message, std::string field = {});
// The same without allocating memory.
int FailWithoutMemory() noexcept;
// For an exception that nobody expected.
int FailUnexpected(const char* what) noexcept;

// Returns 0, or the status of an error that names the first argument that is NULL.
int RequireAll(std::initializer_list<std::pair<const char*, const void*>> arguments);

// Runs the body of an exported function, which returns a status, and makes statuses of exceptions.
template <class Body>
int Guard(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return FailWithoutMemory();
  } catch (const std::exception& exception) {
    return FailUnexpected(exception.what());
  } catch (...) {
    return FailUnexpected("an exception without a text");
  }
}

}  // namespace spaid::c
