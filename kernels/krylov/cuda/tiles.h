// Tiles of consecutive entries, for a layout by rows (csr.h) of matrices whose rows differ so much
// in length that slices would be mostly padding: CSR-stream (Greathouse, Daga 2014), with a tile
// for a warp in place of one for a block. A tile has consecutive rows with all of their entries. A
// warp multiplies a tile's entries side by side, wherever rows begin, and then adds up each row.
#pragma once

#include <cstdint>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

inline constexpr int kTileSlots = 256;   // entries of a tile, at most
inline constexpr int kTileLongest = 64;  // longer rows are stored apart
// Tiles, and rows stored apart, begin at multiples of this, so that a warp's 32 entries have cache
// lines of their own: a line that two loads share is looked up twice in the second-level cache, and
// the number of look-ups is what bounds such products.
inline constexpr int kLineEntries = 32;

struct alignas(16) Tile {
  int64_t begin;        // first entry; a multiple of kLineEntries
  int32_t row;          // first row
  uint16_t size, rows;  // numbers of entries and rows
};

// Position of a row's first entry in its tile. An empty row, and one that is stored apart, have one
// entry there all the same: value 0, column the row's number.
using TilePlace = uint16_t;
inline constexpr TilePlace kTileApart = 0x8000;  // flag: the row is stored apart

struct Tiles {
  Buffer<Tile> tiles;
  Buffer<TilePlace> places;
  int64_t entries = 0;  // of all tiles
  int64_t stored = 0;   // with the gaps between tiles; a multiple of kLineEntries
};

// Cuts all rows of A into tiles. `apart`, of n elements, gets 1 for each row that is to be stored
// apart, else 0. Waits for the device.
Tiles CutTiles(Context& context, const CsrArrays& a, const Buffer<int32_t>& apart);

// Fills columns and values of all tiles from A.
template <class From, class Value>
void FillTiles(const Context& context, const CsrArrays& a, const From* from, const Tiles& tiles,
               const Buffer<int32_t>& cols, const Buffer<Value>& values);

// Sets new values, found by row and column, so that no list of positions need be kept.
template <class Value>
void UpdateTiles(const Context& context, const PatternRef& pattern, const double* from,
                 const Tiles& tiles, const Buffer<int32_t>& cols, const Buffer<Value>& values);

}  // namespace spaid::cuda
