// What passes through the caches of a CUDA device between two products of CG.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace spaid::kernels::bench {

static __global__ void __launch_bounds__(256)
    StepKernel(int64_t n, double alpha, const double* __restrict__ p, const double* __restrict__ q,
               double* __restrict__ x, double* __restrict__ r) {
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < n; i += int64_t{gridDim.x} * 256) {
    x[i] = fma(alpha, p[i], x[i]);
    r[i] = fma(-alpha, q[i], r[i]);
  }
}

static __global__ void __launch_bounds__(256)
    DirectionKernel(int64_t n, double beta, const double* __restrict__ r, double* __restrict__ p) {
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < n; i += int64_t{gridDim.x} * 256) {
    p[i] = fma(beta, r[i], p[i]);
  }
}

// The vectors of CG on the device, of n elements, q = A p.
struct CgVectors {
  int64_t n;
  double *p, *q, *x, *r;

  // An update by steps of length 0, so that p stays as it is.
  void Update(cudaStream_t stream) const {
    constexpr int kBlocks = 1056;
    StepKernel<<<kBlocks, 256, 0, stream>>>(n, 0.0, p, q, x, r);
    DirectionKernel<<<kBlocks, 256, 0, stream>>>(n, 0.0, r, p);
  }
};

}  // namespace spaid::kernels::bench
