// Copies between host and device, on a device that is a thread.
#include "kernels/base/cuda/staging.cu"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/static_spai/shown_part.h"
#include "tests/kernels/base/fake_runtime.h"
#include "tests/kernels/base/recording_sink.h"

namespace spaid::cuda {
namespace {

class StagingTest : public FakeRuntime {
 protected:
  // There, back to an address that is not aligned, and the second half to another array.
  static void ExpectThereAndBack(Staging& staging, size_t bytes) {
    std::vector<char> host(bytes), device(bytes), back(bytes + 5, 1), half(bytes / 2);
    std::mt19937 random(static_cast<unsigned>(bytes));
    for (char& c : host) c = static_cast<char>(random());
    staging.In(device.data(), host.data(), bytes);
    const size_t middle = bytes - bytes / 2;
    staging.Out({{back.data() + 3, device.data(), bytes},
                 {nullptr, nullptr, 0},
                 {half.data(), device.data() + middle, bytes / 2}});
    WaitForStream();
    EXPECT_TRUE(std::equal(host.begin(), host.end(), back.begin() + 3));
    EXPECT_TRUE(std::equal(half.begin(), half.end(), host.begin() + static_cast<int64_t>(middle)));
    EXPECT_TRUE(back[0] == 1 && back[2] == 1 && back[bytes + 3] == 1 && back[bytes + 4] == 1);
  }

