// A solve on a CUDA device for a block of right-hand sides: a judge for each of them, and the calls
// to the device for all together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/krylov/cuda/solve.h"
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
  int64_t restart() const { return restart_; }  // GMRES
  bool stop_requested() const { return terms().context->stop.stop_requested(); }

  // Starts from the initial guess.
  void Begin();
  // Iterations of the next segment, at most; 0: this column is over.
  int32_t Limit();
  void OnNorms(std::span<const double> norms);
  // Takes the result of a segment; starts the recursion afresh where it has to.
  void OnSegment(const cuda::Segment& segment);

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
  void ContinueCycle(const cuda::Segment& segment);
  void Broken(const char* what);
  void NonFinite(const char* what);

  CudaRun& run_;
  const int32_t column_;
  const System system_;
  const int64_t restart_;
  double initial_ = 0;
  int32_t round_ = 0;          // breakdowns
  int64_t basis_columns_ = 0;  // GMRES: in the present cycle
};

class CudaRun {
 public:
  // 1, 2 or 4 tasks; GMRES: 1. `lock`: the device's; released while others have their turn.
  CudaRun(const CudaOperator& a, const CudaOperator* m, std::span<const Task> tasks,
          std::unique_lock<std::mutex>* lock, SolveCudaTimings* timings);

  // Takes the device's memory. Errors: those of CudaDevice::Failed; nothing has happened then.
  Status Open();
  // Runs the solve: fills x and the outcomes. Errors: the same.
  Status Conduct();

 private:
  friend class CudaColumn;

  // Calls work(), unless there has been an error of the device, whose first one status_ keeps:
  // after it the device gets no more calls, and norms are NaN.
  template <class Work>
  bool Ask(const Work& work);
  void Iterate();
  void YieldIfOver();

  const CudaOperator& a_;
  const CudaOperator* const m_;
  std::unique_lock<std::mutex>& lock_;
  SolveCudaTimings& timings_;
  std::vector<std::unique_ptr<CudaColumn>> columns_;
  std::unique_ptr<cuda::Solve> solve_;
  Status status_;
};

}  // namespace spaid::kernels::krylov
