#include "kernels/mpi/halo.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "kernels/base/device.h"
#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {

Halo::Halo(MPI_Comm comm, std::span<const int64_t> begin, std::span<const int64_t> own_ptr,
           Array<int32_t> wanted)
    : comm_(comm), wanted_(std::move(wanted)), own_entries_(own_ptr.back()) {
  const size_t count = wanted_.size();
  const auto rank = static_cast<size_t>(RankOf(comm));
  first_own_ = begin[rank];
  own_begin_ =
      static_cast<size_t>(std::ranges::lower_bound(wanted_, begin[rank]) - wanted_.begin());
  own_end_ =
      static_cast<size_t>(std::ranges::lower_bound(wanted_, begin[rank + 1]) - wanted_.begin());
  owner_.resize(count);
  const size_t remote = count - (own_end_ - own_begin_);
  PetscInt* leaves = nullptr;
  PetscSFNode* places = nullptr;
  Must(PetscMalloc1(remote, &leaves));
  Must(PetscMalloc1(remote, &places));
  size_t owner = 0, to = 0;
  for (size_t w = 0; w < count; ++w) {
    while (wanted_[w] >= begin[owner + 1]) ++owner;
    owner_[w] = static_cast<int32_t>(owner);
    if (owner == rank) continue;
    leaves[to] = static_cast<PetscInt>(w);
    places[to++] = {static_cast<PetscInt>(owner), static_cast<PetscInt>(wanted_[w] - begin[owner])};
  }
  PetscSF forest = nullptr;
  Must(PetscSFCreate(comm, &forest));
  items_.reset(forest);
  Must(PetscSFSetGraph(forest, static_cast<PetscInt>(own_ptr.size()) - 1,
                       static_cast<PetscInt>(remote), leaves, PETSC_OWN_POINTER, places,
                       PETSC_OWN_POINTER));
  first_ = Items(own_ptr.first(own_ptr.size() - 1));
  const Array<int64_t> end = Items(own_ptr.subspan(1));
  ptr_.resize(count + 1);
  ptr_[0] = 0;
  for (size_t w = 0; w < count; ++w) ptr_[w + 1] = ptr_[w] + end[w] - first_[w];
}

int64_t Halo::RemoteBytes(int64_t entry_bytes) const {
  int64_t bytes = 0;
  const int32_t own = RankOf(comm_);
  for (size_t w = 0; w < wanted_.size(); ++w) {
    if (owner_[w] == own) continue;
    bytes +=
        (ptr_[w + 1] - ptr_[w]) * (entry_bytes + static_cast<int64_t>(sizeof(PetscSFNode))) + 8;
  }
  return bytes;
}

void Halo::Fetch(PetscSF forest, MPI_Datatype type, const void* own, void* values) {
  Must(PetscSFBcastBegin(forest, type, own, values, MPI_REPLACE));
  Must(PetscSFBcastEnd(forest, type, own, values, MPI_REPLACE));
}

void Halo::Connect() {
  if (entries_) return;
  const int64_t remote = entries() - (ptr_[own_end_] - ptr_[own_begin_]);
  PetscInt* leaves = nullptr;
  PetscSFNode* places = nullptr;
  Must(PetscMalloc1(remote, &leaves));
  Must(PetscMalloc1(remote, &places));
  int64_t to = 0;
  for (size_t w = 0; w < wanted_.size(); ++w) {
    if (w >= own_begin_ && w < own_end_) continue;
    for (int64_t p = ptr_[w]; p < ptr_[w + 1]; ++p) {
      leaves[to] = static_cast<PetscInt>(p);
      places[to++] = {owner_[w], static_cast<PetscInt>(first_[w] + p - ptr_[w])};
    }
  }
  PetscSF forest = nullptr;
  Must(PetscSFCreate(comm_, &forest));
  entries_.reset(forest);
  Must(PetscSFSetGraph(forest, static_cast<PetscInt>(own_entries_), static_cast<PetscInt>(remote),
                       leaves, PETSC_OWN_POINTER, places, PETSC_OWN_POINTER));
}

Status CheckHalo(MPI_Comm comm, int64_t bytes, int64_t limit) {
  if (bytes <= limit) return Agree(comm, {});
  return Agree(
      comm,
      Status(StatusCode::kResourceExhausted, "HALO_TOO_LARGE",
             "rank " + std::to_string(RankOf(comm)) + " would fetch " + std::to_string(bytes) +
                 " bytes of other ranks' columns, the limit is " + std::to_string(limit) +
                 "; use a sparser pattern, fewer ranks, an order of the unknowns "
                 "with less between the ranks, or raise the limit")
          .At("halo_bytes"));
}

int RanksHere(MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  Must(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
  const int ranks = RanksOf(host);
  Must(MPI_Comm_free(&host));
  return ranks;
}

int64_t DefaultHaloBytes(MPI_Comm comm) {
  return UsableMemoryBytes() / kHaloShare / RanksHere(comm);
}

Status CheckHaloBytes(int64_t bytes) {
  if (bytes >= 0) return {};
  return Status(StatusCode::kInvalidArgument, "BAD_HALO_BYTES",
                "halo_bytes is " + std::to_string(bytes) + "; it must be 0 or more")
      .At("halo_bytes");
}

Numbering::Numbering(int64_t n) { words_.assign(static_cast<size_t>(n / 64 + 1), 0); }

void Numbering::Close() {
  before_.resize(words_.size());
  for (size_t w = 0; w < words_.size(); ++w) {
    before_[w] = static_cast<int32_t>(global_.size());
    for (uint64_t bits = words_[w]; bits != 0; bits &= bits - 1) {
      global_.push_back(static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(bits))));
    }
  }
}

}  // namespace spaid::kernels::mpi
