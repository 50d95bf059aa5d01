// Plans and builds of static SPAI on a CUDA device, as libspaid_cuda.so makes them
// (CudaMatrix::PlanStaticSpai). See kernels/base/cuda_backend.h for errors and threads.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/sparse/cuda_matrix.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

struct CudaPlanFigures {
  int64_t nnz_m = 0;         // of the whole M
  int64_t first_entry = 0;   // where the entries of the plan's columns begin in that
  int64_t entries = 0;       // of the plan's columns
  int64_t groups = 0;        // of columns with equal J
  int64_t structures = 0;    // kinds of local problems
  int64_t host_groups = 0;   // too large for the Gram kernels: left to the host
  int64_t device_bytes = 0;  // that the plan holds
  int64_t peak_bytes = 0;    // of the context while it was made
  double ms = 0;             // by the device's clock
  double pattern_ms = 0;     // of those, for the pattern of M
  int64_t table_bytes = 0;   // of the gather tables of all structures
  bool in_waves = false;     // those have no room, and each build makes them in waves of groups
  bool of_a = false;         // M has the pattern of A, which the host has
};

struct CudaBuildFigures {
  double ms = 0;  // by the device's clock
  int64_t peak_bytes = 0;
  int64_t nnz_m = 0;  // entries of M on the device
  // M has a pattern of its own (CudaSpaiM::DownloadPattern), after the post-filter; else the
  // plan's. So where there is a post-filter, the plan is for all columns, none is left to the host,
  // and memory suffices.
  bool compacted = false;
  // Where QR was asked for: what the thread groups of problems with at most 128 columns took and
  // were predicted to take, and the strategy that was chosen.
  double qr_ms = 0, predicted_qr_ms = 0;
  ThreadStrategy thread_strategy = ThreadStrategy::kAuto;
  int64_t rescued_groups = 0;  // that the Gram path gave up and QR solved, or left to the host
};

// A built M.
class CudaSpaiM {
 public:
  virtual ~CudaSpaiM() = default;
  CudaBuildFigures figures;

  // The values of the plan's columns, or of an M that is compacted, and for each column
  // ‖A m_k − e_k‖₂, the smallest scaled pivot, and flags (ColumnFlag); 0: the column is left to the
  // host, its other figures are worth nothing. Null after Trim: the last three.
  virtual Status Download(double* values, double* residual_norms, double* pivots,
                          uint8_t* flags) const = 0;
  // n + 1 pointers and nnz_m rows of an M that is compacted.
  virtual Status DownloadPattern(int64_t* col_ptr, int32_t* row_idx) const = 0;
  // Frees all of it but the values, and the pattern where that is its own.
  virtual void Trim() = 0;
  // As CudaMatrix::LayOut. Columns that were left to the host are zero. The plan, which is for all
  // columns, must still be there where M is not compacted.
  virtual Result<std::unique_ptr<CudaLayout>> LayOut(bool fp32) const = 0;
};

class CudaSpaiPlan {
 public:
  virtual ~CudaSpaiPlan() = default;
  CudaPlanFigures figures;

  // Of the plan's columns in the pattern of M: their pointers, from first_entry on (behind those of
  // the last columns stands nnz_m), and the rows of their entries.
  virtual Status DownloadPattern(int64_t* col_ptr, int32_t* row_idx) const = 0;
  // `a`: with the plan's pattern. Small entries (options.post_filter) become zeros, and are left
  // out where M is compacted. Errors besides: stop statuses.
  virtual Result<std::unique_ptr<CudaSpaiM>> Build(const CudaMatrix& a,
                                                   const StaticSpaiOptions& options,
                                                   const Context& context) = 0;
};

}  // namespace spaid::kernels
