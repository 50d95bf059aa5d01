#include "server/engine/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/engine/build_result.h"
#include "server/base/status.h"
#include "server/engine/resolved_build.h"
#include "server/sched/job.h"
#include "tests/server/engine/matrices.h"
#include "tests/server/fake_engine.h"

namespace spaid::server {
namespace {

class AdapterTest : public testing::Test {
 protected:
  std::shared_ptr<const Matrix> Prepare(kernels::CscMatrix raw, PrepareOptions options = {},
                                        kernels::Layout layout = kernels::Layout::kCsc) {
    auto matrix = adapter_.Prepare(std::move(raw), layout, options);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return *matrix;
  }
  static ParsedSpec Spec(kernels::EngineKind kind) {
    ParsedSpec spec;
    spec.spec.engine = kind;
    return spec;
  }
  std::shared_ptr<Job> RunningJob() {
    auto job =
        Job::Create({.tenant = "t", .kind = v1::JOB_KIND_BUILD, .matrix = {}, .preconditioner = {}},
                    {}, RealClock());
    job->Start({"cpu"});
    return job;
  }
  absl::StatusOr<BuiltPreconditioner> Build(const std::string& tenant, const ParsedSpec& spec,
                                            const Matrix& a) {
    auto resolved = adapter_.Resolve(spec, a, nullptr);
    if (!resolved.ok()) return resolved.status();
    return adapter_.Build(tenant, *resolved, a, nullptr, {.device = "cpu"}, *RunningJob());
  }

