// Receives a matrix that goes to the ranks alone: what has come is passed on, piece by piece, and
// only the pointers are here as a whole, until the ranks have them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/digest.h"
#include "server/engine/adapter.h"
#include "server/rpc/array_receiver.h"
#include "server/rpc/chunk_view.h"
#include "spaid/v1/matrix.pb.h"

namespace spaid::server {

// Thread-compatible: its stream's mutex guards it until Flush or Finish, which run alone and block.
class SpreadReceiver {
 public:
  // `header` was checked by CheckMatrixHeader; it is no pattern-only one. `like`: a matrix over the
  // ranks whose pattern it has, so that values alone come; null: all comes.
  SpreadReceiver(const EngineAdapter& adapter, const v1::MatrixHeader& header,
                 std::shared_ptr<const kernels::OverRanks> like, EngineAdapter::GiveUp give_up);

  // Host bytes that it takes beside a piece of a mebibyte or two.
  static int64_t Bytes(const v1::MatrixHeader& header);

  // Appends a chunk. Errors: ArrayReceiver::Add's; UNEXPECTED_MESSAGE for entries before the last
  // pointer: whose they are is not known.
  absl::Status Add(const ChunkView& chunk, BookBytes book);
  // Whether Flush has to run before more is added, with this chunk or without it.
  bool full(int64_t with_bytes = 0) const;
  // Passes on what has come. Errors: EngineAdapter::BeginOverRanks', the ranks'.
  absl::Status Flush();
  absl::Status CheckComplete() const;
  // XXH3 of what has been passed on, as it came: once Finish has succeeded, of all. None of a
  // pattern that did not come.
  ArrayDigests digests() const {
    if (like_ != nullptr) return {std::nullopt, value_digest_.Finish()};
    return {pattern_digest_.Finish(), value_digest_.Finish()};
  }
  v1::UploadNeed Need() const;
  int64_t bytes_up() const { return bytes_up_; }
  // Flushes, and makes the matrix. Errors: Flush's, EngineAdapter::PrepareOverRanks'.
  absl::StatusOr<std::shared_ptr<Matrix>> Finish(const PrepareOptions& options);

 private:
  const EngineAdapter& adapter_;
  const std::shared_ptr<const kernels::OverRanks> like_;
  const EngineAdapter::GiveUp give_up_;
  const int64_t nnz_;
  const kernels::Layout layout_;
  const bool sort_and_sum_;
  ArrayReceiver<int64_t> pointers_;
  ArrayReceiver<int32_t> indices_;
  ArrayReceiver<double> values_;
  std::vector<int32_t> new_indices_;  // come, and not passed on
  std::vector<double> new_values_;
  std::unique_ptr<kernels::RanksInput> input_;  // once the pointers are there
  Digester pattern_digest_, value_digest_;
  int64_t bytes_up_ = 0;
};

}  // namespace spaid::server
