// Computes digests and the checks of validation and diagnosis that read every entry while the
// arrays of a matrix arrive, each piece while it is in the cache.
//
//   StreamingChecks look(n, nnz);
//   look.Look(pointers, indices, values);  // as far as they have come; again and again
//   adapter.Prepare(raw, layout, {.arrived = look.Finish()});
#pragma once

#include <cstdint>
#include <span>

#include "kernels/base/committed.h"  // for those who receive arrays
#include "kernels/engine/engine.h"
#include "server/base/digest.h"

namespace spaid::server {

// Holds what is known about the arrays as they came.
struct ArrayFacts {
  ArrayDigests digests;
  kernels::KnownOfArrays known;
};

// Not thread-safe.
class StreamingChecks {
 public:
  StreamingChecks(int64_t n, int64_t nnz);

  // Looks at what is new in the beginnings of the arrays that have come so far. Indices wait for
  // the last pointer. Returns false if nothing was new.
  bool Look(std::span<const int64_t> pointers, std::span<const int32_t> indices,
            std::span<const double> values);
  // Looks at values that do not lie in the order in which they came: the next ones.
  void LookAtValues(std::span<const double> piece);
  // Returns true if Look would find something new.
  bool Behind(std::span<const int64_t> pointers, std::span<const int32_t> indices,
              std::span<const double> values) const;
  // Returns the results for the arrays that were looked at to their ends; the others are unknown.
  ArrayFacts Finish() const;

 private:
  const size_t n_, nnz_;
  Digester pattern_, value_digester_;
  kernels::ArrivalScan scan_;
  size_t pointers_ = 0, indices_ = 0, values_ = 0;  // looked at
};

}  // namespace spaid::server
