#include "kernels/mpi/spread_groups.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/mpi/ranks.h"
#include "kernels/sparse/hash.h"
#include "kernels/static_spai/group_solver.h"
#include "kernels/static_spai/static_spai_tuning.h"

namespace spaid::kernels::mpi {
namespace {

namespace tuning = static_spai_tuning;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

template <class T>
std::span<const T> Part(const Array<T>& of, const Array<int64_t>& ptr, int64_t i) {
  return std::span<const T>(of).subspan(Z(ptr[Z(i)]), Z(ptr[Z(i) + 1] - ptr[Z(i)]));
}

// The lowest column with the same J, as far as it shows: it is looked for in J, as one machine
// does.
class Leaders {
 public:
  Leaders(const SpreadMatrix& a, const Pattern& pattern, int threads, HaloBudget& budget)
      : a_(a),
        pattern_(pattern),
        own_(a.own()),
        threads_(threads),
        budget_(budget),
        reached_(a.n) {}

  Result<Array<int32_t>> Find() {
    const int64_t n_own = own_.size();
    Array<uint64_t> hash(Z(n_own));
    ParallelFor(n_own, 4096, threads_, [&](int64_t begin, int64_t end, int) {
      for (int64_t k = begin; k < end; ++k)
        hash[Z(k)] = HashArray(PatternView(pattern_).column(k), 0);
    });
    reached_.Insert(pattern_.row_idx);
    reached_.Close();
    const Halo halo(a_.comm, a_.begin, pattern_.col_ptr, reached_.global());
    const Array<uint64_t> hash_of = halo.Items<uint64_t>(hash);
    Array<int32_t> lengths(Z(n_own));
    for (int64_t k = 0; k < n_own; ++k) {
      lengths[Z(k)] = static_cast<int32_t>(std::ssize(CscView(a_.columns).column(k)));
    }
    length_of_ = halo.Items<int32_t>(lengths);
    // Candidates are tried in ascending order; those of other ranks when their J is here.
    Array<int32_t> leader(Z(n_own));
    Array<int32_t> tried(Z(n_own));  // place in J that is tried next
    std::fill(tried.begin(), tried.end(), 0);
    Array<int32_t> open(Z(n_own));
    for (int64_t k = 0; k < n_own; ++k) open[Z(k)] = static_cast<int32_t>(k);
    for (;;) {
      Numbering asked(a_.n);
      Array<int32_t> waiting;
      for (const int32_t k : open) {
        if (Advance(k, hash, hash_of, tried, leader)) continue;
        asked.Insert(PatternView(pattern_).column(k)[Z(tried[Z(k)])]);
        waiting.push_back(k);
      }
      asked.Close();
      if (SumOf(a_.comm, asked.size()) == 0) return leader;
      Halo remote(a_.comm, a_.begin, pattern_.col_ptr, asked.global());
      if (Status status = budget_.Take(a_.comm, remote, sizeof(int32_t)); !status.ok())
        return status;
      const Array<int32_t> rows = remote.Entries<int32_t>(pattern_.row_idx);
      open.clear();
      for (const int32_t k : waiting) {
        const auto j = PatternView(pattern_).column(k);
        const int32_t candidate = j[Z(tried[Z(k)])];
        if (std::ranges::equal(j, Part(rows, remote.ptr(), asked.Local(candidate)))) {
          leader[Z(k)] = candidate;
        } else {
          ++tried[Z(k)];
          open.push_back(k);
        }
      }
    }
  }

  // Entries of a column of A that a leader's J names, once Find has succeeded.
  int64_t LengthOf(int32_t j) const { return length_of_[Z(reached_.Local(j))]; }

 private:
  // True: leader[k] is found. False: column tried[k] of J, of another rank, must be seen.
  bool Advance(int32_t k, const Array<uint64_t>& hash, const Array<uint64_t>& hash_of,
               Array<int32_t>& tried, Array<int32_t>& leader) const {
    const auto j = PatternView(pattern_).column(k);
    const auto self = static_cast<int32_t>(own_.begin + k);
    for (int32_t& at = tried[Z(k)]; Z(at) < j.size() && j[Z(at)] < self; ++at) {
      const int32_t candidate = j[Z(at)];
      const bool here = candidate >= own_.begin;
      const uint64_t other =
          here ? hash[Z(candidate - own_.begin)] : hash_of[Z(reached_.Local(candidate))];
      if (other != hash[Z(k)]) continue;
      if (!here) return false;
      if (std::ranges::equal(j, PatternView(pattern_).column(candidate - own_.begin))) {
        leader[Z(k)] = candidate;
        return true;
      }
    }
    leader[Z(k)] = self;
    return true;
  }

