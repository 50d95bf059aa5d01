#include "tests/oracle/dynamic_spai.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace spaid::oracle {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

Vector Column(const Dense& a, int64_t j) {
  return Vector(a.a.begin() + j * a.rows, a.a.begin() + (j + 1) * a.rows);
}

// By Gram-Schmidt, the longest remaining column first, twice over.
double LeastPivot(const Dense& a, const std::vector<int64_t>& j_set) {
  std::vector<Vector> columns;
  for (const int64_t j : j_set) {
    Vector c = Column(a, j);
    const double norm = Norm(c);
    for (double& x : c) x /= norm;
    columns.push_back(c);
  }
  double least = 1;
  while (!columns.empty()) {
    const auto longest =
        std::max_element(columns.begin(), columns.end(),
                         [](const Vector& x, const Vector& y) { return Norm(x) < Norm(y); });
    Vector q = *longest;
    columns.erase(longest);
    const double norm = Norm(q);
    least = std::min(least, norm * norm);
    if (norm == 0) return 0;
    for (double& x : q) x /= norm;
    for (Vector& c : columns) {
      for (int again = 0; again < 2; ++again) {
        double dot = 0;
        for (size_t i = 0; i < q.size(); ++i) dot += q[i] * c[i];
        for (size_t i = 0; i < q.size(); ++i) c[i] -= dot * q[i];
      }
    }
  }
  return least;
}

}  // namespace

SpaiScores ScoreSpaiColumn(const Dense& a, int64_t k, const std::vector<int64_t>& j_set) {
  SpaiScores scores;
  // Unit columns: the choice of pivots shall not depend on how A is scaled.
  Dense scaled = a;
  Vector norms;
  for (int64_t j = 0; j < a.cols; ++j) {
    norms.push_back(Norm(Column(a, j)));
    for (int64_t i = 0; i < a.rows; ++i) scaled(i, j) /= norms.back();
  }
  scores.m = SpaiColumn(scaled, k, j_set);
  Vector r = Multiply(scaled, scores.m);
  r[Z(k)] -= 1;
  for (int64_t j = 0; j < a.cols; ++j) scores.m[Z(j)] /= norms[Z(j)];
  scores.residual = Norm(r);
  const double square = scores.residual * scores.residual;
  scores.rho2.assign(Z(a.cols), square);
  for (int64_t j = 0; j < a.cols; ++j) {
    if (std::find(j_set.begin(), j_set.end(), j) != j_set.end()) continue;
    double dot = 0;
    bool candidate = false;
    for (int64_t l = 0; l < a.rows; ++l) {
      candidate = candidate || (a(l, j) != 0 && (r[Z(l)] != 0 || l == k));
      dot += r[Z(l)] * scaled(l, j);
    }
    if (candidate) scores.rho2[Z(j)] = std::max(0.0, square - dot * dot);
  }
  scores.pivot = LeastPivot(a, j_set);
  return scores;
}

GrownColumn GrowSpaiColumn(const Dense& a, int64_t k, const std::vector<int64_t>& start,
                           int max_steps, int s, double tol, int64_t max_nnz, double noise) {
  GrownColumn column;
  column.pattern = start;
  std::sort(column.pattern.begin(), column.pattern.end());
  for (int step = 0;; ++step) {
    const SpaiScores scores = ScoreSpaiColumn(a, k, column.pattern);
    const double square = scores.residual * scores.residual;
    column.residuals.push_back(scores.residual);
    column.pivot = std::min(column.pivot, scores.pivot);
    const auto size = static_cast<int64_t>(column.pattern.size());
    if (step == max_steps || (max_nnz > 0 && size >= max_nnz)) break;
    column.margin = std::min(column.margin, std::abs(square - tol * tol));
    if (scores.residual <= tol) break;
    std::vector<int64_t> order(Z(a.cols));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t x, int64_t y) { return scores.rho2[Z(x)] < scores.rho2[Z(y)]; });
    int64_t wanted = s;
    if (max_nnz > 0) wanted = std::min(wanted, max_nnz - size);
    int64_t taken = 0;
    while (taken < std::min(wanted, a.cols) && square - scores.rho2[Z(order[Z(taken)])] > noise) {
      ++taken;
    }
    if (taken < std::min(wanted, a.cols) &&
        square - scores.rho2[Z(order[Z(taken)])] > 1e-3 * noise) {
      column.margin = 0;  // noise, or nearly not
    }
    if (taken == 0) break;
    column.pattern.insert(column.pattern.end(), order.begin(), order.begin() + taken);
    std::sort(column.pattern.begin(), column.pattern.end());
    // The last that was taken, against the next, or against nothing at all.
    const double last = scores.rho2[Z(order[Z(taken - 1)])];
    const double next = taken < a.cols ? scores.rho2[Z(order[Z(taken)])] : square;
    column.margin = std::min(column.margin, next - last);
  }
  return column;
}

}  // namespace spaid::oracle
