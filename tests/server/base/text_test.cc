#include "server/base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace spaid::server {
namespace {

TEST(PlainText, IsToldFromWhatTerminalsObey) {
  for (const std::string& yes :
       {std::string(), std::string("poisson:300 (2D) \\ ~"), std::string("Grüße, 行列, 🧮"),
        std::string("\xc2\xa0"), std::string("\xf4\x8f\xbf\xbf")}) {
    EXPECT_TRUE(IsPlainText(yes)) << yes;
  }
  for (const std::string& no :
       {std::string("\x1b[2J"), std::string("a\nb"), std::string("a\tb"), std::string("\x7f"),
        std::string(1, '\0'),
        std::string("\xc2\x9b"
                    "31m"),  // CSI as one character
        std::string("\xe2\x80\xae"), std::string("\xe2\x81\xa6"), std::string("\xe2\x80\xa8"),
        std::string("\xef\xbb\xbf"), std::string("\xd8\x9c"),
        // No UTF-8: a lone byte, one cut short, the long way round, a surrogate, over the end.
        std::string("\x80"), std::string("\xff"), std::string("\xe2\x80"), std::string("\xc0\x9b"),
        std::string("\xe0\x80\x9b"), std::string("\xed\xa0\x80"),
        std::string("\xf4\x90\x80\x80")}) {
    EXPECT_FALSE(IsPlainText(no)) << Printable(no);
    EXPECT_TRUE(IsPlainText(Printable(no))) << Printable(no);
  }
}

TEST(PlainText, TheRestIsEscapedByteByByte) {
  EXPECT_EQ(Printable("Grüße"), "Grüße");
  EXPECT_EQ(Printable("a\x1b[31mb\\"), "a\\x1b[31mb\\x5c");
  EXPECT_EQ(Printable("\xc2\x9b|\xff|\xe2\x80\xae"), "\\xc2\\x9b|\\xff|\\xe2\\x80\\xae");
}

TEST(PlainText, LongNamesAreNotRepeated) {
  EXPECT_EQ(Repeated("matrices/none"), "'matrices/none'");
  EXPECT_EQ(Repeated(std::string(64, 'm')), "'" + std::string(64, 'm') + "'");
  EXPECT_EQ(Repeated(std::string(65, 'm')), "of this name (65 bytes)");
  EXPECT_EQ(Repeated("\x1b[2J"), "of this name (4 bytes)");
}

}  // namespace
}  // namespace spaid::server
