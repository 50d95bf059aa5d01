#include "kernels/mpi/spread_growth.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/base/step_progress.h"
#include "kernels/fsai/growing.h"
#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Columns with the numbers of the whole, ascending.
struct Columns {
  Array<int32_t> numbers;
  Array<int64_t> ptr{0};
  Array<int32_t> row_idx;
  Array<double> values;

  void Add(int32_t number, std::span<const int32_t> rows, std::span<const double> of_rows) {
    numbers.push_back(number);
    row_idx.insert(row_idx.end(), rows.begin(), rows.end());
    values.insert(values.end(), of_rows.begin(), of_rows.end());
    ptr.push_back(std::ssize(row_idx));
  }
  std::span<const int32_t> rows(size_t at) const {
    return std::span(row_idx).subspan(Z(ptr[at]), Z(ptr[at + 1] - ptr[at]));
  }
  std::span<const double> values_of(size_t at) const {
    return std::span(values).subspan(Z(ptr[at]), Z(ptr[at + 1] - ptr[at]));
  }
};

Columns Merge(const Columns& x, const Columns& y) {
  Columns both;
  both.row_idx.reserve(x.row_idx.size() + y.row_idx.size());
  both.values.reserve(x.values.size() + y.values.size());
  size_t p = 0, q = 0;
  while (p < x.numbers.size() || q < y.numbers.size()) {
    const bool first =
        q == y.numbers.size() || (p < x.numbers.size() && x.numbers[p] < y.numbers[q]);
    const Columns& from = first ? x : y;
    size_t& at = first ? p : q;
    both.Add(from.numbers[at], from.rows(at), from.values_of(at));
    ++at;
  }
  return both;
}

// Rows that have grown, in any order of rounds.
struct Finished {
  Array<int32_t> rows;  // counted from this rank's first
  Array<int64_t> ptr{0};
  Array<int32_t> row_idx;
  Array<double> values;
};

class Rounds {
 public:
  Rounds(const SpreadMatrix& a, const SpreadRows& rows) : a_(a), rows_(rows), own_(a.own()) {
    open_.assign(Z(own_.size()), 1);
    psi_ratio_.assign(Z(own_.size()), 1);
    log_by_step_.assign(Z(rows.rules.k_max) + 1, 0);
  }

  // All indices of what is here, which are those that may join next.
  Numbering Seen() const {
    Numbering of(a_.n);
    for (int64_t i = own_.begin; i < own_.end; ++i) of.Insert(static_cast<int32_t>(i));
    of.Insert(rows_.columns.row_idx);
    of.Insert(rows_.problems.row_idx);
    of.Insert(rows_.initial.row_idx);
    of.Insert(fetched_.numbers);
    of.Insert(fetched_.row_idx);
    of.Close();
    return of;
  }

