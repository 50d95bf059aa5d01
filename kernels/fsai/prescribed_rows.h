// Rows of G on given patterns. Internal to this room and its tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/dense/simd.h"
#include "kernels/fsai/fsai.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/local_rows.h"
#include "kernels/fsai/row_batches.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {

// Solves A[Q,Q], Q the pattern with the diagonal: L Lᵀ = A[Q,Q], and the row of G is the last one
// of L⁻¹. Neighbouring rows whose patterns are nested, each the one before and its own diagonal
// (the unknowns of a node), are rows of one L⁻¹. Not thread-safe: one for each thread.
class PrescribedRows {
 public:
  // Borrows both.
  PrescribedRows(const SymmetricMatrix& a, const FsaiOptions& options);

  // Rows [begin, end) of `pattern` (CheckLowerPattern): values as its entries stand, ψ / a_ii by
  // row. False: `stop` asked for it. Throws std::bad_alloc.
  bool Solve(const PatternView& pattern, int64_t begin, int64_t end, const StopToken& stop,
             double* values, double* psi_ratio, RowTally& tally);

 private:
  struct LocalEntry {
    int32_t row;
    double value;
  };

  bool Factor(std::span<const int32_t> set);
  void SolveAlone(std::span<const int32_t> set, double* values, double* psi_ratio, RowTally& tally);
  bool SolveByCg(std::span<const int32_t> set, const StopToken& stop, double* values,
                 double* psi_ratio, RowTally& tally);
  void Keep(int64_t i, double energy, double* values, int64_t size, double* psi_ratio) const;

  const SymmetricMatrix& a_;
  const FsaiOptions options_;
  LocalRows local_;
  AlignedBuffer matrix_, inverse_, x_;
  std::unique_ptr<RowGrower> grower_;
  std::vector<RowEntry> entries_;
  std::vector<double> ratios_;
  std::vector<std::vector<LocalEntry>> columns_;
};

}  // namespace spaid::kernels
