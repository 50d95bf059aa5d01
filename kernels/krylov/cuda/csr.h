// A square sparse matrix by rows on a device, laid out for y = A x (product.h).
//
// Rows are stored in SELL slices (sell.h). Rows that would make their slice much longer are stored
// apart, entry after entry, cut into pieces of which a warp sums one. Where slices would still be
// mostly padding, a matrix larger than the caches ("that streams" through them) is cut into tiles
// instead (tiles.h), and the rows of a smaller one are sorted by length within windows of 256.
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

inline constexpr int kProductThreads = 256;  // of a block
inline constexpr int kProductResident = 4;   // blocks at once on a multiprocessor, at least
inline constexpr int kLongResident = 2;      // the same for SliceLoop::kLongChunks
inline constexpr int kManyThreads = 4;       // threads a row, where there is more than one
inline constexpr int kProductMaxBlocks = 2048;

// How a warp goes through its slices: a chunk, some entries of each lane, at a time. All loops give
// a lane the same entries in the same order, so that sums are the same bits. (Tiles have one loop.)
enum class SliceLoop : int32_t {
  kPlain,        // one chunk after the other
  kShortChunks,  // the next chunk, of this slice or the next, is loaded while one is summed
  kLongChunks,   // the same with longer chunks and fewer warps
};

// A piece of a row that is stored apart from slices and tiles.
struct Piece {
  int64_t begin;  // first entry
  int32_t count;  // entries
  int32_t row;
  int32_t first, last;  // pieces of the same row
};

// The arrays as kernels see them. Padding of a slice has the value 0 and the row's last column, or,
// in a row without entries, the row's number, or the last column.
template <class Value>
struct CsrRef {
  int64_t n, slices, pieces;
  const int32_t* order;  // the rows in the order of the slices; null: their own order
  const Slice* slice;
  const Piece* piece;
  const int32_t* cols;
  const Value* values;
  // From slice to slice a warp's position among the warps of the grid advances by so much.
  int32_t shift;
  int64_t tiles;
  const Tile* tile;
  const TilePlace* places;
  bool in_pieces;    // some row has more than one piece
  double* partial;   // sums of each piece in a product, kMostColumns of them
  int32_t* arrived;  // at a row's first piece: how many of its sums are done; 0 between products
};

// The matrix. Value: double or float, as the entries are stored; arithmetic is double. A value
// beyond float's range becomes an infinity there. Belongs to one context; not thread-safe.
template <class Value>
class Csr {
 public:
  static constexpr int64_t kEntryBytes = sizeof(Value) + sizeof(int32_t);

  // From a canonical CSC on the device, with values; neither is kept. `by_rows`: its columns are
  // the rows of A, as for a symmetric A; otherwise entries are sorted by rows
  // (kernels/sparse/cuda/transpose.h). `columns`: those of A, that is the
  // elements of x, where it is not square (by rows alone); 0: it is. Throws
  // CudaFault::kOutOfMemory, and then holds nothing. Waits for the device.
  Csr(Context& context, const PatternRef& pattern, const double* values, bool by_rows,
      const CsrTuning& tuning = tuning::kCsr, int64_t columns = 0);

  // Sets new values, by columns, for the same pattern: on the context's stream, without a wait.
  void UpdateValues(const Context& context, const PatternRef& pattern, const double* values);

  const Context& context() const { return *context_; }
  int64_t n() const { return n_; }
  int64_t nnz() const { return nnz_; }
  // Entries that are stored, padding included.
  int64_t stored() const { return cols_.size(); }
  // Device bytes that this holds.
  int64_t bytes() const;
  // Bytes that a product must move: every entry, the structure, x and y once.
  int64_t bytes_per_product() const;

  int threads_a_row() const { return threads_a_row_; }
  bool streams() const { return streams_; }  // larger than the caches
  int blocks() const { return blocks_; }     // of a product's grid
  bool in_tiles() const { return tiles_.tiles.size() > 0; }
  // Loop of products with one vector, chosen by the lengths of rows: kShortChunks or kLongChunks
  // where the matrix streams, else kPlain.
  SliceLoop loop() const { return loop_; }
  // For benchmarks and tests: the other one of these two, where the matrix streams.
  void set_loop(SliceLoop loop) { loop_ = loop; }
  CsrRef<Value> ref() const;
  // The layout for solves within shared memory (persistent_smem_csr.h); null: too large for it.
  const SmemCsr* smem() const { return smem_.has_value() ? &*smem_ : nullptr; }

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
  std::optional<SmemCsr> smem_;
};

// y_i = d_i x_i.
void LaunchDiagonal(const Context& context, int64_t n, const double* d, const double* x, double* y);

}  // namespace spaid::cuda
