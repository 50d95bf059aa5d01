// A client of --local-socket made by hand: sealed memory, and a raw socket that says what it is
// told to.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/base/descriptor.h"
#include "spaid/v1/arrays.pb.h"
#include "spaid/v1/local.pb.h"

namespace spaid::server {

// A memfd, mapped.
class Memory {
 public:
  static constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

  explicit Memory(int64_t bytes, unsigned seals = kSeals);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int fd() const { return fd_.get(); }
  int64_t bytes() const { return bytes_; }
  template <class T = char>
  T* at(int64_t offset = 0) const {
    return reinterpret_cast<T*>(begin_ + offset);
  }
  // Copies `values` to a multiple of 8 bytes behind what was put before; its place there.
  template <class T>
  v1::ArraySegment Put(v1::ArrayKind array, const std::vector<T>& values) {
    return Put(array, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  // The same without content.
  v1::ArraySegment Place(v1::ArrayKind array, int64_t bytes) { return Put(array, nullptr, bytes); }
  void Unmap();

 private:
  v1::ArraySegment Put(v1::ArrayKind array, const void* from, int64_t bytes);

  Descriptor fd_;
  const int64_t bytes_;
  char* begin_ = nullptr;
  int64_t used_ = 0;
};

class LocalClient {
 public:
  // Connects, and says hello with `token` where there is one.
  explicit LocalClient(const std::string& path, std::optional<std::string> token = "");

  bool connected() const { return socket_.open(); }
  int fd() const { return socket_.get(); }
  void Close() { socket_.Reset(); }

  // False: the other side has hung up.
  bool Send(const std::string& bytes, const std::vector<int>& descriptors = {}) const;
  // Waits for an answer; nothing: the other side has hung up.
  std::optional<v1::LocalReply> Receive() const;
  // Sends and receives.
  std::optional<v1::LocalReply> Ask(const v1::LocalRequest& request,
                                    const std::vector<int>& descriptors = {}) const;
  v1::LocalReply Hello(const std::string& token, int version = 1) const;
  // The lease; empty: refused.
  std::string Register(int memfd, int64_t bytes) const;
  std::string Register(const Memory& memory) const { return Register(memory.fd(), memory.bytes()); }
  // The reason why that is refused; empty: it is not.
  std::string WhyNot(int memfd, int64_t bytes) const;

 private:
  Descriptor socket_;
};

// The reason of an error; empty: it is none.
std::string ReasonOf(const v1::LocalReply& reply);

}  // namespace spaid::server
