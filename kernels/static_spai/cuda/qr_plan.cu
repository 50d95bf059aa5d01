// Assigns thread groups to the problems of the QR path.
#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/static_spai/cuda/qr.h"

namespace spaid::cuda {
namespace {

using kernels::kGroupSizes;

constexpr int kThreads = 256;
constexpr int kBuckets = 2 * kGroupSizes;  // 2 (8 - s), + 1 if columns outnumber threads
constexpr int kChunkBits = 10, kColumnBits = 8;
static_assert(kMaxEntries / kChunkRows < 1 << kChunkBits && kMaxColumns < 1 << kColumnBits);

struct Figures {
  // For each bucket: problems, chunks, steps, entries, the longest problem's steps.
  unsigned long long work[kBuckets][5];
  int32_t n2_max[kGroupSizes];
  int32_t width_max;
  int32_t n2_largest;
};

struct Input {
  const int64_t* m_ptr;
  const int32_t* members;
  const int32_t* group_ptr;
  const int32_t* structure_of;
  const Structure* structures;
  int32_t n_groups;
  ColumnRange own;
  const uint8_t* flags;  // columns' flags; null: none
};

// Whether a column of the group, and of the plan's range, has no flag.
__device__ bool IsLeft(const Input& in, int32_t g) {
  for (int32_t at = in.group_ptr[g]; at < in.group_ptr[g + 1]; ++at) {
    const int32_t k = in.members[at];
    if (in.own.Has(k) && (in.flags == nullptr || in.flags[k] == 0)) return true;
  }
  return false;
}

__global__ void MeasureKernel(Input in, uint32_t* keys, int32_t* ids, Figures* figures) {
  __shared__ Figures own;
  for (auto i = threadIdx.x; i < sizeof(own) / sizeof(int32_t); i += blockDim.x) {
    reinterpret_cast<int32_t*>(&own)[i] = 0;
  }
  __syncthreads();
  const int64_t g = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (g < in.n_groups) {
    const int32_t begin = in.group_ptr[g], width = in.group_ptr[g + 1] - begin;
    const int32_t k = in.members[begin];
    const auto n2 = static_cast<int32_t>(in.m_ptr[k + 1] - in.m_ptr[k]);
    const Structure& structure = in.structures[in.structure_of[g]];
    const int32_t chunks = structure.chunks_at_most();
    ids[g] = static_cast<int32_t>(g);
    atomicMax(&own.n2_largest, n2);
    if (chunks == 0 || !IsLeft(in, static_cast<int32_t>(g))) {
      keys[g] = static_cast<uint32_t>(kBuckets) << (kChunkBits + kColumnBits);
    } else {
      int s = 0;
      while (1 << s < n2) ++s;
      const int bucket = 2 * (kGroupSizes - 1 - s) + (n2 + width > 1 << s ? 1 : 0);
      keys[g] = static_cast<uint32_t>(bucket) << (kChunkBits + kColumnBits) |
                static_cast<uint32_t>((1 << kChunkBits) - 1 - chunks) << kColumnBits |
                static_cast<uint32_t>((1 << kColumnBits) - 1 - n2);
      const auto steps = static_cast<unsigned long long>(chunks) * n2;
      atomicAdd(&own.work[bucket][0], 1ull);
      atomicAdd(&own.work[bucket][1], static_cast<unsigned long long>(chunks));
      atomicAdd(&own.work[bucket][2], steps);
      atomicAdd(&own.work[bucket][3], static_cast<unsigned long long>(structure.entries));
      atomicMax(&own.work[bucket][4], steps);
      atomicMax(&own.n2_max[s], n2);
      atomicMax(&own.width_max, width);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kBuckets * 5; i += kThreads) {
    const unsigned long long value = own.work[i / 5][i % 5];
    if (value == 0) continue;
    unsigned long long* const to = &figures->work[i / 5][i % 5];
    if (i % 5 == 4) {
      atomicMax(to, value);
    } else {
      atomicAdd(to, value);
    }
  }
  if (threadIdx.x < kGroupSizes) {
    atomicMax(&figures->n2_max[threadIdx.x], own.n2_max[threadIdx.x]);
  }
  if (threadIdx.x == 0) {
    atomicMax(&figures->width_max, own.width_max);
    atomicMax(&figures->n2_largest, own.n2_largest);
  }
}

Input InputOf(const StaticSpaiPlan& plan, const uint8_t* flags) {
  return {plan.pattern().col_ptr,
          plan.members.get(),
          plan.group_ptr.get(),
          plan.structure_of.get(),
          plan.structures.get(),
          plan.n_groups,
          plan.own,
          flags};
}

// Lists the `large` groups that are left. counts: those with a table, and the large ones.
__global__ void FindLeftKernel(Input in, const int32_t* large_groups, int32_t large,
                               int32_t* counts, int32_t* left) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool with_table = i < in.n_groups && IsLeft(in, static_cast<int32_t>(i)) &&
                          in.structures[in.structure_of[i]].entries > 0;
  const int found = __syncthreads_count(with_table ? 1 : 0);
  if (threadIdx.x == 0 && found > 0) atomicAdd(&counts[0], found);
  if (i < large) {
    const int32_t g = large_groups[i];
    if (IsLeft(in, g)) left[atomicAdd(&counts[1], 1)] = g;
  }
}

// The exponent of S1's one group size.
int ConstantExponent(const QrPlan& plan) {
  return kernels::SizeExponent(kernels::GroupThreads(plan.n2_largest));
}

}  // namespace

LeftGroups FindLeft(Context& context, const StaticSpaiPlan& plan, const uint8_t* flags) {
  LeftGroups left;
  const int32_t begin = plan.class_begin[kLargeClass], large = plan.class_begin[kHostClass] - begin;
  left.large_groups = Buffer<int32_t>(context, large);
  const Buffer<int32_t> counts(context, 2);
  counts.Fill(0);
  FindLeftKernel<<<(plan.n_groups + kThreads - 1) / kThreads, kThreads, 0, context.stream>>>(
      InputOf(plan, flags), plan.order.get() + begin, large, counts.get(), left.large_groups.get());
  CheckLaunch("FindLeftKernel");
  int32_t found[2];
  counts.CopyOut(found, 2);
  context.Synchronize();
  left.with_table = found[0];
  left.large = found[1];
  return left;
}

QrPlan MakeQrPlan(Context& context, const StaticSpaiPlan& plan, const uint8_t* flags) {
  QrPlan qr;
  const int32_t n_groups = plan.n_groups;
  const Buffer<uint32_t> keys(context, n_groups), sorted(context, n_groups);
  qr.natural = Buffer<int32_t>(context, n_groups);
  const Buffer<Figures> buffer(context, 1);
  buffer.Fill(0);
  qr.order = Buffer<int32_t>(context, n_groups);
  MeasureKernel<<<(n_groups + kThreads - 1) / kThreads, kThreads, 0, context.stream>>>(
      InputOf(plan, flags), keys.get(), qr.natural.get(), buffer.get());
  CheckLaunch("MeasureKernel");
  Sort(context, keys.get(), sorted.get(), qr.natural.get(), qr.order.get(), n_groups,
       5 + kChunkBits + kColumnBits);
  static_assert(kBuckets < 1 << 5);
  const auto figures = Read(context, buffer, 0);
  for (int b = 0; b < kBuckets; ++b) {
    const unsigned long long* const from = figures.work[b];
    kernels::QrSize& size = qr.sizes[kGroupSizes - 1 - b / 2];
    kernels::QrWork& work = b % 2 == 0 ? size.fit : size.spill;
    work.problems = static_cast<int64_t>(from[0]);
    work.chunks = static_cast<int64_t>(from[1]);
    work.steps = static_cast<int64_t>(from[2]);
    work.entries = static_cast<int64_t>(from[3]);
    work.longest = static_cast<int64_t>(from[4]);
    qr.begin[b + 1] = qr.begin[b] + static_cast<int32_t>(from[0]);
  }
  std::copy(std::begin(figures.n2_max), std::end(figures.n2_max), std::begin(qr.n2_max));
  qr.width_max = std::max(1, figures.width_max);
  qr.n2_largest = figures.n2_largest;
  qr.n2_mean = static_cast<double>(plan.m.nnz) / static_cast<double>(plan.n);
  return qr;
}

kernels::ThreadStrategy ChooseStrategy(const QrPlan& plan, kernels::ThreadStrategy asked) {
  using kernels::ThreadStrategy;
  switch (asked) {
    case ThreadStrategy::kPaper:
      return kernels::PaperStrategy(plan.n2_largest, plan.n2_mean);
    case ThreadStrategy::kAuto:
      return plan.trials.Choose(PredictMs(plan, ThreadStrategy::kConstant),
                                PredictMs(plan, ThreadStrategy::kVariable));
    default:
      return asked;
  }
}

double PredictMs(const QrPlan& plan, kernels::ThreadStrategy chosen) {
  return chosen == kernels::ThreadStrategy::kConstant
             ? kernels::PredictConstantMs(plan.sizes, ConstantExponent(plan))
             : kernels::PredictVariableMs(plan.sizes);
}

std::vector<QrLaunch> QrLaunches(const StaticSpaiPlan& plan, const QrPlan& qr,
                                 kernels::ThreadStrategy chosen) {
  // Problems with more columns than threads first: they take longest.
  std::vector<QrLaunch> launches;
  if (chosen == kernels::ThreadStrategy::kConstant) {
    const int s = ConstantExponent(qr);
    int n2_max = 0;
    for (int size = 0; size < kGroupSizes; ++size) n2_max = std::max(n2_max, qr.n2_max[size]);
    if (n2_max == 0) return launches;
    // Groups of other classes are last in that order.
    const int32_t* const order = plan.whole() ? qr.natural.get() : qr.order.get();
    const int32_t count = plan.whole() ? plan.n_groups : qr.begin[kBuckets];
    for (const bool registers : {false, true}) {
      if (!registers && n2_max + qr.width_max <= 1 << s) continue;
      launches.push_back({s, registers, n2_max, qr.width_max, order, 0, count});
    }
    return launches;
  }
  for (int i = 0; i < kBuckets; ++i) {
    const int b = i ^ 1, s = kGroupSizes - 1 - b / 2;
    const int32_t count = qr.begin[b + 1] - qr.begin[b];
    if (count == 0) continue;
    launches.push_back(
        {s, b % 2 == 0, qr.n2_max[s], qr.width_max, qr.order.get(), qr.begin[b], count});
  }
  return launches;
}

}  // namespace spaid::cuda
