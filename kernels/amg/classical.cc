#include "kernels/amg/classical.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/amg/truncation.h"
#include "kernels/base/parallel.h"
#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int kMostInRow = 4;  // entries of a row of P

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// All that rows of P are made from, by rows. Coarse unknowns go by their coarse numbers.
struct Fine {
  const CscView a;
  const PatternView depends;
  const Aggregates& coarse;
  bool symmetric;
  double least_left;
  Array<double> near;      // the near-null vector, 1 where it is zero
  Array<double> diagonal;  // of A
  Pattern depends_coarse;  // the coarse unknowns that a fine one depends on
  CscMatrix a_coarse;      // entries of A there, of another sign than the diagonal's

  bool IsCoarse(int64_t i) const { return coarse.of_node[Z(i)] >= 0; }
};

Result<Fine> MakeFine(const CscView& a, const PatternView& depends, const Aggregates& coarse,
                      const NearNull& near_null, bool symmetric, double least_left,
                      const Context& context) {
  const int64_t n = a.n_cols;
  Fine made{.a = a,
            .depends = depends,
            .coarse = coarse,
            .symmetric = symmetric,
            .least_left = least_left,
            .near = Array<double>(Z(n), 1.0),
            .diagonal = Array<double>(Z(n), 0.0),
            .depends_coarse = {},
            .a_coarse = {}};
  ForRows(n, context, [&](int64_t i) {
    if (!near_null.ones() && near_null.values[Z(i)] != 0) made.near[Z(i)] = near_null.values[Z(i)];
    const auto columns = a.column(i);
    const auto at = std::lower_bound(columns.begin(), columns.end(), static_cast<int32_t>(i));
    if (at != columns.end() && *at == i) {
      made.diagonal[Z(i)] = a.column_values(i)[static_cast<size_t>(at - columns.begin())];
    }
  });
  auto strong =
      MakeRows(n, coarse.count, context, "the interpolation", [&](int64_t i, RowSink& sink, int) {
        if (made.IsCoarse(i)) return;
        for (const int32_t j : depends.column(i)) {
          if (made.IsCoarse(j)) sink.Add(coarse.of_node[Z(j)], 0);
        }
      });
  if (!strong.ok()) return strong.status();
  made.depends_coarse = {strong->n_rows, strong->n_cols, std::move(strong->col_ptr),
                         std::move(strong->row_idx)};
  auto entries =
      MakeRows(n, coarse.count, context, "the interpolation", [&](int64_t i, RowSink& sink, int) {
        if (made.IsCoarse(i)) return;
        const double of_i = made.diagonal[Z(i)] * made.near[Z(i)];
        for (int64_t p = a.col_ptr[Z(i)]; p < a.col_ptr[Z(i) + 1]; ++p) {
          const int32_t j = a.row_idx[Z(p)];
          if (made.IsCoarse(j) && a.values[Z(p)] * made.near[Z(j)] * of_i < 0) {
            sink.Add(coarse.of_node[Z(j)], a.values[Z(p)]);
          }
        }
      });
  if (!entries.ok()) return entries.status();
  made.a_coarse = *std::move(entries);
  return made;
}

// Makes rows of P, one after the other.
class Interpolation {
 public:
  Interpolation(const Fine& fine, const NearNull& injected)
      : fine_(fine), injected_(injected), place_(Z(fine.coarse.count), -1) {}

  // Row i, ascending, until the next.
  void Make(int64_t i) {
    columns_.clear();
    values_.clear();
    if (fine_.IsCoarse(i)) {
      columns_.push_back(fine_.coarse.of_node[Z(i)]);
      values_.push_back(1);
      return;
    }
    Gather(i);
    if (columns_.empty()) return;
    const double divisor = Weigh(i);
    for (size_t p = 0; p < columns_.size(); ++p) {
      place_[Z(columns_[p])] = -1;
      values_[p] /= -divisor;
    }
  }
  std::span<const int32_t> columns() const { return columns_; }
  std::span<const double> values() const { return values_; }

 private:
  // The coarse unknowns that i is interpolated from.
  void Gather(int64_t i) {
    const auto add = [&](int64_t k) {
      for (const int32_t c : PatternView(fine_.depends_coarse).column(k)) {
        if (std::exchange(place_[Z(c)], 0) < 0) columns_.push_back(c);
      }
    };
    add(i);
    for (const int32_t j : fine_.depends.column(i)) add(j);
    std::sort(columns_.begin(), columns_.end());
    for (size_t p = 0; p < columns_.size(); ++p) place_[Z(columns_[p])] = static_cast<int32_t>(p);
    values_.assign(columns_.size(), 0);
  }

