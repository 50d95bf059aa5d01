#include "client/cli/gallery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

#include "kernels/gallery/gallery.h"

namespace spaid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Hex(XXH128_hash_t hash) {
  std::array<char, 33> text;
  std::snprintf(text.data(), text.size(), "%016lx%016lx", static_cast<unsigned long>(hash.high64),
                static_cast<unsigned long>(hash.low64));
  return text.data();
}

// The digests of the wire contract: pattern over n, nnz, col_ptr, row_idx; values over their bits.
std::string PatternDigest(const CscMatrix& a) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  const std::array<int64_t, 2> head = {a.n, a.col_ptr.back()};
  XXH3_128bits_update(state, head.data(), sizeof head);
  XXH3_128bits_update(state, a.col_ptr.data(), a.col_ptr.size() * sizeof(int64_t));
  XXH3_128bits_update(state, a.row_idx.data(), a.row_idx.size() * sizeof(int32_t));
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return Hex(hash);
}

std::string ValueDigest(const CscMatrix& a) {
  return Hex(XXH3_128bits(a.values.data(), a.values.size() * sizeof(double)));
}

struct Measured {
  const char* name;
  const char* text;
  int64_t n, nnz;
  const char *pattern, *values;
};

// The matrices that peers were measured on, as the program that defined them wrote them (its rows
// transposed into CSC). A change here means that our figures no longer compare with theirs.
class MeasuredMatrix : public testing::TestWithParam<Measured> {};

TEST_P(MeasuredMatrix, IsTheSameBitForBit) {
  const auto a = GenerateFromText(GetParam().text);
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->n, GetParam().n);
  EXPECT_EQ(a->col_ptr.back(), GetParam().nnz);
  EXPECT_EQ(PatternDigest(*a), GetParam().pattern);
  EXPECT_EQ(ValueDigest(*a), GetParam().values);
}

INSTANTIATE_TEST_SUITE_P(Small, MeasuredMatrix,
                         testing::Values(Measured{"poisson32", "poisson:32", 32768, 223232,
                                                  "da1d65e2df5d8d00bd64c3bb89040bc8",
                                                  "144e928d8712721072d8bd838c6526ea"},
                                         Measured{"elast8", "elasticity:8", 1344, 82764,
                                                  "e5a8bbd2fc6fdedecf923a8760dc6837",
                                                  "e941c719ecc93f60d5ccaf2108fc50c2"}),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Large, MeasuredMatrix,
    testing::Values(
        Measured{"poisson128", "poisson:128", 2097152, 14581760, "74da0e861c8d4157dbe443ebf9db5a2e",
                 "d4466b2a9bc0aac0ff8a9d14990b3f12"},
        Measured{"convdiff100", "convdiff:100", 1000000, 6940000,
                 "04c966d0c60ccda03750fabbb5088117", "a75e2549cfff5836989973d1e55f1dbb"},
        Measured{"aniso1640", "aniso:1640", 2689600, 24186724, "54056144dfe8a042b13ebe66b2ae7c94",
                 "c520ed27e0fec7098712b08dad426fd6"},
        Measured{"elast40", "elasticity:40", 187200, 14411340, "005ea3724f38f7854e6a4f39723768bb",
                 "bfaf1fba2c75cd42a4aa20e096ea9ffd"},
        Measured{"elast60", "elasticity:60", 637200, 49902300, "62377d5e8ed995fe1b5bc57a8814dd53",
                 "d3cbbfd18d75e695a6fc90011e78a9e7"},
        Measured{"circuit300k", "circuit:300000", 300000, 1331051,
                 "5e54cbddf834799f0102d49ca69affca", "70e74136cc4c13c4899115791c84e739"}),
    [](const auto& test) { return test.param.name; });

using Entries = std::map<std::pair<int32_t, int32_t>, double>;

Entries EntriesOf(const CscMatrix& a) {
  Entries entries;
  for (int32_t column = 0; column < a.n; ++column) {
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      entries[{a.row_idx[k], column}] = a.values[k];
    }
  }
  return entries;
}

CscMatrix Make(const char* family, int64_t size) {
  auto a = Generate(family, size);
  EXPECT_TRUE(a.ok()) << a.error().message;
  return *std::move(a);
}

class EveryFamily : public testing::TestWithParam<gallery::Family> {};

