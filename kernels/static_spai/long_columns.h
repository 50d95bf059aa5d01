// Columns of A that are much longer than the rest of a local problem (dense columns, hubs). The
// rows that only such columns touch are replaced by the triangle R of their QR factorisation: an
// orthogonal transformation, so that solution, residual norm and conditioning stay, and the cost
// does not depend on the length of those columns. R comes from the columns' dot products, formed
// once per build and pair of columns in twice the working precision, which is as accurate as QR in
// working precision.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// A number in twice the working precision (Dekker 1971; Ogita, Rump, Oishi 2005).
class DoubleDouble {
 public:
  DoubleDouble() = default;
  void Add(double x);
  void AddProduct(double x, double y, double sign);  // += sign * x * y; sign is 1 or -1
  // Cancellation may leave parts of equal size; products need the second one small.
  void Normalize();
  // -= x * y / z, all three normalized.
  void SubtractQuotient(const DoubleDouble& x, const DoubleDouble& y, const DoubleDouble& z);
  double value() const { return high_ + low_; }

 private:
  DoubleDouble(double high, double low) : high_(high), low_(low) {}
  static DoubleDouble Product(const DoubleDouble& x, const DoubleDouble& y);

  double high_ = 0, low_ = 0;
};

// Compressed together at most; more are treated as other columns are.
inline constexpr int kMaxLongColumns = 8;

// Positions in a column set J, ascending.
struct LongColumns {
  int count = 0;
  int32_t at[kMaxLongColumns];
};

// The columns of J to compress: as many as are each longer than kLongColumn and than kLongFactor
// times all that are left over.
LongColumns FindLongColumns(const PatternView& a, std::span<const int32_t> columns);

// Two columns of A, first <= second.
struct LongPair {
  int32_t first, second;
  auto operator<=>(const LongPair&) const = default;
};

// The pairs whose dot products a set of local problems needs. One per thread.
class LongPairs {
 public:
  void Add(const LongColumns& longs, std::span<const int32_t> columns);
  // Merges the pairs of several threads: sorted, each only once.
  static Array<LongPair> Merge(std::span<LongPairs> parts);

 private:
  void Unite();
  std::vector<LongPair> pairs_;
  size_t united_ = 0;  // so many came from the last Unite
};

// Columns that are long enough to be compressed.
int64_t CountLong(const PatternView& a);
// At most so many pairs, whatever the pattern of M; of n columns, so many of them long.
int64_t MaxLongPairs(int64_t longs, int64_t n);
inline int64_t MaxLongPairs(const PatternView& a) { return MaxLongPairs(CountLong(a), a.n_cols); }

struct LongDot {
  LongPair pair;
  DoubleDouble value;  // with the columns scaled
};

// Dot products of pairs of columns of A times `scale`, in the order of `pairs`.
Array<LongDot> LongDots(const CscView& a, std::span<const double> scale,
                        std::span<const LongPair> pairs, int threads);

// Upper triangle of the rows that only the long columns of a local problem touch. `gram` (by rows,
// count x count, upper triangle) is their Gram matrix and is used up; r[i * count + j] receives
// row i of R. full[i]: ‖column i‖² with all its rows, against which rounding is judged.
void LongTriangle(int count, DoubleDouble* gram, const double* full, double* r);

// How many rows a set of columns touches; remembers sets seen before. One per thread.
class UnionSizes {
 public:
  int64_t Get(const PatternView& a, const LongColumns& longs, std::span<const int32_t> columns);

 private:
  std::map<std::vector<int32_t>, int64_t> known_;
  std::vector<int32_t> rows_;
};

}  // namespace spaid::kernels
