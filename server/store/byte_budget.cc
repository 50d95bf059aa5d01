#include "server/store/byte_budget.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status.h"

namespace spaid::server {

struct BudgetShare::State {
  State(std::string budget_name, int64_t budget_limit, std::function<void(int64_t)> room)
      : name(std::move(budget_name)), limit(budget_limit), make_room(std::move(room)) {}
  // 0: taken; else how much is missing.
  int64_t TryTake(int64_t bytes) {
    std::lock_guard lock(mutex);
    if (bytes > limit - used) return bytes - (limit - used);
    used += bytes;
    return 0;
  }
  const std::string name;
  const int64_t limit;
  mutable std::mutex mutex;
  int64_t used = 0;
  std::function<void(int64_t)> make_room;  // guarded by mutex
};

BudgetShare::BudgetShare(std::shared_ptr<State> state, int64_t bytes)
    : state_(std::move(state)), bytes_(bytes) {}

BudgetShare::BudgetShare(BudgetShare&& other) noexcept
    : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}

BudgetShare& BudgetShare::operator=(BudgetShare&& other) noexcept {
  if (this != &other) {
    Release();
    state_ = std::move(other.state_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void BudgetShare::Release() {
  if (!state_) return;
  {
    std::lock_guard lock(state_->mutex);
    state_->used -= bytes_;
  }
  state_.reset();
  bytes_ = 0;
}

absl::Status BudgetShare::Grow(int64_t bytes) {
  if (bytes < 0 || bytes > state_->limit - bytes_) {
    return MakeError(
               absl::StatusCode::kResourceExhausted, reason::kBufferFull,
               absl::StrCat(bytes_ + bytes, " bytes of ", state_->name, " are asked for, but ",
                            state_->limit, " is the limit; send less at once"))
        .Meta("actual", bytes_ + bytes)
        .Meta("limit", state_->limit);
  }
  int64_t missing = state_->TryTake(bytes);
  if (missing > 0) {
    std::function<void(int64_t)> make_room;
    {
      std::lock_guard lock(state_->mutex);
      make_room = state_->make_room;
    }
    if (make_room) {
      make_room(missing);
      missing = state_->TryTake(bytes);
    }
  }
  if (missing > 0) {
    return MakeError(absl::StatusCode::kResourceExhausted, reason::kBufferFull,
                     absl::StrCat(state_->limit, " bytes of ", state_->name,
                                  " are the limit, and so many are in use that ", bytes,
                                  " more do not fit now; try again later"))
        .Meta("actual", bytes_ + bytes)
        .Meta("limit", state_->limit)
        .Retry(std::chrono::seconds(1));
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

ByteBudget::ByteBudget(std::string name, int64_t limit, std::function<void(int64_t)> make_room)
    : state_(std::make_shared<BudgetShare::State>(std::move(name), limit, std::move(make_room))) {}

ByteBudget::~ByteBudget() {
  std::lock_guard lock(state_->mutex);
  state_->make_room = nullptr;
}

absl::StatusOr<BudgetShare> ByteBudget::Take(int64_t bytes) {
  BudgetShare share(state_, 0);
  RETURN_IF_ERROR(share.Grow(bytes));
  return share;
}

int64_t ByteBudget::used() const {
  std::lock_guard lock(state_->mutex);
  return state_->used;
}

int64_t ByteBudget::limit() const { return state_->limit; }

}  // namespace spaid::server
