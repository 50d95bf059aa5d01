// How ranks come to one result: errors, stops and small lists told to all.
//
// All functions here are collective over `comm`: each rank calls them, in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::mpi {

int RankOf(MPI_Comm comm);
int RanksOf(MPI_Comm comm);

// Returns the Status of the lowest rank that has an error, the same on all; OK where none has.
Status Agree(MPI_Comm comm, const Status& own);

// Runs work() on each rank, which communicates nothing and may run out of memory, and agrees on its
// Status.
template <class Work>
Status Locally(MPI_Comm comm, std::string_view what, const Work& work) {
  return Agree(comm, GuardMemory(what, [&]() -> Status { return work(); }));
}

// The Status of a stop that any rank was told of. A rank may have a token that never stops.
Status AgreeStop(MPI_Comm comm, const StopToken& stop, std::string_view what);

// Runs a long work(context) on each rank, which communicates nothing, on a thread of its own, while
// this one tells all ranks of a stop of any within a few hundredths of a second, and sums progress:
// OnProgress is called on this thread with the units of all ranks. Returns as Agree does.
Status Watched(MPI_Comm comm, const Context& context, Stage stage,
               const std::function<Status(const Context& context)>& work);

int64_t SumOf(MPI_Comm comm, int64_t own);
int64_t SumBefore(MPI_Comm comm, int64_t own);  // of the lower ranks

// [r]: the first of what rank r owns, where each rank has `own` and ranks follow each other;
// [ranks]: the sum.
Array<int64_t> BeginsOf(MPI_Comm comm, int64_t own);

namespace internal {
void ExchangeBytes(MPI_Comm comm, const void* const* to, const int64_t* counts, int64_t size,
                   Array<std::byte>& from, Array<int64_t>& from_counts);
}  // namespace internal

// Sends to[r] to each rank r. Returns what came, by rising rank. T: trivially copyable.
template <class T>
Array<T> Exchange(MPI_Comm comm, const std::vector<Array<T>>& to) {
  std::vector<const void*> data;
  Array<int64_t> counts, from_counts;
  for (const Array<T>& part : to) {
    data.push_back(part.data());
    counts.push_back(static_cast<int64_t>(part.size()));
  }
  Array<std::byte> bytes;
  internal::ExchangeBytes(comm, data.data(), counts.data(), sizeof(T), bytes, from_counts);
  Array<T> from(bytes.size() / sizeof(T));
  if (!from.empty())
    std::copy_n(reinterpret_cast<const T*>(bytes.data()), from.size(), from.data());
  return from;
}

}  // namespace spaid::kernels::mpi
