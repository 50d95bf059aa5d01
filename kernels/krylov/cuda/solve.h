// Right-hand sides on their way through a Krylov method on a device, each of them a column: the
// same method for each, with scalars of its own, but A and M are read once for all. One column
// alone goes the same way.
//
// A method's iteration is a few kernels whose scalars stay on the device: the last block of each
// reduction computes what follows from it (SumGrid) and stores it in a SolveState. Iterations are
// launched some at a time, as one CUDA graph, with the state of the batch before on its way to the
// host; a kernel does nothing for a column whose state it finds not running. So nothing waits for
// the host but the end of a segment, which is that of all columns, where the host holds the
// recursion against the truth (kernels/krylov/judge.h has that policy, and all of the texts).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/fused_steps.h"
#include "kernels/krylov/cuda/operator.h"

namespace spaid::cuda {

// The elements of a diagonal operator; null: there is none, or it is another.
inline const double* DiagonalOf(const Operator* op) {
  const auto* diagonal = op != nullptr ? std::get_if<Diagonal>(op) : nullptr;
  return diagonal != nullptr ? diagonal->values.get() : nullptr;
}

// A preconditioner: none, `first`, or `then` times `first` (of GᵀG: Gᵀ and G), none of the two a
// diagonal.
struct Factors {
  const Operator* first = nullptr;
  const Operator* then = nullptr;
};

// On the host.
struct RightHandSides {
  int columns;              // 1, 2 or 4
  const double* const* b;   // where each is
  const double* const* x0;  // the same; null, or of a column: zero
};

// use(std::integral_constant<int, columns>{}).
template <class Use>
auto WithColumns(int columns, const Use& use) {
  switch (columns) {
    case 1:
      return use(std::integral_constant<int, 1>{});
    case 2:
      return use(std::integral_constant<int, 2>{});
    case 4:
      return use(std::integral_constant<int, 4>{});
    default:
      throw Failure(CudaFault::kError,
                    "no kernels for so many columns: " + std::to_string(columns));
  }
}

// Bytes that one iteration moves at the least: once for all columns, and for each of them.
struct Traffic {
  int64_t matrices, vectors;
};

class Solve {
 public:
  // A is no diagonal. Allocates all vectors. The operators outlive this.
  Solve(Context& context, const Operator& a, const Factors& m, const RightHandSides& rhs);
  virtual ~Solve();
  Solve(const Solve&) = delete;
  Solve& operator=(const Solve&) = delete;

  // r = b − A x of the column, or of its best iterate; waits for its norm. Where `adopt`, the
  // method goes on from it (Begin).
  double TrueResidual(int column, bool of_best, bool adopt);
  // Starts the recursion from the residual that was adopted last.
  void Begin(int column, const kernels::CudaSolveStart& start);
  // `limits[v]` iterations of column v, or fewer: its state says why. Returns milliseconds.
  double Advance(const int32_t* limits, const kernels::CudaOnNorms& on_norms,
                 kernels::CudaSegment* segments);
  void UseBest(int column);
  void UseGuess(int column);
  void Download(double* const* x);

  Context& context() const { return context_; }

 protected:
  // Sets the recursion up from the column of r_, with what `start` says; the state has been filled
  // but for the method's own scalars.
  virtual void Start(int column, const kernels::CudaSolveStart& start) = 0;
  // Before a segment: scalars that a pause left unchecked.
  virtual void Resume() = 0;
  virtual void Iterate() = 0;  // one iteration, launched
  // Some of them in one launch, that stays (fused_steps.h) or on the chip; false: it cannot.
  virtual bool Stay(int) { return false; }
  // After a segment, where it ended between kernels: x gets what it has not, and the iterate before
  // the last is kept where it was the best.
  virtual void Settle() = 0;
  // x gets what it has not, where a method leaves it behind from segment to segment.
  virtual void Complete() {}
  virtual Traffic traffic() const = 0;

  // Of so many products with A and with M, where there is one, and so many passes over a vector.
  Traffic Count(int64_t products, int64_t passes) const;
  Buffer<double> Vector() { return Buffer<double>(context_, n_ * columns_); }
  int blocks() const { return SumBlocks(context_, n_); }
  SolveState* states() const { return states_.get(); }  // of each column
  SumSpace sums() const { return {partial_.get(), arrived_.get()}; }

  Context& context_;
  const Operator& a_;
  const Factors m_;
  const int64_t n_;
  const int columns_;
  Buffer<double> b_, x0_, x_, best_, r_, scratch_;
  Buffer<double> between_;  // the factors of M: what the first gives

 private:
  void Upload(const double* const* from, const Buffer<double>& to);
  void CopyColumn(int column, const Buffer<double>& from, const Buffer<double>& to);
  // b − A v into the `wanted` columns of scratch_ (bit v), and their norms.
  void FindResiduals(uint32_t wanted, const Buffer<double>& v);
  void LaunchBatch();

  Buffer<SolveState> states_;
  Buffer<double> partial_;
  Buffer<unsigned> arrived_;
  SolveState* const seen_;           // pinned: of the last two batches, all columns
  uint32_t known_ = 0;               // columns of scratch_ that are b − A x
  double norms_[kMostColumns] = {};  // of those of scratch_
  cudaEvent_t done_[2] = {};
  bool stays_ = true;  // until it cannot
  int batch_ = 0;      // iterations of a launch
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
