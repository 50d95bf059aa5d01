#include "server/engine/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/engine/build_result.h"
#include "server/base/status.h"
#include "server/engine/resolved_build.h"

namespace spaid::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

v1::PreconditionerSpec Spai() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  spec.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_AUTO);
  return spec;
}

TEST(ParseSpecTest, ReadsEveryOption) {
  v1::PreconditionerSpec spec = Spai();
  auto* o = spec.mutable_static_spai();
  o->set_pattern_power(3);
  o->set_keep_tau(0.25);
  o->set_ensure_row(true);
  o->set_row_match(true);
  o->set_post_filter(0.1);
  o->set_local_solver(v1::LOCAL_SOLVER_GRAM);
  o->set_thread_strategy(v1::THREAD_STRATEGY_PAPER);
  auto parsed = ParseSpec(spec, "spec");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const kernels::StaticSpaiOptions& k = parsed->spec.static_spai;
  EXPECT_EQ(parsed->spec.engine, kernels::EngineKind::kStaticSpai);
  EXPECT_EQ(k.pattern.power, 3);
  EXPECT_EQ(k.pattern.keep_tau, 0.25);
  EXPECT_TRUE(k.pattern.ensure_row);
  EXPECT_TRUE(k.pattern.row_match);
  EXPECT_EQ(k.post_filter, 0.1);
  EXPECT_EQ(k.local_solver, kernels::LocalSolver::kGram);
  EXPECT_EQ(k.thread_strategy, kernels::ThreadStrategy::kPaper);
  EXPECT_EQ(ToProto(parsed->spec, {}).SerializeAsString(), spec.SerializeAsString());
}

TEST(ParseSpecTest, DefaultsAreSaid) {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
  auto parsed = ParseSpec(spec, "spec");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->spec.static_spai.pattern.power, 1);
  EXPECT_EQ(parsed->spec.static_spai.local_solver, kernels::LocalSolver::kAuto);
  EXPECT_EQ(ParseSpec(Spai(), "spec")->spec.static_spai.pattern.power, 1) << "0 means 1";
  v1::PreconditionerSpec user = Spai();
  user.mutable_static_spai()->set_pattern_matrix("matrices/7");
  EXPECT_EQ(ParseSpec(user, "spec")->given.handle, "matrices/7");
}

TEST(ParseSpecTest, TheBlockSizeIsJacobis) {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_JACOBI);
  auto parsed = ParseSpec(spec, "spec");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->spec.block_size, 1);
  spec.mutable_jacobi()->set_block_size(0);
  parsed = ParseSpec(spec, "spec");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->spec.block_size, 1);
  EXPECT_FALSE(ToProto(parsed->spec, {}).has_jacobi()) << "one spec, one form";
  for (const int size : {2, 32}) {
    spec.mutable_jacobi()->set_block_size(size);
    parsed = ParseSpec(spec, "spec");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->spec.block_size, size);
    EXPECT_EQ(ToProto(parsed->spec, {}).SerializeAsString(), spec.SerializeAsString());
  }
  for (const int size : {-1, 33}) {
    spec.mutable_jacobi()->set_block_size(size);
    for (const auto engine : {v1::ENGINE_KIND_JACOBI, v1::ENGINE_KIND_AUTO}) {
      spec.set_engine(engine);
      const absl::Status status = ParseSpec(spec, "header.spec").status();
      EXPECT_EQ(ReasonOf(status), "BAD_BLOCK_SIZE");
      EXPECT_EQ(FieldOf(status), "header.spec.jacobi.block_size");
    }
    spec.set_engine(v1::ENGINE_KIND_STATIC_SPAI);
    EXPECT_EQ(ParseSpec(spec, "spec")->spec.block_size, 1) << "not read";
  }
}

