#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/sums.h"

namespace spaid::cuda {
namespace {

using namespace layout;

// Entries of a piece: a row that is stored apart and has more than two of these is cut into such
// pieces. Beside tiles many rows are stored apart, and the warps' work before their first tile
// should not differ much.
constexpr int64_t kPieceEntries = 1024, kTilePieceEntries = 256;

// Rows that are sorted together: those that a block of threads multiplies at once.
constexpr int kWindow = kProductThreads;

// Shift of a warp's slices in sorted rows: coprime to the slices of 256 rows and to the warps of a
// block, so that every warp comes to every position in a window.
constexpr int kShift = 13;

// CsrTuning's limits for a matrix that streams: one thread a row is too few only with fewer slices
// a multiprocessor, and slices may be longer, as entries are loaded ahead of their sums. 60,000
// rows of 250 entries, 14 slices a multiprocessor: 70 us, 88 by four threads a row, 134 in pieces;
// 10,000 such rows, 2 slices: 24 us either way.
constexpr int32_t kLargeManySlices = 8, kLargeMaxSteps = 512;

// Share of all entries that must be in tiles.
constexpr double kLeastInTiles = 0.5;

// Lists the rows that are stored apart, their entries and pieces. `place`: for each row, how many
// before it are stored apart.
__global__ void ListApartKernel(CsrArrays a, const int32_t* place, int32_t* list, int64_t* entries,
                                int64_t* pieces, int64_t piece_entries) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    const int32_t at = place[i];
    if (place[i + 1] == at) continue;
    const int64_t length = a.Length(i);
    list[at] = static_cast<int32_t>(i);
    entries[at] = (length + kLineEntries - 1) / kLineEntries * kLineEntries;
    pieces[at] = length <= 2 * piece_entries ? 1 : (length + piece_entries - 1) / piece_entries;
  }
}

__global__ void PiecesKernel(CsrArrays a, const int32_t* list, int64_t count,
                             const int64_t* entries, const int64_t* pieces, int64_t begin,
                             int64_t piece_entries, Piece* piece) {
  for (int64_t i = ThreadOfGrid(); i < count; i += ThreadsOfGrid()) {
    const int64_t first = pieces[i], last = pieces[i + 1] - 1, end = entries[i] + a.Length(list[i]);
    for (int64_t q = first; q <= last; ++q) {
      const int64_t from = entries[i] + (q - first) * piece_entries;
      const int64_t to = q == last ? end : from + piece_entries;
      piece[q] = {begin + from, static_cast<int32_t>(to - from), list[i],
                  static_cast<int32_t>(first), static_cast<int32_t>(last)};
    }
  }
}

template <class From, class Value>
__global__ void PieceKernel(CsrArrays a, const From* from, int64_t pieces, const Piece* pieces_at,
                            int64_t piece_entries, int32_t* cols, Value* values) {
  for (int64_t q = WarpOfGrid(); q < pieces; q += WarpsOfGrid()) {
    const Piece piece = pieces_at[q];
    const int64_t begin = a.row_ptr[piece.row] + (q - piece.first) * piece_entries;
    for (int k = Lane(); k < piece.count; k += 32) {
      cols[piece.begin + k] = a.cols[begin + k];
      values[piece.begin + k] = static_cast<Value>(from[begin + k]);
    }
  }
}

// Sets new values, found by row and column, so that no list of positions need be kept.
template <class Value>
__global__ void SliceValuesKernel(PatternRef a, const double* a_values, const int32_t* order, int t,
                                  int64_t slices, const Slice* slices_at, const int32_t* cols,
                                  Value* values) {
  for (int64_t s = WarpOfGrid(); s < slices; s += WarpsOfGrid()) {
    const Slice slice = slices_at[s];
    const int r = Lane() / t, place = Lane() % t;
    const int64_t row = RowAt(order, min(s * (32 / t) + r, a.n - 1));
    const bool apart = (slice.apart >> r & 1) != 0;
    for (int k = 0; k < slice.steps; ++k) {
      const int64_t at = slice.begin + 32 * int64_t{k} + Lane();
      const int32_t j = cols[at];
      // Columns ascend in a row; after its end the last one is repeated.
      const bool first = k == 0 && place == 0;
      const bool beyond = !first && cols[place > 0 ? at - 1 : at - 32 + t - 1] == j;
      values[at] = static_cast<Value>(apart || beyond ? 0 : EntryAt(a, a_values, row, j));
    }
  }
}

template <class Value>
__global__ void PieceValuesKernel(PatternRef a, const double* a_values, int64_t pieces,
                                  const Piece* pieces_at, const int32_t* cols, Value* values) {
  for (int64_t q = WarpOfGrid(); q < pieces; q += WarpsOfGrid()) {
    const Piece piece = pieces_at[q];
    for (int k = Lane(); k < piece.count; k += 32) {
      const int64_t at = piece.begin + k;
      values[at] = static_cast<Value>(EntryAt(a, a_values, piece.row, cols[at]));
    }
  }
}

