// Copies of arrays that are still being filled, on a device that is a thread.
#include "kernels/base/cuda/ahead_lane.cu"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/base/fake_runtime.h"

namespace spaid::cuda {
namespace {

constexpr auto kPiece = static_cast<int64_t>(AheadLane::kPiece);

class Fake final : public kernels::CudaDevice {
 public:
  explicit Fake(int index) : CudaDevice(Info(index), 0) {}
  kernels::Status Probe() override { return {}; }

 private:
  static kernels::DeviceInfo Info(int index) {
    kernels::DeviceInfo info;
    info.index = index;
    info.name = "a thread";
    return info;
  }
  int64_t UsedBytes() const override { return 0; }
  double TimeCopy(int64_t) override { return 0; }
};

class AheadLaneTest : public FakeRuntime {
 protected:
  // An array of the host, of which the test says what is final.
  explicit AheadLaneTest(int64_t bytes = 12 * kPiece + 100) : bytes_(bytes) {
    host_.resize(static_cast<size_t>(bytes));
    there_.resize(host_.size());
    to_.resize(host_.size());
    for (size_t i = 0; i < host_.size(); ++i) host_[i] = static_cast<char>(i / 1000 + i);
  }
  std::unique_ptr<CopyAhead> Begin() {
    return std::make_unique<CopyAhead>(device_, lane_,
                                       std::shared_ptr<char>(there_.data(),
                                                             [this](char*) {
                                                               lane_.LeadTo(nullptr);
                                                               ++freed_;
                                                             }),
                                       host_.data(), bytes_);
  }
  int64_t Take(CopyAhead& ahead) {
    return ahead.Take(/*ordinal=*/3, /*stream=*/nullptr, to_.data(), host_.data(), bytes_);
  }
  void ExpectTaken(int64_t bytes) {
    EXPECT_TRUE(std::equal(to_.begin(), to_.begin() + bytes, host_.begin()));
    EXPECT_TRUE(std::all_of(to_.begin() + bytes, to_.end(), [](char c) { return c == 0; }));
  }

