#include <cuda_runtime.h>
#include <cusparse.h>
#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "kernels/bench/cuda/yardsticks_cuda.h"

namespace spaid::kernels::bench {
namespace {

// The first failure of a chain of calls.
class Calls {
 public:
  void operator()(cudaError_t error) {
    if (error != cudaSuccess && failure_.empty()) failure_ = cudaGetErrorString(error);
  }
  void operator()(cusparseStatus_t status) {
    if (status != CUSPARSE_STATUS_SUCCESS && failure_.empty()) {
      failure_ = "cuSPARSE status " + std::to_string(static_cast<int>(status));
    }
  }
  const std::string& failure() const { return failure_; }

 private:
  std::string failure_;
};

// The device is held for as long as the host takes to launch the lot.
__global__ void HoldKernel(int64_t ns) {
  const auto now = [] {
    int64_t t = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  };
  const int64_t begin = now();
  while (now() - begin < ns) __nanosleep(1000);
}

// The median time of `work`, each alone.
template <class Work>
double MedianMs(int count, Calls& call, const Work& work) {
  for (int i = 0; i < 3; ++i) work();
  call(cudaDeviceSynchronize());
  std::vector<cudaEvent_t> begin(static_cast<size_t>(count)), end(begin.size());
  for (size_t i = 0; i < begin.size(); ++i) {
    call(cudaEventCreate(&begin[i]));
    call(cudaEventCreate(&end[i]));
  }
  HoldKernel<<<1, 1>>>(int64_t{15000} * count);
  for (size_t i = 0; i < begin.size(); ++i) {
    call(cudaEventRecord(begin[i]));
    work();
    call(cudaEventRecord(end[i]));
  }
  call(cudaDeviceSynchronize());
  std::vector<float> ms(begin.size());
  for (size_t i = 0; i < begin.size(); ++i) {
    call(cudaEventElapsedTime(&ms[i], begin[i], end[i]));
    call(cudaEventDestroy(begin[i]));
    call(cudaEventDestroy(end[i]));
  }
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

template <class T>
T* Upload(Calls& call, const std::vector<T>& from) {
  T* to = nullptr;
  call(cudaMalloc(&to, from.size() * sizeof(T)));
  call(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

}  // namespace

double DeviceCopyBytesPerSecond() {
  constexpr size_t kBytes = size_t{1} << 30;
  Calls call;
  void *from = nullptr, *to = nullptr;
  call(cudaMalloc(&from, kBytes));
  call(cudaMalloc(&to, kBytes));
  double ms = 0;
  if (call.failure().empty()) {
    ms = MedianMs(11, call, [&] {
      call(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, nullptr));
    });
  }
  cudaFree(from);
  cudaFree(to);
  return call.failure().empty() ? 2e3 * static_cast<double>(kBytes) / ms : 0;
}

std::string TimeCusparse(int64_t n, const int64_t* row_ptr, const int32_t* cols,
                         const double* values, int products, double* ms) {
  void* const library = dlopen("libcusparse.so.12", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "no libcusparse.so.12";
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  decltype(&cusparseCreate) create = nullptr;
  decltype(&cusparseDestroy) destroy = nullptr;
  decltype(&cusparseCreateCsr) create_csr = nullptr;
  decltype(&cusparseDestroySpMat) destroy_matrix = nullptr;
  decltype(&cusparseCreateDnVec) create_vector = nullptr;
  decltype(&cusparseDestroyDnVec) destroy_vector = nullptr;
  decltype(&cusparseSpMV_bufferSize) buffer_size = nullptr;
  decltype(&cusparseSpMV_preprocess) preprocess = nullptr;
  decltype(&cusparseSpMV) multiply = nullptr;
  if (!find(create, "cusparseCreate") || !find(destroy, "cusparseDestroy") ||
      !find(create_csr, "cusparseCreateCsr") || !find(destroy_matrix, "cusparseDestroySpMat") ||
      !find(create_vector, "cusparseCreateDnVec") ||
      !find(destroy_vector, "cusparseDestroyDnVec") ||
      !find(buffer_size, "cusparseSpMV_bufferSize") ||
      !find(preprocess, "cusparseSpMV_preprocess") || !find(multiply, "cusparseSpMV")) {
    return "libcusparse.so.12 lacks a function";
  }
  const int64_t nnz = row_ptr[n];
  Calls call;
  int32_t* const d_ptr = Upload(call, std::vector<int32_t>(row_ptr, row_ptr + n + 1));
  int32_t* const d_cols = Upload(call, std::vector<int32_t>(cols, cols + nnz));
  double* const d_values = Upload(call, std::vector<double>(values, values + nnz));
  double* const x = Upload(call, std::vector<double>(static_cast<size_t>(n), 1.0));
  double* const y = Upload(call, std::vector<double>(static_cast<size_t>(n), 0.0));
  void* scratch = nullptr;
  if (call.failure().empty()) {
    cusparseHandle_t handle = nullptr;
    cusparseSpMatDescr_t a = nullptr;
    cusparseDnVecDescr_t from = nullptr, to = nullptr;
    const double one = 1, zero = 0;
    size_t bytes = 0;
    call(create(&handle));
    call(create_csr(&a, n, n, nnz, d_ptr, d_cols, d_values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                    CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
    call(create_vector(&from, n, x, CUDA_R_64F));
    call(create_vector(&to, n, y, CUDA_R_64F));
    call(buffer_size(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, from, &zero, to, CUDA_R_64F,
                     CUSPARSE_SPMV_CSR_ALG1, &bytes));
    call(cudaMalloc(&scratch, std::max<size_t>(bytes, 1)));
    call(preprocess(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, from, &zero, to, CUDA_R_64F,
                    CUSPARSE_SPMV_CSR_ALG1, scratch));
    if (call.failure().empty()) {
      *ms = MedianMs(products, call, [&] {
        call(multiply(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, from, &zero, to,
                      CUDA_R_64F, CUSPARSE_SPMV_CSR_ALG1, scratch));
      });
    }
    if (from != nullptr) destroy_vector(from);
    if (to != nullptr) destroy_vector(to);
    if (a != nullptr) destroy_matrix(a);
    if (handle != nullptr) destroy(handle);
  }
  for (void* memory :
       {static_cast<void*>(d_ptr), static_cast<void*>(d_cols), static_cast<void*>(d_values),
        static_cast<void*>(x), static_cast<void*>(y), scratch}) {
    cudaFree(memory);
  }
  return call.failure();
}

}  // namespace spaid::kernels::bench
