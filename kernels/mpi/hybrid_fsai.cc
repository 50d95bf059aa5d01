#include "kernels/mpi/hybrid_fsai.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/fsai/fsai_build.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/mpi/halo.h"
#include "kernels/mpi/ranks.h"
#include "kernels/mpi/spread_groups.h"
#include "kernels/mpi/spread_growth.h"
#include "kernels/mpi/spread_pattern.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr char kBuild[] = "build of FSAI over several ranks";

// The diagonal entries of own columns. NOT_POSITIVE_DEFINITE as kernels/fsai says it.
Status OwnDiagonal(const SpreadMatrix& a, Array<double>* diagonal) {
  const CscView columns = a.columns;
  for (int64_t k = 0; k < columns.n_cols; ++k) {
    const int64_t j = a.own().begin + k;
    const auto rows = columns.column(k);
    const auto at = std::ranges::lower_bound(rows, static_cast<int32_t>(j));
    const double v = at == rows.end() || *at != j
                         ? 0
                         : columns.column_values(k)[static_cast<size_t>(at - rows.begin())];
    if (!(v > 0 && v <= std::numeric_limits<double>::max())) {
      return Status(StatusCode::kFailedPrecondition, "NOT_POSITIVE_DEFINITE",
                    "diagonal entry " + std::to_string(j) +
                        " is not positive, or not stored: A is not positive definite; use static "
                        "SPAI with BiCGSTAB or GMRES, or -A if all are negative")
          .At("values", j);
    }
    diagonal->push_back(v);
  }
  return {};
}

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

// Own columns of A against own rows. `of`, `diagonal`: all indices that either has, and their
// diagonal entries.
Status CheckSymmetric(const SpreadMatrix& a, const CscMatrix& rows, const Numbering& of,
                      const Array<double>& diagonal, double tolerance) {
  const CscView columns = a.columns, mirrors = rows;
  for (int64_t k = 0; k < columns.n_cols; ++k) {
    const int64_t j = a.own().begin + k;
    const double root = std::sqrt(diagonal[Z(of.Local(static_cast<int32_t>(j)))]);
    const auto down = columns.column(k), across = mirrors.column(k);
    size_t p = 0, q = 0;
    while (p < down.size() || q < across.size()) {
      const bool left = q == across.size() || (p < down.size() && down[p] <= across[q]);
      const bool right = p == down.size() || (q < across.size() && across[q] <= down[p]);
      const int32_t i = left ? down[p] : across[q];
      const double v = left ? columns.column_values(k)[p++] : 0;
      const double w = right ? mirrors.column_values(k)[q++] : 0;
      if (std::abs(v - w) <= tolerance * std::sqrt(diagonal[Z(of.Local(i))]) * root) continue;
      return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC",
                    "A is not symmetric: (" + std::to_string(i) + ", " + std::to_string(j) +
                        ") is " + Number(v) + ", (" + std::to_string(j) + ", " + std::to_string(i) +
                        ") is " + Number(w) +
                        "; FSAI needs a symmetric positive definite matrix: use static SPAI, or "
                        "symmetrise")
          .At("values", j);
    }
  }
  return {};
}

// Entries of own rows with |a_ij| >= τ √(a_ii a_jj), and the diagonal; rounded as kernels/fsai
// does.
Pattern Prefiltered(const SpreadMatrix& a, const CscView& rows, const Numbering& of,
                    const Array<double>& diagonal, double tau) {
  const auto root = [&](int64_t i) {
    return std::sqrt(diagonal[Z(of.Local(static_cast<int32_t>(i)))]);
  };
  Pattern kept{rows.n_rows, rows.n_cols, {0}, {}};
  for (int64_t k = 0; k < rows.n_cols; ++k) {
    const int64_t i = a.own().begin + k;
    const auto indices = rows.column(k);
    for (size_t p = 0; p < indices.size(); ++p) {
      const int32_t j = indices[p];
      if (j == i || std::abs(rows.column_values(k)[p]) >= tau * root(j) * root(i)) {
        kept.row_idx.push_back(j);
      }
    }
    kept.col_ptr.push_back(kept.nnz());
  }
  return kept;
}

// Own rows up to the diagonal, with it.
Pattern ToDiagonal(const SpreadMatrix& a, const PatternView& rows) {
  Pattern lower{rows.n_rows, rows.n_cols, {0}, {}};
  for (int64_t k = 0; k < rows.n_cols; ++k) {
    const auto i = static_cast<int32_t>(a.own().begin + k);
    const auto row = rows.column(k);
    lower.row_idx.insert(lower.row_idx.end(), row.begin(), std::ranges::lower_bound(row, i));
    lower.row_idx.push_back(i);
    lower.col_ptr.push_back(lower.nnz());
  }
  return lower;
}