  // Grows the rows that are open. `diagonal`: of all indices of `of`. `wanted`: the columns of
  // others that they have asked for, ascending. Communicates nothing.
  Status Grow(const Numbering& of, const Array<double>& diagonal, const Context& context,
              std::string_view what, Array<int32_t>& wanted) {
    wanted.clear();
    if (own_.size() == 0 || std::ranges::find(open_, 1) == open_.end()) return {};
    const bool problems = rows_.rules.least_squares;
    const int64_t n = of.size(), first = problems ? n : 0;
    Array<uint8_t> here, grow;
    here.assign(Z(n), 0);
    grow.assign(Z(n), 0);
    Pattern starts{n, n, {0}, {}};
    CscMatrix part = Here(of, diagonal, here);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t own = of.global()[Z(k)] - own_.begin;
      if (own >= 0 && own < own_.size()) {
        grow[Z(k)] = open_[Z(own)];
        if (rows_.initial.n_cols > 0) {
          for (const int32_t j : rows_.initial.column(own)) starts.row_idx.push_back(of.Local(j));
        }
        if (problems && open_[Z(own)] != 0) {
          for (const int32_t j : rows_.problems.column(own)) part.row_idx.push_back(of.Local(j));
          const auto values = rows_.problems.column_values(own);
          part.values.insert(part.values.end(), values.begin(), values.end());
        }
      }
      if (problems) part.col_ptr.push_back(part.nnz());
      starts.col_ptr.push_back(starts.nnz());
    }
    part.n_cols = std::ssize(part.col_ptr) - 1;
    Array<double> ones;
    ones.assign(problems ? Z(2 * n) : 0, 1.0);
    const GrowthPart of_part{grow, here};
    const PatternView initial = starts;
    Growing growing(part, problems ? ones : diagonal, first,
                    rows_.initial.n_cols > 0 ? &initial : nullptr, rows_.rules,
                    rows_.repeat_hash_bits, context, &of_part);
    std::optional<GrownRows> grown;
    const StopReason stopped = growing.Pass(rows_.rules.k_max, std::nullopt, grown);
    if (stopped != StopReason::kNone) return StopStatus(stopped, what);
    Keep(of, grow, *grown, context.threads, wanted);
    return {};
  }

  // The columns that came.
  void Add(Columns columns) { fetched_ = Merge(fetched_, columns); }

  SpreadGrown Finish(int64_t rounds) {
    SpreadGrown out;
    out.rounds = rounds;
    Array<int64_t> at(Z(own_.size()));  // of each row, in finished_
    for (size_t t = 0; t < finished_.rows.size(); ++t) {
      at[Z(finished_.rows[t])] = static_cast<int64_t>(t);
    }
    CscMatrix& m = out.rows;
    m.n_rows = a_.n;
    m.n_cols = own_.size();
    m.col_ptr.push_back(0);
    m.row_idx.reserve(finished_.row_idx.size());
    m.values.reserve(finished_.values.size());
    for (int64_t i = 0; i < own_.size(); ++i) {
      const auto begin = finished_.ptr[Z(at[Z(i)])], end = finished_.ptr[Z(at[Z(i)]) + 1];
      m.row_idx.insert(m.row_idx.end(), finished_.row_idx.begin() + begin,
                       finished_.row_idx.begin() + end);
      if (!finished_.values.empty()) {
        m.values.insert(m.values.end(), finished_.values.begin() + begin,
                        finished_.values.begin() + end);
      }
      m.col_ptr.push_back(m.nnz());
    }
    finished_ = {};
    out.psi_ratio = std::move(psi_ratio_);
    out.tally = tally_;
    out.log_by_step = std::move(log_by_step_);
    Columns own;
    for (int64_t i = 0; i < own_.size(); ++i) {
      own.Add(static_cast<int32_t>(own_.begin + i), rows_.columns.column(i),
              rows_.columns.column_values(i));
    }
    Columns all = Merge(own, fetched_);
    fetched_ = {};
    out.numbers = std::move(all.numbers);
    out.ptr = std::move(all.ptr);
    out.row_idx = std::move(all.row_idx);
    out.values = std::move(all.values);
    return out;
  }

 private:
  // The columns that may join, in the numbers of `of`: those that are elsewhere by their diagonal.
  CscMatrix Here(const Numbering& of, const Array<double>& diagonal, Array<uint8_t>& here) const {
    CscMatrix part{of.size(), of.size(), {0}, {}, {}};
    const auto entries = rows_.columns.row_idx.size() + fetched_.row_idx.size() +
                         rows_.problems.row_idx.size() + Z(of.size());
    part.row_idx.reserve(entries);
    part.values.reserve(entries);
    size_t next = 0;
    for (int64_t k = 0; k < of.size(); ++k) {
      const int32_t j = of.global()[Z(k)];
      const int64_t own = j - own_.begin;
      std::span<const int32_t> rows;
      std::span<const double> values;
      if (own >= 0 && own < own_.size()) {
        rows = rows_.columns.column(own);
        values = rows_.columns.column_values(own);
        here[Z(k)] = 1;
      } else if (next < fetched_.numbers.size() && fetched_.numbers[next] == j) {
        rows = fetched_.rows(next);
        values = fetched_.values_of(next++);
        here[Z(k)] = 1;
      } else {
        part.row_idx.push_back(static_cast<int32_t>(k));
        part.values.push_back(diagonal.empty() ? 1.0 : diagonal[Z(k)]);
      }
      for (const int32_t i : rows) part.row_idx.push_back(of.Local(i));
      part.values.insert(part.values.end(), values.begin(), values.end());
      part.col_ptr.push_back(part.nnz());
    }
    return part;
  }

  // Keeps the rows that have grown, and finds the columns that the others lack.
  void Keep(const Numbering& of, const Array<uint8_t>& grow, GrownRows& grown, int threads,
            Array<int32_t>& wanted) {
    RowTally tally;
    for (const RowBatch& batch : grown.batches) {
      tally.Add(batch.tally);
      for (size_t t = 0; t < batch.log_by_step.size(); ++t) {
        log_by_step_[t] += batch.log_by_step[t];
      }
      for (const int32_t j : batch.lacked) wanted.push_back(of.global()[Z(j)]);
    }
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    const auto whole = [&](int64_t& row) {
      if (row >= 0) row = of.global()[Z(row)];
    };
    whole(tally.first_not_spd);
    whole(tally.first_not_converged);
    const auto lower = [](int64_t x, int64_t y) {
      return x < 0 || y < 0 ? std::max(x, y) : std::min(x, y);
    };
    const int64_t first_not_spd = lower(tally_.first_not_spd, tally.first_not_spd);
    const int64_t first_not_converged =
        lower(tally_.first_not_converged, tally.first_not_converged);
    tally_.Add(tally);
    tally_.first_not_spd = first_not_spd;
    tally_.first_not_converged = first_not_converged;
    const CscMatrix rows = PutTogether(grown.batches, std::move(grown.counts), threads);
    for (int64_t k = 0; k < of.size(); ++k) {
      if (grow[Z(k)] == 0 || grown.lacking[Z(k)] != 0) continue;
      const int64_t own = of.global()[Z(k)] - own_.begin;
      open_[Z(own)] = 0;
      psi_ratio_[Z(own)] = grown.psi_ratio[Z(k)];
      finished_.rows.push_back(static_cast<int32_t>(own));
      for (auto p = Z(rows.col_ptr[Z(k)]); p < Z(rows.col_ptr[Z(k) + 1]); ++p) {
        finished_.row_idx.push_back(of.global()[Z(rows.row_idx[p])]);
        if (!rows.values.empty()) finished_.values.push_back(rows.values[p]);
      }
      finished_.ptr.push_back(std::ssize(finished_.row_idx));
    }
  }

  const SpreadMatrix& a_;
  const SpreadRows& rows_;
  const IndexRange own_;
  Array<uint8_t> open_;  // of the own rows; 0: it has grown
  Columns fetched_;
  Finished finished_;
  Array<double> psi_ratio_;
  RowTally tally_;
  std::vector<double> log_by_step_;
};

}  // namespace

