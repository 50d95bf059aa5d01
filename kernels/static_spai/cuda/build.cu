#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/static_spai/column_flags.h"
#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/dia_build.h"
#include "kernels/static_spai/cuda/gram.h"
#include "kernels/static_spai/cuda/gram_thread.h"
#include "kernels/static_spai/cuda/qr.h"
#include "kernels/static_spai/cuda/scale.h"
#include "kernels/static_spai/cuda/table_waves.h"

namespace spaid::cuda {
namespace {

// Groups of one wave, the grain of cancellation and progress: some milliseconds of work.
constexpr int32_t kWarpWave = 1 << 20;
constexpr int32_t kBlockWave = 1 << 16;
constexpr int32_t kLargeWave = 1 << 10;
constexpr int32_t kQrWave = 1 << 22;  // threads
constexpr int kTeam = 8;              // threads a column

// scale[j]: ScaleOf column j; scaled: the columns times that.
__global__ void ScaleColumnsKernel(int64_t n, const int64_t* col_ptr, const double* values,
                                   double* scale, double* scaled) {
  const int64_t j = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kTeam;
  const int64_t begin = j < n ? col_ptr[j] + threadIdx.x % kTeam : 0,
                end = j < n ? col_ptr[j + 1] : 0;
  double largest = 0;
  for (int64_t p = begin; p < end; p += kTeam) largest = fmax(largest, fabs(values[p]));
  for (int step = kTeam / 2; step > 0; step /= 2) {
    largest = fmax(largest, __shfl_xor_sync(~0u, largest, step, kTeam));
  }
  const int coarse = CoarseExponent(largest);
  double sum = 0;
  for (int64_t p = begin; p < end; p += kTeam) {
    const double v = values[p] * PowerOfTwo(coarse);
    sum += v * v;
  }
  for (int step = kTeam / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(~0u, sum, step, kTeam);
  }
  const double by = ScaleOf(largest, coarse, sum);
  for (int64_t p = begin; p < end; p += kTeam) scaled[p] = values[p] * by;
  if (j < n && threadIdx.x % kTeam == 0) scale[j] = by;
}

// Reports progress, and asks whether to stop, between waves.
class Waves {
 public:
  Waves(const Context& context, const Caller& caller, int64_t total)
      : context_(context), caller_(caller), total_(total) {}

  // After `count` more groups; `full`: a wave of the full grain.
  void Done(int64_t count, bool full) {
    done_ += count;
    if (!full) return;
    context_.Synchronize();
    caller_.Report(std::min(done_, total_), total_);
  }

 private:
  const Context& context_;
  const Caller& caller_;
  const int64_t total_;
  int64_t done_ = 0;
};

// One queue head a launch; more launches than `count` must follow one another in the context's
// stream.
class Queues {
 public:
  Queues(Context& context, int64_t count) : heads_(context, count) { heads_.Fill(0); }
  int32_t* Next() {
    if (taken_ == heads_.size()) {
      heads_.Fill(0);
      taken_ = 0;
    }
    return heads_.get() + taken_++;
  }

