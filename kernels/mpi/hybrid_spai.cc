#include "kernels/mpi/hybrid_spai.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/parallel.h"
#include "kernels/base/reasons.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_groups.h"
#include "kernels/mpi/spread_pattern.h"
#include "kernels/sparse/pattern.h"
#include "kernels/static_spai/static_spai_part.h"

namespace spaid::kernels::mpi {

struct HybridSpaiPlan::State {
  HybridSpaiOptions options;
  int64_t nnz_m = 0;
  uint64_t pattern_hash = 0;  // of A's columns that this rank owns
  int64_t nnz_own = 0;
  int64_t halo_bytes = 0;
  std::unique_ptr<Halo> halo;                  // of A's columns that are needed here
  Array<int32_t> numbers;                      // of the whole, of the part's rows and columns
  Pattern a;                                   // the part of A, in the part's numbers
  std::shared_ptr<const StaticSpaiPlan> part;  // null: no column of M is computed here
};

namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr char kPlan[] = "plan of HybridSPAI";
constexpr char kBuild[] = "build of HybridSPAI";

Status CheckHybridOptions(const SpreadMatrix& a, const HybridSpaiOptions& options) {
  const PatternView whole{a.n, a.n, {}, {}};
  if (Status status = CheckOptions(whole, options.spai); !status.ok()) return status;
  if (options.spai.pattern.row_match) {
    return Status(StatusCode::kInvalidArgument, "BAD_ROW_MATCH",
                  "row_match needs a matching of the whole matrix, which several ranks do not "
                  "compute; leave it out, use ensure_row, or build on one machine")
        .At("row_match");
  }
  return CheckHaloBytes(options.halo_bytes);
}

// J_k grows by the row k of A.
void AddRows(const SpreadMatrix& a, Pattern& pattern) {
  Pattern grown{pattern.n_rows, pattern.n_cols, {0}, {}};
  const IndexRange own = a.own();
  for (int64_t k = 0; k < own.size(); ++k) {
    const auto row = static_cast<PetscInt>(own.begin + k);
    PetscInt count = 0;
    const PetscInt* indices = nullptr;
    Must(MatGetRow(a.rows.get(), row, &count, &indices, nullptr));
    std::ranges::set_union(PatternView(pattern).column(k), std::span(indices, Z(count)),
                           std::back_inserter(grown.row_idx));
    Must(MatRestoreRow(a.rows.get(), row, &count, &indices, nullptr));
    grown.col_ptr.push_back(std::ssize(grown.row_idx));
  }
  pattern = std::move(grown);
}

// The columns of M's pattern that this rank owns.
Status OwnPattern(const SpreadMatrix& a, const SpreadPattern* user, const PatternOptions& options,
                  const Context& context, HaloBudget& budget, Pattern& pattern) {
  const IndexRange own = a.own();
  Pattern base;
  Status status = Locally(a.comm, kPlan, [&]() -> Status {
    if (user != nullptr) {
      base = *user;
    } else if (options.keep_tau) {
      Result<Pattern> kept = ThresholdPattern(a.columns, *options.keep_tau, own.begin, context);
      if (!kept.ok()) return kept.status();
      base = *std::move(kept);
    } else {
      base = {a.n, own.size(), a.columns.col_ptr, a.columns.row_idx};
    }
    return {};
  });
  if (!status.ok()) return status;
  Result<SpreadPattern> power = PowerOf(a, std::move(base), options, context, budget, kPlan);
  if (!power.ok()) return power.status();
  pattern = *std::move(power);
  if (options.ensure_row) {
    status = Locally(a.comm, kPlan, [&]() -> Status {
      AddRows(a, pattern);
      return {};
    });
    if (!status.ok()) return status;
  }
  const int64_t nnz = SumOf(a.comm, pattern.nnz());
  if (options.max_nnz > 0 && nnz > options.max_nnz) {
    return PatternTooLarge(nnz, {options.max_nnz, true});
  }
  return {};
}

// The offers of all ranks: those that have a class offer the same.
void ShareOffers(MPI_Comm comm, std::vector<LaneOffer>& offers) {
  std::vector<double> flat;
  for (const LaneOffer& offer : offers) {
    flat.insert(flat.end(), {offer.saving_ns, static_cast<double>(offer.entries),
                             static_cast<double>(offer.lanes)});
  }
  Must(MPI_Allreduce(MPI_IN_PLACE, flat.data(), static_cast<int>(flat.size()), MPI_DOUBLE, MPI_MAX,
                     comm));
  for (size_t c = 0; c < offers.size(); ++c) {
    offers[c] = {flat[3 * c], static_cast<int64_t>(flat[3 * c + 1]),
                 static_cast<int64_t>(flat[3 * c + 2])};
  }
}

Result<HybridSpaiPlan> MakePlan(const SpreadMatrix& a, const SpreadPattern* user,
                                const HybridSpaiOptions& options, const Context& context) {
  const int threads = context.threads;
  if (Status s = Agree(a.comm, CheckHybridOptions(a, options)); !s.ok()) return s;
  if (Status s = AgreeOptions(a.comm, options.spai, user != nullptr); !s.ok()) return s;
  if (Status s = Agree(a.comm, CheckColumns(a.columns, threads, a.own().begin)); !s.ok()) return s;
  HaloBudget budget{options.halo_bytes > 0 ? options.halo_bytes : DefaultHaloBytes(a.comm), 0};
  auto state = std::make_unique<HybridSpaiPlan::State>();
  state->options = options;
  state->pattern_hash = HashPattern(a.columns, threads);
  state->nnz_own = a.columns.nnz();

  Pattern pattern;
  if (Status s = OwnPattern(a, user, options.spai.pattern, context, budget, pattern); !s.ok()) {
    return s;
  }
  state->nnz_m = SumOf(a.comm, pattern.nnz());
  Result<SpreadGroups> groups = GroupColumns(a, pattern, options.spai, threads, budget);
  if (!groups.ok()) return groups.status();
  pattern = {};
  const Result<Array<int32_t>> own_classes = ClassifyColumns(a, threads, budget);
  if (!own_classes.ok()) return own_classes.status();
  if (Status s = AgreeStop(a.comm, context.stop, kPlan); !s.ok()) return s;

  Numbering needed(a.n);
  needed.Insert(groups->j);
  needed.Close();
  state->halo = std::make_unique<Halo>(a.comm, a.begin, a.columns.col_ptr, needed.global());
  const Array<int32_t> class_of_needed = state->halo->Items<int32_t>(*own_classes);
  Array<int32_t> class_of(groups->j.size());
  std::ranges::transform(groups->j, class_of.begin(),
                         [&](int32_t j) { return class_of_needed[Z(needed.Local(j))]; });
  Result<ShiftClasses> classes = ClassifyGroups(a.comm, *groups, class_of, threads, budget);
  if (!classes.ok()) return classes.status();
  class_of = {};
  if (Status s = budget.Take(a.comm, *state->halo, sizeof(int32_t) + sizeof(double)); !s.ok()) {
    return s;
  }
  state->halo_bytes = budget.fetched;
  const Array<int32_t> rows = state->halo->Entries<int32_t>(a.columns.row_idx);

  // From here on numbers are the part's.
  std::optional<PartPlanner> planner;
  std::vector<LaneOffer> offers(classes->uses.size());
  const int64_t n_groups = groups->size();
  CscView part;
  Array<double> no_values;  // those of a part are read by a build alone
  Status status = Watched(a.comm, context, Stage::kPlan, [&](const Context&) {
    return GuardMemory(kPlan, [&]() -> Status {
      if (n_groups == 0) return {};
      Numbering of(a.n);
      of.Insert(needed.global());
      of.Insert(rows);
      of.Insert(groups->members);
      of.Close();
      state->numbers = of.global();
      state->a = Compress(of, needed.global(), state->halo->ptr(), rows);
      Pattern m{of.size(), of.size(), {}, {}};
      m.col_ptr.assign(Z(of.size() + 1), 0);
      Array<int32_t> group_of(Z(of.size()));
      std::fill(group_of.begin(), group_of.end(), -1);
      for (int64_t g = 0; g < n_groups; ++g) {
        for (const int32_t k : groups->group(g)) group_of[Z(of.Local(k))] = static_cast<int32_t>(g);
      }
      for (int64_t k = 0; k < of.size(); ++k) {
        if (group_of[Z(k)] >= 0) {
          for (const int32_t j : groups->columns(group_of[Z(k)])) m.row_idx.push_back(of.Local(j));
        }
        m.col_ptr[Z(k) + 1] = m.nnz();
      }
      Array<int32_t> members(groups->members.size());
      std::ranges::transform(groups->members, members.begin(),
                             [&](int32_t k) { return of.Local(k); });
      Array<int32_t> group_ptr(groups->member_ptr.begin(), groups->member_ptr.end());
      part = {state->a, no_values};
      planner.emplace(part, std::move(m), std::move(members), std::move(group_ptr), options.spai,
                      threads);
      offers = planner->Survey(*std::move(classes));
      return {};
    });
  });
  if (!status.ok()) return status;
  ShareOffers(a.comm, offers);
  status = Watched(a.comm, context, Stage::kPlan, [&](const Context& inner) {
    return GuardMemory(kPlan, [&]() -> Status {
      if (!planner) return {};
      auto plan = planner->Finish(offers, state->nnz_m, inner);
      if (!plan.ok()) return plan.status();
      state->part = *std::move(plan);
      return {};
    });
  });
  if (!status.ok()) return status;
  return HybridSpaiPlan(std::move(state));
}

// A column of M, cut to the rows of this rank.
struct Piece {
  int32_t column;
  std::span<const int32_t> rows;
  std::span<const double> values;
};

// Such pieces of others' columns, on their way here: rows of all, one after the other.
struct Cut {
  Array<int32_t> columns, lengths, rows;
  Array<double> values;
};

// Calls lay(piece) by ascending columns. Each rank's ascend, and each column is of one rank.
template <class Lay>
void EachInOrder(const std::vector<Array<Piece>>& pieces, const Lay& lay) {
  std::vector<size_t> next(pieces.size(), 0);
  for (;;) {
    size_t first = pieces.size();
    for (size_t r = 0; r < pieces.size(); ++r) {
      if (next[r] == pieces[r].size()) continue;
      if (first == pieces.size() || pieces[r][next[r]].column < pieces[first][next[first]].column) {
        first = r;
      }
    }
    if (first == pieces.size()) return;
    int32_t others = std::numeric_limits<int32_t>::max();  // the lowest column of another rank
    for (size_t r = 0; r < pieces.size(); ++r) {
      if (r != first && next[r] < pieces[r].size()) {
        others = std::min(others, pieces[r][next[r]].column);
      }
    }
    const Array<Piece>& from = pieces[first];
    while (next[first] < from.size() && from[next[first]].column < others) lay(from[next[first]++]);
  }
}

// M by rows: entries go to the owners of their rows, each as it is, to the sign of a zero.
Status MakeM(const SpreadMatrix& a, const Array<int32_t>& here, const CscMatrix& columns,
             MatOwner& m) {
  const size_t ranks = a.begin.size() - 1, me = static_cast<size_t>(RankOf(a.comm));
  const IndexRange own = a.own();
  std::vector<Array<Piece>> pieces(ranks);
  std::vector<Array<int32_t>> columns_to(ranks), lengths_to(ranks), rows_to(ranks);
  std::vector<Array<double>> values_to(ranks);
  Status status = Locally(a.comm, kBuild, [&]() -> Status {
    for (size_t i = 0; i < here.size(); ++i) {
      const auto all = CscView(columns).column(static_cast<int64_t>(i));
      const auto all_values = CscView(columns).column_values(static_cast<int64_t>(i));
      size_t r = 0;  // rows ascend
      for (size_t p = 0; p < all.size();) {
        while (all[p] >= a.begin[r + 1]) ++r;
        const size_t end =
            all.back() < a.begin[r + 1]
                ? all.size()
                : Z(std::ranges::lower_bound(all.subspan(p), a.begin[r + 1]) - all.begin());
        const Piece piece{here[i], all.subspan(p, end - p), all_values.subspan(p, end - p)};
        p = end;
        if (r == me) {
          pieces[me].push_back(piece);
          continue;
        }
        columns_to[r].push_back(piece.column);
        lengths_to[r].push_back(static_cast<int32_t>(piece.rows.size()));
        rows_to[r].insert(rows_to[r].end(), piece.rows.begin(), piece.rows.end());
        values_to[r].insert(values_to[r].end(), piece.values.begin(), piece.values.end());
      }
    }
    return {};
  });
  if (!status.ok()) return status;
  std::vector<Cut> from(ranks);
  const auto exchange = [&]<class T>(std::vector<Array<T>> to, Array<T> Cut::*what) {
    std::vector<Array<T>> come = Exchange(a.comm, std::move(to));
    for (size_t r = 0; r < ranks; ++r) from[r].*what = std::move(come[r]);
  };
  exchange(std::move(columns_to), &Cut::columns);
  exchange(std::move(lengths_to), &Cut::lengths);
  exchange(std::move(rows_to), &Cut::rows);
  exchange(std::move(values_to), &Cut::values);
  RowArrays rows(own);
  status = Locally(a.comm, kBuild, [&]() -> Status {
    for (size_t r = 0; r < ranks; ++r) {
      size_t at = 0;
      for (size_t c = 0; c < from[r].columns.size(); ++c) {
        const auto count = static_cast<size_t>(from[r].lengths[c]);
        pieces[r].push_back({from[r].columns[c], std::span(from[r].rows).subspan(at, count),
                             std::span(from[r].values).subspan(at, count)});
        at += count;
      }
      for (const Piece& piece : pieces[r]) {
        for (const int32_t i : piece.rows) rows.Count(i - own.begin, piece.column);
      }
    }
    rows.Open();
    EachInOrder(pieces, [&](const Piece& piece) {
      for (size_t p = 0; p < piece.rows.size(); ++p) {
        rows.Add(piece.rows[p] - own.begin, piece.column, piece.values[p]);
      }
    });
    return {};
  });
  if (!status.ok()) return status;
  m = std::move(rows).Make(a.comm, a.n);
  return {};
}

// The part of `quality` that is numbers of equal size, so that one message tells it.
StaticSpaiQuality TellQuality(MPI_Comm comm, StaticSpaiQuality quality) {
  std::vector<double> quantiles = std::move(quality.residual_quantiles);
  quality.residual_quantiles.clear();
  double reals[3] = {quality.residual_frobenius, quality.density, quality.min_scaled_pivot};
  int64_t* const counts[] = {&quality.worst_column,         &quality.gram_columns,
                             &quality.qr_columns,           &quality.iterative_columns,
                             &quality.first_iterative,      &quality.not_converged_columns,
                             &quality.first_not_converged,  &quality.rescued_columns,
                             &quality.first_rescued,        &quality.rank_deficient_columns,
                             &quality.first_rank_deficient, &quality.zero_columns,
                             &quality.first_zero_column,    &quality.non_finite_columns,
                             &quality.first_non_finite};
  int64_t flat[std::size(counts)];
  for (size_t i = 0; i < std::size(counts); ++i) flat[i] = *counts[i];
  auto size = static_cast<int>(quantiles.size());
  Must(MPI_Bcast(reals, 3, MPI_DOUBLE, 0, comm));
  Must(MPI_Bcast(flat, static_cast<int>(std::size(counts)), MPI_INT64_T, 0, comm));
  Must(MPI_Bcast(&size, 1, MPI_INT, 0, comm));
  quantiles.resize(Z(size));
  Must(MPI_Bcast(quantiles.data(), size, MPI_DOUBLE, 0, comm));
  for (size_t i = 0; i < std::size(counts); ++i) *counts[i] = flat[i];
  quality.residual_frobenius = reals[0];
  quality.density = reals[1];
  quality.min_scaled_pivot = reals[2];
  quality.residual_quantiles = std::move(quantiles);
  return quality;
}

Result<HybridSpaiResult> MakeBuild(const HybridSpaiPlan& plan, const SpreadMatrix& a,
                                   const Context& context) {
  const HybridSpaiPlan::State& state = plan.state();
  if (Status s = Agree(a.comm, CheckPlanPattern(a.columns, a.own().size(), state.nnz_own,
                                                state.pattern_hash, context.threads));
      !s.ok()) {
    return s;
  }
  const Array<double> values = state.halo->Entries<double>(a.columns.values);
  HybridSpaiResult result;
  StaticSpaiPart part;
  Status status = Watched(a.comm, context, Stage::kBuild, [&](const Context& inner) {
    return GuardMemory(kBuild, [&]() -> Status {
      result.columns.n_rows = a.n;
      result.columns.col_ptr.push_back(0);
      if (state.part == nullptr) return {};
      Result<StaticSpaiPart> built =
          BuildStaticSpaiPart(*state.part, {state.a, values}, state.options.spai, inner);
      if (!built.ok()) return built.status();
      part = *std::move(built);
      std::ranges::sort(part.outcomes, {}, &ColumnResult::column);
      for (ColumnResult& outcome : part.outcomes) {
        result.columns.col_ptr.push_back(part.m.col_ptr[Z(outcome.column) + 1]);
        outcome.column = state.numbers[Z(outcome.column)];
        result.here.push_back(outcome.column);
      }
      result.columns.n_cols = std::ssize(result.here);
      result.columns.row_idx = std::move(part.m.row_idx);
      result.columns.values = std::move(part.m.values);
      for (int32_t& i : result.columns.row_idx) i = state.numbers[Z(i)];
      return {};
    });
  });
  if (!status.ok()) return status;
  if (status = MakeM(a, result.here, result.columns, result.rows); !status.ok()) return status;
  const int64_t nnz = SumOf(a.comm, result.columns.nnz());
  std::vector<Array<ColumnResult>> to(Z(RanksOf(a.comm)));
  to[0].assign(part.outcomes.begin(), part.outcomes.end());
  const Array<ColumnResult> outcomes = ExchangeAll(a.comm, std::move(to));
  status = Locally(a.comm, "quality of HybridSPAI", [&]() -> Status {
    if (RankOf(a.comm) == 0) result.quality = Summarise(outcomes, a.nnz, nnz, context.threads);
    return {};
  });
  if (!status.ok()) return status;
  result.quality = TellQuality(a.comm, std::move(result.quality));
  return result;
}

}  // namespace

