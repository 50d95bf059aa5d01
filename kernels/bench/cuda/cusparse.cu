#include <cusparse.h>
#include <dlfcn.h>

#include <type_traits>

#include "kernels/bench/cuda/cg_vectors.h"
#include "kernels/bench/cuda/times.h"
#include "kernels/bench/cuda/yardsticks.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::kernels::bench {
namespace {

template <class T>
T* Upload(Calls& call, const std::vector<T>& from) {
  T* to = nullptr;
  call(cudaMalloc(&to, from.size() * sizeof(T)));
  call(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

constexpr int kDotBlocks = 1056;

__global__ void __launch_bounds__(cuda::kSumThreads)
    DotKernel(int64_t n, const double* __restrict__ x, const double* __restrict__ y, double* dot,
              cuda::SumSpace space) {
  double sums[1][1] = {};
  cuda::ForOwn<1>(n, [&](int64_t i, int64_t, int) { sums[0][0] = fma(x[i], y[i], sums[0][0]); });
  cuda::SumGrid(sums, space, [&](const double(&total)[1]) { *dot = total[0]; });
}

}  // namespace

std::string TimeCusparse(int64_t n, const int64_t* row_ptr, const int32_t* cols,
                         const double* values, int algorithm, int products, CusparseTimes* times) {
  const cusparseSpMVAlg_t how = algorithm == 2 ? CUSPARSE_SPMV_CSR_ALG2 : CUSPARSE_SPMV_CSR_ALG1;
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
  const auto check = [&call](cusparseStatus_t status) {
    call(status == CUSPARSE_STATUS_SUCCESS,
         "cuSPARSE status " + std::to_string(static_cast<int>(status)));
  };
  int32_t* const d_ptr = Upload(call, std::vector<int32_t>(row_ptr, row_ptr + n + 1));
  int32_t* const d_cols = Upload(call, std::vector<int32_t>(cols, cols + nnz));
  double* const d_values = Upload(call, std::vector<double>(values, values + nnz));
  double* const x = Upload(call, std::vector<double>(static_cast<size_t>(n), 1.0));
  const std::vector<double> zeros(static_cast<size_t>(n), 0.0);
  double* const y = Upload(call, zeros);
  double* const best = Upload(call, zeros);
  double* const r = Upload(call, zeros);
  double* const sums = Upload(call, std::vector<double>(1 + kDotBlocks, 0.0));
  unsigned* const arrived = Upload(call, std::vector<unsigned>(1, 0u));
  void* scratch = nullptr;
  if (call.failure().empty()) {
    cusparseHandle_t handle = nullptr;
    cusparseSpMatDescr_t a = nullptr;
    cusparseDnVecDescr_t from = nullptr, to = nullptr;
    const double one = 1, zero = 0;
    size_t bytes = 0;
    check(create(&handle));
    check(create_csr(&a, n, n, nnz, d_ptr, d_cols, d_values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                     CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
    check(create_vector(&from, n, x, CUDA_R_64F));
    check(create_vector(&to, n, y, CUDA_R_64F));
    check(buffer_size(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, from, &zero, to,
                      CUDA_R_64F, how, &bytes));
    call(cudaMalloc(&scratch, std::max<size_t>(bytes, 1)));
    check(preprocess(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, from, &zero, to, CUDA_R_64F,
                     how, scratch));
    if (call.failure().empty()) {
      const CgVectors vectors{n, x, y, best, r};
      const auto product = [&] {
        check(multiply(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, from, &zero, to,
                       CUDA_R_64F, how, scratch));
      };
      const auto update = [&] { vectors.Update(nullptr); };
      times->alone_ms = MedianMs(products, call, product);
      times->in_cg_ms = MedianMs(products, call, nullptr, update, product);
      times->with_dot_ms = MedianMs(products, call, nullptr, update, [&] {
        product();
        DotKernel<<<kDotBlocks, cuda::kSumThreads>>>(n, x, y, sums, {sums + 1, arrived});
      });
    }
    if (from != nullptr) destroy_vector(from);
    if (to != nullptr) destroy_vector(to);
    if (a != nullptr) destroy_matrix(a);
    if (handle != nullptr) destroy(handle);
  }
  for (void* memory :
       {static_cast<void*>(d_ptr), static_cast<void*>(d_cols), static_cast<void*>(d_values),
        static_cast<void*>(x), static_cast<void*>(y), static_cast<void*>(best),
        static_cast<void*>(r), static_cast<void*>(sums), static_cast<void*>(arrived), scratch}) {
    cudaFree(memory);
  }
  return call.failure();
}

}  // namespace spaid::kernels::bench
