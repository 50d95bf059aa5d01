// The path of static SPAI by diagonals on a CUDA device (kernels/static_spai/cuda/dia.h).
#include <functional>
#include <numbers>

#include "kernels/bench/problems.h"
#include "kernels/static_spai/cuda/plan.h"
#include "tests/kernels/static_spai/gpu_helpers.h"

namespace spaid::kernels {
namespace {

// Entry by entry: what to make of a_ij; zeros of `keep` are not stored.
CscMatrix Changed(const CscMatrix& a, const std::function<double(int64_t, int64_t, double)>& value,
                  const std::function<bool(int64_t, int64_t)>& keep) {
  CscMatrix b;
  b.n_rows = b.n_cols = a.n_cols;
  b.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const auto rows = CscView(a).column(j);
    const auto values = CscView(a).column_values(j);
    for (size_t p = 0; p < rows.size(); ++p) {
      if (!keep(rows[p], j)) continue;
      b.row_idx.push_back(rows[p]);
      b.values.push_back(value(rows[p], j, values[p]));
    }
    b.col_ptr.push_back(static_cast<int64_t>(b.row_idx.size()));
  }
  return b;
}
CscMatrix WithValues(const CscMatrix& a,
                     const std::function<double(int64_t, int64_t, double)>& value) {
  return Changed(a, value, [](int64_t, int64_t) { return true; });
}
CscMatrix WithEntries(const CscMatrix& a, const std::function<bool(int64_t, int64_t)>& keep) {
  return Changed(
      a, [](int64_t, int64_t, double v) { return v; }, keep);
}

Pattern PatternOf(const CscMatrix& a) {
  Pattern p;
  p.n_rows = p.n_cols = a.n_cols;
  p.col_ptr = a.col_ptr;
  p.row_idx = a.row_idx;
  return p;
}

// Every unknown becomes `node` of them, every entry a full block.
CscMatrix WithNodes(const CscMatrix& a, int node, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix b;
  b.n_rows = b.n_cols = a.n_cols * node;
  b.col_ptr.push_back(0);
  for (int64_t j = 0; j < b.n_cols; ++j) {
    const auto rows = CscView(a).column(j / node);
    const auto values = CscView(a).column_values(j / node);
    for (size_t p = 0; p < rows.size(); ++p) {
      for (int t = 0; t < node; ++t) {
        b.row_idx.push_back(rows[p] * node + t);
        b.values.push_back((t == j % node ? values[p] : 0) + random.Uniform(-0.2, 0.2));
      }
    }
    b.col_ptr.push_back(static_cast<int64_t>(b.row_idx.size()));
  }
  return b;
}

// Entries of few diagonals, random but regular.
CscMatrix Banded(int64_t n, std::initializer_list<int> offsets, uint64_t seed) {
  oracle::Random random(seed);
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  a.col_ptr.push_back(0);
  for (int64_t j = 0; j < n; ++j) {
    for (const int offset : offsets) {
      if (j + offset < 0 || j + offset >= n) continue;
      a.row_idx.push_back(static_cast<int32_t>(j + offset));
      a.values.push_back((offset == 0 ? 3 : 0) + random.Uniform(-1, 1));
    }
    a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
  }
  return a;
}

class GpuDia : public GpuStaticSpai {
 protected:
  // Kinds of local problems that the plan sees: one by diagonals.
  int64_t Structures(const CscMatrix& a, const Pattern* pattern = nullptr) {
    const auto lock = device_->Lock();
    cuda::Context& context = ContextOf(*device_);
    const cuda::Matrix matrix = cuda::UploadMatrix(context, a, nullptr);
    const PatternView user = pattern != nullptr ? PatternView(*pattern) : PatternView();
    const StopToken never;
    const cuda::StaticSpaiPlan plan = cuda::MakePlan(
        context, matrix,
        cuda::MakePattern(context, matrix, pattern != nullptr ? &user : nullptr, /*there=*/nullptr,
                          {}, {}, 0, cuda::Caller(never, "the test")),
        /*by_qr=*/false, {0, a.n_cols});
    return plan.grouped ? plan.n_structures : 1;
  }

