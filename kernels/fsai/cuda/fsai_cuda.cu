#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
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

// Beside what is counted when memory is asked for: blocks are rounded up.
constexpr int64_t kSlackBytes = 64 << 10;

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
  };

  std::vector<std::unique_ptr<Part>> parts;
  int64_t n = 0, nnz_a = 0;
  uint64_t pattern_hash = 0;  // A's
  BatchedWork work;           // of rows

  // Predicts the work of rows: of local problems on `rows`, or, where that is null, of growth,
  // which gathers rows of A.
  void Predict(const PatternView& a, const PatternView* rows, int threads) {
    constexpr double kRow = 32, kMostUnknowns = 2048;
    const double mean = static_cast<double>(nnz_a) / static_cast<double>(std::max<int64_t>(1, n));
    const int64_t* const ptr = (rows != nullptr ? *rows : a).col_ptr.data();
    const bool grow = rows == nullptr;
    work = SumWork(n, static_cast<int>(parts.size()), threads, [=](int64_t i) {
      const auto entries = static_cast<double>(ptr[i + 1] - ptr[i]);
      if (grow) return kRow + entries;
      const double unknowns = std::min(kMostUnknowns, entries);
      return kRow + mean * unknowns + unknowns * unknowns * unknowns / 3;
    });
  }

  void CountBytes(bool has_rows, int64_t nnz_rows) {
    device_bytes = 12 * nnz_a + 8 * (n + 1) + (has_rows ? 4 * nnz_rows + 8 * (n + 1) : 0);
  }
};

