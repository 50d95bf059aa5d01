// The makers behind gallery.h, and the row-wise builder that they share.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "client/cpp/spaid/client.h"

namespace spaid::cli {

// A matrix under construction, one row after another, columns ascending.
class RowBuilder {
 public:
  RowBuilder(int64_t n, int64_t expected_entries);
  void Add(int64_t column, double value) {
    columns_.push_back(static_cast<int32_t>(column));
    values_.push_back(value);
  }
  void EndRow() { row_ptr_.push_back(static_cast<int64_t>(columns_.size())); }
  // Transposes the rows into CSC and frees them. Row order makes every column sorted.
  CscMatrix ToCsc() &&;

 private:
  int64_t n_;
  std::vector<int64_t> row_ptr_;
  std::vector<int32_t> columns_;
  std::vector<double> values_;
};

// A row of (column, value) terms in any order, same columns summed.
using Terms = std::vector<std::pair<int, double>>;
// Sorts by column, sums equal columns in the order that std::sort leaves them in, and ends the row.
void AddSummedRow(Terms& terms, RowBuilder& rows);

// Uniform in [0, 1), 53 bits, the same on every platform (std::uniform_real_distribution is not).
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : engine_(seed) {}
  double operator()() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

// −Δ + v·∇ on the unit cube, 7 points, m³ interior nodes, Dirichlet, scaled by h² (h = 1/(m+1)),
// first-order upwind; v = speed (sin πx cos πy, −cos πx sin πy, ½ sin πz).
CscMatrix ConvectionDiffusion3d(int64_t m, double speed);
// −Δ on m³ nodes with all 27 neighbours: centre 26, others −1.
CscMatrix Laplace27(int64_t m);
// −∇·(K∇), K = rotation by `angle` of diag(1, epsilon), bilinear elements, m² nodes, Dirichlet.
CscMatrix RotatedAnisotropy2d(int64_t m, double epsilon, double angle);
// −Δ − k² on m² nodes, 5 points, k h = 2π / points_per_wave.
CscMatrix Helmholtz2d(int64_t m, double points_per_wave);
// D (−Δ) D, 5 points on m² nodes, D_ii = 10^e with e seeded uniform in [−decades/2, decades/2].
CscMatrix BadlyScaled2d(int64_t m, double decades);
// Stokes on an m x m staggered (MAC) grid: [−Δ G; Gᵀ 0], one pressure fixed.
CscMatrix Stokes2d(int64_t m);

// Linear elasticity on a cube of N³ nodes, Q1 hexahedra of unit size; the face x = 0 is clamped and
// removed. Three unknowns a node. Couplings that cancel are stored as explicit zeros.
CscMatrix Elasticity3d(int64_t nodes, double young, double poisson);

// Conductances over 3 decades on a power-law graph with `hubs` dense rows, one-way controlled
// sources, weakly diagonally dominant.
CscMatrix Circuit(int64_t n, int hubs, int hub_degree);
// Irregular and nonsymmetric: rows of 1 to 60 entries, values over 6 decades, dominant in most
// rows.
CscMatrix RandomIrregular(int64_t n);
// Laplacian of a connected preferential-attachment graph: constants are its null space.
CscMatrix GraphLaplacian(int64_t n);

}  // namespace spaid::cli
