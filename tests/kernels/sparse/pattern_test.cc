#include "kernels/sparse/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/sparse/transpose.h"
#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Pattern Must(Result<Pattern> result) {
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(result).value() : Pattern{};
}

// 0 -> 1 -> 2 -> 3 by columns: column j has row j+1 only; no diagonal.
CscMatrix Chain() { return Make(4, 4, {0, 1, 2, 3, 3}, {1, 2, 3}, {1, 1, 1}); }

// 1 where the pattern has an entry.
std::vector<double> Dense(const Pattern& p) { return oracle::ToDense(PatternView(p)).a; }

TEST(PatternTest, PowersOfAChain) {
  const CscMatrix a = Chain();
  const Pattern one = Must(BuildPattern(a, nullptr, {}, {}));
  EXPECT_THAT(one.col_ptr, ElementsAre(0, 2, 4, 6, 7));
  EXPECT_THAT(one.row_idx, ElementsAre(0, 1, 1, 2, 2, 3, 3));
  const Pattern two = Must(BuildPattern(a, nullptr, {.power = 2}, {}));
  EXPECT_THAT(two.row_idx, ElementsAre(0, 1, 2, 1, 2, 3, 2, 3, 3));
  const Pattern many = Must(BuildPattern(a, nullptr, {.power = kMaxPatternPower}, {}));
  EXPECT_THAT(many.row_idx, ElementsAre(0, 1, 2, 3, 1, 2, 3, 2, 3, 3));
}

TEST(PatternTest, PowersEqualTheBooleanProductForAnyThreadCount) {
  for (const auto& [name, a, regular] : oracle::Zoo(1)) {
    for (const int power : {1, 2, 3, 5}) {
      SCOPED_TRACE(name + " power " + std::to_string(power));
      const oracle::Dense expected = oracle::PatternPower(oracle::ToDense(a.pattern()), power);
      for (const int threads : {1, 3}) {
        Context context;
        context.threads = threads;
        const Pattern p = Must(BuildPattern(a, nullptr, {.power = power}, context));
        ExpectCanonical(p);
        EXPECT_EQ(Dense(p), expected.a);
        const Result<int64_t> count = CountPattern(a.pattern(), nullptr, {.power = power}, context);
        ASSERT_TRUE(count.ok());
        EXPECT_EQ(*count, p.nnz());
      }
    }
  }
}

