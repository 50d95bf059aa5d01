#include "client/cli/report/operators.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "client/cli/output.h"

namespace spaid::cli {
namespace {

constexpr size_t kMostSpectra = 12;               // of A with an M
constexpr int64_t kMostBytes = int64_t{1} << 30;  // of an M that is downloaded

void Multiply(const CscMatrix& a, std::span<const double> x, std::span<double> y) {
  std::fill(y.begin(), y.end(), 0.0);
  for (int64_t column = 0; column < a.n; ++column) {
    const double factor = x[column];
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      y[a.row_idx[k]] += a.values[k] * factor;
    }
  }
}

void MultiplyTransposed(const CscMatrix& a, std::span<const double> x, std::span<double> y) {
  for (int64_t column = 0; column < a.n; ++column) {
    double sum = 0;
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      sum += a.values[k] * x[a.row_idx[k]];
    }
    y[column] = sum;
  }
}

bool IsPositiveDiagonal(const CscMatrix& m) {
  if (static_cast<int64_t>(m.row_idx.size()) != m.n) return false;
  for (int64_t i = 0; i < m.n; ++i) {
    if (m.row_idx[i] != i || !(m.values[i] > 0)) return false;
  }
  return true;
}

SpectrumOperator Factored(const CscMatrix& a, const CscMatrix& g) {
  const auto n = static_cast<size_t>(a.n);
  const auto u = std::make_shared<std::vector<double>>(n);
  const auto w = std::make_shared<std::vector<double>>(n);
  return {.apply =
              [&a, &g, u, w](std::span<const double> x, std::span<double> y) {
                MultiplyTransposed(g, x, *u);
                Multiply(a, *u, *w);
                Multiply(g, *w, y);
              },
          .symmetric = true,
          .name = "G A Gᵀ"};
}

SpectrumOperator Diagonal(const CscMatrix& a, const CscMatrix& m) {
  const auto root = std::make_shared<std::vector<double>>(m.values);
  for (double& d : *root) d = std::sqrt(d);
  const auto u = std::make_shared<std::vector<double>>(root->size());
  return {.apply =
              [&a, root, u](std::span<const double> x, std::span<double> y) {
                for (size_t i = 0; i < u->size(); ++i) (*u)[i] = (*root)[i] * x[i];
                Multiply(a, *u, y);
                for (size_t i = 0; i < u->size(); ++i) y[i] *= (*root)[i];
              },
          .symmetric = true,
          .name = "√D A √D"};
}

}  // namespace

SpectrumOperator OperatorOf(const CscMatrix& a, bool a_symmetric, const CscMatrix* m) {
  if (m == nullptr) {
    return {.apply = [&a](std::span<const double> x, std::span<double> y) { Multiply(a, x, y); },
            .symmetric = a_symmetric,
            .name = "A"};
  }
  if (a_symmetric && m->is_factor) return Factored(a, *m);
  if (a_symmetric && IsPositiveDiagonal(*m)) return Diagonal(a, *m);
  const auto u = std::make_shared<std::vector<double>>(static_cast<size_t>(a.n));
  return {.apply =
              [&a, m, u](std::span<const double> x, std::span<double> y) {
                Multiply(*m, x, *u);
                if (m->is_factor) {
                  std::vector<double> t(*u);
                  MultiplyTransposed(*m, t, *u);
                }
                Multiply(a, *u, y);
              },
          .symmetric = false,
          .name = "A M"};
}

std::string WhyLeftOut(const PreconditionerInfo& m, size_t index) {
  if (TraitsOf(m.spec.engine).by_parts) return "left out: M is a cycle of multigrid, no matrix";
  if (TraitsOf(m.spec.engine).ranks_alone) return "left out: M lies over the server's ranks";
  if (index >= kMostSpectra) {
    return "left out: spectra of " + std::to_string(kMostSpectra) +
           " preconditioners are enough for a page";
  }
  if (m.host_bytes > kMostBytes) {
    return "left out: M takes " + FormatBytes(m.host_bytes) + ", over " + FormatBytes(kMostBytes);
  }
  return "";
}

std::string WhyUnfit(const CscMatrix& a, const std::optional<CscMatrix>& m) {
  if (!m) return "the server did not send M";
  if (m->n == a.n) return "";
  return "the server sent an M of " + FormatCount(m->n) + " rows for an A of " + FormatCount(a.n);
}

}  // namespace spaid::cli
