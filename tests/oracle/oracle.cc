#include "tests/oracle/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace spaid::oracle {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

double Dot(const Vector& x, const Vector& y) {
  double s = 0;
  for (size_t i = 0; i < x.size(); ++i) s += x[i] * y[i];
  return s;
}

}  // namespace

Dense Identity(int64_t n) {
  Dense e(n, n);
  for (int64_t i = 0; i < n; ++i) e(i, i) = 1;
  return e;
}

Dense ToDense(const kernels::CscView& a) {
  Dense d(a.n_rows, a.n_cols);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j + 1)]; ++p) {
      d(a.row_idx[Z(p)], j) += a.values[Z(p)];
    }
  }
  return d;
}

Dense ToDense(const kernels::PatternView& a) {
  Dense d(a.n_rows, a.n_cols);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j + 1)]; ++p) d(a.row_idx[Z(p)], j) = 1;
  }
  return d;
}

Dense DenseOfRows(std::initializer_list<std::initializer_list<double>> rows) {
  Dense d(static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows.begin()->size()));
  int64_t i = 0;
  for (const auto& row : rows) {
    int64_t j = 0;
    for (const double v : row) d(i, j++) = v;
    ++i;
  }
  return d;
}

kernels::CscMatrix FromDense(const Dense& a) {
  kernels::CscMatrix m;
  m.n_rows = a.rows;
  m.n_cols = a.cols;
  m.col_ptr.push_back(0);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      if (a(i, j) == 0) continue;
      m.row_idx.push_back(static_cast<int32_t>(i));
      m.values.push_back(a(i, j));
    }
    m.col_ptr.push_back(m.nnz());
  }
  return m;
}

kernels::Pattern PatternFromDense(const Dense& a) {
  kernels::CscMatrix m = FromDense(a);
  return {m.n_rows, m.n_cols, std::move(m.col_ptr), std::move(m.row_idx)};
}

Dense Transpose(const Dense& a) {
  Dense t(a.cols, a.rows);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) t(j, i) = a(i, j);
  }
  return t;
}

