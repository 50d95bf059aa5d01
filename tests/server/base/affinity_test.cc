#include "server/base/affinity.h"

#include <gtest/gtest.h>

namespace spaid::server {
namespace {

TEST(Affinity, IsEightLowerCaseHexDigits) {
  EXPECT_TRUE(IsAffinity("a1b2c3d4"));
  EXPECT_TRUE(IsAffinity("00000000"));
  for (const char* other : {"", "a1b2c3d", "a1b2c3d45", "A1B2C3D4", "a1b2c3dg", "none", "a1b2c3d "})
    EXPECT_FALSE(IsAffinity(other)) << other;
}

TEST(Affinity, HandlesEndInIt) {
  const std::string handle = NewHandle("matrices/", "a1b2c3d4");
  EXPECT_EQ(handle.size(), std::string("matrices/").size() + 32 + 1 + 8);
  EXPECT_EQ(handle.rfind("matrices/", 0), 0u);
  EXPECT_EQ(AffinityOf(handle), "a1b2c3d4");
  EXPECT_NE(NewHandle("matrices/", "a1b2c3d4"), handle);
  EXPECT_EQ(NewHandle("jobs/", kNoAffinity).substr(5 + 32), "-none");
  for (const char* other : {"", "matrices/", "matrices/3f", "matrices/3f-none", "matrices/3f-a1b2"})
    EXPECT_EQ(AffinityOf(other), kNoAffinity) << other;
}

TEST(Affinity, ContentIsKnownUnderItsOwnAlone) {
  EXPECT_EQ(KeyUnder("key", kNoAffinity), "key");  // as in spill folders of old
  EXPECT_NE(KeyUnder("key", "a1b2c3d4"), KeyUnder("key", "a1b2c3d5"));
  EXPECT_EQ(KeyUnder("", "a1b2c3d4"), "") << "no key names no content";
}

}  // namespace
}  // namespace spaid::server
