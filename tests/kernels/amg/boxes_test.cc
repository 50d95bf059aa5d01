#include "kernels/amg/boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/strength.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"
#include "tests/oracle/generators.h"
#include "tests/oracle/multigrid.h"

namespace spaid::kernels {
namespace {

using ::testing::ElementsAre;

using Edges = std::set<std::pair<int64_t, int64_t>>;  // of both directions

StrongGraph GraphOf(int64_t n, const Edges& edges) {
  StrongGraph graph{.n = n, .ptr = {0}, .neighbours = {}, .weights = {}, .leader = {}};
  graph.leader.assign(static_cast<size_t>(n), -1);
  auto next = edges.begin();
  for (int64_t i = 0; i < n; ++i) {
    for (; next != edges.end() && next->first == i; ++next) {
      graph.neighbours.push_back(static_cast<int32_t>(next->second));
      graph.weights.push_back(1);
    }
    graph.ptr.push_back(static_cast<int64_t>(graph.neighbours.size()));
  }
  return graph;
}

StrongGraph GraphOf(const CscMatrix& a) {
  auto couplings = Couplings(a, /*symmetric=*/true, 1, Threads(2));
  EXPECT_TRUE(couplings.ok());
  auto graph = FindStrong(*couplings, 0.15, Threads(2));
  EXPECT_TRUE(graph.ok());
  return *std::move(graph);
}

std::array<int64_t, 3> PlaceOf(int64_t node, const Grid& grid) {
  return {node % grid.extent[0], node / grid.extent[0] % grid.extent[1],
          node / (grid.extent[0] * grid.extent[1])};
}

// The steps from one node to another, in each direction.
std::array<int64_t, 3> Step(int64_t from, int64_t to, const Grid& grid) {
  std::array<int64_t, 3> step = PlaceOf(to, grid);
  for (size_t d = 0; d < 3; ++d) step[d] -= PlaceOf(from, grid)[d];
  return step;
}

// By the definition, pair by pair of all nodes; empty: there are no boxes.
std::vector<int64_t> BoxesByDefinition(int64_t n, const Edges& edges, const Grid& grid) {
  for (uint32_t directions = 1; directions < 8; ++directions) {
    const auto wide = [&](size_t d) { return (directions >> d & 1) != 0; };
    // Cut from the left, three by three; one node left over joins the box before it.
    const auto box = [&](int64_t node, size_t d) {
      const int64_t x = PlaceOf(node, grid)[d], last = grid.extent[d] - 1;
      if (!wide(d)) return x;
      return x == last && x % 3 == 0 && x > 0 ? x / 3 - 1 : x / 3;
    };
    bool holds = true;
    std::array<bool, 3> coupled = {};
    for (const auto& [i, j] : edges) {
      const auto step = Step(i, j, grid);
      for (size_t d = 0; d < 3; ++d) {
        if (std::abs(step[d]) > (wide(d) ? 1 : 0)) holds = false;
        const int64_t far = std::abs(step[0]) + std::abs(step[1]) + std::abs(step[2]);
        if (step[d] != 0 && far == 1) coupled[d] = true;
      }
    }
    for (size_t d = 0; d < 3; ++d) holds = holds && coupled[d] == wide(d);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const auto step = Step(i, j, grid);
        const int64_t far = std::abs(step[0]) + std::abs(step[1]) + std::abs(step[2]);
        if (far != 1) continue;
        const bool one_box =
            box(i, 0) == box(j, 0) && box(i, 1) == box(j, 1) && box(i, 2) == box(j, 2);
        if (one_box && !edges.contains({i, j})) holds = false;
      }
    }
    if (!holds) continue;
    // Numbered by their smallest nodes.
    std::vector<std::array<int64_t, 3>> numbers;
    std::vector<int64_t> of_node;
    for (int64_t i = 0; i < n; ++i) {
      const std::array<int64_t, 3> own = {box(i, 0), box(i, 1), box(i, 2)};
      const auto at = std::find(numbers.begin(), numbers.end(), own);
      of_node.push_back(at - numbers.begin());
      if (at == numbers.end()) numbers.push_back(own);
    }
    return of_node;
  }
  return {};
}

