// Row sums of tiles (tiles.h). For .cu files.
//
// A warp's lanes take a tile's entries side by side, so that all of them load an x at once however
// long rows are, and leave rounded products in shared memory; then each lane adds up the products
// of a row, one after the other, while the warp's next tile is being loaded. y, and the vectors
// that an epilogue reads beside it, are accessed in the order of the rows.
#pragma once

#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/product_parts.h"

namespace spaid::cuda::product {

inline constexpr int kTileEach = kTileSlots / 32;  // places of a lane

// Stride between the columns of a warp's products: those of a row are in different banks.
inline constexpr int kTileStride = kTileSlots + 4;

// Dynamic shared memory of a block.
template <int kColumns>
inline constexpr int kTileBytes = kProductThreads / 32 *
                                  kColumns* kTileStride* static_cast<int>(sizeof(double));
// Resident blocks a multiprocessor, at least.
template <int kColumns>
inline constexpr int kTileResident = kColumns <= 2 ? kProductResident : 2;

// Whether values are loaded with x, not ahead with the column indices: registers are short with
// several columns.
template <int kColumns>
inline constexpr bool kTileLate = kColumns > 1;

// The lane's entries of a tile.
template <bool kLate, class Value>
struct TileEntries {
  int32_t col[kTileEach];
  Value value[kTileEach];
  uint32_t in;  // bit u: there is an entry at place 32 u + lane
  const Value* late;

  __device__ bool In(int u) const { return (in >> u & 1) != 0; }
  __device__ void Ask(const CsrRef<Value>& a, const Tile& tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t* const cols = a.cols + tile.begin + lane;
    late = a.values + tile.begin + lane;
    in = 0;
#pragma unroll
    for (int u = 0; u < kTileEach; ++u) {
      in |= 32 * u + lane < tile.size ? 1u << u : 0u;
      col[u] = In(u) ? Load<true>(cols + 32 * u) : 0;
      if constexpr (!kLate) value[u] = In(u) ? Load<true>(late + 32 * u) : Value{0};
    }
  }
  __device__ Value At(int u) const {
    if constexpr (kLate) {
      return In(u) ? Load<true>(late + 32 * u) : Value{0};
    } else {
      return value[u];
    }
  }
};

// Writes products[kTileStride v + place] for every column v.
template <int kColumns, bool kLate, class Value, class X>
__device__ void MultiplyTile(const TileEntries<kLate, Value>& entries, const X* x,
                             double* products) {
  constexpr int kTogether = kColumns == 1 ? kTileEach : kColumns == 2 ? 4 : 2;
  double* const own = products + threadIdx.x % 32;
#pragma unroll
  for (int some = 0; some < kTileEach; some += kTogether) {
    double xs[kTogether][kColumns];
    Value value[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) value[u] = entries.At(some + u);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const bool in = entries.In(some + u);
      const X* const from = x + int64_t{entries.col[some + u]} * kColumns;
      LoadRow<kColumns>(from, in, xs[u]);
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
#pragma unroll
      for (int v = 0; v < kColumns; ++v) {
        own[kTileStride * v + 32 * (some + u)] = static_cast<double>(value[u]) * xs[u][v];
      }
    }
  }
}

// Calls give(row, sum, slot) for every row of the tile that is not stored apart.
template <int kColumns, class Give>
__device__ void SumTileRows(const TilePlace* places, const Tile& tile, const double* products,
                            const Give& give) {
  const int rows = tile.rows, last = tile.size;
  const TilePlace* const of_rows = places + tile.row;
  const double* const own = products + kTileStride * Column<kColumns>();
  for (int first = 0; first < rows; first += 32) {
#pragma unroll
    for (int slot = 0; slot < kColumns; ++slot) {
      const int r = first + LaneOf<kColumns>(slot);
      const int place = r < rows ? __ldg(of_rows + r) : kTileApart | last;
      const int next = r + 1 < rows ? __ldg(of_rows + r + 1) & ~kTileApart : last;
      const int begin = place & ~kTileApart;
      double sum = 0;
#pragma unroll 4
      for (int at = begin; at < next; ++at) sum += own[at];
      if ((place & kTileApart) == 0) give(tile.row + r, sum, slot);
    }
  }
}

// Sums the tiles, by all warps of `blocks` blocks. Calls give(row, sum, slot) for every row that is
// not stored apart.
template <int kColumns, class Value, class X, class Give>
__device__ void SumTiles(const CsrRef<Value>& a, const X* x, int blocks, const Give& give) {
  extern __shared__ double tile_products[];
  constexpr int kOfBlock = kProductThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  double* const products = tile_products + warp * (kColumns * kTileStride);
  const auto tiles = static_cast<int>(a.tiles), warps = blocks * kOfBlock;
  int k = static_cast<int>(blockIdx.x) * kOfBlock + warp;
  if (k >= tiles) return;
  Tile tile = a.tile[k];
  TileEntries<kTileLate<kColumns>, Value> entries;
  entries.Ask(a, tile);
  while (true) {
    k += warps;
    Tile next{};
    if (k < tiles) next = a.tile[k];
    MultiplyTile<kColumns>(entries, x, products);
    entries.Ask(a, next);
    __syncwarp();
    SumTileRows<kColumns>(a.places, tile, products, give);
    if (k >= tiles) return;
    __syncwarp();
    tile = next;
  }
}

}  // namespace spaid::cuda::product
