#include "kernels/static_spai/lane_solver.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/static_spai/gram_checks.h"
#include "kernels/static_spai/lane_kernels.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {

namespace tuning = static_spai_tuning;

struct LaneSolver::Job {
  const ColumnScales& scales;
  const Structure& structure;
  const StaticSpaiOptions& options;
  std::span<const Group> groups;
  Vec8 pivot;
};

namespace {

Mask8 MaskOf(int lanes) {
  Mask8 mask = {};
  for (int w = 0; w < lanes; ++w) mask[w] = -1;
  return mask;
}

bool None(Mask8 mask) {
  int64_t any = 0;
  for (int w = 0; w < 8; ++w) any |= mask[w];
  return any == 0;
}

}  // namespace

double PredictLaneNs(const LocalCounts& counts, int64_t n2, int64_t columns) {
  const auto n = static_cast<double>(n2), rhs = static_cast<double>(columns);
  const auto entries = static_cast<double>(counts.entries);
  return tuning::kLaneGroupNs + tuning::kLaneEntryNs * entries +
         tuning::kLanePairNs * static_cast<double>(counts.gram_pairs) +
         tuning::kLaneFlopNs * n * n * n / 3 + tuning::kLanePivotNs * n +
         rhs * (tuning::kLaneColumnNs + tuning::kLaneSolveNs * n * n +
                tuning::kLaneProductNs * entries);
}

bool PrefersLanes(LocalSolver solver, const LocalCounts& counts, int64_t n2, int64_t columns) {
  if (solver == LocalSolver::kQr || n2 > tuning::kMaxLaneColumns ||
      counts.entries + PackedSize(n2) > tuning::kMaxLaneVectors) {
    return false;
  }
  return solver == LocalSolver::kGram ||
         PredictLaneNs(counts, n2, columns) <= PredictNs(solver, counts, n2, columns);
}

int64_t LaneSolver::Bytes(const LocalCounts& largest, int64_t n2) {
  const int64_t columns = std::min(n2, tuning::kMaxLaneColumns);
  const int64_t vectors =
      std::min(largest.entries + PackedSize(columns), 2 * tuning::kMaxLaneVectors) +
      columns * (2 + 3 * kMaxLaneWidth);
  return vectors * int64_t{sizeof(Vec8)} + columns * 8 * kLaneGroups + 8 * 64;
}

std::array<bool, kLaneGroups> LaneSolver::Solve(const CscView& a, const ColumnScales& scales,
                                                const Structure& structure,
                                                const StaticSpaiOptions& options,
                                                std::span<const Group> groups) {
  const int64_t n2 = structure.n_cols;
  const auto lanes = static_cast<int>(groups.size());
  starts_.resize(static_cast<size_t>(n2) * kLaneGroups);
  Vec8* factors = Vectors(scales_, n2);
  for (int w = 0; w < kLaneGroups; ++w) {
    // Lanes without a group repeat the first one.
    const std::span<const int32_t> columns = groups[w < lanes ? static_cast<size_t>(w) : 0].columns;
    for (int64_t q = 0; q < n2; ++q) {
      const auto j = static_cast<size_t>(columns[static_cast<size_t>(q)]);
      starts_[static_cast<size_t>(q * kLaneGroups + w)] = a.col_ptr[j];
      factors[q][w] = scales.scale[j];
    }
  }
  Vec8* v = Vectors(entries_, structure.n_entries);
  LoadLanes(structure, a.values.data(), starts_.data(), factors, v);
  Vec8* b = Vectors(gram_, PackedSize(n2));
  LaneGram(structure, v, b);
  Vec8 pivot, determinant;
  Mask8 failed;
  LaneCholesky(n2, options.gram_pivot_limit, b, Vectors(inverse_, n2), &pivot, &determinant,
               &failed);
  const Job job{scales, structure, options, groups, pivot};
  Mask8 good = MaskOf(lanes) & ~failed;
  good = WellConditioned(good, n2, determinant);
  const auto targets = static_cast<int>(structure.targets.size());
  for (int first = 0; first < targets && !None(good); first += kMaxLaneWidth) {
    good &= SolveTargets(job, good, first, std::min(kMaxLaneWidth, targets - first));
  }
  std::array<bool, kLaneGroups> solved;
  for (size_t w = 0; w < kLaneGroups; ++w) solved[w] = good[static_cast<int>(w)] != 0;
  return solved;
}

// As GroupSolver::SmallestEigenvalue.
Mask8 LaneSolver::WellConditioned(Mask8 lanes, int64_t n2, Vec8 determinant) {
  Mask8 good = determinant / 3.0 >= tuning::kGoodEigenvalue;
  if (None(lanes & ~good)) return lanes;
  Vec8* z = Vectors(step_, n2);
  StartSigns signs;
  for (int64_t q = 0; q < n2; ++q) z[q] = Vec8{} + signs.Next();
  const auto step = [&] {  // one of inverse iteration; the norm of what it makes of z
    LaneSolve(n2, 1, reinterpret_cast<const Vec8*>(gram_.data()),
              reinterpret_cast<const Vec8*>(inverse_.data()), z);
    Vec8 squared = {};
    for (int64_t q = 0; q < n2; ++q) squared += z[q] * z[q];
    Vec8 norm;
    for (int w = 0; w < kLaneGroups; ++w) norm[w] = std::sqrt(squared[w]);
    for (int64_t q = 0; q < n2; ++q) z[q] /= norm;
    return norm;
  };
  good |= tuning::kStartShare * step() * tuning::kGoodEigenvalue <= 1.0;
  if (None(lanes & ~good)) return lanes;
  step();
  good |= step() * tuning::kGoodEigenvalue <= 1.0;
  return lanes & good;
}

