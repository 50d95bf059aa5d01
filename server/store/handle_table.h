// The untyped part of HandleStore: handles, byte accounting, eviction. Use handle_store.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/paging.h"
#include "server/base/tenant_shares.h"
#include "server/store/spill_codec.h"

namespace spaid::server {

struct HandleStoreOptions {
  std::string prefix;          // "matrices/"
  std::string what;            // "matrix": for error texts
  std::string limit_flag;      // "--matrix-store-bytes": named as the cure
  int64_t max_bytes = 0;       // all entries, reservations that arrived, zombies
  int64_t max_item_bytes = 0;  // one item; 0: max_bytes
  int64_t max_entries = 100'000;
  int64_t max_tombstones = 10'000;
  std::string_view too_large_reason;  // reason::kMatrixTooLarge
  ShareRules shares = {};             // for bytes, entries and tombstones
  // A tenant that has used nothing of its own for this long has no share.
  std::chrono::nanoseconds active_for = TenantShares::kLately;
  const Clock* clock = &RealClock();  // outlives the table
  SpillFolder* spill = nullptr;       // outlives the table; null: what is evicted is lost
  SpillCodec codec = {};              // for `spill`
};

struct HandleStoreStats {
  int64_t entries = 0;
  int64_t bytes = 0;           // held by entries
  int64_t reserved_bytes = 0;  // announced by uploads in flight
  int64_t arrived_bytes = 0;   // the part of those that has arrived
  int64_t zombie_bytes = 0;    // deleted, but still held by somebody
  int64_t max_bytes = 0;
  int64_t hits = 0, misses = 0, evictions = 0;
  int64_t tenants = 0;  // with something stored, as far as they are told apart
};

class HandleTable;

// Holds room in a store for an upload in flight and gives it back when it dies. Movable;
// thread-compatible; may outlive the store.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation() { Release(); }
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;

  // Takes `bytes` that have arrived (memory is really used now), and evicts values that nobody uses
  // to make room, by the rule of TenantShares. In all never more than was reserved (a broken
  // invariant). Errors: RESOURCE_EXHAUSTED/STORE_FULL if what may be evicted does not suffice, or
  // this tenant's uploads in flight would leave none to others; the reservation stays as it was.
  absl::Status Arrive(int64_t bytes);
  // Takes `bytes` beyond what was reserved, until the end of the reservation. Errors: as for
  // Arrive.
  absl::Status Extend(int64_t bytes);

  int64_t bytes() const { return bytes_; }
  int64_t arrived() const { return arrived_; }
  void Release();

 private:
  friend class HandleTable;
  struct Shared;
  void GiveBack();  // under the lock
  std::shared_ptr<Shared> shared_;
  TenantShares::Account account_ = nullptr;
  int64_t bytes_ = 0, arrived_ = 0;
};

// Thread-safe.
class HandleTable {
 public:
  struct Item {
    std::string handle;
    std::shared_ptr<const void> value;
    bool existed = false;
    SpillRecordPtr spilled = nullptr;  // where there is no value: it is in the folder alone
  };
  struct Page {
    std::vector<Item> items;
    std::vector<uint64_t> sequences;  // one per item
    std::string next_token;           // empty: the end
  };

  // Returns true if a stored value (or part) with the right key is the one that is meant. Runs
  // without the lock.
  using Same = std::function<bool(const void* stored)>;

  // A piece that values of one tenant may share (the pattern of matrices): its bytes count once, as
  // long as one of the entries that hold it is there.
  struct Part {
    std::shared_ptr<const void> value;  // null: there is none. Each entry's value holds it
    int64_t bytes = 0;
  };

  explicit HandleTable(HandleStoreOptions options);
  ~HandleTable();

  absl::StatusOr<Reservation> Reserve(const std::string& tenant, int64_t bytes);
  absl::StatusOr<Item> Put(const std::string& tenant, std::shared_ptr<const void> value,
                           int64_t bytes, const std::vector<std::string>& keys,
                           Reservation reservation, const Same& same, const Part& part,
                           std::string_view affinity);
  std::shared_ptr<const void> ShareByKeys(const std::string& tenant, Part part,
                                          const std::vector<std::string>& keys, const Same& same);
  std::shared_ptr<const void> FindPart(const std::string& tenant, const std::string& key,
                                       const Same& same);
  absl::StatusOr<Item> Get(const std::string& tenant, const std::string& handle);
  std::optional<Item> Find(const std::string& tenant, const std::string& key, const Same& same);
  absl::Status Delete(const std::string& tenant, const std::string& handle);
  absl::Status CheckUse(const std::string& tenant, const std::string& handle);
  Page List(const std::string& tenant, const PageRequest& page) const;
  HandleStoreStats stats() const;

  // With a spill folder (handle_spill.cc).
  absl::StatusOr<Item> Look(const std::string& tenant, const std::string& handle);
  absl::StatusOr<Item> Load(const std::string& tenant, const std::string& handle);
  std::optional<Item> FindOrLoad(const std::string& tenant, const std::string& key,
                                 const Same& same);
  std::shared_ptr<const void> FindPartOrLoad(const std::string& tenant, const std::string& key,
                                             const Same& same);
  bool Spilled(const std::string& tenant, const std::string& key, bool part) const;
  bool SpillOne();
  absl::Status SpillNow(const std::string& tenant, const std::string& handle);
  bool EvictSpilled(const std::string& tenant, const Same& which);

 private:
  absl::StatusOr<Item> LoadRecord(const SpillRecordPtr& record);
  std::shared_ptr<Reservation::Shared> shared_;
};

}  // namespace spaid::server
