// Registers all open calls, so that a drain can finish each of them before the server shuts down
// (gRPC's Shutdown never returns with a live reactor), and one clock ticks for all of them
// (heartbeats, stalled peers). A call is registered from its headers on; a stream takes one of the
// max_streams places from its first message on.
//
//   LiveStreams streams({.tick = 50ms, .stalled_reader = 60s}, &connections);
//   streams.Add(stream);                  // the stream removes itself when it is done
//   RETURN_IF_ERROR(streams.Admit(stream.get(), tenant));
//   streams.CutAll(DrainingError(...));   // at the drain deadline
//   bool idle = streams.WaitEmpty(deadline);
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "server/base/tenant_shares.h"
#include "server/base/trace.h"
#include "server/rpc/connections.h"

namespace spaid::server {

// The interface of a stream to the registry. Calls may come from any thread, also after the stream
// has finished (then they do nothing).
class LiveStream : public std::enable_shared_from_this<LiveStream> {
 public:
  virtual ~LiveStream() = default;
  virtual void Tick(std::chrono::steady_clock::time_point now) = 0;
  // Ends the call with `status`, whatever it is doing.
  virtual void Cut(const absl::Status& status) = 0;
  // Ends the call likewise if the client has asked for nothing yet.
  virtual void CutIdle(const absl::Status& status) = 0;
};

// Bytes of a chunk's data: kChunkBytes, or kChunkBytesBesideMuch while kMuchOutgoing bytes or more
// wait for readers.
inline constexpr int64_t kChunkBytes = int64_t{1} << 20;
inline constexpr int64_t kMuchOutgoing = int64_t{64} << 20;
inline constexpr int64_t kChunkBytesBesideMuch = int64_t{64} << 10;

// Bytes of messages per second that a sender must reach to keep its place.
inline constexpr double kMinSenderRate = 1024;

// Limits how long a peer may leave its stream alone before it is cut.
struct StreamLimits {
  std::chrono::milliseconds tick{250};               // how often the streams are checked; > 0
  std::chrono::milliseconds stalled_reader{60'000};  // for a message to get through
  // For input that is due to come; also for input that comes at less than kMinSenderRate over as
  // much waiting time.
  std::chrono::milliseconds stalled_sender{60'000};
  int64_t max_streams = 1024;  // open at once
  // For a call's first message to be complete, from its headers on.
  std::chrono::milliseconds first_message{15'000};
  ShareRules shares = {};  // how tenants share the places
};

// Thread-safe.
class LiveStreams {
 public:
  // `connections` outlives it.
  // `tracer` outlives it, too.
  LiveStreams(StreamLimits limits, Connections* connections, const Tracer* tracer = nullptr);
  ~LiveStreams();
  LiveStreams(const LiveStreams&) = delete;
  LiveStreams& operator=(const LiveStreams&) = delete;

  // Registers a stream: it is ticked and cut from now on.
  void Add(std::shared_ptr<LiveStream> stream);
  // Gives the stream a place, until Remove. RESOURCE_EXHAUSTED/TOO_MANY_STREAMS, with a retry
  // delay, if max_streams have one, or nearly so many and the tenant has more than its share
  // (TenantShares).
  absl::Status Admit(const LiveStream* stream, const std::string& tenant);
  // Lets the stream live as long as the server: WaitEmpty does not wait for it.
  void Background(const LiveStream* stream);
  void Remove(const LiveStream* stream);  // also one that was refused
  int64_t size() const;                   // streams with a place
  const StreamLimits& limits() const { return limits_; }
  Connections& connections() const { return *connections_; }
  const Tracer& tracer() const { return *tracer_; }

  // Count the bytes of messages of all streams that wait for their readers.
  void AddOutgoingBytes(int64_t bytes) { outgoing_bytes_ += bytes; }
  int64_t outgoing_bytes() const { return outgoing_bytes_; }
  // Returns the size of the next chunk: smaller while much waits already, so that many slow readers
  // hold little.
  int64_t ChunkBytes() const {
    return outgoing_bytes_ < kMuchOutgoing ? kChunkBytes : kChunkBytesBesideMuch;
  }

  void CutAll(const absl::Status& status);
  void CutIdle(const absl::Status& status);
  // Waits until no call is open; false if some still are at `deadline`.
  bool WaitEmpty(std::chrono::steady_clock::time_point deadline);

 private:
  void Run();
  std::vector<std::shared_ptr<LiveStream>> Alive() const;

  const StreamLimits limits_;
  Connections* const connections_;
  const Tracer* const tracer_;
  std::atomic<int64_t> outgoing_bytes_{0};
  mutable std::mutex mu_;
  std::condition_variable changed_;   // a call has gone
  std::condition_variable stopping_;  // the ticker's
  std::unordered_map<const LiveStream*, std::weak_ptr<LiveStream>> streams_;
  std::unordered_set<const LiveStream*> background_;
  TenantShares places_;
  std::unordered_map<const LiveStream*, TenantShares::Account> place_of_;
  bool stop_ = false;
  std::thread ticker_;
};

}  // namespace spaid::server