  void ExpectDia(const CscMatrix& a, const Pattern* pattern, const std::string& what) {
    EXPECT_EQ(Structures(a, pattern), 1) << what;
    if (pattern == nullptr) return ExpectEqual(a, nullptr, With(LocalSolver::kGram), what);
    const PatternView view = *pattern;
    ExpectEqual(a, &view, With(LocalSolver::kGram), what);
  }
};

TEST_F(GpuDia, HandCheckable) {
  // Columns 0 and 2 of tridiag(-1, 2, -1), n = 3, on the pattern of A: B = [5 -4; -4 6], right-hand
  // side (2, -1), m = (8, 3) / 14; the middle one has the full pattern: A⁻¹'s (1/2, 1, 1/2).
  const CscMatrix a = FromRows({{2, -1, 0}, {-1, 2, -1}, {0, -1, 2}});
  const StaticSpaiResult m = BuildOnDevice(a, nullptr, With(LocalSolver::kGram));
  const double expected[] = {8. / 14, 3. / 14, 0.5, 1, 0.5, 3. / 14, 8. / 14};
  ASSERT_EQ(m.m.values.size(), 7u);
  for (size_t p = 0; p < 7; ++p) EXPECT_NEAR(m.m.values[p], expected[p], 1e-15) << p;
  EXPECT_NEAR(m.residual_norms[0], std::sqrt(1. / 14), 1e-15);
  EXPECT_NEAR(m.residual_norms[1], 0, 1e-15);
  EXPECT_EQ(timings_.host_columns, 0);
}

TEST_F(GpuDia, GridsOfAllSizes) {
  for (const int m : {1, 2, 3, 4, 7}) {
    const std::string size = std::to_string(m);
    ExpectDia(bench::ConvectionDiffusion(m, 0), nullptr, "7 points, " + size);
    ExpectDia(bench::ConvectionDiffusion(m, 300), nullptr, "convection, " + size);
    ExpectDia(bench::Laplacian27(m), nullptr, "27 points, " + size);
    ExpectDia(bench::Anisotropic(m, 1e-3, std::numbers::pi / 8), nullptr, "9 points, " + size);
    ExpectDia(oracle::Laplacian2d(m, m), nullptr, "5 points, " + size);
    if (m > 1) ExpectDia(bench::Elasticity(m), nullptr, "elasticity, " + size);
  }
  for (const int64_t n : {1, 2, 3, 5, 31, 32, 33, 1000}) {
    ExpectDia(oracle::Laplacian2d(n, 1), nullptr, "tridiagonal, " + std::to_string(n));
    ExpectDia(Banded(n, {0}, 1), nullptr, "diagonal, " + std::to_string(n));
    ExpectDia(Banded(n, {-1, 0}, 2), nullptr, "bidiagonal, " + std::to_string(n));
    ExpectDia(Banded(n, {-3, -2, -1, 0, 1, 2}, 3), nullptr, "band, " + std::to_string(n));
  }
}

TEST_F(GpuDia, EverySizeOfLocalProblem) {
  for (int width = 1; width <= 30; ++width) {
    CscMatrix a;
    oracle::Random random(static_cast<uint64_t>(width));
    const int64_t n = 211;
    a.n_rows = a.n_cols = n;
    a.col_ptr.push_back(0);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j - width / 2; i < j - width / 2 + width; ++i) {
        if (i < 0 || i >= n) continue;
        a.row_idx.push_back(static_cast<int32_t>(i));
        a.values.push_back((i == j ? 3 : 0) + random.Uniform(-1, 1));
      }
      a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size()));
    }
    ExpectDia(a, nullptr, "band of " + std::to_string(width));
  }
}

TEST_F(GpuDia, NodesOfSeveralUnknowns) {
  for (const int node : {2, 3, 4, 6}) {
    for (const int m : {2, 3, 6}) {
      const std::string what = std::to_string(node) + " a node, " + std::to_string(m);
      ExpectDia(WithNodes(oracle::Laplacian2d(m, m), node, 7), nullptr, "5 points, " + what);
      if (node > 3) continue;
      ExpectDia(WithNodes(bench::Laplacian27(m), node, 8), nullptr, "27 points, " + what);
    }
  }
  ExpectDia(WithNodes(Banded(100, {-2, -1, 0, 1, 2}, 4), 3, 9), nullptr, "band of nodes");
}

