#include "server/rpc/executor.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "server/base/guard.h"

namespace spaid::server {

Executor::Executor(int threads, int64_t max_queued, ShareRules shares)
    : threads_of_one_(threads), places_({.limits = {max_queued}, .rules = std::move(shares)}) {
  threads_.reserve(static_cast<size_t>(threads) + 1);
  for (int i = 0; i <= threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Executor::TryRun(const std::string& tenant, std::function<void()> task,
                      std::function<void(const absl::Status&)> failed) {
  {
    std::lock_guard lock(mu_);
    const TenantShares::Account account = places_.Join(tenant);
    absl::Cleanup undo = [&] {
      const auto own = queues_.find(account);
      if (own != queues_.end() && own->second.empty()) {
        queues_.erase(own);
        if (!turns_.empty() && turns_.back() == account) turns_.pop_back();
      }
      places_.Leave(account);
    };
    if (stop_ || !places_.Admits(account, 1)) return false;
    std::deque<Task>& own = queues_[account];
    if (own.empty()) turns_.push_back(account);
    own.push_back({account, std::move(task), std::move(failed)});
    places_.Add(account, 1);
    std::move(undo).Cancel();
  }
  ready_.notify_one();
  return true;
}

int64_t Executor::queued() const {
  std::lock_guard lock(mu_);
  return places_.used();
}

std::deque<TenantShares::Account>::iterator Executor::NextLocked() {
  return std::find_if(turns_.begin(), turns_.end(), [this](TenantShares::Account account) {
    const auto own = running_.find(account);
    return own == running_.end() || own->second < threads_of_one_;
  });
}

void Executor::Work() {
  std::unique_lock lock(mu_);
  while (true) {
    auto turn = turns_.end();
    ready_.wait(lock, [&] {
      turn = NextLocked();
      return turn != turns_.end() || (stop_ && places_.used() == 0);
    });
    if (turn == turns_.end()) return;  // stopping, and nothing is left
    const auto own = queues_.find(*turn);
    turns_.erase(turn);
    Task task = std::move(own->second.front());
    own->second.pop_front();
    if (own->second.empty()) {
      queues_.erase(own);
    } else {
      turns_.push_back(own->first);
    }
    const TenantShares::Account account = task.account;
    places_.Add(account, -1);
    ++running_[account];
    lock.unlock();
    const absl::Status status = Guarded("the preparation of the request", [&] {
      task.run();
      return absl::OkStatus();
    });
    if (!status.ok()) {
      (void)Guarded("the end of a request", [&] {
        task.failed(status);
        return absl::OkStatus();
      });
    }
    task = {};  // what it captured dies outside the lock
    lock.lock();
    if (const auto it = running_.find(account); --it->second == 0) running_.erase(it);
    places_.Leave(account);
    // Whose turn it is may have waited for this thread, or, at the end, other threads for the last.
    ready_.notify_all();
  }
}

}  // namespace spaid::server
