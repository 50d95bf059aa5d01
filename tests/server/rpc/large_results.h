// Builds of an M of several chunks over the fake engine, whose columns a test lets come.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/server/rpc/harness.h"

namespace spaid::server {
inline constexpr int64_t kN = 400'000;  // three arrays of 1.6 to 3.2 MB
inline constexpr int64_t kShown = 300'000;
inline constexpr int64_t kValuesOfChunk = (1 << 20) / 8;

inline Harness::Options Large(std::vector<kernels::DeviceInfo> devices = {FakeCpu()}) {
  Harness::Options options{.backend = Harness::SmallBackend(), .devices = std::move(devices)};
  options.backend.max_matrix_bytes = options.backend.matrix_store_bytes = 64 << 20;
  options.backend.preconditioner_store_bytes = 64 << 20;
  return options;
}

inline std::string StoreLarge(Harness& h, double first = 1) {
  const Csc a = DiagonalMatrix(kN, first);
  UploadCall call = OpenUpload(h);
  call.Head(HeaderOf(a));
  const auto send = [&](v1::ArrayKind kind, const auto& array) {
    for (size_t k = 0; k < array.size(); k += 100'000) {
      const auto begin = array.begin() + static_cast<int64_t>(k);
      const size_t count = std::min<size_t>(100'000, array.size() - k);
      using T = typename std::decay_t<decltype(array)>::value_type;
      call.Chunk(ChunkOf(kind, static_cast<int64_t>(k),
                         std::vector<T>(begin, begin + static_cast<int64_t>(count))));
    }
  };
  send(v1::ARRAY_KIND_POINTERS, a.pointers);
  send(v1::ARRAY_KIND_INDICES, a.indices);
  send(v1::ARRAY_KIND_VALUES, a.values);
  std::vector<v1::UploadMatrixResponse> events;
  const grpc::Status status = call.Done().Finish(&events);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return events.back().done().matrix().name();
}

inline v1::BuildHeader Partial(const std::string& matrix) {
  v1::BuildHeader header = BuildOf(matrix, StaticSpai());
  header.set_stream_result(true);
  header.set_partial_result(true);
  return header;
}

// Collects what came of M, and when.
struct Received {
  void Take(const v1::BuildPreconditionerResponse& r) {
    if (r.has_result()) {
      ++headers;
      header = r.result();
      header_before_end = !finished;
      pointers.clear(), indices.clear(), values.clear();
    }
    if (r.has_chunk()) {
      EXPECT_GT(headers, 0);
      const std::string& data = r.chunk().data();
      switch (r.chunk().array()) {
        case v1::ARRAY_KIND_POINTERS:
          Append(r.chunk().offset(), data, &pointers);
          break;
        case v1::ARRAY_KIND_INDICES:
          Append(r.chunk().offset(), data, &indices);
          break;
        default:
          if (header.value_type() == v1::VALUE_TYPE_FLOAT32) {
            std::vector<float> narrow(static_cast<size_t>(r.chunk().offset()));
            Append(r.chunk().offset(), data, &narrow);
            values.insert(values.end(), narrow.begin() + r.chunk().offset(), narrow.end());
          } else {
            Append(r.chunk().offset(), data, &values);
          }
      }
    }
    if (r.has_job() && r.job().has_queued()) job = r.job().queued().job();
    finished = finished || (r.has_job() && r.job().has_finished());
    if (r.has_done()) done = r.done();
  }
  template <class T>
  static void Append(int64_t offset, const std::string& data, std::vector<T>* to) {
    ASSERT_EQ(offset, static_cast<int64_t>(to->size()));
    to->resize(to->size() + data.size() / sizeof(T));
    std::memcpy(to->data() + offset, data.data(), data.size());
  }
  // 1 / (first + k) on the diagonal.
  void ExpectWhole(double first = 1) const {
    ASSERT_EQ(header.n(), kN);
    ASSERT_EQ(header.nnz(), kN);
    ASSERT_EQ(pointers.size(), static_cast<size_t>(kN) + 1);
    ASSERT_EQ(indices.size(), static_cast<size_t>(kN));
    ASSERT_EQ(values.size(), static_cast<size_t>(kN));
    for (size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(pointers[k], static_cast<int64_t>(k));
      ASSERT_EQ(indices[k], static_cast<int32_t>(k));
      ASSERT_EQ(values[k], 1 / (first + static_cast<double>(k)));
    }
    EXPECT_EQ(done.preconditioner().nnz(), kN);
    EXPECT_EQ(done.timings().bytes_down(), (kN + 1) * 8 + kN * 12);
  }

  int headers = 0;
  v1::CscHeader header;
  bool finished = false, header_before_end = false;
  std::string job;
  std::vector<int64_t> pointers;
  std::vector<int32_t> indices;
  std::vector<double> values;
  v1::BuildDone done;
};

// Reads until so many values have come.
inline void ReadValues(BuildCall& call, size_t count, Received* received) {
  v1::BuildPreconditionerResponse response;
  while (received->values.size() < count) {
    ASSERT_TRUE(call.Read(&response)) << call.Finish().error_message();
    received->Take(response);
  }
}

inline grpc::Status ReadRest(BuildCall& call, Received* received) {
  std::vector<v1::BuildPreconditionerResponse> rest;
  const grpc::Status status = call.Finish(&rest);
  for (const auto& response : rest) received->Take(response);
  return status;
}

inline v1::Job GetJob(Harness& h, const std::string& name) {
  auto context = Context();
  v1::GetJobRequest request;
  request.set_name(name);
  v1::GetJobResponse response;
  EXPECT_TRUE(h.jobs->GetJob(context.get(), request, &response).ok());
  return response.job();
}

}  // namespace spaid::server
