#include <algorithm>
#include <utility>

#include "kernels/amg/cuda/hierarchy.h"
#include "kernels/amg/cycle.h"
#include "kernels/base/cuda/device.h"
#include "kernels/sparse/pattern.h"

namespace spaid::cuda {
namespace {

kernels::SharedMatrix Download(const Context& context, const RowMatrix& rows) {
  if (rows.n == 0) return {};
  return kernels::Share(DownloadRows(context, rows));
}

kernels::Array<double> Download(const Context& context, const Buffer<double>& from) {
  kernels::Array<double> to(static_cast<size_t>(from.size()));
  context.Download({from.To(to.data(), from.size())});
  return to;
}

kernels::AmgLevel Download(const Context& context, const SetUpLevel& level) {
  kernels::AmgLevel made;
  made.a = Download(context, level.a);
  made.p = Download(context, level.p);
  made.r = Download(context, level.r);
  made.smoother.kind = level.kind;
  made.smoother.diagonal = Download(context, level.diagonal);
  made.smoother.rho = level.rho;
  made.smoother.coefficients = level.coefficients;
  made.smoother.omega = level.omega;
  made.smoother.rows = Download(context, level.g);
  made.smoother.transposed = Download(context, level.gt);
  made.near_null = {
      .n = level.n, .count = level.near_count, .values = Download(context, level.near_null)};
  // A level that is inverted has its rows, too.
  if (made.a.pattern == nullptr) {
    made.a.pattern = std::make_shared<kernels::Pattern>(
        kernels::Pattern{.n_rows = level.n,
                         .n_cols = level.n,
                         .col_ptr = kernels::Array<int64_t>(static_cast<size_t>(level.n) + 1, 0),
                         .row_idx = {}});
  }
  return made;
}

// Matrices that a smoother holds, and that a sweep goes through.
struct SmootherMatrices {
  int64_t held = 0, swept = 0;
};
SmootherMatrices MatricesOf(const SetUpLevel& level) {
  const int64_t held = (level.g.n > 0 ? 1 : 0) + (level.gt.n > 0 ? 1 : 0);
  return {held,
          level.kind == kernels::SmootherKind::kStaticSpai ? std::min<int64_t>(1, held) : held};
}

}  // namespace

HierarchyOnDevice::HierarchyOnDevice(std::shared_ptr<kernels::CudaDevice> device, Hierarchy made,
                                     int64_t bytes)
    : device_(std::move(device)), bytes_(bytes) {
  const int64_t value = made.options.hierarchy_precision == kernels::Precision::kFp64 ? 8 : 4;
  const int64_t inverse = made.inverse.n * made.inverse.n;
  const int64_t sweeps = made.options.pre_sweeps + made.options.post_sweeps;
  nnz_ = inverse;
  bytes_per_apply_ = 32 * made.levels.front().n + inverse * value;
  host_bytes_ = inverse * value + 16 * made.levels.front().n;
  symmetric_ =
      made.symmetric && made.sign > 0 && made.options.pre_sweeps == made.options.post_sweeps;
  for (const SetUpLevel& level : made.levels) {
    const bool last = &level == &made.levels.back();
    outlines_.push_back({.n = level.n,
                         .below = last ? 0 : level.r.n,
                         .nnz_a = level.a.nnz,
                         .nnz_p = last ? 0 : level.p.nnz,
                         .nnz_r = last ? 0 : level.r.nnz,
                         .nnz_smoother = level.g.nnz,
                         .inverted = last && made.inverse.n > 0,
                         .last = last,
                         .near_null = level.near_count,
                         .kind = level.kind,
                         .rho = level.rho,
                         .omega = level.omega,
                         .coefficients = level.coefficients});
    const kernels::LevelOutline& of = outlines_.back();
    const SmootherMatrices smoother = MatricesOf(level);
    const int64_t entries = of.nnz_a + of.nnz_p + of.nnz_r + smoother.held * of.nnz_smoother;
    const int64_t entry = value + static_cast<int64_t>(sizeof(int32_t));
    const int64_t rows = 9 * (level.n + 1);  // a pointer and a run
    nnz_ += entries;
    host_bytes_ += entries * entry + (3 + smoother.held) * rows + 9 * level.n * value +
                   8 * level.n * level.near_count;
    bytes_per_apply_ += sweeps * ((of.nnz_a + smoother.swept * of.nnz_smoother) * entry +
                                  (1 + smoother.swept) * rows) +
                        (of.nnz_p + of.nnz_r) * entry + 2 * rows + 8 * level.n * value;
  }
  there_ = Keep(device_, std::move(made));
}

std::shared_ptr<const Hierarchy> HierarchyOnDevice::There() const {
  const std::lock_guard lock(mutex_);
  return there_;
}

int64_t HierarchyOnDevice::device_bytes() const { return There() != nullptr ? bytes_ : 0; }

kernels::Result<const kernels::AmgHierarchy*> HierarchyOnDevice::OnHost(
    const kernels::Context& context) const {
  const std::lock_guard one_at_a_time(download_mutex_);
  std::shared_ptr<const Hierarchy> there;
  {
    const std::lock_guard lock(mutex_);
    if (on_host_ != nullptr) return on_host_.get();
    there = there_;
  }
  if (there == nullptr) {
    return device_->Failed(CudaFault::kDeviceLost, "the hierarchy was there alone");
  }
  std::vector<kernels::AmgLevel> levels;
  kernels::UnitScaled scaled{.rows = {},
                             .scale = {},
                             .sign = there->sign,
                             .symmetric = there->symmetric,
                             .beta = there->beta};
  kernels::CoarseInverse inverse;
  {
    const auto lock = device_->Lock();
    const kernels::Status status = Guard(*device_, [&](Context& on) {
      for (const SetUpLevel& level : there->levels) {
        const kernels::StopReason stopped = context.stop.Poll();
        if (stopped != kernels::StopReason::kNone) {
          throw Refusal{kernels::StopStatus(stopped, "the download of multigrid")};
        }
        levels.push_back(Download(on, level));
      }
      scaled.scale = Download(on, there->scale);
      inverse = {.n = there->inverse.n,
                 .rows = Download(on, there->inverse.rows),
                 .singular_pivots = there->inverse.singular_pivots};
    });
    if (!status.ok()) return status;
  }
  auto made = kernels::MakeCycle(std::move(levels), std::move(inverse), std::move(scaled),
                                 there->options, context);
  if (!made.ok()) return made.status();
  const std::lock_guard lock(mutex_);
  on_host_ = *std::move(made);
  return on_host_.get();
}

void HierarchyOnDevice::DropDeviceCopy() const {
  // A device that does not answer leaves nothing to keep it for.
  if (!OnHost(kernels::Context()).ok() && !device_->lost()) return;
  std::shared_ptr<const Hierarchy> dropped;
  const std::lock_guard lock(mutex_);
  std::swap(dropped, there_);
}

void HierarchyOnDevice::Apply(std::span<const double> x, std::span<double> y, int threads) const {
  (*OnHost(kernels::Context()))->Apply(x, y, threads);
}

kernels::Result<kernels::CscMatrix> HierarchyOnDevice::Part(int level,
                                                            kernels::AmgPartKind kind) const {
  const auto here = OnHost(kernels::Context());
  if (!here.ok()) return here.status();
  return (*here)->Part(level, kind);
}

std::variant<const kernels::CycleParts<float>*, const kernels::CycleParts<double>*>
HierarchyOnDevice::cycle() const {
  return (*OnHost(kernels::Context()))->cycle();
}

PlanOnDevice::PlanOnDevice(const std::shared_ptr<kernels::CudaDevice>& device, SetUpPlan plan,
                           const kernels::PatternView& of, int threads)
    : device_(device),
      n_(of.n_cols),
      nnz_(of.nnz()),
      bytes_(HeldBytes(plan)),
      pattern_hash_(kernels::HashPattern(of, threads)),
      kept_(Keep(device, std::move(plan))) {}

kernels::Status PlanOnDevice::Check(const kernels::PatternView& a, int threads) const {
  return kernels::CheckPlanPattern(a, n_, nnz_, pattern_hash_, threads);
}

}  // namespace spaid::cuda