  const SpreadMatrix& a_;
  const Pattern& pattern_;
  const IndexRange own_;
  const int threads_;
  HaloBudget& budget_;
  Numbering reached_;         // by the pattern of the columns here
  Array<int32_t> length_of_;  // of these columns of A
};

struct Membership {
  int32_t leader, member;
  auto operator<=>(const Membership&) const = default;
};

// The groups whose leader is a column of this rank, in order.
SpreadGroups GroupsOfLeaders(const SpreadMatrix& a, const Pattern& pattern,
                             const Array<int32_t>& leader) {
  const IndexRange own = a.own();
  std::vector<Array<Membership>> to(a.begin.size() - 1);
  for (int64_t k = 0; k < own.size(); ++k) {
    const auto after = std::upper_bound(a.begin.begin(), a.begin.end(), leader[Z(k)]);
    to[Z(after - a.begin.begin() - 1)].push_back(
        {leader[Z(k)], static_cast<int32_t>(own.begin + k)});
  }
  Array<Membership> all = ExchangeAll(a.comm, std::move(to));
  std::sort(all.begin(), all.end());
  SpreadGroups groups;
  groups.member_ptr.push_back(0);
  groups.j_ptr.push_back(0);
  for (size_t p = 0; p < all.size();) {
    size_t end = p;
    while (end < all.size() && end - p < Z(tuning::kMaxGroup) && all[end].leader == all[p].leader) {
      groups.members.push_back(all[end++].member);
    }
    const auto j = PatternView(pattern).column(all[p].leader - own.begin);
    groups.member_ptr.push_back(std::ssize(groups.members));
    groups.j.insert(groups.j.end(), j.begin(), j.end());
    groups.j_ptr.push_back(std::ssize(groups.j));
    p = end;
  }
  groups.begin = BeginsOf(a.comm, groups.size());
  return groups;
}

// Moves groups between ranks, in the same order, so that each has an equal share, about, of the sum
// of two shares: of the work and of the entries of M. So none has more than two of `ranks` shares
// of either, and a group (rank_bytes.h).
SpreadGroups Balance(MPI_Comm comm, const SpreadGroups& groups, std::vector<double> work) {
  const int ranks = RanksOf(comm);
  const size_t me = Z(RankOf(comm));
  double sums[2] = {0, 0};  // of work and entries, over all ranks
  const auto entries = [&](int64_t g) {
    return static_cast<double>(std::ssize(groups.group(g)) * std::ssize(groups.columns(g)));
  };
  for (int64_t g = 0; g < groups.size(); ++g) {
    sums[0] += work[Z(g)];
    sums[1] += entries(g);
  }
  Must(MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, comm));
  double own = 0, total = 0, before = 0;
  for (int64_t g = 0; g < groups.size(); ++g) {
    work[Z(g)] = work[Z(g)] / sums[0] + entries(g) / sums[1];
    own += work[Z(g)];
  }
  Must(MPI_Allreduce(&own, &total, 1, MPI_DOUBLE, MPI_SUM, comm));
  Must(MPI_Exscan(&own, &before, 1, MPI_DOUBLE, MPI_SUM, comm));
  if (RankOf(comm) == 0) before = 0;
  std::vector<Array<int32_t>> to(Z(ranks));
  size_t least = 0;             // ascending whatever rounding does
  int64_t stay = 0, leave = 0;  // groups [stay, leave) stay here
  for (int64_t g = 0; g < groups.size(); ++g) {
    const double middle = before + work[Z(g)] / 2;
    before += work[Z(g)];
    least = std::clamp(static_cast<size_t>(middle / total * ranks), least, Z(ranks - 1));
    if (least < me) stay = g + 1;
    if (least <= me) leave = g + 1;
    if (least == me) continue;
    const auto members = groups.group(g), columns = groups.columns(g);
    Array<int32_t>& stream = to[least];
    stream.push_back(static_cast<int32_t>(members.size()));
    stream.push_back(static_cast<int32_t>(columns.size()));
    stream.insert(stream.end(), members.begin(), members.end());
    stream.insert(stream.end(), columns.begin(), columns.end());
  }
  SpreadGroups moved;
  moved.member_ptr.push_back(0);
  moved.j_ptr.push_back(0);
  const auto append = [](const auto& from, const Array<int64_t>& ptr, int64_t first, int64_t end,
                         auto& list, Array<int64_t>& list_ptr) {
    const int64_t shift = std::ssize(list) - ptr[Z(first)];
    list.insert(list.end(), from.begin() + ptr[Z(first)], from.begin() + ptr[Z(end)]);
    for (int64_t g = first; g < end; ++g) list_ptr.push_back(ptr[Z(g) + 1] + shift);
  };
  const std::vector<Array<int32_t>> streams = Exchange(comm, std::move(to));
  for (size_t r = 0; r < streams.size(); ++r) {
    if (r == me) {
      append(groups.members, groups.member_ptr, stay, leave, moved.members, moved.member_ptr);
      append(groups.j, groups.j_ptr, stay, leave, moved.j, moved.j_ptr);
      continue;
    }
    const Array<int32_t>& stream = streams[r];
    moved.j.reserve(moved.j.size() + stream.size());
    for (auto at = stream.begin(); at != stream.end();) {
      const int32_t members = *at++, columns = *at++;
      moved.members.insert(moved.members.end(), at, at + members);
      moved.member_ptr.push_back(std::ssize(moved.members));
      at += members;
      moved.j.insert(moved.j.end(), at, at + columns);
      moved.j_ptr.push_back(std::ssize(moved.j));
      at += columns;
    }
  }
  moved.begin = BeginsOf(comm, moved.size());
  return moved;
}

// Classes of a list whose parts are on the ranks in order, by hash alone.
struct Named {
  Array<int32_t> of;
  std::vector<int32_t> first, uses;  // over all ranks; numbers of the whole
};

// hashes[i]: of member first + i. One rank after the other names its own, as one machine would.
Named NameInOrder(MPI_Comm comm, int64_t first, const Array<uint64_t>& hashes) {
  constexpr int kTag = 27;
  const int rank = RankOf(comm), ranks = RanksOf(comm);
  std::vector<uint64_t> known;
  if (rank > 0) {
    MPI_Status message;
    int count = 0;
    Must(MPI_Probe(rank - 1, kTag, comm, &message));
    Must(MPI_Get_count(&message, MPI_UINT64_T, &count));
    known.resize(Z(count));
    Must(MPI_Recv(known.data(), count, MPI_UINT64_T, rank - 1, kTag, comm, MPI_STATUS_IGNORE));
  }
  ClassNames names(known);
  Named named;
  named.of.resize(hashes.size());
  std::vector<int32_t> uses(Z(tuning::kMaxClasses), 0);
  for (size_t i = 0; i < hashes.size(); ++i) {
    const bool again = i > 0 && hashes[i] == hashes[i - 1];  // neighbours are alike
    const int32_t c =
        again ? named.of[i - 1]
              : names.Name(hashes[i], static_cast<int32_t>(first) + static_cast<int32_t>(i));
    named.of[i] = c;
    if (c >= 0) ++uses[Z(c)];
  }
  if (rank + 1 < ranks) {
    Must(MPI_Send(names.hashes().data(), static_cast<int>(names.size()), MPI_UINT64_T, rank + 1,
                  kTag, comm));
  }
  int32_t total = static_cast<int32_t>(names.size());
  Must(MPI_Bcast(&total, 1, MPI_INT, ranks - 1, comm));
  named.uses.assign(uses.begin(), uses.begin() + total);
  named.first.assign(Z(total), -1);
  std::ranges::copy(names.first(), named.first.begin() + std::ssize(known));
  Must(MPI_Allreduce(MPI_IN_PLACE, named.uses.data(), total, MPI_INT, MPI_SUM, comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, named.first.data(), total, MPI_INT, MPI_MAX, comm));
  // Rare ones are none.
  for (int32_t& c : named.of) {
    if (c >= 0 && named.uses[Z(c)] < tuning::kMinShared) c = -1;
  }
  return named;
}

// The first members of the classes that are here.
Numbering FirstsOf(const Named& named, int64_t n) {
  Numbering firsts(n);
  for (const int32_t c : named.of) {
    if (c >= 0) firsts.Insert(named.first[Z(c)]);
  }
  firsts.Close();
  return firsts;
}

}  // namespace

