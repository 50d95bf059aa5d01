#include "kernels/amg/prolongation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/amg/truncation.h"
#include "kernels/krylov/operators.h"
#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/products.h"

namespace spaid::kernels {
namespace {

constexpr double kTight = 2.2;  // row sums up to it are a good bound on ρ
constexpr int kPowerSteps = 12;
constexpr int kMostAggregates = 12;  // a row of P
constexpr double kGrain = 64;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// The largest body(i), in blocks, so that it does not depend on the threads; body is not negative.
template <class Body>
double Largest(int64_t n, const Context& context, const Body& body) {
  Array<double> of_block(Z((n + kRowsOfOneThread - 1) / kRowsOfOneThread), 0.0);
  ParallelFor(n, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    double& most = of_block[Z(begin / kRowsOfOneThread)];
    for (int64_t i = begin; i < end; ++i) most = std::max(most, body(i));
  });
  return of_block.empty() ? 0 : *std::max_element(of_block.begin(), of_block.end());
}

// Writes y = A x / scale and returns ‖y‖₂, summed in blocks.
double PowerStep(const CsrOperator& rows, const Array<double>& x, double scale,
                 const Context& context, Array<double>& y) {
  const int64_t n = rows.n();
  rows.Apply(x, y, context.threads);
  Array<double> squares(Z((n + kRowsOfOneThread - 1) / kRowsOfOneThread), 0.0);
  ParallelFor(n, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      y[Z(i)] /= scale;
      sum += y[Z(i)] * y[Z(i)];
    }
    squares[Z(begin / kRowsOfOneThread)] = sum;
  });
  double sum = 0;
  for (const double part : squares) sum += part;
  return std::sqrt(sum);
}

// Whether entries of a node's row stay, by their columns. Asked in ascending order.
class StrongRow {
 public:
  StrongRow(const StrongGraph& graph, const Aggregates& aggregates, int32_t node, int block)
      : neighbours_(graph.of(node)), node_(node), block_(block) {
    if (neighbours_.empty() && aggregates.of_node[Z(node)] >= 0) leader_ = graph.leader[Z(node)];
  }
  bool Stays(int32_t column) {
    const int32_t other = block_ == 1 ? column : column / block_;
    if (other == node_) return true;
    while (at_ < neighbours_.size() && neighbours_[at_] < other) ++at_;
    return other == leader_ || (at_ < neighbours_.size() && neighbours_[at_] == other);
  }

 private:
  std::span<const int32_t> neighbours_;
  size_t at_ = 0;
  int32_t node_, block_;
  int32_t leader_ = -1;
};

// The same by a row of a filtered matrix.
class KeptRow {
 public:
  explicit KeptRow(std::span<const int32_t> columns) : columns_(columns) {}
  bool Stays(int32_t column) {
    while (at_ < columns_.size() && columns_[at_] < column) ++at_;
    return at_ < columns_.size() && columns_[at_] == column;
  }

 private:
  std::span<const int32_t> columns_;
  size_t at_ = 0;
};

// A row of D_F⁻¹ A_F.
class FilteredRow {
 public:
  FilteredRow(const CscView& a, const NearNull& near_null, int block, double least_left)
      : a_(a),
        near_null_(near_null),
        least_left_(least_left),
        lump_(block == 1 && near_null.count == 1) {}

  // visit(column, value), ascending. `strong`: a StrongRow or KeptRow at its beginning.
  template <class Strong, class VisitEntry>
  void Visit(int64_t i, const Strong& strong, const VisitEntry& visit) const {
    const auto columns = a_.column(i);
    const auto values = a_.column_values(i);
    const bool lump = Lumps(i);
    double diagonal = 0, weak = 0;
    Strong row = strong;
    for (size_t p = 0; p < columns.size(); ++p) {
      if (columns[p] == i) {
        diagonal = values[p];
      } else if (lump && !row.Stays(columns[p])) {
        weak += Weak(values[p], columns[p], i);
      }
    }
    row = strong;
    const double divisor = Divisor(diagonal, weak);
    for (size_t p = 0; p < columns.size(); ++p) {
      if (columns[p] == i) {
        visit(columns[p], 1.0);
      } else if (row.Stays(columns[p])) {
        visit(columns[p], values[p] / divisor);
      }
    }
  }

  // The same into the values of known columns; false where the row lacks one of them.
  bool Fill(int64_t i, std::span<const int32_t> kept, double* to) const {
    const auto columns = a_.column(i);
    const auto values = a_.column_values(i);
    const bool lump = Lumps(i);
    double diagonal = 0, weak = 0;
    size_t q = 0;
    for (size_t p = 0; p < columns.size(); ++p) {
      if (columns[p] == i) diagonal = values[p];
      if (q < kept.size() && kept[q] == columns[p]) {
        to[q++] = values[p];
      } else if (lump) {
        weak += Weak(values[p], columns[p], i);
      }
    }
    const double divisor = Divisor(diagonal, weak);
    for (size_t p = 0; p < q; ++p) to[p] = kept[p] == i ? 1 : to[p] / divisor;
    return q == kept.size();
  }

 private:
  double Near(int64_t i) const { return near_null_.ones() ? 1.0 : near_null_.values[Z(i)]; }
  bool Lumps(int64_t i) const { return lump_ && Near(i) != 0; }
  double Weak(double value, int64_t j, int64_t i) const { return value * (Near(j) / Near(i)); }
  double Divisor(double diagonal, double weak) const {
    const double lumped = diagonal + weak;
    return lumped / diagonal >= least_left_ ? lumped : diagonal;
  }

