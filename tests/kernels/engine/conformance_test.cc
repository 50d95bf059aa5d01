// Promises of every engine of the table: refusals, resolved specs, plans and rebuilds,
// stops, limits, estimates, what is shown and what solves take. An engine that is new is here
// without a line; its ranges and variants are in OwnCases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/kernels/base/recording_sink.h"
#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Set = std::function<void(PreconditionerSpec&)>;

struct BadOption {
  std::string reason, field;
  Set set;
};

struct Cases {
  std::vector<BadOption> bad;
  std::vector<Set> bounds = {};    // at the ends of ranges, and allowed
  std::vector<Set> variants = {};  // that builds are to be tried with, besides the defaults
  // That a plan of the defaults does not serve, and what the refusal says.
  std::vector<std::pair<std::string, Set>> other_plans = {};
};

void Add(std::vector<BadOption>* to, const std::string& reason, const std::string& field,
         const std::vector<Set>& sets) {
  for (const Set& set : sets) to->push_back({reason, field, set});
}

// `set`: sets one of the options to a number.
template <class Setter>
std::vector<Set> Each(const std::vector<double>& values, const Setter& set) {
  std::vector<Set> sets;
  for (const double v : values) {
    sets.push_back([=](PreconditionerSpec& s) { set(s, v); });
  }
  return sets;
}

using S = PreconditionerSpec;

Cases OfStaticSpai() {
  Cases c;
  Add(&c.bad, "BAD_PATTERN_POWER", "pattern_power",
      Each({0, -1, 17}, [](S& s, double v) { s.static_spai.pattern.power = static_cast<int>(v); }));
  Add(&c.bad, "BAD_KEEP_TAU", "keep_tau",
      Each({-0.1, 1.1, kNan, kInf}, [](S& s, double v) { s.static_spai.pattern.keep_tau = v; }));
  Add(&c.bad, "BAD_POST_FILTER", "post_filter",
      Each({-0.1, 1.1, kNan, kInf}, [](S& s, double v) { s.static_spai.post_filter = v; }));
  // A scaled pivot is never over 1: nothing would pass.
  Add(&c.bad, "BAD_GRAM_PIVOT_LIMIT", "gram_pivot_limit",
      Each({-0.1, 1, 1.1, kNan, kInf}, [](S& s, double v) { s.static_spai.gram_pivot_limit = v; }));
  Add(&c.bad, "BAD_MAX_NNZ", "max_nnz", {[](S& s) { s.static_spai.pattern.max_nnz = -1; }});
  Add(&c.bad, "BAD_LOCAL_SOLVER", "local_solver",
      {[](S& s) { s.static_spai.local_solver = static_cast<LocalSolver>(9); }});
  Add(&c.bad, "BAD_THREAD_STRATEGY", "thread_strategy",
      {[](S& s) { s.static_spai.thread_strategy = static_cast<ThreadStrategy>(-1); }});
  for (const double v : {0.0, 1.0}) {
    c.bounds.push_back([v](S& s) {
      s.static_spai.pattern.power = 16;
      s.static_spai.pattern.keep_tau = v;
      s.static_spai.post_filter = v;
    });
  }
  c.variants = {[](S& s) { s.static_spai.pattern.power = 2; },
                [](S& s) { s.static_spai.pattern.power = 3; },
                [](S& s) { s.static_spai.pattern.ensure_row = true; },
                [](S& s) { s.static_spai.pattern.row_match = true; },
                [](S& s) {
                  s.static_spai.pattern.power = 2;
                  s.static_spai.pattern.keep_tau = 0.3;
                  s.static_spai.post_filter = 0.05;
                }};
  c.other_plans = {{"pattern_power 1 (not 2)", [](S& s) { s.static_spai.pattern.power = 2; }},
                   {"another keep_tau", [](S& s) { s.static_spai.pattern.keep_tau = 0.5; }},
                   {"another ensure_row", [](S& s) { s.static_spai.pattern.ensure_row = true; }},
                   {"another row_match", [](S& s) { s.static_spai.pattern.row_match = true; }}};
  return c;
}

Cases OfJacobi() {
  Cases c;
  Add(&c.bad, "BAD_BLOCK_SIZE", "block_size",
      Each({-1, 0, 33}, [](S& s, double v) { s.block_size = static_cast<int>(v); }));
  c.bounds = {[](S& s) { s.block_size = 32; }};
  c.variants = {[](S& s) { s.block_size = 3; }, [](S& s) { s.block_size = 32; }};
  c.other_plans = {{"block_size 1 (not 4)", [](S& s) { s.block_size = 4; }}};
  return c;
}