TEST(PatternTest, ThresholdKeepsWhatIsOverTheShareOfTheColumn) {
  // Column 0: 10 (diagonal), 6, 5; column 1: 8, 1 (diagonal); column 2: a stored zero, 2
  // (diagonal).
  const CscMatrix a = Make(3, 3, {0, 3, 5, 7}, {0, 1, 2, 0, 1, 0, 2}, {10, 6, -5, 8, 1, 0, 2});
  const auto rows = [&](double tau) {
    return Copy(Must(BuildPattern(a, nullptr, {.keep_tau = tau}, {})).row_idx);
  };
  EXPECT_THAT(rows(0.0), ElementsAre(0, 1, 2));        // nothing is over the maximum
  EXPECT_THAT(rows(0.5), ElementsAre(0, 1, 0, 1, 2));  // 5 is not over 5
  EXPECT_THAT(rows(0.51), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(rows(1.0), ElementsAre(0, 1, 2, 0, 1, 2));  // all but the stored zero
}

TEST(PatternTest, ThresholdComesBeforeThePower) {
  const CscMatrix a = oracle::RandomIrregular(40, 6, 8);
  const oracle::Dense dense = oracle::ToDense(CscView(a));
  oracle::Dense kept(40, 40);
  for (int64_t j = 0; j < 40; ++j) {
    double largest = 0;
    for (int64_t i = 0; i < 40; ++i) largest = std::max(largest, std::abs(dense(i, j)));
    for (int64_t i = 0; i < 40; ++i) {
      kept(i, j) = i == j || std::abs(dense(i, j)) > (1 - 0.8) * largest;
    }
  }
  const Pattern p = Must(BuildPattern(a, nullptr, {.power = 2, .keep_tau = 0.8}, {}));
  EXPECT_EQ(Dense(p), oracle::PatternPower(kept, 2).a);
  EXPECT_LT(p.nnz(), Must(BuildPattern(a, nullptr, {.power = 2}, {})).nnz());
}

TEST(PatternTest, UserPatternIsTheBase) {
  const CscMatrix a = oracle::RandomIrregular(30, 4, 2);
  const CscMatrix other = oracle::RandomIrregular(30, 3, 3);
  const PatternView user = other.pattern();
  const Pattern p = Must(BuildPattern(a, &user, {.power = 2, .keep_tau = 0.1}, {}));
  EXPECT_EQ(Dense(p), oracle::PatternPower(oracle::ToDense(user), 2).a);
}

TEST(PatternTest, EnsureRowAddsTheRowOfA) {
  for (const auto& [name, a, regular] : oracle::Zoo(4)) {
    SCOPED_TRACE(name);
    const Pattern p = Must(BuildPattern(a, nullptr, {.power = 2, .ensure_row = true}, {}));
    ExpectCanonical(p);
    oracle::Dense expected = oracle::PatternPower(oracle::ToDense(a.pattern()), 2);
    const oracle::Dense stored = oracle::ToDense(a.pattern());
    for (int64_t k = 0; k < a.n_cols; ++k) {
      for (int64_t j = 0; j < a.n_cols; ++j) {
        if (stored(k, j) != 0) expected(j, k) = 1;
      }
    }
    EXPECT_EQ(Dense(p), expected.a);
  }
}

// The permutation that BuildPattern must have used, from the matching alone.
std::vector<int64_t> ColumnOfRow(const CscMatrix& a) {
  const Array<int32_t> row_of_column = MaximumMatching(a.pattern());
  std::vector<int64_t> column_of_row(static_cast<size_t>(a.n_rows), -1), columns;
  for (size_t j = 0; j < row_of_column.size(); ++j) {
    if (row_of_column[j] >= 0) {
      column_of_row[static_cast<size_t>(row_of_column[j])] = static_cast<int64_t>(j);
    } else {
      columns.push_back(static_cast<int64_t>(j));
    }
  }
  size_t next = 0;
  for (auto& column : column_of_row) {
    if (column < 0) column = columns[next++];
  }
  return column_of_row;
}

TEST(PatternTest, RowMatchIsThePowerOfThePermutedMatrix) {
  for (const auto& [name, a, regular] : oracle::Zoo(6)) {
    SCOPED_TRACE(name);
    const int64_t n = a.n_cols;
    const std::vector<int64_t> column_of_row = ColumnOfRow(a);
    // Q A: row i moves to the place of its column.
    const oracle::Dense stored = oracle::ToDense(a.pattern());
    oracle::Dense permuted(n, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) permuted(column_of_row[size_t(i)], j) = stored(i, j);
    }
    const oracle::Dense power = oracle::PatternPower(permuted, 2);
    oracle::Dense expected(n, n);
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t i = 0; i < n; ++i) expected(i, k) = power(i, column_of_row[size_t(k)]);
    }
    const Pattern p = Must(BuildPattern(a, nullptr, {.power = 2, .row_match = true}, {}));
    ExpectCanonical(p);
    EXPECT_EQ(Dense(p), expected.a);
  }
}

TEST(PatternTest, BothCuresReachEveryRowOfAZeroDiagonalMatrix) {
  const CscMatrix a = oracle::ZeroDiagonal(45, 12);
  const oracle::Dense stored = oracle::ToDense(a.pattern());
  const auto out_of_reach = [&](const PatternOptions& options) {
    const Pattern p = Must(BuildPattern(a, nullptr, options, {}));
    int64_t count = 0;
    for (int64_t k = 0; k < a.n_cols; ++k) {
      bool reached = false;
      for (const int32_t j : PatternView(p).column(k)) reached |= stored(k, j) != 0;
      count += !reached;
    }
    return count;
  };
  EXPECT_GT(out_of_reach({}), 0);
  EXPECT_EQ(out_of_reach({.ensure_row = true}), 0);
  EXPECT_EQ(out_of_reach({.row_match = true}), 0);
}

