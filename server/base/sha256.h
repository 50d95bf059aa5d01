// SHA-256 of what comes in pieces.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "server/base/digest.h"

namespace spaid::server {

// Thread-compatible.
class Sha256Hasher {
 public:
  Sha256Hasher();

  void Update(const void* data, size_t size);
  template <class T>
  void Update(std::span<const T> data) {
    Update(data.data(), data.size_bytes());
  }
  Sha256 Finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace spaid::server
