// The engine on ranks that are none: a device that computes in this process shows what the engine
// asks of it. Real ranks are those of tests/kernels/mpi and tests/e2e/mpi.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/jacobi.h"
#include "kernels/engine/ladder.h"
#include "kernels/engine/spec.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/operators.h"
#include "kernels/mpi/ranks_device.h"
#include "kernels/sparse/transpose.h"
#include "tests/oracle/generators.h"

namespace spaid::kernels {
namespace {

CscMatrix CopyOf(const CscView& a) {
  CscMatrix copy{a.n_rows, a.n_cols, {}, {}, {}};
  copy.col_ptr.assign(a.col_ptr.begin(), a.col_ptr.end());
  copy.row_idx.assign(a.row_idx.begin(), a.row_idx.end());
  copy.values.assign(a.values.begin(), a.values.end());
  return copy;
}

class OneProcess final : public RanksDevice {
 public:
  struct Lies final : OverRanks {
    explicit Lies(OneProcess& device) : of(device) { ++of.alive; }
    ~Lies() override { --of.alive; }
    int64_t bytes() const override { return 1000; }
    int64_t nnz() const override { return matrix.nnz(); }

    OneProcess& of;
    CscMatrix matrix;  // A, M, or G by columns
    bool factor = false;
    std::shared_ptr<const StaticSpaiPlan> plan;
    StaticSpaiOptions options;
  };

