#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/base/cuda/scan_sort_cuda.h"
#include "kernels/krylov/cuda/rows_cuda.h"
#include "kernels/krylov/cuda/sums_cuda.h"

namespace spaid::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
// A row of more than two of these stands in pieces of one.
constexpr int64_t kPieceEntries = 1024;

// Rows that are ordered together: those that a block multiplies at once.
constexpr int kWindow = kThreads;

// A by rows, as a CSR: where it is copied from.
struct CsrRef {
  int64_t n;
  const int64_t* row_ptr;
  const int32_t* cols;
  __device__ int64_t Length(int64_t i) const { return row_ptr[i + 1] - row_ptr[i]; }
};

int Blocks(const Context& context, int64_t work, int64_t a_block) {
  const int64_t most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(std::clamp<int64_t>((work + a_block - 1) / a_block, 1, most));
}

__device__ int64_t WarpOfGrid() {
  return int64_t{blockIdx.x} * kWarps + static_cast<int>(threadIdx.x) / 32;
}
__device__ int64_t WarpsOfGrid() { return int64_t{gridDim.x} * kWarps; }
__device__ int64_t ThreadOfGrid() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t ThreadsOfGrid() { return int64_t{gridDim.x} * kThreads; }
__device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }

__global__ void ColumnOfEntryKernel(PatternRef a, int32_t* column) {
  for (int64_t j = WarpOfGrid(); j < a.n; j += WarpsOfGrid()) {
    for (int64_t p = a.col_ptr[j] + Lane(); p < a.col_ptr[j + 1]; p += 32) {
      column[p] = static_cast<int32_t>(j);
    }
  }
}

// Where each row begins among sorted ones.
__global__ void RowBeginKernel(const int32_t* sorted, int64_t nnz, int64_t n, int64_t* row_ptr) {
  for (int64_t i = ThreadOfGrid(); i <= n; i += ThreadsOfGrid()) {
    int64_t low = 0, high = nnz;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sorted[middle] < i) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    row_ptr[i] = low;
  }
}

// Each window's rows, the longest first, those of equal length as they were.
__global__ void OrderKernel(CsrRef a, int32_t* order) {
  __shared__ int64_t lengths[kWindow];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t begin = int64_t{blockIdx.x} * kWindow; begin < a.n;
       begin += int64_t{gridDim.x} * kWindow) {
    const int count = static_cast<int>(min(int64_t{kWindow}, a.n - begin));
    if (thread < count) lengths[thread] = a.Length(begin + thread);
    __syncthreads();
    if (thread < count) {
      int before = 0;
      for (int other = 0; other < count; ++other) {
        const bool longer = lengths[other] > lengths[thread];
        const bool equal = lengths[other] == lengths[thread];
        before += longer || (equal && other < thread) ? 1 : 0;
      }
      order[begin + before] = static_cast<int32_t>(begin + thread);
    }
    __syncthreads();
  }
}

__device__ int64_t RowAt(const int32_t* order, int64_t place) {
  return order != nullptr ? order[place] : place;
}

// A warp a slice: how many steps it has, which is the number that costs least when rows that need
// more stand apart; of equal ones the greatest. `begin` gets its entries, `apart` a 1 for each row
// that stands apart.
__global__ void CutKernel(CsrRef a, const int32_t* order, int t, RowsTuning tuning, int64_t slices,
                          Slice* slice, int64_t* begin, int32_t* apart) {
  const int rows = 32 / t;
  for (int64_t s = WarpOfGrid(); s < slices; s += WarpsOfGrid()) {
    const int64_t place = s * rows + Lane();
    const bool is_row = Lane() < rows && place < a.n;
    const int64_t row = is_row ? RowAt(order, place) : 0;
    const int64_t length = is_row ? a.Length(row) : 0;
    const int64_t steps = (length + t - 1) / t;
    int64_t cost = 32 * steps;  // if this lane's row were the longest
    for (int other = 0; other < rows; ++other) {
      const int64_t its = __shfl_sync(~0u, length, other);
      if (its > steps * t) cost += its + tuning.apart_cost;
    }
    if (steps > tuning.max_steps) cost = INT64_MAX;
    int64_t best = steps;
    for (int step = 16; step > 0; step /= 2) {
      const int64_t other_cost = __shfl_xor_sync(~0u, cost, step);
      const int64_t other_best = __shfl_xor_sync(~0u, best, step);
      if (other_cost < cost || (other_cost == cost && other_best > best)) {
        cost = other_cost;
        best = other_best;
      }
    }
    // Every row may be too long.
    if (cost == INT64_MAX) best = 0;
    const bool is_apart = is_row && steps > best;
    const uint32_t none = __ballot_sync(~0u, is_apart || !is_row);
    if (is_row) apart[row] = is_apart ? 1 : 0;
    if (Lane() == 0) {
      slice[s] = {0, static_cast<int32_t>(best), none};
      begin[s] = 32 * best;
    }
  }
}