__global__ void DiagonalKernel(int64_t n, const double* __restrict__ d,
                               const double* __restrict__ x, double* __restrict__ y) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) y[i] = d[i] * x[i];
}

}  // namespace

template <class Value>
Csr<Value>::Csr(Context& context, const PatternRef& pattern, const double* values, bool by_rows,
                const CsrTuning& usual, int64_t columns)
    : context_(&context), n_(pattern.n), nnz_(CountEntries(context, pattern)) {
  const cudaStream_t stream = context.stream;
  CsrArrays a{n_, pattern.col_ptr, pattern.row_idx, columns > 0 ? columns : n_};
  ByRows<Value> sorted;
  if (!by_rows) {
    sorted = SortByRows<Value>(context, pattern, nnz_, values);
    a.row_ptr = sorted.row_ptr.get();
    a.cols = sorted.cols.get();
  }

  CsrTuning tuning = usual;
  const bool large = nnz_ * kEntryBytes >= tuning.stream_bytes;
  const bool long_rows = nnz_ >= n_ * tuning.many_threads_entries;
  if (large) tuning.many_threads_slices = kLargeManySlices;
  const bool many =
      long_rows && n_ < int64_t{32} * tuning.many_threads_slices * context.multiprocessors;
  if (large && long_rows && !many) tuning.max_steps = kLargeMaxSteps;
  threads_a_row_ = many ? kManyThreads : 1;
  const int64_t rows = 32 / threads_a_row_, slices = (n_ + rows - 1) / rows;
  slices_ = Buffer<Slice>(context, slices);
  int64_t piece_entries = kPieceEntries;
  int64_t n_apart = 0, n_pieces = 0, in_slices = 0, stored = 0;
  {
    const Buffer<int32_t> place(context, n_ + 1);
    const auto cut = [&] {
      in_slices = stored =
          CutSlices(context, a, order_.get(), threads_a_row_, tuning, slices_, place);
    };
    cut();
    const auto share = [&](int64_t entries) {
      return static_cast<double>(entries) / static_cast<double>(nnz_);
    };
    const double in_rows = share(in_slices);
    if (large && !many && in_rows > tuning.tiles_at) {
      tiles_ = CutTiles(context, a, place);
      // Rows stored apart are summed by warps of their own, which slices need for fewer rows.
      if (tuning.tiles_at >= 0 && share(tiles_.entries) < kLeastInTiles) {
        tiles_ = {};
        cut();
      }
    }
    if (in_tiles()) {
      slices_ = {};
      piece_entries = kTilePieceEntries;
      in_slices = stored = tiles_.stored;
    } else if (in_rows > tuning.order_at) {
      order_ = Buffer<int32_t>(context, n_);
      OrderByLength(context, a, kWindow, order_);
      cut();
    }
    Scan(context, place, n_ + 1);
    n_apart = Read(context, place, n_);
    if (n_apart > 0) {
      const Buffer<int32_t> list(context, n_apart);
      const Buffer<int64_t> entries(context, n_apart + 1), pieces(context, n_apart + 1);
      ListApartKernel<<<Blocks(context, n_, kThreads), kThreads, 0, stream>>>(
          a, place.get(), list.get(), entries.get(), pieces.get(), piece_entries);
      CheckLaunch("ListApartKernel");
      Scan(context, entries, n_apart + 1);
      Scan(context, pieces, n_apart + 1);
      n_pieces = Read(context, pieces, n_apart);
      stored += Read(context, entries, n_apart);
      pieces_ = Buffer<Piece>(context, n_pieces);
      PiecesKernel<<<Blocks(context, n_apart, kThreads), kThreads, 0, stream>>>(
          a, list.get(), n_apart, entries.get(), pieces.get(), in_slices, piece_entries,
          pieces_.get());
      CheckLaunch("PiecesKernel");
    }
  }
  in_pieces_ = n_pieces > n_apart;
  if (in_pieces_) {
    partial_ = Buffer<double>(context, n_pieces * kMostColumns);
    arrived_ = Buffer<int32_t>(context, n_pieces);
    arrived_.Fill(0);
  }

  cols_ = Buffer<int32_t>(context, stored);
  values_ = Buffer<Value>(context, stored);
  constexpr int64_t kSlicesABlock = kProductThreads / 32;
  const int64_t work = std::max(
      ((in_tiles() ? tiles_.tiles.size() : slices) + kSlicesABlock - 1) / kSlicesABlock, n_pieces);
  // More, where the work of blocks differs: more and smaller blocks even it out.
  const int64_t blocks = in_tiles()          ? kProductResident
                         : order_.size() > 0 ? tuning.ordered_blocks
                                             : tuning.blocks;
  const int64_t most = std::min<int64_t>(kProductMaxBlocks, blocks * context.multiprocessors);
  blocks_ = static_cast<int>(std::clamp<int64_t>(work, 1, most));
  streams_ = !many && bytes() >= tuning.stream_bytes;
  if (streams_ && !in_tiles()) {
    const int64_t at_once = kSlicesABlock * kLongResident * context.multiprocessors;
    const int64_t rounds = (slices + at_once - 1) / at_once;
    const bool even = rounds == 1 || 4 * slices >= 3 * rounds * at_once;
    loop_ = even && nnz_ >= n_ * tuning.long_chunks_entries ? SliceLoop::kLongChunks
                                                            : SliceLoop::kShortChunks;
    // Else the same warps would always get the longest rows of a window.
    if (order_.size() > 0) shift_ = std::min(kShift, blocks_ * (kProductThreads / 32) - 1);
  }
  const auto fill = [&](const auto* from) {
    if (in_tiles()) {
      FillTiles(context, a, from, tiles_, cols_, values_);
    } else {
      FillSlices(context, a, from, order_.get(), threads_a_row_, slices_, cols_, values_);
    }
    if (n_pieces > 0) {
      PieceKernel<<<Blocks(context, n_pieces, kWarps), kThreads, 0, stream>>>(
          a, from, n_pieces, pieces_.get(), piece_entries, cols_.get(), values_.get());
      CheckLaunch("PieceKernel");
    }
    if constexpr (std::is_same_v<decltype(from), const double*> && std::is_same_v<Value, double>) {
      if (columns == 0 && nnz_ * kEntryBytes <= context.variants.rows_bytes) {
        smem_ = SmemCsr::Make(context, a, from, nnz_);
      }
    }
  };
  if (by_rows) {
    fill(values);
  } else {
    fill(static_cast<const Value*>(sorted.values.get()));
  }
  context.Synchronize();
}

