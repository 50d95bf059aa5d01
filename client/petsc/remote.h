// The matrix of one PC in the daemon: rank 0 has the connection, all ranks call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/spaid/system.h"
#include "client/petsc/petsc.h"
#include "client/petsc/root.h"
#include "client/petsc/settings.h"
#include "client/petsc/whole_matrix.h"

namespace spaid::petsc {

class Remote {
 public:
  PetscErrorCode Compare(Mat a, Change* change) const { return whole_.Compare(a, change); }

  // Brings `a` to rank 0 and to the daemon: all of it, its values alone, or nothing, as it changed.
  // An error of the call is raised, the same on all ranks. Collective, as all of these.
  PetscErrorCode Upload(Mat a, const PcSettings& settings);
  // Coordinates of the nodes of the next matrix, all of which rank 0 has, those of a node together;
  // `dimension` 0: none. For multigrid, where no near-null space is attached to the matrix.
  void SetCoordinates(int dimension, std::vector<double> coordinates);
  // Builds M of it. A matrix that the daemon refuses to build M of is `refused`; other errors are
  // raised.
  PetscErrorCode Build(MPI_Comm comm, const PcSettings& settings, std::optional<Error>* refused);
  // Solves for `count` right-hand sides, which rank 0 has with the places of guess (or null) and
  // solution; `result` is rank 0's.
  struct Task {
    const PetscScalar* b = nullptr;
    const PetscScalar* guess = nullptr;
    PetscScalar* x = nullptr;
    size_t count = 0;
    SolveOptions options = {};
    ReusePolicy reuse = {};
  };
  PetscErrorCode Solve(MPI_Comm comm, const PcSettings& settings, const Task& task,
                       const TakeResidual& take, std::optional<Error>* refused);
  // Forgets matrix, M and connection.
  PetscErrorCode Reset();

  // Rank 0: of the last Build; null before.
  const BuildResult* built() const { return built_ ? &*built_ : nullptr; }
  // Rank 0: of the last Solve; null before.
  const SolveResult* solved() const { return solved_ ? &*solved_ : nullptr; }
  const Timings& upload() const { return upload_; }

 private:
  // Arrays that a daemon on the same host reads where they lie.
  struct Shared {
    SharedArray<int32_t> ptr, idx;
    SharedArray<int64_t> wide_ptr;
    SharedArray<double> values;
  };
  std::optional<Error> Hand(Change change, const PcSettings& settings);
  // Rank 0 has the near-null space that the program has attached to `a`, if it has.
  PetscErrorCode GatherNearNull(Mat a, std::vector<double>* vectors, int* count) const;
  std::optional<Error> Share(Change change, CscView* view);

  WholeMatrix whole_;
  std::unique_ptr<Client> client_;
  std::optional<System> system_;
  Shared shared_;
  // Rank 0: for multigrid, by columns; none where the count is 0.
  std::vector<double> near_null_, coordinates_;
  int near_null_count_ = 0, dimension_ = 0;
  bool new_vectors_ = false;  // all ranks between calls: the system does not know them
  Timings upload_;
  std::optional<BuildResult> built_;
  std::optional<SolveResult> solved_;
};

// Log stages of `-log_view`, made when the library is loaded.
struct Events {
  PetscLogEvent upload = 0, build = 0, apply = 0, solve = 0;
};
Events& LogEvents();
PetscErrorCode RegisterEvents();

}  // namespace spaid::petsc
