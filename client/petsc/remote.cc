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
  near_null_ = {};
  near_null_count_ = 0;
  new_vectors_ = dimension_ > 0;  // coordinates are the program's, who sets them once
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
  if (change == Change::kNothing && !new_vectors_) PetscFunctionReturn(kOk);
  PetscMPIInt size = 0;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCheck(size == 1 || settings.parallel == Parallel::kGather, comm, PETSC_ERR_SUP,
             "spaid: the matrix lies on %d ranks, and -pc_spaid_parallel is error; gather it "
             "(-pc_spaid_parallel gather), or let each rank have its own block: -pc_type asm "
             "-sub_pc_type spaid",
             static_cast<int>(size));
  PetscCall(PetscLogEventBegin(LogEvents().upload, a, nullptr, nullptr, nullptr));
  PetscCall(whole_.Set(a, settings.gather_bytes));
  std::vector<double> near_null;
  int count = 0;
  if (settings.options.solve.engine == Engine::kAmg) {
    PetscCall(GatherNearNull(a, &near_null, &count));
  }
  if (count != near_null_count_ || near_null != near_null_) {
    near_null_ = std::move(near_null);
    near_null_count_ = count;
    new_vectors_ = true;
  }
  std::optional<Error> error;
  PetscCall(RunOnRoot(
      comm, [&] { return Hand(change, settings); }, &error));
  new_vectors_ = error.has_value();
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
  if (new_vectors_) {
    if (near_null_count_ > 0) {
      system_->SetNearNullSpace(near_null_count_, near_null_);
    } else {
      system_->SetCoordinates(dimension_, coordinates_);
    }
  }
  upload_ = {};
  return system_->Upload(settings.options.call, &upload_);
}

void Remote::SetCoordinates(int dimension, std::vector<double> coordinates) {
  dimension_ = dimension;
  coordinates_.resize(coordinates.size());
  const size_t d = static_cast<size_t>(std::max(1, dimension)), nodes = coordinates.size() / d;
  for (size_t k = 0; k < nodes * d; ++k) coordinates_[k % d * nodes + k / d] = coordinates[k];
  new_vectors_ = true;
}

PetscErrorCode Remote::GatherNearNull(Mat a, std::vector<double>* vectors, int* count) const {
  PetscFunctionBegin;
  MatNullSpace space = nullptr;
  PetscCall(MatGetNearNullSpace(a, &space));
  if (space == nullptr) PetscFunctionReturn(kOk);
  PetscBool has_constants = PETSC_FALSE;
  PetscInt given = 0;
  const Vec* of = nullptr;
  PetscCall(MatNullSpaceGetVecs(space, &has_constants, &given, &of));
  PetscInt n = 0;
  PetscCall(MatGetSize(a, &n, nullptr));
  PetscMPIInt rank = 0;
  PetscCallMPI(MPI_Comm_rank(PetscObjectComm(reinterpret_cast<PetscObject>(a)), &rank));
  if (has_constants && rank == 0) vectors->assign(static_cast<size_t>(n), 1.0);
  for (PetscInt j = 0; j < given; ++j) {
    VecScatter scatter = nullptr;
    Vec whole = nullptr;
    PetscCall(VecScatterCreateToZero(of[j], &scatter, &whole));
    PetscCall(VecScatterBegin(scatter, of[j], whole, INSERT_VALUES, SCATTER_FORWARD));
    PetscCall(VecScatterEnd(scatter, of[j], whole, INSERT_VALUES, SCATTER_FORWARD));
    PetscInt size = 0;
    const PetscScalar* values = nullptr;
    PetscCall(VecGetLocalSize(whole, &size));
    PetscCall(VecGetArrayRead(whole, &values));
    vectors->insert(vectors->end(), values, values + size);
    PetscCall(VecRestoreArrayRead(whole, &values));
    PetscCall(VecDestroy(&whole));
    PetscCall(VecScatterDestroy(&scatter));
  }
  *count = static_cast<int>(given) + (has_constants ? 1 : 0);
  PetscFunctionReturn(kOk);
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
