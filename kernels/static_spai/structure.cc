#include "kernels/static_spai/structure.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels {
namespace {

namespace tuning = static_spai_tuning;

// The classes of `runs`, all of `n` members.
void NameClasses(int64_t n, std::vector<std::vector<HashRun>>& runs, ShiftClasses& classes) {
  ClassNames names;
  HashRun* last = nullptr;
  const auto end_last = [&](int64_t end) {
    if (last != nullptr && last->id >= 0) {
      classes.uses[static_cast<size_t>(last->id)] += static_cast<int32_t>(end - last->begin);
    }
  };
  for (std::vector<HashRun>& part : runs) {
    for (HashRun& run : part) {
      end_last(run.begin);
      last = &run;
      run.id = names.Name(run.hash, run.begin);
      classes.uses.resize(static_cast<size_t>(names.size()));
    }
  }
  end_last(n);
  classes.first = names.first();
}

// Classes by hash(i), confirmed by equal(i, first of the class); a member that only shares its hash
// is in none. Neighbours are alike, so that runs of them are looked up.
template <class Hash, class Equal>
StopReason Classify(int64_t n, const Context& context, const Hash& hash, const Equal& equal,
                    ShiftClasses& classes) {
  constexpr int64_t kBatch = 4096;
  Context quiet = context;  // this is no progress that a user knows
  quiet.progress = nullptr;
  std::vector<std::vector<HashRun>> runs(static_cast<size_t>((n + kBatch - 1) / kBatch));
  const auto find_runs = [&](int64_t begin, int64_t end, int) {
    std::vector<HashRun>& own = runs[static_cast<size_t>(begin / kBatch)];
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t of_i = hash(i);
      if (own.empty() || own.back().hash != of_i) own.push_back({of_i, static_cast<int32_t>(i)});
    }
  };
  const StopReason stopped = ParallelFor(n, kBatch, quiet, Stage::kPlan, find_runs);
  if (stopped != StopReason::kNone) return stopped;
  NameClasses(n, runs, classes);
  classes.of.resize(static_cast<size_t>(n));
  return ParallelFor(n, kBatch, quiet, Stage::kPlan, [&](int64_t begin, int64_t end, int) {
    const std::vector<HashRun>& own = runs[static_cast<size_t>(begin / kBatch)];
    for (size_t r = 0; r < own.size(); ++r) {
      const auto c = static_cast<size_t>(own[r].id);
      const bool shared = own[r].id >= 0 && classes.uses[c] >= tuning::kMinShared;
      const int64_t next = r + 1 < own.size() ? own[r + 1].begin : end;
      for (int64_t i = own[r].begin; i < next; ++i) {
        const bool member = shared && equal(i, classes.first[c]);
        classes.of[static_cast<size_t>(i)] = member ? own[r].id : -1;
      }
    }
  });
}

// Fills block_begin, pair_begin and pairs where blocks are wide enough to pay.
void AddBlocks(const PatternView& a, std::span<const int32_t> columns, Structure& structure) {
  std::vector<int32_t> begin{0}, block_of(columns.size(), 0);
  for (size_t q = 1; q < columns.size(); ++q) {
    const auto at = static_cast<int32_t>(q);
    if (at - begin.back() == Structure::kMaxBlock ||
        !std::ranges::equal(a.column(columns[q]), a.column(columns[q - 1]))) {
      begin.push_back(at);
    }
    block_of[q] = static_cast<int32_t>(begin.size()) - 1;
  }
  const size_t blocks = begin.size(), tiles = blocks * (blocks + 1) / 2;
  begin.push_back(static_cast<int32_t>(columns.size()));
  if (2 * blocks > columns.size()) return;

  // A run has all columns of a block or none.
  const auto for_each_pair = [&](const auto& use) {
    for (const Structure::Run& run : structure.runs) {
      const auto block_at = [&](int32_t i) {
        return block_of[static_cast<size_t>(
            structure.run_columns[static_cast<size_t>(run.columns + i)])];
      };
      const auto width = [&](int32_t block) {
        return begin[static_cast<size_t>(block) + 1] - begin[static_cast<size_t>(block)];
      };
      for (int32_t i = 0; i < run.count; i += width(block_at(i))) {
        const auto left = static_cast<size_t>(block_at(i));
        for (int32_t j = 0; j <= i; j += width(block_at(j))) {
          use(left * (left + 1) / 2 + static_cast<size_t>(block_at(j)),
              Structure::BlockPair{run.begin + i * run.rows, run.begin + j * run.rows, run.rows});
        }
      }
    }
  };
  std::vector<int32_t> next(tiles + 1, 0);
  for_each_pair([&](size_t tile, const Structure::BlockPair&) { ++next[tile + 1]; });
  std::partial_sum(next.begin(), next.end(), next.begin());
  if (next.back() + static_cast<int64_t>(tiles) > structure.n_entries) return;
  structure.pair_begin = next;
  structure.pairs.resize(static_cast<size_t>(next.back()));
  for_each_pair([&](size_t tile, const Structure::BlockPair& pair) {
    structure.pairs[static_cast<size_t>(next[tile]++)] = pair;
  });
  structure.block_begin = std::move(begin);
}

}  // namespace

ClassNames::ClassNames() : table_(2 * tuning::kMaxClasses) {}

ClassNames::ClassNames(std::span<const uint64_t> hashes) : ClassNames() {
  hashes_.assign(hashes.begin(), hashes.end());
  int32_t id = 0;
  for (const uint64_t hash : hashes_) Find(hash) = {hash, id++};
}

