#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/fsai/cuda/prescribed_rows.h"
#include "kernels/fsai/cuda/row_parts.h"
#include "kernels/fsai/cuda/rows_tuning.h"

namespace spaid::cuda::fsai {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = 4;  // a block, each with some systems
constexpr int kClasses = 6;
__device__ constexpr int32_t kClassEntries[kClasses] = {4, 8, 16, 32, 64, 96};
constexpr int32_t kHostClassEntries[kClasses] = {4, 8, 16, 32, 64, 96};

struct Counts {
  // Rows of no more entries than a class; rows nested with the one before, in nodes of two and
  // three.
  unsigned long long of_class[kClasses], in_twos, in_threes;
};

// Row i + 1 has the pattern of row i and its own diagonal.
__device__ bool Nested(const int64_t* ptr, const int32_t* idx, int64_t i) {
  const int64_t begin = ptr[i], next = ptr[i + 1], length = next - begin;
  if (ptr[i + 2] - next != length + 1) return false;
  for (int64_t e = 0; e < length; ++e) {
    if (idx[begin + e] != idx[next + e]) return false;
  }
  return true;
}

__global__ void FsaiMeasurePrescribedRowsKernel(const int64_t* ptr, const int32_t* idx, int64_t n,
                                                Counts* counts) {
  // Summed up by warps: atomics on a few words are slow.
  int of_class[kClasses] = {}, twos = 0, threes = 0;
  for (int64_t first = int64_t{blockIdx.x} * kThreads; first < n;
       first += int64_t{gridDim.x} * kThreads) {
    const int64_t i = first + threadIdx.x;
    const int64_t length = i < n ? ptr[i + 1] - ptr[i] : INT64_MAX;
    for (int c = 0; c < kClasses; ++c) {
      of_class[c] += __popc(__ballot_sync(kAllLanes, length <= kClassEntries[c]));
    }
    const bool nested = i > 0 && i < n && Nested(ptr, idx, i - 1);
    twos += __popc(__ballot_sync(kAllLanes, nested && i % 2 != 0));
    threes += __popc(__ballot_sync(kAllLanes, nested && i % 3 != 0));
  }
  if (threadIdx.x % 32 != 0) return;
  const auto add = [](unsigned long long* to, int rows) {
    if (rows > 0) atomicAdd(to, static_cast<unsigned long long>(rows));
  };
  for (int c = 0; c < kClasses; ++c) add(&counts->of_class[c], of_class[c]);
  add(&counts->in_twos, twos);
  add(&counts->in_threes, threes);
}

// Rows of a system are an odd number of vectors apart: lanes that read one vector each of different
// rows have no bank conflicts.
template <class Real>
__host__ __device__ int32_t Stride(int32_t entries) {
  constexpr int32_t kSize = Vector<Real>::kSize;
  return ((entries + kSize - 1) / kSize | 1) * kSize;
}
template <class Real>
__host__ __device__ int64_t SystemBytes(int32_t entries) {
  const int64_t reals = int64_t{entries} * (Stride<Real>(entries) + 2);
  return Aligned(reals * static_cast<int64_t>(sizeof(Real)) + 4 * int64_t{entries});
}

// Solves systems, kTeam threads each, a thread having kRows rows of one. All loops are uniform over
// a warp, whose teams run in step.
template <class Real, int kTeam, int kRows>
class Solver {
  static constexpr int kSize = Vector<Real>::kSize;
  static constexpr int kTeams = 32 / kTeam;
  // First step of a binary search among all entries: a power of two.
  static constexpr int kFirstStep = kRows == 3 ? 2 * kTeam : kTeam * kRows / 2;
  static constexpr unsigned kTeamMask = kTeam == 32 ? kAllLanes : (1u << kTeam % 32) - 1;

 public:
  __device__ Solver(const Work<Real>& work, const PrescribedRows& prescribed, char* workspace)
      : w_(work),
        prescribed_(prescribed),
        lane_(static_cast<int>(threadIdx.x) % kTeam),
        stride_(Stride<Real>(prescribed.entries)),
        l_(reinterpret_cast<Real*>(workspace)),
        diagonal_(l_ + int64_t{prescribed.entries} * stride_),
        root_(diagonal_ + prescribed.entries),
        index_(reinterpret_cast<int32_t*>(root_ + prescribed.entries)) {}

