#include "kernels/amg/prolongation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/products.h"

namespace spaid::kernels {
namespace {

constexpr double kTight = 2.2;  // row sums up to it are a good bound on ρ
constexpr int kPowerSteps = 12;
constexpr size_t kMostAggregates = 12;  // a row of P
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
double PowerStep(const CscView& rows, const Array<double>& x, double scale, const Context& context,
                 Array<double>& y) {
  const int64_t n = rows.n_cols;
  Array<double> squares(Z((n + kRowsOfOneThread - 1) / kRowsOfOneThread), 0.0);
  ParallelFor(n, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      double yi = 0;
      for (int64_t p = rows.col_ptr[Z(i)]; p < rows.col_ptr[Z(i) + 1]; ++p) {
        yi += rows.values[Z(p)] * x[Z(rows.row_idx[Z(p)])];
      }
      yi /= scale;
      y[Z(i)] = yi;
      sum += yi * yi;
    }
    squares[Z(begin / kRowsOfOneThread)] = sum;
  });
  double sum = 0;
  for (const double part : squares) sum += part;
  return std::sqrt(sum);
}

// Whether entries of a node's row in another node's columns stay. Asked in ascending order.
class StrongRow {
 public:
  StrongRow(const StrongGraph& graph, const Aggregates& aggregates, int64_t node)
      : neighbours_(graph.of(node)) {
    if (neighbours_.empty() && aggregates.of_node[Z(node)] >= 0) leader_ = graph.leader[Z(node)];
  }
  bool Stays(int32_t other) {
    while (at_ < neighbours_.size() && neighbours_[at_] < other) ++at_;
    return other == leader_ || (at_ < neighbours_.size() && neighbours_[at_] == other);
  }

 private:
  std::span<const int32_t> neighbours_;
  size_t at_ = 0;
  int32_t leader_ = -1;
};

}  // namespace

Result<CscMatrix> FilterWeak(const CscView& a, const StrongGraph& graph,
                             const Aggregates& aggregates, const NearNull& near_null, int block,
                             double least_left, const Context& context) {
  const bool lump = block == 1 && near_null.count == 1;
  const auto near = [&](int64_t i) { return near_null.ones() ? 1.0 : near_null.values[Z(i)]; };
  return MakeRows(a.n_cols, a.n_cols, context, "the filtered matrix",
                  [&](int64_t i, RowSink& sink, int) {
                    const auto columns = a.column(i);
                    const auto values = a.column_values(i);
                    const int64_t node = i / block;
                    double diagonal = 0, weak = 0;
                    StrongRow strong(graph, aggregates, node);
                    for (size_t p = 0; p < columns.size(); ++p) {
                      if (columns[p] == i) {
                        diagonal = values[p];
                      } else if (lump && near(i) != 0 && !strong.Stays(columns[p])) {
                        weak += values[p] * (near(columns[p]) / near(i));
                      }
                    }
                    strong = StrongRow(graph, aggregates, node);
                    const double lumped = diagonal + weak;
                    const double of_row = lumped / diagonal >= least_left ? lumped : diagonal;
                    for (size_t p = 0; p < columns.size(); ++p) {
                      const int32_t other = columns[p] / block;
                      if (columns[p] == i) {
                        sink.Add(columns[p], 1);
                      } else if (other == node || strong.Stays(other)) {
                        sink.Add(columns[p], values[p] / of_row);
                      }
                    }
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
    double norm = 0;
    for (int64_t i = 0; i < rows.n_cols; ++i) {
      x[Z(i)] = std::ldexp(static_cast<double>(AggregationKey(i, 0)), -64) - 0.5;
      norm += x[Z(i)] * x[Z(i)];
    }
    norm = std::sqrt(norm);
    for (int step = 0; step < steps && norm > 0; ++step) {
      norm = PowerStep(rows, x, norm, context, y);
      std::swap(x, y);
    }
    rho = std::min(rho, 1.1 * norm);
  }
  return std::ceil(rho * kGrain) / kGrain;
}

namespace {

// Leaves the largest aggregates of a row. `size` columns each.
class Truncation {
 public:
  Truncation(const NearNull& coarse) : coarse_(coarse), size_(coarse.count) {}
  void Add(std::span<const int32_t> columns, std::span<const double> values, RowSink& sink) const {
    std::vector<std::pair<double, int32_t>>
        groups;  // minus the norm, aggregate: ties to the lower one
    for (size_t p = 0; p < columns.size(); ++p) {
      const int32_t group = columns[p] / size_;
      if (groups.empty() || groups.back().second != group) groups.emplace_back(0, group);
      groups.back().first -= values[p] * values[p];
    }
    if (groups.size() <= kMostAggregates) {
      for (size_t p = 0; p < columns.size(); ++p) sink.Add(columns[p], values[p]);
      return;
    }
    std::nth_element(groups.begin(), groups.begin() + kMostAggregates - 1, groups.end());
    const auto last = groups[kMostAggregates - 1];
    std::vector<int32_t> kept;
    for (const auto& group : groups) {
      if (group <= last) kept.push_back(group.second);
    }
    std::sort(kept.begin(), kept.end());
    const auto stays = [&](int32_t column) {
      return std::binary_search(kept.begin(), kept.end(), column / size_);
    };
    double all = 0, left = 0;
    for (size_t p = 0; p < columns.size(); ++p) {
      const double part = values[p] * (coarse_.ones() ? 1.0 : coarse_.values[Z(columns[p])]);
      all += part;
      if (stays(columns[p])) left += part;
    }
    const double scale = size_ == 1 && left != 0 && all / left > 0 ? all / left : 1;
    for (size_t p = 0; p < columns.size(); ++p) {
      if (stays(columns[p])) sink.Add(columns[p], values[p] * scale);
    }
  }

 private:
  const NearNull& coarse_;
  const int32_t size_;
};

}  // namespace

Result<Smoothed> SmoothProlongation(const CscView& filtered, const Tentative& tentative,
                                    const Context& context) {
  return GuardMemory("the smoothed prolongation", [&]() -> Result<Smoothed> {
    Smoothed made;
    made.rho = SpectralBound(filtered, kTight, kPowerSteps, context);
    const double omega = 4 / (3 * made.rho);
    Array<double> values(filtered.values.size());
    ForRows(filtered.n_cols, context, [&](int64_t i) {
      for (int64_t p = filtered.col_ptr[Z(i)]; p < filtered.col_ptr[Z(i) + 1]; ++p) {
        const double scaled = -omega * filtered.values[Z(p)];
        values[Z(p)] = filtered.row_idx[Z(p)] == i ? 1 + scaled : scaled;
      }
    });
    CscView smoother = filtered;
    smoother.values = values;
    auto p = Multiply(smoother, tentative.p, context);
    if (!p.ok()) return p.status();
    const Truncation truncation(tentative.coarse);
    const int64_t n = p->n_cols;
    const bool long_rows = Largest(n, context, [&](int64_t i) {
                             return static_cast<double>(p->col_ptr[Z(i) + 1] - p->col_ptr[Z(i)]);
                           }) > static_cast<double>(kMostAggregates) * tentative.coarse.count;
    if (long_rows) {
      const CscView whole = *p;
      auto cut = MakeRows(n, p->n_rows, context, "the smoothed prolongation",
                          [&](int64_t i, RowSink& sink, int) {
                            truncation.Add(whole.column(i), whole.column_values(i), sink);
                          });
      if (!cut.ok()) return cut.status();
      *p = *std::move(cut);
    }
    made.p = *std::move(p);
    return made;
  });
}

}  // namespace spaid::kernels
