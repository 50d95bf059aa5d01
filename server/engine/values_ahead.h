// Sends the values of a matrix to the GPU that will probably want them, while they still come from
// the client.
//
//   auto ahead = adapter.BeginAhead(tenant, pattern);  // null: it would not pay
//   ahead->Come(values.data(), count);                 // again and again
//   matrix->ahead = std::move(ahead);                  // for computations with it
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "kernels/base/copy_ahead.h"
#include "kernels/engine/engine.h"
#include "server/engine/stored_types.h"

namespace spaid::server {

class Metrics;

// Thread-safe. What was sent and never taken is counted as wasted, and the next values on the
// pattern are not sent ahead before a computation has wanted some again.
class ValuesAhead {
 public:
  // `device`: a GPU, by the engine's index. `engine` and `metrics`, which may be null, outlive
  // this.
  ValuesAhead(const kernels::Engine& engine, int device,
              std::shared_ptr<const StoredPattern> pattern, Metrics* metrics)
      : engine_(engine), device_(device), pattern_(std::move(pattern)), metrics_(metrics) {}
  ~ValuesAhead() { Drop(); }
  ValuesAhead(const ValuesAhead&) = delete;
  ValuesAhead& operator=(const ValuesAhead&) = delete;

  // The first `count` values of the array at `values`, the same one in each call, will not change
  // any more. Sends what is new, as far as the device takes it at once. The array must stay during
  // the call alone.
  void Come(const double* values, int64_t count);
  // Returns the copy for Context::ahead; null: nothing was sent, or it is dropped.
  std::shared_ptr<kernels::CopyAhead> copy() const;
  // Frees the memory on the device and counts what became of what was sent; nothing is sent any
  // more.
  void Drop();

 private:
  const kernels::Engine& engine_;
  const int device_;
  const std::shared_ptr<const StoredPattern> pattern_;
  Metrics* const metrics_;
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<kernels::CopyAhead> copy_;
  int64_t sent_ = 0;  // bytes
  bool over_ = false;
};

}  // namespace spaid::server
