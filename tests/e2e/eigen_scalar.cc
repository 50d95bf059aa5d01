// Compiles with SCALAR=double, and says why not with std::complex<double>.
#include <spaid/eigen.h>

#include <complex>

void Solve(const Eigen::SparseMatrix<SCALAR>& a) {
  spaid::eigen::Preconditioner<SCALAR> m(a);
  spaid::eigen::Solver<Eigen::SparseMatrix<SCALAR>> solver(a);
}
