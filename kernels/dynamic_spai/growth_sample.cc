#include "kernels/dynamic_spai/growth_sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <span>

#include "kernels/dynamic_spai/dynamic_spai_tuning.h"
#include "kernels/dynamic_spai/gram.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/sparse/hash.h"
#include "kernels/static_spai/lane_solver.h"

namespace spaid::kernels {
namespace {

namespace tuning = dynamic_spai_tuning;

constexpr double kFlopsPerStep = 4;
// A column that would have more is grown to so many, and what it takes from there on is guessed;
// to fewer where these would take more than such a share of all steps.
constexpr double kGrownEntries = 96, kColumnShare = 0.25;
// A copy of a column is looked for where its nearest neighbours in A are, so many at most, and, for
// several unknowns of a node that take turns, at such a distance.
constexpr int64_t kShifts = 128, kUnknowns = 8;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

double ToDouble(size_t x) { return static_cast<double>(x); }

class Sampler {
 public:
  Sampler(const CscView& a, const PatternView& rows, const PatternView* initial,
          const DynamicSpaiOptions& options, int threads)
      : a_(a),
        rows_(rows),
        initial_(initial),
        options_(options),
        rules_(DynamicRules(options)),
        gram_(a, rows, tuning::kSampleSteps),
        grower_(MakeRowGrower(gram_, rules_)),
        counter_(a.n_cols),
        equal_columns_(FindEqualColumns(a, threads)) {
    seen_.assign(Z(a.n_cols), -1);
  }

  // Column k, `products` of its own of AᵀA; `times`: of how many it would be one if it were all
  // that is looked at. False: the steps were used up.
  bool Grow(int64_t k, double products, double times) {
    const int64_t n = a_.n_cols;
    const double most = std::min(
        kGrownEntries, kColumnShare * tuning::kSampleSteps / (2 * std::max(products, 1.0)));
    const int k_max = static_cast<int>(
        std::min<double>(options_.max_steps, std::max(1.0, most / options_.per_step)));
    start_.assign(1, static_cast<int32_t>(k));
    for (const int32_t j : StartOf(k)) {
      if (j != k) start_.push_back(j);
    }
    const RowOutcome outcome = grower_->Grow(n + k, start_, k_max, entries_, ratios_);
    flops_ += outcome.flops;
    if (gram_.passed()) return false;

    GrownColumn column;
    column.k = k;
    column.times = times;
    column.entries = ToDouble(entries_.size());
    column.steps = static_cast<double>(outcome.steps);
    column.flops = outcome.flops;
    See(n + k, column);
    for (const RowEntry& entry : entries_) See(entry.index, column);
    Likeness likeness;
    if (!a_.values.empty()) FindLike(k, likeness);
    if (gram_.passed()) return false;
    joined_.clear();
    for (const RowEntry& entry : entries_) joined_.push_back(entry.index);
    likeness.structure = HashArray(std::span<const int32_t>(joined_), 1, static_cast<int32_t>(k));
    for (const int32_t j : joined_) {
      likeness.structure = HashMix(likeness.structure, HashArray(a_.column(j), 0, j));
    }
    const LocalCounts local = counter_.Count(a_, equal_columns_, joined_);
    const auto n2 = static_cast<int64_t>(joined_.size());
    const LocalSolver solver = options_.local_solver;
    column.local = static_cast<double>(local.entries);
    column.solve_ns = PredictNs(solver, local, n2, 1) + PredictPlanNs(local, n2, 1);
    likeness.shared_ns = PredictSharedPlanNs(n2, 1) + (PrefersLanes(solver, local, n2, 1)
                                                           ? PredictLaneNs(local, n2, 1)
                                                           : PredictNs(solver, local, n2, 1));
    if (outcome.steps == k_max && k_max < options_.max_steps && !outcome.converged) {
      Extend(k_max, column, likeness);
    }
    sample_.columns.push_back(column);
    likeness_.push_back(likeness);
    return steps() <= tuning::kSampleSteps;
  }

  double steps() const { return gram_.steps() + flops_ / kFlopsPerStep; }

  GrowthSample Finish() {
    double all = 0, alike = 0, copied = 0, walked = 0, entries = 0;
    for (size_t s = 0; s < likeness_.size(); ++s) {
      GrownColumn& column = sample_.columns[s];
      column.times /= ToDouble(likeness_.size());
      all += column.times;
      if (likeness_[s].alike) alike += column.times;
      if (likeness_[s].copied) copied += column.times;
      walked += column.times * column.walked;
      entries += column.times * column.entries;
    }
    // Where many are like no other the search is given up.
    const bool copies = options_.repeat_hash_bits > 0 && alike >= tuning::kAlikeShare * all;
    // Of each kind one is grown.
    const double kinds = std::min(copied * (1 - tuning::kAlikeShare),
                                  tuning::kKinds * walked / std::max(entries, 1.0));
    for (size_t s = 0; s < likeness_.size(); ++s) {
      GrownColumn& column = sample_.columns[s];
      const Likeness& own = likeness_[s];
      column.grown = column.times * (copies && own.copied ? kinds / copied : 1);
      const auto same = std::ranges::count(likeness_, own.structure, &Likeness::structure);
      if (own.copied || same > 1) column.solve_ns = own.shared_ns;
    }
    sample_.steps = steps();
    return std::move(sample_);
  }

 private:
  struct Likeness {
    bool alike = false;      // another column has the same row of A, and the same column of AᵀA
    bool copied = false;     // all that its growth has read is there again for another column
    uint64_t structure = 0;  // of its local problem
    double shared_ns = 0;    // solve_ns where others have the same
  };

