#include "client/petsc/root.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace spaid::petsc {
namespace {

// One message from rank 0: a residual, or the end of the work.
struct News {
  int64_t iteration = 0;
  double norm = 0;
  int32_t ended = 0;
  int32_t failed = 0;
};

PetscErrorCode Broadcast(MPI_Comm comm, void* bytes, size_t count) {
  PetscFunctionBegin;
  PetscMPIInt size = 0;
  PetscCall(PetscMPIIntCast(static_cast<PetscInt>(count), &size));
  PetscCallMPI(MPI_Bcast(bytes, size, MPI_BYTE, 0, comm));
  PetscFunctionReturn(kOk);
}

// Sleeps from 50 µs to 2 ms between two looks.
PetscErrorCode Await(MPI_Request* request) {
  PetscFunctionBegin;
  timespec pause{.tv_sec = 0, .tv_nsec = 50'000};
  for (int there = 0;;) {
    PetscCallMPI(MPI_Test(request, &there, MPI_STATUS_IGNORE));
    if (there) break;
    nanosleep(&pause, nullptr);
    pause.tv_nsec = std::min(2 * pause.tv_nsec, 2'000'000L);
  }
  PetscFunctionReturn(kOk);
}

PetscErrorCode Exchange(MPI_Comm comm, News* news) {
  PetscFunctionBegin;
  MPI_Request request = MPI_REQUEST_NULL;
  PetscCallMPI(MPI_Ibcast(news, static_cast<int>(sizeof(News)), MPI_BYTE, 0, comm, &request));
  PetscCall(Await(&request));
  PetscFunctionReturn(kOk);
}

PetscErrorCode BroadcastText(MPI_Comm comm, std::string* text) {
  PetscFunctionBegin;
  auto length = static_cast<uint64_t>(text->size());
  PetscCall(Broadcast(comm, &length, sizeof(length)));
  text->resize(length);
  PetscCall(Broadcast(comm, text->data(), length));
  PetscFunctionReturn(kOk);
}

std::optional<Error> Guarded(const RootWork& work, const TakeResidual& tell) {
  try {
    return work(tell);
  } catch (const std::exception& failure) {
    Error error;
    error.code = Code::kResourceExhausted;
    error.reason = "OUT_OF_MEMORY";
    error.message = std::string("this process ran out of something: ") + failure.what();
    return error;
  }
}

}  // namespace

PetscErrorCode RunOnRoot(MPI_Comm comm, const RootWork& work, const TakeResidual& take,
                         std::optional<Error>* error) {
  PetscFunctionBegin;
  PetscMPIInt rank = 0, size = 0;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscErrorCode failed = kOk;
  error->reset();
  const auto hand_out = [&](const News& news) -> PetscErrorCode {
    News copy = news;
    if (size > 1) PetscCall(Exchange(comm, &copy));
    if (!copy.ended && !failed) {
      failed = take(static_cast<PetscInt>(copy.iteration), copy.norm);
    }
    return failed;
  };
  if (rank == 0) {
    *error = Guarded(work, [&](PetscInt iteration, PetscReal norm) {
      return hand_out({.iteration = iteration, .norm = norm});
    });
  }
  if (size > 1) {
    News news{.ended = 1, .failed = error->has_value()};
    while (rank != 0) {
      PetscCall(Exchange(comm, &news));
      if (news.ended) break;
      if (!failed) failed = take(static_cast<PetscInt>(news.iteration), news.norm);
    }
    if (rank == 0) PetscCall(Exchange(comm, &news));
    if (news.failed) {
      Error told = error->value_or(Error{});
      auto code = static_cast<int32_t>(told.code);
      PetscCall(Broadcast(comm, &code, sizeof(code)));
      told.code = static_cast<Code>(code);
      PetscCall(BroadcastText(comm, &told.reason));
      PetscCall(BroadcastText(comm, &told.message));
      *error = std::move(told);
    }
  }
  PetscCall(failed);
  PetscFunctionReturn(kOk);
}

PetscErrorCode RunOnRoot(MPI_Comm comm, const std::function<std::optional<Error>()>& work,
                         std::optional<Error>* error) {
  return RunOnRoot(
      comm, [&](const TakeResidual&) { return work(); }, [](PetscInt, PetscReal) { return kOk; },
      error);
}

PetscErrorCode Raise(MPI_Comm comm, const Error& error) {
  SETERRQ(comm, PETSC_ERR_LIB, "spaid: %s%s%s%s", error.message.c_str(),
          error.reason.empty() ? "" : " (", error.reason.c_str(), error.reason.empty() ? "" : ")");
}

}  // namespace spaid::petsc
