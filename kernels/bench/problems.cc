#include "kernels/bench/problems.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace spaid::kernels::bench {
namespace {

class Builder {
 public:
  explicit Builder(int64_t n) {
    matrix_.n_rows = matrix_.n_cols = n;
    matrix_.col_ptr.reserve(static_cast<size_t>(n) + 1);
    matrix_.col_ptr.push_back(0);
  }
  void Add(int64_t index, double value) {
    matrix_.row_idx.push_back(static_cast<int32_t>(index));
    matrix_.values.push_back(value);
  }
  void EndColumn() { matrix_.col_ptr.push_back(static_cast<int64_t>(matrix_.row_idx.size())); }
  CscMatrix Take() { return std::move(matrix_); }

 private:
  CscMatrix matrix_;
};

bool Inside(int x, int m) { return x >= 0 && x < m; }

constexpr double kGauss = 0.57735026918962576451;  // 1/√3

using ElementMatrix = std::array<std::array<double, 24>, 24>;

// Corners of the unit hexahedron.
constexpr int kCornerX[8] = {0, 1, 1, 0, 0, 1, 1, 0};
constexpr int kCornerY[8] = {0, 0, 1, 1, 0, 0, 1, 1};
constexpr int kCornerZ[8] = {0, 0, 0, 0, 1, 1, 1, 1};

ElementMatrix HexahedronStiffness(double young, double poisson) {
  const double lambda = young * poisson / ((1 + poisson) * (1 - 2 * poisson));
  const double mu = young / (2 * (1 + poisson));
  double d[6][6] = {};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) d[i][j] = lambda;
    d[i][i] += 2 * mu;
    d[i + 3][i + 3] = mu;
  }
  ElementMatrix stiffness{};
  for (int point = 0; point < 8; ++point) {
    const double xi = (point & 1) ? kGauss : -kGauss;
    const double eta = (point & 2) ? kGauss : -kGauss;
    const double zeta = (point & 4) ? kGauss : -kGauss;
    double b[6][24] = {};
    for (int i = 0; i < 8; ++i) {
      const double sx = 2 * kCornerX[i] - 1, sy = 2 * kCornerY[i] - 1, sz = 2 * kCornerZ[i] - 1;
      const double dx = sx * (1 + sy * eta) * (1 + sz * zeta) / 8 * 2;
      const double dy = sy * (1 + sx * xi) * (1 + sz * zeta) / 8 * 2;
      const double dz = sz * (1 + sx * xi) * (1 + sy * eta) / 8 * 2;
      b[0][3 * i] = dx;
      b[1][3 * i + 1] = dy;
      b[2][3 * i + 2] = dz;
      b[3][3 * i] = dy;
      b[3][3 * i + 1] = dx;
      b[4][3 * i + 1] = dz;
      b[4][3 * i + 2] = dy;
      b[5][3 * i] = dz;
      b[5][3 * i + 2] = dx;
    }
    for (size_t r = 0; r < 24; ++r) {
      for (size_t c = 0; c < 24; ++c) {
        double sum = 0;
        for (int i = 0; i < 6; ++i) {
          for (int j = 0; j < 6; ++j) sum += b[i][r] * d[i][j] * b[j][c];
        }
        stiffness[r][c] += sum / 8;
      }
    }
  }
  return stiffness;
}

int CornerAt(int dx, int dy, int dz) {
  for (int i = 0; i < 8; ++i) {
    if (kCornerX[i] == dx && kCornerY[i] == dy && kCornerZ[i] == dz) return i;
  }
  return -1;
}

}  // namespace