  std::span<const int32_t> StartOf(int64_t k) const {
    return initial_ == nullptr ? std::span<const int32_t>() : initial_->column(k);
  }

  // Its growth has read column j.
  void See(int64_t j, GrownColumn& own) {
    const GrowthColumn column = gram_.Column(j);
    if (j < a_.n_cols) own.walked += ToDouble(column.rows.size());
    for (const int32_t i : column.rows) {
      if (seen_[Z(i)] == own.k) continue;
      seen_[Z(i)] = static_cast<int32_t>(own.k);
      ++own.candidates;
    }
  }

  // After `steps` growth was cut off: what is left out goes on as it began.
  void Extend(int steps, GrownColumn& column, Likeness& likeness) const {
    const auto n = static_cast<double>(a_.n_cols);
    const double left = static_cast<double>(options_.max_steps - steps);
    double most = std::min(n, column.entries + left * options_.per_step);
    if (options_.max_column_nnz > 0) {
      most = std::min(most, std::max(column.entries, double{1} * options_.max_column_nnz));
    }
    const double more = most / column.entries;
    for (double* linear : {&column.entries, &column.steps, &column.walked, &column.local}) {
      *linear *= more;
    }
    column.candidates = std::min(n, column.candidates * more);
    for (double* square : {&column.flops, &column.solve_ns, &likeness.shared_ns}) {
      *square *= more * more;
    }
  }

  bool SameColumns(int64_t x, int64_t y, int64_t by) {
    const GrowthColumn one = gram_.Column(x), other = gram_.Column(y);
    return Shifted(one.rows, other.rows, by) && SameBits(one.values, other.values);
  }
  static bool Shifted(std::span<const int32_t> one, std::span<const int32_t> other, int64_t by) {
    return std::ranges::equal(one, other, [by](int64_t i, int64_t l) { return i + by == l; });
  }
  static bool SameBits(std::span<const double> one, std::span<const double> other) {
    const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
    return std::ranges::equal(one, other, {}, bits, bits);
  }

  void FindLike(int64_t k, Likeness& likeness) {
    const auto near = a_.column(k);
    const auto own = std::ranges::lower_bound(near, static_cast<int32_t>(k)) - near.begin();
    const auto size = static_cast<int64_t>(near.size());
    const int64_t end = std::min(size, own + kShifts / 2);
    for (int64_t q = std::max<int64_t>(0, own - kShifts / 2); q < end && !likeness.copied; ++q) {
      Compare(k, near[Z(q)] - k, likeness);
    }
    for (int64_t by = -kUnknowns; by <= kUnknowns && !likeness.copied; ++by) {
      Compare(k, by, likeness);
    }
  }

  // With column k + by; what tells most others apart comes first.
  void Compare(int64_t k, int64_t by, Likeness& likeness) {
    const int64_t n = a_.n_cols, to = k + by;
    if (by == 0 || to < 0 || to >= n || rows_.column(k).size() != rows_.column(to).size() ||
        !Shifted(a_.column(k), a_.column(to), by) ||
        !SameBits(a_.column_values(k), a_.column_values(to)) || !SameColumns(n + k, n + to, by) ||
        !Shifted(StartOf(k), StartOf(to), by) || !SameColumns(k, to, by)) {
      return;
    }
    likeness.alike = true;
    likeness.copied = std::ranges::all_of(entries_, [&](const RowEntry& entry) {
      const int64_t p = entry.index, there = p + by;
      return there >= 0 && there < n && a_.column(p).size() == a_.column(there).size() &&
             SameColumns(p, there, by);
    });
  }

  const CscView a_;
  const PatternView rows_;
  const PatternView* const initial_;
  const DynamicSpaiOptions& options_;
  const GrowthRules rules_;
  GramColumns gram_;
  const std::unique_ptr<RowGrower> grower_;
  LocalCounter counter_;
  const Array<uint8_t> equal_columns_;
  Array<int32_t> seen_;  // the last column that has read of the row
  double flops_ = 0;
  std::vector<int32_t> start_, joined_;
  std::vector<RowEntry> entries_;
  std::vector<double> ratios_;
  GrowthSample sample_;
  std::vector<Likeness> likeness_;  // of each column of sample_
};

}  // namespace

GrowthSample SampleGrowth(const CscView& a, const PatternView& rows,
                          std::span<const double> products, const PatternView* initial,
                          const DynamicSpaiOptions& options, const Context& context) {
  const int64_t n = a.n_cols;
  const int64_t wanted = std::min(
      n, std::clamp(n / tuning::kSampledShare, tuning::kLeastColumns, tuning::kSampleColumns));
  // Sums of the weights of all columns up to each: products, and as much again for all alike.
  double all = 0;
  for (const double of_column : products) all += of_column;
  const double each = all / static_cast<double>(n);
  Array<double> weights(Z(n));
  all = 0;
  for (int64_t k = 0; k < n; ++k) weights[Z(k)] = all += products[Z(k)] + each;

  Sampler sampler(a, rows, initial, options, context.threads);
  for (int64_t t = 0; t < wanted && !context.stop.stop_requested(); ++t) {
    // Each beginning of the sequence covers all of them evenly (golden ratio).
    const double at = (static_cast<double>(t) + 0.5) * 0.6180339887498949;
    const double place = (at - std::floor(at)) * all;
    const int64_t k =
        wanted == n ? t
                    : std::min(n - 1, std::ranges::lower_bound(weights, place) - weights.begin());
    const double weight = weights[Z(k)] - (k == 0 ? 0 : weights[Z(k - 1)]);
    if (!sampler.Grow(k, products[Z(k)], wanted == n ? static_cast<double>(n) : all / weight))
      break;
  }
  return sampler.Finish();
}

}  // namespace spaid::kernels
