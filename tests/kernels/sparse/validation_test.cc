#include "kernels/sparse/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/sparse/matrices.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// [4 0 7; 0 5 0; 1 0 6]
CscMatrix Good() { return Make(3, 3, {0, 2, 3, 5}, {0, 2, 1, 0, 2}, {4, 1, 5, 7, 6}); }

struct Refusal {
  std::string name;
  CscMatrix input;
  std::string reason;
  std::string field;
  int64_t index;
  std::string text;  // a part of the message
  ValidationOptions options = {};
  Layout layout = Layout::kCsc;
};

void PrintTo(const Refusal& r, std::ostream* out) { *out << r.name; }

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, WithReasonFieldIndexAndWords) {
  const Refusal& r = GetParam();
  const Result<CscMatrix> result = Canonicalize(r.input, r.layout, r.options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().reason(), r.reason);
  EXPECT_EQ(result.status().field(), r.field);
  EXPECT_EQ(result.status().index(), r.index);
  EXPECT_THAT(result.status().message(), HasSubstr(r.text));
}

CscMatrix With(void (*change)(CscMatrix&)) {
  CscMatrix m = Good();
  change(m);
  return m;
}

const ValidationOptions kSum{.sort_and_sum = true};
const ValidationOptions kPattern{.pattern_only = true};
constexpr int64_t kHuge = int64_t{1} << 62;