CscMatrix ConvectionDiffusion(int m, double convection) {
  constexpr double kPi = std::numbers::pi;
  const int64_t plane = int64_t{m} * m;
  const double h = 1.0 / (m + 1);
  Builder builder(plane * m);
  for (int k = 0; k < m; ++k) {
    for (int j = 0; j < m; ++j) {
      for (int i = 0; i < m; ++i) {
        const int64_t at = (int64_t{k} * m + j) * m + i;
        const double x = (i + 1) * h, y = (j + 1) * h, z = (k + 1) * h;
        const double velocity[3] = {convection * std::sin(kPi * x) * std::cos(kPi * y),
                                    -convection * std::cos(kPi * x) * std::sin(kPi * y),
                                    convection * 0.5 * std::sin(kPi * z)};
        double low[3], high[3], diagonal = 0;
        for (int d = 0; d < 3; ++d) {
          low[d] = -1 - std::max(velocity[d], 0.0) * h;
          high[d] = -1 + std::min(velocity[d], 0.0) * h;
          diagonal -= low[d] + high[d];
        }
        if (k > 0) builder.Add(at - plane, low[2]);
        if (j > 0) builder.Add(at - m, low[1]);
        if (i > 0) builder.Add(at - 1, low[0]);
        builder.Add(at, diagonal);
        if (i < m - 1) builder.Add(at + 1, high[0]);
        if (j < m - 1) builder.Add(at + m, high[1]);
        if (k < m - 1) builder.Add(at + plane, high[2]);
        builder.EndColumn();
      }
    }
  }
  return builder.Take();
}

CscMatrix Laplacian27(int m) {
  Builder builder(int64_t{m} * m * m);
  for (int z = 0; z < m; ++z) {
    for (int y = 0; y < m; ++y) {
      for (int x = 0; x < m; ++x) {
        for (int o = 0; o < 27; ++o) {
          const int X = x + o % 3 - 1, Y = y + o / 3 % 3 - 1, Z = z + o / 9 - 1;
          if (!Inside(X, m) || !Inside(Y, m) || !Inside(Z, m)) continue;
          builder.Add((int64_t{Z} * m + Y) * m + X, o == 13 ? 26 : -1);
        }
        builder.EndColumn();
      }
    }
  }
  return builder.Take();
}

CscMatrix Anisotropic(int m, double epsilon, double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  const double k[2][2] = {{c * c + epsilon * s * s, (1 - epsilon) * c * s},
                          {(1 - epsilon) * c * s, s * s + epsilon * c * c}};
  constexpr double kX[4] = {-1, 1, 1, -1}, kY[4] = {-1, -1, 1, 1};
  double element[4][4] = {};
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 2; ++b) {
      const double xi = a ? kGauss : -kGauss, eta = b ? kGauss : -kGauss;
      double gradient[4][2];
      for (int i = 0; i < 4; ++i) {
        gradient[i][0] = kX[i] * (1 + kY[i] * eta) / 4;
        gradient[i][1] = kY[i] * (1 + kX[i] * xi) / 4;
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          for (int p = 0; p < 2; ++p) {
            for (int q = 0; q < 2; ++q) {
              element[i][j] += gradient[i][p] * k[p][q] * gradient[j][q];
            }
          }
        }
      }
    }
  }
  constexpr int kNodeX[4] = {0, 1, 1, 0}, kNodeY[4] = {0, 0, 1, 1};
  double stencil[3][3] = {};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      stencil[kNodeY[j] - kNodeY[i] + 1][kNodeX[j] - kNodeX[i] + 1] += element[i][j];
    }
  }
  Builder builder(int64_t{m} * m);
  for (int y = 0; y < m; ++y) {
    for (int x = 0; x < m; ++x) {
      for (int o = 0; o < 9; ++o) {
        const int dx = o % 3 - 1, dy = o / 3 - 1;
        const double value = stencil[dy + 1][dx + 1];
        if (!Inside(x + dx, m) || !Inside(y + dy, m) || std::abs(value) < 1e-14) continue;
        builder.Add(int64_t{y + dy} * m + x + dx, value);
      }
      builder.EndColumn();
    }
  }
  return builder.Take();
}

