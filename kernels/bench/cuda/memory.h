// What the baselines on a CUDA device share: memory of their own, and failures as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

namespace spaid::kernels::bench {

struct Failed {
  cudaError_t error;
};
inline void Check(cudaError_t error) {
  if (error != cudaSuccess) throw Failed{error};
}

template <class T>
class Memory {
 public:
  explicit Memory(size_t size) {
    Check(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<size_t>(size, 1) * sizeof(T)));
  }
  Memory(const T* from, size_t size) : Memory(size) {
    Check(cudaMemcpy(data_, from, size * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* get() const { return data_; }

 private:
  T* data_ = nullptr;
};

}  // namespace spaid::kernels::bench
