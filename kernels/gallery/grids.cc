// Families on regular grids. The order of operations in the families that peers were measured on is
// part of their definition: tests hold the results bit for bit.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/gallery/rows.h"

namespace spaid::gallery {
namespace {

constexpr double kPi = std::numbers::pi;

}  // namespace

Matrix ConvectionDiffusion3d(int64_t m, double speed) {
  const int64_t n = m * m * m;
  RowBuilder rows(n, 7 * n);
  const double h = 1.0 / static_cast<double>(m + 1);
  for (int64_t k = 0; k < m; ++k) {
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        const int64_t id = (k * m + j) * m + i;
        const double x = static_cast<double>(i + 1) * h, y = static_cast<double>(j + 1) * h,
                     z = static_cast<double>(k + 1) * h;
        const std::array velocity = {speed * std::sin(kPi * x) * std::cos(kPi * y),
                                     -speed * std::cos(kPi * x) * std::sin(kPi * y),
                                     speed * 0.5 * std::sin(kPi * z)};
        std::array<double, 3> low, high;
        double diagonal = 0;
        for (int axis = 0; axis < 3; ++axis) {
          low[axis] = -1 - std::max(velocity[axis], 0.0) * h;
          high[axis] = -1 + std::min(velocity[axis], 0.0) * h;
          diagonal -= low[axis] + high[axis];
        }
        if (k > 0) rows.Add(id - m * m, low[2]);
        if (j > 0) rows.Add(id - m, low[1]);
        if (i > 0) rows.Add(id - 1, low[0]);
        rows.Add(id, diagonal);
        if (i < m - 1) rows.Add(id + 1, high[0]);
        if (j < m - 1) rows.Add(id + m, high[1]);
        if (k < m - 1) rows.Add(id + m * m, high[2]);
        rows.EndRow();
      }
    }
  }
  return std::move(rows).ToCsc();
}

Matrix Jumps3d(int64_t m, int64_t block, double decades, uint64_t seed, Boundary boundary) {
  const int64_t n = m * m * m, blocks = (m + block - 1) / block;
  Uniform uniform(seed);
  std::vector<double> of_block(static_cast<size_t>(blocks * blocks * blocks));
  for (double& k : of_block) k = std::pow(10, decades * uniform());
  const auto at = [&](int64_t x, int64_t y, int64_t z) {
    return of_block[static_cast<size_t>((z / block * blocks + y / block) * blocks + x / block)];
  };
  RowBuilder rows(n, 7 * n);
  for (int64_t z = 0; z < m; ++z) {
    for (int64_t y = 0; y < m; ++y) {
      for (int64_t x = 0; x < m; ++x) {
        const int64_t id = (z * m + y) * m + x;
        const double own = at(x, y, z);
        double diagonal = 0;
        // Between two nodes, or own where there is the boundary.
        const auto face = [&](int64_t i, int64_t j, int64_t k) {
          const bool inside = std::min({i, j, k}) >= 0 && std::max({i, j, k}) < m;
          const double other = inside ? at(i, j, k) : own;
          const double mean = 2 * own * other / (own + other);
          if (inside || boundary == Boundary::kDirichlet) diagonal += mean;
          return inside ? mean : 0;
        };
        const std::array<double, 6> faces = {face(x, y, z - 1), face(x, y - 1, z),
                                             face(x - 1, y, z), face(x + 1, y, z),
                                             face(x, y + 1, z), face(x, y, z + 1)};
        const std::array<int64_t, 6> steps = {-m * m, -m, -1, 1, m, m * m};
        for (size_t f = 0; f < 6; ++f) {
          if (f == 3) rows.Add(id, diagonal);
          if (faces[f] != 0) rows.Add(id + steps[f], -faces[f]);
        }
        rows.EndRow();
      }
    }
  }
  return std::move(rows).ToCsc();
}

