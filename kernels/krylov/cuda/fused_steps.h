// An iteration as a few steps, each of them work of a whole grid between two grid-wide barriers.
//
//   template <int kColumns>
//   struct Step : Running<kColumns> {  // trivially copyable
//     static __device__ constexpr bool EndsInSum();  // in SumGrid, which is a barrier
//     __device__ void Run() const;
//   };
//
// A step is a kernel launch; or, with one column, where an iteration takes less time than its
// launches, all steps of several iterations are one persistent kernel, whose blocks wait for one
// another and each have their own copy of the scalars. Sums are the same bits either way, as a step
// uses the same number of blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <variant>

#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/product_end.h"
#include "kernels/krylov/cuda/solve_state.h"

namespace spaid::cuda {

// y = A x as a step.
template <int kColumns, int kDots>
struct ProductStep {
  static __device__ constexpr bool EndsInSum() { return kDots > 0; }

  const Operator* op;  // host memory
  const double* x;
  double* y;
  ProductEnd<kColumns, kDots> end;
  // Set where `op` is laid out by rows (Csr).
  CsrRef<double> wide{};
  CsrRef<float> narrow{};
  bool is_wide = false, many_threads = false;

  ProductStep(const Operator& of, const double* from, double* to,
              const ProductEnd<kColumns, kDots>& with)
      : op(&of), x(from), y(to), end(with) {
    if (const auto* rows = std::get_if<Csr<double>>(&of)) {
      wide = rows->ref();
      many_threads = rows->threads_a_row() > 1;
      is_wide = true;
    } else if (const auto* floats = std::get_if<Csr<float>>(&of)) {
      narrow = floats->ref();
      many_threads = floats->threads_a_row() > 1;
    }
  }

  __device__ bool Skip() const { return end.Skip(); }
  __device__ Running<1>& running() { return end.running(); }
  // In a persistent kernel.
  __device__ void Run() const {
    if (is_wide) {
      Multiply(wide);
    } else {
      Multiply(narrow);
    }
  }

 private:
  template <class Value>
  __device__ void Multiply(const CsrRef<Value>& rows) const {
    const auto blocks = static_cast<int>(end.space.Blocks());
    if (many_threads) {
      product::Multiply<1, kManyThreads, false, true>(rows, x, y, true, blocks, end);
    } else {
      product::Multiply<1, 1, false, true>(rows, x, y, true, blocks, end);
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(kSumThreads) StepKernel(Step step) {
  step.Run();
}

// Launches one step.
template <class Step>
void LaunchStep(const Context& context, int blocks, const Step& step) {
  StepKernel<<<blocks, kSumThreads, 0, context.stream>>>(step);
  CheckLaunch("StepKernel");
}
template <int kColumns, int kDots>
void LaunchStep(const Context& context, int, const ProductStep<kColumns, kDots>& step) {
  Product(context, *step.op, step.x, step.y, step.end);
}

// Runs a step and the barrier after it; false: the solve does not run any more. Uniform over the
// grid, since the status changes only within SumGrid.
template <class Step>
__device__ bool RunStep(const Step& step, const SumSpace& space) {
  if (step.Skip()) return false;
  step.Run();
  if (!Step::EndsInSum()) GridBarrier(space);
  return true;
}

// Several iterations in one launch. space.arrived has two counters: arrivals at barriers, and
// blocks that have left.
template <class... Steps>
__global__ void __launch_bounds__(kSumThreads, 4)
    PersistentKernel(int iterations, SolveState* state, SumSpace space, Steps... steps) {
  __shared__ SolveState own;
  __shared__ unsigned barriers;
  if (threadIdx.x == 0) {
    own = *state;
    barriers = 0;
  }
  __syncthreads();
  space.barriers = &barriers;
  const auto place = [&](Running<1>& running) {
    running.states = &own;
    running.space.barriers = &barriers;
  };
  (place(steps.running()), ...);
  bool on = true;
  for (int i = 0; on && i < iterations; ++i) on = (RunStep(steps, space) && ...);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) *state = own;
  if (atomicAdd(space.arrived + 1, 1u) == gridDim.x - 1) space.arrived[0] = space.arrived[1] = 0;
}

// Whether a step may run in a persistent kernel: not a product by another layout than Csr, nor by a
// matrix larger than the caches.
template <class Step>
bool MayPersist(const Context&, const Step&) {
  return true;
}
template <int kDots>
bool MayPersist(const Context& context, const ProductStep<1, kDots>& step) {
  return std::visit(
      [&](const auto& own) {
        using Own = std::decay_t<decltype(own)>;
        if constexpr (std::is_same_v<Own, Csr<double>> || std::is_same_v<Own, Csr<float>>) {
          return !own.in_tiles() && own.nnz() * own.kEntryBytes <= context.variants.rows_bytes;
        } else {
          return false;
        }
      },
      *step.op);
}

// Has the step use as many blocks as its own launch would have; returns how many.
template <class Step>
int SetBlocks(int blocks, Step& step) {
  step.space.blocks = static_cast<unsigned>(blocks);
  return blocks;
}
template <int kDots>
int SetBlocks(int, ProductStep<1, kDots>& step) {
  const auto* wide = std::get_if<Csr<double>>(step.op);
  return SetBlocks(wide != nullptr ? wide->blocks() : std::get<Csr<float>>(*step.op).blocks(),
                   step.end);
}

// Runs so many iterations in one persistent kernel. `blocks`: for steps that are no products.
// False: some step may not run there, or the blocks do not fit on the device at once.
template <class... Steps>
bool LaunchPersistentSteps(const Context& context, int blocks, int iterations, SolveState* state,
                           const SumSpace& space, Steps... steps) {
  if (!(MayPersist(context, steps) && ...)) return false;
  const auto kernel = &PersistentKernel<Steps...>;
  int resident = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kSumThreads, 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int grid = std::max({SetBlocks(blocks, steps)...});
  if (grid > std::min(context.multiprocessors * resident, kMostSumBlocks / 2)) return false;
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(kSumThreads);
  config.stream = context.stream;
  config.attrs = &together;
  config.numAttrs = 1;
  Check(cudaLaunchKernelEx(&config, kernel, iterations, state, space, steps...),
        "cudaLaunchKernelEx");
  return true;
}

}  // namespace spaid::cuda
