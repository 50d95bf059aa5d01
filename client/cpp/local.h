// Memory that a client shares with a daemon on the same host, by ClientOptions::local_socket: the
// connection, the segments and their leases. Messages: proto/spaid/v1/local.proto.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/chunk_source.h"
#include "client/cpp/exchange.h"
#include "spaid/client.h"
#include "spaid/v1/arrays.pb.h"
#include "spaid/v1/local.pb.h"

namespace spaid::internal {

class LocalLink;

// Mapped memory: a sealed memfd where the client has a local socket, else of this process alone.
// Gives up its lease when it dies.
class SharedMemory {
 public:
  // Committed at once: a lack of memory is an error here, not a signal later.
  static Expected<std::shared_ptr<SharedMemory>> Create(int64_t bytes,
                                                        const std::shared_ptr<LocalLink>& link);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }

 private:
  friend class LocalLink;
  SharedMemory() = default;

  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
  int memfd_ = -1;
  std::weak_ptr<LocalLink> link_;
  std::string lease_;                                 // guarded by the link's mutex; empty: none
  std::chrono::steady_clock::time_point next_try_{};  // after a refusal; as lease_
};

// Thread-safe. Connects when something is to be shared, and again when the daemon was restarted;
// after a failure not before a second has passed.
class LocalLink {
 public:
  // `path`: of the socket; empty: there is none, and nothing is ever shared.
  LocalLink(std::string path, std::string token);
  ~LocalLink();
  LocalLink(const LocalLink&) = delete;
  LocalLink& operator=(const LocalLink&) = delete;

  bool wanted() const { return !path_.empty(); }
  // Connects if need be, at once.
  LocalStatus Status();

  void Add(SharedMemory* memory);
  void Remove(SharedMemory* memory);
  // Returns the place of `bytes`, all of which lie in one segment that the daemon knows; nothing:
  // they are to be sent. Registers the segment if need be, and counts what could not be.
  std::optional<v1::ArraySegment> Find(v1::ArrayKind kind, std::span<const std::byte> bytes);
  // The daemon does not know a lease: all leases, and the connection that they came by, are void.
  // `again`: new ones are not known either, and for a minute none are asked for.
  void Forget(bool again);
  void CountShared(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  // All with mutex_ held.
  bool Connected(bool at_once);
  bool Registered(SharedMemory& memory);
  // Sends a request and waits for its answer. Nothing: the connection broke, or the server refused;
  // status_ tells.
  std::optional<v1::LocalReply> Ask(const v1::LocalRequest& request, int descriptor = -1);
  void Disconnect();
  void Fail(std::string why, std::string reason = {});

  const std::string path_, token_;
  std::mutex mutex_;
  int socket_ = -1;
  Clock::time_point next_try_{};       // to connect
  Clock::time_point foreign_until_{};  // the same, in any case
  LocalStatus status_;
  std::map<const std::byte*, SharedMemory*> memory_;  // by begin
};

// The arrays of one call, with the places of those that the daemon finds in segments.
class Outgoings {
 public:
  // `link` null: none is.
  Outgoings(const std::vector<OutgoingArray>& arrays, LocalLink* link);
  bool all_shared() const;

 private:
  friend class ArraySource;
  std::vector<OutgoingArray> arrays_;  // none is empty
  std::vector<std::optional<v1::ArraySegment>> places_;
};

// As ChunkSource; but ranges of arrays in segments go out as their places, before all chunks.
class ArraySource {
 public:
  ArraySource(const Outgoings& outgoing, int64_t chunk_bytes, bool checksums)
      : outgoing_(outgoing), chunks_(outgoing.arrays_, chunk_bytes, checksums) {}

  void WantAll();
  // False: not inside one of the arrays, or more than is left of it.
  bool Want(v1::ArrayKind kind, int64_t offset, int64_t count);
  bool Empty() const { return named_.empty() && chunks_.Empty(); }
  // Returns the next request, with a segment or a chunk. Precondition: !Empty().
  template <class Request>
  grpc::ByteBuffer Next() {
    if (named_.empty()) return chunks_.Next(Request::kChunkFieldNumber);
    Request request;
    *request.mutable_segment() = std::move(named_.front());
    named_.pop_front();
    return Serialized(request);
  }
  int64_t sent_bytes() const { return chunks_.sent_bytes(); }
  int64_t total_bytes() const { return chunks_.total_bytes(); }

 private:
  const Outgoings& outgoing_;
  ChunkSource chunks_;
  std::deque<v1::ArraySegment> named_;
  std::vector<v1::ArrayKind> asked_;  // of the arrays in segments
};

// Runs `call(shared) -> Expected<T>`, which asks `link` for segments, once more where the daemon
// does not know a lease (it was restarted), and then, where it still does not (it is another daemon
// than that of the socket), without any.
template <class Call>
auto WithLeases(LocalLink& link, Call call) {
  constexpr int kTries = 2;
  for (int tries = 0;; ++tries) {
    auto result = call(/*shared=*/tries < kTries);
    if (result.ok() || result.error().reason != "LEASE_UNKNOWN" || tries == kTries) return result;
    link.Forget(/*again=*/tries > 0);
  }
}

}  // namespace spaid::internal
