#include "kernels/amg/smoothers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/amg/prolongation.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/vectors.h"
#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr double kJacobiUpTo = 3;  // β
constexpr int kPowerSteps = 12;
constexpr double kGrain = 64;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Values of D⁻¹ A.
Array<double> OverDiagonal(const CscView& rows, const Array<double>& inverse,
                           const Context& context) {
  Array<double> scaled(rows.values.size());
  ForRows(rows.n_cols, context, [&](int64_t i) {
    for (int64_t p = rows.col_ptr[Z(i)]; p < rows.col_ptr[Z(i) + 1]; ++p) {
      scaled[Z(p)] = rows.values[Z(p)] * inverse[Z(i)];
    }
  });
  return scaled;
}

// 1 / (a_ii, or Σ_j |a_ij| with the diagonal's sign); 0 where that is 0.
Array<double> InverseDiagonal(const CscView& rows, bool l1, const Context& context) {
  Array<double> inverse(Z(rows.n_cols));
  ForRows(rows.n_cols, context, [&](int64_t i) {
    double diagonal = 0, sum = 0;
    for (size_t p = 0; p < rows.column(i).size(); ++p) {
      const double value = rows.column_values(i)[p];
      sum += std::fabs(value);
      if (rows.column(i)[p] == i) diagonal = value;
    }
    const double by = l1 ? std::copysign(sum, diagonal) : diagonal;
    inverse[Z(i)] = by != 0 ? 1 / by : 0;
  });
  return inverse;
}

// ρ(G A Gᵀ) from below, times 1.05, up to a multiple of 1/64.
double FactoredRho(const CscView& a, const CscView& g, const CscView& gt, const Context& context) {
  const CsrOperator a_op = CsrOperator::FromRows(a, context.threads),
                    g_op = CsrOperator::FromRows(g, context.threads),
                    gt_op = CsrOperator::FromRows(gt, context.threads);
  const auto n = Z(a.n_cols);
  std::vector<double> x(n), y(n), z(n);
  ForRows(a.n_cols, context,
          [&](int64_t i) { x[Z(i)] = 0x1p-64 * static_cast<double>(AggregationKey(i, 0)) - 0.5; });
  const int threads = ResolveThreads(context.threads);
  double norm = std::sqrt(krylov::BlockDot(x.data(), x.data(), 0, a.n_cols));
  for (int step = 0; step < kPowerSteps && norm > 0; ++step) {
    ForRows(a.n_cols, context, [&](int64_t i) { x[Z(i)] /= norm; });
    gt_op.Apply(x, y, threads);
    a_op.Apply(y, z, threads);
    g_op.Apply(z, x, threads);
    norm = std::sqrt(krylov::BlockDot(x.data(), x.data(), 0, a.n_cols));
  }
  return std::ceil(kAboveFactored * norm * kGrain) / kGrain;
}

Status MakeFactored(const CscView& a, const AmgOptions& options, bool adaptive, KeptSmoother& kept,
                    const Context& context, Smoother* made) {
  const FsaiOptions fsai = {.adaptive = adaptive,
                            .k_max = options.k_max,
                            .s = options.per_step,
                            .epsilon = options.epsilon};
  auto g = kept.g != nullptr ? BuildFsaiOn(*kept.g, a, fsai, context)
                             : BuildFsai(a, nullptr, fsai, context);
  if (!g.ok()) return g.status();
  made->rows = Share(std::move(g->g_rows));
  if (kept.g == nullptr) kept.g = made->rows.pattern;
  made->rows.pattern = kept.g;  // BuildFsaiOn's is the same
  auto transposed = Transpose(made->rows, kept.transpose, context);
  if (!transposed.ok()) return transposed.status();
  made->transposed = *std::move(transposed);
  made->rho = FactoredRho(a, made->rows, made->transposed, context);
  made->omega = made->rho > 0 ? kSmootherStep / made->rho : 1;
  return {};
}

Status MakeStaticSpai(const CscView& a_rows, bool symmetric, bool finest, KeptSmoother& kept,
                      const Context& context, Smoother* made) {
  StaticSpaiOptions spai;
  if (!finest) spai.pattern.keep_tau = kCoarseTau;
  CscMatrix columns;
  CscView a = a_rows;
  if (!symmetric) {
    auto transposed = Transpose(a_rows, context);
    if (!transposed.ok()) return transposed.status();
    columns = *std::move(transposed);
    a = columns;
  }
  if (kept.spai == nullptr) {
    auto plan = PlanStaticSpai(a, nullptr, spai, context);
    if (!plan.ok()) return plan.status();
    kept.spai = *std::move(plan);
  }
  auto m = BuildStaticSpai(*kept.spai, a, spai, context);
  if (!m.ok()) return m.status();
  auto rows = Transpose(CscView(m->m), context);
  if (!rows.ok()) return rows.status();
  made->rows = Share(*std::move(rows));
  if (symmetric) made->transposed = Share(std::move(m->m));  // M by columns is Mᵀ by rows
  return {};
}

}  // namespace

std::vector<double> ChebyshevCoefficients(int degree) {
  static const std::array<std::vector<double>, 4> kBeta = {
      std::vector<double>{1.125},
      {1.02387287570313, 1.26408905371085},
      {1.00842544782028, 1.08867839208730, 1.33753125909618},
      {1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000}};
  return kBeta[static_cast<size_t>(degree - 1)];
}

SmootherKind ChooseSmoother(SmootherKind asked, bool symmetric, double beta) {
  if (asked != SmootherKind::kAuto) return asked;
  if (beta <= kJacobiUpTo) return SmootherKind::kL1Jacobi;
  return symmetric ? SmootherKind::kAfsai : SmootherKind::kStaticSpai;
}

Result<Smoother> MakeSmoother(SmootherKind kind, const CscView& a, bool symmetric, bool finest,
                              const AmgOptions& options, KeptSmoother& kept,
                              const Context& context) {
  Smoother made;
  made.kind = kind;
  switch (kind) {
    case SmootherKind::kAuto:
    case SmootherKind::kL1Jacobi:
      made.diagonal = InverseDiagonal(a, /*l1=*/true, context);
      for (double& value : made.diagonal) value *= kSmootherStep;
      return made;
    case SmootherKind::kJacobi:
    case SmootherKind::kChebyshev: {
      made.diagonal = InverseDiagonal(a, /*l1=*/false, context);
      const Array<double> values = OverDiagonal(a, made.diagonal, context);
      CscView scaled = a;
      scaled.values = values;
      made.rho = SpectralBound(scaled, 2.2, kPowerSteps, context);
      if (kind == SmootherKind::kJacobi) {
        for (double& value : made.diagonal) value *= kSmootherStep / made.rho;
      } else {
        made.coefficients = ChebyshevCoefficients(options.chebyshev_degree);
      }
      return made;
    }
    case SmootherKind::kFsai:
    case SmootherKind::kAfsai: {
      Status status = MakeFactored(a, options, kind == SmootherKind::kAfsai, kept, context, &made);
      if (!status.ok()) return status;
      return made;
    }
    case SmootherKind::kStaticSpai: {
      Status status = MakeStaticSpai(a, symmetric, finest, kept, context, &made);
      if (!status.ok()) return status;
      return made;
    }
  }
  return made;
}

}  // namespace spaid::kernels
