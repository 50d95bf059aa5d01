// Shares a number of bytes among several owners: right-hand sides in flight and kept solutions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/tenant_shares.h"

namespace spaid::server {

class ByteBudget;

// Bytes taken from a budget; gives them back when it dies. Movable; outlives the budget safely.
class BudgetShare {
 public:
  BudgetShare() = default;
  ~BudgetShare() { Release(); }
  BudgetShare(BudgetShare&& other) noexcept;
  BudgetShare& operator=(BudgetShare&& other) noexcept;

  // Takes `bytes` more from the same budget; the share must not be empty. Errors: as for
  // ByteBudget::Take; the share stays as it was.
  absl::Status Grow(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  void Release();

 private:
  friend class ByteBudget;
  struct State;
  BudgetShare(std::shared_ptr<State> state, const std::string& tenant);
  std::shared_ptr<State> state_;
  TenantShares::Account account_ = nullptr;
  int64_t bytes_ = 0;
};

// Thread-safe.
class ByteBudget {
 public:
  // Returns true if the things that a tenant keeps may go.
  using OfTenant = std::function<bool(const std::string& tenant)>;
  // Frees that many bytes of such tenants, as far as they keep something.
  using MakeRoom = std::function<void(int64_t missing, const OfTenant& of)>;

  // `name` appears in errors ("right-hand sides in flight"). `make_room`, if set, is asked to free
  // bytes (by releasing shares) of tenants that yield by the rule of TenantShares, before a request
  // is refused for lack of room; it runs on the asking thread, without a lock held, and not after
  // the budget has died.
  ByteBudget(std::string name, int64_t limit, MakeRoom make_room = {}, ShareRules shares = {});
  ~ByteBudget();

  // Takes a share of `bytes`; 0 always succeeds, for a share that will grow. Errors:
  // RESOURCE_EXHAUSTED/BUFFER_FULL with limit and actual: without a retry delay if `bytes` is over
  // the limit, with one if others, or the tenant itself, hold too much: an eighth is kept for those
  // who are not over their share.
  absl::StatusOr<BudgetShare> Take(const std::string& tenant, int64_t bytes);

  int64_t used() const;
  int64_t limit() const;

 private:
  std::shared_ptr<BudgetShare::State> state_;
};

}  // namespace spaid::server
