// Whoever asked the library for a computation: is told how far it is, and may stop it.
#pragma once

#include <cstdint>

#include "kernels/base/context.h"
#include "kernels/base/cuda/context.h"

namespace spaid::cuda {

class Caller {
 public:
  // `what`: as StopStatus takes it. Both are borrowed.
  Caller(const kernels::Context& context, const char* what) : context_(context), what_(what) {}

  // Throws the Refusal that ends a stopped computation.
  void Poll() const {
    const kernels::StopReason reason = context_.stop.Poll();
    if (reason != kernels::StopReason::kNone) throw Refusal(kernels::StopStatus(reason, what_));
  }
  // The same, after `done` of `total`.
  void Report(int64_t done, int64_t total) const {
    if (context_.progress != nullptr) {
      context_.progress->OnProgress(kernels::Stage::kBuild, done, total);
    }
    Poll();
  }

 private:
  const kernels::Context& context_;
  const char* const what_;
};

}  // namespace spaid::cuda
