// M over ranks on its way to a client, from ranks that are none.
#include "server/rpc/spread_download.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/engine/restore.h"
#include "server/base/digest.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/rpc/download.h"
#include "tests/server/rpc/harness.h"

namespace spaid::server {
namespace {

struct Arrays {
  std::vector<int64_t> pointers;
  std::vector<int32_t> indices;
  std::vector<double> values;
};

class InMemory final : public kernels::RanksOutput {
 public:
  InMemory(const Arrays& arrays, int64_t* most, int64_t reads_that_work = 1 << 30)
      : arrays_(arrays), most_(most), left_(reads_that_work) {}
  int64_t n() const override { return std::ssize(arrays_.pointers) - 1; }
  int64_t nnz() const override { return std::ssize(arrays_.indices); }
  kernels::Status Read(int64_t first, std::span<int64_t> to) override {
    return Copy(arrays_.pointers, first, to);
  }
  kernels::Status Read(int64_t first, std::span<int32_t> to) override {
    return Copy(arrays_.indices, first, to);
  }
  kernels::Status Read(int64_t first, std::span<double> to) override {
    return Copy(arrays_.values, first, to);
  }

 private:
  template <class T>
  kernels::Status Copy(const std::vector<T>& from, int64_t first, std::span<T> to) {
    if (left_-- <= 0) {
      return kernels::Status(kernels::StatusCode::kUnavailable, "RANKS_UNAVAILABLE", "told to");
    }
    *most_ = std::max(*most_, static_cast<int64_t>(to.size_bytes()));
    std::copy_n(from.begin() + first, to.size(), to.begin());
    return {};
  }

