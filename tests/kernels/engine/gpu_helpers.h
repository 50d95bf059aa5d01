// What the tests of the engine on a CUDA device share. Tests are skipped, with the reason, where
// there is no device.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/engine/cuda_library.h"
#include "kernels/engine/engine_parts.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {

inline constexpr int kCpu = 0, kGpu = 1;
inline constexpr int64_t kNever = INT64_MAX;  // iterations

// Matrices that were sent to devices for solves, from here on.
inline std::atomic<int> uploads{0};
inline void CountUploads() {
  static const CudaLibrary own = Cuda();
  static const CudaLibrary counting = [] {
    CudaLibrary library = own;
    library.operator_of_matrix = [](const std::shared_ptr<CudaDevice>& device, const CscView& a,
                                    bool fp32, const Context& context, const CudaOperator* beside) {
      ++uploads;
      return own.operator_of_matrix(device, a, fp32, context, beside);
    };
    library.operator_of_factors = [](const std::shared_ptr<CudaDevice>& device, const CscView& g,
                                     const CscView& g_transposed, bool fp32, const Context& context,
                                     const CudaOperator* beside) {
      uploads += 2;
      return own.operator_of_factors(device, g, g_transposed, fp32, context, beside);
    };
    return library;
  }();
  TheCudaLibrary() = &counting;
}

// The same pattern, and values within `tolerance` of the largest of `cpu`.
inline void ExpectSameM(const CscMatrix& gpu, const CscMatrix& cpu, double tolerance) {
  ASSERT_EQ(gpu.col_ptr, cpu.col_ptr);
  ASSERT_EQ(gpu.row_idx, cpu.row_idx);
  double largest = 0;
  for (const double value : cpu.values) largest = std::max(largest, std::abs(value));
  for (size_t p = 0; p < cpu.values.size(); ++p) {
    ASSERT_NEAR(gpu.values[p], cpu.values[p], tolerance * largest) << p;
  }
}

// On the device of `context`, where A is; M is placed there as the solve asks for it. A failure is
// a test failure, and has no right-hand sides.
inline SolveResult MustSolveThere(const Engine& engine, const CscView& a,
                                  const DeviceOperator& a_there, const Preconditioner& m,
                                  std::span<const double> b, const SolveOptions& options,
                                  const Context& context = {.device = kGpu}) {
  auto solved = engine.SolveOnDevice(
      a, a_there, &m, [&](Storage storage) { return engine.Place(m, storage, context, &a_there); },
      b, {}, options, context);
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  return solved.ok() ? *std::move(solved) : SolveResult();
}

class GpuEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices& cuda = ListCudaDevices();
    if (!cuda.available) GTEST_SKIP() << cuda.status;
    CountUploads();
    auto device = CudaDevice::Open(cuda.devices[0], 0);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
    engine_ = MakeEngine(true, {device_});
  }

  // Of BiCGSTAB on the CPU to 1e-8 from b = A x, x smooth, M in fp64; kNever: it does not converge.
  int64_t Iterations(const CscMatrix& a, const Preconditioner& m) const {
    const Vector b = SmoothRhs(a);
    const auto solved = engine_->Solve(
        a, &m, b, {}, {.method = Method::kBicgstab, .rtol = 1e-8, .m_storage = Storage::kFp64}, {});
    EXPECT_TRUE(solved.ok()) << solved.status().message();
    if (!solved.ok() || solved->rhs[0].outcome != Outcome::kConverged) return kNever;
    return solved->rhs[0].iterations;
  }

  // Of 20 runs with `m` perturbed by 1e-14, relative, ascending: BiCGSTAB scatters so by itself.
  std::vector<int64_t> Scatter(const CscMatrix& a, const CscMatrix& m) const {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> noise(-1e-14, 1e-14);
    std::vector<int64_t> counts;
    for (int run = 0; run < 20; ++run) {
      CscMatrix perturbed = m;
      for (double& value : perturbed.values) value *= 1 + noise(random);
      const auto made =
          HostPreconditioner::Make(EngineKind::kStaticSpai, std::move(perturbed), {}, true);
      EXPECT_TRUE(made.ok());
      counts.push_back(Iterations(a, **made));
    }
    std::sort(counts.begin(), counts.end());
    return counts;
  }

  // Whether two preconditioners of the same matrix serve it equally well (CONTRIBUTING.md, "Two
  // backends"): single runs within 2, or, from 50 on, the second in the range of Scatter of the
  // first; else the median of either's Scatter in the range of the other's.
  struct Agreement {
    int64_t first = 0, second = 0;             // single runs
    std::vector<int64_t> of_first, of_second;  // Scatter, as far as it was asked for
    bool by_single_runs = false, by_medians = false;
    explicit operator bool() const { return by_single_runs || by_medians; }
  };
  Agreement Compare(const CscMatrix& a, const Preconditioner& first,
                    const Preconditioner& second) const {
    Agreement found;
    found.first = Iterations(a, first);
    found.second = Iterations(a, second);
    const auto within = [](int64_t count, const std::vector<int64_t>& range) {
      return count >= range.front() && count <= range.back();
    };
    const int64_t low = std::min(found.first, found.second);
    found.by_single_runs = std::max(found.first, found.second) - low <= 2;
    if (found.by_single_runs) return found;
    found.of_first = Scatter(a, first.matrix());
    found.by_single_runs = found.first >= 50 && within(found.second, found.of_first);
    if (found.by_single_runs) return found;
    found.of_second = Scatter(a, second.matrix());
    found.by_medians =
        within(found.of_second[10], found.of_first) && within(found.of_first[10], found.of_second);
    return found;
  }

  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace spaid::kernels::engine_test
