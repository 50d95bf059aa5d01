#include "kernels/fsai/repeats.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/fsai/fsai_tuning.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kBatch = 1 << 13;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

// A number for each key, in the order in which they come.
class KeyTable {
 public:
  int32_t Find(uint64_t key) {
    if (2 * keys_.size() >= places_.size()) Grow();
    int32_t& at = Place(key);
    if (at < 0) {
      at = static_cast<int32_t>(keys_.size());
      keys_.push_back(key);
    }
    return at;
  }
  int64_t size() const { return static_cast<int64_t>(keys_.size()); }

 private:
  int32_t& Place(uint64_t key) {
    size_t at = Mix(key) & (places_.size() - 1);
    while (places_[at] >= 0 && keys_[Z(places_[at])] != key) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }
  void Grow() {
    places_.assign(std::max<size_t>(64, 2 * places_.size()), -1);
    for (size_t t = 0; t < keys_.size(); ++t) Place(keys_[t]) = static_cast<int32_t>(t);
  }

  std::vector<uint64_t> keys_;
  std::vector<int32_t> places_;
};

uint64_t HashRow(const CscView& a, std::span<const double> diagonals, int64_t i) {
  const int64_t begin = a.col_ptr[Z(i)], end = a.col_ptr[Z(i) + 1];
  uint64_t hash = static_cast<uint64_t>(end - begin);
  for (int64_t q = begin; q < end; ++q) {
    const int64_t j = a.row_idx[Z(q)];
    const auto value = std::bit_cast<uint64_t>(a.values[Z(q)]);
    const auto diagonal = std::bit_cast<uint64_t>(diagonals[Z(j)]);
    const auto distance = static_cast<uint64_t>(j - i);
    hash ^= value + std::rotl(diagonal, 29) + distance * 0x9e3779b97f4a7c15u;
    hash *= 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
  }
  return Mix(hash);
}

bool SameRows(const CscView& a, std::span<const double> diagonals, int64_t i, int64_t k) {
  const int64_t from = a.col_ptr[Z(i)], size = a.col_ptr[Z(i) + 1] - from;
  const int64_t other = a.col_ptr[Z(k)];
  if (a.col_ptr[Z(k) + 1] - other != size) return false;
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  for (int64_t q = 0; q < size; ++q) {
    const int64_t j = a.row_idx[Z(from + q)], l = a.row_idx[Z(other + q)];
    if (j - i != l - k || bits(a.values[Z(from + q)]) != bits(a.values[Z(other + q)]) ||
        bits(diagonals[Z(j)]) != bits(diagonals[Z(l)])) {
      return false;
    }
  }
  return true;
}

// Rows [first, first + n) of the matrix are grown, and counted from there; rows [0, n) may join.
struct Rows {
  const Array<int32_t>& like;
  const PatternView* initial;
  int64_t first, n;

  int32_t Like(int64_t i) const { return like[Z(first + i)]; }
  std::span<const int32_t> Start(int64_t i) const { return StartOfRow(initial, i, first + i); }
};

uint64_t FirstKey(const Rows& rows, int64_t i) {
  uint64_t key = static_cast<uint64_t>(rows.Like(i));
  for (const int32_t j : rows.Start(i)) key = Mix(key ^ static_cast<uint64_t>(i - j));
  return key;
}

// Whether all that the growth of `from` has read is there again at row i; else `key`, too, becomes
// one of how it differs.
bool Repeats(const Rows& rows, const GrownRow& from, int64_t i, uint64_t& key) {
  const int64_t by = i - from.row;
  const auto start = rows.Start(i), other = rows.Start(from.row);
  bool same = rows.Like(i) == rows.Like(from.row) &&
              std::equal(start.begin(), start.end(), other.begin(), other.end(),
                         [by](int64_t j, int64_t l) { return j == l + by; });
  uint64_t all = key;
  for (const RowEntry& entry : from.entries) {
    const int64_t j = entry.index + by;
    const int32_t here = j >= 0 && j < rows.n ? rows.like[Z(j)] : -1;
    same = same && here == rows.like[Z(entry.index)];
    all = (all ^ static_cast<uint32_t>(here)) * 0xd6e8feb86659fd93u;
    all ^= all >> 32;
  }
  if (!same) key = Mix(all);
  return same;
}

struct Pending {
  uint64_t key;
  int32_t row;
  int32_t group;
};

struct Group {
  int32_t row = -1;  // the one to be grown
  int32_t rows = 0;
  int32_t place = -1;  // among the rows that were grown
};

// Groups of rows with one key. Which one is grown is left to chance, the same each time: the first
// of an inner part of a grid would be the one nearest to its boundary, which is like no other.
std::vector<Group> MakeGroups(std::vector<Pending>& pending) {
  KeyTable table;
  std::vector<Group> groups;
  for (Pending& p : pending) {
    p.group = table.Find(p.key);
    if (Z(p.group) == groups.size()) groups.emplace_back();
    Group& group = groups[Z(p.group)];
    ++group.rows;
    if (group.row < 0 ||
        Mix(static_cast<uint64_t>(p.row)) < Mix(static_cast<uint64_t>(group.row))) {
      group.row = p.row;
    }
  }
  return groups;
}

}  // namespace

