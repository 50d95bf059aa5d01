#include "kernels/mpi/petsc_preconditioner.h"

#include <HYPRE_utilities.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

constexpr char kSetUp[] = "set-up of a preconditioner over several ranks";
// hypre does not tell what it holds: a copy of A, and what it makes of it.
constexpr int64_t kGuessedCopies = 4;

using PcOwner = PetscOwner<PC, PCDestroy>;
using NullSpaceOwner = PetscOwner<MatNullSpace, MatNullSpaceDestroy>;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

template <class E, size_t kCount>
const char* Pick(const char* const (&names)[kCount], E value) {
  return names[static_cast<size_t>(value)];
}

// Options as PETSc's database has them, without the prefix.
std::vector<std::pair<std::string, std::string>> Settings(PetscMethod method,
                                                          const PetscEngineOptions& o) {
  switch (method) {
    case PetscMethod::kParasails:
      return {{"pc_hypre_parasails_nlevels", std::to_string(o.levels)},
              {"pc_hypre_parasails_thresh", Number(o.threshold)},
              {"pc_hypre_parasails_filter", Number(o.filter)},
              {"pc_hypre_parasails_sym",
               o.symmetry == ParasailsSymmetry::kSpd ? "SPD" : "nonsymmetric"}};
    case PetscMethod::kBoomeramg:
      return {{"pc_hypre_boomeramg_strong_threshold", Number(o.strong_threshold)},
              {"pc_hypre_boomeramg_coarsen_type",
               Pick({"HMIS", "PMIS", "Falgout", "CLJP"}, o.coarsening)},
              {"pc_hypre_boomeramg_interp_type",
               Pick({"ext+i", "classical", "direct", "standard", "multipass"}, o.interpolation)},
              {"pc_hypre_boomeramg_P_max", std::to_string(o.interpolation_entries)},
              {"pc_hypre_boomeramg_agg_nl", std::to_string(o.aggressive_levels)},
              {"pc_hypre_boomeramg_max_levels", std::to_string(o.max_levels)}};
    case PetscMethod::kGamg:
      break;
  }
  return {{"pc_gamg_threshold", Number(o.drop_threshold)},
          {"pc_gamg_agg_nsmooths", std::to_string(o.smooths)}};
}

// Options of one preconditioner in PETSc's database, which is all programs' own: there while this
// lives.
class InDatabase {
 public:
  static constexpr char kPrefix[] = "spaid_";
  InDatabase(PetscMethod method, const PetscEngineOptions& options)
      : settings_(Settings(method, options)) {
    for (const auto& [name, value] : settings_) {
      Must(PetscOptionsSetValue(nullptr, Name(name).c_str(), value.c_str()));
    }
  }
  ~InDatabase() {
    for (const auto& [name, value] : settings_) {
      Must(PetscOptionsClearValue(nullptr, Name(name).c_str()));
    }
  }
  InDatabase(const InDatabase&) = delete;
  InDatabase& operator=(const InDatabase&) = delete;

 private:
  static std::string Name(const std::string& name) { return "-" + std::string(kPrefix) + name; }
  const std::vector<std::pair<std::string, std::string>> settings_;
};

// Calls of PETSc return their errors, without a word on stderr, while this lives.
class ErrorsReturned {
 public:
  ErrorsReturned() { Must(PetscPushErrorHandler(PetscReturnErrorHandler, nullptr)); }
  ~ErrorsReturned() { Must(PetscPopErrorHandler()); }
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;
};

