#include <utility>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/sparse/cuda/pattern.h"
#include "kernels/sparse/cuda/unions.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTeam = 8;  // lanes that look at one list together

int Blocks(int64_t threads) { return static_cast<int>((threads + kThreads - 1) / kThreads); }

__device__ int64_t Thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__device__ unsigned TeamMask() { return 0xffu << (threadIdx.x % 32 / kTeam * kTeam); }

template <class T>
__device__ T TeamSum(T value) {
  for (int step = kTeam / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(TeamMask(), value, step, kTeam);
  }
  return value;
}

// --- E + |base| ---

// missing: 1 where a column has no diagonal entry. On a grid that stands in the middle, where the
// search begins.
__global__ void FindMissingKernel(PatternRef base, int32_t* missing) {
  const int64_t j = Thread();
  if (j >= base.n) return;
  int64_t begin = base.col_ptr[j], end = base.col_ptr[j + 1];
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    const int32_t row = base.row_idx[middle];
    if (row == j) return;
    if (row < j) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  *missing = 1;
}

// What is kept of the base, and under which names.
struct Keep {
  const double* values;  // null: everything
  double tau;
  const int32_t* match;  // the node that row i stands for; null: i

  // What |value| must exceed in column j. By a whole team.
  __device__ double Bound(const PatternRef& base, int64_t j) const {
    if (values == nullptr) return -1;
    double largest = 0;
    for (int64_t p = base.col_ptr[j] + threadIdx.x % kTeam; p < base.col_ptr[j + 1]; p += kTeam) {
      largest = fmax(largest, fabs(values[p]));
    }
    for (int step = kTeam / 2; step > 0; step /= 2) {
      largest = fmax(largest, __shfl_xor_sync(TeamMask(), largest, step, kTeam));
    }
    return (1 - tau) * largest;
  }
  // Whether entry p, row i of column j, adds a node other than j.
  __device__ bool Adds(int64_t p, int32_t i, int64_t j, double bound) const {
    const bool kept = i == j || values == nullptr || fabs(values[p]) > bound;
    return kept && Node(i) != j;
  }
  __device__ int32_t Node(int32_t i) const { return match != nullptr ? match[i] : i; }
};

__global__ void CountKeptKernel(PatternRef base, Keep keep, int64_t* counts) {
  const int64_t j = Thread() / kTeam;
  if (j >= base.n) return;
  const double bound = keep.Bound(base, j);
  int64_t count = 0;
  for (int64_t p = base.col_ptr[j] + threadIdx.x % kTeam; p < base.col_ptr[j + 1]; p += kTeam) {
    count += keep.Adds(p, base.row_idx[p], j, bound) ? 1 : 0;
  }
  count = TeamSum(count);
  if (threadIdx.x % kTeam == 0) counts[j] = 1 + count;
}

// In ascending order without a matching; with one, j first and the others in the base's order.
__global__ void FillKeptKernel(PatternRef base, Keep keep, const int64_t* col_ptr,
                               int32_t* row_idx) {
  const int64_t j = Thread() / kTeam;
  if (j >= base.n) return;
  const unsigned team = TeamMask();
  const unsigned before = team & ((1u << threadIdx.x % 32) - 1);
  const double bound = keep.Bound(base, j);
  int32_t* const to = row_idx + col_ptr[j];
  int64_t filled = 0, smaller = 0;  // of the others; of those, in front of j
  const int64_t end = base.col_ptr[j + 1];
  for (int64_t first = base.col_ptr[j]; first < end; first += kTeam) {
    const int64_t p = first + threadIdx.x % kTeam;
    const int32_t i = p < end ? base.row_idx[p] : 0;
    const bool adds = p < end && keep.Adds(p, i, j, bound);
    const bool behind = keep.match != nullptr || i > j;
    const unsigned all = __ballot_sync(team, adds) & team;
    const unsigned in_front = __ballot_sync(team, adds && !behind) & team;
    if (adds) to[filled + __popc(all & before) + (behind ? 1 : 0)] = keep.Node(i);
    filled += __popc(all);
    smaller += __popc(in_front);
  }
  if (threadIdx.x % kTeam == 0) to[smaller] = static_cast<int32_t>(j);
}

// --- Rows of A ---

__global__ void CountRowsKernel(const int32_t* row_idx, int64_t nnz, unsigned long long* counts) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t p = Thread(); p < nnz; p += stride) atomicAdd(&counts[row_idx[p] + 1], 1ull);
}

// next[i + 1]: where row i begins, and, after, where it ends.
__global__ void FillRowsKernel(PatternRef a, unsigned long long* next, int32_t* columns) {
  const int64_t j = Thread() / kTeam;
  if (j >= a.n) return;
  for (int64_t p = a.col_ptr[j] + threadIdx.x % kTeam; p < a.col_ptr[j + 1]; p += kTeam) {
    columns[atomicAdd(&next[a.row_idx[p] + 1], 1ull)] = static_cast<int32_t>(j);
  }
}

