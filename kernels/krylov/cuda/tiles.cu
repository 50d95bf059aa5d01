#include <algorithm>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/krylov/cuda/layout_grid.h"
#include "kernels/krylov/cuda/tiles.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {
namespace {

using namespace layout;

// A tile has the rows that begin within so many entries; its last row may end beyond them.
constexpr int64_t kTileStep = kTileSlots - kTileLongest + 1;

__global__ void TileEntriesKernel(CsrArrays a, int64_t* entries, int32_t* apart) {
  for (int64_t i = ThreadOfGrid(); i < a.n; i += ThreadsOfGrid()) {
    const int64_t length = a.Length(i);
    apart[i] = length > kTileLongest ? 1 : 0;
    entries[i] = length > kTileLongest ? 1 : max(length, int64_t{1});
  }
}

// The first row that begins at `at` or later.
__device__ int64_t RowFrom(int64_t n, const int64_t* begin, int64_t at) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (begin[middle] < at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// `begin`: offsets of the rows' entries, and their total. `stored` gets the entries that each tile
// takes, rounded up.
__global__ void TilesKernel(int64_t n, const int64_t* begin, int64_t count, Tile* tiles,
                            int64_t* stored) {
  for (int64_t k = ThreadOfGrid(); k < count; k += ThreadsOfGrid()) {
    const int64_t row = RowFrom(n, begin, k * kTileStep);
    const int64_t next = RowFrom(n, begin, (k + 1) * kTileStep);
    const int64_t size = begin[next] - begin[row];
    tiles[k] = {0, static_cast<int32_t>(row), static_cast<uint16_t>(size),
                static_cast<uint16_t>(next - row)};
    stored[k] = (size + kLineEntries - 1) / kLineEntries * kLineEntries;
  }
}

__global__ void TileBeginKernel(const int64_t* stored, int64_t count, Tile* tiles) {
  for (int64_t k = ThreadOfGrid(); k < count; k += ThreadsOfGrid()) tiles[k].begin = stored[k];
}

// One warp a tile.
__global__ void TilePlacesKernel(const Tile* tiles, int64_t count, const int64_t* begin,
                                 const int32_t* apart, TilePlace* places) {
  for (int64_t k = WarpOfGrid(); k < count; k += WarpsOfGrid()) {
    const Tile tile = tiles[k];
    for (int r = Lane(); r < tile.rows; r += 32) {
      const int64_t row = tile.row + r;
      const auto place = static_cast<TilePlace>(begin[row] - begin[tile.row]);
      places[row] = apart[row] != 0 ? place | kTileApart : place;
    }
  }
}

// Calls use(at, row, k, apart) for entry k of `row`, stored at `at`, for all entries. One warp a
// tile.
template <class Use>
__device__ void ForEntries(const Tile* tiles, int64_t count, const TilePlace* places,
                           const Use& use) {
  __shared__ TilePlace of_warps[kWarps][kTileSlots];
  TilePlace* const of_rows = of_warps[threadIdx.x / 32];
  for (int64_t q = WarpOfGrid(); q < count; q += WarpsOfGrid()) {
    const Tile tile = tiles[q];
    for (int r = Lane(); r < tile.rows; r += 32) of_rows[r] = places[tile.row + r];
    __syncwarp();
    for (int place = Lane(); place < tile.size; place += 32) {
      int low = 0, high = tile.rows - 1;  // bisection for the last row that begins at or before it
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if ((of_rows[middle] & ~kTileApart) <= place) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      use(tile.begin + place, tile.row + low, place - (of_rows[low] & ~kTileApart),
          (of_rows[low] & kTileApart) != 0);
    }
    __syncwarp();
  }
}

template <class From, class Value>
__global__ void __launch_bounds__(kThreads)
    FillTilesKernel(CsrArrays a, const From* __restrict__ from, const Tile* tiles, int64_t count,
                    const TilePlace* places, int32_t* __restrict__ cols,
                    Value* __restrict__ values) {
  ForEntries(tiles, count, places, [&](int64_t at, int32_t row, int k, bool apart) {
    const bool is_entry = !apart && k < a.Length(row);
    cols[at] = is_entry ? a.cols[a.row_ptr[row] + k] : row;
    values[at] = static_cast<Value>(is_entry ? from[a.row_ptr[row] + k] : From{0});
  });
}

template <class Value>
__global__ void __launch_bounds__(kThreads)
    UpdateTilesKernel(PatternRef a, const double* __restrict__ from, const Tile* tiles,
                      int64_t count, const TilePlace* places, const int32_t* __restrict__ cols,
                      Value* __restrict__ values) {
  ForEntries(tiles, count, places, [&](int64_t at, int32_t row, int, bool apart) {
    values[at] = static_cast<Value>(apart ? 0 : EntryAt(a, from, row, cols[at]));
  });
}

}  // namespace

Tiles CutTiles(Context& context, const CsrArrays& a, const Buffer<int32_t>& apart) {
  const Buffer<int64_t> begin(context, a.n + 1);
  const int blocks = Blocks(context, a.n, kThreads);
  TileEntriesKernel<<<blocks, kThreads, 0, context.stream>>>(a, begin.get(), apart.get());
  CheckLaunch("TileEntriesKernel");
  Scan(context, begin, a.n + 1);
  Tiles cut;
  cut.entries = Read(context, begin, a.n);
  const int64_t count = (cut.entries + kTileStep - 1) / kTileStep;
  cut.tiles = Buffer<Tile>(context, count);
  cut.places = Buffer<TilePlace>(context, a.n);
  const Buffer<int64_t> stored(context, count + 1);
  const int tile_blocks = Blocks(context, count, kThreads);
  TilesKernel<<<tile_blocks, kThreads, 0, context.stream>>>(a.n, begin.get(), count,
                                                            cut.tiles.get(), stored.get());
  CheckLaunch("TilesKernel");
  Scan(context, stored, count + 1);
  TileBeginKernel<<<tile_blocks, kThreads, 0, context.stream>>>(stored.get(), count,
                                                                cut.tiles.get());
  CheckLaunch("TileBeginKernel");
  cut.stored = Read(context, stored, count);
  TilePlacesKernel<<<Blocks(context, count, kWarps), kThreads, 0, context.stream>>>(
      cut.tiles.get(), count, begin.get(), apart.get(), cut.places.get());
  CheckLaunch("TilePlacesKernel");
  return cut;
}

template <class From, class Value>
void FillTiles(const Context& context, const CsrArrays& a, const From* from, const Tiles& tiles,
               const Buffer<int32_t>& cols, const Buffer<Value>& values) {
  FillTilesKernel<<<Blocks(context, tiles.tiles.size(), kWarps), kThreads, 0, context.stream>>>(
      a, from, tiles.tiles.get(), tiles.tiles.size(), tiles.places.get(), cols.get(), values.get());
  CheckLaunch("FillTilesKernel");
}

template <class Value>
void UpdateTiles(const Context& context, const PatternRef& pattern, const double* from,
                 const Tiles& tiles, const Buffer<int32_t>& cols, const Buffer<Value>& values) {
  UpdateTilesKernel<<<Blocks(context, tiles.tiles.size(), kWarps), kThreads, 0, context.stream>>>(
      pattern, from, tiles.tiles.get(), tiles.tiles.size(), tiles.places.get(), cols.get(),
      values.get());
  CheckLaunch("UpdateTilesKernel");
}

template void FillTiles(const Context&, const CsrArrays&, const double*, const Tiles&,
                        const Buffer<int32_t>&, const Buffer<double>&);
template void FillTiles(const Context&, const CsrArrays&, const double*, const Tiles&,
                        const Buffer<int32_t>&, const Buffer<float>&);
template void FillTiles(const Context&, const CsrArrays&, const float*, const Tiles&,
                        const Buffer<int32_t>&, const Buffer<float>&);
template void UpdateTiles(const Context&, const PatternRef&, const double*, const Tiles&,
                          const Buffer<int32_t>&, const Buffer<double>&);
template void UpdateTiles(const Context&, const PatternRef&, const double*, const Tiles&,
                          const Buffer<int32_t>&, const Buffer<float>&);

}  // namespace spaid::cuda
