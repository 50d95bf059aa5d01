// No exception leaves the C interface, whatever throws it.
#include <gtest/gtest.h>
#include <spaid/spaid.h>

#include <new>
#include <stdexcept>
#include <string>

#include "client/c/last_error.h"

namespace spaid::c {
namespace {

TEST(CGuard, MakesStatusesOfExceptions) {
  EXPECT_EQ(Guard([] { return 7; }), 7);
  EXPECT_STREQ(spaid_last_error(), "");
  EXPECT_EQ(Guard([]() -> int { throw std::runtime_error("a bolt fell off"); }), SPAID_INTERNAL);
  EXPECT_NE(std::string(spaid_last_error()).find("a bolt fell off"), std::string::npos);
  EXPECT_STREQ(spaid_last_error_detail("reason"), "INTERNAL");
  EXPECT_EQ(Guard([]() -> int { throw std::bad_alloc(); }), SPAID_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(spaid_last_error_detail("reason"), "OUT_OF_MEMORY");
  EXPECT_EQ(spaid_last_error_detail("field"), nullptr);
  EXPECT_EQ(Guard([]() -> int { throw 3; }), SPAID_INTERNAL);
  EXPECT_NE(std::string(spaid_last_error()).find("without a text"), std::string::npos);
}

TEST(CGuard, TellsAllThatAnErrorHas) {
  Error error;
  error.code = Code::kResourceExhausted;
  error.reason = "QUEUE_FULL";
  error.retry_after = std::chrono::milliseconds(250);
  error.metadata = {{"limit", "8"}};
  EXPECT_EQ(Fail(error), SPAID_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(spaid_last_error_detail("retry-after-ms"), "250");
  EXPECT_STREQ(spaid_last_error_detail("limit"), "8");
  EXPECT_EQ(spaid_last_error_detail("actual"), nullptr);
  error.code = Code::kOk;  // a server's nonsense
  EXPECT_EQ(Fail(error), SPAID_UNKNOWN) << "an error is never 0";
}

}  // namespace
}  // namespace spaid::c
