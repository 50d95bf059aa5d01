// The state of a HandleTable, which reservations share with it, so that one may outlive the table.
// Nobody outside this room includes it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "server/base/affinity.h"
#include "server/base/log.h"
#include "server/base/reasons.h"
#include "server/base/status.h"
#include "server/base/text.h"
#include "server/store/handle_table.h"

namespace spaid::server {

// Thread-compatible but for what says that it takes the lock; else the caller holds `mutex`.
struct Reservation::Shared {
  // Entries of one key: keys of equal digests, which somebody forges.
  static constexpr size_t kMaxNamesakes = 16;
  static constexpr size_t kSweepAt = 64;
  // The resources that tenants share.
  enum Of : size_t { kBytes, kEntries, kArriving };

  using Account = TenantShares::Account;
  // A part that entries of one account share; kept while somebody holds it.
  struct SharedPart {
    std::weak_ptr<const void> value;
    int64_t bytes = 0;
    std::vector<std::string> keys;  // with the tenant
    Account account = nullptr;      // while it has entries
    int64_t entries = 0, idle = 0, victims = 0;
    bool counted_gone = false;  // FindVictims counts its bytes as had

    // Nobody but its entries holds it.
    bool OnlyByEntries() const { return value.use_count() <= entries; }
    // All its entries are idle: its bytes can be had with theirs.
    bool Idle() const { return entries > 0 && idle == entries; }
  };
  struct Entry {
    std::string tenant, handle;
    std::vector<std::string> keys;  // with the tenant
    std::shared_ptr<const void> value;
    int64_t bytes;  // without its part's
    uint64_t sequence;
    Account account;
    SharedPart* part = nullptr;
    uint64_t used = 0;  // when it was handed out last
    bool held = true;   // since the last sweep it was handed out, and may be in use
    bool spilled = false;
  };
  using Iterator = std::list<Entry>::iterator;
  using Item = HandleTable::Item;
  struct Zombie {
    std::weak_ptr<const void> value;
    int64_t bytes;
    Account account;
  };
  // The entries of an account that nobody uses.
  struct Idle {
    std::map<uint64_t, Iterator> order;  // least recently used first
    int64_t bytes = 0;
  };
  // Values that left the table under the lock, to be destroyed after it.
  using Dropped = std::vector<std::shared_ptr<const void>>;

  explicit Shared(HandleStoreOptions o)
      : options(std::move(o)),
        shares({.limits = {options.max_bytes, options.max_entries, options.max_bytes},
                .rules = options.shares,
                .active_for = options.active_for,
                .clock = options.clock}),
        graves({.limits = {options.max_tombstones}, .rules = options.shares}) {
    if (options.max_item_bytes <= 0 || options.max_item_bytes > options.max_bytes) {
      options.max_item_bytes = options.max_bytes;
    }
  }

  static std::string TenantKey(const std::string& tenant, const std::string& key) {
    return absl::StrCat(tenant.size(), ":", tenant, key);
  }

  static std::vector<std::string> TenantKeys(const std::string& tenant,
                                             const std::vector<std::string>& keys) {
    std::vector<std::string> tenant_keys;
    for (const std::string& key : keys) tenant_keys.push_back(TenantKey(tenant, key));
    return tenant_keys;
  }

  // The keys alone, as the spill folder has them.
  static std::vector<std::string> WithoutTenant(const std::string& tenant,
                                                const std::vector<std::string>& tenant_keys) {
    const size_t prefix = TenantKey(tenant, "").size();
    std::vector<std::string> keys;
    for (const std::string& key : tenant_keys) keys.push_back(key.substr(prefix));
    return keys;
  }

  // The table's own pointer is the only one, and only the table could make another: nobody uses it.
  static bool InUse(const Entry& entry) { return entry.value.use_count() > 1; }

  void BuryZombies() {
    std::erase_if(zombies, [&](const Zombie& zombie) {
      if (!zombie.value.expired()) return false;
      zombie_bytes -= zombie.bytes;
      shares.Add(zombie.account, -zombie.bytes, kBytes);
      shares.Leave(zombie.account);
      return true;
    });
  }

  // Its value goes to somebody, who has it already.
  void HandOut(Iterator it) {
    Hold(it);
    it->used = next_use++;
    shares.Touch(it->account);
  }

  // The same for the house's own purposes, which leave the order of use as it is.
  void Hold(Iterator it) {
    if (!it->held) TakeFromIdle(it);
    it->held = true;
    held[it->sequence] = it;
    // Sweep out values that were returned meanwhile: those really in use are few.
    if (held.size() >= sweep_at) Sweep();
  }

