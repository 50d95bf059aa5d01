#include "client/cli/matrix_market.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "tests/client/cli/temp_folder.h"

namespace spaid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kReal = "%%MatrixMarket matrix coordinate real general\n";

void WriteGzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), text.size()), static_cast<int>(text.size()));
  ASSERT_EQ(gzclose(file), Z_OK);
}

// NaN-proof and telling -0 from 0.
std::vector<uint64_t> Bits(const std::vector<double>& values) {
  std::vector<uint64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<uint64_t>(value));
  return bits;
}

class MatrixMarket : public testing::Test {
 protected:
  Expected<CscMatrix> Read(const std::string& text, const ReadOptions& options = {}) {
    return ReadMatrix(folder_.Write("A.mtx", text), options);
  }
  TempFolder folder_;
};

TEST_F(MatrixMarket, ReadsGeneralInAnyOrderAndKeepsExplicitZeros) {
  const auto a = Read(kReal + "% a comment\n\n3 3 4\n3 1 -2.5\n1 1 1e3\n2 3 0\n2 2 4\n");
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->n, 3);
  EXPECT_THAT(a->col_ptr, ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(a->row_idx, ElementsAre(0, 2, 1, 1));
  EXPECT_THAT(a->values, ElementsAre(1000, -2.5, 4, 0));
}

TEST_F(MatrixMarket, ExpandsEitherTriangle) {
  const std::string head = "%%MatrixMarket matrix coordinate real symmetric\n2 2 3\n1 1 1\n2 2 3\n";
  for (const char* entry : {"2 1 7\n", "1 2 7\n"}) {
    const auto a = Read(head + entry);
    ASSERT_TRUE(a.ok()) << a.error().message;
    EXPECT_THAT(a->col_ptr, ElementsAre(0, 2, 4));
    EXPECT_THAT(a->row_idx, ElementsAre(0, 1, 0, 1));
    EXPECT_THAT(a->values, ElementsAre(1, 7, 7, 3));
  }
}

TEST_F(MatrixMarket, TakesWhatTheFormatAllows) {
  // Case, blanks, line ends, integers, no final line end, a leading plus.
  const auto a = Read(
      "%%matrixmarket MATRIX Coordinate Integer GENERAL\r\n%\r\n 2  2\t2 \r\n 1 1 +5\r\n\r\n2 2 "
      "-3");
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_THAT(a->values, ElementsAre(5, -3));
}

TEST_F(MatrixMarket, ReadsAMatrixWithoutEntries) {
  const auto a = Read(kReal + "3 3 0\n");
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_THAT(a->col_ptr, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(a->values, IsEmpty());
}

TEST_F(MatrixMarket, TakesPatternsOnlyWhereTheyAreMeant) {
  const std::string text = "%%MatrixMarket matrix coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n";
  const auto a = Read(text, {.pattern = true});
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_THAT(a->col_ptr, ElementsAre(0, 2, 3));
  EXPECT_THAT(a->row_idx, ElementsAre(0, 1, 0));
  EXPECT_THAT(a->values, IsEmpty());
  // A file with values gives its pattern, too.
  const auto b = Read(kReal + "1 1 1\n1 1 0\n", {.pattern = true});
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(b->row_idx, ElementsAre(0));
  EXPECT_THAT(b->values, IsEmpty());
}

TEST_F(MatrixMarket, SumsDuplicatesOnlyIfAsked) {
  const std::string text = kReal + "2 2 4\n1 1 1\n2 2 4\n1 1 2\n2 1 0\n";
  const auto refused = Read(text);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "DUPLICATE_ENTRY");
  EXPECT_THAT(refused.error().message, HasSubstr("entry 3, (1, 1), was given before as entry 1"));
  EXPECT_THAT(refused.error().message, HasSubstr("--sum-duplicates"));
  const auto summed = Read(text, {.sum_duplicates = true});
  ASSERT_TRUE(summed.ok()) << summed.error().message;
  EXPECT_THAT(summed->row_idx, ElementsAre(0, 1, 1));
  EXPECT_THAT(summed->values, ElementsAre(3, 0, 4));
}

