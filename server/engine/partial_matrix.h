// Shows M in CSC to streams while it is being built, as far as its columns are finished, and the
// whole of it afterwards. It points at the arrays in which the kernels build M, and which the
// preconditioner owns in the end: nothing is copied except into messages.
//
//   auto m = std::make_shared<PartialMatrix>([weak] { ... tell the job's watchers ... });
//   context.result = m.get();  engine.Build(...);  m->Finish(result.preconditioner);
//   ... meanwhile, on any thread: m->Read([&](const PartialMatrix::View& view) { ... });
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "kernels/base/result_sink.h"
#include "kernels/engine/engine.h"
#include "server/base/digest.h"
#include "server/sched/job.h"

namespace spaid::server {

// Thread-safe.
class PartialMatrix final : public JobResult, public kernels::ResultSink {
 public:
  // For a build to come. `on_news` runs on computing threads when there is something to read; for
  // further columns only if a reader came since, and there are values for another chunk.
  explicit PartialMatrix(std::function<void()> on_news) : on_news_(std::move(on_news)) {}
  // For a finished preconditioner.
  explicit PartialMatrix(std::shared_ptr<const kernels::Preconditioner> kernel);

  struct View {
    int64_t version = 0;  // another one: what was read before is void, the build began anew
    kernels::CscView m;
    int64_t finished = 0;    // entries whose values are final, the first ones
    bool is_factor = false;  // m is G
    // Keeps the arrays beyond read(view), as they are; null while M is being built.
    std::shared_ptr<const kernels::Preconditioner> owner = nullptr;
  };
  // Calls read(view), in which alone the arrays may be read; not if there is nothing to read yet.
  // It holds up a build that begins, fails or ends, but not one that goes on.
  template <class Reader>
  void Read(const Reader& read) const {
    std::unique_lock lock(mutex_);
    if (!there_) return;
    // First the wish, then the look: what is finished in between is told.
    awaited_.store(true);
    View view = view_;
    view.finished = finished_.load();
    view.owner = owner_;
    if (view.owner != nullptr) lock.unlock();
    read(view);
  }
  // Returns the owner of the arrays; null while M is being built.
  std::shared_ptr<const kernels::Preconditioner> owner() const;

  // Notes that the build has succeeded.
  void Finish(std::shared_ptr<const kernels::Preconditioner> kernel);

  void OnPattern(std::span<const int64_t> col_ptr, std::span<const int32_t> row_idx,
                 std::span<const double> values) override;
  void OnColumns(int64_t columns) override;
  void OnWithdrawn() override;

 private:
  const std::function<void()> on_news_;
  mutable std::mutex mutex_;
  bool there_ = false;  // this and all below to the blank line: guarded by mutex_
  View view_;           // but for `finished`
  std::shared_ptr<const kernels::Preconditioner> owner_;

  // Used by OnColumns, which waits for no reader.
  std::span<const int64_t> col_ptr_;
  int64_t told_ = 0;  // entries, when on_news_ ran last
  std::atomic<int64_t> finished_{0};
  mutable std::atomic<bool> awaited_{false};
};

// Digests the pattern that `m` shows, in pieces, for none of which a build waits long; nothing
// where `version` is shown no more. O(nnz) time.
std::optional<Digest> PatternDigestOf(const PartialMatrix& m, int64_t version);

}  // namespace spaid::server
