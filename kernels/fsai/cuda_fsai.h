// Builds of FSAI on a CUDA device, as libspaid_cuda.so makes them (CudaMatrix::BuildFsai). See
// kernels/base/cuda_backend.h for errors and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/fsai/fsai.h"
#include "kernels/sparse/cuda_matrix.h"

namespace spaid::kernels {

struct CudaFsaiRequest {
  // Grows where `adaptive`, by k_max steps; else on the given pattern, in either precision.
  FsaiOptions options;
  // Lower triangular by rows, each row's diagonal last: G's, or, adaptive, where growth begins:
  // null is the diagonal then. `there`: the same on the device; null: it is uploaded.
  const PatternView* pattern = nullptr;
  const CudaPattern* there = nullptr;
  std::optional<IndexRange> rows = std::nullopt;  // that are made
};

enum class CudaFsaiFault {
  kNone,
  kNotPositive,   // a diagonal entry is missing, or not positive
  kNotSymmetric,  // a column has an entry without a mirror, or with another than the tolerance lets
};

struct CudaFsaiFigures {
  CudaFsaiFault fault = CudaFsaiFault::kNone;  // of A; there is no G
  int64_t fault_index = 0;                     // the first row, or column
  FsaiQuality quality;                         // counts of the rows made; without Kaporin numbers
  // Means of ln(ψ_i / a_ii) after 0 .. k_max steps, and in the end; of a range the sums over its
  // rows by the number of all.
  std::vector<double> log_ratios;
  double log_ratio = 0;
  double ms = 0;  // by the device's clock
  int64_t peak_bytes = 0;
  int64_t nnz = 0;  // of the rows made
  int waves = 0;    // of rows, as memory allows
};

// G, or its rows of a range; such serve Download alone.
class CudaG {
 public:
  virtual ~CudaG() = default;

  // By rows, the diagonal last: one more pointers than rows, from 0 on, nnz columns and values;
  // ψ_i / a_ii of the rows.
  virtual Status Download(int64_t* row_ptr, int32_t* col_idx, double* values,
                          double* psi_ratio) const = 0;
  // By columns, which the device makes for it, with 20 bytes an entry.
  virtual Status DownloadColumns(int64_t* col_ptr, int32_t* row_idx, double* values) const = 0;
  // Frees ψ: Download is over then.
  virtual void Trim() = 0;
  // G's own, which the two share.
  virtual std::unique_ptr<CudaPattern> Pattern() const = 0;
  // G, or Gᵀ. As CudaMatrix::LayOut.
  virtual Result<std::unique_ptr<CudaLayout>> LayOut(bool transposed, bool fp32) const = 0;
};

struct CudaFsaiBuild {
  std::unique_ptr<CudaG> g;  // null where there is a fault
  CudaFsaiFigures figures;
};

}  // namespace spaid::kernels