Cases OfFsai(bool adaptive) {
  Cases c;
  const auto bad = [&](const char* field, const std::vector<Set>& sets) {
    Add(&c.bad, "BAD_FSAI_OPTION", field, sets);
  };
  bad("k_max",
      Each({-1, kMaxFsaiSteps + 1}, [](S& s, double v) { s.fsai.k_max = static_cast<int>(v); }));
  bad("step_size",
      Each({0, kMaxFsaiPerStep + 1}, [](S& s, double v) { s.fsai.s = static_cast<int>(v); }));
  bad("pattern_power", Each({0, 17}, [](S& s, double v) { s.fsai.power = static_cast<int>(v); }));
  const std::vector<double> fractions = {-0.1, 1.0, kNan};
  bad("epsilon", Each(fractions, [](S& s, double v) { s.fsai.epsilon = v; }));
  bad("min_gain", Each(fractions, [](S& s, double v) { s.fsai.min_gain = v; }));
  bad("drop_tol", Each(fractions, [](S& s, double v) { s.fsai.drop_tol = v; }));
  bad("post_filter", Each(fractions, [](S& s, double v) { s.fsai.post_filter = v; }));
  bad("symmetry_tolerance", Each(fractions, [](S& s, double v) { s.fsai.symmetry_tolerance = v; }));
  bad("time_budget", Each({-1, kNan}, [](S& s, double v) { s.fsai.time_budget_ms = v; }));
  bad("precision", {[](S& s) { s.fsai.precision = static_cast<Precision>(7); }});
  if (adaptive) {
    c.bounds = {[](S& s) { s.fsai.k_max = kMaxFsaiSteps; }, [](S& s) { s.fsai.k_max = 0; },
                [](S& s) { s.fsai.s = kMaxFsaiPerStep; }};
    c.variants = {[](S& s) { s.fsai.k_max = 8; }, [](S& s) { s.fsai.k_max = 0; },
                  [](S& s) {
                    s.fsai.k_max = 5;
                    s.fsai.s = 3;
                  }};
  } else {
    c.bounds = {[](S& s) { s.fsai.power = 16; }};
    c.variants = {[](S& s) { s.fsai.power = 3; },
                  [](S& s) {
                    s.fsai.power = 2;
                    s.fsai.drop_tol = 0.1;
                    s.fsai.post_filter = 0.1;
                  }};
    c.other_plans = {{"another pattern_power or drop_tol", [](S& s) { s.fsai.power = 2; }},
                     {"another pattern_power or drop_tol", [](S& s) { s.fsai.drop_tol = 0.2; }}};
  }
  return c;
}

Cases OfDynamicSpai() {
  Cases c;
  Add(&c.bad, "BAD_DYNAMIC_OPTION", "step_size", {[](S& s) { s.dynamic_spai.per_step = 0; }});
  Add(&c.bad, "BAD_DYNAMIC_OPTION", "max_steps", {[](S& s) { s.dynamic_spai.max_steps = -1; }});
  Add(&c.bad, "BAD_DYNAMIC_OPTION", "tol",
      Each({-0.1, kNan}, [](S& s, double v) { s.dynamic_spai.tol = v; }));
  c.bounds = {[](S& s) { s.dynamic_spai.tol = 0; }};
  c.variants = {[](S& s) { s.dynamic_spai.max_column_nnz = 4; },
                [](S& s) {
                  s.dynamic_spai.max_steps = 6;
                  s.dynamic_spai.per_step = 2;
                  s.dynamic_spai.tol = 0.2;
                }};
  return c;
}

Cases OfAmg() {
  Cases c;
  const auto bad = [&](const char* field, const std::vector<Set>& sets) {
    Add(&c.bad, "BAD_AMG_OPTION", field, sets);
  };
  const auto whole = [](int AmgOptions::*member) {
    return [member](S& s, double v) { s.amg.*member = static_cast<int>(v); };
  };
  bad("strength_threshold",
      Each({-0.1, 1.0, kNan}, [](S& s, double v) { s.amg.strength_threshold = v; }));
  bad("node_size", Each({-1, 9}, whole(&AmgOptions::block_size)));
  bad("pre_sweeps", Each({-1, 5}, whole(&AmgOptions::pre_sweeps)));
  bad("post_sweeps", Each({-1, 5}, whole(&AmgOptions::post_sweeps)));
  bad("pre_sweeps", {[](S& s) { s.amg.pre_sweeps = s.amg.post_sweeps = 0; }});
  bad("chebyshev_degree", Each({0, 5}, whole(&AmgOptions::chebyshev_degree)));
  bad("max_levels", Each({0, 51}, whole(&AmgOptions::max_levels)));
  bad("max_coarse_size",
      Each({0, 5001}, [](S& s, double v) { s.amg.max_coarse_size = static_cast<int64_t>(v); }));
  bad("max_growth", Each({-0.1, 11, kNan}, [](S& s, double v) { s.amg.max_growth = v; }));
  bad("max_operator_complexity",
      Each({0.9, 11, kNan}, [](S& s, double v) { s.amg.max_operator_complexity = v; }));
  bad("k_max", Each({-1, kMaxFsaiSteps + 1}, whole(&AmgOptions::k_max)));
  bad("step_size", Each({0, kMaxFsaiPerStep + 1}, whole(&AmgOptions::per_step)));
  bad("epsilon", Each({-0.1, 1.0, kNan}, [](S& s, double v) { s.amg.epsilon = v; }));
  bad("smoother", {[](S& s) { s.amg.smoother = static_cast<SmootherKind>(8); }});
  bad("coarsening", {[](S& s) { s.amg.coarsening = static_cast<Coarsening>(7); }});
  bad("cycle", {[](S& s) { s.amg.cycle = static_cast<CycleKind>(2); }});
  bad("hierarchy_precision", {[](S& s) { s.amg.hierarchy_precision = static_cast<Precision>(3); }});
  c.bounds = {[](S& s) { s.amg.max_levels = 1; }, [](S& s) { s.amg.post_sweeps = 0; },
              [](S& s) { s.amg.max_coarse_size = 1; }};
  // Levels, which a small matrix has none of by default.
  for (const SmootherKind smoother :
       {SmootherKind::kAuto, SmootherKind::kJacobi, SmootherKind::kChebyshev, SmootherKind::kFsai,
        SmootherKind::kAfsai, SmootherKind::kStaticSpai}) {
    c.variants.push_back([smoother](S& s) {
      s.amg.max_coarse_size = 12;
      s.amg.smoother = smoother;
    });
  }
  c.variants.push_back([](S& s) {
    s.amg.max_coarse_size = 12;
    s.amg.coarsening = Coarsening::kPlainAggregation;
    s.amg.cycle = CycleKind::kW;
    s.amg.hierarchy_precision = Precision::kFp64;
  });
  return c;
}

