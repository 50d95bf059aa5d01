// Keeps stored things in a folder, so that neither eviction nor a restart forgets them.
//
//   ASSIGN_OR_RETURN(auto folder, SpillFolder::Open({.folder = dir, .max_bytes = 64 << 30}));
//   RETURN_IF_ERROR(folder->Write(record, blobs));            // blocks; now it is durable
//   SpillRecordPtr known = folder->Find(tenant, handle);       // after a restart, too
//   ASSIGN_OR_RETURN(SpillReader reader, folder->Read(*known, 0));
//
//   FOLDER/lock            held by the one daemon that uses it
//   FOLDER/index.sqlite    handles and what they are of (SpillIndex)
//   FOLDER/files/NAME      arrays, immutable (spill_file.h)
//   FOLDER/damaged/        the last files that did not verify
//
// A file is named by its tenant, kind and content, under the key of fingerprints: two handles of a
// tenant with one pattern share its file, and tenants share nothing. Bounded: where there is no
// room records go, the least recently used of the tenant that is most over its share
// (TenantShares), and with the last record a file. No clock decides anything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/descriptor.h"
#include "server/base/tenant_shares.h"
#include "server/store/spill_file.h"
#include "server/store/spill_index.h"
#include "server/store/spill_record.h"

namespace spaid::server {

struct SpillOptions {
  std::string folder;     // made if it is not there; 0700
  int64_t max_bytes = 0;  // of files and rows
  SpillSync sync = SpillSync::kFull;
  ShareRules shares = {};
  SpillStep step = {};  // tests
};

// Arrays to be written, which live until that is done. `content` tells them from all others of
// their kind.
struct SpillBlob {
  SpillKind kind = SpillKind::kPattern;
  std::string content;
  SpillArrays arrays;
};

struct SpillStats {
  int64_t records = 0, files = 0, bytes = 0, max_bytes = 0;
  int64_t written_bytes = 0, read_bytes = 0;  // all since the start
  int64_t loaded = 0;                         // files read back
  int64_t refused = 0;                        // things that were not written
  int64_t dropped = 0;                        // records, to make room
  int64_t damaged = 0;                        // files and indices that did not verify
};

// Thread-safe. Writes wait for each other; no call but Write, WriteDeletes and Read touches the
// disk.
class SpillFolder {
 public:
  // One row of the index counts as so many bytes, beside its files.
  static constexpr int64_t kRowBytes = 4096;
  static constexpr int64_t kMaxDamaged = 8;  // files kept that did not verify

  // Errors: FAILED_PRECONDITION/BAD_SPILL_FOLDER, with folder and cure: another daemon has it, it
  // is somebody else's, of another version, or the system refuses.
  static absl::StatusOr<std::unique_ptr<SpillFolder>> Open(SpillOptions options);
  ~SpillFolder();  // writes deletes
  SpillFolder(const SpillFolder&) = delete;
  SpillFolder& operator=(const SpillFolder&) = delete;

  // Makes it durable: its files, which are there already where another record has the same, then
  // the record (all but blobs and their names set), in place of one with its handle. Blocks.
  // Errors: RESOURCE_EXHAUSTED (no room), UNAVAILABLE, DATA_LOSS; nothing of it is left then, and
  // it is counted and, once for each cause, logged.
  absl::Status Write(SpillRecord record, const std::vector<SpillBlob>& blobs);
  // Forgets a record; rows and files go with WriteDeletes, or the next write. False: there is none.
  bool Delete(const std::string& tenant, const std::string& handle);
  // Forgets a record once all is written that the stores have by now, which may be what it
  // promised: the writer's to do, with TakeLater before it looks and Delete behind that.
  void DeleteLater(const std::string& tenant, const std::string& handle);
  using TenantAndHandle = std::pair<std::string, std::string>;
  std::vector<TenantAndHandle> TakeLater();
  // Takes rows and files of what was forgotten away. Blocks.
  void WriteDeletes();
  // Ends what is being written at its next piece, and refuses all that would be written later.
  void CutOff() { cut_off_ = true; }

  // Finds a record; null: unknown, or another tenant's.
  SpillRecordPtr Find(const std::string& tenant, const std::string& handle) const;
  // Find records that have this key, or whose part has it, newest first.
  std::vector<SpillRecordPtr> FindByKey(const std::string& tenant, const std::string& key) const;
  std::vector<SpillRecordPtr> FindByPartKey(const std::string& tenant,
                                            const std::string& key) const;
  // Lists at most `count` with this prefix and sequences under `before`, newest first.
  std::vector<SpillRecordPtr> List(const std::string& tenant, const std::string& prefix,
                                   uint64_t before, size_t count) const;
  // Lists all tenants' records with this prefix, oldest first.
  std::vector<SpillRecordPtr> All(const std::string& prefix) const;
  uint64_t LastSequence(const std::string& prefix) const;
  void Touch(const std::string& handle);  // it is used now

