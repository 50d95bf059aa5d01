// One look at the arrays of a matrix, in pieces: while they arrive each piece is in the cache, and
// what validation and diagnosis ask of all entries costs no pass over memory of its own.
//
//   ArrivalScan scan(n);
//   scan.AddIndices(col_ptr, rows_so_far, from);  // once per piece, in order
//   scan.AddValues(piece);
//   ValidationOptions options{.known = scan.Known(nnz)};
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace spaid::kernels {

// Largest and smallest absolute value of those that are not zero, and how many are zero. Means
// nothing where a value is not finite.
struct ValueRange {
  double largest = 0;
  double smallest = std::numeric_limits<double>::infinity();
  int64_t zeros = 0;
  bool finite = true;

  // The same of both, in any order.
  void Add(const ValueRange& other);
};

ValueRange RangeOf(std::span<const double> values);

// Known properties of a matrix before it is validated.
struct KnownOfArrays {
  bool canonical_indices = false;  // in range and strictly increasing in each column
  std::optional<ValueRange> range;
};

// Indices in range and strictly increasing in each column: what nearly every input is, found
// without a branch for each entry. Reads nothing beyond [begin - 1, end), whatever the pointers
// are.
class OrderScan {
 public:
  // `n_minor`: indices are below it.
  explicit OrderScan(int64_t n_minor) : last_(static_cast<uint32_t>(n_minor - 1)) {}

  // The entries [begin, end) of `indices`, which follow those of the call before; `pointers` from
  // the first that is not below `begin` on. Returns how many of the pointers are below `end`.
  int64_t Add(std::span<const int64_t> pointers, const int32_t* indices, int64_t begin,
              int64_t end);
  // Where the pointers are canonical themselves.
  bool canonical() const { return outside_ >> 31 == 0 && descents_ == 0; }

 private:
  uint32_t last_;
  uint32_t outside_ = 0;  // its sign: an index was below 0 or above the last one
  int64_t descents_ = 0;  // that are not where a column begins
};

// Not thread-safe.
class ArrivalScan {
 public:
  explicit ArrivalScan(int64_t n) : order_(n) {}

  // `pointers`: all; `indices`: all that have come, those from `from` on since the last call.
  void AddIndices(std::span<const int64_t> pointers, std::span<const int32_t> indices,
                  int64_t from);
  void AddValues(std::span<const double> values);
  // Bytes of all `nnz` entries (fp64 values, or none); what was left out on the way is not known.
  KnownOfArrays Known(int64_t nnz) const;

 private:
  OrderScan order_;
  int64_t column_ = 0;                // the first that begins behind the indices seen
  int64_t indices_ = 0, values_ = 0;  // seen
  ValueRange range_;
};

}  // namespace spaid::kernels
