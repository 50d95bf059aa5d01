// Stores immutable things under unguessable handles, per tenant, bounded in bytes.
//
//   HandleStore<Matrix> store({.prefix = "matrices/", .what = "matrix",
//                              .limit_flag = "--matrix-store-bytes", .max_bytes = 8 << 30,
//                              .too_large_reason = reason::kMatrixTooLarge});
//   ASSIGN_OR_RETURN(Reservation room, store.Reserve(tenant, header_bytes));  // before they come
//   RETURN_IF_ERROR(room.Arrive(chunk_bytes));                         // as they come
//   ASSIGN_OR_RETURN(auto stored, store.Put(tenant, matrix, bytes, key, std::move(room)));
//   ASSIGN_OR_RETURN(auto found, store.Get(tenant, stored.handle));    // in use while found lives
//
// A value is in use while somebody outside the store holds a shared_ptr to it. Only values not in
// use are evicted: the least recently used ones of the tenant most over its share, for one that is
// not (TenantShares). A tenant over its share loses its own values, or is refused. Values may share
// a part, whose bytes count once, and go with the last of them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/base/affinity.h"
#include "server/store/handle_table.h"

namespace spaid::server {

template <class T>
struct Stored {
  std::string handle;  // "matrices/3f…-a1b2c3d4" (server/base/affinity.h)
  std::shared_ptr<const T> value;
  bool existed = false;  // Put: the same content was there already, `value` is that one
  // Look and List: where `value` is null, what the spill folder has of it.
  SpillRecordPtr spilled = nullptr;
};

template <class T>
struct StoredPage {
  std::vector<Stored<T>> items;     // newest first
  std::vector<uint64_t> sequences;  // one per item, for PageToken
  std::string next_token;           // empty: the end
};

// Thread-safe; no call blocks on anything but a short lock.
template <class T>
class HandleStore {
 public:
  using Same = std::function<bool(const T& stored)>;
  using Part = HandleTable::Part;

  explicit HandleStore(HandleStoreOptions options) : table_(std::move(options)) {}

  // Announces that `bytes` will come. They are taken, and others evicted for them, as they arrive
  // (Reservation::Arrive). A promise alone costs nobody anything, so that promises in flight may
  // sum to more than there is room for; whoever comes too late then gets STORE_FULL from Arrive.
  // Errors: RESOURCE_EXHAUSTED/<too_large_reason> (limit and actual) if `bytes` is over the limit
  // for one item, /STORE_FULL (with a retry delay) if values in use, bytes that have arrived, and
  // values of tenants not over their share leave too little.
  absl::StatusOr<Reservation> Reserve(const std::string& tenant, int64_t bytes) {
    return table_.Reserve(tenant, bytes);
  }

  // Stores `value`, which holds `bytes`, and swaps the reservation (the tenant's; may be empty) for
  // the entry's own bytes. `key` names the content within the tenant; empty: no lookup by content.
  // If the tenant has an entry with this key for which same(stored) is true, that one is returned
  // and `value` dropped; else it is stored beside those (beside 16 of them without a key: it is not
  // found by content). `same`, which may take long, runs without the lock, on each entry once;
  // empty: equal keys are equal content. A new handle ends in `affinity`. Errors: as for Reserve.
  absl::StatusOr<Stored<T>> Put(const std::string& tenant, std::shared_ptr<const T> value,
                                int64_t bytes, const std::string& key, Reservation reservation = {},
                                const Same& same = {}, std::string_view affinity = kNoAffinity) {
    return Put(tenant, std::move(value), bytes,
               key.empty() ? std::vector<std::string>() : std::vector{key}, std::move(reservation),
               same, {}, affinity);
  }
  // The same with several keys: the first names the content in Put, Find takes any; an entry that
  // is there already gets those that it lacks. `part`: held by `value`, and not among `bytes`.
  absl::StatusOr<Stored<T>> Put(const std::string& tenant, std::shared_ptr<const T> value,
                                int64_t bytes, const std::vector<std::string>& keys,
                                Reservation reservation, const Same& same, const Part& part,
                                std::string_view affinity = kNoAffinity) {
    auto item = table_.Put(tenant, std::move(value), bytes, keys, std::move(reservation),
                           Untyped(same), part, affinity);
    if (!item.ok()) return item.status();
    return Typed(*std::move(item));
  }

  // Returns the part that the tenant's values share: the one known by the first key of which
  // same(part) is true, which gets the other keys, too; else `part` itself, known by all of them
  // from now on, for as long as somebody holds it. P: the type of parts. `same` as for Put.
  template <class P>
  std::shared_ptr<const P> ShareByKeys(const std::string& tenant, std::shared_ptr<const P> part,
                                       const std::vector<std::string>& keys,
                                       const std::function<bool(const P& known)>& same) {
    return std::static_pointer_cast<const P>(table_.ShareByKeys(
        tenant, {std::move(part), 0}, keys,
        [&same](const void* known) { return same(*static_cast<const P*>(known)); }));
  }
  // Finds a part by one of its keys; null: there is none.
  template <class P>
  std::shared_ptr<const P> FindPart(const std::string& tenant, const std::string& key,
                                    const std::function<bool(const P& known)>& same) {
    return std::static_pointer_cast<const P>(table_.FindPart(
        tenant, key, [&same](const void* known) { return same(*static_cast<const P*>(known)); }));
  }

