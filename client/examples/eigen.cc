// Eigen's matrices and the daemon: heat in a plate whose conductivity changes from step to step. A
// solver of Eigen's with M of the daemon, and the daemon's own solver for several loads at once.
// Says of each step what was sent.
//
//   spaid_example_eigen 127.0.0.1:7433 [CELLS A SIDE] [STEPS]
#include <spaid/eigen.h>

#include <Eigen/Dense>
#include <Eigen/IterativeLinearSolvers>
#include <Eigen/SparseCore>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using SpMat = Eigen::SparseMatrix<double, Eigen::RowMajor>;

// Five-point stencil of -div(k grad u) on a square, k between 1 and 1 + `contrast`.
SpMat Assemble(int side, double contrast) {
  std::vector<Eigen::Triplet<double>> entries;
  const auto couple = [&](int a, int b) {
    const double k = 1 + contrast * (0.5 + 0.5 * std::sin(0.1 * (a + b)));
    entries.emplace_back(a, a, k);
    entries.emplace_back(b, b, k);
    entries.emplace_back(a, b, -k);
    entries.emplace_back(b, a, -k);
  };
  for (int i = 0; i < side; ++i) {
    for (int j = 0; j < side; ++j) {
      entries.emplace_back(i * side + j, i * side + j, 1e-2);  // heat lost to the air
      if (i + 1 < side) couple(i * side + j, (i + 1) * side + j);
      if (j + 1 < side) couple(i * side + j, i * side + j + 1);
    }
  }
  SpMat a(side * side, side * side);
  a.setFromTriplets(entries.begin(), entries.end());
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s ADDRESS [CELLS A SIDE] [STEPS]\n", argv[0]);
    return 2;
  }
  const int side = argc > 2 ? std::atoi(argv[2]) : 100;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 5;
  const Eigen::MatrixXd b = Eigen::MatrixXd::Random(side * side, 4);
  spaid::Client client({.address = argv[1]});

  Eigen::ConjugateGradient<SpMat, Eigen::Lower | Eigen::Upper, spaid::eigen::Preconditioner<>> cg;
  cg.setTolerance(1e-8).preconditioner().setClient(client).setSpec(
      {.engine = spaid::Engine::kFsai});
  spaid::eigen::Solver<SpMat> solver;
  solver.setClient(client).setOptions({.engine = spaid::Engine::kFsai});

  for (int step = 1; step <= steps; ++step) {
    const SpMat a = Assemble(side, 0.1 * step);
    cg.compute(a);
    if (cg.info() != Eigen::Success) {
      std::fprintf(stderr, "%s\n", cg.preconditioner().lastErrorMessage().c_str());
      return 1;
    }
    const Eigen::VectorXd x = cg.solve(b.col(0));
    const Eigen::MatrixXd all = solver.compute(a).solve(b);
    if (solver.info() != Eigen::Success) {
      std::fprintf(stderr, "%s\n", solver.lastErrorMessage().c_str());
      return 1;
    }
    const auto& built = cg.preconditioner().result();
    std::printf(
        "step %d: %lld iterations of Eigen's CG, M with %lld entries, %lld bytes up, %lld down; "
        "4 columns there, %lld iterations at most, %lld bytes up, the two differ by %.1e\n",
        step, static_cast<long long>(cg.iterations()),
        static_cast<long long>(cg.preconditioner().matrix().nonZeros()),
        static_cast<long long>(built.timings.bytes_up),
        static_cast<long long>(built.timings.bytes_down),
        static_cast<long long>(solver.iterations()),
        static_cast<long long>(solver.result().timings.bytes_up),
        (x - all.col(0)).norm() / x.norm());
    if ((a * all - b).norm() > 1e-6 * b.norm() || (x - all.col(0)).norm() > 1e-5 * x.norm())
      return 1;
  }
  return 0;
}