  const std::shared_ptr<Fake> device_ = std::make_shared<Fake>(3);
  const int64_t bytes_;
  std::vector<char> host_, there_, to_;
  std::atomic<int> freed_ = 0;
  AheadLane lane_;  // ends first, and with it what it still writes
};

// The final ones are there while the rest has no value yet.
TEST_F(AheadLaneTest, TheFirstElementsAreThereWhileTheLastAreToCome) {
  const auto ahead = Begin();
  EXPECT_EQ(ahead->device_bytes(), bytes_);
  EXPECT_EQ(ahead->Send(kPiece - 8).value(), 0) << "a piece";
  EXPECT_EQ(ahead->Send(2 * kPiece + 8).value(), 2 * kPiece);
  EXPECT_EQ(ahead->Send(kPiece).value(), 2 * kPiece) << "nothing is new";
  EXPECT_EQ(Take(*ahead), 2 * kPiece);
  ExpectTaken(2 * kPiece);
  int64_t sent = 0;
  for (int64_t final = 3 * kPiece; final < bytes_; final += kPiece / 2) {
    sent = ahead->Send(final).value();
    EXPECT_LE(sent, final);
  }
  while (sent < bytes_) {
    const int64_t now = ahead->Send(bytes_).value();
    EXPECT_GE(now, sent);
    sent = now;
    std::this_thread::yield();
  }
  EXPECT_EQ(Take(*ahead), bytes_);
  ExpectTaken(bytes_);
  EXPECT_EQ(ahead->taken(), bytes_);
  ahead->Drop();
  EXPECT_EQ(freed_, 1);
  EXPECT_EQ(ahead->device_bytes(), 0);
  EXPECT_EQ(Take(*ahead), 0);
  EXPECT_EQ(ahead->Send(bytes_).value(), bytes_) << "nothing more";
}

// Its buffers fill, and it goes on with what came meanwhile; what was sent had its values then.
TEST_F(AheadLaneTest, NobodyWaitsForADeviceThatIsBusy) {
  std::latch busy(1), goes_on(1);
  hook_at = there_.data();
  hook = [&, first = true]() mutable {
    if (!std::exchange(first, false)) return;
    busy.count_down();
    goes_on.wait();
  };
  const auto ahead = Begin();
  EXPECT_EQ(ahead->Send(bytes_).value(), AheadLane::kBuffers * kPiece);
  busy.wait();
  EXPECT_EQ(ahead->Send(bytes_).value(), AheadLane::kBuffers * kPiece);
  auto taken = std::async(std::launch::async, [&] { return Take(*ahead); });
  const std::vector<char> values = host_;
  std::fill(host_.begin(), host_.end(), 0);  // as memory of another array by now
  goes_on.count_down();
  EXPECT_EQ(taken.get(), AheadLane::kBuffers * kPiece) << "behind all that was sent";
  host_ = values;
  ExpectTaken(AheadLane::kBuffers * kPiece);
  EXPECT_GT(ahead->Send(bytes_).value(), AheadLane::kBuffers * kPiece);
}

TEST_F(AheadLaneTest, ServesThatArrayOnThatDeviceAlone) {
  const auto ahead = Begin();
  EXPECT_EQ(Take(*ahead), 0) << "nothing was sent";
  ASSERT_EQ(ahead->Send(kPiece).value(), kPiece);
  EXPECT_EQ(ahead->Take(2, nullptr, to_.data(), host_.data(), bytes_), 0) << "another device";
  EXPECT_EQ(ahead->Take(3, nullptr, to_.data(), host_.data(), bytes_ - 8), 0);
  EXPECT_EQ(ahead->Take(3, nullptr, to_.data(), to_.data(), bytes_), 0) << "A scaled";
  ExpectTaken(0);
  EXPECT_EQ(ahead->taken(), 0);
}

TEST_F(AheadLaneTest, AFailureEndsItAndTheNextWorks) {
  for (const int before : {0, 1, 3}) {
    const auto ahead = Begin();
    ASSERT_TRUE(ahead->Send(kPiece).ok());
    copies_left = before;
    const auto sent = ahead->Send(8 * kPiece);
    ASSERT_FALSE(sent.ok());
    EXPECT_EQ(sent.status().reason(), "CUDA_ERROR");
    EXPECT_NE(sent.status().message().find("copy ahead to the device"), std::string::npos);
    copies_left = kAllCopies;
    EXPECT_EQ(ahead->device_bytes(), 0);
    EXPECT_EQ(Take(*ahead), 0);
    EXPECT_TRUE(ahead->Send(bytes_).ok()) << "it is over";
  }
  EXPECT_EQ(freed_, 3);
  const auto ahead = Begin();
  EXPECT_EQ(ahead->Send(kPiece).value(), kPiece);
  copies_left = 0;
  EXPECT_THROW(Take(*ahead), Failure);
  copies_left = kAllCopies;
  EXPECT_EQ(Take(*ahead), kPiece);
  ExpectTaken(kPiece);
}

TEST_F(AheadLaneTest, WithoutMemoryToPinThereIsNone) {
  pins = false;
  try {
    const AheadLane none;
    ADD_FAILURE() << "it was made";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.fault(), CudaFault::kOutOfMemory);
  }
}

// An eviction, or the end of the matrix, beside the thread that sends and a computation; two arrays
// share the buffers.
TEST_F(AheadLaneTest, MayBeDroppedAtAnyTime) {
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const auto ahead = Begin();
    std::vector<char> other(static_cast<size_t>(4 * kPiece), 7), other_there(other.size());
    CopyAhead beside(device_, lane_,
                     std::shared_ptr<char>(other_there.data(),
                                           [this](char*) {
                                             lane_.LeadTo(nullptr);
                                             cudaStreamSynchronize(nullptr);
                                           }),
                     other.data(), 4 * kPiece);
    std::latch all(4);
    const auto at_once = [&](auto work) {
      return std::thread([&all, work] {
        all.arrive_and_wait();
        work();
      });
    };
    std::thread threads[] = {
        at_once([&] {
          for (int64_t final = 0; final <= bytes_; final += kPiece / 4) {
            EXPECT_TRUE(ahead->Send(final).ok());
          }
        }),
        at_once([&] {
          for (int64_t final = 0; final <= 4 * kPiece; final += kPiece) {
            EXPECT_TRUE(beside.Send(final).ok());
          }
        }),
        at_once([&] {
          const int64_t taken = Take(*ahead);
          EXPECT_TRUE(std::equal(to_.begin(), to_.begin() + taken, host_.begin()));
        }),
        at_once([&] {
          for (int i = 0; i < round; ++i) std::this_thread::yield();
          ahead->Drop();
        })};
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(freed_, round + 1);
    const int64_t sent = beside.Send(0).value();
    std::vector<char> back(other.size());
    EXPECT_EQ(beside.Take(3, nullptr, back.data(), other.data(), 4 * kPiece), sent);
    EXPECT_EQ(std::count(back.begin(), back.end(), 7), sent);
    cudaStreamSynchronize(nullptr);  // what was dropped is written no more
  }
}

}  // namespace
}  // namespace spaid::cuda
