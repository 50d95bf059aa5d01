#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/device.h"
#include "kernels/base/reasons.h"
#include "kernels/base/split.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/fsai_cuda.h"
#include "kernels/fsai/left_rows.h"
#include "kernels/sparse/cuda/transpose.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

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
  // Entries above the diagonal are added to a column in ascending order, before the column itself.
  std::vector<int64_t> next(s.col_ptr.begin(), s.col_ptr.end() - 1);
  each([&](int64_t i, int64_t j, double value) {
    const int64_t at = next[Z(j)]++;
    s.row_idx[Z(at)] = static_cast<int32_t>(i);
    s.values[Z(at)] = value;
  });
  return s;
}

struct Plan : FsaiCudaPlan {
  // The part of the plan on one device.
  struct Part {
    const std::shared_ptr<CudaDevice> device;
    std::shared_ptr<cuda::Matrix> matrix = {};           // shared by plans on one pattern of A
    std::shared_ptr<const cuda::FsaiPattern> rows = {};  // null: none
    IndexRange range = {};                               // rows that it makes
  };

  std::vector<std::unique_ptr<Part>> parts;  // ascending
  int64_t n = 0, nnz_a = 0;
  uint64_t pattern_hash = 0;  // A's

  // Cuts the rows that the devices make, by their entries in `rows`, or, where that is null, in A.
  void Cut(const PatternView& a, const PatternView* rows, int threads) {
    const double mean = static_cast<double>(nnz_a) / static_cast<double>(std::max<int64_t>(1, n));
    const PatternView& of = rows != nullptr ? *rows : a;
    const auto ranges = CutByColumns(parts.size(), of.col_ptr.data(), n, 1, mean, threads);
    parts.resize(ranges.size());
    for (size_t i = 0; i < ranges.size(); ++i) parts[i]->range = ranges[i];
  }

  void CountBytes(bool has_rows, int64_t nnz_rows) {
    device_bytes = 12 * nnz_a + 8 * (n + 1) + (has_rows ? 4 * nnz_rows + 8 * (n + 1) : 0);
  }
};

// G on the device of a plan of one part.
struct KeptG : BuiltOnDevice {
  std::shared_ptr<const cuda::FsaiPattern> pattern;
  std::shared_ptr<const cuda::Buffer<double>> g;
};

// Adds the longest of the times that parts took at the same time.
void Add(const std::vector<double>& parts, double& to) {
  to += *std::max_element(parts.begin(), parts.end());
}

Status PlanPart(const PatternView& a, const PatternView* rows, Plan::Part& part,
                double& upload_ms) {
  const auto lock = part.device->Lock();
  return cuda::Guard(*part.device, [&](cuda::Context& context) {
    const auto start = Clock::now();
    cuda::Matrix matrix = cuda::UploadMatrix(context, a, nullptr);
    if (rows != nullptr) {
      part.rows = cuda::Keep(part.device, cuda::UploadPattern(context, *rows));
      context.Synchronize();
    }
    part.matrix = cuda::Keep(part.device, std::move(matrix));
    upload_ms += MsSince(start);
  });
}

Result<std::shared_ptr<const FsaiCudaPlan>> MakePlan(
    std::span<const std::shared_ptr<CudaDevice>> devices, const PatternView& a,
    const PatternView* rows, const Context& context, FsaiCudaTimings& timings) {
  if (Status status = CheckFsai(a, {}); !status.ok()) return status;
  if (rows != nullptr) {
    if (Status status = CheckLowerPattern(*rows, a.n_cols); !status.ok()) return status;
  }
  auto plan = std::make_shared<Plan>();
  plan->n = a.n_cols;
  plan->nnz_a = a.nnz();
  plan->CountBytes(rows != nullptr, rows != nullptr ? rows->nnz() : 0);
  plan->pattern_hash = HashPattern(a, context.threads);
  for (const auto& device : devices) {
    plan->parts.push_back(std::make_unique<Plan::Part>(Plan::Part{device}));
  }
  plan->Cut(a, rows, context.threads);
  std::vector<double> upload_ms(plan->parts.size());
  const Status status = AtOnce(plan->parts.size(), [&](size_t i) {
    return PlanPart(a, rows, *plan->parts[i], upload_ms[i]);
  });
  if (!status.ok()) return status;
  Add(upload_ms, timings.host_to_device_ms);
  return std::shared_ptr<const FsaiCudaPlan>(std::move(plan));
}