TEST_F(MatrixMarket, RefusesBothTrianglesOfASymmetricFileEvenIfSumsAreAllowed) {
  const std::string text = "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n1 2 5\n2 1 5\n";
  for (const bool sum : {false, true}) {
    const auto a = Read(text, {.sum_duplicates = sum});
    ASSERT_FALSE(a.ok());
    EXPECT_EQ(a.error().reason, "DUPLICATE_ENTRY");
    EXPECT_THAT(a.error().message, HasSubstr("holds one triangle"));
  }
}

TEST_F(MatrixMarket, RefusesASumThatOverflows) {
  const auto b =
      Read("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 9.9e307\n1 1 9.9e307\n",
           {.sum_duplicates = true});
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.error().reason, "NON_FINITE_VALUE");
}

// Every entry as a map has it: the same places, and the same bits of sums made in the file's order.
TEST_F(MatrixMarket, SortsExpandsAndSumsLikeAMap) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> place(1, 40);
  for (const bool symmetric : {false, true}) {
    std::map<std::pair<int, int>, double> sums;  // by column, row
    std::string entries;
    int count = 0;
    for (; count < 500; ++count) {
      int i = place(random), j = place(random);
      if (symmetric && i < j) std::swap(i, j);
      const double value = std::ldexp(static_cast<double>(random()), place(random) - 40);
      std::array<char, 80> line;
      std::snprintf(line.data(), line.size(), "%d %d %.17g\n", i, j, value);
      entries += line.data();
      const auto add = [&](int row, int column) {
        const auto [at, fresh] = sums.emplace(std::pair(column - 1, row - 1), value);
        if (!fresh) at->second += value;
      };
      add(i, j);
      if (symmetric && i != j) add(j, i);
    }
    const auto a = Read(std::string("%%MatrixMarket matrix coordinate real ") +
                            (symmetric ? "symmetric" : "general") + "\n40 40 " +
                            std::to_string(count) + "\n" + entries,
                        {.sum_duplicates = true});
    ASSERT_TRUE(a.ok()) << a.error().message;
    ASSERT_EQ(a->row_idx.size(), sums.size());
    size_t at = 0;
    for (const auto& [key, sum] : sums) {
      EXPECT_LE(a->col_ptr[key.first], static_cast<int64_t>(at));
      EXPECT_GT(a->col_ptr[key.first + 1], static_cast<int64_t>(at));
      EXPECT_EQ(a->row_idx[at], key.second);
      EXPECT_EQ(std::bit_cast<uint64_t>(a->values[at]), std::bit_cast<uint64_t>(sum)) << at;
      ++at;
    }
  }
}

TEST_F(MatrixMarket, RoundsWhatIsTooSmall) {
  const auto a = Read(kReal + "2 2 4\n1 1 1e-400\n2 1 -1e-400\n1 2 5e-324\n2 2 3e-324\n");
  ASSERT_TRUE(a.ok()) << a.error().message;
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(Bits(a->values), Bits({0.0, -0.0, kTiny, kTiny}));
}

struct BadFile {
  const char* name;
  std::string text;
  const char* reason;
  const char* says;
};

class BadMatrix : public testing::TestWithParam<BadFile> {};

