#include "kernels/mpi/rank_bytes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/fsai/fsai_build.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/petsc.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_matrix.h"
#include "kernels/static_spai/local_problem.h"
#include "kernels/static_spai/long_columns.h"
#include "kernels/static_spai/static_spai_plan.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Bytes of arrays, counted in the code that makes them.
// An item of a halo: its number, its place, owner and length; as a leaf of PetscSF, with its place
// there and here, twice while that is sorted.
constexpr int64_t kHaloItem = 72;
// An entry: as a leaf, and index and value, with those on their way.
constexpr int64_t kHaloEntry = 48 + 2 * kEntryBytes;
// The same at the rank that owns it, for each that asks.
constexpr int64_t kAskedEntry = sizeof(PetscInt) + sizeof(double);
// An entry of M on its way to the owner of its row: by columns, to whom it goes, as it has come, by
// rows.
constexpr int64_t kMovedEntry = 4 * kEntryBytes;
// A column of others in an MPIAIJ: its number, by a table of PETSc's, and its value in a product.
constexpr int64_t kOthersColumn = 64;
// Numberings of a halo, of n / 8 bytes and half of that, of which so many are there at once; lists
// by row or column of the part; and what starts a thread and a heap.
constexpr int64_t kNumberings = 4, kListsOfPart = 40, kFixed = 8 << 20;

using Shares = RanksDevice::Shares;

Shares SharesOf(const PatternView& a, int ranks) {
  Shares most{.n = a.n_cols, .nnz = a.nnz(), .long_columns = CountLong(a)};
  Array<int64_t> rows;
  rows.assign(Z(a.n_rows) + 1, 0);
  for (const int32_t i : a.row_idx) ++rows[Z(i) + 1];
  most.longest_row = *std::ranges::max_element(rows);
  for (size_t i = 1; i < rows.size(); ++i) rows[i] += rows[i - 1];
  for (int64_t j = 0; j < a.n_cols; ++j) {
    most.longest_column = std::max(most.longest_column, std::ssize(a.column(j)));
  }
  for (int r = 0; r < ranks; ++r) {
    const IndexRange own = ShareOf(a.n_cols, r, ranks);
    const auto between = [&](const auto& ptr) { return ptr[Z(own.end)] - ptr[Z(own.begin)]; };
    most.columns = std::max(most.columns, own.size());
    most.of_rows = std::max(most.of_rows, between(rows));
    most.entries = std::max({most.entries, most.of_rows, between(a.col_ptr)});
  }
  most.gram_longest = std::min(most.n, most.longest_column * most.longest_row);
  return most;
}

// The longest row of G, of which all that begin with a pattern of the user's may have all of a row
// of it, and the diagonal; and the longest column of a grown M.
int64_t LongestRow(const FsaiOptions& fsai, const PatternView* user, const Shares& own) {
  double most = 1;
  if (user != nullptr) {
    most += static_cast<double>(SharesOf(*user, 1).longest_row);
  } else if (!fsai.adaptive) {
    most = std::pow(static_cast<double>(own.longest_column) + 1, fsai.power);
  }
  if (fsai.adaptive) most += static_cast<double>(fsai.s) * fsai.k_max;
  return static_cast<int64_t>(std::min(most, static_cast<double>(own.n)));
}
int64_t LongestColumn(const DynamicSpaiOptions& dynamic, const PatternView* user,
                      const Shares& own) {
  const int64_t start = 1 + (user != nullptr ? SharesOf(*user, 1).longest_column : 0);
  int64_t most = start + int64_t{dynamic.per_step} * dynamic.max_steps;
  if (dynamic.max_column_nnz > 0) {
    most = std::min(most, std::max<int64_t>(start, dynamic.max_column_nnz));
  }
  return std::min(most, own.n);
}

// A halo of A, or of B, whose `entries` are at most `owned` on a rank.
struct HaloBound {
  int64_t fetched = 0;  // as CheckHalo counts it
  int64_t bytes = 0;    // with all that it is found by, here and where others ask this rank
  int64_t entries = 0;  // of others' columns

  HaloBound(int64_t n, int64_t all, int64_t owned, const RanksShape& shape) {
    if (shape.ranks == 1) return;
    constexpr int64_t kCounted = kEntryBytes + sizeof(PetscSFNode);
    fetched = std::min(shape.halo_limit, all * kCounted + n * 8);
    entries = std::min(all, fetched / kCounted);
    bytes = kHaloItem * n + kHaloEntry * entries + (shape.ranks - 1) * kAskedEntry * owned;
  }
};

