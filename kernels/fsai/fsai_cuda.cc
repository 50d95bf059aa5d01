#include "kernels/fsai/fsai_cuda.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/fsai/fsai_checks.h"

namespace spaid::kernels {
namespace {

using Clock = std::chrono::steady_clock;

size_t Z(int64_t i) { return static_cast<size_t>(i); }

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

SpaidCudaCsc Csc(const PatternView& a, const double* values) {
  return {a.n_cols, a.nnz(), a.col_ptr.data(), a.row_idx.data(), values};
}

// The lower triangle of `user`, by rows, with the diagonal last.
Pattern LowerRows(const PatternView& user) {
  Pattern lower;
  lower.n_rows = lower.n_cols = user.n_cols;
  lower.col_ptr.push_back(0);
  for (int64_t i = 0; i < user.n_cols; ++i) {
    for (const int32_t j : user.column(i)) {
      if (j < i) lower.row_idx.push_back(j);
    }
    lower.row_idx.push_back(static_cast<int32_t>(i));
    lower.col_ptr.push_back(lower.nnz());
  }
  return lower;
}

// The lower triangle of A on both sides.
CscMatrix Mirrored(const CscView& a) {
  CscMatrix s;
  s.n_rows = s.n_cols = a.n_cols;
  s.col_ptr.assign(Z(a.n_cols) + 1, 0);
  const auto each = [&](const auto& use) {
    for (int64_t j = 0; j < a.n_cols; ++j) {
      for (int64_t p = a.col_ptr[Z(j)]; p < a.col_ptr[Z(j) + 1]; ++p) {
        const int64_t i = a.row_idx[Z(p)];
        if (i < j) continue;
        use(i, j, a.values[Z(p)]);
        if (i > j) use(j, i, a.values[Z(p)]);
      }
    }
  };
  each([&](int64_t, int64_t j, double) { ++s.col_ptr[Z(j) + 1]; });
  for (int64_t j = 0; j < a.n_cols; ++j) s.col_ptr[Z(j) + 1] += s.col_ptr[Z(j)];
  s.row_idx.resize(Z(s.col_ptr.back()));
  s.values.resize(Z(s.col_ptr.back()));
  // What lies above the diagonal comes to a column in ascending order, before the column itself.
  std::vector<int64_t> next(s.col_ptr.begin(), s.col_ptr.end() - 1);
  each([&](int64_t i, int64_t j, double value) {
    const int64_t at = next[Z(j)]++;
    s.row_idx[Z(at)] = static_cast<int32_t>(i);
    s.values[Z(at)] = value;
  });
  return s;
}

class Build {
 public:
  Build(const std::shared_ptr<CudaDevice>& device, const FsaiOptions& options, bool grow,
        const Context& context, FsaiCudaTimings& timings)
      : device_(device), options_(options), grow_(grow), context_(context), timings_(timings) {}

  Result<FsaiResult> Run(const CscView& a, const PatternView* pattern) {
    const auto begin = Clock::now();
    auto result = On(a, pattern, begin);
    if (result.ok() || fault_ == kSpaidCudaFsaiNoFault) return result;
    // The host has the words for it.
    const auto checked = CheckSymmetric(a, options_, context_);
    if (!checked.ok()) return checked.status();
    // What has no mirror is no larger than the tolerance.
    const CscMatrix mirrored = Mirrored(a);
    auto again = On(mirrored, pattern, begin);
    if (again.ok()) SetDensity(a.nnz(), *again);
    return again;
  }

 private:
  static int32_t Report(void* caller, int64_t done, int64_t total) {
    const auto& own = *static_cast<const Build*>(caller);
    if (own.context_.progress != nullptr) {
      own.context_.progress->OnProgress(Stage::kBuild, done, total);
    }
    return own.context_.stop.stop_requested() ? 1 : 0;
  }

  static void SetDensity(int64_t nnz_a, FsaiResult& result) {
    result.quality.density =
        static_cast<double>(result.g_rows.nnz()) / static_cast<double>(std::max<int64_t>(nnz_a, 1));
  }