std::span<const int32_t> StartOfRow(const PatternView* initial, int64_t i, int64_t row) {
  if (initial == nullptr) return {};
  const auto column = initial->column(i);
  return column.first(Z(std::lower_bound(column.begin(), column.end(), row) - column.begin()));
}

Array<int32_t> LikeRows(const CscView& a, std::span<const double> diagonal, int hash_bits,
                        int threads) {
  const int64_t n = a.n_cols;
  const int64_t most = std::max<int64_t>(n / fsai_tuning::kRowsPerClass, 1);
  const auto hash = [&](int64_t i) { return HashRow(a, diagonal, i) >> (64 - hash_bits); };
  if (n >= fsai_tuning::kSampledRows) {
    KeyTable sample;
    for (int64_t i = 0; i < n; i += fsai_tuning::kSampleStep) sample.Find(hash(i));
    if (sample.size() > n / fsai_tuning::kSampleStep / 2) return {};
  }
  std::vector<uint64_t> hashes(Z(n));
  ParallelFor(n, kBatch, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) hashes[Z(i)] = hash(i);
  });
  KeyTable table;
  std::vector<int32_t> first;
  Array<int32_t> like(Z(n));
  for (int64_t i = 0; i < n; ++i) {
    const int32_t at = table.Find(hashes[Z(i)]);
    if (table.size() > most) return {};
    if (Z(at) == first.size()) first.push_back(static_cast<int32_t>(i));
    like[Z(i)] = first[Z(at)];
  }
  ParallelFor(n, kBatch, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      // No row before has this one for its first.
      if (!SameRows(a, diagonal, i, like[Z(i)])) like[Z(i)] = static_cast<int32_t>(i);
    }
  });
  return like;
}

StopReason FindRepeats(const Array<int32_t>& like, int64_t first_row,
                       std::span<const uint8_t> wanted, const PatternView* initial,
                       const Context& with_progress,
                       const std::function<bool(GrownRow&, int worker)>& grow,
                       RepeatedRows& found) {
  const int64_t n = static_cast<int64_t>(like.size()) - first_row;
  const Rows all{like, initial, first_row, n};
  Context context = with_progress;
  context.progress = nullptr;
  found.source.assign(Z(n), -1);
  found.grown.clear();
  std::vector<Pending> pending(Z(n));
  ParallelFor(n, kBatch, context.threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      pending[Z(i)] = {FirstKey(all, i), static_cast<int32_t>(i), -1};
    }
  });
  if (!wanted.empty()) {
    std::erase_if(pending, [&](const Pending& p) { return wanted[Z(p.row)] == 0; });
  }
  std::atomic<bool> in_vain{false};
  for (int round = 0; round < fsai_tuning::kRepeatRounds; ++round) {
    std::vector<Group> groups = MakeGroups(pending);
    // No row is grown for a group of one.
    std::erase_if(pending, [&](const Pending& p) { return groups[Z(p.group)].rows == 1; });
    const int64_t before = static_cast<int64_t>(found.grown.size());
    const auto more =
        std::count_if(groups.begin(), groups.end(), [](const Group& g) { return g.rows > 1; });
    const auto rows = static_cast<int64_t>(pending.size());
    if (more == 0 || more > rows / 4 || before + more > n / fsai_tuning::kRowsPerClass) break;
    for (Group& group : groups) {
      if (group.rows == 1) continue;
      group.place = static_cast<int32_t>(found.grown.size());
      found.grown.emplace_back().row = group.row;
    }
    StopReason stopped =
        ParallelFor(more, 4, context, Stage::kBuild, [&](int64_t begin, int64_t end, int worker) {
          for (int64_t t = before + begin; t < before + end && !in_vain; ++t) {
            GrownRow& row = found.grown[Z(t)];
            if (!grow(row, worker)) in_vain = true;
            row.entries.shrink_to_fit();  // there may be many
            row.ratios.shrink_to_fit();
          }
        });
    if (stopped != StopReason::kNone || in_vain) return stopped;
    stopped =
        ParallelFor(rows, kBatch, context, Stage::kBuild, [&](int64_t begin, int64_t end, int) {
          for (int64_t t = begin; t < end; ++t) {
            Pending& p = pending[Z(t)];
            const int32_t place = groups[Z(p.group)].place;
            const GrownRow& from = found.grown[Z(place)];
            // If a pivot was refused, its row was read although it is not among the entries.
            const bool same =
                from.outcome.not_spd ? p.row == from.row : Repeats(all, from, p.row, p.key);
            if (same) found.source[Z(p.row)] = place;
          }
        });
    if (stopped != StopReason::kNone) return stopped;
    std::erase_if(pending, [&](const Pending& p) {
      return found.source[Z(p.row)] >= 0 ||
             found.grown[Z(groups[Z(p.group)].place)].outcome.not_spd;
    });
  }
  return StopReason::kNone;
}

}  // namespace spaid::kernels
