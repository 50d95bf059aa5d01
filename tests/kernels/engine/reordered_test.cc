// Solves in another order of the unknowns: the caller's solution by about as many iterations, with
// every method and every form of M.
#include "kernels/engine/reordered.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>

#include "tests/kernels/engine/helpers.h"

namespace spaid::kernels::engine_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A grid of m x m, numbered at random. `dirichlet`: it is regular, else its null space is the
// constants.
CscMatrix ShuffledGrid(int64_t m, double skew, bool dirichlet = true) {
  CscMatrix a;
  a.n_rows = a.n_cols = m * m;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < m * m; ++j) {
    const int64_t sides = (j >= m) + (j % m > 0) + (j % m + 1 < m) + (j + m < m * m);
    const auto add = [&a](int64_t row, double value) {
      a.row_idx.push_back(static_cast<int32_t>(row));
      a.values.push_back(value);
    };
    if (j >= m) add(j - m, -1 - skew);
    if (j % m > 0) add(j - 1, -1);
    add(j, dirichlet ? 4 : static_cast<double>(sides));
    if (j % m + 1 < m) add(j + 1, -1);
    if (j + m < m * m) add(j + m, -1 + skew);
    a.col_ptr.push_back(std::ssize(a.row_idx));
  }
  std::vector<int32_t> shuffled(Z(a.n_cols));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(3));
  return *PermuteSymmetric(a, shuffled, {});
}

Vector RandomRhs(int64_t n, int64_t count) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Vector b(Z(n * count));
  for (double& v : b) v = uniform(random);
  return b;
}

std::unique_ptr<const Reordered> InOrder(const CscMatrix& a, const NullSpace* space = nullptr,
                                         int threads = 1) {
  auto order = ReverseCuthillMcKee(a.pattern(), {.threads = threads});
  EXPECT_TRUE(order.ok());
  auto made = Reordered::Make(a, space, std::make_shared<const UnknownOrder>(*std::move(order)),
                              {.threads = threads});
  EXPECT_TRUE(made.ok());
  return *std::move(made);
}

SolveResult There(const Engine& engine, const Reordered& there, const Preconditioner* m,
                  const Vector& b, const Vector& x0, SolveOptions options, int threads = 1) {
  std::shared_ptr<const Preconditioner> of_there;
  if (m != nullptr) of_there = *there.Of(*m, {.threads = threads});
  options.null_space = there.null_space();
  auto solved = engine.Solve(there.a(), of_there.get(), there.Carried(b), there.Carried(x0),
                             options, {.threads = threads});
  EXPECT_TRUE(solved.ok()) << solved.status().message();
  there.TakeBack(solved->x);
  return *std::move(solved);
}

void ExpectTheSame(const Engine& engine, const CscMatrix& a, const Preconditioner* m,
                   const Vector& b, const Vector& x0, const SolveOptions& options) {
  const auto there = InOrder(a, options.null_space);
  const auto here = engine.Solve(a, m, b, x0, options, {});
  ASSERT_TRUE(here.ok()) << here.status().message();
  const SolveResult solved = There(engine, *there, m, b, x0, options);
  ASSERT_EQ(solved.rhs.size(), here->rhs.size());
  for (size_t v = 0; v < solved.rhs.size(); ++v) {
    SCOPED_TRACE("right-hand side " + std::to_string(v));
    EXPECT_EQ(solved.rhs[v].outcome, Outcome::kConverged) << solved.rhs[v].detail;
    EXPECT_EQ(here->rhs[v].outcome, Outcome::kConverged) << here->rhs[v].detail;
    const auto iterations = static_cast<double>(here->rhs[v].iterations);
    EXPECT_NEAR(static_cast<double>(solved.rhs[v].iterations), iterations,
                std::max(3.0, 0.2 * iterations));
    const size_t n = Z(a.n_cols);
    double difference = 0, size = 0;
    for (size_t i = v * n; i < (v + 1) * n; ++i) {
      difference = std::max(difference, std::abs(solved.x[i] - here->x[i]));
      size = std::max(size, std::abs(here->x[i]));
    }
    EXPECT_LE(difference, 1e-6 * size);
  }
  // The same bits for any number of threads, in the order, M, and the solve.
  const auto by_four = InOrder(a, options.null_space, 4);
  EXPECT_EQ(by_four->a().row_idx, there->a().row_idx);
  EXPECT_EQ(There(engine, *by_four, m, b, x0, options, 4).x, solved.x);
}

constexpr Method kMethods[] = {Method::kCg, Method::kMinres, Method::kBicgstab, Method::kGmres,
                               Method::kIdr};