TEST(PatternTest, RowMatchOfAPermutationMatrixGivesItsInverse) {
  // Column 0 -> row 2, 1 -> 0, 2 -> 1. The inverse has its entry (j, i) where A has (i, j).
  const CscMatrix a = Make(3, 3, {0, 1, 2, 3}, {2, 0, 1}, {1, 1, 1});
  const Pattern p = Must(BuildPattern(a, nullptr, {.row_match = true}, {}));
  EXPECT_EQ(Dense(p), Dense(Transpose(a.pattern())));
}

TEST(PatternTest, RowMatchOfASingularMatrixPairsTheRest) {
  // Only (0, 2) and (1, 2) are stored: one of three can be matched.
  const CscMatrix a = Make(3, 3, {0, 0, 0, 2}, {0, 1}, {1, 1});
  const Pattern p = Must(BuildPattern(a, nullptr, {.row_match = true}, {}));
  ExpectCanonical(p);
  EXPECT_EQ(MaximumMatching(a.pattern())[2], 0);
  EXPECT_THAT(p.col_ptr, ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(p.row_idx, ElementsAre(0, 2, 0, 1));
}

TEST(PatternTest, BadOptionsAreRefused) {
  const CscMatrix a = Chain();
  const auto status = [&](const PatternOptions& options, const PatternView* user = nullptr) {
    const Status built = BuildPattern(a, user, options, {}).status();
    const Status counted = CountPattern(a.pattern(), user, options, {}).status();
    EXPECT_EQ(built.reason(), counted.reason());
    EXPECT_EQ(built.code(), StatusCode::kInvalidArgument);
    return built;
  };
  EXPECT_EQ(status({.power = 0}).reason(), "BAD_PATTERN_POWER");
  EXPECT_EQ(status({.power = -7}).field(), "pattern_power");
  EXPECT_EQ(status({.power = kMaxPatternPower + 1}).reason(), "BAD_PATTERN_POWER");
  EXPECT_EQ(status({.keep_tau = -0.1}).reason(), "BAD_KEEP_TAU");
  EXPECT_EQ(status({.keep_tau = 1.1}).reason(), "BAD_KEEP_TAU");
  EXPECT_EQ(status({.keep_tau = NAN}).field(), "keep_tau");
  const CscMatrix small = Make(3, 3, {0, 0, 0, 0}, {}, {});
  const PatternView user = small.pattern();
  EXPECT_EQ(status({}, &user).reason(), "PATTERN_SIZE_MISMATCH");
  EXPECT_THAT(status({}, &user).message(), HasSubstr("3 x 3, the matrix 4 x 4"));
}

TEST(PatternTest, LimitIsExact) {
  const CscMatrix a = Chain();
  for (const int threads : {1, 3}) {
    Context context;
    context.threads = threads;
    EXPECT_TRUE(BuildPattern(a, nullptr, {.power = 2, .max_nnz = 9}, context).ok());
    const Status status = BuildPattern(a, nullptr, {.power = 2, .max_nnz = 8}, context).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.reason(), "PATTERN_TOO_LARGE");
    EXPECT_THAT(status.message(), HasSubstr("the limit is 8"));
  }
}

TEST(PatternTest, StopBeforeAndDuring) {
  const CscMatrix a = oracle::Laplacian2d(60, 60);
  StopSource before;
  before.Request(StopReason::kCancelled);
  Context context;
  context.stop = before.token();
  EXPECT_EQ(BuildPattern(a, nullptr, {}, context).status().reason(), "CANCELLED");
  EXPECT_EQ(CountPattern(a.pattern(), nullptr, {}, context).status().reason(), "CANCELLED");

  // A stop in the first report of the second pass, while the result is being filled.
  class StopLater : public ProgressSink {
   public:
    void OnProgress(Stage, int64_t done, int64_t total) override {
      EXPECT_GT(done, last_);
      last_ = done;
      if (2 * done > total) source.Request(StopReason::kTimeLimit);
    }
    void OnResidual(const ResidualPoint&) override { ADD_FAILURE(); }
    StopSource source;

   private:
    int64_t last_ = 0;
  };
  for (const int threads : {1, 3}) {
    StopLater sink;
    Context during;
    during.stop = sink.source.token();
    during.progress = &sink;
    during.threads = threads;
    const Status status = BuildPattern(a, nullptr, {.power = 3}, during).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.reason(), "TIME_LIMIT");
  }
}

