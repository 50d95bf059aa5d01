// What an engine shows of M while it builds, through the layouts that follow the numbers.
#include "tests/kernels/base/recording_sink.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

TEST(Shown, StaysWhereThePreconditionerHasIt) {
  const CscMatrix a = Chains(40, 30, 0.2);
  const auto engine = MakeCpuEngine();
  RecordingSink sink;
  const Context context{.threads = 2, .result = &sink};
  auto plan = engine->MakePlan(Spai(), a, nullptr, context);
  ASSERT_TRUE(plan.ok());
  for (int round = 0; round < 2; ++round) {  // the second is a rebuild on the same plan
    auto built = (*plan)->Build(Spai(), a, context);
    ASSERT_TRUE(built.ok()) << built.status().message();
    const CscMatrix& m = built->preconditioner->matrix();
    EXPECT_EQ(sink.patterns, round + 1);
    EXPECT_EQ(sink.columns(), a.n_cols);
    EXPECT_EQ(sink.data, m.values.data());
    EXPECT_EQ(Array<double>(sink.values.begin(), sink.values.end()), m.values);
    EXPECT_EQ(sink.withdrawals, 0);
    sink.there = false;  // what was shown stays the preconditioner's
  }
}

TEST(Shown, IsWithdrawnWhereTheLayoutIsStopped) {
  const CscMatrix a = Chains(40, 30, 0.2);
  const auto engine = MakeCpuEngine();
  RecordingSink sink;
  StopSource source;
  sink.on_news = [&] {
    if (sink.columns() == a.n_cols) source.Request(StopReason::kCancelled);
  };
  const Context context{.stop = source.token(), .threads = 1, .result = &sink};
  auto plan = engine->MakePlan(Spai(), a, nullptr, context);
  ASSERT_TRUE(plan.ok());
  auto built = (*plan)->Build(Spai(), a, context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().reason(), "CANCELLED");
  EXPECT_EQ(sink.columns(), a.n_cols);
  EXPECT_EQ(sink.withdrawals, 1);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
