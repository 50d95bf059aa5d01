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
// A column that would have more is grown to so many, and what it takes from there on is guessed.
constexpr int64_t kGrownEntries = 96;
// A copy of a column is looked for where its nearest neighbours in A are, so many at most.
constexpr int64_t kShifts = 128;

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

  // False: the steps were used up.
  bool Grow(int64_t k, double times) {
    const int64_t n = a_.n_cols;
    const int64_t cap = std::max<int64_t>(1, kGrownEntries / options_.per_step);
    const int k_max = static_cast<int>(std::min<int64_t>(options_.max_steps, cap));
    start_.assign(1, static_cast<int32_t>(k));
    for (const int32_t j : StartOf(k)) {
      if (j != k) start_.push_back(j);
    }
    const RowOutcome outcome = grower_->Grow(n + k, start_, k_max, entries_, ratios_);
    flops_ += outcome.flops;
    if (gram_.passed()) return false;

    GrowthCounts counts;
    counts.columns = 1;
    counts.entries = ToDouble(entries_.size());
    counts.steps = static_cast<double>(outcome.steps);
    counts.flops = outcome.flops;
    See(n + k, k, counts);
    for (const RowEntry& entry : entries_) See(entry.index, k, counts);
    bool alike = false;
    const bool copied = !a_.values.empty() && options_.repeat_hash_bits > 0 && Copied(k, alike);
    if (gram_.passed()) return false;
    joined_.clear();
    for (const RowEntry& entry : entries_) joined_.push_back(entry.index);
    uint64_t structure = HashArray(std::span<const int32_t>(joined_), 1, static_cast<int32_t>(k));
    for (const int32_t j : joined_) structure = HashMix(structure, HashArray(a_.column(j), 0, j));
    const LocalCounts local = counter_.Count(a_, equal_columns_, joined_);
    counts.local = static_cast<double>(local.entries);
    const auto n2 = static_cast<int64_t>(joined_.size());
    const double alone = PredictNs(options_.local_solver, local, n2, 1);
    const bool lanes = PrefersLanes(options_.local_solver, local, n2, 1);
    Looked looked{structure, alone + PredictPlanNs(local, n2, 1),
                  (lanes ? PredictLaneNs(local, n2, 1) : alone) + PredictSharedPlanNs(n2, 1),
                  alike};
    // What is left out goes on as it began.
    const bool cut = outcome.steps == k_max && k_max < options_.max_steps && !outcome.converged;
    if (cut) {
      const double added = static_cast<double>(options_.max_steps - k_max) * options_.per_step;
      double most = std::min(static_cast<double>(n), counts.entries + added);
      if (options_.max_column_nnz > 0) {
        most = std::min(most, std::max(counts.entries, double(options_.max_column_nnz)));
      }
      const double more = most / std::max(counts.entries, 1.0);
      counts.entries *= more;
      counts.steps *= more;
      counts.walked *= more;
      counts.candidates = std::min(static_cast<double>(n), counts.candidates * more);
      counts.flops *= more * more;
      counts.local *= more;
      looked.alone_ns *= more * more;
      looked.shared_ns *= more * more;
    }
    counts.searched = counts.steps * counts.candidates;
    sample_.columns.push_back({k, times, copied, counts});
    looked_.push_back(looked);
    return steps() <= tuning::kSampleSteps;
  }

  double steps() const { return gram_.steps() + flops_ / kFlopsPerStep; }

  GrowthSample Finish() {
    double alike = 0, all = 0;
    for (size_t s = 0; s < looked_.size(); ++s) {
      all += sample_.columns[s].times;
      if (looked_[s].alike) alike += sample_.columns[s].times;
    }
    for (size_t s = 0; s < looked_.size(); ++s) {
      GrowthSample::Column& column = sample_.columns[s];
      const auto same =
          std::ranges::count(looked_, looked_[s].structure, &Looked::structure);
      const bool shared = column.copied || same > 1;
      column.counts.solve_ns = shared ? looked_[s].shared_ns : looked_[s].alone_ns;
      // Where many are like no other the search is given up.
      if (alike < tuning::kAlikeShare * all) column.copied = false;
    }
    sample_.steps = steps();
    return std::move(sample_);
  }

 private:
  struct Looked {
    uint64_t structure;
    double alone_ns, shared_ns;
    bool alike;  // another column has the same row of A, and the same column of AᵀA
  };

  std::span<const int32_t> StartOf(int64_t k) const {
    return initial_ == nullptr ? std::span<const int32_t>() : initial_->column(k);
  }

  // Its column j has been read.
  void See(int64_t j, int64_t k, GrowthCounts& counts) {
    const GrowthColumn column = gram_.Column(j);
    if (j < a_.n_cols) counts.walked += ToDouble(column.rows.size());
    for (const int32_t i : column.rows) {
      if (seen_[Z(i)] == k) continue;
      seen_[Z(i)] = static_cast<int32_t>(k);
      ++counts.candidates;
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

  // Whether all that growth of column k has read is there again, shifted to where a neighbour is;
  // what tells most others apart comes first.
  bool Copied(int64_t k, bool& alike) {
    const int64_t n = a_.n_cols;
    const auto near = a_.column(k);
    const auto own = std::ranges::lower_bound(near, static_cast<int32_t>(k)) - near.begin();
    const int64_t first = std::max<int64_t>(0, own - kShifts / 2);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(near.size()), own + kShifts / 2);
    for (int64_t q = first; q < end; ++q) {
      const int64_t to = near[Z(q)], by = to - k;
      if (by == 0 || rows_.column(k).size() != rows_.column(to).size() ||
          !Shifted(a_.column(k), a_.column(to), by) ||
          !SameBits(a_.column_values(k), a_.column_values(to)) || !SameColumns(n + k, n + to, by) ||
          !Shifted(StartOf(k), StartOf(to), by) || !SameColumns(k, to, by)) {
        continue;
      }
      alike = true;
      const auto repeats = [&](const RowEntry& entry) {
        const int64_t p = entry.index, there = p + by;
        return there >= 0 && there < n && a_.column(p).size() == a_.column(there).size() &&
               SameColumns(p, there, by);
      };
      if (std::ranges::all_of(entries_, repeats)) return true;
    }
    return false;
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
  std::vector<Looked> looked_;
};

}  // namespace