// A matrix by rows, made of `entries`, on the rank that owns them.
int64_t RowsBytes(int64_t entries, const Shares& a) {
  return (kMovedEntry + kEntryBytes) * entries + kOthersColumn * std::min(a.n, entries) +
         16 * a.columns;
}

// Numbers of static SPAI on patterns of `nnz_m` entries, `longest` in a column.
int64_t SpaiBytes(const Shares& own, int64_t nnz_m, int64_t longest, int64_t in_rows,
                  const StaticSpaiOptions& options, const LocalCounts& largest,
                  const RanksShape& shape) {
  const int64_t group = 32 * longest;
  const int64_t share = std::min(nnz_m, 2 * nnz_m / shape.ranks + 2 * group);
  const int64_t pairs = MaxLongPairs(own.long_columns, own.n);
  // Groups come from their leaders' ranks, which know the members: of M's pattern.
  return 16 * share + 24 * own.n + PlanBytes(own.n, share, pairs) +
         BuildBytes(own.n, share, pairs, largest, longest, shape.threads, options.post_filter > 0) +
         kMovedEntry * share + RowsBytes(in_rows, own);
}

// `largest(columns)`: LargestProblem, or more.
template <class Largest>
Result<RanksDevice::RankBytes> Bound(const Shares& own, const Largest& largest,
                                     const RanksDevice::BuildToBound& build,
                                     const RanksShape& shape) {
  const int64_t n = own.n, nnz = own.nnz;
  // Columns of A, and before of M's pattern, where groups are found: never both.
  const HaloBound of_a(n, std::max(nnz, build.fsai == nullptr ? build.nnz_m : 0), own.entries,
                       shape);
  const int64_t part = std::min(nnz, own.entries + of_a.entries);  // of A, that a rank reads
  int64_t halo = of_a.fetched;
  int64_t bytes = kFixed + kSpreadEntry * own.entries + kOthersColumn * std::min(n, own.entries) +
                  24 * own.columns + (kNumberings * 3 / 16 + kListsOfPart) * n + kHaloItem * n +
                  of_a.bytes + kEntryBytes * part;
  if (build.fsai != nullptr) {
    const FsaiOptions& fsai = *build.fsai;
    const bool by_a = build.user_pattern == nullptr && fsai.power == 1;
    int64_t rows = build.nnz_m;  // of G, that a rank owns
    if (fsai.adaptive && build.user_pattern == nullptr) {
      rows = std::min(rows, own.columns * (1 + int64_t{fsai.s} * fsai.k_max));
    } else if (by_a) {
      rows = std::min(rows, own.of_rows + own.columns);
    }
    // Rows of others are their diagonal. Rows of A beside its columns, for the checks; parts that
    // grow are laid out once more in each round, and what is fetched joins what was.
    bytes += FsaiBytes({.n = n,
                        .nnz_a = part,
                        .longest_column = own.longest_column,
                        .nnz_g = rows + n,
                        .longest_row = LongestRow(fsai, build.user_pattern, own)},
                       fsai, shape.threads) +
             3 * kEntryBytes * part + kEntryBytes * own.of_rows + RowsBytes(rows, own);
  } else if (build.dynamic_spai != nullptr) {
    const DynamicSpaiOptions& dynamic = *build.dynamic_spai;
    const int64_t longest = LongestColumn(dynamic, build.user_pattern, own);
    const int64_t columns = std::min(build.nnz_m, own.columns * longest);
    const int64_t gram_nnz = build.gram_nnz;
    // Whose they are is known where they were counted.
    const int64_t gram_own = own.gram_own > 0 ? std::min(own.gram_own, gram_nnz) : gram_nnz;
    const HaloBound of_gram(n, gram_nnz, gram_own, shape);
    const int64_t gram_here = std::min(gram_nnz, gram_own + of_gram.entries);
    const GrowthSizes sizes{.n = n,
                            .nnz_a = part,
                            .gram_nnz = gram_here,
                            .gram_longest = own.gram_longest,
                            .initial = columns,
                            .nnz_m = columns,
                            .longest_of_m = longest};
    const auto growth = static_cast<int64_t>(GrowthBytes(sizes, dynamic, shape.threads));
    const int64_t numbers = SpaiBytes(own, build.nnz_m, longest, build.nnz_m, NumbersOf(dynamic),
                                      largest(longest), shape);
    bytes += std::max(growth + 3 * kEntryBytes * gram_here + of_gram.bytes, numbers) + 8 * columns;
    halo = std::min(shape.ranks > 1 ? shape.halo_limit : 0, halo + of_gram.fetched);
  } else {
    const StaticSpaiOptions& spai = *build.static_spai;
    const bool by_a =
        build.user_pattern == nullptr && spai.pattern.power == 1 && !spai.pattern.ensure_row;
    const int64_t in_rows = by_a ? own.of_rows + own.columns : build.nnz_m;
    bytes += 16 * std::min(build.nnz_m, by_a ? own.entries + own.columns : build.nnz_m) +
             SpaiBytes(own, build.nnz_m, build.column_nnz, std::min(build.nnz_m, in_rows), spai,
                       largest(build.column_nnz), shape);
  }
  return RanksDevice::RankBytes{.all = bytes, .halo = halo};
}

}  // namespace

