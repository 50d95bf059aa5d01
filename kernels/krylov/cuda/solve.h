// A Krylov solve on a device for one or several right-hand sides, each of them a column: every
// column has its own scalars, but A and M are read once for all.
//
// An iteration is a few kernels whose scalars stay on the device: the last block of each reduction
// computes the scalars that depend on it (SumGrid) and stores them in a SolveState. Iterations are
// launched in batches, each one CUDA graph, while the state after the previous batch is copied to
// the host; a kernel does nothing for a column whose state is not running. So the device waits for
// the host only at the end of a segment, common to all columns, where the host compares the
// recursion's residual with the true one (kernels/krylov/judge.h has that policy, and all texts).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/fused_steps.h"
#include "kernels/krylov/cuda/operator.h"

namespace spaid::cuda {

// The elements of a diagonal operator; null: there is no operator, or it is not diagonal.
inline const double* DiagonalOf(const Operator* op) {
  const auto* diagonal = op != nullptr ? std::get_if<Diagonal>(op) : nullptr;
  return diagonal != nullptr ? diagonal->values.get() : nullptr;
}

// A preconditioner: none, `first`, or `then` · `first` (Gᵀ and G for M = GᵀG), neither of which is
// a diagonal then.
struct Factors {
  const Operator* first = nullptr;
  const Operator* then = nullptr;
};

// Arrays on the host.
struct RightHandSides {
  int columns;              // 1, 2 or 4
  const double* const* b;   // one pointer a column
  const double* const* x0;  // initial guesses; null, for all or for a column: zero
  const int32_t* order;     // on the device: which of theirs is the k-th unknown; null: the k-th
};

class Solve {
 public:
  // A is not a diagonal. Allocates all vectors. The operators must outlive this.
  Solve(Context& context, const Operator& a, const Factors& m, const RightHandSides& rhs);
  virtual ~Solve();
  Solve(const Solve&) = delete;
  Solve& operator=(const Solve&) = delete;

  // The norm of b − A x for the column, or for its best iterate; waits for it. With `adopt` that
  // residual becomes r, from which Begin starts.
  double TrueResidual(int column, bool of_best, bool adopt);
  // Starts the recursion from the residual that was adopted last.
  void Begin(int column, const SolveStart& start);
  // At most limits[v] iterations of column v, of kMostIterations at most; its segment says how
  // many, and why they ended; x is that of the last one (GMRES: of the last cycle). 0: the column
  // stands still, and its segment says nothing. One that is over waits for the others. Without a
  // wait of the device for the host. Returns milliseconds by the device's clock.
  double Advance(const int32_t* limits, const OnNorms& on_norms, Segment* segments);
  void UseBest(int column);
  void UseGuess(int column);
  void Download(double* const* x);

  Context& context() const { return context_; }

 protected:
  // Sets the recursion up from the column of r_; the state is filled except for the method's own
  // scalars.
  virtual void Start(int column, const SolveStart& start) = 0;
  // Before a segment: checks scalars that the end of the previous one left unchecked.
  virtual void Resume() = 0;
  virtual void Iterate() = 0;  // launches one iteration
  // Runs so many iterations in one persistent kernel (fused_steps.h, persistent_smem.h); false: it
  // cannot.
  virtual bool IteratePersistently(int) { return false; }
  // After a segment that ended between kernels: completes x, and saves the iterate before the last
  // where that is the best.
  virtual void Settle() = 0;
  // Completes x, where a method leaves its update open from segment to segment.
  virtual void Complete() {}
  virtual Traffic traffic() const = 0;  // of an iteration

  // Traffic of so many products with A, and as many with M where there is one, and so many passes
  // over a vector.
  Traffic Count(int64_t products, int64_t passes) const;
  Buffer<double> Vector() { return Buffer<double>(context_, n_ * columns_); }
  int blocks() const { return SumBlocks(context_, n_); }
  SolveState* states() const { return states_.get(); }  // one a column
  SumSpace sums() const { return {partial_.get(), arrived_.get()}; }

  Context& context_;
  const Operator& a_;
  const std::optional<Operator> wide_m_;  // of M that is no matrix, for several columns
  const Factors m_;
  const int64_t n_;
  const int columns_;
  Buffer<double> b_, x0_, x_, best_, r_, scratch_;
  Buffer<double> between_;  // with two factors of M: the first one's product

 private:
  const int32_t* const order_;
  void Upload(const double* const* from, const Buffer<double>& to);
  void CopyColumn(int column, const Buffer<double>& from, const Buffer<double>& to);
  // Forms b − A v in the `wanted` columns (a bit each) of scratch_, and their norms.
  void FindResiduals(uint32_t wanted, const Buffer<double>& v);
  void LaunchBatch();

  Buffer<SolveState> states_;
  Buffer<double> partial_;
  Buffer<unsigned> arrived_;
  SolveState* const seen_;           // pinned: states after the last two batches, all columns
  uint32_t known_ = 0;               // columns of scratch_ that are b − A x
  double norms_[kMostColumns] = {};  // norms of these columns
  cudaEvent_t done_[2] = {};
  bool persistent_ = true;  // until IteratePersistently says that it cannot
  int batch_ = 0;           // iterations of a launch
  cudaGraphExec_t graph_ = nullptr;
};

std::unique_ptr<Solve> MakeCg(Context& context, const Operator& a, const Factors& m,
                              const RightHandSides& rhs);
std::unique_ptr<Solve> MakeBicgstab(Context& context, const Operator& a, const Factors& m,
                                    const RightHandSides& rhs);
// One column. `restart`: at least 1, at most n.
std::unique_ptr<Solve> MakeGmres(Context& context, const Operator& a, const Factors& m,
                                 int32_t restart, const RightHandSides& rhs);

}  // namespace spaid::cuda