  __device__ void Run() {
    const int64_t end_row = w_.first + w_.count, node = prescribed_.node;
    const int64_t begin = w_.first / node, end = (end_row + node - 1) / node;
    const int64_t warps = int64_t{gridDim.x} * blockDim.x / 32;
    const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
    const int team = static_cast<int>(threadIdx.x) % 32 / kTeam;
    for (int64_t first = begin + warp * kTeams; first < end; first += warps * kTeams) {
      int64_t row = max(w_.first, (first + team) * node);
      const int64_t last = min(end_row, (first + team + 1) * node);
      while (__any_sync(kAllLanes, row < last)) row = NestedRows(row, last);
    }
    for (int step = 16; step > 0; step /= 2) {
      log_sum_ += __shfl_xor_sync(kAllLanes, log_sum_, step);
      products_ += __shfl_xor_sync(kAllLanes, products_, step);
    }
    if (threadIdx.x % 32 != 0) return;
    for (int t = 0; t < 2; ++t) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&w_.log_sums[t]),
                static_cast<unsigned long long>(log_sum_));
    }
    atomicAdd(w_.products, products_ / kPassSlots);
  }

 private:
  __device__ bool OfTeam(bool mine) const {
    const unsigned shift = threadIdx.x % 32 / kTeam * kTeam;
    return (__ballot_sync(kAllLanes, mine) >> shift & kTeamMask) == kTeamMask;
  }

  // Makes the rows from `row` on that are nested; returns the row after them. Nothing for row >=
  // end.
  __device__ int64_t NestedRows(int64_t row, int64_t end) {
    const bool live = row < end;
    int64_t last = row;
    for (int step = 1; step < prescribed_.node; ++step) {
      bool same = live && last + 1 < end && last + 1 == row + step;
      int64_t from = 0, next = 0, length = 0;
      if (same) {
        from = w_.initial_ptr[last];
        next = w_.initial_ptr[last + 1];
        length = next - from;
        same = w_.initial_ptr[last + 2] - next == length + 1;
      }
      for (int64_t e = lane_; __any_sync(kAllLanes, same && e < length); e += kTeam) {
        if (same && e < length) same = w_.initial_idx[from + e] == w_.initial_idx[next + e];
      }
      if (OfTeam(same)) ++last;
    }
    const int rows = live ? static_cast<int>(last - row) + 1 : 0;
    int64_t begin = 0, size = 0;
    if (live) {
      begin = w_.initial_ptr[last];
      size = w_.initial_ptr[last + 1] - begin;
    }
    const bool fits = size <= prescribed_.entries;
    const int q = fits ? static_cast<int>(size) : 0;
    const int most = __reduce_max_sync(kAllLanes, q);
    Gather(begin, q, most);
    const bool definite = Factor(q, most) && fits;
    if (live && !definite && lane_ == 0) {
      for (int64_t r = row; r <= last; ++r) Leave(r);
    }
    const int longest = __reduce_max_sync(kAllLanes, rows);
    for (int r = 0; r < longest; ++r) Solve(row + r, q - rows + r, definite && r < rows);
    if (lane_ == 0 && definite) {
      const auto n = static_cast<unsigned long long>(q);
      products_ += n * (n + 1) * (n + 2) / 6 + static_cast<unsigned>(rows) * n * (n + 1) / 2;
    }
    return live ? last + 1 : row;
  }

  __device__ void Leave(int64_t row) const {
    w_.overflow[atomicAdd(w_.overflow_count, 1u)] = static_cast<int32_t>(row);
  }

  // Gathers the lower triangle of A[Q,Q] into l_, with zeros in place of its diagonal.
  __device__ void Gather(int64_t begin, int q, int most) {
    __syncwarp();
    for (int t = lane_; t < q; t += kTeam) {
      index_[t] = w_.initial_idx[begin + t];
      diagonal_[t] = 0;
    }
    auto* const vectors = reinterpret_cast<Vector<Real>*>(l_);
    const Vector<Real> zeros{};
    for (int t = lane_; t < q * (stride_ / kSize); t += kTeam) vectors[t] = zeros;
    __syncwarp();
    const int32_t lowest = q > 0 ? index_[0] : 0;
    for (int a = 0; a < most; ++a) {
      int32_t own = -1;
      int length = 0;
      const Entry<Real>* entries = nullptr;
      if (a < q) {
        own = index_[a];
        entries = RowOf(w_, own, length);
      }
      // A's diagonal comes first, the rest of its row ascends.
      bool more = true;
      for (int e = lane_; more; e += kTeam) {
        Entry<Real> entry{};
        entry.index = INT32_MAX;
        if (e < length) entry = entries[e];
        if (e == 0 && a < q) diagonal_[a] = entry.value;
        if (entry.index < own && entry.index >= lowest) {
          int at = 0;
#pragma unroll
          for (int step = kFirstStep; step > 0; step /= 2) {
            if (at + step < a && index_[at + step] <= entry.index) at += step;
          }
          if (index_[at] == entry.index) l_[a * stride_ + at] = entry.value;
        }
        more = __any_sync(kAllLanes, lane_ == kTeam - 1 && entry.index < own);
      }
    }
    __syncwarp();
  }

  __device__ static void AddProduct(Real& sum, const Vector<Real>& x, const Vector<Real>& y) {
#pragma unroll
    for (int t = 0; t < kSize; ++t) sum += x.x[t] * y.x[t];
  }

  // Factors A[Q,Q] = L Lᵀ, column by column; L's diagonal is 1 / root_. False, for the whole team:
  // a pivot is not positive.
  __device__ bool Factor(int q, int most) {
    constexpr Real kLimit = 16 * Traits<Real>::kRoundoff;
    bool definite = true;
    for (int k = 0; k < most; ++k) {
      const auto* const row_k = reinterpret_cast<const Vector<Real>*>(l_ + k * stride_);
      Real sum[kRows] = {};
      if (k < q) {
        // The last vector of row k may reach beyond column k - 1, where row k is still zero.
        for (int v = 0; v * kSize < k; ++v) {
          const Vector<Real> x = row_k[v];
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const int a = k + lane_ + r * kTeam;
            if (a < q) {
              AddProduct(sum[r], x, reinterpret_cast<const Vector<Real>*>(l_ + a * stride_)[v]);
            }
          }
        }
      }
      const Real diagonal = k < q ? diagonal_[k] : Real{1};
      const Real pivot = diagonal - __shfl_sync(kAllLanes, sum[0], 0, kTeam);
      const Real root = InverseRoot(pivot);
      // Also false for an infinite or NaN pivot.
      if (k < q && !(pivot > kLimit * diagonal && root > 0)) definite = false;
      if (k < q && lane_ == 0) root_[k] = root;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int a = k + lane_ + r * kTeam;
        if (a > k && a < q) l_[a * stride_ + k] = (l_[a * stride_ + k] - sum[r]) * root;
      }
      __syncwarp();
    }
    return definite;
  }

  // Makes row `row` of G from row `o` of L, where `mine`.
  __device__ void Solve(int64_t row, int o, bool mine) {
    const int from = __reduce_max_sync(kAllLanes, mine ? o : 0);
    Real sum[kRows] = {}, root[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int t = lane_ + r * kTeam;
      if (mine && t < o) root[r] = root_[t];
    }
    // Solves Lᵀ g̃ = (0, ..., 0, 1) for the leading o + 1 unknowns, times the last pivot's root.
    double squares = 0;
#pragma unroll
    for (int part = kRows - 1; part >= 0; --part) {
      for (int s = min(from, (part + 1) * kTeam - 1); s > 0 && s >= part * kTeam; --s) {
        const Real solved = __shfl_sync(kAllLanes, -sum[part] * root[part], s % kTeam, kTeam);
        if (!mine || s > o) continue;
        const Real of_s = s == o ? Real{1} : solved;
        const Real* const row_s = l_ + s * stride_;
#pragma unroll
        for (int r = 0; r <= part; ++r) {
          const int t = lane_ + r * kTeam;
          if (t < s) {
            sum[r] += row_s[t] * of_s;
            if (s == o) squares += static_cast<double>(row_s[t]) * static_cast<double>(row_s[t]);
          }
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int step = kTeam / 2; step > 0; step /= 2) {
      squares += __shfl_xor_sync(kAllLanes, squares, step, kTeam);
    }
    if (!mine) return;
    const auto a_ii = static_cast<double>(diagonal_[o]);
    const double psi = a_ii - squares;
    if (!(psi > 16 * Traits<Real>::kRoundoff * a_ii)) {
      if (lane_ == 0) Leave(row);
      return;
    }
    const double scale = rsqrt(psi);
    const int64_t out = OutOf(w_, row);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int t = lane_ + r * kTeam;
      if (t > o) continue;
      const double g = t == o ? 1 : static_cast<double>(-sum[r] * root[r]);
      w_.out_idx[out + t] = index_[t];
      w_.out_values[out + t] = static_cast<Real>(g * scale);
    }
    if (lane_ == 0) {
      w_.out_count[row - w_.first_out] = o + 1;
      w_.psi_ratio[row] = psi / a_ii;
      log_sum_ += __double2ll_rn(log(psi / a_ii) * w_.log_scale);
    }
  }

  const Work<Real> w_;
  const PrescribedRows prescribed_;
  const int lane_, stride_;
  Real* const l_;
  Real *const diagonal_, *const root_;
  int32_t* const index_;
  long long log_sum_ = 0;
  unsigned long long products_ = 0;
};

