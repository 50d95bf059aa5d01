// The set-up on a CUDA device of nodes with several unknowns, of several near-null vectors, and by
// FSAI and aFSAI, against the host's. Without a device every test is skipped (gpu_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/amg/amg_cuda.h"
#include "kernels/amg/amg_estimate.h"
#include "kernels/amg/cuda/aggregation.h"
#include "kernels/amg/cuda/nodes.h"
#include "kernels/amg/set_up_rules.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/sparse/cuda/symmetry.h"
#include "tests/kernels/amg/gpu_set_up.h"
#include "tests/kernels/sparse/matrices.h"

namespace spaid::kernels {
namespace {

CscMatrix Elastic(int64_t m) {
  gallery::Matrix a = gallery::Elasticity3d(m, gallery::Rounding::kBenchmarks);
  gallery::Symmetrize({a.col_ptr, a.row_idx, a.values});
  return From(a);
}

// A body of springs between nodes that nothing holds: its motions are its null space.
struct Body {
  CscMatrix a;
  std::vector<double> coordinates;  // by columns
  NearNullInput input() const {
    return {.vectors = {}, .count = 0, .coordinates = coordinates, .dimension = 3};
  }
};

Body Springs(const std::vector<std::array<double, 3>>& nodes,
             const std::vector<std::array<int64_t, 2>>& springs, uint64_t seed) {
  oracle::Random random(seed);
  const auto n = static_cast<int64_t>(nodes.size());
  std::vector<std::map<int64_t, std::array<double, 9>>> rows(nodes.size());
  for (const auto& [i, j] : springs) {
    std::array<double, 3> along{};
    double squares = 0;
    for (size_t k = 0; k < 3; ++k) {
      along[k] = nodes[static_cast<size_t>(j)][k] - nodes[static_cast<size_t>(i)][k];
      squares += along[k] * along[k];
    }
    const double stiffness = random.Uniform(0.5, 2) / squares;
    for (size_t r = 0; r < 3; ++r) {
      for (size_t c = 0; c < 3; ++c) {
        const double value = stiffness * along[r] * along[c];
        rows[static_cast<size_t>(i)][i][3 * r + c] += value;
        rows[static_cast<size_t>(j)][j][3 * r + c] += value;
        rows[static_cast<size_t>(i)][j][3 * r + c] -= value;
        rows[static_cast<size_t>(j)][i][3 * r + c] -= value;
      }
    }
  }
  Body body;
  body.a = {.n_rows = 3 * n, .n_cols = 3 * n, .col_ptr = {0}, .row_idx = {}, .values = {}};
  for (const auto& row : rows) {
    for (size_t r = 0; r < 3; ++r) {
      for (const auto& [j, block] : row) {
        for (size_t c = 0; c < 3; ++c) {
          body.a.row_idx.push_back(static_cast<int32_t>(3 * j + static_cast<int64_t>(c)));
          body.a.values.push_back(block[3 * r + c]);
        }
      }
      body.a.col_ptr.push_back(body.a.nnz());
    }
  }
  for (size_t k = 0; k < 3; ++k) {
    for (const auto& node : nodes) body.coordinates.push_back(node[k]);
  }
  return body;
}

// Nodes of a grid, moved a little, with springs to all 26 neighbours.
Body SpringsOfGrid(int64_t m, uint64_t seed = 1) {
  oracle::Random random(seed);
  std::vector<std::array<double, 3>> nodes;
  std::vector<std::array<int64_t, 2>> springs;
  for (int64_t i = 0; i < m * m * m; ++i) {
    const std::array<int64_t, 3> at = {i % m, i / m % m, i / m / m};
    nodes.push_back({});
    for (size_t k = 0; k < 3; ++k) {
      nodes.back()[k] = static_cast<double>(at[k]) + random.Uniform(-0.2, 0.2);
    }
    for (int64_t d = 14; d < 27; ++d) {
      const std::array<int64_t, 3> to = {at[0] + d % 3 - 1, at[1] + d / 3 % 3 - 1,
                                         at[2] + d / 9 - 1};
      bool inside = true;
      for (const int64_t x : to) inside = inside && x >= 0 && x < m;
      if (inside) springs.push_back({i, (to[2] * m + to[1]) * m + to[0]});
    }
  }
  return Springs(nodes, springs, seed);
}

// Nodes on a line, held at both ends by a little stiffness everywhere: none turns about it.
Body Line(int64_t n) {
  std::vector<std::array<double, 3>> nodes;
  std::vector<std::array<int64_t, 2>> springs;
  for (int64_t i = 0; i < n; ++i) {
    nodes.push_back({static_cast<double>(i), 0, 0});
    if (i > 0) springs.push_back({i - 1, i});
  }
  Body body = Springs(nodes, springs, 3);
  for (int64_t j = 0; j < body.a.n_cols; ++j) {
    for (int64_t p = body.a.col_ptr[static_cast<size_t>(j)];
         p < body.a.col_ptr[static_cast<size_t>(j) + 1]; ++p) {
      const int64_t i = body.a.row_idx[static_cast<size_t>(p)];
      if (i == j) body.a.values[static_cast<size_t>(p)] += 1;
      if (i != j && i % 3 == j % 3) body.a.values[static_cast<size_t>(p)] -= 0.4;
    }
  }
  return body;
}

AmgOptions Deep(SmootherKind kind, int block = 0, Precision precision = Precision::kFp64) {
  AmgOptions options = With(kind, precision);
  options.max_coarse_size = 30;
  options.block_size = block;
  return options;
}

NearNullInput Vectors(const std::vector<double>& vectors, int count) {
  return {.vectors = vectors, .count = count, .coordinates = {}, .dimension = 0};
}

const SmootherKind kDiagonals[] = {SmootherKind::kL1Jacobi, SmootherKind::kJacobi,
                                   SmootherKind::kChebyshev};

TEST(GpuNodes, SizesAreTheHosts) {
  std::vector<CscMatrix> all = {Elastic(6),
                                SpringsOfGrid(4).a,
                                From(gallery::ConvectionDiffusion3d(12, 0)),
                                From(gallery::Stokes2d(8)),
                                From(gallery::RandomIrregular(600)),
                                oracle::FromRows({{2}}),
                                oracle::FromRows({{2, 1}, {1, 2}}),
                                From(gallery::GraphLaplacian(900))};
  // Nodes of which a tenth, and a few more, have other columns.
  for (const int64_t broken : {21, 22}) {
    CscMatrix a = SpringsOfGrid(6).a;  // 216 nodes
    for (int64_t k = 0; k < broken; ++k) {
      // The first entry of a node's second column goes.
      const auto j = static_cast<size_t>(3 * (5 * k % 216) + 1);
      const auto at = static_cast<std::ptrdiff_t>(a.col_ptr[j]);
      a.row_idx.erase(a.row_idx.begin() + at);
      a.values.erase(a.values.begin() + at);
      for (size_t later = j + 1; later < a.col_ptr.size(); ++later) --a.col_ptr[later];
    }
    ASSERT_EQ(DetectBlockSize(a), broken == 21 ? 3 : 1);
    all.push_back(std::move(a));
  }
  for (const CscMatrix& a : all) {
    const auto lock = TheDevice()->Lock();
    const Status status = cuda::Guard(*TheDevice(), [&](cuda::Context& on) {
      const cuda::Matrix there = cuda::UploadMatrix(on, a, nullptr);
      EXPECT_EQ(cuda::DetectBlockSize(on, there.pattern()), DetectBlockSize(a)) << a.n_cols;
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(GpuNodes, GraphsAndAggregatesAreTheHosts) {
  const auto expect = [](const CscMatrix& a, bool symmetric, int block, double theta) {
    SCOPED_TRACE(std::to_string(a.n_cols) + ", " + std::to_string(block));
    const CscMatrix rows = symmetric ? a : Transpose(CscView(a));
    const auto couplings = Couplings(rows, symmetric, block, Threads(2));
    const StrongGraph here = FindStrong(*couplings, theta, Threads(2)).value();
    const Aggregates truth = Aggregate(here, 1, Threads(2)).value();
    const auto lock = TheDevice()->Lock();
    const Status status = cuda::Guard(*TheDevice(), [&](cuda::Context& on) {
      const cuda::RowMatrix there = cuda::UploadRows(on, rows, rows.values.data());
      const cuda::RowMatrix mirror = cuda::UploadRows(on, a, a.values.data());
      const cuda::StrongGraph graph =
          cuda::FindStrong(on, there, symmetric ? nullptr : &mirror, theta, block);
      const auto n = static_cast<size_t>(here.n);
      std::vector<int64_t> ptr(n + 1);
      std::vector<int32_t> neighbours(here.neighbours.size()), leader(n), of_node(n);
      std::vector<double> weights(neighbours.size());
      ASSERT_EQ(graph.n, here.n);
      on.Download({graph.ptr.To(ptr.data(), here.n + 1), graph.leader.To(leader.data(), here.n)});
      ASSERT_TRUE(std::equal(ptr.begin(), ptr.end(), here.ptr.begin()));
      const auto entries = static_cast<int64_t>(neighbours.size());
      on.Download({graph.neighbours.To(neighbours.data(), entries),
                   graph.weights.To(weights.data(), entries)});
      EXPECT_TRUE(std::equal(neighbours.begin(), neighbours.end(), here.neighbours.begin()));
      EXPECT_TRUE(std::equal(weights.begin(), weights.end(), here.weights.begin()));
      EXPECT_TRUE(std::equal(leader.begin(), leader.end(), here.leader.begin()));
      const cuda::Aggregates found = cuda::Aggregate(on, graph, 1);
      on.Download({found.of_node.To(of_node.data(), here.n)});
      EXPECT_EQ(found.count, truth.count);
      EXPECT_TRUE(std::equal(of_node.begin(), of_node.end(), truth.of_node.begin()));
    });
    EXPECT_TRUE(status.ok()) << status.message();
  };
  expect(Elastic(8), true, 3, 0.0225);
  expect(SpringsOfGrid(7).a, true, 3, 0.0225);
  // Nodes cut from matrices of single unknowns: rows of other columns, blocks with holes.
  for (const int block : {2, 4, 8}) {
    expect(From(gallery::ConvectionDiffusion3d(16, 0)), true, block, 0.1);
    expect(From(gallery::ConvectionDiffusion3d(16, 20)), false, block, 0.1);
    expect(From(gallery::GraphLaplacian(4000)), true, block, 0.05);
    expect(From(gallery::RandomIrregular(4000)), false, block, 0.05);
  }
}

TEST(GpuNodes, SymmetryIsThatOfSingleUnknowns) {
  const CscMatrix elastic = Elastic(6);
  std::vector<CscMatrix> all = {elastic, SpringsOfGrid(5).a, From(gallery::RandomIrregular(600))};
  const auto changed = [&](size_t at, double factor, double more) {
    all.push_back(elastic);
    all.back().values[at] = all.back().values[at] * factor + more;
  };
  for (const size_t at : {size_t{1}, elastic.values.size() / 2 + 7, elastic.values.size() - 2}) {
    changed(at, 1, 0.5);
    changed(at, 1 + 1e-13, 1e-16);
    changed(at, 0, 0);
  }
  // A block without a mirror.
  all.push_back(oracle::FromRows({{2, 1, 1, 1}, {1, 2, 1, 1}, {0, 0, 2, 1}, {0, 0, 1, 2}}));
  for (const CscMatrix& a : all) {
    SCOPED_TRACE(a.n_cols);
    const int block = a.n_cols == 4 ? 2 : 3;
    const auto lock = TheDevice()->Lock();
    const Status status = cuda::Guard(*TheDevice(), [&](cuda::Context& on) {
      const cuda::RowMatrix there = cuda::UploadRows(on, a, a.values.data());
      const auto nodes = cuda::ByNodes(on, there, block, block);
      if (!nodes) return;
      bool exactly = false;
      EXPECT_EQ(cuda::IsNumericallySymmetric(on, *nodes, &exactly),
                cuda::IsNumericallySymmetric(on, there.pattern(), there.values.get()));
      EXPECT_EQ(exactly, cuda::IsExactlySymmetric(on, there.pattern(), there.values.get()));
    });
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(GpuNodes, ElasticityIsTheHosts) {
  const CscMatrix a = Elastic(10);
  const Nodes nodes = NodesOfElasticity(10);
  for (const SmootherKind kind : kDiagonals) {
    SCOPED_TRACE(std::string(Name(kind)));
    ExpectTheHosts(a, true, Deep(kind));
    ExpectTheHosts(a, true, Deep(kind), nodes.input());
  }
  ExpectTheHosts(a, true, Deep(SmootherKind::kL1Jacobi, 0, Precision::kFp32), nodes.input());
  AmgOptions plain = Deep(SmootherKind::kL1Jacobi);
  plain.coarsening = Coarsening::kPlainAggregation;
  ExpectTheHosts(a, true, plain, nodes.input());
  AmgOptions guarded = Deep(SmootherKind::kL1Jacobi);
  guarded.max_growth = 0.01;
  ASSERT_TRUE(Build(a, true, guarded, nodes.input()).quality.levels.front().guarded);
  ExpectTheHosts(a, true, guarded, nodes.input());
}

TEST(GpuNodes, FreeBodiesAreTheHosts) {
  const Body body = SpringsOfGrid(8);
  ExpectTheHosts(body.a, true, Deep(SmootherKind::kL1Jacobi), body.input());
  ExpectTheHosts(body.a, true, Deep(SmootherKind::kL1Jacobi));
  const auto there = There(body.a, Deep(SmootherKind::kAfsai), body.input());
  ASSERT_TRUE(there.has_value());
  const AmgResult here = Build(body.a, true, Deep(SmootherKind::kAfsai), body.input());
  ExpectTheHosts(*there, here);
  EXPECT_NEAR(static_cast<double>(Iterations(body.a, true, *there->hierarchy)),
              static_cast<double>(Iterations(body.a, true, *here.hierarchy)), 2);
}

// Aggregates in which motions depend on one another, or that have fewer unknowns than there are
// motions: coarse unknowns that stand for nothing.
TEST(GpuNodes, DependentMotionsAreTheHosts) {
  const Body line = Line(200);
  ExpectTheHosts(line.a, true, Deep(SmootherKind::kL1Jacobi, 3), line.input());
  // One unknown a node, pairs of nodes, and up to eight vectors.
  const CscMatrix path = oracle::Laplacian2d(300, 1);
  AmgOptions full = Deep(SmootherKind::kL1Jacobi, 1);
  full.max_operator_complexity = full.max_growth = 10;
  for (const int count : {2, 3}) {
    SCOPED_TRACE(count);
    ExpectTheHosts(path, true, full, Vectors(RandomVector(count * path.n_cols, 3), count));
  }
}

TEST(GpuNodes, SeveralVectorsAreTheHosts) {
  AmgOptions options = Deep(SmootherKind::kL1Jacobi, 1);
  const CscMatrix grid = From(gallery::Laplace27(14));
  for (const int count : {1, 2, 3}) {
    SCOPED_TRACE(count);
    std::vector<double> vectors = RandomVector(count * grid.n_cols, 5);
    for (size_t i = 0; i < static_cast<size_t>(grid.n_cols); ++i) vectors[i] = 1;
    for (size_t i = static_cast<size_t>(grid.n_cols); i < vectors.size(); i += 3) vectors[i] = 0;
    ExpectTheHosts(grid, true, options, Vectors(vectors, count));
    options.block_size = 2;  // a scalar matrix cut into nodes
    ExpectTheHosts(grid, true, options, Vectors(vectors, count));
    options.block_size = 1;
  }
  // Rows of P of more than twelve aggregates are cut.
  options.strength_threshold = 0;
  options.max_growth = 10;
  options.max_operator_complexity = 10;
  const CscMatrix graph = From(gallery::GraphLaplacian(3000));
  ExpectTheHosts(graph, true, options, Vectors(RandomVector(2 * graph.n_cols, 5), 2));
}

TEST(GpuNodes, ScalarMatricesCutIntoNodesAreTheHosts) {
  for (const int block : {2, 4}) {
    SCOPED_TRACE(block);
    ExpectTheHosts(From(gallery::ConvectionDiffusion3d(16, 0)), true,
                   Deep(SmootherKind::kL1Jacobi, block));
    ExpectTheHosts(From(gallery::ConvectionDiffusion3d(16, 20)), false,
                   Deep(SmootherKind::kL1Jacobi, block));
    ExpectTheHosts(From(gallery::RandomIrregular(2000)), false,
                   Deep(SmootherKind::kL1Jacobi, block));
  }
  // Isolated nodes beside coupled ones.
  CscMatrix a = Elastic(6);
  for (int i = 0; i < 300; ++i) {
    a.row_idx.push_back(static_cast<int32_t>(a.n_cols++));
    a.values.push_back(6);
    a.col_ptr.push_back(a.nnz());
  }
  a.n_rows = a.n_cols;
  ExpectTheHosts(a, true, Deep(SmootherKind::kL1Jacobi, 3));
}

TEST(GpuNodes, FactorsSmoothAsTheHosts) {
  const CscMatrix elastic = Elastic(12), grid = From(gallery::Jumps3d(16, 4, 3));
  const Nodes nodes = NodesOfElasticity(12);
  for (const SmootherKind kind : {SmootherKind::kAfsai, SmootherKind::kFsai, SmootherKind::kAuto}) {
    SCOPED_TRACE(std::string(Name(kind)));
    const auto expect = [&](const CscMatrix& a, const NearNullInput& near) {
      for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
        const AmgOptions options = Deep(kind, 0, precision);
        const auto there = There(a, options, near);
        ASSERT_TRUE(there.has_value());
        const AmgResult here = Build(a, true, options, near);
        ExpectTheHosts(*there, here);
        EXPECT_NEAR(static_cast<double>(Iterations(a, true, *there->hierarchy)),
                    static_cast<double>(Iterations(a, true, *here.hierarchy)), 2);
      }
    };
    expect(elastic, {});
    expect(elastic, nodes.input());
    if (kind != SmootherKind::kAuto) expect(grid, {});
  }
}

// FSAI's pattern is A's, whatever is decided by rounding: G is the host's to rounding.
TEST(GpuNodes, FactorsOnAPatternAreTheHosts) {
  const CscMatrix a = Elastic(10);
  const auto there = There(a, Deep(SmootherKind::kFsai));
  ASSERT_TRUE(there.has_value());
  const AmgResult here = Build(a, true, Deep(SmootherKind::kFsai));
  for (const AmgPart& part : here.hierarchy->parts()) {
    if (part.kind != AmgPartKind::kSmoother) continue;
    const CscMatrix g = there->hierarchy->Part(part.level, part.kind).value(),
                    truth = here.hierarchy->Part(part.level, part.kind).value();
    ASSERT_TRUE(g.col_ptr == truth.col_ptr && g.row_idx == truth.row_idx);
    double distance = 0;
    for (size_t p = 0; p < g.values.size(); ++p) {
      distance = std::max(distance, std::fabs(g.values[p] - truth.values[p]));
    }
    EXPECT_LE(distance, 1e-10) << "level " << part.level;
  }
}

TEST(GpuNodes, CyclesAreThoseOfTheDownload) {
  for (const Precision precision : {Precision::kFp64, Precision::kFp32}) {
    for (const SmootherKind kind : {SmootherKind::kAfsai, SmootherKind::kL1Jacobi}) {
      ExpectCyclesOfTheDownload(Elastic(10), Deep(kind, 0, precision), nullptr);
    }
  }
  gallery::Matrix mesh = gallery::ConvectionDiffusion3d(72, 0);
  gallery::PermuteNodes({mesh.col_ptr, mesh.row_idx, mesh.values}, 1, mesh.n);
  const CscMatrix a = From(mesh);
  const auto a_there = CudaOperator::OfMatrix(TheDevice(), a, false, Context());
  ASSERT_TRUE(a_there.ok()) << a_there.status().message();
  ASSERT_NE((*a_there)->order(), nullptr);
  ExpectCyclesOfTheDownload(a, With(SmootherKind::kAfsai), a_there->get());
}

TEST(GpuNodes, OtherValuesAreTheHosts) {
  gallery::Matrix varied = gallery::Elasticity3d(9, gallery::Rounding::kBenchmarks);
  gallery::VaryCoefficients({varied.col_ptr, varied.row_idx, varied.values});
  gallery::Symmetrize({varied.col_ptr, varied.row_idx, varied.values});
  ExpectTheHosts(Elastic(9), true, Deep(SmootherKind::kL1Jacobi));
  ExpectTheHosts(From(varied), true, Deep(SmootherKind::kL1Jacobi));
  const auto first = There(Elastic(9), Deep(SmootherKind::kAfsai)),
             second = There(Elastic(9), Deep(SmootherKind::kAfsai));
  ASSERT_TRUE(first && second);
  for (const AmgPart& part : first->hierarchy->parts()) {
    ExpectEqual(*second->hierarchy->Part(part.level, part.kind),
                *first->hierarchy->Part(part.level, part.kind));
  }
}

std::optional<AmgResult> Again(const AmgResult& of, const CscMatrix& a, const NearNullInput& near,
                               const Device& device = TheDevice()) {
  auto built = RebuildAmgOnCuda(device, of.there, a, near, Threads(2));
  EXPECT_TRUE(built.ok()) << built.status().message();
  return built.ok() ? *std::move(built) : std::nullopt;
}

void ExpectTheHostsAgain(const CscMatrix& a, const AmgOptions& options,
                         const NearNullInput& near = {}) {
  SCOPED_TRACE(std::string(Name(options.smoother)) + ", " + std::to_string(near.dimension));
  const auto there = There(a, options, near);
  ASSERT_TRUE(there.has_value());
  ASSERT_NE(there->there, nullptr);
  EXPECT_LE(there->there->device_bytes(), MostPlanBytes(a.n_cols, a.nnz()));
  const AmgResult here = Build(a, true, options, near);
  for (const CscMatrix& other : {Stiffer(a), a}) {
    const auto again = Again(*there, other, near);
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(again->quality.reused);
    const auto truth = RebuildAmg(here.plan, other, near, Threads(2));
    ASSERT_TRUE(truth.ok()) << truth.status().message();
    ExpectTheHosts(*again, *truth);
    if (!IsFactored(options.smoother)) continue;
    EXPECT_NEAR(static_cast<double>(Iterations(other, true, *again->hierarchy)),
                static_cast<double>(Iterations(other, true, *truth->hierarchy)), 2);
  }
}

TEST(GpuRebuild, NodesAreTheHosts) {
  const CscMatrix a = Elastic(10);
  const Nodes nodes = NodesOfElasticity(10);
  for (const SmootherKind kind : {SmootherKind::kL1Jacobi, SmootherKind::kChebyshev,
                                  SmootherKind::kFsai, SmootherKind::kAfsai}) {
    ExpectTheHostsAgain(a, Deep(kind));
    ExpectTheHostsAgain(a, Deep(kind), nodes.input());
  }
  AmgOptions three = Deep(SmootherKind::kAfsai);
  three.max_levels = 3;
  three.max_coarse_size = 200;
  ExpectTheHostsAgain(Elastic(16), three, NodesOfElasticity(16).input());
  const Body body = SpringsOfGrid(8);
  ExpectTheHostsAgain(body.a, Deep(SmootherKind::kL1Jacobi), body.input());
  // One vector for nodes of three unknowns: coarse ones have one.
  std::vector<double> ones(static_cast<size_t>(a.n_cols), 1.0);
  ones[4] = 2;
  ExpectTheHostsAgain(a, Deep(SmootherKind::kL1Jacobi), One(ones));
}

TEST(GpuRebuild, FactorsOfOneUnknownAreTheHosts) {
  const CscMatrix grid = From(gallery::Jumps3d(16, 4, 3));
  ExpectTheHostsAgain(grid, Deep(SmootherKind::kFsai));
  ExpectTheHostsAgain(grid, Deep(SmootherKind::kAfsai));
}

// G on its own pattern is what has grown, to rounding.
TEST(GpuRebuild, KeepsThePatternsOfFactors) {
  const CscMatrix a = Elastic(9);
  for (const SmootherKind kind : {SmootherKind::kFsai, SmootherKind::kAfsai}) {
    const auto first = There(a, Deep(kind));
    ASSERT_TRUE(first.has_value() && first->there != nullptr);
    for (const bool same : {true, false}) {
      const auto again = Again(*first, same ? a : Stiffer(a), {});
      ASSERT_TRUE(again.has_value());
      for (const AmgPart& part : first->hierarchy->parts()) {
        if (part.kind != AmgPartKind::kSmoother || !IsFactored(part.smoother)) continue;
        const CscMatrix g = again->hierarchy->Part(part.level, part.kind).value(),
                        before = first->hierarchy->Part(part.level, part.kind).value();
        ASSERT_TRUE(g.col_ptr == before.col_ptr && g.row_idx == before.row_idx);
        if (!same) continue;
        double distance = 0;
        for (size_t p = 0; p < g.values.size(); ++p) {
          distance = std::max(distance, std::fabs(g.values[p] - before.values[p]));
        }
        EXPECT_LE(distance, 1e-10) << "level " << part.level;
      }
    }
  }
}

TEST(GpuRebuild, IsNothingOfOtherNodes) {
  // Nodes that are not whole, or of no aggregate, go by single unknowns, and keep no plan.
  const auto cut =
      There(From(gallery::ConvectionDiffusion3d(12, 0)), Deep(SmootherKind::kL1Jacobi, 2));
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->there, nullptr);
  const Body line = Line(200);
  const auto dependent = There(line.a, Deep(SmootherKind::kL1Jacobi, 3), line.input());
  ASSERT_TRUE(dependent.has_value());
  EXPECT_EQ(dependent->there, nullptr);
  // Vectors of another number, or with zeros elsewhere.
  const CscMatrix a = Elastic(8);
  Nodes nodes = NodesOfElasticity(8);
  const auto built = There(a, Deep(SmootherKind::kAfsai), nodes.input());
  ASSERT_TRUE(built.has_value() && built->there != nullptr);
  EXPECT_TRUE(Again(*built, a, nodes.input()).has_value());
  EXPECT_FALSE(Again(*built, a, {}).has_value());
  // On a line: none turns about it.
  for (size_t i = 0; i < nodes.xyz.size() / 3 * 2; ++i) nodes.xyz[i] = 0;
  EXPECT_FALSE(Again(*built, a, nodes.input()).has_value());
  // Symmetric no more.
  CscMatrix other = a;
  other.values[1] += 0.5;
  EXPECT_FALSE(Again(*built, other, NodesOfElasticity(8).input()).has_value());
}

TEST(GpuRebuild, TellsTheBytesOfKeptNodes) {
  const CscMatrix a = Elastic(8);
  const Device device = OpenGpu().value();
  auto built = There(a, Deep(SmootherKind::kAfsai), {}, device);
  ASSERT_TRUE(built.has_value() && built->there != nullptr);
  const int64_t kept = built->there->device_bytes(), bytes = built->hierarchy->device_bytes();
  EXPECT_EQ(UsedNow(*device), bytes + kept);
  auto again = Again(*built, a, {}, device);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(UsedNow(*device), bytes + kept + again->hierarchy->device_bytes());
  built.reset();
  again->there = nullptr;
  EXPECT_EQ(UsedNow(*device), again->hierarchy->device_bytes());
  again.reset();
  EXPECT_EQ(UsedNow(*device), 0);
}

// For compute-sanitizer.
TEST(GpuRebuild, SmallNodes) {
  const CscMatrix a = Elastic(5);
  ExpectTheHostsAgain(a, Deep(SmootherKind::kL1Jacobi), NodesOfElasticity(5).input());
  ExpectTheHostsAgain(a, Deep(SmootherKind::kAfsai));
}

TEST(GpuNodes, RefusesAsTheHostDoes) {
  const CscMatrix a = Elastic(8);
  const auto refused = [&](const NearNullInput& near, const AmgOptions& options = {}) {
    const auto there = BuildAmgOnCuda(TheDevice(), a, near, options, Threads(2));
    EXPECT_FALSE(there.ok());
    const auto here = BuildAmg(a, true, near, options, Threads(2));
    EXPECT_EQ(there.status().message(), here.status().message());
    EXPECT_EQ(UsedNow(*TheDevice()), 0);
    return there.status().reason();
  };
  Nodes nodes = NodesOfElasticity(8);
  nodes.xyz[5] = std::nan("");
  EXPECT_EQ(refused(nodes.input()), "BAD_COORDINATES");
  nodes.xyz.pop_back();
  EXPECT_EQ(refused(nodes.input()), "BAD_COORDINATES");
  AmgOptions two;
  two.block_size = 1;
  EXPECT_EQ(refused(NodesOfElasticity(8).input(), two), "BAD_COORDINATES");
  const std::vector<double> twice(static_cast<size_t>(2 * a.n_cols), 1.0);
  EXPECT_EQ(refused(Vectors(twice, 2)), "RANK_DEFICIENT");
}

TEST(GpuNodes, StopsWhileItSmooths) {
  StopAt stop(3);
  Context context;
  context.stop = stop.source.token();
  context.progress = &stop;
  const auto built =
      BuildAmgOnCuda(TheDevice(), Elastic(12), {}, Deep(SmootherKind::kAfsai), context);
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(UsedNow(*TheDevice()), 0);
}

TEST(GpuNodes, StaysWithinItsBytes) {
  const auto expect = [](const CscMatrix& a, const AmgOptions& options, int vectors,
                         const NearNullInput& near = {}) {
    const int block = DetectBlockSize(a);
    const int64_t bytes = SetUpDeviceBytes(a.n_cols, a.nnz(), block, vectors, options);
    const Device device = OpenGpu(bytes).value();
    AmgCudaTimings timings;
    const auto built = BuildAmgOnCuda(device, a, near, options, Threads(2), &timings);
    ASSERT_TRUE(built.ok()) << built.status().message();
    ASSERT_TRUE(built->has_value());
    EXPECT_LE(timings.device_bytes, bytes);
    EXPECT_GE(12 * timings.device_bytes, bytes) << "a bound of no use";
    ASSERT_NE((*built)->there, nullptr);
    EXPECT_EQ((*built)->hierarchy->device_bytes() + (*built)->there->device_bytes(),
              UsedNow(*device));
  };
  expect(Elastic(24), {}, 3);
  expect(Elastic(24), {}, 6, NodesOfElasticity(24).input());
  expect(Elastic(24), With(SmootherKind::kL1Jacobi), 3);
  expect(SpringsOfGrid(16).a, With(SmootherKind::kFsai), 3);
  expect(From(gallery::ConvectionDiffusion3d(40, 0)), With(SmootherKind::kAfsai), 1);
  for (const int64_t small : {1'000'000, 8'000'000, 40'000'000}) {
    const Device device = OpenGpu(small).value();
    const auto built = BuildAmgOnCuda(device, Elastic(24), {}, {}, Threads(2));
    ASSERT_FALSE(built.ok()) << small;
    EXPECT_EQ(built.status().reason(), "DEVICE_OUT_OF_MEMORY");
    EXPECT_EQ(UsedNow(*device), 0);
  }
}

// Small enough for compute-sanitizer's slower tools.
TEST(GpuNodes, SmallSystems) {
  const CscMatrix a = Elastic(5);
  ExpectTheHosts(a, true, Deep(SmootherKind::kL1Jacobi));
  ExpectTheHosts(a, true, Deep(SmootherKind::kL1Jacobi), NodesOfElasticity(5).input());
  ExpectTheHosts(a, true, Deep(SmootherKind::kAfsai), NodesOfElasticity(5).input());
  ExpectTheHosts(From(gallery::ConvectionDiffusion3d(6, 20)), false,
                 Deep(SmootherKind::kL1Jacobi, 2));
  AmgOptions cut = Deep(SmootherKind::kL1Jacobi, 1);
  cut.strength_threshold = 0;
  cut.max_growth = cut.max_operator_complexity = 10;
  const CscMatrix graph = From(gallery::GraphLaplacian(400));
  ExpectTheHosts(graph, true, cut, Vectors(RandomVector(2 * graph.n_cols, 5), 2));
}

}  // namespace
}  // namespace spaid::kernels
