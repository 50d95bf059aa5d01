#include "tests/oracle/generators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gallery/gallery.h"

namespace spaid::oracle {
namespace {

// Entries by (column, row); a later Set wins.
class Builder {
 public:
  explicit Builder(int64_t n) : n_(n) {}
  void Set(int64_t i, int64_t j, double v) { entries_[{j, i}] = v; }
  double Get(int64_t i, int64_t j) const {
    const auto it = entries_.find({j, i});
    return it == entries_.end() ? 0 : it->second;
  }
  kernels::CscMatrix Build() const {
    kernels::CscMatrix m;
    m.n_rows = m.n_cols = n_;
    m.col_ptr.assign(static_cast<size_t>(n_ + 1), 0);
    for (const auto& [at, v] : entries_) {
      ++m.col_ptr[static_cast<size_t>(at.first + 1)];
      m.row_idx.push_back(static_cast<int32_t>(at.second));
      m.values.push_back(v);
    }
    std::partial_sum(m.col_ptr.begin(), m.col_ptr.end(), m.col_ptr.begin());
    return m;
  }

 private:
  int64_t n_;
  std::map<std::pair<int64_t, int64_t>, double> entries_;
};

std::vector<int64_t> Permutation(int64_t n, Random& random) {
  std::vector<int64_t> p(static_cast<size_t>(n));
  std::iota(p.begin(), p.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(p[static_cast<size_t>(i)], p[static_cast<size_t>(random.Below(i + 1))]);
  }
  return p;
}

// Off-diagonal value, never near zero.
double Value(Random& random) {
  const double v = random.Uniform(0.1, 1);
  return random.Next() & 1 ? v : -v;
}

// f(i, j, value) for every entry.
template <class F>
void ForEach(const kernels::CscMatrix& a, const F& f) {
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[static_cast<size_t>(j)]; p < a.col_ptr[static_cast<size_t>(j + 1)];
         ++p) {
      f(int64_t{a.row_idx[static_cast<size_t>(p)]}, j, a.values[static_cast<size_t>(p)]);
    }
  }
}

}  // namespace

uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

double Random::Uniform(double low, double high) { return low + (high - low) * Uniform(); }

int64_t Random::Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }

kernels::CscMatrix RandomIrregular(int64_t n, double mean_entries, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  for (int64_t j = 0; j < n; ++j) {
    // A square gives many short columns and a few long ones.
    const double u = random.Uniform();
    const int64_t off = static_cast<int64_t>(3 * (mean_entries - 1) * u * u + 0.5);
    std::set<int64_t> rows;
    for (int64_t e = 0; e < std::min(off, n - 1); ++e) {
      const int64_t i = random.Below(n);
      if (i == j) continue;
      b.Set(i, j, Value(random));
      rows.insert(i);
    }
    double sum = 0;
    for (const int64_t i : rows) sum += std::abs(b.Get(i, j));
    // Dominant by columns: regular; small enough a margin that the off-diagonal matters.
    const double d = sum + random.Uniform(0.2, 1.5);
    b.Set(j, j, random.Next() & 1 ? d : -d);
  }
  return b.Build();
}

kernels::CscMatrix BlockTriangular(int64_t n, int64_t block, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  for (int64_t j = 0; j < n; ++j) {
    const int64_t first = j / block * block, last = std::min(n, first + block);
    for (int64_t i = first; i < last; ++i) {
      if (i != j && random.Uniform() < 0.6) b.Set(i, j, Value(random));
    }
    if (first > 0 && random.Uniform() < 0.5) b.Set(random.Below(first), j, Value(random));
    b.Set(j, j, static_cast<double>(block) + random.Uniform());
  }
  return b.Build();
}

kernels::CscMatrix DenseRowAndColumn(int64_t n, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  const int64_t row = n / 3, column = std::min(n - 1, 2 * n / 3);
  for (int64_t i = 0; i < n; ++i) {
    b.Set(random.Below(n), i, Value(random));
    b.Set(row, i, Value(random));
    b.Set(i, column, Value(random));
  }
  for (int64_t i = 0; i < n; ++i) {
    b.Set(i, i, i == row || i == column ? static_cast<double>(n) + 3 : 4 + random.Uniform());
  }
  return b.Build();
}

kernels::CscMatrix Arrow(int64_t n) {
  Builder b(n);
  for (int64_t i = 0; i + 1 < n; ++i) {
    b.Set(i, i, 2 + static_cast<double>(i % 3));
    b.Set(n - 1, i, -1);
    b.Set(i, n - 1, -0.5);
  }
  b.Set(n - 1, n - 1, static_cast<double>(n) + 1);
  return b.Build();
}

kernels::CscMatrix Singular(int64_t n, uint64_t seed) {
  Builder b(n);
  if (n == 1) {
    b.Set(0, 0, 0);
    return b.Build();
  }
  ForEach(RandomIrregular(n, 4, seed), [&](int64_t i, int64_t j, double v) {
    if (j == n - 1) return;
    b.Set(i, j, v);
    if (j == 0) b.Set(i, n - 1, v);
  });
  // Row n−1 lost its diagonal with the last column: keep it from being empty.
  b.Set(n - 1, 0, 0.5);
  b.Set(n - 1, n - 1, 0.5);
  return b.Build();
}

