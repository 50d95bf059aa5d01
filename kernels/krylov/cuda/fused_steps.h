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

#include "kernels/krylov/cuda/node_product.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/segment.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {

// Iterations of a segment, at most.
inline constexpr int kMostIterations = 128;

struct SolveState {
  SegmentEnd status;
  int32_t iteration;  // iterations done in this segment
  int32_t limit;      // iterations of this segment, at most
  int32_t fresh;      // the direction is to be set from the residual alone
  int32_t save_best;  // the next kernel that updates x saves the iterate before it as the best
  double target;
  double previous_norm, best_norm;  // residual of the previous iterate, of the saved best one
  double diverged_at;
  double value;  // the scalar that led to the status
  double rho;    // CG: rᵀz. BiCGSTAB: the shadow residual's product with r
  double alpha, beta, omega;
  double r_norm, shadow_norm, s_norm;
  double norms[kMostIterations];  // the recursion's residual, by iteration
};

// Counts an iteration that ended with this residual norm, and sets the status where the segment
// ends. Called by one thread.
__device__ inline void CountIteration(SolveState& state, double norm) {
  state.previous_norm = norm;
  state.norms[state.iteration++] = norm;
  if (!isfinite(norm)) {
    state.status = SegmentEnd::kNonFinite;
  } else if (norm <= state.target) {
    state.status = SegmentEnd::kUnderTarget;
  } else if (state.iteration >= state.limit) {
    state.status = SegmentEnd::kPaused;
  }
}

// The same, and has the previous iterate saved where it is the best so far and this one is worse.
__device__ inline void RecordNorm(SolveState& state, double norm) {
  if (norm > state.previous_norm && state.previous_norm < state.best_norm) {
    state.save_best = 1;
    state.best_norm = state.previous_norm;
  }
  CountIteration(state, norm);
}

// Base of epilogues and steps: the state of the thread's column, and the memory for sums.
template <int kColumns>
struct Running {
  static constexpr int kOf = kColumns;

  SolveState* states;
  SumSpace space;

  __device__ SolveState& state() const { return states[Column<kColumns>()]; }
  __device__ bool Skip() const { return state().status != SegmentEnd::kRunning; }
  __device__ Running& running() { return *this; }
};

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

// y = A x, of one column, with an epilogue (product.h).
template <class Epilogue>
void Apply(const Context& context, const Applied& a, const double* x, double* y,
           const Epilogue& epilogue) {
  const int blocks = SumBlocks(context, a.n());
  LargestKernel<<<blocks, kSumThreads, 0, context.stream>>>(a.n(), x, epilogue, a.scale());
  CheckLaunch("LargestKernel");
  const AppliedResult result = a.Launch(context, x);
  ResultKernel<<<blocks, kSumThreads, 0, context.stream>>>(a.n(), result, a.scale(), y, epilogue);
  CheckLaunch("ResultKernel");
}

// y = A x with an epilogue (product.h); A is not a diagonal.
template <int kColumns = 1, class Epilogue>
void Product(const Context& context, const Operator& op, const double* x, double* y,
             const Epilogue& epilogue) {
  std::visit(
      [&](const auto& own) {
        using Own = std::decay_t<decltype(own)>;
        if constexpr (std::is_same_v<Own, Diagonal>) {
          throw Failure(CudaFault::kError, "a product with an epilogue by a diagonal");
        } else if constexpr (std::is_same_v<Own, std::unique_ptr<const Applied>>) {
          if constexpr (kColumns == 1) {
            Apply(context, *own, x, y, epilogue);
          } else {
            throw Failure(CudaFault::kError, "what is no matrix takes one column");
          }
        } else {
          LaunchProduct<kColumns>(Branch{context.stream}, own, x, y, epilogue);
        }
      },
      op);
}

// y = A x as a step.
template <class Epilogue>
struct ProductStep {
  static __device__ constexpr bool EndsInSum() { return Epilogue::EndsInSum(); }

  const Operator* op;  // host memory
  const double* x;
  double* y;
  Epilogue epilogue;
  // Set where `op` is laid out by rows (Csr).
  CsrRef<double> wide{};
  CsrRef<float> narrow{};
  bool is_wide = false, many_threads = false;

  ProductStep(const Operator& of, const double* from, double* to, const Epilogue& with)
      : op(&of), x(from), y(to), epilogue(with) {
    if (const auto* rows = std::get_if<Csr<double>>(&of)) {
      wide = rows->ref();
      many_threads = rows->threads_a_row() > 1;
      is_wide = true;
    } else if (const auto* floats = std::get_if<Csr<float>>(&of)) {
      narrow = floats->ref();
      many_threads = floats->threads_a_row() > 1;
    }
  }

  __device__ bool Skip() const { return epilogue.Skip(); }
  __device__ Running<1>& running() { return epilogue.running(); }
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
    const auto blocks = static_cast<int>(epilogue.space.Blocks());
    if (many_threads) {
      product::Multiply<1, kManyThreads, false, true>(rows, x, y, true, blocks, epilogue);
    } else {
      product::Multiply<1, 1, false, true>(rows, x, y, true, blocks, epilogue);
    }
  }
};

// The epilogue of a step's product with nothing to sum.
template <int kColumns>
struct PlainProduct : Running<kColumns> {
  static __device__ constexpr bool EndsInSum() { return false; }
  static constexpr int kSums = 1;
  __device__ void Row(int64_t, double, double (&)[1]) const {}
  __device__ void Finish(double (&)[kColumns][1]) const {}
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
template <class Epilogue>
void LaunchStep(const Context& context, int, const ProductStep<Epilogue>& step) {
  Product<Epilogue::kOf>(context, *step.op, step.x, step.y, step.epilogue);
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
template <class Epilogue>
bool MayPersist(const Context& context, const ProductStep<Epilogue>& step) {
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
template <class Epilogue>
int SetBlocks(int, ProductStep<Epilogue>& step) {
  const auto* wide = std::get_if<Csr<double>>(step.op);
  return SetBlocks(wide != nullptr ? wide->blocks() : std::get<Csr<float>>(*step.op).blocks(),
                   step.epilogue);
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
