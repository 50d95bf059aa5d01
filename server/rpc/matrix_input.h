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
#include "server/rpc/spread_receiver.h"
#include "spaid/v1/matrix.pb.h"

namespace spaid::server {

class Backend;

// Compares a header's digests, of arrays by columns or by rows, with what may be stored already.
class ContentClaim {
 public:
  ContentClaim() = default;
  // `header` was checked by CheckMatrixHeader; `affinity` of its call: content is found under the
  // same one alone.
  ContentClaim(const v1::MatrixHeader& header, std::string_view affinity);

  // Returns HandleStore's key for content with these XXH3 digests; empty: they do not name all of
  // it.
  const std::string& key() const { return key_; }
  // Returns the key of the pattern; empty: no digest names it.
  const std::string& pattern_key() const { return pattern_key_; }
  bool by_rows() const { return by_rows_; }
  // The same claim of the pattern alone.
  ContentClaim OfPattern() const {
    ContentClaim claim = *this;
    claim.key_.clear();
    claim.values_sha256_.reset();
    return claim;
  }
  // Returns true if SHA-256 names all of it, too, or the pattern: only that can replace arrays.
  bool strong() const { return pattern_sha256_ && (values_sha256_ || pattern_only_); }
  bool proves_pattern() const { return pattern_sha256_.has_value(); }

  // Tells if the SHA-256 names what is stored. kMaybe: its SHA-256 has not been computed yet.
  enum class Match { kNo, kMaybe, kYes };
  Match Matches(const StoredPattern& stored) const;
  Match Matches(const Matrix& stored) const;
  // Compute the SHA-256 of what is stored if necessary, in O(nnz), and compare.
  bool Holds(const StoredPattern& stored) const {
    return stored.sha256(by_rows_) == *pattern_sha256_;
  }
  bool Holds(Backend* backend, const std::string& tenant, const Matrix& stored) const;

 private:
  bool by_rows_ = false, pattern_only_ = false;
  std::string key_, pattern_key_;
  std::optional<Sha256> pattern_sha256_, values_sha256_;
};

// Holds the parts that are here of a matrix that a header announces.
struct FoundOfMatrix {
  std::optional<Stored<Matrix>> content;  // all of it
  KnownPattern pattern;                   // or its pattern
  bool pattern_hint = false;              // or perhaps its pattern: SHA-256 would tell
  bool more = false;                      // not known without O(nnz) work
};

// Looks for it in the stores. `may_compute`: also by O(nnz) work, else nothing is said of what that
// would find (`more`). Errors: of same_pattern_as, NOT_FOUND as HandleStore::Get, and
// INVALID_ARGUMENT/PATTERN_SIZE_MISMATCH.
absl::StatusOr<FoundOfMatrix> FindOfMatrix(Backend* backend, const std::string& tenant,
                                           const v1::MatrixHeader& header,
                                           const ContentClaim& claim, std::string_view field,
                                           bool may_compute, kernels::StopToken stop);

// Thread-compatible: its stream's mutex guards it until Turn or Store, which run alone. If there
// are cores for it, arriving arrays are digested and checked on another thread than the reactor's.
class MatrixInput : public std::enable_shared_from_this<MatrixInput> {
 public:
  // Checks a header (CheckMatrixHeader with the server's limit), and that there is room for the
  // matrix while it is prepared. `field`: "header", "header.inline_matrix".
  static absl::Status Check(const Backend& backend, const v1::MatrixHeader& header,
                            std::string_view field);
  // Checks `header` and reserves room in the store. `affinity`: of the call. `known`: a pattern
  // that need not come. Errors: Check's, the store's.
  static absl::StatusOr<std::shared_ptr<MatrixInput>> Begin(
      Backend* backend, const std::string& tenant, const std::string& affinity,
      const v1::MatrixHeader& header, std::string_view field, KnownPattern known = {});

  // Appends a chunk. `stream` is kept alive while any of this input is still being looked at.
  // Errors: MatrixReceiver::Add's; STORE_FULL.
  absl::Status Add(const ChunkView& chunk, std::shared_ptr<void> stream);
  // Whether it goes to the ranks alone: it is too large for this host's store.
  bool over_ranks() const { return spread_ != nullptr; }
  // Tells if after this chunk Turn may have to run before the next one comes; and if it has to.
  bool MayTurnAfter(const ChunkView& chunk) const {
    return spread_ != nullptr ? spread_->full(chunk.bytes) : receiver_.MayEndRows(chunk);
  }
  bool turns() const {
    return spread_ != nullptr ? spread_->full() : !in_order_ && receiver_.rows_complete();
  }
  // Validates and turns a pattern that came by rows; or passes on to the ranks what has come.
  // O(nnz) time; ends early at a stop. Errors: EngineAdapter::CheckRows, TurnRows; STORE_FULL; the
  // ranks'.
  absl::Status Turn(kernels::StopToken stop);
  // The arrays are in memory that the client shares: it takes no core meanwhile, and one is enough
  // for the copy, so a second one looks.
  void SenderIsIdle();
  absl::Status CheckComplete() const {
    return spread_ != nullptr ? spread_->CheckComplete() : receiver_.CheckComplete();
  }
  v1::UploadNeed Need() const { return spread_ != nullptr ? spread_->Need() : receiver_.Need(); }
  int64_t bytes_up() const {
    return spread_ != nullptr ? spread_->bytes_up() : receiver_.bytes_up();
  }

  // Makes a stored matrix of the complete input and leaves this empty. O(nnz) time; ends early at a
  // stop. Errors: EngineAdapter::Prepare's, INVALID_ARGUMENT/DIGEST_MISMATCH, the store's.
  absl::StatusOr<Stored<Matrix>> Store(kernels::StopToken stop);

 private:
  MatrixInput(Backend* backend, std::string tenant, std::string affinity,
              const v1::MatrixHeader& header, std::string_view field, Reservation reservation,
              KnownPattern known);
  // Whether a matrix goes to the ranks alone.
  static bool GoesOverRanks(const Backend& backend, const v1::MatrixHeader& header);
  void LookAside(std::shared_ptr<void> stream);
  // Has looks send values ahead, if they come by columns to a pattern that is here.
  void SendAhead();
  absl::Status BookWork(int64_t bytes);
  PrepareOptions Options(ArrayFacts arrived, kernels::StopToken stop) const;
  // The pattern, or the equal one that the tenant has, which takes the keys of this one, too.
  std::shared_ptr<const StoredPattern> Shared(std::shared_ptr<const StoredPattern> pattern,
                                              const std::optional<Digest>& by_rows);
  absl::Status CheckDigests(const Matrix& matrix, const ArrayFacts& arrived) const;

  Backend* const backend_;
  const std::string tenant_, affinity_;
  const v1::MatrixHeader header_;
  const std::string field_;
  Reservation reservation_;
  std::unique_ptr<SpreadReceiver> spread_;  // in place of receiver_; null: it stays here
  MatrixReceiver receiver_;
  bool in_order_ = false;   // by rows, and not sorted: values are stored as they come
  int64_t work_bytes_ = 0;  // booked beside the arrays
  const bool pattern_was_here_;
  bool look_aside_;
  bool may_send_ahead_;               // it was not tried yet
  std::atomic<bool> looking_{false};  // another thread looks at arrays, or is about to
};

}  // namespace spaid::server
