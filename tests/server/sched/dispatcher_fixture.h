// A dispatcher's work, on a clock that stands still.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/sched/dispatcher.h"

namespace spaid::server {

class DispatcherTest : public testing::Test {
 protected:
  static constexpr DeviceMask kFirst = DeviceBit(0), kSecond = DeviceBit(1);

  Work Of(double predicted_ms, DeviceMask devices = kAnyDevice) {
    Work work;
    work.id = ++last_id_;
    work.tenant = "t";
    work.what = "build";
    work.predicted_ms = predicted_ms;
    work.devices = devices;
    return work;
  }
  uint64_t Push(Dispatcher& dispatcher, Work work) {
    const uint64_t id = work.id;
    dispatcher.Push(std::move(work), now_);
    return id;
  }
  // Ids of what starts now.
  std::vector<uint64_t> Start(Dispatcher& dispatcher) {
    std::vector<uint64_t> ids;
    for (const auto& start : dispatcher.Dispatch(now_)) ids.push_back(start.id);
    return ids;
  }
  void Wait(int ms) { now_ += std::chrono::milliseconds(ms); }

  TimePoint now_ = TimePoint(std::chrono::hours(1));
  uint64_t last_id_ = 0;
};

}  // namespace spaid::server