Result<RanksDevice::RankBytes> BoundRankBytes(const PatternView& a,
                                              const RanksDevice::BuildToBound& build,
                                              const RanksShape& shape) {
  return GuardMemory("bound on the memory of ranks", [&] {
    return Bound(
        SharesOf(a, shape.ranks), [&](int64_t columns) { return LargestProblem(a, columns); },
        build, shape);
  });
}

Result<RanksDevice::RankBytes> BoundRankBytes(const RanksDevice::Shares& a,
                                              const RanksDevice::BuildToBound& build,
                                              const RanksShape& shape) {
  return GuardMemory("bound on the memory of ranks", [&] {
    const auto largest = [&](int64_t columns) {
      LocalCounts counts;
      counts.entries = std::min(a.nnz, std::min(columns, a.n) * a.longest_column);
      counts.n1 = counts.rows = std::min(a.n, counts.entries);
      return counts;
    };
    return Bound(a, largest, build, shape);
  });
}

namespace {

// Steps of counting, for each entry of A; and a halo of rows that is small whatever A is.
constexpr int64_t kMostSteps = 32, kSmallHalo = 16 << 20;

// Rows as sets of columns, 64 at a time: row r has words [ptr[r], ptr[r + 1]), ascending. Word w is
// of columns 64 at[w] to 64 at[w] + 63.
struct WordRows {
  Array<int64_t> ptr;
  Array<int32_t> at;
  Array<uint64_t> bits;

  struct Row {
    std::span<const int32_t> at;
    std::span<const uint64_t> bits;
  };
  Row row(int64_t r) const {
    const size_t first = Z(ptr[Z(r)]), count = Z(ptr[Z(r + 1)]) - first;
    return {std::span(at).subspan(first, count), std::span(bits).subspan(first, count)};
  }
};

// Those that this rank owns. `lengths`: their entries.
WordRows OwnWords(Mat of, Array<int64_t>& lengths) {
  const auto words_of = [](std::span<const PetscInt> columns, const auto& take) {
    for (size_t p = 0; p < columns.size();) {
      const int32_t at = columns[p] >> 6;
      uint64_t bits = 0;
      for (; p < columns.size() && columns[p] >> 6 == at; ++p) {
        bits |= uint64_t{1} << (columns[p] & 63);
      }
      take(at, bits);
    }
  };
  WordRows rows;
  rows.ptr.push_back(0);
  int64_t count = 0;
  EachRow(of, [&](int64_t, auto columns, auto) {
    lengths.push_back(std::ssize(columns));
    words_of(columns, [&](int32_t, uint64_t) { ++count; });
    rows.ptr.push_back(count);
  });
  rows.at.reserve(Z(count));
  rows.bits.reserve(Z(count));
  EachRow(of, [&](int64_t, auto columns, auto) {
    words_of(columns, [&](int32_t at, uint64_t bits) {
      rows.at.push_back(at);
      rows.bits.push_back(bits);
    });
  });
  return rows;
}

// The rows that own columns meet: own ones, and others' by numbers `of`, of which lengths alone may
// be here.
struct MetRows {
  IndexRange own;
  const Numbering& of;
  const Array<int64_t>&own_lengths, &lengths;
  const WordRows &own_words, &words;

