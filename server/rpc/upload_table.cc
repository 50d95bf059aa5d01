#include "server/rpc/upload_table.h"

#include <string>
#include <utility>

namespace spaid::server {

UploadTable::Turn::Turn(Turn&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), key_(std::move(other.key_)) {}

UploadTable::Turn& UploadTable::Turn::operator=(Turn&& other) noexcept {
  if (this != &other) {
    End();
    table_ = std::exchange(other.table_, nullptr);
    key_ = std::move(other.key_);
  }
  return *this;
}

void UploadTable::Turn::End() {
  if (UploadTable* table = std::exchange(table_, nullptr)) table->Leave(key_);
}

UploadTable::Turn UploadTable::Enter(const std::string& tenant, const std::string& content_key,
                                     std::weak_ptr<Waiter> waiter) {
  // A length before the tenant: no two pairs give one key.
  std::string key = std::to_string(tenant.size()) + ":" + tenant + content_key;
  std::lock_guard lock(mu_);
  const auto [it, first] = in_flight_.try_emplace(key);
  if (first) return Turn(this, std::move(key));
  // Those that went away are swept here: the list holds live streams only.
  std::erase_if(it->second, [](const std::weak_ptr<Waiter>& w) { return w.expired(); });
  it->second.push_back(std::move(waiter));
  return Turn();
}

void UploadTable::Leave(const std::string& key) {
  std::vector<std::weak_ptr<Waiter>> waiting;
  {
    std::lock_guard lock(mu_);
    const auto it = in_flight_.find(key);
    waiting = std::move(it->second);
    in_flight_.erase(it);
  }
  for (const auto& weak : waiting) {
    if (const auto waiter = weak.lock()) waiter->Wake();
  }
}

}  // namespace spaid::server