TEST(Boxes, ALineByHand) {
  std::vector<int64_t> boxes;
  for (int64_t extent = 1; extent <= 9; ++extent) boxes.push_back(BoxesOf(extent));
  EXPECT_THAT(boxes, ElementsAre(1, 1, 1, 1, 2, 2, 2, 3, 3));
  const CscMatrix a = oracle::Laplacian2d(7, 1);
  Grid grid = FindGrid(CscView(a).column(0), 7, 1);
  EXPECT_THAT(grid.extent, ElementsAre(7, 1, 1));
  const auto made = AggregateByBoxes(GraphOf(a), grid, 1);
  ASSERT_TRUE(made.has_value());
  EXPECT_TRUE(made->boxes);
  EXPECT_EQ(made->count, 2);
  EXPECT_EQ(made->isolated, 0);
  EXPECT_THAT(made->of_node, ElementsAre(0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(grid.extent, ElementsAre(2, 1, 1));
}

TEST(Boxes, APlaneByHand) {
  const CscMatrix a = oracle::Laplacian2d(5, 6);
  Grid grid = FindGrid(CscView(a).column(0), 30, 1);
  EXPECT_THAT(grid.extent, ElementsAre(5, 6, 1));
  const auto made = AggregateByBoxes(GraphOf(a), grid, 1);
  ASSERT_TRUE(made.has_value());
  EXPECT_THAT(made->of_node,
              ElementsAre(0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1,  // three lines of five
                          2, 2, 2, 3, 3, 2, 2, 2, 3, 3, 2, 2, 2, 3, 3));
  EXPECT_THAT(grid.extent, ElementsAre(2, 2, 1));
}

// Couplings in y are a tenth of those in x: boxes are three nodes of a line.
TEST(Boxes, OneStrongDirectionByHand) {
  CscMatrix a = oracle::Laplacian2d(4, 3);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      if (std::abs(a.row_idx[p] - j) == 4) a.values[p] *= 0.1;
    }
  }
  Grid grid = FindGrid(CscView(a).column(0), 12, 1);
  EXPECT_THAT(grid.extent, ElementsAre(4, 3, 1));
  const auto made = AggregateByBoxes(GraphOf(a), grid, 1);
  ASSERT_TRUE(made.has_value());
  EXPECT_THAT(made->of_node, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_THAT(grid.extent, ElementsAre(1, 3, 1));
}

TEST(Boxes, AGridIsTheFirstRows) {
  const auto of = [](std::vector<int32_t> row, int64_t nodes, int block = 1) {
    return FindGrid(row, nodes, block).extent;
  };
  EXPECT_THAT(of({0, 1, 5, 20}, 60), ElementsAre(5, 4, 3));
  EXPECT_THAT(of({0, 1, 5, 6, 20, 21, 25, 26}, 60), ElementsAre(5, 4, 3));
  EXPECT_THAT(of({0, 1, 5, 6}, 60), ElementsAre(5, 12, 1));
  EXPECT_THAT(of({0, 1}, 60), ElementsAre(60, 1, 1));
  EXPECT_THAT(of({0, 1, 2, 3, 10, 11, 40, 41}, 60, 2), ElementsAre(5, 4, 3));
  for (const auto& none : {of({0, 1, 7}, 60), of({0, 1, 5, 21}, 60), of({0, 1, 6, 20}, 60),
                           of({0, 1, 5, 6, 7, 20, 21, 25, 26}, 60), of({}, 0)}) {
    EXPECT_THAT(none, ElementsAre(0, 0, 0));
  }
}

// Random extents and couplings: most graphs lack some, or have some that no grid has.
TEST(Boxes, EqualTheDefinition) {
  oracle::Random random(7);
  std::array<int, 2> seen = {};
  for (int round = 0; round < 400; ++round) {
    const bool axes = round % 2 == 0;
    const int64_t least = axes ? 1 : 3;
    const Grid grid{.extent = {least + random.Below(6), least + random.Below(5),
                               1 + random.Below(axes ? 5 : 3)}};
    const int64_t n = grid.nodes();
    const auto directions = static_cast<uint32_t>(random.Below(8));
    Edges edges;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const auto step = Step(i, j, grid);
        int64_t far = 0;
        bool within = true;
        for (size_t d = 0; d < 3; ++d) {
          far += std::abs(step[d]);
          within = within && std::abs(step[d]) <= static_cast<int64_t>(directions >> d & 1);
        }
        if (far > 0 && within && (far == 1 || !axes)) edges.insert({i, j});
      }
    }
    // Half of the graphs stay as they are.
    for (int64_t change = random.Below(4) - 1; change > 0 && n > 1; --change) {
      const int64_t i = random.Below(n), j = random.Below(n);
      if (!edges.empty() && random.Below(4) > 0) {
        const auto gone = *std::next(edges.begin(), random.Below(std::ssize(edges)));
        edges.erase(gone);
        edges.erase({gone.second, gone.first});
      } else if (i != j && axes) {
        edges.insert({i, j});
        edges.insert({j, i});
      }
    }
    // Diagonal couplings in lines or planes of one or two nodes may be taken for others.
    if (axes && std::min(grid.extent[0], grid.extent[1]) < 3 &&
        std::any_of(edges.begin(), edges.end(), [&](const auto& edge) {
          const auto step = Step(edge.first, edge.second, grid);
          return std::abs(step[0]) + std::abs(step[1]) + std::abs(step[2]) > 1;
        })) {
      continue;
    }
    SCOPED_TRACE(round);
    const std::vector<int64_t> expected = BoxesByDefinition(n, edges, grid);
    ++seen[expected.empty() ? 0 : 1];
    for (const int threads : {1, 3}) {
      Grid boxes = grid;
      const auto made = AggregateByBoxes(GraphOf(n, edges), boxes, threads);
      ASSERT_EQ(made.has_value(), !expected.empty());
      if (!made) {
        ASSERT_EQ(boxes.nodes(), 0);
        continue;
      }
      ASSERT_EQ(std::vector<int64_t>(made->of_node.begin(), made->of_node.end()), expected);
      ASSERT_EQ(made->count, *std::max_element(expected.begin(), expected.end()) + 1);
      ASSERT_EQ(boxes.nodes(), made->count);
    }
  }
  EXPECT_GT(seen[0], 80);
  EXPECT_GT(seen[1], 80);
}