  void TakeFromIdle(Iterator it) {
    const auto own = idle.find(it->account);
    own->second.order.erase(it->used);
    own->second.bytes -= it->bytes;
    if (it->part != nullptr) CountOfPart(*it->part, 0, -1, own->second);
    if (own->second.order.empty()) idle.erase(own);
  }

  // Knows the part from now on; null: there is none.
  SharedPart* PartOf(const HandleTable::Part& part) {
    if (part.value == nullptr) return nullptr;
    if (parts.size() >= forget_at) ForgetParts();
    auto& known = parts[part.value.get()];
    // One that was forgotten by its holders may have left its address to this one.
    if (known != nullptr && known->value.expired()) Forget(parts.find(part.value.get()));
    auto& mine = parts[part.value.get()];
    if (mine == nullptr) {
      mine = std::make_unique<SharedPart>();
      mine->value = part.value;
    }
    if (mine->entries == 0) mine->bytes = part.bytes;
    return mine.get();
  }

  // So many entries, and idle ones, more; `own` is its account's.
  static void CountOfPart(SharedPart& part, int64_t entries, int64_t idle, Idle& own) {
    if (part.Idle()) own.bytes -= part.bytes;
    part.entries += entries;
    part.idle += idle;
    if (part.Idle()) own.bytes += part.bytes;
  }

  // The entry joins its part (null: none), whose bytes are the account's from the first on.
  void JoinPart(Entry& entry, SharedPart* part) {
    entry.part = part;
    if (part == nullptr) return;
    if (part->entries == 0) {
      Revive(*part);
      part->account = entry.account;
      shares.Add(entry.account, part->bytes, kBytes);
      entry_bytes += part->bytes;
    }
    const auto own = idle.find(entry.account);
    Idle none;
    CountOfPart(*part, 1, 0, own == idle.end() ? none : own->second);
  }

  // A held or busy entry leaves its part. Whoever else holds a part of no entry keeps its memory:
  // its bytes are the account's until then.
  void LeavePart(Entry& entry) {
    SharedPart* const part = std::exchange(entry.part, nullptr);
    if (part == nullptr) return;
    const auto own = idle.find(entry.account);
    Idle none;
    CountOfPart(*part, -1, 0, own == idle.end() ? none : own->second);
    if (part->entries > 0) return;
    entry_bytes -= part->bytes;
    shares.Join(entry.tenant);  // the zombie's
    zombies.push_back({part->value, part->bytes, entry.account});
    zombie_bytes += part->bytes;
  }

  std::vector<Zombie>::iterator ZombieOf(const SharedPart& part) {
    return std::find_if(zombies.begin(), zombies.end(), [&](const Zombie& zombie) {
      return !zombie.value.owner_before(part.value) && !part.value.owner_before(zombie.value);
    });
  }

  // Bytes that an entry with this part takes beyond its own: none where they are counted already.
  int64_t MoreFor(SharedPart* part) {
    if (part == nullptr || part->entries > 0 || ZombieOf(*part) != zombies.end()) return 0;
    return part->bytes;
  }

  // No zombie any more: an entry holds it again.
  void Revive(const SharedPart& part) {
    const auto it = ZombieOf(part);
    if (it == zombies.end()) return;
    zombie_bytes -= it->bytes;
    shares.Add(it->account, -it->bytes, kBytes);
    shares.Leave(it->account);
    zombies.erase(it);
  }

  using Parts = std::unordered_map<const void*, std::unique_ptr<SharedPart>>;

  Parts::iterator Forget(Parts::iterator it) {
    for (const std::string& key : it->second->keys) {
      const auto known = parts_by_key.find(key);
      std::erase(known->second, it->second.get());
      if (known->second.empty()) parts_by_key.erase(known);
    }
    return parts.erase(it);
  }

  // Parts that nobody holds are forgotten.
  void ForgetParts() {
    for (auto it = parts.begin(); it != parts.end();) {
      it = it->second->value.expired() ? Forget(it) : std::next(it);
    }
    forget_at = std::max(kSweepAt, 2 * parts.size());
  }

  // Finds out which of the entries that were handed out came back.
  void Sweep() {
    std::erase_if(held, [&](const auto& one) {
      const Iterator it = one.second;
      if (InUse(*it)) return false;
      it->held = false;
      Idle& own = idle[it->account];
      own.order[it->used] = it;
      own.bytes += it->bytes;
      if (it->part != nullptr) CountOfPart(*it->part, 0, 1, own);
      return true;
    });
    sweep_at = std::max(kSweepAt, 2 * held.size());
  }

