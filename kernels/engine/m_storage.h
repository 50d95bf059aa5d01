// How a solve stores the values of an explicit M, or of both factors of M = GᵀG: as the request
// says, or (Storage::kAuto) in fp32 where that fits and spares a notable share of the bytes that an
// iteration moves. The rule reads counted bytes and the values' range, never time, so that the same
// request always gets the same answer.
#pragma once

#include <functional>
#include <string>

#include "kernels/base/status.h"
#include "kernels/krylov/krylov.h"

namespace spaid::kernels {

// The bytes of an iteration are the mean over so many: those of GMRES grow within a cycle.
inline constexpr int64_t kCountedIterations = 10;
// Share of these bytes that fp32 must spare.
inline constexpr double kWorthSparing = 0.05;
// Bytes of an iteration from which on they, and not its loops or launches, are its time.
inline constexpr double kWorthBytes = 1 << 20;

struct MStorageCase {
  double bytes_fp64 = 0, bytes_fp32 = 0;  // of an iteration
  std::function<Status()> fits_fp32;      // CheckFitsFloat of M; called where fp32 may be chosen
};

struct MStorage {
  Storage storage = Storage::kFp64;  // kFp64 or kFp32
  std::string reason;                // for people; empty where the request said it
};

// Errors: those of fits_fp32 where `asked` is kFp32.
Result<MStorage> ChooseMStorage(const MStorageCase& m, Storage asked);

}  // namespace spaid::kernels
