#include "server/base/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "server/base/ids.h"
#include "server/base/sha256.h"
#include "tests/server/forged.h"

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

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[c & 15];
  }
  return hex;
}

TEST(Sha256Test, IsThatOfTheSameBytes) {
  // Python: hashlib.sha256(struct.pack("<5q2i", 2, 2, 0, 1, 2, 0, 1)).hexdigest() and
  // hashlib.sha256(struct.pack("<2d", 1, 2)).hexdigest().
  const std::vector<int64_t> ptr{0, 1, 2};
  const std::vector<int32_t> idx{0, 1};
  EXPECT_EQ(Hex(PatternSha256(2, ptr, idx).ToBytes()),
            "ced41e07ad9dca7350114605bc27f1d7a90bef3a38537c62718a1dfe7d203f63");
  EXPECT_EQ(Hex(ValueSha256(std::vector<double>{1, 2}).ToBytes()),
            "dc91ce9a50ddc828740aa26743716897fdb2bb64f1db662fe263a59be56145ae");
  EXPECT_EQ(Hex(ValueSha256({}).ToBytes()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, ComesInPieces) {
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1 / (1.0 + static_cast<double>(i));
  Sha256Hasher hasher;
  for (size_t first = 0; first < values.size(); first += 7) {
    const size_t count = std::min<size_t>(7, values.size() - first);
    hasher.Update(std::span<const double>(values).subspan(first, count));
  }
  EXPECT_EQ(hasher.Finish(), ValueSha256(values));
}

TEST(ForgedTest, Xxh3IsTakenInAndNothingElse) {
  std::vector<double> honest(160);
  for (size_t i = 0; i < honest.size(); ++i) honest[i] = i % 3 == 0 ? 2 : -1;
  const std::vector<double> forged = SameXxh3(honest);
  ASSERT_NE(forged, honest);
  EXPECT_EQ(ValueDigest(forged), ValueDigest(honest));
  EXPECT_NE(ValueSha256(forged), ValueSha256(honest));
  EXPECT_NE(ValueFingerprint(forged), ValueFingerprint(honest));
}

TEST(FingerprintTest, NamesContent) {
  const std::vector<int64_t> ptr{0, 1, 2}, other_ptr{0, 2, 2};
  const std::vector<int32_t> idx{0, 1}, other_idx{1, 0};
  const Fingerprint pattern = PatternFingerprint(2, ptr, idx);
  EXPECT_EQ(PatternFingerprint(2, ptr, idx), pattern);
  EXPECT_NE(PatternFingerprint(3, ptr, idx), pattern);
  EXPECT_NE(PatternFingerprint(2, other_ptr, idx), pattern);
  EXPECT_NE(PatternFingerprint(2, ptr, other_idx), pattern);
  const std::vector<double> minus_zero{-0.0}, zero{0.0};
  EXPECT_EQ(ValueFingerprint(zero), ValueFingerprint(zero));
  EXPECT_NE(ValueFingerprint(minus_zero), ValueFingerprint(zero));
  // Keyed: the tag of nothing is the second half of the key, no constant.
  EXPECT_NE(ValueFingerprint({}), Fingerprint{});
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