TEST_F(GpuDia, UserPatterns) {
  const CscMatrix a = bench::Laplacian27(6), e = bench::Elasticity(5);
  const CscMatrix p7 = bench::ConvectionDiffusion(6, 100);
  const auto lower = [](int64_t i, int64_t j) { return i >= j; };
  const Pattern half = PatternOf(WithEntries(a, lower)), seven = PatternOf(p7),
                diagonal = DiagonalPattern(216), more = PatternOf(a);
  ExpectDia(a, &half, "lower half");
  ExpectDia(a, &seven, "7 of 27 points");
  ExpectDia(a, &diagonal, "diagonal");
  ExpectDia(p7, &more, "27 for 7 points");
  const Pattern strict = PatternOf(WithEntries(p7, [](int64_t i, int64_t j) { return i != j; }));
  ExpectDia(p7, &strict, "without the diagonal");
  oracle::Random random(3);
  std::vector<uint8_t> drop(10000);
  for (uint8_t& d : drop) d = random.Uniform() < 0.3;
  const auto some = [&](int64_t i, int64_t j) {
    return i == j || drop[static_cast<size_t>((i * 37 + j * 101) % 10000)] == 0;
  };
  const Pattern holes = PatternOf(WithEntries(a, some));
  ExpectDia(a, &holes, "27 points with holes");
  const Pattern nodes =
      PatternOf(WithEntries(e, [&](int64_t i, int64_t j) { return some(i / 3, j / 3); }));
  ExpectDia(e, &nodes, "nodes with holes");
  // Two of three unknowns of a node: no blocks, and too many diagonals of single unknowns.
  const Pattern broken = PatternOf(WithEntries(e, [](int64_t i, int64_t) { return i % 3 != 1; }));
  EXPECT_GT(Structures(e, &broken), 1);
  const PatternView view = broken;
  ExpectEqual(e, &view, With(LocalSolver::kGram), "broken nodes");
}

TEST_F(GpuDia, PowersThresholdsAndFilters) {
  StaticSpaiOptions options = With(LocalSolver::kGram);
  const CscMatrix cases[] = {bench::Laplacian27(6), bench::ConvectionDiffusion(9, 300),
                             bench::Anisotropic(20, 1e-3, 0.4), bench::Elasticity(5),
                             WithNodes(bench::ConvectionDiffusion(6, 50), 2, 11)};
  for (const CscMatrix& a : cases) {
    const std::string what = std::to_string(a.nnz()) + " entries";
    for (const double tau : {0.3, 0.9, 0.99, 1.0}) {
      options.pattern.keep_tau = tau;
      ExpectEqual(a, nullptr, options, what + ", tau " + std::to_string(tau));
    }
    options.pattern.keep_tau.reset();
    for (const double filter : {0.01, 0.2}) {
      options.post_filter = filter;
      ExpectEqual(a, nullptr, options, what + ", filter " + std::to_string(filter));
    }
    options.post_filter = 0;
  }
  ExpectEqual(cases[1], nullptr, With(LocalSolver::kGram, 2), "25 slots");
  ExpectEqual(cases[2], nullptr, With(LocalSolver::kGram, 2), "25 slots in two dimensions");
}

