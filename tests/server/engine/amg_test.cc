// Multigrid between the wire and the kernels: options, vectors by handle, keys, figures, parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "kernels/engine/build_result.h"
#include "server/engine/convert.h"
#include "server/engine/near_null.h"
#include "server/engine/parts.h"
#include "server/engine/resolved_build.h"
#include "tests/server/engine/placement_bench.h"

namespace spaid::server {
namespace {

using testing::HasSubstr;

v1::PreconditionerSpec Amg() {
  v1::PreconditionerSpec spec;
  spec.set_engine(v1::ENGINE_KIND_AMG);
  return spec;
}

TEST(ParseAmg, ReadsEveryOptionAndSaysItAgain) {
  v1::PreconditionerSpec spec = Amg();
  auto* o = spec.mutable_amg();
  o->set_coarsening(v1::COARSENING_PLAIN_AGGREGATION);
  o->set_strength_threshold(0);
  o->set_node_size(3);
  o->set_near_null_space("matrices/7");
  o->set_smoother(v1::SMOOTHER_CHEBYSHEV);
  o->set_pre_sweeps(0);
  o->set_post_sweeps(2);
  o->set_chebyshev_degree(3);
  o->set_cycle(v1::CYCLE_W);
  o->set_max_levels(5);
  o->set_max_coarse_size(100);
  o->set_max_growth(0);
  o->set_max_operator_complexity(1.5);
  o->set_hierarchy_precision(v1::HIERARCHY_PRECISION_FP64);
  o->set_k_max(7);
  o->set_step_size(4);
  o->set_epsilon(0);
  const auto parsed = ParseSpec(spec, "spec");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const kernels::AmgOptions& k = parsed->spec.amg;
  EXPECT_EQ(k.coarsening, kernels::Coarsening::kPlainAggregation);
  EXPECT_EQ(k.strength_threshold, 0) << "set, and no default";
  EXPECT_EQ(k.block_size, 3);
  EXPECT_EQ(k.smoother, kernels::SmootherKind::kChebyshev);
  EXPECT_EQ(k.pre_sweeps, 0);
  EXPECT_EQ(k.post_sweeps, 2);
  EXPECT_EQ(k.chebyshev_degree, 3);
  EXPECT_EQ(k.cycle, kernels::CycleKind::kW);
  EXPECT_EQ(k.max_levels, 5);
  EXPECT_EQ(k.max_coarse_size, 100);
  EXPECT_EQ(k.max_growth, 0);
  EXPECT_EQ(k.max_operator_complexity, 1.5);
  EXPECT_EQ(k.hierarchy_precision, kernels::Precision::kFp64);
  EXPECT_EQ(k.k_max, 7);
  EXPECT_EQ(k.per_step, 4);
  EXPECT_EQ(k.epsilon, 0);
  EXPECT_EQ(parsed->given.handle, "matrices/7");
  EXPECT_EQ(parsed->given.as, GivenMatrix::As::kNearNullSpace);
  EXPECT_EQ(ToProto(parsed->spec, parsed->given).SerializeAsString(), spec.SerializeAsString());
  EXPECT_FALSE(ToProto(parsed->spec, {}).has_fsai());
}

TEST(ParseAmg, WhatIsOutOfRangeIsRefusedWithItsField) {
  using Spec = v1::AmgSpec;
  const auto refused = [](const std::function<void(Spec&)>& set, const std::string& field,
                          const std::string& why = "BAD_AMG_OPTION") {
    v1::PreconditionerSpec spec = Amg();
    set(*spec.mutable_amg());
    const absl::Status status = ParseSpec(spec, "header.spec").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(ReasonOf(status), why) << field;
    EXPECT_EQ(FieldOf(status), "header.spec.amg." + field);
    spec.set_engine(v1::ENGINE_KIND_FSAI);
    EXPECT_TRUE(ParseSpec(spec, "header.spec").ok()) << "not read";
  };
  refused([](Spec& s) { s.set_strength_threshold(1); }, "strength_threshold");
  refused([](Spec& s) { s.set_node_size(9); }, "node_size");
  refused([](Spec& s) { s.set_k_max(-1); }, "k_max");
  refused([](Spec& s) { s.set_epsilon(1); }, "epsilon");
  refused(
      [](Spec& s) {
        s.set_pre_sweeps(0);
        s.set_post_sweeps(0);
      },
      "pre_sweeps");
  refused([](Spec& s) { s.set_smoother(static_cast<v1::Smoother>(12)); }, "smoother",
          "UNKNOWN_ENUM");
  refused(
      [](Spec& s) {
        s.set_near_null_space("matrices/1");
        s.set_coordinates("matrices/2");
      },
      "coordinates");
  v1::PreconditionerSpec scaled = Amg();
  scaled.set_scaling(v1::SCALING_EQUILIBRATE);
  EXPECT_EQ(ReasonOf(ParseSpec(scaled, "").status()), "BAD_SCALING");
  scaled.set_scaling(v1::SCALING_AUTO);
  EXPECT_TRUE(ParseSpec(scaled, "").ok());
}

TEST(ToProtoTest, LevelsAreTold) {
  kernels::Quality quality;
  quality.density = 2.5;
  quality.residual_frobenius = 7;  // which nobody has measured
  kernels::AmgQuality& q = quality.amg.emplace();
  q.levels.push_back({.rows = 100,
                      .nnz = 460,
                      .aggregates = 12,
                      .isolated = 1,
                      .guarded = true,
                      .rho = 1.5,
                      .nnz_p = 130,
                      .nnz_smoother = 20,
                      .boxes = true});
  q.levels.push_back({.rows = 12, .nnz = 60});
  q.smoother = kernels::SmootherKind::kAfsai;
  q.precision = kernels::Precision::kFp64;
  q.block_size = 2;
  q.beta = 5;
  const v1::BuildQuality proto = ToProto(quality);
  EXPECT_EQ(proto.residual_frobenius(), 0);
  EXPECT_EQ(proto.worst_column(), -1);
  EXPECT_EQ(proto.density(), 2.5);
  ASSERT_EQ(proto.amg().levels_size(), 2);
  EXPECT_EQ(proto.amg().levels(0).DebugString(),
            "rows: 100\nnnz: 460\naggregates: 12\nisolated: 1\nguarded: true\nrho: 1.5\n"
            "nnz_p: 130\nnnz_smoother: 20\nboxes: true\n");
  EXPECT_EQ(proto.amg().levels(1).rows(), 12);
  EXPECT_EQ(proto.amg().smoother(), v1::SMOOTHER_AFSAI);
  EXPECT_EQ(proto.amg().precision(), v1::HIERARCHY_PRECISION_FP64);
  EXPECT_EQ(proto.amg().node_size(), 2);
  EXPECT_EQ(proto.amg().beta(), 5);
  EXPECT_FALSE(proto.amg().pattern_reused());
}

// A matrix whose first columns are full, of `value` and what follows.
kernels::CscMatrix Carrier(int64_t n, int64_t full, double value = 1) {
  kernels::CscMatrix m{.n_rows = n, .n_cols = n, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; j < full && i < n; ++i) {
      m.row_idx.push_back(static_cast<int32_t>(i));
      m.values.push_back(j == 0 ? value : static_cast<double>((i * (j + 1)) % 7) + value);
    }
    m.col_ptr.push_back(m.nnz());
  }
  return m;
}

// Over the real engine, on the CPU.
class AmgAdapter : public testing::Test {
 protected:
  std::shared_ptr<const Matrix> Prepare(kernels::CscMatrix raw, bool pattern_only = false) {
    if (pattern_only) raw.values.clear();
    auto matrix =
        adapter_.Prepare(std::move(raw), kernels::Layout::kCsc, {.pattern_only = pattern_only});
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return *matrix;
  }
  static ParsedSpec Spec(GivenMatrix::As as = GivenMatrix::As::kNearNullSpace) {
    ParsedSpec spec;
    spec.spec.engine = kernels::EngineKind::kAmg;
    spec.spec.amg.max_coarse_size = 8;
    spec.given.as = as;
    return spec;
  }
  absl::StatusOr<BuiltPreconditioner> Build(const ParsedSpec& spec, const Matrix& a,
                                            const Matrix* given) {
    auto resolved = adapter_.Resolve(spec, a, given);
    if (!resolved.ok()) return resolved.status();
    keys_.push_back(resolved->content_key);
    const auto job =
        Job::Create({.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}},
                    {}, RealClock());
    job->Start({"cpu"});
    return adapter_.Build("t", *resolved, a, given, {.device = "cpu"}, *job);
  }

