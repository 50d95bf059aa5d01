#include "kernels/fsai/fsai_cuda.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/reasons.h"
#include "kernels/base/split.h"
#include "kernels/fsai/fsai_checks.h"
#include "kernels/fsai/left_rows.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

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
  using Matrix = CudaObject<CudaMatrix>;
  // Of one device.
  struct Piece {
    explicit Piece(const std::shared_ptr<CudaDevice>& on)
        : device(on), matrix(std::make_shared<Matrix>(on)), rows(on) {}

    const std::shared_ptr<CudaDevice> device;
    std::shared_ptr<Matrix> matrix;  // of plans on one pattern of A
    CudaObject<CudaPattern> rows;    // null: none
    IndexRange range;                // of the rows that it makes
  };

  std::vector<std::unique_ptr<Piece>> pieces;  // ascending
  int64_t n = 0, nnz_a = 0, nnz_rows = 0;
  uint64_t pattern_hash = 0;  // of A

  // Cuts the rows that the devices make, by their entries in `rows`, or, where that is null, in A.
  void Cut(const PatternView& a, const PatternView* rows, int threads) {
    const double mean = static_cast<double>(nnz_a) / static_cast<double>(std::max<int64_t>(1, n));
    const PatternView& of = rows != nullptr ? *rows : a;
    const auto ranges = CutByColumns(pieces.size(), of.col_ptr.data(), n, 1, mean, threads);
    pieces.resize(ranges.size());
    for (size_t i = 0; i < ranges.size(); ++i) pieces[i]->range = ranges[i];
  }
};

class FsaiCudaG {
 public:
  FsaiCudaG(const std::shared_ptr<CudaDevice>& on, int64_t n_rows, int64_t entries)
      : device(on), g(on), n(n_rows), nnz(entries) {}

  const std::shared_ptr<CudaDevice> device;
  CudaObject<CudaG> g;
  const int64_t n, nnz;
};

int64_t DeviceBytes(const FsaiCudaPlan& plan) {
  const bool has_rows = plan.pieces.front()->rows.object != nullptr;
  return 12 * plan.nnz_a + 8 * (plan.n + 1) + (has_rows ? 4 * plan.nnz_rows + 8 * (plan.n + 1) : 0);
}

int64_t DeviceBytes(const FsaiCudaG& g) { return 12 * g.nnz + 8 * (g.n + 1); }

const std::shared_ptr<CudaDevice>& DeviceOf(const FsaiCudaG& g) { return g.device; }

const CudaG& Object(const FsaiCudaG& g) { return *g.g.object; }

