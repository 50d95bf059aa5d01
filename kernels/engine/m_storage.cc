#include "kernels/engine/m_storage.h"

#include "kernels/engine/engine_parts.h"

namespace spaid::kernels {

Result<MStorage> ChooseMStorage(const MStorageCase& m, Storage asked) {
  if (asked == Storage::kFp64) return MStorage{Storage::kFp64, ""};
  if (asked == Storage::kFp32) {
    if (Status fits = m.fits_fp32(); !fits.ok()) return fits;
    return MStorage{Storage::kFp32, ""};
  }
  const auto in_fp64 = [](const std::string& why) {
    return MStorage{Storage::kFp64, "fp64: " + why};
  };
  const std::string fp64_mb = Figure(m.bytes_fp64 * 1e-6);
  if (m.bytes_fp64 < kWorthBytes) {
    return in_fp64("an iteration moves " + fp64_mb + " MB, too little for fp32 to pay");
  }
  const std::string moved =
      "an iteration moves " + Figure(m.bytes_fp32 * 1e-6) + " MB, " + fp64_mb + " with fp64";
  if (1 - m.bytes_fp32 / m.bytes_fp64 < kWorthSparing) {
    return in_fp64("with fp32 " + moved + ", which is not worth it");
  }
  if (Status fits = m.fits_fp32(); !fits.ok()) return in_fp64(fits.message());
  return MStorage{Storage::kFp32, "fp32: " + moved};
}

}  // namespace spaid::kernels
