// Costs of the QR kernels (qr.h), fitted to times on one H100 80GB HBM3
// (docs/decisions/static-spai.md). They choose between S1 and S2, no more. Devices without figures
// of their own use these.
#pragma once

namespace spaid::kernels::thread_groups_tuning {

// Nanoseconds of the whole device: a problem, a chunk of 32 rows, a column of Â eliminated from a
// chunk.
struct QrCost {
  double problem, chunk, step;
};

// By variant (registers; shared), by exponent of the group's size.
inline constexpr QrCost kCosts[2][9] = {
    {{1.0, 0.1, 0.3},
     {1.0, 0.1, 0.3},
     {0.139, 0, 0.396},
     {1.298, 0, 0.195},
     {2.846, 0, 0.235},
     {5.834, 0, 0.383},
     {10.18, 4.06, 0.62},
     {23.94, 16.7, 1.361},
     {16.50, 19.2, 1.271}},
    {{0.2, 0.3, 0.3},
     {0.1, 0.1, 0.33},
     {0.082, 0, 0.407},
     {2.255, 0, 0.185},
     {10.16, 0, 0.16},
     {6, 2, 0.5},
     {12, 5, 0.8},
     {25, 17, 1.75},
     {25, 17, 1.75}},
};

inline constexpr double kEntryNs = 0.025;  // an entry of Â put in its place, twice
inline constexpr double kBuildUs = 15;     // whatever there is to do
inline constexpr double kLaunchUs = 8;     // a launch
inline constexpr double kStepUs = 0.9;     // a step of a problem that all wait for

// Predictions this far apart were never in the wrong order (worst: 1.6).
inline constexpr double kFarApart = 2;
// Builds by each strategy before one is settled on: the first may wait for kernels to be loaded,
// and single ones scatter.
inline constexpr int kTrials = 3;

}  // namespace spaid::kernels::thread_groups_tuning
