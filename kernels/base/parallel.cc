#include "kernels/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/base/cgroup.h"

namespace spaid::kernels {
namespace {

// A request for more threads than this is a mistake, not a wish.
constexpr int kMaxThreads = 1024;
// How long an idle worker looks for the next call before it sleeps. A wake-up costs some 5-50 us,
// and the vector operations of a Krylov iteration follow each other faster than that.
constexpr std::chrono::microseconds kSpin{30};

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int CountUsableCores() {
  int cores = 0;
  // The mask of a large machine does not fit cpu_set_t: grow until the kernel is content.
  for (int cpus = CPU_SETSIZE; cores == 0 && cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    if (sched_getaffinity(0, bytes, set) == 0) cores = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
  }
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = ReadCgroupLimits().cpus;
  if (quota > 0) cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  return std::max(1, cores);
}

int UsableCores() {
  static const int cores = CountUsableCores();
  return cores;
}

// Until `done()` or the end of the spin time; true if done.
template <class Done>
bool SpinUntil(const Done& done) {
  if (done()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      Pause();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// One call of ParallelFor; lives on its caller's stack.
struct Task {
  int64_t n = 0;
  int64_t batch = 1;
  int64_t batches = 0;
  int max_workers = 1;
  Stage stage = Stage::kPlan;
  const StopToken* stop = nullptr;   // null: never stops
  ProgressSink* progress = nullptr;  // null: none
  const std::function<void(int64_t, int64_t, int)>* body = nullptr;

  std::atomic<int64_t> next{0};  // the next batch
  std::atomic<int> stopped{0};   // a StopReason
  std::atomic<int> helpers{0};   // pool threads inside Run
  int joined = 1;                // workers so far, the caller being one; guarded by the pool
  std::mutex progress_mutex;
  int64_t done = 0;  // guarded by progress_mutex

  std::mutex error_mutex;
  std::exception_ptr error;  // the first that a batch threw; guarded by error_mutex

  // What the body throws (for want of memory, say) ends the loop and waits for the caller: a pool
  // thread has nobody to throw to.
  void Run(int worker) noexcept {
    while (stopped.load(std::memory_order_relaxed) == 0) {
      if (stop != nullptr) {
        const StopReason reason = stop->Poll();
        if (reason != StopReason::kNone) {
          // A stop after the last batch was taken changes nothing for the batches that run.
          if (next.load(std::memory_order_relaxed) >= batches) return;
          int expected = 0;
          stopped.compare_exchange_strong(expected, static_cast<int>(reason));
          return;
        }
      }
      const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= batches) return;
      const int64_t begin = i * batch;
      const int64_t end = n - begin <= batch ? n : begin + batch;
      try {
        (*body)(begin, end, worker);
      } catch (...) {
        std::lock_guard<std::mutex> lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(batches);
        return;
      }
      if (progress != nullptr) {
        std::lock_guard<std::mutex> lock(progress_mutex);
        done += end - begin;
        progress->OnProgress(stage, done, n);
      }
    }
  }
};

}  // namespace

// Threads that help the callers. A caller never waits for a helper that has not begun, and a helper
// that has begun only runs batches; so calls may be nested and may come from any number of threads.
class Pool {
 public:
  void Run(Task& task) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Grow(task.max_workers - 1);
      tasks_.push_back(&task);
      epoch_.fetch_add(1, std::memory_order_release);
      const int wanted = std::min(task.max_workers - 1, sleepers_);
      for (int i = 0; i < wanted; ++i) work_.notify_one();
    }
    task.Run(0);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks_.erase(std::find(tasks_.begin(), tasks_.end(), &task));
    }
    const auto left = [&task] { return task.helpers.load() == 0; };
    if (SpinUntil(left)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiters_;
    left_.wait(lock, left);
    --waiters_;
  }

 private:
  void Grow(int helpers) {
    while (threads_ < helpers) {
      try {
        std::thread(&Pool::Work, this).detach();
      } catch (const std::system_error&) {
        return;  // the caller does all of its batches with the helpers there are
      }
      ++threads_;
    }
  }

  // A task that still has room and batches; joins it. mutex_ is held.
  Task* Join(int& worker) {
    for (Task* task : tasks_) {
      if (task->joined < task->max_workers &&
          task->next.load(std::memory_order_relaxed) < task->batches) {
        worker = task->joined++;
        task->helpers.fetch_add(1);
        return task;
      }
    }
    return nullptr;
  }

  void Work() {
    for (;;) {
      int worker = 0;
      Task* task = nullptr;
      uint64_t seen = 0;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        seen = epoch_.load(std::memory_order_relaxed);
        task = Join(worker);
      }
      if (task == nullptr) {
        const auto changed = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
        if (!SpinUntil(changed)) {
          std::unique_lock<std::mutex> lock(mutex_);
          ++sleepers_;
          work_.wait(lock, changed);
          --sleepers_;
        }
        continue;
      }
      task->Run(worker);
      // After the last helper's decrement the task may be gone: only the pool is touched then. The
      // order of decrement and read here, and of increment and read in Run(), excludes a lost
      // wake-up.
      if (task->helpers.fetch_sub(1) == 1 && waiters_.load() > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        left_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;    // a task came
  std::condition_variable left_;    // a task's last helper left
  std::vector<Task*> tasks_;        // guarded by mutex_
  int threads_ = 0;                 // guarded by mutex_
  int sleepers_ = 0;                // guarded by mutex_
  std::atomic<uint64_t> epoch_{0};  // counts tasks; written under mutex_
  std::atomic<int> waiters_{0};     // callers that sleep until their helpers have left
};

Pool*& ThePool() {
  // Never destroyed: a thread may still be computing while the process runs its exit handlers.
  static Pool* pool = new Pool;
  return pool;
}

namespace {

StopReason Execute(Task& task, int threads) {
  task.batches = (task.n - 1) / task.batch + 1;
  task.max_workers = static_cast<int>(std::min<int64_t>(ResolveThreads(threads), task.batches));
  if (task.max_workers <= 1) {
    task.Run(0);
  } else {
    ThePool()->Run(task);
  }
  if (task.error) std::rethrow_exception(task.error);
  return static_cast<StopReason>(task.stopped.load());
}

}  // namespace

int ResolveThreads(int threads) {
  return threads <= 0 ? UsableCores() : std::min(threads, kMaxThreads);
}

StopReason ParallelFor(int64_t n, int64_t batch, const Context& context, Stage stage,
                       const std::function<void(int64_t, int64_t, int)>& body) {
  if (n <= 0) return context.stop.Poll();
  Task task;
  task.n = n;
  task.batch = std::max<int64_t>(1, batch);
  task.stage = stage;
  task.stop = &context.stop;
  task.progress = context.progress;
  task.body = &body;
  return Execute(task, context.threads);
}

void ParallelFor(int64_t n, int64_t batch, int threads,
                 const std::function<void(int64_t, int64_t, int)>& body) {
  if (n <= 0) return;
  Task task;
  task.n = n;
  task.batch = std::max<int64_t>(1, batch);
  task.body = &body;
  Execute(task, threads);
}

}  // namespace spaid::kernels