__global__ void SliceBeginKernel(const int64_t* begin, int64_t slices, Slice* slice) {
  for (int64_t s = ThreadOfGrid(); s < slices; s += ThreadsOfGrid()) slice[s].begin = begin[s];
}

// `place`: for each row, how many before it stand apart.
__global__ void ListApartKernel(CsrRef a, const int32_t* place, int32_t* list, int64_t* entries,
                                int64_t* pieces) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    const int32_t at = place[i];
    if (place[i + 1] == at) continue;
    const int64_t length = a.Length(i);
    list[at] = static_cast<int32_t>(i);
    entries[at] = length;
    pieces[at] = length <= 2 * kPieceEntries ? 1 : (length + kPieceEntries - 1) / kPieceEntries;
  }
}

__global__ void PiecesKernel(const int32_t* list, int64_t count, const int64_t* entries,
                             const int64_t* pieces, int64_t begin, Piece* piece) {
  for (int64_t i = ThreadOfGrid(); i < count; i += ThreadsOfGrid()) {
    const int64_t first = pieces[i], last = pieces[i + 1] - 1;
    for (int64_t q = first; q <= last; ++q) {
      const int64_t from = entries[i] + (q - first) * kPieceEntries;
      const int64_t to = q == last ? entries[i + 1] : from + kPieceEntries;
      piece[q] = {begin + from, static_cast<int32_t>(to - from), list[i],
                  static_cast<int32_t>(first), static_cast<int32_t>(last)};
    }
  }
}

__global__ void SliceColumnsKernel(CsrRef a, const int32_t* order, int t, int64_t slices,
                                   const Slice* slices_at, int32_t* cols) {
  for (int64_t s = WarpOfGrid(); s < slices; s += WarpsOfGrid()) {
    const Slice slice = slices_at[s];
    const int r = Lane() / t;
    const int64_t row = RowAt(order, min(s * (32 / t) + r, a.n - 1)), begin = a.row_ptr[row];
    const bool apart = (slice.apart >> r & 1) != 0;
    const int64_t length = apart ? 0 : a.Length(row);
    for (int k = 0; k < slice.steps; ++k) {
      const int64_t e = min(int64_t{k} * t + Lane() % t, length - 1);
      cols[slice.begin + 32 * int64_t{k} + Lane()] =
          length > 0 ? a.cols[begin + e] : static_cast<int32_t>(row);
    }
  }
}

__global__ void PieceColumnsKernel(CsrRef a, int64_t pieces, const Piece* pieces_at,
                                   int32_t* cols) {
  for (int64_t q = WarpOfGrid(); q < pieces; q += WarpsOfGrid()) {
    const Piece piece = pieces_at[q];
    const int64_t from = a.row_ptr[piece.row] + (q - piece.first) * kPieceEntries;
    for (int k = Lane(); k < piece.count; k += 32) cols[piece.begin + k] = a.cols[from + k];
  }
}

// a_ij; 0 where there is none.
__device__ double Find(const PatternRef& a, const double* values, int64_t i, int32_t j) {
  int64_t low = a.col_ptr[j];
  const int64_t end = a.col_ptr[j + 1];
  int64_t high = end;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (a.row_idx[middle] < i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < end && a.row_idx[low] == i ? values[low] : 0;
}

// Values by their rows and columns, so that no list of places need be kept.
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
      values[at] = static_cast<Value>(apart || beyond ? 0 : Find(a, a_values, row, j));
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
      values[at] = static_cast<Value>(Find(a, a_values, piece.row, cols[at]));
    }
  }
}

