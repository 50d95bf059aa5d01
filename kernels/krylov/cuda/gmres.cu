#include <algorithm>

#include "kernels/krylov/cuda/basis.h"
#include "kernels/krylov/cuda/solve.h"

namespace spaid::cuda {
namespace {

using namespace basis;

// u_0 = r. With `keep` x is the best iterate so far, and is saved.
__global__ void __launch_bounds__(kSumThreads)
    StartKernel(Basis basis, double norm, const double* diagonal, bool keep, const double* x,
                double* best, double* r, SolveState* state) {
  ForOwn<1>(basis.n, [&](int64_t i, int64_t, int) {
    const double own = r[i];
    basis.u[i] = own;
    if (diagonal != nullptr) r[i] = diagonal[i] * own;
    if (keep) best[i] = x[i];
  });
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  *basis.cycle = {};
  basis.inverse[0] = 1 / norm;
  basis.g[0] = norm;
  if (keep) state->best_norm = norm;
}

constexpr int kWeightsThreads = 512;

// Solves R y = g, by one block, where x is to be updated: `always`, or where no iteration of this
// cycle follows.
__global__ void __launch_bounds__(kWeightsThreads)
    WeightsKernel(Basis basis, bool always, const SolveState* state) {
  Cycle& cycle = *basis.cycle;
  const int columns = cycle.columns, thread = static_cast<int>(threadIdx.x);
  const bool goes_on =
      state->status == SegmentEnd::kRunning || state->status == SegmentEnd::kPaused;
  if (columns == 0 || (goes_on && columns < basis.m && !always)) return;
  constexpr int kShared = 2048;
  __shared__ double shared[kShared];
  double* const y = columns <= kShared ? shared : basis.h;
  for (int i = thread; i < columns; i += kWeightsThreads) y[i] = basis.g[i];
  __syncthreads();
  for (int j = columns - 1; j >= 0; --j) {
    const double* const column = basis.RColumn(j);
    const double own = y[j] / column[j];
    for (int i = thread; i < j; i += kWeightsThreads) y[i] -= column[i] * own;
    if (thread == 0) basis.weight[j] = own * basis.inverse[j];
    __syncthreads();
  }
  if (thread == 0) cycle.update = columns;
}

// to += V y, times the diagonal where there is one; without `add`: to = that.
__global__ void __launch_bounds__(kSumThreads)
    UpdateKernel(Basis basis, const double* diagonal, bool add, double* to) {
  const int columns = basis.cycle->update;
  if (columns == 0) return;
  for (int64_t i = int64_t{blockIdx.x} * kSumThreads + threadIdx.x; i < basis.n;
       i += int64_t{gridDim.x} * kSumThreads) {
    double sum = 0;
    for (int j = 0; j < columns; j += kTogether) {
      double u[kTogether];
#pragma unroll
      for (int t = 0; t < kTogether; ++t) u[t] = j + t < columns ? basis.Column(j + t)[i] : 0.0;
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        if (j + t < columns) sum = fma(__ldg(basis.weight + j + t), u[t], sum);
      }
    }
    if (diagonal != nullptr) sum *= diagonal[i];
    to[i] = add ? to[i] + sum : sum;
  }
}

__global__ void UpdatedKernel(Cycle* cycle) {
  if (cycle->update > 0) cycle->update = cycle->columns = 0;
}

// x += z for z = M V y.
__global__ void __launch_bounds__(kSumThreads)
    AddKernel(int64_t n, const double* z, const Cycle* cycle, double* x) {
  if (cycle->update == 0) return;
  ForOwn<1>(n, [&](int64_t i, int64_t, int) { x[i] += z[i]; });
}

// Saad, Schultz 1986; right-preconditioned, Saad 2003, algorithm 9.5, by classical Gram-Schmidt.
class Gmres final : public Solve {
 public:
  Gmres(Context& context, const Operator& a, const Factors& m, int32_t restart,
        const RightHandSides& rhs)
      : Solve(context, a, m, rhs),
        diagonal_(DiagonalOf(m.first)),
        is_explicit_(m.first != nullptr && diagonal_ == nullptr),
        stride_((n_ + kStride - 1) / kStride * kStride),
        restart_(restart),
        grid_(
            static_cast<int>(std::clamp<int64_t>((n_ + kBlockElements - 1) / kBlockElements, 1,
                                                 std::min(kMostBlocks, context.multiprocessors)))),
        staged_(StagedTiles(context, restart)),
        cycle_(context, 1),
        arrived_(context, 1),
        vectors_(context, stride_ * (int64_t{restart} + 1)),
        small_(context, kSmall * (int64_t{restart} + 1)),
        r_columns_(context, int64_t{restart} * (int64_t{restart} + 1) / 2),
        partial_(context, grid_ * (int64_t{restart} + 1)) {
    if (is_explicit_) z_ = Vector();
    cycle_.Fill(0);
    arrived_.Fill(0);
    if (stride_ > n_) {
      Check(cudaMemset2DAsync(vectors_.get() + n_, 8 * stride_, 0, 8 * (stride_ - n_), restart + 1,
                              context.stream),
            "cudaMemset2DAsync");
    }
  }

 private:
  static constexpr int64_t kStride = 64;  // columns are a multiple of this long: whole tiles
  static constexpr int64_t kBlockElements = 512;
  static constexpr int kTileBytes = kTile * 8;
  static constexpr int64_t kSmall = 8;  // vectors of m + 1