  const Arrays& arrays_;
  int64_t* const most_;
  int64_t left_;
};

Arrays Diagonal(int64_t n) {
  Arrays arrays;
  for (int64_t j = 0; j <= n; ++j) arrays.pointers.push_back(j);
  for (int64_t j = 0; j < n; ++j) {
    arrays.indices.push_back(static_cast<int32_t>(j));
    arrays.values.push_back(1 + 1.0 / static_cast<double>(j + 1));
  }
  return arrays;
}

// All that is sent, by array; each chunk where the last one ended.
absl::StatusOr<std::map<v1::ArrayKind, std::string>> All(SpreadDownload& source, bool narrow,
                                                         int64_t most_bytes) {
  std::map<v1::ArrayKind, std::string> found;
  for (;;) {
    if (!source.ready()) {
      auto piece = source.Fetch();
      if (!piece.ok()) return piece.status();
      source.Put(*std::move(piece));
    }
    v1::ArrayChunk chunk;
    grpc::Slice lent;
    auto more = source.Next(&chunk, most_bytes, &lent);
    if (!more.ok()) return more.status();
    if (!*more) return found;
    std::string data = chunk.data();
    data.append(reinterpret_cast<const char*>(lent.begin()), lent.size());
    EXPECT_LE(static_cast<int64_t>(data.size()), most_bytes);
    EXPECT_EQ(chunk.crc32(), Crc32(data));
    const int64_t size = chunk.array() == v1::ARRAY_KIND_POINTERS  ? 8
                         : chunk.array() == v1::ARRAY_KIND_INDICES ? 4
                         : narrow                                  ? 4
                                                                   : 8;
    std::string& array = found[chunk.array()];
    EXPECT_EQ(chunk.offset() * size, static_cast<int64_t>(array.size()));
    array += data;
  }
}

template <class T>
std::string BytesOf(const std::vector<T>& array) {
  return {reinterpret_cast<const char*>(array.data()), array.size() * sizeof(T)};
}

TEST(SpreadDownload, SendsAllInOrderAndHoldsAPiece) {
  const Arrays arrays = Diagonal(700'000);
  for (const int64_t chunk : {int64_t{1} << 20, int64_t{300'000}}) {
    int64_t most = 0;
    SpreadDownload source(std::make_unique<InMemory>(arrays, &most), /*narrow=*/false);
    const auto found = All(source, false, chunk);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_TRUE(found->at(v1::ARRAY_KIND_POINTERS) == BytesOf(arrays.pointers));
    EXPECT_TRUE(found->at(v1::ARRAY_KIND_INDICES) == BytesOf(arrays.indices));
    EXPECT_TRUE(found->at(v1::ARRAY_KIND_VALUES) == BytesOf(arrays.values));
    EXPECT_LE(most, 1 << 20);
    EXPECT_EQ(source.bytes_down(), 8 * 700'001 + 12 * 700'000);
  }
}

TEST(SpreadDownload, NarrowsOrNamesTheValueThatDoesNotFit) {
  Arrays arrays = Diagonal(300'000);
  int64_t most = 0;
  {
    SpreadDownload source(std::make_unique<InMemory>(arrays, &most), /*narrow=*/true);
    const auto found = All(source, true, 1 << 20);
    ASSERT_TRUE(found.ok()) << found.status();
    std::vector<float> narrow(arrays.values.begin(), arrays.values.end());
    EXPECT_TRUE(found->at(v1::ARRAY_KIND_VALUES) == BytesOf(narrow));
  }
  arrays.values[250'000] = 1e300;  // of a piece that is not the first
  SpreadDownload source(std::make_unique<InMemory>(arrays, &most), /*narrow=*/true);
  const absl::Status status = All(source, true, 1 << 20).status();
  EXPECT_EQ(ReasonOf(status), "FLOAT32_OVERFLOW");
  EXPECT_NE(std::string(status.message()).find("value 250000 is"), std::string::npos) << status;
}

TEST(SpreadDownload, TellsOfRanksThatDoNotAnswer) {
  const Arrays arrays = Diagonal(300'000);
  int64_t most = 0;
  SpreadDownload source(std::make_unique<InMemory>(arrays, &most, /*reads_that_work=*/4), false);
  EXPECT_EQ(ReasonOf(All(source, false, 1 << 20).status()), "RANKS_UNAVAILABLE");
}

TEST(SpreadDownload, OfAMatrixWithoutEntriesThereArePointersAlone) {
  Arrays arrays;
  arrays.pointers.assign(4, 0);
  int64_t most = 0;
  SpreadDownload source(std::make_unique<InMemory>(arrays, &most), false);
  const auto found = All(source, false, 1 << 20);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->at(v1::ARRAY_KIND_POINTERS).size(), 32);
}

// All places of those who ask the ranks are taken: the stream ends with that error, and does not
// hang.
TEST(SpreadDownload, AFullPoolEndsIt) {
  Harness h;
  std::promise<void> gate;
  const auto opened = gate.get_future().share();
  int64_t waiting = 0;
  while (
      h.backend
          ->Run(
              Backend::Pool::kRanks, "t", [opened] { opened.wait(); }, [](const absl::Status&) {})
          .ok()) {
    ++waiting;
  }
  EXPECT_GT(waiting, 1000);
  kernels::CscMatrix m{2, 2, {0, 1, 2}, {0, 1}, {1, 1}};
  auto stored = std::make_shared<Preconditioner>();
  stored->kernel =
      *kernels::RestorePreconditioner(kernels::EngineKind::kJacobi, std::move(m), {}, {});
  const Arrays arrays = Diagonal(2);
  int64_t most = 0;
  const auto download = std::make_shared<Download>(
      stored, std::make_unique<InMemory>(arrays, &most), v1::VALUE_TYPE_FLOAT64);
  const auto resume = [](const std::function<void()>& task) { task(); };
  const auto next = [&] {
    v1::DownloadPreconditionerResponse response;
    grpc::Slice lent;
    return download->Next(&response, &v1::DownloadPreconditionerResponse::mutable_header, 1 << 20,
                          &lent);
  };
  EXPECT_FALSE(download->Waits(h.backend.get(), "t", resume));
  ASSERT_TRUE(next().ok()) << "the header needs no rank";
  EXPECT_FALSE(download->Waits(h.backend.get(), "t", resume));
  const auto ended = next();
  EXPECT_EQ(ReasonOf(ended.status()), reason::kQueueFull) << ended.status();
  EXPECT_EQ(most, 0);
  gate.set_value();
}

}  // namespace
}  // namespace spaid::server
