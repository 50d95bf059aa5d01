// How a store's values are written to a spill folder, and read back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/store/spill_folder.h"

namespace spaid::server {

// A value as it is written; it borrows from the value.
struct SpillContent {
  bool in_memory_alone = false;  // it cannot be written: evicted it is gone, and so after a restart
  std::string meta;
  std::vector<SpillBlob> blobs;
};

// A value that was read back.
struct SpillValue {
  std::shared_ptr<const void> value;
  int64_t bytes = 0;                 // without its part
  std::shared_ptr<const void> part;  // null: it has none
  int64_t part_bytes = 0;
};

struct SpillCodec {
  // Returns the part that the tenant has in memory by this key, of which same(part) is true.
  using FindPart = absl::FunctionRef<std::shared_ptr<const void>(
      const std::string& key, const std::function<bool(const void* part)>& same)>;

  std::function<SpillContent(const std::string& tenant, const void* value)> encode;
  // Reads `record`. Errors: DATA_LOSS, `*blob` is the file that does not verify;
  // FAILED_PRECONDITION, this daemon never reads it; RESOURCE_EXHAUSTED.
  std::function<absl::StatusOr<SpillValue>(const SpillRecord& record, SpillFolder& folder,
                                           FindPart find_part, size_t* blob)>
      decode;
};

}  // namespace spaid::server
