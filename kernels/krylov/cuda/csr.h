// A square sparse matrix by rows on a device, laid out for y = A x (product.h).
//
// Slices of 32 threads, entry by entry (SELL-32: Kreutzer, Hager, Wellein, Fehske, Bishop 2014): a
// slice has the 32 / t rows of its threads, t threads a row, and as many steps as its longest row
// needs; in step k thread r t + e has entry t k + e of row r. Rows that would make their slice much
// longer stand apart, entry after entry, in pieces for warps. Where slices would be mostly ends of
// rows all the same, a matrix that streams through the caches is cut into tiles instead
// (tiles.h), and the rows of a smaller one are put in the order of their lengths, 256 by 256.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/csr_tuning.h"
#include "kernels/krylov/cuda/persistent_smem_csr.h"
#include "kernels/krylov/cuda/sell.h"
#include "kernels/krylov/cuda/tiles.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::cuda {

inline constexpr int kProductThreads = 256;  // a block
inline constexpr int kProductResident = 4;   // blocks at once on a multiprocessor, at least
inline constexpr int kLongResident = 2;      // the same with long chunks
inline constexpr int kManyThreads = 4;       // a row, where they are several
inline constexpr int kProductMaxBlocks = 2048;

// How a warp goes through its slices (of tiles there is one way): some entries of each lane, a
// chunk, at a time. Which entries a lane sums, and in which order, is the same in all, so that the
// sums are the same bits.
enum class SliceLoop : int32_t {
  kPlain,        // one chunk after the other
  kShortChunks,  // the next chunk, of this slice or the next, is on its way while one is summed
  kLongChunks,   // the same by fewer warps, each with more under way
};

// A part of a row that stands apart.
struct Piece {
  int64_t begin;  // of its entries
  int32_t count;  // of them
  int32_t row;
  int32_t first, last;  // pieces of the row
};

// What kernels read. A slice's entries beyond the end of a row have the value 0 and the row's last
// column, or, in a row without entries, the row's number.
template <class Value>
struct RowsRef {
  int64_t n, slices, pieces;
  const int32_t* order;  // of the rows in slices; null: as they are
  const Slice* slice;
  const Piece* piece;
  const int32_t* cols;
  const Value* values;
  // A warp's place among the warps of the grid moves on by so much from slice to slice.
  int32_t shift;
  int64_t tiles;
  const Tile* tile;
  const TilePlace* places;
  bool in_pieces;    // some row has more than one
  double* partial;   // a product's sums of each piece, kMostColumns of them
  int32_t* arrived;  // at a row's first piece: how many of its sums are there; 0 between products
};

// Value: double or float, as the entries are stored; arithmetic is double. A value beyond float's
// range becomes an infinity there. Of one context; not thread-safe.
template <class Value>
class Rows {
 public:
  static constexpr int64_t kEntryBytes = sizeof(Value) + sizeof(int32_t);

  // From a canonical CSC on the device, with values; neither is kept. `by_rows`: its columns are
  // the rows of A, as they are of a symmetric one; others are sorted by rows
  // (kernels/sparse/cuda/transpose.h). Throws CudaFault::kOutOfMemory, and then holds nothing.
  // Waits for the device.
  Rows(Context& context, const PatternRef& pattern, const double* values, bool by_rows,
       const RowsTuning& tuning = tuning::kRows);

  // New values for the same pattern, by columns: on the context's stream, without a wait.
  void UpdateValues(const Context& context, const PatternRef& pattern, const double* values);

  const Context& context() const { return *context_; }
  int64_t n() const { return n_; }
  int64_t nnz() const { return nnz_; }
  // Entries as they are stored, with the ends of slices.
  int64_t stored() const { return cols_.size(); }
  // Of the device, that this holds.
  int64_t bytes() const;
  // What a product must move: every entry, the structure, x and y once.
  int64_t bytes_per_product() const;

  int threads_a_row() const { return threads_a_row_; }
  bool streams() const { return streams_; }  // larger than what caches keep
  int blocks() const { return blocks_; }     // of a product's grid
  bool in_tiles() const { return tiles_.tiles.size() > 0; }
  // Loop of products with one vector, by the lengths of rows: where this streams, one of those with
  // chunks on their way; else kPlain.
  SliceLoop loop() const { return loop_; }
  // Benchmarks and tests set it; where this streams, to the other one with chunks on their way.
  void set_loop(SliceLoop loop) { loop_ = loop; }
  RowsRef<Value> ref() const;
  // The same for solves on the chip; null: too large for it.
  const ChipRows* chip() const { return chip_.has_value() ? &*chip_ : nullptr; }

 private:
  const Context* context_;
  int64_t n_ = 0, nnz_ = 0;
  int threads_a_row_ = 1, blocks_ = 1, shift_ = 0;
  SliceLoop loop_ = SliceLoop::kPlain;
  bool in_pieces_ = false, streams_ = false;
  Buffer<int32_t> order_;
  Buffer<Slice> slices_;
  Tiles tiles_;
  Buffer<Piece> pieces_;
  Buffer<int32_t> cols_, arrived_;
  Buffer<Value> values_;
  Buffer<double> partial_;
  std::optional<ChipRows> chip_;
};

// y_i = d_i x_i.
void LaunchDiagonal(const Context& context, int64_t n, const double* d, const double* x, double* y);

}  // namespace spaid::cuda
