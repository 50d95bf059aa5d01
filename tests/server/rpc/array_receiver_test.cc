#include "server/rpc/array_receiver.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "server/base/status.h"

namespace spaid::server {
namespace {

v1::ArrayChunk Chunk(int64_t offset, const std::vector<float>& values) {
  v1::ArrayChunk chunk;
  chunk.set_array(v1::ARRAY_KIND_VALUES);
  chunk.set_offset(offset);
  chunk.set_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  return chunk;
}

TEST(ArrayReceiver, WidensFloat32) {
  ArrayReceiver<double> receiver(v1::ARRAY_KIND_VALUES, 3, /*from_float32=*/true);
  EXPECT_TRUE(receiver.Add(Chunk(0, {1.5f, -0.0f})).ok());
  EXPECT_FALSE(receiver.complete());
  EXPECT_EQ(MetaOf(receiver.CheckComplete(), "received"), "2");
  EXPECT_TRUE(receiver.Add(Chunk(2, {3})).ok());
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
  EXPECT_EQ(ReasonOf(receiver.Add(Chunk(0, {1, 2, 3}))), "CHUNK_BEYOND_END");
  EXPECT_EQ(ReasonOf(receiver.Add(Chunk(std::numeric_limits<int64_t>::max(), {1}))),
            "CHUNK_OUT_OF_ORDER");
  EXPECT_EQ(receiver.received(), 0);
  EXPECT_TRUE(receiver.Add(Chunk(0, {1, 2})).ok());
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
  EXPECT_TRUE(CheckMatrixHeader(header, "header", 28 + static_cast<int64_t>(sizeof(Matrix))).ok());
  EXPECT_EQ(
      ReasonOf(CheckMatrixHeader(header, "header", 27 + static_cast<int64_t>(sizeof(Matrix)))),
      "MATRIX_TOO_LARGE");
  header.set_label(std::string(201, 'x'));
  EXPECT_EQ(
      ReasonOf(CheckMatrixHeader(header, "header", 28 + static_cast<int64_t>(sizeof(Matrix)))),
      "BAD_LABEL");
}

}  // namespace
}  // namespace spaid::server