TEST_F(GpuDia, MissingEntriesAndZeros) {
  oracle::Random random(5);
  std::vector<uint8_t> drop(4096);
  for (uint8_t& d : drop) d = random.Uniform() < 0.1;
  const auto kept = [&](int64_t i, int64_t j) {
    return drop[static_cast<size_t>((i * 31 + j * 77) % 4096)] == 0;
  };
  const auto diagonal_kept = [&](int64_t i, int64_t j) { return i == j || kept(i, j); };
  const auto no_diagonal = [](int64_t i, int64_t j) { return i != j; };
  const auto zero_diagonal = [](int64_t i, int64_t j, double v) { return i == j ? 0 : v; };
  for (const CscMatrix& a : {bench::ConvectionDiffusion(7, 100), bench::Laplacian27(6),
                             bench::Anisotropic(20, 1e-2, 0.3)}) {
    const std::string what = std::to_string(a.nnz()) + " entries";
    ExpectDia(WithEntries(a, diagonal_kept), nullptr, "holes, " + what);
    ExpectEqual(WithEntries(a, kept), nullptr, With(LocalSolver::kGram),
                "no diagonal here and there, " + what);
    ExpectDia(WithValues(a, zero_diagonal), nullptr, "zero diagonal, " + what);
    ExpectEqual(WithEntries(a, no_diagonal), nullptr, With(LocalSolver::kGram),
                "no diagonal, " + what);
  }
  ExpectDia(WithValues(bench::Elasticity(4), zero_diagonal), nullptr, "zero diagonal of nodes");
  // k is in I of no column but those whose neighbours reach back.
  const Pattern diagonal = DiagonalPattern(343);
  ExpectDia(WithEntries(bench::ConvectionDiffusion(7, 100), no_diagonal), &diagonal,
            "zero columns");
  EXPECT_EQ(timings_.host_columns, 0);
}

TEST_F(GpuDia, BadScalesAndSingularColumns) {
  const auto scaled = [](int64_t, int64_t j, double v) {
    return std::ldexp(v, static_cast<int>(j * 7919 % 601) - 300);
  };
  const auto equal_columns = [](int64_t i, int64_t j, double v) {
    return j % 30 == 1 ? (i % 3 == 1 ? 2.0 : 1.0) : j % 30 == 2 ? (i % 3 == 1 ? 2.0 : 1.0) : v;
  };
  const auto zero_columns = [](int64_t, int64_t j, double v) { return j % 50 == 7 ? 0 : v; };
  for (const CscMatrix& a : {bench::ConvectionDiffusion(6, 100), bench::Laplacian27(5),
                             bench::Anisotropic(15, 1e-2, 0.3), bench::Elasticity(4)}) {
    const std::string what = std::to_string(a.nnz()) + " entries";
    EXPECT_EQ(Structures(WithValues(a, scaled)), 1);
    const StaticSpaiResult plain = BuildOnDevice(a, nullptr, With(LocalSolver::kGram));
    const StaticSpaiResult m =
        BuildOnDevice(WithValues(a, scaled), nullptr, With(LocalSolver::kGram));
    ASSERT_EQ(m.residual_norms, plain.residual_norms) << what;  // powers of two change no rounding
    ExpectDia(WithValues(a, equal_columns), nullptr, "equal columns, " + what);
    ExpectDia(WithValues(a, zero_columns), nullptr, "columns of zeros, " + what);
    EXPECT_GT(timings_.host_columns, 0) << what;
  }
  BuildOnDevice(WithValues(bench::Elasticity(4), equal_columns), nullptr, With(LocalSolver::kGram));
  EXPECT_GT(timings_.host_columns, 0) << "two equal columns of one node";
}

// From well-conditioned local problems to those that the Gram path gives up: without a corrected
// step those in between would miss the CPU's values.
TEST_F(GpuDia, CorrectedSteps) {
  for (double angle = 1; angle > 1e-7; angle *= 0.25) {
    const std::string what = "angle " + std::to_string(angle);
    // Columns 2i and 2i + 1 have the same rows where node is 2, and come close.
    CscMatrix a = WithNodes(oracle::Laplacian2d(9, 8), 2, 21);
    for (int64_t j = 0; j < a.n_cols; j += 2) {
      const auto begin = a.col_ptr[static_cast<size_t>(j)],
                 end = a.col_ptr[static_cast<size_t>(j) + 1];
      for (int64_t p = begin; p < end; ++p) {
        double& next = a.values[static_cast<size_t>(p + end - begin)];
        next = a.values[static_cast<size_t>(p)] + angle * next;
      }
    }
    ExpectDia(a, nullptr, "pairs, " + what);
    // The same with single unknowns: one more, which is alone.
    CscMatrix b = a;
    b.n_rows = ++b.n_cols;
    b.row_idx.push_back(static_cast<int32_t>(b.n_cols - 1));
    b.values.push_back(1);
    b.col_ptr.push_back(static_cast<int64_t>(b.row_idx.size()));
    ExpectDia(b, nullptr, "single unknowns, " + what);
    // Five: one thread a column.
    ExpectDia(WithValues(oracle::Laplacian2d(12, 11),
                         [&](int64_t i, int64_t j, double v) {
                           return i == j ? 1 + angle * v : i % 2 == 0 ? -1 : 1;
                         }),
              nullptr, "five, " + what);
  }
}

