#include "server/rpc/array_receiver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "server/base/process.h"
#include "server/base/status.h"
#include "server/rpc/backend.h"

namespace spaid::server {
namespace {

v1::ArrayChunk Chunk(int64_t offset, const std::vector<float>& values) {
  v1::ArrayChunk chunk;
  chunk.set_array(v1::ARRAY_KIND_VALUES);
  chunk.set_offset(offset);
  chunk.set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  return chunk;
}

absl::Status Unbooked(int64_t) { return absl::OkStatus(); }

TEST(ArrayReceiver, WidensFloat32) {
  ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, 3, /*from_float32=*/true);
  EXPECT_TRUE(receiver.Add(Chunk(0, {1.5f, -0.0f}), Unbooked).ok());
  EXPECT_FALSE(receiver.complete());
  EXPECT_EQ(MetaOf(receiver.CheckComplete(), "received"), "2");
  EXPECT_TRUE(receiver.Add(Chunk(2, {3}), Unbooked).ok());
  EXPECT_TRUE(receiver.CheckComplete().ok());
  const auto data = receiver.Take();
  EXPECT_EQ(data[0], 1.5);
  EXPECT_TRUE(std::signbit(data[1]));
  EXPECT_EQ(data[2], 3);
}

TEST(ArrayReceiver, AnArrayOfNothingIsComplete) {
  const ArrayReceiver<int32_t> receiver(v1::ARRAY_KIND_INDICES, 0);
  EXPECT_TRUE(receiver.CheckComplete().ok());
}

TEST(ArrayReceiver, ARefusedChunkChangesNothing) {
  ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, 2, true);
  EXPECT_EQ(ReasonOf(receiver.Add(Chunk(0, {1, 2, 3}), Unbooked)), "CHUNK_BEYOND_END");
  EXPECT_EQ(ReasonOf(receiver.Add(Chunk(std::numeric_limits<int64_t>::max(), {1}), Unbooked)),
            "CHUNK_OUT_OF_ORDER");
  EXPECT_EQ(receiver.received(), 0);
  EXPECT_TRUE(receiver.Add(Chunk(0, {1, 2}), Unbooked).ok());
}

std::vector<float> Ramp(int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return values;
}

TEST(ArrayReceiver, BooksWhatIsCommittedAndMovesNothingOutOfPlace) {
  constexpr int64_t kMiB = 1 << 20, kSize = 5 * kMiB / 8;
  ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, kSize, /*from_float32=*/true);
  int64_t booked = 0;
  const auto book = [&](int64_t bytes) {
    booked += bytes;
    return absl::OkStatus();
  };
  // Elements so far, and what they commit.
  const std::vector<std::pair<int64_t, int64_t>> steps{
      {1, 8},
      {100, 800},
      {kMiB / 8, kMiB},
      {kMiB / 8 + 1, 2 * kMiB},  // no promise any more: on huge pages
      {kMiB / 4, 2 * kMiB},
      {kMiB / 4 + 1, 4 * kMiB},
      {kSize, 5 * kMiB},
  };
  std::shared_ptr<const void> held;
  std::span<const double> seen;
  for (const auto& [elements, bytes] : steps) {
    const int64_t from = receiver.received();
    ASSERT_TRUE(receiver.Add(Chunk(from, Ramp(from, elements - from)), book).ok());
    EXPECT_EQ(booked, bytes) << elements;
    if (elements == 100) {
      seen = receiver.so_far();
      held = receiver.hold();
    }
  }
  EXPECT_EQ(seen.back(), 99) << "what is held stays in its place";
  const kernels::Array<double> data = receiver.Take();
  ASSERT_EQ(static_cast<int64_t>(data.size()), kSize);
  for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], i);
}

TEST(ArrayReceiver, WhatIsNotBookedDoesNotCome) {
  ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, 1000, true);
  ASSERT_TRUE(receiver.Add(Chunk(0, {1}), Unbooked).ok());
  const auto full = [](int64_t) { return absl::ResourceExhaustedError("full"); };
  EXPECT_EQ(receiver.Add(Chunk(1, Ramp(1, 999)), full).message(), "full");
  EXPECT_EQ(receiver.received(), 1);
  ASSERT_TRUE(receiver.Add(Chunk(1, Ramp(1, 999)), Unbooked).ok());
  EXPECT_EQ(receiver.Take()[999], 999);
}

// A promise, and one element of it.
TEST(ArrayReceiver, PromisesCostNothing) {
  constexpr int64_t kHuge = int64_t{1} << 34;
  constexpr int kMany = 200;
  std::vector<std::unique_ptr<ArrayReceiver<double>>> receivers;
  const int64_t before = ResidentBytes();
  for (int k = 0; k < kMany; ++k) {
    const int64_t size = k % 2 == 0 ? kHuge : 600'000;
    receivers.push_back(std::make_unique<ArrayReceiver<double>>(v1::ARRAY_KIND_VALUES, size, true));
    ASSERT_TRUE(receivers.back()->Add(Chunk(0, {1}), Unbooked).ok());
  }
  EXPECT_LT(ResidentBytes() - before, kMany * (16 << 10));
}

// Keeping cannot be switched off; what is kept here is given back.
TEST(ArrayReceiver, BooksAllOfMemoryThatWasKept) {
  kernels::KeepFreedMemory();
  constexpr int64_t kSize = 9 * (1 << 20) / 8 * 10;
  { kernels::Array<double> before(kSize, 1.0); }
  ASSERT_GE(kernels::FreedLargeBytes(), size_t{8} * kSize);
  ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, kSize, true);
  int64_t booked = 0;
  ASSERT_TRUE(receiver
                  .Add(Chunk(0, Ramp(0, 1 << 18)),
                       [&](int64_t bytes) {
                         booked += bytes;
                         return absl::OkStatus();
                       })
                  .ok());
  EXPECT_EQ(booked, 8 * kSize);
  receiver.Take();
  kernels::ReleaseFreedLarge(std::chrono::hours(-1));
}

TEST(MatrixHeader, SizesNeverOverflow) {
  v1::MatrixHeader header;
  header.set_layout(v1::LAYOUT_CSC);
  header.set_value_type(v1::VALUE_TYPE_FLOAT64);
  header.set_n(std::numeric_limits<int32_t>::max());
  header.set_nnz(std::numeric_limits<int64_t>::max());
  const absl::Status status =
      CheckMatrixHeader(header, "header", std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ReasonOf(status), "MATRIX_TOO_LARGE");
  header.set_n(1);
  header.set_nnz(1);
  EXPECT_TRUE(CheckMatrixHeader(header, "header",
                                28 + static_cast<int64_t>(sizeof(Matrix) + sizeof(StoredPattern)))
                  .ok());
  EXPECT_EQ(
      ReasonOf(CheckMatrixHeader(
          header, "header", 27 + static_cast<int64_t>(sizeof(Matrix) + sizeof(StoredPattern)))),
      "MATRIX_TOO_LARGE");
  header.set_label(std::string(201, 'x'));
  EXPECT_EQ(
      ReasonOf(CheckMatrixHeader(
          header, "header", 28 + static_cast<int64_t>(sizeof(Matrix) + sizeof(StoredPattern)))),
      "BAD_LABEL");
}

}  // namespace
}  // namespace spaid::server