// The near-null vectors, made orthonormal by Gram-Schmidt, twice.
Result<NullSpaceOwner> NearNullOf(const SpreadMatrix& a, std::span<const double> own, int count) {
  std::vector<VecOwner> owners;
  std::vector<Vec> basis;
  const auto rows = static_cast<size_t>(a.own().size());
  for (int k = 0; k < count; ++k) {
    Vec v = nullptr;
    Must(MatCreateVecs(a.rows.get(), &v, nullptr));
    owners.emplace_back(v);
    PetscScalar* to = nullptr;
    Must(VecGetArrayWrite(v, &to));
    std::copy_n(own.data() + static_cast<size_t>(k) * rows, rows, to);
    Must(VecRestoreArrayWrite(v, &to));
    PetscReal before = 0, after = 0;
    Must(VecNorm(v, NORM_2, &before));
    for (int pass = 0; pass < 2; ++pass) {
      for (Vec u : basis) {
        PetscScalar dot = 0;
        Must(VecDot(v, u, &dot));
        Must(VecAXPY(v, -dot, u));
      }
    }
    Must(VecNormalize(v, &after));
    constexpr double kDependent = 1e-10;
    if (!(after > kDependent * before)) {  // the same on all ranks, as norms are
      return Status(StatusCode::kInvalidArgument, "RANK_DEFICIENT",
                    "near-null vector " + std::to_string(k) +
                        " is zero, or depends on those before it; leave it out")
          .At("near_null_space", k);
    }
    basis.push_back(v);
  }
  MatNullSpace made = nullptr;
  Must(MatNullSpaceCreate(a.comm, PETSC_FALSE, count, basis.data(), &made));
  return NullSpaceOwner(made);
}

// A PC as a matrix. One that fails leaves nothing finite, which the solver says.
PetscErrorCode Multiply(Mat m, Vec x, Vec y) {
  PC pc = nullptr;
  Must(MatShellGetContext(m, &pc));
  const ErrorsReturned returned;
  if (PCApply(pc, x, y) != 0) {
    HYPRE_ClearAllErrors();
    Must(VecSet(y, std::numeric_limits<double>::quiet_NaN()));
  }
  return static_cast<PetscErrorCode>(0);
}

PetscErrorCode Destroy(Mat m) {
  PC pc = nullptr;
  Must(MatShellGetContext(m, &pc));
  return PCDestroy(&pc);
}

MatOwner AsMatrix(const SpreadMatrix& a, PcOwner pc) {
  const auto own = static_cast<PetscInt>(a.own().size()), n = static_cast<PetscInt>(a.n);
  Mat made = nullptr;
  Must(MatCreateShell(a.comm, own, own, n, n, pc.release(), &made));
  Must(MatShellSetOperation(made, MATOP_MULT, reinterpret_cast<void (*)()>(Multiply)));
  Must(MatShellSetOperation(made, MATOP_DESTROY, reinterpret_cast<void (*)()>(Destroy)));
  return MatOwner(made);
}

// Refuses a zero diagonal entry, stored or not: hypre's and PETSc's smoothers take it for granted
// that there is none, and some of them end the program.
Status CheckDiagonal(const SpreadMatrix& a) {
  const CscView columns = a.columns;
  for (int64_t k = 0; k < columns.n_cols; ++k) {
    const int64_t j = a.own().begin + k;
    const auto rows = columns.column(k);
    const auto at = std::ranges::lower_bound(rows, static_cast<int32_t>(j));
    const bool stored = at != rows.end() && *at == j;
    if (stored && columns.column_values(k)[static_cast<size_t>(at - rows.begin())] != 0) continue;
    return Status(StatusCode::kFailedPrecondition, "ZERO_DIAGONAL",
                  "diagonal entry " + std::to_string(j) +
                      " is zero, or not stored, and the smoothers of multigrid divide by it; use "
                      "static SPAI or ParaSails")
        .At("values", j);
  }
  return {};
}