Matrix Laplace27(int64_t m) {
  const int64_t n = m * m * m;
  RowBuilder rows(n, 27 * n);
  for (int64_t z = 0; z < m; ++z) {
    for (int64_t y = 0; y < m; ++y) {
      for (int64_t x = 0; x < m; ++x) {
        for (int64_t c = std::max<int64_t>(z - 1, 0); c <= std::min(z + 1, m - 1); ++c) {
          for (int64_t b = std::max<int64_t>(y - 1, 0); b <= std::min(y + 1, m - 1); ++b) {
            for (int64_t a = std::max<int64_t>(x - 1, 0); a <= std::min(x + 1, m - 1); ++a) {
              rows.Add((c * m + b) * m + a, a == x && b == y && c == z ? 26.0 : -1.0);
            }
          }
        }
        rows.EndRow();
      }
    }
  }
  return std::move(rows).ToCsc();
}

Matrix RotatedAnisotropy2d(int64_t m, double epsilon, double angle, Rounding rounding) {
  const double c = std::cos(angle), s = std::sin(angle);
  const double diffusion[2][2] = {{c * c + epsilon * s * s, (1 - epsilon) * c * s},
                                  {(1 - epsilon) * c * s, s * s + epsilon * c * c}};
  // The element's stiffness by 2 x 2 Gauss points; corners counted round the square.
  constexpr std::array<double, 4> kXi = {-1, 1, 1, -1}, kEta = {-1, -1, 1, 1};
  const bool for_peers = rounding == Rounding::kPeers;
  const double gauss = GaussPoint(rounding);
  double element[4][4] = {};
  for (const double xi : {-gauss, gauss}) {
    for (const double eta : {-gauss, gauss}) {
      double gradient[4][2];
      for (int i = 0; i < 4; ++i) {
        gradient[i][0] = kXi[i] * (1 + kEta[i] * eta) / 4;
        gradient[i][1] = kEta[i] * (1 + kXi[i] * xi) / 4;
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          double sum = for_peers ? 0 : element[i][j];
          for (int p = 0; p < 2; ++p) {
            for (int q = 0; q < 2; ++q) sum += gradient[i][p] * diffusion[p][q] * gradient[j][q];
          }
          element[i][j] = for_peers ? element[i][j] + sum : sum;
        }
      }
    }
  }
  constexpr std::array<int, 4> kX = {0, 1, 1, 0}, kY = {0, 0, 1, 1};
  double stencil[3][3] = {};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) stencil[kY[j] - kY[i] + 1][kX[j] - kX[i] + 1] += element[i][j];
  }

  const int64_t n = m * m;
  RowBuilder rows(n, 9 * n);
  for (int64_t y = 0; y < m; ++y) {
    for (int64_t x = 0; x < m; ++x) {
      for (int dy = -1; dy <= 1; ++dy) {
        for (int dx = -1; dx <= 1; ++dx) {
          const int64_t to_x = x + dx, to_y = y + dy;
          if (to_x < 0 || to_y < 0 || to_x >= m || to_y >= m) continue;
          const double value = stencil[dy + 1][dx + 1];
          if (std::fabs(value) < 1e-14) continue;
          rows.Add(to_y * m + to_x, value);
        }
      }
      rows.EndRow();
    }
  }
  return std::move(rows).ToCsc();
}

namespace {

// Five points on nx x ny nodes, entry (r, c) times scale[r] * scale[c]; `left` and `below` are the
// couplings to the nodes before, −1 those to the nodes after.
Matrix FivePoint(int64_t nx, int64_t ny, double diagonal, double left, double below,
                 const std::vector<double>& scale) {
  const int64_t n = nx * ny;
  RowBuilder rows(n, 5 * n);
  for (int64_t y = 0; y < ny; ++y) {
    for (int64_t x = 0; x < nx; ++x) {
      const int64_t id = y * nx + x;
      const auto add = [&](int64_t column, double value) {
        rows.Add(column, scale.empty() ? value : scale[id] * value * scale[column]);
      };
      if (y > 0) add(id - nx, below);
      if (x > 0) add(id - 1, left);
      add(id, diagonal);
      if (x < nx - 1) add(id + 1, -1);
      if (y < ny - 1) add(id + nx, -1);
      rows.EndRow();
    }
  }
  return std::move(rows).ToCsc();
}

}  // namespace