std::span<const int32_t> SpreadGroups::group(int64_t g) const {
  return Part(members, member_ptr, g);
}
std::span<const int32_t> SpreadGroups::columns(int64_t g) const { return Part(j, j_ptr, g); }

Status HaloBudget::Take(MPI_Comm comm, const Halo& halo, int64_t entry_bytes) {
  // PETSc counts entries by 32 bits.
  const bool countable = halo.entries() <= std::numeric_limits<PetscInt>::max();
  const int64_t bytes = countable ? fetched + halo.RemoteBytes(entry_bytes) : INT64_MAX;
  if (Status status = CheckHalo(comm, bytes, limit); !status.ok()) return status;
  fetched = bytes;
  return {};
}

Result<SpreadGroups> GroupColumns(const SpreadMatrix& a, const Pattern& pattern,
                                  const StaticSpaiOptions& options, int threads,
                                  HaloBudget& budget) {
  Leaders leaders(a, pattern, threads, budget);
  const Result<Array<int32_t>> leader = leaders.Find();
  if (!leader.ok()) return leader.status();
  const SpreadGroups groups = GroupsOfLeaders(a, pattern, *leader);
  // Predicted as if no two columns of J had a row in common: all that is known before they are
  // here.
  std::vector<double> work;
  for (int64_t g = 0; g < groups.size(); ++g) {
    const auto columns = groups.columns(g);
    LocalCounts counts;
    for (const int32_t j : columns) counts.entries += leaders.LengthOf(j);
    counts.n1 = counts.rows = counts.gram_pairs = counts.entries;
    work.push_back(
        PredictNs(options.local_solver, counts, std::ssize(columns), std::ssize(groups.group(g))));
  }
  return Balance(a.comm, groups, std::move(work));
}