  FakeEngine engine_;
  EngineAdapter adapter_{engine_, {.threads = 1, .plan_cache_bytes = 1 << 20}};
};

TEST_F(AdapterTest, PreparesWithDigestsAndDiagnosis) {
  auto a = Prepare(Upper(), {.sort_and_sum = false, .pattern_only = false, .label = "mine"});
  EXPECT_EQ(a->n(), 2);
  EXPECT_EQ(a->label, "mine");
  EXPECT_EQ(a->pattern->digest(), PatternDigest(2, a->csc().col_ptr, a->csc().row_idx));
  EXPECT_EQ(*a->value_digest, ValueDigest(a->values));
  EXPECT_FALSE(a->diagnosis.structurally_symmetric);
  const v1::Matrix proto = ToProto(Stored<Matrix>{"matrices/1", a}, true);
  EXPECT_EQ(proto.nnz(), 3);
  EXPECT_EQ(proto.digest().pattern().size(), 16u);
  EXPECT_GT(proto.diagnosis().findings_size(), 0);
  EXPECT_EQ(ToProto(Stored<Matrix>{"matrices/1", a}, false).diagnosis().findings_size(), 0);
}

TEST_F(AdapterTest, RowsAndColumnsOfTheSameMatrixAreTheSameContent) {
  kernels::CscMatrix rows;  // [4 1; 0 3] by rows
  rows.n_rows = rows.n_cols = 2;
  rows.col_ptr.assign({0, 2, 3});
  rows.row_idx.assign({0, 1, 1});
  rows.values.assign({4, 1, 3});
  EXPECT_EQ(Prepare(rows, {}, kernels::Layout::kCsr)->ContentKey(), Prepare(Upper())->ContentKey());
}

TEST_F(AdapterTest, APatternHasStructureOnly) {
  kernels::CscMatrix pattern = Upper();
  pattern.values.clear();
  auto a = Prepare(pattern, {.sort_and_sum = false, .pattern_only = true, .label = {}});
  EXPECT_TRUE(a->pattern_only);
  EXPECT_FALSE(a->value_digest);
  EXPECT_EQ(a->pattern->digest(), Prepare(Upper())->pattern->digest());
  EXPECT_EQ(a->diagnosis.max_abs_value, 0);
  EXPECT_EQ(a->diagnosis.not_dominant_rows.count, 0);
  EXPECT_EQ(a->diagnosis.missing_diagonal.count, 0);
  EXPECT_FALSE(a->diagnosis.structurally_symmetric);
  // It can be estimated, not built or solved with.
  EXPECT_EQ(ReasonOf(adapter_.Resolve(Spec(kernels::EngineKind::kJacobi), *a, nullptr).status()),
            "VALUES_NEEDED");
  EXPECT_EQ(
      ReasonOf(adapter_.ResolveMethod(kernels::Method::kBicgstab, /*for_cg=*/true, *a).status()),
      "VALUES_NEEDED");
  auto resolved = adapter_.Resolve(Spec(kernels::EngineKind::kAuto), *a, nullptr, true);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->choice.engine(), v1::ENGINE_KIND_AUTO);
  EXPECT_NE(resolved->choice.reason(), "");
  EXPECT_EQ(adapter_.Estimate(*resolved, *a, nullptr)->nnz_m, 2);
}

TEST_F(AdapterTest, RefusesBrokenMatricesWithThePlace) {
  kernels::CscMatrix out_of_range = Upper();
  out_of_range.row_idx[2] = 7;
  auto refused = adapter_.Prepare(out_of_range, kernels::Layout::kCsc, {});
  EXPECT_EQ(ReasonOf(refused.status()), "INDEX_OUT_OF_RANGE");
  EXPECT_EQ(MetaOf(refused.status(), "index"), "2");
  EXPECT_EQ(FieldOf(refused.status()), "row_idx");

  kernels::CscMatrix nan = Upper();
  nan.values[1] = std::numeric_limits<double>::quiet_NaN();
  refused = adapter_.Prepare(nan, kernels::Layout::kCsc, {});
  EXPECT_EQ(ReasonOf(refused.status()), "NON_FINITE_VALUE");
  EXPECT_EQ(MetaOf(refused.status(), "index"), "1");

  kernels::CscMatrix wide = Upper();
  wide.n_rows = 3;
  EXPECT_EQ(ReasonOf(adapter_.Prepare(wide, kernels::Layout::kCsc, {}).status()), "NOT_SQUARE");

  kernels::CscMatrix unsorted = Upper();
  std::swap(unsorted.row_idx[1], unsorted.row_idx[2]);
  EXPECT_EQ(ReasonOf(adapter_.Prepare(unsorted, kernels::Layout::kCsc, {}).status()),
            "UNSORTED_INDICES");
  EXPECT_TRUE(adapter_
                  .Prepare(unsorted, kernels::Layout::kCsc,
                           {.sort_and_sum = true, .pattern_only = false, .label = {}})
                  .ok());
}

TEST_F(AdapterTest, AStopEndsThePreparation) {
  kernels::StopSource stop;
  stop.Request(kernels::StopReason::kCancelled);
  PrepareOptions options;
  options.stop = stop.token();
  EXPECT_EQ(adapter_.Prepare(Upper(), kernels::Layout::kCsc, options).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(AdapterTest, SaysWhatAutoChose) {
  auto resolved = adapter_.Resolve(Spec(kernels::EngineKind::kAuto), *Prepare(Upper()), nullptr);
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(resolved->choice.engine(), v1::ENGINE_KIND_JACOBI);
  EXPECT_EQ(resolved->choice.reason(), "the fake always takes Jacobi");
  EXPECT_EQ(resolved->proto.engine(), v1::ENGINE_KIND_JACOBI);
}

TEST_F(AdapterTest, AutoKnowsThePatternAndTheThreads) {
  auto a = Prepare(Upper()), pattern = Prepare(Diagonal(2));
  ASSERT_TRUE(adapter_.Resolve(Spec(kernels::EngineKind::kAuto), *a, pattern.get()).ok());
  EXPECT_TRUE(engine_.resolved().had_pattern);
  EXPECT_EQ(engine_.resolved().threads, 1) << "those of one job, not all cores";
  ASSERT_TRUE(adapter_.Resolve(Spec(kernels::EngineKind::kAuto), *a, nullptr).ok());
  EXPECT_FALSE(engine_.resolved().had_pattern);
}

TEST_F(AdapterTest, APatternOfAnotherSizeIsRefused) {
  auto a = Prepare(Upper()), pattern = Prepare(Diagonal(3));
  auto refused = adapter_.Resolve(Spec(kernels::EngineKind::kStaticSpai), *a, pattern.get());
  EXPECT_EQ(ReasonOf(refused.status()), "PATTERN_SIZE_MISMATCH");
}

TEST_F(AdapterTest, KeysFollowWhatTheyStandFor) {
  auto a = Prepare(Diagonal(2)), scaled = Prepare(Diagonal(2, 5)), other = Prepare(Upper());
  ParsedSpec spec = Spec(kernels::EngineKind::kStaticSpai);
  auto key = [&](const ParsedSpec& s, const Matrix& m, const Matrix* pattern = nullptr) {
    return *adapter_.Resolve(s, m, pattern);
  };
  EXPECT_EQ(key(spec, *a).plan_key, key(spec, *scaled).plan_key) << "values do not matter";
  EXPECT_NE(key(spec, *a).content_key, key(spec, *scaled).content_key);
  EXPECT_NE(key(spec, *a).plan_key, key(spec, *other).plan_key);
  EXPECT_NE(key(spec, *a).plan_key, key(spec, *a, other.get()).plan_key);
  ParsedSpec named = spec;
  named.given.handle = "matrices/1";
  ParsedSpec renamed = spec;
  renamed.given.handle = "matrices/2";
  EXPECT_EQ(key(named, *a, other.get()).content_key, key(renamed, *a, other.get()).content_key)
      << "patterns count by content";
  ParsedSpec power = spec;
  power.spec.static_spai.pattern.power = 2;
  EXPECT_NE(key(spec, *a).plan_key, key(power, *a).plan_key);
  EXPECT_NE(key(spec, *a).plan_key, key(Spec(kernels::EngineKind::kJacobi), *a).plan_key);
}

TEST_F(AdapterTest, NewValuesAreARebuild) {
  const ParsedSpec spec = Spec(kernels::EngineKind::kStaticSpai);
  auto first = Build("t", spec, *Prepare(Diagonal(3)));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->rebuild);
  auto second = Build("t", spec, *Prepare(Diagonal(3, 2)));
  EXPECT_TRUE(second->rebuild);
  EXPECT_EQ(second->plan_ms, 0);
  EXPECT_EQ(engine_.plans, 1);
  EXPECT_EQ(engine_.builds, 2);
  EXPECT_EQ(second->kernel->matrix().values[0], 0.5) << "of the new values";
  // Another tenant's plan is its own.
  EXPECT_FALSE(Build("u", spec, *Prepare(Diagonal(3)))->rebuild);
  EXPECT_EQ(adapter_.plan_cache().entries, 2);
  EXPECT_EQ(adapter_.plan_cache().hits, 1);
}

// As if it took somebody's time to find a pattern of the same XXH3.
TEST_F(AdapterTest, AForgedPatternHasAPlanOfItsOwn) {
  const ParsedSpec spec = Spec(kernels::EngineKind::kStaticSpai);
  const auto honest = Prepare(Diagonal(2));
  const auto forged = std::const_pointer_cast<Matrix>(Prepare(Upper()));
  forged->pattern =
      std::make_shared<const StoredPattern>(forged->pattern->csc(), honest->pattern->digest());
  ASSERT_TRUE(Build("t", spec, *honest).ok());
  EXPECT_FALSE(Build("t", spec, *forged)->rebuild);
  EXPECT_EQ(engine_.plans, 2);
  // As a base pattern, too.
  const auto key = [&](const Matrix& pattern) {
    return *adapter_.Resolve(spec, *honest, &pattern);
  };
  EXPECT_NE(key(*honest).plan_key, key(*forged).plan_key);
  EXPECT_NE(key(*honest).content_key, key(*forged).content_key);
}

TEST_F(AdapterTest, TellsSha256OnceItIsKnown) {
  const auto a = Prepare(Diagonal(3));
  const auto shown = [&] { return ToProto(Stored<Matrix>{"matrices/1", a}, false).digest(); };
  EXPECT_EQ(a->pattern->known_sha256(), nullptr);
  EXPECT_EQ(a->known_values_sha256(), nullptr);
  EXPECT_EQ(shown().pattern_sha256(), "");
  EXPECT_EQ(a->pattern->sha256(), PatternSha256(3, a->csc().col_ptr, a->csc().row_idx));
  EXPECT_EQ(shown().pattern_sha256(), a->pattern->sha256().ToBytes());
  EXPECT_EQ(shown().values_sha256(), "");
  EXPECT_EQ(a->values_sha256(), ValueSha256(a->values));
  EXPECT_EQ(shown().values_sha256(), ValueSha256(a->values).ToBytes());
  kernels::CscMatrix raw = Diagonal(3);
  raw.values.clear();
  const auto pattern = Prepare(std::move(raw), {.pattern_only = true});
  EXPECT_EQ(pattern->pattern->sha256(), a->pattern->sha256());
  EXPECT_FALSE(pattern->SameContent(*a));
}

// [0 2; 3 4] by columns is 3 | 2 4, by rows 2 | 3 4.
TEST_F(AdapterTest, Sha256ByRowsIsThatOfTheArraysByRows) {
  kernels::CscMatrix raw;
  raw.n_rows = raw.n_cols = 2;
  raw.col_ptr = {0, 1, 3};
  raw.row_idx = {1, 0, 1};
  raw.values = {3, 2, 4};
  const auto a = Prepare(std::move(raw));
  const std::vector<int64_t> row_ptr{0, 1, 3};
  const std::vector<int32_t> col_idx{1, 0, 1};
  const std::vector<double> by_rows{2, 3, 4};
  EXPECT_EQ(a->pattern->sha256(/*by_rows=*/true), PatternSha256(2, row_ptr, col_idx));
  const auto places = adapter_.PlacesByRows("t", *a->pattern, {});
  ASSERT_TRUE(places.ok());
  EXPECT_EQ(a->values_sha256_by_rows(**places), ValueSha256(by_rows));
}

TEST_F(AdapterTest, APlanThatReadValuesIsNotKept) {
  ParsedSpec spec = Spec(kernels::EngineKind::kStaticSpai);
  spec.spec.static_spai.pattern.keep_tau = 0.5;
  ASSERT_TRUE(Build("t", spec, *Prepare(Diagonal(3))).ok());
  EXPECT_FALSE(Build("t", spec, *Prepare(Diagonal(3, 2)))->rebuild);
  EXPECT_EQ(engine_.plans, 2);
  EXPECT_EQ(adapter_.plan_cache().entries, 0);
}

class FsaiAdapterTest : public AdapterTest {
 protected:
  static ParsedSpec Afsai(bool regrow = false) {
    ParsedSpec spec = Spec(kernels::EngineKind::kAfsai);
    spec.spec.fsai.k_max = 1;
    spec.regrow = regrow;
    return spec;
  }
  absl::StatusOr<BuiltPreconditioner> Build(const ParsedSpec& spec, const Matrix& a,
                                            const std::string& tenant = "t") {
    auto resolved = real_.Resolve(spec, a, nullptr);
    if (!resolved.ok()) return resolved.status();
    return real_.Build(tenant, *resolved, a, nullptr, {.device = "cpu"}, *RunningJob());
  }

  std::unique_ptr<kernels::Engine> cpu_ = kernels::MakeCpuEngine();
  EngineAdapter real_{*cpu_, {.threads = 1, .plan_cache_bytes = 1 << 20}};
};

TEST_F(FsaiAdapterTest, WhatGrewServesTheNextValuesUntilItIsGrownAnew) {
  const auto a = Prepare(Banded(50)), next = Prepare(Banded(50, 1));
  auto first = Build(Afsai(), *a);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->rebuild);
  EXPECT_FALSE(first->quality.fsai().pattern_reused());
  EXPECT_EQ(real_.plan_cache().entries, 1);
  EXPECT_GE(real_.plan_cache().bytes, 4 * first->kernel->matrix().nnz()) << "the pattern counts";

  auto again = Build(Afsai(), *next);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->rebuild);
  EXPECT_TRUE(again->quality.fsai().pattern_reused());
  EXPECT_EQ(again->plan_ms, 0);
  EXPECT_EQ(again->kernel->matrix().row_idx, first->kernel->matrix().row_idx);

