#include "server/base/guard.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "server/base/status.h"

namespace spaid::server {
namespace {

TEST(Guarded, PassesOnWhatIsReturned) {
  EXPECT_TRUE(Guarded("the job", [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(Guarded("the job", [] { return absl::AbortedError("no"); }), absl::AbortedError("no"));
}

TEST(Guarded, MakesErrorsOfWhatIsThrown) {
  const absl::Status memory = Guarded("the job", []() -> absl::Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(memory), "OUT_OF_MEMORY");
  const absl::Status other =
      Guarded("the estimate", []() -> absl::Status { throw std::length_error("oops"); });
  EXPECT_EQ(other.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(other), "INTERNAL");
  EXPECT_EQ(other.message(), "unexpected error in the estimate: oops");
}

}  // namespace
}  // namespace spaid::server
