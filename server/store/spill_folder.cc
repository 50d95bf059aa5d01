#include "server/store/spill_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/checksum.h"
#include "server/base/ids.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"

namespace spaid::server {
namespace {

std::string PrefixOf(const std::string& handle) { return handle.substr(0, handle.find('/') + 1); }

std::string TenantKey(const std::string& tenant, const std::string& key) {
  return absl::StrCat(tenant.size(), ":", tenant, key);
}

}  // namespace

SpillFolder::~SpillFolder() {
  if (index_ != nullptr) WriteDeletes();
}

Sha256 SpillFolder::NameOf(const std::string& tenant, SpillKind kind, const std::string& content) {
  return Sha256Of(absl::StrCat("spaid spill|", static_cast<uint32_t>(kind), "|", tenant.size(), ":",
                               tenant, content));
}

void SpillFolder::OnGone(const std::string& prefix, Gone gone) { gone_[prefix] = std::move(gone); }

void SpillFolder::Tell(const Records& gone) const {
  for (const SpillRecordPtr& record : gone) {
    const auto told = gone_.find(PrefixOf(record->handle));
    if (told != gone_.end()) told->second(*record);
  }
}

void SpillFolder::HoldLocked(const SpillBlobRef& blob, const std::string& tenant) {
  const std::string name = blob.file();
  File& file = by_name_[name];
  if (file.records++ > 0) return;
  files_to_delete_.erase(name);
  file.bytes = blob.bytes;
  file.account = shares_.Join(tenant);
  shares_.Add(file.account, blob.bytes);
}

void SpillFolder::LetGoLocked(const SpillBlobRef& blob) {
  const std::string name = blob.file();
  const auto file = by_name_.find(name);
  if (--file->second.records > 0) return;
  shares_.Add(file->second.account, -file->second.bytes);
  shares_.Leave(file->second.account);
  by_name_.erase(file);
  files_to_delete_.insert(name);
}

// The files of it are held already.
void SpillFolder::AddLocked(SpillRecordPtr record) {
  Item item{record, shares_.Join(record->tenant), next_use_++};
  shares_.Add(item.account, kRowBytes);
  if (MayGoLocked(*record)) may_go_[item.account][item.used] = record->handle;
  for (const std::string& key : record->keys) {
    by_key_[TenantKey(record->tenant, key)][record->sequence] = record;
  }
  for (const std::string& key : record->part_keys) {
    by_part_key_[TenantKey(record->tenant, key)][record->sequence] = record;
  }
  const std::string prefix = PrefixOf(record->handle);
  lists_[{prefix, record->tenant}][record->sequence] = record;
  uint64_t& last = last_sequence_[prefix];
  last = std::max(last, record->sequence);
  rows_to_delete_.erase(record->handle);
  by_handle_[record->handle] = std::move(item);
  for (const std::string& handle : record->needs) NeedLocked(handle, 1);
}

// So many more records need it; it may come later, or be gone.
void SpillFolder::NeedLocked(const std::string& handle, int64_t more) {
  const auto item = by_handle_.find(handle);
  const bool there = item != by_handle_.end();
  if (there && more > 0) LeaveOrderLocked(item->second);
  const auto needed = needed_.try_emplace(handle, 0).first;
  needed->second += more;
  if (needed->second == 0) needed_.erase(needed);
  if (there && MayGoLocked(*item->second.record)) {
    may_go_[item->second.account][item->second.used] = handle;
  }
}

void SpillFolder::LeaveOrderLocked(const Item& item) {
  const auto own = may_go_.find(item.account);
  if (own == may_go_.end()) return;
  own->second.erase(item.used);
  if (own->second.empty()) may_go_.erase(own);
}

void SpillFolder::ForgetLocked(const std::string& handle) {
  const auto it = by_handle_.find(handle);
  const Item item = std::move(it->second);
  by_handle_.erase(it);
  const SpillRecord& record = *item.record;
  LeaveOrderLocked(item);
  for (const std::string& needed : record.needs) NeedLocked(needed, -1);
  const auto erase = [&record](ByKey* by_key, const std::string& key) {
    const auto known = by_key->find(TenantKey(record.tenant, key));
    if (known == by_key->end()) return;  // named twice
    known->second.erase(record.sequence);
    if (known->second.empty()) by_key->erase(known);
  };
  for (const std::string& key : record.keys) erase(&by_key_, key);
  for (const std::string& key : record.part_keys) erase(&by_part_key_, key);
  const auto list = lists_.find({PrefixOf(handle), record.tenant});
  list->second.erase(record.sequence);
  if (list->second.empty()) lists_.erase(list);
  for (const SpillBlobRef& blob : record.blobs) LetGoLocked(blob);
  shares_.Add(item.account, -kRowBytes);
  shares_.Leave(item.account);
  rows_to_delete_.insert(handle);
}

bool SpillFolder::MakeRoomLocked(const std::string& tenant, int64_t bytes, Records* gone) {
  const TenantShares::Account account = shares_.Join(tenant);
  const absl::Cleanup leave = [&] { shares_.Leave(account); };
  const auto has_some = [this](TenantShares::Account other) { return may_go_.contains(other); };
  while (shares_.used() + bytes > shares_.limit()) {
    const TenantShares::Account victim =
        bytes > shares_.limit() ? nullptr : shares_.Yields(account, bytes, has_some);
    if (victim == nullptr) return false;
    const std::string handle = may_go_.at(victim).begin()->second;
    gone->push_back(by_handle_.at(handle).record);
    ForgetLocked(handle);
    ++stats_.dropped;
  }
  return true;
}

void SpillFolder::SyncFolder(const char* step) {
  if (options_.sync != SpillSync::kFull) return;
  if (options_.step && options_.step(step) != 0) return;
  fsync(files_.get());
}

void SpillFolder::DeleteHeld() {
  std::vector<std::string> rows, files;
  {
    const std::lock_guard lock(mutex_);
    rows.assign(rows_to_delete_.begin(), rows_to_delete_.end());
    files.assign(files_to_delete_.begin(), files_to_delete_.end());
    rows_to_delete_.clear();
    files_to_delete_.clear();
  }
  if (rows.empty() && files.empty()) return;
  // First the rows: a file that no row names goes at the next start.
  if (absl::Status status = index_->Delete(rows); !status.ok()) {
    const std::lock_guard lock(mutex_);
    // A row that stays names files that are gone: found out at the next start.
    for (const std::string& row : rows) {
      if (!by_handle_.contains(row)) rows_to_delete_.insert(row);
    }
    if (logged_.insert("delete").second) {
      Log(LogLevel::kWarning, "spill_failed",
          {{"cause", "delete"}, {"text", std::string(status.message())}});
    }
  }
  for (const std::string& file : files) {
    if (options_.step) (void)options_.step("unlink");
    unlinkat(files_.get(), file.c_str(), 0);
  }
}

void SpillFolder::DeleteLater(const std::string& tenant, const std::string& handle) {
  {
    const std::lock_guard lock(mutex_);
    delete_later_.emplace_back(tenant, handle);
  }
  Wake();
}

std::vector<SpillFolder::TenantAndHandle> SpillFolder::TakeLater() {
  const std::lock_guard lock(mutex_);
  return std::exchange(delete_later_, {});
}

void SpillFolder::WriteDeletes() {
  const std::lock_guard disk(disk_mutex_);
  DeleteHeld();
}

bool SpillFolder::Delete(const std::string& tenant, const std::string& handle) {
  const std::lock_guard lock(mutex_);
  const auto it = by_handle_.find(handle);
  if (it == by_handle_.end() || it->second.record->tenant != tenant) return false;
  ForgetLocked(handle);
  Wake();
  return true;
}

absl::Status SpillFolder::WriteHeld(const SpillRecord& record, const std::vector<SpillBlob>& blobs,
                                    std::vector<std::string>* made) {
  for (size_t b = 0; b < blobs.size(); ++b) {
    const SpillBlobRef& ref = record.blobs[b];
    const std::string file = ref.file();
    {
      const std::lock_guard lock(mutex_);
      // Somebody else's, too, or named twice: written already.
      if (by_name_.at(file).records > 1) continue;
    }
    const SpillStep step = [this](std::string_view name) {
      return cut_off_ ? ECANCELED : options_.step ? options_.step(name) : 0;
    };
    RETURN_IF_ERROR(WriteSpillFile(files_.get(), file, ref.kind, ref.name, blobs[b].arrays,
                                   options_.sync, step));
    made->push_back(file);
    const std::lock_guard lock(mutex_);
    stats_.written_bytes += ref.bytes;
  }
  if (!made->empty()) SyncFolder("sync_folder");
  if (const int why = options_.step ? options_.step("index") : 0; why != 0) {
    return absl::UnavailableError(std::strerror(why));
  }
  RETURN_IF_ERROR(index_->Put(record));
  if (options_.step) (void)options_.step("indexed");
  return absl::OkStatus();
}

absl::Status SpillFolder::Refused(absl::Status status, const SpillRecord& record) {
  const std::lock_guard lock(mutex_);
  ++stats_.refused;
  const std::string cause(status.message());
  if (logged_.size() < 100 && logged_.insert(cause).second) {
    Log(LogLevel::kWarning, "spill_failed",
        {{"cause", cause}, {"handle", record.handle}, {"folder", options_.folder}});
  }
  return status;
}

absl::Status SpillFolder::Write(SpillRecord record, const std::vector<SpillBlob>& blobs) {
  Records gone;
  const absl::Cleanup tell = [&] { Tell(gone); };
  const std::lock_guard disk(disk_mutex_);
  record.blobs.clear();
  for (const SpillBlob& blob : blobs) {
    record.blobs.push_back({.kind = blob.kind,
                            .name = NameOf(record.tenant, blob.kind, blob.content),
                            .bytes = SpillFileBytes(blob.arrays)});
  }
  int64_t bytes = kRowBytes;
  for (const SpillBlobRef& blob : record.blobs) bytes += blob.bytes;
  bool room = bytes <= options_.max_bytes;
  {
    const std::lock_guard lock(mutex_);
    for (const SpillBlobRef& blob : record.blobs) HoldLocked(blob, record.tenant);
    room = room && MakeRoomLocked(record.tenant, kRowBytes, &gone);
  }
  DeleteHeld();
  std::vector<std::string> made;
  absl::Status status =
      room ? WriteHeld(record, blobs, &made)
           : absl::ResourceExhaustedError("no room within --spill-bytes beside what may not go");
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok()) {
      for (const SpillBlobRef& blob : record.blobs) LetGoLocked(blob);
    } else {
      if (by_handle_.contains(record.handle)) ForgetLocked(record.handle);
      AddLocked(std::make_shared<const SpillRecord>(record));
    }
  }
  DeleteHeld();
  return status.ok() ? status : Refused(std::move(status), record);
}

