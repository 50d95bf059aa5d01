#include "client/cpp/buffer_pool.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace spaid::internal {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;  // well inside a second-level cache
constexpr size_t kMaxFree = 4;                    // one is being filled, a few are being sent

}  // namespace

class BufferPool::Free {
 public:
  // At least `size` bytes.
  Buffer Take(size_t size) {
    {
      std::lock_guard lock(mutex_);
      while (!buffers_.empty()) {
        Buffer buffer = std::move(buffers_.back());
        buffers_.pop_back();
        if (buffer.size >= size) return buffer;
      }
    }
    return {std::make_unique_for_overwrite<std::byte[]>(size), size};
  }

  void Return(Buffer buffer) {
    std::lock_guard lock(mutex_);
    if (buffers_.size() < kMaxFree) buffers_.push_back(std::move(buffer));
  }

 private:
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
};

struct BufferPool::Loan {
  std::shared_ptr<Free> free;
  Buffer buffer;

  static void End(void* loan) {
    const std::unique_ptr<Loan> ended(static_cast<Loan*>(loan));
    ended->free->Return(std::move(ended->buffer));
  }
};

BufferPool::BufferPool() : free_(std::make_shared<Free>()) {}

grpc::Slice BufferPool::Copy(std::span<const std::byte> bytes,
                             const std::function<void(std::span<const std::byte>)>& look) {
  auto loan = std::make_unique<Loan>(Loan{free_, free_->Take(bytes.size())});
  std::byte* const memory = loan->buffer.memory.get();
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes.size() - at);
    std::memcpy(memory + at, bytes.data() + at, piece);
    look({memory + at, piece});
  }
  return grpc::Slice(memory, bytes.size(), &Loan::End, loan.release());
}

}  // namespace spaid::internal
