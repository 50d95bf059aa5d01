// Assembles M from the chunks of a build's or a download's stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "spaid/client.h"
#include "spaid/v1/preconditioner.pb.h"

namespace spaid::internal {

// Copies and checks chunks on a thread of its own where M is large and there are cores for it, so
// that the next one is received meanwhile. Movable; thread-compatible.
class CscSink {
 public:
  enum class Aside { kNever, kWhereItPays, kAlways };

  // `rows`: of a matrix that is not square; else 0.
  static Expected<CscSink> Create(int64_t n, int64_t nnz, v1::ValueType type,
                                  Aside aside = Aside::kWhereItPays, int64_t rows = 0);
  // Makes one for the header of a result; of values alone with the pattern of `known`, which may be
  // null where the request named no pattern, and else outlives the sink. PROTOCOL_VIOLATION: they
  // are of another one.
  static Expected<CscSink> Create(const v1::CscHeader& header, const CscMatrix* known);
  CscSink(CscSink&&) noexcept;
  CscSink& operator=(CscSink&&) noexcept;
  ~CscSink();

  // Takes the next chunk. Errors: those of ArraySink::Take, of this chunk or an earlier one.
  std::optional<Error> Take(v1::ArrayChunk chunk);
  // Returns the whole matrix, checked: pointers monotone, indices inside. Leaves the sink empty.
  // Errors: those of Take, too.
  Expected<CscMatrix> Finish();
  int64_t received_bytes() const;  // that Take was given
  int64_t total_bytes() const;

 private:
  struct Parts;
  explicit CscSink(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace spaid::internal
