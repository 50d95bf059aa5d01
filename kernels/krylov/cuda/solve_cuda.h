// One right-hand side on its way through a Krylov method on a device.
//
// A method's iteration is a few kernels whose scalars stay on the device: the last block of each
// reduction computes what follows from it (SumGrid) and stores it in a SolveState. Iterations are
// launched some at a time, as one CUDA graph, with the state of the batch before on its way to the
// host; a kernel that finds the state not running does nothing. So nothing waits for the host but
// the end of a segment, where the host holds the recursion against the truth
// (kernels/krylov/judge.h has that policy, and all of the texts).
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <variant>

#include "kernels/base/cuda/context_cuda.h"
#include "kernels/krylov/cuda/node_product_cuda.h"
#include "kernels/krylov/cuda/operator_cuda.h"
#include "kernels/krylov/cuda/product_cuda.h"
#include "kernels/krylov/cuda/sums_cuda.h"

namespace spaid::cuda {

// Iterations of a segment, at most.
inline constexpr int kMostIterations = 128;

struct SolveState {
  int32_t status;     // SpaidCudaSolveStatus
  int32_t iteration;  // of this segment, done
  int32_t limit;      // of those
  int32_t fresh;      // the direction is to be set from the residual alone
  int32_t save_best;  // the next kernel that goes through x keeps the iterate before it
  double target;
  double previous_norm, best_norm;  // of the iterate before; of the one that is kept
  double diverged_at;
  double value;  // what the status is about
  double rho;    // CG: rᵀz. BiCGSTAB: the shadow residual's product with r
  double alpha, beta, omega;
  double r_norm, shadow_norm, s_norm;
  double norms[kMostIterations];  // of the recursion's residual, by iteration
};

// The residual norm of an iteration: counts it, and says where the segment ends. By one thread.
__device__ inline void CountIteration(SolveState& state, double norm) {
  state.previous_norm = norm;
  state.norms[state.iteration++] = norm;
  if (!isfinite(norm)) {
    state.status = kSpaidCudaSolveNonFinite;
  } else if (norm <= state.target) {
    state.status = kSpaidCudaSolveUnderTarget;
  } else if (state.iteration >= state.limit) {
    state.status = kSpaidCudaSolvePaused;
  }
}

// The same, with an eye on the best iterate.
__device__ inline void RecordNorm(SolveState& state, double norm) {
  if (norm > state.previous_norm && state.previous_norm < state.best_norm) {
    state.save_best = 1;
    state.best_norm = state.previous_norm;
  }
  CountIteration(state, norm);
}

// y = A x, with an epilogue (product_cuda.h); A is no diagonal.
template <class Epilogue>
void Product(const Context& context, const Operator& op, const double* x, double* y,
             const Epilogue& epilogue) {
  std::visit(
      [&](const auto& own) {
        if constexpr (std::is_same_v<std::decay_t<decltype(own)>, Diagonal>) {
          throw Failure(kSpaidCudaError, "a product with an epilogue by a diagonal");
        } else {
          LaunchProduct(Branch{context.stream}, own, x, y, epilogue);
        }
      },
      op);
}

// The elements of a diagonal operator; null: there is none, or it is another.
inline const double* DiagonalOf(const Operator* op) {
  const auto* diagonal = op != nullptr ? std::get_if<Diagonal>(op) : nullptr;
  return diagonal != nullptr ? diagonal->values.get() : nullptr;
}

class Solve {
 public:
  // A no diagonal; `m` may be null. Allocates all vectors. `x0` null: zero. The operators outlive
  // this.
  Solve(Context& context, const Operator& a, const Operator* m, const double* b, const double* x0);
  virtual ~Solve();
  Solve(const Solve&) = delete;
  Solve& operator=(const Solve&) = delete;

  // r = b − A x, or of the best iterate; waits for its norm. Where `adopt`, the method goes on from
  // it (Begin).
  double TrueResidual(bool of_best, bool adopt);
  // Starts the recursion from the residual that was adopted last.
  void Begin(const SpaidCudaSolveStart& start);
  // `limit` iterations, or fewer: the state says why.
  void Advance(int32_t limit, const SpaidCudaSolveOptions& options, SpaidCudaSolveInfo* info);
  void UseBest();
  void UseGuess();
  void Download(double* x);

  Context& context() const { return context_; }

 protected:
  // Sets the recursion up from r_, with what `start` says; the state has been filled but for the
  // method's own scalars.
  virtual void Start(const SpaidCudaSolveStart& start) = 0;
  // Before a segment: scalars that a pause left unchecked.
  virtual void Resume() = 0;
  virtual void Iterate() = 0;  // one iteration, launched
  // After a segment, where it ended between kernels: x gets what it has not, and the iterate before
  // the last is kept where it was the best.
  virtual void Settle() = 0;
  // x becomes that of the last iteration, where segments leave it behind.
  virtual void Complete() {}
  // Bytes that one iteration moves.
  virtual int64_t bytes_per_iteration() const = 0;

  Buffer<double> Vector() { return Buffer<double>(context_, n_); }
  int blocks() const { return SumBlocks(context_, n_); }
  SolveState* state() const { return state_.get(); }
  SumSpace sums() const { return {partial_.get(), arrived_.get()}; }

  Context& context_;
  const Operator& a_;
  const Operator* const m_;
  const int64_t n_;
  Buffer<double> b_, x0_, x_, best_, r_, scratch_;

 private:
  void LaunchBatch();

  Buffer<SolveState> state_;
  Buffer<double> partial_;
  Buffer<unsigned> arrived_;
  SolveState* const seen_;  // pinned: two, of the last batches
  cudaEvent_t done_[2] = {};
  int batch_ = 0;  // iterations of the graph
  cudaGraphExec_t graph_ = nullptr;
};

std::unique_ptr<Solve> MakeCg(Context& context, const Operator& a, const Operator* m,
                              const double* b, const double* x0);
std::unique_ptr<Solve> MakeBicgstab(Context& context, const Operator& a, const Operator* m,
                                    const double* b, const double* x0);
// `restart`: at least 1, at most n.
std::unique_ptr<Solve> MakeGmres(Context& context, const Operator& a, const Operator* m,
                                 int32_t restart, const double* b, const double* x0);

}  // namespace spaid::cuda
