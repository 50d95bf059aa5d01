#include "kernels/static_spai/lane_kernels.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace spaid::kernels {
namespace {

// One load from an address that is aligned to a double only.
typedef double Loose8 __attribute__((vector_size(64), aligned(8), may_alias));

SPAID_INLINE void Transpose(const Vec8 (&in)[8], Vec8 (&out)[8]) {
  Vec8 pairs[8], quads[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(in[i], in[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[i + 1] = __builtin_shufflevector(in[i], in[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  // quads[half * 4 + s]: elements s and s + 4 of lanes 4 half to 4 half + 3.
  for (int half = 0; half < 2; ++half) {
    for (int odd = 0; odd < 2; ++odd) {
      const Vec8 &x = pairs[half * 4 + odd], &y = pairs[half * 4 + 2 + odd];
      quads[half * 4 + odd] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
      quads[half * 4 + 2 + odd] = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int s = 0; s < 4; ++s) {
    out[s] = __builtin_shufflevector(quads[s], quads[4 + s], 0, 1, 2, 3, 8, 9, 10, 11);
    out[s + 4] = __builtin_shufflevector(quads[s], quads[4 + s], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Entries [0, length) of one column in all lanes. Whole blocks are transposed; the last one ends
// with the column and may begin before it, in other columns' values, which are not used. Where the
// array itself begins too late for that, entry by entry.
SPAID_INLINE void LoadColumn(int64_t length, const double* values, const int64_t* starts,
                             Vec8 scale, const int32_t* places, Vec8* v) {
  bool whole = length >= 8;
  if (!whole) {
    whole = true;
    for (int w = 0; w < 8; ++w) whole &= starts[w] + length >= 8;
  }
  if (!whole) {
    for (int64_t e = 0; e < length; ++e) {
      Vec8 entry;
      for (int w = 0; w < 8; ++w) entry[w] = values[starts[w] + e];
      v[places[e]] = entry * scale;
    }
    return;
  }
  for (int64_t from = 0; from < length; from += 8) {
    const int64_t begin = std::min(from, length - 8);
    Vec8 lane[8], entry[8];
    for (int w = 0; w < 8; ++w) {
      lane[w] = *reinterpret_cast<const Loose8*>(values + starts[w] + begin);
    }
    Transpose(lane, entry);
    if (begin >= 0) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) v[places[begin + i]] = entry[i] * scale;
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        if (begin + i >= 0) v[places[begin + i]] = entry[i] * scale;
      }
    }
  }
}

template <int Rows>
SPAID_INLINE void AddRun(const Structure::Run& run, const int32_t* columns, const Vec8* v,
                         Vec8* b) {
  const int64_t count = run.count;
  for (int64_t i = 0; i < count; ++i) {
    Vec8 own[Rows];
    for (int r = 0; r < Rows; ++r) own[r] = v[i * Rows + r];
    Vec8* row = b + PackedSize(columns[i]);
    for (int64_t j = 0; j <= i; ++j) {
      Vec8 sum = row[columns[j]];
      for (int r = 0; r < Rows; ++r) sum += own[r] * v[j * Rows + r];
      row[columns[j]] = sum;
    }
  }
}

template <int Rows, int Height, int Width>
SPAID_INLINE void AddProducts(const Structure::BlockPair& pair, const Vec8* v,
                              Vec8 (&sum)[Height][Width]) {
  const Vec8 *left = v + pair.left, *right = v + pair.right;
  for (int k = 0; k < Rows; ++k) {
    Vec8 own[Height], other[Width];
    for (int r = 0; r < Height; ++r) own[r] = left[r * Rows + k];
    for (int c = 0; c < Width; ++c) other[c] = right[c * Rows + k];
    for (int r = 0; r < Height; ++r) {
      for (int c = 0; c < Width; ++c) sum[r][c] += own[r] * other[c];
    }
  }
}

// The Gram products of two blocks of columns, in registers until they are done.
template <int Height, int Width>
SPAID_INLINE void BlockProducts(std::span<const Structure::BlockPair> pairs, const Vec8* v,
                                int64_t i, int64_t j, Vec8* b) {
  Vec8 sum[Height][Width] = {};
  for (const Structure::BlockPair& pair : pairs) {
    switch (pair.rows) {  // unrolled: twice as fast as a loop of three
      case 1:
        AddProducts<1>(pair, v, sum);
        break;
      case 2:
        AddProducts<2>(pair, v, sum);
        break;
      case 3:
        AddProducts<3>(pair, v, sum);
        break;
      default:
        AddProducts<4>(pair, v, sum);
        break;
    }
  }
  for (int r = 0; r < Height; ++r) {
    for (int c = 0; c < Width; ++c) {
      if (i != j || c <= r) b[PackedSize(i + r) + j + c] = sum[r][c];
    }
  }
}

SPAID_INLINE void GramOfBlocks(const Structure& structure, const Vec8* v, Vec8* b) {
  const int32_t* begin = structure.block_begin.data();
  const size_t blocks = structure.block_begin.size() - 1;
  for (size_t i = 0, tile = 0; i < blocks; ++i) {
    for (size_t j = 0; j <= i; ++j, ++tile) {
      const auto from = static_cast<size_t>(structure.pair_begin[tile]);
      const std::span<const Structure::BlockPair> pairs(
          structure.pairs.data() + from,
          static_cast<size_t>(structure.pair_begin[tile + 1]) - from);
      switch ((begin[i + 1] - begin[i]) * 4 + begin[j + 1] - begin[j]) {
        case 4 + 1:
          BlockProducts<1, 1>(pairs, v, begin[i], begin[j], b);
          break;
        case 4 + 2:
          BlockProducts<1, 2>(pairs, v, begin[i], begin[j], b);
          break;
        case 4 + 3:
          BlockProducts<1, 3>(pairs, v, begin[i], begin[j], b);
          break;
        case 8 + 1:
          BlockProducts<2, 1>(pairs, v, begin[i], begin[j], b);
          break;
        case 8 + 2:
          BlockProducts<2, 2>(pairs, v, begin[i], begin[j], b);
          break;
        case 8 + 3:
          BlockProducts<2, 3>(pairs, v, begin[i], begin[j], b);
          break;
        case 12 + 1:
          BlockProducts<3, 1>(pairs, v, begin[i], begin[j], b);
          break;
        case 12 + 2:
          BlockProducts<3, 2>(pairs, v, begin[i], begin[j], b);
          break;
        default:
          BlockProducts<3, 3>(pairs, v, begin[i], begin[j], b);
          break;
      }
    }
  }
}

// Rows i, ..., i + Height - 1 of columns j, ..., j + Width - 1, less what the columns before j
// contribute. On the diagonal (i == j) only the lower half is meant.
template <int Height, int Width>
SPAID_INLINE void UpdateTile(int64_t i, int64_t j, const Vec8* b, Vec8 (&tile)[Height][Width]) {
  const Vec8 *row[Height], *column[Width];
  for (int r = 0; r < Height; ++r) row[r] = b + PackedSize(i + r);
  for (int c = 0; c < Width; ++c) column[c] = b + PackedSize(j + c);
  for (int r = 0; r < Height; ++r) {
    for (int c = 0; c < Width; ++c) {
      if (i != j || c <= r) tile[r][c] = row[r][j + c];
    }
  }
  for (int64_t k = 0; k < j; ++k) {
    Vec8 left[Height];
    for (int r = 0; r < Height; ++r) left[r] = row[r][k];
    for (int c = 0; c < Width; ++c) {
      const Vec8 top = column[c][k];
      for (int r = 0; r < Height; ++r) tile[r][c] -= left[r] * top;
    }
  }
}

template <int Height, int Width>
SPAID_INLINE void BelowTile(int64_t i, int64_t j, const Vec8 (&diagonal)[Width][Width],
                            const Vec8* inverse, Vec8* b) {
  Vec8 tile[Height][Width];
  UpdateTile<Height, Width>(i, j, b, tile);
  for (int c = 0; c < Width; ++c) {
    for (int r = 0; r < Height; ++r) {
      tile[r][c] *= inverse[j + c];
      b[PackedSize(i + r) + j + c] = tile[r][c];
      for (int d = c + 1; d < Width; ++d) tile[r][d] -= tile[r][c] * diagonal[d][c];
    }
  }
}

struct Pivots {
  double limit;
  Vec8 smallest, product;
  Mask8 failed;
};

SPAID_INLINE Vec8 SquareRoot(Vec8 x) {
  Vec8 root;
  for (int w = 0; w < 8; ++w) root[w] = __builtin_sqrt(x[w]);
  return root;
}

template <int Width>
SPAID_INLINE void FactorColumns(int64_t j, int64_t n, Vec8* b, Vec8* inverse, Pivots& pivots) {
  Vec8 tile[Width][Width], original[Width];
  for (int c = 0; c < Width; ++c) original[c] = b[PackedSize(j + c) + j + c];
  UpdateTile<Width, Width>(j, j, b, tile);
  for (int c = 0; c < Width; ++c) {
    const Vec8 pivot = tile[c][c];
    // NaN and infinity fail too.
    const Mask8 good = (pivot > pivots.limit * original[c]) & (pivot > 0.0) & (pivot < 1e300);
    pivots.failed |= ~good;
    const Vec8 safe = good ? pivot : Vec8{} + 1.0;
    const Vec8 scaled = safe / original[c];
    pivots.smallest = scaled < pivots.smallest ? scaled : pivots.smallest;
    pivots.product *= scaled;
    const Vec8 own = 1.0 / SquareRoot(safe);
    inverse[j + c] = own;
    for (int r = c + 1; r < Width; ++r) {
      tile[r][c] *= own;
      b[PackedSize(j + r) + j + c] = tile[r][c];
    }
    for (int d = c + 1; d < Width; ++d) {
      for (int r = d; r < Width; ++r) tile[r][d] -= tile[r][c] * tile[d][c];
    }
  }
  int64_t i = j + Width;
  for (; i + 4 <= n; i += 4) BelowTile<4, Width>(i, j, tile, inverse, b);
  for (; i < n; ++i) BelowTile<1, Width>(i, j, tile, inverse, b);
}

// Forward by dot products with rows of L, backward by adding up rows of it: both read L along its
// rows.
template <int Width>
SPAID_INLINE void Substitute(int64_t n, const Vec8* l, const Vec8* inverse, Vec8* x) {
  constexpr int kChains = Width == 1 ? 4 : 2;  // sums that do not wait for each other
  for (int64_t i = 0; i < n; ++i) {
    const Vec8* row = l + PackedSize(i);
    Vec8 sum[kChains][Width] = {};
    int64_t k = 0;
    for (; k + kChains <= i; k += kChains) {
      for (int c = 0; c < kChains; ++c) {
        for (int t = 0; t < Width; ++t) sum[c][t] += row[k + c] * x[(k + c) * Width + t];
      }
    }
    for (; k < i; ++k) {
      for (int t = 0; t < Width; ++t) sum[0][t] += row[k] * x[k * Width + t];
    }
    for (int t = 0; t < Width; ++t) {
      Vec8 all = sum[0][t];
      for (int c = 1; c < kChains; ++c) all += sum[c][t];
      x[i * Width + t] = (x[i * Width + t] - all) * inverse[i];
    }
  }
  for (int64_t i = n - 1; i >= 0; --i) {
    const Vec8* row = l + PackedSize(i);
    Vec8 own[Width];
    for (int t = 0; t < Width; ++t) {
      own[t] = x[i * Width + t] * inverse[i];
      x[i * Width + t] = own[t];
    }
    for (int64_t k = 0; k < i; ++k) {
      for (int t = 0; t < Width; ++t) x[k * Width + t] -= row[k] * own[t];
    }
  }
}

// Rows of Âx for one run, less the targets' ones; fit[t] receives (Âx)_k.
template <int Rows, int Width>
SPAID_INLINE void RunResidual(const Structure& structure, int64_t index, int first, const Vec8* v,
                              const Vec8* x, Vec8 (&r)[Rows][Width], Vec8* fit) {
  const Structure::Run& run = structure.runs[static_cast<size_t>(index)];
  const int32_t* columns = structure.run_columns.data() + run.columns;
  for (int i = 0; i < Rows; ++i) {
    for (int t = 0; t < Width; ++t) r[i][t] = Vec8{};
  }
  const int64_t count = run.count;
  for (int64_t i = 0; i < count; ++i) {
    const Vec8* own = x + int64_t{columns[i]} * Width;
    for (int k = 0; k < Rows; ++k) {
      const Vec8 entry = v[i * Rows + k];
      for (int t = 0; t < Width; ++t) r[k][t] += entry * own[t];
    }
  }
  if (run.has_target == 0) return;
  for (int t = 0; t < Width; ++t) {
    const Structure::Target& target = structure.targets[static_cast<size_t>(first + t)];
    if (target.run != index) continue;
    for (int k = 0; k < Rows; ++k) {
      if (k != target.row) continue;
      fit[t] = r[k][t];
      r[k][t] -= 1.0;
    }
  }
}

template <int Rows, int Width>
SPAID_INLINE void AddSquares(const Structure& structure, int64_t index, int first, const Vec8* v,
                             const Vec8* x, Vec8 (&sum)[Width], Vec8* fit) {
  Vec8 r[Rows][Width];
  RunResidual<Rows, Width>(structure, index, first, v, x, r, fit);
  for (int k = 0; k < Rows; ++k) {
    for (int t = 0; t < Width; ++t) sum[t] += r[k][t] * r[k][t];
  }
}

template <int Rows, int Width>
SPAID_INLINE void AddGradient(const Structure& structure, int64_t index, int first, const Vec8* v,
                              const Vec8* x, Vec8* g) {
  Vec8 r[Rows][Width], fit[Width];
  RunResidual<Rows, Width>(structure, index, first, v, x, r, fit);
  const Structure::Run& run = structure.runs[static_cast<size_t>(index)];
  const int32_t* columns = structure.run_columns.data() + run.columns;
  const int64_t count = run.count;
  for (int64_t i = 0; i < count; ++i) {
    Vec8* own = g + int64_t{columns[i]} * Width;
    for (int k = 0; k < Rows; ++k) {
      const Vec8 entry = v[i * Rows + k];
      for (int t = 0; t < Width; ++t) own[t] -= entry * r[k][t];
    }
  }
}

template <int Width>
SPAID_INLINE void Residual(const Structure& structure, int first, const Vec8* v, const Vec8* x,
                           Vec8* squared, Vec8* fit) {
  Vec8 sum[Width] = {};
  for (size_t i = 0; i < structure.runs.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const Vec8* own = v + structure.runs[i].begin;
    switch (structure.runs[i].rows) {
      case 1:
        AddSquares<1, Width>(structure, index, first, own, x, sum, fit);
        break;
      case 2:
        AddSquares<2, Width>(structure, index, first, own, x, sum, fit);
        break;
      case 3:
        AddSquares<3, Width>(structure, index, first, own, x, sum, fit);
        break;
      default:
        AddSquares<4, Width>(structure, index, first, own, x, sum, fit);
        break;
    }
  }
  for (int t = 0; t < Width; ++t) squared[t] = sum[t];
}

template <int Width>
SPAID_INLINE void Gradient(const Structure& structure, int first, const Vec8* v, const Vec8* x,
                           Vec8* g) {
  for (int64_t q = 0; q < structure.n_cols * Width; ++q) g[q] = Vec8{};
  for (size_t i = 0; i < structure.runs.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const Vec8* own = v + structure.runs[i].begin;
    switch (structure.runs[i].rows) {
      case 1:
        AddGradient<1, Width>(structure, index, first, own, x, g);
        break;
      case 2:
        AddGradient<2, Width>(structure, index, first, own, x, g);
        break;
      case 3:
        AddGradient<3, Width>(structure, index, first, own, x, g);
        break;
      default:
        AddGradient<4, Width>(structure, index, first, own, x, g);
        break;
    }
  }
}

}  // namespace

SPAID_HOT_KERNEL
void LoadLanes(const Structure& structure, const double* values, const int64_t* starts,
               const Vec8* scales, Vec8* v) {
  const int32_t* places = structure.places.data();
  for (int64_t q = 0; q < structure.n_cols; ++q) {
    const int64_t length = structure.lengths[static_cast<size_t>(q)];
    LoadColumn(length, values, starts + q * 8, scales[q], places, v);
    places += length;
  }
}

SPAID_HOT_KERNEL
void LaneGram(const Structure& structure, const Vec8* v, Vec8* b) {
  if (!structure.pairs.empty()) return GramOfBlocks(structure, v, b);
  for (int64_t i = 0; i < PackedSize(structure.n_cols); ++i) b[i] = Vec8{};
  for (const Structure::Run& run : structure.runs) {
    const int32_t* columns = structure.run_columns.data() + run.columns;
    const Vec8* own = v + run.begin;
    switch (run.rows) {
      case 1:
        AddRun<1>(run, columns, own, b);
        break;
      case 2:
        AddRun<2>(run, columns, own, b);
        break;
      case 3:
        AddRun<3>(run, columns, own, b);
        break;
      default:
        AddRun<4>(run, columns, own, b);
        break;
    }
  }
}

SPAID_HOT_KERNEL
void LaneCholesky(int64_t n, double limit, Vec8* b, Vec8* inverse, Vec8* pivot, Vec8* determinant,
                  Mask8* failed) {
  Pivots pivots{limit, Vec8{} + 1.0, Vec8{} + 1.0, Mask8{}};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) FactorColumns<4>(j, n, b, inverse, pivots);
  switch (n - j) {
    case 1:
      FactorColumns<1>(j, n, b, inverse, pivots);
      break;
    case 2:
      FactorColumns<2>(j, n, b, inverse, pivots);
      break;
    case 3:
      FactorColumns<3>(j, n, b, inverse, pivots);
      break;
    default:
      break;
  }
  *pivot = pivots.smallest;
  *determinant = pivots.product;
  *failed = pivots.failed;
}

SPAID_HOT_KERNEL
void LaneSolve(int64_t n, int width, const Vec8* l, const Vec8* inverse, Vec8* x) {
  switch (width) {
    case 1:
      Substitute<1>(n, l, inverse, x);
      break;
    case 2:
      Substitute<2>(n, l, inverse, x);
      break;
    case 3:
      Substitute<3>(n, l, inverse, x);
      break;
    default:
      Substitute<4>(n, l, inverse, x);
      break;
  }
}

SPAID_HOT_KERNEL
void LaneResidual(const Structure& structure, int first, int width, const Vec8* v, const Vec8* x,
                  Vec8* squared, Vec8* fit) {
  switch (width) {
    case 1:
      Residual<1>(structure, first, v, x, squared, fit);
      break;
    case 2:
      Residual<2>(structure, first, v, x, squared, fit);
      break;
    case 3:
      Residual<3>(structure, first, v, x, squared, fit);
      break;
    default:
      Residual<4>(structure, first, v, x, squared, fit);
      break;
  }
}

SPAID_HOT_KERNEL
void LaneGradient(const Structure& structure, int first, int width, const Vec8* v, const Vec8* x,
                  Vec8* g) {
  switch (width) {
    case 1:
      Gradient<1>(structure, first, v, x, g);
      break;
    case 2:
      Gradient<2>(structure, first, v, x, g);
      break;
    case 3:
      Gradient<3>(structure, first, v, x, g);
      break;
    default:
      Gradient<4>(structure, first, v, x, g);
      break;
  }
}

}  // namespace spaid::kernels
