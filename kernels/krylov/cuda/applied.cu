#include <type_traits>

#include "kernels/krylov/cuda/applied.h"
#include "kernels/krylov/cuda/product_end.h"

namespace spaid::cuda {
namespace {

// Before an application: whether it runs, and the largest |x_i|. The bits of doubles that are not
// negative are in the order of the doubles; those of what is no number come last.
template <class Epilogue>
__global__ void __launch_bounds__(kSumThreads)
    LargestKernel(int64_t n, const double* __restrict__ x, Epilogue epilogue, AppliedScale* scale) {
  const bool runs = !epilogue.Skip();
  if (blockIdx.x == 0 && threadIdx.x == 0) scale->runs = runs ? 1 : 0;
  if (!runs) return;
  unsigned long long largest = 0;
  ForOwn<1>(n, [&](int64_t, int64_t at, int) {
    largest = max(largest, static_cast<unsigned long long>(__double_as_longlong(fabs(x[at]))));
  });
  for (int step = 16; step > 0; step /= 2) {
    largest = max(largest, __shfl_xor_sync(~0u, largest, step));
  }
  if (threadIdx.x % 32 == 0 && largest > 0) atomicMax(&scale->largest, largest);
}

// After it: y, and the epilogue of each of its elements.
template <class Epilogue>
__global__ void __launch_bounds__(kSumThreads)
    ResultKernel(int64_t n, AppliedResult from, AppliedScale* scale, double* __restrict__ y,
                 Epilogue epilogue) {
  if (epilogue.Skip()) return;
  const double up = ldexp(1.0, scale->exponent);
  if (blockIdx.x == 0 && threadIdx.x == 0) scale->largest = 0;
  double sums[1][Epilogue::kSums] = {};
  ForOwn<1>(n, [&](int64_t, int64_t at, int) {
    const double found = from.narrow != nullptr ? from.narrow[at] : from.wide[at];
    const double own = found * up * from.out[at];
    y[at] = own;
    epilogue.Row(at, own, sums[0]);
  });
  epilogue.Finish(sums);
}

template <class Epilogue>
void Launch(const Context& context, const Applied& a, const double* x, double* y,
            const Epilogue& epilogue) {
  const int blocks = SumBlocks(context, a.n());
  LargestKernel<<<blocks, kSumThreads, 0, context.stream>>>(a.n(), x, epilogue, a.scale());
  CheckLaunch("LargestKernel");
  const AppliedResult result = a.Launch(context, x);
  ResultKernel<<<blocks, kSumThreads, 0, context.stream>>>(a.n(), result, a.scale(), y, epilogue);
  CheckLaunch("ResultKernel");
}

}  // namespace

void Product(const Context& context, const Applied& a, const double* x, double* y,
             const AnyProductEnd& end) {
  std::visit(
      [&](const auto& own) {
        if constexpr (std::decay_t<decltype(own)>::kOf == 1) {
          Launch(context, a, x, y, own);
        } else {
          throw Failure(CudaFault::kError, "what is no matrix takes one column");
        }
      },
      end);
}

}  // namespace spaid::cuda