TEST(ParseSpecTest, ScalingIsOfEveryEngineThatBuilds) {
  using kernels::ScalingMode;
  v1::PreconditionerSpec spec;
  const auto parse = [&](v1::EngineKind engine, v1::Scaling scaling) {
    spec.set_engine(engine);
    spec.set_scaling(scaling);
    return ParseSpec(spec, "header.spec");
  };
  const auto mode = [&](v1::EngineKind engine, v1::Scaling scaling) {
    const auto parsed = parse(engine, scaling);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed->spec.scaling;
  };
  const auto unset = v1::SCALING_UNSPECIFIED;
  EXPECT_EQ(mode(v1::ENGINE_KIND_AUTO, unset), ScalingMode::kAuto);
  EXPECT_EQ(mode(v1::ENGINE_KIND_AUTO, v1::SCALING_NONE), ScalingMode::kNone);
  EXPECT_EQ(mode(v1::ENGINE_KIND_NONE, unset), ScalingMode::kNone);
  EXPECT_EQ(mode(v1::ENGINE_KIND_NONE, v1::SCALING_NONE), ScalingMode::kNone);
  EXPECT_EQ(mode(v1::ENGINE_KIND_STATIC_SPAI, unset), ScalingMode::kNone);
  EXPECT_EQ(mode(v1::ENGINE_KIND_DYNAMIC_SPAI, v1::SCALING_MATCHING), ScalingMode::kMatching);
  EXPECT_EQ(mode(v1::ENGINE_KIND_FSAI, v1::SCALING_EQUILIBRATE), ScalingMode::kEquilibrate);
  EXPECT_EQ(mode(v1::ENGINE_KIND_JACOBI, v1::SCALING_AUTO), ScalingMode::kAuto);
  // One spec has one form.
  for (const v1::Scaling scaling : {v1::SCALING_EQUILIBRATE, v1::SCALING_AUTO}) {
    const auto parsed = parse(v1::ENGINE_KIND_FSAI, scaling);
    EXPECT_EQ(ToProto(parsed->spec, {}).scaling(), scaling);
  }
  EXPECT_EQ(ToProto(parse(v1::ENGINE_KIND_FSAI, v1::SCALING_NONE)->spec, {}).scaling(), unset);
  EXPECT_EQ(ToProto(parse(v1::ENGINE_KIND_AUTO, unset)->spec, {}).scaling(), unset);
  for (const auto& [engine, scaling, why] :
       {std::tuple{v1::ENGINE_KIND_FSAI, v1::SCALING_MATCHING, "BAD_SCALING"},
        {v1::ENGINE_KIND_AFSAI, v1::SCALING_MATCHING, "BAD_SCALING"},
        {v1::ENGINE_KIND_JACOBI, v1::SCALING_MATCHING, "BAD_SCALING"},
        {v1::ENGINE_KIND_NONE, v1::SCALING_AUTO, "BAD_SCALING"},
        {v1::ENGINE_KIND_STATIC_SPAI, static_cast<v1::Scaling>(77), "UNKNOWN_ENUM"}}) {
    const absl::Status status = parse(engine, scaling).status();
    EXPECT_EQ(ReasonOf(status), why);
    EXPECT_EQ(FieldOf(status), "header.spec.scaling");
  }
  kernels::Quality quality;
  EXPECT_EQ(ToProto(quality).scaling(), unset);
  quality.scaling = ScalingMode::kEquilibrate;
  quality.scaling_reused = true;
  EXPECT_EQ(ToProto(quality).scaling(), v1::SCALING_EQUILIBRATE);
  EXPECT_TRUE(ToProto(quality).scaling_reused());
}

v1::PreconditionerSpec Fsai(v1::EngineKind kind) {
  v1::PreconditionerSpec spec;
  spec.set_engine(kind);
  return spec;
}

TEST(ParseFsaiTest, DefaultsAreSaid) {
  for (const auto kind : {v1::ENGINE_KIND_FSAI, v1::ENGINE_KIND_AFSAI}) {
    v1::PreconditionerSpec spec = Fsai(kind);
    for (const bool set : {false, true}) {
      if (set) spec.mutable_fsai();
      const auto parsed = ParseSpec(spec, "spec");
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(ToProto(parsed->spec.engine), kind);
      const kernels::FsaiOptions& o = parsed->spec.fsai;
      EXPECT_EQ(o.k_max, 30);
      EXPECT_EQ(o.s, 1);
      EXPECT_EQ(o.epsilon, 1e-3);
      EXPECT_EQ(o.min_gain, 0);
      EXPECT_EQ(o.drop_tol, 0);
      EXPECT_EQ(o.power, 1);
      EXPECT_EQ(o.post_filter, 0);
      EXPECT_EQ(o.precision, kernels::Precision::kFp64);
      EXPECT_EQ(o.symmetry_tolerance, 1e-10);
      EXPECT_EQ(o.time_budget_ms, 0);
      EXPECT_FALSE(parsed->regrow);
      EXPECT_EQ(parsed->given.handle, "");
    }
  }
}