  const CscView a_;
  const NearNull& near_null_;
  const double least_left_;
  const bool lump_;
};

}  // namespace

Result<CscMatrix> FilterWeak(const CscView& a, const StrongGraph& graph,
                             const Aggregates& aggregates, const NearNull& near_null, int block,
                             double least_left, const Context& context) {
  const FilteredRow row(a, near_null, block, least_left);
  return MakeRows(a.n_cols, a.n_cols, context, "the filtered matrix",
                  [&](int64_t i, RowSink& sink, int) {
                    const auto node = static_cast<int32_t>(i / block);
                    row.Visit(i, StrongRow(graph, aggregates, node, block),
                              [&](int32_t j, double value) { sink.Add(j, value); });
                  });
}

Result<SharedMatrix> FilterWeakOn(const SharedPattern& filtered, const CscView& a,
                                  const NearNull& near_null, int block, double least_left,
                                  const Context& context) {
  const FilteredRow row(a, near_null, block, least_left);
  const PatternView known = *filtered;
  return GuardMemory("the filtered matrix", [&]() -> Result<SharedMatrix> {
    SharedMatrix made{.pattern = filtered, .values = Array<double>(filtered->row_idx.size())};
    std::atomic<bool> fits{true};
    ForRows(a.n_cols, context, [&](int64_t i) {
      if (!row.Fill(i, known.column(i), made.values.data() + known.col_ptr[Z(i)])) {
        fits.store(false, std::memory_order_relaxed);
      }
    });
    if (fits) return made;
    auto anew = MakeRows(a.n_cols, a.n_cols, context, "the filtered matrix",
                         [&](int64_t i, RowSink& sink, int) {
                           row.Visit(i, KeptRow(known.column(i)),
                                     [&](int32_t j, double value) { sink.Add(j, value); });
                         });
    if (!anew.ok()) return anew.status();
    return Share(*std::move(anew));
  });
}

double SpectralBound(const CscView& rows, double tight, int steps, const Context& context) {
  double rho = Largest(rows.n_cols, context, [&](int64_t i) {
    double sum = 0;
    for (const double value : rows.column_values(i)) sum += std::fabs(value);
    return sum;
  });
  if (rho > tight) {
    Array<double> x(Z(rows.n_cols)), y(Z(rows.n_cols));
    ForRows(rows.n_cols, context, [&](int64_t i) {
      x[Z(i)] = 0x1p-64 * static_cast<double>(AggregationKey(i, 0)) - 0.5;
    });
    double norm = 0;
    for (const double xi : x) norm += xi * xi;
    norm = std::sqrt(norm);
    const CsrOperator a = CsrOperator::FromRows(rows, context.threads);
    for (int step = 0; step < steps && norm > 0; ++step) {
      norm = PowerStep(a, x, norm, context, y);
      std::swap(x, y);
    }
    rho = std::min(rho, 1.1 * norm);
  }
  return std::ceil(rho * kGrain) / kGrain;
}

namespace {

bool HasLongRows(const PatternView& p, int count) {
  const int64_t most = int64_t{kMostAggregates} * count;
  for (int64_t i = 0; i < p.n_cols; ++i) {
    if (p.col_ptr[Z(i) + 1] - p.col_ptr[Z(i)] > most) return true;
  }
  return false;
}

}  // namespace

Result<Smoothed> SmoothProlongation(SharedMatrix filtered, const Tentative& tentative,
                                    KeptProlongation& kept, const Context& context) {
  return GuardMemory("the smoothed prolongation", [&]() -> Result<Smoothed> {
    Smoothed made;
    made.rho = SpectralBound(filtered, kTight, kPowerSteps, context);
    const double omega = 4 / (3 * made.rho);
    const Pattern& pattern = *filtered.pattern;
    ForRows(filtered.n(), context, [&](int64_t i) {
      for (int64_t p = pattern.col_ptr[Z(i)]; p < pattern.col_ptr[Z(i) + 1]; ++p) {
        const double scaled = -omega * filtered.values[Z(p)];
        filtered.values[Z(p)] = pattern.row_idx[Z(p)] == i ? 1 + scaled : scaled;
      }
    });
    const SharedPattern before = kept.whole.product;
    auto p = Multiply(filtered, tentative.p, kept.whole, context);
    if (!p.ok()) return p.status();
    const Truncation truncation(tentative.coarse, kMostAggregates);
    const CscView whole = *p;
    if (p->pattern == before) {
      if (kept.cut == nullptr) {
        made.p = *std::move(p);
        return made;
      }
      made.p = {.pattern = kept.cut, .values = Array<double>(kept.cut->row_idx.size())};
      ForRows(whole.n_cols, context, [&](int64_t i) {
        truncation.Fill(whole.column(i), whole.column_values(i), PatternView(*kept.cut).column(i),
                        made.p.values.data() + kept.cut->col_ptr[Z(i)]);
      });
      return made;
    }
    kept.cut = nullptr;
    if (!HasLongRows(whole, tentative.coarse.count)) {
      made.p = *std::move(p);
      return made;
    }
    auto cut = MakeRows(whole.n_cols, whole.n_rows, context, "the smoothed prolongation",
                        [&](int64_t i, RowSink& sink, int) {
                          truncation.Add(whole.column(i), whole.column_values(i), sink);
                        });
    if (!cut.ok()) return cut.status();
    made.p = Share(*std::move(cut));
    kept.cut = made.p.pattern;
    return made;
  });
}

}  // namespace spaid::kernels