void GrowthCounts::Add(const GrowthCounts& other, double times) {
  for (double GrowthCounts::*of :
       {&GrowthCounts::columns, &GrowthCounts::entries, &GrowthCounts::steps, &GrowthCounts::walked,
        &GrowthCounts::candidates, &GrowthCounts::searched, &GrowthCounts::flops,
        &GrowthCounts::local, &GrowthCounts::solve_ns}) {
    this->*of += times * other.*of;
  }
}

GrowthCounts GrowthSample::all() const {
  GrowthCounts sum;
  for (const Column& column : columns) sum.Add(column.counts, column.times);
  return sum;
}

GrowthCounts GrowthSample::grown() const {
  GrowthCounts sum;
  for (const Column& column : columns) {
    if (!column.copied) sum.Add(column.counts, column.times);
  }
  return sum;
}

GrowthSample SampleGrowth(const CscView& a, const PatternView& rows,
                          std::span<const double> products, const PatternView* initial,
                          const DynamicSpaiOptions& options, const Context& context) {
  const int64_t n = a.n_cols;
  const int64_t wanted =
      std::min(n, std::clamp(n / tuning::kSampledShare, tuning::kLeastColumns,
                             tuning::kSampleColumns));
  // Sums of the weights of all columns up to each: products, and as much again for all alike.
  double all = 0;
  for (const double of_column : products) all += of_column;
  const double each = all / static_cast<double>(n);
  Array<double> weights(Z(n));
  all = 0;
  for (int64_t k = 0; k < n; ++k) weights[Z(k)] = all += products[Z(k)] + each;

  Sampler sampler(a, rows, initial, options, context.threads);
  GrowthSample sample;
  for (int64_t t = 0; t < wanted && !context.stop.stop_requested(); ++t) {
    // Each beginning of the sequence covers all of them evenly (golden ratio).
    const double at = (static_cast<double>(t) + 0.5) * 0.6180339887498949;
    const double place = (at - std::floor(at)) * all;
    const int64_t k =
        wanted == n ? t : std::min(n - 1, std::ranges::lower_bound(weights, place) - weights.begin());
    const double weight = weights[Z(k)] - (k == 0 ? 0 : weights[Z(k - 1)]);
    if (!sampler.Grow(k, wanted == n ? 1 : all / weight)) break;
  }
  sample = sampler.Finish();
  const auto count = static_cast<double>(sample.columns.size());
  const double share = wanted == n ? static_cast<double>(n) / count : 1 / count;
  for (GrowthSample::Column& column : sample.columns) column.times *= share;
  return sample;
}

}  // namespace spaid::kernels