template <class Real, int kTeam, int kRows>
__global__ void __launch_bounds__(32 * kWarps)
    FsaiPrescribedRowsKernel(Work<Real> work, PrescribedRows prescribed, int64_t workspace) {
  extern __shared__ __align__(16) char workspaces[];
  Solver<Real, kTeam, kRows>(work, prescribed, workspaces + threadIdx.x / kTeam * workspace).Run();
}

template <class Real, int kTeam, int kRows>
void Launch(Context& context, const Work<Real>& work, const PrescribedRows& prescribed) {
  const auto kernel = FsaiPrescribedRowsKernel<Real, kTeam, kRows>;
  const int64_t workspace = SystemBytes<Real>(prescribed.entries);
  int most = 0;
  Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
        "cudaDeviceGetAttribute");
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
        "cudaFuncSetAttribute");
  int best = 0, threads = 0, blocks = 0;
  size_t bytes = 0;
  for (int warps = 1; warps <= kWarps; ++warps) {
    const auto own = static_cast<size_t>(workspace) * static_cast<size_t>(warps * 32 / kTeam);
    if (own > static_cast<size_t>(most)) break;
    int resident = 0;
    Check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * warps, own),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (resident * warps <= best) continue;
    best = resident * warps;
    threads = 32 * warps;
    bytes = own;
    blocks = resident * context.multiprocessors;
  }
  if (best == 0) throw Failure(CudaFault::kError, "a row of FSAI has no room on this device");
  const int64_t rows_a_block = int64_t{threads} / kTeam * prescribed.node;
  blocks =
      static_cast<int>(std::min<int64_t>(blocks, (work.count + rows_a_block - 1) / rows_a_block));
  kernel<<<blocks, threads, bytes, context.stream>>>(work, prescribed, workspace);
  CheckLaunch("FsaiPrescribedRowsKernel");
}

}  // namespace

