#include "server/base/paging.h"

#include <gtest/gtest.h>

#include "server/base/status.h"

namespace spaid::server {
namespace {

TEST(PagingTest, DefaultsAndBounds) {
  EXPECT_EQ(ParsePage(0, "")->size, 100);
  EXPECT_EQ(ParsePage(1000, "")->size, 1000);
  EXPECT_EQ(ReasonOf(ParsePage(1001, "").status()), "BAD_PAGE_SIZE");
  EXPECT_EQ(ReasonOf(ParsePage(-1, "").status()), "BAD_PAGE_SIZE");
  EXPECT_EQ(FieldOf(ParsePage(-1, "").status()), "page_size");
}

TEST(PagingTest, TokensComeBack) {
  EXPECT_EQ(ParsePage(0, PageToken(0xdeadbeefu))->before, 0xdeadbeefu);
  for (const char* bad : {"zz", "12 ", "-1", "11112222333344445"}) {
    EXPECT_EQ(ReasonOf(ParsePage(0, bad).status()), "BAD_PAGE_TOKEN") << bad;
  }
}

}  // namespace
}  // namespace spaid::server
