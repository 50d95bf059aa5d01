// Values that went to a CUDA device while they came: all that is computed with them there is the
// same to the last bit.
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "kernels/bench/problems.h"
#include "kernels/engine/build_result.h"
#include "tests/kernels/engine/gpu_helpers.h"

namespace spaid::kernels::engine_test {
namespace {

class GpuAhead : public GpuEngine {
 protected:
  // All of the values, in pieces, or the first `count` of them.
  std::shared_ptr<CopyAhead> Send(const CscMatrix& a, int64_t count) const {
    auto ahead = engine_->BeginCopyAhead(kGpu, a.values.data(), a.nnz());
    EXPECT_TRUE(ahead.ok() && *ahead != nullptr) << ahead.status().message();
    if (!ahead.ok() || *ahead == nullptr) return nullptr;
    constexpr int64_t kChunk = 100'000;
    const int64_t bytes = 8 * count;
    int64_t sent = 0;
    for (int64_t final = kChunk; final < count; final += kChunk) {
      sent = (*ahead)->Send(8 * final).value();
    }
    const int64_t piece = int64_t{1} << 20;
    while (sent < (count == a.nnz() ? bytes : bytes / piece * piece)) {
      sent = (*ahead)->Send(bytes).value();
      std::this_thread::yield();
    }
    return *ahead;
  }