PrescribedRows MeasurePrescribedRows(Context& context, const int64_t* ptr, const int32_t* idx,
                                     int64_t n, int32_t longest) {
  const Buffer<Counts> buffer(context, 1);
  buffer.Fill(0);
  const int64_t blocks =
      std::min<int64_t>((n + kThreads - 1) / kThreads, int64_t{8} * context.multiprocessors);
  FsaiMeasurePrescribedRowsKernel<<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(
      ptr, idx, n, buffer.get());
  CheckLaunch("FsaiMeasurePrescribedRowsKernel");
  const Counts counts = Read(context, buffer, 0);
  PrescribedRows prescribed;
  const auto share = [n](double part, unsigned long long rows) {
    return static_cast<double>(rows) >= part * static_cast<double>(n);
  };
  if (share(tuning::kFsaiNodeShare * 2 / 3, counts.in_threes)) {
    prescribed.node = 3;
  } else if (share(tuning::kFsaiNodeShare / 2, counts.in_twos)) {
    prescribed.node = 2;
  }
  for (int c = 0; c < kClasses && prescribed.entries == 0; ++c) {
    if (share(tuning::kFsaiPrescribedShare, counts.of_class[c])) {
      prescribed.entries = std::min(kHostClassEntries[c], longest);
    }
  }
  return prescribed;
}

template <class Real>
void LaunchPrescribedRows(Context& context, const Work<Real>& work,
                          const PrescribedRows& prescribed) {
  if (work.count == 0) return;
  if (prescribed.entries <= 4) return Launch<Real, 4, 1>(context, work, prescribed);
  if (prescribed.entries <= 8) return Launch<Real, 8, 1>(context, work, prescribed);
  if (prescribed.entries <= 16) return Launch<Real, 16, 1>(context, work, prescribed);
  if (prescribed.entries <= 32) return Launch<Real, 32, 1>(context, work, prescribed);
  if (prescribed.entries <= 64) return Launch<Real, 32, 2>(context, work, prescribed);
  return Launch<Real, 32, 3>(context, work, prescribed);
}

template void LaunchPrescribedRows<float>(Context&, const Work<float>&, const PrescribedRows&);
template void LaunchPrescribedRows<double>(Context&, const Work<double>&, const PrescribedRows&);

}  // namespace spaid::cuda::fsai