CscMatrix Elasticity(int nodes) {
  const ElementMatrix stiffness = HexahedronStiffness(1, 0.3);
  const int free_x = nodes - 1;  // x = 1 .. nodes − 1
  Builder builder(int64_t{3} * free_x * nodes * nodes);
  const auto element_inside = [&](int e) { return e >= 0 && e < nodes - 1; };
  double local[27][3][3];
  for (int z = 0; z < nodes; ++z) {
    for (int y = 0; y < nodes; ++y) {
      for (int x = 1; x < nodes; ++x) {
        std::fill_n(&local[0][0][0], 27 * 9, 0.0);
        for (int e = 0; e < 8; ++e) {
          const int ex = x - 1 + (e & 1), ey = y - 1 + (e >> 1 & 1), ez = z - 1 + (e >> 2);
          if (!element_inside(ex) || !element_inside(ey) || !element_inside(ez)) continue;
          const int own = CornerAt(x - ex, y - ey, z - ez);
          for (int j = 0; j < 8; ++j) {
            const int o = ((ez + kCornerZ[j] - z + 1) * 3 + (ey + kCornerY[j] - y + 1)) * 3 +
                          (ex + kCornerX[j] - x + 1);
            for (int a = 0; a < 3; ++a) {
              for (int b = 0; b < 3; ++b) {
                local[o][a][b] +=
                    stiffness[static_cast<size_t>(3 * own + a)][static_cast<size_t>(3 * j + b)];
              }
            }
          }
        }
        for (int a = 0; a < 3; ++a) {
          for (int o = 0; o < 27; ++o) {
            const int X = x + o % 3 - 1, Y = y + o / 3 % 3 - 1, Z = z + o / 9 - 1;
            if (X < 1 || !Inside(X, nodes) || !Inside(Y, nodes) || !Inside(Z, nodes)) continue;
            const int64_t node = (int64_t{Z} * nodes + Y) * free_x + X - 1;
            for (int b = 0; b < 3; ++b) builder.Add(3 * node + b, local[o][a][b]);
          }
          builder.EndColumn();
        }
      }
    }
  }
  return builder.Take();
}

CscMatrix Circuit(int n, int hubs, int hub_degree) {
  std::mt19937_64 generator(12345);
  std::vector<std::vector<std::pair<int, double>>> rows(static_cast<size_t>(n));
  std::vector<double> sum(static_cast<size_t>(n), 0);
  const auto uniform = [&] { return static_cast<double>(generator() >> 11) * 0x1.0p-53; };
  const auto conductance = [&] { return std::pow(10.0, -2 + 3 * uniform()); };
  const auto edge = [&](int a, int b, double w) {
    if (a == b) return;
    rows[static_cast<size_t>(a)].push_back({b, -w});
    rows[static_cast<size_t>(b)].push_back({a, -w});
    sum[static_cast<size_t>(a)] += w;
    sum[static_cast<size_t>(b)] += w;
  };
  for (int i = 1; i < n; ++i) {
    const int edges = 1 + (uniform() < 0.6 ? 1 : 0);
    for (int t = 0; t < edges; ++t) {
      int j = 0;
      if (uniform() < 0.85) {
        // The two factors are drawn one after the other.
        const double u = uniform();
        const double v = uniform();
        j = std::max(0, i - 1 - static_cast<int>(u * v * std::min(i, 300)));
      } else {
        j = static_cast<int>(i * uniform());
      }
      edge(i, j, conductance());
    }
  }
  for (int h = 0; h < hubs; ++h) {
    const int centre = static_cast<int>(n * uniform());
    const int degree = static_cast<int>(hub_degree * (0.5 + 0.5 * uniform()));
    for (int t = 0; t < degree; ++t) {
      // Weight first, then the other end: g++ evaluates the reference's arguments from the right.
      const double weight = conductance() * 0.1;
      const int other = static_cast<int>(n * uniform());
      edge(centre, other, weight);
    }
  }
  for (int i = 0; i < n / 5; ++i) {
    const int a = static_cast<int>(n * uniform());
    const int b = a - 1 - static_cast<int>(uniform() * 50);
    if (b < 0) continue;
    const double w = 0.3 * std::min(conductance(), sum[static_cast<size_t>(a)]);
    rows[static_cast<size_t>(a)].push_back({b, w});
  }
  Builder builder(n);
  for (int i = 0; i < n; ++i) {
    auto& row = rows[static_cast<size_t>(i)];
    row.push_back({i, sum[static_cast<size_t>(i)] * (1 + 0.02 * uniform()) + 0.04});
    std::sort(row.begin(), row.end(),
              [](const auto& x, const auto& y) { return x.first < y.first; });
    for (size_t e = 0; e < row.size();) {
      const int column = row[e].first;
      double value = 0;
      for (; e < row.size() && row[e].first == column; ++e) value += row[e].second;
      builder.Add(column, value);
    }
    builder.EndColumn();
  }
  return builder.Take();
}