class Build {
 public:
  Build(const FsaiCudaPlan& plan, const PatternView* pattern, const FsaiOptions& options, bool grow,
        const Context& context, FsaiCudaTimings& timings, FsaiCudaOutputs* outputs)
      : plan_(static_cast<const Plan&>(plan)),
        pattern_(pattern),
        options_(options),
        grow_(grow),
        context_(context),
        timings_(timings),
        outputs_(outputs),
        progress_(context.progress, Stage::kBuild, plan_.n, plan_.parts.size()) {}

  Result<FsaiResult> Run(const CscView& a) {
    const auto begin = Clock::now();
    if (Status status =
            CheckPlanPattern(a, plan_.n, plan_.nnz_a, plan_.pattern_hash, context_.threads);
        !status.ok()) {
      return status;
    }
    auto result = On(a, /*of_plan=*/true, begin);
    if (result.ok()) return Whole(a, *std::move(result));
    if (fault_ < 0) return result;
    // The host has the words for it.
    const auto checked = CheckSymmetric(a, options_, context_);
    if (!checked.ok()) return checked.status();
    // Entries without a mirror are no larger than the tolerance.
    const CscMatrix mirrored = Mirrored(a);
    auto again = On(mirrored, /*of_plan=*/false, begin);
    if (!again.ok()) return again;
    return Whole(a, *std::move(again));
  }

 private:
  // A build's state of one part, whose device is locked.
  struct Work {
    const size_t index;
    const Plan::Part& part;
    std::optional<cuda::Matrix> matrix = {};  // none: the plan's
    cuda::FsaiG g = {};
    cuda::FsaiFigures figures = {};
    double pass_ms = 0;  // the last pass, by the device's clock
    int64_t peak_bytes = 0;
    double ms = 0;  // the present phase's
  };
  using Works = std::vector<std::unique_ptr<Work>>;

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

  // Calls phase(work, context) for all parts at once; adds what the longest took to `ms`.
  template <class Phase>
  Status ForAll(const Works& works, double& ms, const Phase& phase) {
    const Status status = AtOnce(works.size(), [&](size_t i) {
      Work& work = *works[i];
      const auto start = Clock::now();
      const Status done =
          cuda::Guard(*work.part.device, [&](cuda::Context& context) { phase(work, context); });
      work.ms = MsSince(start);
      return done;
    });
    double longest = 0;
    for (const auto& work : works) longest = std::max(longest, work->ms);
    ms += longest;
    return status;
  }

  // All at once, from the one that comes first in memory on: two builds cannot wait for each other.
  std::vector<std::unique_lock<std::mutex>> LockDevices() const {
    std::vector<CudaDevice*> devices;
    for (const auto& part : plan_.parts) devices.push_back(part->device.get());
    std::sort(devices.begin(), devices.end(), std::less<>());
    std::vector<std::unique_lock<std::mutex>> locks;
    for (CudaDevice* device : devices) locks.push_back(device->Lock());
    return locks;
  }

  // `of_plan`: the plan's matrix gets the values of `a`.
  Result<FsaiResult> On(const CscView& a, bool of_plan, Clock::time_point begin) {
    const auto locks = LockDevices();
    Works works;
    for (const auto& part : plan_.parts) {
      works.push_back(std::make_unique<Work>(Work{works.size(), *part}));
    }
    Status status =
        ForAll(works, timings_.host_to_device_ms, [&](Work& work, cuda::Context& context) {
          if (of_plan) {
            cuda::UploadValues(context, a.values.data(), *work.part.matrix, context_.ahead);
          } else {
            work.matrix = cuda::UploadMatrix(context, a, a.values.data(), context_.ahead);
          }
        });
    if (!status.ok()) return status;
    FsaiResult result;
    FsaiQuality& quality = result.quality;
    double pass_ms = 0;  // the last pass, by the slowest device's clock
    const auto pass = [&](int k_max) {
      fault_ = -1;
      double unused = 0;
      status = ForAll(works, unused,
                      [&](Work& work, cuda::Context& context) { BuildPart(work, context, k_max); });
      pass_ms = 0;
      std::vector<double> log_ratios(Z(k_max) + 1, 0.0);
      for (const auto& work : works) {
        const cuda::FsaiFigures& figures = work->figures;
        pass_ms = std::max(pass_ms, work->pass_ms);
        timings_.device_bytes = std::max(timings_.device_bytes, work->peak_bytes);
        timings_.waves = std::max(timings_.waves, figures.waves);
        if (fault_ < 0) fault_ = figures.fault;
        for (size_t step = 0; step < figures.log_ratios.size(); ++step) {
          log_ratios[step] += figures.log_ratios[step];
        }
      }
      timings_.device_ms += pass_ms;
      quality.steps = k_max;
      quality.kaporin_by_step.clear();
      for (const double log_ratio : log_ratios) {
        if (grow_) quality.kaporin_by_step.push_back(std::exp(log_ratio));
      }
      return status.ok() && fault_ < 0;
    };
    const int k_max = grow_ ? options_.k_max : 0;
    if (grow_ && options_.time_budget_ms > 0) {
      InTime(pass, begin, k_max, pass_ms, quality);
    } else {
      pass(k_max);
    }
    if (!status.ok()) return status;
    if (fault_ >= 0) {
      return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", "A is not symmetric")
          .At("values", fault_);
    }
    const int64_t nnz = Summarise(works, quality);
    const auto back = Clock::now();
    status = Gather(works, nnz, result);
    const auto& ptr = result.g_rows.col_ptr;
    if (status.ok() && outputs_ != nullptr &&
        std::adjacent_find(ptr.begin(), ptr.end()) == ptr.end()) {
      status = works.size() == 1 ? KeepG(nnz, *works[0]) : KeepPlan(a, result.g_rows);
    }
    timings_.device_to_host_ms += MsSince(back);
    if (!status.ok()) return status;
    return Result<FsaiResult>(std::move(result));
  }