TEST_P(EveryFamily, IsCanonicalAtSmallSizesAndTheSameTwice) {
  const gallery::Family& family = GetParam();
  for (const int64_t size : {family.min_size, int64_t{3}, int64_t{7}, int64_t{10}}) {
    const CscMatrix a = Make(family.name.data(), size);
    ASSERT_EQ(static_cast<int64_t>(a.col_ptr.size()), a.n + 1);
    ASSERT_EQ(a.col_ptr.front(), 0);
    ASSERT_EQ(a.col_ptr.back(), static_cast<int64_t>(a.row_idx.size()));
    ASSERT_EQ(a.row_idx.size(), a.values.size());
    for (int64_t column = 0; column < a.n; ++column) {
      for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
        ASSERT_GE(a.row_idx[k], 0);
        ASSERT_LT(a.row_idx[k], a.n);
        if (k > a.col_ptr[column]) {
          ASSERT_LT(a.row_idx[k - 1], a.row_idx[k]);
        }
        ASSERT_TRUE(std::isfinite(a.values[k]));
      }
    }
    const CscMatrix again = Make(family.name.data(), size);
    EXPECT_EQ(PatternDigest(a), PatternDigest(again));
    EXPECT_EQ(ValueDigest(a), ValueDigest(again));
  }
}

TEST_P(EveryFamily, IsAsSymmetricAsItsPropertiesSay) {
  const gallery::Family& family = GetParam();
  const bool says_symmetric =
      family.properties.starts_with("SPD") || family.properties.starts_with("symmetric");
  const int64_t size = family.default_size > 1000 ? 400 : 8;  // unknowns, or nodes an edge
  const Entries entries = EntriesOf(Make(family.name.data(), size));
  double asymmetry = 0, largest = 0;
  for (const auto& [place, value] : entries) {
    const auto mirrored = entries.find({place.second, place.first});
    const double other = mirrored == entries.end() ? 0 : mirrored->second;
    asymmetry = std::max(asymmetry, std::fabs(value - other));
    largest = std::max(largest, std::fabs(value));
  }
  // Element matrices are summed in floating point: symmetric to rounding.
  EXPECT_EQ(asymmetry <= 1e-15 * largest, says_symmetric) << asymmetry;
}

TEST_P(EveryFamily, RefusesSizesOutOfItsRange) {
  const gallery::Family& family = GetParam();
  for (const int64_t size : {family.min_size - 1, family.max_size + 1}) {
    if (size == 0) continue;  // the default
    const auto a = Generate(family.name, size);
    ASSERT_FALSE(a.ok());
    EXPECT_EQ(a.error().reason, "GALLERY_SIZE");
    EXPECT_THAT(a.error().message, HasSubstr(std::to_string(family.max_size)));
  }
}