SpillRecordPtr SpillFolder::Find(const std::string& tenant, const std::string& handle) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_handle_.find(handle);
  if (it == by_handle_.end() || it->second.record->tenant != tenant) return nullptr;
  return it->second.record;
}

SpillFolder::Records SpillFolder::FindLocked(const ByKey& by_key, const std::string& tenant,
                                             const std::string& key) const {
  Records found;
  const auto known = by_key.find(TenantKey(tenant, key));
  if (known == by_key.end()) return found;
  for (auto it = known->second.rbegin(); it != known->second.rend(); ++it) {
    found.push_back(it->second);
  }
  return found;
}

SpillFolder::Records SpillFolder::FindByKey(const std::string& tenant,
                                            const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return FindLocked(by_key_, tenant, key);
}

SpillFolder::Records SpillFolder::FindByPartKey(const std::string& tenant,
                                                const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return FindLocked(by_part_key_, tenant, key);
}

SpillFolder::Records SpillFolder::List(const std::string& tenant, const std::string& prefix,
                                       uint64_t before, size_t count) const {
  const std::lock_guard lock(mutex_);
  Records listed;
  const auto list = lists_.find({prefix, tenant});
  if (list == lists_.end()) return listed;
  auto it = list->second.lower_bound(before);
  while (it != list->second.begin() && listed.size() < count) listed.push_back((--it)->second);
  return listed;
}

