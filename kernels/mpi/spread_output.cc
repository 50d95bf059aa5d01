#include "kernels/mpi/spread_output.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Rank r has elements [begin[r], begin[r + 1]) of an array, this one `own`.
template <class T>
void Send(MPI_Comm comm, const Array<int64_t>& begin, std::span<const T> own, int64_t first,
          int64_t count, std::span<T> to) {
  const auto ranks = begin.size() - 1, rank = Z(RankOf(comm));
  // Those of this piece that rank r has.
  const auto part = [&](size_t r) {
    const int64_t low = std::clamp(begin[r], first, first + count);
    return std::pair(low, std::clamp(begin[r + 1], low, first + count));
  };
  std::vector<std::span<const std::byte>> sent(ranks);
  std::vector<std::span<std::byte>> received(ranks);
  const auto [low, high] = part(rank);
  const std::span<const T> here =
      low < high ? own.subspan(Z(low - begin[rank]), Z(high - low)) : std::span<const T>();
  if (rank == 0) {
    for (size_t r = 1; r < ranks; ++r) {
      const auto [from, end] = part(r);
      received[r] = std::as_writable_bytes(to.subspan(Z(from - first), Z(end - from)));
    }
    std::ranges::copy(here, to.begin());
  } else {
    sent[0] = std::as_bytes(here);
  }
  internal::ExchangeBytes(comm, sent, received);
}

}  // namespace

SpreadOutput::SpreadOutput(MPI_Comm comm, std::shared_ptr<const CscMatrix> own, bool made_for)
    : comm_(comm), own_(std::move(own)), begin_(BeginsOf(comm, own_->nnz())) {
  const bool last = RankOf(comm) == RanksOf(comm) - 1;
  pointer_ = BeginsOf(comm, own_->n_cols + (last ? 1 : 0));
  pointers_ = own_->col_ptr;
  for (int64_t& p : pointers_) p += begin_[Z(RankOf(comm))];
  bytes_ =
      static_cast<int64_t>(pointers_.size() * sizeof(int64_t)) + (made_for ? own_->bytes() : 0);
}

void SpreadOutput::SendPointers(int64_t first, int64_t count, std::span<int64_t> to) const {
  Send<int64_t>(comm_, pointer_, pointers_, first, count, to);
}
void SpreadOutput::SendIndices(int64_t first, int64_t count, std::span<int32_t> to) const {
  Send<int32_t>(comm_, begin_, own_->row_idx, first, count, to);
}
void SpreadOutput::SendValues(int64_t first, int64_t count, std::span<double> to) const {
  Send<double>(comm_, begin_, own_->values, first, count, to);
}

}  // namespace spaid::kernels::mpi