 private:
  Buffer<int32_t> heads_;
  int64_t taken_ = 0;
};

// Calls launch(begin, count) for [begin, end) in waves of `grain`. A full wave is waited for, with
// all that runs beside it.
template <class Launch>
void InWaves(int32_t begin, int32_t end, int32_t grain, Branches& branches, Waves& waves,
             const Launch& launch) {
  for (int32_t at = begin; at < end; at += grain) {
    const int32_t count = std::min(grain, end - at);
    launch(at, count);
    if (count == grain) branches.Join();
    waves.Done(count, count == grain);
  }
}

// The same for groups whose tables `tables` makes wave by wave, and puts in `args`. All work must
// be in the context's stream: the tables of one wave are freed when those of the next are made.
template <class Launch>
void InTableWaves(TableWaves& tables, int32_t begin, int32_t end, int32_t grain, GramArgs& args,
                  Waves& waves, const Launch& launch) {
  for (int32_t at = begin, count = 0; at < end; at += count) {
    count = tables.Make(at, std::min(grain, end - at), args);
    launch(at, count);
    waves.Done(count, true);
  }
}

int64_t WaveCount(int32_t count, int32_t grain) { return (count + grain - 1) / grain; }

int32_t GramGrain(int size_class) {
  return size_class < 2 * kWarpSizes ? kWarpWave
         : size_class < kLargeClass  ? kBlockWave
                                     : kLargeWave;
}

void BuildGram(Context& context, const StaticSpaiPlan& plan, const Matrix& a, GramArgs args,
               Waves& waves) {
  int64_t launches = 0;
  for (int c = 0; c < kHostClass; ++c) {
    launches += WaveCount(plan.class_begin[c + 1] - plan.class_begin[c], GramGrain(c));
  }
  Queues queues(context, launches);
  std::optional<TableWaves> tables;
  if (plan.in_waves) {
    tables.emplace(context, plan, a).Follow(plan.order.get(), plan.class_begin[kOtherClass]);
  }
  const int32_t large_count = plan.class_begin[kHostClass] - plan.class_begin[kLargeClass];
  LargeGram large =
      large_count > 0 ? LargeGram(context, plan.large, plan.n, plan.large_groups) : LargeGram();
  Branches branches(context);
  int branch = 0;
  for (int c = kHostClass - 1; c >= 0; --c) {  // large problems first: they take longest
    const int32_t first = plan.class_begin[c], last = plan.class_begin[c + 1];
    // Empty classes take no turn, so that the most problems, which come last, seldom wait for the
    // largest.
    const Branch on = tables || first == last ? Branch{context.stream} : branches.Fork(branch++);
    const auto launch = [&](int32_t begin, int32_t count) {
      args.groups = plan.order.get() + begin;
      args.count = count;
      args.next = queues.Next();
      if (c == kLargeClass) {
        large.Launch(on, a.row_idx.get(), args);
      } else if (c < 2 * kWarpSizes) {
        LaunchWarpGram(context, on, c / 2 + 1, c % 2 != 0, args);
      } else {
        LaunchBlockGram(context, on, BlockSize(c - 2 * kWarpSizes) / 8, args);
      }
    };
    if (tables && c != kLargeClass) {
      InTableWaves(*tables, first, last, GramGrain(c), args, waves, launch);
    } else {
      InWaves(first, last, GramGrain(c), branches, waves, launch);
    }
    if (tables) large = LargeGram();  // frees its memory for the tables
  }
  args.groups = plan.order.get();
  for (int n2 = 1; n2 <= kMaxLaneColumns; ++n2) {
    if (plan.lane_entries[n2] > 0) LaunchLanes(context, n2, plan, args);
  }
}

// Solves the problems of `qr` that have a table.
void LaunchThreadGroups(Context& context, const StaticSpaiPlan& plan, const Matrix& a,
                        const QrPlan& qr, kernels::ThreadStrategy chosen, uint8_t flags,
                        GramArgs args, Waves& waves) {
  const std::vector<QrLaunch> launches = QrLaunches(plan, qr, chosen);
  const auto grain = [](const QrLaunch& launch) { return kQrWave >> launch.s; };
  int64_t heads = 0;
  for (const QrLaunch& launch : launches) heads += WaveCount(launch.count, grain(launch));
  Queues queues(context, heads);
  std::optional<TableWaves> tables;
  if (plan.in_waves) tables.emplace(context, plan, a);
  Branches branches(context);
  int i = 0;
  for (const QrLaunch& launch : launches) {
    const Branch on = launches.size() > 1 && !tables ? branches.Fork(i++) : Branch{context.stream};
    const int32_t* const groups = launch.order + launch.begin;
    const auto work = [&](int32_t begin, int32_t count) {
      args.groups = groups + begin;
      args.count = count;
      args.next = queues.Next();
      LaunchQr(context, on, launch, flags, args);
    };
    if (tables) {
      tables->Follow(groups, launch.count);
      InTableWaves(*tables, 0, launch.count, grain(launch), args, waves, work);
    } else {
      InWaves(0, launch.count, grain(launch), branches, waves, work);
    }
  }
}

void BuildQr(Context& context, StaticSpaiPlan& plan, const Matrix& a, kernels::ThreadStrategy asked,
             GramArgs args, Waves& waves, kernels::StaticSpaiCudaTimings& timings) {
  std::shared_ptr<QrPlan> qr = plan.qr;
  if (qr == nullptr) qr = std::make_shared<QrPlan>(MakeQrPlan(context, plan, nullptr));
  if (plan.by_qr) plan.qr = qr;  // other plans have promised less memory
  const kernels::ThreadStrategy chosen = ChooseStrategy(*qr, asked);
  timings.thread_strategy = chosen;
  timings.predicted_qr_ms = PredictMs(*qr, chosen);
  const int32_t large = plan.class_begin[kLargeClass];
  Queues queues(context, WaveCount(plan.class_begin[kHostClass] - large, kLargeWave));
  Branches branches(context);
  InWaves(large, plan.class_begin[kHostClass], kLargeWave, branches, waves,
          [&](int32_t begin, int32_t count) {
            args.groups = plan.order.get() + begin;
            args.count = count;
            args.next = queues.Next();
            LaunchLargeQr(context, plan.large, a.row_idx.get(), plan.n, 0, args);
          });
  Stopwatch watch(context);
  LaunchThreadGroups(context, plan, a, *qr, chosen, 0, args, waves);
  timings.qr_ms = watch.Stop();
  qr->trials.Add(chosen, timings.qr_ms);
}

// Solves the groups that the Gram path gave up by QR.
void Rescue(Context& context, const StaticSpaiPlan& plan, const Matrix& a, GramArgs args,
            Waves& waves, kernels::StaticSpaiCudaTimings& timings) {
  constexpr uint8_t kFlags = kernels::kColumnRescued;
  const LeftGroups left = FindLeft(context, plan, args.flags);
  timings.rescued_groups = left.with_table + left.large;
  if (left.large > 0) {
    Queues queues(context, 1);
    args.groups = left.large_groups.get();
    args.count = left.large;
    args.next = queues.Next();
    LaunchLargeQr(context, plan.large, a.row_idx.get(), plan.n, kFlags, args);
  }
  // Short of memory, the host solves these: lists of all groups, and tables once more, would be
  // much for a few groups.
  if (left.with_table > 0 && !plan.in_waves) {
    const QrPlan qr = MakeQrPlan(context, plan, args.flags);
    LaunchThreadGroups(context, plan, a, qr, kernels::ThreadStrategy::kVariable, kFlags, args,
                       waves);
  }
}

bool IsQr(const kernels::StaticSpaiOptions& options) {
  return options.local_solver == kernels::LocalSolver::kQr;
}

__global__ void CountLeftKernel(ColumnRange range, const uint8_t* flags, int32_t* count) {
  const int64_t k = range.begin + int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int left = __syncthreads_count(k < range.end && flags[k] == 0 ? 1 : 0);
  if (threadIdx.x == 0 && left > 0) atomicAdd(count, left);
}

// Number of the range's columns without a flag.
int32_t CountLeft(Context& context, ColumnRange range, const Buffer<uint8_t>& flags) {
  const Buffer<int32_t> count(context, 1);
  count.Fill(0);
  const int blocks = static_cast<int>((range.end - range.begin + 255) / 256);
  CountLeftKernel<<<blocks, 256, 0, context.stream>>>(range, flags.get(), count.get());
  CheckLaunch("CountLeftKernel");
  return Read(context, count, 0);
}

// Does work that may be left undone for want of memory: columns then keep flags of 0, and are left
// to the host.
template <class Work>
void WhereThereIsRoom(const Work& work) {
  try {
    work();
  } catch (const Failure& failure) {
    if (failure.fault() != CudaFault::kOutOfMemory) throw;
  }
}

// Builds by groups of columns: all of M by QR, or by the Gram path with its rescue; with `rescue`
// only the columns that have no flag yet.
void BuildGroups(Context& context, StaticSpaiPlan& plan, const Matrix& a,
                 const kernels::StaticSpaiOptions& options, const Caller& caller, bool rescue,
                 const StaticSpaiResult& result, kernels::StaticSpaiCudaTimings& timings) {
  if (!plan.grouped) AddGroups(context, a, IsQr(options), plan);
  const Buffer<double> scale(context, plan.n), scaled(context, plan.nnz_a);
  ScaleColumnsKernel<<<static_cast<int>((plan.n * kTeam + 255) / 256), 256, 0, context.stream>>>(
      plan.n, a.col_ptr.get(), a.values.get(), scale.get(), scaled.get());
  CheckLaunch("ScaleColumnsKernel");

  GramArgs args{};
  args.a_ptr = a.col_ptr.get();
  args.a_values = scaled.get();
  args.scale = scale.get();
  args.m_ptr = plan.pattern().col_ptr;
  args.m_idx = plan.pattern().row_idx;
  args.members = plan.members.get();
  args.group_ptr = plan.group_ptr.get();
  args.structure_of = plan.structure_of.get();
  args.structures = plan.structures.get();
  args.tables = plan.tables.get();
  args.pivot_limit = options.gram_pivot_limit;
  args.post_filter = options.post_filter;
  args.m_values = result.values.get();
  args.residual_norms = result.residual_norms.get();
  args.pivots = result.pivots.get();
  args.flags = result.flags.get();
  Waves waves(context, caller, plan.class_begin[kOtherClass]);
  if (IsQr(options)) {
    BuildQr(context, plan, a, options.thread_strategy, args, waves, timings);
    return;
  }
  if (!rescue) BuildGram(context, plan, a, args, waves);
  WhereThereIsRoom([&] { Rescue(context, plan, a, args, waves, timings); });
}

}  // namespace

StaticSpaiResult Build(Context& context, StaticSpaiPlan& plan, const Matrix& a,
                       const kernels::StaticSpaiOptions& options, const Caller& caller,
                       kernels::StaticSpaiCudaTimings& timings) {
  if (a.pattern_hash != plan.pattern_hash || a.n != plan.n || a.nnz != plan.nnz_a) {
    throw Failure(CudaFault::kPlanMismatch, "the matrix does not have the plan's pattern");
  }
  StaticSpaiResult result;
  result.values = Buffer<double>(context, plan.m.nnz);
  result.residual_norms = Buffer<double>(context, plan.n);
  result.pivots = Buffer<double>(context, plan.n);
  result.flags = Buffer<uint8_t>(context, plan.n);
  result.flags.Fill(0);
  if (plan.dia.node == 0 || IsQr(options)) {
    BuildGroups(context, plan, a, options, caller, false, result, timings);
  } else {
    BuildDia(context, plan, a, options, caller, result);
    if (CountLeft(context, plan.own, result.flags) > 0) {
      WhereThereIsRoom(
          [&] { BuildGroups(context, plan, a, options, caller, true, result, timings); });
    }
  }
  context.Synchronize();
  return result;
}

}  // namespace spaid::cuda
