// Implicit heat conduction in a plate whose conductivity falls as it grows hot: each step has other
// values on one pattern. Says of each step how many iterations it took, what became of M, and what
// was sent.
//
//   spaid_example_heat 127.0.0.1:7433 [CELLS A SIDE] [STEPS]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "spaid/system.h"

namespace {

// (I + Δt L(T)) T⁺ = T, by rows: a five-point stencil with the conductivity between two cells.
struct Plate {
  explicit Plate(int64_t cells) : side(cells), temperature(static_cast<size_t>(cells * cells), 0) {
    row_ptr.push_back(0);
    for (int64_t i = 0; i < side; ++i) {
      for (int64_t j = 0; j < side; ++j) {
        if (i > 0) Couple(i - 1, j);
        if (j > 0) Couple(i, j - 1);
        Couple(i, j);
        if (j + 1 < side) Couple(i, j + 1);
        if (i + 1 < side) Couple(i + 1, j);
        row_ptr.push_back(static_cast<int64_t>(col_idx.size()));
      }
    }
    values.resize(col_idx.size());
  }

  void Assemble(double dt) {
    const double scale = dt * static_cast<double>(side * side);
    for (int64_t row = 0; row < side * side; ++row) {
      double sum = 1;
      size_t diagonal = 0;
      for (auto p = static_cast<size_t>(row_ptr[static_cast<size_t>(row)]);
           p < static_cast<size_t>(row_ptr[static_cast<size_t>(row) + 1]); ++p) {
        if (col_idx[p] == row) {
          diagonal = p;
          continue;
        }
        const double mean = 0.5 * (temperature[static_cast<size_t>(row)] +
                                   temperature[static_cast<size_t>(col_idx[p])]);
        values[p] = -scale / (1 + mean * mean);
        sum -= values[p];
      }
      values[diagonal] = sum;
    }
  }

  double Residual(const std::vector<double>& x) const {
    double r2 = 0, b2 = 0;
    for (size_t row = 0; row + 1 < row_ptr.size(); ++row) {
      double r = temperature[row];
      b2 += r * r;
      for (auto p = row_ptr[row]; p < row_ptr[row + 1]; ++p) {
        r -= values[static_cast<size_t>(p)] *
             x[static_cast<size_t>(col_idx[static_cast<size_t>(p)])];
      }
      r2 += r * r;
    }
    return std::sqrt(r2 / b2);
  }

  int64_t side;
  std::vector<double> temperature;
  std::vector<int64_t> row_ptr;
  std::vector<int32_t> col_idx;
  std::vector<double> values;

 private:
  void Couple(int64_t i, int64_t j) { col_idx.push_back(static_cast<int32_t>(i * side + j)); }
};

// Tells the fate of M.
const char* Of(const spaid::SolveResult& solved) {
  return solved.reuse ? spaid::Name(solved.reuse->decision).data() : "built";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s ADDRESS [CELLS A SIDE] [STEPS]\n", argv[0]);
    return 2;
  }
  Plate plate(argc > 2 ? std::atoll(argv[2]) : 200);
  const int steps = argc > 3 ? std::atoi(argv[3]) : 20;
  for (int64_t i = plate.side / 4; i < plate.side / 2; ++i) {
    for (int64_t j = plate.side / 4; j < plate.side / 2; ++j) {
      plate.temperature[static_cast<size_t>(i * plate.side + j)] = 3;
    }
  }

  spaid::Client client({.address = argv[1]});
  const int64_t n = plate.side * plate.side;
  spaid::System system(client, {n, plate.row_ptr, plate.col_idx, plate.values, {}, true},
                       {.engine = spaid::Engine::kFsai});
  for (int step = 1; step <= steps; ++step) {
    plate.Assemble(1e-4);
    if (auto error = system.SetValues(plate.values)) {
      std::fprintf(stderr, "%s\n", error->message.c_str());
      return 1;
    }
    auto solved = system.Solve(plate.temperature, /*guess=*/plate.temperature);
    if (!solved.ok()) {
      std::fprintf(stderr, "%s\n", solved.error().message.c_str());
      return 1;
    }
    const double residual = plate.Residual(solved->x);
    std::printf("step %d: %lld iterations, M %s, %lld bytes up, residual %.1e\n", step,
                static_cast<long long>(solved->rhs[0].iterations), Of(*solved),
                static_cast<long long>(solved->timings.bytes_up), residual);
    if (solved->rhs[0].outcome != spaid::Outcome::kConverged || residual > 1e-7) return 1;
    plate.temperature = std::move(solved->x);
  }
  return 0;
}