  // Opens a file of the record. Errors: those of SpillReader::Open.
  absl::StatusOr<SpillReader> Read(const SpillRecord& record, size_t blob);
  void CountRead(int64_t bytes);
  // Moves a file of the record aside that did not verify, and forgets all records that have it.
  // Blocks.
  void Damaged(const SpillRecord& record, size_t blob, const absl::Status& why);

  // Returns the name that such a file has, or would have.
  static Sha256 NameOf(const std::string& tenant, SpillKind kind, const std::string& content);

  // Sets what is told of records with this prefix that went without Delete: to make room, or
  // damaged. Runs without a lock held. Set before the first write.
  using Gone = std::function<void(const SpillRecord& record)>;
  void OnGone(const std::string& prefix, Gone gone);

  // Wakes who waits for something to write.
  void Wake();
  uint64_t wakes() const;
  void WaitForWake(uint64_t seen);  // until wakes() is more

  SpillStats stats() const;
  const std::string& path() const { return options_.folder; }

 private:
  struct Item {
    SpillRecordPtr record;
    TenantShares::Account account = nullptr;
    uint64_t used = 0;
  };
  struct File {
    int64_t records = 0, bytes = 0;
    TenantShares::Account account = nullptr;
  };
  using Records = std::vector<SpillRecordPtr>;
  using ByKey = std::unordered_map<std::string, std::map<uint64_t, SpillRecordPtr>>;

  explicit SpillFolder(SpillOptions options);
  absl::Status OpenFolder();
  absl::Status OpenIndex();
  void Adopt(SpillIndex::Opened opened);
  absl::Status UseKey(const SpillRecord* key);
  absl::Status WriteHeld(const SpillRecord& record, const std::vector<SpillBlob>& blobs,
                         std::vector<std::string>* made);
  absl::Status Refused(absl::Status status, const SpillRecord& record);
  void DeleteHeld();  // under disk_mutex_
  void SyncFolder(const char* step);
  void Tell(const Records& gone) const;

  void AddLocked(SpillRecordPtr record);
  void ForgetLocked(const std::string& handle);
  void HoldLocked(const SpillBlobRef& blob, const std::string& tenant);
  void LetGoLocked(const SpillBlobRef& blob);
  void NeedLocked(const std::string& handle, int64_t more);
  bool MayGoLocked(const SpillRecord& record) const {
    return !record.pinned && !needed_.contains(record.handle);
  }
  void LeaveOrderLocked(const Item& item);
  bool MakeRoomLocked(const std::string& tenant, int64_t bytes, Records* gone);
  Records FindLocked(const ByKey& by_key, const std::string& tenant, const std::string& key) const;

  const SpillOptions options_;
  std::atomic<bool> cut_off_{false};
  Descriptor folder_, lock_, files_, damaged_;
  std::map<std::string, Gone> gone_;

  std::mutex disk_mutex_;  // held while something is written; taken before mutex_
  std::unique_ptr<SpillIndex> index_;

  mutable std::mutex wake_mutex_;
  std::condition_variable woken_;
  uint64_t wakes_ = 1;

  mutable std::mutex mutex_;
  TenantShares shares_;
  std::unordered_map<std::string, Item> by_handle_;
  std::unordered_map<std::string, File> by_name_;  // files, by their names
  ByKey by_key_, by_part_key_;                     // with the tenant
  std::map<std::pair<std::string, std::string>, std::map<uint64_t, SpillRecordPtr>>
      lists_;                                      // by prefix and tenant
  std::map<std::string, uint64_t> last_sequence_;  // by prefix
  std::unordered_map<TenantShares::Account, std::map<uint64_t, std::string>> may_go_;
  std::unordered_map<std::string, int64_t> needed_;  // handles, by how many records
  std::set<std::string> rows_to_delete_;
  std::set<std::string> files_to_delete_;
  std::vector<TenantAndHandle> delete_later_;
  std::set<std::string> logged_;  // causes
  uint64_t next_use_ = 1;
  int64_t kept_damaged_ = 0;  // files in `damaged`
  SpillStats stats_;
};

}  // namespace spaid::server