__global__ void DiagonalKernel(int64_t n, const double* __restrict__ d,
                               const double* __restrict__ x, double* __restrict__ y) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) y[i] = d[i] * x[i];
}

int64_t ReadFrom(const Context& context, const int64_t* device) {
  int64_t value = 0;
  context.staging->Out(&value, device, sizeof(value));
  context.Synchronize();
  return value;
}

// The entries of A by rows; stable, so that columns ascend in each.
void SortByRows(Context& context, const PatternRef& a, int64_t nnz, const Buffer<int64_t>& row_ptr,
                const Buffer<int32_t>& cols) {
  const Buffer<int32_t> columns(context, nnz), rows(context, nnz);
  ColumnOfEntryKernel<<<Blocks(context, a.n, kWarps), kThreads, 0, context.stream>>>(a,
                                                                                     columns.get());
  CheckLaunch("ColumnOfEntryKernel");
  int bits = 1;
  while (bits < 31 && a.n - 1 >> bits != 0) ++bits;
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    Check(cub::DeviceRadixSort::SortPairs(scratch, bytes, a.row_idx, rows.get(), columns.get(),
                                          cols.get(), nnz, 0, bits, context.stream),
          "cub::DeviceRadixSort");
  };
  sort(nullptr);
  const Buffer<char> scratch(context, static_cast<int64_t>(bytes));
  sort(scratch.get());
  RowBeginKernel<<<Blocks(context, a.n + 1, kThreads), kThreads, 0, context.stream>>>(
      rows.get(), nnz, a.n, row_ptr.get());
  CheckLaunch("RowBeginKernel");
}

}  // namespace