  OneProcess() {
    info_.backend = Backend::kRanks;
    info_.index = 3;
    info_.memory_bytes = 1 << 30;
    info_.threads = 3;
  }
  int64_t used_bytes() const override { return 1000 * alive; }
  Status Probe() override {
    ++probes;
    return {};
  }
  Result<std::unique_ptr<RanksInput>> BeginInput(std::span<const int64_t>, int64_t, Layout,
                                                 bool) override {
    return Status(StatusCode::kInternal, "INTERNAL", "nothing comes piece by piece here");
  }
  Result<std::unique_ptr<RanksInput>> BeginInput(const OverRanks&, Layout) override {
    return Status(StatusCode::kInternal, "INTERNAL", "nothing comes piece by piece here");
  }
  Result<RankBytes> Bound(const PatternView& a, const BuildToBound& build) const override {
    return RankBytes{1000 * a.n_cols + build.nnz_m, 7};
  }
  Shares SharesOf(const OverRanks& a) const override {
    const CscMatrix& matrix = Of(a).matrix;
    Shares shares{.n = matrix.n_cols, .nnz = matrix.nnz()};
    for (int64_t j = 0; j < matrix.n_cols; ++j) {
      shares.longest_column =
          std::max(shares.longest_column, std::ssize(CscView(matrix).column(j)));
    }
    return shares;
  }
  Result<RankBytes> Bound(const Shares& a, const BuildToBound& build) const override {
    return RankBytes{1000 * a.n + build.nnz_m, 7};
  }
  Result<bool> Same(const OverRanks& a, const OverRanks& b) override { return &a == &b; }
  Status Multiply(const OverRanks& a, std::span<const double> x, std::span<double> y) override {
    ++products;
    ColumnOperator(Of(a).matrix).Apply(x, y, 1);
    return {};
  }
  Result<std::unique_ptr<RanksOutput>> BeginOutput(const OverRanks&, Layout) override {
    return Status(StatusCode::kInternal, "INTERNAL", "nothing goes piece by piece here");
  }
  // A matrix that lies here alone, by the stand-in of that number.
  CscView StandIn(const CscMatrix& matrix) {
    alone_ = std::make_shared<Lies>(*this);
    alone_->matrix = matrix;
    number_ = {7};
    return {{matrix.n_rows, matrix.n_cols, number_, {}}, {}};
  }
  void Forget() { alone_.reset(); }
  Made SpreadMatrix(const CscView& a, const Context&) override {
    if (IsStandIn(a)) return Made(alone_);
    ++spreads;
    return Lay(a, false);
  }
  Made SpreadM(const CscView& m, bool factor, const Context&) override {
    ++spreads_of_m;
    return Lay(m, factor);
  }
  Made PlanStaticSpai(const OverRanks& a, const PatternView* user, const StaticSpaiOptions& options,
                      const Context& context) override {
    ++plans;
    auto lies = std::make_shared<Lies>(*this);
    auto plan = kernels::PlanStaticSpai(Of(a).matrix, user, options, context);
    if (!plan.ok()) return plan.status();
    lies->plan = *std::move(plan);
    lies->options = options;
    return Made(std::move(lies));
  }
  Result<Grown> GrowDynamicSpai(const OverRanks& a, const PatternView* initial,
                                const DynamicSpaiOptions& options,
                                const Context& context) override {
    auto grown = kernels::GrowDynamicSpai(Of(a).matrix, initial, options, context);
    if (!grown.ok()) return grown.status();
    const PatternView m = grown->m;
    auto plan = PlanStaticSpai(a, &m, NumbersOf(options), context);
    if (!plan.ok()) return plan.status();
    return Grown{*std::move(plan), std::move(grown->quality)};
  }
  Result<Built> BuildStaticSpai(const OverRanks& plan, const OverRanks& a,
                                const Context& context) override {
    auto m = kernels::BuildStaticSpai(*Of(plan).plan, Of(a).matrix, Of(plan).options, context);
    if (!m.ok()) return m.status();
    Built built;
    auto lies = std::make_shared<Lies>(*this);
    lies->matrix = m->m;
    built.there = std::move(lies);
    if (&a != alone_.get()) built.m = std::move(m->m);
    built.quality = std::move(m->quality);
    built.gather_ms = 7;
    return built;
  }
  Result<Built> BuildFsai(const OverRanks& a, const PatternView* user_rows,
                          const FsaiOptions& options, const Context& context) override {
    auto g = kernels::BuildFsai(Of(a).matrix, user_rows, options, context);
    if (!g.ok()) return g.status();
    Built built;
    auto lies = std::make_shared<Lies>(*this);
    lies->matrix = *Transpose(g->g_rows, context);
    lies->factor = true;
    built.there = std::move(lies);
    if (&a != alone_.get()) built.m = std::move(g->g_rows);
    built.fsai = std::move(g->quality);
    return built;
  }
  Result<Built> BuildJacobi(const OverRanks& a, const Context& context) override {
    auto jacobi = kernels::BuildJacobi(Of(a).matrix, context);
    if (!jacobi.ok()) return jacobi.status();
    Built built;
    auto lies = std::make_shared<Lies>(*this);
    lies->matrix = std::move(jacobi->m);
    built.there = std::move(lies);
    built.quality = std::move(jacobi->quality);
    return built;
  }
  // The inverse of the diagonal, whatever is asked for.
  Result<Built> BuildPetsc(const OverRanks& a, PetscMethod method,
                           const PetscEngineOptions& options, std::span<const double> near_null,
                           const Context& context) override {
    methods.push_back(method);
    last_options = options;
    last_near_null.assign(near_null.begin(), near_null.end());
    auto built = BuildJacobi(a, context);
    if (!built.ok()) return built.status();
    built->petsc.levels = 4;
    return built;
  }
  Result<SolveResult> Solve(const OverRanks& a, const OverRanks* m, std::span<const double> b,
                            std::span<const double> x0, const SolveOptions& options,
                            const Context& context) override {
    ++solves;
    const auto rows = CsrOperator::FromColumns(Of(a).matrix, context);
    if (m == nullptr) return kernels::Solve(*rows, nullptr, b, x0, options, context);
    if (!Of(*m).factor) {
      const ColumnOperator by(Of(*m).matrix);
      return kernels::Solve(*rows, &by, b, x0, options, context);
    }
    const FactoredOperator by(
        std::make_shared<CsrOperator>(*CsrOperator::FromColumns(Of(*m).matrix, context)),
        std::make_shared<CsrOperator>(CsrOperator::FromRows(CscView(Of(*m).matrix))));
    return kernels::Solve(*rows, &by, b, x0, options, context);
  }

