// The matrices that benchmarks run on. Symmetric in pattern; made by rows and returned as they are:
// CSR of the matrix, that is, CSC of its transpose (convection-diffusion and circuit are not
// symmetric in value; SPAI of the transpose costs the same).
#pragma once

#include <cstdint>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// −Δ + v·∇ on m³ interior points of the unit cube, 7 points, first-order upwind, h = 1/(m+1),
// v = convection * (sin πx cos πy, −cos πx sin πy, ½ sin πz). convection = 0: the 7-point
// Laplacian.
CscMatrix ConvectionDiffusion(int m, double convection);

// 27-point Laplacian on m³ points: centre 26, others −1.
CscMatrix Laplacian27(int m);

// −∇·(K∇) with bilinear elements on m² points, 9 points; K = rotation by `angle` of diag(1,
// epsilon).
CscMatrix Anisotropic(int m, double epsilon, double angle);

// Linear elasticity, E = 1, ν = 0.3, trilinear hexahedra of edge 1, `nodes` nodes an edge, face x =
// 0 clamped and removed; 3 unknowns a node, up to 81 entries a column (E80).
CscMatrix Elasticity(int nodes);

// Circuit-like: conductances over 3 decades on a power-law graph, `hubs` hub columns of about
// `hub_degree` entries, a fifth of the rows with one-way controlled sources. std::mt19937_64, seed
// 12345.
CscMatrix Circuit(int n, int hubs, int hub_degree);

// Columns that share 61 local problems of `count` entries of A each, on too many diagonals to go by
// those; not symmetric.
CscMatrix Periodic(int32_t n, int count);

// Of a symmetric matrix with negative off-diagonal entries: these times numbers in [0.5, 2), one
// for each pair of entries that mirror each other, and diagonal entries that leave the sums of the
// rows as they are: as of coefficients that vary from place to place. std::mt19937_64, seed 12345.
CscMatrix WithVaryingCoefficients(CscMatrix a);

// (A + Aᵀ) / 2 of one with a symmetric pattern: symmetric to the last bit, as matrices are whose
// upper half alone was assembled.
CscMatrix Symmetrized(CscMatrix a);

// The same matrix with its nodes of `node` unknowns in a random order within each `window` of them:
// as of an irregular mesh.
CscMatrix PermuteNodes(const CscMatrix& a, int node, int64_t window);

}  // namespace spaid::kernels::bench
