// Tells what a spill folder has of one stored thing: the row of its index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/digest.h"
#include "server/store/spill_file.h"

namespace spaid::server {

struct SpillBlobRef {
  SpillKind kind = SpillKind::kPattern;
  Sha256 name;
  int64_t bytes = 0;  // of the file

  std::string file() const;  // the name in hex
};

struct SpillRecord {
  std::string handle;  // "matrices/3f…"
  std::string tenant;
  uint64_t sequence = 0;               // in the list of its kind
  int64_t bytes = 0, part_bytes = 0;   // in memory, its part (HandleTable::Part) apart
  std::vector<std::string> keys;       // by which its tenant finds it
  std::vector<std::string> part_keys;  // and its part
  std::string meta;                    // all that is in no file: a message of the kind's
  std::vector<SpillBlobRef> blobs;
  bool pinned = false;             // was promised: does not go to make room
  std::vector<std::string> needs;  // handles that do not go either, as long as this is there
};

using SpillRecordPtr = std::shared_ptr<const SpillRecord>;

// As bytes, with a checksum of their own; and back, nullopt: they are not what was packed.
std::string PackRecord(const SpillRecord& record);
std::optional<SpillRecord> UnpackRecord(std::string_view packed);

}  // namespace spaid::server
