// An iteration as phases, each of them the work of a whole grid between two waits for all of it.
//
//   template <int kColumns>
//   struct Phase : Running<kColumns> {  // trivially copyable
//     static __device__ constexpr bool Meets();  // it ends in SumGrid
//     __device__ void Run() const;
//   };
//
// A phase is a launch; or, of one column, where an iteration takes less time than its launches, all
// phases of some iterations are one launch: a grid that stays, whose blocks wait for one another,
// each with scalars of its own. Sums are the same bits in either: a phase is for as many blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <variant>

#include "kernels/krylov/cuda/node_product.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/product.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {

// Iterations of a segment, at most.
inline constexpr int kMostIterations = 128;

struct SolveState {
  SegmentEnd status;
  int32_t iteration;  // of this segment, done
  int32_t limit;      // of those
  int32_t fresh;      // the direction is to be set from the residual alone
  int32_t save_best;  // the next kernel that goes through x keeps the iterate before it
  double target;
  double previous_norm, best_norm;  // of the iterate before; of the one that is kept
  double diverged_at;
  double value;  // what the status is about
  double rho;    // CG: rᵀz. BiCGSTAB: the shadow residual's product with r
  double alpha, beta, omega;
  double r_norm, shadow_norm, s_norm;
  double norms[kMostIterations];  // of the recursion's residual, by iteration
};

// The residual norm of an iteration: counts it, and says where the segment ends. By one thread.
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

// The same, with an eye on the best iterate.
__device__ inline void RecordNorm(SolveState& state, double norm) {
  if (norm > state.previous_norm && state.previous_norm < state.best_norm) {
    state.save_best = 1;
    state.best_norm = state.previous_norm;
  }
  CountIteration(state, norm);
}

// Of an epilogue, or of any phase: what the thread's column reads and writes.
template <int kColumns>
struct Running {
  static constexpr int kOf = kColumns;

  SolveState* states;
  SumSpace space;

  __device__ SolveState& state() const { return states[Column<kColumns>()]; }
  __device__ bool Skip() const { return state().status != SegmentEnd::kRunning; }
  __device__ Running& running() { return *this; }
};

// y = A x, with an epilogue (product.h); A is no diagonal.
template <int kColumns = 1, class Epilogue>
void Product(const Context& context, const Operator& op, const double* x, double* y,
             const Epilogue& epilogue) {
  std::visit(
      [&](const auto& own) {
        if constexpr (std::is_same_v<std::decay_t<decltype(own)>, Diagonal>) {
          throw Failure(CudaFault::kError, "a product with an epilogue by a diagonal");
        } else {
          LaunchProduct<kColumns>(Branch{context.stream}, own, x, y, epilogue);
        }
      },
      op);
}

// A product as a phase.
template <class Epilogue>
struct ProductPhase {
  static __device__ constexpr bool Meets() { return Epilogue::Meets(); }

  const Operator* op;  // of the host
  const double* x;
  double* y;
  Epilogue epilogue;
  // Where it is by rows.
  RowsRef<double> wide{};
  RowsRef<float> narrow{};
  bool is_wide = false, many_threads = false;

  ProductPhase(const Operator& of, const double* from, double* to, const Epilogue& with)
      : op(&of), x(from), y(to), epilogue(with) {
    if (const auto* rows = std::get_if<Rows<double>>(&of)) {
      wide = rows->ref();
      many_threads = rows->threads_a_row() > 1;
      is_wide = true;
    } else if (const auto* floats = std::get_if<Rows<float>>(&of)) {
      narrow = floats->ref();
      many_threads = floats->threads_a_row() > 1;
    }
  }

  __device__ bool Skip() const { return epilogue.Skip(); }
  __device__ Running<1>& running() { return epilogue.running(); }
  // In a grid that stays.
  __device__ void Run() const {
    if (is_wide) {
      Multiply(wide);
    } else {
      Multiply(narrow);
    }
  }

 private:
  template <class Value>
  __device__ void Multiply(const RowsRef<Value>& rows) const {
    const auto blocks = static_cast<int>(epilogue.space.Blocks());
    if (many_threads) {
      product::Multiply<1, kManyThreads, false, true>(rows, x, y, true, blocks, epilogue);
    } else {
      product::Multiply<1, 1, false, true>(rows, x, y, true, blocks, epilogue);
    }
  }
};