Dense Multiply(const Dense& a, const Dense& b) {
  Dense c(a.rows, b.cols);
  for (int64_t j = 0; j < b.cols; ++j) {
    for (int64_t k = 0; k < a.cols; ++k) {
      for (int64_t i = 0; i < a.rows; ++i) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

Vector Multiply(const Dense& a, const Vector& x) {
  Vector y(Z(a.rows), 0.0);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) y[Z(i)] += a(i, j) * x[Z(j)];
  }
  return y;
}

double Norm(const Vector& x) {
  double largest = 0;
  for (double v : x) {
    if (std::isnan(v)) return v;
    largest = std::max(largest, std::abs(v));
  }
  if (largest == 0 || std::isinf(largest)) return largest;
  double s = 0;
  for (double v : x) s += (v / largest) * (v / largest);
  return largest * std::sqrt(s);
}

double Frobenius(const Dense& a) { return Norm(a.a); }

Vector Residual(const Dense& a, const Vector& x, const Vector& b) {
  Vector r = Multiply(a, x);
  for (size_t i = 0; i < r.size(); ++i) r[i] = b[i] - r[i];
  return r;
}

Vector LeastSquares(Dense a, Vector b, double rcond, int64_t* rank) {
  const int64_t m = a.rows, n = a.cols;
  std::vector<int64_t> column(Z(n));
  for (int64_t j = 0; j < n; ++j) column[Z(j)] = j;
  int64_t r = 0;
  double first = 0;
  for (; r < std::min(m, n); ++r) {
    // The column with the largest remaining norm, recomputed rather than updated.
    int64_t best = r;
    double best_norm = -1;
    for (int64_t j = r; j < n; ++j) {
      Vector tail(a.a.begin() + (r + j * m), a.a.begin() + (m + j * m));
      const double norm = Norm(tail);
      if (norm > best_norm) {
        best = j;
        best_norm = norm;
      }
    }
    if (r == 0) first = best_norm;
    if (best_norm == 0 || best_norm <= rcond * first) break;
    if (best != r) {
      for (int64_t i = 0; i < m; ++i) std::swap(a(i, r), a(i, best));
      std::swap(column[Z(r)], column[Z(best)]);
    }
    // H = I − 2 v vᵀ maps the column onto alpha e_1.
    Vector v(a.a.begin() + (r + r * m), a.a.begin() + (m + r * m));
    const double alpha = v[0] > 0 ? -best_norm : best_norm;
    v[0] -= alpha;
    const double v_norm = Norm(v);
    for (double& x : v) x /= v_norm;
    const auto reflect = [&](double* x) {
      double s = 0;
      for (size_t i = 0; i < v.size(); ++i) s += v[i] * x[i];
      for (size_t i = 0; i < v.size(); ++i) x[i] -= 2 * s * v[i];
    };
    for (int64_t j = r; j < n; ++j) reflect(&a(r, j));
    reflect(b.data() + r);
  }
  if (rank != nullptr) *rank = r;
  Vector x(Z(n), 0.0);
  for (int64_t i = r - 1; i >= 0; --i) {
    double s = b[Z(i)];
    for (int64_t j = i + 1; j < r; ++j) s -= a(i, j) * x[Z(column[Z(j)])];
    x[Z(column[Z(i)])] = s / a(i, i);
  }
  return x;
}

double LeastSquaresResidual(const Dense& a, const Vector& b, double rcond) {
  return Norm(Residual(a, LeastSquares(a, b, rcond), b));
}

std::optional<Vector> LuSolve(Dense a, Vector b) {
  const int64_t n = a.rows;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::abs(a(i, k)) > std::abs(a(pivot, k))) pivot = i;
    }
    if (a(pivot, k) == 0) return std::nullopt;
    if (pivot != k) {
      for (int64_t j = 0; j < n; ++j) std::swap(a(k, j), a(pivot, j));
      std::swap(b[Z(k)], b[Z(pivot)]);
    }
    for (int64_t i = k + 1; i < n; ++i) {
      const double factor = a(i, k) / a(k, k);
      if (factor == 0) continue;
      for (int64_t j = k; j < n; ++j) a(i, j) -= factor * a(k, j);
      b[Z(i)] -= factor * b[Z(k)];
    }
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t j = i + 1; j < n; ++j) b[Z(i)] -= a(i, j) * b[Z(j)];
    b[Z(i)] /= a(i, i);
  }
  return b;
}

Vector SpaiColumn(const Dense& a, int64_t k, const std::vector<int64_t>& j_set) {
  // All rows of A take part: those outside I_k are zero in these columns and change nothing.
  Dense sub(a.rows, static_cast<int64_t>(j_set.size()));
  for (size_t c = 0; c < j_set.size(); ++c) {
    for (int64_t i = 0; i < a.rows; ++i) sub(i, static_cast<int64_t>(c)) = a(i, j_set[c]);
  }
  Vector e(Z(a.rows), 0.0);
  e[Z(k)] = 1;
  const Vector x = LeastSquares(sub, e);
  Vector m(Z(a.cols), 0.0);
  for (size_t c = 0; c < j_set.size(); ++c) m[Z(j_set[c])] = x[c];
  return m;
}

Dense Spai(const Dense& a, const kernels::PatternView& pattern) {
  Dense m(a.cols, a.rows);
  for (int64_t k = 0; k < a.rows; ++k) {
    const auto rows = pattern.column(k);
    const Vector column = SpaiColumn(a, k, std::vector<int64_t>(rows.begin(), rows.end()));
    for (int64_t i = 0; i < m.rows; ++i) m(i, k) = column[Z(i)];
  }
  return m;
}

Vector SpaiResiduals(const Dense& a, const Dense& m) {
  const Dense product = Multiply(a, m);
  Vector norms;
  for (int64_t k = 0; k < product.cols; ++k) {
    Vector r(product.a.begin() + k * product.rows, product.a.begin() + (k + 1) * product.rows);
    r[Z(k)] -= 1;
    norms.push_back(Norm(r));
  }
  return norms;
}

double SpaiFrobenius(const Dense& a, const Dense& m) { return Norm(SpaiResiduals(a, m)); }