// Columns of each row of `a`, in no order.
DevicePattern RowsOf(Context& context, const Matrix& a) {
  DevicePattern rows;
  rows.n = a.n;
  rows.nnz = a.nnz;
  rows.col_ptr = Buffer<int64_t>(context, a.n + 1);
  rows.row_idx = Buffer<int32_t>(context, a.nnz);
  rows.col_ptr.Fill(0);
  auto* const counts = reinterpret_cast<unsigned long long*>(rows.col_ptr.get());
  CountRowsKernel<<<8 * context.multiprocessors, kThreads, 0, context.stream>>>(a.row_idx.get(),
                                                                                a.nnz, counts);
  CheckLaunch("CountRowsKernel");
  Scan(context, rows.col_ptr, a.n + 1);
  FillRowsKernel<<<Blocks(a.n * kTeam), kThreads, 0, context.stream>>>(a.pattern(), counts,
                                                                       rows.row_idx.get());
  CheckLaunch("FillRowsKernel");
  return rows;
}

class Maker {
 public:
  Maker(Context& context, int64_t max_nnz) : context_(context), max_nnz_(max_nnz) {}

  void CheckSize(int64_t nnz) const {
    if (max_nnz_ > 0 && nnz > max_nnz_) throw PatternTooLarge{nnz};
  }

  bool HasDiagonal(const PatternRef& base) const {
    const Buffer<int32_t> missing(context_, 1);
    missing.Fill(0);
    FindMissingKernel<<<Blocks(base.n), kThreads, 0, context_.stream>>>(base, missing.get());
    CheckLaunch("FindMissingKernel");
    return Read(context_, missing, 0) == 0;
  }

  DevicePattern AddDiagonal(const PatternRef& base, const Keep& keep) const {
    DevicePattern out;
    out.n = base.n;
    out.col_ptr = Buffer<int64_t>(context_, base.n + 1);
    out.col_ptr.Fill(0);
    CountKeptKernel<<<Blocks(base.n * kTeam), kThreads, 0, context_.stream>>>(base, keep,
                                                                              out.col_ptr.get());
    CheckLaunch("CountKeptKernel");
    AllocateCounted(context_, max_nnz_, out);
    FillKeptKernel<<<Blocks(base.n * kTeam), kThreads, 0, context_.stream>>>(
        base, keep, out.col_ptr.get(), out.row_idx.get());
    CheckLaunch("FillKeptKernel");
    return out;
  }

 private:
  Context& context_;
  const int64_t max_nnz_;
};

DevicePattern Upload(Context& context, const kernels::PatternView& host) {
  DevicePattern out;
  out.n = host.n_cols;
  out.nnz = host.nnz();
  out.col_ptr = Buffer<int64_t>(context, out.n + 1);
  out.row_idx = Buffer<int32_t>(context, out.nnz);
  out.col_ptr.CopyIn(host.col_ptr.data(), out.n + 1);
  out.row_idx.CopyIn(host.row_idx.data(), out.nnz);
  return out;
}

}  // namespace

DevicePattern MakePattern(Context& context, const Matrix& a, const kernels::PatternView* user,
                          DevicePattern* there, const kernels::PatternOptions& options,
                          std::span<const int32_t> matched_to, int64_t max_nnz,
                          const Caller& caller) {
  const Maker maker(context, max_nnz);
  const bool matched = !matched_to.empty();
  const bool trivial = options.power == 1 && !matched && !options.ensure_row;
  const Buffer<int32_t> match(context, matched ? a.n : 0);
  match.CopyIn(matched_to.data(), match.size());
  DevicePattern factor;  // E + |base|; empty: that is the pattern of A
  {
    DevicePattern base;
    if (user != nullptr) base = there != nullptr ? std::move(*there) : Upload(context, *user);
    const PatternRef from = user != nullptr ? base.ref() : a.pattern();
    const bool threshold = user == nullptr && options.keep_tau.has_value();
    const Keep keep{threshold ? a.values.get() : nullptr, options.keep_tau.value_or(-1),
                    match.get()};
    const bool whole = !threshold && !matched && maker.HasDiagonal(from);
    if (!whole) {
      factor = maker.AddDiagonal(from, keep);
    } else if (user != nullptr) {
      factor = std::move(base);
    } else if (trivial) {
      maker.CheckSize(a.nnz);
      factor.n = a.n;
      factor.nnz = a.nnz;
      factor.a = a.pattern();
    }
    // What comes from the host must have arrived when the caller has it back.
    if (user != nullptr || matched) context.Synchronize();
  }
  const int64_t factor_nnz = factor.col_ptr.size() > 0 ? factor.nnz : a.nnz;
  const PatternRef by = factor.col_ptr.size() > 0 ? factor.ref() : a.pattern();
  maker.CheckSize(factor_nnz);  // each power has the entries of the one before
  if (trivial) return factor;

  DevicePattern rows;
  if (options.ensure_row) rows = RowsOf(context, a);
  DevicePattern made;
  PatternRef left;  // the power so far
  int64_t left_nnz = -1;
  int32_t power = 0;
  if (!matched && options.power > 1) {
    left = by;
    left_nnz = factor_nnz;
    power = 1;
  }
  while (power < options.power) {
    const bool last = power + 1 == options.power;
    const bool with_rows = last && options.ensure_row;
    DevicePattern next =
        Unite(context,
              {a.n, left.col_ptr, left.row_idx, match.get(), by.col_ptr, by.row_idx,
               with_rows ? rows.col_ptr.get() : nullptr, with_rows ? rows.row_idx.get() : nullptr},
              max_nnz, caller);
    ++power;
    // Without growth every later power is the same.
    if (next.nnz == left_nnz && !last) power = options.power - (options.ensure_row ? 1 : 0);
    made = std::move(next);
    left = made.ref();
    left_nnz = made.nnz;
  }
  return made;
}

}  // namespace spaid::cuda