  void BuildPart(Work& work, cuda::Context& context, int k_max) {
    FsaiOptions wanted = options_;
    wanted.adaptive = grow_;
    wanted.k_max = k_max;
    work.g = {};
    work.figures = {};
    context.arena->ResetPeak();
    cuda::Stopwatch watch(context);
    const cuda::Caller caller(context_.stop, "build of FSAI", [&](int64_t done, int64_t total) {
      // The last row is told when the result is there.
      progress_.Report(work.index, std::min(done, total - 1));
    });
    work.g = cuda::BuildFsai(context, work.matrix ? *work.matrix : *work.part.matrix, pattern_,
                             work.part.rows.get(), wanted, work.part.range, caller, work.figures);
    work.pass_ms = watch.Stop();
    work.peak_bytes = context.arena->peak();
  }

  // Sums the figures of all parts; returns the entries of G.
  static int64_t Summarise(const Works& works, FsaiQuality& quality) {
    int64_t nnz = 0;
    double log_ratio = 0;
    for (const auto& work : works) {
      const FsaiQuality& own = work->figures.quality;
      nnz += work->g.values.size();
      log_ratio += work->figures.log_ratio;
      quality.nnz_row_max = std::max(quality.nnz_row_max, own.nnz_row_max);
      if (quality.not_spd_rows == 0) quality.first_not_spd = own.first_not_spd;
      quality.not_spd_rows += own.not_spd_rows;
      quality.converged_rows += own.converged_rows;
      quality.copied_rows += own.copied_rows;
      quality.slow_rows += own.slow_rows;
      quality.flops += own.flops;
    }
    quality.kaporin = std::exp(log_ratio);
    return nnz;
  }

  // All rows, from the devices to where they belong in G.
  Status Gather(const Works& works, int64_t nnz, FsaiResult& result) {
    CscMatrix& g = result.g_rows;
    g.n_rows = g.n_cols = plan_.n;
    g.col_ptr.resize(Z(plan_.n) + 1);
    g.row_idx.resize(Z(nnz));
    g.values.resize(Z(nnz));
    result.psi_ratio.resize(Z(plan_.n));
    std::vector<int64_t> first(works.size(), 0);
    for (size_t i = 1; i < works.size(); ++i)
      first[i] = first[i - 1] + works[i - 1]->g.values.size();
    g.col_ptr.back() = nnz;
    std::vector<Array<int64_t>> pointers(works.size());
    for (const auto& work : works) pointers[work->index].resize(Z(work->part.range.size()) + 1);
    double unused = 0;
    return ForAll(works, unused, [&](Work& work, cuda::Context& context) {
      const IndexRange range = work.part.range;
      const int64_t from = first[work.index], entries = work.g.values.size();
      Array<int64_t>& own = pointers[work.index];
      context.Download({work.g.row_ptr.To(own.data(), range.size() + 1),
                        work.g.col_idx.To(g.row_idx.data() + from, entries),
                        work.g.values.To(g.values.data() + from, entries),
                        work.g.psi_ratio.To(result.psi_ratio.data() + range.begin, range.size())});
      for (int64_t i = 0; i < range.size(); ++i) g.col_ptr[Z(range.begin + i)] = own[Z(i)] + from;
    });
  }