TEST_P(BadMatrix, IsRefusedWithReasonAndPlace) {
  const TempFolder folder;
  const std::string path = folder.Write("bad.mtx", GetParam().text);
  const auto a = ReadMatrix(path);
  ASSERT_FALSE(a.ok());
  EXPECT_EQ(a.error().code, Code::kInvalidArgument);
  EXPECT_EQ(a.error().reason, GetParam().reason);
  EXPECT_THAT(a.error().message, HasSubstr("bad.mtx"));
  EXPECT_THAT(a.error().message, HasSubstr(GetParam().says));
  EXPECT_THAT(a.error().message, testing::Not(HasSubstr("\n")));
  // The same behind gzip.
  WriteGzip(folder.File("bad.mtx.gz"), GetParam().text);
  const auto zipped = ReadMatrix(folder.File("bad.mtx.gz"));
  ASSERT_FALSE(zipped.ok());
  EXPECT_EQ(zipped.error().reason, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadMatrix,
    testing::Values(
        BadFile{"Empty", "", "FILE_EMPTY", "is empty"},
        BadFile{"NotMatrixMarket", "PK\x03\x04 zip zip\n1 2 3\n", "NOT_MATRIX_MARKET",
                "%%MatrixMarket"},
        BadFile{"BinaryWithoutLines", std::string(5000, '\x01'), "NOT_MATRIX_MARKET",
                "%%MatrixMarket"},
        BadFile{"ShortBanner", "%%MatrixMarket matrix coordinate\n1 1 1\n", "NOT_MATRIX_MARKET",
                "line 1"},
        BadFile{"Vector", "%%MatrixMarket vector coordinate real general\n1 1\n",
                "NOT_MATRIX_MARKET", "banner"},
        BadFile{"UnknownLayout", "%%MatrixMarket matrix skyline real general\n1 1 1\n",
                "NOT_MATRIX_MARKET", "\"skyline\""},
        BadFile{"UnknownField", "%%MatrixMarket matrix coordinate quaternion general\n1 1 1\n",
                "NOT_MATRIX_MARKET", "\"quaternion\""},
        BadFile{"UnknownSymmetry", "%%MatrixMarket matrix coordinate real diagonal\n1 1 1\n",
                "NOT_MATRIX_MARKET", "\"diagonal\""},
        BadFile{"ArrayPattern", "%%MatrixMarket matrix array pattern general\n1 1\n",
                "NOT_MATRIX_MARKET", "\"pattern\""},
        BadFile{"Complex", "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n",
                "MATRIX_COMPLEX", "[Re -Im; Im Re]"},
        BadFile{"Pattern", "%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n",
                "MATRIX_PATTERN", "--pattern-only"},
        BadFile{"Skew", "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n",
                "MATRIX_SKEW_SYMMETRIC", "write both triangles"},
        BadFile{"Hermitian", "%%MatrixMarket matrix coordinate complex hermitian\n1 1 1\n1 1 1 0\n",
                "MATRIX_HERMITIAN", "Hermitian"},
        BadFile{"Array", "%%MatrixMarket matrix array real general\n1 1\n3\n", "MATRIX_DENSE",
                "--rhs"},
        BadFile{"NotSquare", kReal + "2 3 1\n1 1 1\n", "NOT_SQUARE", "2 x 3"},
        BadFile{"NoRows", kReal + "0 0 0\n", "NOT_SQUARE", "0 x 0"},
        BadFile{"NoSizeLine", kReal + "% only comments\n", "FILE_TRUNCATED",
                "before the size line"},
        BadFile{"SizeLineOfTwo", kReal + "2 2\n", "BAD_SIZE_LINE", "line 2"},
        BadFile{"SizeLineOfFour", kReal + "2 2 2 2\n", "BAD_SIZE_LINE", "ROWS COLUMNS ENTRIES"},
        BadFile{"SizeLineNegative", kReal + "2 2 -1\n", "BAD_SIZE_LINE", "\"2 2 -1\""},
        BadFile{"SizeLineWords", kReal + "two two 2\n", "BAD_SIZE_LINE", "line 2"},
        BadFile{"TooManyRows", kReal + "2147483648 2147483648 1\n1 1 1\n", "BAD_SIZE_LINE",
                "2147483647"},
        BadFile{"MoreEntriesThanPlaces", kReal + "2 2 5\n", "BAD_SIZE_LINE", "do not fit"},
        BadFile{"EntriesBeyondInt64", kReal + "2 2 99999999999999999999\n", "BAD_SIZE_LINE",
                "line 2"},
        // 2^62 entries: refused before memory is asked for.
        BadFile{"HugePromise", kReal + "2147483647 2147483647 4611686014132420609\n1 1 1\n",
                "FILE_TRUNCATED", "4611686014132420609"},
        BadFile{"Truncated", kReal + "2 2 3\n1 1 1\n2 2 1\n", "FILE_TRUNCATED",
                "line 4: the file ends after 2 of 3"},
        BadFile{"TruncatedInLine", kReal + "2 2 2\n1 1 1\n2 2", "BAD_ENTRY", "line 4"},
        BadFile{"TooManyEntries", kReal + "2 2 1\n1 1 1\n2 2 1\n", "TOO_MANY_ENTRIES", "line 4"},
        BadFile{"TrailingText", kReal + "2 2 1\n1 1 1\nthe end\n", "TOO_MANY_ENTRIES",
                "\"the end\""},
        BadFile{"ZeroBased", kReal + "2 2 2\n0 0 1\n1 1 1\n", "INDEX_OUT_OF_RANGE",
                "counts from 1"},
        BadFile{"RowBeyond", kReal + "2 2 2\n1 1 1\n3 1 1\n", "INDEX_OUT_OF_RANGE",
                "line 4: entry (3, 1)"},
        BadFile{"ColumnBeyond", kReal + "2 2 1\n1 3 1\n", "INDEX_OUT_OF_RANGE", "(1, 3)"},
        BadFile{"NegativeIndex", kReal + "2 2 1\n-1 1 1\n", "INDEX_OUT_OF_RANGE", "(-1, 1)"},
        BadFile{"FractionalIndex", kReal + "2 2 1\n1.5 1 1\n", "BAD_ENTRY", "whole numbers"},
        BadFile{"MissingValue", kReal + "2 2 1\n1 1\n", "BAD_ENTRY", "expected 3 fields, found 2"},
        BadFile{"ExtraValue", kReal + "2 2 1\n1 1 1 1\n", "BAD_ENTRY",
                "expected 3 fields, found 4"},
        BadFile{"ValueOfLetters", kReal + "2 2 1\n1 1 one\n", "BAD_ENTRY", "\"one\""},
        BadFile{"FortranExponent", kReal + "2 2 1\n1 1 1.0D+00\n", "BAD_ENTRY", "\"1.0D+00\""},
        BadFile{"LongLine", kReal + "2 2 1\n1 1 1" + std::string(2000, '0') + "\n", "LINE_TOO_LONG",
                "line 3"},
        BadFile{"NaN", kReal + "2 2 2\n1 1 1\n2 2 nan\n", "NON_FINITE_VALUE",
                "entry 2, (2, 2), is NaN"},
        BadFile{"Infinite", kReal + "2 2 1\n1 2 -inf\n", "NON_FINITE_VALUE", "(1, 2)"},
        // A double, but one that other readers take for infinity.
        BadFile{"Beyond1e308", kReal + "2 2 1\n1 2 1.5e308\n", "NON_FINITE_VALUE", "1e308"},
        BadFile{"Overflow", kReal + "2 2 1\n1 2 1e400\n", "NON_FINITE_VALUE", "(1, 2)"}),
    [](const auto& test) { return test.param.name; });

TEST_F(MatrixMarket, NamesFilesThatCannotBeRead) {
  const auto missing = ReadMatrix(folder_.File("none.mtx"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().reason, "FILE_NOT_FOUND");
  EXPECT_THAT(missing.error().message, HasSubstr("none.mtx: no such file"));
  const auto folder = ReadMatrix(folder_.path().string());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().reason, "FILE_UNREADABLE");
  // A loop of links cannot be opened by anyone, root included.
  std::filesystem::create_symlink("loop.mtx", folder_.File("loop.mtx"));
  const auto loop = ReadMatrix(folder_.File("loop.mtx"));
  ASSERT_FALSE(loop.ok());
  EXPECT_EQ(loop.error().reason, "FILE_UNREADABLE");
}

TEST_F(MatrixMarket, TellsDamagedGzip) {
  std::string text = kReal + "20000 20000 20000\n";
  std::mt19937 random(1);
  for (int k = 1; k <= 20000; ++k) {
    text += std::to_string(k) + " " + std::to_string(k) + " 0." + std::to_string(random()) + "\n";
  }
  WriteGzip(folder_.File("A.mtx.gz"), text);
  ASSERT_TRUE(ReadMatrix(folder_.File("A.mtx.gz")).ok());
  const std::string good = TempFolder::Read(folder_.File("A.mtx.gz"));

  const auto cut = ReadMatrix(folder_.Write("cut.mtx.gz", good.substr(0, good.size() / 2)));
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().reason, "GZIP_CORRUPT");
  EXPECT_THAT(cut.error().message, HasSubstr("end too early"));

  // All of the data is there, the checksum after it is not.
  const auto tail = ReadMatrix(folder_.Write("tail.mtx.gz", good.substr(0, good.size() - 6)));
  ASSERT_FALSE(tail.ok());
  EXPECT_EQ(tail.error().reason, "GZIP_CORRUPT");

  std::string wrong_sum = good;
  wrong_sum[wrong_sum.size() - 6] ^= 1;
  const auto sum = ReadMatrix(folder_.Write("sum.mtx.gz", wrong_sum));
  ASSERT_FALSE(sum.ok());
  EXPECT_EQ(sum.error().reason, "GZIP_CORRUPT");
}