  // No less than could be had for `account` if it had `bytes` more. Promises to others count for
  // what has arrived of them: headers alone shut nobody out.
  int64_t Obtainable(Account account, int64_t bytes) const {
    int64_t sum = options.max_bytes - shares.used(kBytes);
    const bool over = shares.OverShare(account, bytes, kBytes);
    for (const auto& [other, own] : idle) {
      if (!over || other == account || !shares.Active(other)) sum += own.bytes;
    }
    return sum;
  }

  void Remove(Iterator it, Dropped* dropped) {
    if (it->held) {
      held.erase(it->sequence);
    } else {
      TakeFromIdle(it);
    }
    LeavePart(*it);
    shares.Add(it->account, -it->bytes, kBytes);
    shares.Add(it->account, -1, kEntries);
    shares.Leave(it->account);
    entry_bytes -= it->bytes;
    unspilled.erase(it->sequence);
    by_handle.erase(it->handle);
    for (const std::string& key : it->keys) {
      auto namesakes = by_key.find(key);
      namesakes->second.erase(it->sequence);
      if (namesakes->second.empty()) by_key.erase(namesakes);
    }
    auto tenant = by_tenant.find(it->tenant);
    tenant->second.erase(it->sequence);
    if (tenant->second.empty()) by_tenant.erase(tenant);
    dropped->push_back(std::move(it->value));
    entries.erase(it);
  }

  void Evict(Iterator it, Dropped* dropped) {
    ++evictions;
    if (it->spilled) {
      options.spill->Touch(it->handle);  // until now it was used here
    } else {
      Bury(it->tenant, it->handle);
    }
    Log(LogLevel::kInfo, "evicted",
        {{"what", options.what}, {"handle", it->handle}, {"bytes", it->bytes}});
    Remove(it, dropped);
  }

  // Tombstones are shared as the rest is: one tenant's do not wash away another's.
  void Bury(const std::string& tenant, const std::string& handle) {
    if (!buried.emplace(handle, tenant).second) return;
    const Account account = graves.Join(tenant);
    graves.Add(account, 1);
    tombstones[account].push_back(handle);
    while (graves.used() > options.max_tombstones) {
      const auto any = [](Account) { return true; };
      const auto own = tombstones.find(graves.Yields(account, 0, any));
      buried.erase(own->second.front());
      own->second.pop_front();
      graves.Add(own->first, -1);
      graves.Leave(own->first);
      if (own->second.empty()) tombstones.erase(own);
    }
  }

  bool Lacks(Of of, int64_t more) const { return shares.used(of) + more > shares.limit(of); }

  // Finds entries to evict so that `bytes` more, and `more_entries`, of `account` fit beside what
  // is really there. False: what may be evicted does not suffice.
  bool FindVictims(Account account, int64_t bytes, int64_t more_entries,
                   std::vector<Iterator>* victims) {
    const auto gone = [&](Iterator it, int64_t sign) {
      int64_t freed = it->bytes;
      if (SharedPart* const part = it->part; part != nullptr) {
        part->victims += sign;
        // With the last of its entries, unless an upload holds it.
        const bool whole = sign > 0 && part->victims == part->entries && part->OnlyByEntries();
        if (whole || (sign < 0 && part->counted_gone)) {
          freed += part->bytes;
          part->counted_gone = whole;
        }
      }
      shares.Add(it->account, -sign * freed, kBytes);
      shares.Add(it->account, -sign, kEntries);
    };
    absl::Cleanup still_there = [&] {
      for (const Iterator it : *victims) gone(it, -1);
    };
    std::unordered_map<Account, std::map<uint64_t, Iterator>::iterator>
        next;  // its next idle entry
    const auto has_some = [&](Account other) {
      const auto own = idle.find(other);
      if (own == idle.end()) return false;
      return next.try_emplace(other, own->second.order.begin()).first->second !=
             own->second.order.end();
    };
    while (Lacks(kBytes, bytes) || Lacks(kEntries, more_entries)) {
      const Of of = Lacks(kBytes, bytes) ? kBytes : kEntries;
      const Account victim =
          shares.Yields(account, of == kBytes ? bytes : more_entries, has_some, of);
      if (victim == nullptr) return false;
      victims->push_back(next.at(victim)->second);
      gone(victims->back(), 1);
      ++next.at(victim);
    }
    return true;
  }

