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

bool Executor::TryRun(std::function<void()> task, std::function<void(const absl::Status&)> failed) {
  {
    std::lock_guard lock(mu_);
    if (stop_ || queue_.size() >= max_queued_) return false;
    queue_.push_back({std::move(task), std::move(failed)});
  }
  ready_.notify_one();
  return true;
}

int64_t Executor::queued() const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(queue_.size());
}

void Executor::Work() {
  std::unique_lock lock(mu_);
  while (true) {
    ready_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;  // stopping, and nothing is left
    Task task = std::move(queue_.front());
    queue_.pop_front();
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
