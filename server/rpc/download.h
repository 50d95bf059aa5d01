// Sends M to a client: the header and chunks of M, of its factor G, or of a part of it, in order,
// as far as M is there. Where its build begins anew another header says so.
//
//   auto download = std::make_shared<Download>(m, v1::VALUE_TYPE_FLOAT64, known_pattern);
//   if (download->Waits(backend, tenant, resume)) return false;   // in the stream's Next
//   auto more = download->Next(message, &Response::mutable_header, most_bytes);
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/digest.h"
#include "server/base/status.h"
#include "server/engine/partial_matrix.h"
#include "server/engine/stored_types.h"
#include "server/rpc/chunk_source.h"
#include "server/rpc/spread_download.h"
#include "spaid/v1/preconditioner.pb.h"

namespace spaid::server {

class Backend;

// Thread-compatible: its stream's mutex guards it.
class Download : public std::enable_shared_from_this<Download> {
 public:
  using Clock = std::chrono::steady_clock;

  // `known_pattern`: the digest of a pattern that the client has; empty: of none. Where M has that
  // pattern its values alone go out.
  Download(std::shared_ptr<const PartialMatrix> m, v1::ValueType type, std::string known_pattern)
      : m_(std::move(m)), type_(type), known_pattern_(std::move(known_pattern)) {}
  // Sends a stored M, which is in use, in the eyes of the store, as long as it is read.
  Download(std::shared_ptr<const Preconditioner> stored, v1::ValueType type,
           std::string known_pattern);

  // Sends one that lies over the ranks, whose pattern is not compared. `stored` as above.
  Download(std::shared_ptr<const Preconditioner> stored, std::unique_ptr<kernels::RanksOutput> from,
           v1::ValueType type);

  // Sends a part of M, or anything else in CSC.
  Download(std::shared_ptr<const kernels::CscMatrix> part, v1::ValueType type)
      : part_(std::move(part)), type_(type) {}

  // Calls the task with the stream's mutex held, and sends what there is.
  using Resume = std::function<void(const std::function<void()>& task)>;
  // Returns true while the pattern is compared, or a piece fetched from the ranks, on an executor,
  // which this begins where it has to: nothing can be sent. `resume` is called in the end. Where
  // the executor has no room for a comparison all is sent; for a piece Next has the error.
  bool Waits(Backend* backend, const std::string& tenant, const Resume& resume);

  // Calls header(CscHeader) or chunk(ArrayChunk*) for the next message, with `most_bytes` of data
  // at most; false: all is out, or it is not there yet. `lent` and errors: ChunkSource::Next's.
  template <class Response>
  absl::StatusOr<bool> Next(Response* message, v1::CscHeader* (Response::*header)(),
                            int64_t most_bytes, grpc::Slice* lent) {
    if (spread_ != nullptr) {
      if (version_ == 0) {
        BeginSpread((message->*header)());
        return true;
      }
      RETURN_IF_ERROR(fetched_);
      return spread_->Next(message->mutable_chunk(), most_bytes, lent);
    }
    if (part_ != nullptr) {
      if (version_ > 0) return chunks_.Next(message->mutable_chunk(), most_bytes, lent);
      BeginPart((message->*header)());
      return true;
    }
    absl::StatusOr<bool> filled = false;
    m_->Read([&](const PartialMatrix::View& view) {
      if (view.version == version_) {
        chunks_.LimitLast(view.finished);
        chunks_.OwnedBy(view.owner);
        filled = chunks_.Next(message->mutable_chunk(), most_bytes, lent);
      } else if (known_pattern_.empty() || view.version == compared_) {
        Begin(view, (message->*header)());
        filled = true;
      }
    });
    return filled;
  }

  bool Of(const std::shared_ptr<const kernels::Preconditioner>& kernel) const {
    return m_ != nullptr && m_->owner() == kernel;
  }
  void AddTo(v1::Timings* timings) const;

 private:
  void Begin(const PartialMatrix::View& view, v1::CscHeader* header);
  void BeginPart(v1::CscHeader* header);
  void BeginSpread(v1::CscHeader* header);
  bool Fetching(Backend* backend, const std::string& tenant, const Resume& resume);
  // Notes the digest of the pattern of a version, or that it is shown no more.
  void Compared(int64_t version, const std::optional<Digest>& digest);

  std::shared_ptr<const Preconditioner> stored_;  // may be null
  std::shared_ptr<const PartialMatrix> m_;
  std::shared_ptr<const kernels::CscMatrix> part_;  // in place of m_
  std::unique_ptr<SpreadDownload> spread_;          // the same
  absl::Status fetched_;                            // of its last piece
  bool fetching_ = false;
  v1::ValueType type_;
  std::string known_pattern_;
  bool comparing_ = false, values_only_ = false;
  int64_t compared_ = 0;  // version that values_only_ is about
  ChunkSource chunks_;
  int64_t version_ = 0, bytes_before_ = 0;
  Clock::time_point start_{};
};

}  // namespace spaid::server
