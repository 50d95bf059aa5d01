#include "kernels/dynamic_spai/dynamic_spai_cuda.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/split.h"
#include "kernels/dynamic_spai/cuda_growth.h"
#include "kernels/dynamic_spai/growth_parts.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A device's part.
struct Piece {
  Piece(const std::shared_ptr<CudaDevice>& device, IndexRange range, size_t of_all)
      : on(std::make_unique<SpaiOnDevice>(device)), columns(range), index(of_all) {}

  std::unique_ptr<SpaiOnDevice> on;
  const IndexRange columns;
  const size_t index;
  int64_t first_entry = 0;
  CudaGrowthFigures figures;
  double up_ms = 0, down_ms = 0;
};

class Growth {
 public:
  Growth(const CscView& a, const PatternView* initial, const DynamicSpaiOptions& options,
         const Context& context, DynamicSpaiCudaTimings& timings)
      : a_(a), initial_(initial), options_(options), context_(context), timings_(timings) {}

  Result<DynamicSpaiPattern> Run(std::span<const std::shared_ptr<CudaDevice>> devices,
                                 std::unique_ptr<SpaiOnDevice>* there) {
    if (initial_ != nullptr) starts_ = DynamicStarts(initial_, a_.n_cols);
    // What a column meets grows like the square of what A has near it.
    const double mean =
        std::max(1.0, static_cast<double>(a_.nnz()) / static_cast<double>(a_.n_cols));
    const auto ranges =
        CutByWork(a_.n_cols, static_cast<int>(devices.size()), context_.threads, [&](int64_t k) {
          const double near = static_cast<double>(a_.col_ptr[Z(k) + 1] - a_.col_ptr[Z(k)]) / mean;
          return 1 + std::min(near * near, kMostNear);
        });
    for (size_t i = 0; i < ranges.size(); ++i) {
      pieces_.push_back(std::make_unique<Piece>(devices[i], ranges[i], i));
    }
    SharedProgress progress(context_.progress, Stage::kBuild, a_.n_cols, pieces_.size());
    progress_ = &progress;
    Status status = AtOnce(pieces_.size(), [&](size_t i) { return Grow(*pieces_[i]); });
    if (!status.ok()) return status;
    DynamicSpaiPattern grown;
    Summarise(grown.quality);
    Pattern& m = grown.m;
    m.n_rows = m.n_cols = a_.n_cols;
    int64_t nnz = 0;
    for (const auto& piece : pieces_) {
      piece->first_entry = nnz;
      nnz += piece->figures.nnz;
    }
    m.col_ptr.resize(Z(a_.n_cols) + 1);
    m.row_idx.resize(Z(nnz));
    m.col_ptr.back() = nnz;
    status = AtOnce(pieces_.size(), [&](size_t i) { return Fetch(*pieces_[i], m); });
    if (!status.ok()) return status;
    for (const auto& piece : pieces_) {
      timings_.host_to_device_ms = std::max(timings_.host_to_device_ms, piece->up_ms);
      timings_.device_to_host_ms = std::max(timings_.device_to_host_ms, piece->down_ms);
    }
    if (timings_.host_columns > 0) {
      const auto start = Clock::now();
      const auto left = GrowLeftColumns(a_, initial_, options_, context_, grown);
      if (!left.ok()) return left.status();
      timings_.host_ms = MsSince(start);
    } else if (there != nullptr && pieces_.size() == 1) {
      *there = std::move(pieces_[0]->on);
    }
    if (context_.progress != nullptr) {
      context_.progress->OnProgress(Stage::kBuild, a_.n_cols, a_.n_cols);
    }
    return Result<DynamicSpaiPattern>(std::move(grown));
  }

 private:
  static constexpr double kMostNear = 100;

