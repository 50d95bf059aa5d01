// Bounds on multigrid before there is any.
#pragma once

#include <cstdint>

#include "kernels/amg/amg.h"
#include "kernels/base/build_work.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

struct AmgCounts {
  int64_t host_bytes = 0;      // at the peak of a build, hierarchy and plan included
  int64_t nnz = 0;             // AmgHierarchy::nnz()
  int block = 1, vectors = 1;  // unknowns of a node, near-null vectors
  BuildWork work;
};

// Upper bounds from the pattern of `a`, square, by its size alone but for the largest column and
// DetectBlockSize: entries of all levels come to max_operator_complexity times those of A, and a
// row of P to 12 aggregates. `near_null`: given vectors, or rigid body modes; 0: a unit vector for
// each unknown of a node. `work` is what is usual, no bound: of kAuto as of a smoother by a
// diagonal, `gathered` rows of aFSAI or static SPAI else. O(nnz). Thread-safe.
AmgCounts EstimateAmg(const PatternView& a, int near_null, const AmgOptions& options,
                      int threads = 1);

// Returns the entries of all levels that are usual (AmgHierarchy::nnz()), no bound: of grids and
// meshes in two and three dimensions 1.4 to 2.9 times those of A, and where FSAI smooths, as
// options.smoother says, which is not kAuto, some 8 more in a row of each of its two factors; by
// static SPAI as many once more.
double UsualAmgEntries(int64_t n, int64_t nnz, const AmgOptions& options);

// Returns whether a device may set that up (amg_cuda.h): by aggregates, of nodes whose size divides
// n. Thread-safe.
bool MaySetUpOnDevice(int64_t n, const NearNullInput& near_null, const AmgOptions& options);

// Returns the bytes on a device at once, at most, of such a set-up, or one of other values by its
// plan, with what it leaves there; the second, of one whose products are made in waves, which a
// device with less room than the first has. `block`, `vectors`: EstimateAmg's. About three times
// what is taken of nodes of one unknown.
int64_t SetUpDeviceBytes(int64_t n, int64_t nnz, int block, int vectors, const AmgOptions& options);
int64_t LeastSetUpDeviceBytes(int64_t n, int64_t nnz, int block, int vectors,
                              const AmgOptions& options);

// Bytes that the gather tables of static SPAI as a smoother may take there, of a level of so many
// entries: more are made in waves. The second: all that M takes while it is made, but for itself.
int64_t SpaiTableBytes(int64_t nnz);
int64_t SpaiScratchBytes(int64_t n, int64_t nnz);

}  // namespace spaid::kernels
