// The yardstick: adaptive FSAI on a CUDA device as [aFSAI] structures it (Bernaschi, Carrozzo,
// Franceschini, Janna, SIAM J. Sci. Comput. 41 (2019) C139). In each step, of all rows: a kernel
// that makes the gradient anew, from A and g̃, and adds the index of its largest entry, one warp a
// row; one that gathers A[P̄,P̄] and the right-hand side, one thread a row; and one that factors
// and solves them anew, one thread a row. What a row's thread reads and writes lies interleaved
// with that of its 31 neighbours.
//
// Either of the paper's two ways to the gradient: an indicator of n integers for each warp of a
// launch, so that the rows are launched in parts that these leave memory for; or a merge of the
// sorted rows, one in each lane, in order of their columns, for all rows at once. The merge keeps
// the best index as it goes, no list of candidates: so s = 1 alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spaid::kernels::bench {

enum class FsaiGradient { kIndicator, kMerge };

inline constexpr int kFsaiBaselineSteps = 31;  // a warp holds row i and all of P̄

struct FsaiBaselineOptions {
  FsaiGradient gradient = FsaiGradient::kMerge;
  bool fp32 = false;  // without a scaling: A must be in range
  int k_max = 30;     // 0 .. kFsaiBaselineSteps
  double epsilon = 1e-3;
  // Bytes of the systems (a quarter at most) and the indicators; some are made however little it
  // is. 0: nine tenths of what is free.
  int64_t memory_bytes = 0;
  // Timed, after one that warms up; three at most where that takes over a second.
  int runs = 1;
};

// Milliseconds by the device's clock, from A to G by rows, both resident. Left out: allocation, and
// the indicators' first clearing (each row leaves its own clear).
struct FsaiBaselineTimes {
  double gradient_ms = 0, gather_ms = 0, cholesky_ms = 0, total_ms = 0;
};

struct FsaiBaselineResult {
  FsaiBaselineTimes times;  // of the run with the median total
  // G by rows, ascending, the diagonal last.
  std::vector<int64_t> row_ptr;
  std::vector<int32_t> col_idx;
  std::vector<double> values;
  int64_t not_spd_rows = 0;  // as FsaiQuality's; they keep the entries before
  int64_t warps = 0;         // of a launch of the gradient
  int64_t system_rows = 0;   // of a launch of the other two
};

// A: canonical CSC, n x n, symmetric, its diagonal stored and positive. G as BuildFsai makes it:
// what joins a row, and when it ends, go by fsai.h. Returns CUDA's words where something failed,
// else nothing.
std::string RunFsaiBaseline(int64_t n, const int64_t* col_ptr, const int32_t* row_idx,
                            const double* values, const FsaiBaselineOptions& options,
                            FsaiBaselineResult* result);

}  // namespace spaid::kernels::bench
