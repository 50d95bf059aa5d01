#include "kernels/dynamic_spai/dynamic_spai_cuda.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/split.h"
#include "kernels/dynamic_spai/growth_parts.h"
#include "kernels/sparse/csc_cuda.h"

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
  SpaidCudaDynamicInfo info{};
  std::vector<double> log_ratios;
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
      nnz += piece->info.nnz;
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

  struct Caller {
    Growth& growth;
    const Piece& piece;
  };
  static int32_t Report(void* caller, int64_t done, int64_t total) {
    const auto& own = *static_cast<const Caller*>(caller);
    // The last column is told when the result is there.
    own.growth.progress_->Report(own.piece.index, std::min(done, total - 1));
    return own.growth.context_.stop.stop_requested() ? 1 : 0;
  }

  Status Grow(Piece& piece) {
    CudaDevice& device = *piece.on->device;
    const SpaidCudaInterface& api = device.api();
    char message[kCudaMessageBytes] = "";
    const auto lock = device.Lock();
    const auto start = Clock::now();
    const SpaidCudaCsc csc = CudaCsc(a_);
    int32_t done = api.upload_matrix(device.context(), &csc, &piece.on->matrix.object, message,
                                     sizeof(message));
    piece.up_ms = MsSince(start);
    if (done == kSpaidCudaOk) {
      Caller caller{*this, piece};
      piece.log_ratios.assign(Z(options_.max_steps) + 1, 0.0);
      const SpaidCudaDynamicOptions wanted{options_.tol,
                                           options_.max_steps,
                                           options_.per_step,
                                           options_.max_column_nnz,
                                           options_.growth_precision == Precision::kFp32 ? 1 : 0,
                                           options_.repeat_hash_bits,
                                           piece.log_ratios.data(),
                                           &Growth::Report,
                                           &caller};
      const SpaidCudaCsc initial = CudaCsc(starts_);
      const SpaidCudaRange range{piece.columns.begin, piece.columns.end};
      done =
          api.grow_dynamic_spai(piece.on->matrix.object, initial_ != nullptr ? &initial : nullptr,
                                &wanted, pieces_.size() > 1 ? &range : nullptr,
                                &piece.on->pattern.object, &piece.info, message, sizeof(message));
    }
    if (done == kSpaidCudaOk) return {};
    piece.on->FreeLocked();
    if (done == kSpaidCudaStopped) {
      return StopStatus(context_.stop.Poll(), "growth of dynamic SPAI");
    }
    if (done == kSpaidCudaPatternTooLarge) {
      return Status(StatusCode::kResourceExhausted, "GRAM_TOO_LARGE",
                    std::string(message) +
                        "; rows of A with very many entries make it large: give a device with more "
                        "memory, or take static SPAI");
    }
    return device.Failed(done, message);
  }

  Status Fetch(Piece& piece, Pattern& m) {
    CudaDevice& device = *piece.on->device;
    char message[kCudaMessageBytes] = "";
    const auto lock = device.Lock();
    const auto start = Clock::now();
    const bool whole = pieces_.size() == 1;
    Array<int64_t> own(whole ? 0 : Z(piece.columns.size()) + 1);
    const int32_t done =
        device.api().download_grown(piece.on->pattern.object, whole ? m.col_ptr.data() : own.data(),
                                    m.row_idx.data() + piece.first_entry, message, sizeof(message));
    piece.down_ms = MsSince(start);
    if (!whole) piece.on->FreeLocked();
    if (done != kSpaidCudaOk) return device.Failed(done, message);
    if (whole) return {};
    for (int64_t k = 0; k < piece.columns.size(); ++k) {
      m.col_ptr[Z(piece.columns.begin + k)] = own[Z(k)] + piece.first_entry;
    }
    return {};
  }

  void Summarise(DynamicSpaiQuality& quality) {
    std::vector<double> log_ratios(Z(options_.max_steps) + 1, 0.0);
    for (const auto& piece : pieces_) {
      const SpaidCudaDynamicInfo& info = piece->info;
      for (size_t step = 0; step < log_ratios.size(); ++step) {
        log_ratios[step] += piece->log_ratios[step];
      }
      quality.nnz_column_max = std::max<int64_t>(quality.nnz_column_max, info.longest);
      if (quality.dependent_columns == 0) quality.first_dependent = info.first_dependent;
      quality.dependent_columns += info.dependent_columns;
      quality.converged_columns += info.converged_columns;
      quality.copied_columns += info.copied_columns;
      quality.slow_columns += info.slow_columns;
      quality.gram_nnz = info.gram_nnz;
      quality.flops += info.flops;
      timings_.device_ms = std::max(timings_.device_ms, info.ms);
      timings_.gram_ms = std::max(timings_.gram_ms, info.gram_ms);
      timings_.device_bytes = std::max(timings_.device_bytes, info.peak_bytes);
      timings_.waves = std::max(timings_.waves, info.waves);
      timings_.host_columns += info.host_columns;
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
