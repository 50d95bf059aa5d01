// Test matrices made from a formula: the families of `spaidctl gallery`, the problems of the
// benchmarks and of the tests.
//
//   gallery::Matrix a = gallery::Elasticity3d(20);   // 22,800 unknowns
//
// Every matrix is canonical CSC (rows sorted, no duplicates; explicit zeros where the family has
// them) and the same on every run and machine: pseudo-random families are seeded, and all
// arithmetic is plain IEEE double in a fixed order, which is part of their definition. Thread-safe.
// Errors: std::bad_alloc. Needs the standard library alone.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace spaid::gallery {

// n x n, by columns.
struct Matrix {
  int64_t n = 0;
  std::vector<int64_t> col_ptr;
  std::vector<int32_t> row_idx;
  std::vector<double> values;
};

struct Family {
  std::string_view name;
  std::string_view title;         // what it models, for a table
  std::string_view size_meaning;  // what its size counts
  int64_t default_size, min_size, max_size;
  std::string_view properties;   // symmetry and definiteness, for a table
  Matrix (*make)(int64_t size);  // min_size <= size <= max_size
};

// The families that users choose by name, in the order in which they are shown.
std::span<const Family> Families();

// How element matrices are rounded. The two differ in the last digit: in the entries that cancel to
// exactly 0, and in whether the matrix is symmetric to the last bit.
enum class Rounding {
  kPeers,       // the families, on which peers were measured
  kBenchmarks,  // the benchmarks' published figures, and the tests of the kernels
};

// −Δ + v·∇ on the unit cube, 7 points, m³ interior nodes, Dirichlet, scaled by h² (h = 1/(m+1)),
// first-order upwind; v = speed (sin πx cos πy, −cos πx sin πy, ½ sin πz).
Matrix ConvectionDiffusion3d(int64_t m, double speed);
enum class Boundary {
  kDirichlet,
  kNeumann,  // the matrix is singular: constants
};
// −∇·(k∇) on m³ nodes, 7 points, k constant on blocks of `block`³ nodes: 10^(decades u) with u
// seeded uniform in [0, 1), the harmonic mean of both nodes' between them.
Matrix Jumps3d(int64_t m, int64_t block, double decades, uint64_t seed = 1,
               Boundary boundary = Boundary::kDirichlet);
// −Δ + v·∇ on nx x ny nodes, 5 points, Dirichlet, scaled by h², first-order upwind; (px, py) is the
// Péclet number of a cell.
Matrix ConvectionDiffusion2d(int64_t nx, int64_t ny, double px, double py);
// −Δ on m³ nodes with all 27 neighbours: centre 26, others −1.
Matrix Laplace27(int64_t m);
// −∇·(K∇), K = rotation by `angle` of diag(1, epsilon), bilinear elements, m² nodes, Dirichlet.
Matrix RotatedAnisotropy2d(int64_t m, double epsilon, double angle,
                           Rounding rounding = Rounding::kPeers);
// −Δ − k² on m² nodes, 5 points, k h = 2π / points_per_wave.
Matrix Helmholtz2d(int64_t m, double points_per_wave);
// D (−Δ) D, 5 points on m² nodes, D_ii = 10^e with e seeded uniform in [−decades/2, decades/2].
Matrix BadlyScaled2d(int64_t m, double decades);
// Stokes on an m x m staggered (MAC) grid: [−Δ G; Gᵀ 0], one pressure fixed.
Matrix Stokes2d(int64_t m);

// Linear elasticity on a cube of N³ nodes, Q1 hexahedra of unit size, E = 1, ν = 0.3; the face
// x = 0 is clamped and removed. Three unknowns a node. Couplings that cancel are stored as explicit
// zeros.
Matrix Elasticity3d(int64_t nodes, Rounding rounding = Rounding::kPeers);

// Conductances over 3 decades on a power-law graph with `hubs` dense rows, one-way controlled
// sources, weakly diagonally dominant.
Matrix Circuit(int64_t n, int hubs, int hub_degree);
// Irregular and nonsymmetric: rows of 1 to 60 entries, values over 6 decades, dominant in most
// rows.
Matrix RandomIrregular(int64_t n);
// Laplacian of a connected preferential-attachment graph: constants are its null space.
Matrix GraphLaplacian(int64_t n);
// Rows that repeat every 61: 61 random sets of `count` diagonals, too many to go by diagonals. Not
// symmetric.
Matrix Periodic(int64_t n, int count);

// Canonical arrays of a matrix with a symmetric pattern, to be changed in place.
struct Arrays {
  std::span<int64_t> col_ptr;  // n + 1
  std::span<int32_t> row_idx;
  std::span<double> values;
};

// Multiplies each pair of mirrored entries of a symmetric matrix by a number in [0.5, 2), and
// changes the diagonal so that the row sums stay: coefficients that vary from place to place.
// Seeded. The whole diagonal must be stored.
void VaryCoefficients(const Arrays& a);
// A := (A + Aᵀ) / 2, symmetric to the last bit.
void Symmetrize(const Arrays& a);
// Permutes nodes of `node` unknowns at random within each `window` of nodes: an irregular mesh.
// Seeded.
void PermuteNodes(const Arrays& a, int node, int64_t window);

// Uniform in [0, 1), 53 bits, the same on every platform (std::uniform_real_distribution is not).
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : engine_(seed) {}
  double operator()() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace spaid::gallery
