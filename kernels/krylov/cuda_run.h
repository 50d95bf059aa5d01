// Right-hand sides on their way through a method on a CUDA device: the judge of each, and what the
// device is asked to do, for all of them together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/krylov/judge.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/solve_each.h"

namespace spaid::kernels::krylov {

class CudaRun;

// One right-hand side: a column of the run's solve.
class CudaColumn final : public Judge {
 public:
  CudaColumn(CudaRun* run, int32_t column, const Task& task)
      : Judge(task.terms, task.out),
        run_(*run),
        column_(column),
        system_(task.system),
        restart_(RestartLength(options(), static_cast<int64_t>(system_.b.size()))) {}

  const System& system() const { return system_; }
  int64_t restart() const { return restart_; }  // of GMRES
  bool stop_requested() const { return terms().context->stop.stop_requested(); }

  // From the initial guess.
  void Begin();
  // Iterations of the next segment, at most; 0: this column is over.
  int32_t Limit();
  void OnNorms(std::span<const double> norms);
  // After a segment that ended so: starts afresh where it has to.
  void OnSegment(const CudaSegment& segment);

 private:
  double TrueResidualOfLast() override { return TrueResidual(false, false); }
  double TrueResidualOfBest() override { return TrueResidual(true, false); }
  void UseBest() override { Restore(true); }
  void UseGuess() override { Restore(false); }

  double TrueResidual(bool of_best, bool adopt);
  void Restore(bool of_best);
  void Begin(double norm);
  void Verify(double norm);
  // GMRES: after a segment of a cycle.
  void ContinueCycle(const CudaSegment& segment);
  void Broken(const char* what);
  void NonFinite(const char* what);

  CudaRun& run_;
  const int32_t column_;
  const System system_;
  const int64_t restart_;
  double initial_ = 0;
  int32_t round_ = 0;          // breakdowns
  int64_t basis_columns_ = 0;  // of the cycle of GMRES
};

// Right-hand sides of the next block, where so many are left, at least one.
int ColumnsFor(Method method, int64_t n_rhs);

class CudaRun {
 public:
  // 1, 2 or 4 tasks; GMRES: 1. `lock`: the device's, held but while others have their turn.
  CudaRun(const CudaOperator& a, const CudaOperator* m, std::span<const Task> tasks,
          std::unique_lock<std::mutex>* lock, SolveCudaTimings* timings);

  // Takes the device's memory. Errors: those of cuda_backend.h; nothing has happened then.
  Status Open();
  // All of it: x and the outcomes. Errors: the same.
  Status Conduct();

 private:
  friend class CudaColumn;

  // What the device did wrong is kept in status_: from then on it is asked for nothing more, and
  // norms are NaN.
  bool Ask(Status status);
  void Iterate();
  void YieldIfOver();
  bool OnNorms(int32_t column, std::span<const double> norms);

  const CudaOperator& a_;
  const CudaOperator* const m_;
  std::unique_lock<std::mutex>& lock_;
  SolveCudaTimings& timings_;
  std::vector<std::unique_ptr<CudaColumn>> columns_;
  CudaObject<CudaSolve> solve_;
  Status status_;
};

}  // namespace spaid::kernels::krylov