  // The G of a plan of one part, and its columns where the device has memory for making them.
  Status KeepG(int64_t nnz, Work& work) {
    const std::shared_ptr<CudaDevice>& device = work.part.device;
    work.g.psi_ratio = {};
    CscMatrix& columns = outputs_->g_columns;
    columns.n_rows = columns.n_cols = plan_.n;
    columns.col_ptr.resize(Z(plan_.n) + 1);
    columns.row_idx.resize(Z(nnz));
    columns.values.resize(Z(nnz));
    // Row i of G is column i of Gᵀ.
    const cuda::PatternRef transposed{plan_.n, work.g.row_ptr.get(), work.g.col_idx.get()};
    const Status status = cuda::Guard(*device, [&](cuda::Context& context) {
      const cuda::Matrix made = cuda::Transpose(context, transposed, nnz, work.g.values.get());
      context.Download({made.col_ptr.To(columns.col_ptr.data(), plan_.n + 1),
                        made.row_idx.To(columns.row_idx.data(), nnz),
                        made.values.To(columns.values.data(), nnz)});
    });
    if (status.reason() == reason::kDeviceOutOfMemory) {
      columns = {};
    } else if (!status.ok()) {
      return status;
    }
    const double* const values = work.g.values.get();
    auto kept = std::make_shared<KeptG>();
    kept->pattern =
        cuda::Keep(device, cuda::FsaiPattern{std::move(work.g.row_ptr), std::move(work.g.col_idx)});
    kept->g = cuda::Keep(device, std::move(work.g.values));
    std::shared_ptr<Plan> plan = SameMatrix();
    plan->CountBytes(true, nnz);
    plan->parts[0]->range = work.part.range;
    plan->parts[0]->rows = kept->pattern;
    outputs_->plan = std::move(plan);
    static_cast<BuiltOnDevice&>(*kept) = {.device = device,
                                          .device_bytes = 12 * nnz + 8 * (plan_.n + 1),
                                          .factor = true,
                                          .n = plan_.n,
                                          .nnz = nnz,
                                          .col_ptr = transposed.col_ptr,
                                          .row_idx = transposed.row_idx,
                                          .values = values};
    outputs_->g = std::move(kept);
    return {};
  }

  // Parts of G serve no solve, nor the next build as its pattern, which goes there with each build.
  Status KeepPlan(const PatternView& a, const CscMatrix& g_rows) {
    std::shared_ptr<Plan> plan = SameMatrix();
    plan->CountBytes(false, 0);
    const PatternView rows = g_rows.pattern();
    plan->Cut(a, &rows, context_.threads);
    outputs_->plan = std::move(plan);
    return {};
  }

  std::shared_ptr<Plan> SameMatrix() const {
    auto plan = std::make_shared<Plan>();
    plan->n = plan_.n;
    plan->nnz_a = plan_.nnz_a;
    plan->pattern_hash = plan_.pattern_hash;
    for (const auto& part : plan_.parts) {
      plan->parts.push_back(std::make_unique<Plan::Part>(Plan::Part{part->device, part->matrix}));
    }
    return plan;
  }

  // Passes of more and more steps, as long as the next one, which takes time like the square of its
  // steps at the most, ends before the budget does.
  template <class Pass>
  void InTime(const Pass& pass, Clock::time_point begin, int k_max, const double& pass_ms,
              FsaiQuality& quality) {
    int steps = std::min(1, k_max);
    if (MsSince(begin) >= options_.time_budget_ms) steps = 0;
    while (pass(steps) && steps < k_max && steps > 0) {
      const double left = options_.time_budget_ms - MsSince(begin);
      int next = steps;
      while (next < k_max) {
        const double more = (next + 2.0) / (steps + 1.0);
        if (pass_ms * more * more > left) break;
        ++next;
      }
      if (next == steps) break;
      steps = next;
    }
    quality.out_of_time = quality.steps < k_max;
  }

  const Plan& plan_;
  const PatternView* const pattern_;
  const FsaiOptions& options_;
  const bool grow_;
  const Context context_;
  FsaiCudaTimings& timings_;
  FsaiCudaOutputs* const outputs_;
  SharedProgress progress_;
  int64_t fault_ = -1;  // the first part's that has one
};

}  // namespace

Result<std::shared_ptr<const FsaiCudaPlan>> PlanFsaiCuda(
    std::span<const std::shared_ptr<CudaDevice>> devices, const PatternView& a,
    const PatternView* rows, const Context& context, FsaiCudaTimings* timings) {
  FsaiCudaTimings own;
  return GuardMemory("plan of FSAI", [&] {
    return MakePlan(devices, a, rows, context, timings != nullptr ? *timings : own);
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

}  // namespace spaid::kernels