Dense PatternPower(const Dense& a, int p) {
  Dense factor = Identity(a.rows);
  for (size_t i = 0; i < a.a.size(); ++i) {
    if (a.a[i] != 0) factor.a[i] = 1;
  }
  Dense power = Identity(a.rows);
  for (int q = 0; q < p; ++q) {
    power = Multiply(factor, power);
    for (double& v : power.a) v = v != 0 ? 1 : 0;
  }
  return power;
}

KrylovRun Cg(const Dense& a, const Vector& b, const Apply& m, double rtol, int64_t max_iterations) {
  KrylovRun run;
  run.x.assign(b.size(), 0.0);
  const double b_norm = Norm(b);
  if (b_norm == 0) {
    run.residuals.push_back(0);
    run.converged = true;
    return run;
  }
  Vector r = b;
  run.residuals.push_back(1);
  Vector z = m ? m(r) : r;
  Vector p = z;
  double rz = Dot(r, z);
  for (int64_t it = 0; it < max_iterations; ++it) {
    const Vector ap = Multiply(a, p);
    const double alpha = rz / Dot(p, ap);
    for (size_t i = 0; i < b.size(); ++i) {
      run.x[i] += alpha * p[i];
      r[i] -= alpha * ap[i];
    }
    run.residuals.push_back(Norm(r) / b_norm);
    if (run.residuals.back() <= rtol) {
      run.converged = true;
      break;
    }
    z = m ? m(r) : r;
    const double rz_next = Dot(r, z);
    const double beta = rz_next / rz;
    rz = rz_next;
    for (size_t i = 0; i < b.size(); ++i) p[i] = z[i] + beta * p[i];
  }
  return run;
}

KrylovRun Bicgstab(const Dense& a, const Vector& b, const Apply& m, double rtol,
                   int64_t max_iterations) {
  KrylovRun run;
  run.x.assign(b.size(), 0.0);
  const double b_norm = Norm(b);
  if (b_norm == 0) {
    run.residuals.push_back(0);
    run.converged = true;
    return run;
  }
  Vector r = b;
  const Vector r0 = r;
  run.residuals.push_back(1);
  Vector p(b.size(), 0.0), v(b.size(), 0.0), s(b.size());
  double rho = 1, alpha = 1, omega = 1;
  for (int64_t it = 0; it < max_iterations; ++it) {
    const double rho_next = Dot(r0, r);
    const double beta = (rho_next / rho) * (alpha / omega);
    rho = rho_next;
    for (size_t i = 0; i < b.size(); ++i) p[i] = r[i] + beta * (p[i] - omega * v[i]);
    const Vector y = m ? m(p) : p;
    v = Multiply(a, y);
    alpha = rho / Dot(r0, v);
    for (size_t i = 0; i < b.size(); ++i) s[i] = r[i] - alpha * v[i];
    if (Norm(s) <= rtol * b_norm) {
      for (size_t i = 0; i < b.size(); ++i) run.x[i] += alpha * y[i];
      run.residuals.push_back(Norm(s) / b_norm);
      run.converged = true;
      break;
    }
    const Vector z = m ? m(s) : s;
    const Vector t = Multiply(a, z);
    omega = Dot(t, s) / Dot(t, t);
    for (size_t i = 0; i < b.size(); ++i) {
      run.x[i] += alpha * y[i] + omega * z[i];
      r[i] = s[i] - omega * t[i];
    }
    run.residuals.push_back(Norm(r) / b_norm);
    if (run.residuals.back() <= rtol) {
      run.converged = true;
      break;
    }
  }
  return run;
}

