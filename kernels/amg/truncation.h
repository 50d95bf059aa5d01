// Rows of a prolongation that keep their largest entries alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/amg/tentative.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::kernels {

// Leaves at most `most` aggregates of a row of P, `coarse.count` columns each. With one near-null
// vector what stays is multiplied so that the row times `coarse` is what it was. Thread-safe.
class Truncation {
 public:
  Truncation(const NearNull& coarse, int most)
      : coarse_(coarse), size_(coarse.count), most_(static_cast<size_t>(most)) {}

  // Adds the largest by their norm (ties: the lower number) to `sink`. `columns`: ascending.
  void Add(std::span<const int32_t> columns, std::span<const double> values, RowSink& sink) const;
  // Writes those in `kept`, some of the columns, to `to`.
  void Fill(std::span<const int32_t> columns, std::span<const double> values,
            std::span<const int32_t> kept, double* to) const;

 private:
  template <class Stays>
  double Scale(std::span<const int32_t> columns, std::span<const double> values,
               const Stays& stays) const;

  const NearNull& coarse_;
  const int32_t size_;
  const size_t most_;
};

}  // namespace spaid::kernels
