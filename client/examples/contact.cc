// Two elastic blocks, the upper one pressed down on the lower one: where nodes touch, a stiff
// spring ties them, so the pattern of the matrix changes whenever the contact does. Newton steps
// until the contact stays, with a growing load. Says of each step what the contact is, and what was
// sent.
//
//   spaid_example_contact 127.0.0.1:7433 [ELEMENTS A SIDE] [LOADS]
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "spaid/system.h"

namespace {

// Plane strain, bilinear quadrilaterals of side 1, Young's modulus 1, Poisson's ratio 0.3.
std::array<std::array<double, 8>, 8> ElementStiffness() {
  constexpr double kNu = 0.3, kFactor = 1 / ((1 + kNu) * (1 - 2 * kNu));
  constexpr double kD[3][3] = {{kFactor * (1 - kNu), kFactor * kNu, 0},
                               {kFactor * kNu, kFactor * (1 - kNu), 0},
                               {0, 0, kFactor * (1 - 2 * kNu) / 2}};
  constexpr double kX[4] = {-1, 1, 1, -1}, kY[4] = {-1, -1, 1, 1};
  std::array<std::array<double, 8>, 8> k{};
  const double g = 1 / std::sqrt(3.0);
  for (const double s : {-g, g}) {
    for (const double t : {-g, g}) {
      double b[3][8] = {};
      for (size_t a = 0; a < 4; ++a) {
        const double dx = kX[a] * (1 + kY[a] * t) / 2, dy = kY[a] * (1 + kX[a] * s) / 2;
        b[0][2 * a] = b[2][2 * a + 1] = dx;
        b[1][2 * a + 1] = b[2][2 * a] = dy;
      }
      for (size_t i = 0; i < 8; ++i) {
        for (size_t j = 0; j < 8; ++j) {
          for (size_t p = 0; p < 3; ++p) {
            for (size_t q = 0; q < 3; ++q) k[i][j] += b[p][i] * kD[p][q] * b[q][j] / 4;
          }
        }
      }
    }
  }
  return k;
}

class Blocks {
 public:
  explicit Blocks(int64_t elements) : m_(elements) {
    const auto k = ElementStiffness();
    for (int64_t block = 0; block < 2; ++block) {
      for (int64_t i = 0; i < m_; ++i) {
        for (int64_t j = 0; j < m_; ++j) {
          const std::array<int64_t, 4> nodes{Node(block, i, j), Node(block, i, j + 1),
                                             Node(block, i + 1, j + 1), Node(block, i + 1, j)};
          for (size_t p = 0; p < 8; ++p) {
            for (size_t q = 0; q < 8; ++q) {
              Add(2 * nodes[p / 2] + static_cast<int64_t>(p % 2),
                  2 * nodes[q / 2] + static_cast<int64_t>(q % 2), k[p][q]);
            }
          }
        }
      }
    }
    // The lower block stands; weak springs hold the upper one, which floats else.
    for (int64_t j = 0; j <= m_; ++j) {
      for (int64_t d = 0; d < 2; ++d) {
        Add(2 * Node(0, 0, j) + d, 2 * Node(0, 0, j) + d, 1e4);
        Add(2 * Node(1, m_, j) + d, 2 * Node(1, m_, j) + d, 1e-2);
      }
    }
  }

  int64_t n() const { return 4 * (m_ + 1) * (m_ + 1); }

  // The upper block's foot is round: the gap at node j of it.
  double Gap(int64_t j) const {
    const double x = 2.0 * static_cast<double>(j) / static_cast<double>(m_) - 1;
    return 0.02 * static_cast<double>(m_) * x * x;
  }
  std::set<int64_t> Touching(const std::vector<double>& u) const {
    std::set<int64_t> contact;
    for (int64_t j = 0; j <= m_; ++j) {
      const double lower = u[static_cast<size_t>(2 * Node(0, m_, j) + 1)];
      const double upper = u[static_cast<size_t>(2 * Node(1, 0, j) + 1)];
      if (upper - lower + Gap(j) <= 0) contact.insert(j);
    }
    return contact;
  }