Mask8 LaneSolver::SolveTargets(const Job& job, Mask8 lanes, int first, int width) {
  const Structure& structure = job.structure;
  const int64_t n2 = structure.n_cols;
  const auto* v = reinterpret_cast<const Vec8*>(entries_.data());
  const auto* l = reinterpret_cast<const Vec8*>(gram_.data());
  const auto* inverse = reinterpret_cast<const Vec8*>(inverse_.data());
  Vec8* x = Vectors(solution_, n2 * width);
  Vec8* g = Vectors(step_, n2 * width);
  std::fill(x, x + n2 * width, Vec8{});
  for (int t = 0; t < width; ++t) {  // Âᵀe, a row of Â
    const Structure::Target& target = structure.targets[static_cast<size_t>(first + t)];
    const Structure::Run& run = structure.runs[static_cast<size_t>(target.run)];
    for (int32_t i = 0; i < run.count; ++i) {
      const int64_t q = structure.run_columns[static_cast<size_t>(run.columns + i)];
      x[q * width + t] = v[run.begin + i * run.rows + target.row];
    }
  }
  LaneSolve(n2, width, l, inverse, x);
  Vec8 squared[kMaxLaneWidth], fit[kMaxLaneWidth];
  LaneResidual(structure, first, width, v, x, squared, fit);
  // At the minimum ‖r‖² = 1 − (Âm)_k (GroupSolver::AtMinimum); elsewhere one corrected step.
  Mask8 done = job.pivot >= tuning::kStrongPivot;
  for (int t = 0; t < width; ++t) {
    const Vec8 gap = squared[t] - (1.0 - fit[t]);
    done &= (gap <= tuning::kMinimumTolerance) & (gap >= -tuning::kMinimumTolerance);
  }
  if (!None(lanes & ~done)) {
    LaneGradient(structure, first, width, v, x, g);
    LaneSolve(n2, width, l, inverse, g);
    // Not + 0 where done: a -0 would change by what its neighbours need.
    for (int64_t i = 0; i < n2 * width; ++i) x[i] = done ? x[i] : x[i] + g[i];
    LaneResidual(structure, first, width, v, x, squared, fit);
  }
  const Mask8 stored = Store(job, first, width, x, squared);
  if (job.options.post_filter > 0) Filter(job, first, width, x);
  return stored;
}

Mask8 LaneSolver::Store(const Job& job, int first, int width, const Vec8* x, const Vec8* squared) {
  const int64_t n2 = job.structure.n_cols;
  Mask8 good = {};
  for (size_t w = 0; w < job.groups.size(); ++w) {
    const Group& group = job.groups[w];
    const auto lane = static_cast<int>(w);
    bool fine = true;
    for (int t = 0; t < width; ++t) {
      const auto at = static_cast<size_t>(first + t);
      double* m = group.values[at];
      double check = 0;  // NaN as soon as one is not finite
      for (int64_t q = 0; q < n2; ++q) {
        m[q] = x[q * width + t][lane] * reinterpret_cast<const Vec8*>(scales_.data())[q][lane];
        check += m[q] * 0.0;
      }
      ColumnOutcome& outcome = group.outcomes[at];
      outcome.flags = kColumnGram;
      outcome.min_scaled_pivot = job.pivot[lane];
      outcome.residual_norm = std::sqrt(squared[t][lane]);
      fine &= check == 0 && outcome.residual_norm <= tuning::kWorthlessResidual;
    }
    if (fine) good[lane] = -1;
  }
  return good;
}

void LaneSolver::Filter(const Job& job, int first, int width, Vec8* x) {
  const int64_t n2 = job.structure.n_cols;
  for (size_t w = 0; w < job.groups.size(); ++w) {
    const Group& group = job.groups[w];
    for (int t = 0; t < width; ++t) {
      const auto at = static_cast<size_t>(first + t);
      FilterColumn(group.columns, group.targets[at], job.options.post_filter, group.values[at]);
      for (int64_t q = 0; q < n2; ++q) {
        if (group.values[at][q] == 0) x[q * width + t][static_cast<int>(w)] = 0;
      }
    }
  }
  Vec8 squared[kMaxLaneWidth], fit[kMaxLaneWidth];
  LaneResidual(job.structure, first, width, reinterpret_cast<const Vec8*>(entries_.data()), x,
               squared, fit);
  for (size_t w = 0; w < job.groups.size(); ++w) {
    for (int t = 0; t < width; ++t) {
      job.groups[w].outcomes[static_cast<size_t>(first + t)].residual_norm =
          std::sqrt(squared[t][static_cast<int>(w)]);
    }
  }
}

}  // namespace spaid::kernels
