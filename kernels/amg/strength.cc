#include "kernels/amg/strength.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Signed roots of the diagonal: a_ij / (|r_i| |r_j|) is the scaled entry, and r_i has the sign σ_i.
Array<double> DiagonalRoots(const CscView& a, const Context& context) {
  Array<double> roots(Z(a.n_cols), 0.0);
  ForRows(a.n_cols, context, [&](int64_t i) {
    const auto columns = a.column(i);
    const auto at = std::lower_bound(columns.begin(), columns.end(), static_cast<int32_t>(i));
    if (at == columns.end() || *at != i) return;
    const double d = a.column_values(i)[static_cast<size_t>(at - columns.begin())];
    roots[Z(i)] = std::copysign(std::sqrt(std::fabs(d)), d);
  });
  return roots;
}

// visit(column, own, mirrored) for each entry of the union of two rows.
template <class Visit>
void ForUnion(const CscView& rows, const CscView& mirror, int64_t i, const Visit& visit) {
  const auto left = rows.column(i), right = mirror.column(i);
  const auto left_values = rows.column_values(i), right_values = mirror.column_values(i);
  for (size_t p = 0, q = 0; p < left.size() || q < right.size();) {
    if (q == right.size() || (p < left.size() && left[p] < right[q])) {
      visit(left[p], left_values[p], 0.0);
      ++p;
    } else if (p == left.size() || right[q] < left[p]) {
      visit(right[q], 0.0, right_values[q]);
      ++q;
    } else {
      visit(left[p], left_values[p], right_values[q]);
      ++p, ++q;
    }
  }
}

// With one unknown a node.
Result<CscMatrix> SymmetricCouplings(const CscView& rows, const Array<double>& roots,
                                     const Context& context) {
  return MakeRows(rows.n_cols, rows.n_cols, context, "the couplings",
                  [&](int64_t i, RowSink& sink, int) {
                    const double root = roots[Z(i)];
                    for (int64_t p = rows.col_ptr[Z(i)]; p < rows.col_ptr[Z(i) + 1]; ++p) {
                      const int32_t j = rows.row_idx[Z(p)];
                      if (j == i) continue;
                      // The mean of σ_i / |r_i r_j| and σ_j / |r_i r_j|, times a_ij.
                      const double other = roots[Z(j)];
                      const double s = rows.values[Z(p)] / (root * other);
                      sink.Add(j, (root > 0) == (other > 0) ? (root > 0 ? -s : s) : 0);
                    }
                  });
}
Result<CscMatrix> ScalarCouplings(const CscView& rows, const CscView& mirror,
                                  const Array<double>& roots, const Context& context) {
  return MakeRows(
      rows.n_cols, rows.n_cols, context, "the couplings", [&](int64_t i, RowSink& sink, int) {
        const double root = roots[Z(i)];
        ForUnion(rows, mirror, i, [&](int32_t j, double own, double mirrored) {
          if (j == i) return;
          // σ_i / (|r_i| |r_j|) = 1 / (r_i |r_j|).
          const double other = roots[Z(j)];
          const double s =
              -0.5 * (own / (root * std::fabs(other)) + mirrored / (std::fabs(root) * other));
          sink.Add(j, s);
        });
      });
}

// The rows of a node, merged.
class NodeRow {
 public:
  NodeRow(const CscView& a, int block, const Array<double>& roots)
      : a_(a), block_(block), roots_(roots) {}
  // Fills in the nodes of node row I, ascending, and Σ â² of each block.
  void Gather(int64_t node, std::vector<std::pair<int32_t, double>>* blocks) const {
    blocks->clear();
    for (int64_t i = node * block_; i < (node + 1) * block_; ++i) {
      const auto columns = a_.column(i);
      const auto values = a_.column_values(i);
      // Rows of a node mostly have the same columns: then none is new.
      const auto known = static_cast<std::ptrdiff_t>(blocks->size());
      size_t at = 0;
      int32_t other = -1, end = 0;  // the block at hand, and where the next begins
      for (size_t p = 0; p < columns.size(); ++p) {
        if (columns[p] >= end) {
          other = columns[p] / block_;
          end = (other + 1) * block_;
          while (at < Z(known) && (*blocks)[at].first < other) ++at;
          if (at == Z(known) || (*blocks)[at].first != other) blocks->emplace_back(other, 0);
        }
        const double scaled = values[p] / (roots_[Z(i)] * roots_[Z(columns[p])]);
        const bool is_known = at < Z(known) && (*blocks)[at].first == other;
        (is_known ? (*blocks)[at] : blocks->back()).second += scaled * scaled;
      }
      std::inplace_merge(blocks->begin(), blocks->begin() + known, blocks->end(),
                         [](const auto& x, const auto& y) { return x.first < y.first; });
    }
  }

