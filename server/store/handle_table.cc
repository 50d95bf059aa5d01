#include "server/store/handle_table.h"

#include <cstdlib>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/ids.h"
#include "server/base/log.h"
#include "server/base/status.h"
#include "server/base/text.h"

namespace spaid::server {

// All state, shared with the reservations so that one may outlive the table.
struct Reservation::Shared {
  struct Entry {
    std::string tenant, handle, key;
    std::shared_ptr<const void> value;
    int64_t bytes;
    uint64_t sequence;
  };
  using Iterator = std::list<Entry>::iterator;
  struct Zombie {
    std::weak_ptr<const void> value;
    int64_t bytes;
  };
  // Values that left the table under the lock, to be destroyed after it.
  using Dropped = std::vector<std::shared_ptr<const void>>;

  explicit Shared(HandleStoreOptions o) : options(std::move(o)) {
    if (options.max_item_bytes <= 0 || options.max_item_bytes > options.max_bytes) {
      options.max_item_bytes = options.max_bytes;
    }
  }

  static std::string TenantKey(const std::string& tenant, const std::string& key) {
    return absl::StrCat(tenant.size(), ":", tenant, key);
  }

  // The table's own pointer is the only one, and only the table could make another: nobody uses it.
  static bool InUse(const Entry& entry) { return entry.value.use_count() > 1; }

  void BuryZombies() {
    std::erase_if(zombies, [&](const Zombie& zombie) {
      if (!zombie.value.expired()) return false;
      zombie_bytes -= zombie.bytes;
      return true;
    });
  }

  // Whether `bytes` more would fit if all that nobody uses were dropped. Promises to others count
  // for what has arrived of them: headers alone shut nobody out.
  bool CanFit(int64_t bytes) {
    const int64_t room = options.max_bytes - arrived - zombie_bytes - bytes;
    if (entry_bytes <= room) return true;  // nothing need be dropped
    int64_t in_use = 0;
    for (const Entry& entry : order) {
      if (InUse(entry) && (in_use += entry.bytes) > room) return false;
    }
    return in_use <= room;
  }

  void Remove(Iterator it, Dropped* dropped) {
    entry_bytes -= it->bytes;
    by_handle.erase(it->handle);
    if (!it->key.empty()) by_key.erase(TenantKey(it->tenant, it->key));
    auto tenant = by_tenant.find(it->tenant);
    tenant->second.erase(it->sequence);
    if (tenant->second.empty()) by_tenant.erase(tenant);
    dropped->push_back(std::move(it->value));
    order.erase(it);
  }

  void Evict(Iterator it, Dropped* dropped) {
    ++evictions;
    tombstones.push_back(it->handle);
    buried[it->handle] = it->tenant;
    while (static_cast<int64_t>(tombstones.size()) > options.max_tombstones) {
      buried.erase(tombstones.front());
      tombstones.pop_front();
    }
    Log(LogLevel::kInfo, "evicted",
        {{"what", options.what}, {"handle", it->handle}, {"bytes", it->bytes}});
    Remove(it, dropped);
  }

  // Evicts, least recently used first, until `bytes` more fit beside what is really there, and
  // `entries` more entries. False: what is in use does not leave the room; some may be evicted even
  // so.
  bool MakeRoom(int64_t bytes, int64_t entries, Dropped* dropped) {
    auto fits = [&] {
      return entry_bytes + zombie_bytes + arrived + bytes <= options.max_bytes &&
             static_cast<int64_t>(order.size()) + entries <= options.max_entries;
    };
    auto it = order.end();
    while (!fits() && it != order.begin()) {
      const auto candidate = std::prev(it);
      if (InUse(*candidate)) {
        it = candidate;
      } else {
        Evict(candidate, dropped);
      }
    }
    return fits();
  }

  absl::Status CheckItem(int64_t bytes) const {
    if (bytes >= 0 && bytes <= options.max_item_bytes) return absl::OkStatus();
    return MakeError(absl::StatusCode::kResourceExhausted, options.too_large_reason,
                     absl::StrCat("this ", options.what, " takes ", bytes, " bytes; the limit is ",
                                  options.max_item_bytes, " (", options.limit_flag, ")"))
        .Meta("actual", bytes)
        .Meta("limit", options.max_item_bytes);
  }

  absl::Status Full(int64_t bytes) const {
    return MakeError(absl::StatusCode::kResourceExhausted, reason::kStoreFull,
                     absl::StrCat("no room for ", bytes, " bytes: what the ", options.what,
                                  " store holds is in use or arriving (limit ", options.max_bytes,
                                  " bytes, ", options.max_entries,
                                  " entries); try again when jobs have ended, or raise ",
                                  options.limit_flag))
        .Meta("actual", bytes)
        .Meta("limit", options.max_bytes)
        .Retry(std::chrono::seconds(1));
  }

  absl::Status NotFound(const std::string& tenant, const std::string& handle) const {
    const auto grave = buried.find(handle);
    if (grave != buried.end() && grave->second == tenant) {
      return MakeError(absl::StatusCode::kNotFound, reason::kHandleEvicted,
                       absl::StrCat("'", handle, "' was dropped to make room; send the ",
                                    options.what, " again"))
          .Meta("handle", handle);
    }
    auto error = MakeError(absl::StatusCode::kNotFound, reason::kHandleUnknown,
                           absl::StrCat("there is no ", options.what, " ", Repeated(handle),
                                        " (it never was, or it was deleted)"));
    if (!MayRepeat(handle)) return error;
    return std::move(error).Meta("handle", handle);
  }

