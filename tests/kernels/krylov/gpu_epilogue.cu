#include "kernels/base/cuda/variants_tuning_cuda.h"
#include "kernels/krylov/cuda/product_cuda.h"
#include "tests/kernels/krylov/gpu_epilogue.h"

namespace spaid::kernels::krylov_test {
namespace {

struct Counting {
  static constexpr int kSums = 2;
  const double* x;
  int32_t* rows;
  int32_t* finishes;
  double* block_sums;  // kSums a block
  bool skip;

  __device__ bool Skip() const { return skip; }
  __device__ void Row(int64_t i, double y_i, double (&sums)[kSums]) {
    atomicAdd(rows + i, 1);
    sums[0] += x[i] * y_i;
    sums[1] += y_i * y_i;
  }
  __device__ void Finish(const double (&sums)[kSums]) {
    __shared__ double all[cuda::kProductThreads];
    atomicAdd(finishes + blockIdx.x, 1);
    for (int k = 0; k < kSums; ++k) {
      all[threadIdx.x] = sums[k];
      __syncthreads();
      if (threadIdx.x == 0) {
        double sum = 0;
        for (const double of_thread : all) sum += of_thread;
        block_sums[kSums * blockIdx.x + static_cast<unsigned>(k)] = sum;
      }
      __syncthreads();
    }
  }
};

}  // namespace

std::string RunEpilogue(int64_t n, const int64_t* col_ptr, const int32_t* row_idx,
                        const double* values, const double* x, int launches, bool skip,
                        EpilogueResult* result) {
  try {
    cuda::Context context(0, 0, nullptr, cuda::tuning::kVariants);
    context.Enter();
    const cuda::Matrix a = cuda::UploadMatrix(context, {n, col_ptr[n], col_ptr, row_idx, values});
    const cuda::Rows<double> by_rows(context, a.pattern(), a.values.get(), false);
    const int64_t blocks = by_rows.blocks();
    const cuda::Buffer<double> from(context, n), to(context, n), sums(context, 2 * blocks);
    const cuda::Buffer<int32_t> rows(context, n), finishes(context, blocks);
    from.CopyIn(x, n);
    to.Fill(0);
    rows.Fill(0);
    finishes.Fill(0);
    sums.Fill(0);
    for (int i = 0; i < launches; ++i) {
      cuda::LaunchProduct(cuda::Branch{context.stream}, by_rows, from.get(), to.get(),
                          Counting{from.get(), rows.get(), finishes.get(), sums.get(), skip});
    }
    result->y.resize(static_cast<size_t>(n));
    result->rows.resize(static_cast<size_t>(n));
    result->finishes.resize(static_cast<size_t>(blocks));
    std::vector<double> block_sums(static_cast<size_t>(2 * blocks));
    to.CopyOut(result->y.data(), n);
    rows.CopyOut(result->rows.data(), n);
    finishes.CopyOut(result->finishes.data(), blocks);
    sums.CopyOut(block_sums.data(), 2 * blocks);
    context.Synchronize();
    for (size_t i = 0; i < block_sums.size(); ++i) result->sums[i % 2] += block_sums[i];
    return "";
  } catch (const cuda::Failure& failure) {
    return failure.what();
  }
}

}  // namespace spaid::kernels::krylov_test
