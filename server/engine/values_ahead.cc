#include "server/engine/values_ahead.h"

#include <utility>

#include "server/base/log.h"
#include "server/base/metrics.h"

namespace spaid::server {

void ValuesAhead::Come(const double* values, int64_t count) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  const auto failed = [this](const kernels::Status& error) {
    over_ = true;
    Log(LogLevel::kWarning, "ahead_failed", {{"error", error.message()}});
  };
  if (copy_ == nullptr) {
    auto begun = engine_.BeginCopyAhead(device_, values, pattern_->nnz());
    if (!begun.ok()) return failed(begun.status());
    copy_ = *std::move(begun);
    if (copy_ == nullptr) return;  // perhaps with the next ones
  }
  const auto sent = copy_->Send(count * static_cast<int64_t>(sizeof(double)));
  if (!sent.ok()) return failed(sent.status());
  if (metrics_ != nullptr) metrics_->AheadBytes("sent", *sent - sent_);
  sent_ = *sent;
}

std::shared_ptr<kernels::CopyAhead> ValuesAhead::copy() const {
  const std::lock_guard lock(mutex_);
  return copy_;
}

void ValuesAhead::Drop() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  const auto copy = std::exchange(copy_, nullptr);
  if (copy == nullptr) return;
  copy->Drop();
  const int64_t taken = copy->taken();
  if (taken == 0) pattern_->ValuesGoTo(StoredPattern::kNowhere);
  if (metrics_ == nullptr) return;
  metrics_->AheadBytes("taken", taken);
  metrics_->AheadBytes("wasted", sent_ - taken);
}

}  // namespace spaid::server
