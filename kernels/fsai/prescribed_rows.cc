#include "kernels/fsai/prescribed_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dense/cholesky.h"
#include "kernels/fsai/fsai_tuning.h"

namespace spaid::kernels {
namespace {

// As the growth of a row has it.
constexpr double kPivotLimit = 8 * std::numeric_limits<double>::epsilon();

FsaiOptions InDouble(FsaiOptions options) {
  options.precision = Precision::kFp64;
  return options;
}

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Row i + 1 has the pattern of row i, and its own diagonal.
bool Nested(const PatternView& pattern, int64_t i) {
  const auto row = pattern.column(i), next = pattern.column(i + 1);
  return next.size() == row.size() + 1 && std::equal(row.begin(), row.end(), next.begin());
}

}  // namespace

PrescribedRows::PrescribedRows(const SymmetricMatrix& a, const FsaiOptions& options)
    : a_(a), options_(options), local_(a.a, a.diagonal.at) {}

// The row has been solved: `energy` is ψ, `values` holds g̃, its last one 1.
void PrescribedRows::Keep(int64_t i, double energy, double* values, int64_t size,
                          double* psi_ratio) const {
  const double scale = 1 / std::sqrt(energy);
  for (int64_t t = 0; t < size; ++t) {
    values[t] *= scale;
    if (options_.precision == Precision::kFp32) values[t] = RoundToFloat(values[t]);
  }
  psi_ratio[i] = energy / a_.diagonal.values[Z(i)];
}

bool PrescribedRows::Factor(std::span<const int32_t> set) {
  const auto q = static_cast<int64_t>(set.size());
  const int64_t np = PadToLanes(q), ld = PaddedLeadingDimension(np);
  double* l = matrix_.Ensure(ld * np);
  double* inverse = inverse_.Ensure(np);
  x_.Ensure(np);
  local_.Set(set);
  for (int64_t t = 0; t < q; ++t) {
    double* column = l + t * ld;
    // Above the diagonal only what stands in the diagonal block is read.
    std::fill(column + t / kLanes * kLanes, column + np, 0.0);
    column[t] = a_.diagonal.values[Z(set[Z(t)])];
    local_.Below(t, [column](int64_t s, double v) { column[s] = v; });
  }
  for (int64_t t = q; t < np; ++t) {
    std::fill(l + t * ld + q / kLanes * kLanes, l + t * ld + np, 0.0);
    l[t * ld + t] = 1;
  }
  local_.Clear();
  return CholeskyFactor(np, ld, l, inverse, kPivotLimit) > kPivotLimit;
}

// The leading entries of the pattern, up to a pivot that is not positive.
void PrescribedRows::SolveAlone(std::span<const int32_t> set, double* values, double* psi_ratio,
                                RowTally& tally) {
  const int64_t i = set.back();
  if (!grower_) grower_ = MakeRowGrower(a_.a, a_.diagonal.values, RulesOf(InDouble(options_)));
  const RowOutcome outcome = grower_->Grow(i, set.first(set.size() - 1), 0, entries_, ratios_);
  std::fill(values, values + set.size(), 0.0);
  size_t t = 0;
  for (const RowEntry& entry : entries_) {
    while (set[t] != entry.index) ++t;
    values[t] = options_.precision == Precision::kFp32 ? RoundToFloat(entry.value) : entry.value;
  }
  psi_ratio[i] = outcome.psi_ratio;
  if (outcome.not_spd && tally.not_spd++ == 0) tally.first_not_spd = i;
  tally.flops += outcome.flops;
}

// A[P,P] g̃ = −A[P,i] by conjugate gradients, preconditioned by the diagonal: needs no more memory
// than the entries take. ψ is formed from g̃ as it is, so that it holds wherever the iteration ends.
bool PrescribedRows::SolveByCg(std::span<const int32_t> set, const StopToken& stop, double* values,
                               double* psi_ratio, RowTally& tally) {
  const auto q = static_cast<int64_t>(set.size()) - 1;
  const int64_t i = set.back();
  columns_.resize(std::max(columns_.size(), set.size()));
  local_.Set(set);
  double entries = 0;
  for (int64_t t = 0; t <= q; ++t) {
    auto& column = columns_[Z(t)];
    column.clear();
    local_.Below(t, [&column](int64_t s, double v) {
      column.push_back({static_cast<int32_t>(s), v});
    });
    entries += static_cast<double>(column.size());
  }
  local_.Clear();
  const auto diagonal = [&](int64_t t) { return a_.diagonal.values[Z(set[Z(t)])]; };
  // y = A x on the whole set; x has its last entry, too.
  const auto multiply = [&](const std::vector<double>& x, std::vector<double>& y) {
    for (int64_t t = 0; t <= q; ++t) y[Z(t)] = diagonal(t) * x[Z(t)];
    for (int64_t t = 0; t <= q; ++t) {
      double sum = 0;
      for (const LocalEntry& entry : columns_[Z(t)]) {
        y[Z(entry.row)] += entry.value * x[Z(t)];
        sum += entry.value * x[Z(entry.row)];
      }
      y[Z(t)] += sum;
    }
    tally.flops += 4 * entries + 2 * static_cast<double>(q + 1);
  };
  std::vector<double> g(Z(q + 1), 0.0), r(Z(q + 1)), p(Z(q + 1), 0.0), ap(Z(q + 1));
  g[Z(q)] = 1;
  multiply(g, r);
  double rho = 0;
  for (int64_t t = 0; t < q; ++t) {
    r[Z(t)] = -r[Z(t)];
    p[Z(t)] = r[Z(t)] / diagonal(t);
    rho += r[Z(t)] * p[Z(t)];
  }
  const double enough = rho * fsai_tuning::kCgTolerance * fsai_tuning::kCgTolerance;
  bool positive = true;
  int64_t iteration = 0;
  for (; iteration < fsai_tuning::kCgIterations && rho > enough; ++iteration) {
    if (stop.stop_requested()) return false;
    multiply(p, ap);
    double curvature = 0;
    for (int64_t t = 0; t < q; ++t) curvature += p[Z(t)] * ap[Z(t)];
    positive = curvature > 0;
    if (!positive) break;
    const double alpha = rho / curvature;
    double next = 0;
    for (int64_t t = 0; t < q; ++t) {
      g[Z(t)] += alpha * p[Z(t)];
      r[Z(t)] -= alpha * ap[Z(t)];
      next += r[Z(t)] * r[Z(t)] / diagonal(t);
    }
    const double beta = next / rho;
    rho = next;
    for (int64_t t = 0; t < q; ++t) p[Z(t)] = r[Z(t)] / diagonal(t) + beta * p[Z(t)];
  }
  ++tally.slow;
  if (positive && rho > enough && tally.not_converged++ == 0) tally.first_not_converged = i;
  multiply(g, ap);
  double energy = 0;
  for (int64_t t = 0; t <= q; ++t) energy += g[Z(t)] * ap[Z(t)];
  if (!positive || !(energy > kPivotLimit * a_.diagonal.values[Z(i)])) {
    if (tally.not_spd++ == 0) tally.first_not_spd = i;
  }
  if (!(energy > kPivotLimit * a_.diagonal.values[Z(i)] && std::isfinite(energy))) {
    std::fill(g.begin(), g.end() - 1, 0.0);
    energy = a_.diagonal.values[Z(i)];
  }
  std::copy(g.begin(), g.end(), values);
  Keep(i, energy, values, q + 1, psi_ratio);
  return true;
}

bool PrescribedRows::Solve(const PatternView& pattern, int64_t begin, int64_t end,
                           const StopToken& stop, double* values, double* psi_ratio,
                           RowTally& tally) {
  for (int64_t first = begin; first < end;) {
    int64_t last = first;
    while (last + 1 < end && last + 1 - first < fsai_tuning::kMaxNested && Nested(pattern, last)) {
      ++last;
    }
    const auto set = pattern.column(last);
    const auto q = static_cast<int64_t>(set.size());
    const auto count = last - first + 1;
    if (q == 1) {
      values[pattern.col_ptr[Z(first)]] = 1;
      Keep(first, a_.diagonal.values[Z(first)], values + pattern.col_ptr[Z(first)], 1, psi_ratio);
    } else if (q > fsai_tuning::kDenseRow) {
      for (int64_t i = first; i <= last; ++i) {
        if (!SolveByCg(pattern.column(i), stop, values + pattern.col_ptr[Z(i)], psi_ratio, tally)) {
          return false;
        }
      }
    } else if (Factor(set)) {
      const int64_t ld = PaddedLeadingDimension(PadToLanes(q));
      const auto size = static_cast<double>(q);
      tally.flops += size * size * size / 3 + static_cast<double>(count) * size * size;
      for (int64_t i = first; i <= last; ++i) {
        const int64_t own = q - (last - i);
        double* x = x_.data();
        CholeskyInverseRow(own, ld, matrix_.data(), inverse_.data(), x);
        psi_ratio[i] = 1 / (x[own - 1] * x[own - 1] * a_.diagonal.values[Z(i)]);
        double* out = values + pattern.col_ptr[Z(i)];
        for (int64_t t = 0; t < own; ++t) {
          out[t] = options_.precision == Precision::kFp32 ? RoundToFloat(x[t]) : x[t];
        }
      }
    } else {
      for (int64_t i = first; i <= last; ++i) {
        SolveAlone(pattern.column(i), values + pattern.col_ptr[Z(i)], psi_ratio, tally);
      }
    }
    first = last + 1;
  }
  return true;
}

}  // namespace spaid::kernels