// Across the bounds over which a column is spared its explicit residual.
TEST_F(GpuDia, SparedResiduals) {
  for (const double diagonal : {100.0, 26.0, 18.0, 13.0, 9.0, 6.0, 4.0, 2.0, 1.0, 0.3, 0.0}) {
    const std::string what = "diagonal " + std::to_string(diagonal);
    const auto set = [&](int64_t i, int64_t j, double v) { return i == j ? diagonal : v; };
    ExpectDia(WithValues(bench::Laplacian27(7), set), nullptr, "27 points, " + what);
    ExpectDia(WithValues(bench::ConvectionDiffusion(8, 0),
                         [&](int64_t i, int64_t j, double v) {
                           return i == j ? diagonal / 5 : v < 0 ? -1 : 1;
                         }),
              nullptr, "7 points, " + what);
    ExpectDia(WithValues(bench::Anisotropic(16, 1e-2, 0.3), set), nullptr, "9 points, " + what);
  }
  for (double angle = 1; angle > 1e-7; angle *= 0.25) {
    CscMatrix a = bench::Elasticity(4);
    for (int64_t j = 0; j < a.n_cols; j += 3) {
      const auto begin = a.col_ptr[static_cast<size_t>(j)];
      const auto end = a.col_ptr[static_cast<size_t>(j) + 1];
      for (int64_t p = begin; p < end; ++p) {
        double& next = a.values[static_cast<size_t>(p + end - begin)];
        next = a.values[static_cast<size_t>(p)] + angle * next;
      }
    }
    ExpectDia(a, nullptr, "elasticity, angle " + std::to_string(angle));
  }
}

TEST_F(GpuDia, OtherStructuresFallBack) {
  // A grid with a few entries anywhere.
  CscMatrix a = bench::ConvectionDiffusion(16, 0);
  oracle::Random random(2);
  CscMatrix b;
  b.n_rows = b.n_cols = a.n_cols;
  b.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const auto rows = CscView(a).column(j);
    const auto values = CscView(a).column_values(j);
    std::vector<std::pair<int32_t, double>> column;
    for (size_t p = 0; p < rows.size(); ++p) column.emplace_back(rows[p], values[p]);
    const auto extra = static_cast<int32_t>(random.Below(a.n_cols));
    const bool there = std::ranges::find(rows, extra) != rows.end();
    if (j % 400 == 123 && !there) column.emplace_back(extra, 0.5);
    std::ranges::sort(column);
    for (const auto& [row, value] : column) {
      b.row_idx.push_back(row);
      b.values.push_back(value);
    }
    b.col_ptr.push_back(static_cast<int64_t>(b.row_idx.size()));
  }
  EXPECT_EQ(Structures(a), 1);
  EXPECT_GT(Structures(b), 1);
  ExpectEqual(b, nullptr, With(LocalSolver::kGram), "a few entries more");
  EXPECT_GT(Structures(oracle::RandomIrregular(500, 6, 1)), 1);
  EXPECT_GT(Structures(oracle::Arrow(500)), 1);
}

