#include "server/rpc/chunk_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/digest.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

// Copies of less cost less than what stands for them.
constexpr int64_t kLeastLent = 64 << 10;

grpc::Slice Lend(const char* data, size_t bytes, const std::shared_ptr<const void>& owner) {
  // gRPC only reads it.
  return {const_cast<char*>(data), bytes,
          [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); },
          new std::shared_ptr<const void>(owner)};
}

}  // namespace

ChunkSource ChunkSource::OfMatrix(std::shared_ptr<const void> owner, const kernels::CscView& m,
                                  bool narrow, bool values_only) {
  ChunkSource source;
  source.owner_ = std::move(owner);
  const auto part = [](v1::ArrayKind kind, const auto& array, bool as_float) {
    return Part{kind, reinterpret_cast<const char*>(array.data()),
                static_cast<int64_t>(array.size()), static_cast<int64_t>(sizeof(array[0])),
                as_float};
  };
  if (!values_only) {
    source.parts_ = {part(v1::ARRAY_KIND_POINTERS, m.col_ptr, false),
                     part(v1::ARRAY_KIND_INDICES, m.row_idx, false)};
  }
  source.parts_.push_back(part(v1::ARRAY_KIND_VALUES, m.values, narrow));
  return source;
}

ChunkSource ChunkSource::OfSolution(std::shared_ptr<const void> owner, std::span<const double> x) {
  ChunkSource source;
  source.owner_ = std::move(owner);
  source.parts_ = {Part{v1::ARRAY_KIND_SOLUTION, reinterpret_cast<const char*>(x.data()),
                        static_cast<int64_t>(x.size()), sizeof(double), false}};
  return source;
}

absl::StatusOr<bool> ChunkSource::Next(v1::ArrayChunk* chunk, int64_t most_bytes,
                                       grpc::Slice* lent) {
  while (part_ < parts_.size() && offset_ == parts_[part_].count) {
    ++part_;
    offset_ = 0;
  }
  if (part_ == parts_.size()) return false;
  const Part& part = parts_[part_];
  const int64_t wire_bytes = part.narrow ? 4 : part.element_bytes;
  const int64_t count = std::min(part.count - offset_, most_bytes / wire_bytes);
  if (offset_ + count > part.there) return false;
  const char* from = part.data + offset_ * part.element_bytes;
  chunk->set_array(part.kind);
  chunk->set_offset(part.first + offset_);
  const int64_t bytes = count * wire_bytes;
  if (part.narrow) {
    std::string* data = chunk->mutable_data();
    data->resize(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < count; ++i) {
      double wide;
      std::memcpy(&wide, from + 8 * i, 8);
      if (std::abs(wide) > std::numeric_limits<float>::max()) {
        return MakeError(absl::StatusCode::kFailedPrecondition, reason::kFloat32Overflow,
                         absl::StrCat("value ", part.first + offset_ + i, " is ", wide,
                                      ", which float32 cannot hold; ask for float64"))
            .Field("value_type")
            .Index(part.first + offset_ + i);
      }
      const auto value = static_cast<float>(wide);
      std::memcpy(data->data() + 4 * i, &value, 4);
    }
    chunk->set_crc32(Crc32(*data));
  } else {
    const std::string_view data(from, static_cast<size_t>(bytes));
    chunk->set_crc32(Crc32(data));
    if (owner_ != nullptr && bytes >= kLeastLent) {
      *lent = Lend(from, data.size(), owner_);
    } else {
      chunk->set_data(from, data.size());
    }
  }
  offset_ += count;
  bytes_down_ += bytes;
  return true;
}

}  // namespace spaid::server
