#include "kernels/fsai/fsai_cuda.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/left_rows.h"
#include "kernels/sparse/pattern.h"

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

}  // namespace

class FsaiCudaPlan {
 public:
  using Matrix = CudaObject<SpaidCudaMatrix>;
  explicit FsaiCudaPlan(const std::shared_ptr<CudaDevice>& on)
      : device(on),
        matrix(std::make_shared<Matrix>(on, &SpaidCudaInterface::free_matrix)),
        rows(on, &SpaidCudaInterface::free_pattern) {}

  const std::shared_ptr<CudaDevice> device;
  std::shared_ptr<Matrix> matrix;     // of plans on one pattern of A
  CudaObject<SpaidCudaPattern> rows;  // null: none
  int64_t n = 0, nnz_a = 0, nnz_rows = 0;
  uint64_t pattern_hash = 0;  // of A
};

class FsaiCudaG {
 public:
  FsaiCudaG(const std::shared_ptr<CudaDevice>& on, int64_t n_rows, int64_t entries)
      : device(on), g(on, &SpaidCudaInterface::free_g), n(n_rows), nnz(entries) {}

  const std::shared_ptr<CudaDevice> device;
  CudaObject<SpaidCudaG> g;
  const int64_t n, nnz;
};

int64_t DeviceBytes(const FsaiCudaPlan& plan) {
  return 12 * plan.nnz_a + 8 * (plan.n + 1) +
         (plan.rows.object != nullptr ? 4 * plan.nnz_rows + 8 * (plan.n + 1) : 0);
}

int64_t DeviceBytes(const FsaiCudaG& g) { return 12 * g.nnz + 8 * (g.n + 1); }

const std::shared_ptr<CudaDevice>& DeviceOf(const FsaiCudaG& g) { return g.device; }

const SpaidCudaG* Object(const FsaiCudaG& g) { return g.g.object; }

namespace {

Result<std::shared_ptr<const FsaiCudaPlan>> MakePlan(const std::shared_ptr<CudaDevice>& device,
                                                     const PatternView& a, const PatternView* rows,
                                                     const Context& context,
                                                     FsaiCudaTimings& timings) {
  if (Status status = CheckFsai(a, {}); !status.ok()) return status;
  if (rows != nullptr) {
    if (Status status = CheckLowerPattern(*rows, a.n_cols); !status.ok()) return status;
  }
  auto plan = std::make_shared<FsaiCudaPlan>(device);
  plan->n = a.n_cols;
  plan->nnz_a = a.nnz();
  plan->pattern_hash = HashPattern(a, context.threads);
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  const SpaidCudaInterface& api = device->api();
  const auto start = Clock::now();
  const SpaidCudaCsc csc = Csc(a, nullptr);
  int32_t done =
      api.upload_matrix(device->context(), &csc, &plan->matrix->object, message, sizeof(message));
  if (done == kSpaidCudaOk && rows != nullptr) {
    const SpaidCudaCsc pattern = Csc(*rows, nullptr);
    plan->nnz_rows = rows->nnz();
    done = api.upload_pattern(device->context(), &pattern, &plan->rows.object, message,
                              sizeof(message));
  }
  timings.host_to_device_ms += MsSince(start);
  if (done == kSpaidCudaOk) return std::shared_ptr<const FsaiCudaPlan>(std::move(plan));
  plan->matrix->locked = plan->rows.locked = true;  // freed here and now
  return device->Failed(done, message);
}

class Build {
 public:
  Build(const FsaiCudaPlan& plan, const PatternView* pattern, const FsaiOptions& options, bool grow,
        const Context& context, FsaiCudaTimings& timings, FsaiCudaOutputs* outputs)
      : plan_(plan),
        pattern_(pattern),
        options_(options),
        grow_(grow),
        context_(context),
        timings_(timings),
        outputs_(outputs) {}

  Result<FsaiResult> Run(const CscView& a) {
    const auto begin = Clock::now();
    if (Status status =
            CheckPlanPattern(a, plan_.n, plan_.nnz_a, plan_.pattern_hash, context_.threads);
        !status.ok()) {
      return status;
    }
    auto result = On(a, /*of_plan=*/true, begin);
    if (result.ok()) return Whole(a, *std::move(result));
    if (fault_ == kSpaidCudaFsaiNoFault) return result;
    // The host has the words for it.
    const auto checked = CheckSymmetric(a, options_, context_);
    if (!checked.ok()) return checked.status();
    // What has no mirror is no larger than the tolerance.
    const CscMatrix mirrored = Mirrored(a);
    auto again = On(mirrored, /*of_plan=*/false, begin);
    if (!again.ok()) return again;
    return Whole(a, *std::move(again));
  }