  // Finds a value by its handle. Errors: NOT_FOUND/HANDLE_EVICTED (it was this tenant's, and was
  // dropped for room), else NOT_FOUND/HANDLE_UNKNOWN (never existed, deleted, or another tenant's:
  // indistinguishable).
  absl::StatusOr<Stored<T>> Get(const std::string& tenant, const std::string& handle) {
    auto item = table_.Get(tenant, handle);
    if (!item.ok()) return item.status();
    return Typed(*std::move(item));
  }

  // Finds an entry with this key for which same(stored), as for Put, is true.
  std::optional<Stored<T>> Find(const std::string& tenant, const std::string& key,
                                const Same& same = {}) {
    auto item = table_.Find(tenant, key, Untyped(same));
    if (!item) return std::nullopt;
    return Typed(*std::move(item));
  }

  // Deletes the handle at once; the bytes are free when the last holder releases the value. Errors:
  // as for Get.
  absl::Status Delete(const std::string& tenant, const std::string& handle) {
    return table_.Delete(tenant, handle);
  }

  // Checks that the tenant may use this entry, which the caller holds, for long: values in use
  // cannot be evicted, and the last eighth of the store is for tenants under their share
  // (TenantShares). Errors: RESOURCE_EXHAUSTED/STORE_FULL (with a retry delay).
  absl::Status CheckUse(const std::string& tenant, const std::string& handle) {
    return table_.CheckUse(tenant, handle);
  }

  StoredPage<T> List(const std::string& tenant, const PageRequest& page) const {
    auto untyped = table_.List(tenant, page);
    StoredPage<T> typed;
    typed.sequences = std::move(untyped.sequences);
    typed.next_token = std::move(untyped.next_token);
    for (auto& item : untyped.items) typed.items.push_back(Typed(std::move(item)));
    return typed;
  }

  HandleStoreStats stats() const { return table_.stats(); }

  // --- With a spill folder: values that were evicted, or are of an earlier daemon ---
  // Finds a value as Get does, or, if it is in the folder alone, what the folder has of it: `value`
  // is null then, and Load gets it. Get says HANDLE_EVICTED of those.
  absl::StatusOr<Stored<T>> Look(const std::string& tenant, const std::string& handle) {
    auto item = table_.Look(tenant, handle);
    if (!item.ok()) return item.status();
    return Typed(*std::move(item));
  }
  // Finds a value as Get does, and reads it back if it is in the folder alone; whoever asks
  // meanwhile waits for that. Blocks: not for a reactor. Errors: Get's, also of one whose files do
  // not verify; as for Reserve.
  absl::StatusOr<Stored<T>> Load(const std::string& tenant, const std::string& handle) {
    auto item = table_.Load(tenant, handle);
    if (!item.ok()) return item.status();
    return Typed(*std::move(item));
  }
  // Find and FindPart, which read back what has the key. Block. What cannot be read, or has no
  // room, is not found.
  std::optional<Stored<T>> FindOrLoad(const std::string& tenant, const std::string& key,
                                      const Same& same = {}) {
    auto item = table_.FindOrLoad(tenant, key, Untyped(same));
    if (!item) return std::nullopt;
    return Typed(*std::move(item));
  }
  template <class P>
  std::shared_ptr<const P> FindPartOrLoad(const std::string& tenant, const std::string& key,
                                          const std::function<bool(const P& known)>& same) {
    return std::static_pointer_cast<const P>(table_.FindPartOrLoad(
        tenant, key, [&same](const void* known) { return same(*static_cast<const P*>(known)); }));
  }
  // Returns true if the folder alone has a value with this key, or, `part`, one whose part has it.
  bool Spilled(const std::string& tenant, const std::string& key, bool part = false) const {
    return table_.Spilled(tenant, key, part);
  }
  // Writes the oldest value that is not in the folder yet. Blocks. False: there is none.
  bool SpillOne() { return table_.SpillOne(); }
  // Writes this one, if it is not there. Blocks. Errors: Get's, SpillFolder::Write's.
  absl::Status SpillNow(const std::string& tenant, const std::string& handle) {
    return table_.SpillNow(tenant, handle);
  }
  // Evicts the value that was used longest ago, of those that nobody uses, that the folder has, and
  // of which which(value) is true: of this tenant's where it has one, else of others'. False: there
  // is none. `which` runs under the lock.
  bool EvictSpilled(const std::string& tenant, const Same& which) {
    return table_.EvictSpilled(tenant, Untyped(which));
  }

 private:
  static HandleTable::Same Untyped(const Same& same) {
    if (!same) return {};
    return [&same](const void* stored) { return same(*static_cast<const T*>(stored)); };
  }
  static Stored<T> Typed(HandleTable::Item item) {
    return {std::move(item.handle), std::static_pointer_cast<const T>(std::move(item.value)),
            item.existed, std::move(item.spilled)};
  }

  HandleTable table_;
};

}  // namespace spaid::server
