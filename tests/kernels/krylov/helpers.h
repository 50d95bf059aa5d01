// What the Krylov tests share: small matrices by rows, products in extended precision, a recording
// sink.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "kernels/krylov/krylov.h"
#include "kernels/sparse/matrix.h"
#include "tests/oracle/oracle.h"

namespace spaid::kernels::krylov_test {

using oracle::Vector;

inline CscMatrix Rows(std::initializer_list<std::initializer_list<double>> rows) {
  return oracle::FromRows(rows);
}
CscMatrix Diagonal(const Vector& d);
// Cyclic shift: A e_j = e_(j+1 mod n). GMRES gains nothing before step n.
CscMatrix CyclicShift(int64_t n);
// 1-D Laplacian with Neumann ends: symmetric semidefinite, constants in the null space.
CscMatrix Neumann(int64_t n);

// Computed in long double, on code of its own.
Vector Product(const CscView& a, std::span<const double> x);
double ResidualNorm(const CscView& a, std::span<const double> x, std::span<const double> b);
double Norm(std::span<const double> v);
Vector RandomVector(int64_t n, uint64_t seed);
Vector DiagonalOf(const CscView& a);

// Solves on the CPU (solve_on_host.cc) or on the first CUDA device (solve_on_device.cc), whichever
// the program has.
Result<SolveResult> SolveHere(const CscView& a, const LinearOperator* m, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context);
bool OnHost();  // SolveHere solves on the CPU
// The methods that SolveHere has.
std::vector<Method> MethodsHere();
// Iterations that may follow on a stop.
int64_t IterationsAfterStop();
// Right-hand sides that are solved together, at most, without an explicit M.
int64_t ColumnsAtOnce();

// Solves and expects a result; `m` may be null; on a device it is a diagonal.
SolveResult MustSolve(const CscView& a, const LinearOperator* m, std::span<const double> b,
                      const SolveOptions& options, std::span<const double> x0 = {},
                      const Context& context = {});

// The invariants of every outcome: residuals are those of the x returned, CONVERGED means it, x is
// no worse than the initial guess, texts where something went wrong.
void ExpectHonest(const CscView& a, std::span<const double> b, const SolveOptions& options,
                  const SolveResult& result, const std::string& what);

std::string Name(Method method);
std::string Name(Outcome outcome);

class RecordingSink : public ProgressSink {
 public:
  void OnProgress(Stage, int64_t, int64_t) override {}
  void OnResidual(const ResidualPoint& point) override {
    points.push_back(point);
    if (on_residual) on_residual(point);
  }
  std::vector<ResidualPoint> points;
  std::function<void(const ResidualPoint&)> on_residual;
};

}  // namespace spaid::kernels::krylov_test