AmgResult Deep(const CscMatrix& a, bool symmetric = true, const NearNullInput& near = {}) {
  AmgOptions options;
  options.max_coarse_size = 30;
  return Build(a, symmetric, options, near);
}

bool HasBoxes(const CscMatrix& a, bool symmetric = true) {
  return Deep(a, symmetric).quality.levels[0].boxes;
}

CscMatrix Cube(int64_t m, double speed = 0) {
  return From(gallery::ConvectionDiffusion3d(m, speed));
}

TEST(Boxes, AreOfGridsOnAllTheirLevels) {
  for (const auto& [a, symmetric] : {std::pair{Cube(24), true}, std::pair{Cube(20, 20), false},
                                     std::pair{From(gallery::Laplace27(19)), true},
                                     std::pair{oracle::Laplacian2d(50, 40), true}}) {
    const AmgResult built = Deep(a, symmetric);
    const auto& levels = built.quality.levels;
    ASSERT_GE(levels.size(), 3u);
    for (size_t l = 0; l < levels.size(); ++l) {
      EXPECT_EQ(levels[l].boxes, l + 1 < levels.size()) << l;
      EXPECT_EQ(levels[l].isolated, 0);
      // A box and those around it.
      EXPECT_LE(levels[l].nnz, 27 * levels[l].rows);
    }
    EXPECT_LE(built.quality.operator_complexity, 1.25);
  }
}

TEST(Boxes, OfElasticityAreOfItsNodes) {
  const CscMatrix a = From(gallery::Elasticity3d(9));
  const auto levels = Deep(a, true, NodesOfElasticity(9).input()).quality.levels;
  EXPECT_TRUE(levels[0].boxes);
  EXPECT_EQ(levels[0].aggregates, 3 * 3 * 3);
}

