// Every streaming call that is open, in one place: so that a drain can finish each of them before
// the server shuts down (gRPC's Shutdown never returns with a live reactor), and so that one clock
// ticks for all of them (heartbeats, stalled peers).
//
//   LiveStreams streams({.tick = 50ms, .stalled_reader = 60s, .stalled_sender = 60s});
//   streams.Add(stream);                          // the stream removes itself when it is done
//   streams.CutAll(DrainingError(...));           // at the drain deadline
//   bool idle = streams.WaitEmpty(deadline);
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"

namespace spaid::server {

// What the registry asks of a stream. Both calls may come from any thread, also after the stream
// has finished (then they do nothing).
class LiveStream : public std::enable_shared_from_this<LiveStream> {
 public:
  virtual ~LiveStream() = default;
  virtual void Tick(std::chrono::steady_clock::time_point now) = 0;
  // Ends the call with `status`, whatever it is doing.
  virtual void Cut(const absl::Status& status) = 0;
  // The same, where the client has asked for nothing yet.
  virtual void CutIdle(const absl::Status& status) = 0;
};

// Bytes of messages a second, below which a sender holds its place for nothing.
inline constexpr double kMinSenderRate = 1024;

// How long a peer may leave its stream alone before it is cut.
struct StreamLimits {
  std::chrono::milliseconds tick{250};               // how often the streams are looked at; > 0
  std::chrono::milliseconds stalled_reader{60'000};  // a message does not get through
  // Input that is due does not come; or over that much of waiting comes at less than
  // kMinSenderRate.
  std::chrono::milliseconds stalled_sender{60'000};
  int64_t max_streams = 1024;  // open at once
};

// Thread-safe.
class LiveStreams {
 public:
  explicit LiveStreams(StreamLimits limits);
  ~LiveStreams();
  LiveStreams(const LiveStreams&) = delete;
  LiveStreams& operator=(const LiveStreams&) = delete;

  // RESOURCE_EXHAUSTED/TOO_MANY_STREAMS, with a retry delay, where max_streams are open.
  absl::Status Add(std::shared_ptr<LiveStream> stream);
  void Remove(const LiveStream* stream);  // one that was refused, too
  int64_t size() const;
  const StreamLimits& limits() const { return limits_; }

  // Bytes of the messages that wait for their readers, all streams.
  void AddOutgoingBytes(int64_t bytes) { outgoing_bytes_ += bytes; }
  int64_t outgoing_bytes() const { return outgoing_bytes_; }

  void CutAll(const absl::Status& status);
  void CutIdle(const absl::Status& status);
  // True once no stream is open; false if some still are at `deadline`.
  bool WaitEmpty(std::chrono::steady_clock::time_point deadline);

 private:
  void Run();
  std::vector<std::shared_ptr<LiveStream>> Alive() const;

  const StreamLimits limits_;
  std::atomic<int64_t> outgoing_bytes_{0};
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::unordered_map<const LiveStream*, std::weak_ptr<LiveStream>> streams_;
  bool stop_ = false;
  std::thread ticker_;
};

}  // namespace spaid::server