  bool IsOwn(int32_t i) const { return own.begin <= i && i < own.end; }
  int64_t length(int32_t i) const {
    return IsOwn(i) ? own_lengths[Z(i - own.begin)] : lengths[Z(of.Local(i))];
  }
  WordRows::Row row(int32_t i) const {
    return IsOwn(i) ? own_words.row(i - own.begin) : words.row(of.Local(i));
  }
};

// Counts the columns of A that have a row in common with own columns [begin, end). `count`: whether
// these rows are here, not their lengths alone. At most some steps are taken for each entry;
// columns for which none is left have as many as their rows have together, or n.
void CountGram(const SpreadMatrix& a, const MetRows& rows, bool count, int64_t begin, int64_t end,
               std::span<int64_t> counts) {
  const CscView own = a.columns;
  int64_t steps = kMostSteps * (own.col_ptr[Z(end)] - own.col_ptr[Z(begin)]);
  std::vector<uint64_t> met(Z(a.n / 64 + 1), 0);
  std::vector<size_t> words;  // of `met` that are not 0
  for (int64_t j = begin; j < end; ++j) {
    const auto column = own.column(j);
    // The unknowns of a node are alike.
    if (j > begin && std::ranges::equal(column, own.column(j - 1))) {
      counts[Z(j)] = counts[Z(j - 1)];
      continue;
    }
    int64_t sum = 0, walk = 0;
    for (const int32_t i : column) {
      sum += rows.length(i);
      if (count) walk += std::ssize(rows.row(i).at);
    }
    counts[Z(j)] = std::min(a.n, sum);
    if (!count || walk > steps) continue;
    steps -= walk;
    WordRows::Row before;
    for (const int32_t i : column) {
      const WordRows::Row row = rows.row(i);
      if (std::ranges::equal(row.at, before.at) && std::ranges::equal(row.bits, before.bits)) {
        continue;
      }
      before = row;
      for (size_t w = 0; w < row.at.size(); ++w) {
        uint64_t& bits = met[Z(row.at[w])];
        if (bits == 0) words.push_back(Z(row.at[w]));
        bits |= row.bits[w];
      }
    }
    counts[Z(j)] = 0;
    for (const size_t w : words) counts[Z(j)] += std::popcount(std::exchange(met[w], 0));
    words.clear();
  }
}

}  // namespace

Result<Shares> SharesOf(const SpreadMatrix& a, int threads) {
  constexpr char kWhat[] = "shares of a matrix over several ranks";
  const CscView columns = a.columns;
  Shares own{.n = a.n, .nnz = a.nnz, .columns = columns.n_cols};
  WordRows own_words;
  Array<int64_t> own_lengths;
  Numbering others(a.n);
  Status status = Locally(a.comm, kWhat, [&]() -> Status {
    own_words = OwnWords(a.rows.get(), own_lengths);
    for (const int32_t i : columns.row_idx) {
      if (i < a.own().begin || a.own().end <= i) others.Insert(i);
    }
    others.Close();
    return {};
  });
  if (!status.ok()) return status;
  for (int64_t j = 0; j < columns.n_cols; ++j) {
    own.longest_column = std::max(own.longest_column, std::ssize(columns.column(j)));
    own.longest_row = std::max(own.longest_row, own_lengths[Z(j)]);
    own.of_rows += own_lengths[Z(j)];
  }
  own.entries = std::max(own.of_rows, columns.nnz());

  Halo halo(a.comm, a.begin, own_words.ptr, others.global());
  const Array<int64_t> lengths = halo.Items<int64_t>(own_lengths);
  const int64_t bytes = halo.RemoteBytes(kHaloEntry - int64_t{sizeof(PetscSFNode)}) +
                        std::ssize(own_words.at) * kEntryBytes;
  const bool fits = bytes <= (kSpreadEntry - 2 * kEntryBytes) * own.entries + kSmallHalo &&
                    halo.entries() <= std::numeric_limits<PetscInt>::max();
  const bool come = SumOf(a.comm, fits ? 0 : 1) == 0;
  WordRows words;
  if (come) {
    words = {halo.ptr(), halo.Entries<int32_t>(own_words.at),
             halo.Entries<uint64_t>(own_words.bits)};
  }
  Array<int64_t> counts;
  status = Locally(a.comm, kWhat, [&]() -> Status {
    counts.resize(Z(columns.n_cols));
    const MetRows met{a.own(), others, own_lengths, lengths, own_words, words};
    ParallelFor(columns.n_cols, 1 << 14, threads, [&](int64_t begin, int64_t end, int) {
      CountGram(a, met, come, begin, end, counts);
    });
    return {};
  });
  if (!status.ok()) return status;
  for (const int64_t count : counts) {
    own.gram_own += count;
    own.gram_longest = std::max(own.gram_longest, count);
  }
  own.gram_nnz = SumOf(a.comm, own.gram_own);
  for (int64_t* most : {&own.longest_column, &own.longest_row, &own.columns, &own.entries,
                        &own.of_rows, &own.gram_own, &own.gram_longest}) {
    Must(MPI_Allreduce(MPI_IN_PLACE, most, 1, MPI_INT64_T, MPI_MAX, a.comm));
  }
  own.long_columns = SumOf(a.comm, CountLong(columns));
  return own;
}

}  // namespace spaid::kernels::mpi
