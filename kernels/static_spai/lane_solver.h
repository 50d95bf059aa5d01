// The Gram path of GroupSolver for groups of one structure, eight at a time: one group in each lane
// of a vector, so that every step, down to the smallest factorisation, works on full vectors.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/dense/simd.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/structure.h"

namespace spaid::kernels {

inline constexpr int kLaneGroups = 8;

// Predicted nanoseconds of one group on one thread, where the other lanes are taken as well.
double PredictLaneNs(const LocalCounts& counts, int64_t n2, int64_t columns);

// Whether `solver` takes lanes for groups of these sizes that share a structure: eight of them must
// fit the cache, and `LocalSolver::kAuto` wants it to pay.
bool PrefersLanes(LocalSolver solver, const LocalCounts& counts, int64_t n2, int64_t columns);

// One per thread.
class LaneSolver {
 public:
  // One group: J, and where its columns of M and what is said of them go (one for each target of
  // the structure, as for GroupSolver::Solve).
  struct Group {
    std::span<const int32_t> columns;
    std::span<const int32_t> targets;
    std::span<double* const> values;
    std::span<ColumnOutcome> outcomes;
  };

  // [i] is set where groups[i] was solved. The others are too ill-conditioned for what is done
  // here, and belong to a GroupSolver.
  std::array<bool, kLaneGroups> Solve(const CscView& a, const ColumnScales& scales,
                                      const Structure& structure, const StaticSpaiOptions& options,
                                      std::span<const Group> groups);

  // Upper bound on the bytes held after groups of at most these sizes.
  static int64_t Bytes(const LocalCounts& largest, int64_t n2);

 private:
  struct Job;  // the arguments of one Solve

  // Those of `lanes` whose factor is good enough for one corrected step to suffice.
  Mask8 WellConditioned(Mask8 lanes, int64_t n2, Vec8 determinant);
  // Targets first to first + width - 1 in all lanes; returns the lanes that are solved.
  Mask8 SolveTargets(const Job& job, Mask8 lanes, int first, int width);
  // Stores x scaled back, with the residuals; returns the lanes where all is finite and better
  // than zero.
  Mask8 Store(const Job& job, int first, int width, const Vec8* x, const Vec8* squared);
  void Filter(const Job& job, int first, int width, Vec8* x);

  Vec8* Vectors(AlignedBuffer& buffer, int64_t n) {
    return reinterpret_cast<Vec8*>(buffer.Ensure(n * kLanes));
  }

  Array<int64_t> starts_;
  AlignedBuffer scales_, entries_, gram_, inverse_, solution_, step_;
};

}  // namespace spaid::kernels
