#include "server/rpc/executor.h"

#include <utility>

#include "server/base/guard.h"

namespace spaid::server {

Executor::Executor(int threads, size_t max_queued) : max_queued_(max_queued) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
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
    if (stop_ || queued_ >= max_queued_) return false;
    std::deque<Task>& own = queues_[tenant];
    if (own.empty()) turns_.push_back(tenant);
    own.push_back({std::move(task), std::move(failed)});
    ++queued_;
  }
  ready_.notify_one();
  return true;
}

int64_t Executor::queued() const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(queued_);
}

void Executor::Work() {
  std::unique_lock lock(mu_);
  while (true) {
    ready_.wait(lock, [this] { return stop_ || queued_ > 0; });
    if (queued_ == 0) return;  // stopping, and nothing is left
    const auto own = queues_.find(turns_.front());
    turns_.pop_front();
    Task task = std::move(own->second.front());
    own->second.pop_front();
    if (own->second.empty()) {
      queues_.erase(own);
    } else {
      turns_.push_back(own->first);
    }
    --queued_;
    lock.unlock();
    const absl::Status status = Guarded("the preparation of the request", [&] {
      task.run();
      return absl::OkStatus();
    });
    if (!status.ok()) task.failed(status);
    task = {};  // what it captured dies outside the lock
    lock.lock();
  }
}

}  // namespace spaid::server
