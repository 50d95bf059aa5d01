// M read by several threads while the kernels build it.
#include "server/engine/partial_matrix.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/result_sink.h"
#include "kernels/engine/build_result.h"
#include "server/engine/resolved_build.h"

namespace spaid::server {
namespace {

using kernels::CscMatrix;

CscMatrix Tridiagonal(int64_t n) {
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = std::max<int64_t>(0, k - 1); i <= std::min(n - 1, k + 1); ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == k ? 4 + static_cast<double>(k % 9) : -1);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

// What a stream does: copies what is finished, from the beginning where the version is another.
class Reader {
 public:
  explicit Reader(const PartialMatrix& m) : m_(m) {}
  // False: nothing new.
  bool Read() {
    bool more = false;
    m_.Read([&](const PartialMatrix::View& view) {
      if (view.version != version) {
        version = view.version;
        values.clear();
        rows = view.m.nnz();
        more = true;
      }
      const auto from = static_cast<int64_t>(values.size());
      EXPECT_GE(view.finished, from) << "what was finished is no more";
      EXPECT_EQ(view.m.nnz(), rows);
      more = more || view.finished > from;
      values.insert(values.end(), view.m.values.begin() + from,
                    view.m.values.begin() + view.finished);
    });
    return more;
  }

  int64_t version = 0, rows = 0;
  std::vector<double> values;