  std::vector<PetscMethod> methods;
  PetscEngineOptions last_options;
  std::vector<double> last_near_null;
  int alive = 0, probes = 0, spreads = 0, spreads_of_m = 0, plans = 0, solves = 0;
  int products = 0;

 private:
  std::shared_ptr<Lies> alone_;
  Array<int64_t> number_;
  static const Lies& Of(const OverRanks& over) { return static_cast<const Lies&>(over); }
  Made Lay(const CscView& matrix, bool factor) {
    auto lies = std::make_shared<Lies>(*this);
    lies->matrix = CopyOf(matrix);
    lies->factor = factor;
    return Made(std::move(lies));
  }
};

class Ranks : public ::testing::Test {
 protected:
  PreconditionerSpec Spec(EngineKind kind) {
    PreconditionerSpec spec;
    spec.engine = kind;
    return spec;
  }
  std::shared_ptr<const Plan> PlanOf(const PreconditionerSpec& spec, int device = 1) {
    Context context;
    context.device = device;
    auto plan = engine_->MakePlan(spec, a_, nullptr, context);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? *std::move(plan) : nullptr;
  }
  BuildResult BuiltOn(const PreconditionerSpec& spec, int device) {
    Context context;
    context.device = device;
    const auto plan = PlanOf(spec, device);
    if (plan == nullptr) return {};
    auto built = plan->Build(spec, a_, context);
    EXPECT_TRUE(built.ok()) << built.status().message();
    return built.ok() ? *std::move(built) : BuildResult{};
  }
  SolveResult SolvedThere(const Preconditioner* m, const SolveOptions& options) {
    Context context;
    context.device = 1;
    const auto a_there = engine_->Place(CscView(a_), context);
    EXPECT_TRUE(a_there.ok()) << a_there.status().message();
    const PlaceM place_m = [&](Storage storage) { return engine_->Place(*m, storage, context); };
    const std::vector<double> b(static_cast<size_t>(a_.n_cols), 1.0);
    auto solved = engine_->SolveOnDevice(a_, **a_there, m, place_m, b, {}, options, context);
    EXPECT_TRUE(solved.ok()) << solved.status().message();
    return solved.ok() ? *std::move(solved) : SolveResult{};
  }

  const std::shared_ptr<OneProcess> ranks_ = std::make_shared<OneProcess>();
  const std::unique_ptr<Engine> engine_ = MakeEngine(true, {}, ranks_);
  CscMatrix a_ = oracle::Laplacian2d(12, 11);
};

TEST_F(Ranks, AreADeviceBehindTheOthers) {
  const std::vector<DeviceInfo> devices = engine_->Devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].backend, Backend::kRanks);
  EXPECT_TRUE(engine_->Probe(1).ok());
  EXPECT_EQ(ranks_->probes, 1);
  EXPECT_EQ(engine_->State(1).limit_bytes, 1 << 30);
  EXPECT_EQ(engine_->State(0).limit_bytes, 0);
}

TEST_F(Ranks, BuildTheMOfTheHostAndKeepIt) {
  for (const EngineKind kind :
       {EngineKind::kStaticSpai, EngineKind::kFsai, EngineKind::kDynamicSpai, EngineKind::kAfsai}) {
    const BuildResult there = BuiltOn(Spec(kind), 1), here = BuiltOn(Spec(kind), 0);
    ASSERT_NE(there.preconditioner, nullptr);
    EXPECT_EQ(there.preconditioner->matrix().values, here.preconditioner->matrix().values);
    EXPECT_EQ(there.preconditioner->matrix().row_idx, here.preconditioner->matrix().row_idx);
    EXPECT_EQ(there.quality.density, here.quality.density);
    EXPECT_EQ(there.preconditioner->device_bytes(), 1000);
    EXPECT_GT(there.timings.host_to_device_ms, 0);
    // It solves there with what the build left; dropped, M is brought again.
    const int before = ranks_->spreads_of_m;
    SolveOptions options;
    options.method = TraitsOf(kind).factored ? Method::kCg : Method::kBicgstab;
    EXPECT_EQ(SolvedThere(there.preconditioner.get(), options).rhs.at(0).outcome,
              Outcome::kConverged);
    EXPECT_EQ(ranks_->spreads_of_m, before);
    there.preconditioner->DropDeviceCopy();
    EXPECT_EQ(there.preconditioner->device_bytes(), 0);
    const SolveResult again = SolvedThere(there.preconditioner.get(), options);
    EXPECT_EQ(again.rhs.at(0).outcome, Outcome::kConverged);
    EXPECT_EQ(again.m_storage, Storage::kFp64);
    EXPECT_EQ(ranks_->spreads_of_m, before + 1);
  }
  EXPECT_EQ(ranks_->alive, 0) << "what lies there ends with its owners";
}

