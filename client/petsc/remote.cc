#include "client/petsc/remote.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stop_token>
#include <utility>

namespace spaid::petsc {
namespace {

// The daemon knows what it cannot do with this matrix; all else ends the program.
bool IsRefusal(const Error& error) { return error.code == Code::kFailedPrecondition; }

PetscErrorCode RaiseUnlessRefused(MPI_Comm comm, std::optional<Error> error,
                                  std::optional<Error>* refused) {
  PetscFunctionBegin;
  refused->reset();
  if (error && !IsRefusal(*error)) PetscCall(Raise(comm, *error));
  if (error) PetscCall(PetscInfo(nullptr, "spaid refused: %s\n", error->message.c_str()));
  *refused = std::move(error);
  PetscFunctionReturn(kOk);
}

std::optional<Error> CheckFits(const CscMatrix& m) {
  if (m.row_idx.size() <= static_cast<size_t>(PETSC_MAX_INT)) return std::nullopt;
  Error error;
  error.code = Code::kResourceExhausted;
  error.reason = "INDEX_OUT_OF_RANGE";
  error.message =
      "M has " + std::to_string(m.row_idx.size()) +
      " entries, more than a PetscInt counts; choose a sparser one, a PETSc with 64-bit "
      "indices, or -ksp_type spaid, which leaves M in the daemon";
  return error;
}

// Makes room for `count` elements, unless there is.
template <class T>
std::optional<Error> Fit(Client& client, size_t count, SharedArray<T>* array) {
  if (array->size() == count) return std::nullopt;
  *array = {};
  auto made = client.Allocate<T>(static_cast<int64_t>(count));
  if (!made.ok()) return made.error();
  *array = *std::move(made);
  return std::nullopt;
}

template <class T, class From>
std::optional<Error> CopyTo(Client& client, std::span<const From> from, SharedArray<T>* to) {
  if (auto error = Fit(client, from.size(), to)) return error;
  std::copy(from.begin(), from.end(), to->begin());
  return std::nullopt;
}

}  // namespace

Events& LogEvents() {
  static Events events;
  return events;
}

PetscErrorCode RegisterEvents() {
  PetscFunctionBegin;
  PetscClassId id = 0;
  PetscCall(PetscClassIdRegister("spaid", &id));
  Events& events = LogEvents();
  PetscCall(PetscLogEventRegister("SpaidUpload", id, &events.upload));
  PetscCall(PetscLogEventRegister("SpaidBuild", id, &events.build));
  PetscCall(PetscLogEventRegister("SpaidApply", id, &events.apply));
  PetscCall(PetscLogEventRegister("SpaidSolve", id, &events.solve));
  PetscFunctionReturn(kOk);
}

PetscErrorCode Remote::Reset() {
  PetscFunctionBegin;
  PetscCall(whole_.Reset());
  system_.reset();
  client_.reset();
  shared_ = {};
  upload_ = {};
  built_.reset();
  solved_.reset();
  PetscFunctionReturn(kOk);
}

PetscErrorCode Remote::Upload(Mat a, const PcSettings& settings) {
  PetscFunctionBegin;
  const MPI_Comm comm = PetscObjectComm(reinterpret_cast<PetscObject>(a));
  Change change = Change::kAll;
  PetscCall(whole_.Compare(a, &change));
  if (change == Change::kNothing) PetscFunctionReturn(kOk);
  PetscMPIInt size = 0;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCheck(size == 1 || settings.parallel == Parallel::kGather, comm, PETSC_ERR_SUP,
             "spaid: the matrix lies on %d ranks, and -pc_spaid_parallel is error; gather it "
             "(-pc_spaid_parallel gather), or let each rank have its own block: -pc_type asm "
             "-sub_pc_type spaid",
             static_cast<int>(size));
  PetscCall(PetscLogEventBegin(LogEvents().upload, a, nullptr, nullptr, nullptr));
  PetscCall(whole_.Set(a, settings.gather_bytes));
  std::optional<Error> error;
  PetscCall(RunOnRoot(
      comm, [&] { return Hand(change, settings); }, &error));
  PetscCall(PetscLogEventEnd(LogEvents().upload, a, nullptr, nullptr, nullptr));
  if (error) {
    PetscCall(whole_.Reset());
    PetscCall(Raise(comm, *error));
  }
  PetscFunctionReturn(kOk);
}

std::optional<Error> Remote::Hand(Change change, const PcSettings& settings) {
  // Connects here, not when the library is loaded: gRPC does not outlive a fork.
  if (!client_) client_ = std::make_unique<Client>(settings.options.client);
  CscView view = whole_.view();
  if (!settings.options.client.local_socket.empty()) {
    if (auto error = Share(change, &view)) return error;
  }
  if (!system_) {
    system_.emplace(*client_, view, settings.options.solve);
  } else if (auto error = change == Change::kValues ? system_->SetValues(view.values)
                                                    : system_->SetMatrix(view)) {
    return error;
  }
  upload_ = {};
  return system_->Upload(settings.options.call, &upload_);
}

std::optional<Error> Remote::Share(Change change, CscView* view) {
  if (change == Change::kAll) {
    if (auto error = CopyTo(*client_, view->col_ptr_32, &shared_.ptr)) return error;
    if (auto error = CopyTo(*client_, view->col_ptr, &shared_.wide_ptr)) return error;
    if (auto error = CopyTo(*client_, view->row_idx, &shared_.idx)) return error;
  }
  if (auto error = CopyTo(*client_, view->values, &shared_.values)) return error;
  view->col_ptr_32 = shared_.ptr.span();
  view->col_ptr = shared_.wide_ptr.span();
  view->row_idx = shared_.idx.span();
  view->values = shared_.values.span();
  return std::nullopt;
}

PetscErrorCode Remote::Build(MPI_Comm comm, const PcSettings& settings,
                             std::optional<Error>* refused) {
  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(LogEvents().build, nullptr, nullptr, nullptr, nullptr));
  std::optional<Error> error;
  const auto build = [&]() -> std::optional<Error> {
    system_->SetOptions(settings.options.solve, {});
    const CscMatrix* known = built_ && built_->m ? &*built_->m : nullptr;
    auto built = system_->Build(/*fetch_result=*/true, settings.options.call, known);
    if (!built.ok()) return built.error();
    built_ = *std::move(built);
    return CheckFits(*built_->m);
  };
  PetscCall(RunOnRoot(comm, build, &error));
  PetscCall(PetscLogEventEnd(LogEvents().build, nullptr, nullptr, nullptr, nullptr));
  PetscCall(RaiseUnlessRefused(comm, std::move(error), refused));
  PetscFunctionReturn(kOk);
}