  const std::unique_ptr<kernels::Engine> engine_ = kernels::MakeCpuEngine();
  EngineAdapter adapter_{*engine_, {.threads = 2}};
  std::vector<std::string> keys_;
};

TEST_F(AmgAdapter, VectorsComeByHandleAndCountAsContent) {
  const auto a = Prepare(Banded(60));
  const auto constants = Prepare(Carrier(60, 1)), others = Prepare(Carrier(60, 2)),
             again = Prepare(Carrier(60, 1));
  for (const Matrix* given : {constants.get(), others.get(), again.get()}) {
    const auto built = Build(Spec(), *a, given);
    ASSERT_TRUE(built.ok()) << built.status();
    EXPECT_EQ(built->quality.amg().levels(0).rows(), 60);
  }
  ASSERT_TRUE(Build(Spec(), *a, nullptr).ok());
  EXPECT_NE(keys_[0], keys_[1]);
  EXPECT_EQ(keys_[0], keys_[2]) << "by content, not by handle";
  EXPECT_NE(keys_[0], keys_[3]);
}

TEST_F(AmgAdapter, VectorsThatDoNotFitAreRefused) {
  const auto a = Prepare(Banded(60));
  const auto refused = [&](GivenMatrix::As as, const std::shared_ptr<const Matrix>& given,
                           const std::string& why, const std::string& field) {
    const absl::Status status = adapter_.Resolve(Spec(as), *a, given.get()).status();
    EXPECT_EQ(ReasonOf(status), why) << status;
    EXPECT_EQ(FieldOf(status), field);
    return std::string(status.message());
  };
  using As = GivenMatrix::As;
  EXPECT_THAT(refused(As::kNearNullSpace, Prepare(Carrier(59, 1)), "BAD_NEAR_NULL_SPACE",
                      "amg.near_null_space"),
              HasSubstr("give the 60 rows of the matrix and 1 to 8 columns"));
  refused(As::kNearNullSpace, Prepare(Carrier(60, 9)), "BAD_NEAR_NULL_SPACE",
          "amg.near_null_space");
  refused(As::kNearNullSpace, Prepare(Carrier(60, 0)), "BAD_NEAR_NULL_SPACE",
          "amg.near_null_space");
  refused(As::kNearNullSpace, Prepare(Carrier(60, 1), true), "VALUES_NEEDED",
          "amg.near_null_space");
  EXPECT_THAT(
      refused(As::kCoordinates, Prepare(Carrier(30, 3)), "BAD_COORDINATES", "amg.coordinates"),
      HasSubstr("a row for each node"));
  refused(As::kCoordinates, Prepare(Carrier(60, 1)), "BAD_COORDINATES", "amg.coordinates");
  const auto fits = NearNullOf(*Prepare(Carrier(20, 3, 2)), As::kCoordinates, 60, "amg");
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ((*fits)->dimension, 3);
  EXPECT_EQ((*fits)->coordinates.size(), 60u);
  EXPECT_EQ((*fits)->coordinates[0], 2);
}