ClassNames::Slot& ClassNames::Find(uint64_t hash) {
  uint64_t at = hash % table_.size();
  while (table_[at].hash != kNoClass && table_[at].hash != hash) at = (at + 1) % table_.size();
  return table_[at];
}

int32_t ClassNames::Name(uint64_t hash, int32_t member) {
  if (hash == kNoClass) return -1;
  Slot& slot = Find(hash);
  if (slot.hash == kNoClass) {
    if (size() == tuning::kMaxClasses) return -1;
    slot = {hash, static_cast<int32_t>(size())};
    hashes_.push_back(hash);
    first_.push_back(member);
  }
  return slot.id;
}

bool EqualShifted(std::span<const int32_t> x, int64_t x0, std::span<const int32_t> y, int64_t y0) {
  if (x.size() != y.size()) return false;
  const auto shift = static_cast<int32_t>(x0 - y0);
  bool same = true;  // no early exit: nearly all are, and the loop is vectorised
  for (size_t i = 0; i < x.size(); ++i) same &= x[i] - y[i] == shift;
  return same;
}

StopReason ClassifyColumns(const PatternView& a, const Context& context, ShiftClasses& classes) {
  return Classify(
      a.n_cols, context,
      [&](int64_t j) { return HashShifted(a.column(j), static_cast<int32_t>(j)); },
      [&](int64_t j, int64_t l) { return EqualShifted(a.column(j), j, a.column(l), l); }, classes);
}

StopReason ClassifyGroups(const GroupsView& groups, const ShiftClasses& columns_of_a,
                          const Context& context, ShiftClasses& classes) {
  const auto class_of = [&](int32_t j) { return columns_of_a.of[static_cast<size_t>(j)]; };
  return Classify(
      groups.size(), context,
      [&](int64_t g) {
        const std::span<const int32_t> columns = groups.columns(g);
        return HashGroup(groups.group(g), columns, [&](size_t q) { return class_of(columns[q]); });
      },
      [&](int64_t g, int64_t h) {
        const std::span<const int32_t> x = groups.columns(g), y = groups.columns(h);
        const int32_t x0 = groups.group(g)[0], y0 = groups.group(h)[0];
        if (!EqualShifted(groups.group(g), x0, groups.group(h), y0)) return false;
        if (!EqualShifted(x, x0, y, y0)) return false;
        return std::ranges::equal(x, y, [&](int32_t i, int32_t j) {
          return class_of(i) == class_of(j) && class_of(i) >= 0;
        });
      },
      classes);
}

Structure MakeStructure(const PatternView& a, std::span<const int32_t> columns,
                        std::span<const int32_t> targets) {
  Structure structure;
  structure.n_cols = static_cast<int64_t>(columns.size());
  std::vector<int32_t> rows;  // I
  for (const int32_t j : columns) {
    const std::span<const int32_t> column = a.column(j);
    structure.lengths.push_back(static_cast<int32_t>(column.size()));
    rows.insert(rows.end(), column.begin(), column.end());
  }
  structure.n_entries = static_cast<int64_t>(rows.size());
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  const auto local = [&](int32_t row) {
    return static_cast<int32_t>(std::ranges::lower_bound(rows, row) - rows.begin());
  };
  std::vector<int32_t> local_rows;  // the entries' rows, column by column
  std::vector<std::vector<int32_t>> columns_of(rows.size());
  for (size_t q = 0; q < columns.size(); ++q) {
    for (const int32_t row : a.column(columns[q])) {
      local_rows.push_back(local(row));
      columns_of[static_cast<size_t>(local_rows.back())].push_back(static_cast<int32_t>(q));
    }
  }
  std::vector<int32_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t row) -> const std::vector<int32_t>& {
    return columns_of[static_cast<size_t>(row)];
  });

  std::vector<Structure::Target> place(rows.size());
  int32_t begin = 0;
  for (size_t first = 0; first < order.size();) {
    const std::vector<int32_t>& own = columns_of[static_cast<size_t>(order[first])];
    Structure::Run run;
    run.count = static_cast<int32_t>(own.size());
    run.columns = static_cast<int32_t>(structure.run_columns.size());
    run.begin = begin;
    while (run.rows < Structure::kMaxRows && first < order.size() &&
           columns_of[static_cast<size_t>(order[first])] == own) {
      place[static_cast<size_t>(order[first++])] = {static_cast<int32_t>(structure.runs.size()),
                                                    run.rows++};
    }
    begin += run.rows * run.count;
    structure.runs.push_back(run);
    structure.run_columns.insert(structure.run_columns.end(), own.begin(), own.end());
  }
  std::vector<int32_t> next(rows.size(), 0);
  for (const int32_t row : local_rows) {
    const auto [run, r] = place[static_cast<size_t>(row)];
    const Structure::Run& of = structure.runs[static_cast<size_t>(run)];
    structure.places.push_back(of.begin + next[static_cast<size_t>(row)]++ * of.rows + r);
  }
  AddBlocks(a, columns, structure);
  for (const int32_t target : targets) {
    structure.targets.push_back(place[static_cast<size_t>(local(target))]);
    structure.runs[static_cast<size_t>(structure.targets.back().run)].has_target = 1;
  }
  // A plan promises its bytes (PlanBytes), and keeps them for long.
  structure.lengths.shrink_to_fit();
  structure.places.shrink_to_fit();
  structure.runs.shrink_to_fit();
  structure.run_columns.shrink_to_fit();
  structure.block_begin.shrink_to_fit();
  return structure;
}

}  // namespace spaid::kernels