  const CscMatrix a_ = bench::Laplacian27(24);  // 2.7 MB of values
};

TEST_F(GpuAhead, BuildsAreTheSame) {
  CscMatrix drifted = a_;
  for (size_t p = 0; p < drifted.values.size(); ++p) {
    drifted.values[p] *= 1 + 1e-3 * static_cast<double>(p % 17);
  }
  for (const EngineKind kind : {EngineKind::kStaticSpai, EngineKind::kDynamicSpai}) {
    SCOPED_TRACE(static_cast<int>(kind));
    PreconditionerSpec spec;
    spec.engine = kind;
    const auto plan = engine_->MakePlan(spec, a_, nullptr, {.device = kGpu});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto expected = (*plan)->Build(spec, drifted, {.device = kGpu});
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    for (const int64_t count : {drifted.nnz(), drifted.nnz() / 2}) {
      const auto ahead = Send(drifted, count);
      ASSERT_NE(ahead, nullptr);
      const auto built = (*plan)->Build(spec, drifted, {.device = kGpu, .ahead = ahead.get()});
      ASSERT_TRUE(built.ok()) << built.status().message();
      EXPECT_GT(ahead->taken(), 8 * count - (int64_t{1} << 20));
      EXPECT_EQ(built->preconditioner->matrix().row_idx,
                expected->preconditioner->matrix().row_idx);
      EXPECT_EQ(built->preconditioner->matrix().values, expected->preconditioner->matrix().values);
    }
  }
}

TEST_F(GpuAhead, FsaiIsTheSame) {
  PreconditionerSpec spec;
  spec.engine = EngineKind::kFsai;
  const auto expected = MustBuild(*engine_, spec, a_, {.device = kGpu});
  const auto ahead = Send(a_, a_.nnz());
  ASSERT_NE(ahead, nullptr);
  const auto built = MustBuild(*engine_, spec, a_, {.device = kGpu, .ahead = ahead.get()});
  ASSERT_TRUE(expected.preconditioner && built.preconditioner);
  EXPECT_EQ(ahead->taken(), 8 * a_.nnz());
  EXPECT_EQ(built.preconditioner->matrix().values, expected.preconditioner->matrix().values);
}

TEST_F(GpuAhead, SolvesAreTheSame) {
  const BuildResult m = MustBuild(*engine_, Spai(), a_, {.device = kGpu});
  ASSERT_NE(m.preconditioner, nullptr);
  const Vector b = SmoothRhs(a_);
  const SolveOptions options{.method = Method::kBicgstab, .rtol = 1e-8};
  const auto placed = engine_->Place(a_, {.device = kGpu});
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  const SolveResult expected =
      MustSolveThere(*engine_, a_, **placed, *m.preconditioner, b, options);
  const auto ahead = Send(a_, a_.nnz());
  ASSERT_NE(ahead, nullptr);
  const Context context{.device = kGpu, .ahead = ahead.get()};
  auto anew = engine_->Place(a_, context);
  ASSERT_TRUE(anew.ok()) << anew.status().message();
  EXPECT_EQ(MustSolveThere(*engine_, a_, **anew, *m.preconditioner, b, options).x, expected.x);
  const auto replaced = engine_->Replace(*std::move(anew), a_, context);
  ASSERT_TRUE(replaced.ok()) << replaced.status().message();
  EXPECT_EQ(MustSolveThere(*engine_, a_, **replaced, *m.preconditioner, b, options).x, expected.x);
  EXPECT_EQ(ahead->taken(), 8 * a_.nnz());
}

// M by a scaled A: its values are others.
TEST_F(GpuAhead, OtherValuesAreNotMistakenForThem) {
  CscMatrix other = a_;
  for (double& value : other.values) value *= 2;
  const BuildResult expected = MustBuild(*engine_, Spai(), other, {.device = kGpu});
  const auto ahead = Send(a_, a_.nnz());
  ASSERT_NE(ahead, nullptr);
  const BuildResult built =
      MustBuild(*engine_, Spai(), other, {.device = kGpu, .ahead = ahead.get()});
  ASSERT_TRUE(expected.preconditioner && built.preconditioner);
  EXPECT_EQ(ahead->taken(), 0);
  EXPECT_EQ(built.preconditioner->matrix().values, expected.preconditioner->matrix().values);
}

TEST_F(GpuAhead, TakesFreeMemoryOfADeviceThatDoesNotCompute) {
  const int64_t used = engine_->State(kGpu).used_bytes;
  {
    const auto computes = device_->Lock();
    std::thread([&] {
      EXPECT_EQ(engine_->BeginCopyAhead(kGpu, a_.values.data(), a_.nnz()).value(), nullptr);
    }).join();
  }
  EXPECT_EQ(engine_->BeginCopyAhead(kCpu, a_.values.data(), a_.nnz()).value(), nullptr);
  const auto ahead = Send(a_, a_.nnz());
  ASSERT_NE(ahead, nullptr);
  EXPECT_GE(engine_->State(kGpu).used_bytes, used + 8 * a_.nnz());
  ahead->Drop();
  EXPECT_EQ(engine_->State(kGpu).used_bytes, used);
  auto small = CudaDevice::Open(device_->info(), 8 * a_.nnz() - 256);
  ASSERT_TRUE(small.ok()) << small.status().message();
  const auto engine = MakeEngine(true, {*small});
  EXPECT_EQ(engine->BeginCopyAhead(kGpu, a_.values.data(), a_.nnz()).value(), nullptr);
}

// From the memory of one slot of a GPU to another one's computation; dropped while it runs.
TEST_F(GpuAhead, ServesAnotherSlotOfItsDevice) {
  auto slot = CudaDevice::Open(device_->info(), 0);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  const auto engine = MakeEngine(true, {*slot});
  const BuildResult expected = MustBuild(*engine, Spai(), a_, {.device = kGpu});
  ASSERT_NE(expected.preconditioner, nullptr);
  for (int round = 0; round < 10; ++round) {
    const auto ahead = Send(a_, a_.nnz());
    ASSERT_NE(ahead, nullptr);
    std::atomic<bool> over = false;
    std::thread drops([&] {
      while (ahead->taken() == 0 && !over) std::this_thread::yield();
      ahead->Drop();
      // The memory is another's at once.
      CscMatrix other = a_;
      other.values.assign(other.values.size(), -1);
      Send(other, other.nnz());
    });
    const BuildResult built =
        MustBuild(*engine, Spai(), a_, {.device = kGpu, .ahead = ahead.get()});
    over = true;
    drops.join();
    EXPECT_EQ(ahead->taken(), 8 * a_.nnz());
    ASSERT_NE(built.preconditioner, nullptr);
    EXPECT_EQ(built.preconditioner->matrix().values, expected.preconditioner->matrix().values);
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
