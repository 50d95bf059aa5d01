#include "client/petsc/pc.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace spaid::petsc {
namespace {

PcData& Data(PC pc) { return *static_cast<PcData*>(pc->data); }

MPI_Comm CommOf(PC pc) { return PetscObjectComm(reinterpret_cast<PetscObject>(pc)); }

// Whether M, which there is, serves for other values of the same pattern, too.
bool Serves(const PcData& data, Change change) {
  if (!data.m.is_set() || change == Change::kAll || data.settings.reuse_factor <= 0) return false;
  if (data.first_iterations == 0) return false;
  return data.last_converged &&
         static_cast<PetscReal>(data.last_iterations) <=
             data.settings.reuse_factor * static_cast<PetscReal>(data.first_iterations);
}

// All ranks know of M what a KSP has to know of it.
PetscErrorCode ShareEngine(MPI_Comm comm, PcData* data) {
  PetscFunctionBegin;
  int engine = 0;
  if (const BuildResult* built = data->remote.built()) {
    engine = static_cast<int>(built->preconditioner.spec.engine);
  }
  PetscCallMPI(MPI_Bcast(&engine, 1, MPI_INT, 0, comm));
  const EngineTraits traits = TraitsOf(static_cast<Engine>(engine));
  data->for_cg = traits.for_cg;
  data->engine = traits.title;
  PetscFunctionReturn(kOk);
}

PetscErrorCode Build(PC pc) {
  PetscFunctionBegin;
  PcData& data = Data(pc);
  const MPI_Comm comm = CommOf(pc);
  PetscCheck(!TraitsOf(data.settings.options.solve.engine).by_parts, comm, PETSC_ERR_SUP,
             "spaid: M of -pc_spaid_engine %s is a cycle that the daemon alone runs, and no matrix "
             "to be applied here; add -ksp_type spaid, which solves as a whole there, or take "
             "another engine",
             std::string(Name(data.settings.options.solve.engine)).c_str());
  PetscCheck(!TraitsOf(data.settings.options.solve.engine).ranks_alone, comm, PETSC_ERR_SUP,
             "spaid: M of -pc_spaid_engine %s lies over the ranks of the daemon, and is not sent; "
             "add -ksp_type spaid, which solves as a whole there, or take another engine",
             std::string(Name(data.settings.options.solve.engine)).c_str());
  std::optional<Error> refused;
  PetscCall(data.remote.Upload(pc->pmat, data.settings));
  PetscCall(data.remote.Build(comm, data.settings, &refused));
  data.first_iterations = data.last_iterations = 0;
  if (refused) {
    PetscCall(data.m.Reset());
    if (pc->erroriffailure) PetscCall(Raise(comm, *refused));
    PetscCall(PCSetFailedReason(pc, PC_FACTOR_OTHER));
    PetscFunctionReturn(kOk);
  }
  PetscCall(PCSetFailedReason(pc, PC_NOERROR));
  const BuildResult* built = data.remote.built();
  PetscCall(data.m.Set(pc->pmat, built != nullptr ? &*built->m : nullptr));
  PetscCall(ShareEngine(comm, &data));
  PetscFunctionReturn(kOk);
}

PetscErrorCode SetUp(PC pc) {
  PetscFunctionBegin;
  PcData& data = Data(pc);
  if (data.whole_solve) {  // the KSP sends the matrix with its next solve
    PetscCall(data.m.Reset());
    PetscFunctionReturn(kOk);
  }
  Change change = Change::kAll;
  PetscCall(data.remote.Compare(pc->pmat, &change));
  if (Serves(data, change)) {
    PetscCall(PetscInfo(pc,
                        "M is kept: %" PetscInt_FMT " iterations, %" PetscInt_FMT
                        " with the values that it was built of\n",
                        data.last_iterations, data.first_iterations));
    PetscFunctionReturn(kOk);
  }
  PetscCall(Build(pc));
  PetscFunctionReturn(kOk);
}

// M for an application: not there yet where the KSP solved as a whole before. Where the daemon
// refused the matrix there is none, and the result is infinite, which PETSc's KSPs take for that.
PetscErrorCode Need(PC pc, bool* is_there) {
  PetscFunctionBegin;
  PcData& data = Data(pc);
  if (!data.m.is_set() && pc->failedreason == PC_NOERROR) PetscCall(Build(pc));
  *is_there = data.m.is_set();
  PetscFunctionReturn(kOk);
}

PetscErrorCode ApplyBy(PC pc, Vec x, Vec y, PetscErrorCode (AppliedMatrix::*apply)(Vec, Vec)) {
  PetscFunctionBegin;
  bool is_there = false;
  PetscCall(Need(pc, &is_there));
  PetscCall(PetscLogEventBegin(LogEvents().apply, pc, x, y, nullptr));
  if (is_there) {
    PetscCall((Data(pc).m.*apply)(x, y));
  } else {
    PetscCall(VecSetInf(y));
  }
  PetscCall(PetscLogEventEnd(LogEvents().apply, pc, x, y, nullptr));
  PetscFunctionReturn(kOk);
}

PetscErrorCode Apply(PC pc, Vec x, Vec y) {
  PetscFunctionBegin;
  PetscCall(ApplyBy(pc, x, y, &AppliedMatrix::Apply));
  PetscFunctionReturn(kOk);
}

PetscErrorCode ApplyTranspose(PC pc, Vec x, Vec y) {
  PetscFunctionBegin;
  PetscCall(ApplyBy(pc, x, y, &AppliedMatrix::ApplyTranspose));
  PetscFunctionReturn(kOk);
}

PetscErrorCode MatApply(PC pc, Mat x, Mat y) {
  PetscFunctionBegin;
  bool is_there = false;
  PetscCall(Need(pc, &is_there));
  PetscCheck(is_there, CommOf(pc), PETSC_ERR_ARG_WRONGSTATE,
             "spaid: there is no M to apply, as the daemon refused the matrix; "
             "-ksp_error_if_not_converged has its sentence");
  PetscCall(PetscLogEventBegin(LogEvents().apply, pc, x, y, nullptr));
  PetscCall(Data(pc).m.Apply(x, y));
  PetscCall(PetscLogEventEnd(LogEvents().apply, pc, x, y, nullptr));
  PetscFunctionReturn(kOk);
}

// Methods that want M symmetric.
bool WantsSymmetry(const char* type) {
  static constexpr const char* kTypes[] = {
      KSPCG,      KSPGROPPCG, KSPPIPECG,  KSPPIPECGRR, KSPPIPELCG, KSPPIPEPRCG,
      KSPPIPECG2, KSPFCG,     KSPPIPEFCG, KSPCR,       KSPPIPECR,  KSPMINRES,
      KSPSYMMLQ,  KSPNASH,    KSPSTCG,    KSPGLTR,     KSPQCG};
  return type != nullptr &&
         std::any_of(std::begin(kTypes), std::end(kTypes),
                     [type](const char* one) { return std::strcmp(one, type) == 0; });
}

// The first place where a PC sees its KSP, before the first iteration.
PetscErrorCode PreSolve(PC pc, KSP ksp, Vec, Vec) {
  PetscFunctionBegin;
  const PcData& data = Data(pc);
  KSPType type = nullptr;
  PetscCall(KSPGetType(ksp, &type));
  PetscCheck(
      data.for_cg || !data.m.is_set() || !WantsSymmetry(type), CommOf(pc), PETSC_ERR_SUP,
      "spaid: -ksp_type %s needs a symmetric M, and that of %s is not, even where A is; take "
      "-pc_spaid_engine fsai, afsai or jacobi, or -ksp_type bcgs or gmres",
      type, data.engine.c_str());
  PetscFunctionReturn(kOk);
}

PetscErrorCode PostSolve(PC pc, KSP ksp, Vec, Vec) {
  PetscFunctionBegin;
  PcData& data = Data(pc);
  KSPConvergedReason reason = KSP_CONVERGED_ITERATING;
  PetscCall(KSPGetIterationNumber(ksp, &data.last_iterations));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  data.last_converged = reason > 0;
  if (data.last_converged && data.first_iterations == 0) {
    data.first_iterations = std::max<PetscInt>(1, data.last_iterations);
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode Reset(PC pc) {
  PetscFunctionBegin;
  PcData& data = Data(pc);
  PetscCall(data.m.Reset());
  PetscCall(data.remote.Reset());
  data.first_iterations = data.last_iterations = 0;
  PetscFunctionReturn(kOk);
}

// Is called by PCSetCoordinates: the nodes of this rank, the coordinates of each together.
PetscErrorCode SetCoordinates(PC pc, PetscInt dimension, PetscInt nodes, PetscReal* coordinates) {
  PetscFunctionBegin;
  const MPI_Comm comm = CommOf(pc);
  PetscMPIInt rank = 0, size = 0, mine = 0;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(PetscMPIIntCast(dimension * nodes, &mine));
  std::vector<PetscMPIInt> counts(static_cast<size_t>(size)), begins(counts.size() + 1);
  PetscCallMPI(MPI_Allgather(&mine, 1, MPI_INT, counts.data(), 1, MPI_INT, comm));
  std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
  std::vector<double> all(rank == 0 ? static_cast<size_t>(begins.back()) : 0);
  PetscCallMPI(MPI_Gatherv(coordinates, mine, MPIU_REAL, all.data(), counts.data(), begins.data(),
                           MPIU_REAL, 0, comm));
  Data(pc).remote.SetCoordinates(static_cast<int>(dimension), std::move(all));
  PetscFunctionReturn(kOk);
}

auto Connection(const ClientOptions& client) {
  return std::tie(client.address, client.ca_file, client.certificate_file, client.key_file,
                  client.token, client.tenant, client.local_socket);
}

PetscErrorCode SetFromOptions(PC pc, PetscOptionItems* PetscOptionsObject) {
  PetscFunctionBegin;
  PcSettings& settings = Data(pc).settings;
  const ClientOptions before = settings.options.client;
  PetscOptionsHeadBegin(PetscOptionsObject, "spaid options");
  PetscCall(petsc::SetFromOptions(PetscOptionsObject, &settings));
  PetscOptionsHeadEnd();
  // Another daemon has nothing of this one's.
  if (Connection(before) != Connection(settings.options.client)) PetscCall(Reset(pc));
  PetscFunctionReturn(kOk);
}

PetscErrorCode ViewM(PC pc, const BuildResult& built, PetscViewer viewer) {
  PetscFunctionBegin;
  const PcData& data = Data(pc);
  const PreconditionerInfo& info = built.preconditioner;
  const Timings& up = data.remote.upload();
  PetscCall(PetscViewerASCIIPrintf(
      viewer, "engine: %s%s%s\n", std::string(Name(info.spec.engine)).c_str(),
      info.choice_reason.empty() ? "" : ", ", info.choice_reason.c_str()));
  PetscCall(PetscViewerASCIIPrintf(viewer, "matrix: %s\n", info.matrix.c_str()));
  PetscCall(PetscViewerASCIIPrintf(viewer, "preconditioner: %s, %s, on %s\n", info.name.c_str(),
                                   info.is_factor ? "M = G^T G" : "M explicit",
                                   info.device.c_str()));
  PetscCall(PetscViewerASCIIPrintf(viewer, "entries: %lld, density %.3g\n",
                                   static_cast<long long>(info.nnz), info.quality.density));
  if (info.quality.measured()) {
    PetscCall(
        PetscViewerASCIIPrintf(viewer, "||A M - I||_F: %.6g\n", info.quality.residual_frobenius));
  }
  PetscCall(PetscViewerASCIIPrintf(
      viewer,
      "set-up: %.3g ms upload, %.3g ms build%s, %.3g ms download; %lld bytes up, %lld down\n",
      up.upload_ms, built.timings.setup_ms(),
      built.timings.reused    ? " (reused: it was there)"
      : built.timings.rebuild ? " (rebuild: its plan was there)"
                              : "",
      built.timings.download_ms, static_cast<long long>(up.bytes_up),
      static_cast<long long>(built.timings.bytes_down)));
  for (const std::string& warning : info.quality.warnings) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "warning: %s\n", warning.c_str()));
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode View(PC pc, PetscViewer viewer) {
  PetscFunctionBegin;
  const PcData& data = Data(pc);
  PetscBool is_ascii = PETSC_FALSE;
  PetscCall(
      PetscObjectTypeCompare(reinterpret_cast<PetscObject>(viewer), PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(kOk);
  PetscCall(PetscViewerASCIIPrintf(viewer, "  daemon: %s\n",
                                   data.settings.options.client.address.c_str()));
  PetscCall(PetscViewerASCIIPushTab(viewer));
  if (const BuildResult* built = data.remote.built(); built != nullptr && data.m.is_set()) {
    PetscCall(ViewM(pc, *built, viewer));
  } else {
    PetscCall(
        PetscViewerASCIIPrintf(viewer, "engine: %s; no M here\n",
                               std::string(Name(data.settings.options.solve.engine)).c_str()));
  }
  PetscCall(PetscViewerASCIIPopTab(viewer));
  PetscFunctionReturn(kOk);
}

PetscErrorCode Destroy(PC pc) {
  PetscFunctionBegin;
  PetscCall(Reset(pc));
  PetscCall(
      PetscObjectComposeFunction(reinterpret_cast<PetscObject>(pc), "PCSetCoordinates_C", nullptr));
  delete static_cast<PcData*>(pc->data);
  pc->data = nullptr;
  PetscFunctionReturn(kOk);
}

}  // namespace

PcData* DataOf(PC pc) { return pc->ops->setup == SetUp ? static_cast<PcData*>(pc->data) : nullptr; }

PetscErrorCode CreatePc(PC pc) {
  PetscFunctionBegin;
  PetscCallCXX(pc->data = new PcData);
  pc->ops->setup = SetUp;
  pc->ops->apply = Apply;
  pc->ops->applytranspose = ApplyTranspose;
  pc->ops->matapply = MatApply;
  pc->ops->presolve = PreSolve;
  pc->ops->postsolve = PostSolve;
  pc->ops->setfromoptions = SetFromOptions;
  pc->ops->view = View;
  pc->ops->reset = Reset;
  pc->ops->destroy = Destroy;
  PetscCall(PetscObjectComposeFunction(reinterpret_cast<PetscObject>(pc), "PCSetCoordinates_C",
                                       SetCoordinates));
  PetscFunctionReturn(kOk);
}

}  // namespace spaid::petsc