  Status Grow(Piece& piece) {
    CudaDevice& device = *piece.on->device;
    const auto lock = device.Lock();
    const auto start = Clock::now();
    Status status = piece.on->matrix.Take(device.context().UploadMatrix(a_, a_.values));
    piece.up_ms = MsSince(start);
    if (status.ok()) {
      // The last column is told when the result is there.
      PieceProgress progress(*progress_, piece.index, piece.columns.size(),
                             piece.columns.size() - 1);
      Context context = context_;
      context.progress = &progress;
      const PatternView initial = starts_;
      auto growth = piece.on->matrix.object->GrowDynamicSpai(
          initial_ != nullptr ? &initial : nullptr, options_,
          pieces_.size() > 1 ? std::optional<IndexRange>(piece.columns) : std::nullopt, context);
      if (growth.ok()) {
        piece.on->pattern.object = std::move(growth->pattern);
        piece.figures = std::move(growth->figures);
        return {};
      }
      status = growth.status();
    }
    piece.on->FreeLocked();
    return status;
  }

  Status Fetch(Piece& piece, Pattern& m) {
    const auto lock = piece.on->device->Lock();
    const auto start = Clock::now();
    const bool whole = pieces_.size() == 1;
    Array<int64_t> own(whole ? 0 : Z(piece.columns.size()) + 1);
    const Status status = piece.on->pattern.object->Download(whole ? m.col_ptr.data() : own.data(),
                                                             m.row_idx.data() + piece.first_entry);
    piece.down_ms = MsSince(start);
    if (!whole) piece.on->FreeLocked();
    if (!status.ok() || whole) return status;
    for (int64_t k = 0; k < piece.columns.size(); ++k) {
      m.col_ptr[Z(piece.columns.begin + k)] = own[Z(k)] + piece.first_entry;
    }
    return {};
  }

  void Summarise(DynamicSpaiQuality& quality) {
    std::vector<double> log_ratios(Z(options_.max_steps) + 1, 0.0);
    for (const auto& piece : pieces_) {
      const CudaGrowthFigures& figures = piece->figures;
      for (size_t step = 0; step < log_ratios.size(); ++step) {
        log_ratios[step] += figures.log_ratios[step];
      }
      const DynamicSpaiQuality& own = figures.quality;
      quality.nnz_column_max = std::max(quality.nnz_column_max, own.nnz_column_max);
      if (quality.dependent_columns == 0) quality.first_dependent = own.first_dependent;
      quality.dependent_columns += own.dependent_columns;
      quality.converged_columns += own.converged_columns;
      quality.copied_columns += own.copied_columns;
      quality.slow_columns += own.slow_columns;
      quality.gram_nnz = own.gram_nnz;
      quality.flops += own.flops;
      timings_.device_ms = std::max(timings_.device_ms, figures.ms);
      timings_.gram_ms = std::max(timings_.gram_ms, figures.gram_ms);
      timings_.device_bytes = std::max(timings_.device_bytes, figures.peak_bytes);
      timings_.waves = std::max(timings_.waves, figures.waves);
      timings_.host_columns += figures.host_columns;
    }
    // ‖r‖, of whose squares these are.
    for (const double log_ratio : log_ratios) {
      quality.residual_by_step.push_back(std::exp(log_ratio / 2));
    }
  }

  const CscView& a_;
  const PatternView* const initial_;
  const DynamicSpaiOptions& options_;
  const Context& context_;
  DynamicSpaiCudaTimings& timings_;
  Pattern starts_;  // where there is an initial pattern
  std::vector<std::unique_ptr<Piece>> pieces_;
  SharedProgress* progress_ = nullptr;
};

}  // namespace

Result<DynamicSpaiPattern> GrowDynamicSpaiCuda(std::span<const std::shared_ptr<CudaDevice>> devices,
                                               const CscView& a, const PatternView* initial,
                                               const DynamicSpaiOptions& options,
                                               const Context& context,
                                               DynamicSpaiCudaTimings* timings,
                                               std::unique_ptr<SpaiOnDevice>* there) {
  DynamicSpaiCudaTimings own;
  return GuardMemory("growth of dynamic SPAI", [&]() -> Result<DynamicSpaiPattern> {
    if (Status status = CheckDynamicSpai(a, initial, options); !status.ok()) return status;
    if (Status status = CheckColumnValues(a, context.threads); !status.ok()) return status;
    if (const StopReason stopped = context.stop.Poll(); stopped != StopReason::kNone) {
      return StopStatus(stopped, "growth of dynamic SPAI");
    }
    return Growth(a, initial, options, context, timings != nullptr ? *timings : own)
        .Run(devices, there);
  });
}

}  // namespace spaid::kernels