TEST_F(MatrixMarket, ReadsGzipWhateverItsName) {
  WriteGzip(folder_.File("A.mtx"), kReal + "1 1 1\n1 1 2\n");
  const auto zipped = ReadMatrix(folder_.File("A.mtx"));
  ASSERT_TRUE(zipped.ok()) << zipped.error().message;
  folder_.Write("B.mtx.gz", kReal + "1 1 1\n1 1 2\n");
  EXPECT_TRUE(ReadMatrix(folder_.File("B.mtx.gz")).ok());
}

TEST_F(MatrixMarket, RoundTripKeepsEveryBit) {
  // Random bit patterns, the awkward ones, and explicit zeros of both signs.
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  std::vector<double> values = {0.1,
                                -0.0,
                                0.0,
                                kTiny,
                                1.0 / 3,
                                1e22,
                                -1.7976931348623157e307,
                                std::numeric_limits<double>::min(),
                                3,
                                -7,
                                123456789012345680.0};
  std::mt19937_64 random(5);
  while (values.size() < 2000) {
    const auto value = std::bit_cast<double>(random());
    if (std::fabs(value) < 1e308) values.push_back(value);
  }
  CscMatrix a;
  a.n = static_cast<int64_t>(values.size());
  for (int32_t k = 0; k < a.n; ++k) {
    a.col_ptr.push_back(k);
    a.row_idx.push_back(k == 0 ? 5 : (k * 7) % static_cast<int32_t>(a.n));
  }
  a.col_ptr.push_back(a.n);
  a.values = values;
  for (const char* name : {"A.mtx", "A.mtx.gz"}) {
    const auto error = WriteMatrix(folder_.File(name), a);
    ASSERT_FALSE(error) << error->message;
    const auto back = ReadMatrix(folder_.File(name));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->col_ptr, a.col_ptr);
    EXPECT_EQ(back->row_idx, a.row_idx);
    EXPECT_EQ(Bits(back->values), Bits(a.values)) << name;

    const auto vector_error = WriteVectors(folder_.File(name), a.n / 2, 2, a.values);
    ASSERT_FALSE(vector_error) << vector_error->message;
    const auto vectors = ReadVectors(folder_.File(name));
    ASSERT_TRUE(vectors.ok()) << vectors.error().message;
    EXPECT_EQ(vectors->rows, a.n / 2);
    EXPECT_EQ(vectors->columns, 2);
    EXPECT_EQ(Bits(vectors->values), Bits(a.values)) << name;
  }
  EXPECT_EQ(TempFolder::Read(folder_.File("A.mtx.gz")).substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(folder_.FileCount(), 2u) << "something was left beside the files";
}