PetscErrorCode Remote::Solve(MPI_Comm comm, const PcSettings& settings, const Task& task,
                             const TakeResidual& take, std::optional<Error>* refused) {
  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(LogEvents().solve, nullptr, nullptr, nullptr, nullptr));
  std::optional<Error> error;
  const auto solve = [&](const TakeResidual& tell) -> std::optional<Error> {
    SolveOptions options = task.options;
    options.engine = settings.options.solve.engine;
    options.spec = settings.options.solve.spec;
    options.m_precision = settings.options.solve.m_precision;
    options.solution = {task.x, task.count};
    system_->SetOptions(std::move(options), task.reuse);
    CallOptions call = settings.options.call;
    std::stop_source stop;
    call.stop = stop.get_token();
    call.on_progress = [&](const Progress& progress) {
      for (const Residual& residual : progress.residuals) {
        if (residual.rhs != 0 || stop.stop_requested()) continue;
        if (tell(residual.iteration, residual.relative_residual)) stop.request_stop();
      }
    };
    const std::span<const double> guess(task.guess, task.guess ? task.count : 0);
    auto solved = system_->Solve({task.b, task.count}, guess, call);
    if (!solved.ok()) return solved.error();
    solved_ = *std::move(solved);
    return std::nullopt;
  };
  PetscCall(RunOnRoot(comm, solve, take, &error));
  PetscCall(PetscLogEventEnd(LogEvents().solve, nullptr, nullptr, nullptr, nullptr));
  PetscCall(RaiseUnlessRefused(comm, std::move(error), refused));
  PetscFunctionReturn(kOk);
}

}  // namespace spaid::petsc
