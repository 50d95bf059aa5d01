// Matrices of tests as Eigen's, of any scalar, layout and index.
#pragma once

#include <Eigen/Dense>
#include <Eigen/SparseCore>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace spaid::e2e {

// Copies a square matrix in CSC, the client's or that of the kernels.
template <class Matrix, class Csc>
Matrix EigenMatrix(const Csc& from) {
  using Scalar = typename Matrix::Scalar;
  const size_t n = from.col_ptr.size() - 1;
  std::vector<Eigen::Triplet<Scalar>> entries;
  for (size_t j = 0; j < n; ++j) {
    for (auto p = static_cast<size_t>(from.col_ptr[j]);
         p < static_cast<size_t>(from.col_ptr[j + 1]); ++p) {
      entries.emplace_back(from.row_idx[p], static_cast<int>(j),
                           static_cast<Scalar>(from.values[p]));
    }
  }
  Matrix a(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n));
  a.setFromTriplets(entries.begin(), entries.end());
  return a;
}

template <class Scalar>
using Columns = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic>;
template <class Scalar>
using Column = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;

// Right-hand sides with the solutions i, i + 1, … of row i.
template <class Matrix>
Columns<typename Matrix::Scalar> SmoothColumns(const Matrix& a, Eigen::Index columns) {
  Columns<typename Matrix::Scalar> x(a.cols(), columns);
  for (Eigen::Index k = 0; k < columns; ++k) {
    for (Eigen::Index i = 0; i < a.cols(); ++i) {
      x(i, k) = static_cast<typename Matrix::Scalar>(i + k + 1) /
                static_cast<typename Matrix::Scalar>(a.cols());
    }
  }
  return a * x;
}

// Solve in double by a direct solver of Eigen's: SimplicialLDLT where A is symmetric, else
// SparseLU.
Columns<double> SolveByLdlt(const Eigen::SparseMatrix<double>& a, const Columns<double>& b);
Columns<double> SolveByLu(const Eigen::SparseMatrix<double>& a, const Columns<double>& b);

template <class Matrix, class Rhs>
Columns<double> DirectSolve(const Matrix& a, const Rhs& b, bool symmetric = false) {
  const Eigen::SparseMatrix<double> plain = a.template cast<double>();
  const Columns<double> columns = b.template cast<double>();
  return symmetric ? SolveByLdlt(plain, columns) : SolveByLu(plain, columns);
}

template <class A, class B>
double RelativeDifference(const A& a, const B& b) {
  return (a.template cast<double>() - b.template cast<double>()).norm() /
         b.template cast<double>().norm();
}

// Returns true if |b - Ax| <= rtol |b|, but for what rounding makes of A x: |A| |x| may be far
// larger than |b|.
template <class Matrix, class X, class B>
bool Solves(const Matrix& a, const Eigen::MatrixBase<X>& x, const Eigen::MatrixBase<B>& b,
            double rtol) {
  constexpr double kRounding = 16 * 2.2e-16;
  return (a * x - b).norm() <= rtol * b.norm() + kRounding * (a.cwiseAbs() * x.cwiseAbs()).norm();
}

// The error that copies of a solution in `Scalar` and the default tolerance leave.
template <class Scalar>
constexpr double kNear = std::is_same_v<Scalar, double> ? 1e-5 : 3e-3;

}  // namespace spaid::e2e
