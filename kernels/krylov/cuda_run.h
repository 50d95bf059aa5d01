// One right-hand side on its way through a method on a CUDA device: the judge of it, and what the
// device is asked to do.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/krylov/judge.h"
#include "kernels/krylov/krylov_cuda.h"

namespace spaid::kernels::krylov {

class CudaRun final : public Judge {
 public:
  // The device's lock is held.
  CudaRun(const CudaOperator& a, const CudaOperator* m, const System& system, const Terms& terms,
          SolveCudaTimings* timings, RhsResult* out);

  // All of it: x and the outcome. Errors: those of CudaDevice::Failed.
  Status Conduct();

 private:
  double TrueResidualOfLast() override { return TrueResidual(false, false); }
  double TrueResidualOfBest() override { return TrueResidual(true, false); }
  void UseBest() override { Restore(true); }
  void UseGuess() override { Restore(false); }

  // What the device did wrong is kept in status_: from then on it is asked for nothing more, and
  // norms are NaN.
  bool Ask(int32_t result);
  double TrueResidual(bool of_best, bool adopt);
  void Restore(bool of_best);
  void Begin(double norm);
  void Iterate();
  // After a segment that ended so. True: go on; the recursion starts afresh where it has to.
  bool Continue(const SpaidCudaSolveInfo& info);
  bool Verify(double norm);
  // GMRES: the same after a segment of a cycle.
  bool ContinueCycle(const SpaidCudaSolveInfo& info);
  bool Broken(const char* what);
  bool NonFinite(const char* what);

  static int32_t OnNorms(void* self, const double* norms, int32_t count);

  const CudaOperator& a_;
  const CudaOperator* const m_;
  const System system_;
  const int64_t restart_;
  const SpaidCudaInterface& api_;
  SolveCudaTimings& timings_;
  CudaObject<SpaidCudaSolve> solve_;
  char message_[kCudaMessageBytes] = "";
  Status status_;
  double initial_ = 0;
  int32_t round_ = 0;    // breakdowns
  int64_t columns_ = 0;  // of the cycle of GMRES
  bool finite_ = true;
};

}  // namespace spaid::kernels::krylov