  // Evicts so much; where that does not suffice, nothing: false.
  bool MakeRoom(Account account, int64_t bytes, int64_t more_entries, Dropped* dropped) {
    if (!Lacks(kBytes, bytes) && !Lacks(kEntries, more_entries)) return true;
    Sweep();
    std::vector<Iterator> victims;
    if (bytes > Obtainable(account, bytes) ||
        !FindVictims(account, bytes, more_entries, &victims)) {
      return false;
    }
    for (const Iterator victim : victims) Evict(victim, dropped);
    return true;
  }

  // Becomes an entry. An empty handle: a new one.
  struct NewEntry {
    const std::string& tenant;
    std::string handle;
    std::string_view affinity = kNoAffinity;  // of a new one
    uint64_t sequence = 0;
    std::shared_ptr<const void> value;
    int64_t bytes = 0;
    const std::vector<std::string>& tenant_keys;
    const HandleTable::Part& part;
    bool spilled = false;
  };

  // Makes an entry of it, for which the reservation gives up its bytes, and hands it out. Errors:
  // STORE_FULL.
  absl::StatusOr<Item> Insert(NewEntry from, Reservation* reservation, Dropped* dropped) {
    const Account account = shares.Join(from.tenant);
    if (reservation->shared_) {  // its bytes become the entry's, in one step
      reservation->GiveBack();
      reservation->shared_.reset();
    }
    SharedPart* const shared_part = PartOf(from.part);
    BuryZombies();
    if (!MakeRoom(account, from.bytes + MoreFor(shared_part), 1, dropped)) {
      const absl::Status full = Full(account, from.bytes);
      shares.Leave(account);
      return full;
    }
    shares.Add(account, from.bytes, kBytes);
    shares.Add(account, 1, kEntries);
    entry_bytes += from.bytes;
    if (from.handle.empty()) {
      from.handle = NewHandle(options.prefix, from.affinity);
      from.sequence = next_sequence++;
    }
    entries.push_front({.tenant = from.tenant,
                        .handle = std::move(from.handle),
                        .keys = {},
                        .value = std::move(from.value),
                        .bytes = from.bytes,
                        .sequence = from.sequence,
                        .account = account,
                        .spilled = from.spilled});
    const auto it = entries.begin();
    by_handle[it->handle] = it;
    AddKeys(it, from.tenant_keys);
    JoinPart(*it, shared_part);
    by_tenant[it->tenant][it->sequence] = it;
    if (options.spill != nullptr && !it->spilled) unspilled[it->sequence] = it;
    Item item{it->handle, it->value, false};  // in use from here on
    HandOut(it);
    return item;
  }

  // Gives the entry the keys that it lacks, where there are not too many namesakes.
  void AddKeys(Iterator it, const std::vector<std::string>& tenant_keys) {
    for (const std::string& key : tenant_keys) {
      auto& namesakes = by_key[key];
      if (namesakes.size() < kMaxNamesakes && namesakes.emplace(it->sequence, it).second) {
        it->keys.push_back(key);
      }
    }
  }

  // The same of a part.
  void AddKeys(SharedPart* part, const std::vector<std::string>& tenant_keys) {
    for (const std::string& key : tenant_keys) {
      auto& namesakes = parts_by_key[key];
      if (namesakes.size() >= kMaxNamesakes ||
          std::find(namesakes.begin(), namesakes.end(), part) != namesakes.end()) {
        continue;
      }
      namesakes.push_back(part);
      part->keys.push_back(key);
    }
  }

  // The first part of this key of which same() is true. Called without the lock; `end` runs under
  // it, with the part or null.
  template <class End>
  std::shared_ptr<const void> FindPart(const std::string& tenant_key, const HandleTable::Same& same,
                                       const End& end) {
    // Those that were compared; one whose memory another one takes has another owner.
    std::vector<std::weak_ptr<const void>> not_it;
    const auto compared = [&](const std::weak_ptr<const void>& value) {
      return std::any_of(not_it.begin(), not_it.end(), [&](const auto& other) {
        return !other.owner_before(value) && !value.owner_before(other);
      });
    };
    for (;;) {
      std::shared_ptr<const void> candidate;
      {
        std::lock_guard lock(mutex);
        const auto known = parts_by_key.find(tenant_key);
        if (known != parts_by_key.end()) {
          for (const SharedPart* part : known->second) {
            if (!compared(part->value) && (candidate = part->value.lock()) != nullptr) break;
          }
        }
        if (candidate == nullptr) {
          end(nullptr);
          return nullptr;
        }
      }
      if (same(candidate.get())) {
        std::lock_guard lock(mutex);
        end(parts.at(candidate.get()).get());  // held by us: nobody forgets it
        return candidate;
      }
      not_it.push_back(candidate);
    }
  }

