#include "server/store/handle_table.h"

#include <iterator>
#include <map>
#include <unordered_set>
#include <utility>

#include "server/store/handle_state.h"

namespace spaid::server {

HandleTable::HandleTable(HandleStoreOptions options)
    : shared_(std::make_shared<Reservation::Shared>(std::move(options))) {
  SpillFolder* const spill = shared_->options.spill;
  if (spill == nullptr) return;
  shared_->next_sequence = spill->LastSequence(shared_->options.prefix) + 1;
  spill->OnGone(shared_->options.prefix, [shared = shared_.get()](const SpillRecord& record) {
    const std::lock_guard lock(shared->mutex);
    const auto live = shared->by_handle.find(record.handle);
    if (live != shared->by_handle.end()) {
      live->second->spilled = false;
    } else {
      shared->Bury(record.tenant, record.handle);
    }
  });
}

HandleTable::~HandleTable() {
  if (shared_->options.spill != nullptr)
    shared_->options.spill->OnGone(shared_->options.prefix, {});
}

absl::StatusOr<Reservation> HandleTable::Reserve(const std::string& tenant, int64_t bytes) {
  RETURN_IF_ERROR(shared_->CheckItem(bytes));
  std::lock_guard lock(shared_->mutex);
  shared_->BuryZombies();
  const TenantShares::Account account = shared_->shares.Join(tenant);
  if (shared_->Lacks(Reservation::Shared::kBytes, bytes)) shared_->Sweep();
  if (bytes > shared_->Obtainable(account, bytes)) {
    const absl::Status full = shared_->Full(account, bytes);
    shared_->shares.Leave(account);
    return full;
  }
  shared_->reserved += bytes;
  Reservation reservation;
  reservation.shared_ = shared_;
  reservation.account_ = account;
  reservation.bytes_ = bytes;
  return reservation;
}

absl::StatusOr<HandleTable::Item> HandleTable::Put(const std::string& tenant,
                                                   std::shared_ptr<const void> value, int64_t bytes,
                                                   const std::vector<std::string>& keys,
                                                   Reservation reservation, const Same& same,
                                                   const Part& part, std::string_view affinity) {
  using Shared = Reservation::Shared;
  RETURN_IF_ERROR(shared_->CheckItem(bytes + part.bytes));
  Shared::Dropped dropped;
  const std::vector<std::string> tenant_keys = Shared::TenantKeys(tenant, keys);
  absl::StatusOr<Item> put;
  const auto insert = [&] {
    put = shared_->Insert({.tenant = tenant,
                           .handle = {},
                           .affinity = affinity,
                           .value = std::move(value),
                           .bytes = bytes,
                           .tenant_keys = tenant_keys,
                           .part = part},
                          &reservation, &dropped);
  };
  if (tenant_keys.empty()) {
    std::lock_guard lock(shared_->mutex);
    insert();
  } else if (auto found = shared_->Find(tenant_keys.front(), same, insert)) {
    put = *std::move(found);
    std::lock_guard lock(shared_->mutex);
    const auto it = shared_->by_handle.find(put->handle);
    if (it != shared_->by_handle.end()) shared_->AddKeys(it->second, tenant_keys);
  }
  if (shared_->options.spill != nullptr && put.ok()) shared_->options.spill->Wake();
  return put;
}

std::shared_ptr<const void> HandleTable::ShareByKeys(const std::string& tenant, Part part,
                                                     const std::vector<std::string>& keys,
                                                     const Same& same) {
  const auto tenant_keys = Reservation::Shared::TenantKeys(tenant, keys);
  auto found =
      shared_->FindPart(tenant_keys.front(), same, [&](Reservation::Shared::SharedPart* known) {
        shared_->AddKeys(known != nullptr ? known : shared_->PartOf(part), tenant_keys);
      });
  return found != nullptr ? found : part.value;
}

std::shared_ptr<const void> HandleTable::FindPart(const std::string& tenant, const std::string& key,
                                                  const Same& same) {
  return shared_->FindPart(Reservation::Shared::TenantKey(tenant, key), same,
                           [](Reservation::Shared::SharedPart*) {});
}

absl::StatusOr<HandleTable::Item> HandleTable::Get(const std::string& tenant,
                                                   const std::string& handle) {
  std::lock_guard lock(shared_->mutex);
  const auto it = shared_->by_handle.find(handle);
  if (it == shared_->by_handle.end() || it->second->tenant != tenant) {
    ++shared_->misses;
    return shared_->NotFound(tenant, handle);
  }
  ++shared_->hits;
  Item item{handle, it->second->value, true};
  shared_->HandOut(it->second);
  return item;
}

std::optional<HandleTable::Item> HandleTable::Find(const std::string& tenant,
                                                   const std::string& key, const Same& same) {
  auto found =
      shared_->Find(Reservation::Shared::TenantKey(tenant, key), same, [&] { ++shared_->misses; });
  if (!found) return std::nullopt;
  std::lock_guard lock(shared_->mutex);
  ++shared_->hits;
  return found;
}

absl::Status HandleTable::CheckUse(const std::string& tenant, const std::string& handle) {
  const std::lock_guard lock(shared_->mutex);
  shared_->BuryZombies();
  const auto it = shared_->by_handle.find(handle);
  if (it == shared_->by_handle.end() || it->second->tenant != tenant) return absl::OkStatus();
  const TenantShares::Account account = it->second->account;
  const TenantShares& shares = shared_->shares;
  const int64_t most = shares.used(Reservation::Shared::kBytes);  // that may be in use
  if (shares.MayHold(account, most, most, false, Reservation::Shared::kBytes))
    return absl::OkStatus();
  shared_->Sweep();  // what is held is in use now
  int64_t own = 0, sum = shared_->zombie_bytes;
  std::unordered_set<const void*> parts;
  for (const auto& [sequence, entry] : shared_->held) {
    int64_t bytes = entry->bytes;
    if (entry->part != nullptr && parts.insert(entry->part).second) bytes += entry->part->bytes;
    sum += bytes;
    if (entry->account == account) own += bytes;
  }
  for (const auto& zombie : shared_->zombies) {
    if (zombie.account == account) own += zombie.bytes;
  }
  const Reservation::Shared::Entry& mine = *it->second;
  const int64_t bytes = mine.bytes + (mine.part != nullptr ? mine.part->bytes : 0);
  const bool alone = own == bytes;
  if (shares.MayHold(account, own, sum, alone, Reservation::Shared::kBytes))
    return absl::OkStatus();
  return shared_->Full(account, bytes);
}

absl::Status HandleTable::Delete(const std::string& tenant, const std::string& handle) {
  Reservation::Shared::Dropped dropped;
  std::lock_guard lock(shared_->mutex);
  const auto it = shared_->by_handle.find(handle);
  SpillFolder* const spill = shared_->options.spill;
  const bool spilled = spill != nullptr && spill->Delete(tenant, handle);
  if (it == shared_->by_handle.end() || it->second->tenant != tenant) {
    return spilled ? absl::OkStatus() : shared_->NotFound(tenant, handle);
  }
  if (Reservation::Shared::InUse(*it->second)) {
    const TenantShares::Account account = shared_->shares.Join(tenant);
    shared_->shares.Add(account, it->second->bytes, Reservation::Shared::kBytes);
    shared_->zombies.push_back({it->second->value, it->second->bytes, account});
    shared_->zombie_bytes += it->second->bytes;
  }
  shared_->Remove(it->second, &dropped);
  return absl::OkStatus();
}

HandleTable::Page HandleTable::List(const std::string& tenant, const PageRequest& request) const {
  using Reverse =
      std::reverse_iterator<std::map<uint64_t, Reservation::Shared::Iterator>::iterator>;
  std::lock_guard lock(shared_->mutex);
  Page page;
  // One more than fits tells that the page is not the last.
  std::vector<SpillRecordPtr> spilled;
  if (const SpillFolder* const spill = shared_->options.spill; spill != nullptr) {
    spilled = spill->List(tenant, shared_->options.prefix, request.before,
                          static_cast<size_t>(request.size) + 1);
  }
  std::map<uint64_t, Reservation::Shared::Iterator> none;
  const auto mine = shared_->by_tenant.find(tenant);
  auto& live = mine == shared_->by_tenant.end() ? none : mine->second;
  auto next = Reverse(live.lower_bound(request.before));
  for (auto record = spilled.begin(); next != live.rend() || record != spilled.end();) {
    if (static_cast<int32_t>(page.items.size()) == request.size) {
      page.next_token = PageToken(request.list, page.sequences.back());
      break;
    }
    if (next == live.rend() || (record != spilled.end() && (*record)->sequence > next->first)) {
      page.sequences.push_back((*record)->sequence);
      page.items.push_back({(*record)->handle, nullptr, true, *record});
      ++record;
      continue;
    }
    // Most are there and in the folder.
    if (record != spilled.end() && (*record)->sequence == next->first) ++record;
    page.sequences.push_back(next->first);
    page.items.push_back({next->second->handle, next->second->value, true});
    ++next;
  }
  return page;
}

HandleStoreStats HandleTable::stats() const {
  std::lock_guard lock(shared_->mutex);
  shared_->BuryZombies();
  return {static_cast<int64_t>(shared_->entries.size()),
          shared_->entry_bytes,
          shared_->reserved,
          shared_->shares.used(Reservation::Shared::kArriving),
          shared_->zombie_bytes,
          shared_->options.max_bytes,
          shared_->hits,
          shared_->misses,
          shared_->evictions,
          shared_->shares.tenants()};
}

}  // namespace spaid::server
