// How rows of very different lengths are cut for warps, for a layout by rows (rows_cuda.h) without
// ends of slices: tiles of consecutive entries, as in CSR-stream (Greathouse, Daga 2014), there for
// blocks. A tile has some rows, one after the other, with their entries, one after the other. A
// warp multiplies a tile's entries side by side, wherever rows begin, and then adds up its rows.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context_cuda.h"
#include "kernels/krylov/cuda/slices_cuda.h"
#include "kernels/sparse/cuda/matrix_cuda.h"

namespace spaid::cuda {

inline constexpr int kTileSlots = 256;  // places of a tile: entries, and what aligns the first
inline constexpr int kTileAlign = 8;
inline constexpr int kTileLongest = 32;  // rows of more entries stand apart

struct alignas(16) Tile {
  int64_t begin;        // of its places; a multiple of kTileAlign
  int32_t row;          // its first
  uint16_t end;         // behind the last entry's place
  uint8_t first, rows;  // the first entry's place; how many rows
};
static_assert(kTileSlots <= 256);

// Of each row, its first entry's place in the row's tile. A row without entries and one that stands
// apart have one there all the same, of value 0 and with the row's number as its column.
using TilePlace = uint16_t;
inline constexpr TilePlace kTileApart = 0x8000;  // beside the place: the row stands apart

struct Tiles {
  Buffer<Tile> tiles;
  Buffer<TilePlace> places;
  int64_t entries = 0;  // of all tiles, at the places from 0 on
};

// All rows of A, cut. `apart`, of n elements, gets 1 for each row that stands apart, else 0. Waits
// for the device.
Tiles CutTiles(Context& context, const CsrRef& a, const Buffer<int32_t>& apart);

// All entries of tiles, from where a is copied from.
template <class From, class Value>
void FillTiles(const Context& context, const CsrRef& a, const From* from, const Tiles& tiles,
               const Buffer<int32_t>& cols, const Buffer<Value>& values);

// Their values by their rows and columns, so that no list of places need be kept.
template <class Value>
void UpdateTiles(const Context& context, const PatternRef& pattern, const double* from,
                 const Tiles& tiles, const Buffer<int32_t>& cols, const Buffer<Value>& values);

}  // namespace spaid::cuda