// The epilogue of a product with nothing to sum.
template <int kColumns>
struct PlainProduct : Running<kColumns> {
  static __device__ constexpr bool Meets() { return false; }
  static constexpr int kSums = 1;
  __device__ void Row(int64_t, double, double (&)[1]) const {}
  __device__ void Finish(double (&)[kColumns][1]) const {}
};

template <class Phase>
__global__ void __launch_bounds__(kSumThreads) PhaseKernel(Phase phase) {
  phase.Run();
}

// One phase, launched.
template <class Phase>
void LaunchPhase(const Context& context, int blocks, const Phase& phase) {
  PhaseKernel<<<blocks, kSumThreads, 0, context.stream>>>(phase);
  CheckLaunch("PhaseKernel");
}
template <class Epilogue>
void LaunchPhase(const Context& context, int, const ProductPhase<Epilogue>& phase) {
  Product<Epilogue::kOf>(context, *phase.op, phase.x, phase.y, phase.epilogue);
}

// Uniform over the grid: a phase changes the status in what SumGrid calls alone.
template <class Phase>
__device__ bool RunAndMeet(const Phase& phase, const SumSpace& space) {
  if (phase.Skip()) return false;
  phase.Run();
  if (!Phase::Meets()) MeetGrid(space);
  return true;
}

// space.arrived has two counters: blocks that met, and blocks that left.
template <class... Phases>
__global__ void __launch_bounds__(kSumThreads, 4)
    StayKernel(int iterations, SolveState* state, SumSpace space, Phases... phases) {
  __shared__ SolveState own;
  __shared__ unsigned meetings;
  if (threadIdx.x == 0) {
    own = *state;
    meetings = 0;
  }
  __syncthreads();
  space.meetings = &meetings;
  const auto place = [&](Running<1>& running) {
    running.states = &own;
    running.space.meetings = &meetings;
  };
  (place(phases.running()), ...);
  bool on = true;
  for (int i = 0; on && i < iterations; ++i) on = (RunAndMeet(phases, space) && ...);
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) *state = own;
  if (atomicAdd(space.arrived + 1, 1u) == gridDim.x - 1) space.arrived[0] = space.arrived[1] = 0;
}

// Whether a phase may be in a launch that stays: not a product by another layout than rows, or by
// more of them than stay in caches.
template <class Phase>
bool MayStay(const Context&, const Phase&) {
  return true;
}
template <class Epilogue>
bool MayStay(const Context& context, const ProductPhase<Epilogue>& phase) {
  return std::visit(
      [&](const auto& own) {
        using Own = std::decay_t<decltype(own)>;
        if constexpr (std::is_same_v<Own, Rows<double>> || std::is_same_v<Own, Rows<float>>) {
          return !own.in_tiles() && own.nnz() * own.kEntryBytes <= context.variants.rows_bytes;
        } else {
          return false;
        }
      },
      *phase.op);
}

// The phase for as many blocks as its launch would have; returns how many.
template <class Phase>
int SetBlocks(int blocks, Phase& phase) {
  phase.space.blocks = static_cast<unsigned>(blocks);
  return blocks;
}
template <class Epilogue>
int SetBlocks(int, ProductPhase<Epilogue>& phase) {
  const auto* wide = std::get_if<Rows<double>>(phase.op);
  return SetBlocks(wide != nullptr ? wide->blocks() : std::get<Rows<float>>(*phase.op).blocks(),
                   phase.epilogue);
}

// So many iterations in one launch. `blocks`: of phases that are no product. False: the phases may
// not stay, or their blocks do not fit at once.
template <class... Phases>
bool LaunchStay(const Context& context, int blocks, int iterations, SolveState* state,
                const SumSpace& space, Phases... phases) {
  if (!(MayStay(context, phases) && ...)) return false;
  const auto kernel = &StayKernel<Phases...>;
  int resident = 0;
  Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kSumThreads, 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const int grid = std::max({SetBlocks(blocks, phases)...});
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
  Check(cudaLaunchKernelEx(&config, kernel, iterations, state, space, phases...),
        "cudaLaunchKernelEx");
  return true;
}

}  // namespace spaid::cuda
