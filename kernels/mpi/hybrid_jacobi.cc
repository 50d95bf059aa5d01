#include "kernels/mpi/hybrid_jacobi.h"

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/mpi/ranks.h"
#include "kernels/sparse/jacobi_column.h"
#include "kernels/static_spai/residual_quantiles.h"

namespace spaid::kernels::mpi {
namespace {

constexpr char kBuild[] = "Jacobi over several ranks";

// The numbers of all ranks on rank 0, in order.
Array<double> AtRank0(MPI_Comm comm, const Array<double>& own) {
  std::vector<Array<double>> to(static_cast<size_t>(RanksOf(comm)));
  to[0] = own;
  return ExchangeAll(comm, std::move(to));
}

}  // namespace

Result<HybridJacobiResult> BuildHybridJacobi(const SpreadMatrix& a, const Context& context) {
  const IndexRange own = a.own();
  const CscView columns = a.columns;
  CscMatrix rows;
  Array<double> norms;
  int64_t zeros = 0, first_zero = a.n;
  Status status = Locally(a.comm, kBuild, [&]() -> Status {
    rows.n_rows = a.n;
    rows.n_cols = own.size();
    rows.col_ptr.push_back(0);
    for (int64_t i = 0; i < own.size(); ++i) {
      const int64_t k = own.begin + i;
      const double m = 1 / EntryOf(columns, i, k);
      if (!std::isfinite(m) && zeros++ == 0) first_zero = k;
      rows.row_idx.push_back(static_cast<int32_t>(k));
      rows.values.push_back(m);
      rows.col_ptr.push_back(i + 1);
      norms.push_back(JacobiResidual(columns, i, k, m));
    }
    return {};
  });
  if (!status.ok()) return status;
  if (status = AgreeStop(a.comm, context.stop, "the Jacobi build"); !status.ok()) return status;
  zeros = SumOf(a.comm, zeros);
  Must(MPI_Allreduce(MPI_IN_PLACE, &first_zero, 1, MPI_INT64_T, MPI_MIN, a.comm));
  if (zeros > 0) return ZeroDiagonal(zeros, a.n, first_zero);
  HybridJacobiResult result;
  norms = AtRank0(a.comm, norms);
  result.diagonal = AtRank0(a.comm, rows.values);
  status = Locally(a.comm, kBuild, [&]() -> Status {
    if (RankOf(a.comm) != 0) return {};
    StaticSpaiQuality& quality = result.quality;
    double worst = -1, sum = 0;
    for (int64_t k = 0; k < a.n; ++k) {
      const double norm = norms[static_cast<size_t>(k)];
      if (norm > worst) {
        worst = norm;
        quality.worst_column = k;
      }
      sum += norm * norm;
    }
    quality.residual_frobenius = std::sqrt(sum);
    quality.residual_quantiles = ResidualQuantiles(norms, context.threads);
    quality.density = static_cast<double>(a.n) / static_cast<double>(a.nnz);
    return {};
  });
  if (!status.ok()) return status;
  result.rows = MakeRows(a.comm, std::move(rows));
  return result;
}

}  // namespace spaid::kernels::mpi
