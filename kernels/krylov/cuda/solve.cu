#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/solve.h"

namespace spaid::cuda {
namespace {

// Time of a batch: long enough to hide its launch, short enough that a stop is soon noticed.
constexpr double kBatchUs = 1000;
constexpr int kMostInBatch = 10;
constexpr int kPersistentBatch = 20;  // iterations of a persistent kernel
// Time of an iteration: bytes at the speed of memory, and its launches.
constexpr double kBytesPerUs = 2.5e6;
constexpr double kIterationUs = 10;

// Block size of the kernels below that have nothing to sum.
constexpr int kThreads = 256;

// r becomes b − r, where it is A x, with its norm, for the `wanted` columns.
template <int kColumns>
__global__ void __launch_bounds__(kSumThreads)
    ResidualKernel(int64_t n, uint32_t wanted, const double* b, double* r, SolveState* states,
                   SumSpace space) {
  const bool runs = (wanted >> Column<kColumns>() & 1) != 0;
  double sums[kColumns][1] = {};
  ForOwn<kColumns>(runs ? n : 0, [&](int64_t, int64_t at, int slot) {
    const double own = b[at] - r[at];
    r[at] = own;
    sums[slot][0] = fma(own, own, sums[slot][0]);
  });
  SumGrid(sums, space, [&](const double(&total)[1]) {
    if (runs) states[Column<kColumns>()].value = sqrt(total[0]);
  });
}

__global__ void BeginKernel(SolveState* state, SolveStart start, double diverged_at) {
  *state = {};
  state->fresh = 1;
  state->target = start.target;
  state->previous_norm = start.norm;
  state->best_norm = start.best_norm;
  state->diverged_at = diverged_at;
}

struct Limits {
  int32_t of[kMostColumns];
};

__global__ void SegmentKernel(SolveState* states, Limits limits) {
  SolveState& state = states[threadIdx.x];
  const int32_t limit = limits.of[threadIdx.x];
  state.status = limit > 0 ? SegmentEnd::kRunning : SegmentEnd::kPaused;
  state.iteration = 0;
  state.limit = limit;
}

// Interleaves columns that are stored one after the other, in the order of the solve; and the
// reverse.
__global__ void InterleaveKernel(int64_t n, int columns, const int32_t* order, const double* from,
                                 double* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t own = order != nullptr ? order[i] : i;
  for (int v = 0; v < columns; ++v) to[i * columns + v] = from[v * n + own];
}
__global__ void SeparateKernel(int64_t n, int columns, const int32_t* order, const double* from,
                               double* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t own = order != nullptr ? order[i] : i;
  for (int v = 0; v < columns; ++v) to[v * n + own] = from[i * columns + v];
}

// Copies one column; `from` null: zeros.
__global__ void ColumnKernel(int64_t n, int columns, int column, const double* from, double* to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  to[i * columns + column] = from != nullptr ? from[i * columns + column] : 0;
}

bool IsApplied(const Operator* m) {
  return m != nullptr && std::holds_alternative<std::unique_ptr<const Applied>>(*m);
}

// M with vectors for so many columns, where it is no matrix and has them for one.
std::optional<Operator> Widened(const Factors& m, int columns) {
  if (columns == 1 || !IsApplied(m.first)) return std::nullopt;
  return std::get<std::unique_ptr<const Applied>>(*m.first)->ForColumns(columns);
}

unsigned BlocksOf(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

}  // namespace

Solve::Solve(Context& context, const Operator& a, const Factors& m, const RightHandSides& rhs)
    : context_(context),
      a_(a),
      wide_m_(Widened(m, rhs.columns)),
      m_(wide_m_ ? Factors{&*wide_m_} : m),
      n_(SizeOf(a)),
      columns_(rhs.columns),
      b_(Vector()),
      x_(Vector()),
      best_(Vector()),
      r_(Vector()),
      scratch_(Vector()),
      order_(rhs.order),
      states_(context, columns_),
      partial_(context, kMostSumBlocks * kMostSums * columns_),
      arrived_(context, 2),
      seen_(static_cast<SolveState*>(context.pinned)) {
  static_assert(2 * kMostColumns * sizeof(SolveState) <= Context::kPinnedBytes);
  if (m.then != nullptr) between_ = Vector();
  arrived_.Fill(0);
  states_.Fill(0);
  Upload(rhs.b, b_);
  for (int v = 0; rhs.x0 != nullptr && v < columns_; ++v) {
    if (rhs.x0[v] == nullptr) continue;
    x0_ = Vector();
    Upload(rhs.x0, x0_);
    break;
  }
  for (int v = 0; v < columns_; ++v) UseGuess(v);
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

void Solve::Upload(const double* const* from, const Buffer<double>& to) {
  const size_t bytes = static_cast<size_t>(n_) * sizeof(double);
  const bool as_it_is = columns_ == 1 && order_ == nullptr;
  double* const plain = as_it_is ? to.get() : scratch_.get();
  for (int v = 0; v < columns_; ++v) {
    if (from[v] != nullptr) {
      context_.staging->In(plain + v * n_, from[v], bytes);
    } else {
      Check(cudaMemsetAsync(plain + v * n_, 0, bytes, context_.stream), "cudaMemsetAsync");
    }
  }
  if (as_it_is) return;
  InterleaveKernel<<<BlocksOf(n_), kThreads, 0, context_.stream>>>(n_, columns_, order_, plain,
                                                                   to.get());
  CheckLaunch("InterleaveKernel");
}

void Solve::CopyColumn(int column, const Buffer<double>& from, const Buffer<double>& to) {
  ColumnKernel<<<BlocksOf(n_), kThreads, 0, context_.stream>>>(n_, columns_, column, from.get(),
                                                               to.get());
  CheckLaunch("ColumnKernel");
}

void Solve::FindResiduals(uint32_t wanted, const Buffer<double>& v) {
  WithColumns(columns_, [&](auto columns) {
    ProductEnd<columns, 0> end{};
    end.wanted = wanted;
    Product(context_, a_, v.get(), scratch_.get(), end);
    ResidualKernel<columns><<<blocks(), kSumThreads, 0, context_.stream>>>(
        n_, wanted, b_.get(), scratch_.get(), states(), sums());
    CheckLaunch("ResidualKernel");
  });
  Check(cudaMemcpyAsync(seen_, states(), static_cast<size_t>(columns_) * sizeof(SolveState),
                        cudaMemcpyDeviceToHost, context_.stream),
        "cudaMemcpyAsync");
  context_.Synchronize();
  for (int c = 0; c < columns_; ++c) {
    if ((wanted >> c & 1) != 0) norms_[c] = seen_[c].value;
  }
}

double Solve::TrueResidual(int column, bool of_best, bool adopt) {
  const uint32_t own = 1u << column;
  if (of_best) {
    known_ &= ~own;
    FindResiduals(own, best_);
  } else if ((known_ & own) == 0) {
    Complete();
    // The other columns will ask for theirs.
    const uint32_t all = (1u << columns_) - 1;
    FindResiduals(all & ~known_, x_);
    known_ = all;
  }
  // The graph refers to r by its address.
  if (adopt) CopyColumn(column, scratch_, r_);
  return norms_[column];
}

void Solve::Begin(int column, const SolveStart& start) {
  const double diverged_at = start.initial_norm / std::numeric_limits<double>::epsilon();
  BeginKernel<<<1, 1, 0, context_.stream>>>(states() + column, start, diverged_at);
  CheckLaunch("BeginKernel");
  Start(column, start);
}

Traffic Solve::Count(int64_t products, int64_t passes) const {
  Traffic one{0, 0};
  for (const Operator* op : {&a_, m_.first, m_.then}) {
    if (op == nullptr) continue;
    const Traffic own = TrafficOf(*op);
    one.matrices += own.matrices;
    one.vectors += own.vectors;
  }
  return {products * one.matrices, products * one.vectors + 8 * n_ * passes};
}

void Solve::LaunchBatch() {
  persistent_ = persistent_ && columns_ == 1 && IteratePersistently(kPersistentBatch);
  if (persistent_) {
    batch_ = kPersistentBatch;
    return;
  }
  // With what is no matrix an iteration is so many launches that a graph of it is enough, and takes
  // as long to make as it runs: so that happens while the first iteration runs.
  const bool many = IsApplied(m_.first);
  if (many && batch_ == 0) {
    batch_ = 1;
    return Iterate();
  }
  if (graph_ == nullptr) {
    const Traffic bytes = traffic();
    const double us =
        kIterationUs + static_cast<double>(bytes.matrices + columns_ * bytes.vectors) / kBytesPerUs;
    batch_ = many ? 1 : std::clamp(static_cast<int>(kBatchUs / us), 1, kMostInBatch);
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

double Solve::Advance(const int32_t* limits, const OnNorms& on_norms, Segment* segments) {
  Stopwatch watch(context_);
  Limits own{};
  for (int v = 0; v < columns_; ++v) {
    own.of[v] = std::min(limits[v], kMostIterations);
    if (limits[v] > 0) known_ &= ~(1u << v);
  }
  const int32_t limit = *std::max_element(own.of, own.of + columns_);
  SegmentKernel<<<1, static_cast<unsigned>(columns_), 0, context_.stream>>>(states(), own);
  CheckLaunch("SegmentKernel");
  Resume();
  int32_t reported[kMostColumns] = {};
  const auto look = [&](int slot) {
    Check(cudaEventSynchronize(done_[slot]), "the device's work");
    bool stop = false, runs = false;
    for (int v = 0; v < columns_; ++v) {
      const SolveState& seen = seen_[slot * columns_ + v];
      const int32_t fresh = seen.iteration - reported[v];
      if (fresh > 0 && on_norms != nullptr &&
          on_norms(v, {seen.norms + reported[v], static_cast<size_t>(fresh)})) {
        stop = true;
      }
      reported[v] = seen.iteration;
      runs = runs || seen.status == SegmentEnd::kRunning;
    }
    return stop || !runs;
  };
  const auto send = [&](int slot) {
    Check(cudaMemcpyAsync(seen_ + slot * columns_, states(),
                          static_cast<size_t>(columns_) * sizeof(SolveState),
                          cudaMemcpyDeviceToHost, context_.stream),
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
  // The previous batch has not been looked at yet, nor the states after Settle.
  if (batches > 0 && !over) look((batches - 1) % 2);
  send(batches % 2);
  look(batches % 2);
  const Traffic bytes = traffic();
  int longest = 0;
  for (int v = 0; v < columns_; ++v) {
    const SolveState& seen = seen_[batches % 2 * columns_ + v];
    const bool paused = seen.status == SegmentEnd::kRunning;
    segments[v] = {paused ? SegmentEnd::kPaused : seen.status,
                   seen.iteration,
                   seen.value,
                   seen.best_norm,
                   seen.previous_norm,
                   static_cast<double>(seen.iteration) * static_cast<double>(bytes.vectors)};
    if (seen.iteration > segments[longest].iterations) longest = v;
  }
  segments[longest].bytes +=
      static_cast<double>(segments[longest].iterations) * static_cast<double>(bytes.matrices);
  return watch.Stop();
}

void Solve::UseBest(int column) {
  CopyColumn(column, best_, x_);
  known_ &= ~(1u << column);
}

void Solve::UseGuess(int column) {
  CopyColumn(column, x0_, x_);
  known_ &= ~(1u << column);
}

void Solve::Download(double* const* x) {
  const double* plain = x_.get();
  if (columns_ > 1 || order_ != nullptr) {
    known_ = 0;
    plain = scratch_.get();
    SeparateKernel<<<BlocksOf(n_), kThreads, 0, context_.stream>>>(n_, columns_, order_, x_.get(),
                                                                   scratch_.get());
    CheckLaunch("SeparateKernel");
  }
  for (int v = 0; v < columns_; ++v) {
    if (x[v] == nullptr) continue;
    context_.staging->Out({{x[v], plain + v * n_, static_cast<size_t>(n_) * sizeof(double)}});
  }
  context_.Synchronize();
}

}  // namespace spaid::cuda
