// What is taken of a matrix while its arrays come, each piece while it is in the cache: digests,
// and what validation and diagnosis ask of all entries.
//
//   ArrivalLook look(n, nnz);
//   look.Look(pointers, indices, values);  // as far as they have come; again and again
//   adapter.Prepare(raw, layout, {.arrived = look.Finish()});
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/committed.h"  // for those who receive arrays
#include "kernels/engine/engine.h"
#include "server/base/digest.h"

namespace spaid::server {

// What is known of the arrays as they came.
struct Arrived {
  ArrayDigests digests;
  kernels::KnownOfArrays known;
};

// Not thread-safe.
class ArrivalLook {
 public:
  ArrivalLook(int64_t n, int64_t nnz);

  // The beginnings of the arrays that have come so far; looks at what is new. Indices wait for the
  // last pointer. False where nothing was new.
  bool Look(std::span<const int64_t> pointers, std::span<const int32_t> indices,
            std::span<const double> values);
  // Whether it would look at anything.
  bool Behind(std::span<const int64_t> pointers, std::span<const int32_t> indices,
              std::span<const double> values) const;
  // Of arrays that were looked at to their ends; what was not is not known.
  Arrived Finish() const;

 private:
  const size_t n_, nnz_;
  Digester pattern_, value_digester_;
  kernels::ArrivalScan scan_;
  size_t pointers_ = 0, indices_ = 0, values_ = 0;  // looked at
};

}  // namespace spaid::server
