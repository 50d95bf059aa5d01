// How a solve stores an explicit M, or both factors of M = GᵀG: as it was told, or (Storage::kAuto)
// by a trial.
//
// The trial is cheap, and the same request always ends the same: it weighs counted bytes and
// residuals, never time. M goes in fp32 unless that spares an iteration next to nothing, or M does
// not fit. After kTrialIterations the first right-hand side says how many are to come: few, and the
// solve goes on; many, and it ends there, as many are done with M in fp64, and the solve begins
// again with what brought the residual down by fewer bytes.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

inline constexpr int64_t kTrialIterations = 10;
// Predicted iterations up to which there is no trial: above, it costs less than a twentieth of
// them.
inline constexpr int64_t kNoTrialUpTo = 40 * kTrialIterations;
// What fp32 must spare of the bytes of an iteration.
inline constexpr double kWorthSharing = 0.05;
// Bytes of an iteration from which on they, and not its loops or launches, are its time.
inline constexpr double kWorthBytes = 1 << 20;

struct MStorageCase {
  int64_t n = 0;
  double bytes_fp64 = 0, bytes_fp32 = 0;  // of an iteration
  std::function<Status()> fits_fp32;      // CheckFitsFloat of M
};

// A solve with M stored so, kFp64 or kFp32, of these right-hand sides: all, or the first.
using SolveStored = std::function<Result<SolveResult>(
    Storage, std::span<const double> b, const SolveOptions& options, const Context& context)>;

// By options.m_storage; fills m_storage, storage_reason and trial_ms of the result. Of a trial
// context.progress hears nothing. Errors: those of `solve`; of kFp32 those of CheckFitsFloat.
Result<SolveResult> SolveByStorage(const MStorageCase& m, std::span<const double> b,
                                   const SolveOptions& options, const Context& context,
                                   const SolveStored& solve);

}  // namespace spaid::kernels
