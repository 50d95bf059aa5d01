#include "client/cpp/errors.h"

#include <gmock/gmock.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "tests/client/cpp/scripted_server.h"

namespace spaid {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Errors, DetailsAreDecoded) {
  const Error error = internal::FromStatus(
      testing::Refusal(grpc::StatusCode::INVALID_ARGUMENT, "INDEX_OUT_OF_RANGE", "row 9 of 7",
                       "row_idx", std::chrono::milliseconds(1500)),
      "host:1");
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_EQ(error.reason, "INDEX_OUT_OF_RANGE");
  EXPECT_EQ(error.message, "row 9 of 7");
  EXPECT_EQ(error.field, "row_idx");
  EXPECT_EQ(error.retry_after, std::chrono::milliseconds(1500));
  EXPECT_THAT(error.metadata, ElementsAre(Pair("actual", "9"), Pair("index", "7")));
}

TEST(Errors, BrokenDetailsLeaveCodeAndText) {
  const Error error = internal::FromStatus(
      grpc::Status(grpc::StatusCode::NOT_FOUND, "gone", "\xff\xff not a message"), "host:1");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_EQ(error.reason, "");
  EXPECT_EQ(error.message, "gone");
}

TEST(Errors, UnreachableNamesAddressAndCure) {
  const Error error = internal::FromStatus(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "failed to connect to all addresses"), "host:1");
  EXPECT_EQ(error.reason, internal::kUnreachable);
  EXPECT_THAT(error.message, HasSubstr("host:1"));
  EXPECT_THAT(error.message, HasSubstr("spaid --address=host:1"));
}

TEST(Errors, BrokenConnectionIsNotCalledUnreachable) {
  const Error error =
      internal::FromStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"), "host:1");
  EXPECT_EQ(error.reason, internal::kConnectionLost);
}

TEST(Errors, AServersUnavailableKeepsItsOwnReason) {
  const Error error = internal::FromStatus(
      testing::Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", "going down to connect no more"),
      "host:1");
  EXPECT_EQ(error.reason, "DRAINING");
  EXPECT_EQ(error.message, "going down to connect no more");
}

TEST(Errors, DeadlineAndUnknownService) {
  EXPECT_EQ(
      internal::FromStatus(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "x"), "h").reason,
      internal::kTimeout);
  EXPECT_THAT(
      internal::FromStatus(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), "host:1").message,
      HasSubstr("host:1"));
}

TEST(Errors, NeverWithoutText) {
  EXPECT_FALSE(
      internal::FromStatus(grpc::Status(grpc::StatusCode::INTERNAL, ""), "h").message.empty());
}

TEST(Names, AreThoseOfTheWire) {
  EXPECT_EQ(Name(Engine::kStaticSpai), "static-spai");
  EXPECT_EQ(Name(Engine::kFsai), "fsai");
  EXPECT_EQ(Name(Engine::kAfsai), "afsai");
  EXPECT_EQ(Name(Engine::kDynamicSpai), "dynamic-spai");
  EXPECT_EQ(Name(Engine::kAmg), "amg");
  EXPECT_EQ(Name(Smoother::kStaticSpai), "static-spai");
  EXPECT_EQ(Name(PartKind::kNearNull), "near-null");
  EXPECT_EQ(Name(static_cast<PartKind>(8)), "unknown");
  EXPECT_EQ(Name(LocalSolver::kGram), "gram");
  EXPECT_EQ(Name(ThreadStrategy::kPaper), "paper");
  EXPECT_EQ(Name(Method::kBicgstab), "bicgstab");
  EXPECT_EQ(Name(Outcome::kMaxIterations), "max-iterations");
  EXPECT_EQ(Name(Outcome::kCancelled), "cancelled");
  EXPECT_EQ(Name(JobState::kSucceeded), "succeeded");
  EXPECT_EQ(Name(JobKind::kSolve), "solve");
  EXPECT_EQ(Name(Stage::kDownload), "download");
  EXPECT_EQ(Name(static_cast<Outcome>(99)), "unknown");
}

TEST(Errors, ACallThatEndsWithoutAStatusWasLostByAProxy) {
  for (const char* text : {"", "Stream removed"}) {
    const Error error =
        internal::FromStatus(grpc::Status(grpc::StatusCode::UNKNOWN, text), "host:1");
    EXPECT_EQ(error.code, Code::kUnavailable);
    EXPECT_EQ(error.reason, "CONNECTION_LOST");
  }
  const grpc::Status reset(grpc::StatusCode::CANCELLED, "Received RST_STREAM with error code 8");
  EXPECT_EQ(internal::FromStatus(reset, "host:1").code, Code::kUnavailable);
  EXPECT_EQ(internal::FromStatus(reset, "host:1").reason, "CONNECTION_LOST");
  const auto odd = static_cast<grpc::StatusCode>(99);
  EXPECT_EQ(internal::FromStatus(grpc::Status(odd, "odd"), "host:1").code, Code::kUnknown);
}

}  // namespace
}  // namespace spaid
