#include "server/base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "server/base/ids.h"

namespace spaid::server {
namespace {

TEST(DigestTest, MatchesThePublishedVectors) {
  // XXH3-128, seed 0, of the empty input (xxHash's own sanity tests).
  EXPECT_EQ(Digester().Finish().ToHex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Digester().Finish().ToBytes().size(), 16u);
}

TEST(DigestTest, StreamsInAnyPieces) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  Digester pieces;
  for (const char c : text) pieces.Update(&c, 1);
  EXPECT_EQ(pieces.Finish(), Digester().Update(text.data(), text.size()).Finish());
}

TEST(DigestTest, PatternAndValuesAreSeparate) {
  const std::vector<int64_t> ptr{0, 1, 2}, other_ptr{0, 2, 2};
  const std::vector<int32_t> idx{0, 1};
  const std::vector<double> v{1, 2}, minus_zero{-0.0}, zero{0.0};
  const Digest d = PatternDigest(2, ptr, idx);
  EXPECT_EQ(d, PatternDigest(2, ptr, idx));
  EXPECT_NE(d, PatternDigest(2, other_ptr, idx));
  EXPECT_NE(ValueDigest(minus_zero), ValueDigest(zero));
  // By hand: n, nnz, col_ptr, row_idx as one little-endian block.
  const std::vector<int64_t> head{2, 2, 0, 1, 2};
  std::string block(reinterpret_cast<const char*>(head.data()), head.size() * 8);
  block.append(reinterpret_cast<const char*>(idx.data()), idx.size() * 4);
  EXPECT_EQ(d, Digester().Update(block.data(), block.size()).Finish());
}

TEST(Crc32Test, IsZlibs) {
  EXPECT_EQ(Crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(Crc32(""), 0u);
}

TEST(RandomIdTest, IsLongAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = RandomId();
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(seen.insert(id).second);
  }
}

}  // namespace
}  // namespace spaid::server