 private:
  static int32_t Report(void* caller, int64_t done, int64_t total) {
    auto& own = *static_cast<Build*>(caller);
    // A pass under a time budget begins again; and the last row is told when the result is there.
    if (own.context_.progress != nullptr && done > own.most_ && done < total) {
      own.most_ = done;
      own.context_.progress->OnProgress(Stage::kBuild, done, total);
    }
    return own.context_.stop.stop_requested() ? 1 : 0;
  }

  // With the rows that were left to the host.
  Result<FsaiResult> Whole(const CscView& a, FsaiResult result) {
    const auto start = Clock::now();
    const auto left = MakeLeftRows(a, pattern_, grow_, options_, context_, result);
    if (!left.ok()) return left.status();
    timings_.host_rows = *left;
    timings_.host_solve_ms += MsSince(start);
    SetDensity(a.nnz(), result);
    if (context_.progress != nullptr) {
      context_.progress->OnProgress(Stage::kBuild, a.n_cols, a.n_cols);
    }
    return Result<FsaiResult>(std::move(result));
  }

  static void SetDensity(int64_t nnz_a, FsaiResult& result) {
    result.quality.density =
        static_cast<double>(result.g_rows.nnz()) / static_cast<double>(std::max<int64_t>(nnz_a, 1));
  }

