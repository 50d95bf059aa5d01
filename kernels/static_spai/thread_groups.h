// Groups of threads for the QR path of static SPAI on a device (Chu, Wang, Chen, Gao 2023,
// "GSPAI-Opt"): how many threads solve one local problem, and whether all problems get as many.
// Internal to this room.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/static_spai/local_solver.h"
#include "kernels/static_spai/thread_groups_tuning.h"

namespace spaid::kernels {

inline constexpr int kMaxGroupThreads = 256;  // the paper's nt

// The s with 2^(s-1) < x <= 2^s; 0 for x <= 1.
constexpr int SizeExponent(double x) {
  int s = 0;
  while (static_cast<double>(int64_t{1} << s) < x) ++s;
  return s;
}

// q = min(2^s, nt) with 2^(s-1) < n2 <= 2^s.
constexpr int GroupThreads(int64_t n2) {
  const int64_t q = int64_t{1} << SizeExponent(static_cast<double>(n2));
  return static_cast<int>(q < kMaxGroupThreads ? q : kMaxGroupThreads);
}

// With alpha and beta the exponents of the largest and of the mean n2: S1 where alpha = beta, S2
// where alpha - beta >= 3, S1 between (the paper's table, msdoor and thermal2).
constexpr ThreadStrategy PaperStrategy(int64_t n2_max, double n2_mean) {
  return SizeExponent(static_cast<double>(n2_max)) - SizeExponent(n2_mean) >= 3
             ? ThreadStrategy::kVariable
             : ThreadStrategy::kConstant;
}

// Sizes of thread groups: 2^0 to 2^8.
inline constexpr int kGroupSizes = 9;

// What local problems cost, summed. A problem comes in chunks of 32 rows; every column of Â is
// eliminated from each chunk.
struct QrWork {
  int64_t problems = 0;
  int64_t chunks = 0;
  int64_t steps = 0;    // Σ chunks n2
  int64_t entries = 0;  // of Â
  int64_t longest = 0;  // steps of one problem, at most

  constexpr void Add(const QrWork& other) {
    problems += other.problems;
    chunks += other.chunks;
    steps += other.steps;
    entries += other.entries;
    if (longest < other.longest) longest = other.longest;
  }
};

// The problems whose own group size is 2^s: those whose columns, right-hand sides included, find a
// thread each, and those that have more.
struct QrSize {
  QrWork fit, spill;
};

// Predicted milliseconds of the QR kernels with groups of 2^s threads for all problems, or of each
// problem's own size. Problems without a table (plan.h) cost the same in both and are left
// out.
inline double PredictWorkUs(const QrWork& work, int s, bool spill) {
  namespace tuning = thread_groups_tuning;
  const tuning::QrCost& cost = tuning::kCosts[spill ? 1 : 0][s];
  return 1e-3 * (cost.problem * static_cast<double>(work.problems) +
                 cost.chunk * static_cast<double>(work.chunks) +
                 cost.step * static_cast<double>(work.steps) +
                 tuning::kEntryNs * static_cast<double>(work.entries));
}

// Launches run side by side: the device is busy with all of them, or waits for the longest problem;
// where both take their time, a part of one is not hidden by the other.
inline double PredictMs(int launches, double work_us, int64_t longest) {
  namespace tuning = thread_groups_tuning;
  if (launches == 0) return 0;
  const double waiting = tuning::kStepUs * static_cast<double>(longest);
  return 1e-3 * (tuning::kBuildUs + tuning::kLaunchUs * launches +
                 std::sqrt(work_us * work_us + waiting * waiting));
}

inline double PredictConstantMs(const QrSize (&sizes)[kGroupSizes], int s) {
  QrWork fit, spill;
  for (int own = 0; own < kGroupSizes; ++own) {
    fit.Add(sizes[own].fit);
    (own < s ? fit : spill).Add(sizes[own].spill);
  }
  return PredictMs((fit.problems > 0 ? 1 : 0) + (spill.problems > 0 ? 1 : 0),
                   PredictWorkUs(fit, s, false) + PredictWorkUs(spill, s, true),
                   fit.longest > spill.longest ? fit.longest : spill.longest);
}

inline double PredictVariableMs(const QrSize (&sizes)[kGroupSizes]) {
  int launches = 0;
  double us = 0;
  int64_t longest = 0;
  for (int s = 0; s < kGroupSizes; ++s) {
    for (const QrWork* work : {&sizes[s].fit, &sizes[s].spill}) {
      if (work->problems == 0) continue;
      ++launches;
      us += PredictWorkUs(*work, s, work == &sizes[s].spill);
      if (longest < work->longest) longest = work->longest;
    }
  }
  return PredictMs(launches, us, longest);
}

// AUTO. The model decides where its predictions are far apart; where they are not, the first builds
// of a plan try both strategies, and those that follow take the one that was faster. Not
// thread-safe.
class StrategyTrials {
 public:
  void Add(ThreadStrategy strategy, double ms) {
    Trial& trial = of(strategy);
    if (trial.runs == 0 || ms < trial.best_ms) trial.best_ms = ms;
    ++trial.runs;
  }

  // CONSTANT or VARIABLE, for the next build.
  ThreadStrategy Choose(double constant_ms, double variable_ms) const {
    namespace tuning = thread_groups_tuning;
    const ThreadStrategy predicted =
        constant_ms < variable_ms ? ThreadStrategy::kConstant : ThreadStrategy::kVariable;
    if (constant_ms > tuning::kFarApart * variable_ms ||
        variable_ms > tuning::kFarApart * constant_ms) {
      return predicted;
    }
    const Trial &own = of(predicted), &other = of(Other(predicted));
    if (own.runs >= tuning::kTrials && other.runs >= tuning::kTrials) {
      return own.best_ms <= other.best_ms ? predicted : Other(predicted);
    }
    return own.runs <= other.runs ? predicted : Other(predicted);
  }

 private:
  struct Trial {
    int runs = 0;
    double best_ms = 0;
  };
  static constexpr ThreadStrategy Other(ThreadStrategy strategy) {
    return strategy == ThreadStrategy::kConstant ? ThreadStrategy::kVariable
                                                 : ThreadStrategy::kConstant;
  }
  static constexpr int Index(ThreadStrategy strategy) {
    return strategy == ThreadStrategy::kConstant ? 0 : 1;
  }
  Trial& of(ThreadStrategy strategy) { return trials_[Index(strategy)]; }
  const Trial& of(ThreadStrategy strategy) const { return trials_[Index(strategy)]; }

  Trial trials_[2];
};

}  // namespace spaid::kernels
