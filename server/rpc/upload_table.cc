#include "server/rpc/upload_table.h"

#include <string>
#include <utility>

namespace spaid::server {
namespace {

// A length before the tenant: no two pairs give one key.
std::string KeyOf(const std::string& tenant, const std::string& content_key) {
  return std::to_string(tenant.size()) + ":" + tenant + content_key;
}

bool Same(const std::weak_ptr<UploadTable::Waiter>& a,
          const std::weak_ptr<UploadTable::Waiter>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

UploadTable::Turn::Turn(Turn&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)),
      key_(std::move(other.key_)),
      number_(other.number_) {}

UploadTable::Turn& UploadTable::Turn::operator=(Turn&& other) noexcept {
  if (this != &other) {
    End();
    table_ = std::exchange(other.table_, nullptr);
    key_ = std::move(other.key_);
    number_ = other.number_;
  }
  return *this;
}

void UploadTable::Turn::Came(int64_t bytes, TimePoint now) {
  if (table_ == nullptr) return;
  const std::lock_guard lock(table_->mu_);
  Upload* upload = table_->LedBy(*this);
  if (upload == nullptr) return;
  upload->span_bytes += bytes;
  Look(now, upload);
}

void UploadTable::Turn::CameWhole() {
  if (table_ == nullptr) return;
  const std::lock_guard lock(table_->mu_);
  if (Upload* upload = table_->LedBy(*this)) upload->whole = true;
}

void UploadTable::Turn::Begins(TimePoint now) {
  if (table_ == nullptr) return;
  const std::lock_guard lock(table_->mu_);
  Upload* upload = table_->LedBy(*this);
  if (upload == nullptr) return;
  upload->whole = false;
  upload->span_start = now;
  upload->span_bytes = 0;
}

void UploadTable::Turn::End() {
  if (UploadTable* table = std::exchange(table_, nullptr)) table->Leave(key_, number_);
}

void UploadTable::Look(TimePoint now, Upload* upload) {
  const std::chrono::duration<double> span = now - upload->span_start;
  if (span < kLeaderSpan) return;
  upload->slow = static_cast<double>(upload->span_bytes) < kLeaderRate * span.count();
  upload->span_start = now;
  upload->span_bytes = 0;
}

UploadTable::Upload* UploadTable::LedBy(const Turn& turn) {
  const auto it = in_flight_.find(turn.key_);
  return it != in_flight_.end() && it->second.leader == turn.number_ ? &it->second : nullptr;
}

UploadTable::Turn UploadTable::Enter(const std::string& tenant, const std::string& content_key,
                                     std::weak_ptr<Waiter> waiter, TimePoint now) {
  std::string key = KeyOf(tenant, content_key);
  const std::lock_guard lock(mu_);
  const auto [it, first] = in_flight_.try_emplace(key);
  Upload& upload = it->second;
  if (!first) Look(now, &upload);
  if (first || (upload.slow && !upload.whole)) {
    upload.leader = ++turns_;
    upload.span_start = now;
    upload.span_bytes = 0;
    upload.slow = upload.whole = false;
    return Turn(this, std::move(key), upload.leader);
  }
  // Those that went away are swept here: the list holds live streams only, each once.
  std::erase_if(upload.waiting, [&waiter](const std::weak_ptr<Waiter>& w) {
    return w.expired() || Same(w, waiter);
  });
  upload.waiting.push_back(std::move(waiter));
  return Turn();
}

bool UploadTable::LeaderIsSlow(const std::string& tenant, const std::string& content_key,
                               TimePoint now) {
  const std::lock_guard lock(mu_);
  const auto it = in_flight_.find(KeyOf(tenant, content_key));
  if (it == in_flight_.end()) return false;
  Look(now, &it->second);
  return it->second.slow && !it->second.whole;
}

void UploadTable::Leave(const std::string& key, uint64_t number) {
  std::vector<std::weak_ptr<Waiter>> waiting;
  {
    const std::lock_guard lock(mu_);
    const auto it = in_flight_.find(key);
    // The one that took the lead may have ended before.
    if (it == in_flight_.end()) return;
    waiting = std::move(it->second.waiting);
    if (it->second.leader == number) {
      in_flight_.erase(it);
    } else {
      it->second.waiting.clear();
    }
  }
  for (const auto& weak : waiting) {
    if (const auto waiter = weak.lock()) waiter->Wake();
  }
}

}  // namespace spaid::server