HybridSpaiPlan::HybridSpaiPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
HybridSpaiPlan::~HybridSpaiPlan() = default;
HybridSpaiPlan::HybridSpaiPlan(HybridSpaiPlan&&) noexcept = default;
HybridSpaiPlan& HybridSpaiPlan::operator=(HybridSpaiPlan&&) noexcept = default;

int64_t HybridSpaiPlan::nnz_m() const { return state_->nnz_m; }
int64_t HybridSpaiPlan::columns_here() const {
  return state_->part == nullptr ? 0 : std::ssize(state_->part->members);
}
int64_t HybridSpaiPlan::halo_bytes() const { return state_->halo_bytes; }
int64_t HybridSpaiPlan::bytes() const {
  const State& state = *state_;
  const auto of = [](const auto& array) {
    return static_cast<int64_t>(array.size() * sizeof(array[0]));
  };
  // The halo's lists and its star forest: an owner and two places of each item and entry.
  const int64_t halo = state.halo == nullptr
                           ? 0
                           : 28 * std::ssize(state.halo->wanted()) + 12 * state.halo->entries();
  return halo + of(state.numbers) + of(state.a.col_ptr) + of(state.a.row_idx) +
         (state.part == nullptr ? 0 : Counts(*state.part).plan_bytes);
}

Result<HybridSpaiPlan> PlanHybridSpai(const SpreadMatrix& a, const SpreadPattern* user_pattern,
                                      const HybridSpaiOptions& options, const Context& context) {
  return OrEndAll(kPlan, [&] { return MakePlan(a, user_pattern, options, context); });
}

Result<HybridSpaiResult> BuildHybridSpai(const HybridSpaiPlan& plan, const SpreadMatrix& a,
                                         const Context& context) {
  return OrEndAll(kBuild, [&] { return MakeBuild(plan, a, context); });
}

}  // namespace spaid::kernels::mpi