// Whether it could be made. Both kinds of failure are seen on all ranks: each sums before it ends.
Status SetUp(const SpreadMatrix& a, PetscMethod method, const PetscEngineOptions& options, PC pc) {
  Must(PCSetOperators(pc, a.rows.get(), a.rows.get()));
  Must(PCSetOptionsPrefix(pc, InDatabase::kPrefix));
  if (method == PetscMethod::kGamg) {
    Must(PCSetType(pc, PCGAMG));
  } else {
    Must(PCSetType(pc, PCHYPRE));
    Must(PCHYPRESetType(pc, method == PetscMethod::kParasails ? "parasails" : "boomeramg"));
  }
  const InDatabase database(method, options);
  Must(PCSetFromOptions(pc));
  PCFailedReason failed = PC_NOERROR;
  int error = 0;
  {
    const ErrorsReturned returned;
    error = PCSetUp(pc);
  }
  if (error == 0) {
    Must(PCGetFailedReason(pc, &failed));
  } else {
    HYPRE_ClearAllErrors();  // else the next set-up takes it for its own
  }
  if (error == 0 && failed == PC_NOERROR) return {};
  return Status(
             StatusCode::kFailedPrecondition, "SET_UP_FAILED",
             std::string(method == PetscMethod::kGamg ? "PETSc" : "hypre") +
                 " could not set the preconditioner up: A may be singular" +
                 (options.symmetry == ParasailsSymmetry::kSpd && method == PetscMethod::kParasails
                      ? ", or not positive definite (symmetry = GENERAL is for such a one)"
                      : "") +
                 "; use static SPAI")
      .At("values");
}

Result<PetscBuilt> Make(const SpreadMatrix& a, PetscMethod method,
                        const PetscEngineOptions& options, std::span<const double> near_null,
                        const Context& context) {
  Status status = Agree(a.comm, CheckPetscOptions(options));
  if (!status.ok()) return status;
  const int64_t rows = a.own().size();
  // A rank without rows knows nothing of their number.
  int64_t count = rows > 0 ? std::ssize(near_null) / rows : 0;
  Must(MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT64_T, MPI_MAX, a.comm));
  if (status = AgreeOptions(a.comm, options, true); !status.ok()) return status;
  if (status = AgreeHash(a.comm, static_cast<uint64_t>(method)); !status.ok()) return status;
  if (std::ssize(near_null) != count * rows) {
    status = Status(StatusCode::kInvalidArgument, "BAD_NEAR_NULL_SPACE",
                    "a rank has " + std::to_string(near_null.size()) + " numbers of " +
                        std::to_string(count) + " near-null vectors for " + std::to_string(rows) +
                        " rows")
                 .At("near_null_space");
  }
  if (status = Agree(a.comm, status); !status.ok()) return status;
  if (status = AgreeStop(a.comm, context.stop, kSetUp); !status.ok()) return status;
  if (method != PetscMethod::kParasails) {
    if (status = Agree(a.comm, CheckDiagonal(a)); !status.ok()) return status;
  }
  NullSpaceOwner near;
  if (count > 0 && method == PetscMethod::kGamg) {
    auto made = NearNullOf(a, near_null, static_cast<int>(count));
    if (!made.ok()) return made.status();
    near = *std::move(made);
  }
  PC made = nullptr;
  Must(PCCreate(a.comm, &made));
  PcOwner pc(made);
  // A is others', too, who may have other vectors for it, or none.
  Must(MatSetNearNullSpace(a.rows.get(), near.get()));
  status = Agree(a.comm, SetUp(a, method, options, made));
  Must(MatSetNearNullSpace(a.rows.get(), nullptr));
  if (!status.ok()) return status;

  PetscBuilt built;
  const int64_t own_nnz = a.columns.nnz();
  if (method == PetscMethod::kGamg) {
    PetscInt levels = 0;
    PetscReal grid = 0, entries = 0;
    Must(PCMGGetLevels(made, &levels));
    Must(PCMGGetGridComplexity(made, &grid, &entries));
    built.quality = {static_cast<int>(levels), entries, grid};
    built.nnz = std::llround(entries * static_cast<double>(a.nnz));
    built.bytes = kEntryBytes * std::llround(entries * static_cast<double>(own_nnz));
  } else {
    built.bytes = kGuessedCopies * kEntryBytes * own_nnz;
  }
  built.m = AsMatrix(a, std::move(pc));
  return built;
}

}  // namespace

Result<PetscBuilt> BuildPetsc(const SpreadMatrix& a, PetscMethod method,
                              const PetscEngineOptions& options, std::span<const double> near_null,
                              const Context& context) {
  return OrEndAll(kSetUp, [&] { return Make(a, method, options, near_null, context); });
}

}  // namespace spaid::kernels::mpi
