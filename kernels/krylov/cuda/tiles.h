// How rows of very different lengths are cut for warps, for a layout by rows (csr.h) without
// ends of slices: tiles of consecutive entries, as in CSR-stream (Greathouse, Daga 2014), there for
// blocks. A tile has some rows, one after the other, with their entries, one after the other. A
// warp multiplies a tile's entries side by side, wherever rows begin, and then adds up its rows.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

inline constexpr int kTileSlots = 256;   // entries of a tile at the most
inline constexpr int kTileLongest = 64;  // rows of more entries stand apart
// A tile, and a row that stands apart, begins where a warp's 32 entries have cache lines of their
// own: a line that two loads ask for is looked up twice in the second-level cache, and how many it
// looks up is what bounds such products.
inline constexpr int kLineEntries = 32;

struct alignas(16) Tile {
  int64_t begin;        // of its entries; a multiple of kLineEntries
  int32_t row;          // its first
  uint16_t size, rows;  // how many entries and rows it has
};

// Of each row, its first entry's place in the row's tile. A row without entries and one that stands
// apart have one there all the same, of value 0 and with the row's number as its column.
using TilePlace = uint16_t;
inline constexpr TilePlace kTileApart = 0x8000;  // beside the place: the row stands apart

struct Tiles {
  Buffer<Tile> tiles;
  Buffer<TilePlace> places;
  int64_t entries = 0;  // of all tiles
  int64_t stored = 0;   // with what stands between them, from 0 on; a multiple of kLineEntries
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