// A grid whose unknowns are renumbered takes the general path, and has the same M.
TEST_F(GpuDia, EqualsTheGeneralPath) {
  for (const CscMatrix& a :
       {bench::ConvectionDiffusion(12, 50), bench::Laplacian27(10), bench::Elasticity(7)}) {
    const int64_t n = a.n_cols;
    oracle::Random random(9);
    std::vector<int32_t> to(static_cast<size_t>(n));
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<int32_t>(i);
    for (size_t i = to.size(); i-- > 1;) {
      std::swap(to[i], to[static_cast<size_t>(random.Below(static_cast<int64_t>(i) + 1))]);
    }
    std::vector<std::vector<std::pair<int32_t, double>>> columns(static_cast<size_t>(n));
    for (int64_t j = 0; j < n; ++j) {
      const auto rows = CscView(a).column(j);
      const auto values = CscView(a).column_values(j);
      auto& column = columns[static_cast<size_t>(to[static_cast<size_t>(j)])];
      for (size_t p = 0; p < rows.size(); ++p) {
        column.emplace_back(to[static_cast<size_t>(rows[p])], values[p]);
      }
      std::ranges::sort(column);
    }
    CscMatrix b;
    b.n_rows = b.n_cols = n;
    b.col_ptr.push_back(0);
    for (const auto& column : columns) {
      for (const auto& [row, value] : column) {
        b.row_idx.push_back(row);
        b.values.push_back(value);
      }
      b.col_ptr.push_back(static_cast<int64_t>(b.row_idx.size()));
    }
    EXPECT_EQ(Structures(a), 1);
    EXPECT_GT(Structures(b), 1);
    const StaticSpaiResult x = BuildOnDevice(a, nullptr, With(LocalSolver::kGram));
    const StaticSpaiResult y = BuildOnDevice(b, nullptr, With(LocalSolver::kGram));
    for (int64_t j = 0; j < n; ++j) {
      const int32_t own = to[static_cast<size_t>(j)];
      EXPECT_NEAR(x.residual_norms[static_cast<size_t>(j)],
                  y.residual_norms[static_cast<size_t>(own)], 1e-12);
      const auto rows = CscView(x.m).column(j), other_rows = CscView(y.m).column(own);
      const auto values = CscView(x.m).column_values(j), other = CscView(y.m).column_values(own);
      double size = 0;
      for (const double v : values) size = std::max(size, std::abs(v));
      for (size_t p = 0; p < rows.size(); ++p) {
        const auto at = std::ranges::lower_bound(other_rows, to[static_cast<size_t>(rows[p])]);
        ASSERT_NEAR(values[p], other[static_cast<size_t>(at - other_rows.begin())], 1e-10 * size);
      }
    }
  }
}

TEST_F(GpuDia, ARebuildRepeatsBitForBit) {
  for (CscMatrix a :
       {bench::ConvectionDiffusion(20, 0), bench::Laplacian27(14), bench::Elasticity(8)}) {
    auto plan = PlanStaticSpaiCuda(device_, a, nullptr, {}, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    auto first = BuildStaticSpaiCuda(**plan, a, {}, {});
    ASSERT_TRUE(first.ok());
    for (double& v : a.values) v *= 4;
    for (int again = 0; again < 2; ++again) {
      auto second = BuildStaticSpaiCuda(**plan, a, {}, {});
      ASSERT_TRUE(second.ok());
      for (size_t p = 0; p < a.values.size(); ++p) {
        ASSERT_EQ(second->m.values[p], first->m.values[p] / 4);
      }
      EXPECT_EQ(second->residual_norms, first->residual_norms);
    }
  }
}

// Stops at the first report.
class StopAtOnce : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t done, int64_t total) override {
    if (done == total) return;
    ++reports;
    if (stop) source.Request(StopReason::kCancelled);
  }
  void OnResidual(const ResidualPoint&) override {}

  bool stop = false;
  int reports = 0;
  StopSource source;
};

TEST_F(GpuDia, ReportsAndStopsBetweenRanges) {
  const CscMatrix a = bench::ConvectionDiffusion(105, 0);
  auto plan = PlanStaticSpaiCuda(device_, a, nullptr, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  StopAtOnce sink;
  const Context context{.stop = sink.source.token(), .progress = &sink};
  auto built = BuildStaticSpaiCuda(**plan, a, {}, context);
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_GT(sink.reports, 0);
  sink.stop = true;
  built = BuildStaticSpaiCuda(**plan, a, {}, context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
  // Nothing is left behind: the next build is a whole one.
  auto again = BuildStaticSpaiCuda(**plan, a, {}, {});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->quality.gram_columns, a.n_cols);
}

}  // namespace
}  // namespace spaid::kernels
