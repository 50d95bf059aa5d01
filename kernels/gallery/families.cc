#include <algorithm>
#include <array>
#include <numbers>

#include "kernels/gallery/gallery.h"

namespace spaid::gallery {
namespace {

// The largest sizes keep n and the entries below 2^31.
constexpr std::array kFamilies = {
    Family{"poisson", "Poisson, 7-point stencil on a cube", "nodes an edge; n = size^3", 32, 1, 670,
           "SPD", [](int64_t m) { return ConvectionDiffusion3d(m, 0); }},
    Family{"p27", "Poisson, 27-point stencil on a cube", "nodes an edge; n = size^3", 32, 1, 430,
           "SPD", Laplace27},
    Family{"convdiff", "convection-diffusion on a cube, upwind, speed 400",
           "nodes an edge; n = size^3", 32, 1, 670, "nonsymmetric, M-matrix",
           [](int64_t m) { return ConvectionDiffusion3d(m, 400); }},
    Family{"varcoef", "diffusion on a cube, coefficients over 3 decades in blocks of 4^3 nodes",
           "nodes an edge; n = size^3", 32, 1, 670, "SPD",
           [](int64_t m) { return Jumps3d(m, 4, 3); }},
    Family{"neumann", "varcoef with Neumann conditions", "nodes an edge; n = size^3", 32, 2, 670,
           "symmetric, singular (constants)",
           [](int64_t m) { return Jumps3d(m, 4, 3, 1, Boundary::kNeumann); }},
    Family{"aniso", "anisotropic diffusion, rotated by 22.5 degrees, 1 : 0.001",
           "nodes an edge; n = size^2", 200, 1, 15000, "SPD, ill-conditioned",
           [](int64_t m) { return RotatedAnisotropy2d(m, 1e-3, std::numbers::pi / 8); }},
    Family{"elasticity", "linear elasticity of a clamped cube, Poisson ratio 0.3",
           "nodes an edge; n = 3 (size - 1) size^2", 12, 2, 205, "SPD",
           [](int64_t nodes) { return Elasticity3d(nodes); }},
    Family{
        "circuit", "circuit with hubs and one-way controlled sources", "n", 20000, 2, 100'000'000,
        "nonsymmetric, dense rows and columns",
        // The measured circuit300k has hubs of up to 700; a small one must leave room for the rest.
        [](int64_t n) { return Circuit(n, 12, static_cast<int>(std::min<int64_t>(700, n / 4))); }},
    Family{"helmholtz", "Helmholtz, 10 points a wave, on a square", "nodes an edge; n = size^2",
           100, 1, 20000, "symmetric, indefinite", [](int64_t m) { return Helmholtz2d(m, 10); }},
    Family{"stokes", "Stokes flow on a staggered grid (saddle point)",
           "cells an edge; n = 3 size^2 - 2 size - 1", 40, 2, 15000,
           "symmetric, indefinite, no diagonal in a third of the rows", Stokes2d},
    Family{"random", "random rows of 1 to 60 entries over 6 decades", "n", 20000, 1, 100'000'000,
           "nonsymmetric, irregular", RandomIrregular},
    Family{"graph", "Laplacian of a power-law graph", "n", 20000, 2, 100'000'000,
           "symmetric, singular (constants)", GraphLaplacian},
    Family{"badscale", "Poisson on a square, scaled over 12 decades", "nodes an edge; n = size^2",
           100, 1, 20000, "SPD, badly scaled", [](int64_t m) { return BadlyScaled2d(m, 12); }},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

}  // namespace spaid::gallery