Cases OfPetsc() {
  Cases c;
  const auto bad = [&](const char* field, const std::vector<Set>& sets) {
    Add(&c.bad, "BAD_PETSC_OPTION", field, sets);
  };
  const auto whole = [](int PetscEngineOptions::*member) {
    return [member](S& s, double v) { s.petsc.*member = static_cast<int>(v); };
  };
  const auto part = [](double PetscEngineOptions::*member) {
    return [member](S& s, double v) { s.petsc.*member = v; };
  };
  using O = PetscEngineOptions;
  const std::vector<double> fractions = {-0.1, 1.0, kNan};
  bad("levels", Each({-1, 11}, whole(&O::levels)));
  bad("threshold", Each(fractions, part(&O::threshold)));
  bad("filter", Each(fractions, part(&O::filter)));
  bad("symmetry", {[](S& s) { s.petsc.symmetry = static_cast<ParasailsSymmetry>(3); }});
  bad("strong_threshold", Each(fractions, part(&O::strong_threshold)));
  bad("coarsening", {[](S& s) { s.petsc.coarsening = static_cast<BoomeramgCoarsening>(4); }});
  bad("interpolation",
      {[](S& s) { s.petsc.interpolation = static_cast<BoomeramgInterpolation>(5); }});
  bad("interpolation_entries", Each({-1, 101}, whole(&O::interpolation_entries)));
  bad("aggressive_levels", Each({-1, 26}, whole(&O::aggressive_levels)));
  bad("max_levels", Each({1, 51}, whole(&O::max_levels)));
  bad("drop_threshold", Each(fractions, part(&O::drop_threshold)));
  bad("smooths", Each({-1, 4}, whole(&O::smooths)));
  for (const ScalingMode mode : {ScalingMode::kEquilibrate, ScalingMode::kMatching}) {
    Add(&c.bad, "BAD_SCALING", "scaling", {[mode](S& s) { s.scaling = mode; }});
  }
  return c;
}

// M times a vector that is not smooth, where M is of parts; empty: its matrix tells.
Vector Applied(const Preconditioner& m, int threads = 2) {
  if (m.hierarchy() == nullptr) return {};
  const int64_t n = m.matrix().n_cols;
  Vector x(static_cast<size_t>(n)), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(1.0 + 7.0 * static_cast<double>(i));
  m.hierarchy()->Apply(x, y, threads);
  return y;
}

Cases OwnCases(EngineKind kind) {
  switch (kind) {
    case EngineKind::kStaticSpai:
      return OfStaticSpai();
    case EngineKind::kJacobi:
      return OfJacobi();
    case EngineKind::kFsai:
    case EngineKind::kAfsai:
      return OfFsai(kind == EngineKind::kAfsai);
    case EngineKind::kDynamicSpai:
      return OfDynamicSpai();
    case EngineKind::kAmg:
      return OfAmg();
    default:
      return {};
  }
}

// Scalings that the engine has.
std::vector<ScalingMode> Scalings(const EngineTraits& engine) {
  if (engine.by_parts) return {ScalingMode::kAuto};
  std::vector<ScalingMode> modes = {ScalingMode::kAuto, ScalingMode::kEquilibrate};
  if (!engine.factored && !engine.may_be_diagonal) modes.push_back(ScalingMode::kMatching);
  return modes;
}