INSTANTIATE_TEST_SUITE_P(
    Inputs, Refused,
    testing::Values(
        Refusal{"no_columns", Make(3, 0, {0}, {}, {}), "EMPTY_MATRIX", "n_cols", -1, "3 x 0"},
        Refusal{"no_rows", Make(0, 3, {0, 0, 0, 0}, {}, {}), "EMPTY_MATRIX", "n_rows", -1, "0 x 3"},
        Refusal{"negative", Make(-4, -4, {0}, {}, {}), "EMPTY_MATRIX", "n_rows", -1, "-4"},
        Refusal{"too_many_rows", Make(kHuge, 3, {0, 0, 0, 0}, {}, {}), "MATRIX_TOO_LARGE", "n_rows",
                -1, "2147483647"},
        Refusal{"too_many_columns", Make(3, int64_t{1} << 31, {0}, {}, {}), "MATRIX_TOO_LARGE",
                "n_cols", -1, "2147483648"},
        Refusal{"not_square", Make(2, 3, {0, 0, 0, 0}, {}, {}), "NOT_SQUARE", "n_cols", -1,
                "2 x 3"},
        Refusal{"short_pointers", With([](CscMatrix& m) { m.col_ptr.resize(3); }), "BAD_POINTERS",
                "col_ptr", 3, "needs 4"},
        Refusal{"no_pointers", With([](CscMatrix& m) { m.col_ptr.clear(); }), "BAD_POINTERS",
                "col_ptr", 0, "has 0"},
        Refusal{"long_pointers", With([](CscMatrix& m) { m.col_ptr.push_back(5); }), "BAD_POINTERS",
                "col_ptr", 4, "has 5"},
        Refusal{"one_based", With([](CscMatrix& m) { m.col_ptr[0] = 1; }), "BAD_POINTERS",
                "col_ptr", 0, "0-based"},
        Refusal{"decreasing", With([](CscMatrix& m) { m.col_ptr[2] = 1; }), "BAD_POINTERS",
                "col_ptr", 2, "must not decrease"},
        Refusal{"negative_pointer", With([](CscMatrix& m) { m.col_ptr[1] = -kHuge; }),
                "BAD_POINTERS", "col_ptr", 1, "must not decrease"},
        Refusal{"huge_pointer", With([](CscMatrix& m) { m.col_ptr[1] = kHuge; }), "BAD_POINTERS",
                "col_ptr", 1, "only 5 indices"},
        Refusal{"huge_last", With([](CscMatrix& m) { m.col_ptr[3] = kHuge; }), "BAD_POINTERS",
                "col_ptr", 3, "only 5 indices"},
        Refusal{"short_last", With([](CscMatrix& m) { m.col_ptr[3] = 4; }), "BAD_POINTERS",
                "col_ptr", 3, "there are 5 indices"},
        Refusal{"negative_index", With([](CscMatrix& m) { m.row_idx[2] = -1; }),
                "INDEX_OUT_OF_RANGE", "row_idx", 2, "in column 1 names row -1"},
        Refusal{"index_n", With([](CscMatrix& m) { m.row_idx[4] = 3; }), "INDEX_OUT_OF_RANGE",
                "row_idx", 4,
                "in column 2 names row 3; rows are 0 to 2 (are the indices 1-based?)"},
        Refusal{"index_max", With([](CscMatrix& m) { m.row_idx[1] = INT32_MAX; }),
                "INDEX_OUT_OF_RANGE", "row_idx", 1, "2147483647"},
        Refusal{"index_even_if_sorting", With([](CscMatrix& m) { m.row_idx[1] = INT32_MIN; }),
                "INDEX_OUT_OF_RANGE", "row_idx", 1, "-2147483648", kSum},
        Refusal{"unsorted", With([](CscMatrix& m) { std::swap(m.row_idx[3], m.row_idx[4]); }),
                "UNSORTED_INDICES", "row_idx", 4,
                "names row 0 after row 2; send each column sorted"},
        Refusal{"duplicate", With([](CscMatrix& m) { m.row_idx[1] = 0; }), "DUPLICATE_ENTRY",
                "row_idx", 1, "in column 0 names row 0 a second time"},
        Refusal{"few_values", With([](CscMatrix& m) { m.values.pop_back(); }), "BAD_POINTERS",
                "values", 4, "4 values for 5 indices"},
        Refusal{"many_values", With([](CscMatrix& m) { m.values.push_back(1); }), "BAD_POINTERS",
                "values", 5, "6 values"},
        Refusal{"values_of_a_pattern", Good(), "BAD_POINTERS", "values", 0, "a pattern has none",
                kPattern},
        Refusal{"nan", With([](CscMatrix& m) {
                  m.values[3] = kNan;
                  m.values[4] = kInf;
                }),
                "NON_FINITE_VALUE", "values", 3, "(column 2, row 0) is NaN"},
        Refusal{"infinite", With([](CscMatrix& m) { m.values[2] = -kInf; }), "NON_FINITE_VALUE",
                "values", 2, "(column 1, row 1) is infinite"},
        Refusal{"sum_overflows", Make(2, 2, {0, 1, 4}, {0, 1, 0, 1}, {1, 1e308, 2, 1e308}),
                "NON_FINITE_VALUE", "values", 3, "column 1", kSum},
        Refusal{"sum_overflows_in_a_long_column",
                Make(2, 2, {0, 1, 5}, {0, 1, 0, 1, 1}, {1, 1e308, 2, 1e308, 5}), "NON_FINITE_VALUE",
                "values", 3, "column 1", kSum},
        Refusal{"csr_names",
                With([](CscMatrix& m) { m.row_idx[4] = 9; }),
                "INDEX_OUT_OF_RANGE",
                "col_idx",
                4,
                "in row 2 names column 9",
                {},
                Layout::kCsr},
        Refusal{"csr_pointers",
                With([](CscMatrix& m) { m.col_ptr[1] = 9; }),
                "BAD_POINTERS",
                "row_ptr",
                1,
                "only 5",
                {},
                Layout::kCsr}),
    [](const auto& tested) { return tested.param.name; });