// The cube without its entries between nodes of which `cut` is true.
template <class Cut>
CscMatrix CubeWithout(int64_t m, const Cut& cut) {
  CscMatrix a = Cube(m);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]);
         p < static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]); ++p) {
      const int64_t i = a.row_idx[p];
      if (i != j && cut(std::min(i, j), std::max(i, j))) a.values[p] *= 1e-4;
    }
  }
  return a;
}

TEST(Boxes, AreNotOfWhatIsNoGrid) {
  EXPECT_TRUE(HasBoxes(CubeWithout(12, [](int64_t, int64_t) { return false; })));
  // One coupling within a box is weak; a plane of them between boxes is no harm.
  EXPECT_FALSE(HasBoxes(CubeWithout(12, [](int64_t i, int64_t j) { return i == 0 && j == 1; })));
  EXPECT_FALSE(
      HasBoxes(CubeWithout(12, [](int64_t i, int64_t j) { return j == i + 144 && i / 144 == 6; })));
  EXPECT_TRUE(
      HasBoxes(CubeWithout(12, [](int64_t i, int64_t j) { return j == i + 144 && i / 144 == 5; })));
  // Another order of the nodes, a node less, jumps, and couplings across the grid.
  gallery::Matrix mixed = gallery::ConvectionDiffusion3d(12, 0);
  gallery::PermuteNodes({mixed.col_ptr, mixed.row_idx, mixed.values}, 1, mixed.n);
  EXPECT_FALSE(HasBoxes(From(mixed)));
  EXPECT_FALSE(HasBoxes(From(gallery::Jumps3d(12, 4, 3))));
  EXPECT_FALSE(HasBoxes(From(gallery::RotatedAnisotropy2d(40, 1e-3, 0.5236))));
  EXPECT_FALSE(HasBoxes(From(gallery::GraphLaplacian(900))));
  const CscMatrix cube = Cube(12);
  const auto without = [&](int64_t node) {
    CscMatrix a{.n_rows = cube.n_rows - 1,
                .n_cols = cube.n_cols - 1,
                .col_ptr = {0},
                .row_idx = {},
                .values = {}};
    for (int64_t j = 0; j < cube.n_cols; ++j) {
      if (j == node) continue;
      for (size_t p = 0; p < CscView(cube).column(j).size(); ++p) {
        const int32_t i = CscView(cube).column(j)[p];
        if (i == node) continue;
        a.row_idx.push_back(i - (i > node ? 1 : 0));
        a.values.push_back(CscView(cube).column_values(j)[p]);
      }
      a.col_ptr.push_back(a.nnz());
    }
    return a;
  };
  EXPECT_FALSE(HasBoxes(without(1000)));
  EXPECT_FALSE(HasBoxes(without(cube.n_cols - 1)));
}

// The first node of each line is beside its last: all rows but the first tell of no other grid.
TEST(Boxes, AreNotOfAGridThatGoesRound) {
  const int64_t nx = 12, ny = 10;
  oracle::Dense a(nx * ny, nx * ny);
  for (int64_t i = 0; i < nx * ny; ++i) {
    const int64_t right = i / nx * nx + (i % nx + 1) % nx;
    a(i, i) = 4.1;
    a(i, right) = a(right, i) = -1;
    if (i + nx < nx * ny) a(i, i + nx) = a(i + nx, i) = -1;
  }
  EXPECT_FALSE(HasBoxes(oracle::FromDense(a)));
}

TEST(Boxes, PlainAggregationHasNone) {
  AmgOptions options;
  options.coarsening = Coarsening::kPlainAggregation;
  EXPECT_FALSE(Build(Cube(12), true, options).quality.levels[0].boxes);
}

TEST(Boxes, AreKeptByARebuild) {
  const CscMatrix a = Cube(16), other = CubeWithout(16, [](int64_t i, int64_t) { return i < 9; });
  const AmgResult built = Deep(a);
  const auto again = RebuildAmg(built.plan, other, {}, Threads(2));
  ASSERT_TRUE(again.ok());
  ASSERT_FALSE(HasBoxes(other));
  EXPECT_TRUE(again->quality.levels[0].boxes);
  EXPECT_EQ(again->quality.levels[0].aggregates, 5 * 5 * 5);
  EXPECT_LE(Iterations(other, true, *again->hierarchy), 30);
}

}  // namespace
}  // namespace spaid::kernels