  void Start(int, const SolveStart& start) override {
    StartKernel<<<blocks(), kSumThreads, 0, context_.stream>>>(
        basis(), start.norm, diagonal_, start.norm < start.best_norm, x_.get(), best_.get(),
        r_.get(), states());
    CheckLaunch("StartKernel");
  }

  void Resume() override {}

  // r_ is the vector that A, or an explicit M, multiplies.
  void Iterate() override {
    const ProductEnd<1, 0> plain{{states(), sums()}};
    if (m_.then != nullptr) {
      Product(context_, *m_.first, r_.get(), between_.get(), plain);
      Product(context_, *m_.then, between_.get(), z_.get(), plain);
    } else if (is_explicit_) {
      Product(context_, *m_.first, r_.get(), z_.get(), plain);
    }
    Product(context_, a_, is_explicit_ ? z_.get() : r_.get(), scratch_.get(), plain);
    LaunchPass<Pass::kProducts>();
    LaunchPass<Pass::kFirst>();
    LaunchPass<Pass::kSecond>();
  }

  void Settle() override { Update(false); }
  void Complete() override { Update(true); }

  // Tiles for all warps of kFirst, as many as the shared memory of a block holds.
  static int StagedTiles(const Context& context, int32_t restart) {
    int most = 0;
    Check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.ordinal),
          "cudaDeviceGetAttribute");
    cudaFuncAttributes kernel{};
    Check(cudaFuncGetAttributes(&kernel, BasisKernel<Pass::kFirst>), "cudaFuncGetAttributes");
    const int room = (most - static_cast<int>(kernel.sharedSizeBytes)) / kTileBytes;
    // An attribute of the kernel, not of this solve: the same for all.
    Check(cudaFuncSetAttribute(BasisKernel<Pass::kFirst>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, room * kTileBytes),
          "cudaFuncSetAttribute");
    return std::min(room, kThreadsOf<Pass::kFirst> / 32 * std::min(restart, kChunk));
  }

  template <Pass kPass>
  void LaunchPass() {
    const int bytes = kPass == Pass::kFirst ? staged_ * kTileBytes : 0;
    BasisKernel<kPass><<<grid_, kThreadsOf<kPass>, bytes, context_.stream>>>(
        basis(), scratch_.get(), diagonal_, r_.get(), staged_, states());
    CheckLaunch("BasisKernel");
  }

  // x += M V y, which ends the cycle.
  void Update(bool always) {
    WeightsKernel<<<1, kWeightsThreads, 0, context_.stream>>>(basis(), always, states());
    CheckLaunch("WeightsKernel");
    UpdateKernel<<<blocks(), kSumThreads, 0, context_.stream>>>(basis(), diagonal_, !is_explicit_,
                                                                is_explicit_ ? r_.get() : x_.get());
    CheckLaunch("UpdateKernel");
    if (is_explicit_) {
      if (m_.then != nullptr) {
        Apply(context_, *m_.first, r_.get(), between_.get());
        Apply(context_, *m_.then, between_.get(), z_.get());
      } else {
        Apply(context_, *m_.first, r_.get(), z_.get());
      }
      AddKernel<<<blocks(), kSumThreads, 0, context_.stream>>>(n_, z_.get(), cycle_.get(),
                                                               x_.get());
      CheckLaunch("AddKernel");
    }
    UpdatedKernel<<<1, 1, 0, context_.stream>>>(cycle_.get());
    CheckLaunch("UpdatedKernel");
  }

  // Mean over a cycle: each of two passes reads half of the basis, and the update reads all of it
  // once.
  Traffic traffic() const override {
    Traffic bytes = Count(1, restart_ + 6);
    // A diagonal M is read while the basis is written, not by a product.
    if (diagonal_ != nullptr) bytes = {bytes.matrices, bytes.vectors - 16 * n_};
    return bytes;
  }

  Basis basis() const {
    const auto small = [this](int i) { return small_.get() + i * (int64_t{restart_} + 1); };
    return {.n = n_,
            .stride = stride_,
            .m = restart_,
            .cycle = cycle_.get(),
            .u = vectors_.get(),
            .inverse = small(0),
            .h = small(1),
            .correction = small(2),
            .factor = small(3),
            .cosine = small(4),
            .sine = small(5),
            .g = small(6),
            .weight = small(7),
            .r = r_columns_.get(),
            .partial = partial_.get(),
            .arrived = arrived_.get()};
  }

  const double* const diagonal_;  // M's; null: M is none, or explicit
  const bool is_explicit_;
  const int64_t stride_;
  const int32_t restart_;
  const int grid_, staged_;
  Buffer<Cycle> cycle_;
  Buffer<unsigned> arrived_;
  Buffer<double> vectors_, small_, r_columns_, partial_, z_;
};

}  // namespace

std::unique_ptr<Solve> MakeGmres(Context& context, const Operator& a, const Factors& m,
                                 int32_t restart, const RightHandSides& rhs) {
  if (rhs.columns != 1) throw Failure(CudaFault::kError, "GMRES takes one right-hand side");
  return std::make_unique<Gmres>(context, a, m, restart, rhs);
}

}  // namespace spaid::cuda
