// FSAI's options and figures between client.h and the wire.
#include <gtest/gtest.h>

#include <chrono>

#include "client/cpp/convert.h"

namespace spaid {
namespace {

TEST(FsaiSpecs, CarryWhatTheirEngineReads) {
  PreconditionerSpec spec{.engine = Engine::kAfsai,
                          .pattern_power = 3,
                          .pattern_matrix = "matrices/p",
                          .post_filter = 0.1,
                          .regrow = true,
                          .fsai = {.k_max = 0,
                                   .step_size = 4,
                                   .epsilon = 0,
                                   .min_gain = 0.01,
                                   .time_budget = std::chrono::milliseconds(2500),
                                   .drop_tol = 0.2,
                                   .precision = Precision::kFp32,
                                   .symmetry_tolerance = 1e-6}};
  const v1::PreconditionerSpec adaptive = internal::ToProto(spec);
  EXPECT_EQ(adaptive.engine(), v1::ENGINE_KIND_AFSAI);
  EXPECT_FALSE(adaptive.has_static_spai());
  EXPECT_TRUE(adaptive.fsai().has_k_max()) << "0 is no default";
  EXPECT_EQ(adaptive.fsai().k_max(), 0);
  EXPECT_EQ(adaptive.fsai().step_size(), 4);
  EXPECT_TRUE(adaptive.fsai().has_epsilon());
  EXPECT_EQ(adaptive.fsai().min_gain(), 0.01);
  EXPECT_EQ(adaptive.fsai().time_budget().seconds(), 2);
  EXPECT_EQ(adaptive.fsai().time_budget().nanos(), 500'000'000);
  EXPECT_TRUE(adaptive.regrow());
  EXPECT_TRUE(adaptive.fsai().regrow()) << "for daemons that know this one alone";
  EXPECT_EQ(adaptive.fsai().precision(), v1::FSAI_PRECISION_FP32);
  EXPECT_EQ(adaptive.fsai().pattern_power(), 0) << "not read";
  EXPECT_EQ(adaptive.fsai().drop_tol(), 0) << "not read";
  const PreconditionerSpec back = internal::FromProto(adaptive);
  EXPECT_EQ(back.engine, Engine::kAfsai);
  EXPECT_EQ(back.fsai.k_max, 0);
  EXPECT_EQ(back.fsai.step_size, 4);
  EXPECT_EQ(back.fsai.epsilon, 0);
  EXPECT_EQ(back.fsai.min_gain, 0.01);
  EXPECT_EQ(back.fsai.time_budget, std::chrono::milliseconds(2500));
  EXPECT_TRUE(back.regrow);
  EXPECT_EQ(back.fsai.precision, Precision::kFp32);
  EXPECT_EQ(back.fsai.symmetry_tolerance, 1e-6);
  EXPECT_EQ(back.pattern_matrix, "matrices/p");
  EXPECT_EQ(back.post_filter, 0.1);

  spec.engine = Engine::kFsai;
  spec.fsai.precision = Precision::kAuto;
  const v1::PreconditionerSpec fixed = internal::ToProto(spec);
  EXPECT_EQ(fixed.engine(), v1::ENGINE_KIND_FSAI);
  EXPECT_EQ(fixed.fsai().pattern_power(), 3);
  EXPECT_EQ(fixed.fsai().drop_tol(), 0.2);
  EXPECT_EQ(fixed.fsai().precision(), v1::FSAI_PRECISION_UNSPECIFIED);
  EXPECT_FALSE(fixed.fsai().has_k_max());
  EXPECT_FALSE(fixed.fsai().has_time_budget());
  EXPECT_EQ(internal::FromProto(fixed).pattern_power, 3);
  EXPECT_EQ(internal::FromProto(fixed).fsai.k_max, 30) << "unset is the default";

  spec.engine = Engine::kStaticSpai;
  EXPECT_FALSE(internal::ToProto(spec).has_fsai());
  spec.engine = Engine::kAfsai;
  spec.fsai.precision = static_cast<Precision>(9);
  EXPECT_EQ(internal::ToProto(spec).fsai().precision(), -1) << "the server names those that are";
}

TEST(FsaiFigures, ComeFieldForField) {
  v1::Preconditioner in;
  in.set_is_factor(true);
  in.mutable_quality()->set_density(0.5);
  EXPECT_FALSE(internal::FromProto(in).quality.fsai);
  v1::FsaiQuality& quality = *in.mutable_quality()->mutable_fsai();
  quality.set_kaporin(0.5);
  quality.add_kaporin_by_step(1);
  quality.add_kaporin_by_step(0.5);
  quality.set_converged_rows(3);
  quality.mutable_not_spd_rows()->set_count(4);
  quality.mutable_not_spd_rows()->set_first(5);
  quality.set_nnz_row_max(6);
  quality.set_slow_rows(7);
  quality.set_copied_rows(6);
  quality.mutable_not_converged_rows()->set_count(8);
  quality.mutable_not_converged_rows()->set_first(9);
  quality.set_steps(10);
  quality.set_out_of_time(true);
  quality.set_pattern_reused(true);
  const PreconditionerInfo out = internal::FromProto(in);
  EXPECT_TRUE(out.is_factor);
  EXPECT_EQ(out.quality.density, 0.5);
  ASSERT_TRUE(out.quality.fsai);
  EXPECT_EQ(out.quality.fsai->kaporin, 0.5);
  EXPECT_EQ(out.quality.fsai->kaporin_by_step, (std::vector<double>{1, 0.5}));
  EXPECT_EQ(out.quality.fsai->converged_rows, 3);
  EXPECT_EQ(out.quality.fsai->not_spd_rows.count, 4);
  EXPECT_EQ(out.quality.fsai->not_spd_rows.first, 5);
  EXPECT_EQ(out.quality.fsai->nnz_row_max, 6);
  EXPECT_EQ(out.quality.fsai->slow_rows, 7);
  EXPECT_EQ(out.quality.fsai->copied_rows, 6);
  EXPECT_EQ(out.quality.fsai->not_converged_rows.count, 8);
  EXPECT_EQ(out.quality.fsai->not_converged_rows.first, 9);
  EXPECT_EQ(out.quality.fsai->steps, 10);
  EXPECT_TRUE(out.quality.fsai->out_of_time);
  EXPECT_TRUE(out.quality.fsai->pattern_reused);
}

}  // namespace
}  // namespace spaid
