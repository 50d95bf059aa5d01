// Work that several devices share: contiguous ranges of columns of M, or rows of G, of about equal
// predicted work, each on a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/base/status.h"

namespace spaid::kernels {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// [0, n) as at most `parts` ranges in ascending order, none of them empty where n > 0, of about
// equal work; fewer where there are not so many columns. `work(k)`: of column k, over 0; called
// from `threads` threads, once for each k. With many columns cuts are between batches of up to
// 1024.
std::vector<IndexRange> CutByWork(int64_t n, int parts, int threads,
                                  const std::function<double(int64_t k)>& work);

// Holds the work of [0, n), summed over batches of up to 1024, fewer of small n.
struct BatchedWork {
  int64_t n = 0, batch = 1;
  std::vector<double> sums;
};
// `work` and `threads` as of CutByWork; for one part all is one batch, and `work` is not called.
BatchedWork SumWork(int64_t n, int parts, int threads,
                    const std::function<double(int64_t k)>& work);

// Hands [0, n) out to parts that come for more as they become free: ascending ranges, each of half
// of its part's share of the work that is left, so that all end at about the same time even where
// the prediction is wrong. Thread-safe.
class RangeQueue {
 public:
  // `work`: borrowed.
  RangeQueue(const BatchedWork& work, int parts) : work_(work), parts_(parts) { Refill(); }
  // Returns the next range; of no size: nothing is left. `whole_part`: of a part's share of all the
  // work, for those that each range costs too much.
  IndexRange Take(bool whole_part);
  void Close();   // Leaves nothing.
  void Refill();  // Begins again.

 private:
  const BatchedWork& work_;
  const int parts_;
  std::mutex mutex_;
  // Guarded by mutex_:
  size_t at_ = 0;  // the next batch
  double all_ = 0, left_ = 0;
};

// The same by the sizes of local problems: column k has ptr[k + 1] − ptr[k] unknowns, to the power
// of `power` of the pattern that `ptr` is of, and gathers as many columns of A of `mean` entries.
std::vector<IndexRange> CutByColumns(size_t parts, const int64_t* ptr, int64_t n, int power,
                                     double mean, int threads);

// Calls work(i) for all i < count, all at once, each on a thread of its own, the first on the
// caller's. The first error by i, once all have returned: one does not end the others. What a call
// throws is thrown here.
Status AtOnce(size_t count, const std::function<Status(size_t i)>& work);

// Sums what pieces of one computation tell. Thread-safe.
class SharedProgress {
 public:
  // `sink`: borrowed; may be null.
  SharedProgress(ProgressSink* sink, Stage stage, int64_t total, size_t pieces)
      : sink_(sink), stage_(stage), total_(total), done_(pieces) {}
  // The piece has done so much of its own. Less than before is not told.
  void Report(size_t piece, int64_t done);

 private:
  ProgressSink* const sink_;
  const Stage stage_;
  const int64_t total_;
  std::mutex mutex_;
  std::vector<int64_t> done_;  // guarded by mutex_
};

}  // namespace spaid::kernels