  auto anew = Build(Afsai(/*regrow=*/true), *next);
  ASSERT_TRUE(anew.ok());
  EXPECT_FALSE(anew->rebuild);
  EXPECT_FALSE(anew->quality.fsai().pattern_reused());
  EXPECT_NE(anew->kernel->matrix().row_idx, first->kernel->matrix().row_idx);
  // That pattern is the one that follows.
  auto last = Build(Afsai(), *a);
  ASSERT_TRUE(last.ok());
  EXPECT_TRUE(last->rebuild);
  EXPECT_EQ(last->kernel->matrix().row_idx, anew->kernel->matrix().row_idx);
  EXPECT_EQ(real_.plan_cache().entries, 1);
  EXPECT_FALSE(Build(Afsai(), *next, "u")->rebuild) << "another tenant's is its own";
}

TEST_F(FsaiAdapterTest, FactorsOfAScalingServeTheNextValuesAsLongAsTheyDo) {
  const auto rows = [&](int power) {  // row 3 is far from the others
    kernels::CscMatrix a = Banded(50);
    for (size_t p = 0; p < a.values.size(); ++p) {
      if (a.row_idx[p] == 3) a.values[p] = std::ldexp(a.values[p], power);
    }
    return Prepare(std::move(a));
  };
  const auto a = rows(20), next = rows(21), far = rows(-20);
  ParsedSpec spec = Spec(kernels::EngineKind::kStaticSpai);
  const auto unscaled = real_.Resolve(spec, *a, nullptr);
  spec.spec.scaling = kernels::ScalingMode::kEquilibrate;
  const auto scaled = real_.Resolve(spec, *a, nullptr);
  EXPECT_NE(unscaled->content_key, scaled->content_key);
  EXPECT_NE(unscaled->plan_key, scaled->plan_key);

  auto first = Build(spec, *a);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->quality.scaling(), v1::SCALING_EQUILIBRATE);
  EXPECT_FALSE(first->quality.scaling_reused());
  auto again = Build(spec, *next);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->rebuild);
  EXPECT_TRUE(again->quality.scaling_reused());
  auto other = Build(spec, *far);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->quality.scaling_reused());
  EXPECT_EQ(real_.plan_cache().entries, 1) << "the new factors are those that are kept";
  EXPECT_FALSE(Build(spec, *far)->quality.scaling_reused()) << "they are its own";
  EXPECT_FALSE(Build(spec, *a)->quality.scaling_reused());

  ParsedSpec grown = Afsai();
  grown.spec.scaling = kernels::ScalingMode::kEquilibrate;
  const auto d = Prepare(Diagonal(30, 1)), e = Prepare(Diagonal(30, 2));
  ASSERT_TRUE(Build(grown, *d).ok());
  ParsedSpec anew = grown;
  anew.regrow = true;
  EXPECT_FALSE(Build(anew, *e)->rebuild);
  EXPECT_FALSE(Build(anew, *e)->quality.scaling_reused());
}

