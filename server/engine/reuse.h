// The M of an earlier A in time steps: how a request wants it treated, how many iterations it once
// took, and how the parts of a solve that changes its M become one result. No threads, no jobs, no
// clock: the same counts end the same way.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/krylov/krylov.h"

namespace spaid::server {

enum class ReuseMode { kKeep, kRebuild, kAuto };

inline constexpr double kReuseFactor = 1.5;

// Read where a solve names a preconditioner.
struct ReusePolicy {
  ReuseMode mode = ReuseMode::kKeep;
  double factor = kReuseFactor;  // >= 1, finite
};

// Holds what an iteration count depends on beside A, b and M; lengths that the method does not read
// are 0.
struct SolveTerms {
  kernels::Method method = kernels::Method::kAuto;
  double rtol = 0, atol = 0;
  int64_t restart = 0, basis_bytes = 0, shadow_vectors = 0;
  bool guess = false;  // it starts from one

  // `options.method` resolved.
  static SolveTerms Of(const kernels::SolveOptions& options, bool guess);
  friend bool operator==(const SolveTerms&, const SolveTerms&) = default;
};

// Remembers the iterations of the first converged solve with one M, for each of the last few terms.
// Thread-safe.
class FirstCounts {
 public:
  static constexpr size_t kMost = 16;     // terms; beyond, the oldest go
  static constexpr size_t kBytes = 2048;  // that it takes, at most

  // Returns what is known of the terms; of those with a guess, if nothing is, what is of the same
  // without one, which is no smaller as a rule.
  std::optional<int64_t> Find(const SolveTerms& terms) const;
  // Keeps the first count of its terms; others change nothing, nor do those below 1, which say
  // nothing of M.
  void Record(const SolveTerms& terms, int64_t iterations);

 private:
  const int64_t* FindLocked(const SolveTerms& terms) const;

  mutable std::mutex mutex_;
  std::vector<std::pair<SolveTerms, int64_t>> counts_;
};
static_assert(sizeof(FirstCounts) + FirstCounts::kMost * sizeof(std::pair<SolveTerms, int64_t>) <=
              FirstCounts::kBytes);

// Some of a job's right-hand sides, by their numbers, with the iterations that each has behind it.
struct SolveLeg {
  std::vector<int32_t> rhs;
  int64_t before = 0;
};

// Returns `factor` times `first`, rounded up, and at most `most`.
int64_t AllowedIterations(double factor, int64_t first, int64_t most);
int64_t MostIterations(const kernels::SolveResult& solved);
bool AllConverged(const kernels::SolveResult& solved);
// Returns whether another M may mend how it ended: it has not converged, was not told to stop, and
// there is an x that solves it.
bool MayMend(const kernels::RhsResult& rhs);

// Returns the legs of a solve that is to go on: open right-hand sides with iterations left of
// `most`, those that have the same number behind them together. `spent_alone`: only those that ran
// out of iterations.
std::vector<SolveLeg> LegsLeft(const kernels::SolveResult& solved, int64_t most, bool spent_alone);
// Copies the columns of `all`, n numbers each, that a leg is of.
kernels::Array<double> ColumnsOf(const SolveLeg& leg, std::span<const double> all, int64_t n);
// Takes a leg's result in place of what `all` has of its right-hand sides; iterations, times and
// figures are those of both.
void AddLeg(const SolveLeg& leg, int64_t n, kernels::SolveResult more, kernels::SolveResult* all);

}  // namespace spaid::server
