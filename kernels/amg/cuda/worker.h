// A thread for work on Context::Beside. For .cu files.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

// Does tasks one after the other. Ends with the one at hand: those that wait are not begun.
template <class Result>
class Worker {
 public:
  using Task = std::packaged_task<Result(Context&)>;

  // `on`: used by nobody else meanwhile.
  explicit Worker(Context& on) : on_(on), thread_([this] { Work(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The future throws what the task does.
  std::future<Result> Run(Task task) {
    std::future<Result> result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return result;
  }

 private:
  void Work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (ended_) return;
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task(on_);
    }
  }

  Context& on_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // guarded by mutex_, as ended_ is
  bool ended_ = false;
  std::thread thread_;  // last: it uses all of these
};

}  // namespace spaid::cuda