Result<Array<int32_t>> ClassifyColumns(const SpreadMatrix& a, int threads, HaloBudget& budget) {
  const IndexRange own = a.own();
  const PatternView columns = a.columns.pattern();
  Array<uint64_t> hashes(Z(own.size()));
  ParallelFor(own.size(), 4096, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      hashes[Z(j)] = HashShifted(columns.column(j), static_cast<int32_t>(own.begin + j));
    }
  });
  Named named = NameInOrder(a.comm, own.begin, hashes);
  const Numbering firsts = FirstsOf(named, a.n);
  Halo halo(a.comm, a.begin, a.columns.col_ptr, firsts.global());
  if (Status status = budget.Take(a.comm, halo, sizeof(int32_t)); !status.ok()) return status;
  const Array<int32_t> rows = halo.Entries<int32_t>(a.columns.row_idx);
  ParallelFor(own.size(), 4096, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      int32_t& c = named.of[Z(j)];
      if (c < 0) continue;
      const int32_t first = named.first[Z(c)];
      if (!EqualShifted(columns.column(j), own.begin + j,
                        Part(rows, halo.ptr(), firsts.Local(first)), first)) {
        c = -1;
      }
    }
  });
  return std::move(named.of);
}

Result<ShiftClasses> ClassifyGroups(MPI_Comm comm, const SpreadGroups& groups,
                                    std::span<const int32_t> class_of, int threads,
                                    HaloBudget& budget) {
  const int64_t count = groups.size(), before = groups.begin[Z(RankOf(comm))];
  Array<uint64_t> hashes(Z(count));
  const auto classes_of = [&](int64_t g) {
    return class_of.subspan(Z(groups.j_ptr[Z(g)]), groups.columns(g).size());
  };
  ParallelFor(count, 4096, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      const auto own = classes_of(g);
      hashes[Z(g)] =
          HashGroup(groups.group(g), groups.columns(g), [&](size_t q) { return own[q]; });
    }
  });
  Named named = NameInOrder(comm, before, hashes);
  const Numbering firsts = FirstsOf(named, groups.begin.back());
  Halo members(comm, groups.begin, groups.member_ptr, firsts.global());
  Halo columns(comm, groups.begin, groups.j_ptr, firsts.global());
  if (Status s = budget.Take(comm, members, sizeof(int32_t)); !s.ok()) return s;
  if (Status s = budget.Take(comm, columns, 2 * sizeof(int32_t)); !s.ok()) return s;
  const Array<int32_t> of_members = members.Entries<int32_t>(groups.members);
  const Array<int32_t> of_columns = columns.Entries<int32_t>(groups.j);
  const Array<int32_t> of_classes = columns.Entries<int32_t>(class_of);
  ParallelFor(count, 4096, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t g = begin; g < end; ++g) {
      int32_t& c = named.of[Z(g)];
      if (c < 0) continue;
      const int32_t at = firsts.Local(named.first[Z(c)]);
      const auto first = Part(of_members, members.ptr(), at);
      const int64_t x = groups.group(g)[0], y = first[0];
      if (!EqualShifted(groups.group(g), x, first, y) ||
          !EqualShifted(groups.columns(g), x, Part(of_columns, columns.ptr(), at), y) ||
          !std::ranges::equal(classes_of(g), Part(of_classes, columns.ptr(), at))) {
        c = -1;
      }
    }
  });
  ShiftClasses classes;
  classes.of = std::move(named.of);
  classes.uses = std::move(named.uses);
  classes.first.assign(classes.uses.size(), -1);
  for (int64_t g = count - 1; g >= 0; --g) {
    const int32_t c = classes.of[Z(g)];
    if (c >= 0) classes.first[Z(c)] = static_cast<int32_t>(g);
  }
  return classes;
}

}  // namespace spaid::kernels::mpi