  // The first entry of this key behind sequence `after`; entries.end(): there is none.
  Iterator Namesake(const std::string& tenant_key, uint64_t after) {
    const auto namesakes = by_key.find(tenant_key);
    if (namesakes == by_key.end()) return entries.end();
    const auto next = namesakes->second.upper_bound(after);
    return next == namesakes->second.end() ? entries.end() : next->second;
  }

  Item Use(Iterator it) {
    Item item{it->handle, it->value, true};
    HandOut(it);
    return item;
  }

  // The first entry with this key of which same() is true, marked as used. Called without the lock;
  // where there is none, `absent` runs under it.
  template <class Absent>
  std::optional<Item> Find(const std::string& tenant_key, const HandleTable::Same& same,
                           const Absent& absent) {
    for (uint64_t after = 0;;) {
      std::shared_ptr<const void> candidate;  // in use while it is compared
      std::string handle;
      {
        std::lock_guard lock(mutex);
        const auto it = Namesake(tenant_key, after);
        if (it == entries.end()) {
          absent();
          return std::nullopt;
        }
        if (!same) return Use(it);
        after = it->sequence;
        candidate = it->value;
        HandOut(it);
        handle = it->handle;
      }
      if (!same(candidate.get())) continue;
      std::lock_guard lock(mutex);
      const auto it = by_handle.find(handle);
      if (it != by_handle.end()) return Use(it->second);  // else deleted meanwhile
    }
  }

  absl::Status CheckItem(int64_t bytes) const {
    if (bytes >= 0 && bytes <= options.max_item_bytes) return absl::OkStatus();
    return MakeError(absl::StatusCode::kResourceExhausted, options.too_large_reason,
                     absl::StrCat("this ", options.what, " takes ", bytes, " bytes; the limit is ",
                                  options.max_item_bytes, " (", options.limit_flag, ")"))
        .Meta("actual", bytes)
        .Meta("limit", options.max_item_bytes);
  }

  absl::Status Full(Account account, int64_t bytes) const {
    return MakeError(
               absl::StatusCode::kResourceExhausted, reason::kStoreFull,
               absl::StrCat("no room for ", bytes, " bytes: what the ", options.what,
                            " store holds is in use, arriving, or of tenants that have no "
                            "more than their share (limit ",
                            options.max_bytes, " bytes, ", options.max_entries,
                            " entries; this tenant has ", shares.UsedBy(account, kBytes),
                            " bytes of a share of ",
                            static_cast<int64_t>(shares.ShareOf(account, kBytes)),
                            "); try again when jobs have ended, or raise ", options.limit_flag))
        .Meta("actual", bytes)
        .Meta("limit", options.max_bytes)
        .Retry(std::chrono::seconds(1));
  }

  absl::Status NotFound(const std::string& tenant, const std::string& handle) const {
    const auto grave = buried.find(handle);
    if ((grave != buried.end() && grave->second == tenant) ||
        (options.spill != nullptr && options.spill->Find(tenant, handle) != nullptr)) {
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
  TenantShares shares;  // entries, zombies, reservations have joined
  std::list<Entry> entries;
  std::unordered_map<Account, Idle> idle;  // none is empty
  std::unordered_map<uint64_t, Iterator> held;
  size_t sweep_at = kSweepAt;
  std::unordered_map<std::string, Iterator> by_handle;
  std::unordered_map<std::string, std::map<uint64_t, Iterator>> by_key;  // by sequence
  Parts parts;
  std::unordered_map<std::string, std::vector<SharedPart*>> parts_by_key;
  size_t forget_at = kSweepAt;
  std::map<std::string, std::map<uint64_t, Iterator>> by_tenant;
  TenantShares graves;
  std::unordered_map<Account, std::deque<std::string>> tombstones;  // handles, oldest first
  std::unordered_map<std::string, std::string> buried;              // handle -> tenant
  std::vector<Zombie> zombies;
  std::map<uint64_t, Iterator> unspilled;  // to be written, by sequence
  std::set<std::string> loading;           // handles that somebody reads back
  std::condition_variable loaded;
  uint64_t next_sequence = 1, next_use = 1;
  int64_t entry_bytes = 0, reserved = 0, zombie_bytes = 0;
  int64_t hits = 0, misses = 0, evictions = 0;
};

}  // namespace spaid::server