TEST(CanonicalizeBlockTest, CountsFromTheBeginningOfTheWhole) {
  // Rows 10 and 11 of a matrix with 40 columns, after 100 entries.
  const auto block = [] {
    CscMatrix rows;
    rows.n_rows = 2;
    rows.n_cols = 40;
    rows.col_ptr = {0, 2, 3};
    rows.row_idx = {5, 7, 39};
    rows.values = {1, 2, 3};
    return rows;
  };
  const ValidationOptions options{.first_major = 10, .first_entry = 100};
  const auto refuse = [&](const CscMatrix& rows) {
    return CanonicalizeBlock(rows, Layout::kCsr, options).status();
  };
  const Result<CscMatrix> fine = CanonicalizeBlock(block(), Layout::kCsr, options);
  ASSERT_TRUE(fine.ok()) << fine.status().message();
  EXPECT_EQ(fine->col_ptr, block().col_ptr);  // rows stay rows
  EXPECT_EQ(fine->row_idx, block().row_idx);

  CscMatrix bad = block();
  bad.row_idx[2] = 40;
  EXPECT_EQ(
      refuse(bad).message(),
      "col_idx[102] in row 11 names column 40; columns are 0 to 39 (are the indices 1-based?)");
  EXPECT_EQ(refuse(bad).index(), 102);
  bad = block();
  bad.row_idx[1] = 5;
  EXPECT_EQ(refuse(bad).reason(), "DUPLICATE_ENTRY");
  EXPECT_EQ(refuse(bad).index(), 101);
  bad = block();
  bad.col_ptr[2] = 1;
  EXPECT_EQ(refuse(bad).message(),
            "row_ptr[12] is 101, less than the 102 before it; pointers must not decrease");
  bad = block();
  bad.col_ptr[0] = 1;
  EXPECT_EQ(refuse(bad).message(), "row_ptr[10] is 101; it must be 100");
  bad = block();
  bad.values[0] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refuse(bad).message(),
            "values[100] (row 10, column 5) is infinite; every value must be finite");
  CscMatrix none;
  none.n_rows = 0;
  none.n_cols = 40;
  none.col_ptr = {0};
  EXPECT_TRUE(CanonicalizeBlock(none, Layout::kCsr, options).ok());
}