TEST(ParseFsaiTest, ReadsEveryOption) {
  v1::PreconditionerSpec adaptive = Fsai(v1::ENGINE_KIND_AFSAI);
  auto* o = adaptive.mutable_fsai();
  o->set_k_max(0);
  o->set_step_size(4);
  o->set_epsilon(0);
  o->set_min_gain(0.01);
  o->set_post_filter(0.1);
  o->set_precision(v1::FSAI_PRECISION_FP32);
  o->set_symmetry_tolerance(1e-6);
  o->mutable_time_budget()->set_seconds(2);
  o->mutable_time_budget()->set_nanos(500'000);
  o->set_pattern_matrix("matrices/7");
  auto parsed = ParseSpec(adaptive, "spec");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->spec.fsai.k_max, 0) << "set, and no default";
  EXPECT_EQ(parsed->spec.fsai.epsilon, 0);
  EXPECT_EQ(parsed->spec.fsai.min_gain, 0.01);
  EXPECT_EQ(parsed->spec.fsai.precision, kernels::Precision::kFp32);
  EXPECT_EQ(parsed->spec.fsai.time_budget_ms, 2000.5);
  EXPECT_EQ(parsed->given.handle, "matrices/7");
  EXPECT_EQ(ToProto(parsed->spec, {.handle = "matrices/7"}).SerializeAsString(),
            adaptive.SerializeAsString());
  o->set_regrow(true);
  EXPECT_TRUE(ParseSpec(adaptive, "spec")->regrow);
  o->set_regrow(false);
  adaptive.set_regrow(true);
  EXPECT_TRUE(ParseSpec(adaptive, "spec")->regrow);

  v1::PreconditionerSpec fixed = Fsai(v1::ENGINE_KIND_FSAI);
  o = fixed.mutable_fsai();
  o->set_drop_tol(0.25);
  o->set_pattern_power(3);
  o->set_post_filter(0.5);
  o->set_precision(v1::FSAI_PRECISION_FP64);
  o->set_symmetry_tolerance(0);
  parsed = ParseSpec(fixed, "spec");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->spec.fsai.drop_tol, 0.25);
  EXPECT_EQ(parsed->spec.fsai.power, 3);
  EXPECT_EQ(ToProto(parsed->spec, {}).SerializeAsString(), fixed.SerializeAsString());
}

TEST(ParseFsaiTest, WhatIsOutOfRangeIsRefusedWithItsField) {
  const auto refused = [](const std::function<void(v1::FsaiSpec&)>& set, const std::string& field,
                          v1::EngineKind kind = v1::ENGINE_KIND_AFSAI,
                          const std::string& why = "BAD_FSAI_OPTION") {
    v1::PreconditionerSpec spec = Fsai(kind);
    set(*spec.mutable_fsai());
    const absl::Status status = ParseSpec(spec, "header.spec").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(ReasonOf(status), why) << field;
    EXPECT_EQ(FieldOf(status), "header.spec.fsai." + field);
    spec.set_engine(v1::ENGINE_KIND_JACOBI);
    EXPECT_TRUE(ParseSpec(spec, "header.spec").ok()) << "not read";
    spec.set_engine(v1::ENGINE_KIND_AUTO);
    EXPECT_TRUE(ParseSpec(spec, "header.spec").ok()) << "not read";
  };
  using Spec = v1::FsaiSpec;
  refused([](Spec& s) { s.set_k_max(-1); }, "k_max");
  refused([](Spec& s) { s.set_k_max(513); }, "k_max");
  refused([](Spec& s) { s.set_step_size(-1); }, "step_size");
  refused([](Spec& s) { s.set_step_size(33); }, "step_size");
  refused([](Spec& s) { s.set_epsilon(1); }, "epsilon");
  refused([](Spec& s) { s.set_min_gain(-1e-3); }, "min_gain");
  refused([](Spec& s) { s.set_drop_tol(kNan); }, "drop_tol");
  refused([](Spec& s) { s.set_pattern_power(17); }, "pattern_power", v1::ENGINE_KIND_FSAI);
  refused([](Spec& s) { s.set_post_filter(-0.5); }, "post_filter");
  refused([](Spec& s) { s.set_symmetry_tolerance(kInf); }, "symmetry_tolerance");
  refused([](Spec& s) { s.set_precision(static_cast<v1::FsaiPrecision>(9)); }, "precision",
          v1::ENGINE_KIND_FSAI, "UNKNOWN_ENUM");
  refused([](Spec& s) { s.mutable_time_budget(); }, "time_budget");
  refused([](Spec& s) { s.mutable_time_budget()->set_seconds(-1); }, "time_budget");
  const auto with_pattern = [](Spec& s) -> Spec& {
    s.set_pattern_matrix("matrices/1");
    return s;
  };
  refused([&](Spec& s) { with_pattern(s).set_drop_tol(0.5); }, "drop_tol", v1::ENGINE_KIND_FSAI);
  refused([&](Spec& s) { with_pattern(s).set_pattern_power(2); }, "pattern_power",
          v1::ENGINE_KIND_FSAI);
}