// A principal submatrix, of the members of `of`: its columns came as `ptr`, `rows`, `values`.
CscMatrix Principal(const Numbering& of, std::span<const int64_t> ptr,
                    std::span<const int32_t> rows, std::span<const double> values) {
  CscMatrix part{of.size(), of.size(), {}, {}, {}};
  part.col_ptr.push_back(0);
  const Array<int32_t>& members = of.global();
  for (int64_t k = 0; k < of.size(); ++k) {
    for (auto p = Z(ptr[Z(k)]); p < Z(ptr[Z(k) + 1]); ++p) {
      const int32_t local = of.Local(rows[p]);
      if (local >= of.size() || members[Z(local)] != rows[p]) continue;
      part.row_idx.push_back(local);
      part.values.push_back(values[p]);
    }
    part.col_ptr.push_back(std::ssize(part.row_idx));
  }
  return part;
}

FsaiQuality Summarise(MPI_Comm comm, const SpreadMatrix& a, const FsaiResult& part,
                      const Numbering& of, int64_t nnz) {
  const FsaiQuality& own = part.quality;
  FsaiQuality all;
  double sums[2] = {0, own.flops};
  const IndexRange range = a.own();
  for (int64_t i = range.begin; i < range.end; ++i) {
    sums[0] += std::log(part.psi_ratio[Z(of.Local(static_cast<int32_t>(i)))]);
  }
  Must(MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, comm));
  all.kaporin = std::exp(sums[0] / static_cast<double>(a.n));
  all.flops = sums[1];
  all.density = static_cast<double>(nnz) / static_cast<double>(a.nnz);
  all.not_spd_rows = SumOf(comm, own.not_spd_rows);
  all.slow_rows = SumOf(comm, own.slow_rows);
  all.converged_rows = SumOf(comm, own.converged_rows);
  all.copied_rows = SumOf(comm, own.copied_rows);
  all.not_converged_rows = SumOf(comm, own.not_converged_rows);
  const auto first = [&](int64_t local) {
    return local < 0 ? std::numeric_limits<int64_t>::max() : int64_t{of.global()[Z(local)]};
  };
  int64_t firsts[2] = {first(own.first_not_spd), first(own.first_not_converged)};
  int64_t most = own.nnz_row_max;
  Must(MPI_Allreduce(MPI_IN_PLACE, firsts, 2, MPI_INT64_T, MPI_MIN, comm));
  Must(MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, comm));
  all.first_not_spd = all.not_spd_rows > 0 ? firsts[0] : -1;
  all.first_not_converged = all.not_converged_rows > 0 ? firsts[1] : -1;
  all.nnz_row_max = most;
  return all;
}

Status Check(const HybridFsaiOptions& options) {
  if (Status status = CheckFsaiOptions(options.fsai); !status.ok()) return status;
  if (options.fsai.adaptive && options.fsai.time_budget_ms > 0) {
    return Status(StatusCode::kInvalidArgument, "NOT_SPREAD",
                  "several ranks do not grow G by the clock; leave time_budget out, use a smaller "
                  "k_max, or build on one machine")
        .At("time_budget");
  }
  return CheckHaloBytes(options.halo_bytes);
}

// The result of rows of G in the numbers of `of`, of which this rank's own ones count.
Result<HybridFsaiResult> Collect(const SpreadMatrix& a, const FsaiResult& part, const Numbering& of,
                                 const HaloBudget& budget) {
  HybridFsaiResult result;
  Status status = Locally(a.comm, kBuild, [&]() -> Status {
    CscMatrix& g = result.rows;
    g.n_rows = a.n;
    g.n_cols = a.own().size();
    g.col_ptr.push_back(0);
    for (int64_t i = a.own().begin; i < a.own().end; ++i) {
      const auto k = Z(of.Local(static_cast<int32_t>(i)));
      for (auto p = Z(part.g_rows.col_ptr[k]); p < Z(part.g_rows.col_ptr[k + 1]); ++p) {
        g.row_idx.push_back(of.global()[Z(part.g_rows.row_idx[p])]);
        g.values.push_back(part.g_rows.values[p]);
      }
      g.col_ptr.push_back(g.nnz());
    }
    return {};
  });
  if (!status.ok()) return status;
  result.nnz = SumOf(a.comm, result.rows.nnz());
  result.quality = Summarise(a.comm, a, part, of, result.nnz);
  result.halo_bytes = budget.fetched;
  result.g = MakeRows(a.comm, result.rows);
  result.m = MakeFactored(result.g.get());
  return result;
}

