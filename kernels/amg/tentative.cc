#include "kernels/amg/tentative.h"

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/sparse/make_rows.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// The nodes of each aggregate, ascending.
struct Members {
  Array<int64_t> begin;  // count + 1
  Array<int32_t> nodes;
};

Members MembersOf(const Aggregates& aggregates) {
  Members of;
  of.begin.assign(Z(aggregates.count) + 1, 0);
  for (const int32_t g : aggregates.of_node) {
    if (g >= 0) ++of.begin[Z(g) + 1];
  }
  for (int64_t g = 0; g < aggregates.count; ++g) of.begin[Z(g) + 1] += of.begin[Z(g)];
  of.nodes.resize(Z(of.begin.back()));
  Array<int64_t> next = of.begin;
  for (size_t i = 0; i < aggregates.of_node.size(); ++i) {
    const int32_t g = aggregates.of_node[i];
    if (g >= 0) of.nodes[Z(next[Z(g)]++)] = static_cast<int32_t>(i);
  }
  return of;
}

double Dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum = std::fma(x[i], y[i], sum);
  return sum;
}

// q (rows x count, column-major) becomes Q, r (count x count, column-major) R; returns dropped
// columns.
int64_t Orthonormalise(int64_t rows, int count, double* q, double* r) {
  int64_t dropped = 0;
  for (int k = 0; k < count; ++k) {
    double* const column = q + k * rows;
    const double before = std::sqrt(Dot(column, column, rows));
    for (int pass = 0; pass < 2; ++pass) {
      for (int l = 0; l < k; ++l) {
        const double along = Dot(q + l * rows, column, rows);
        r[l + k * count] += along;
        for (int64_t i = 0; i < rows; ++i) column[i] = std::fma(-along, q[l * rows + i], column[i]);
      }
    }
    const double norm = std::sqrt(Dot(column, column, rows));
    if (!(norm > kDependentColumn * before)) {
      for (int64_t i = 0; i < rows; ++i) column[i] = 0;
      ++dropped;
      continue;
    }
    r[k + k * count] = norm;
    for (int64_t i = 0; i < rows; ++i) column[i] /= norm;
  }
  return dropped;
}

// Fills in a matrix of n rows on the pattern `kept`; false where there is none, or another.
template <class ForRow>
bool FillIn(int64_t n, const ForRow& for_row, const SharedPattern& kept, const Context& context,
            SharedMatrix* made) {
  if (kept == nullptr || kept->n_cols != n) return false;
  Array<double> values(kept->row_idx.size());
  std::atomic<bool> fits{true};
  ForRows(n, context, [&](int64_t i) {
    int64_t at = kept->col_ptr[Z(i)];
    const int64_t end = kept->col_ptr[Z(i) + 1];
    bool same = true;
    for_row(i, [&](int32_t j, double value) {
      same = same && at < end && kept->row_idx[Z(at)] == j;
      if (same) values[Z(at++)] = value;
    });
    if (!same || at != end) fits.store(false, std::memory_order_relaxed);
  });
  if (!fits) return false;
  *made = {.pattern = kept, .values = std::move(values)};
  return true;
}

}  // namespace

Result<Tentative> MakeTentative(const Aggregates& aggregates, const NearNull& near_null, int block,
                                const Context& context, const SharedPattern& kept) {
  return GuardMemory("the tentative prolongation", [&]() -> Result<Tentative> {
    const int count = near_null.count;
    const int64_t n = near_null.n;
    Tentative made;
    made.coarse.n = aggregates.count * count;
    made.coarse.count = count;
    Array<double> rows_of_p;  // n x count, by rows
    if (!near_null.ones()) {
      rows_of_p.assign(Z(n * count), 0.0);
      made.coarse.values.assign(Z(aggregates.count * count * count), 0.0);
      const Members members = MembersOf(aggregates);
      std::atomic<int64_t> dependent{0};
      ForRows(aggregates.count, context, [&](int64_t g) {
        const int64_t first = members.begin[Z(g)];
        const int64_t rows = (members.begin[Z(g) + 1] - first) * block;
        std::vector<double> q(Z(rows * count)), r(Z(int64_t{count} * count), 0.0);
        const auto row = [&](int64_t i) {
          return int64_t{members.nodes[Z(first + i / block)]} * block + i % block;
        };
        for (int k = 0; k < count; ++k) {
          for (int64_t i = 0; i < rows; ++i)
            q[Z(k * rows + i)] = near_null.values[Z(k * n + row(i))];
        }
        dependent += Orthonormalise(rows, count, q.data(), r.data());
        for (int k = 0; k < count; ++k) {
          for (int64_t i = 0; i < rows; ++i) rows_of_p[Z(row(i) * count + k)] = q[Z(k * rows + i)];
          for (int l = 0; l < count; ++l) {
            made.coarse.values[Z(k * made.coarse.n + g * count + l)] = r[Z(l + int64_t{k} * count)];
          }
        }
      });
      made.dependent = dependent;
    }
    // visit(column, value) for the entries of row i.
    const auto for_row = [&](int64_t i, const auto& visit) {
      const int64_t g = aggregates.of_node[Z(i / block)];
      if (g < 0) return;
      for (int k = 0; k < count; ++k) {
        const double value = near_null.ones() ? 1.0 : rows_of_p[Z(i * count + k)];
        if (value != 0) visit(static_cast<int32_t>(g * count + k), value);
      }
    };
    if (FillIn(n, for_row, kept, context, &made.p)) return made;
    auto p = MakeRows(n, made.coarse.n, context, "the tentative prolongation",
                      [&](int64_t i, RowSink& sink, int) {
                        for_row(i, [&](int32_t j, double value) { sink.Add(j, value); });
                      });
    if (!p.ok()) return p.status();
    made.p = Share(*std::move(p));
    return made;
  });
}

}  // namespace spaid::kernels