struct BadSpec {
  const char* name;
  void (*break_it)(v1::PreconditionerSpec&);
  const char* reason;
  const char* field;
};

class BadSpecTest : public testing::TestWithParam<BadSpec> {};

TEST_P(BadSpecTest, IsRefusedWithItsField) {
  v1::PreconditionerSpec spec = Spai();
  GetParam().break_it(spec);
  const absl::Status status = ParseSpec(spec, "header.spec").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), GetParam().reason);
  EXPECT_EQ(FieldOf(status), GetParam().field);
  // AUTO reads the options too; Jacobi does not.
  if (spec.engine() != v1::ENGINE_KIND_STATIC_SPAI) return;
  spec.set_engine(v1::ENGINE_KIND_AUTO);
  EXPECT_EQ(ReasonOf(ParseSpec(spec, "header.spec").status()), GetParam().reason);
  spec.set_engine(v1::ENGINE_KIND_JACOBI);
  EXPECT_TRUE(ParseSpec(spec, "header.spec").ok());
}

using Spec = v1::PreconditionerSpec;
INSTANTIATE_TEST_SUITE_P(
    All, BadSpecTest,
    testing::Values(
        BadSpec{"NoEngine", [](Spec& s) { s.set_engine(v1::ENGINE_KIND_UNSPECIFIED); },
                "UNKNOWN_ENUM", "header.spec.engine"},
        BadSpec{"UnknownEngine", [](Spec& s) { s.set_engine(static_cast<v1::EngineKind>(99)); },
                "UNKNOWN_ENUM", "header.spec.engine"},
        BadSpec{"NoSolver",
                [](Spec& s) {
                  s.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_UNSPECIFIED);
                },
                "UNKNOWN_ENUM", "header.spec.static_spai.local_solver"},
        BadSpec{"UnknownSolver",
                [](Spec& s) {
                  s.mutable_static_spai()->set_local_solver(static_cast<v1::LocalSolver>(-4));
                },
                "UNKNOWN_ENUM", "header.spec.static_spai.local_solver"},
        BadSpec{"UnknownStrategy",
                [](Spec& s) {
                  s.mutable_static_spai()->set_local_solver(v1::LOCAL_SOLVER_QR);
                  s.mutable_static_spai()->set_thread_strategy(static_cast<v1::ThreadStrategy>(7));
                },
                "UNKNOWN_ENUM", "header.spec.static_spai.thread_strategy"},
        BadSpec{"NegativePower", [](Spec& s) { s.mutable_static_spai()->set_pattern_power(-1); },
                "BAD_PATTERN_POWER", "header.spec.static_spai.pattern_power"},
        BadSpec{"HugePower", [](Spec& s) { s.mutable_static_spai()->set_pattern_power(17); },
                "BAD_PATTERN_POWER", "header.spec.static_spai.pattern_power"},
        BadSpec{"NegativeTau", [](Spec& s) { s.mutable_static_spai()->set_keep_tau(-0.1); },
                "BAD_KEEP_TAU", "header.spec.static_spai.keep_tau"},
        BadSpec{"TauOverOne", [](Spec& s) { s.mutable_static_spai()->set_keep_tau(1.1); },
                "BAD_KEEP_TAU", "header.spec.static_spai.keep_tau"},
        BadSpec{"NanTau", [](Spec& s) { s.mutable_static_spai()->set_keep_tau(kNan); },
                "BAD_KEEP_TAU", "header.spec.static_spai.keep_tau"},
        BadSpec{"TauAndPattern",
                [](Spec& s) {
                  s.mutable_static_spai()->set_keep_tau(0.5);
                  s.mutable_static_spai()->set_pattern_matrix("matrices/1");
                },
                "BAD_KEEP_TAU", "header.spec.static_spai.keep_tau"},
        BadSpec{"NegativeFilter", [](Spec& s) { s.mutable_static_spai()->set_post_filter(-1); },
                "BAD_POST_FILTER", "header.spec.static_spai.post_filter"},
        BadSpec{"NanFilter", [](Spec& s) { s.mutable_static_spai()->set_post_filter(kNan); },
                "BAD_POST_FILTER", "header.spec.static_spai.post_filter"}),
    [](const auto& test) { return std::string(test.param.name); });