INSTANTIATE_TEST_SUITE_P(Gallery, EveryFamily,
                         testing::ValuesIn(gallery::Families().begin(), gallery::Families().end()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Gallery, PoissonByHand) {
  const CscMatrix a = Make("poisson", 2);
  EXPECT_EQ(a.n, 8);
  EXPECT_THAT(std::vector(a.row_idx.begin(), a.row_idx.begin() + 4), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(std::vector(a.values.begin(), a.values.begin() + 4), ElementsAre(6, -1, -1, -1));
}

TEST(Gallery, P27HasItsCountAndCentre) {
  // (3m - 2)^3 entries: each direction couples 3m - 2 pairs.
  const CscMatrix a = Make("p27", 5);
  EXPECT_EQ(a.n, 125);
  EXPECT_EQ(a.col_ptr.back(), 13 * 13 * 13);
  const Entries entries = EntriesOf(a);
  EXPECT_EQ(entries.at({62, 62}), 26);
  EXPECT_EQ(entries.at({62, 31}), -1);  // the corner neighbour (1, 1, 1) of (2, 2, 2)
}

TEST(Gallery, ConvectionPointsUpwind) {
  // Row of the first node of a 2-cube: velocity (+, -, +) there; the outflow side keeps -1.
  const Entries entries = EntriesOf(Make("convdiff", 2));
  const double h = 1.0 / 3, v = 400 * std::sin(M_PI * h) * std::cos(M_PI * h);
  EXPECT_DOUBLE_EQ(entries.at({0, 1}), -1);           // v_x > 0: nothing from ahead
  EXPECT_NEAR(entries.at({1, 0}), -1 - v * h, 1e-9);  // the flow comes from node 0
  EXPECT_NEAR(entries.at({0, 2}), -1 - v * h, 1e-9);  // v_y < 0: taken from above
  EXPECT_GT(entries.at({0, 0}), 6);
}

TEST(Gallery, GraphLaplacianHasConstantsInItsNullSpace) {
  const CscMatrix a = Make("graph", 500);
  for (int64_t column = 0; column < a.n; ++column) {
    double sum = 0;
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) sum += a.values[k];
    EXPECT_EQ(sum, 0);
  }
}

TEST(Gallery, StokesHasNoDiagonalForPressuresAndFreeDivergence) {
  const int64_t m = 6;
  const CscMatrix a = Make("stokes", m);
  EXPECT_EQ(a.n, 3 * m * m - 2 * m - 1);
  const Entries entries = EntriesOf(a);
  int64_t without = 0;
  for (int32_t i = 0; i < a.n; ++i) without += entries.count({i, i}) == 0;
  EXPECT_EQ(without, m * m - 1);
}

TEST(Gallery, HelmholtzIsIndefinite) {
  // e'Ae < 0 for e = 1 (the smooth mode), > 0 for a unit vector.
  const CscMatrix a = Make("helmholtz", 40);
  double sum = 0;
  for (const double value : a.values) sum += value;
  EXPECT_LT(sum, 0);
  EXPECT_GT(a.values[0], 0);
}

// By hand on 2³ nodes, of one block: each has three neighbours, and three faces at the boundary.
TEST(Gallery, NeumannLeavesOutTheBoundary) {
  const CscMatrix flow = Make("varcoef", 2), closed = Make("neumann", 2);
  EXPECT_EQ(closed.col_ptr, flow.col_ptr);
  EXPECT_EQ(closed.row_idx, flow.row_idx);
  const double k = -EntriesOf(flow).at({0, 1});
  EXPECT_GT(k, 0);
  for (const auto& [at, value] : EntriesOf(flow)) {
    EXPECT_DOUBLE_EQ(value, at.first == at.second ? 6 * k : -k);
  }
  for (const auto& [at, value] : EntriesOf(closed)) {
    EXPECT_DOUBLE_EQ(value, at.first == at.second ? 3 * k : -k);
  }
}

TEST(Gallery, VarcoefSpansItsDecadesAndNeumannHasConstantsForItsNullSpace) {
  const CscMatrix flow = Make("varcoef", 20), closed = Make("neumann", 20);
  const Entries entries = EntriesOf(flow);
  double low = INFINITY, high = 0;
  for (int32_t i = 0; i < flow.n; ++i) {
    const double diagonal = entries.at({i, i});
    low = std::min(low, diagonal);
    high = std::max(high, diagonal);
  }
  EXPECT_GT(high / low, 300);
  for (int64_t j = 0; j < closed.n; ++j) {
    double sum = 0, size = 0;
    for (int64_t p = closed.col_ptr[static_cast<size_t>(j)];
         p < closed.col_ptr[static_cast<size_t>(j) + 1]; ++p) {
      sum += closed.values[static_cast<size_t>(p)];
      size += std::abs(closed.values[static_cast<size_t>(p)]);
    }
    EXPECT_LE(std::abs(sum), 1e-14 * size) << j;
  }
}

TEST(Gallery, BadScaleSpansItsDecadesAndUnscalesToPoisson) {
  const CscMatrix a = Make("badscale", 30);
  const Entries entries = EntriesOf(a);
  double low = INFINITY, high = 0;
  for (int32_t i = 0; i < a.n; ++i) {
    low = std::min(low, entries.at({i, i}));
    high = std::max(high, entries.at({i, i}));
  }
  EXPECT_GT(high / low, 1e10);
  for (const auto& [place, value] : entries) {
    if (place.first == place.second) continue;
    const double scale = std::sqrt(entries.at({place.first, place.first}) / 4) *
                         std::sqrt(entries.at({place.second, place.second}) / 4);
    EXPECT_DOUBLE_EQ(value / scale, -1);
  }
}

TEST(Gallery, RandomIsIrregular) {
  const CscMatrix a = Make("random", 2000);
  std::vector<int> row_entries(2000);
  for (const int32_t row : a.row_idx) ++row_entries[row];
  const auto [least, most] = std::minmax_element(row_entries.begin(), row_entries.end());
  EXPECT_EQ(*least, 1);
  EXPECT_GT(*most, 40);
}

TEST(Gallery, RefusesWhatItDoesNotHave) {
  const auto unknown = Generate("hilbert", 4);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().reason, "GALLERY_UNKNOWN");
  EXPECT_THAT(unknown.error().message, HasSubstr("poisson"));
  for (const char* text : {"poisson:", "poisson:x", "poisson:3x", "poisson:-3", "poisson:0"}) {
    const auto a = GenerateFromText(text);
    ASSERT_FALSE(a.ok()) << text;
    EXPECT_EQ(a.error().reason, "GALLERY_SIZE") << text;
  }
  const auto small = GenerateFromText("poisson");
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->n, 32768);
}

}  // namespace
}  // namespace spaid::cli
