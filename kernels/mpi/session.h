// A rank between its orders (orders.h), and how it carries them out: the same on all
// ranks, but that rank 0 has what came from outside and what goes there. Internal to this room.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/mpi/hybrid_fsai.h"
#include "kernels/mpi/hybrid_spai.h"
#include "kernels/mpi/orders.h"
#include "kernels/mpi/ranks_device.h"
#include "kernels/mpi/spread_input.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/mpi/spread_null_space.h"
#include "kernels/mpi/spread_output.h"
#include "kernels/mpi/spread_pattern.h"
#include "kernels/sparse/diagnosis.h"

namespace spaid::kernels::mpi {

// An order's arguments and results that rank 0 alone has; what an order does not read stays empty.
struct AtRoot {
  Context context;                        // stop and progress are read
  const CscView* matrix = nullptr;        // kSpread
  const PatternView* pattern = nullptr;   // kPlan, kGrow, kFsai
  std::span<const int64_t> pointers;      // kBegin
  std::span<const int32_t> indices;       // kIndices
  std::span<const double> values;         // kValues
  std::span<const double> b, x0;          // kSolve
  std::span<const double> near_null;      // kPetsc: n x count
  const NullSpace* null_space = nullptr;  // kSolve
  std::span<const double> x;              // kMultiply
  std::span<double> y;                    // kMultiply
  // kPiece: one of these, by Order::array.
  std::span<int64_t> pointers_to;
  std::span<int32_t> indices_to;
  std::span<double> values_to;
  int64_t bytes = 0;           // of what was made, on all ranks
  int64_t nnz = 0;             // of what was made
  Diagnosis diagnosis;         // kArrived
  DynamicSpaiQuality growth;   // kGrow
  RanksDevice::Built built;    // kBuild, kFsai, kPetsc, kJacobi: all but `there`
  SolveResult solved;          // kSolve
  bool same = false;           // kSame
  RanksDevice::Shares shares;  // kArrived
};

// One for each process. Not thread-safe: collective, as all here, on the one thread that MPI has.
class Session {
 public:
  // `threads`: that this rank computes with.
  Session(MPI_Comm comm, int threads) : comm_(comm), threads_(threads) {}

  // `root`: on rank 0; null elsewhere. Returns the same on all ranks.
  Status Do(const Order& order, AtRoot* root);
  void Clear() { held_.clear(); }  // before PETSc ends; collective

 private:
  // A by columns and rows, or M, or a plan.
  struct Held {
    std::shared_ptr<const SpreadMatrix> matrix;  // outputs borrow its columns
    MatOwner rows;                               // of M, or of G
    MatOwner m;                                  // GᵀG, which borrows rows, or one of PETSc's own
    std::unique_ptr<HybridSpaiPlan> plan;
    std::unique_ptr<SpreadInput> input;  // a matrix that is still to come
    std::unique_ptr<SpreadOutput> output;

    Mat multiplier() const { return m != nullptr ? m.get() : rows.get(); }
  };

  Status Spread(const Order& order, AtRoot* root);
  // The pattern that came with an order, spread as A is; none where it has none. Errors:
  // SpreadWhole's.
  Result<std::optional<SpreadPattern>> UserPattern(const Order& order, const SpreadMatrix& a,
                                                   const AtRoot* root);
  Status Plan(const Order& order, AtRoot* root);
  Status Grow(const Order& order, AtRoot* root);
  // The end of both: a plan of static SPAI, kept.
  Status PlanOn(const Order& order, const SpreadMatrix& a, const SpreadPattern* pattern,
                const StaticSpaiOptions& options, AtRoot* root);
  Status Build(const Order& order, AtRoot* root);
  Status Fsai(const Order& order, AtRoot* root);
  Status Petsc(const Order& order, AtRoot* root);
  Status Jacobi(const Order& order, AtRoot* root);
  Status Multiply(const Order& order, AtRoot* root);
  Status Same(const Order& order, AtRoot* root);
  Status Output(const Order& order, AtRoot* root);
  Status SendPiece(const Order& order, AtRoot* root);
  Status Begin(const Order& order, AtRoot* root);
  Status TakePiece(const Order& order, AtRoot* root);
  Status Arrived(const Order& order, AtRoot* root);
  Status Solve(const Order& order, AtRoot* root);
  Status SolveOne(const SpreadMatrix& a, Mat m, const SpreadNullSpace* space,
                  const SolveOptions& options, bool guess, int64_t rhs, AtRoot* root);
  // Keeps what was made under the order's number, and tells rank 0 its bytes, of all ranks.
  void Keep(const Order& order, Held held, int64_t bytes, int64_t nnz, AtRoot* root);
  Context ContextOf(const AtRoot* root) const;

  const MPI_Comm comm_;
  const int threads_;
  std::map<int64_t, Held> held_;
};

}  // namespace spaid::kernels::mpi