  // By columns, with springs where the blocks touch; and the forces.
  void Assemble(const std::set<int64_t>& contact, double load) {
    auto rows = entries_;
    b.assign(static_cast<size_t>(n()), 0);
    for (int64_t j = 0; j <= m_; ++j) b[static_cast<size_t>(2 * Node(1, m_, j) + 1)] = -load;
    for (const int64_t j : contact) {
      const int64_t lower = 2 * Node(0, m_, j) + 1, upper = 2 * Node(1, 0, j) + 1;
      for (const auto& [row, column, sign] :
           {std::tuple(lower, lower, 1), std::tuple(upper, upper, 1), std::tuple(lower, upper, -1),
            std::tuple(upper, lower, -1)}) {
        rows[{column, row}] += sign * kSpring;
      }
      b[static_cast<size_t>(upper)] -= kSpring * Gap(j);
      b[static_cast<size_t>(lower)] += kSpring * Gap(j);
    }
    col_ptr.assign(1, 0);
    row_idx.clear();
    values.clear();
    for (const auto& [place, value] : rows) {
      while (static_cast<int64_t>(col_ptr.size()) <= place.first) {
        col_ptr.push_back(static_cast<int64_t>(row_idx.size()));
      }
      row_idx.push_back(static_cast<int32_t>(place.second));
      values.push_back(value);
    }
    col_ptr.push_back(static_cast<int64_t>(row_idx.size()));
  }

  double Residual(const std::vector<double>& u) const {
    std::vector<double> r = b;
    double r2 = 0, b2 = 0;
    for (size_t j = 0; j + 1 < col_ptr.size(); ++j) {
      for (auto p = static_cast<size_t>(col_ptr[j]); p < static_cast<size_t>(col_ptr[j + 1]); ++p) {
        r[static_cast<size_t>(row_idx[p])] -= values[p] * u[j];
      }
    }
    for (const double v : r) r2 += v * v;
    for (const double v : b) b2 += v * v;
    return std::sqrt(r2 / b2);
  }

  spaid::CscView View() const { return {n(), col_ptr, row_idx, values}; }

  std::vector<int64_t> col_ptr;
  std::vector<int32_t> row_idx;
  std::vector<double> values, b;

 private:
  static constexpr double kSpring = 1e2;

  int64_t Node(int64_t block, int64_t i, int64_t j) const {
    return (block * (m_ + 1) + i) * (m_ + 1) + j;
  }
  void Add(int64_t row, int64_t column, double value) { entries_[{column, row}] += value; }

  const int64_t m_;
  std::map<std::pair<int64_t, int64_t>, double> entries_;  // by column, then row
};

// Tells the fate of M.
const char* Of(const spaid::SolveResult& solved) {
  return solved.reuse ? spaid::Name(solved.reuse->decision).data() : "built";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s ADDRESS [ELEMENTS A SIDE] [LOADS]\n", argv[0]);
    return 2;
  }
  Blocks blocks(argc > 2 ? std::atoll(argv[2]) : 40);
  const int loads = argc > 3 ? std::atoi(argv[3]) : 4;

  spaid::Client client({.address = argv[1]});
  std::set<int64_t> contact, assembled;
  std::vector<double> u(static_cast<size_t>(blocks.n()), 0);
  blocks.Assemble(contact, 0);
  spaid::System system(client, blocks.View(), {.engine = spaid::Engine::kFsai});
  for (int load = 1; load <= loads; ++load) {
    for (int newton = 1;; ++newton) {
      blocks.Assemble(contact, 1e-3 * load);
      // Other springs, another pattern; else other values at most.
      const auto error =
          contact == assembled ? system.SetValues(blocks.values) : system.SetMatrix(blocks.View());
      assembled = contact;
      if (error) {
        std::fprintf(stderr, "%s\n", error->message.c_str());
        return 1;
      }
      auto solved = system.Solve(blocks.b, u);
      if (!solved.ok()) {
        std::fprintf(stderr, "%s\n", solved.error().message.c_str());
        return 1;
      }
      const double residual = blocks.Residual(solved->x);
      std::printf(
          "load %d, step %d: %zu nodes touch, %lld iterations, M %s, %lld bytes up, "
          "residual %.1e\n",
          load, newton, contact.size(), static_cast<long long>(solved->rhs[0].iterations),
          Of(*solved), static_cast<long long>(solved->timings.bytes_up), residual);
      if (solved->rhs[0].outcome != spaid::Outcome::kConverged || residual > 1e-7) return 1;
      u = std::move(solved->x);
      std::set<int64_t> now = blocks.Touching(u);
      if (now == contact || newton == 20) break;
      contact = std::move(now);
    }
  }
  return contact.empty() ? 1 : 0;  // they were pressed together
}