// Adaptive FSAI, of an A that is symmetric with a positive diagonal.
Result<HybridFsaiResult> MakeAdaptive(const SpreadMatrix& a, const SpreadPattern* initial,
                                      const FsaiOptions& fsai, const Array<double>& own_diagonal,
                                      HaloBudget& budget, const Context& context) {
  SpreadRows rows{.columns = a.columns,
                  .diagonal = own_diagonal,
                  .problems = {},
                  .initial = {},
                  .rules = RulesOf(fsai),
                  .repeat_hash_bits = fsai.repeat_hash_bits};
  if (initial != nullptr) rows.initial = *initial;
  Result<SpreadGrown> grown = GrowSpread(a, rows, budget, context, kBuild);
  if (!grown.ok()) return grown.status();
  // The columns that are here hold all that the own rows of G have.
  Numbering of(a.n);
  of.Insert(grown->numbers);
  of.Close();
  FsaiResult part;
  Status status = Watched(a.comm, context, Stage::kBuild, [&](const Context& inner) {
    return GuardMemory(kBuild, [&]() -> Status {
      if (of.size() == 0) return {};
      const IndexRange own = a.own();
      CscMatrix& g = part.g_rows;
      g = {of.size(), of.size(), {0}, {}, std::move(grown->rows.values)};
      part.psi_ratio.assign(Z(of.size()), 1);
      for (int64_t k = 0; k < of.size(); ++k) {
        const int64_t i = of.global()[Z(k)] - own.begin;
        if (i >= 0 && i < own.size()) {
          for (const int32_t j : grown->rows.pattern().column(i)) g.row_idx.push_back(of.Local(j));
          part.psi_ratio[Z(k)] = grown->psi_ratio[Z(i)];
        }
        g.col_ptr.push_back(g.nnz());
      }
      RowTally tally = grown->tally;
      for (int64_t* first : {&tally.first_not_spd, &tally.first_not_converged}) {
        if (*first >= 0) *first = of.Local(static_cast<int32_t>(*first));
      }
      CscMatrix local;
      SymmetricMatrix symmetric;
      if (fsai.post_filter > 0) {
        local = Principal(of, grown->ptr, grown->row_idx, grown->values);
        auto diagonal = PositiveDiagonal(local, inner.threads);
        if (!diagonal.ok()) return diagonal.status();
        symmetric = {local, *std::move(diagonal)};
      }
      const StopReason stopped = FinishGrown(symmetric, a.nnz, fsai, inner, tally, part);
      return stopped == StopReason::kNone ? Status() : StopStatus(stopped, kBuild);
    });
  });
  if (!status.ok()) return status;
  std::vector<double> by_step = std::move(grown->log_by_step);
  Must(MPI_Allreduce(MPI_IN_PLACE, by_step.data(), static_cast<int>(by_step.size()), MPI_DOUBLE,
                     MPI_SUM, a.comm));
  for (double& k : by_step) k = std::exp(k / static_cast<double>(a.n));
  Result<HybridFsaiResult> result = Collect(a, part, of, budget);
  if (!result.ok()) return result.status();
  result->quality.kaporin_by_step = std::move(by_step);
  result->quality.steps = fsai.k_max;
  result->rounds = grown->rounds;
  return result;
}

