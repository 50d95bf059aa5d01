// The part of a handle table that deals with its spill folder.
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/store/handle_state.h"

namespace spaid::server {
absl::StatusOr<HandleTable::Item> HandleTable::Look(const std::string& tenant,
                                                    const std::string& handle) {
  const std::lock_guard lock(shared_->mutex);
  const auto it = shared_->by_handle.find(handle);
  if (it != shared_->by_handle.end() && it->second->tenant == tenant) {
    ++shared_->hits;
    return shared_->Use(it->second);
  }
  if (SpillFolder* const spill = shared_->options.spill; spill != nullptr) {
    if (SpillRecordPtr record = spill->Find(tenant, handle)) {
      return Item{handle, nullptr, true, std::move(record)};
    }
  }
  ++shared_->misses;
  return shared_->NotFound(tenant, handle);
}

absl::StatusOr<HandleTable::Item> HandleTable::Load(const std::string& tenant,
                                                    const std::string& handle) {
  SpillRecordPtr record;
  for (;;) {
    std::unique_lock lock(shared_->mutex);
    // Whoever reads it back ends, one way or the other; then this looks anew.
    shared_->loaded.wait(lock, [&] { return !shared_->loading.contains(handle); });
    lock.unlock();
    auto found = Look(tenant, handle);
    if (!found.ok() || found->value != nullptr) return found;
    record = std::move(found->spilled);
    lock.lock();
    if (shared_->loading.insert(handle).second) break;
  }
  const absl::Cleanup done = [&] {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->loading.erase(handle);
    }
    shared_->loaded.notify_all();
  };
  return LoadRecord(record);
}

absl::StatusOr<HandleTable::Item> HandleTable::LoadRecord(const SpillRecordPtr& record) {
  SpillFolder& spill = *shared_->options.spill;
  const std::string& tenant = record->tenant;
  const int64_t bytes = record->bytes + record->part_bytes;
  ASSIGN_OR_RETURN(Reservation room, Reserve(tenant, bytes));
  RETURN_IF_ERROR(room.Arrive(bytes));
  size_t blob = 0;
  auto read = shared_->options.codec.decode(
      *record, spill,
      [&](const std::string& key, const Same& same) { return FindPart(tenant, key, same); }, &blob);
  if (absl::IsDataLoss(read.status())) spill.Damaged(*record, blob, read.status());
  Reservation::Shared::Dropped dropped;
  Part part;
  if (read.ok() && read->part != nullptr) {
    part = {std::move(read->part), read->part_bytes};
  }
  if (part.value != nullptr && !record->part_keys.empty()) {
    part.value = ShareByKeys(tenant, part, record->part_keys, [&](const void* known) {
      return known == part.value.get();  // decode has looked for equal ones
    });
  }
  const auto tenant_keys = Reservation::Shared::TenantKeys(tenant, record->keys);
  const std::lock_guard lock(shared_->mutex);
  if (absl::IsDataLoss(read.status())) return shared_->NotFound(tenant, record->handle);
  if (absl::IsFailedPrecondition(read.status())) return read.status();
  if (!read.ok()) {
    return MakeError(absl::StatusCode::kResourceExhausted, reason::kStoreFull,
                     absl::StrCat("'", record->handle, "' cannot be read back now: ",
                                  std::string(read.status().message()), "; try again"))
        .Retry(std::chrono::seconds(1));
  }
  // Deleted meanwhile, or gone with another one's damage.
  if (spill.Find(tenant, record->handle) != record) {
    return shared_->NotFound(tenant, record->handle);
  }
  ++shared_->hits;
  // Somebody may have been faster who did not wait.
  const auto it = shared_->by_handle.find(record->handle);
  if (it != shared_->by_handle.end()) return shared_->Use(it->second);
  auto item = shared_->Insert({.tenant = tenant,
                               .handle = record->handle,
                               .sequence = record->sequence,
                               .value = std::move(read->value),
                               .bytes = read->bytes,
                               .tenant_keys = tenant_keys,
                               .part = part,
                               .spilled = true},
                              &room, &dropped);
  if (item.ok()) item->existed = true;
  return item;
}

std::optional<HandleTable::Item> HandleTable::FindOrLoad(const std::string& tenant,
                                                         const std::string& key, const Same& same) {
  if (auto found = Find(tenant, key, same)) return found;
  if (shared_->options.spill == nullptr) return std::nullopt;
  auto records = shared_->options.spill->FindByKey(tenant, key);
  if (records.size() > Reservation::Shared::kMaxNamesakes) {
    records.resize(Reservation::Shared::kMaxNamesakes);
  }
  for (const SpillRecordPtr& record : records) {
    if (!record->handle.starts_with(shared_->options.prefix)) continue;
    auto loaded = Load(tenant, record->handle);
    if (loaded.ok() && (!same || same(loaded->value.get()))) return *std::move(loaded);
  }
  return std::nullopt;
}