 private:
  const PartialMatrix& m_;
};

TEST(PartialMatrix, IsWhatABuildHasFinished) {
  CscMatrix a = Tridiagonal(4);
  int news = 0;
  PartialMatrix m([&] { ++news; });
  Reader reader(m);
  EXPECT_FALSE(reader.Read());
  m.OnPattern(a.col_ptr, a.row_idx, a.values);
  EXPECT_EQ(news, 1);
  EXPECT_TRUE(reader.Read());
  EXPECT_EQ(reader.version, 1);
  EXPECT_EQ(reader.values.size(), 0u);
  m.OnColumns(2);
  EXPECT_TRUE(reader.Read());
  EXPECT_EQ(reader.values, (std::vector<double>{4, -1, -1, 5, -1}));
  EXPECT_EQ(news, 1) << "not worth a message";
  m.OnColumns(4);
  EXPECT_EQ(news, 2);
  EXPECT_EQ(m.owner(), nullptr);
  m.OnWithdrawn();
  EXPECT_FALSE(reader.Read());
  m.OnPattern(a.col_ptr, a.row_idx, a.values);
  EXPECT_TRUE(reader.Read());
  EXPECT_EQ(reader.version, 2);
  EXPECT_EQ(reader.values.size(), 0u);
}

// Columns for less than a chunk wake nobody, and nobody who is not there.
TEST(PartialMatrix, TellsOfAChunkAtATimeWhoeverWaits) {
  CscMatrix a = Tridiagonal(200'000);
  int news = 0;
  PartialMatrix m([&] { ++news; });
  m.OnPattern(a.col_ptr, a.row_idx, a.values);
  Reader reader(m);
  news = 0;
  m.OnColumns(50'000);
  EXPECT_EQ(news, 0) << "nobody waits";
  reader.Read();
  m.OnColumns(60'000);
  EXPECT_EQ(news, 1) << "180,000 entries have not been told";
  m.OnColumns(150'000);
  EXPECT_EQ(news, 1) << "nobody has come back";
  reader.Read();
  m.OnColumns(150'001);
  EXPECT_EQ(news, 2);
  reader.Read();
  m.OnColumns(190'000);
  EXPECT_EQ(news, 2);
  m.OnColumns(200'000);
  EXPECT_EQ(news, 3);
}

// Over several of the pieces in which it is read.
TEST(PartialMatrix, DigestsThePatternThatItShows) {
  const CscMatrix a = Tridiagonal(200'000);
  PartialMatrix m([] {});
  EXPECT_EQ(PatternDigestOf(m, 1), std::nullopt) << "nothing is shown";
  m.OnPattern(a.col_ptr, a.row_idx, a.values);
  EXPECT_EQ(PatternDigestOf(m, 1), PatternDigest(a.n_cols, a.col_ptr, a.row_idx));
  EXPECT_EQ(PatternDigestOf(m, 2), std::nullopt);
  m.OnWithdrawn();
  EXPECT_EQ(PatternDigestOf(m, 1), std::nullopt);
  const CscMatrix small = Tridiagonal(1);
  m.OnPattern(small.col_ptr, small.row_idx, small.values);
  EXPECT_EQ(PatternDigestOf(m, 2), PatternDigest(1, small.col_ptr, small.row_idx));
}

class EngineReads : public ::testing::Test {
 protected:
  kernels::Result<kernels::BuildResult> Build(
      PartialMatrix& m, kernels::Context context,
      kernels::EngineKind kind = kernels::EngineKind::kStaticSpai) {
    kernels::PreconditionerSpec spec;
    spec.engine = kind;
    auto plan = engine_->MakePlan(spec, a_, nullptr, context);
    EXPECT_TRUE(plan.ok());
    context.result = &m;
    return (*plan)->Build(spec, a_, context);
  }
  const std::unique_ptr<kernels::Engine> engine_ = kernels::MakeCpuEngine();
  const CscMatrix a_ = Tridiagonal(100'000);
};

class EngineShows : public EngineReads,
                    public ::testing::WithParamInterface<kernels::EngineKind> {};

TEST_P(EngineShows, BesideItFromTheFirstColumnOn) {
  PartialMatrix m([] {});
  std::atomic<bool> over{false};
  std::vector<Reader> readers(3, Reader(m));
  std::vector<std::thread> threads;
  for (Reader& reader : readers) {
    threads.emplace_back([&] {
      while (!over) reader.Read();
      reader.Read();
    });
  }
  auto built = Build(m, {.threads = 3}, GetParam());
  ASSERT_TRUE(built.ok());
  m.Finish(built->preconditioner);
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(m.owner(), built->preconditioner);
  for (const Reader& reader : readers) {
    EXPECT_EQ(reader.version, 1) << "the preconditioner has the arrays that were shown";
    EXPECT_EQ(kernels::Array<double>(reader.values.begin(), reader.values.end()),
              built->preconditioner->matrix().values);
  }
}

INSTANTIATE_TEST_SUITE_P(ExplicitM, EngineShows,
                         ::testing::Values(kernels::EngineKind::kStaticSpai,
                                           kernels::EngineKind::kDynamicSpai));

class StopAtHalf final : public kernels::ProgressSink {
 public:
  void OnProgress(kernels::Stage stage, int64_t done, int64_t total) override {
    if (stage == kernels::Stage::kBuild && 2 * done >= total) {
      source.Request(kernels::StopReason::kCancelled);
    }
  }
  void OnResidual(const kernels::ResidualPoint&) override {}
  kernels::StopSource source;
};

// Its arrays go while others read.
TEST_F(EngineReads, UntilItIsStopped) {
  StopAtHalf half;
  std::atomic<bool> over{false};
  PartialMatrix m([] {});
  Reader reader(m);
  std::thread thread([&] {
    while (!over) reader.Read();
  });
  const auto built = Build(m, {.stop = half.source.token(), .progress = &half, .threads = 3});
  over = true;
  thread.join();
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().reason(), "CANCELLED");
  EXPECT_FALSE(reader.Read());
  EXPECT_LT(static_cast<int64_t>(reader.values.size()), a_.nnz());
}

TEST_F(EngineReads, TheFactorThatComesInTheEnd) {
  kernels::PreconditionerSpec spec;
  spec.engine = kernels::EngineKind::kFsai;
  PartialMatrix m([] {});
  const kernels::Context context{.threads = 2, .result = &m};
  auto plan = engine_->MakePlan(spec, a_, nullptr, context);
  ASSERT_TRUE(plan.ok());
  auto built = (*plan)->Build(spec, a_, context);
  ASSERT_TRUE(built.ok());
  Reader reader(m);
  EXPECT_FALSE(reader.Read());
  m.Finish(built->preconditioner);
  EXPECT_TRUE(reader.Read());
  bool is_factor = false;
  m.Read([&](const PartialMatrix::View& view) { is_factor = view.is_factor; });
  EXPECT_TRUE(is_factor);
  EXPECT_EQ(static_cast<int64_t>(reader.values.size()), built->preconditioner->matrix().nnz());
}

}  // namespace
}  // namespace spaid::server