template <class Value>
void Csr<Value>::UpdateValues(const Context& context, const PatternRef& pattern,
                              const double* values) {
  if (in_tiles()) {
    UpdateTiles(context, pattern, values, tiles_, cols_, values_);
  } else {
    SliceValuesKernel<<<Blocks(context, slices_.size(), kWarps), kThreads, 0, context.stream>>>(
        pattern, values, order_.get(), threads_a_row_, slices_.size(), slices_.get(), cols_.get(),
        values_.get());
    CheckLaunch("SliceValuesKernel");
  }
  if (smem_.has_value()) smem_->UpdateValues(context, pattern, values);
  if (pieces_.size() == 0) return;
  PieceValuesKernel<<<Blocks(context, pieces_.size(), kWarps), kThreads, 0, context.stream>>>(
      pattern, values, pieces_.size(), pieces_.get(), cols_.get(), values_.get());
  CheckLaunch("PieceValuesKernel");
}

template <class Value>
CsrRef<Value> Csr<Value>::ref() const {
  return {n_,
          slices_.size(),
          pieces_.size(),
          order_.get(),
          slices_.get(),
          pieces_.get(),
          cols_.get(),
          values_.get(),
          shift_,
          tiles_.tiles.size(),
          tiles_.tiles.get(),
          tiles_.places.get(),
          in_pieces_,
          partial_.get(),
          arrived_.get()};
}

template <class Value>
int64_t Csr<Value>::bytes() const {
  const auto size = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return size(order_) + size(slices_) + size(tiles_.tiles) + size(tiles_.places) + size(pieces_) +
         size(cols_) + size(values_) + size(partial_) + size(arrived_) +
         (smem_.has_value() ? smem_->bytes() : 0);
}

template <class Value>
int64_t Csr<Value>::bytes_per_product() const {
  return nnz_ * static_cast<int64_t>(sizeof(Value) + sizeof(int32_t)) +
         order_.size() * static_cast<int64_t>(sizeof(int32_t)) +
         slices_.size() * static_cast<int64_t>(sizeof(Slice)) +
         tiles_.tiles.size() * static_cast<int64_t>(sizeof(Tile)) +
         tiles_.places.size() * static_cast<int64_t>(sizeof(TilePlace)) +
         pieces_.size() * static_cast<int64_t>(sizeof(Piece)) +
         2 * n_ * static_cast<int64_t>(sizeof(double));
}

template class Csr<double>;
template class Csr<float>;

void LaunchDiagonal(const Context& context, int64_t n, const double* d, const double* x,
                    double* y) {
  DiagonalKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(n, d, x, y);
  CheckLaunch("DiagonalKernel");
}

}  // namespace spaid::cuda