class Conformance : public ::testing::TestWithParam<EngineKind> {
 protected:
  const EngineTraits& traits() const { return TraitsOf(GetParam()); }
  PreconditionerSpec With(const Set& set) const {
    PreconditionerSpec spec = Spec(GetParam());
    set(spec);
    return spec;
  }
  std::vector<PreconditionerSpec> Variants() const {
    std::vector<PreconditionerSpec> specs = {Spec(GetParam())};
    for (const Set& set : OwnCases(GetParam()).variants) specs.push_back(With(set));
    return specs;
  }
  // Besides, the defaults by a scaled A, whose rebuilds are not builds (scaled_test.cc).
  std::vector<PreconditionerSpec> ScaledToo() const {
    std::vector<PreconditionerSpec> specs = Variants();
    for (const ScalingMode mode : Scalings(traits())) {
      specs.push_back(Spec(GetParam()));
      specs.back().scaling = mode;
    }
    return specs;
  }
  // A that the engine takes, with a growth that has something to do.
  CscMatrix A() const { return oracle::RandomSpd(200, 6, 9); }
  // The same pattern, other values; SPD as A is: symmetric factors off the diagonal.
  static CscMatrix OtherValues(CscMatrix a) {
    for (int64_t j = 0; j < a.n_cols; ++j) {
      for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
        const auto i = static_cast<int64_t>(a.row_idx[p]);
        if (i != j) a.values[p] *= 0.3 + 0.7 * static_cast<double>((i * j + i + j) % 5) / 4;
      }
    }
    return a;
  }

  const std::unique_ptr<Engine> engine_ = MakeCpuEngine();
};