TEST_F(MatrixMarket, RoundTripOfASymmetricMatrixAndOfAPattern) {
  const auto a = Read(
      "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 2\n2 1 -0.1\n"
      "3 3 1\n3 2 0\n");
  ASSERT_TRUE(a.ok());
  ASSERT_FALSE(WriteMatrix(folder_.File("B.mtx"), *a));
  EXPECT_THAT(TempFolder::Read(folder_.File("B.mtx")), HasSubstr("symmetric\n3 3 4\n"));
  const auto b = ReadMatrix(folder_.File("B.mtx"));
  ASSERT_TRUE(b.ok()) << b.error().message;
  EXPECT_EQ(b->col_ptr, a->col_ptr);
  EXPECT_EQ(b->row_idx, a->row_idx);
  EXPECT_EQ(Bits(b->values), Bits(a->values));

  CscMatrix pattern = *a;
  pattern.values.clear();
  ASSERT_FALSE(WriteMatrix(folder_.File("P.mtx"), pattern));
  const auto p = ReadMatrix(folder_.File("P.mtx"), {.pattern = true});
  ASSERT_TRUE(p.ok()) << p.error().message;
  EXPECT_EQ(p->row_idx, a->row_idx);
  EXPECT_EQ(ReadMatrix(folder_.File("P.mtx")).error().reason, "MATRIX_PATTERN");
}