TEST_F(Ranks, APlanServesOtherValues) {
  const PreconditionerSpec spec = Spec(EngineKind::kStaticSpai);
  const auto plan = PlanOf(spec);
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(plan->serves_new_values());
  for (double& value : a_.values) value *= 2;
  Context context;
  context.device = 1;
  const auto built = plan->Build(spec, a_, context);
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_EQ(ranks_->plans, 1);
  EXPECT_EQ(built->preconditioner->matrix().values,
            BuiltOn(spec, 0).preconditioner->matrix().values);
  EXPECT_EQ(built->timings.device_to_host_ms, 7);
  // A plan is its device's.
  EXPECT_EQ(plan->Build(spec, a_, {}).status().reason(), "PLAN_MISMATCH");
}

// A build that grows a pattern there leaves a plan for other values on it.
TEST_F(Ranks, APatternThatHasGrownServesOtherValues) {
  for (const EngineKind kind : {EngineKind::kDynamicSpai, EngineKind::kAfsai}) {
    const PreconditionerSpec spec = Spec(kind);
    const BuildResult there = BuiltOn(spec, 1), here = BuiltOn(spec, 0);
    ASSERT_NE(there.grown, nullptr);
    ASSERT_NE(here.grown, nullptr);
    EXPECT_TRUE(there.grown->serves_new_values());
    EXPECT_FALSE(there.quality.pattern_reused);
    const CscMatrix before = a_;
    for (size_t p = 0; p < a_.values.size(); ++p) a_.values[p] *= a_.values[p] > 0 ? 1.5 : 1;
    Context context;
    context.device = 1;
    const auto again = there.grown->Build(spec, a_, context);
    const auto expected = here.grown->Build(spec, a_, {});
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    EXPECT_TRUE(again->quality.pattern_reused);
    EXPECT_EQ(again->preconditioner->matrix().values, expected->preconditioner->matrix().values);
    a_ = before;
  }
}

TEST_F(Ranks, EstimatesBoundWhatARankTakes) {
  const auto estimate = [&](EngineKind kind, ScalingMode scaling = ScalingMode::kNone) {
    PreconditionerSpec spec = Spec(kind);
    spec.scaling = scaling;
    auto found = engine_->Estimate(spec, a_, nullptr, {});
    EXPECT_TRUE(found.ok()) << found.status().message();
    return *std::move(found);
  };
  for (const EngineKind kind :
       {EngineKind::kStaticSpai, EngineKind::kFsai, EngineKind::kDynamicSpai, EngineKind::kAfsai}) {
    const BuildEstimate e = estimate(kind);
    EXPECT_EQ(e.rank_bytes, 1000 * a_.n_cols + e.nnz_m);
    EXPECT_EQ(e.halo_bytes, 7);
  }
  EXPECT_EQ(estimate(EngineKind::kJacobi).rank_bytes, 0);
  EXPECT_EQ(estimate(EngineKind::kStaticSpai, ScalingMode::kEquilibrate).rank_bytes, 0);
}

