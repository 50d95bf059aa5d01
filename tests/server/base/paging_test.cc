#include "server/base/paging.h"

#include <gtest/gtest.h>

#include "server/base/status.h"

namespace spaid::server {
namespace {

TEST(PagingTest, DefaultsAndBounds) {
  EXPECT_EQ(ParsePage("l", 0, "")->size, 100);
  EXPECT_EQ(ParsePage("l", 1000, "")->size, 1000);
  EXPECT_EQ(ReasonOf(ParsePage("l", 1001, "").status()), "BAD_PAGE_SIZE");
  EXPECT_EQ(ReasonOf(ParsePage("l", -1, "").status()), "BAD_PAGE_SIZE");
  EXPECT_EQ(FieldOf(ParsePage("l", -1, "").status()), "page_size");
}

TEST(PagingTest, TokensComeBack) {
  EXPECT_EQ(ParsePage("l", 0, PageToken("l", 0xdeadbeefu))->before, 0xdeadbeefu);
  EXPECT_EQ(ParsePage("l", 0, PageToken("l", 0))->before, 0u);
  std::string changed = PageToken("l", 7);
  changed[0] = changed[0] == '0' ? '1' : '0';
  for (const std::string& bad :
       {std::string("zz"), std::string("12 "), std::string("-1"), std::string("11112222333344445"),
        std::string(32, '0'), std::string(32, 'z'), changed, PageToken("l", 7) + "0"}) {
    EXPECT_EQ(ReasonOf(ParsePage("l", 0, bad).status()), "BAD_PAGE_TOKEN") << bad;
  }
  for (const std::string other : {"", "L", "ll"}) {
    EXPECT_EQ(ReasonOf(ParsePage(other, 0, PageToken("l", 7)).status()), "BAD_PAGE_TOKEN") << other;
  }
}

TEST(PagingTest, TokensOfNeighboursHaveNothingInCommon) {
  // Half of 32 digits would agree with a probability under 1e-9.
  const std::string a = PageToken("l", 1), b = PageToken("l", 2);
  int same = 0;
  for (size_t k = 0; k < a.size(); ++k) same += a[k] == b[k];
  EXPECT_LT(same, 16) << a << " " << b;
}

}  // namespace
}  // namespace spaid::server