TEST_F(MatrixMarket, WritesNothingThatIsNotFinite) {
  const std::string path = folder_.Write("x.mtx", "old");
  const std::vector<double> x = {1, std::nan("")};
  auto error = WriteVectors(path, 2, 1, x);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->reason, "NON_FINITE_VALUE");
  const CscMatrix a = {.n = 1, .col_ptr = {0, 1}, .row_idx = {0}, .values = {INFINITY}};
  error = WriteMatrix(path, a);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->reason, "NON_FINITE_VALUE");
  // Other readers take this one for infinity.
  error = WriteVectors(path, 1, 1, std::vector<double>{1.5e308});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->reason, "NON_FINITE_VALUE");
  EXPECT_EQ(TempFolder::Read(path), "old");
}

TEST_F(MatrixMarket, TellsWhatCannotBeWritten) {
  const std::vector<double> x(100000, 1.5);
  const auto fails = [&](const std::string& path) {
    const auto error = WriteVectors(path, 100000, 1, x);
    return error ? error->reason : "written";
  };
  EXPECT_EQ(fails(folder_.File("no/such/folder/x.mtx")), "FILE_UNWRITABLE");
  EXPECT_EQ(fails(folder_.path().string()), "FILE_UNWRITABLE");
  // A full disk, plain and zipped.
  EXPECT_EQ(fails("/dev/full"), "FILE_UNWRITABLE");
  std::filesystem::create_symlink("/dev/full", folder_.File("full.mtx.gz"));
  EXPECT_EQ(fails(folder_.File("full.mtx.gz")), "FILE_UNWRITABLE");
  EXPECT_EQ(folder_.FileCount(), 1u);
}

TEST_F(MatrixMarket, ReadsVectors) {
  const auto dense = ReadVectors(folder_.Write(
      "b.mtx", "%%MatrixMarket matrix array real general\n3 2\n1\n2\n3\n4\n-5\n6e-3\n"));
  ASSERT_TRUE(dense.ok()) << dense.error().message;
  EXPECT_EQ(dense->rows, 3);
  EXPECT_EQ(dense->columns, 2);
  EXPECT_THAT(dense->values, ElementsAre(1, 2, 3, 4, -5, 6e-3));
  const auto sparse = ReadVectors(folder_.Write("s.mtx", kReal + "4 1 2\n4 1 7\n2 1 -1\n"));
  ASSERT_TRUE(sparse.ok()) << sparse.error().message;
  EXPECT_THAT(sparse->values, ElementsAre(0, -1, 0, 7));
  const auto zero = ReadVectors(folder_.Write("z.mtx", kReal + "2 1 0\n"));
  ASSERT_TRUE(zero.ok()) << zero.error().message;
  EXPECT_THAT(zero->values, ElementsAre(0, 0));
}

