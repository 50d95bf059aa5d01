// Matrices with known properties, and what a test does with results without asking spaid.
#pragma once

#include <spaid/client.h>

#include <cstdint>
#include <span>
#include <vector>

namespace spaid::e2e {

// 5-point Laplacian on an nx × ny grid: symmetric positive definite.
CscMatrix Poisson(int nx, int ny);
// Upwind convection-diffusion on the same grid: nonsymmetric, an M-matrix. `wind` is the cell's
// Péclet number.
CscMatrix ConvectionDiffusion(int nx, int ny, double wind);
// A band of 27 entries a column, diagonally dominant; as many bytes as asked for.
CscMatrix Band(int64_t bytes);
// n columns of up to `entries` entries in random rows, no two alike; diagonally dominant.
CscMatrix Irregular(int64_t n, int entries);
// Other values on the same pattern, symmetric and diagonally dominant where they were.
CscMatrix OtherValues(CscMatrix a);
int64_t ArrayBytes(const CscMatrix& a);

std::vector<double> Multiply(const CscMatrix& a, std::span<const double> x);
// ‖b − Ax‖ / ‖b‖.
double RelativeResidual(const CscMatrix& a, std::span<const double> x, std::span<const double> b);
// ‖AM − I‖_F, column by column.
double InverseResidual(const CscMatrix& a, const CscMatrix& m);
// b = A·(1, 2, 3, … / n).
std::vector<double> SmoothRhs(const CscMatrix& a);

}  // namespace spaid::e2e