// G on the device of the first part.
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
  plan->Predict(a, rows, context.threads);
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
        queue_(plan_.work, static_cast<int>(plan_.parts.size())),
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
  // A chunk's place in G: the first of its rows, and the entries before them.
  struct Place {
    int64_t first, rows, before, nnz;
  };
  // A build's state of one part, whose device is locked.
  struct Work {
    const size_t index;
    const Plan::Part& part;
    std::optional<cuda::Matrix> matrix = {};  // none: the plan's
    cuda::FsaiG g = {};
    std::vector<Place> places = {};  // of the chunks of g
    IndexRange columns = {};         // entries of G by columns that it sends to the host
    std::shared_ptr<const cuda::FsaiPattern> pattern = {};  // G's
    cuda::FsaiFigures figures = {};
    double pass_ms = 0;  // the last pass, by the device's clock
    int64_t peak_bytes = 0;
    double ms = 0;  // the present phase's
  };
  using Works = std::vector<std::unique_ptr<Work>>;

  // With the rows that were left to the host.
  Result<FsaiResult> Whole(const CscView& a, FsaiResult result) {
    if (left_rows_ > 0) {
      const auto start = Clock::now();
      const auto left = MakeLeftRows(a, pattern_, grow_, options_, context_, result);
      if (!left.ok()) return left.status();
      timings_.host_rows = *left;
      timings_.host_solve_ms += MsSince(start);
    }
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

  // Calls phase(work, context) for all parts at once; adds what the longest took to `ms`. Where one
  // fails no other begins more rows.
  template <class Phase>
  Status ForAll(const Works& works, double& ms, const Phase& phase) {
    const Status status = AtOnce(works.size(), [&](size_t i) {
      Work& work = *works[i];
      const auto start = Clock::now();
      const Status done =
          cuda::Guard(*work.part.device, [&](cuda::Context& context) { phase(work, context); });
      work.ms = MsSince(start);
      if (!done.ok()) queue_.Close();
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
      left_rows_ = 0;
      queue_.Refill();
      status = ForAll(works, timings_.build_ms,
                      [&](Work& work, cuda::Context& context) { BuildPart(work, context, k_max); });
      pass_ms = 0;
      std::vector<double> log_ratios(Z(k_max) + 1, 0.0);
      for (const auto& work : works) {
        const cuda::FsaiFigures& figures = work->figures;
        pass_ms = std::max(pass_ms, work->pass_ms);
        timings_.device_bytes = std::max(timings_.device_bytes, work->peak_bytes);
        timings_.waves = std::max(timings_.waves, figures.waves);
        if (fault_ < 0) fault_ = figures.fault;
        left_rows_ += figures.left_rows;
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
    Summarise(works, quality);
    status = Gather(works, Arrange(works), a, result);
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
    const auto next = [this](bool whole_part) { return queue_.Take(whole_part); };
    work.g = cuda::BuildFsai(context, work.matrix ? *work.matrix : *work.part.matrix, pattern_,
                             work.part.rows.get(), wanted, next, caller, work.figures);
    work.pass_ms = watch.Stop();
    work.peak_bytes = context.arena->peak();
  }

  // Sums the figures of all parts.
  static void Summarise(const Works& works, FsaiQuality& quality) {
    double log_ratio = 0;
    for (const auto& work : works) {
      const FsaiQuality& own = work->figures.quality;
      log_ratio += work->figures.log_ratio;
      quality.nnz_row_max = std::max(quality.nnz_row_max, own.nnz_row_max);
      if (own.not_spd_rows > 0 &&
          (quality.not_spd_rows == 0 || own.first_not_spd < quality.first_not_spd)) {
        quality.first_not_spd = own.first_not_spd;
      }
      quality.not_spd_rows += own.not_spd_rows;
      quality.converged_rows += own.converged_rows;
      quality.copied_rows += own.copied_rows;
      quality.slow_rows += own.slow_rows;
      quality.flops += own.flops;
    }
    quality.kaporin = std::exp(log_ratio);
  }

  // Finds the places of all chunks; returns the entries of G.
  static int64_t Arrange(const Works& works) {
    std::map<int64_t, Place*> by_first;
    for (const auto& work : works) {
      for (const cuda::FsaiChunk& chunk : work->g.chunks) {
        work->places.push_back({chunk.first, chunk.rows, 0, chunk.nnz});
      }
      for (Place& place : work->places) by_first[place.first] = &place;
    }
    int64_t nnz = 0;
    for (const auto& [first, place] : by_first) {
      place->before = nnz;
      nnz += place->nnz;
    }
    return nnz;
  }

  // G from the devices to the host, and where outputs are wanted to the first device, too.
  Status Gather(const Works& works, int64_t nnz, const PatternView& a, FsaiResult& result) {
    CscMatrix& g = result.g_rows;
    g.n_rows = g.n_cols = plan_.n;
    g.col_ptr.resize(Z(plan_.n) + 1);
    g.col_ptr.back() = nnz;
    g.row_idx.resize(Z(nnz));
    g.values.resize(Z(nnz));
    result.psi_ratio.resize(Z(plan_.n));
    if (outputs_ == nullptr || left_rows_ > 0) {
      return ForAll(works, timings_.device_to_host_ms, [&](Work& work, cuda::Context& context) {
        CountFromPlaces(work, context);
        PsiToHost(work, context, result);
        context.Download(RowsToHost(work, nullptr, result));
      });
    }
    cuda::FsaiChunk whole;
    Status status = JoinParts(works, nnz, whole);
    if (!status.ok()) return status;
    status = ToHost(works, whole, result);
    if (!status.ok()) return status;
    KeepG(works, a, std::move(whole), g);
    return {};
  }

  static void CountFromPlaces(const Work& work, cuda::Context& context) {
    for (size_t c = 0; c < work.places.size(); ++c) {
      cuda::CountFrom(context, work.places[c].before, work.g.chunks[c]);
    }
  }

  static int IndexOf(const Work& work) { return work.part.device->info().index; }

  // G on the first device; the others have their chunks, too, until the host has them.
  Status JoinParts(const Works& works, int64_t nnz, cuda::FsaiChunk& whole) {
    if (works.size() == 1 && works[0]->g.chunks.size() == 1) {
      whole = std::move(works[0]->g.chunks[0]);
      return {};
    }
    const int to = IndexOf(*works[0]);
    const Status status = ForAll(works, timings_.join_ms, [&](Work& work, cuda::Context& context) {
      CountFromPlaces(work, context);
      if (work.index > 0) return context.arena->ShareWith(to);
      for (const auto& other : works) context.arena->ShareWith(IndexOf(*other));
      whole = cuda::EmptyChunk(context, 0, plan_.n, nnz, /*has_values=*/true);
      timings_.device_bytes = std::max(timings_.device_bytes, context.arena->peak());
      context.Synchronize();
    });
    if (!status.ok()) return status;
    return ForAll(works, timings_.join_ms, [&](Work& work, cuda::Context& context) {
      const Waiting waiting(context);
      for (size_t c = 0; c < work.places.size(); ++c) {
        cuda::PutInto(whole, to, work.places[c].before, context, work.g.chunks[c]);
      }
      context.Synchronize();
    });
  }

  // Waits for copies to or from another device before that may free their memory.
  struct Waiting {
    explicit Waiting(const cuda::Context& context) : stream(context.stream) {}
    ~Waiting() { cudaStreamSynchronize(stream); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    const cudaStream_t stream;
  };

  // G by rows and by columns. While the first device makes the columns the others send their rows;
  // then all share what is left, so that each sends about as much.
  Status ToHost(const Works& works, const cuda::FsaiChunk& whole, FsaiResult& result) {
    CscMatrix& columns = outputs_->g_columns;
    columns.n_rows = columns.n_cols = plan_.n;
    columns.col_ptr.resize(Z(plan_.n) + 1);
    columns.row_idx.resize(Z(whole.nnz));
    columns.values.resize(Z(whole.nnz));
    const auto parts = static_cast<int64_t>(works.size());
    int64_t own = 0;
    for (const Place& place : works[0]->places) own += place.nnz;
    const int64_t share =
        parts == 1 ? 0 : std::min((whole.nnz + own) / parts, whole.nnz / (parts - 1));
    cuda::Matrix made;
    Status status =
        ForAll(works, timings_.device_to_host_ms, [&](Work& work, cuda::Context& context) {
          PsiToHost(work, context, result);
          if (work.index > 0) context.Download(RowsToHost(work, nullptr, result));
          work.g = {};
          if (work.index == 0) {
            const auto start = Clock::now();
            MakeColumns(context, whole, made);
            timings_.columns_ms += MsSince(start);
          } else if (12 * share + kSlackBytes <= context.arena->limit() - context.arena->used()) {
            work.columns.end = share;
          }
        });
    if (!status.ok()) return status;
    const bool has_columns = made.col_ptr.size() > 0;
    if (!has_columns) columns = {};
    int64_t sent = 0;
    for (const auto& work : works) {
      if (work->index == 0 || !has_columns) continue;
      work->columns = {sent, sent + work->columns.end};
      sent = work->columns.end;
    }
    works[0]->columns = {sent, has_columns ? whole.nnz : sent};
    return ForAll(works, timings_.device_to_host_ms, [&](Work& work, cuda::Context& context) {
      const IndexRange range = has_columns ? work.columns : IndexRange{};
      int32_t* const rows = columns.row_idx.data() + range.begin;
      double* const values = columns.values.data() + range.begin;
      if (work.index == 0) {
        std::vector<cuda::HostCopy> copies = RowsToHost(work, &whole, result);
        copies.push_back(made.col_ptr.To(columns.col_ptr.data(), made.col_ptr.size()));
        copies.push_back(made.row_idx.To(rows, range.size(), range.begin));
        copies.push_back(made.values.To(values, range.size(), range.begin));
        return context.Download(copies);
      }
      const Waiting waiting(context);
      const int from = IndexOf(*works[0]), here = context.ordinal;
      {
        const cuda::Buffer<int32_t> its_rows(context, range.size());
        const cuda::Buffer<double> its_values(context, range.size());
        context.CopyAcross(its_rows.get(), here, made.row_idx.get() + range.begin, from,
                           range.size());
        context.CopyAcross(its_values.get(), here, made.values.get() + range.begin, from,
                           range.size());
        context.Download({its_rows.To(rows, range.size()), its_values.To(values, range.size())});
      }
      cuda::FsaiPattern pattern{cuda::Buffer<int64_t>(context, plan_.n + 1),
                                cuda::Buffer<int32_t>(context, whole.nnz)};
      context.CopyAcross(pattern.row_ptr.get(), here, whole.row_ptr.get(), from, plan_.n + 1);
      context.CopyAcross(pattern.col_idx.get(), here, whole.col_idx.get(), from, whole.nnz);
      context.Synchronize();
      work.pattern = cuda::Keep(work.part.device, std::move(pattern));
    });
  }

  // Leaves `made` empty where the device has no memory for that.
  static void MakeColumns(cuda::Context& context, const cuda::FsaiChunk& g, cuda::Matrix& made) {
    try {
      // Row i of G is column i of Gᵀ.
      made = cuda::Transpose(context, {g.rows, g.row_ptr.get(), g.col_idx.get()}, g.nnz,
                             g.values.get());
      context.Synchronize();
    } catch (const cuda::Failure& failure) {
      if (failure.fault() != CudaFault::kOutOfMemory) throw;
      made = {};
    }
  }

  // ψ of the part's rows.
  static void PsiToHost(const Work& work, cuda::Context& context, FsaiResult& result) {
    std::vector<cuda::HostCopy> copies;
    for (const Place& place : work.places) {
      copies.push_back(
          work.g.psi_ratio.To(result.psi_ratio.data() + place.first, place.rows, place.first));
    }
    context.Download(copies);
  }

  // Copies of the part's rows of G to the host: from its chunks, or from `whole`.
  static std::vector<cuda::HostCopy> RowsToHost(const Work& work, const cuda::FsaiChunk* whole,
                                                FsaiResult& result) {
    CscMatrix& g = result.g_rows;
    std::vector<cuda::HostCopy> copies;
    for (size_t c = 0; c < work.places.size(); ++c) {
      const auto [first, rows, before, nnz] = work.places[c];
      const cuda::FsaiChunk& from = whole != nullptr ? *whole : work.g.chunks[c];
      const int64_t row = whole != nullptr ? first : 0, entry = whole != nullptr ? before : 0;
      copies.push_back(from.row_ptr.To(g.col_ptr.data() + first, rows, row));
      copies.push_back(from.col_idx.To(g.row_idx.data() + before, nnz, entry));
      copies.push_back(from.values.To(g.values.data() + before, nnz, entry));
    }
    return copies;
  }

  // G on the first device, and a plan with its pattern on all.
  void KeepG(const Works& works, const PatternView& a, cuda::FsaiChunk whole,
             const CscMatrix& g_rows) {
    const std::shared_ptr<CudaDevice>& device = works[0]->part.device;
    auto kept = std::make_shared<KeptG>();
    static_cast<BuiltOnDevice&>(*kept) = {.device = device,
                                          .device_bytes = 12 * whole.nnz + 8 * (plan_.n + 1),
                                          .factor = true,
                                          .n = plan_.n,
                                          .nnz = whole.nnz,
                                          .col_ptr = whole.row_ptr.get(),
                                          .row_idx = whole.col_idx.get(),
                                          .values = whole.values.get()};
    kept->pattern =
        cuda::Keep(device, cuda::FsaiPattern{std::move(whole.row_ptr), std::move(whole.col_idx)});
    kept->g = cuda::Keep(device, std::move(whole.values));
    works[0]->pattern = kept->pattern;
    std::shared_ptr<Plan> plan = SameMatrix();
    plan->CountBytes(true, whole.nnz);
    for (const auto& work : works) plan->parts[work->index]->rows = work->pattern;
    const PatternView rows = g_rows.pattern();
    plan->Predict(a, &rows, context_.threads);
    outputs_->plan = std::move(plan);
    outputs_->g = std::move(kept);
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
  RangeQueue queue_;  // rows to make
  SharedProgress progress_;
  int64_t fault_ = -1;     // the first part's that has one
  int64_t left_rows_ = 0;  // to the host
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
