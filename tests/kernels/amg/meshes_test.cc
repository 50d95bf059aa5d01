// Iterations on meshes without a grid's regularity: linear triangles on moved points, with
// diagonals that turn either way and nodes in random order (rows of 4 to 13 entries, positive
// couplings where angles are obtuse), and clouds of points coupled to their neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "tests/kernels/amg/hierarchies.h"
#include "tests/kernels/amg/problems.h"

namespace spaid::kernels {
namespace {

using Point = std::array<double, 2>;
using Triangle = std::array<int64_t, 3>;

// (m + 1)² points of the unit square; `unknown` is the number of a node, -1 on the side y = 0.
struct Mesh {
  std::vector<Point> points;
  std::vector<Triangle> triangles;
  std::vector<int64_t> unknown;
  int64_t unknowns = 0;
};

Mesh MovedPoints(int64_t m, oracle::Random& random) {
  Mesh mesh;
  const double h = 1 / static_cast<double>(m);
  for (int64_t y = 0; y <= m; ++y) {
    for (int64_t x = 0; x <= m; ++x) {
      const auto moved = [&](int64_t at) {
        const bool inside = at > 0 && at < m;
        return h * (static_cast<double>(at) + (inside ? random.Uniform(-0.2, 0.2) : 0.0));
      };
      const double px = moved(x), py = moved(y);
      mesh.points.push_back({px, py});
    }
  }
  for (int64_t y = 0; y < m; ++y) {
    for (int64_t x = 0; x < m; ++x) {
      const int64_t a = y * (m + 1) + x, b = a + 1, c = a + m + 1, d = c + 1;
      if (random.Below(2) == 0) {
        mesh.triangles.push_back({a, b, d}), mesh.triangles.push_back({a, d, c});
      } else {
        mesh.triangles.push_back({a, b, c}), mesh.triangles.push_back({b, d, c});
      }
    }
  }
  const auto nodes = static_cast<int64_t>(mesh.points.size());
  mesh.unknowns = nodes - (m + 1);
  std::vector<int64_t> order(static_cast<size_t>(mesh.unknowns));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t k = mesh.unknowns - 1; k > 0; --k)
    std::swap(order[static_cast<size_t>(k)], order[static_cast<size_t>(random.Below(k + 1))]);
  mesh.unknown.assign(static_cast<size_t>(m + 1), -1);
  mesh.unknown.insert(mesh.unknown.end(), order.begin(), order.end());
  return mesh;
}

struct Element {
  double area = 0;
  std::array<Point, 3> gradient;
  Point centre;
};
Element ElementOf(const Mesh& mesh, const Triangle& t) {
  const Point &a = mesh.points[static_cast<size_t>(t[0])],
              &b = mesh.points[static_cast<size_t>(t[1])],
              &c = mesh.points[static_cast<size_t>(t[2])];
  const double twice = (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]);
  return {twice / 2,
          {Point{(b[1] - c[1]) / twice, (c[0] - b[0]) / twice},
           Point{(c[1] - a[1]) / twice, (a[0] - c[0]) / twice},
           Point{(a[1] - b[1]) / twice, (b[0] - a[0]) / twice}},
          {(a[0] + b[0] + c[0]) / 3, (a[1] + b[1] + c[1]) / 3}};
}

// visit(row, column, gradient of the row's, of the column's) for each pair of unknowns of a
// triangle.
template <class Visit>
void ForPairs(const Mesh& mesh, const Triangle& t, const Element& e, const Visit& visit) {
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      const int64_t row = mesh.unknown[static_cast<size_t>(t[i])],
                    column = mesh.unknown[static_cast<size_t>(t[j])];
      if (row >= 0 && column >= 0) visit(row, column, e.gradient[i], e.gradient[j]);
    }
  }
}