TEST_F(Ranks, EnginesThatTheyDoNotBuildAreRank0s) {
  for (const EngineKind kind : {EngineKind::kJacobi, EngineKind::kAmg}) {
    EXPECT_NE(BuiltOn(Spec(kind), 1).preconditioner, nullptr);
  }
  EXPECT_EQ(ranks_->spreads, 0);
  // Jacobi's M and a G that grew here multiply there; a hierarchy does not.
  SolveOptions options;
  options.method = Method::kCg;
  for (const EngineKind kind : {EngineKind::kJacobi, EngineKind::kAfsai}) {
    const BuildResult built = BuiltOn(Spec(kind), 0);
    EXPECT_EQ(SolvedThere(built.preconditioner.get(), options).rhs.at(0).outcome,
              Outcome::kConverged);
  }
  EXPECT_EQ(ranks_->solves, 2);
  EXPECT_EQ(ranks_->spreads_of_m, 2);
}

TEST_F(Ranks, AMatrixThatLiesThereAloneIsBuiltForAndSolvedThere) {
  const CscView a = ranks_->StandIn(a_);
  Diagnosis diagnosis = Diagnose(a_, 1);
  PreconditionerSpec spec = Spec(EngineKind::kAuto);
  const auto resolved = engine_->Resolve(spec, a, diagnosis, nullptr, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  EXPECT_EQ(resolved->spec.engine, EngineKind::kJacobi) << "the bottom of AUTO's ladder";
  EXPECT_THAT(resolved->reason, testing::HasSubstr("lies over the ranks, which have no multigrid"));
  Context there;
  there.device = 1;
  const PreconditionerSpec fsai = Spec(EngineKind::kFsai);
  const auto guess = engine_->Estimate(fsai, a, nullptr, there);
  ASSERT_TRUE(guess.ok()) << guess.status().message();
  EXPECT_GT(guess->predicted_ms, 0);
  EXPECT_EQ(guess->rank_bytes, 1000 * a_.n_cols + a_.nnz() + a_.n_cols) << "no less than G has";
  EXPECT_EQ(guess->halo_bytes, 7);
  const auto of_any = engine_->Estimate(spec, a, nullptr, there);
  ASSERT_TRUE(of_any.ok()) << of_any.status().message();
  EXPECT_GE(of_any->rank_bytes, guess->rank_bytes);
  EXPECT_GE(of_any->predicted_ms, guess->predicted_ms);
  const auto plan = engine_->MakePlan(fsai, a, nullptr, there);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto built = (*plan)->Build(fsai, a, there);
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Preconditioner& m = *built->preconditioner;
  EXPECT_EQ(m.form(), MForm::kOverRanks);
  EXPECT_EQ(m.matrix().n_cols, a_.n_cols);
  EXPECT_EQ(m.matrix().nnz(), 0);
  EXPECT_EQ(m.nnz(), (a_.nnz() + a_.n_cols) / 2) << "of G, there";
  m.DropDeviceCopy();  // which is none: nobody could make it again
  const auto a_there = engine_->Place(a, there);
  ASSERT_TRUE(a_there.ok());
  const PlaceM place_m = [&](Storage storage) { return engine_->Place(m, storage, there); };
  const std::vector<double> b(static_cast<size_t>(a_.n_cols), 1.0);
  SolveOptions options;
  options.method = Method::kCg;
  const auto solved = engine_->SolveOnDevice(a, **a_there, &m, place_m, b, {}, options, there);
  ASSERT_TRUE(solved.ok()) << solved.status().message();
  EXPECT_EQ(solved->rhs.at(0).outcome, Outcome::kConverged);

  // Rank 0 has nothing of it.
  const auto expect_refused = [](const Status& status) {
    EXPECT_EQ(status.reason(), "MATRIX_OVER_RANKS") << status.message();
  };
  expect_refused(engine_->MakePlan(fsai, a, nullptr, {}).status());
  expect_refused(engine_->MakePlan(Spec(EngineKind::kJacobi), a, nullptr, {}).status());
  expect_refused(engine_->Solve(a, nullptr, b, {}, options, {}).status());
  expect_refused(engine_->Solve(a_, &m, b, {}, options, {}).status());
  expect_refused(engine_->Resolve(Spec(EngineKind::kAmg), a, diagnosis, nullptr, {}).status());
  spec = Spec(EngineKind::kJacobi);
  spec.block_size = 4;
  expect_refused(engine_->Resolve(spec, a, diagnosis, nullptr, {}).status());
  spec = Spec(EngineKind::kStaticSpai);
  spec.static_spai.pattern.row_match = true;
  expect_refused(engine_->Resolve(spec, a, diagnosis, nullptr, {}).status());
  spec = Spec(EngineKind::kAfsai);
  EXPECT_TRUE(engine_->Resolve(spec, a, diagnosis, nullptr, {}).ok());
  spec.fsai.time_budget_ms = 10;
  expect_refused(engine_->Resolve(spec, a, diagnosis, nullptr, {}).status());
  const PatternView user = a_.pattern();
  expect_refused(engine_->Resolve(Spec(EngineKind::kFsai), a, diagnosis, &user, {}).status());
  ranks_->Forget();
}

// AUTO's bottom is a diagonal there, and stays there.
TEST_F(Ranks, JacobiOfAMatrixThatLiesThereAloneLiesThere) {
  const CscView a = ranks_->StandIn(a_);
  Context there;
  there.device = 1;
  const PreconditionerSpec spec = Spec(EngineKind::kJacobi);
  const auto plan = engine_->MakePlan(spec, a, nullptr, there);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto built = (*plan)->Build(spec, a, there);
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Preconditioner& m = *built->preconditioner;
  EXPECT_EQ(m.form(), MForm::kOverRanks);
  ASSERT_NE(m.over_ranks(), nullptr);
  EXPECT_EQ(m.nnz(), a_.n_cols);
  EXPECT_TRUE(m.for_cg());
  const BuildResult here = BuiltOn(spec, 0);
  EXPECT_EQ(here.preconditioner->over_ranks(), nullptr);
  EXPECT_EQ(built->quality.residual_frobenius, here.quality.residual_frobenius);
  ranks_->Forget();
}

class AnyRung final : public LadderSink {
 public:
  Status Enter(const std::string&, int64_t, double) override { return {}; }
  void OnRung(const Rung& rung) override { told.push_back(rung.what + ": " + rung.left); }
  std::vector<std::string> told;
};

// From the bottom up, here and over ranks: where both have the rungs, they end with the same one.
TEST_F(Ranks, AutoClimbsTheRungsThatAreThere) {
  struct Case {
    const char* name;
    CscMatrix a;
    RungKind start;
    bool same;  // the rung that solves it is one that ranks have
  };
  std::vector<Case> cases;
  const CscMatrix grid = oracle::Laplacian2d(40, 41);
  const CscMatrix convection = oracle::ConvectionDiffusion(40, 40, 50);
  cases.push_back({"grid", grid, RungKind::kBottom, true});
  cases.push_back({"grid", grid, RungKind::kFsai, true});
  cases.push_back({"grid", grid, RungKind::kAfsai, true});
  cases.push_back({"convection", convection, RungKind::kBottom, true});
  cases.push_back({"convection", convection, RungKind::kStaticSpai, true});
  cases.push_back({"convection", convection, RungKind::kDynamicSpai, true});
  cases.push_back({"convection", convection, RungKind::kLargeDynamicSpai, true});
  cases.push_back({"convection", convection, RungKind::kLongCycles, true});
  // Rank 0 has multigrid and MINRES for these, or scales them; ranks go to the next rung.
  cases.push_back({"grid", grid, RungKind::kAmg, false});
  cases.push_back({"permuted", oracle::RowPermuted(300, 5), RungKind::kBottom, false});
  cases.push_back({"singular", oracle::Singular(200, 3), RungKind::kBottom, false});
  for (const Case& c : cases) {
    const Diagnosis diagnosis = Diagnose(c.a, 1);
    std::vector<double> x(static_cast<size_t>(c.a.n_cols)), b(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i * i));
    if (std::string_view(c.name) != "singular") {
      ColumnOperator(c.a).Apply(x, b, 1);
    } else {
      b = x;
    }
    SolveOptions options;
    options.method = Method::kAuto;
    const CscView here = c.a;
    LadderCase of{.a = here, .diagnosis = diagnosis, .b = b, .options = options};
    AnyRung there_sink, here_sink;
    const auto alone = ClimbFrom(*engine_, of, {}, c.start, here_sink, {});
    Context there;
    there.device = 1;
    of.a = ranks_->StandIn(c.a);
    const auto placed = engine_->Place(of.a, there);
    const auto a_there = ranks_->SpreadMatrix(of.a, there);
    of.over = a_there->get();
    of.solve_there = [&](const std::shared_ptr<const Preconditioner>& m, std::span<const double> r,
                         std::span<const double> x0, const SolveOptions& terms,
                         const Context& context) {
      const PlaceM place_m = [&](Storage storage) { return engine_->Place(*m, storage, there); };
      return engine_->SolveOnDevice(of.a, **placed, m.get(), place_m, r, x0, terms, context);
    };
    const auto spread = ClimbFrom(*engine_, of, {}, c.start, there_sink, there);
    ASSERT_TRUE(alone.ok()) << c.name << alone.status().message();
    ASSERT_TRUE(spread.ok()) << c.name << spread.status().message();
    SCOPED_TRACE(std::string(c.name) + ": " + testing::PrintToString(here_sink.told) + " and " +
                 testing::PrintToString(there_sink.told));
    const RhsResult &one = alone->solved.rhs[0], &other = spread->solved.rhs[0];
    EXPECT_EQ(other.outcome, one.outcome) << other.detail;
    EXPECT_EQ(other.outcome == Outcome::kConverged, std::string_view(c.name) != "singular");
    if (c.same) {
      EXPECT_EQ(spread->best, alone->best);
    }
    if (other.outcome == Outcome::kConverged) {
      EXPECT_LE(other.true_relative_residual, options.rtol);
    } else {
      EXPECT_THAT(other.detail, testing::HasSubstr("over ranks there was no multigrid"));
    }
    EXPECT_GT(ranks_->products, 0);
    of.over = nullptr;
    ranks_->Forget();
  }
}

