// How ranks come to one result: errors, stops and small lists told to all.
//
// All functions here are collective over `comm`: each rank calls them, in the same order, and no
// other message is on its way there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/option_range.h"
#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/sparse/hash.h"
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

[[noreturn]] void EndAll(std::string_view what);  // out of memory

// Runs a collective work(). Where memory runs out between the steps that are agreed upon, others
// wait for this rank already: the program ends on all of them, and says what it was at.
template <class Work>
auto OrEndAll(std::string_view what, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    EndAll(what);
  }
}

// The Status of a stop that any rank was told of. A rank may have a token that never stops.
Status AgreeStop(MPI_Comm comm, const StopToken& stop, std::string_view what);

// Runs a long work(context) on each rank, which communicates nothing, on a thread of its own, while
// this one tells all ranks of a stop of any within a few hundredths of a second, and sums progress:
// OnProgress is called on this thread with the units of all ranks. Returns as Agree does.
Status Watched(MPI_Comm comm, const Context& context, Stage stage,
               const std::function<Status(const Context& context)>& work);

// INVALID_ARGUMENT/OPTIONS_DIFFER on all ranks where `hash` is not the same on all.
Status AgreeHash(MPI_Comm comm, uint64_t hash);

// The same of options, and of whether what may be null is: ranks with other ones would go other
// ways, and wait for each other for ever.
template <class Options>
Status AgreeOptions(MPI_Comm comm, const Options& options, bool given) {
  uint64_t hash = HashMix(0, given);
  Options::Fields(options, [&](const char*, const auto& member, const OptionRange&) {
    double value = -1;
    if constexpr (requires { member.has_value(); }) {
      if (member) value = static_cast<double>(*member);
    } else {
      value = static_cast<double>(member);
    }
    hash = HashMix(hash, std::bit_cast<uint64_t>(value));
  });
  return AgreeHash(comm, hash);
}

int64_t SumOf(MPI_Comm comm, int64_t own);
int64_t SumBefore(MPI_Comm comm, int64_t own);  // of the lower ranks

// [r]: the first of what rank r owns, where each rank has `own` and ranks follow each other;
// [ranks]: the sum.
Array<int64_t> BeginsOf(MPI_Comm comm, int64_t own);

namespace internal {
// counts[r]: what rank r has for this one of what each rank has for each.
Array<int64_t> ExchangeCounts(MPI_Comm comm, const Array<int64_t>& counts);
// Sends and receives arrays of so many bytes; nothing of this rank's own.
void ExchangeBytes(MPI_Comm comm, std::span<const std::span<const std::byte>> to,
                   std::span<const std::span<std::byte>> from);
}  // namespace internal

// Sends to[r] to each rank r; returns what each rank has sent here. T: trivially copyable.
template <class T>
std::vector<Array<T>> Exchange(MPI_Comm comm, std::vector<Array<T>> to) {
  Array<int64_t> counts;
  for (const Array<T>& part : to) counts.push_back(static_cast<int64_t>(part.size()));
  counts = internal::ExchangeCounts(comm, counts);
  std::vector<Array<T>> from(to.size());
  const auto own = static_cast<size_t>(RankOf(comm));
  from[own] = std::move(to[own]);
  std::vector<std::span<const std::byte>> sent;
  std::vector<std::span<std::byte>> received;
  for (size_t r = 0; r < to.size(); ++r) {
    if (r != own) from[r].resize(static_cast<size_t>(counts[r]));
    sent.push_back(r != own ? std::as_bytes(std::span(to[r])) : std::span<const std::byte>());
    received.push_back(r != own ? std::as_writable_bytes(std::span(from[r]))
                                : std::span<std::byte>());
  }
  internal::ExchangeBytes(comm, sent, received);
  return from;
}

// The same, one after the other by rising rank.
template <class T>
Array<T> ExchangeAll(MPI_Comm comm, std::vector<Array<T>> to) {
  Array<T> all;
  for (const Array<T>& part : Exchange(comm, std::move(to))) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Sends shares[r] of rank 0's to each rank r, straight from where they lie. Empty elsewhere.
template <class T>
Array<T> TakeShare(MPI_Comm comm, const std::vector<std::span<const T>>& shares) {
  const auto ranks = static_cast<size_t>(RanksOf(comm)), own = static_cast<size_t>(RankOf(comm));
  std::vector<std::span<const std::byte>> to(ranks);
  std::vector<std::span<std::byte>> from(ranks);
  Array<int64_t> counts(ranks, 0);
  for (size_t r = 0; r < shares.size(); ++r) counts[r] = std::ssize(shares[r]);
  counts = internal::ExchangeCounts(comm, counts);
  Array<T> share(static_cast<size_t>(counts[0]));
  if (own == 0) {
    std::ranges::copy(shares[0], share.begin());
    for (size_t r = 1; r < ranks; ++r) to[r] = std::as_bytes(shares[r]);
  } else {
    from[0] = std::as_writable_bytes(std::span(share));
  }
  internal::ExchangeBytes(comm, to, from);
  return share;
}

}  // namespace spaid::kernels::mpi
