// The halo of a rank: items that it needs and others own, columns of a matrix or groups of columns.
// Each has a list of entries; lists of several kinds may go by one halo, values after indices. The
// transport is PETSc's star forest (PetscSF).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/base/status.h"
#include "kernels/mpi/petsc.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::mpi {

class Halo {
 public:
  // Collective. Rank r owns items [begin[r], begin[r + 1]); this rank's have entries own_ptr[i] to
  // own_ptr[i + 1]. `wanted`: ascending numbers of items, own ones or others'. Fetches the lengths
  // of their lists, and nothing else.
  Halo(MPI_Comm comm, std::span<const int64_t> begin, std::span<const int64_t> own_ptr,
       Array<int32_t> wanted);

  const Array<int32_t>& wanted() const { return wanted_; }
  const Array<int64_t>& ptr() const { return ptr_; }  // of the wanted items' entries
  int64_t entries() const { return ptr_.back(); }
  // Bytes that come from other ranks, where an entry has `entry_bytes`, and what they are found by.
  int64_t RemoteBytes(int64_t entry_bytes) const;

  // One value of each item. Collective, as what follows is.
  template <class T>
  Array<T> Items(std::span<const T> own) const {
    Array<T> values(wanted_.size());
    for (size_t w = own_begin_; w < own_end_; ++w) values[w] = own[Place(w)];
    Fetch(items_.get(), TypeOf<T>(), own.data(), values.data());
    return values;
  }
  // The entries of each item, one after the other.
  template <class T>
  Array<T> Entries(std::span<const T> own) {
    Connect();
    Array<T> values(static_cast<size_t>(entries()));
    for (size_t w = own_begin_; w < own_end_; ++w) {
      std::copy_n(own.data() + first_[w], ptr_[w + 1] - ptr_[w], values.data() + ptr_[w]);
    }
    Fetch(entries_.get(), TypeOf<T>(), own.data(), values.data());
    return values;
  }

 private:
  template <class T>
  static MPI_Datatype TypeOf() {
    if constexpr (std::is_same_v<T, double>) return MPI_DOUBLE;
    if constexpr (std::is_same_v<T, int32_t>) return MPI_INT;
    if constexpr (std::is_same_v<T, int64_t>) return MPI_INT64_T;
    if constexpr (std::is_same_v<T, uint64_t>) return MPI_UINT64_T;
  }
  // The values of other ranks' items; own ones are copied.
  static void Fetch(PetscSF forest, MPI_Datatype type, const void* own, void* values);
  void Connect();
  size_t Place(size_t w) const { return static_cast<size_t>(wanted_[w] - first_own_); }

  MPI_Comm comm_;
  Array<int32_t> wanted_;
  Array<int64_t> ptr_;
  Array<int64_t> first_;  // of each item's entries, at its owner
  Array<int32_t> owner_;
  size_t own_begin_ = 0, own_end_ = 0;  // of the wanted items, those that are here
  int64_t first_own_ = 0;               // the lowest item here
  int64_t own_entries_ = 0;
  SfOwner items_, entries_;
};

// RESOURCE_EXHAUSTED/HALO_TOO_LARGE on all ranks where the bytes that any of them would fetch,
// beside the `before` that it did, are over the limit. Nothing is fetched yet.
Status CheckHalo(MPI_Comm comm, int64_t bytes, int64_t limit);

// HALO_TOO_LARGE's bound where a caller names none: this part of the memory that a rank may use,
// which it shares with the ranks on the same host. Collective.
inline constexpr int64_t kHaloShare = 4;
int64_t DefaultHaloBytes(MPI_Comm comm);
// Ranks on this host. Collective.
int RanksHere(MPI_Comm comm);

// INVALID_ARGUMENT/BAD_HALO_BYTES.
Status CheckHaloBytes(int64_t bytes);

// The members of a set of numbers below n, numbered in ascending order. n / 8 bytes, and half of
// that.
class Numbering {
 public:
  explicit Numbering(int64_t n);

  void Insert(int32_t i) { words_[Word(i)] |= Bit(i); }
  void Insert(std::span<const int32_t> of) {
    for (const int32_t i : of) Insert(i);
  }
  void Close();  // nothing is inserted any more; only now what follows

  int32_t Local(int32_t i) const {
    return before_[Word(i)] + __builtin_popcountll(words_[Word(i)] & (Bit(i) - 1));
  }
  const Array<int32_t>& global() const { return global_; }
  int64_t size() const { return static_cast<int64_t>(global_.size()); }

 private:
  static size_t Word(int32_t i) { return static_cast<size_t>(i) >> 6; }
  static uint64_t Bit(int32_t i) { return uint64_t{1} << (i & 63); }

  Array<uint64_t> words_;
  Array<int32_t> before_, global_;
};

}  // namespace spaid::kernels::mpi