Matrix ConvectionDiffusion2d(int64_t nx, int64_t ny, double px, double py) {
  return FivePoint(nx, ny, 4 + px + py, -1 - px, -1 - py, {});
}

Matrix Helmholtz2d(int64_t m, double points_per_wave) {
  const double kh = 2 * kPi / points_per_wave;
  return FivePoint(m, m, 4 - kh * kh, -1, -1, {});
}

Matrix BadlyScaled2d(int64_t m, double decades) {
  Uniform uniform(2024);
  std::vector<double> scale(m * m);
  // Powers of two, so that the scaling is exact: the matrix is D(−Δ)D to the last bit, and
  // symmetric.
  for (double& s : scale)
    s = std::exp2(std::round((uniform() - 0.5) * decades * std::log2(10.0) / 2));
  return FivePoint(m, m, 4, -1, -1, scale);
}

Matrix Stokes2d(int64_t m) {
  // u lives on the m - 1 inner vertical faces of each of m cell rows, v likewise turned, p in
  // cells.
  const int64_t u_count = (m - 1) * m, v_count = m * (m - 1), p_count = m * m - 1;
  const auto u_at = [&](int64_t x, int64_t y) { return y * (m - 1) + x; };
  const auto v_at = [&](int64_t x, int64_t y) { return u_count + y * m + x; };
  const auto p_at = [&](int64_t x, int64_t y) { return u_count + v_count + y * m + x; };
  const int64_t n = u_count + v_count + p_count;
  RowBuilder rows(n, 9 * n);
  // Velocity rows: −Δ (no-slip walls by reflection: a missing tangential neighbour adds 1), and the
  // pressure difference across the face. The last cell's pressure is fixed to 0 and left out.
  const auto velocity_row = [&](auto at, int64_t x, int64_t y, int64_t width, int64_t height,
                                bool is_u, int64_t p_before, int64_t p_after) {
    double diagonal = 4;
    if (is_u ? y == 0 : x == 0) diagonal += 1;
    if (is_u ? y == height - 1 : x == width - 1) diagonal += 1;
    if (y > 0) rows.Add(at(x, y - 1), -1);
    if (x > 0) rows.Add(at(x - 1, y), -1);
    rows.Add(at(x, y), diagonal);
    if (x < width - 1) rows.Add(at(x + 1, y), -1);
    if (y < height - 1) rows.Add(at(x, y + 1), -1);
    rows.Add(p_before, -1);
    if (p_after < n) rows.Add(p_after, 1);
    rows.EndRow();
  };
  for (int64_t y = 0; y < m; ++y) {
    for (int64_t x = 0; x < m - 1; ++x) {
      velocity_row(u_at, x, y, m - 1, m, true, p_at(x, y), p_at(x + 1, y));
    }
  }
  for (int64_t y = 0; y < m - 1; ++y) {
    for (int64_t x = 0; x < m; ++x) {
      velocity_row(v_at, x, y, m, m - 1, false, p_at(x, y), p_at(x, y + 1));
    }
  }
  // Pressure rows: the transpose of the difference.
  for (int64_t cell = 0; cell < p_count; ++cell) {
    const int64_t x = cell % m, y = cell / m;
    if (x > 0) rows.Add(u_at(x - 1, y), 1);
    if (x < m - 1) rows.Add(u_at(x, y), -1);
    if (y > 0) rows.Add(v_at(x, y - 1), 1);
    if (y < m - 1) rows.Add(v_at(x, y), -1);
    rows.EndRow();
  }
  return std::move(rows).ToCsc();
}

}  // namespace spaid::gallery
