#include "server/base/status.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace spaid::server {
namespace {

using absl::StatusCode;

absl::Status Sample() {
  return MakeError(StatusCode::kInvalidArgument, "NON_FINITE_VALUE", "values[7] is NaN")
      .Field("values")
      .Index(7)
      .Meta("limit", 12)
      .Retry(std::chrono::milliseconds(1250));
}

TEST(StatusTest, CarriesWhatAProgramNeeds) {
  const absl::Status status = Sample();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "values[7] is NaN");
  EXPECT_EQ(ReasonOf(status), "NON_FINITE_VALUE");
  EXPECT_EQ(FieldOf(status), "values");
  EXPECT_EQ(MetaOf(status, "index"), "7");
  EXPECT_EQ(MetaOf(status, "limit"), "12");
  EXPECT_EQ(MetaOf(status, "absent"), "");
  EXPECT_EQ(RetryDelayOf(status), std::chrono::milliseconds(1250));
}

TEST(StatusTest, AStatusOfOthersHasNoneOfIt) {
  const absl::Status status = absl::InternalError("x");
  EXPECT_EQ(ReasonOf(status), "");
  EXPECT_EQ(FieldOf(status), "");
  EXPECT_FALSE(RetryDelayOf(status));
  EXPECT_EQ(WithFieldPrefix(status, "header"), status);
}

TEST(StatusTest, PrefixesTheField) {
  EXPECT_EQ(FieldOf(WithFieldPrefix(Sample(), "header.spec")), "header.spec.values");
  EXPECT_EQ(ReasonOf(WithFieldPrefix(Sample(), "header.spec")), "NON_FINITE_VALUE");
  EXPECT_TRUE(WithFieldPrefix(absl::OkStatus(), "header").ok());
}

TEST(StatusTest, BecomesGoogleRpcStatus) {
  const google::rpc::Status rpc = ToRpcStatus(Sample());
  EXPECT_EQ(rpc.code(), 3);
  EXPECT_EQ(rpc.message(), "values[7] is NaN");
  ASSERT_EQ(rpc.details_size(), 3);
  google::rpc::ErrorInfo info;
  google::rpc::RetryInfo retry;
  google::rpc::BadRequest bad;
  int unpacked = 0;
  for (const auto& any : rpc.details()) {
    unpacked += any.UnpackTo(&info) || any.UnpackTo(&retry) || any.UnpackTo(&bad);
  }
  EXPECT_EQ(unpacked, 3);
  EXPECT_EQ(info.domain(), "spaid");
  EXPECT_EQ(info.reason(), "NON_FINITE_VALUE");
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), "values");
}

TEST(StatusTest, BuildsInSteps) {
  ErrorBuilder error = MakeError(StatusCode::kNotFound, reason::kHandleUnknown, "none");
  error = std::move(error).Field("header.matrix");
  error = std::move(error).Index(4).Meta("k", "v");
  const absl::Status status = error;
  EXPECT_EQ(ReasonOf(status), "HANDLE_UNKNOWN");
  EXPECT_EQ(FieldOf(status), "header.matrix");
  EXPECT_EQ(MetaOf(status, "index"), "4");
}

absl::StatusOr<int> Half(int v) {
  if (v % 2) return MakeError(StatusCode::kInvalidArgument, "ODD", "odd");
  return v / 2;
}
absl::StatusOr<int> Quarter(int v) {
  ASSIGN_OR_RETURN(const int half, Half(v));
  RETURN_IF_ERROR(Half(half));
  return Half(half);
}

TEST(StatusTest, MacrosReturnTheErrorAsItIs) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(ReasonOf(Quarter(7).status()), "ODD");
  EXPECT_EQ(ReasonOf(Quarter(6).status()), "ODD");
}

}  // namespace
}  // namespace spaid::server