Result<HybridFsaiResult> Make(const SpreadMatrix& a, const SpreadPattern* user,
                              const HybridFsaiOptions& options, const Context& context) {
  const FsaiOptions& fsai = options.fsai;
  if (Status s = Agree(a.comm, Check(options)); !s.ok()) return s;
  if (Status s = AgreeOptions(a.comm, fsai, user != nullptr); !s.ok()) return s;
  if (Status s = AgreeHash(a.comm, fsai.adaptive ? 1 : 0); !s.ok()) return s;
  HaloBudget budget{options.halo_bytes > 0 ? options.halo_bytes : DefaultHaloBytes(a.comm), 0};
  Array<double> own_diagonal;
  CscMatrix rows_of_a;
  Numbering seen(a.n);
  Status status = Locally(a.comm, kBuild, [&]() -> Status {
    if (Status bad = OwnDiagonal(a, &own_diagonal); !bad.ok()) return bad;
    rows_of_a = OwnRows(a.rows.get());
    seen.Insert(a.columns.row_idx);
    seen.Insert(rows_of_a.row_idx);
    seen.Close();
    return {};
  });
  if (!status.ok()) return status;
  const Halo of_seen(a.comm, a.begin, a.columns.col_ptr, seen.global());
  const Array<double> diagonal = of_seen.Items<double>(own_diagonal);
  status = Agree(a.comm, CheckSymmetric(a, rows_of_a, seen, diagonal, fsai.symmetry_tolerance));
  if (!status.ok()) return status;
  if (fsai.adaptive) return MakeAdaptive(a, user, fsai, own_diagonal, budget, context);

  SpreadPattern pattern;
  status = Locally(a.comm, kBuild, [&]() -> Status {
    if (user != nullptr) {
      pattern = *user;
    } else if (fsai.drop_tol > 0) {
      pattern = Prefiltered(a, rows_of_a, seen, diagonal, fsai.drop_tol);
    } else {
      pattern = {a.n, a.own().size(), rows_of_a.col_ptr, rows_of_a.row_idx};
    }
    return {};
  });
  if (!status.ok()) return status;
  if (user == nullptr && fsai.power > 1) {
    PatternOptions power;
    power.power = fsai.power;
    Result<SpreadPattern> made = PowerOf(a, pattern, power, context, budget, kBuild);
    if (!made.ok()) return made.status();
    pattern = *std::move(made);
  }
  pattern = ToDiagonal(a, pattern);
  rows_of_a = {};

  // All that the own rows read: A[S, S] of their indices S, which hold the own ones.
  Numbering needed(a.n);
  needed.Insert(pattern.row_idx);
  needed.Close();
  Halo halo(a.comm, a.begin, a.columns.col_ptr, needed.global());
  if (status = budget.Take(a.comm, halo, sizeof(int32_t) + sizeof(double)); !status.ok()) {
    return status;
  }
  FsaiResult part;
  {
    const Array<int32_t> rows = halo.Entries<int32_t>(a.columns.row_idx);
    const Array<double> values = halo.Entries<double>(a.columns.values);
    status = Watched(a.comm, context, Stage::kBuild, [&](const Context& inner) {
      return GuardMemory(kBuild, [&]() -> Status {
        if (needed.size() == 0) return {};
        const CscMatrix local = Principal(needed, halo.ptr(), rows, values);
        // Rows of others are their diagonal here, which costs nothing.
        Pattern lower{needed.size(), needed.size(), {0}, {}};
        int64_t own = 0;
        for (int64_t k = 0; k < needed.size(); ++k) {
          const int64_t i = needed.global()[Z(k)];
          if (i >= a.own().begin && i < a.own().end) {
            for (const int32_t j : PatternView(pattern).column(own)) {
              lower.row_idx.push_back(needed.Local(j));
            }
            ++own;
          } else {
            lower.row_idx.push_back(static_cast<int32_t>(k));
          }
          lower.col_ptr.push_back(lower.nnz());
        }
        Result<FsaiResult> built = BuildFsaiOn(lower, local, fsai, inner);
        if (!built.ok()) return built.status();
        part = *std::move(built);
        return {};
      });
    });
    if (!status.ok()) return status;
  }
  return Collect(a, part, needed, budget);
}

// --- GᵀG ---

struct Factored {
  Mat g;
  VecOwner between;
};

PetscErrorCode Multiply(Mat m, Vec x, Vec y) {
  Factored* of = nullptr;
  Must(MatShellGetContext(m, &of));
  Must(MatMult(of->g, x, of->between.get()));
  Must(MatMultTranspose(of->g, of->between.get(), y));
  return static_cast<PetscErrorCode>(0);
}

PetscErrorCode Destroy(Mat m) {
  Factored* of = nullptr;
  Must(MatShellGetContext(m, &of));
  delete of;
  return static_cast<PetscErrorCode>(0);
}

}  // namespace

MatOwner MakeFactored(Mat g) {
  PetscInt own = 0, n = 0;
  Must(MatGetLocalSize(g, &own, nullptr));
  Must(MatGetSize(g, &n, nullptr));
  Vec between = nullptr;
  Must(MatCreateVecs(g, nullptr, &between));
  Mat made = nullptr;
  Must(MatCreateShell(PetscObjectComm(reinterpret_cast<PetscObject>(g)), own, own, n, n,
                      new Factored{g, VecOwner(between)}, &made));
  Must(MatShellSetOperation(made, MATOP_MULT, reinterpret_cast<void (*)()>(Multiply)));
  Must(MatShellSetOperation(made, MATOP_DESTROY, reinterpret_cast<void (*)()>(Destroy)));
  return MatOwner(made);
}

Result<HybridFsaiResult> BuildHybridFsai(const SpreadMatrix& a, const SpreadPattern* user_rows,
                                         const HybridFsaiOptions& options, const Context& context) {
  return OrEndAll(kBuild, [&] { return Make(a, user_rows, options, context); });
}

}  // namespace spaid::kernels::mpi