  HandleStoreOptions options;
  std::mutex mutex;
  std::list<Entry> order;  // most recently used first
  std::unordered_map<std::string, Iterator> by_handle;
  std::unordered_map<std::string, Iterator> by_key;
  std::map<std::string, std::map<uint64_t, Iterator>> by_tenant;
  std::deque<std::string> tombstones;                   // oldest first
  std::unordered_map<std::string, std::string> buried;  // handle -> tenant
  std::vector<Zombie> zombies;
  uint64_t next_sequence = 1;
  int64_t entry_bytes = 0, reserved = 0, arrived = 0, zombie_bytes = 0;
  int64_t hits = 0, misses = 0, evictions = 0;
};

Reservation::Reservation(Reservation&& other) noexcept
    : shared_(std::move(other.shared_)),
      bytes_(std::exchange(other.bytes_, 0)),
      arrived_(std::exchange(other.arrived_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    shared_ = std::move(other.shared_);
    bytes_ = std::exchange(other.bytes_, 0);
    arrived_ = std::exchange(other.arrived_, 0);
  }
  return *this;
}

absl::Status Reservation::Arrive(int64_t bytes) {
  if (bytes < 0 || bytes > bytes_ - arrived_) {
    Log(LogLevel::kError, "reservation_overrun",
        {{"reserved", bytes_}, {"arrived", arrived_}, {"more", bytes}});
    std::abort();  // the caller checks chunks against the header that it reserved for
  }
  if (!shared_) return absl::OkStatus();  // an empty one, of nothing
  Shared::Dropped dropped;
  std::lock_guard lock(shared_->mutex);
  shared_->BuryZombies();
  if (!shared_->MakeRoom(bytes, 0, &dropped)) return shared_->Full(bytes);
  shared_->arrived += bytes;
  arrived_ += bytes;
  return absl::OkStatus();
}

void Reservation::Release() {
  if (!shared_) return;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->reserved -= bytes_;
    shared_->arrived -= arrived_;
  }
  shared_.reset();
  bytes_ = arrived_ = 0;
}

HandleTable::HandleTable(HandleStoreOptions options)
    : shared_(std::make_shared<Reservation::Shared>(std::move(options))) {}

HandleTable::~HandleTable() = default;

absl::StatusOr<Reservation> HandleTable::Reserve(int64_t bytes) {
  RETURN_IF_ERROR(shared_->CheckItem(bytes));
  std::lock_guard lock(shared_->mutex);
  shared_->BuryZombies();
  if (!shared_->CanFit(bytes)) return shared_->Full(bytes);
  shared_->reserved += bytes;
  Reservation reservation;
  reservation.shared_ = shared_;
  reservation.bytes_ = bytes;
  return reservation;
}

absl::StatusOr<HandleTable::Item> HandleTable::Put(const std::string& tenant,
                                                   std::shared_ptr<const void> value, int64_t bytes,
                                                   const std::string& key,
                                                   Reservation reservation) {
  using Shared = Reservation::Shared;
  RETURN_IF_ERROR(shared_->CheckItem(bytes));
  Shared::Dropped dropped;
  std::lock_guard lock(shared_->mutex);
  if (reservation.shared_) {  // its bytes become the entry's, in one step
    shared_->reserved -= reservation.bytes_;
    shared_->arrived -= reservation.arrived_;
    reservation.bytes_ = reservation.arrived_ = 0;
    reservation.shared_.reset();
  }
  if (!key.empty()) {
    if (auto it = shared_->by_key.find(Shared::TenantKey(tenant, key));
        it != shared_->by_key.end()) {
      shared_->order.splice(shared_->order.begin(), shared_->order, it->second);
      dropped.push_back(std::move(value));
      return Item{it->second->handle, it->second->value, true};
    }
  }
  shared_->BuryZombies();
  if (!shared_->CanFit(bytes) || !shared_->MakeRoom(bytes, 1, &dropped)) {
    return shared_->Full(bytes);
  }
  shared_->order.push_front({tenant, shared_->options.prefix + RandomId(), key, std::move(value),
                             bytes, shared_->next_sequence++});
  const auto it = shared_->order.begin();
  shared_->by_handle[it->handle] = it;
  if (!key.empty()) shared_->by_key[Shared::TenantKey(tenant, key)] = it;
  shared_->by_tenant[tenant][it->sequence] = it;
  shared_->entry_bytes += bytes;
  return Item{it->handle, it->value, false};
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
  shared_->order.splice(shared_->order.begin(), shared_->order, it->second);
  return Item{handle, it->second->value, true};
}

std::optional<HandleTable::Item> HandleTable::Find(const std::string& tenant,
                                                   const std::string& key) {
  std::lock_guard lock(shared_->mutex);
  const auto it = shared_->by_key.find(Reservation::Shared::TenantKey(tenant, key));
  if (key.empty() || it == shared_->by_key.end()) {
    ++shared_->misses;
    return std::nullopt;
  }
  ++shared_->hits;
  shared_->order.splice(shared_->order.begin(), shared_->order, it->second);
  return Item{it->second->handle, it->second->value, true};
}

absl::Status HandleTable::Delete(const std::string& tenant, const std::string& handle) {
  Reservation::Shared::Dropped dropped;
  std::lock_guard lock(shared_->mutex);
  const auto it = shared_->by_handle.find(handle);
  if (it == shared_->by_handle.end() || it->second->tenant != tenant) {
    return shared_->NotFound(tenant, handle);
  }
  if (Reservation::Shared::InUse(*it->second)) {
    shared_->zombies.push_back({it->second->value, it->second->bytes});
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
      page.next_token = PageToken(page.sequences.back());
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
  return {static_cast<int64_t>(shared_->order.size()),
          shared_->entry_bytes,
          shared_->reserved,
          shared_->arrived,
          shared_->zombie_bytes,
          shared_->options.max_bytes,
          shared_->hits,
          shared_->misses,
          shared_->evictions};
}

}  // namespace spaid::server
