#include "kernels/engine/local_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace spaid::kernels {
namespace {

// A small matrix is solved in less time than many columns take.
constexpr int64_t kMostColumns = 256, kLeastColumns = 16, kShareOfColumns = 8;
// Steps that gathering all local problems may take: as many as A has entries over kFreeEntries, so
// that nothing much is added to the solve of a small matrix, which takes little; of a symmetric A,
// where no rare column needs finding, half of that.
constexpr int64_t kLeastWork = 3000, kFreeEntries = 10'000;
// Ratios further from 1 say nothing more.
constexpr double kLeastRatio = 1e-6, kMostRatio = 1e6;
// Less than what rounding leaves of a singular one.
constexpr double kNegative = -1e-8;

// The entries of A in the rows and columns of a small set, eliminated.
class LocalProblem {
 public:
  explicit LocalProblem(const CscView& a) : a_(a) {}

  // ψ_i over a_ii; zero where the elimination fails, or there is no a_ii. Sets size() and work().
  double Ratio(int64_t i) {
    const auto rows = a_.column(i);
    const auto before = std::lower_bound(rows.begin(), rows.end(), i) - rows.begin();
    const int64_t first = std::max<int64_t>(0, before - kMaxLocalSize);
    set_.assign(rows.begin() + first, rows.begin() + before);
    set_.push_back(static_cast<int32_t>(i));
    const auto q = static_cast<int64_t>(set_.size());
    local_.assign(static_cast<size_t>(q * q), 0.0);
    for (int64_t c = 0; c < q; ++c) Gather(c);
    const double diagonal = local_.back();
    // In the given order: pivots of a definite matrix, and of a dominant one, need no exchange.
    for (int64_t p = 0; p + 1 < q; ++p) {
      const double pivot = local_[At(p, p)];
      if (pivot == 0) return 0;
      for (int64_t c = p + 1; c < q; ++c) {
        const double factor = local_[At(p, c)] / pivot;
        if (factor == 0) continue;
        for (int64_t r = p + 1; r < q; ++r) local_[At(r, c)] -= factor * local_[At(r, p)];
      }
    }
    return diagonal == 0 ? 0 : local_.back() / diagonal;
  }
  int64_t size() const { return static_cast<int64_t>(set_.size()) - 1; }
  int64_t work() const { return work_; }

 private:
  size_t At(int64_t r, int64_t c) const {
    return static_cast<size_t>(c) * set_.size() + static_cast<size_t>(r);
  }
  void Gather(int64_t c) {
    const int64_t j = set_[static_cast<size_t>(c)];
    const auto rows = a_.column(j);
    const double* values = a_.values.data() + a_.col_ptr[j];
    auto at = std::lower_bound(rows.begin(), rows.end(), set_.front());
    for (size_t r = 0; r < set_.size() && at != rows.end(); ++work_) {
      if (*at < set_[r]) {
        ++at;
      } else {
        if (*at == set_[r]) local_[At(static_cast<int64_t>(r), c)] = values[at - rows.begin()];
        ++r;
      }
    }
  }

  const CscView a_;
  std::vector<int32_t> set_;   // P, and i at its end
  std::vector<double> local_;  // by columns
  int64_t work_ = 0;
};

// 1 − Σ_{i≠j} |a_ij| / |a_jj|; nothing where column j has no other entry.
std::optional<double> Dominance(const CscView& a, int64_t j) {
  const auto rows = a.column(j);
  const auto values = a.column_values(j);
  if (rows.size() <= 1) return std::nullopt;
  double diagonal = 0, others = 0;
  for (size_t p = 0; p < rows.size(); ++p) {
    (rows[p] == j ? diagonal : others) += std::abs(values[p]);
  }
  return diagonal > 0 ? 1 - others / diagonal : -std::numeric_limits<double>::infinity();
}

}  // namespace

int64_t SampledColumn(int64_t n, int64_t k) {
  const double place = static_cast<double>(k) * 0.6180339887498949;
  const double share = place - std::floor(place);
  return std::min(n - 1, static_cast<int64_t>(share * static_cast<double>(n)));
}

LocalSample SampleLocally(const CscView& a, bool symmetric) {
  LocalSample sample;
  LocalProblem problem(a);
  std::vector<double> dominance;
  const int64_t n = a.n_cols;
  const int64_t most = std::min({n, kMostColumns, std::max(kLeastColumns, n / kShareOfColumns)});
  const int64_t budget = std::max(kLeastWork, (a.nnz() - kFreeEntries) / (symmetric ? 2 : 1));
  for (int64_t k = 0; k < most; ++k) {
    if (k >= kLeastColumns && problem.work() > budget) break;
    const int64_t i = SampledColumn(n, k);
    const double ratio = problem.Ratio(i);
    sample.negative_psi = sample.negative_psi || ratio < kNegative;
    const double log_ratio = std::log(std::min(kMostRatio, std::max(kLeastRatio, std::abs(ratio))));
    sample.gain -= log_ratio;
    sample.growth += std::pow(std::max(0.0, log_ratio), 2);
    sample.entries += static_cast<double>(problem.size());
    if (const auto d = Dominance(a, i)) dominance.push_back(*d);
    const auto rows = a.column(i);
    sample.local_columns += static_cast<double>(rows.size());
    for (const int32_t j : rows) {
      sample.local_entries += static_cast<double>(a.col_ptr[static_cast<size_t>(j) + 1] -
                                                  a.col_ptr[static_cast<size_t>(j)]);
    }
    ++sample.columns;
  }
  if (sample.columns == 0) return sample;
  for (double* mean : {&sample.gain, &sample.growth, &sample.entries, &sample.local_columns,
                       &sample.local_entries}) {
    *mean /= static_cast<double>(sample.columns);
  }
  if (!dominance.empty()) {
    std::sort(dominance.begin(), dominance.end());
    sample.dominance = dominance[dominance.size() / 2];
    sample.low_dominance = dominance[dominance.size() / 10];
  }
  return sample;
}

}  // namespace spaid::kernels
