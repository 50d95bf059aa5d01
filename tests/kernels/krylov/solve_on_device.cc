// The first CUDA device. Without one every test of the program is skipped, with the reason.
#include "tests/kernels/krylov/solve_on_device.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "tests/kernels/base/gpu_context.h"
#include "tests/kernels/base/on_device.h"
#include "tests/kernels/krylov/helpers.h"
#include "tests/kernels/krylov/rows_bytes.h"

namespace spaid::kernels::krylov_test {
namespace {

const ::testing::Environment* const kOnDevice = ::testing::AddGlobalTestEnvironment(new OnDevice);

}  // namespace

bool Launches() { return std::getenv("SPAID_TEST_LAUNCHES") != nullptr; }

std::shared_ptr<CudaDevice> OpenSo(int64_t memory_limit) {
  return OpenGpu(memory_limit, Launches() ? WithRowsBytes(0) : cuda::tuning::kVariants).value();
}

const std::shared_ptr<CudaDevice>& Device() {
  static const std::shared_ptr<CudaDevice> device = OpenSo(0);
  return device;
}

Result<SolveResult> SolveHere(const CscView& a, const LinearOperator* m, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context) {
  auto a_there = CudaOperator::OfMatrix(Device(), a, /*fp32=*/false, Context());
  if (!a_there.ok()) return a_there.status();
  std::shared_ptr<const CudaOperator> m_there;
  if (m != nullptr) {
    const auto* diagonal = dynamic_cast<const DiagonalOperator*>(m);
    EXPECT_NE(diagonal, nullptr) << "not a diagonal";
    auto made = CudaOperator::OfDiagonal(Device(), diagonal->diagonal());
    if (!made.ok()) return made.status();
    m_there = *std::move(made);
  }
  return SolveCuda(**a_there, m_there.get(), a, b, x0, options, context);
}

bool OnHost() { return false; }

int64_t IterationsAfterStop() { return Launches() ? 20 : 40; }  // two graphs, two kernels

int64_t ColumnsAtOnce() { return Launches() ? kMostCudaColumns : 1; }

}  // namespace spaid::kernels::krylov_test
