#include <cmath>

#include "kernels/fsai/cuda/pack.h"

namespace spaid::cuda::fsai {
namespace {

constexpr int kThreads = 256, kLanes = 8;

// Index of the entry (row, col), or −1.
__device__ int64_t Search(const PatternRef& a, int64_t col, int32_t row) {
  int64_t begin = a.col_ptr[col], end = a.col_ptr[col + 1];
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (a.row_idx[middle] < row) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < a.col_ptr[col + 1] && a.row_idx[begin] == row ? begin : -1;
}

__global__ void FsaiDiagonalKernel(PatternRef a, const double* values, double* roots,
                                   Faults* faults) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  int longest = 0;
  double diagonal = 0;
  if (i < a.n) {
    longest = static_cast<int>(a.col_ptr[i + 1] - a.col_ptr[i]);
    const int64_t at = Search(a, i, static_cast<int32_t>(i));
    diagonal = at >= 0 ? values[at] : 0;
    if (!(diagonal > 0)) atomicMin(&faults->not_positive, static_cast<int32_t>(i));
    roots[i] = sqrt(diagonal);
  }
  longest = __reduce_max_sync(~0u, longest);
  // Positive numbers are ordered as their bits are.
  uint32_t high =
      __reduce_max_sync(~0u, static_cast<uint32_t>(__double2hiint(fmax(diagonal, 0.0))));
  if (threadIdx.x % 32 == 0) {
    if (longest > faults->longest) atomicMax(&faults->longest, longest);
    if (high > faults->largest_high) atomicMax(&faults->largest_high, high);
  }
}

// kLanes threads a row.
template <class Real>
__global__ void FsaiPackKernel(PatternRef a, const double* values, const double* roots,
                               double tolerance, double scale, int32_t stride, Entry<Real>* entries,
                               Faults* faults) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t i = thread / kLanes;
  const int lane = static_cast<int>(thread % kLanes);
  if (i >= a.n) return;
  const int64_t begin = a.col_ptr[i];
  const int length = static_cast<int>(a.col_ptr[i + 1] - begin);
  Entry<Real>* const row = entries + (stride > 0 ? i * stride : begin);
  bool lonely = false;
  for (int e = lane; e < length; e += kLanes) {
    const int32_t j = a.row_idx[begin + e];
    double value = values[begin + e];
    int place = e;
    if (j == i) {
      place = 0;
    } else {
      if (j < i) ++place;
      const int64_t mirror = Search(a, j, static_cast<int32_t>(i));
      if (mirror < 0) {
        lonely = true;
      } else {
        const double other = values[mirror];
        lonely = lonely || fabs(value - other) > tolerance * (roots[i] * roots[j]);
        if (j < i) value = other;  // the entry (i, j), which is below the diagonal
      }
    }
    Entry<Real> entry{};
    entry.index = j;
    entry.value = static_cast<Real>(value * scale);
    row[place] = entry;
  }
  if (lonely) atomicMin(&faults->not_symmetric, static_cast<int32_t>(i));
  for (int e = length + lane; e < stride; e += kLanes) {
    Entry<Real> entry{};
    entry.index = static_cast<int32_t>(a.n);
    row[e] = entry;
  }
}

}  // namespace

template <class Real>
PackedRows<Real> Pack(Context& context, const Matrix& a, double symmetry_tolerance) {
  PackedRows<Real> packed;
  const Buffer<Faults> there(context, 1);
  const Buffer<double> roots(context, a.n);
  packed.faults = {static_cast<int32_t>(a.n), static_cast<int32_t>(a.n), 0, 0};
  there.CopyIn(&packed.faults, 1);
  FsaiDiagonalKernel<<<static_cast<unsigned>((a.n + kThreads - 1) / kThreads), kThreads, 0,
                       context.stream>>>(a.pattern(), a.values.get(), roots.get(), there.get());
  CheckLaunch("FsaiDiagonalKernel");
  there.CopyOut(&packed.faults, 1);
  context.Synchronize();
  if (packed.faults.not_positive < a.n) return packed;
  if (sizeof(Real) == sizeof(float)) {
    packed.half_exponent = (static_cast<int>(packed.faults.largest_high >> 20) - 1023) / 2;
  }
  // Rows of one length need no pointers, which would be another dependent load for each row.
  constexpr int kAligned = 16 / static_cast<int>(sizeof(Entry<Real>));
  const int64_t stride = (packed.faults.longest + kAligned - 1) / kAligned * kAligned;
  if (stride * a.n <= a.nnz + a.nnz / 2) packed.stride = static_cast<int32_t>(stride);
  packed.entries = Buffer<Entry<Real>>(context, packed.stride > 0 ? packed.stride * a.n : a.nnz);
  packed.ptr = a.col_ptr.get();
  FsaiPackKernel<Real><<<static_cast<unsigned>((a.n * kLanes + kThreads - 1) / kThreads), kThreads,
                         0, context.stream>>>(
      a.pattern(), a.values.get(), roots.get(), symmetry_tolerance,
      std::ldexp(1.0, -2 * packed.half_exponent), packed.stride, packed.entries.get(), there.get());
  CheckLaunch("FsaiPackKernel");
  there.CopyOut(&packed.faults, 1);
  context.Synchronize();
  return packed;
}

template PackedRows<float> Pack<float>(Context&, const Matrix&, double);
template PackedRows<double> Pack<double>(Context&, const Matrix&, double);

}  // namespace spaid::cuda::fsai
