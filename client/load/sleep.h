#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace spaid::load {

// Sleeps until `until`; false if the stop came first.
inline bool SleepUntil(std::chrono::steady_clock::time_point until, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, stop, until, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace spaid::load
