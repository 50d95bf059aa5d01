// Elasticity on hexahedra; see grids.cc on the order of operations.
#include <array>
#include <cmath>

#include "kernels/gallery/rows.h"

namespace spaid::gallery {
namespace {

constexpr std::array<int, 8> kX = {0, 1, 1, 0, 0, 1, 1, 0}, kY = {0, 0, 1, 1, 0, 0, 1, 1},
                             kZ = {0, 0, 0, 0, 1, 1, 1, 1};

using ElementMatrix = std::array<std::array<double, 24>, 24>;

// Stiffness of the unit cube by 2 x 2 x 2 points of coordinates ±gauss; unknowns 3 * corner + axis.
ElementMatrix UnitCube(double gauss) {
  constexpr double kYoung = 1, kPoisson = 0.3;
  const double lambda = kYoung * kPoisson / ((1 + kPoisson) * (1 - 2 * kPoisson));
  const double mu = kYoung / (2 * (1 + kPoisson));
  double stress[6][6] = {};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) stress[i][j] = lambda;
    stress[i][i] += 2 * mu;
    stress[i + 3][i + 3] = mu;
  }
  ElementMatrix element = {};
  for (int q = 0; q < 8; ++q) {
    const double xi = (q & 1) != 0 ? gauss : -gauss, eta = (q & 2) != 0 ? gauss : -gauss,
                 zeta = (q & 4) != 0 ? gauss : -gauss;
    double strain[6][24] = {};
    for (int i = 0; i < 8; ++i) {
      const double sx = 2 * kX[i] - 1, sy = 2 * kY[i] - 1, sz = 2 * kZ[i] - 1;
      const double dx = sx * (1 + sy * eta) * (1 + sz * zeta) / 8 * 2;
      const double dy = sy * (1 + sx * xi) * (1 + sz * zeta) / 8 * 2;
      const double dz = sz * (1 + sx * xi) * (1 + sy * eta) / 8 * 2;
      strain[0][3 * i] = dx;
      strain[1][3 * i + 1] = dy;
      strain[2][3 * i + 2] = dz;
      strain[3][3 * i] = dy;
      strain[3][3 * i + 1] = dx;
      strain[4][3 * i + 1] = dz;
      strain[4][3 * i + 2] = dy;
      strain[5][3 * i] = dz;
      strain[5][3 * i + 2] = dx;
    }
    for (int a = 0; a < 24; ++a) {
      for (int b = 0; b < 24; ++b) {
        double sum = 0;
        for (int r = 0; r < 6; ++r) {
          for (int c = 0; c < 6; ++c) sum += strain[r][a] * stress[r][c] * strain[c][b];
        }
        element[a][b] += sum / 8;
      }
    }
  }
  return element;
}

int CornerAt(int x, int y, int z) {
  for (int i = 0; i < 8; ++i) {
    if (kX[i] == x && kY[i] == y && kZ[i] == z) return i;
  }
  return -1;
}

}  // namespace

Matrix Elasticity3d(int64_t nodes, Rounding rounding) {
  const ElementMatrix element = UnitCube(GaussPoint(rounding));
  const int64_t free_x = nodes - 1;  // x = 1 .. nodes - 1
  const int64_t n = free_x * nodes * nodes * 3;
  RowBuilder rows(n, 81 * n);
  // One node's 3 x 3 couplings with its 27 neighbours.
  std::array<double, 27 * 9> local;
  for (int64_t z = 0; z < nodes; ++z) {
    for (int64_t y = 0; y < nodes; ++y) {
      for (int64_t x = 1; x < nodes; ++x) {
        local.fill(0.0);
        for (int64_t ez = z - 1; ez <= z; ++ez) {
          for (int64_t ey = y - 1; ey <= y; ++ey) {
            for (int64_t ex = x - 1; ex <= x; ++ex) {
              if (ey < 0 || ez < 0 || ex >= free_x || ey >= free_x || ez >= free_x) continue;
              const int self = CornerAt(static_cast<int>(x - ex), static_cast<int>(y - ey),
                                        static_cast<int>(z - ez));
              for (int j = 0; j < 8; ++j) {
                const int64_t other =
                    ((ez + kZ[j] - z + 1) * 3 + (ey + kY[j] - y + 1)) * 3 + (ex + kX[j] - x + 1);
                for (int a = 0; a < 3; ++a) {
                  for (int b = 0; b < 3; ++b) {
                    local[other * 9 + a * 3 + b] += element[3 * self + a][3 * j + b];
                  }
                }
              }
            }
          }
        }
        for (int a = 0; a < 3; ++a) {
          for (int other = 0; other < 27; ++other) {
            const int64_t to_x = x + other % 3 - 1, to_y = y + other / 3 % 3 - 1,
                          to_z = z + other / 9 - 1;
            if (to_x < 1 || to_y < 0 || to_z < 0 || to_x >= nodes || to_y >= nodes ||
                to_z >= nodes) {
              continue;
            }
            const int64_t column = ((to_z * nodes + to_y) * free_x + to_x - 1) * 3;
            for (int b = 0; b < 3; ++b) rows.Add(column + b, local[other * 9 + a * 3 + b]);
          }
          rows.EndRow();
        }
      }
    }
  }
  return std::move(rows).ToCsc();
}

}  // namespace spaid::gallery