TEST(CanonicalizeTest, CanonicalInputIsNotCopied) {
  CscMatrix input = Good();
  const auto* ptr = input.col_ptr.data();
  const auto* idx = input.row_idx.data();
  const auto* values = input.values.data();
  for (const ValidationOptions& options : {ValidationOptions{}, kSum}) {
    Result<CscMatrix> result = Canonicalize(std::move(input), Layout::kCsc, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(result->col_ptr.data(), ptr);
    EXPECT_EQ(result->row_idx.data(), idx);
    EXPECT_EQ(result->values.data(), values);
    EXPECT_EQ(result->values, Good().values);
    input = std::move(result).value();
  }
}

TEST(CanonicalizeTest, SortsAndSumsInInputOrderAndGivesBackWhatThatSpares) {
  // Column 1 holds row 2 three times: (1e16 + 1) - 1e16 is 0 in this order.
  CscMatrix input = Make(3, 3, {0, 2, 6, 6}, {2, 0, 2, 1, 2, 2}, {1, 2, 1e16, 3, 1, -1e16});
  Result<CscMatrix> result = Canonicalize(std::move(input), Layout::kCsc, kSum);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(result->col_ptr, ElementsAre(0, 2, 4, 4));
  EXPECT_THAT(result->row_idx, ElementsAre(0, 2, 1, 2));
  EXPECT_THAT(result->values, ElementsAre(2, 1, 3, 0));
  EXPECT_EQ(result->values.capacity(), 4u);
}

TEST(CanonicalizeTest, ColumnsLongerThanTheMatrixAreSummedToo) {
  const CscMatrix input = Make(2, 2, {0, 5, 6}, {1, 0, 1, 1, 0, 0}, {1, -0.0, 2, 4, -0.0, 9});
  Result<CscMatrix> result = Canonicalize(input, Layout::kCsc, kSum);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(result->col_ptr, ElementsAre(0, 2, 3));
  EXPECT_THAT(result->row_idx, ElementsAre(0, 1, 0));
  EXPECT_THAT(result->values, ElementsAre(0, 7, 9));
  EXPECT_TRUE(std::signbit(result->values[0]));
}

TEST(CanonicalizeTest, RowsBecomeColumns) {
  // By rows: [1 2 0; 0 0 3]
  Result<CscMatrix> result = Canonicalize(Make(2, 3, {0, 2, 3}, {0, 1, 2}, {1, 2, 3}), Layout::kCsr,
                                          {.require_square = false});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->n_rows, 2);
  EXPECT_EQ(result->n_cols, 3);
  EXPECT_THAT(result->col_ptr, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(result->row_idx, ElementsAre(0, 0, 1));
  EXPECT_THAT(result->values, ElementsAre(1, 2, 3));
}

TEST(CanonicalizeTest, PatternsInBothLayouts) {
  for (const Layout layout : {Layout::kCsc, Layout::kCsr}) {
    ValidationOptions options = kPattern;
    options.sort_and_sum = true;
    Result<CscMatrix> result =
        Canonicalize(Make(2, 2, {0, 3, 4}, {1, 0, 1, 1}, {}), layout, options);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_TRUE(result->values.empty());
    if (layout == Layout::kCsc) {
      EXPECT_THAT(result->row_idx, ElementsAre(0, 1, 1));
      EXPECT_THAT(result->col_ptr, ElementsAre(0, 2, 3));
    } else {
      EXPECT_THAT(result->row_idx, ElementsAre(0, 0, 1));
      EXPECT_THAT(result->col_ptr, ElementsAre(0, 1, 3));
    }
  }
}

TEST(CanonicalizeTest, EmptyColumnsAndZerosAreWelcome) {
  Result<CscMatrix> result = Canonicalize(Make(2, 2, {0, 0, 1}, {0}, {0}), Layout::kCsc, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->nnz(), 1);
  EXPECT_TRUE(Canonicalize(Make(2, 2, {0, 0, 0}, {}, {}), Layout::kCsc, {}).ok());
}

TEST(CanonicalizeTest, ShuffledSplitEntriesGiveTheDenseSum) {
  for (const auto& [name, a, regular] : oracle::Zoo(23)) {
    SCOPED_TRACE(name);
    oracle::Random random(99);
    // Each entry once or as two summands, each column shuffled.
    CscMatrix scrambled;
    scrambled.n_rows = a.n_rows;
    scrambled.n_cols = a.n_cols;
    scrambled.col_ptr.push_back(0);
    for (int64_t j = 0; j < a.n_cols; ++j) {
      std::vector<std::pair<int32_t, double>> column;
      for (int64_t p = a.col_ptr[size_t(j)]; p < a.col_ptr[size_t(j) + 1]; ++p) {
        const double v = a.values[size_t(p)];
        const bool split = random.Next() & 1;
        column.emplace_back(a.row_idx[size_t(p)], split ? v / 2 : v);
        if (split) column.emplace_back(a.row_idx[size_t(p)], v / 2);
      }
      for (int64_t e = static_cast<int64_t>(column.size()) - 1; e > 0; --e) {
        std::swap(column[size_t(e)], column[size_t(random.Below(e + 1))]);
      }
      for (const auto& [i, v] : column) {
        scrambled.row_idx.push_back(i);
        scrambled.values.push_back(v);
      }
      scrambled.col_ptr.push_back(scrambled.nnz());
    }
    Result<CscMatrix> by_columns = Canonicalize(scrambled, Layout::kCsc, kSum);
    ASSERT_TRUE(by_columns.ok()) << by_columns.status().message();
    ExpectCanonical(by_columns->pattern());
    EXPECT_EQ(by_columns->col_ptr, a.col_ptr);
    EXPECT_EQ(by_columns->row_idx, a.row_idx);
    EXPECT_EQ(by_columns->values, a.values);  // halves add up exactly
    Result<CscMatrix> by_rows = Canonicalize(scrambled, Layout::kCsr, kSum);
    ASSERT_TRUE(by_rows.ok()) << by_rows.status().message();
    ExpectCanonical(by_rows->pattern());
    EXPECT_EQ(oracle::ToDense(CscView(*by_rows)).a,
              oracle::Transpose(oracle::ToDense(CscView(a))).a);
  }
}

}  // namespace
}  // namespace spaid::kernels
