// Options set by names and texts: what they set, and what is said of texts that will not do.
#include "client/cpp/option_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace spaid::internal {
namespace {

using std::chrono::milliseconds;

std::string Refusal(std::string_view name, std::string_view text) {
  OptionSet set;
  const auto error = SetOption(set, name, text);
  if (!error) return "";
  EXPECT_EQ(error->code, Code::kInvalidArgument);
  EXPECT_EQ(error->field, name);
  return error->message;
}

TEST(OptionText, SetsWhatItNames) {
  OptionSet set;
  const auto is_set = [&set](std::string_view name, std::string_view text) {
    const auto error = SetOption(set, name, text);
    EXPECT_FALSE(error) << error->message;
  };
  is_set("address", "unix:/run/spaid/grpc");
  EXPECT_EQ(set.client.address, "unix:/run/spaid/grpc");
  is_set("engine", "dynamic-spai");
  EXPECT_EQ(set.solve.engine, Engine::kDynamicSpai);
  is_set("rtol", "1e-11");
  EXPECT_EQ(set.solve.rtol, 1e-11);
  is_set("max-iterations", "77");
  EXPECT_EQ(set.solve.max_iterations, 77);
  is_set("m-precision", "auto");
  EXPECT_EQ(set.solve.m_precision, Precision::kAuto);
  is_set("fsai-precision", "fp32");
  EXPECT_EQ(set.solve.spec.fsai.precision, Precision::kFp32);
  is_set("scaling", "matching");
  EXPECT_EQ(set.solve.spec.scaling, Scaling::kMatching);
  is_set("keep-tau", "0.25");
  EXPECT_EQ(set.solve.spec.keep_tau, 0.25);
  is_set("row-match", "true");
  EXPECT_TRUE(set.solve.spec.row_match);
  is_set("row-match", "false");
  EXPECT_FALSE(set.solve.spec.row_match);
  is_set("null-space", "constants");
  EXPECT_EQ(set.solve.null_space, NullSpace::kConstants);
  is_set("reuse", "rebuild");
  EXPECT_EQ(set.reuse.mode, ReuseMode::kRebuild);
  is_set("priority", "bulk");
  EXPECT_EQ(set.call.priority, Priority::kBulk);
  is_set("timeout", "1.5");
  EXPECT_EQ(set.call.timeout, milliseconds(1500));
  is_set("max-run", "1e-9");
  EXPECT_EQ(set.call.max_run, milliseconds(1)) << "0 would be no limit";
  is_set("time-budget", "2");
  EXPECT_EQ(set.solve.spec.fsai.time_budget, milliseconds(2000));
}

TEST(OptionText, SetsAllThatShareAFlag) {
  OptionSet set;
  EXPECT_FALSE(SetOption(set, "step-size", "3"));
  EXPECT_EQ(set.solve.spec.fsai.step_size, 3);
  EXPECT_EQ(set.solve.spec.dynamic_spai.step_size, 3);
}

TEST(OptionText, SaysWhatATextMustBe) {
  EXPECT_EQ(Refusal("k-max", "513"),
            "option 'k-max' is '513'; it must be a whole number of at least 0 and at most 512");
  EXPECT_EQ(Refusal("k-max", "3.5"),
            "option 'k-max' is '3.5'; it must be a whole number of at least 0 and at most 512");
  EXPECT_EQ(Refusal("restart", "0"),
            "option 'restart' is '0'; it must be a whole number of at least 1");
  EXPECT_NE(Refusal("restart", "99999999999999999999"), "") << "beyond 64 bits";
  EXPECT_NE(Refusal("max-column-nnz", "3000000000"), "") << "beyond 32 bits";
  EXPECT_EQ(Refusal("rtol", "0"), "option 'rtol' is '0'; it must be a number above 0");
  EXPECT_EQ(Refusal("epsilon", "1"),
            "option 'epsilon' is '1'; it must be a number of at least 0 and below 1");
  for (const char* text : {"", " 1", "1 ", "1,5", "nan", "inf", "0x1", "1e-8x"}) {
    EXPECT_NE(Refusal("rtol", text), "") << "'" << text << "'";
  }
  EXPECT_EQ(Refusal("row-match", "yes"), "option 'row-match' is 'yes'; it must be true or false");
  EXPECT_EQ(Refusal("fsai-precision", "auto"),
            "option 'fsai-precision' is 'auto'; it must be one of fp64, fp32");
  EXPECT_EQ(Refusal("priority", "urgent"),
            "option 'priority' is 'urgent'; it must be one of interactive, normal, bulk");
  for (const char* text : {"0", "-1", "soon", "1e10"}) EXPECT_NE(Refusal("timeout", text), "");
}

TEST(OptionText, ChangesNothingOnAnError) {
  OptionSet set;
  EXPECT_FALSE(SetOption(set, "step-size", "2"));
  EXPECT_TRUE(SetOption(set, "step-size", "99"));
  EXPECT_EQ(set.solve.spec.fsai.step_size, 2);
  EXPECT_EQ(set.solve.spec.dynamic_spai.step_size, 2);
}

TEST(OptionText, ListsAllNamesWhereOneIsUnknown) {
  const std::vector<std::string> names = OptionNames();
  EXPECT_GT(names.size(), 40U);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  const std::string said = Refusal("k_max", "3");
  for (const std::string& name : names) {
    EXPECT_NE(said.find(name), std::string::npos) << name;
    if (name != "address") {
      EXPECT_EQ(Refusal(name, "no such text").find("there is no option"), std::string::npos)
          << name;
    }
  }
  EXPECT_NE(Refusal("", "3"), "");
  EXPECT_NE(Refusal("--rtol", "3"), "") << "without dashes";
}

}  // namespace
}  // namespace spaid::internal
