#include "client/load/mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/client/cli/temp_folder.h"

namespace spaid::load {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Mix, IsNamesAndWeights) {
  const auto shares = ParseShares("poisson:16=3,p27:10,convdiff=0.5");
  ASSERT_TRUE(shares.ok()) << shares.error().message;
  EXPECT_THAT(*shares,
              ElementsAre(Pair("poisson:16", 3), Pair("p27:10", 1), Pair("convdiff", 0.5)));
  EXPECT_EQ(ToText(*shares), "poisson:16=3,p27:10=1,convdiff=0.5");
}

TEST(Mix, SaysWhatIsWrong) {
  for (const char* text :
       {"", "a=", "=1", "a=0", "a=-1", "a=x", "a=1x", "a=inf", "a=nan", "a,,b", "a,", "a=1=2"}) {
    const auto shares = ParseShares(text);
    ASSERT_FALSE(shares.ok()) << text;
    EXPECT_EQ(shares.error().reason, "BAD_MIX") << text;
  }
  EXPECT_THAT(ParseShares("a=1,b,a=2").error().message, HasSubstr("a is there twice"));
}

TEST(Engines, GoByTheirNamesWithDashesOrUnderscores) {
  const auto engines = ParseEngines("jacobi=4,static_spai,afsai=0.5,auto");
  ASSERT_TRUE(engines.ok()) << engines.error().message;
  EXPECT_THAT(*engines, ElementsAre(Pair(Engine::kJacobi, 4), Pair(Engine::kStaticSpai, 1),
                                    Pair(Engine::kAfsai, 0.5), Pair(Engine::kAuto, 1)));
  EXPECT_EQ(ToText(*engines), "jacobi=4,static-spai=1,afsai=0.5,auto=1");
  EXPECT_THAT(*ParseEngines("dynamic_spai"), ElementsAre(Pair(Engine::kDynamicSpai, 1)));
  EXPECT_THAT(*ParseEngines("amg=2"), ElementsAre(Pair(Engine::kAmg, 2)));
  EXPECT_THAT(ParseEngines("ilu").error().message, HasSubstr("no engine is called ilu"));
}

TEST(Picker, PicksByWeight) {
  const Shares shares = {{"a", 1}, {"b", 2}, {"c", 1}};
  const Picker picker(shares);
  EXPECT_EQ(picker.Pick(0), 0u);
  EXPECT_EQ(picker.Pick(0.2499), 0u);
  EXPECT_EQ(picker.Pick(0.25), 1u);
  EXPECT_EQ(picker.Pick(0.7499), 1u);
  EXPECT_EQ(picker.Pick(0.75), 2u);
  EXPECT_EQ(picker.Pick(1), 2u);  // rounded up to the end
}

TEST(Tenants, AreANumberOrNames) {
  EXPECT_THAT(*ParseTenants("2"), ElementsAre("load-0", "load-1"));
  EXPECT_THAT(*ParseTenants("red,blue"), ElementsAre("red", "blue"));
  for (const char* text : {"0", "-1", "1001", "", "a,,b"}) {
    EXPECT_EQ(ParseTenants(text).error().reason, "BAD_TENANTS") << text;
  }
}

TEST(Tokens, AreReadAsTheDaemonReadsThem) {
  const cli::TempFolder folder;
  const auto tokens = ReadTokens(
      folder.Write("tokens", "# who\n\n0123456789abcdef alice\n  fedcba9876543210\tbob\n"));
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_THAT(*tokens, ElementsAre("0123456789abcdef", "fedcba9876543210"));
  const auto hashed = ReadTokens(folder.Write("hashed", "sha256:0123 alice\n"));
  ASSERT_FALSE(hashed.ok());
  EXPECT_EQ(hashed.error().reason, "BAD_TOKENS_FILE");
  EXPECT_EQ(ReadTokens(folder.File("none")).error().reason, "BAD_TOKENS_FILE");
  EXPECT_EQ(ReadTokens(folder.Write("empty", "# nobody\n")).error().reason, "BAD_TOKENS_FILE");
}

}  // namespace
}  // namespace spaid::load
