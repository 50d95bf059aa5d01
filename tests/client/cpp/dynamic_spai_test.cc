// Dynamic SPAI's options and figures between client.h and the wire.
#include <gtest/gtest.h>

#include <vector>

#include "client/cpp/convert.h"

namespace spaid {
namespace {

TEST(DynamicSpaiSpecs, CarryWhatTheEngineReads) {
  PreconditionerSpec spec{.engine = Engine::kDynamicSpai,
                          .pattern_power = 3,
                          .pattern_matrix = "matrices/p",
                          .post_filter = 0.1,
                          .local_solver = LocalSolver::kQr,
                          .regrow = true,
                          .dynamic_spai = {.tol = 0,
                                           .max_steps = 0,
                                           .step_size = 4,
                                           .max_column_nnz = 50,
                                           .growth_precision = Precision::kFp32}};
  const v1::PreconditionerSpec sent = internal::ToProto(spec);
  EXPECT_EQ(sent.engine(), v1::ENGINE_KIND_DYNAMIC_SPAI);
  EXPECT_FALSE(sent.has_static_spai());
  EXPECT_FALSE(sent.has_fsai());
  EXPECT_TRUE(sent.dynamic_spai().has_tol()) << "0 is no default";
  EXPECT_TRUE(sent.dynamic_spai().has_max_steps());
  EXPECT_EQ(sent.dynamic_spai().step_size(), 4);
  EXPECT_EQ(sent.dynamic_spai().max_column_nnz(), 50);
  EXPECT_EQ(sent.dynamic_spai().growth_precision(), v1::GROWTH_PRECISION_FP32);
  EXPECT_EQ(sent.dynamic_spai().post_filter(), 0.1);
  EXPECT_EQ(sent.dynamic_spai().local_solver(), v1::LOCAL_SOLVER_QR);
  EXPECT_TRUE(sent.regrow() && sent.dynamic_spai().regrow());
  const PreconditionerSpec back = internal::FromProto(sent);
  EXPECT_EQ(back.engine, Engine::kDynamicSpai);
  EXPECT_EQ(back.dynamic_spai.tol, 0);
  EXPECT_EQ(back.dynamic_spai.max_steps, 0);
  EXPECT_EQ(back.dynamic_spai.step_size, 4);
  EXPECT_EQ(back.dynamic_spai.max_column_nnz, 50);
  EXPECT_EQ(back.dynamic_spai.growth_precision, Precision::kFp32);
  EXPECT_TRUE(back.regrow);
  EXPECT_EQ(back.pattern_matrix, "matrices/p");
  EXPECT_EQ(back.post_filter, 0.1);
  EXPECT_EQ(back.local_solver, LocalSolver::kQr);

  spec.dynamic_spai.growth_precision = Precision::kAuto;
  EXPECT_EQ(internal::ToProto(spec).dynamic_spai().growth_precision(),
            v1::GROWTH_PRECISION_UNSPECIFIED);
  spec.dynamic_spai.growth_precision = static_cast<Precision>(9);
  EXPECT_EQ(internal::ToProto(spec).dynamic_spai().growth_precision(), -1)
      << "the server names those that are";
  spec.engine = Engine::kStaticSpai;
  EXPECT_FALSE(internal::ToProto(spec).has_dynamic_spai());
}

TEST(DynamicSpaiSpecs, UnsetIsTheDefault) {
  v1::PreconditionerSpec sent;
  sent.set_engine(v1::ENGINE_KIND_DYNAMIC_SPAI);
  sent.mutable_dynamic_spai();
  const PreconditionerSpec read = internal::FromProto(sent);
  const DynamicSpaiSpec standard;
  EXPECT_EQ(read.dynamic_spai.tol, standard.tol);
  EXPECT_EQ(read.dynamic_spai.max_steps, standard.max_steps);
  EXPECT_EQ(read.dynamic_spai.step_size, standard.step_size);
  EXPECT_EQ(read.dynamic_spai.growth_precision, standard.growth_precision);
}

TEST(DynamicSpaiFigures, ComeFieldForField) {
  v1::BuildQuality in;
  in.set_residual_frobenius(1.5);
  EXPECT_FALSE(internal::FromProto(in).dynamic_spai);
  v1::DynamicSpaiQuality& quality = *in.mutable_dynamic_spai();
  quality.set_converged_columns(1);
  quality.add_residual_by_step(0.75);
  quality.add_residual_by_step(0.5);
  quality.set_nnz_column_max(2);
  quality.set_copied_columns(3);
  quality.set_slow_columns(4);
  quality.mutable_dependent_columns()->set_count(5);
  quality.mutable_dependent_columns()->set_first(6);
  quality.set_gram_nnz(7);
  quality.set_pattern_reused(true);
  const Quality out = internal::FromProto(in);
  EXPECT_EQ(out.residual_frobenius, 1.5);
  ASSERT_TRUE(out.dynamic_spai);
  EXPECT_EQ(out.dynamic_spai->converged_columns, 1);
  EXPECT_EQ(out.dynamic_spai->residual_by_step, (std::vector<double>{0.75, 0.5}));
  EXPECT_EQ(out.dynamic_spai->nnz_column_max, 2);
  EXPECT_EQ(out.dynamic_spai->copied_columns, 3);
  EXPECT_EQ(out.dynamic_spai->slow_columns, 4);
  EXPECT_EQ(out.dynamic_spai->dependent_columns.count, 5);
  EXPECT_EQ(out.dynamic_spai->dependent_columns.first, 6);
  EXPECT_EQ(out.dynamic_spai->gram_nnz, 7);
  EXPECT_TRUE(out.dynamic_spai->pattern_reused);
}

}  // namespace
}  // namespace spaid
