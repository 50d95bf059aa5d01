// Columns of M whose local problems are shifted copies of one another, and what solves them eight
// at a time.
#include "kernels/static_spai/structure.h"

#include <numeric>
#include <set>

#include "kernels/static_spai/static_spai_plan.h"
#include "kernels/static_spai/static_spai_tuning.h"
#include "tests/kernels/static_spai/helpers.h"

namespace spaid::kernels {
namespace {

namespace tuning = static_spai_tuning;

// Entries |x − y| <= 1 in each direction of a grid ("full": all of them, else those along one
// axis), `unknowns` a node, nonsymmetric random values.
CscMatrix Grid(int64_t nx, int64_t ny, int64_t nz, bool full, int64_t unknowns, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = nx * ny * nz * unknowns;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int64_t node = j / unknowns, x = node % nx, y = node / nx % ny, z = node / nx / ny;
    for (int64_t dz = -1; dz <= 1; ++dz) {
      for (int64_t dy = -1; dy <= 1; ++dy) {
        for (int64_t dx = -1; dx <= 1; ++dx) {
          if (!full && dx * dx + dy * dy + dz * dz > 1) continue;
          if (x + dx < 0 || x + dx >= nx || y + dy < 0 || y + dy >= ny) continue;
          if (z + dz < 0 || z + dz >= nz) continue;
          const int64_t other = node + dx + nx * (dy + ny * dz);
          for (int64_t u = 0; u < unknowns; ++u) {
            const int64_t i = other * unknowns + u;
            a.row_idx.push_back(static_cast<int32_t>(i));
            a.values.push_back(i == j ? random.Uniform(4, 8) : random.Uniform(-1, 1));
          }
        }
      }
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

// `count` full blocks of `size` on the diagonal.
CscMatrix Blocks(int64_t size, int64_t count, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = size * count;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t i = j / size * size; i < (j / size + 1) * size; ++i) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 4 : random.Uniform(-1, 1));
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

std::shared_ptr<const StaticSpaiPlan> Plan(const CscView& a, const StaticSpaiOptions& options) {
  auto plan =
      PlanStaticSpai(a, nullptr, options, Context{.stop = {}, .progress = nullptr, .threads = 2});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : nullptr;
}

// Share of the groups that have a structure.
double Share(const StaticSpaiPlan& plan) {
  int64_t with = 0;
  for (const int32_t s : plan.structure_of) with += s >= 0;
  return static_cast<double>(with) / static_cast<double>(plan.structure_of.size());
}

// Row and column i to (i * step) mod n: no two local problems are shifted copies any more.
int64_t ScatterStep(int64_t n) {
  int64_t step = static_cast<int64_t>(0.6180339887 * static_cast<double>(n));
  while (std::gcd(step, n) != 1) ++step;
  return step;
}

CscMatrix Scattered(const CscView& a) {
  const int64_t n = a.n_cols, step = ScatterStep(n);
  std::vector<std::vector<std::pair<int32_t, double>>> columns(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    auto& column = columns[static_cast<size_t>(j * step % n)];
    for (size_t p = 0; p < a.column(j).size(); ++p) {
      column.emplace_back(static_cast<int32_t>(a.column(j)[p] * step % n), a.column_values(j)[p]);
    }
    std::ranges::sort(column);
  }
  CscMatrix scattered;
  scattered.n_rows = scattered.n_cols = n;
  scattered.col_ptr.push_back(0);
  for (const auto& column : columns) {
    for (const auto& [row, value] : column) {
      scattered.row_idx.push_back(row);
      scattered.values.push_back(value);
    }
    scattered.col_ptr.push_back(static_cast<int64_t>(scattered.row_idx.size()));
  }
  return scattered;
}

TEST(Structure, OfATridiagonalMatrixByHand) {
  const CscMatrix a = Grid(50, 1, 1, false, 1, 1);
  const int32_t columns[] = {9, 10, 11}, target[] = {10};
  const Structure structure = MakeStructure(a.pattern(), columns, target);
  EXPECT_EQ(structure.n_cols, 3);
  EXPECT_EQ(structure.n_entries, 9);
  EXPECT_EQ(structure.lengths, (std::vector<int32_t>{3, 3, 3}));
  // Rows 8 to 12 have the columns {0}, {0 1}, {0 1 2}, {1 2}, {2}: in this order they are sorted.
  ASSERT_EQ(structure.runs.size(), 5u);
  EXPECT_EQ(structure.run_columns, (std::vector<int32_t>{0, 0, 1, 0, 1, 2, 1, 2, 2}));
  EXPECT_EQ(structure.places, (std::vector<int32_t>{0, 1, 3, 2, 4, 6, 5, 7, 8}));
  ASSERT_EQ(structure.targets.size(), 1u);
  EXPECT_EQ(structure.targets[0].run, 2);
  EXPECT_EQ(structure.targets[0].row, 0);
  EXPECT_TRUE(structure.runs[2].has_target);
  EXPECT_FALSE(structure.runs[1].has_target);
  EXPECT_TRUE(structure.pairs.empty());
}

TEST(Structure, BlocksOfATridiagonalMatrixWithTwoUnknownsANode) {
  const CscMatrix a = Grid(50, 1, 1, false, 2, 1);
  const int32_t columns[] = {18, 19, 20, 21, 22, 23}, targets[] = {20, 21};
  const Structure structure = MakeStructure(a.pattern(), columns, targets);
  EXPECT_EQ(structure.n_entries, 36);
  ASSERT_EQ(structure.runs.size(), 5u);
  for (const Structure::Run& run : structure.runs) EXPECT_EQ(run.rows, 2);
  EXPECT_EQ(structure.block_begin, (std::vector<int32_t>{0, 2, 4, 6}));
  // Nodes 0 and 0 meet in three runs, 1 and 0 in two, 2 and 0 in one.
  EXPECT_EQ(structure.pair_begin, (std::vector<int32_t>{0, 3, 5, 8, 9, 11, 14}));
  EXPECT_EQ(structure.targets[0].run, structure.targets[1].run);
  EXPECT_EQ(structure.targets[1].row, 1);
}

TEST(Structure, ClassesAreOfColumnsEqualUpToAShift) {
  const CscMatrix a = Grid(100, 1, 1, false, 1, 1);
  ShiftClasses classes;
  ASSERT_EQ(ClassifyColumns(a.pattern(), {}, classes), StopReason::kNone);
  EXPECT_EQ(classes.of[0], -1);  // there are too few like it
  EXPECT_EQ(classes.of[99], -1);
  EXPECT_GE(classes.of[1], 0);
  for (size_t j = 1; j < 99; ++j) EXPECT_EQ(classes.of[j], classes.of[1]);
  const auto plan = Plan(a, With(LocalSolver::kGram));
  // Columns 0, 1, 98, 99 have other neighbourhoods.
  EXPECT_DOUBLE_EQ(Share(*plan), 0.96);
  EXPECT_EQ(plan->structures.size(), 1u);
  EXPECT_EQ(Share(*Plan(Scattered(a), With(LocalSolver::kGram))), 0);
  EXPECT_EQ(Share(*Plan(a, With(LocalSolver::kQr))), 0);
}

TEST(Structure, ClassificationStops) {
  const CscMatrix a = Grid(100, 1, 1, false, 1, 1);
  StopSource source;
  source.Request(StopReason::kCancelled);
  const Context stopped{.stop = source.token(), .progress = nullptr, .threads = 2};
  ShiftClasses columns, classes;
  EXPECT_EQ(ClassifyColumns(a.pattern(), stopped, columns), StopReason::kCancelled);
  ASSERT_EQ(ClassifyColumns(a.pattern(), {}, columns), StopReason::kNone);
  const auto plan = Plan(a, With(LocalSolver::kGram));
  EXPECT_EQ(ClassifyGroups(plan->groups(), columns, stopped, classes), StopReason::kCancelled);
}

TEST(Structure, NoClassForWhatIsRare) {
  const auto few = static_cast<int64_t>(tuning::kMinShared) - 1;
  EXPECT_EQ(Share(*Plan(Blocks(3, few, 2), With(LocalSolver::kGram))), 0);
  EXPECT_EQ(Share(*Plan(Blocks(3, few + 1, 2), With(LocalSolver::kGram))), 1);
}

TEST(Structure, NoneForProblemsThatDoNotFitTheCache) {
  EXPECT_EQ(Share(*Plan(Blocks(tuning::kMaxLaneColumns, 40, 2), With(LocalSolver::kGram))), 0);
  EXPECT_EQ(Share(*Plan(Blocks(64, 40, 2), With(LocalSolver::kGram))), 1);
}

// More kinds of columns than are told apart: the rest is solved as ever.
TEST(Structure, ManyKindsOfColumns) {
  oracle::Random random(5);
  CscMatrix a;
  a.n_rows = a.n_cols = 3 * tuning::kMaxClasses;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    std::set<int64_t> rows{j};
    for (int i = 0; i < 3; ++i) rows.insert(random.Below(a.n_cols));
    for (const int64_t i : rows) {
      a.row_idx.push_back(static_cast<int32_t>(i));
      a.values.push_back(i == j ? 4 : 1);
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  const auto plan = Plan(a, With(LocalSolver::kGram));
  EXPECT_EQ(Share(*plan), 0);
  ShiftClasses classes;
  ASSERT_EQ(ClassifyColumns(a.pattern(), {}, classes), StopReason::kNone);
  EXPECT_EQ(classes.size(), tuning::kMaxClasses);
}

struct LaneCase {
  const char* name;
  CscMatrix a;
  StaticSpaiOptions options;
  double share;  // of groups with a structure, at least
};

std::vector<LaneCase> LaneCases() {
  std::vector<LaneCase> cases;
  const auto add = [&](const char* name, CscMatrix a, double share, int power = 1) {
    cases.push_back({name, std::move(a), With(LocalSolver::kGram, power), share});
  };
  add("line", Grid(70, 1, 1, false, 1, 11), 0.9);
  add("square", Grid(20, 20, 1, false, 1, 12), 0.6);
  add("square, power 2", Grid(20, 20, 1, false, 1, 13), 0.4, 2);
  add("cube", Grid(11, 10, 9, false, 1, 14), 0.4);
  add("full cube", Grid(9, 9, 9, true, 1, 15), 0.15);
  add("two unknowns", Grid(20, 19, 1, false, 2, 16), 0.6);
  add("three unknowns", Grid(9, 8, 7, true, 3, 17), 0.1);
  add("four unknowns", Grid(60, 1, 1, false, 4, 18), 0.9);
  add("five unknowns", Grid(60, 1, 1, false, 5, 19), 0.9);  // more targets than at once
  add("scalars", Blocks(1, 100, 20), 1);                    // columns that begin the array
  add("pairs", Blocks(2, 101, 21), 1);
  add("nines", Blocks(9, 35, 22), 1);
  add("filtered", Grid(20, 20, 1, false, 1, 23), 0.6);
  cases.back().options.post_filter = 0.2;
  add("ensure_row", Grid(20, 20, 1, false, 1, 24), 0.6);
  cases.back().options.pattern.ensure_row = true;
  return cases;
}

TEST(Lanes, AgreeWithTheOracle) {
  for (const LaneCase& c : LaneCases()) {
    SCOPED_TRACE(c.name);
    if (c.options.post_filter > 0 || c.a.n_cols > 800) continue;
    EXPECT_GE(Share(*Plan(c.a, c.options)), c.share);
    const StaticSpaiResult result = Build(c.a, nullptr, c.options);
    const oracle::Dense expected =
        oracle::Spai(oracle::ToDense(static_cast<const CscView&>(c.a)), result.m.pattern());
    EXPECT_EQ(result.quality.gram_columns, c.a.n_cols);
    for (int64_t k = 0; k < c.a.n_cols; ++k) {
      const auto rows = CscView(result.m).column(k);
      const auto values = CscView(result.m).column_values(k);
      double size = 0;
      for (const int32_t i : rows) size = std::max(size, std::abs(expected(i, k)));
      for (size_t p = 0; p < rows.size(); ++p) {
        ASSERT_NEAR(values[p], expected(rows[p], k), 1e-10 * size) << "column " << k;
      }
    }
  }
}

// The same matrix with its unknowns scattered has the same M, one column at a time.
TEST(Lanes, AgreeWithOneColumnAtATime) {
  for (const LaneCase& c : LaneCases()) {
    SCOPED_TRACE(c.name);
    const int64_t n = c.a.n_cols, step = ScatterStep(n);
    const CscMatrix scattered = Scattered(c.a);
    const auto plan = Plan(c.a, c.options);
    EXPECT_GE(Share(*plan), c.share);
    const StaticSpaiCounts alone = Plan(scattered, c.options)->counts;
    EXPECT_EQ(plan->counts.nnz_m, alone.nnz_m);
    EXPECT_EQ(plan->counts.n1_max, alone.n1_max);
    EXPECT_EQ(plan->counts.n2_max, alone.n2_max);
    EXPECT_EQ(plan->counts.sum_n1, alone.sum_n1);

    const StaticSpaiResult lanes = Build(c.a, nullptr, c.options);
    const StaticSpaiResult expected = Build(scattered, nullptr, c.options);
    const std::vector<double> residuals = ExplicitResiduals(c.a, lanes.m);
    EXPECT_EQ(lanes.m.nnz(), expected.m.nnz());
    EXPECT_NEAR(lanes.quality.residual_frobenius, expected.quality.residual_frobenius,
                1e-10 * expected.quality.residual_frobenius + 1e-12);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t other = k * step % n;
      const auto of_lanes = CscView(lanes.m).column(k),
                 of_other = CscView(expected.m).column(other);
      std::vector<std::pair<int32_t, double>> moved;
      for (size_t p = 0; p < of_lanes.size(); ++p) {
        moved.emplace_back(static_cast<int32_t>(of_lanes[p] * step % n),
                           CscView(lanes.m).column_values(k)[p]);
      }
      std::ranges::sort(moved);
      ASSERT_EQ(moved.size(), of_other.size()) << "column " << k;
      for (size_t p = 0; p < moved.size(); ++p) {
        ASSERT_EQ(moved[p].first, of_other[p]) << "column " << k;
        ASSERT_NEAR(moved[p].second, CscView(expected.m).column_values(other)[p], 1e-11)
            << "column " << k;
      }
      const auto at = static_cast<size_t>(k);
      ASSERT_NEAR(lanes.residual_norms[at], residuals[at], 1e-12);
    }
  }
}

// Lanes whose problem is hard are solved alone, and counted so; those beside them are as they would
// be without.
TEST(Lanes, LeaveHardProblemsToTheSolverOfOneGroup) {
  CscMatrix a = Blocks(4, 64, 31);
  const CscMatrix easy = a;
  const auto column = [&](int64_t j) {
    return a.values.data() + a.col_ptr[static_cast<size_t>(j)];
  };
  // Block 5: two equal columns. Block 9: two columns at angle 1e-7. Block 14: a column of zeros.
  // Block 20, later: not finite.
  std::copy_n(column(20), 4, column(21));
  for (int i = 0; i < 4; ++i) column(37)[i] = column(36)[i] * (i == 0 ? 1 + 1e-7 : 1);
  std::fill_n(column(57), 4, 0.0);
  const StaticSpaiOptions options = With(LocalSolver::kGram);
  EXPECT_EQ(Share(*Plan(a, options)), 1);
  ExpectGramAccuracy(a, Build(a, nullptr, options), Build(a, nullptr, With(LocalSolver::kQr)),
                     "blocks");
  *column(82) = std::numeric_limits<double>::infinity();
  const StaticSpaiResult result = Build(a, nullptr, options);
  const StaticSpaiResult undisturbed = Build(easy, nullptr, options);
  EXPECT_EQ(result.quality.rescued_columns, 16);
  EXPECT_EQ(result.quality.non_finite_columns, 4);
  EXPECT_EQ(result.quality.first_non_finite, 80);
  EXPECT_EQ(result.quality.first_rescued, 20);
  EXPECT_EQ(result.quality.rank_deficient_columns, 12);
  for (int64_t k = 0; k < a.n_cols; ++k) {
    const int64_t block = k / 4;
    if (block == 5 || block == 9 || block == 14 || block == 20) continue;
    const auto values = CscView(result.m).column_values(k);
    EXPECT_TRUE(std::ranges::equal(values, CscView(undisturbed.m).column_values(k))) << k;
  }
}

// From well-conditioned to worthless: weak lanes get their corrected steps, no lane is lost.
TEST(Lanes, KeepUpWithQrAtEveryPivot) {
  CscMatrix a = Blocks(3, 64, 32);
  for (int64_t block = 0; block < 64; ++block) {
    double* first = a.values.data() + a.col_ptr[static_cast<size_t>(3 * block)];
    double* second = a.values.data() + a.col_ptr[static_cast<size_t>(3 * block + 1)];
    const double angle = std::pow(10.0, -static_cast<double>(block) / 6);
    for (int i = 0; i < 3; ++i) second[i] = first[i] + angle * second[i];
  }
  const StaticSpaiResult gram = Build(a, nullptr, With(LocalSolver::kGram));
  ExpectGramAccuracy(a, gram, Build(a, nullptr, With(LocalSolver::kQr)), "angles");
  EXPECT_GT(gram.quality.rescued_columns, 0);
  EXPECT_GT(gram.quality.gram_columns, 30);
}

TEST(Lanes, AreTheSameForAnyNumberOfThreads) {
  for (const LaneCase& c : LaneCases()) {
    SCOPED_TRACE(c.name);
    const StaticSpaiResult one = Build(c.a, nullptr, c.options, 1);
    for (const int threads : {2, 5}) {
      const StaticSpaiResult other = Build(c.a, nullptr, c.options, threads);
      EXPECT_EQ(one.m.values, other.m.values);
      EXPECT_EQ(one.residual_norms, other.residual_norms);
      EXPECT_EQ(one.quality.residual_frobenius, other.quality.residual_frobenius);
    }
  }
}

TEST(Lanes, ServeNewValuesOnTheSamePattern) {
  const CscMatrix a = Grid(20, 20, 1, false, 2, 41), b = Grid(20, 20, 1, false, 2, 42);
  const StaticSpaiOptions options = With(LocalSolver::kGram);
  const auto plan = Plan(a, options);
  const auto rebuilt = BuildStaticSpai(*plan, b, options, {});
  ASSERT_TRUE(rebuilt.ok());
  EXPECT_EQ(rebuilt->m.values, Build(b, nullptr, options).m.values);
}

// A plan promises its bytes before it is made; structures are part of it.
TEST(Lanes, StructuresFitThePromisedBytes) {
  for (const LaneCase& c : LaneCases()) {
    SCOPED_TRACE(c.name);
    const auto plan = Plan(c.a, c.options);
    int64_t entries = 0, bytes = 0;
    for (const Structure& structure : plan->structures) {
      entries += structure.n_entries;
      bytes += static_cast<int64_t>(
          sizeof(Structure) + structure.runs.capacity() * sizeof(Structure::Run) +
          structure.targets.capacity() * sizeof(Structure::Target) +
          structure.pairs.capacity() * sizeof(Structure::BlockPair) +
          4 * (structure.lengths.capacity() + structure.places.capacity() +
               structure.run_columns.capacity() + structure.block_begin.capacity() +
               structure.pair_begin.capacity()));
    }
    EXPECT_LE(entries, MaxStructureEntries(plan->counts.nnz_m));
    const int64_t without =
        PlanBytes(c.a.n_cols, plan->counts.nnz_m, 0) - 48 * MaxStructureEntries(plan->counts.nnz_m);
    EXPECT_LE(bytes, plan->counts.plan_bytes - without + c.a.n_cols * 8);
  }
}

}  // namespace
}  // namespace spaid::kernels
