// Measured numbers of static SPAI on the CPU. They steer speed only; none of them changes what is
// counted or promised. Regenerate with `spaid_bench --benchmark_filter=StaticSpai`.
#pragma once

#include <cstdint>

namespace spaid::kernels::static_spai_tuning {

// Columns with equal J that are solved together at most: more would leave cores idle at the end.
inline constexpr int64_t kMaxGroup = 32;

// Predicted work of one batch of columns, nanoseconds: the grain of cancellation and progress.
// Groups that share structures are collected within a batch, so that it is made larger, up to
// kLaneBatchNs, for kLaneBatch of them: in a smaller one many lanes would stay empty.
inline constexpr int64_t kBatchNs = 200'000;
inline constexpr int64_t kLaneBatchNs = 1'000'000;
inline constexpr int64_t kLaneBatch = 128;

// A column of A is compressed inside a local problem (local_problem.h) where it is longer than this
// and than kLongFactor times all the other columns of the problem together.
inline constexpr int64_t kLongColumn = 256;
inline constexpr int64_t kLongFactor = 2;

// Conditioning of the scaled Gram matrix, as its smallest eigenvalue (the largest is at most n2).
// Rounding moves that by about 1e-15, and each corrected step leaves that share of the error: from
// kGoodEigenvalue on, one step always suffices. Under it steps go on, kWeakSteps at most, until a
// step shows that the one before it was enough; under kLeastEigenvalue (or this many roundings per
// column, where that is more) the factor says nothing about the matrix and QR takes over. sherman2,
// power 2: 1.7e-10; one step leaves a residual 1.5e-4 too large, two meet the rule.
inline constexpr double kGoodEigenvalue = 1e-6;
inline constexpr int kWeakSteps = 4;
inline constexpr double kLeastEigenvalue = 1e-12;
inline constexpr double kLeastRoundings = 64;
// A step is small where it lowers ‖r‖² by at most kStepShare ‖r‖² + kStepNorm ‖r‖: within what the
// rule ‖r‖ <= (1 + 1e-6) ‖r_QR‖ + 1e-10 allows.
inline constexpr double kStepShare = 1e-6;
inline constexpr double kStepNorm = 1e-10;

// From this scaled pivot on (and with a good eigenvalue) the corrected step is left out where the
// solution proves to be at the minimum already, to this tolerance in ‖r‖².
inline constexpr double kStrongPivot = 1e-2;
inline constexpr double kMinimumTolerance = 1e-13;

// Zero has residual 1, so a minimum over it is rounding of an ill-conditioned problem.
inline constexpr double kWorthlessResidual = 1 + 1e-10;

// A factor for the eigenvector's share of z being small after one step.
inline constexpr double kStartShare = 10;

// Rank tolerance of the pivoted QR where an unpivoted one gave a residual worse than zero's.
inline constexpr double kWeakRankTolerance = 1e-12;

// Over either limit a local problem is too large for a dense factor and is solved by CGLS.
inline constexpr int64_t kMaxDenseColumns = 2048;
inline constexpr int64_t kMaxDenseEntries = int64_t{16} << 20;  // 128 MiB of Â a worker

// CGLS stops at ‖Âᵀr‖ <= tolerance * ‖Âᵀe‖, or after the limit, and says which.
inline constexpr double kIterativeTolerance = 1e-12;
inline constexpr int64_t kIterativeLimit = 2000;

// Up to these sizes Â is spread into dense rows (they stay in the first-level cache) and the Gram
// matrix formed from them without a row form.
inline constexpr int64_t kSmallColumns = 32;
inline constexpr int64_t kSmallEntries = 8192;

// Groups whose local problems are shifted copies of one another share a structure where there are
// so many of them, and are solved eight at a time (lane_solver.h) where the eight fit the
// second-level cache: at most kMaxLaneVectors vectors of eight for Â and the Gram matrix (768 KiB).
// More kinds of columns than kMaxClasses are not told apart.
inline constexpr int32_t kMinShared = 32;
inline constexpr int64_t kMaxLaneColumns = 128;
inline constexpr int64_t kMaxLaneVectors = 12288;
inline constexpr int64_t kMaxClasses = 4096;

// Rows of Â with fewer entries are accumulated one product at a time, others by whole vectors.
inline constexpr int64_t kVectorRow = 5;

// Cost model, nanoseconds (AMD EPYC with AVX-512, one thread; fitted to P7, aniso, P27, E80: within
// 25 %).
inline constexpr double kPlanColumnNs = 60;     // plan, per column of M: hash, group, figures
inline constexpr double kPlanIndexNs = 4;       // plan, per entry of M
inline constexpr double kPlanEntryNs = 0.6;     // plan, per entry of A that a group's J names
inline constexpr double kGroupNs = 60;          // per group: assembly of an empty problem
inline constexpr double kEntryNs = 2.2;         // per entry of Â: find I, build Â
inline constexpr double kGramPairNs = 0.12;     // per product of the Gram accumulation
inline constexpr double kGramPanelNs = 130;     // per panel of 8 columns: square roots, divisions
inline constexpr double kGramFlopNs = 0.015;    // per flop of the padded Cholesky
inline constexpr double kGramColumnNs = 100;    // per right-hand side, fixed
inline constexpr double kGramSolveNs = 0.15;    // per right-hand side and entry of L
inline constexpr double kProductNs = 0.8;       // per right-hand side and entry of Â
inline constexpr double kLaneGroupNs = 70;      // in lanes: per group, fixed
inline constexpr double kLaneEntryNs = 0.2;     // per entry of Â
inline constexpr double kLanePairNs = 0.07;     // per product of the Gram accumulation
inline constexpr double kLaneFlopNs = 0.015;    // per flop of the Cholesky
inline constexpr double kLanePivotNs = 4;       // per column of J: square root, division
inline constexpr double kLaneColumnNs = 20;     // per right-hand side, fixed
inline constexpr double kLaneSolveNs = 0.05;    // per right-hand side and entry of L and Lᵀ
inline constexpr double kLaneProductNs = 0.05;  // per right-hand side and entry of Â
inline constexpr double kQrReflectorNs = 60;    // per reflector
inline constexpr double kQrUpdateNs = 2.5;      // per reflector and column that it is applied to
inline constexpr double kQrFlopNs = 0.022;      // per flop

}  // namespace spaid::kernels::static_spai_tuning
