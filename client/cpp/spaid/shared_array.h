// Arrays that a daemon on the same host reads and writes where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace spaid {

namespace internal {
class SharedMemory;  // client/cpp/local.h
// The first byte of it.
void* Begin(const SharedMemory& memory);
}  // namespace internal

// Says whether arrays of Client::Allocate go to the daemon as memory that it shares, or over the
// wire like others.
struct LocalStatus {
  bool available = false;
  std::string why;     // if not: for people, with the cure
  std::string reason;  // the server's, if it refused: "PEER_REFUSED"; see proto/spaid/v1/README.md
  std::string tenant;  // who the server takes the caller for, at ClientOptions::local_socket
  // Since the client was made: bytes of arrays that went, or came, through shared memory, and those
  // in shared memory that took the wire all the same.
  int64_t shared_bytes = 0, fallback_bytes = 0;
};

// An array of `size()` elements, zero at first, which Client::Allocate makes. Where the daemon is
// on the same host and lets it (Client::LocalStatus), calls with this array, or with a part of it
// that begins at a multiple of 8 bytes, name it instead of sending it; else they send it, like any
// other. It may outlive its Client; the memory goes with it.
template <class T>
class SharedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SharedArray() = default;
  SharedArray(SharedArray&& other) noexcept
      : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  SharedArray& operator=(SharedArray&& other) noexcept {
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() const { return memory_ ? static_cast<T*>(internal::Begin(*memory_)) : nullptr; }
  size_t size() const { return size_; }
  T* begin() const { return data(); }
  T* end() const { return data() + size_; }
  T& operator[](size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), size_}; }
  operator std::span<T>() const { return span(); }        // NOLINT
  operator std::span<const T>() const { return span(); }  // NOLINT

 private:
  friend class Client;
  SharedArray(std::shared_ptr<internal::SharedMemory> memory, size_t size)
      : memory_(std::move(memory)), size_(size) {}

  std::shared_ptr<internal::SharedMemory> memory_;
  size_t size_ = 0;
};

}  // namespace spaid