v1::SolveHeader Header() {
  v1::SolveHeader header;
  header.set_method(v1::METHOD_GMRES);
  header.set_rtol(1e-8);
  return header;
}

TEST(ParseSolveTest, ReadsAndDefaults) {
  auto parsed = ParseSolve(Header(), "header");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->options.method, kernels::Method::kGmres);
  EXPECT_EQ(parsed->options.rtol, 1e-8);
  EXPECT_EQ(parsed->options.max_iterations, 10000);
  EXPECT_EQ(parsed->options.restart, 50);
  EXPECT_EQ(parsed->rhs_count, 1);
  v1::SolveHeader absolute = Header();
  absolute.set_rtol(0);
  absolute.set_atol(1e-3);
  absolute.set_rhs_count(1024);
  EXPECT_EQ(ParseSolve(absolute, "header")->rhs_count, 1024);
  EXPECT_EQ(parsed->options.m_storage, kernels::Storage::kAuto);
  for (const auto& [sent, read] : {std::pair{v1::PRECISION_AUTO, kernels::Storage::kAuto},
                                   std::pair{v1::PRECISION_FP64, kernels::Storage::kFp64},
                                   std::pair{v1::PRECISION_FP32, kernels::Storage::kFp32}}) {
    v1::SolveHeader header = Header();
    header.set_preconditioner_storage(sent);
    EXPECT_EQ(ParseSolve(header, "header")->options.m_storage, read);
    EXPECT_TRUE(read == kernels::Storage::kAuto || ToProto(read) == sent);
  }
  EXPECT_EQ(ToProto(kernels::Storage::kAuto), v1::PRECISION_UNSPECIFIED) << "there is no such M";
}

TEST(ParseSolveTest, ReadsTheNullSpace) {
  using kernels::NullSpaceChoice;
  EXPECT_EQ(ParseSolve(Header(), "header")->null_space, NullSpaceChoice::kAuto);
  for (const auto& [sent, read] :
       {std::pair{v1::NULL_SPACE_AUTO, NullSpaceChoice::kAuto},
        std::pair{v1::NULL_SPACE_NONE, NullSpaceChoice::kNone},
        std::pair{v1::NULL_SPACE_CONSTANTS, NullSpaceChoice::kConstants}}) {
    v1::SolveHeader header = Header();
    header.set_null_space(sent);
    EXPECT_EQ(ParseSolve(header, "header")->null_space, read);
  }
  v1::SolveHeader header = Header();
  header.set_null_vectors(32);
  EXPECT_EQ(ParseSolve(header, "header")->null_space, NullSpaceChoice::kGiven);
  EXPECT_EQ(ParseSolve(header, "header")->null_vectors, 32);
}

TEST(ParseSolveTest, ReadsWhatBecomesOfANamedPreconditioner) {
  v1::SolveHeader header = Header();
  EXPECT_EQ(ParseSolve(header, "header")->reuse.mode, ReuseMode::kKeep);
  EXPECT_EQ(ParseSolve(header, "header")->reuse.factor, 1.5);
  header.set_preconditioner("preconditioners/1");
  for (const auto& [sent, read] : {std::pair{v1::REUSE_MODE_UNSPECIFIED, ReuseMode::kKeep},
                                   std::pair{v1::REUSE_MODE_KEEP, ReuseMode::kKeep},
                                   std::pair{v1::REUSE_MODE_REBUILD, ReuseMode::kRebuild},
                                   std::pair{v1::REUSE_MODE_AUTO, ReuseMode::kAuto}}) {
    header.mutable_reuse()->set_mode(sent);
    EXPECT_EQ(ParseSolve(header, "header")->reuse.mode, read);
  }
  header.mutable_reuse()->set_factor(1);
  EXPECT_EQ(ParseSolve(header, "header")->reuse.factor, 1);
}