  Result<FsaiResult> On(const CscView& a, const PatternView* pattern, Clock::time_point begin) {
    const SpaidCudaInterface& api = device_->api();
    fault_ = kSpaidCudaFsaiNoFault;
    const auto lock = device_->Lock();
    CudaObject<SpaidCudaMatrix> matrix(device_, &SpaidCudaInterface::free_matrix);
    CudaObject<SpaidCudaG> g(device_, &SpaidCudaInterface::free_g);
    matrix.locked = g.locked = true;
    const SpaidCudaCsc csc = Csc(a, a.values.data());
    const SpaidCudaCsc rows = pattern != nullptr ? Csc(*pattern, nullptr) : SpaidCudaCsc{};
    const auto start = Clock::now();
    int32_t done =
        api.upload_matrix(device_->context(), &csc, &matrix.object, message_, sizeof(message_));
    timings_.host_to_device_ms += MsSince(start);
    FsaiResult result;
    FsaiQuality& quality = result.quality;
    SpaidCudaFsaiInfo info{};
    const auto pass = [&](int k_max) {
      std::vector<double> log_ratios(Z(k_max) + 1, 0.0);
      const SpaidCudaFsaiOptions wanted{grow_ ? 1 : 0,
                                        k_max,
                                        options_.s,
                                        options_.epsilon,
                                        options_.post_filter,
                                        options_.symmetry_tolerance,
                                        options_.precision == FsaiPrecision::kFp32 ? 1 : 0,
                                        options_.repeat_hash_bits,
                                        log_ratios.data(),
                                        &Build::Report,
                                        this};
      if (g.object != nullptr) api.free_g(g.object);
      g.object = nullptr;
      done = api.build_fsai(matrix.object, pattern != nullptr ? &rows : nullptr, &wanted, &g.object,
                            &info, message_, sizeof(message_));
      timings_.device_ms += info.ms;
      timings_.device_bytes = std::max(timings_.device_bytes, info.peak_bytes);
      quality.steps = k_max;
      quality.kaporin_by_step.clear();
      for (const double log_ratio : log_ratios) {
        if (grow_) quality.kaporin_by_step.push_back(std::exp(log_ratio));
      }
      return done == kSpaidCudaOk && info.fault == kSpaidCudaFsaiNoFault;
    };
    const int k_max = grow_ ? options_.k_max : 0;
    if (done == kSpaidCudaOk) {
      if (grow_ && options_.time_budget_ms > 0) {
        InTime(pass, begin, k_max, info, quality);
      } else {
        pass(k_max);
      }
    }
    if (done == kSpaidCudaStopped) return StopStatus(context_.stop.Poll(), "build of FSAI");
    if (done != kSpaidCudaOk) return device_->Failed(done, message_);
    fault_ = info.fault;
    if (fault_ != kSpaidCudaFsaiNoFault) {
      return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", "A is not symmetric")
          .At("values", info.fault_index);
    }
    quality.kaporin = std::exp(info.log_ratio);
    quality.nnz_row_max = info.longest;
    quality.not_spd_rows = info.not_spd_rows;
    quality.first_not_spd = info.first_not_spd;
    quality.converged_rows = info.converged_rows;
    quality.copied_rows = info.copied_rows;
    quality.slow_rows = info.slow_rows;
    quality.flops = info.flops;
    const auto back = Clock::now();
    CscMatrix& rows_of_g = result.g_rows;
    rows_of_g.n_rows = rows_of_g.n_cols = a.n_cols;
    rows_of_g.col_ptr.resize(Z(a.n_cols) + 1);
    rows_of_g.row_idx.resize(Z(info.nnz));
    rows_of_g.values.resize(Z(info.nnz));
    result.psi_ratio.resize(Z(a.n_cols));
    done = api.download_g(g.object, rows_of_g.col_ptr.data(), rows_of_g.row_idx.data(),
                          rows_of_g.values.data(), result.psi_ratio.data(), message_,
                          sizeof(message_));
    timings_.device_to_host_ms += MsSince(back);
    if (done != kSpaidCudaOk) return device_->Failed(done, message_);
    SetDensity(a.nnz(), result);
    return Result<FsaiResult>(std::move(result));
  }

  // Passes of more and more steps, as long as the next one, which takes time like the square of its
  // steps at the most, ends before the budget does.
  template <class Pass>
  void InTime(const Pass& pass, Clock::time_point begin, int k_max, const SpaidCudaFsaiInfo& info,
              FsaiQuality& quality) {
    int steps = std::min(1, k_max);
    if (MsSince(begin) >= options_.time_budget_ms) steps = 0;
    while (pass(steps) && steps < k_max && steps > 0) {
      const double left = options_.time_budget_ms - MsSince(begin);
      int next = steps;
      while (next < k_max) {
        const double more = (next + 2.0) / (steps + 1.0);
        if (info.ms * more * more > left) break;
        ++next;
      }
      if (next == steps) break;
      steps = next;
    }
    quality.out_of_time = quality.steps < k_max;
  }

  const std::shared_ptr<CudaDevice> device_;
  const FsaiOptions& options_;
  const bool grow_;
  const Context context_;
  FsaiCudaTimings& timings_;
  int32_t fault_ = kSpaidCudaFsaiNoFault;
  char message_[kCudaMessageBytes] = "";
};

}  // namespace

Result<FsaiResult> BuildFsaiOnCuda(const std::shared_ptr<CudaDevice>& device,
                                   const PatternView& pattern, const CscView& a,
                                   const FsaiOptions& options, const Context& context,
                                   FsaiCudaTimings* timings) {
  FsaiCudaTimings own;
  return GuardMemory("build of FSAI", [&]() -> Result<FsaiResult> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    if (Status status = CheckLowerPattern(pattern, a.n_cols); !status.ok()) return status;
    return Build(device, options, false, context, timings != nullptr ? *timings : own)
        .Run(a, &pattern);
  });
}

Result<FsaiResult> BuildFsaiCuda(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                                 const PatternView* initial, const FsaiOptions& options,
                                 const Context& context, FsaiCudaTimings* timings) {
  FsaiCudaTimings own;
  return GuardMemory("build of FSAI", [&]() -> Result<FsaiResult> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    if (!options.adaptive) {
      auto pattern = FsaiPattern(a, initial, options, context);
      if (!pattern.ok()) return pattern.status();
      return BuildFsaiOnCuda(device, *pattern, a, options, context, timings);
    }
    Pattern start;
    if (initial != nullptr) {
      if (initial->n_rows != a.n_rows || initial->n_cols != a.n_cols) {
        return Status(StatusCode::kInvalidArgument, "PATTERN_SIZE_MISMATCH",
                      "the initial pattern and the matrix are of different sizes")
            .At("pattern");
      }
      start = LowerRows(*initial);
    }
    const PatternView view = start;
    return Build(device, options, true, context, timings != nullptr ? *timings : own)
        .Run(a, initial != nullptr ? &view : nullptr);
  });
}

}  // namespace spaid::kernels