namespace {

// Adds what pieces took that ran at the same time: of each time the longest.
void Add(const std::vector<double>& pieces, double& to) {
  to += *std::max_element(pieces.begin(), pieces.end());
}

Status PlanPiece(const PatternView& a, const PatternView* rows, FsaiCudaPlan::Piece& piece,
                 double& upload_ms) {
  CudaContext& context = piece.device->context();
  const auto lock = piece.device->Lock();
  const auto start = Clock::now();
  Status status = piece.matrix->Take(context.UploadMatrix(a, {}));
  if (status.ok() && rows != nullptr) status = piece.rows.Take(context.UploadPattern(*rows));
  upload_ms += MsSince(start);
  if (!status.ok()) piece.matrix->object.reset();  // here and now
  return status;
}

Result<std::shared_ptr<const FsaiCudaPlan>> MakePlan(
    std::span<const std::shared_ptr<CudaDevice>> devices, const PatternView& a,
    const PatternView* rows, const Context& context, FsaiCudaTimings& timings) {
  if (Status status = CheckFsai(a, {}); !status.ok()) return status;
  if (rows != nullptr) {
    if (Status status = CheckLowerPattern(*rows, a.n_cols); !status.ok()) return status;
  }
  auto plan = std::make_shared<FsaiCudaPlan>();
  plan->n = a.n_cols;
  plan->nnz_a = a.nnz();
  plan->nnz_rows = rows != nullptr ? rows->nnz() : 0;
  plan->pattern_hash = HashPattern(a, context.threads);
  for (const auto& device : devices) {
    plan->pieces.push_back(std::make_unique<FsaiCudaPlan::Piece>(device));
  }
  plan->Cut(a, rows, context.threads);
  std::vector<double> upload_ms(plan->pieces.size());
  const Status status = AtOnce(plan->pieces.size(), [&](size_t i) {
    return PlanPiece(a, rows, *plan->pieces[i], upload_ms[i]);
  });
  if (!status.ok()) return status;
  Add(upload_ms, timings.host_to_device_ms);
  return std::shared_ptr<const FsaiCudaPlan>(std::move(plan));
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
        outputs_(outputs),
        progress_(context.progress, Stage::kBuild, plan.n, plan.pieces.size()) {}

  Result<FsaiResult> Run(const CscView& a) {
    const auto begin = Clock::now();
    if (Status status =
            CheckPlanPattern(a, plan_.n, plan_.nnz_a, plan_.pattern_hash, context_.threads);
        !status.ok()) {
      return status;
    }
    auto result = On(a, /*of_plan=*/true, begin);
    if (result.ok()) return Whole(a, *std::move(result));
    if (fault_ == CudaFsaiFault::kNone) return result;
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
  using Piece = FsaiCudaPlan::Piece;

  // What a build has of a piece, whose device is locked.
  struct Work {
    Work(Build& build, size_t i, const Piece& of)
        : owner(build), index(i), piece(of), matrix(of.device), g(of.device) {
      matrix.locked = g.locked = true;
    }

    Build& owner;
    const size_t index;
    const Piece& piece;
    CudaObject<CudaMatrix> matrix;  // null: the plan's
    CudaObject<CudaG> g;
    CudaFsaiFigures figures;
    double ms = 0;  // of the phase
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

  // Calls phase(work) for all pieces at once; adds what the longest took to `ms`.
  template <class Phase>
  Status ForAll(const Works& works, double& ms, const Phase& phase) {
    Status status = AtOnce(works.size(), [&](size_t i) -> Status {
      Work& work = *works[i];
      const auto start = Clock::now();
      Status done = phase(work);
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
    for (const auto& piece : plan_.pieces) devices.push_back(piece->device.get());
    std::sort(devices.begin(), devices.end(), std::less<>());
    std::vector<std::unique_lock<std::mutex>> locks;
    for (CudaDevice* device : devices) locks.push_back(device->Lock());
    return locks;
  }

  // `of_plan`: the plan's matrix gets the values of `a`.
  Result<FsaiResult> On(const CscView& a, bool of_plan, Clock::time_point begin) {
    const auto locks = LockDevices();
    Works works;
    for (const auto& piece : plan_.pieces) {
      works.push_back(std::make_unique<Work>(*this, works.size(), *piece));
    }
    Status status = ForAll(works, timings_.host_to_device_ms, [&](Work& work) {
      if (of_plan) return work.piece.matrix->object->UploadValues(a.values);
      return work.matrix.Take(work.piece.device->context().UploadMatrix(a, a.values));
    });
    if (!status.ok()) return status;
    FsaiResult result;
    FsaiQuality& quality = result.quality;
    double pass_ms = 0;  // of the last one, by the slowest device's clock
    const auto pass = [&](int k_max) {
      fault_ = CudaFsaiFault::kNone;
      double unused = 0;
      status = ForAll(works, unused, [&](Work& work) { return BuildPiece(work, k_max); });
      pass_ms = 0;
      std::vector<double> log_ratios(Z(k_max) + 1, 0.0);
      for (const auto& work : works) {
        const CudaFsaiFigures& figures = work->figures;
        pass_ms = std::max(pass_ms, figures.ms);
        timings_.device_bytes = std::max(timings_.device_bytes, figures.peak_bytes);
        timings_.waves = std::max(timings_.waves, figures.waves);
        if (fault_ == CudaFsaiFault::kNone && figures.fault != CudaFsaiFault::kNone) {
          fault_ = figures.fault;
          fault_index_ = figures.fault_index;
        }
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
      return status.ok() && fault_ == CudaFsaiFault::kNone;
    };
    const int k_max = grow_ ? options_.k_max : 0;
    if (grow_ && options_.time_budget_ms > 0) {
      InTime(pass, begin, k_max, pass_ms, quality);
    } else {
      pass(k_max);
    }
    if (!status.ok()) return status;
    if (fault_ != CudaFsaiFault::kNone) {
      return Status(StatusCode::kFailedPrecondition, "NOT_SYMMETRIC", "A is not symmetric")
          .At("values", fault_index_);
    }
    const int64_t nnz = Summarise(works, quality);
    const auto back = Clock::now();
    status = Gather(works, nnz, result);
    const auto& ptr = result.g_rows.col_ptr;
    if (status.ok() && outputs_ != nullptr &&
        std::adjacent_find(ptr.begin(), ptr.end()) == ptr.end()) {
      status = works.size() == 1 ? Keep(nnz, *works[0]) : KeepPlan(a, result.g_rows);
    }
    timings_.device_to_host_ms += MsSince(back);
    if (!status.ok()) return status;
    return Result<FsaiResult>(std::move(result));
  }

  Status BuildPiece(Work& work, int k_max) {
    const IndexRange range = work.piece.range;
    CudaFsaiRequest request{options_, pattern_, work.piece.rows.object.get()};
    request.options.adaptive = grow_;
    request.options.k_max = k_max;
    if (plan_.pieces.size() > 1) request.rows = range;
    // The last row is told when the result is there.
    PieceProgress progress(progress_, work.index, range.size(), range.size() - 1);
    Context context = context_;
    context.progress = &progress;
    work.g.object.reset();
    work.figures = {};
    const CudaMatrix& matrix =
        work.matrix.object != nullptr ? *work.matrix.object : *work.piece.matrix->object;
    auto build = matrix.BuildFsai(request, context);
    if (!build.ok()) return build.status();
    work.g.object = std::move(build->g);
    work.figures = std::move(build->figures);
    return {};
  }

  // Of all pieces; returns the entries of G.
  static int64_t Summarise(const Works& works, FsaiQuality& quality) {
    int64_t nnz = 0;
    double log_ratio = 0;
    for (const auto& work : works) {
      const CudaFsaiFigures& figures = work->figures;
      const FsaiQuality& own = figures.quality;
      nnz += figures.nnz;
      log_ratio += figures.log_ratio;
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
    for (size_t i = 1; i < works.size(); ++i) first[i] = first[i - 1] + works[i - 1]->figures.nnz;
    g.col_ptr.back() = nnz;
    double unused = 0;
    return ForAll(works, unused, [&](Work& work) {
      const IndexRange range = work.piece.range;
      const int64_t from = first[work.index];
      Array<int64_t> own(Z(range.size()) + 1);
      Status status =
          work.g.object->Download(own.data(), g.row_idx.data() + from, g.values.data() + from,
                                  result.psi_ratio.data() + range.begin);
      for (int64_t i = 0; i < range.size(); ++i) g.col_ptr[Z(range.begin + i)] = own[Z(i)] + from;
      return status;
    });
  }

  Status Keep(int64_t nnz, Work& work) {
    CudaG& g = *work.g.object;
    CscMatrix& columns = outputs_->g_columns;
    columns.n_rows = columns.n_cols = plan_.n;
    columns.col_ptr.resize(Z(plan_.n) + 1);
    columns.row_idx.resize(Z(nnz));
    columns.values.resize(Z(nnz));
    g.Trim();
    const Status status =
        g.DownloadColumns(columns.col_ptr.data(), columns.row_idx.data(), columns.values.data());
    if (status.reason() == reason::kDeviceOutOfMemory) {
      columns = {};
    } else if (!status.ok()) {
      return status;
    }
    std::shared_ptr<FsaiCudaPlan> plan = SameMatrix();
    plan->nnz_rows = nnz;
    plan->pieces[0]->range = work.piece.range;
    plan->pieces[0]->rows.object = g.Pattern();
    outputs_->plan = std::move(plan);
    auto kept = std::make_shared<FsaiCudaG>(work.piece.device, plan_.n, nnz);
    std::swap(kept->g.object, work.g.object);
    outputs_->g = std::move(kept);
    return {};
  }

  // Pieces of G serve no solve, nor the next build as its pattern: that goes there with each.
  Status KeepPlan(const PatternView& a, const CscMatrix& g_rows) {
    std::shared_ptr<FsaiCudaPlan> plan = SameMatrix();
    plan->nnz_rows = g_rows.nnz();
    const PatternView rows = g_rows.pattern();
    plan->Cut(a, &rows, context_.threads);
    outputs_->plan = std::move(plan);
    return {};
  }

  std::shared_ptr<FsaiCudaPlan> SameMatrix() const {
    auto plan = std::make_shared<FsaiCudaPlan>();
    plan->n = plan_.n;
    plan->nnz_a = plan_.nnz_a;
    plan->pattern_hash = plan_.pattern_hash;
    for (const auto& piece : plan_.pieces) {
      plan->pieces.push_back(std::make_unique<Piece>(piece->device));
      plan->pieces.back()->matrix = piece->matrix;
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

  const FsaiCudaPlan& plan_;
  const PatternView* const pattern_;
  const FsaiOptions& options_;
  const bool grow_;
  const Context context_;
  FsaiCudaTimings& timings_;
  FsaiCudaOutputs* const outputs_;
  SharedProgress progress_;
  CudaFsaiFault fault_ = CudaFsaiFault::kNone;
  int64_t fault_index_ = -1;
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

Result<std::shared_ptr<const FsaiCudaPlan>> PlanFsaiCuda(const std::shared_ptr<CudaDevice>& device,
                                                         const PatternView& a,
                                                         const PatternView* rows,
                                                         const Context& context,
                                                         FsaiCudaTimings* timings) {
  return PlanFsaiCuda(std::span(&device, 1), a, rows, context, timings);
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