TEST_P(Conformance, OptionsOutOfRangeNameTheFieldOfTheWire) {
  const CscMatrix a = oracle::ConvectionDiffusion(5, 4, 1.0);
  std::vector<BadOption> all = OwnCases(GetParam()).bad;
  Add(&all, "BAD_SCALING", "scaling", {[](S& s) { s.scaling = static_cast<ScalingMode>(9); }});
  if (Scalings(traits()).back() != ScalingMode::kMatching) {
    Add(&all, "BAD_SCALING", "scaling", {[](S& s) { s.scaling = ScalingMode::kMatching; }});
  }
  for (const BadOption& bad : all) {
    const PreconditionerSpec spec = With(bad.set);
    for (const Status& status : {engine_->Resolve(spec, a, Diagnose(a), nullptr, {}).status(),
                                 engine_->Estimate(spec, a, nullptr, {}).status(),
                                 engine_->MakePlan(spec, a, nullptr, {}).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad.field;
      EXPECT_EQ(status.reason(), bad.reason) << bad.field;
      EXPECT_EQ(status.field(), bad.field);
    }
  }
}

TEST_P(Conformance, LimitsOfTheRangesAreAllowed) {
  const CscMatrix a = oracle::Laplacian2d(5, 4);
  for (const Set& set : OwnCases(GetParam()).bounds) {
    const auto resolved = engine_->Resolve(With(set), a, Diagnose(a), nullptr, {});
    ASSERT_TRUE(resolved.ok()) << resolved.status().message();
    EXPECT_EQ(resolved->reason, "") << "nothing was AUTO";
    const auto plan = engine_->MakePlan(resolved->spec, a, nullptr, {});
    EXPECT_TRUE(plan.ok()) << "what Resolve lets through can be planned: "
                           << plan.status().message();
  }
}

TEST_P(Conformance, OptionsOfOtherEnginesAreNotLookedAtAndReset) {
  const CscMatrix a = oracle::Laplacian2d(5, 4);
  PreconditionerSpec spec = Spec(GetParam());
  const std::string_view own = traits().options_field;
  if (own != "static_spai") spec.static_spai.pattern.power = -5;
  if (own != "fsai") spec.fsai.k_max = -5;
  if (own != "dynamic_spai") spec.dynamic_spai.max_steps = -5;
  if (own != "jacobi") spec.block_size = 5;
  if (own != "amg") spec.amg.max_levels = -5;
  spec.method = Method::kGmres;
  const auto resolved = engine_->Resolve(spec, a, Diagnose(a), nullptr, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  EXPECT_EQ(resolved->spec.engine, GetParam());
  EXPECT_EQ(resolved->spec.static_spai.pattern.power, 1);
  EXPECT_EQ(resolved->spec.fsai.k_max, FsaiOptions().k_max);
  EXPECT_EQ(resolved->spec.dynamic_spai.max_steps, DynamicSpaiOptions().max_steps);
  EXPECT_EQ(resolved->spec.block_size, 1);
  EXPECT_EQ(resolved->spec.amg.max_levels, AmgOptions().max_levels);
  EXPECT_EQ(resolved->spec.method, Method::kAuto);
}

TEST_P(Conformance, APlanServesItsOwnKindSizeDeviceAndOptionsOnly) {
  const CscMatrix a = A();
  const PreconditionerSpec spec = Spec(GetParam());
  const auto plan = engine_->MakePlan(spec, a, nullptr, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ((*plan)->device(), 0);
  EXPECT_EQ((*plan)->devices(), std::vector{0});
  EXPECT_EQ((*plan)->device_bytes(), 0);
  EXPECT_GT((*plan)->host_bytes(), 0);
  const auto mismatch = [&](const PreconditionerSpec& of, const CscMatrix& b,
                            const Context& context, const std::string& says) {
    const Status status = (*plan)->Build(of, b, context).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << says;
    EXPECT_EQ(status.reason(), "PLAN_MISMATCH") << says;
    EXPECT_EQ(status.field(), "plan") << says;
    EXPECT_THAT(status.message(), HasSubstr(says));
  };
  for (const EngineKind other : EngineKinds()) {
    if (other == GetParam() || other == EngineKind::kAuto) continue;
    mismatch(Spec(other), a, {}, "another kind");
  }
  mismatch(spec, oracle::Laplacian2d(3, 3), {}, "n = 200");
  mismatch(spec, a, {.device = 3}, "device 0, not 3");
  for (const auto& [says, set] : OwnCases(GetParam()).other_plans) {
    mismatch(With(set), a, {}, says);
  }
  mismatch(With([](S& s) { s.scaling = ScalingMode::kAuto; }), a, {}, "scaling = NONE, not AUTO");
  EXPECT_EQ((*plan)->Build(Spec(EngineKind::kAuto), a, {}).status().reason(),
            "ENGINE_NOT_RESOLVED");
}

// As many entries, elsewhere: refused, or nothing that depends on it was kept.
TEST_P(Conformance, AnotherPatternIsRefusedOrServed) {
  const CscMatrix a = oracle::Laplacian2d(6, 6);
  CscMatrix moved = a;
  moved.row_idx[2] = 30;  // of column 0
  const PreconditionerSpec spec = Variants().back();
  const auto plan = engine_->MakePlan(spec, a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  const auto built = (*plan)->Build(spec, a, {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  const Plan& kept = built->grown != nullptr ? *built->grown : **plan;
  const auto again = kept.Build(spec, moved, {});
  if (!again.ok()) {
    EXPECT_THAT(again.status().reason(), AnyOf("PLAN_MISMATCH", "NOT_SYMMETRIC"));
  } else {
    const BuildResult fresh = MustBuild(*engine_, spec, moved);
    EXPECT_EQ(again->preconditioner->matrix().values, fresh.preconditioner->matrix().values);
    EXPECT_EQ(Applied(*again->preconditioner), Applied(*fresh.preconditioner));
  }
}

TEST_P(Conformance, PatternsAloneAndDevicesThatAreNotThereAreRefused) {
  const CscMatrix a = A();
  const PreconditionerSpec spec = Spec(GetParam());
  CscView pattern = a;
  pattern.values = {};
  const auto plan = engine_->MakePlan(spec, a, nullptr, {});
  ASSERT_TRUE(plan.ok());
  const Status status = (*plan)->Build(spec, pattern, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "VALUES_NEEDED");
  EXPECT_EQ(engine_->MakePlan(spec, a, nullptr, {.device = 3}).status().reason(), "NO_SUCH_DEVICE");
  // The CPU shares no build; what is always the host's work does not look at the others.
  for (const std::vector<int>& devices : {std::vector{0, 0}, std::vector{0, 1}, std::vector{1}}) {
    const Status shared = engine_->MakePlan(spec, a, nullptr, {.devices = devices}).status();
    EXPECT_EQ(shared.reason(), traits().on_gpu != nullptr ? "NO_SUCH_DEVICE" : "");
  }
}

TEST_P(Conformance, AUsersPatternCountsWhereTheEngineTakesOne) {
  const CscMatrix a = A(), small = oracle::Laplacian2d(3, 1), arrow = oracle::Arrow(200);
  const PreconditionerSpec spec = Spec(GetParam());
  const PatternView wrong = small.pattern(), user = arrow.pattern();
  if (!traits().takes_pattern) {
    EXPECT_TRUE(engine_->MakePlan(spec, a, &wrong, {}).ok());
    return;
  }
  EXPECT_EQ(engine_->MakePlan(spec, a, &wrong, {}).status().reason(), "PATTERN_SIZE_MISMATCH");
  const auto estimate = engine_->Estimate(spec, a, &user, {});
  ASSERT_TRUE(estimate.ok()) << estimate.status().message();
  const auto plan = engine_->MakePlan(spec, a, &user, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto built = (*plan)->Build(spec, a, {});
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_GE(estimate->nnz_m, built->preconditioner->matrix().nnz());
  EXPECT_GE(built->preconditioner->matrix().nnz(), traits().factored ? 399 : 598)
      << "row and column 199 are full";
}

TEST_P(Conformance, ARebuildIsABuild) {
  const CscMatrix a = A(), b = OtherValues(a);
  for (const PreconditionerSpec& spec : Variants()) {
    const auto plan = engine_->MakePlan(spec, a, nullptr, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto first = (*plan)->Build(spec, a, {});
    ASSERT_TRUE(first.ok()) << first.status().message();
    const CscMatrix& m = first->preconditioner->matrix();
    EXPECT_FALSE(first->quality.pattern_reused);
    EXPECT_EQ(first->grown != nullptr, traits().grows_pattern);
    if (!traits().grows_pattern) {
      if (!(*plan)->serves_new_values()) continue;  // it read values
      const auto again = (*plan)->Build(spec, b, {});
      ASSERT_TRUE(again.ok()) << again.status().message();
      const BuildResult fresh = MustBuild(*engine_, spec, b);
      EXPECT_EQ(again->preconditioner->matrix().values, fresh.preconditioner->matrix().values);
      EXPECT_EQ(again->preconditioner->matrix().row_idx, fresh.preconditioner->matrix().row_idx);
      continue;
    }
    EXPECT_FALSE((*plan)->serves_new_values()) << "there is nothing in it yet";
    ASSERT_TRUE(first->grown->serves_new_values());
    EXPECT_GT(first->grown->host_bytes(), (*plan)->host_bytes());
    // The same values give the same M; others, other values on that pattern.
    for (const CscMatrix* values : {&a, &b}) {
      const auto again = first->grown->Build(spec, *values, {});
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_TRUE(again->quality.pattern_reused);
      EXPECT_EQ(again->grown, nullptr);
      EXPECT_EQ(again->preconditioner->matrix().row_idx, m.row_idx);
      for (size_t p = 0; values == &a && p < m.values.size(); ++p) {
        ASSERT_NEAR(again->preconditioner->matrix().values[p], m.values[p], 1e-10);
      }
      if (values == &a) {
        EXPECT_EQ(Applied(*again->preconditioner), Applied(*first->preconditioner));
      }
    }
    for (const EngineKind other : EngineKinds()) {
      if (other == GetParam() || other == EngineKind::kAuto) continue;
      EXPECT_EQ(first->grown->Build(Spec(other), a, {}).status().reason(), "PLAN_MISMATCH");
    }
  }
}

TEST_P(Conformance, StopsAreErrorsOfTheBuild) {
  const CscMatrix a = oracle::Laplacian2d(50, 50);
  StopSource cancel, late;
  cancel.Request(StopReason::kCancelled);
  late.SetTimeLimit(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  for (const PreconditionerSpec& spec : ScaledToo()) {
    const auto plan = engine_->MakePlan(spec, a, nullptr, {});
    ASSERT_TRUE(plan.ok());
    for (const auto& [source, code] : {std::pair{&cancel, StatusCode::kCancelled},
                                       std::pair{&late, StatusCode::kDeadlineExceeded}}) {
      const Context context{.stop = source->token()};
      EXPECT_EQ((*plan)->Build(spec, a, context).status().code(), code);
      // These may be done before they look.
      for (const Status& status : {engine_->MakePlan(spec, a, nullptr, context).status(),
                                   engine_->Estimate(spec, a, nullptr, context).status()}) {
        EXPECT_TRUE(status.ok() || status.code() == code) << status.reason();
      }
    }
  }
}

TEST_P(Conformance, ALimitOfEntriesIsMetOrRefused) {
  const CscMatrix a = A();
  PreconditionerSpec spec = Spec(GetParam());
  spec.max_nnz = 10;
  const auto plan = engine_->MakePlan(spec, a, nullptr, {});
  if (plan.ok()) {
    EXPECT_TRUE((*plan)->Build(spec, a, {}).ok());
  } else {
    EXPECT_EQ(plan.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(plan.status().reason(), "PATTERN_TOO_LARGE");
  }
  // A plan met its own; that of a build is of no matter.
  const auto unlimited = engine_->MakePlan(Spec(GetParam()), a, nullptr, {});
  ASSERT_TRUE(unlimited.ok());
  spec.max_nnz = 1 << 20;
  EXPECT_TRUE((*unlimited)->Build(spec, a, {}).ok());
}

TEST_P(Conformance, EstimatesBoundTheBuild) {
  std::vector<CscMatrix> matrices;
  for (const oracle::NamedMatrix& named : oracle::Zoo(17)) matrices.push_back(named.a);
  for (const int64_t n : {1, 2, 7, 33, 150}) {
    matrices.push_back(oracle::RandomSpd(n, 4, 11));
    matrices.push_back(oracle::Laplacian2d(n, 3));
  }
  int64_t built_count = 0;
  for (const CscMatrix& a : matrices) {
    for (const PreconditionerSpec& spec : ScaledToo()) {
      const auto estimate = engine_->Estimate(spec, a, nullptr, {});
      ASSERT_TRUE(estimate.ok()) << estimate.status().message();
      const auto plan = engine_->MakePlan(spec, a, nullptr, {});
      const auto built =
          plan.ok() ? (*plan)->Build(spec, a, {}) : Result<BuildResult>(plan.status());
      if (!built.ok()) {
        EXPECT_EQ(built.status().code(), StatusCode::kFailedPrecondition);
        EXPECT_THAT(built.status().reason(),
                    AnyOf("ZERO_DIAGONAL", "SINGULAR_BLOCK", "NOT_SYMMETRIC",
                          "NOT_POSITIVE_DEFINITE", "NO_COARSE_LEVEL", "FLOAT32_OVERFLOW"));
        continue;
      }
      ++built_count;
      const Preconditioner& m = *built->preconditioner;
      EXPECT_GE(estimate->nnz_m, m.nnz());
      EXPECT_GE(estimate->download_bytes, m.matrix().bytes());
      EXPECT_GE(estimate->host_bytes,
                (*plan)->host_bytes() + m.host_bytes() +
                    (built->grown != nullptr ? built->grown->host_bytes() : 0));
      EXPECT_EQ(estimate->device_bytes, 0) << "no device, no bytes of it";
      EXPECT_EQ(estimate->device_bytes_min, 0);
      EXPECT_GT(estimate->predicted_ms, 0);
      EXPECT_GT(estimate->flops, 0);
    }
  }
  EXPECT_GT(built_count, 10 * static_cast<int64_t>(ScaledToo().size()));
}

TEST_P(Conformance, ThreadsDoNotChangeABit) {
  const CscMatrix a = oracle::Laplacian2d(70, 70);
  for (const PreconditionerSpec& spec : ScaledToo()) {
    Array<double> values, x;
    Vector applied;
    for (const int threads : {1, 2, 4}) {
      const Context context{.threads = threads};
      const BuildResult built = MustBuild(*engine_, spec, a, context);
      SolveOptions options{.method = traits().for_cg ? Method::kCg : Method::kBicgstab,
                           .rtol = 1e-14};
      options.max_iterations = 15;
      const auto solved =
          engine_->Solve(a, built.preconditioner.get(), RowSums(a), {}, options, context);
      ASSERT_TRUE(solved.ok());
      if (threads > 1) {
        EXPECT_EQ(built.preconditioner->matrix().values, values) << threads;
        EXPECT_EQ(Applied(*built.preconditioner, threads), applied) << threads;
        EXPECT_EQ(solved->x, x) << threads;
      }
      values = built.preconditioner->matrix().values;
      applied = Applied(*built.preconditioner, threads);
      x = solved->x;
    }
  }
}

// A column of G has entries of the last rows: it comes with all of it, which the caller has then.
TEST_P(Conformance, AnExplicitMIsShownWhileItIsMade) {
  const CscMatrix a = Chains(20, 10, 0);
  const PreconditionerSpec spec = Spec(GetParam());
  RecordingSink sink;
  const Context context{.threads = 2, .result = &sink};
  const BuildResult built = MustBuild(*engine_, spec, a, context);
  ASSERT_EQ(sink.patterns, traits().for_cg ? 0 : 1);
  if (traits().for_cg) return;  // of parts, too
  const CscMatrix& m = built.preconditioner->matrix();
  EXPECT_EQ(sink.columns(), a.n_cols);
  EXPECT_EQ(sink.data, m.values.data());
  EXPECT_TRUE(std::equal(sink.values.begin(), sink.values.end(), m.values.begin(), m.values.end()));
}

TEST_P(Conformance, ItsMIsWhatTheTraitsSay) {
  const CscMatrix a = oracle::Laplacian2d(20, 20);
  const BuildResult built = MustBuild(*engine_, Spec(GetParam()), a);
  const Preconditioner& m = *built.preconditioner;
  EXPECT_EQ(m.kind(), GetParam());
  EXPECT_EQ(m.is_factor(), traits().factored);
  EXPECT_EQ(m.form(), traits().by_parts ? MForm::kParts : MForm::kMatrix);
  EXPECT_EQ(m.hierarchy() != nullptr, traits().by_parts);
  EXPECT_EQ(m.matrix().nnz() > 0, !traits().by_parts);
  EXPECT_GT(m.nnz(), 0);
  for (int64_t j = 0; m.is_factor() && j < a.n_cols; ++j) {
    EXPECT_EQ(m.matrix().pattern().column(j).front(), j) << "nothing above the diagonal";
  }
  if (traits().may_be_diagonal) {
    EXPECT_EQ(m.matrix().nnz(), a.n_cols);
  }
  EXPECT_GE(m.host_bytes(), m.matrix().bytes());
  EXPECT_EQ(m.device_bytes(), 0);

  const Diagnosis spd = Diagnose(a), nonsymmetric = Diagnose(oracle::ConvectionDiffusion(4, 4, 1));
  const Vector b = SmoothRhs(a);
  EXPECT_EQ(*ResolveMethod(Method::kAuto, TraitsOf(GetParam()).for_cg, spd),
            traits().for_cg ? Method::kCg : Method::kBicgstab);
  EXPECT_EQ(*ResolveMethod(Method::kAuto, TraitsOf(GetParam()).for_cg, nonsymmetric),
            Method::kBicgstab);
  const Status named =
      ResolveMethod(Method::kCg, TraitsOf(GetParam()).for_cg, nonsymmetric).status();
  EXPECT_EQ(named.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(named.reason(), traits().for_cg ? "NOT_SYMMETRIC" : "PRECONDITIONER_NOT_SPD");
  EXPECT_EQ(
      ResolveMethod(Method::kMinres, TraitsOf(GetParam()).for_cg, nonsymmetric).status().reason(),
      named.reason());
  for (const Method method :
       {Method::kCg, Method::kBicgstab, Method::kGmres, Method::kMinres, Method::kIdr}) {
    const auto solved = engine_->Solve(a, &m, b, {}, {.method = method, .rtol = 1e-9}, {});
    const auto resolved = ResolveMethod(method, TraitsOf(GetParam()).for_cg, spd);
    if (ForSymmetric(method) && !traits().for_cg) {
      EXPECT_EQ(resolved.status().reason(), "PRECONDITIONER_NOT_SPD");
      EXPECT_EQ(resolved.status().field(), "method");
      EXPECT_EQ(solved.status().reason(), "PRECONDITIONER_NOT_SPD");
      continue;
    }
    EXPECT_EQ(*resolved, method);
    ASSERT_TRUE(solved.ok()) << solved.status().message();
    EXPECT_EQ(solved->rhs[0].outcome, Outcome::kConverged) << solved->rhs[0].detail;
    EXPECT_LE(TrueRelative(a, solved->x, b), 1.0001e-9);
  }
}

std::vector<EngineKind> ThoseThatBuild() {
  std::vector<EngineKind> kinds;
  for (const EngineKind kind : EngineKinds()) {
    if (kind == EngineKind::kAuto || kind == EngineKind::kNone) continue;
    if (!TraitsOf(kind).ranks_alone) kinds.push_back(kind);
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Engines, Conformance, ::testing::ValuesIn(ThoseThatBuild()),
                         [](const ::testing::TestParamInfo<EngineKind>& of) {
                           return WireName(of.param);
                         });

// Engines that ranks alone build check their options as all do, and say what they lack
// (ranks_test.cc has what they do with ranks).
TEST(EngineTable, WhatRanksAloneBuildIsRefusedWithoutThem) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::Laplacian2d(5, 4);
  int found = 0;
  for (const EngineKind kind : EngineKinds()) {
    if (!TraitsOf(kind).ranks_alone) continue;
    ++found;
    const auto all = [&](const PreconditionerSpec& spec) {
      return std::vector<Status>{engine->Resolve(spec, a, Diagnose(a), nullptr, {}).status(),
                                 engine->Estimate(spec, a, nullptr, {}).status(),
                                 engine->MakePlan(spec, a, nullptr, {}).status()};
    };
    for (const Status& status : all(Spec(kind))) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_EQ(status.reason(), "RANKS_NEEDED");
      EXPECT_EQ(status.field(), "engine");
      EXPECT_THAT(status.message(), HasSubstr("mpiexec -n P spaid --devices=mpi"));
      EXPECT_THAT(status.message(), HasSubstr(std::string(TraitsOf(kind).name)));
    }
    for (const BadOption& bad : OfPetsc().bad) {
      PreconditionerSpec spec = Spec(kind);
      bad.set(spec);
      for (const Status& status : all(spec)) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad.field;
        EXPECT_EQ(status.reason(), bad.reason) << bad.field;
        EXPECT_EQ(status.field(), bad.field);
      }
    }
  }
  EXPECT_EQ(found, 3);
}

// AUTO reads static SPAI's options, and checks them as that does.
TEST(EngineTable, AutoRefusesWhatItsOptionsRefuse) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = oracle::ConvectionDiffusion(5, 4, 1.0);
  for (const BadOption& bad : OfStaticSpai().bad) {
    PreconditionerSpec spec = Spec(EngineKind::kAuto);
    bad.set(spec);
    for (const Status& status : {engine->Resolve(spec, a, Diagnose(a), nullptr, {}).status(),
                                 engine->Estimate(spec, a, nullptr, {}).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad.field;
      EXPECT_EQ(status.reason(), bad.reason) << bad.field;
      EXPECT_EQ(status.field(), bad.field);
    }
  }
}

TEST(EngineTable, TheTableIsInOrder) {
  std::set<std::string_view> names;
  EngineKind last{};
  for (const EngineKind kind : EngineKinds()) {
    EXPECT_GT(kind, last);
    last = kind;
    EXPECT_EQ(TraitsOf(kind).kind, kind);
    EXPECT_TRUE(names.insert(TraitsOf(kind).name).second) << TraitsOf(kind).name;
  }
  EXPECT_EQ(WireName(EngineKind::kStaticSpai), "STATIC_SPAI");
  const auto forged = static_cast<EngineKind>(77);
  EXPECT_EQ(TraitsOf(forged).name, "unknown");
  const CscMatrix a = oracle::Laplacian2d(3, 3);
  const auto engine = MakeCpuEngine();
  for (const Status& status : {engine->Resolve(Spec(forged), a, Diagnose(a), nullptr, {}).status(),
                               engine->Estimate(Spec(forged), a, nullptr, {}).status(),
                               engine->MakePlan(Spec(forged), a, nullptr, {}).status()}) {
    EXPECT_EQ(status.reason(), "BAD_ENGINE");
    EXPECT_EQ(status.field(), "engine");
    EXPECT_THAT(status.message(), HasSubstr("give AUTO, NONE, JACOBI, STATIC_SPAI, FSAI, AFSAI"));
  }
}

}  // namespace
}  // namespace spaid::kernels::engine_test