TEST_F(FsaiAdapterTest, KeysFollowWhatTheyStandFor) {
  const auto a = Prepare(Banded(9)), pattern = Prepare(Diagonal(9));
  const auto key = [&](const ParsedSpec& spec, const Matrix* base = nullptr) {
    return *real_.Resolve(spec, *a, base);
  };
  EXPECT_EQ(key(Afsai()).plan_key, key(Afsai(true)).plan_key) << "it grows for the others";
  EXPECT_NE(key(Afsai()).content_key, key(Afsai(true)).content_key);
  EXPECT_EQ(key(Afsai(true)).content_key, key(Afsai(true)).content_key);
  EXPECT_TRUE(key(Afsai(true)).proto.fsai().regrow());
  EXPECT_NE(key(Afsai()).plan_key, key(Afsai(), pattern.get()).plan_key);
  ParsedSpec timed = Afsai();
  timed.spec.fsai.time_budget_ms = 1e6;
  EXPECT_NE(key(timed).content_key, key(timed).content_key) << "time decides what it becomes";
  ParsedSpec fixed = Spec(kernels::EngineKind::kFsai);
  fixed.regrow = true;
  EXPECT_EQ(key(fixed).content_key, key(Spec(kernels::EngineKind::kFsai)).content_key)
      << "there is nothing to grow";
  const auto refused = real_.Resolve(Afsai(), *a, Prepare(Diagonal(8)).get());
  EXPECT_EQ(ReasonOf(refused.status()), "PATTERN_SIZE_MISMATCH");
  EXPECT_EQ(FieldOf(refused.status()), "fsai.pattern_matrix");
}

