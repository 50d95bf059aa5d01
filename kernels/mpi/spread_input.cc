#include "kernels/mpi/spread_input.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/mpi/ranks.h"

namespace spaid::kernels::mpi {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

constexpr char kInput[] = "a matrix on its way to its ranks";

}  // namespace

Status SpreadInput::Begin(std::span<const int64_t> pointers) {
  const auto ranks = Z(RanksOf(comm_));
  const bool by_rows = layout_ == Layout::kCsr;
  Array<int64_t> begin(ranks + 1, 0);
  Status status;
  if (!pointers.empty()) {
    status = CheckPointers(pointers, n_, nnz_, layout_);
    for (size_t r = 1; status.ok() && r < ranks; ++r) {
      // Entries weigh, and so does a row: its part of each vector.
      const double share =
          static_cast<double>(nnz_ + n_) * static_cast<double>(r) / static_cast<double>(ranks);
      int64_t low = begin[r - 1], high = n_;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        (static_cast<double>(pointers[Z(middle)] + middle) < share ? low : high) =
            static_cast<double>(pointers[Z(middle)] + middle) < share ? middle + 1 : middle;
      }
      begin[r] = low;
    }
    begin[ranks] = n_;
  }
  if (status = Agree(comm_, status); !status.ok()) return status;
  Must(MPI_Bcast(begin.data(), static_cast<int>(ranks + 1), MPI_INT64_T, 0, comm_));
  std::vector<std::span<const int64_t>> shares;
  for (size_t r = 0; !pointers.empty() && r < ranks; ++r) {
    shares.push_back(pointers.subspan(Z(begin[r]), Z(begin[r + 1] - begin[r] + 1)));
  }
  block_.col_ptr = TakeShare(comm_, shares);
  const int64_t first = block_.col_ptr.front();
  entries_ = BeginsOf(comm_, block_.col_ptr.back() - first);
  return Locally(comm_, kInput, [&]() -> Status {
    for (int64_t& p : block_.col_ptr) p -= first;
    const int64_t own = std::ssize(block_.col_ptr) - 1;
    block_.n_rows = by_rows ? own : n_;
    block_.n_cols = by_rows ? n_ : own;
    block_.row_idx.resize(Z(block_.col_ptr.back()));
    block_.values.resize(block_.row_idx.size());
    return {};
  });
}

Status SpreadInput::Begin(const SpreadMatrix& like) {
  Status status = Locally(comm_, kInput, [&]() -> Status {
    if (layout_ == Layout::kCsc) {
      block_ = like.columns;
    } else {
      block_ = OwnRows(like.rows.get());
      std::swap(block_.n_rows, block_.n_cols);
    }
    return {};
  });
  if (!status.ok()) return status;
  entries_ = BeginsOf(comm_, block_.nnz());
  return {};
}

template <class T>
void SpreadInput::Take(int64_t first, int64_t count, std::span<const T> from, Array<T>& to) {
  const auto ranks = entries_.size() - 1, own = Z(RankOf(comm_));
  // Those of this piece that rank r has.
  const auto part = [&](size_t r) {
    const int64_t begin = std::max(first, entries_[r]);
    return std::pair(begin, std::max(begin, std::min(first + count, entries_[r + 1])));
  };
  std::vector<std::span<const std::byte>> sent(ranks);
  std::vector<std::span<std::byte>> received(ranks);
  const auto [begin, end] = part(own);
  const std::span<T> here = std::span(to).subspan(
      Z(std::max<int64_t>(0, begin == end ? 0 : begin - entries_[own])), Z(end - begin));
  if (own == 0) {
    for (size_t r = 1; r < ranks; ++r) {
      const auto [low, high] = part(r);
      sent[r] = std::as_bytes(from.subspan(low == high ? 0 : Z(low - first), Z(high - low)));
    }
    if (begin < end) std::ranges::copy(from.subspan(Z(begin - first), here.size()), here.begin());
  } else {
    received[0] = std::as_writable_bytes(here);
  }
  internal::ExchangeBytes(comm_, sent, received);
}

template void SpreadInput::Take(int64_t, int64_t, std::span<const int32_t>, Array<int32_t>&);
template void SpreadInput::Take(int64_t, int64_t, std::span<const double>, Array<double>&);

Result<SpreadMatrix> SpreadInput::Finish(const Context& context) {
  return SpreadBlocks(comm_, std::move(block_), layout_,
                      {.sort_and_sum = sort_and_sum_, .threads = context.threads}, context);
}

}  // namespace spaid::kernels::mpi
