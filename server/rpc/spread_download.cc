#include "server/rpc/spread_download.h"

#include <algorithm>
#include <utility>

#include "server/base/status.h"
#include "server/engine/convert.h"

namespace spaid::server {
namespace {

// As much is fetched at once: an order to the ranks costs some tens of microseconds.
constexpr int64_t kPieceBytes = 1 << 20;

}  // namespace

absl::StatusOr<ChunkSource> SpreadDownload::Fetch() {
  const auto piece = [&]<class T>(v1::ArrayKind kind, int64_t count,
                                  bool narrow) -> absl::StatusOr<ChunkSource> {
    const int64_t here = std::min(count - first_, kPieceBytes / static_cast<int64_t>(sizeof(T)));
    auto array = std::make_shared<std::vector<T>>(static_cast<size_t>(here));
    if (kernels::Status read = from_->Read(first_, std::span<T>(*array)); !read.ok()) {
      return ToAbsl(read);
    }
    ChunkSource source =
        ChunkSource::OfPiece(array, kind, first_, std::span<const T>(*array), narrow);
    first_ += here;
    if (first_ == count) {
      fetched_ = static_cast<Array>(fetched_ + 1);
      first_ = 0;
    }
    return source;
  };
  switch (fetched_) {
    case kPointers:
      return piece.operator()<int64_t>(v1::ARRAY_KIND_POINTERS, n() + 1, false);
    case kIndices:
      return piece.operator()<int32_t>(v1::ARRAY_KIND_INDICES, nnz(), false);
    default:
      return piece.operator()<double>(v1::ARRAY_KIND_VALUES, nnz(), narrow_);
  }
}

void SpreadDownload::Put(ChunkSource piece) {
  bytes_before_ += chunks_.bytes_down();
  chunks_ = std::move(piece);
  more_ = !chunks_.exhausted();
  array_ = fetched_;
}

absl::StatusOr<bool> SpreadDownload::Next(v1::ArrayChunk* chunk, int64_t most_bytes,
                                          grpc::Slice* lent) {
  if (!more_) return false;
  ASSIGN_OR_RETURN(const bool filled, chunks_.Next(chunk, most_bytes, lent));
  more_ = !chunks_.exhausted();
  return filled;
}

}  // namespace spaid::server