TEST_F(MatrixMarket, RefusesBadVectors) {
  const auto reason = [&](const std::string& text) -> std::string {
    const auto b = ReadVectors(folder_.Write("b.mtx", text));
    return b.ok() ? "read" : b.error().reason;
  };
  const std::string array = "%%MatrixMarket matrix array real general\n";
  EXPECT_EQ(reason(array + "3 1\n1\n2\n"), "FILE_TRUNCATED");
  EXPECT_EQ(reason(array + "2 1\n1\n2\n3\n"), "TOO_MANY_ENTRIES");
  EXPECT_EQ(reason(array + "2 1\n1\nnan\n"), "NON_FINITE_VALUE");
  EXPECT_EQ(reason(array + "2 1\n1 2\n3\n"), "BAD_ENTRY");
  EXPECT_EQ(reason(array + "2 1 2\n1\n3\n"), "BAD_SIZE_LINE");
  EXPECT_EQ(reason(array + "0 1\n"), "BAD_SIZE_LINE");
  EXPECT_EQ(reason(array + "2147483647 2147483647\n1\n"), "FILE_TRUNCATED");
  EXPECT_EQ(reason("%%MatrixMarket matrix array complex general\n1 1\n1 0\n"), "MATRIX_COMPLEX");
  EXPECT_EQ(reason("%%MatrixMarket matrix array real symmetric\n1 1\n1\n"), "NOT_MATRIX_MARKET");
  EXPECT_EQ(reason(kReal + "4 1 2\n4 1 7\n4 1 -1\n"), "DUPLICATE_ENTRY");
  EXPECT_EQ(reason("%%MatrixMarket matrix coordinate pattern general\n2 1 1\n1 1\n"),
            "MATRIX_PATTERN");
}

// The real matrices: their counts are published, and stand in the folder's README.
TEST(RealMatrices, HaveThePublishedCounts) {
  const char* folder = std::getenv("SPAID_MATRICES");
  if (folder == nullptr || !std::filesystem::exists(std::string(folder) + "/README.md")) {
    GTEST_SKIP() << "SPAID_MATRICES names no folder of Matrix Market files with a README.md";
  }
  std::ifstream readme(std::string(folder) + "/README.md");
  int checked = 0;
  for (std::string line; std::getline(readme, line);) {
    std::array<char, 64> name;
    long n = 0, stored = 0, nnz = 0;
    if (std::sscanf(line.c_str(), "| %63s | %ld | %ld | %ld |", name.data(), &n, &stored, &nnz) !=
        4) {
      continue;
    }
    const auto a = ReadMatrix(std::string(folder) + "/" + name.data() + ".mtx.gz");
    ASSERT_TRUE(a.ok()) << a.error().message;
    EXPECT_EQ(a->n, n) << name.data();
    const auto nonzeros =
        std::count_if(a->values.begin(), a->values.end(), [](double value) { return value != 0; });
    EXPECT_EQ(nonzeros, nnz) << name.data();
    EXPECT_GE(static_cast<long>(a->values.size()), nnz) << name.data();
    if (line.find("general") != std::string::npos) {
      EXPECT_EQ(static_cast<long>(a->values.size()), stored) << name.data();
    }
    const std::string rhs = std::string(folder) + "/" + name.data() + "_rhs1.mtx.gz";
    if (std::filesystem::exists(rhs)) {
      const auto b = ReadVectors(rhs);
      ASSERT_TRUE(b.ok()) << b.error().message;
      EXPECT_EQ(b->rows, n);
      EXPECT_EQ(b->columns, 1);
    }
    ++checked;
  }
  EXPECT_GT(checked, 0) << "the README lists no matrix";
}

}  // namespace
}  // namespace spaid::cli
