// Systems that the tests of solves on a CUDA device share.
#pragma once

#include <vector>

#include "kernels/bench/problems.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::krylov_test {

struct Problem {
  const char* name;
  CscMatrix a;
  bool spd;
};

// By few diagonals, by nodes, by rows.
inline std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  problems.push_back({"P7", bench::ConvectionDiffusion(20, 0), true});
  problems.push_back({"P27", bench::Laplacian27(14), true});
  problems.push_back({"aniso", bench::Anisotropic(60, 1e-2, 0.4), true});
  problems.push_back({"elasticity", bench::Elasticity(6), true});
  problems.push_back(
      {"permuted elasticity", bench::PermuteNodes(bench::Elasticity(6), 3, 4096), true});
  problems.push_back({"convection-diffusion", bench::ConvectionDiffusion(18, 100), false});
  problems.push_back({"circuit", bench::Circuit(4000, 3, 300), false});
  return problems;
}

}  // namespace spaid::kernels::krylov_test
