// A hierarchy that a device has set up, for the host: what it is like is known at once; what it is
// made of is downloaded when somebody asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/amg/cuda/set_up.h"
#include "kernels/amg/parts.h"
#include "kernels/base/cuda_device.h"

namespace spaid::cuda {

class HierarchyOnDevice final : public kernels::AmgHierarchy {
 public:
  using Host = kernels::AmgHierarchy;

  // `bytes`: that `made` takes there.
  HierarchyOnDevice(std::shared_ptr<kernels::CudaDevice> device, Hierarchy made, int64_t bytes);

  // The levels on the device, of which the lock is held by who reads them; null: not any more.
  std::shared_ptr<const Hierarchy> There() const;
  const std::shared_ptr<kernels::CudaDevice>& device() const { return device_; }

  int64_t n() const override { return outlines_.front().n; }
  void Apply(std::span<const double> x, std::span<double> y, int threads) const override;
  int64_t bytes_per_apply() const override { return bytes_per_apply_; }
  std::vector<kernels::AmgPart> parts() const override { return kernels::ListParts(outlines_); }
  kernels::Result<kernels::CscMatrix> Part(int level, kernels::AmgPartKind kind) const override;
  // With the download, from the start.
  int64_t host_bytes() const override { return host_bytes_; }
  int64_t nnz() const override { return nnz_; }
  bool symmetric() const override { return symmetric_; }
  kernels::Result<const Host*> OnHost(const kernels::Context& context) const override;
  int64_t device_bytes() const override;
  void DropDeviceCopy() const override;
  std::variant<const kernels::CycleParts<float>*, const kernels::CycleParts<double>*> cycle()
      const override;

 private:
  const std::shared_ptr<kernels::CudaDevice> device_;
  const int64_t bytes_;
  std::vector<kernels::LevelOutline> outlines_;
  int64_t bytes_per_apply_ = 0, host_bytes_ = 0, nnz_ = 0;
  bool symmetric_ = false;
  mutable std::mutex download_mutex_;  // held while on_host_ is made; taken before mutex_
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Hierarchy> there_;  // guarded by mutex_, as all below
  mutable std::shared_ptr<const Host> on_host_;     // null: not yet
};

// The plan of a set-up, for the host.
class PlanOnDevice final : public kernels::AmgPlanThere {
 public:
  // `of`: what A was, whose patterns the plan has.
  PlanOnDevice(const std::shared_ptr<kernels::CudaDevice>& device, SetUpPlan plan,
               const kernels::PatternView& of, int threads);

  int64_t device_bytes() const override { return bytes_; }
  const std::shared_ptr<kernels::CudaDevice>& device() const { return device_; }
  // Its lock is held by who reads it.
  const SetUpPlan& plan() const { return *kept_; }
  // INVALID_ARGUMENT/PLAN_MISMATCH.
  kernels::Status Check(const kernels::PatternView& a, int threads) const;

 private:
  const std::shared_ptr<kernels::CudaDevice> device_;
  const int64_t n_, nnz_, bytes_;
  const uint64_t pattern_hash_;
  const std::shared_ptr<const SetUpPlan> kept_;  // which ends between computations
};

}  // namespace spaid::cuda
