// Whoever asked for a computation: is told how far it is, and may stop it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/base/context.h"
#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

class Caller {
 public:
  // `what`: as StopStatus takes it; borrowed, as `stop` is. `report`: may be null.
  Caller(const kernels::StopToken& stop, const char* what,
         std::function<void(int64_t done, int64_t total)> report = nullptr)
      : stop_(stop), what_(what), report_(std::move(report)) {}

  // Throws the Refusal that ends a stopped computation.
  void Poll() const {
    const kernels::StopReason reason = stop_.Poll();
    if (reason != kernels::StopReason::kNone) throw Refusal{kernels::StopStatus(reason, what_)};
  }
  // The same, after `done` of `total`.
  void Report(int64_t done, int64_t total) const {
    if (report_) report_(done, total);
    Poll();
  }

 private:
  const kernels::StopToken& stop_;
  const char* const what_;
  const std::function<void(int64_t done, int64_t total)> report_;
};

}  // namespace spaid::cuda