Vector GmresResiduals(const Dense& a, const Vector& b, const Apply& m, int64_t steps) {
  Vector residuals{1.0};
  const double b_norm = Norm(b);
  if (b_norm == 0) return {0.0};
  std::vector<Vector> basis, images;  // orthonormal q_i of the Krylov space, and A M q_i
  Vector q = b;
  for (int64_t step = 0; step < steps; ++step) {
    for (int pass = 0; pass < 2; ++pass) {  // Gram-Schmidt, twice is enough (Kahan, Parlett)
      for (const Vector& e : basis) {
        const double s = Dot(e, q);
        for (size_t i = 0; i < q.size(); ++i) q[i] -= s * e[i];
      }
    }
    const double norm = Norm(q);
    if (norm <= 1e-14 * b_norm) {
      residuals.push_back(residuals.back());
      continue;
    }
    for (double& v : q) v /= norm;
    basis.push_back(q);
    images.push_back(Multiply(a, m ? m(q) : q));
    q = images.back();
    Dense w(a.rows, static_cast<int64_t>(images.size()));
    for (size_t c = 0; c < images.size(); ++c) {
      std::copy(images[c].begin(), images[c].end(),
                w.a.begin() + static_cast<ptrdiff_t>(c) * a.rows);
    }
    residuals.push_back(LeastSquaresResidual(w, b, 1e-15) / b_norm);
  }
  return residuals;
}

FsaiRow FsaiOn(const Dense& a, int64_t i, const std::vector<int64_t>& pattern) {
  const auto q = static_cast<int64_t>(pattern.size());
  Dense local(q, q);
  Vector right(pattern.size());
  for (int64_t s = 0; s < q; ++s) {
    const int64_t row = pattern[static_cast<size_t>(s)];
    right[static_cast<size_t>(s)] = -a(row, i);
    for (int64_t t = 0; t < q; ++t) local(s, t) = a(row, pattern[static_cast<size_t>(t)]);
  }
  FsaiRow row;
  row.pattern = pattern;
  row.g.assign(static_cast<size_t>(a.rows), 0.0);
  Vector solved;
  if (q > 0) solved = LuSolve(local, right).value();
  double psi = a(i, i);
  for (int64_t s = 0; s < q; ++s) {
    psi += solved[static_cast<size_t>(s)] * a(pattern[static_cast<size_t>(s)], i);
  }
  for (int64_t s = 0; s < q; ++s) {
    row.g[static_cast<size_t>(pattern[static_cast<size_t>(s)])] =
        solved[static_cast<size_t>(s)] / std::sqrt(psi);
  }
  row.g[static_cast<size_t>(i)] = 1 / std::sqrt(psi);
  row.psi = {psi};
  return row;
}

FsaiRow FsaiGrown(const Dense& a, int64_t i, int k_max, int s, double epsilon, double noise,
                  const std::vector<int64_t>& start, double min_gain) {
  FsaiRow row = FsaiOn(a, i, start);
  Vector psi = row.psi;
  double margin = 1;
  for (int step = 0; step < k_max && psi.back() > epsilon * a(i, i); ++step) {
    struct Candidate {
      double size, relative;
      int64_t j;
    };
    std::vector<Candidate> candidates;
    for (int64_t j = 0; j < i; ++j) {
      if (std::find(row.pattern.begin(), row.pattern.end(), j) != row.pattern.end()) continue;
      double y = 0;
      for (int64_t r = 0; r <= i; ++r) y += a(j, r) * row.g[static_cast<size_t>(r)];
      y *= std::sqrt(psi.back());
      const double scale = std::sqrt(a(i, i)) * std::sqrt(a(j, j));
      candidates.push_back({std::abs(y), std::abs(y) / scale, j});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& x, const Candidate& y) { return x.size > y.size; });
    const size_t taken = std::min(candidates.size(), static_cast<size_t>(s));
    if (taken < candidates.size() && taken > 0) {
      const double scale = candidates[taken - 1].size / candidates[taken - 1].relative;
      const double gap = candidates[taken - 1].size - candidates[taken].size;
      if (candidates[taken - 1].relative > noise) margin = std::min(margin, gap / scale);
    }
    candidates.resize(taken);
    std::erase_if(candidates, [noise](const Candidate& c) { return c.relative <= noise; });
    if (candidates.empty()) break;
    std::vector<int64_t> pattern = row.pattern;
    for (const Candidate& c : candidates) pattern.push_back(c.j);
    std::sort(pattern.begin(), pattern.end());
    row = FsaiOn(a, i, pattern);
    psi.push_back(row.psi[0]);
    if (psi.back() > (1 - min_gain) * psi.end()[-2]) break;
  }
  row.psi = psi;
  row.margin = margin;
  return row;
}

}  // namespace spaid::oracle