Result<SpreadGrown> GrowSpread(const SpreadMatrix& a, const SpreadRows& rows, HaloBudget& budget,
                               const Context& with_progress, std::string_view what) {
  Context context = with_progress;
  StepProgress progress(with_progress.progress, Stage::kBuild, a.n);
  if (with_progress.progress != nullptr) context.progress = &progress;
  progress.NextStep(1);
  Rounds rounds(a, rows);
  for (int64_t round = 1;; ++round) {
    const Numbering seen = rounds.Seen();
    Array<double> diagonal;
    if (!rows.rules.least_squares) {
      diagonal =
          Halo(a.comm, a.begin, rows.columns.col_ptr, seen.global()).Items<double>(rows.diagonal);
    }
    Array<int32_t> wanted;
    Status status = Watched(a.comm, context, Stage::kBuild, [&](const Context& inner) {
      return GuardMemory(what, [&] { return rounds.Grow(seen, diagonal, inner, what, wanted); });
    });
    if (!status.ok()) return status;
    if (SumOf(a.comm, std::ssize(wanted)) == 0) return rounds.Finish(round);
    Halo halo(a.comm, a.begin, rows.columns.col_ptr, std::move(wanted));
    status = budget.Take(a.comm, halo, sizeof(int32_t) + sizeof(double));
    if (!status.ok()) return status;
    Columns come;
    come.row_idx = halo.Entries<int32_t>(rows.columns.row_idx);
    come.values = halo.Entries<double>(rows.columns.values);
    come.numbers = halo.wanted();
    come.ptr = halo.ptr();
    rounds.Add(std::move(come));
  }
}

}  // namespace spaid::kernels::mpi
