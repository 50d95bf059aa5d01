#include "server/store/handle_table.h"

#include <unordered_set>
#include <utility>

#include "server/base/ids.h"
#include "server/store/handle_state.h"

namespace spaid::server {

HandleTable::HandleTable(HandleStoreOptions options)
    : shared_(std::make_shared<Reservation::Shared>(std::move(options))) {}

HandleTable::~HandleTable() = default;

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
                                                   const Part& part) {
  using Shared = Reservation::Shared;
  RETURN_IF_ERROR(shared_->CheckItem(bytes + part.bytes));
  Shared::Dropped dropped;
  const std::vector<std::string> tenant_keys = Shared::TenantKeys(tenant, keys);
  absl::StatusOr<Item> put;
  const auto insert = [&] {
    TenantShares& shares = shared_->shares;
    const TenantShares::Account account = shares.Join(tenant);
    if (reservation.shared_) {  // its bytes become the entry's, in one step
      reservation.GiveBack();
      reservation.shared_.reset();
    }
    Shared::SharedPart* const shared_part = shared_->PartOf(part);
    shared_->BuryZombies();
    if (!shared_->MakeRoom(account, bytes + shared_->MoreFor(shared_part), 1, &dropped)) {
      put = shared_->Full(account, bytes);
      shares.Leave(account);
      return;
    }
    shares.Add(account, bytes, Reservation::Shared::kBytes);
    shares.Add(account, 1, Reservation::Shared::kEntries);
    shared_->entry_bytes += bytes;
    shared_->entries.push_front({.tenant = tenant,
                                 .handle = shared_->options.prefix + RandomId(),
                                 .keys = {},
                                 .value = std::move(value),
                                 .bytes = bytes,
                                 .sequence = shared_->next_sequence++,
                                 .account = account});
    const auto it = shared_->entries.begin();
    shared_->by_handle[it->handle] = it;
    shared_->AddKeys(it, tenant_keys);
    shared_->JoinPart(*it, shared_part);
    shared_->by_tenant[tenant][it->sequence] = it;
    put = Item{it->handle, it->value, false};  // in use from here on
    shared_->HandOut(it);
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
  if (it == shared_->by_handle.end() || it->second->tenant != tenant) {
    return shared_->NotFound(tenant, handle);
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
  std::lock_guard lock(shared_->mutex);
  Page page;
  const auto mine = shared_->by_tenant.find(tenant);
  if (mine == shared_->by_tenant.end()) return page;
  auto it = mine->second.lower_bound(request.before);
  while (it != mine->second.begin()) {
    --it;
    if (static_cast<int32_t>(page.items.size()) == request.size) {
      page.next_token = PageToken(request.list, page.sequences.back());
      break;
    }
    page.sequences.push_back(it->first);
    page.items.push_back({it->second->handle, it->second->value, true});
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
