// Writes to a spill folder in the background: what stores have that is not in it yet, one thing at
// a time, the oldest first; and takes away what was deleted.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "server/store/spill_folder.h"

namespace spaid::server {

// Thread-safe. There is no queue: what is written next is asked for when its turn has come, and
// what was evicted until then is as lost as without a folder.
class SpillWriter {
 public:
  // Writes one thing; false: there is none. Runs on the writer's thread.
  using WriteOne = std::function<bool()>;

  // `folder` outlives it, and wakes it (SpillFolder::Wake).
  SpillWriter(SpillFolder* folder, std::vector<WriteOne> sources);
  ~SpillWriter();  // ends after the thing that is being written
  SpillWriter(const SpillWriter&) = delete;
  SpillWriter& operator=(const SpillWriter&) = delete;

  // Waits until all is written that there was before the call. False: not within `limit`.
  bool Flush(std::chrono::milliseconds limit);

 private:
  void Run();

  SpillFolder* const folder_;
  const std::vector<WriteOne> sources_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable rested_;
  uint64_t rested_at_ = 0;  // the folder's wakes() when there was nothing to do last
  std::thread thread_;
};

}  // namespace spaid::server