kernels::CscMatrix BadlyScaled(int64_t n, uint64_t seed) {
  kernels::CscMatrix base = RandomIrregular(n, 4, seed);
  Random random(seed ^ 0xbadbadu);
  std::vector<double> row(static_cast<size_t>(n)), column(static_cast<size_t>(n));
  for (double& s : row) s = std::pow(10.0, random.Uniform(-12, 12));
  for (double& s : column) s = std::pow(10.0, random.Uniform(-12, 12));
  Builder b(n);
  ForEach(base, [&](int64_t i, int64_t j, double v) {
    b.Set(i, j, v * row[static_cast<size_t>(i)] * column[static_cast<size_t>(j)]);
  });
  return b.Build();
}

kernels::CscMatrix ZeroDiagonal(int64_t n, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  // A cyclic shift, heavy, and light entries off the diagonal.
  for (int64_t j = 0; j < n; ++j) {
    const int64_t i = random.Below(n);
    if (i != j) b.Set(i, j, 0.3 * Value(random));
  }
  for (int64_t j = 0; j < n; ++j) {
    const int64_t i = (j + 1) % n;
    if (i != j) b.Set(i, j, 2 + random.Uniform());
  }
  return b.Build();
}

kernels::CscMatrix RowPermuted(int64_t n, uint64_t seed) {
  Random random(seed ^ 0x9e37u);
  const std::vector<int64_t> p = Permutation(n, random);
  Builder b(n);
  ForEach(RandomIrregular(n, 4, seed),
          [&](int64_t i, int64_t j, double v) { b.Set(p[static_cast<size_t>(i)], j, v); });
  return b.Build();
}

kernels::CscMatrix RandomSpd(int64_t n, double mean_entries, uint64_t seed) {
  Random random(seed);
  Builder b(n);
  for (int64_t j = 0; j < n; ++j) {
    const double u = random.Uniform();
    const int64_t off = static_cast<int64_t>(1.5 * (mean_entries - 1) * u * u + 0.5);
    for (int64_t e = 0; e < off; ++e) {
      const int64_t i = random.Below(n);
      if (i == j) continue;
      const double v = Value(random);
      b.Set(i, j, v);
      b.Set(j, i, v);
    }
  }
  std::vector<double> sum(static_cast<size_t>(n), 0.0);
  ForEach(b.Build(),
          [&](int64_t i, int64_t, double v) { sum[static_cast<size_t>(i)] += std::abs(v); });
  for (int64_t j = 0; j < n; ++j) {
    b.Set(j, j, sum[static_cast<size_t>(j)] + random.Uniform(0.05, 0.5));
  }
  return b.Build();
}

kernels::CscMatrix ConvectionDiffusion(int64_t nx, int64_t ny, double peclet) {
  const gallery::Matrix a = gallery::ConvectionDiffusion2d(nx, ny, peclet, 0.5 * peclet);
  return {a.n,
          a.n,
          {a.col_ptr.begin(), a.col_ptr.end()},
          {a.row_idx.begin(), a.row_idx.end()},
          {a.values.begin(), a.values.end()}};
}

kernels::CscMatrix Laplacian2d(int64_t nx, int64_t ny) { return ConvectionDiffusion(nx, ny, 0); }

std::vector<NamedMatrix> Zoo(uint64_t seed) {
  std::vector<NamedMatrix> zoo;
  const auto add = [&](const std::string& name, kernels::CscMatrix a, bool regular = true) {
    zoo.push_back({name + "/" + std::to_string(a.n_cols), std::move(a), regular});
  };
  for (int64_t n = 1; n <= 6; ++n)
    add("random", RandomIrregular(n, 2.5, seed + static_cast<uint64_t>(n)));
  for (int64_t n : {17, 45, 70}) {
    const uint64_t s = seed * 131 + static_cast<uint64_t>(n);
    add("random", RandomIrregular(n, 5, s));
    add("block_triangular", BlockTriangular(n, 7, s));
    add("dense_row_and_column", DenseRowAndColumn(n, s));
    add("arrow", Arrow(n));
    add("singular", Singular(n, s), false);
    add("badly_scaled", BadlyScaled(n, s));
    add("zero_diagonal", ZeroDiagonal(n, s));
    add("row_permuted", RowPermuted(n, s));
    add("spd", RandomSpd(n, 6, s));
  }
  add("arrow", Arrow(2));
  add("singular", Singular(2, seed), false);
  add("zero_diagonal", ZeroDiagonal(2, seed));
  add("convection_diffusion", ConvectionDiffusion(8, 7, 3));
  add("laplacian", Laplacian2d(7, 9));
  return zoo;
}

}  // namespace spaid::oracle
