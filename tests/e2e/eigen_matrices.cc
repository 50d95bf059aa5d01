#include "tests/e2e/eigen_matrices.h"

#include <Eigen/SparseCholesky>
#include <Eigen/SparseLU>

namespace spaid::e2e {

Columns<double> SolveByLdlt(const Eigen::SparseMatrix<double>& a, const Columns<double>& b) {
  return Eigen::SimplicialLDLT<Eigen::SparseMatrix<double>>(a).solve(b);
}

Columns<double> SolveByLu(const Eigen::SparseMatrix<double>& a, const Columns<double>& b) {
  return Eigen::SparseLU<Eigen::SparseMatrix<double>>(a).solve(b);
}

}  // namespace spaid::e2e
