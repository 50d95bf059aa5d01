#include "kernels/mpi/spread_pattern.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Columns of a spread pattern that this rank has, with all their rows.
struct Reached {
  Array<int32_t> columns;
  Array<int64_t> ptr;
  Array<int32_t> rows;
};

// The columns of `base` that those of this rank reach by power − 1 steps.
Status Reach(const SpreadMatrix& a, const Pattern& base, int power, HaloBudget& budget,
             Reached& out) {
  const IndexRange own = a.own();
  for (int64_t k = own.begin; k < own.end; ++k) out.columns.push_back(static_cast<int32_t>(k));
  out.ptr = base.col_ptr;
  out.rows = base.row_idx;
  for (int step = 1; step < power; ++step) {
    Numbering next(a.n);
    next.Insert(out.columns);
    next.Insert(out.rows);
    next.Close();
    if (SumOf(a.comm, next.size() - std::ssize(out.columns)) == 0) break;
    Halo halo(a.comm, a.begin, base.col_ptr, next.global());
    // Fetches columns of an earlier step once more, in place of those that it brought.
    HaloBudget so_far{budget.limit, 0};
    if (Status status = so_far.Take(a.comm, halo, sizeof(int32_t)); !status.ok()) return status;
    budget.fetched = so_far.fetched;
    out.columns = next.global();
    out.ptr = halo.ptr();
    out.rows = halo.Entries<int32_t>(base.row_idx);
  }
  return {};
}

// Column k of the whole gets row k.
void AddDiagonal(IndexRange own, Pattern& pattern) {
  const auto diagonal_of = [&](int64_t k) { return static_cast<int32_t>(own.begin + k); };
  const auto place = [&](int64_t k) {
    const auto rows = PatternView(pattern).column(k);
    return std::ranges::lower_bound(rows, diagonal_of(k)) - rows.begin();
  };
  const auto has = [&](int64_t k) {
    const auto rows = PatternView(pattern).column(k);
    const auto at = place(k);
    return at < std::ssize(rows) && rows[Z(at)] == diagonal_of(k);
  };
  int64_t missing = 0;
  for (int64_t k = 0; k < own.size(); ++k) missing += has(k) ? 0 : 1;
  if (missing == 0) return;
  Pattern grown{pattern.n_rows, pattern.n_cols, {0}, {}};
  grown.row_idx.reserve(Z(pattern.nnz() + missing));
  for (int64_t k = 0; k < own.size(); ++k) {
    const auto rows = PatternView(pattern).column(k);
    const auto at = rows.begin() + place(k);
    grown.row_idx.insert(grown.row_idx.end(), rows.begin(), at);
    if (!has(k)) grown.row_idx.push_back(diagonal_of(k));
    grown.row_idx.insert(grown.row_idx.end(), at, rows.end());
    grown.col_ptr.push_back(grown.nnz());
  }
  pattern = std::move(grown);
}

}  // namespace

Pattern Compress(const Numbering& of, std::span<const int32_t> columns,
                 std::span<const int64_t> ptr, std::span<const int32_t> rows) {
  Pattern part;
  part.n_rows = part.n_cols = of.size();
  part.col_ptr.assign(Z(of.size() + 1), 0);
  for (size_t w = 0; w < columns.size(); ++w) {
    part.col_ptr[Z(of.Local(columns[w])) + 1] = ptr[w + 1] - ptr[w];
  }
  for (size_t k = 1; k < part.col_ptr.size(); ++k) part.col_ptr[k] += part.col_ptr[k - 1];
  part.row_idx.resize(rows.size());
  std::ranges::transform(rows, part.row_idx.begin(), [&](int32_t i) { return of.Local(i); });
  return part;
}

Result<SpreadPattern> PowerOf(const SpreadMatrix& a, SpreadPattern base,
                              const PatternOptions& options, const Context& context,
                              HaloBudget& budget, std::string_view what) {
  if (options.power == 1) {
    Status status = Locally(a.comm, what, [&]() -> Status {
      AddDiagonal(a.own(), base);
      return {};
    });
    if (!status.ok()) return status;
    return base;
  }
  const IndexRange own = a.own();
  Reached reached;
  if (Status status = Reach(a, base, options.power, budget, reached); !status.ok()) return status;
  SpreadPattern pattern;
  Status status = Watched(a.comm, context, Stage::kPlan, [&](const Context& inner) {
    return GuardMemory(what, [&]() -> Status {
      Numbering of(a.n);
      of.Insert(reached.columns);
      of.Insert(reached.rows);
      of.Close();
      // Own numbers are consecutive, and stay so.
      const int64_t first = own.size() > 0 ? of.Local(static_cast<int32_t>(own.begin)) : 0;
      Result<Pattern> power = PowerPattern(Compress(of, reached.columns, reached.ptr, reached.rows),
                                           options, {first, first + own.size()}, inner);
      if (!power.ok()) return power.status();
      pattern = {a.n, own.size(), {}, std::move(power->row_idx)};
      for (int32_t& i : pattern.row_idx) i = of.global()[Z(i)];
      pattern.col_ptr.assign(power->col_ptr.begin() + first,
                             power->col_ptr.begin() + first + own.size() + 1);
      return {};
    });
  });
  if (!status.ok()) return status;
  return pattern;
}

}  // namespace spaid::kernels::mpi