TEST_F(FsaiAdapterTest, ARungToStartAtTakesNoRhsThatIsNotFinite) {
  const auto a = Prepare(Banded(9));
  EngineAdapter::Ladder ladder;
  ladder.rung.kind = kernels::RungKind::kDenseLu;
  ladder.straight = true;
  kernels::SolveOptions options;
  options.method = kernels::Method::kBicgstab;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    std::vector<double> b(9, 1.0);
    b[4] = bad;
    const auto solved =
        real_.Solve(a, nullptr, b, {}, options, {.device = "cpu"}, *RunningJob(), &ladder);
    EXPECT_EQ(ReasonOf(solved.status()), "NON_FINITE_VALUE");
    EXPECT_EQ(FieldOf(solved.status()), "rhs");
  }
}

TEST_F(FsaiAdapterTest, RefusalsOfTheBuildKeepTheirReason) {
  auto nonsymmetric = Prepare(Upper());
  const auto built = Build(Afsai(), *nonsymmetric);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(built.status()), reason::kNotSymmetric);
  const auto negative = Build(Spec(kernels::EngineKind::kFsai), *Prepare(Diagonal(3, -1)));
  EXPECT_EQ(negative.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(negative.status()), reason::kNotPositiveDefinite);
}

TEST_F(FsaiAdapterTest, BothFactorsCount) {
  using kernels::EngineKind;
  EXPECT_EQ(StoredEntries(EngineKind::kNone, 5, 0), 0);
  EXPECT_EQ(StoredEntries(EngineKind::kJacobi, 5, 5), 0);
  EXPECT_EQ(StoredEntries(EngineKind::kJacobi, 5, 25), 25);
  EXPECT_EQ(StoredEntries(EngineKind::kStaticSpai, 5, 5), 5);
  EXPECT_EQ(StoredEntries(EngineKind::kFsai, 5, 9), 18);
  EXPECT_EQ(StoredEntries(EngineKind::kAfsai, 5, 9), 18);
}

