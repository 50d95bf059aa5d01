// Receives a matrix: header, chunks, then (off the reactor's thread) validation, diagnosis, hashing
// and storing. Used by UploadMatrix and by the inline matrices of builds and solves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/stored_types.h"
#include "server/rpc/array_receiver.h"
#include "spaid/v1/matrix.pb.h"

namespace spaid::server {

class Backend;

// Thread-compatible: its stream's mutex guards it until Store, which runs alone. If there are cores
// for it, arriving arrays are digested and checked on another thread than the reactor's.
class MatrixInput : public std::enable_shared_from_this<MatrixInput> {
 public:
  // Checks a header (CheckMatrixHeader with the server's limit), and that there is room for the
  // matrix while it is prepared. `field`: "header", "header.inline_matrix".
  static absl::Status Check(const Backend& backend, const v1::MatrixHeader& header,
                            std::string_view field);
  // Checks `header` and reserves room in the store. Errors: Check's, the store's.
  static absl::StatusOr<std::shared_ptr<MatrixInput>> Begin(Backend* backend,
                                                            const std::string& tenant,
                                                            const v1::MatrixHeader& header,
                                                            std::string_view field);

  // Appends a chunk. `stream` is kept alive while any of this input is still being looked at.
  // Errors: MatrixReceiver::Add's; STORE_FULL.
  absl::Status Add(const ChunkView& chunk, std::shared_ptr<void> stream);
  absl::Status CheckComplete() const { return receiver_.CheckComplete(); }
  v1::UploadNeed Need() const { return receiver_.Need(); }
  int64_t bytes_up() const { return receiver_.bytes_up(); }

  // Makes a stored matrix of the complete input and leaves this empty. O(nnz) time; ends early at a
  // stop. Errors: EngineAdapter::Prepare's, INVALID_ARGUMENT/DIGEST_MISMATCH, the store's.
  absl::StatusOr<Stored<Matrix>> Store(kernels::StopToken stop);

 private:
  MatrixInput(Backend* backend, std::string tenant, const v1::MatrixHeader& header,
              std::string_view field, Reservation reservation);
  void LookAside(std::shared_ptr<void> stream);
  // Returns the bytes needed beside the arrays for validation and diagnosis; 0: not worth booking.
  static int64_t WorkBytes(const v1::MatrixHeader& header);

  Backend* const backend_;
  const std::string tenant_;
  const v1::MatrixHeader header_;
  const std::string field_;
  Reservation reservation_;
  MatrixReceiver receiver_;
  std::atomic<bool> looking_{false};  // another thread looks at arrays, or is about to
};

// Compares a header's digests with content that may be stored already.
class ContentClaim {
 public:
  ContentClaim() = default;
  // `header` was checked by CheckMatrixHeader.
  explicit ContentClaim(const v1::MatrixHeader& header);

  // Returns HandleStore's key for content with these XXH3 digests; empty: they do not name all of
  // it.
  const std::string& key() const { return key_; }
  // Returns true if SHA-256 names all of it, too: only that can replace the arrays.
  bool strong() const { return sha256_.has_value(); }
  // Tells if the SHA-256 names `stored`. kMaybe: the SHA-256 of `stored` has not been computed yet.
  enum class Match { kNo, kMaybe, kYes };
  Match Matches(const Matrix& stored) const;
  // Computes the SHA-256 of `stored` if necessary, in O(nnz), and compares.
  bool Holds(const Matrix& stored) const { return stored.sha256() == *sha256_; }

 private:
  std::string key_;
  std::optional<Matrix::ContentSha256> sha256_;
};

}  // namespace spaid::server
