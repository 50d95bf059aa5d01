#include "kernels/base/split.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "kernels/base/parallel.h"

namespace spaid::kernels {
namespace {

// So many batches a part at the least: a cut is off by half of one.
constexpr int64_t kBatchesOfPart = 256;
constexpr int64_t kMostColumns = 1024;  // of a batch

}  // namespace

BatchedWork SumWork(int64_t n, int parts, int threads,
                    const std::function<double(int64_t k)>& work) {
  if (parts <= 1 || n <= 1) return {.n = n, .batch = std::max<int64_t>(n, 1), .sums = {1}};
  const int64_t batch = std::clamp<int64_t>(n / (parts * kBatchesOfPart), 1, kMostColumns);
  const int64_t batches = (n - 1) / batch + 1;
  std::vector<double> sums(static_cast<size_t>(batches));
  ParallelFor(batches, 16, threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      double sum = 0;
      for (int64_t k = b * batch; k < std::min(n, (b + 1) * batch); ++k) sum += work(k);
      sums[static_cast<size_t>(b)] = sum;
    }
  });
  return {n, batch, std::move(sums)};
}

std::vector<IndexRange> CutByWork(int64_t n, int parts, int threads,
                                  const std::function<double(int64_t k)>& work) {
  if (parts <= 1 || n <= 1) return {{0, n}};
  const auto [all, batch, sums] = SumWork(n, parts, threads, work);
  const auto batches = static_cast<int64_t>(sums.size());
  double left = 0;
  for (const double sum : sums) left += sum;
  std::vector<IndexRange> ranges;
  int64_t at = 0;
  for (int64_t part = 0; part < parts && at < batches; ++part) {
    // A share of what is left, so that one heavy column does not leave the parts behind it idle.
    const int64_t parts_left = parts - part, most = std::max(at + 1, batches - (parts_left - 1));
    const double share = left / static_cast<double>(parts_left);
    const int64_t begin = at;
    double own = 0;
    while (at < most) {
      const double next = sums[static_cast<size_t>(at)];
      // The nearer of the two borders.
      if (parts_left > 1 && at > begin && own + next / 2 > share) break;
      own += next;
      ++at;
    }
    left -= own;
    ranges.push_back({begin * batch, std::min(n, at * batch)});
  }
  return ranges;
}

std::vector<IndexRange> CutByColumns(size_t parts, const int64_t* ptr, int64_t n, int power,
                                     double mean, int threads) {
  // Beyond that a problem is the host's.
  constexpr double kMostUnknowns = 2048;
  // A column takes about so much beside: its gathering, its scales, its residual.
  constexpr double kColumn = 200, kEntry = 4;
  const double spread = std::pow(mean, power - 1);
  return CutByWork(n, static_cast<int>(parts), threads, [=](int64_t k) {
    const double unknowns =
        std::min(kMostUnknowns, static_cast<double>(ptr[k + 1] - ptr[k]) * spread);
    return kColumn + kEntry * mean * unknowns + unknowns * unknowns * unknowns / 3;
  });
}

IndexRange RangeQueue::Take(bool whole_part) {
  // Least share of the work of one part: less is not worth a launch of its own.
  constexpr double kLeast = 1.0 / 64;
  const std::lock_guard lock(mutex_);
  const double share = whole_part ? all_ / parts_ : std::max(left_ / 2, all_ * kLeast) / parts_;
  const size_t begin = at_;
  double own = 0;
  for (; at_ < work_.sums.size(); ++at_) {
    const double next = work_.sums[at_];
    // The nearer of the two borders.
    if (at_ > begin && own + next / 2 > share) break;
    own += next;
  }
  left_ -= own;
  const auto row = [&](size_t at) {
    return std::min(work_.n, static_cast<int64_t>(at) * work_.batch);
  };
  return {row(begin), row(at_)};
}

void RangeQueue::Close() {
  const std::lock_guard lock(mutex_);
  at_ = work_.sums.size();
}

void RangeQueue::Refill() {
  const std::lock_guard lock(mutex_);
  at_ = 0;
  all_ = 0;
  for (const double sum : work_.sums) all_ += sum;
  left_ = all_;
}

Status AtOnce(size_t count, const std::function<Status(size_t i)>& work) {
  std::vector<Status> statuses(count);
  std::vector<std::exception_ptr> thrown(count);
  const auto run = [&](size_t i) noexcept {
    try {
      statuses[i] = work(i);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  std::vector<size_t> own = {};
  own.reserve(count);
  for (size_t i = 1; i < count; ++i) {
    try {
      threads.emplace_back(run, i);
    } catch (const std::system_error&) {
      own.push_back(i);  // no thread is to be had: one after the other, then
    }
  }
  if (count > 0) run(0);
  for (const size_t i : own) run(i);
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < count; ++i) {
    if (thrown[i]) std::rethrow_exception(thrown[i]);
    if (!statuses[i].ok()) return statuses[i];
  }
  return {};
}

void SharedProgress::Report(size_t piece, int64_t done) {
  if (sink_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (done <= done_[piece]) return;
  done_[piece] = done;
  int64_t sum = 0;
  for (const int64_t each : done_) sum += each;
  sink_->OnProgress(stage_, sum, total_);
}

}  // namespace spaid::kernels
