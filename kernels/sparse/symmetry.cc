#include "kernels/sparse/symmetry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

double DiagonalOf(const CscView& a, int64_t j) {
  const auto rows = a.column(j);
  const auto found = std::lower_bound(rows.begin(), rows.end(), j);
  return found == rows.end() || *found != j
             ? 0
             : a.column_values(j)[static_cast<size_t>(found - rows.begin())];
}

}  // namespace

void SymmetryWalk::SkipRowsBefore(int32_t* next) const {
  for (int64_t i = begin_; i < a_.n_cols; ++i) {
    const auto rows = a_.column(i);
    if (rows.empty() || rows.front() >= begin_) continue;
    next[i] =
        static_cast<int32_t>(std::lower_bound(rows.begin(), rows.end(), begin_) - rows.begin());
  }
}

void SymmetryWalk::Trim() {
  Array<int32_t> own(next_.begin(), next_.begin() + (end_ - begin_));
  next_ = std::move(own);
}

void SymmetryWalk::Add(const SymmetryWalk& other) {
  structure_.Meet(other.structure_);
  values_.Meet(other.values_);
  max_asymmetry_ = std::max(max_asymmetry_, other.max_asymmetry_);
  largest_relative_ = std::max(largest_relative_, other.largest_relative_);
}

void SymmetryWalk::Tell(Diagnosis& d) const {
  d.structurally_symmetric = structure_.column < 0;
  d.numerically_symmetric = values_.column < 0;
  const First& first = d.numerically_symmetric ? structure_ : values_;
  d.asymmetry_row = first.row;
  d.asymmetry_column = first.column;
  d.max_asymmetry = max_asymmetry_;
}

void SymmetryWalk::Note(const Odd& odd) {
  if (many_) return;
  // A look at an odd row costs as much as one at a hundred others.
  const size_t limit = Z(16 + (end_ - begin_) / 64);
  many_ = odd_.size() >= limit;
  if (!many_) odd_.push_back(odd);
}

// The entry stands at (j, i) where it is an upper one, else at (i, j).
void SymmetryWalk::Lonely(int64_t i, int64_t j, double v, bool upper) {
  const auto row = static_cast<int32_t>(upper ? j : i);
  const auto column = static_cast<int32_t>(upper ? i : j);
  Note({row, column, v});
  Note({column, -1, 0});
  if (structure_.After(i, j)) structure_ = {i, j};
  if (v != 0) Differ(i, j, v, 0);
}

void SymmetryWalk::Unequal(int64_t i, int64_t j, double v, double w) {
  if (!many_) {
    Note({static_cast<int32_t>(i), -1, 0});
    Note({static_cast<int32_t>(j), -1, 0});
  }
  Differ(i, j, v, w);
}

void SymmetryWalk::Differ(int64_t i, int64_t j, double v, double w) {
  // Quotients first: the difference of two huge values may overflow.
  const double size = std::max(std::abs(v), std::abs(w));
  const double relative = std::abs(v / size - w / size);
  largest_relative_ = std::max(largest_relative_, relative);
  max_asymmetry_ = std::max(max_asymmetry_, relative * (size / max_abs_value_));
  if (relative <= kSymmetryTolerance || !values_.After(i, j)) return;
  const double noise = kAssemblyNoise * std::sqrt(std::abs(DiagonalOf(a_, i))) *
                       std::sqrt(std::abs(DiagonalOf(a_, j)));
  if (relative * size <= noise) return;
  values_ = {i, j};
}

Mirrors CompareMirrors(const CscView& a, int threads) {
  const int64_t n = a.n_cols;
  const auto ranges = std::min<int64_t>({ResolveThreads(threads), 8, n / 4096 + 1});
  std::vector<std::optional<SymmetryWalk>> walks(static_cast<size_t>(ranges));
  // Relative differences alone are asked for: the size of the largest value does not matter.
  for (int64_t w = 0; w < ranges; ++w) {
    walks[static_cast<size_t>(w)].emplace(a, 1.0, n * w / ranges, n * (w + 1) / ranges);
  }
  ParallelFor(ranges, 1, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t w = begin; w < end; ++w)
      walks[static_cast<size_t>(w)]->Run([](int64_t, int64_t) {});
  });
  for (int64_t w = 1; w < ranges; ++w) walks[0]->Add(*walks[static_cast<size_t>(w)]);
  Diagnosis d;
  walks[0]->Tell(d);
  return {d.structurally_symmetric, d.numerically_symmetric, walks[0]->largest_relative()};
}

}  // namespace spaid::kernels
