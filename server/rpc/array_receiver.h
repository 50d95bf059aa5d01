// Assembles arrays from untrusted chunks. A chunk is copied once, from the message into its place
// (fp32 values are widened on the way); only the first mebibyte of an array, which comes while its
// size is just a promise, is moved once more.
//
//   ArrayReceiver<int32_t> indices(v1::ARRAY_KIND_INDICES, nnz);
//   RETURN_IF_ERROR(indices.Add(chunk, [&](int64_t bytes) { return share.Grow(bytes); }));
//   RETURN_IF_ERROR(indices.CheckComplete());
//   Use(indices.Take());
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/engine/adapter.h"
#include "server/engine/stored_types.h"
#include "server/engine/streaming_checks.h"
#include "server/engine/values_ahead.h"
#include "server/rpc/chunk_view.h"
#include "spaid/v1/arrays.pb.h"
#include "spaid/v1/matrix.pb.h"

namespace spaid::server {

// Books memory before it is committed; an error refuses it. The bookings of an array never sum to
// more than the array.
using BookBytes = absl::FunctionRef<absl::Status(int64_t bytes)>;

// Receives one array of `size` elements of T, in order. Not thread-safe. A promise costs nothing:
// up to a mebibyte, at most twice what has arrived is allocated; then the whole array, untouched,
// whose huge pages are committed as bytes arrive (or all at once if the memory is reused:
// AllocateLarge).
template <class T>
class ArrayReceiver {
 public:
  // `size` >= 0. `from_float32`: T is double and the wire carries float32.
  ArrayReceiver(v1::ArrayKind kind, int64_t size, bool from_float32 = false)
      : kind_(kind), size_(size), from_float32_(from_float32) {}

  // Appends a chunk. Errors, INVALID_ARGUMENT with the array, the offset and the cure:
  // CHUNK_NOT_WHOLE (empty, or not a whole number of elements), CHUNK_OUT_OF_ORDER,
  // CHUNK_BEYOND_END, CHECKSUM_MISMATCH; RESOURCE_EXHAUSTED/OUT_OF_MEMORY; those of `book`. An
  // error leaves what was received unchanged.
  absl::Status Add(const ChunkView& chunk, BookBytes book);
  std::span<const T> so_far() const {
    return data_ ? std::span(*data_).first(static_cast<size_t>(received_)) : std::span<const T>();
  }
  // From now on element i goes to places[i], which lives as long as this; before the first chunk,
  // with which all of the array is booked. so_far() means nothing then; last() are the elements of
  // the last chunk, in the order in which they came.
  void Scatter(std::span<const int32_t> places) { places_ = places; }
  bool scatters() const { return !places_.empty(); }
  // From now on elements are not kept: last() are those of the last chunk. Before the first one.
  void Pass() { passes_ = true; }
  std::span<const T> last() const { return last_; }
  // Returns true once so_far() begins where it always will.
  bool in_place() const { return data_ && static_cast<int64_t>(data_->size()) == size_; }
  // Keeps the memory that so_far() shows alive and in place, also when more comes.
  std::shared_ptr<const void> hold() const { return data_; }
  // Returns INVALID_ARGUMENT/ARRAY_INCOMPLETE if elements are missing.
  absl::Status CheckComplete() const;
  bool complete() const { return received_ == size_; }
  int64_t size() const { return size_; }
  v1::ArrayKind kind() const { return kind_; }
  int64_t received() const { return received_; }
  // Returns the complete array and leaves this empty.
  kernels::Array<T> Take();
  // Frees the elements that have come; that they have stays known.
  void Drop() { data_.reset(); }

 private:
  absl::Status Check(const ChunkView& chunk) const;
  absl::Status CheckCrc(const ChunkView& chunk, uint32_t crc) const;
  absl::Status MakeRoom(int64_t elements, BookBytes book);