 private:
  const CscView a_;
  const int block_;
  const Array<double>& roots_;
};

Result<CscMatrix> BlockNorms(const CscView& a, int block, const Array<double>& roots,
                             const Context& context) {
  const int64_t nodes = a.n_cols / block;
  const NodeRow row(a, block, roots);
  return MakeRows(nodes, nodes, context, "the couplings", [&](int64_t node, RowSink& sink, int) {
    std::vector<std::pair<int32_t, double>> blocks;
    row.Gather(node, &blocks);
    for (const auto& [other, squares] : blocks) {
      if (other != node) sink.Add(other, std::sqrt(squares));
    }
  });
}

}  // namespace

Result<CscMatrix> Couplings(const CscView& a, bool symmetric, int block, const Context& context) {
  const Array<double> roots = DiagonalRoots(a, context);
  if (block == 1) {
    if (symmetric) return SymmetricCouplings(a, roots, context);
    auto mirror = Transpose(a, context);
    if (!mirror.ok()) return mirror.status();
    return ScalarCouplings(a, *mirror, roots, context);
  }
  auto norms = BlockNorms(a, block, roots, context);
  if (!norms.ok() || symmetric) return norms;
  auto mirror = Transpose(*norms, context);
  if (!mirror.ok()) return mirror.status();
  const int64_t nodes = norms->n_cols;
  return MakeRows(nodes, nodes, context, "the couplings", [&](int64_t i, RowSink& sink, int) {
    ForUnion(*norms, *mirror, i,
             [&](int32_t j, double own, double mirrored) { sink.Add(j, 0.5 * (own + mirrored)); });
  });
}

Result<StrongGraph> FindStrong(const CscView& s, double theta, const Context& context) {
  const int64_t n = s.n_cols;
  StrongGraph graph{.n = n, .ptr = {}, .neighbours = {}, .weights = {}, .leader = {}};
  // The size that i's couplings have to reach.
  Array<double> least(Z(n));
  graph.leader.assign(Z(n), -1);
  ForRows(n, context, [&](int64_t i) {
    double most = 0;
    for (const double value : s.column_values(i)) most = std::max(most, value);
    least[Z(i)] = most > 0 ? theta * kStrengthTie * most : 0;
  });
  auto strong = MakeRows(n, n, context, "the strong couplings", [&](int64_t i, RowSink& sink, int) {
    const auto columns = s.column(i);
    const auto values = s.column_values(i);
    double leading = 0;
    for (size_t p = 0; p < columns.size(); ++p) {
      const double value = values[p];
      if (!(value > 0) || value < least[Z(i)]) continue;
      if (value >= least[Z(columns[p])]) {
        sink.Add(columns[p], value);
      } else if (value > leading) {
        leading = value;
        graph.leader[Z(i)] = columns[p];
      }
    }
  });
  if (!strong.ok()) return strong.status();
  graph.ptr = std::move(strong->col_ptr);
  graph.neighbours = std::move(strong->row_idx);
  graph.weights = std::move(strong->values);
  return graph;
}

Result<Pattern> FindDependences(const CscView& s, double theta, std::span<const uint8_t> unknown_of,
                                const Context& context) {
  const int64_t n = s.n_cols;
  auto found = MakeRows(n, n, context, "the dependences", [&](int64_t i, RowSink& sink, int) {
    const auto columns = s.column(i);
    const auto values = s.column_values(i);
    const auto counts = [&](size_t p) {
      return values[p] > 0 && (unknown_of.empty() || unknown_of[Z(columns[p])] == unknown_of[Z(i)]);
    };
    double most = 0;
    for (size_t p = 0; p < columns.size(); ++p) {
      if (counts(p)) most = std::max(most, values[p]);
    }
    for (size_t p = 0; p < columns.size(); ++p) {
      if (counts(p) && values[p] >= theta * kStrengthTie * most) sink.Add(columns[p], values[p]);
    }
  });
  if (!found.ok()) return found.status();
  return Pattern{.n_rows = n,
                 .n_cols = n,
                 .col_ptr = std::move(found->col_ptr),
                 .row_idx = std::move(found->row_idx)};
}

}  // namespace spaid::kernels
