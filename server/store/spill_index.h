// The index of a spill folder: a table of SQLite, from handles to packed records.
//
// A row has a checksum of its own, so that damage is noticed that SQLite does not see. Where it
// sees some, or a row does not verify, the rows that do are taken over into a new file, and the old
// one goes to a folder for damaged ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/spill_file.h"
#include "server/store/spill_record.h"

struct sqlite3;

namespace spaid::server {

// Thread-compatible.
class SpillIndex {
 public:
  static constexpr int kVersion = 1;  // of rows and table

  struct Opened {
    std::vector<SpillRecord> records;
    bool damaged = false;  // and what could be read is taken over
  };

  // Opens or makes `folder`/index.sqlite, which nobody else has open. Errors: FAILED_PRECONDITION
  // (another version), UNAVAILABLE, RESOURCE_EXHAUSTED (the system).
  static absl::StatusOr<std::unique_ptr<SpillIndex>> Open(const std::string& folder,
                                                          const std::string& damaged,
                                                          SpillSync sync, Opened* opened);
  ~SpillIndex();
  SpillIndex(const SpillIndex&) = delete;
  SpillIndex& operator=(const SpillIndex&) = delete;

  // Write a row, or take rows away, durably as `sync` has it. Errors: RESOURCE_EXHAUSTED,
  // UNAVAILABLE, DATA_LOSS, with SQLite's words; the index is as it was.
  absl::Status Put(const SpillRecord& record);
  absl::Status Delete(const std::vector<std::string>& handles);

 private:
  explicit SpillIndex(sqlite3* db) : db_(db) {}
  static absl::StatusOr<std::unique_ptr<SpillIndex>> OpenFile(const std::string& file,
                                                              SpillSync sync);
  absl::Status Run(const char* sql);
  absl::Status SetUp();
  absl::Status CheckVersion();
  absl::Status ReadAll(Opened* opened);
  absl::Status Failed(const char* what) const;

  sqlite3* const db_;
};

}  // namespace spaid::server
