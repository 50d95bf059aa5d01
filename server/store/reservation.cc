#include <cstdlib>
#include <utility>

#include "server/base/log.h"
#include "server/store/handle_state.h"

namespace spaid::server {

Reservation::Reservation(Reservation&& other) noexcept
    : shared_(std::move(other.shared_)),
      account_(other.account_),
      bytes_(std::exchange(other.bytes_, 0)),
      arrived_(std::exchange(other.arrived_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    shared_ = std::move(other.shared_);
    account_ = other.account_;
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
  TenantShares& shares = shared_->shares;
  const bool alone = shares.UsedBy(account_, Shared::kArriving) == arrived_;
  if (!shares.Admits(account_, bytes, alone, Shared::kArriving) ||
      !shared_->MakeRoom(account_, bytes, 0, &dropped)) {
    return shared_->Full(account_, bytes);
  }
  shares.Touch(account_);
  shares.Add(account_, bytes, Shared::kBytes);
  shares.Add(account_, bytes, Shared::kArriving);
  arrived_ += bytes;
  return absl::OkStatus();
}

absl::Status Reservation::Extend(int64_t bytes) {
  if (!shared_) return absl::OkStatus();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->reserved += bytes;
    bytes_ += bytes;
  }
  absl::Status status = Arrive(bytes);
  if (!status.ok()) {
    const std::lock_guard lock(shared_->mutex);
    shared_->reserved -= bytes;
    bytes_ -= bytes;
  }
  return status;
}

void Reservation::Release() {
  if (!shared_) return;
  {
    std::lock_guard lock(shared_->mutex);
    GiveBack();
  }
  shared_.reset();
}

void Reservation::GiveBack() {
  shared_->reserved -= bytes_;
  shared_->shares.Add(account_, -arrived_, Shared::kBytes);
  shared_->shares.Add(account_, -arrived_, Shared::kArriving);
  shared_->shares.Leave(account_);
  bytes_ = arrived_ = 0;
}

}  // namespace spaid::server
