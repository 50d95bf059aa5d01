#include "kernels/krylov/cuda/applied.h"
#include "kernels/krylov/cuda/product_end.h"

namespace spaid::cuda {
namespace {

// Before an application: whether it runs, and the largest |x_i|, of each column. The bits of
// doubles that are not negative are in the order of the doubles; those of what is no number come
// last.
template <class Epilogue>
__global__ void __launch_bounds__(kSumThreads)
    LargestKernel(int64_t n, const double* __restrict__ x, Epilogue epilogue,
                  AppliedScale* scales) {
  constexpr int kColumns = Epilogue::kOf;
  const bool runs = !epilogue.Skip();
  AppliedScale& scale = scales[Column<kColumns>()];
  if (blockIdx.x == 0 && threadIdx.x < kColumns) scale.runs = runs ? 1 : 0;
  if (!AnyRuns<kColumns>(runs)) return;
  unsigned long long largest = 0;
  ForOwn<kColumns>(runs ? n : 0, [&](int64_t, int64_t at, int) {
    largest = max(largest, static_cast<unsigned long long>(__double_as_longlong(fabs(x[at]))));
  });
  for (int step = 16; step >= kColumns; step /= 2) {
    largest = max(largest, __shfl_xor_sync(~0u, largest, step));
  }
  if (threadIdx.x % 32 < kColumns && largest > 0) atomicMax(&scale.largest, largest);
}

// After it: y, and the epilogue of each of its elements.
template <class Epilogue>
__global__ void __launch_bounds__(kSumThreads)
    ResultKernel(int64_t n, AppliedResult from, AppliedScale* scales, double* __restrict__ y,
                 Epilogue epilogue) {
  constexpr int kColumns = Epilogue::kOf;
  const bool runs = !epilogue.Skip();
  if (!AnyRuns<kColumns>(runs)) return;
  AppliedScale& scale = scales[Column<kColumns>()];
  const double up = ldexp(1.0, scale.exponent);
  if (blockIdx.x == 0 && threadIdx.x < kColumns) scale.largest = 0;
  double sums[kColumns][Epilogue::kSums] = {};
  ForOwn<kColumns>(runs ? n : 0, [&](int64_t i, int64_t at, int slot) {
    const double found = from.narrow != nullptr ? from.narrow[at] : from.wide[at];
    const double own = found * up * from.out[i];
    y[at] = own;
    epilogue.Row(at, own, sums[slot]);
  });
  epilogue.Finish(sums);
}

template <class Epilogue>
void Launch(const Context& context, const Applied& a, const double* x, double* y,
            const Epilogue& epilogue) {
  if (a.columns() != Epilogue::kOf) {
    throw Failure(CudaFault::kError, "an operator with vectors for another number of columns");
  }
  const int blocks = SumBlocks(context, a.n());
  LargestKernel<<<blocks, kSumThreads, 0, context.stream>>>(a.n(), x, epilogue, a.scales());
  CheckLaunch("LargestKernel");
  const AppliedResult result = a.Launch(context, x);
  ResultKernel<<<blocks, kSumThreads, 0, context.stream>>>(a.n(), result, a.scales(), y, epilogue);
  CheckLaunch("ResultKernel");
}

}  // namespace

void Product(const Context& context, const Applied& a, const double* x, double* y,
             const AnyProductEnd& end) {
  std::visit([&](const auto& own) { Launch(context, a, x, y, own); }, end);
}

}  // namespace spaid::cuda