  v1::ArrayKind kind_;
  int64_t size_;
  bool from_float32_;
  int64_t received_ = 0, booked_ = 0;
  bool committed_ = false;  // all of data_, from the first
  std::shared_ptr<kernels::Array<T>> data_;
  std::span<const int32_t> places_;
  bool passes_ = false;
  std::vector<T> last_;
};

// Adds what is still missing of an array.
template <class T>
void AddNeed(const ArrayReceiver<T>& array, v1::UploadNeed* need) {
  if (array.complete()) return;
  v1::UploadNeed::Range* range = need->add_ranges();
  range->set_array(array.kind());
  range->set_offset(array.received());
  range->set_count(array.size() - array.received());
}

// Receives the arrays of one matrix. Thread-compatible, except LookAtNew.
class MatrixReceiver {
 public:
  // `header` was checked by CheckMatrixHeader. `known`: a pattern that need not come.
  explicit MatrixReceiver(const v1::MatrixHeader& header, KnownPattern known = {});

  // Tells if the pattern comes by rows and this chunk may be the last of it, no value having come:
  // it is turned then (TakeRows, Know) before values come, which find their places at once and
  // need no second array.
  bool MayEndRows(const ChunkView& chunk) const;
  bool rows_complete() const;
  kernels::PatternView rows() const;
  kernels::Pattern TakeRows();
  void Know(KnownPattern known);
  const KnownPattern& known() const { return known_; }

  // Returns true for the arrays that belong to a matrix.
  static bool Takes(v1::ArrayKind kind);
  // Appends a chunk. Errors: as for ArrayReceiver; UNEXPECTED_MESSAGE for values of a pattern-only
  // matrix.
  absl::Status Add(const ChunkView& chunk, BookBytes book);
  absl::Status CheckComplete() const;
  bool complete() const;
  // Returns the array bytes received, as counted on the wire.
  int64_t bytes_up() const { return bytes_up_; }
  // Returns the ranges that are still missing.
  v1::UploadNeed Need() const;
  // Digests and checks what has arrived since the last call, while it is in the cache. Thread-safe,
  // also beside Add.
  void LookAtNew();
  // Returns true if something has arrived since the last look began.
  bool HasNew();
  // From now on looks send values ahead, too, as far as they come in the order of columns.
  void SendAhead(std::shared_ptr<ValuesAhead> ahead);
  // Returns what is known about the arrays, once they are complete. Nothing is sent ahead after it;
  // `ahead`: gets what was.
  ArrayFacts Look(std::shared_ptr<ValuesAhead>* ahead = nullptr);
  // Returns the raw matrix, its arrays as they came (where the pattern is known, values alone, in
  // its order), and leaves this empty.
  kernels::CscMatrix Take();

 private:
  int64_t n_;
  bool pattern_only_;
  bool turns_;  // by rows, and small enough to be turned
  KnownPattern known_;
  ArrayReceiver<int64_t> pointers_;
  ArrayReceiver<int32_t> indices_;
  ArrayReceiver<double> values_;

  // A snapshot, so that a look needs no lock on what is being received.
  struct Arrays {
    std::span<const int64_t> pointers;
    std::span<const int32_t> indices;
    std::span<const double> values;
    std::shared_ptr<const void> held[3] = {};
    bool values_in_place = false;
  };
  Arrays Come() const;
  std::mutex look_mutex_;
  StreamingChecks look_;                // guarded by look_mutex_
  std::shared_ptr<ValuesAhead> ahead_;  // null: nobody wants them; guarded by look_mutex_
  mutable std::mutex come_mutex_;
  Arrays come_;  // whole elements that have come; guarded by come_mutex_
  int64_t bytes_up_ = 0;
};

// Checks a header before anything in it is used. `field`: "header" or "header.inline_matrix".
// Errors, INVALID_ARGUMENT: BAD_SIZE, NOT_SQUARE, UNKNOWN_ENUM, BAD_DIGEST, BAD_LABEL;
// RESOURCE_EXHAUSTED/MATRIX_TOO_LARGE with metadata `limit` and `actual`.
absl::Status CheckMatrixHeader(const v1::MatrixHeader& header, std::string_view field,
                               int64_t max_matrix_bytes);
// Returns the host bytes of the matrix that `header` (checked) promises.
int64_t PromisedBytes(const v1::MatrixHeader& header);

// Returns INVALID_ARGUMENT/UNKNOWN_ENUM or /UNEXPECTED_MESSAGE for a chunk of an array that is not
// expected here.
absl::Status UnexpectedArray(const ChunkView& chunk, std::string_view expected);

}  // namespace spaid::server
