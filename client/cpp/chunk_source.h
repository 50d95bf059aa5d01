// Cuts borrowed arrays into messages to send.
//
//   ChunkSource source({Outgoing(v1::ARRAY_KIND_VALUES, values)}, 1 << 20, /*checksums=*/true);
//   source.WantAll();
//   while (!source.Empty()) Send(source.Next(v1::UploadMatrixRequest::kChunkFieldNumber));
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "client/cpp/buffer_pool.h"
#include "spaid/v1/arrays.pb.h"

namespace spaid::internal {

// Describes an array to send; the bytes remain the caller's.
struct OutgoingArray {
  v1::ArrayKind kind;
  std::span<const std::byte> bytes;
  size_t element_size;
  int64_t count() const { return static_cast<int64_t>(bytes.size() / element_size); }
};

template <class T>
OutgoingArray Outgoing(v1::ArrayKind kind, std::span<const T> values) {
  return {kind, std::as_bytes(values), sizeof(T)};
}

// Cuts ranges of arrays into chunks, in the order in which they were asked for. Used by one thread.
class ChunkSource {
 public:
  // Says when a separate thread copies the next chunks, a few at most, while one is being sent.
  enum class Ahead { kNever, kWhereItPays, kAlways };

  ChunkSource(std::vector<OutgoingArray> arrays, int64_t chunk_bytes, bool checksums,
              Ahead ahead = Ahead::kWhereItPays);
  ~ChunkSource();
  ChunkSource(const ChunkSource&) = delete;
  ChunkSource& operator=(const ChunkSource&) = delete;

  void WantAll();
  // Queues a range. False: it is not inside one of the arrays, or asks for more than is left of it,
  // and nothing is queued.
  bool Want(v1::ArrayKind kind, int64_t offset, int64_t count);
  bool Empty() const { return sent_bytes_ == total_bytes_; }
  // Returns the next chunk as a message that has an ArrayChunk in the field `field` (the same at
  // each call) and nothing else. Precondition: !Empty().
  grpc::ByteBuffer Next(int field);
  int64_t sent_bytes() const { return sent_bytes_; }    // returned by Next
  int64_t total_bytes() const { return total_bytes_; }  // in the ranges wanted so far

 private:
  struct Range {
    size_t array;
    int64_t offset, count;
  };
  struct Made {
    grpc::ByteBuffer message;
    int64_t bytes = 0;
  };
  Range TakeRange();  // for one chunk; mutex_ held, wanted_ not empty
  Made Make(const Range& range, int field);
  void MakeAhead(int field);

  const std::vector<OutgoingArray> arrays_;
  std::vector<int64_t> asked_;  // elements, per array
  const int64_t chunk_bytes_;
  const bool checksums_;
  Ahead ahead_;
  BufferPool buffers_;
  int64_t sent_bytes_ = 0, total_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Range> wanted_;  // guarded by mutex_, as is all that follows
  std::deque<Made> made_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread maker_;  // but this
};

}  // namespace spaid::internal
