// Multigrid on a CUDA device: its set-up and its cycle. It is libspaid_cuda.so's; programs call it
// by kernels/engine/cuda_library.h.
//
//   auto built = BuildAmgOnCuda(device, a, {}, options, context);    // nothing: the host's
//   auto again = RebuildAmgOnCuda(device, built->there, a2, {}, context);  // nothing: build anew
//   BuildAmg auto m_there = PlaceAmgOnCuda(device, *built->hierarchy, context, a_there->get());
//   auto result = SolveCuda(**a_there, m_there->get(), a, b, {}, options, context);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/amg/amg.h"
#include "kernels/base/context.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/krylov/krylov_cuda.h"

namespace spaid::kernels {

// Milliseconds by the host's clock unless said otherwise.
struct AmgCudaTimings {
  double host_to_device_ms = 0;
  double device_ms = 0;      // by the device's clock: A there to the hierarchy there
  int64_t device_bytes = 0;  // at once, at most
};

// As BuildAmg, with the host's levels, bit for bit, but that the hierarchy stays on the device
// until the host asks for it (AmgHierarchy::OnHost), and so does the plan; a plan of more than
// MostPlanBytes (set_up_rules.h) is not kept. The spectral bound
// that P is smoothed by is rounded up to a multiple of 1/64: other bits where the power steps come
// within rounding of one. G of FSAI and aFSAI is that of FSAI there (fsai_cuda.h), M of static SPAI
// that of static SPAI: the host's to rounding, which ties in the growth may hang on. Where kAuto
// would be static SPAI and the device leaves columns of M to the host, or has no room, l1-Jacobi
// smooths. Whether A is symmetric is looked at. Nothing where the set-up is the host's:
// MaySetUpOnDevice (amg_estimate.h) does not hold, A's diagonal has a zero or both signs, a factor
// is asked for and A is not symmetric, or G or M has rows too long for the device. Reports
// progress in levels; stops between kernels. Errors besides those of BuildAmg: those of
// CudaDevice::Failed. `timings`: null: not wanted.
Result<std::optional<AmgResult>> BuildAmgOnCuda(const std::shared_ptr<CudaDevice>& device,
                                                const CscView& a, const NearNullInput& near_null,
                                                const AmgOptions& options, const Context& context,
                                                AmgCudaTimings* timings = nullptr);

// As RebuildAmg, by a plan that this device has made, with the bits of the host's RebuildAmg by the
// host's plan of the same matrix, but for G and M, which are made on their patterns of before.
// Nothing, and then all is to be built anew, where A is symmetric and that of the plan was not, or
// the other way round, where the diagonal has a zero, or, of a symmetric A, both signs, and where
// near-null vectors are others in number, or their zeros elsewhere. Errors besides those of
// BuildAmgOnCuda: INVALID_ARGUMENT/PLAN_MISMATCH where A has another pattern, or the plan is
// another device's.
Result<std::optional<AmgResult>> RebuildAmgOnCuda(const std::shared_ptr<CudaDevice>& device,
                                                  const std::shared_ptr<const AmgPlanThere>& plan,
                                                  const CscView& a, const NearNullInput& near_null,
                                                  const Context& context,
                                                  AmgCudaTimings* timings = nullptr);

// Lays a hierarchy out for cycles, in its precision, beside A (CudaOperator): from where it lies,
// or after an upload of the host's, where this device has not made it. A cycle there adds in fp64
// and stores its vectors in the hierarchy's precision, so that it differs from the host's by
// rounding: by 1e-5 of the largest element in fp32, by 1e-12 in fp64. The same bits in every run,
// and whatever right-hand sides go through it together. Errors: stop statuses; those of
// CudaDevice::Failed, and of AmgHierarchy::OnHost.
Result<std::shared_ptr<const CudaOperator>> PlaceAmgOnCuda(
    const std::shared_ptr<CudaDevice>& device, const AmgHierarchy& hierarchy,
    const Context& context, const CudaOperator* beside);

}  // namespace spaid::kernels
