#include "client/petsc/ksp.h"

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/petsc/pc.h"

namespace spaid::petsc {
namespace {

struct KspData {
  SolveOptions options;  // -ksp_spaid_*
  VecScatter to_root = nullptr;
  Vec whole = nullptr;  // rank 0: one column
  std::vector<PetscScalar> b, guess, x, null_vectors;
  std::string outcome;  // in words, for KSPView
};

KspData& Data(KSP ksp) { return *static_cast<KspData*>(ksp->data); }

MPI_Comm CommOf(KSP ksp) { return PetscObjectComm(reinterpret_cast<PetscObject>(ksp)); }

// One vector, or the columns of a dense matrix.
struct Columns {
  Vec vec = nullptr;
  Mat mat = nullptr;
  PetscInt count = 1;
};

// Runs `use` on column `j`, which it reads or, with `writes`, overwrites.
template <class Use>
PetscErrorCode WithColumn(const Columns& columns, PetscInt j, bool writes, Use use) {
  PetscFunctionBegin;
  Vec v = columns.vec;
  if (columns.mat == nullptr) {
    PetscCall(use(v));
  } else if (writes) {
    PetscCall(MatDenseGetColumnVecWrite(columns.mat, j, &v));
    PetscCall(use(v));
    PetscCall(MatDenseRestoreColumnVecWrite(columns.mat, j, &v));
  } else {
    PetscCall(MatDenseGetColumnVecRead(columns.mat, j, &v));
    PetscCall(use(v));
    PetscCall(MatDenseRestoreColumnVecRead(columns.mat, j, &v));
  }
  PetscFunctionReturn(kOk);
}

// Appends the whole of `v` to `to`, on rank 0.
PetscErrorCode Gather(KspData* data, Vec v, std::vector<PetscScalar>* to) {
  PetscFunctionBegin;
  if (data->to_root == nullptr) PetscCall(VecScatterCreateToZero(v, &data->to_root, &data->whole));
  PetscCall(VecScatterBegin(data->to_root, v, data->whole, INSERT_VALUES, SCATTER_FORWARD));
  PetscCall(VecScatterEnd(data->to_root, v, data->whole, INSERT_VALUES, SCATTER_FORWARD));
  PetscInt n = 0;
  const PetscScalar* values = nullptr;
  PetscCall(VecGetLocalSize(data->whole, &n));
  PetscCall(VecGetArrayRead(data->whole, &values));
  to->insert(to->end(), values, values + n);
  PetscCall(VecRestoreArrayRead(data->whole, &values));
  PetscFunctionReturn(kOk);
}

PetscErrorCode Gather(KspData* data, const Columns& columns, std::vector<PetscScalar>* to) {
  PetscFunctionBegin;
  to->clear();
  for (PetscInt j = 0; j < columns.count; ++j) {
    PetscCall(WithColumn(columns, j, false, [&](Vec v) { return Gather(data, v, to); }));
  }
  PetscFunctionReturn(kOk);
}

// The inverse of Gather.
PetscErrorCode Spread(KspData* data, const std::vector<PetscScalar>& from, const Columns& columns) {
  PetscFunctionBegin;
  PetscInt n = 0;
  PetscCall(VecGetLocalSize(data->whole, &n));
  for (PetscInt j = 0; j < columns.count; ++j) {
    PetscScalar* values = nullptr;
    PetscCall(VecGetArrayWrite(data->whole, &values));
    std::copy_n(from.begin() + static_cast<ptrdiff_t>(n) * j, n, values);
    PetscCall(VecRestoreArrayWrite(data->whole, &values));
    PetscCall(WithColumn(columns, j, true, [&](Vec v) -> PetscErrorCode {
      PetscFunctionBegin;
      PetscCall(VecScatterBegin(data->to_root, data->whole, v, INSERT_VALUES, SCATTER_REVERSE));
      PetscCall(VecScatterEnd(data->to_root, data->whole, v, INSERT_VALUES, SCATTER_REVERSE));
      PetscFunctionReturn(kOk);
    }));
  }
  PetscFunctionReturn(kOk);
}

// The null space that the program has attached to A.
PetscErrorCode AddNullSpace(Mat a, KspData* data, SolveOptions* options) {
  PetscFunctionBegin;
  MatNullSpace space = nullptr;
  data->null_vectors.clear();
  PetscCall(MatGetNullSpace(a, &space));
  if (space == nullptr) PetscFunctionReturn(kOk);
  PetscBool has_constants = PETSC_FALSE;
  PetscInt count = 0;
  const Vec* vectors = nullptr;
  PetscCall(MatNullSpaceGetVecs(space, &has_constants, &count, &vectors));
  if (count == 0) {
    if (has_constants) options->null_space = NullSpace::kConstants;
    PetscFunctionReturn(kOk);
  }
  for (PetscInt j = 0; j < count; ++j) PetscCall(Gather(data, vectors[j], &data->null_vectors));
  if (has_constants) {
    PetscInt n = 0;
    PetscCall(VecGetLocalSize(data->whole, &n));
    data->null_vectors.insert(data->null_vectors.end(), static_cast<size_t>(n), 1.0);
  }
  options->null_vectors = data->null_vectors;
  PetscFunctionReturn(kOk);
}

ReusePolicy Policy(const PC pc, const PcSettings& settings) {
  if (pc->reusepreconditioner) return {.mode = ReuseMode::kKeep};
  if (settings.reuse_factor > 0) {
    return {.mode = ReuseMode::kAuto, .factor = settings.reuse_factor};
  }
  return {.mode = ReuseMode::kRebuild};
}

// How a solve ended, for all ranks.
struct End {
  int64_t iterations = 0;  // of the right-hand side that took most
  double residual = 0;     // of the worst one
  int32_t outcome = 0;     // of the first that did not converge
  int32_t by_rtol = 1;     // all did by rtol
  int32_t size = 0;        // of the text
};

End EndOf(const SolveResult& result, double rtol, std::string* text) {
  End end;
  end.outcome = static_cast<int32_t>(Outcome::kConverged);
  for (const SolveResult::Rhs& rhs : result.rhs) {
    end.iterations = std::max(end.iterations, rhs.iterations);
    end.residual = std::max(end.residual, rhs.true_residual);
    if (rhs.true_relative_residual > rtol) end.by_rtol = 0;
    if (rhs.outcome != Outcome::kConverged && text->empty()) {
      end.outcome = static_cast<int32_t>(rhs.outcome);
      *text = std::string(Name(rhs.outcome)) + (rhs.detail.empty() ? "" : ": ") + rhs.detail;
    }
  }
  end.size = static_cast<int32_t>(text->size());
  return end;
}

KSPConvergedReason ReasonOf(const End& end) {
  switch (static_cast<Outcome>(end.outcome)) {
    case Outcome::kConverged:
      return end.by_rtol != 0 ? KSP_CONVERGED_RTOL : KSP_CONVERGED_ATOL;
    case Outcome::kMaxIterations:
      return KSP_DIVERGED_ITS;
    case Outcome::kIndefinite:
      return KSP_DIVERGED_INDEFINITE_MAT;
    case Outcome::kNonFinite:
      return KSP_DIVERGED_NANORINF;
    case Outcome::kStagnated:
    case Outcome::kBreakdown:
    case Outcome::kTimeLimit:
    case Outcome::kCancelled:
      break;
  }
  return KSP_DIVERGED_BREAKDOWN;
}

PetscErrorCode Finish(KSP ksp, const Remote& remote, const SolveOptions& options) {
  PetscFunctionBegin;
  KspData& data = Data(ksp);
  End end;
  data.outcome.clear();
  if (const SolveResult* solved = remote.solved())
    end = EndOf(*solved, options.rtol, &data.outcome);
  PetscCallMPI(MPI_Bcast(&end, sizeof(end), MPI_BYTE, 0, CommOf(ksp)));
  data.outcome.resize(static_cast<size_t>(end.size));
  PetscCallMPI(MPI_Bcast(data.outcome.data(), end.size, MPI_CHAR, 0, CommOf(ksp)));
  const auto outcome = static_cast<Outcome>(end.outcome);
  PetscCheck(outcome != Outcome::kCancelled && outcome != Outcome::kTimeLimit, CommOf(ksp),
             PETSC_ERR_LIB,
             "spaid: the solve did not end by itself, but by the daemon's operator or its "
             "--max-run: %s; see the daemon's log, and solve again",
             data.outcome.c_str());
  ksp->its = static_cast<PetscInt>(end.iterations);
  ksp->rnorm = end.residual;
  ksp->reason = ReasonOf(end);
  if (!data.outcome.empty()) PetscCall(PetscInfo(ksp, "spaid: %s\n", data.outcome.c_str()));
  PetscFunctionReturn(kOk);
}

// The matrix that the daemon solves with, where it can.
PetscErrorCode CheckProblem(KSP ksp, Mat* a) {
  PetscFunctionBegin;
  Mat pmat = nullptr;
  PetscCall(PCGetOperators(ksp->pc, a, &pmat));
  PetscCheck(
      *a == pmat, CommOf(ksp), PETSC_ERR_SUP,
      "spaid: -ksp_type spaid builds M of the matrix that it solves with, and Pmat is another "
      "one; take a KSP of PETSc's with -pc_type spaid");
  PetscCheck(!ksp->transpose_solve, CommOf(ksp), PETSC_ERR_SUP,
             "spaid: -ksp_type spaid solves A x = b alone; for the transpose take a KSP of PETSc's "
             "with -pc_type spaid");
  PetscCheck(ksp->converged == KSPConvergedDefault, CommOf(ksp), PETSC_ERR_SUP,
             "spaid: -ksp_type spaid ends by rtol, atol and max_it, and this program has a test of "
             "convergence of its own; take a KSP of PETSc's with -pc_type spaid");
  PetscFunctionReturn(kOk);
}

PetscErrorCode SolveColumns(KSP ksp, const Columns& b, const Columns& x) {
  PetscFunctionBegin;
  KspData& data = Data(ksp);
  PcData& pc = *DataOf(ksp->pc);
  Mat a = nullptr;
  PetscCall(CheckProblem(ksp, &a));
  PetscCall(PCSetFailedReason(ksp->pc, PC_NOERROR));
  PetscCall(pc.remote.Upload(a, pc.settings));
  PetscCall(Gather(&data, b, &data.b));
  data.guess.clear();
  if (!ksp->guess_zero) PetscCall(Gather(&data, x, &data.guess));
  data.x.resize(data.b.size());

  SolveOptions options = data.options;
  options.rtol = std::max(ksp->rtol, DBL_MIN);  // 0: by atol alone
  options.atol = ksp->abstol;
  options.max_iterations = ksp->max_it;
  PetscCall(AddNullSpace(a, &data, &options));
  PetscReal norm = 0;
  PetscCall(WithColumn(b, 0, false, [&](Vec v) { return VecNorm(v, NORM_2, &norm); }));
  const auto take = [&](PetscInt iteration, PetscReal relative) -> PetscErrorCode {
    PetscFunctionBegin;
    ksp->its = iteration;
    ksp->rnorm = relative * norm;
    PetscCall(KSPLogResidualHistory(ksp, ksp->rnorm));
    PetscCall(KSPMonitor(ksp, iteration, ksp->rnorm));
    PetscFunctionReturn(kOk);
  };
  std::optional<Error> refused;
  PetscCall(pc.remote.Solve(CommOf(ksp), pc.settings,
                            {.b = data.b.data(),
                             .guess = ksp->guess_zero ? nullptr : data.guess.data(),
                             .x = data.x.data(),
                             .count = data.b.size(),
                             .options = options,
                             .reuse = Policy(ksp->pc, pc.settings)},
                            take, &refused));
  if (refused) {
    PetscCheck(!ksp->errorifnotconverged, CommOf(ksp), PETSC_ERR_NOT_CONVERGED, "spaid: %s",
               refused->message.c_str());
    ksp->its = 0;
    ksp->reason = KSP_DIVERGED_PC_FAILED;
    PetscCall(PCSetFailedReason(ksp->pc, PC_FACTOR_OTHER));
    data.outcome = refused->message;
    PetscFunctionReturn(kOk);
  }
  PetscCall(Spread(&data, data.x, x));
  PetscCall(Finish(ksp, pc.remote, options));
  PetscFunctionReturn(kOk);
}

PetscErrorCode Solve(KSP ksp) {
  PetscFunctionBegin;
  PetscCall(SolveColumns(ksp, {.vec = ksp->vec_rhs}, {.vec = ksp->vec_sol}));
  PetscFunctionReturn(kOk);
}

PetscErrorCode MatSolve(KSP ksp, Mat b, Mat x) {
  PetscFunctionBegin;
  PetscInt count = 0;
  PetscCall(MatGetSize(b, nullptr, &count));
  PetscCall(SolveColumns(ksp, {.mat = b, .count = count}, {.mat = x, .count = count}));
  PetscFunctionReturn(kOk);
}

PetscErrorCode SetUp(KSP ksp) {
  PetscFunctionBegin;
  PcData* pc = DataOf(ksp->pc);
  PCType type = nullptr;
  PetscCall(PCGetType(ksp->pc, &type));
  PetscCheck(
      pc != nullptr, CommOf(ksp), PETSC_ERR_ARG_WRONGSTATE,
      "spaid: -ksp_type spaid has M, the daemon and their options from a PC of its own type, and "
      "this one is %s; add -pc_type spaid",
      type != nullptr ? type : "not set");
  pc->whole_solve = true;
  PetscFunctionReturn(kOk);
}

PetscErrorCode SetFromOptions(KSP ksp, PetscOptionItems* PetscOptionsObject) {
  PetscFunctionBegin;
  PetscOptionsHeadBegin(PetscOptionsObject, "spaid options of whole solves");
  PetscCall(petsc::SetFromOptions(PetscOptionsObject, &Data(ksp).options));
  PetscOptionsHeadEnd();
  PetscFunctionReturn(kOk);
}

PetscErrorCode View(KSP ksp, PetscViewer viewer) {
  PetscFunctionBegin;
  PetscBool is_ascii = PETSC_FALSE;
  PetscCall(
      PetscObjectTypeCompare(reinterpret_cast<PetscObject>(viewer), PETSCVIEWERASCII, &is_ascii));
  PcData* pc = ksp->pc != nullptr ? DataOf(ksp->pc) : nullptr;
  const SolveResult* solved = pc != nullptr ? pc->remote.solved() : nullptr;
  if (!is_ascii || solved == nullptr) PetscFunctionReturn(kOk);
  const auto text = [](std::string_view view) { return std::string(view); };
  PetscCall(PetscViewerASCIIPrintf(
      viewer, "  solved by %s with %s (%s), on %s\n", text(Name(solved->method)).c_str(),
      text(Name(solved->engine)).c_str(), solved->choice_reason.c_str(), solved->device.c_str()));
  PetscCall(PetscViewerASCIIPrintf(viewer, "  matrix %s, preconditioner %s\n",
                                   solved->matrix.c_str(), solved->preconditioner.c_str()));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "  %.3g ms set-up, %.3g ms solve, %lld bytes up, %lld down\n",
                                   solved->timings.setup_ms(), solved->timings.solve_ms,
                                   static_cast<long long>(solved->timings.bytes_up),
                                   static_cast<long long>(solved->timings.bytes_down)));
  if (solved->reuse) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  M %s: %s\n",
                                     text(Name(solved->reuse->decision)).c_str(),
                                     solved->reuse->reason.c_str()));
  }
  for (const Rung& rung : solved->rungs) {
    PetscCall(
        PetscViewerASCIIPrintf(viewer, "  tried %s: %s\n", rung.what.c_str(),
                               rung.left.empty() ? "it solved the system" : rung.left.c_str()));
  }
  if (!Data(ksp).outcome.empty()) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  %s\n", Data(ksp).outcome.c_str()));
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode Reset(KSP ksp) {
  PetscFunctionBegin;
  KspData& data = Data(ksp);
  PetscCall(VecScatterDestroy(&data.to_root));
  PetscCall(VecDestroy(&data.whole));
  data.b = {}, data.guess = {}, data.x = {}, data.null_vectors = {};
  PetscFunctionReturn(kOk);
}

PetscErrorCode Destroy(KSP ksp) {
  PetscFunctionBegin;
  PetscCall(Reset(ksp));
  if (PcData* pc = ksp->pc != nullptr ? DataOf(ksp->pc) : nullptr) pc->whole_solve = false;
  delete static_cast<KspData*>(ksp->data);
  ksp->data = nullptr;
  PetscFunctionReturn(kOk);
}

}  // namespace

PetscErrorCode CreateKsp(KSP ksp) {
  PetscFunctionBegin;
  PetscCallCXX(ksp->data = new KspData);
  PetscCall(KSPSetSupportedNorm(ksp, KSP_NORM_UNPRECONDITIONED, PC_RIGHT, 3));
  ksp->ops->solve = Solve;
  ksp->ops->matsolve = MatSolve;
  ksp->ops->setup = SetUp;
  ksp->ops->setfromoptions = SetFromOptions;
  ksp->ops->view = View;
  ksp->ops->reset = Reset;
  ksp->ops->destroy = Destroy;
  ksp->ops->buildsolution = KSPBuildSolutionDefault;
  ksp->ops->buildresidual = KSPBuildResidualDefault;
  PetscFunctionReturn(kOk);
}

}  // namespace spaid::petsc
