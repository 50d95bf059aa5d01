// Provides memory for outgoing messages. gRPC may release a buffer after the call has ended (a
// cancelled call leaves what is being written to the socket); so a buffer is never the user's own
// memory, and the pool may die before its buffers.
//
//   grpc::Slice slice = pool.Copy(bytes, [](std::span<const std::byte> piece) { ... });
#pragma once

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace spaid::internal {

class BufferPool {
 public:
  BufferPool();

  // Returns a copy of `bytes`. `look` sees it piece by piece, while each piece is in the cache.
  grpc::Slice Copy(std::span<const std::byte> bytes,
                   const std::function<void(std::span<const std::byte>)>& look);

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> memory;
    size_t size = 0;
  };
  class Free;
  struct Loan;

  std::shared_ptr<Free> free_;
};

}  // namespace spaid::internal