  // `of_plan`: the plan's matrix gets the values of `a`.
  Result<FsaiResult> On(const CscView& a, bool of_plan, Clock::time_point begin) {
    const SpaidCudaInterface& api = device_->api();
    fault_ = kSpaidCudaFsaiNoFault;
    const auto lock = device_->Lock();
    CudaObject<SpaidCudaMatrix> other(device_, &SpaidCudaInterface::free_matrix);
    CudaObject<SpaidCudaG> g(device_, &SpaidCudaInterface::free_g);
    other.locked = g.locked = true;
    const SpaidCudaCsc rows = pattern_ != nullptr ? Csc(*pattern_, nullptr) : SpaidCudaCsc{};
    const auto start = Clock::now();
    int32_t done = kSpaidCudaOk;
    if (of_plan) {
      done = api.upload_values(plan_.matrix->object, a.values.data(), message_, sizeof(message_));
    } else {
      const SpaidCudaCsc csc = Csc(a, a.values.data());
      done = api.upload_matrix(device_->context(), &csc, &other.object, message_, sizeof(message_));
    }
    timings_.host_to_device_ms += MsSince(start);
    const SpaidCudaMatrix* const matrix = of_plan ? plan_.matrix->object : other.object;
    FsaiResult result;
    FsaiQuality& quality = result.quality;
    SpaidCudaFsaiInfo info{};
    const auto pass = [&](int k_max) {
      std::vector<double> log_ratios(Z(k_max) + 1, 0.0);
      const SpaidCudaFsaiOptions wanted{grow_ ? 1 : 0,
                                        k_max,
                                        options_.s,
                                        options_.epsilon,
                                        options_.min_gain,
                                        options_.post_filter,
                                        options_.symmetry_tolerance,
                                        options_.precision == FsaiPrecision::kFp32 ? 1 : 0,
                                        options_.repeat_hash_bits,
                                        log_ratios.data(),
                                        &Build::Report,
                                        this};
      if (g.object != nullptr) api.free_g(g.object);
      g.object = nullptr;
      done = api.build_fsai(matrix, pattern_ != nullptr ? &rows : nullptr, plan_.rows.object,
                            &wanted, &g.object, &info, message_, sizeof(message_));
      timings_.device_ms += info.ms;
      timings_.device_bytes = std::max(timings_.device_bytes, info.peak_bytes);
      timings_.waves = info.waves;
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
    const auto& ptr = rows_of_g.col_ptr;
    const bool whole = std::adjacent_find(ptr.begin(), ptr.end()) == ptr.end();
    if (done == kSpaidCudaOk && outputs_ != nullptr && whole) done = Keep(info.nnz, g);
    timings_.device_to_host_ms += MsSince(back);
    if (done != kSpaidCudaOk) return device_->Failed(done, message_);
    return Result<FsaiResult>(std::move(result));
  }

  int32_t Keep(int64_t nnz, CudaObject<SpaidCudaG>& g) {
    const SpaidCudaInterface& api = device_->api();
    CscMatrix& columns = outputs_->g_columns;
    columns.n_rows = columns.n_cols = plan_.n;
    columns.col_ptr.resize(Z(plan_.n) + 1);
    columns.row_idx.resize(Z(nnz));
    columns.values.resize(Z(nnz));
    api.trim_g(g.object);
    const int32_t done =
        api.download_g_columns(g.object, columns.col_ptr.data(), columns.row_idx.data(),
                               columns.values.data(), message_, sizeof(message_));
    if (done == kSpaidCudaOutOfMemory) {
      columns = {};
    } else if (done != kSpaidCudaOk) {
      return done;
    }
    auto plan = std::make_shared<FsaiCudaPlan>(device_);
    plan->matrix = plan_.matrix;
    plan->n = plan_.n;
    plan->nnz_a = plan_.nnz_a;
    plan->nnz_rows = nnz;
    plan->pattern_hash = plan_.pattern_hash;
    plan->rows.object = api.pattern_of_g(g.object);
    outputs_->plan = std::move(plan);
    auto kept = std::make_shared<FsaiCudaG>(device_, plan_.n, nnz);
    std::swap(kept->g.object, g.object);
    outputs_->g = std::move(kept);
    return kSpaidCudaOk;
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

  const FsaiCudaPlan& plan_;
  const std::shared_ptr<CudaDevice> device_ = plan_.device;
  const PatternView* const pattern_;
  const FsaiOptions& options_;
  const bool grow_;
  const Context context_;
  FsaiCudaTimings& timings_;
  FsaiCudaOutputs* const outputs_;
  int64_t most_ = 0;  // rows that were told
  int32_t fault_ = kSpaidCudaFsaiNoFault;
  char message_[kCudaMessageBytes] = "";
};

}  // namespace

Result<std::shared_ptr<const FsaiCudaPlan>> PlanFsaiCuda(const std::shared_ptr<CudaDevice>& device,
                                                         const PatternView& a,
                                                         const PatternView* rows,
                                                         const Context& context,
                                                         FsaiCudaTimings* timings) {
  FsaiCudaTimings own;
  return GuardMemory("plan of FSAI", [&] {
    return MakePlan(device, a, rows, context, timings != nullptr ? *timings : own);
  });
}

Result<FsaiResult> BuildFsaiOnCuda(const FsaiCudaPlan& plan, const PatternView& pattern,
                                   const CscView& a, const FsaiOptions& options,
                                   const Context& context, FsaiCudaTimings* timings,
                                   FsaiCudaOutputs* outputs) {
  FsaiCudaTimings own;
  return GuardMemory("build of FSAI", [&]() -> Result<FsaiResult> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    return Build(plan, &pattern, options, /*grow=*/false, context,
                 timings != nullptr ? *timings : own, outputs)
        .Run(a);
  });
}

Result<FsaiResult> GrowFsaiCuda(const FsaiCudaPlan& plan, const PatternView* initial,
                                const CscView& a, const FsaiOptions& options,
                                const Context& context, FsaiCudaTimings* timings,
                                FsaiCudaOutputs* outputs) {
  FsaiCudaTimings own;
  return GuardMemory("build of FSAI", [&]() -> Result<FsaiResult> {
    if (Status status = CheckFsai(a, options); !status.ok()) return status;
    return Build(plan, initial, options, /*grow=*/true, context,
                 timings != nullptr ? *timings : own, outputs)
        .Run(a);
  });
}

Result<FsaiResult> BuildFsaiOnCuda(const std::shared_ptr<CudaDevice>& device,
                                   const PatternView& pattern, const CscView& a,
                                   const FsaiOptions& options, const Context& context,
                                   FsaiCudaTimings* timings) {
  if (Status status = CheckFsai(a, options); !status.ok()) return status;
  const auto plan = PlanFsaiCuda(device, a, &pattern, context, timings);
  if (!plan.ok()) return plan.status();
  return BuildFsaiOnCuda(**plan, pattern, a, options, context, timings);
}

Result<FsaiResult> BuildFsaiCuda(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                                 const PatternView* initial, const FsaiOptions& options,
                                 const Context& context, FsaiCudaTimings* timings) {
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
    const PatternView* const rows = initial != nullptr ? &view : nullptr;
    const auto plan = PlanFsaiCuda(device, a, rows, context, timings);
    if (!plan.ok()) return plan.status();
    return GrowFsaiCuda(**plan, rows, a, options, context, timings);
  });
}

}  // namespace spaid::kernels
