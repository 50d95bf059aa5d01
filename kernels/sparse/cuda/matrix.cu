#include "kernels/base/cuda/ahead_lane.h"
#include "kernels/base/cuda/hash.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {
namespace {

// Σ over elements of a mix of place and value: an order-free sum, so that blocks need not wait for
// one another.
template <class T>
__global__ void HashArrayKernel(const T* values, int64_t size, uint64_t seed, uint64_t* hash) {
  uint64_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride) {
    sum += HashAt(static_cast<uint64_t>(i) + seed, static_cast<uint64_t>(values[i]));
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(hash), sum);
}

void CopyValues(Context& context, const double* values, kernels::CopyAhead* ahead, Matrix& matrix) {
  const auto bytes = static_cast<size_t>(matrix.nnz) * sizeof(double);
  char* const to = reinterpret_cast<char*>(matrix.values.get());
  size_t there = 0;
  if (ahead != nullptr) {
    there = static_cast<size_t>(static_cast<CopyAhead&>(*ahead).Take(
        context.ordinal, context.stream, to, values, static_cast<int64_t>(bytes)));
  }
  if (there == bytes) return;
  context.staging->In(to + there, reinterpret_cast<const char*>(values) + there, bytes - there);
}

}  // namespace

Matrix UploadMatrix(Context& context, const kernels::PatternView& a, const double* values,
                    kernels::CopyAhead* ahead) {
  Matrix matrix;
  const int64_t n = matrix.n = a.n_cols, nnz = matrix.nnz = a.nnz();
  matrix.col_ptr = Buffer<int64_t>(context, n + 1);
  matrix.row_idx = Buffer<int32_t>(context, nnz);
  matrix.col_ptr.CopyIn(a.col_ptr.data(), n + 1);
  matrix.row_idx.CopyIn(a.row_idx.data(), nnz);
  matrix.values = Buffer<double>(context, nnz);
  if (values != nullptr) CopyValues(context, values, ahead, matrix);
  const Buffer<uint64_t> hash(context, 1);
  hash.Fill(0);
  const int blocks = 4 * context.multiprocessors;
  HashArrayKernel<<<blocks, 256, 0, context.stream>>>(matrix.col_ptr.get(), n + 1, 1, hash.get());
  CheckLaunch("HashArrayKernel");
  HashArrayKernel<<<blocks, 256, 0, context.stream>>>(matrix.row_idx.get(), nnz, uint64_t{1} << 62,
                                                      hash.get());
  CheckLaunch("HashArrayKernel");
  hash.CopyOut(&matrix.pattern_hash, 1);
  context.Synchronize();
  return matrix;
}

void UploadValues(Context& context, const double* values, Matrix& matrix,
                  kernels::CopyAhead* ahead) {
  CopyValues(context, values, ahead, matrix);
  context.Synchronize();
}

}  // namespace spaid::cuda
