#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/device.h"
#include "kernels/base/split.h"
#include "kernels/dynamic_spai/cuda/normal_rows.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/fsai/cuda/grow_columns.h"
#include "kernels/static_spai/cuda/spai_on_device.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// A device's part.
struct Piece {
  const IndexRange columns;
  const size_t index;
  SpaiOnDevice on;
  int64_t first_entry = 0, left = 0;
  cuda::FsaiFigures figures = {};
  cuda::GramInfo gram = {};
  double ms = 0, gram_ms = 0;
  int64_t peak_bytes = 0;
  double up_ms = 0, down_ms = 0;
};

template <class Real>
cuda::fsai::ColumnPatterns GrowColumns(cuda::Context& context, const cuda::Matrix& a,
                                       const PatternView* initial,
                                       const DynamicSpaiOptions& options,
                                       const cuda::Caller& caller, cuda::Stopwatch& watch,
                                       Piece& piece) {
  FsaiOptions rows;  // as they grow
  rows.adaptive = true;
  rows.k_max = options.max_steps;
  rows.s = options.per_step;
  rows.epsilon = options.tol * options.tol;
  rows.min_gain = rows.post_filter = 0;
  rows.repeat_hash_bits = options.repeat_hash_bits;
  auto normal = cuda::MakeNormalRows<Real>(context, a, caller, piece.gram);
  watch.Mark();
  return cuda::fsai::GrowColumns<Real>(context, std::move(normal), initial, rows,
                                       options.max_column_nnz > 0 ? options.max_column_nnz : a.n,
                                       piece.columns, caller, piece.figures);
}

class Growth {
 public:
  Growth(const CscView& a, const PatternView* initial, const DynamicSpaiOptions& options,
         const Context& context, DynamicSpaiCudaTimings& timings)
      : a_(a), initial_(initial), options_(options), context_(context), timings_(timings) {}

  Result<DynamicSpaiPattern> Run(std::span<const std::shared_ptr<CudaDevice>> devices,
                                 std::shared_ptr<SpaiOnDevice>* there) {
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
      pieces_.push_back(std::make_unique<Piece>(Piece{ranges[i], i, {devices[i], {}, {}}}));
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
      nnz += piece->on.pattern->nnz;
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
      *there = std::make_shared<SpaiOnDevice>(std::move(pieces_[0]->on));
    }
    if (context_.progress != nullptr) {
      context_.progress->OnProgress(Stage::kBuild, a_.n_cols, a_.n_cols);
    }
    return Result<DynamicSpaiPattern>(std::move(grown));
  }

 private:
  static constexpr double kMostNear = 100;

  Status Grow(Piece& piece) {
    const cuda::Caller caller(context_.stop, "growth of dynamic SPAI",
                              [&](int64_t done, int64_t total) {
                                // The last column is told when the result is there.
                                progress_->Report(piece.index, std::min(done, total - 1));
                              });
    const auto lock = piece.on.device->Lock();
    return cuda::Guard(*piece.on.device, [&](cuda::Context& context) {
      const auto start = Clock::now();
      cuda::Matrix matrix = cuda::UploadMatrix(context, a_, a_.values.data(), context_.ahead);
      piece.up_ms = MsSince(start);
      context.arena->ResetPeak();
      cuda::Stopwatch watch(context);
      const bool fp32 = options_.growth_precision == Precision::kFp32;
      const PatternView starts = starts_;
      auto grown =
          (fp32 ? &GrowColumns<float>
                : &GrowColumns<double>)(context, matrix, initial_ != nullptr ? &starts : nullptr,
                                        options_, caller, watch, piece);
      piece.ms = watch.Stop();
      piece.gram_ms = watch.Marked();
      piece.peak_bytes = context.arena->peak();
      piece.left = grown.left;
      piece.on.matrix = cuda::Keep(piece.on.device, std::move(matrix));
      const int64_t nnz = grown.row_idx.size();
      piece.on.pattern =
          cuda::Keep(piece.on.device,
                     cuda::DevicePattern{
                         a_.n_cols, nnz, std::move(grown.col_ptr), std::move(grown.row_idx), {}});
    });
  }

  Status Fetch(Piece& piece, Pattern& m) {
    const bool whole = pieces_.size() == 1;
    Array<int64_t> own(whole ? 0 : Z(piece.columns.size()) + 1);
    const Status status = [&] {
      const auto lock = piece.on.device->Lock();
      return cuda::Guard(*piece.on.device, [&](cuda::Context& context) {
        const auto start = Clock::now();
        const cuda::DevicePattern& grown = *piece.on.pattern;
        context.Download(
            {grown.col_ptr.To(whole ? m.col_ptr.data() : own.data(), grown.col_ptr.size()),
             grown.row_idx.To(m.row_idx.data() + piece.first_entry, grown.nnz)});
        piece.down_ms = MsSince(start);
      });
    }();
    if (!whole) piece.on.matrix = nullptr, piece.on.pattern = nullptr;
    if (!status.ok() || whole) return status;
    for (int64_t k = 0; k < piece.columns.size(); ++k) {
      m.col_ptr[Z(piece.columns.begin + k)] = own[Z(k)] + piece.first_entry;
    }
    return {};
  }

  void Summarise(DynamicSpaiQuality& quality) {
    std::vector<double> log_ratios(Z(options_.max_steps) + 1, 0.0);
    for (const auto& piece : pieces_) {
      const FsaiQuality& own = piece->figures.quality;
      for (size_t step = 0; step < log_ratios.size(); ++step) {
        log_ratios[step] += piece->figures.log_ratios[step];
      }
      quality.nnz_column_max = std::max(quality.nnz_column_max, own.nnz_row_max);
      if (quality.dependent_columns == 0) quality.first_dependent = own.first_not_spd;
      quality.dependent_columns += own.not_spd_rows;
      quality.converged_columns += own.converged_rows;
      quality.copied_columns += own.copied_rows;
      quality.slow_columns += own.slow_rows;
      quality.gram_nnz = piece->gram.nnz;
      quality.flops += own.flops + piece->gram.flops;
      timings_.device_ms = std::max(timings_.device_ms, piece->ms);
      timings_.gram_ms = std::max(timings_.gram_ms, piece->gram_ms);
      timings_.device_bytes = std::max(timings_.device_bytes, piece->peak_bytes);
      timings_.waves = std::max(timings_.waves, piece->figures.waves);
      timings_.host_columns += piece->left;
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
                                               std::shared_ptr<SpaiOnDevice>* there) {
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
