#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/cuda/scan_sort_cuda.h"
#include "kernels/krylov/cuda/solve_cuda.h"

namespace spaid::cuda {
namespace {

// A batch is as long as hides its launch, and short enough that a stop is soon heeded.
constexpr double kBatchUs = 1000;
constexpr int kMostInBatch = 10;
// What an iteration takes: of bytes at the speed of memory, and of its launches.
constexpr double kBytesPerUs = 2.5e6;
constexpr double kIterationUs = 10;

// b − A x in place of A x, and its square.
struct Residual {
  static constexpr int kSums = 1;
  const double* b;
  double* r;
  SolveState* state;
  SumSpace space;

  __device__ bool Skip() const { return false; }
  __device__ void Row(int64_t i, double y, double (&sums)[1]) const {
    const double own = b[i] - y;
    r[i] = own;
    sums[0] += own * own;
  }
  __device__ void Finish(double (&sums)[1]) const {
    SumGrid(sums, space, [this](const double(&total)[1]) { state->value = sqrt(total[0]); });
  }
};

__global__ void BeginKernel(SolveState* state, SpaidCudaSolveStart start, double diverged_at) {
  *state = {};
  state->fresh = 1;
  state->target = start.target;
  state->previous_norm = start.norm;
  state->best_norm = start.best_norm;
  state->diverged_at = diverged_at;
}

__global__ void SegmentKernel(SolveState* state, int32_t limit) {
  state->status = kSpaidCudaSolveRunning;
  state->iteration = 0;
  state->limit = limit;
}

}  // namespace

Solve::Solve(Context& context, const Operator& a, const Operator* m, const double* b,
             const double* x0)
    : context_(context),
      a_(a),
      m_(m),
      n_(SizeOf(a)),
      b_(Vector()),
      x_(Vector()),
      best_(Vector()),
      r_(Vector()),
      scratch_(Vector()),
      state_(context, 1),
      partial_(context, kMostSumBlocks * kMostSums),
      arrived_(context, 1),
      seen_(static_cast<SolveState*>(context.pinned)) {
  static_assert(2 * sizeof(SolveState) <= Context::kPinnedBytes);
  arrived_.Fill(0);
  b_.CopyIn(b, n_);
  if (x0 != nullptr) {
    x0_ = Vector();
    x0_.CopyIn(x0, n_);
  }
  UseGuess();
  for (cudaEvent_t& event : done_) {
    Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
  context.Synchronize();
}

Solve::~Solve() {
  cudaStreamSynchronize(context_.stream);
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  for (cudaEvent_t event : done_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

double Solve::TrueResidual(bool of_best, bool adopt) {
  if (!of_best) Complete();
  const Buffer<double>& v = of_best ? best_ : x_;
  Product(context_, a_, v.get(), scratch_.get(),
          Residual{b_.get(), scratch_.get(), state(), sums()});
  SolveState& seen = seen_[0];
  Check(
      cudaMemcpyAsync(&seen, state(), sizeof(SolveState), cudaMemcpyDeviceToHost, context_.stream),
      "cudaMemcpyAsync");
  context_.Synchronize();
  // The graph knows r by its place.
  if (adopt) Copy(context_, scratch_, r_, n_);
  return seen.value;
}

void Solve::Begin(const SpaidCudaSolveStart& start) {
  const double diverged_at = start.initial_norm / std::numeric_limits<double>::epsilon();
  BeginKernel<<<1, 1, 0, context_.stream>>>(state(), start, diverged_at);
  CheckLaunch("BeginKernel");
  Start(start);
}

void Solve::LaunchBatch() {
  if (graph_ == nullptr) {
    const double us = kIterationUs + static_cast<double>(bytes_per_iteration()) / kBytesPerUs;
    batch_ = std::clamp(static_cast<int>(kBatchUs / us), 1, kMostInBatch);
    Check(cudaStreamBeginCapture(context_.stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      for (int i = 0; i < batch_; ++i) Iterate();
    } catch (...) {
      cudaStreamEndCapture(context_.stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    Check(cudaStreamEndCapture(context_.stream, &graph), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    Check(made, "cudaGraphInstantiate");
  }
  Check(cudaGraphLaunch(graph_, context_.stream), "cudaGraphLaunch");
}

void Solve::Advance(int32_t limit, const SpaidCudaSolveOptions& options, SpaidCudaSolveInfo* info) {
  Stopwatch watch(context_);
  limit = std::min(limit, kMostIterations);
  SegmentKernel<<<1, 1, 0, context_.stream>>>(state(), limit);
  CheckLaunch("SegmentKernel");
  Resume();
  int32_t reported = 0;
  const auto look = [&](int slot) {
    Check(cudaEventSynchronize(done_[slot]), "the device's work");
    const SolveState& seen = seen_[slot];
    const int32_t fresh = seen.iteration - reported;
    const bool stop = fresh > 0 && options.progress != nullptr &&
                      options.progress(options.caller, seen.norms + reported, fresh) != 0;
    reported = seen.iteration;
    return stop || seen.status != kSpaidCudaSolveRunning;
  };
  const auto send = [&](int slot) {
    Check(cudaMemcpyAsync(&seen_[slot], state(), sizeof(SolveState), cudaMemcpyDeviceToHost,
                          context_.stream),
          "cudaMemcpyAsync");
    Check(cudaEventRecord(done_[slot], context_.stream), "cudaEventRecord");
  };
  bool over = false;
  int32_t launched = 0;
  int batches = 0;
  while (!over && launched < limit) {
    LaunchBatch();
    launched += batch_;
    send(batches % 2);
    if (batches > 0) over = look((batches - 1) % 2);
    ++batches;
  }
  Settle();
  // The batch before is still to be looked at, and what was settled to be seen.
  if (batches > 0 && !over) look((batches - 1) % 2);
  send(batches % 2);
  look(batches % 2);
  const SolveState& seen = seen_[batches % 2];
  info->ms = watch.Stop();
  info->status = seen.status == kSpaidCudaSolveRunning ? kSpaidCudaSolvePaused : seen.status;
  info->iterations = seen.iteration;
  info->value = seen.value;
  info->best_norm = seen.best_norm;
  info->last_norm = seen.previous_norm;
  info->bytes_per_iteration = bytes_per_iteration();
}

void Solve::UseBest() { Copy(context_, best_, x_, n_); }

void Solve::UseGuess() {
  if (x0_.size() > 0) {
    Copy(context_, x0_, x_, n_);
  } else {
    x_.Fill(0);
  }
}

void Solve::Download(double* x) {
  x_.CopyOut(x, n_);
  context_.Synchronize();
}

}  // namespace spaid::cuda