template <class Value>
Rows<Value>::Rows(Context& context, const PatternRef& pattern, const double* values, bool symmetric,
                  const RowsTuning& tuning)
    : n_(pattern.n), nnz_(ReadFrom(context, pattern.col_ptr + pattern.n)) {
  const cudaStream_t stream = context.stream;
  CsrRef a{n_, pattern.col_ptr, pattern.row_idx};
  Buffer<int64_t> row_ptr;
  Buffer<int32_t> row_cols;
  if (!symmetric) {
    row_ptr = Buffer<int64_t>(context, n_ + 1);
    row_cols = Buffer<int32_t>(context, nnz_);
    SortByRows(context, pattern, nnz_, row_ptr, row_cols);
    a.row_ptr = row_ptr.get();
    a.cols = row_cols.get();
  }

  const bool many = nnz_ >= n_ * tuning.many_threads_entries &&
                    n_ < int64_t{32} * tuning.many_threads_slices * context.multiprocessors;
  threads_a_row_ = many ? kManyThreads : 1;
  const int64_t rows = 32 / threads_a_row_, slices = (n_ + rows - 1) / rows;
  slices_ = Buffer<Slice>(context, slices);
  int64_t n_apart = 0, n_pieces = 0, in_slices = 0, stored = 0;
  {
    const Buffer<int64_t> begin(context, slices + 1);
    const Buffer<int32_t> place(context, n_ + 1);
    const auto cut = [&] {
      CutKernel<<<Blocks(context, slices, kWarps), kThreads, 0, stream>>>(
          a, order_.get(), threads_a_row_, tuning, slices, slices_.get(), begin.get(), place.get());
      CheckLaunch("CutKernel");
      Scan(context, begin, slices + 1);
      in_slices = stored = Read(context, begin, slices);
    };
    cut();
    if (static_cast<double>(in_slices) > tuning.order_at * static_cast<double>(nnz_)) {
      order_ = Buffer<int32_t>(context, n_);
      OrderKernel<<<Blocks(context, n_, kWindow), kThreads, 0, stream>>>(a, order_.get());
      CheckLaunch("OrderKernel");
      cut();
    }
    Scan(context, place, n_ + 1);
    n_apart = Read(context, place, n_);
    SliceBeginKernel<<<Blocks(context, slices, kThreads), kThreads, 0, stream>>>(
        begin.get(), slices, slices_.get());
    CheckLaunch("SliceBeginKernel");
    if (n_apart > 0) {
      const Buffer<int32_t> list(context, n_apart);
      const Buffer<int64_t> entries(context, n_apart + 1), pieces(context, n_apart + 1);
      ListApartKernel<<<Blocks(context, n_, kThreads), kThreads, 0, stream>>>(
          a, place.get(), list.get(), entries.get(), pieces.get());
      CheckLaunch("ListApartKernel");
      Scan(context, entries, n_apart + 1);
      Scan(context, pieces, n_apart + 1);
      n_pieces = Read(context, pieces, n_apart);
      stored += Read(context, entries, n_apart);
      pieces_ = Buffer<Piece>(context, n_pieces);
      PiecesKernel<<<Blocks(context, n_apart, kThreads), kThreads, 0, stream>>>(
          list.get(), n_apart, entries.get(), pieces.get(), in_slices, pieces_.get());
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
  SliceColumnsKernel<<<Blocks(context, slices, kWarps), kThreads, 0, stream>>>(
      a, order_.get(), threads_a_row_, slices, slices_.get(), cols_.get());
  CheckLaunch("SliceColumnsKernel");
  if (n_pieces > 0) {
    PieceColumnsKernel<<<Blocks(context, n_pieces, kWarps), kThreads, 0, stream>>>(
        a, n_pieces, pieces_.get(), cols_.get());
    CheckLaunch("PieceColumnsKernel");
  }
  UpdateValues(context, pattern, values);

  constexpr int64_t kSlicesABlock = kProductThreads / 32;
  const int64_t work = std::max((slices + kSlicesABlock - 1) / kSlicesABlock, n_pieces);
  // Where the work of blocks differs, small shares even it out.
  const int64_t blocks = order_.size() > 0 ? tuning.ordered_blocks : tuning.blocks;
  const int64_t most = std::min<int64_t>(kProductMaxBlocks, blocks * context.multiprocessors);
  blocks_ = static_cast<int>(std::clamp<int64_t>(work, 1, most));
  streams_ = bytes() >= tuning.stream_bytes;
  context.Synchronize();
}

template <class Value>
void Rows<Value>::UpdateValues(const Context& context, const PatternRef& pattern,
                               const double* values) {
  SliceValuesKernel<<<Blocks(context, slices_.size(), kWarps), kThreads, 0, context.stream>>>(
      pattern, values, order_.get(), threads_a_row_, slices_.size(), slices_.get(), cols_.get(),
      values_.get());
  CheckLaunch("SliceValuesKernel");
  if (pieces_.size() == 0) return;
  PieceValuesKernel<<<Blocks(context, pieces_.size(), kWarps), kThreads, 0, context.stream>>>(
      pattern, values, pieces_.size(), pieces_.get(), cols_.get(), values_.get());
  CheckLaunch("PieceValuesKernel");
}

template <class Value>
RowsRef<Value> Rows<Value>::ref() const {
  return {n_,          slices_.size(), pieces_.size(), order_.get(),   slices_.get(), pieces_.get(),
          cols_.get(), values_.get(),  in_pieces_,     partial_.get(), arrived_.get()};
}

template <class Value>
int64_t Rows<Value>::bytes() const {
  const auto size = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return size(order_) + size(slices_) + size(pieces_) + size(cols_) + size(values_) +
         size(partial_) + size(arrived_);
}

template <class Value>
int64_t Rows<Value>::bytes_per_product() const {
  return nnz_ * static_cast<int64_t>(sizeof(Value) + sizeof(int32_t)) +
         order_.size() * static_cast<int64_t>(sizeof(int32_t)) +
         slices_.size() * static_cast<int64_t>(sizeof(Slice)) +
         pieces_.size() * static_cast<int64_t>(sizeof(Piece)) +
         2 * n_ * static_cast<int64_t>(sizeof(double));
}

template class Rows<double>;
template class Rows<float>;

void LaunchDiagonal(const Context& context, int64_t n, const double* d, const double* x,
                    double* y) {
  DiagonalKernel<<<Blocks(context, n, kThreads), kThreads, 0, context.stream>>>(n, d, x, y);
  CheckLaunch("DiagonalKernel");
}

}  // namespace spaid::cuda