// Sums terms; both halves of a symmetric matrix get the same bits, as terms come in the same order.
class Assembly {
 public:
  explicit Assembly(int64_t n) : columns_(static_cast<size_t>(n)) {}
  void Add(int64_t i, int64_t j, double value) {
    columns_[static_cast<size_t>(j)][static_cast<int32_t>(i)] += value;
  }
  CscMatrix Finish() const {
    const auto n = static_cast<int64_t>(columns_.size());
    CscMatrix a{.n_rows = n, .n_cols = n, .col_ptr = {0}, .row_idx = {}, .values = {}};
    for (const auto& column : columns_) {
      for (const auto& [i, value] : column) a.row_idx.push_back(i), a.values.push_back(value);
      a.col_ptr.push_back(a.nnz());
    }
    return a;
  }

 private:
  std::vector<std::map<int32_t, double>> columns_;
};

enum class Kind { kDiffusion, kJumps, kConvection };

CscMatrix Scalar(Kind kind, const Mesh& mesh, oracle::Random& random) {
  Assembly a(mesh.unknowns);
  for (const Triangle& t : mesh.triangles) {
    const Element e = ElementOf(mesh, t);
    double k = 1;
    Point flow{};
    if (kind == Kind::kDiffusion) k = std::exp(2 * random.Uniform(-1.0, 1.0));
    if (kind == Kind::kJumps && std::fmod(10 * e.centre[0], 2) < 1 &&
        std::fmod(10 * e.centre[1], 2) < 1) {
      k = 1e4;
    }
    if (kind == Kind::kConvection) flow = {40 * (0.5 - e.centre[1]), 40 * (e.centre[0] - 0.5)};
    const double speed = std::hypot(flow[0], flow[1]);
    const double upwind = speed > 0 ? std::sqrt(2 * e.area) / (2 * speed) : 0;
    ForPairs(mesh, t, e, [&](int64_t row, int64_t column, const Point& gi, const Point& gj) {
      const double along = flow[0] * gj[0] + flow[1] * gj[1];
      const double across = flow[0] * gi[0] + flow[1] * gi[1];
      a.Add(row, column,
            e.area * (k * (gi[0] * gj[0] + gi[1] * gj[1]) + along / 3 + upwind * along * across));
    });
  }
  return a.Finish();
}

// Plane strain, ν = 0.3, two unknowns a node.
struct Body {
  CscMatrix a;
  std::vector<double> coordinates;  // by dimension
};
Body PlaneStrain(const Mesh& mesh, oracle::Random& random) {
  Assembly a(2 * mesh.unknowns);
  for (const Triangle& t : mesh.triangles) {
    const Element e = ElementOf(mesh, t);
    const double young = std::exp(random.Uniform(-1.0, 1.0));
    const double lambda = young * 0.3 / (1.3 * 0.4), mu = young / 2.6;
    ForPairs(mesh, t, e, [&](int64_t row, int64_t column, const Point& gi, const Point& gj) {
      const double dot = gi[0] * gj[0] + gi[1] * gj[1];
      for (size_t p = 0; p < 2; ++p) {
        for (size_t q = 0; q < 2; ++q) {
          a.Add(2 * row + static_cast<int64_t>(p), 2 * column + static_cast<int64_t>(q),
                e.area *
                    (lambda * (gi[p] * gj[q]) + mu * (gi[q] * gj[p]) + (p == q ? mu * dot : 0.0)));
        }
      }
    });
  }
  Body body{a.Finish(), std::vector<double>(static_cast<size_t>(2 * mesh.unknowns))};
  for (size_t node = 0; node < mesh.points.size(); ++node) {
    if (mesh.unknown[node] < 0) continue;
    const auto at = static_cast<size_t>(mesh.unknown[node]);
    body.coordinates[at] = mesh.points[node][0];
    body.coordinates[at + static_cast<size_t>(mesh.unknowns)] = mesh.points[node][1];
  }
  return body;
}