std::shared_ptr<const void> HandleTable::FindPartOrLoad(const std::string& tenant,
                                                        const std::string& key, const Same& same) {
  if (auto found = FindPart(tenant, key, same)) return found;
  if (shared_->options.spill == nullptr) return nullptr;
  std::vector<Sha256> tried;  // parts; many values have the same
  for (const SpillRecordPtr& record : shared_->options.spill->FindByPartKey(tenant, key)) {
    if (tried.size() == Reservation::Shared::kMaxNamesakes) break;
    if (record->blobs.empty() ||
        std::find(tried.begin(), tried.end(), record->blobs.front().name) != tried.end()) {
      continue;
    }
    tried.push_back(record->blobs.front().name);
    const auto loaded = Load(tenant, record->handle);  // keeps the part while it is looked for
    if (!loaded.ok()) continue;
    if (auto found = FindPart(tenant, key, same)) return found;
  }
  return nullptr;
}

bool HandleTable::Spilled(const std::string& tenant, const std::string& key, bool part) const {
  const SpillFolder* const spill = shared_->options.spill;
  if (spill == nullptr) return false;
  const auto records = part ? spill->FindByPartKey(tenant, key) : spill->FindByKey(tenant, key);
  const std::lock_guard lock(shared_->mutex);
  return std::any_of(records.begin(), records.end(), [&](const SpillRecordPtr& record) {
    return record->handle.starts_with(shared_->options.prefix) &&
           !shared_->by_handle.contains(record->handle);
  });
}

bool HandleTable::SpillOne() {
  std::string tenant, handle;
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->unspilled.empty()) return false;
    const auto& entry = *shared_->unspilled.begin()->second;
    tenant = entry.tenant;
    handle = entry.handle;
  }
  (void)SpillNow(tenant, handle);  // counted and logged by the folder
  return true;
}

absl::Status HandleTable::SpillNow(const std::string& tenant, const std::string& handle) {
  SpillFolder& spill = *shared_->options.spill;
  SpillRecord record;
  std::shared_ptr<const void> value;  // in use while it is written
  {
    const std::lock_guard lock(shared_->mutex);
    const auto found = shared_->by_handle.find(handle);
    if (found == shared_->by_handle.end() || found->second->tenant != tenant) {
      if (spill.Find(tenant, handle) != nullptr) return absl::OkStatus();
      return shared_->NotFound(tenant, handle);
    }
    auto& entry = *found->second;
    if (entry.spilled) return absl::OkStatus();
    shared_->unspilled.erase(entry.sequence);
    value = entry.value;
    shared_->Hold(found->second);
    record.handle = handle;
    record.tenant = tenant;
    record.sequence = entry.sequence;
    record.bytes = entry.bytes;
    record.keys = Reservation::Shared::WithoutTenant(tenant, entry.keys);
    if (entry.part != nullptr) {
      record.part_bytes = entry.part->bytes;
      record.part_keys = Reservation::Shared::WithoutTenant(tenant, entry.part->keys);
    }
  }
  SpillContent content = shared_->options.codec.encode(tenant, value.get());
  if (content.in_memory_alone) return absl::OkStatus();
  record.meta = std::move(content.meta);
  absl::Status written = spill.Write(std::move(record), content.blobs);
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->by_handle.find(handle);
  if (found == shared_->by_handle.end()) {
    spill.Delete(tenant, handle);  // deleted meanwhile
  } else {
    found->second->spilled = spill.Find(tenant, handle) != nullptr;
  }
  return written;
}

bool HandleTable::EvictSpilled(const std::string& tenant, const Same& which) {
  Reservation::Shared::Dropped dropped;
  const std::lock_guard lock(shared_->mutex);
  shared_->Sweep();
  auto victim = shared_->entries.end();
  const auto before = [&](Reservation::Shared::Iterator a, Reservation::Shared::Iterator b) {
    return std::pair(a->tenant != tenant, a->used) < std::pair(b->tenant != tenant, b->used);
  };
  for (const auto& [account, idle] : shared_->idle) {
    for (const auto& [used, it] : idle.order) {
      if (!it->spilled || !which(it->value.get())) continue;
      if (victim == shared_->entries.end() || before(it, victim)) victim = it;
    }
  }
  if (victim == shared_->entries.end()) return false;
  shared_->Evict(victim, &dropped);
  return true;
}

}  // namespace spaid::server
