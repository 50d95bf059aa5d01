// What AUTO predicts engines to cost, on the CPU or on a GPU (auto_tuning.h): of counts alone, so
// that no device is needed to ask.
#pragma once

#include <cstdint>

#include "kernels/base/device.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/engine/local_sample.h"
#include "kernels/krylov/krylov.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// What a candidate's costs are counted from.
struct EngineWork {
  EngineKind kind = EngineKind::kJacobi;
  // Of M, or of both factors, that a product reads; 0: a diagonal.
  double entries = 0;
  // Of a set-up that was counted, kStaticSpai's on a pattern that is not A's own; 0: it was not.
  double counted_ms = 0;  // on the CPU
  double counted_flops = 0;
};

class EngineCosts {
 public:
  // Of a solve by `method`, with CG, BiCGSTAB or GMRES, of `n_rhs` right-hand sides, on `backend`;
  // `a` and `sample` are borrowed. `threads`: of the CPU; of a GPU's host costs are those of 16.
  EngineCosts(const CscView& a, const LocalSample& sample, int64_t longest_column, Method method,
              int64_t n_rhs, Backend backend, int threads);

  // Everything that is done once. On a GPU with A's way there, and that of b and x, which the CPU
  // need not wait for.
  double SetupMs(const EngineWork& work) const;
  // An iteration of all right-hand sides.
  double IterationMs(const EngineWork& work) const;
  // What a look at rows of FSAI takes (SampleFsai), where that is no small part of a solve; else 0.
  double LookMs() const;
  // What is built must be predicted to take no more than this of Jacobi's time.
  double worth() const;
  Backend backend() const { return backend_; }
  Method method() const { return method_; }

 private:
  double CpuSetupMs(const EngineWork& work) const;
  double GpuSetupMs(const EngineWork& work) const;
  double GpuIterationMs(const EngineWork& work) const;
  // Beside what the entries of a local problem cost.
  double LongColumnCube() const;

  const LocalSample& sample_;
  const double n_, nnz_, longest_column_;
  const Method method_;
  const int64_t n_rhs_;
  const Backend backend_;
  const int threads_;
};

}  // namespace spaid::kernels