TEST(ReorderedTest, EveryMethodWithEveryFormOfMSolvesTheSame) {
  const auto engine = MakeCpuEngine();
  const CscMatrix spd = ShuffledGrid(40, 0), skew = ShuffledGrid(40, 0.4);
  const Vector b = RandomRhs(1600, 3), x0 = RandomRhs(1600, 3);
  PreconditionerSpec blocks = Spec(EngineKind::kJacobi);
  blocks.block_size = 4;
  PreconditionerSpec scaled = Spai();
  scaled.scaling = ScalingMode::kEquilibrate;
  const struct {
    const char* name;
    PreconditionerSpec spec;
  } forms[] = {{"none", Spec(EngineKind::kNone)},
               {"diagonal", Spec(EngineKind::kJacobi)},
               {"blocks", blocks},
               {"factors", Spec(EngineKind::kFsai)},
               {"explicit", Spai()},
               {"by scaled rows", scaled}};
  for (const auto& form : forms) {
    for (const Method method : kMethods) {
      SCOPED_TRACE(std::string(form.name) + ", method " + std::to_string(static_cast<int>(method)));
      const EngineKind kind = form.spec.engine;
      if (ForSymmetric(method) && kind == EngineKind::kStaticSpai) continue;
      CscMatrix a = ForSymmetric(method) || kind == EngineKind::kFsai ? spd : skew;
      if (form.spec.scaling != ScalingMode::kNone) {
        for (size_t p = 0; p < a.values.size(); ++p) {
          a.values[p] = std::ldexp(a.values[p], 6 * (a.row_idx[p] % 3));
        }
      }
      std::shared_ptr<const Preconditioner> m;
      if (kind != EngineKind::kNone) m = MustBuild(*engine, form.spec, a).preconditioner;
      ExpectTheSame(*engine, a, m.get(), b, x0, {.method = method, .rtol = 1e-10});
    }
  }
}

TEST(ReorderedTest, NullSpacesComeAlong) {
  const auto engine = MakeCpuEngine();
  const CscMatrix a = ShuffledGrid(30, 0, /*dirichlet=*/false);
  const Vector b = RandomRhs(900, 2);  // half of it beyond reach, which the solve is told of
  const auto space = MakeNullSpace(a, Diagnose(a), {});
  ASSERT_TRUE(space.ok() && *space != nullptr);
  Vector reached = b;
  for (size_t v = 0; v < 2; ++v) {
    const double mean = std::accumulate(b.begin() + 900 * v, b.begin() + 900 * (v + 1), 0.0) / 900;
    for (size_t i = 900 * v; i < 900 * (v + 1); ++i) reached[i] -= mean;
  }
  for (const Method method : kMethods) {
    SCOPED_TRACE(static_cast<int>(method));
    const SolveOptions options{.method = method, .rtol = 1e-9, .null_space = space->get()};
    ExpectTheSame(*engine, a, nullptr, reached, {}, options);
    const SolveResult solved = There(*engine, *InOrder(a, space->get()), nullptr, b, {}, options);
    for (const RhsResult& rhs : solved.rhs) EXPECT_TRUE(rhs.beyond_reach) << rhs.detail;
  }
  // Left vectors of their own.
  const CscMatrix skew = Rows({{1, -1, 0}, {-2, 2, 0}, {0, 0, 1}});
  const auto given = MakeNullSpace(skew, Diagnose(skew),
                                   {.choice = NullSpaceChoice::kGiven, .vectors = Vector{1, 1, 0}});
  ASSERT_TRUE(given.ok());
  auto there = Reordered::Make(skew, given->get(),
                               std::make_shared<const UnknownOrder>(UnknownOrder{2, 0, 1}), {});
  const double part = (*given)->right()[0][0];
  EXPECT_THAT((*there)->null_space()->right()[0], ElementsAre(0, part, part));
  EXPECT_EQ((*there)->null_space()->left().size(), (*given)->left().size());
  EXPECT_TRUE((*there)->null_space()->IsOf((*there)->a()));
}

TEST(ReorderedTest, VectorsThereAndBack) {
  const CscMatrix a = Rows({{1, 0, 0}, {0, 2, 0}, {0, 0, 3}});
  auto there =
      Reordered::Make(a, nullptr, std::make_shared<const UnknownOrder>(UnknownOrder{2, 0, 1}), {});
  ASSERT_TRUE(there.ok());
  EXPECT_THAT((*there)->a().values, ElementsAre(3, 1, 2));
  Array<double> v = (*there)->Carried(Vector{1, 2, 3, 4, 5, 6});
  EXPECT_THAT(v, ElementsAre(3, 1, 2, 6, 4, 5));
  (*there)->TakeBack(v);
  EXPECT_THAT(v, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT((*there)->Carried({}), IsEmpty());
}

TEST(ReorderedTest, PaysOnLargeScatteredMeshesAlone) {
  const CscMatrix large = ShuffledGrid(400, 0);  // two in three of its rows are far
  EXPECT_TRUE(Reordered::Pays(large, 1));
  EXPECT_FALSE(Reordered::Pays(InOrder(large)->a(), 1));
  EXPECT_FALSE(Reordered::Pays(ShuffledGrid(200, 0), 1)) << "its vectors are in the cache";
}

TEST(ReorderedTest, Stops) {
  const CscMatrix a = ShuffledGrid(100, 0);
  StopSource stop;
  stop.Request(StopReason::kCancelled);
  const auto order = std::make_shared<const UnknownOrder>(*ReverseCuthillMcKee(a.pattern(), {}));
  EXPECT_EQ(Reordered::Make(a, nullptr, order, {.stop = stop.token()}).status().code(),
            StatusCode::kCancelled);
  const auto engine = MakeCpuEngine();
  const auto m = MustBuild(*engine, Spec(EngineKind::kFsai), a).preconditioner;
  const auto there = Reordered::Make(a, nullptr, order, {});
  EXPECT_EQ((*there)->Of(*m, {.stop = stop.token()}).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace spaid::kernels::engine_test
