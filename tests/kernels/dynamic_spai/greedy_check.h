// Whether a pattern is what dynamic SPAI grows ([GH]), by its definition: dense least squares in
// extended precision, column by column. Where candidates lower ‖r‖ by the same, but for rounding,
// any of them may have been chosen.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dynamic_spai/dynamic_spai.h"

namespace spaid::kernels {

class GreedyCheck {
 public:
  // `tie`: gains apart by less, relative to the larger, are one.
  GreedyCheck(const CscView& a, const PatternView* initial, const DynamicSpaiOptions& options,
              double tie)
      : a_(a), initial_(initial), options_(options), tie_(tie) {}

  // Empty, or what is wrong with `pattern` as column k of M.
  std::string Column(int64_t k, std::span<const int32_t> pattern) {
    if (!std::is_sorted(pattern.begin(), pattern.end())) return "not ascending";
    const std::set<int32_t> wanted(pattern.begin(), pattern.end());
    if (wanted.size() != pattern.size()) return "an index twice";
    q_.clear();
    in_.clear();
    r_.assign(static_cast<size_t>(a_.n_cols), 0);
    r_[static_cast<size_t>(k)] = 1;
    if (!wanted.contains(static_cast<int32_t>(k))) return "without its own index";
    if (!Join(static_cast<int32_t>(k))) return "";
    if (initial_ != nullptr) {
      for (const int32_t j : initial_->column(k)) {
        if (j == k) continue;
        if (Depends(j)) return "";
        if (!wanted.contains(j)) return "without " + std::to_string(j) + " of the initial pattern";
        Join(j);
      }
    }
    const size_t most = options_.max_column_nnz > 0
                            ? std::max(static_cast<size_t>(options_.max_column_nnz), in_.size())
                            : static_cast<size_t>(a_.n_cols);
    for (int step = 0; step < options_.max_steps; ++step) {
      const double norm = static_cast<double>(Norm());
      // On a border either is right.
      if (norm < nothing_) return "";
      if (norm < options_.tol * (1 - tie_)) break;
      if (norm < options_.tol * (1 + tie_) && in_.size() == wanted.size()) break;
      if (in_.size() >= most) break;
      std::vector<std::pair<long double, int32_t>> gains = Gains(k);
      const size_t count =
          std::min({gains.size(), static_cast<size_t>(options_.per_step), most - in_.size()});
      std::sort(gains.begin(), gains.end(), [](const auto& x, const auto& y) {
        return x.first != y.first ? x.first > y.first : x.second < y.second;
      });
      const long double least = count > 0 ? gains[count - 1].first : 0;
      size_t joined = 0;
      for (const auto& [gain, j] : gains) {
        const bool must = gain > least * (1 + tie_), may = gain >= least * (1 - tie_);
        if (!may || joined == count) break;
        if (wanted.contains(j)) {
          if (!Join(j)) return "";
          ++joined;
        } else if (must && !Depends(j)) {
          return "without " + std::to_string(j) + ", which lowers ‖r‖² most in step " +
                 std::to_string(step);
        } else if (Depends(j)) {
          return "";
        }
      }
      if (joined < count) {
        return "ended in step " + std::to_string(step) + " at ‖r‖ = " + std::to_string(norm);
      }
      // Others lower it by nothing that shows, and may join.
      if (count < static_cast<size_t>(options_.per_step) && in_.size() < most) return "";
    }
    if (in_.size() != wanted.size()) {
      return std::to_string(wanted.size()) + " entries for " + std::to_string(in_.size());
    }
    return "";
  }

 private:
  long double Norm() const {
    long double sum = 0;
    for (const long double x : r_) sum += x * x;
    return std::sqrt(sum);
  }

  // Of all candidates: what a column of A alone takes from ‖r‖².
  std::vector<std::pair<long double, int32_t>> Gains(int64_t k) const {
    std::vector<std::pair<long double, int32_t>> gains;
    for (int64_t j = 0; j < a_.n_cols; ++j) {
      if (in_.contains(static_cast<int32_t>(j))) continue;
      const auto rows = a_.column(j);
      const auto values = a_.column_values(j);
      long double product = 0, squares = 0;
      bool near = false;
      for (size_t p = 0; p < rows.size(); ++p) {
        const long double value = values[p], of_r = r_[static_cast<size_t>(rows[p])];
        product += value * of_r;
        squares += value * value;
        near = near || (value != 0 && (of_r != 0 || rows[p] == k));
      }
      const long double gain = product * product / squares;
      if (near && gain > nothing_ * nothing_) gains.emplace_back(gain, static_cast<int32_t>(j));
    }
    return gains;
  }

  // False: dependent, nearly.
  bool Join(int32_t j) {
    in_.insert(j);
    std::vector<long double> v;
    if (!Rest(j, v)) return false;
    Subtract(v, r_);
    q_.push_back(std::move(v));
    return true;
  }
  bool Depends(int32_t j) const {
    std::vector<long double> v;
    return !Rest(j, v);
  }

  // What is left of column j, of length 1: Gram-Schmidt, twice.
  bool Rest(int32_t j, std::vector<long double>& v) const {
    v.assign(static_cast<size_t>(a_.n_cols), 0);
    const auto rows = a_.column(j);
    long double squares = 0;
    for (size_t p = 0; p < rows.size(); ++p) {
      const long double value = a_.column_values(j)[p];
      v[static_cast<size_t>(rows[p])] = value;
      squares += value * value;
    }
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto& q : q_) Subtract(q, v);
    }
    long double left = 0;
    for (const long double x : v) left += x * x;
    if (!(left > (options_.growth_precision == Precision::kFp32 ? 1e-4L : 1e-11L) * squares))
      return false;
    const long double length = std::sqrt(left);
    for (long double& x : v) x /= length;
    return true;
  }
  static void Subtract(const std::vector<long double>& q, std::vector<long double>& v) {
    long double product = 0;
    for (size_t i = 0; i < v.size(); ++i) product += q[i] * v[i];
    for (size_t i = 0; i < v.size(); ++i) v[i] -= product * q[i];
  }

  const CscView a_;
  const PatternView* const initial_;
  const DynamicSpaiOptions& options_;
  const double tie_;
  // Of ‖r‖: what rounding leaves of squares.
  const double nothing_ = options_.growth_precision == Precision::kFp32 ? 1e-2 : 1e-6;
  std::vector<std::vector<long double>> q_;
  std::vector<long double> r_;
  std::set<int32_t> in_;
};

// Of each `step`-th column.
inline void ExpectGreedy(const CscView& a, const PatternView* initial,
                         const DynamicSpaiOptions& options, const PatternView& grown,
                         int64_t step = 1) {
  ASSERT_EQ(grown.n_cols, a.n_cols);
  ASSERT_EQ(grown.col_ptr[0], 0);
  GreedyCheck check(a, initial, options,
                    options.growth_precision == Precision::kFp32 ? 2e-3 : 1e-8);
  for (int64_t k = 0; k < a.n_cols; k += step) {
    const std::string wrong = check.Column(k, grown.column(k));
    ASSERT_EQ(wrong, "") << "column " << k;
  }
}

}  // namespace spaid::kernels