TEST(PatternTest, ProgressReachesTheEnd) {
  class Last : public ProgressSink {
   public:
    void OnProgress(Stage stage, int64_t d, int64_t t) override {
      EXPECT_EQ(stage, Stage::kPlan);
      EXPECT_GT(d, done);
      done = d;
      total = t;
    }
    void OnResidual(const ResidualPoint&) override {}
    int64_t done = 0, total = 0;
  } last;
  Context context;
  context.progress = &last;
  context.threads = 3;
  ASSERT_TRUE(BuildPattern(oracle::Laplacian2d(40, 40), nullptr, {.power = 2}, context).ok());
  EXPECT_EQ(last.done, 3200);
  EXPECT_EQ(last.total, 3200);
}

TEST(PatternTest, GrowsWithThePower) {
  for (const auto& [name, a, regular] : oracle::Zoo(9)) {
    std::vector<double> previous(a.col_ptr.empty() ? 0 : size_t(a.n_cols * a.n_rows), 0.0);
    for (int power = 1; power <= 4; ++power) {
      const std::vector<double> now = Dense(Must(BuildPattern(a, nullptr, {.power = power}, {})));
      for (size_t i = 0; i < now.size(); ++i) ASSERT_GE(now[i], previous[i]) << name;
      previous = now;
    }
  }
}

TEST(PowerPattern, IsThatOfTheWholeInItsColumnsAndEmptyElsewhere) {
  for (const oracle::NamedMatrix& entry : oracle::Zoo(8)) {
    for (const int power : {1, 2, 3}) {
      PatternOptions options;
      options.power = power;
      const Pattern whole = BuildPattern(entry.a, nullptr, options, {}).value();
      const int64_t n = entry.a.n_cols;
      const IndexRange columns{n / 3, n - n / 4};
      const auto part = PowerPattern(entry.a.pattern(), options, columns, {.threads = 2});
      ASSERT_TRUE(part.ok()) << entry.name;
      for (int64_t k = 0; k < n; ++k) {
        const auto found = PatternView(*part).column(k), expected = PatternView(whole).column(k);
        const bool made = k >= columns.begin && k < columns.end;
        EXPECT_TRUE(std::ranges::equal(found, made ? expected : expected.first(0)))
            << entry.name << " column " << k;
      }
    }
  }
}

TEST(PowerPattern, IsBoundedByItsOwnEntries) {
  const CscMatrix a = oracle::Arrow(20);
  PatternOptions options;
  options.max_nnz = 5;
  const auto part = PowerPattern(a.pattern(), options, {3, 6}, {});
  EXPECT_EQ(part.status().reason(), "PATTERN_TOO_LARGE");
  EXPECT_TRUE(PowerPattern(a.pattern(), options, {3, 5}, {}).ok());
}

TEST(ThresholdPattern, KeepsTheDiagonalOfTheWhole) {
  // Columns 2 and 3 of a matrix of 4 rows: the diagonal is small.
  CscMatrix a;
  a.n_rows = 4;
  a.n_cols = 2;
  a.col_ptr = {0, 3, 6};
  a.row_idx = {0, 1, 2, 0, 1, 3};
  a.values = {8, 1, 0.5, 1, 8, 0.5};
  const auto kept = ThresholdPattern(a, 0.5, 2, {});
  ASSERT_TRUE(kept.ok());
  EXPECT_THAT(kept->row_idx, testing::ElementsAre(0, 2, 1, 3));
}

}  // namespace
}  // namespace spaid::kernels