  // Fills in values_; returns minus what they are to be divided by.
  double Weigh(int64_t i) {
    const auto strong = fine_.depends.column(i);
    const auto columns = fine_.a.column(i);
    const auto values = fine_.a.column_values(i);
    double back = 0, weak = 0;
    for (size_t p = 0, q = 0; p < columns.size(); ++p) {
      const int32_t j = columns[p];
      if (j == i) continue;
      while (q < strong.size() && strong[q] < j) ++q;
      const int32_t c = fine_.coarse.of_node[Z(j)];
      if (c >= 0 && place_[Z(c)] >= 0) {
        values_[Z(place_[Z(c)])] += values[p];
      } else if (c >= 0 || q == strong.size() || strong[q] != j ||
                 !Distribute(i, j, values[p], &back)) {
        weak += values[p] * (fine_.near[Z(j)] / fine_.near[Z(i)]);
      }
    }
    const double own = fine_.diagonal[Z(i)];
    const double divisor = own + back + weak;
    return divisor / own >= fine_.least_left ? divisor : own;
  }

  // Entry (k, i) of A, where (i, k) is `mirrored`.
  double Entry(int64_t k, int64_t i, double mirrored) const {
    if (fine_.symmetric) return mirrored;
    const auto columns = fine_.a.column(k);
    const auto at = std::lower_bound(columns.begin(), columns.end(), static_cast<int32_t>(i));
    if (at == columns.end() || *at != i) return 0;
    return fine_.a.column_values(k)[static_cast<size_t>(at - columns.begin())];
  }

  // Puts what i takes of its fine neighbour k in the place of k on the coarse unknowns and i, as
  // row k of A interpolates k from them: from entries of another sign than its diagonal. False: it
  // has none.
  bool Distribute(int64_t i, int64_t k, double value, double* back) {
    const CscView entries = fine_.a_coarse;
    const auto columns = entries.column(k);
    const auto values = entries.column_values(k);
    if (shares_.size() < columns.size()) shares_.resize(2 * columns.size());
    const double of_k = fine_.diagonal[Z(k)] * fine_.near[Z(k)];
    double own = Entry(k, i, value);
    if (!(own * fine_.near[Z(i)] * of_k < 0)) own = 0;
    // Which of them are points of i cannot be foretold: no branch.
    size_t count = 0;
    double sum = own * fine_.near[Z(i)];
    for (size_t p = 0; p < columns.size(); ++p) {
      const int32_t at = place_[Z(columns[p])];
      const double near = injected_.ones() ? 1.0 : injected_.values[Z(columns[p])];
      shares_[count] = {at, values[p]};
      count += at >= 0;
      sum += at >= 0 ? values[p] * (near == 0 ? 1.0 : near) : 0.0;
    }
    if (sum == 0) return false;
    const double factor = value * fine_.near[Z(k)] / sum;
    for (size_t p = 0; p < count; ++p) values_[Z(shares_[p].first)] += factor * shares_[p].second;
    *back += factor * own;
    return true;
  }

  const Fine& fine_;
  const NearNull& injected_;
  Array<int32_t> place_;  // in columns_; -1
  std::vector<int32_t> columns_;
  std::vector<double> values_;
  std::vector<std::pair<int32_t, double>> shares_;
};

// One for each thread, made where it is first used.
class Interpolations {
 public:
  Interpolations(const Fine& fine, const NearNull& injected, const Context& context)
      : fine_(fine), injected_(injected), of_worker_(Z(ResolveThreads(context.threads))) {}
  const Interpolation& Make(int64_t i, int worker) {
    auto& row = of_worker_[Z(worker)];
    if (row == nullptr) row = std::make_unique<Interpolation>(fine_, injected_);
    row->Make(i);
    return *row;
  }

 private:
  const Fine& fine_;
  const NearNull& injected_;
  std::vector<std::unique_ptr<Interpolation>> of_worker_;
};

}  // namespace

uint64_t SplittingKey(int64_t dependents, int64_t node, int level) {
  const uint64_t hash = AggregationKey(node, level);
  return (static_cast<uint64_t>(std::min<int64_t>(dependents, 2047)) << 53) | ((hash >> 43) << 32) |
         static_cast<uint64_t>(node);
}