  // Small copies are the driver's own.
  static void WaitForStream() {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, 0);
    cudaEventRecord(event, nullptr);
    cudaEventSynchronize(event);
    cudaEventDestroy(event);
  }
};

TEST_F(StagingTest, BringsBackWhatItBrought) {
  for (const int threads : {1, 2, 8}) {
    Staging staging(0, nullptr, threads);
    // Under what threads are woken for, of odd ends, and several times all buffers.
    for (const size_t bytes :
         {size_t{0}, size_t{100}, (size_t{1} << 20) + 3, (size_t{5} << 20) + 7, size_t{70} << 20}) {
      SCOPED_TRACE(bytes);
      ExpectThereAndBack(staging, bytes);
    }
  }
}

TEST_F(StagingTest, GoesByTheDriverWithoutMemoryToPin) {
  pins = false;
  Staging refused(0, nullptr, 3);
  ExpectThereAndBack(refused, size_t{9} << 20);
  pins = true;
  ExpectThereAndBack(refused, size_t{9} << 20);
}

// In the first copies, in the middle, and nobody waits for ever for what does not come.
TEST_F(StagingTest, AFailureEndsItAndTheNextCopyWorks) {
  constexpr size_t kBytes = size_t{70} << 20;
  std::vector<char> host(kBytes), device(kBytes);
  for (const int threads : {1, 5}) {
    Staging staging(0, nullptr, threads);
    for (const int before : {0, 3, 9, 16}) {
      copies_left = before;
      EXPECT_THROW(staging.In(device.data(), host.data(), kBytes), Failure) << before;
      copies_left = before;
      EXPECT_THROW(staging.Out({{host.data(), device.data(), kBytes}}), Failure) << before;
      copies_left = kAllCopies;
      WaitForStream();
      ExpectThereAndBack(staging, size_t{9} << 20);
    }
  }
}

// The device holds the last piece back until the first have been told.
TEST_F(StagingTest, TellsOfTheFirstPiecesBeforeTheLastIsCopied) {
  constexpr size_t kSmall = 1000, kLarge = (size_t{70} << 20) + 3;
  const std::vector<char> small(kSmall, 1), large(kLarge, 2);
  for (const int threads : {1, 2, 8}) {
    Staging staging(0, nullptr, threads);
    std::vector<char> to_small(kSmall), to_large(kLarge);
    std::mutex mutex;
    std::condition_variable came;
    size_t told = 0;
    bool early = false;
    hook_at = large.data() + (kLarge - 1) / (4 << 20) * (4 << 20);
    hook = [&] {
      std::unique_lock lock(mutex);
      early = came.wait_for(lock, std::chrono::seconds(60), [&] { return told > kLarge / 2; });
    };
    staging.Out({{to_small.data(), small.data(), kSmall}, {to_large.data(), large.data(), kLarge}},
                [&](size_t bytes) {
                  const std::lock_guard lock(mutex);
                  EXPECT_GT(bytes, told);
                  ASSERT_LE(bytes, kSmall + kLarge);
                  // The first and the last byte of what is new.
                  EXPECT_EQ(told < kSmall ? to_small[told] : to_large[told - kSmall],
                            told < kSmall ? 1 : 2);
                  EXPECT_EQ(bytes > kSmall ? to_large[bytes - kSmall - 1] : 1,
                            bytes > kSmall ? 2 : 1);
                  told = bytes;
                  came.notify_one();
                });
    WaitForStream();
    EXPECT_TRUE(early) << "nothing was told before all had come";
    EXPECT_EQ(told, kSmall + kLarge);
  }
}

// Those that the driver makes, nobody waits for here.
TEST_F(StagingTest, TellsNothingOfCopiesThatTheDriverMakes) {
  const std::vector<char> from(100, 1);
  std::vector<char> to(100);
  Staging staging(0, nullptr, 2);
  int told = 0;
  staging.Out({{to.data(), from.data(), 100}}, [&](size_t) { ++told; });
  WaitForStream();
  EXPECT_EQ(told, 0);
  EXPECT_EQ(to, from);
}

TEST_F(StagingTest, AFailureEndsWhatIsTold) {
  constexpr size_t kBytes = size_t{70} << 20;
  std::vector<char> host(kBytes), device(kBytes);
  Staging staging(0, nullptr, 3);
  copies_left = 10;
  size_t told = 0;
  EXPECT_THROW(
      staging.Out({{host.data(), device.data(), kBytes}}, [&](size_t bytes) { told = bytes; }),
      Failure);
  EXPECT_LT(told, kBytes);
  copies_left = kAllCopies;
  ExpectThereAndBack(staging, size_t{9} << 20);
}

// A part of M on its way: its first columns are shown while the device still has the last.
TEST_F(StagingTest, ColumnsOfAPartAreShownWhileLaterOnesAreFetched) {
  constexpr int64_t kN = 60'000, kPerColumn = 100, kFirst = 100, kLeftToHost = 40'000;
  std::vector<int64_t> col_ptr(kN + 1);
  for (int64_t k = 0; k <= kN; ++k) col_ptr[static_cast<size_t>(k)] = k * kPerColumn;
  const std::vector<int32_t> row_idx;  // nobody looks at it
  std::vector<double> on_device(kN * kPerColumn), values(kN * kPerColumn);
  std::iota(on_device.begin(), on_device.end(), 0);
  std::vector<uint8_t> flags(kN, 0), flags_on_device(kN, 1);
  flags_on_device[kLeftToHost] = 0;

  kernels::RecordingSink sink;
  kernels::ShownResult shown;
  shown.Show(&sink, col_ptr, row_idx, values);
  shown.Finished(0, kFirst);  // another device's part
  kernels::ShownPart part({kFirst, kN}, col_ptr, flags, shown);
  std::mutex mutex;
  std::condition_variable came;
  bool early = false;
  sink.on_news = [&] { came.notify_one(); };
  constexpr int64_t kEntry = kFirst * kPerColumn;
  constexpr size_t kBytes = (kN - kFirst) * kPerColumn * sizeof(double);
  hook_at = reinterpret_cast<const char*>(on_device.data() + kEntry) +
            (kBytes - 1) / (4 << 20) * (4 << 20);
  hook = [&] {
    std::unique_lock lock(mutex);
    early = came.wait_for(lock, std::chrono::seconds(60),
                          [&] { return sink.columns() > kLeftToHost / 2; });
  };
  Staging staging(0, nullptr, 3);
  staging.Out({{flags.data() + kFirst, flags_on_device.data() + kFirst, kN - kFirst},
               {values.data() + kEntry, on_device.data() + kEntry, kBytes}},
              [&](size_t bytes) {
                if (bytes <= kN - kFirst) return;
                const std::lock_guard lock(mutex);
                part.Arrived(kEntry + static_cast<int64_t>((bytes - (kN - kFirst)) / 8));
              });
  WaitForStream();
  part.ArrivedAll();
  EXPECT_TRUE(early) << "no column was shown before all had come";
  EXPECT_LE(sink.columns(), kLeftToHost) << "its column is still to come from the host";
  EXPECT_GT(sink.columns(), kLeftToHost - 1024);
  values[kLeftToHost * kPerColumn] = -1;
  shown.FinishedAll();
  on_device[kLeftToHost * kPerColumn] = -1;
  EXPECT_TRUE(std::equal(sink.values.begin() + kEntry, sink.values.end(),
                         on_device.begin() + kEntry, on_device.end()));
  shown.Keep();
}

}  // namespace
}  // namespace spaid::cuda