CscMatrix Periodic(int32_t n, int count) {
  constexpr int32_t kPeriod = 61;
  std::mt19937 random(1);
  std::vector<std::set<int32_t>> shifts(kPeriod);
  for (std::set<int32_t>& own : shifts) {
    own.insert(0);
    while (static_cast<int>(own.size()) < count) {
      own.insert(static_cast<int32_t>(random() % 4001) - 2000);
    }
  }
  CscMatrix a;
  a.n_rows = a.n_cols = n;
  for (int32_t k = 0; k < n; ++k) {
    a.col_ptr.push_back(a.nnz());
    for (const int32_t shift : shifts[static_cast<size_t>(k % kPeriod)]) {
      if (k + shift < 0 || k + shift >= n) continue;
      a.row_idx.push_back(k + shift);
      a.values.push_back(shift == 0 ? 4 : 1.0 / count);
    }
  }
  a.col_ptr.push_back(a.nnz());
  return a;
}

CscMatrix WithVaryingCoefficients(CscMatrix a) {
  std::mt19937_64 generator(12345);
  std::vector<double> added(static_cast<size_t>(a.n_cols), 0.0);
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end() - 1), diagonal(added.size());
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int64_t i = a.row_idx[p];
      // Those of column j above the diagonal are their mirrors, in that order.
      const int64_t mirror = next[static_cast<size_t>(i)]++;
      if (i == j) diagonal[static_cast<size_t>(j)] = p;
      if (i <= j) continue;
      const double unit = static_cast<double>(generator() >> 11) * 0x1.0p-53;
      const double value = a.values[p] * (0.5 + 1.5 * unit), more = a.values[p] - value;
      a.values[p] = a.values[mirror] = value;
      added[static_cast<size_t>(i)] += more;
      added[static_cast<size_t>(j)] += more;
    }
  }
  for (int64_t j = 0; j < a.n_cols; ++j) {
    a.values[diagonal[static_cast<size_t>(j)]] += added[static_cast<size_t>(j)];
  }
  return a;
}

CscMatrix Symmetrized(CscMatrix a) {
  Array<double> mean;
  mean.assign(a.values.size(), 0.0);
  // Columns come in ascending order, and so do the entries of each that mirror theirs.
  std::vector<int64_t> next(a.col_ptr.begin(), a.col_ptr.end());
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int64_t mirror = next[static_cast<size_t>(a.row_idx[p])]++;
      mean[p] = (a.values[p] + a.values[mirror]) / 2;
    }
  }
  a.values = std::move(mean);
  return a;
}

CscMatrix PermuteNodes(const CscMatrix& a, int node, int64_t window) {
  const int64_t nodes = a.n_cols / node;
  std::vector<int64_t> from(static_cast<size_t>(nodes)), to(from.size());
  std::iota(from.begin(), from.end(), int64_t{0});
  std::mt19937_64 generator(12345);
  for (int64_t begin = 0; begin < nodes; begin += window) {
    const int64_t end = std::min(nodes, begin + window);
    for (int64_t i = end - 1; i > begin; --i) {
      const auto below = static_cast<uint64_t>(i - begin + 1);
      std::swap(from[static_cast<size_t>(i)],
                from[static_cast<size_t>(begin + static_cast<int64_t>(generator() % below))]);
    }
  }
  for (int64_t i = 0; i < nodes; ++i) to[static_cast<size_t>(from[static_cast<size_t>(i)])] = i;
  Builder builder(a.n_cols);
  std::vector<std::pair<int64_t, double>> column;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const int64_t old = from[static_cast<size_t>(j / node)] * node + j % node;
    column.clear();
    for (int64_t p = a.col_ptr[old]; p < a.col_ptr[old + 1]; ++p) {
      const int64_t row = a.row_idx[p];
      column.emplace_back(to[static_cast<size_t>(row / node)] * node + row % node, a.values[p]);
    }
    std::sort(column.begin(), column.end());
    for (const auto& [row, value] : column) builder.Add(row, value);
    builder.EndColumn();
  }
  return builder.Take();
}

}  // namespace spaid::kernels::bench
