#include "tests/e2e/problems.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>
#include <utility>

#include "kernels/gallery/gallery.h"

namespace spaid::e2e {
namespace {

void Close(CscMatrix& a) { a.col_ptr.push_back(static_cast<int64_t>(a.row_idx.size())); }

void Add(CscMatrix& a, int64_t row, double value) {
  a.row_idx.push_back(static_cast<int32_t>(row));
  a.values.push_back(value);
}

}  // namespace

CscMatrix ConvectionDiffusion(int nx, int ny, double wind) {
  gallery::Matrix a = gallery::ConvectionDiffusion2d(nx, ny, wind, 0);
  return {.n = a.n,
          .col_ptr = std::move(a.col_ptr),
          .row_idx = std::move(a.row_idx),
          .values = std::move(a.values)};
}

CscMatrix Poisson(int nx, int ny) { return ConvectionDiffusion(nx, ny, 0); }

CscMatrix Band(int64_t bytes) {
  constexpr int64_t kBand = 27;
  CscMatrix a{.n = std::max<int64_t>(2 * kBand, bytes / (8 + 12 * kBand)), .col_ptr = {0}};
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t first = std::clamp<int64_t>(j - kBand / 2, 0, a.n - kBand);
    for (int64_t i = first; i < first + kBand; ++i) Add(a, i, i == j ? 2.0 * kBand : -1.0);
    Close(a);
  }
  return a;
}

CscMatrix Irregular(int64_t n, int entries) {
  std::mt19937_64 random(1);  // the same sequence everywhere, as distributions need not be
  CscMatrix a{.n = n, .col_ptr = {0}};
  for (int64_t j = 0; j < n; ++j) {
    std::set<int64_t> rows = {j};
    for (int e = 1; e < entries; ++e) {
      rows.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(n)));
    }
    for (const int64_t i : rows) {
      Add(a, i, i == j ? 1.5 * entries : static_cast<double>(random() % 1000) / 1000 - 0.5);
    }
    Close(a);
  }
  return a;
}

CscMatrix OtherValues(CscMatrix a) {
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      const int64_t i = a.row_idx[p];
      if (i != j) a.values[p] *= 0.25 * static_cast<double>(1 + (i + j + i * j) % 4);
    }
  }
  return a;
}

int64_t ArrayBytes(const CscMatrix& a) {
  return static_cast<int64_t>(8 * a.col_ptr.size() + 12 * a.row_idx.size());
}

std::vector<double> Multiply(const CscMatrix& a, std::span<const double> x) {
  std::vector<double> y(static_cast<size_t>(a.n));
  for (int64_t j = 0; j < a.n; ++j) {
    for (int64_t k = a.col_ptr[j]; k < a.col_ptr[j + 1]; ++k) {
      y[static_cast<size_t>(a.row_idx[k])] += a.values[k] * x[static_cast<size_t>(j)];
    }
  }
  return y;
}

double RelativeResidual(const CscMatrix& a, std::span<const double> x, std::span<const double> b) {
  if (x.size() != static_cast<size_t>(a.n) || b.size() != x.size()) std::abort();
  const std::vector<double> ax = Multiply(a, x);
  double residual = 0, norm = 0;
  for (size_t i = 0; i < ax.size(); ++i) {
    residual += (b[i] - ax[i]) * (b[i] - ax[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(residual / norm);
}

double InverseResidual(const CscMatrix& a, const CscMatrix& m) {
  std::vector<double> column(static_cast<size_t>(a.n));  // zeros between columns of M
  double sum = 0;
  for (int64_t k = 0; k < m.n; ++k) {
    const auto each = [&](auto visit) {
      for (int64_t p = m.col_ptr[k]; p < m.col_ptr[k + 1]; ++p) {
        const int64_t j = m.row_idx[p];
        for (int64_t q = a.col_ptr[j]; q < a.col_ptr[j + 1]; ++q) {
          visit(column[static_cast<size_t>(a.row_idx[q])], a.values[q] * m.values[p]);
        }
      }
    };
    column[static_cast<size_t>(k)] = -1;
    each([](double& at, double product) { at += product; });
    sum += std::pow(std::exchange(column[static_cast<size_t>(k)], 0), 2);
    each([&](double& at, double) { sum += std::pow(std::exchange(at, 0), 2); });
  }
  return std::sqrt(sum);
}

std::vector<double> SmoothRhs(const CscMatrix& a) {
  std::vector<double> x(static_cast<size_t>(a.n));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<double>(i + 1) / static_cast<double>(a.n);
  }
  return Multiply(a, x);
}

}  // namespace spaid::e2e