struct BadHeader {
  const char* name;
  void (*break_it)(v1::SolveHeader&);
  const char* reason;
  const char* field;
};

class BadHeaderTest : public testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedWithItsField) {
  v1::SolveHeader header = Header();
  GetParam().break_it(header);
  const absl::Status status = ParseSolve(header, "header").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), GetParam().reason);
  EXPECT_EQ(FieldOf(status), GetParam().field);
}

using H = v1::SolveHeader;
INSTANTIATE_TEST_SUITE_P(
    All, BadHeaderTest,
    testing::Values(
        BadHeader{"NoMethod", [](H& h) { h.set_method(v1::METHOD_UNSPECIFIED); }, "UNKNOWN_ENUM",
                  "header.method"},
        BadHeader{"UnknownMethod", [](H& h) { h.set_method(static_cast<v1::Method>(77)); },
                  "UNKNOWN_ENUM", "header.method"},
        BadHeader{"ReuseOfNothing", [](H& h) { h.mutable_reuse()->set_mode(v1::REUSE_MODE_AUTO); },
                  "BAD_REUSE", "header.reuse.mode"},
        BadHeader{"ReuseOfASpec",
                  [](H& h) {
                    h.mutable_spec()->set_engine(v1::ENGINE_KIND_JACOBI);
                    h.mutable_reuse()->set_mode(v1::REUSE_MODE_KEEP);
                  },
                  "BAD_REUSE", "header.reuse.mode"},
        BadHeader{"UnknownReuse",
                  [](H& h) {
                    h.set_preconditioner("preconditioners/1");
                    h.mutable_reuse()->set_mode(static_cast<v1::ReuseMode>(77));
                  },
                  "UNKNOWN_ENUM", "header.reuse.mode"},
        BadHeader{"ReuseFactorUnderOne", [](H& h) { h.mutable_reuse()->set_factor(0.999); },
                  "BAD_REUSE", "header.reuse.factor"},
        BadHeader{"ReuseFactorNan", [](H& h) { h.mutable_reuse()->set_factor(kNan); }, "BAD_REUSE",
                  "header.reuse.factor"},
        BadHeader{"ReuseFactorInfinite", [](H& h) { h.mutable_reuse()->set_factor(kInf); },
                  "BAD_REUSE", "header.reuse.factor"},
        BadHeader{"ReuseFactorNegative", [](H& h) { h.mutable_reuse()->set_factor(-2); },
                  "BAD_REUSE", "header.reuse.factor"},
        BadHeader{"UnknownNullSpace",
                  [](H& h) { h.set_null_space(static_cast<v1::NullSpace>(77)); }, "UNKNOWN_ENUM",
                  "header.null_space"},
        BadHeader{"NullVectorsBesideNone",
                  [](H& h) {
                    h.set_null_space(v1::NULL_SPACE_NONE);
                    h.set_null_vectors(1);
                  },
                  "BAD_NULL_SPACE", "header.null_space"},
        BadHeader{"NegativeNullVectors", [](H& h) { h.set_null_vectors(-1); }, "BAD_NULL_SPACE",
                  "header.null_vectors"},
        BadHeader{"ZeroRtol", [](H& h) { h.set_rtol(0); }, "BAD_TOLERANCE", "header.rtol"},
        BadHeader{"NegativeRtol", [](H& h) { h.set_rtol(-1e-8); }, "BAD_TOLERANCE", "header.rtol"},
        BadHeader{"NegativeRtolWithAtol",
                  [](H& h) {
                    h.set_rtol(-1);
                    h.set_atol(1);
                  },
                  "BAD_TOLERANCE", "header.rtol"},
        BadHeader{"NanRtol", [](H& h) { h.set_rtol(kNan); }, "BAD_TOLERANCE", "header.rtol"},
        BadHeader{"InfiniteRtol", [](H& h) { h.set_rtol(kInf); }, "BAD_TOLERANCE", "header.rtol"},
        BadHeader{"NegativeAtol", [](H& h) { h.set_atol(-1); }, "BAD_TOLERANCE", "header.atol"},
        BadHeader{"NanAtol", [](H& h) { h.set_atol(kNan); }, "BAD_TOLERANCE", "header.atol"},
        BadHeader{"NegativeIterations", [](H& h) { h.set_max_iterations(-1); },
                  "BAD_MAX_ITERATIONS", "header.max_iterations"},
        BadHeader{"NegativeRestart", [](H& h) { h.set_restart(-1); }, "BAD_RESTART",
                  "header.restart"},
        BadHeader{"TooManyShadows", [](H& h) { h.set_shadow_vectors(17); }, "BAD_SHADOW_VECTORS",
                  "header.shadow_vectors"},
        BadHeader{"NegativeBasis", [](H& h) { h.set_basis_bytes(-1); }, "BAD_BASIS_BYTES",
                  "header.basis_bytes"},
        BadHeader{"NegativeCount", [](H& h) { h.set_rhs_count(-1); }, "BAD_RHS_COUNT",
                  "header.rhs_count"},
        BadHeader{"HugeCount", [](H& h) { h.set_rhs_count(1025); }, "BAD_RHS_COUNT",
                  "header.rhs_count"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ParseLimitsTest, TakesTimesOverZeroOnly) {
  v1::JobLimits limits;
  EXPECT_FALSE(ParseLimits(limits, "limits")->max_queue);
  limits.mutable_max_queue()->set_seconds(2);
  limits.mutable_max_run()->set_nanos(500);
  EXPECT_EQ(*ParseLimits(limits, "limits")->max_queue, std::chrono::seconds(2));
  EXPECT_EQ(*ParseLimits(limits, "limits")->max_run, std::chrono::nanoseconds(500));
  const std::pair<int64_t, int32_t> bad[] = {
      {0, 0}, {-1, 0}, {0, -1}, {1, -5}, {1, 1'000'000'000}, {int64_t{1} << 60, 0}};
  for (const auto& [seconds, nanos] : bad) {
    v1::JobLimits wrong;
    wrong.mutable_max_run()->set_seconds(seconds);
    wrong.mutable_max_run()->set_nanos(nanos);
    const absl::Status status = ParseLimits(wrong, "header.limits").status();
    EXPECT_EQ(ReasonOf(status), "BAD_LIMIT") << seconds << " " << nanos;
    EXPECT_EQ(FieldOf(status), "header.limits.max_run");
  }
}

TEST(ParseLayoutTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(*ParseLayout(v1::LAYOUT_CSR, "l"), kernels::Layout::kCsr);
  EXPECT_EQ(*ParseLayout(v1::LAYOUT_CSC, "l"), kernels::Layout::kCsc);
  for (const int v : {0, 9}) {
    const absl::Status status = ParseLayout(static_cast<v1::Layout>(v), "header.layout").status();
    EXPECT_EQ(ReasonOf(status), "UNKNOWN_ENUM");
    EXPECT_EQ(FieldOf(status), "header.layout");
  }
}

TEST(ToAbslTest, KeepsEverything) {
  const absl::Status status =
      ToAbsl(kernels::Status(kernels::StatusCode::kFailedPrecondition, "ZERO_COLUMN", "column 3")
                 .At("col_ptr", 3),
             "header.inline_matrix");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "ZERO_COLUMN");
  EXPECT_EQ(FieldOf(status), "header.inline_matrix.col_ptr");
  EXPECT_EQ(MetaOf(status, "index"), "3");
  EXPECT_TRUE(ToAbsl(kernels::Status()).ok());
}

TEST(ToProtoTest, EveryEnumHasItsNumber) {
  for (const auto o :
       {kernels::Outcome::kConverged, kernels::Outcome::kMaxIterations,
        kernels::Outcome::kStagnated, kernels::Outcome::kBreakdown, kernels::Outcome::kIndefinite,
        kernels::Outcome::kNonFinite, kernels::Outcome::kTimeLimit, kernels::Outcome::kCancelled}) {
    // The wire's names are the kernels', in capitals.
    std::string name = "OUTCOME_";
    for (const char c : Name(o)) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    EXPECT_EQ(v1::Outcome_Name(ToProto(o)), name);
  }
  for (const auto m : {kernels::Method::kAuto, kernels::Method::kCg, kernels::Method::kBicgstab,
                       kernels::Method::kGmres, kernels::Method::kMinres, kernels::Method::kIdr}) {
    EXPECT_NE(ToProto(m), v1::METHOD_UNSPECIFIED);
  }
  EXPECT_EQ(ToProto(kernels::Stage::kAssemble), v1::STAGE_ASSEMBLE);
  for (const auto kind :
       {kernels::EngineKind::kAuto, kernels::EngineKind::kNone, kernels::EngineKind::kJacobi,
        kernels::EngineKind::kStaticSpai, kernels::EngineKind::kFsai, kernels::EngineKind::kAfsai,
        kernels::EngineKind::kDynamicSpai}) {
    std::string name = "ENGINE_KIND_";
    for (const char c : Name(kind)) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    EXPECT_EQ(v1::EngineKind_Name(ToProto(kind)), name);
  }
}

TEST(ToProtoTest, QualityOfAFactorHasNoResiduals) {
  kernels::Quality quality;
  quality.density = 0.5;
  quality.warnings = {"w"};
  quality.pattern_reused = true;
  kernels::FsaiQuality& fsai = quality.fsai.emplace();
  fsai.kaporin = 0.75;
  fsai.kaporin_by_step = {1, 0.75};
  fsai.converged_rows = 3;
  fsai.nnz_row_max = 4;
  fsai.slow_rows = 5;
  fsai.copied_rows = 10;
  fsai.not_spd_rows = 6;
  fsai.first_not_spd = 7;
  fsai.not_converged_rows = 8;
  fsai.first_not_converged = 9;
  fsai.steps = 1;
  fsai.out_of_time = true;
  const v1::BuildQuality proto = ToProto(quality);
  EXPECT_EQ(proto.residual_frobenius(), 0);
  EXPECT_EQ(proto.residual_quantiles_size(), 0);
  EXPECT_EQ(proto.worst_column(), -1);
  EXPECT_FALSE(proto.has_zero_columns());
  EXPECT_EQ(proto.density(), 0.5);
  EXPECT_EQ(proto.warnings(0), "w");
  ASSERT_TRUE(proto.has_fsai());
  EXPECT_EQ(proto.fsai().kaporin(), 0.75);
  EXPECT_EQ(proto.fsai().kaporin_by_step_size(), 2);
  EXPECT_EQ(proto.fsai().converged_rows(), 3);
  EXPECT_EQ(proto.fsai().nnz_row_max(), 4);
  EXPECT_EQ(proto.fsai().slow_rows(), 5);
  EXPECT_EQ(proto.fsai().copied_rows(), 10);
  EXPECT_EQ(proto.fsai().not_spd_rows().count(), 6);
  EXPECT_EQ(proto.fsai().not_spd_rows().first(), 7);
  EXPECT_EQ(proto.fsai().not_converged_rows().count(), 8);
  EXPECT_EQ(proto.fsai().not_converged_rows().first(), 9);
  EXPECT_EQ(proto.fsai().steps(), 1);
  EXPECT_TRUE(proto.fsai().out_of_time());
  EXPECT_TRUE(proto.fsai().pattern_reused());
  EXPECT_FALSE(ToProto(kernels::Quality()).has_fsai());
}

TEST(ToProtoTest, QualityKeepsCountsAndPlaces) {
  kernels::Quality quality;
  quality.rescued_columns = 4;
  quality.first_rescued = 17;
  quality.iterative_columns = 3;
  quality.first_iterative = 5;
  quality.not_converged_columns = 2;
  quality.first_not_converged = 6;
  quality.residual_quantiles = {0, 1};
  quality.warnings = {"w"};
  const v1::BuildQuality proto = ToProto(quality);
  EXPECT_EQ(proto.rescued_columns().count(), 4);
  EXPECT_EQ(proto.rescued_columns().first(), 17);
  EXPECT_EQ(proto.iterative_columns().count(), 3);
  EXPECT_EQ(proto.iterative_columns().first(), 5);
  EXPECT_EQ(proto.not_converged_columns().count(), 2);
  EXPECT_EQ(proto.not_converged_columns().first(), 6);
  EXPECT_EQ(proto.zero_columns().first(), -1);
  EXPECT_EQ(proto.residual_quantiles_size(), 2);
  EXPECT_EQ(proto.warnings(0), "w");
}

}  // namespace
}  // namespace spaid::server
