#include "server/store/byte_budget.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace spaid::server {

struct BudgetShare::State {
  State(std::string budget_name, int64_t limit, ByteBudget::MakeRoom room, ShareRules rules)
      : name(std::move(budget_name)),
        shares({.limits = {limit}, .rules = std::move(rules)}),
        make_room(std::move(room)) {}
  const std::string name;
  mutable std::mutex mutex;
  TenantShares shares;             // guarded by mutex, but for its limit
  ByteBudget::MakeRoom make_room;  // guarded by mutex
};

BudgetShare::BudgetShare(std::shared_ptr<State> state, const std::string& tenant)
    : state_(std::move(state)) {
  std::lock_guard lock(state_->mutex);
  account_ = state_->shares.Join(tenant);
}

BudgetShare::BudgetShare(BudgetShare&& other) noexcept
    : state_(std::move(other.state_)),
      account_(other.account_),
      bytes_(std::exchange(other.bytes_, 0)) {}

BudgetShare& BudgetShare::operator=(BudgetShare&& other) noexcept {
  if (this != &other) {
    Release();
    state_ = std::move(other.state_);
    account_ = other.account_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void BudgetShare::Release() {
  if (!state_) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->shares.Add(account_, -bytes_);
    state_->shares.Leave(account_);
  }
  state_.reset();
  bytes_ = 0;
}

absl::Status BudgetShare::Grow(int64_t bytes) {
  TenantShares& shares = state_->shares;
  const int64_t limit = shares.limit();
  if (bytes < 0 || bytes > limit - bytes_) {
    return MakeError(
               absl::StatusCode::kResourceExhausted, reason::kBufferFull,
               absl::StrCat(bytes_ + bytes, " bytes of ", state_->name, " are asked for, but ",
                            limit, " is the limit; send less at once"))
        .Meta("actual", bytes_ + bytes)
        .Meta("limit", limit);
  }
  std::set<TenantShares::Account> asked;
  std::unique_lock lock(state_->mutex);
  while (true) {
    const bool alone = shares.UsedBy(account_) == bytes_;
    int64_t missing = shares.MissingFor(account_, bytes, alone);
    if (missing == 0) {
      shares.Add(account_, bytes);
      bytes_ += bytes;
      return absl::OkStatus();
    }
    const auto has_some = [&](TenantShares::Account other) { return !asked.contains(other); };
    const TenantShares::Account gives =
        state_->make_room ? shares.Yields(account_, bytes, has_some) : nullptr;
    if (gives == nullptr) break;
    asked.insert(gives);
    // Not below its share for another.
    if (gives != account_) {
      const double over = static_cast<double>(shares.UsedBy(gives)) - shares.ShareOf(gives);
      missing = std::min(missing, static_cast<int64_t>(std::ceil(over)));
    }
    const auto make_room = state_->make_room;
    lock.unlock();
    make_room(missing, [this, gives](const std::string& tenant) {
      std::lock_guard inner(state_->mutex);
      return state_->shares.Find(tenant) == gives;
    });
    lock.lock();
  }
  return MakeError(absl::StatusCode::kResourceExhausted, reason::kBufferFull,
                   absl::StrCat(limit, " bytes of ", state_->name,
                                " are the limit, of which this tenant has ",
                                shares.UsedBy(account_), "; ", bytes,
                                " more do not fit beside what others have and what is kept for "
                                "tenants with less than their share; try again later"))
      .Meta("actual", bytes_ + bytes)
      .Meta("limit", limit)
      .Retry(std::chrono::seconds(1));
}

ByteBudget::ByteBudget(std::string name, int64_t limit, MakeRoom make_room, ShareRules shares)
    : state_(std::make_shared<BudgetShare::State>(std::move(name), limit, std::move(make_room),
                                                  std::move(shares))) {}

ByteBudget::~ByteBudget() {
  std::lock_guard lock(state_->mutex);
  state_->make_room = nullptr;
}

absl::StatusOr<BudgetShare> ByteBudget::Take(const std::string& tenant, int64_t bytes) {
  BudgetShare share(state_, tenant);
  RETURN_IF_ERROR(share.Grow(bytes));
  return share;
}

int64_t ByteBudget::used() const {
  std::lock_guard lock(state_->mutex);
  return state_->shares.used();
}

int64_t ByteBudget::limit() const { return state_->shares.limit(); }

}  // namespace spaid::server