TEST_F(AdapterTest, AFailedBuildSaysWhy) {
  engine_.FailBuilds(
      kernels::Status(kernels::StatusCode::kFailedPrecondition, "ZERO_DIAGONAL", "a(1, 1) is 0")
          .At("values", 1));
  const auto built = Build("t", Spec(kernels::EngineKind::kJacobi), *Prepare(Diagonal(3)));
  EXPECT_EQ(ReasonOf(built.status()), "ZERO_DIAGONAL");
  EXPECT_EQ(MetaOf(built.status(), "index"), "1");
}

TEST_F(AdapterTest, AStoppedJobStopsItsBuild) {
  auto a = Prepare(Diagonal(3));
  auto job = RunningJob();
  auto resolved = adapter_.Resolve(Spec(kernels::EngineKind::kJacobi), *a, nullptr);
  engine_.HoldBuilds();
  job->RequestStop(StopCause::kMaxRun);  // before the build has even begun
  const auto built = adapter_.Build("t", *resolved, *a, nullptr, {.device = "cpu"}, *job);
  EXPECT_EQ(built.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(AdapterTest, ProgressAndResidualsReachTheJob) {
  auto a = Prepare(Diagonal(3));
  auto job = RunningJob();
  auto resolved = adapter_.Resolve(Spec(kernels::EngineKind::kJacobi), *a, nullptr);
  ASSERT_TRUE(adapter_.Build("t", *resolved, *a, nullptr, {.device = "cpu"}, *job).ok());
  const std::vector<double> b{1, 2, 3};
  auto solved = adapter_.Solve(a, nullptr, b, {}, {}, {.device = "cpu"}, *job);
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->result.x[2], 1);
  job->Finish(absl::OkStatus());
  int progress = 0, residuals = 0;
  for (const auto& event : job->Read(1, 100).events) {
    progress += event.has_progress();
    residuals += event.residuals().residuals_size();
  }
  EXPECT_EQ(progress, 4) << "beginning and end of the build, and of the solve";
  EXPECT_EQ(residuals, 3);
}

TEST_F(AdapterTest, ResidualsAreTheJobsAlone) {
  const auto engine = kernels::MakeCpuEngine();
  EngineAdapter adapter(*engine, {.threads = 1});
  const std::vector<double> b{6, 6, 0, 0};  // the second right-hand side is zero
  kernels::SolveOptions options;
  options.method = kernels::Method::kGmres;
  auto job = RunningJob();
  auto solved = adapter.Solve(Prepare(Upper()), nullptr, b, {}, options, {.device = "cpu"}, *job);
  ASSERT_TRUE(solved.ok()) << solved.status();
  for (const kernels::RhsResult& rhs : solved->result.rhs) EXPECT_TRUE(rhs.history.empty());
  job->Finish(absl::OkStatus());
  int residuals = 0;
  for (const auto& event : job->Read(1, 100).events) {
    residuals += event.residuals().residuals_size();
  }
  EXPECT_GE(residuals, 3) << "of the first two or more, of the second one";
}

TEST_F(AdapterTest, RefusesWhatIsTooLarge) {
  EngineAdapter small(engine_, {.threads = 1, .max_build_bytes = 1000});
  kernels::BuildEstimate estimate;
  estimate.host_bytes = 1000;
  EXPECT_TRUE(small.AdmitBuild(estimate).ok());
  estimate.host_bytes = 1001;
  EXPECT_EQ(ReasonOf(small.AdmitBuild(estimate)), "BUILD_TOO_LARGE");
  EXPECT_EQ(MetaOf(small.AdmitBuild(estimate), "actual"), "1001");
  EXPECT_TRUE(adapter_.AdmitBuild(estimate).ok()) << "no limit";
  EngineAdapter narrow(engine_, {.threads = 1, .max_result_bytes = 500});
  estimate.download_bytes = 500;
  EXPECT_TRUE(narrow.AdmitResult(estimate).ok());
  estimate.download_bytes = 501;
  EXPECT_EQ(ReasonOf(narrow.AdmitResult(estimate)), "BUILD_TOO_LARGE");
  EXPECT_NE(narrow.AdmitResult(estimate).message().find("--preconditioner-store-bytes"),
            absl::string_view::npos);
  EXPECT_TRUE(adapter_.AdmitResult(estimate).ok()) << "no limit";
  // Ten vectors of ten numbers and the answer (880 bytes), the rows (10 entries of 12 bytes, 11
  // pointers, 10 counters).
  EngineAdapter solves(engine_, {.threads = 1, .max_build_bytes = 1128});
  auto a = Prepare(Diagonal(10));
  kernels::SolveOptions options;
  EXPECT_TRUE(solves.AdmitSolve(*a, 0, 1, options).ok()) << "1128 bytes";
  EXPECT_EQ(MetaOf(solves.AdmitSolve(*a, 20, 2, options), "actual"), "1368")
      << "M in fp32 beside it, and a vector between its factors";
  EXPECT_EQ(MetaOf(solves.AdmitSolve(*a, 0, 2, options), "actual"), "1208");
  EXPECT_EQ(ReasonOf(solves.AdmitSolve(*a, 0, 2, options)), "SOLVE_TOO_LARGE");
  options.method = kernels::Method::kCg;
  EXPECT_TRUE(solves.AdmitSolve(*a, 0, 2, options).ok());
  options.method = kernels::Method::kGmres;
  EXPECT_EQ(MetaOf(solves.AdmitSolve(*a, 0, 1, options), "actual"), "2488")
      << "n vectors hold every Krylov space of n unknowns";
  options.max_iterations = 4;
  EXPECT_EQ(MetaOf(solves.AdmitSolve(*a, 0, 1, options), "actual"), "1432")
      << "the basis never grows longer";
}

}  // namespace
}  // namespace spaid::server