// A Laplacian of random points in the unit cube, in random order: each is coupled to those within
// 1.5 n^(-1/3) by the inverse square of the distance; those near the side z = 0 are held.
CscMatrix Cloud(int64_t n, oracle::Random& random) {
  std::vector<std::array<double, 3>> points(static_cast<size_t>(n));
  for (auto& point : points)
    for (double& x : point) x = random.Uniform();
  const double reach = 1.5 / std::cbrt(static_cast<double>(n));
  const auto boxes = static_cast<int64_t>(1 / reach);
  const auto box = [&](double x) {
    return std::min(boxes - 1, static_cast<int64_t>(x * static_cast<double>(boxes)));
  };
  std::vector<std::vector<int64_t>> in(static_cast<size_t>(boxes * boxes * boxes));
  for (int64_t i = 0; i < n; ++i) {
    const auto& p = points[static_cast<size_t>(i)];
    in[static_cast<size_t>((box(p[2]) * boxes + box(p[1])) * boxes + box(p[0]))].push_back(i);
  }
  Assembly a(n);
  for (int64_t i = 0; i < n; ++i) {
    const auto& p = points[static_cast<size_t>(i)];
    double diagonal = p[2] < reach ? 1 / (reach * reach) : 1e-9 / (reach * reach);
    const auto around = [&](size_t d) {
      return std::pair{std::max<int64_t>(0, box(p[d]) - 1), std::min(boxes - 1, box(p[d]) + 1)};
    };
    const auto [x0, x1] = around(0);
    const auto [y0, y1] = around(1);
    const auto [z0, z1] = around(2);
    for (int64_t z = z0; z <= z1; ++z) {
      for (int64_t y = y0; y <= y1; ++y) {
        for (int64_t x = x0; x <= x1; ++x) {
          for (const int64_t j : in[static_cast<size_t>((z * boxes + y) * boxes + x)]) {
            const auto& q = points[static_cast<size_t>(j)];
            const double distance = std::hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
            if (j == i || distance > reach) continue;
            a.Add(i, j, -1 / (distance * distance));
            diagonal += 1 / (distance * distance);
          }
        }
      }
    }
    a.Add(i, i, diagonal);
  }
  return a.Finish();
}

// Iterations at either size, the larger of nine times as many unknowns.
struct Growth {
  int64_t small, large;
};
template <typename Take>
Growth Grown(int64_t small, int64_t large, const Take& take) {
  return {take(small), take(large)};
}

TEST(Meshes, Triangles) {
  for (const auto& [kind, most] :
       {std::pair{Kind::kDiffusion, 30}, {Kind::kJumps, 30}, {Kind::kConvection, 30}}) {
    const bool symmetric = kind != Kind::kConvection;
    const Growth growth = Grown(100, 300, [&](int64_t m) {
      oracle::Random random(7);
      const CscMatrix a = Scalar(kind, MovedPoints(m, random), random);
      return Iterations(a, symmetric, *Build(a, symmetric).hierarchy);
    });
    EXPECT_LE(growth.large, most) << static_cast<int>(kind);
    EXPECT_LE(2 * growth.large, 3 * growth.small) << static_cast<int>(kind);
  }
}

TEST(Meshes, ElasticTriangles) {
  const Growth growth = Grown(60, 180, [](int64_t m) {
    oracle::Random random(5);
    const Body body = PlaneStrain(MovedPoints(m, random), random);
    AmgOptions options;
    options.block_size = 2;
    const AmgResult built =
        Build(body.a, true, options,
              {.vectors = {}, .count = 0, .coordinates = body.coordinates, .dimension = 2});
    return Iterations(body.a, true, *built.hierarchy);
  });
  EXPECT_LE(growth.large, 20);
  EXPECT_LE(2 * growth.large, 3 * growth.small);
}

TEST(Meshes, Clouds) {
  const Growth growth = Grown(10000, 90000, [](int64_t n) {
    oracle::Random random(3);
    const CscMatrix a = Cloud(n, random);
    return Iterations(a, true, *Build(a, true).hierarchy);
  });
  EXPECT_LE(growth.large, 25);
  EXPECT_LE(2 * growth.large, 3 * growth.small);
}

}  // namespace
}  // namespace spaid::kernels