TEST_F(Ranks, BuildWhatHypreAndPetscHave) {
  PreconditionerSpec spec = Spec(EngineKind::kGamg);
  spec.petsc.smooths = 2;
  spec.petsc.levels = 7;  // ParaSails' alone
  auto near_null = std::make_shared<NearNullArrays>();
  near_null->count = 1;
  near_null->vectors.assign(static_cast<size_t>(a_.n_cols), 0.5);
  spec.near_null = near_null;
  Context there;
  there.device = 1;
  const Diagnosis diagnosis = Diagnose(a_, 1);
  const auto resolved = engine_->Resolve(spec, a_, diagnosis, nullptr, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  EXPECT_EQ(resolved->spec.petsc.levels, 1);
  const auto guess = engine_->Estimate(resolved->spec, a_, nullptr, there);
  ASSERT_TRUE(guess.ok());
  EXPECT_GT(guess->predicted_ms, 0);
  EXPECT_GT(guess->host_bytes, 0);
  const BuildResult built = BuiltOn(resolved->spec, 1);
  ASSERT_NE(built.preconditioner, nullptr);
  EXPECT_EQ(ranks_->methods.back(), PetscMethod::kGamg);
  EXPECT_EQ(ranks_->last_options.smooths, 2);
  EXPECT_EQ(ranks_->last_near_null,
            std::vector<double>(near_null->vectors.begin(), near_null->vectors.end()));
  EXPECT_EQ(built.quality.petsc->levels, 4);
  EXPECT_EQ(built.quality.density, static_cast<double>(a_.n_cols) / static_cast<double>(a_.nnz()));
  // M lies there, though A does not, and solves there alone.
  const Preconditioner& m = *built.preconditioner;
  EXPECT_EQ(m.form(), MForm::kOverRanks);
  EXPECT_EQ(m.matrix().nnz(), 0);
  EXPECT_TRUE(m.for_cg());
  m.DropDeviceCopy();
  EXPECT_EQ(SolvedThere(&m, {.method = Method::kCg}).rhs.at(0).outcome, Outcome::kConverged);
  const std::vector<double> b(static_cast<size_t>(a_.n_cols), 1.0);
  EXPECT_EQ(engine_->Solve(a_, &m, b, {}, {}, {}).status().reason(), "MATRIX_OVER_RANKS");
  near_null->vectors[3] = std::nan("");
  const auto wild = (*engine_->MakePlan(spec, a_, nullptr, there))->Build(spec, a_, there);
  EXPECT_EQ(wild.status().reason(), "BAD_NEAR_NULL_SPACE");
  EXPECT_EQ(wild.status().index(), 3);

  // ParaSails takes A for what it is, and CG follows from that.
  for (const bool symmetric : {true, false}) {
    Diagnosis of = diagnosis;
    of.numerically_symmetric = symmetric;
    const auto sails = engine_->Resolve(Spec(EngineKind::kParasails), a_, of, nullptr, {});
    ASSERT_TRUE(sails.ok());
    EXPECT_EQ(sails->spec.petsc.symmetry,
              symmetric ? ParasailsSymmetry::kSpd : ParasailsSymmetry::kGeneral);
    EXPECT_EQ(ForCg(sails->spec), symmetric);
    EXPECT_EQ(BuiltOn(sails->spec, 1).preconditioner->for_cg(), symmetric);
  }
  EXPECT_EQ(ranks_->methods.back(), PetscMethod::kParasails);
  // Nobody else builds them.
  const Status elsewhere = engine_->MakePlan(resolved->spec, a_, nullptr, {}).status();
  EXPECT_EQ(elsewhere.reason(), "RANKS_NEEDED");
  EXPECT_EQ(elsewhere.field(), "engine");

  // A matrix that lies there alone is one as any other to them.
  const CscView a = ranks_->StandIn(a_);
  const auto alone = engine_->Resolve(Spec(EngineKind::kBoomeramg), a, diagnosis, nullptr, {});
  ASSERT_TRUE(alone.ok()) << alone.status().message();
  EXPECT_GT(engine_->Estimate(alone->spec, a, nullptr, there)->predicted_ms, 0);
  const auto plan = engine_->MakePlan(alone->spec, a, nullptr, there);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE((*plan)->Build(alone->spec, a, there).ok());
  EXPECT_EQ(ranks_->methods.back(), PetscMethod::kBoomeramg);
  ranks_->Forget();
}

TEST_F(Ranks, RefuseWhatTheyDoNotDo) {
  const BuildResult built = BuiltOn(Spec(EngineKind::kStaticSpai), 1);
  Context context;
  context.device = 1;
  const auto a_there = engine_->Place(CscView(a_), context);
  ASSERT_TRUE(a_there.ok());
  const PlaceM place_m = [&](Storage s) {
    return engine_->Place(*built.preconditioner, s, context);
  };
  const std::vector<double> b(static_cast<size_t>(a_.n_cols), 1.0);
  SolveOptions options;
  const auto solve = [&] {
    return engine_
        ->SolveOnDevice(a_, **a_there, built.preconditioner.get(), place_m, b, {}, options, context)
        .status();
  };
  // Rank 0 stores M in fp32, and solves, where that is asked for.
  options.m_storage = Storage::kFp32;
  EXPECT_TRUE(solve().ok()) << solve().message();
  EXPECT_EQ(ranks_->solves, 0);
  options.m_storage = Storage::kAuto;
  options.method = Method::kCg;  // static SPAI's M is not for it
  EXPECT_EQ(solve().reason(), "PRECONDITIONER_NOT_SPD");
  a_.values.clear();
  EXPECT_EQ(engine_->Place(CscView(a_), context).status().reason(), "VALUES_NEEDED");
  EXPECT_EQ(NotOverRanks({.method = Method::kIdr}, MForm::kMatrix),
            "several processes solve by CG, BiCGSTAB and GMRES alone");
  EXPECT_EQ(NotOverRanks({.method = Method::kCg}, MForm::kMatrix), "");
}

}  // namespace
}  // namespace spaid::kernels