SpillFolder::Records SpillFolder::All(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  Records all;
  for (const auto& [handle, item] : by_handle_) {
    if (PrefixOf(handle) == prefix) all.push_back(item.record);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
  return all;
}

uint64_t SpillFolder::LastSequence(const std::string& prefix) const {
  const std::lock_guard lock(mutex_);
  const auto last = last_sequence_.find(prefix);
  return last == last_sequence_.end() ? 0 : last->second;
}

void SpillFolder::Touch(const std::string& handle) {
  const std::lock_guard lock(mutex_);
  const auto it = by_handle_.find(handle);
  if (it == by_handle_.end()) return;
  Item& item = it->second;
  LeaveOrderLocked(item);
  item.used = next_use_++;
  if (MayGoLocked(*item.record)) may_go_[item.account][item.used] = handle;
}

absl::StatusOr<SpillReader> SpillFolder::Read(const SpillRecord& record, size_t blob) {
  if (blob >= record.blobs.size()) return absl::DataLossError("the record has fewer files");
  const SpillBlobRef& ref = record.blobs[blob];
  return SpillReader::Open(files_.get(), ref.file(), ref.kind, ref.name);
}

void SpillFolder::CountRead(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++stats_.loaded;
  stats_.read_bytes += bytes;
}

void SpillFolder::Damaged(const SpillRecord& record, size_t blob, const absl::Status& why) {
  Records gone;
  const absl::Cleanup tell = [&] { Tell(gone); };
  const std::lock_guard disk(disk_mutex_);
  const std::string file =
      blob < record.blobs.size() ? record.blobs[blob].file() : std::string("none");
  bool keep = false;
  {
    const std::lock_guard lock(mutex_);
    // Another one may have been written by its name since.
    const auto known = by_handle_.find(record.handle);
    if (known == by_handle_.end() || known->second.record.get() != &record) return;
    for (const auto& [handle, item] : by_handle_) {
      const auto& blobs = item.record->blobs;
      if (item.record.get() == &record ||
          std::any_of(blobs.begin(), blobs.end(),
                      [&](const SpillBlobRef& ref) { return ref.file() == file; })) {
        gone.push_back(item.record);
      }
    }
    for (const SpillRecordPtr& one : gone) ForgetLocked(one->handle);
    ++stats_.damaged;
    keep = kept_damaged_ < kMaxDamaged;
    kept_damaged_ += keep;
  }
  Log(LogLevel::kError, "spill_damaged",
      {{"folder", options_.folder},
       {"file", file},
       {"handle", record.handle},
       {"records", gone.size()},
       {"text", std::string(why.message())}});
  if (keep) renameat(files_.get(), file.c_str(), damaged_.get(), file.c_str());
  DeleteHeld();
}

void SpillFolder::Wake() {
  {
    const std::lock_guard lock(wake_mutex_);
    ++wakes_;
  }
  woken_.notify_all();
}

uint64_t SpillFolder::wakes() const {
  const std::lock_guard lock(wake_mutex_);
  return wakes_;
}

void SpillFolder::WaitForWake(uint64_t seen) {
  std::unique_lock lock(wake_mutex_);
  woken_.wait(lock, [&] { return wakes_ > seen; });
}

SpillStats SpillFolder::stats() const {
  const std::lock_guard lock(mutex_);
  SpillStats stats = stats_;
  stats.records = static_cast<int64_t>(by_handle_.size());
  stats.files = static_cast<int64_t>(by_name_.size());
  stats.bytes = shares_.used();
  stats.max_bytes = options_.max_bytes;
  return stats;
}

}  // namespace spaid::server