TEST_F(AmgAdapter, PartsAreListedAndCopied) {
  const auto a = Prepare(Banded(60));
  const auto built = Build(Spec(), *a, nullptr);
  ASSERT_TRUE(built.ok()) << built.status();
  Preconditioner m;
  m.kernel = built->kernel;
  const std::shared_ptr<const Preconditioner> borrowed(std::shared_ptr<void>(), &m);
  const v1::Preconditioner told = ToProto(Stored<Preconditioner>{.handle = "", .value = borrowed});
  ASSERT_GT(told.parts_size(), 4);
  EXPECT_EQ(told.n(), 60);
  EXPECT_EQ(told.nnz(), built->kernel->nnz());
  ByteBudget budget("parts", 1 << 20, {}, {});
  for (const v1::Part& part : told.parts()) {
    SCOPED_TRACE(part.ShortDebugString());
    v1::DownloadPreconditionerRequest request;
    *request.mutable_part() = part;
    EXPECT_TRUE(CheckPart(m, request).ok());
    {
      const auto copy = CopyPart(budget, "t", m, part);
      ASSERT_TRUE(copy.ok()) << copy.status();
      EXPECT_EQ((*copy)->n_rows, part.rows());
      EXPECT_EQ((*copy)->n_cols, part.columns());
      EXPECT_EQ((*copy)->nnz(), part.nnz());
      EXPECT_GT(budget.used(), 0);
    }
    EXPECT_EQ(budget.used(), 0);
  }
  ByteBudget none("parts", 8, {}, {});
  EXPECT_EQ(CopyPart(none, "t", m, told.parts(1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  v1::DownloadPreconditionerRequest request;
  EXPECT_EQ(ReasonOf(CheckPart(m, request)), "PART_NEEDED");
  EXPECT_THAT(std::string(CheckPart(m, request).message()), HasSubstr("P of level 0"));
  request.mutable_part()->set_level(77);
  EXPECT_EQ(ReasonOf(CheckPart(m, request)), "UNKNOWN_PART");
  ParsedSpec jacobi;
  jacobi.spec.engine = kernels::EngineKind::kJacobi;
  m.kernel = Build(jacobi, *a, nullptr)->kernel;
  EXPECT_EQ(ReasonOf(CheckPart(m, request)), "UNKNOWN_PART");
  EXPECT_TRUE(CheckPart(m, {}).ok());
}

TEST_F(AmgAdapter, NewValuesKeepTheAggregates) {
  kernels::CscMatrix raw = Banded(60);
  const auto a = Prepare(raw);
  for (double& v : raw.values) v *= 2;
  const auto b = Prepare(std::move(raw));
  ASSERT_TRUE(Build(Spec(), *a, nullptr).ok());
  const auto again = Build(Spec(), *b, nullptr);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->rebuild);
  EXPECT_TRUE(again->quality.amg().pattern_reused());
  ParsedSpec anew = Spec();
  anew.regrow = true;
  const auto fresh = Build(anew, *b, nullptr);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_FALSE(fresh->quality.amg().pattern_reused());
}

}  // namespace
}  // namespace spaid::server