Result<Aggregates> SplitPmis(const PatternView& depends, int level, const Context& context) {
  return GuardMemory("the coarse unknowns", [&]() -> Result<Aggregates> {
    const int64_t n = depends.n_cols;
    auto dependents = Transpose(depends, context);
    if (!dependents.ok()) return dependents.status();
    const PatternView turned = *dependents;
    // The key of an undecided node, or one of these, which are less.
    constexpr uint64_t kFine = 0, kCoarse = 1;
    Array<uint64_t> state(Z(n));
    Array<uint8_t> chosen(Z(n), uint8_t{0});
    Array<int32_t> undecided;
    ForRows(n, context, [&](int64_t i) {
      const int64_t count = turned.col_ptr[Z(i) + 1] - turned.col_ptr[Z(i)];
      state[Z(i)] = count > 0 ? SplittingKey(count, i, level) : kFine;
    });
    for (int64_t i = 0; i < n; ++i) {
      if (state[Z(i)] != kFine) undecided.push_back(static_cast<int32_t>(i));
    }
    const auto over_undecided = [&](const auto& body) {
      ForRows(static_cast<int64_t>(undecided.size()), context,
              [&](int64_t k) { body(undecided[Z(k)]); });
    };
    while (!undecided.empty()) {
      if (const StopReason stopped = context.stop.Poll(); stopped != StopReason::kNone) {
        return StopStatus(stopped, "the choice of coarse unknowns");
      }
      over_undecided([&](int32_t i) {
        const auto is_less = [&](int32_t j) { return state[Z(j)] <= state[Z(i)]; };
        const auto left = depends.column(i), right = turned.column(i);
        chosen[Z(i)] = std::all_of(left.begin(), left.end(), is_less) &&
                       std::all_of(right.begin(), right.end(), is_less);
      });
      over_undecided([&](int32_t i) {
        if (chosen[Z(i)] != 0) state[Z(i)] = kCoarse;
      });
      // Those that depend on a coarse one are fine.
      over_undecided([&](int32_t i) {
        if (state[Z(i)] == kCoarse) return;
        const auto left = depends.column(i);
        chosen[Z(i)] = std::any_of(left.begin(), left.end(),
                                   [&](int32_t j) { return state[Z(j)] == kCoarse; });
      });
      over_undecided([&](int32_t i) {
        if (state[Z(i)] != kCoarse && chosen[Z(i)] != 0) state[Z(i)] = kFine;
      });
      std::erase_if(undecided, [&](int32_t i) { return state[Z(i)] <= kCoarse; });
    }
    Aggregates made;
    made.of_node.assign(Z(n), -1);
    for (int64_t i = 0; i < n; ++i) {
      if (state[Z(i)] == kCoarse) {
        made.of_node[Z(i)] = static_cast<int32_t>(made.count++);
      } else if (depends.column(i).empty()) {
        ++made.isolated;
      }
    }
    return made;
  });
}

NearNull Injected(const NearNull& near_null, const Aggregates& coarse) {
  NearNull made{.n = coarse.count, .count = near_null.count, .values = {}};
  if (near_null.ones()) return made;
  made.values.reserve(Z(coarse.count * near_null.count));
  for (int column = 0; column < near_null.count; ++column) {
    for (int64_t i = 0; i < near_null.n; ++i) {
      if (coarse.of_node[Z(i)] >= 0)
        made.values.push_back(near_null.values[Z(column * near_null.n + i)]);
    }
  }
  return made;
}

Result<SharedMatrix> ExtendedInterpolation(const CscView& a, const PatternView& depends,
                                           const Aggregates& coarse, const NearNull& near_null,
                                           bool symmetric, double least_left,
                                           const SharedPattern& kept, const Context& context) {
  return GuardMemory("the interpolation", [&]() -> Result<SharedMatrix> {
    auto fine = MakeFine(a, depends, coarse, near_null, symmetric, least_left, context);
    if (!fine.ok()) return fine.status();
    const NearNull injected = Injected(near_null, coarse);
    Interpolations rows(*fine, injected, context);
    const Truncation truncation(injected, kMostInRow);
    if (kept == nullptr) {
      auto made = MakeRows(a.n_cols, coarse.count, context, "the interpolation",
                           [&](int64_t i, RowSink& sink, int worker) {
                             const Interpolation& row = rows.Make(i, worker);
                             truncation.Add(row.columns(), row.values(), sink);
                           });
      if (!made.ok()) return made.status();
      return Share(*std::move(made));
    }
    SharedMatrix made{.pattern = kept, .values = Array<double>(kept->row_idx.size())};
    const PatternView known = *kept;
    ParallelFor(a.n_cols, kRowsOfOneThread, context.threads,
                [&](int64_t begin, int64_t end, int worker) {
                  for (int64_t i = begin; i < end; ++i) {
                    const Interpolation& row = rows.Make(i, worker);
                    truncation.Fill(row.columns(), row.values(), known.column(i),
                                    made.values.data() + known.col_ptr[Z(i)]);
                  }
                });
    return made;
  });
}

}  // namespace spaid::kernels
