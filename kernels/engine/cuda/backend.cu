// What libspaid_cuda.so gives to programs: kernels/base/cuda_backend.h, and what is made by it. The
// only place that catches the library's exceptions.
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/build_id.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/base/cuda/devices.h"
#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/dynamic_spai/cuda/normal_rows.h"
#include "kernels/dynamic_spai/cuda_growth.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/cuda/grow_columns.h"
#include "kernels/fsai/cuda_fsai.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/solve.h"
#include "kernels/krylov/cuda_layout.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/pattern.h"
#include "kernels/sparse/cuda/transpose.h"
#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/cuda/post_filter.h"
#include "kernels/static_spai/cuda_spai.h"

namespace spaid::cuda {
namespace {

using kernels::CudaContext;
using kernels::CudaFsaiBuild;
using kernels::CudaFsaiRequest;
using kernels::CudaG;
using kernels::CudaGrowth;
using kernels::CudaLayout;
using kernels::CudaMatrix;
using kernels::CudaPattern;
using kernels::CudaPatternRequest;
using kernels::CudaSolve;
using kernels::CudaSolveRequest;
using kernels::CudaSpaiM;
using kernels::CudaSpaiPlan;
using kernels::IndexRange;
using kernels::Method;
using kernels::PatternView;
using kernels::Result;
using kernels::Status;

template <class T>
using Made = Result<std::unique_ptr<T>>;

// Calls work(), which gives a Status or a Result: what it throws becomes one, of a fault by
// failed(fault, message).
template <class Work, class Failed>
auto Guard(const Work& work, const Failed& failed) -> decltype(work()) {
  try {
    return work();
  } catch (const Refusal& refusal) {
    return refusal.status();
  } catch (const Failure& failure) {
    return failed(failure.fault(), failure.what());
  } catch (const std::bad_alloc&) {
    return failed(CudaFault::kOutOfMemory, "out of host memory");
  }
}

// A device's context, as all that is made with it knows it.
struct Device {
  Device(const kernels::DeviceInfo& gpu, int64_t memory_limit, kernels::CudaOnThreads on_threads,
         const kernels::CudaVariants& variants)
      : info(gpu), context(gpu.index, memory_limit, std::move(on_threads), variants) {}

  Status Failed(CudaFault fault, const char* message) {
    if (fault == CudaFault::kDeviceLost) lost = true;
    return kernels::CudaFailure(fault, info, message);
  }
  // What work(context) gives: a T, a pointer to one, or nothing.
  template <class T, class Work>
  Result<T> Make(const Work& work) {
    return Guard(
        [&]() -> Result<T> {
          context.Enter();
          return T(work(context));
        },
        [this](CudaFault fault, const char* message) { return Failed(fault, message); });
  }
  template <class T, class Work>
  Made<T> New(const Work& work) {
    return Make<std::unique_ptr<T>>(work);
  }
  template <class Work>
  Status Do(const Work& work) {
    return Guard(
        [&] {
          context.Enter();
          work(context);
          return Status();
        },
        [this](CudaFault fault, const char* message) { return Failed(fault, message); });
  }

  const kernels::DeviceInfo info;
  Context context;
  std::atomic<bool> lost{false};
};

// All of n, unless there is a range.
ColumnRange RangeOf(const std::optional<IndexRange>& range, int64_t n) {
  if (!range.has_value()) return {0, n};
  if (range->begin < 0 || range->begin >= range->end || range->end > n) {
    throw Failure(CudaFault::kError, "a range of columns is empty, or leads out of the matrix");
  }
  return {range->begin, range->end};
}

class OurSolve final : public CudaSolve {
 public:
  OurSolve(Device& device, std::unique_ptr<Solve> solve)
      : device_(device), solve_(std::move(solve)) {}

  Result<double> TrueResidual(int32_t column, bool of_best, bool adopt) override {
    return device_.Make<double>(
        [&](Context&) { return solve_->TrueResidual(column, of_best, adopt); });
  }
  Status Begin(int32_t column, const kernels::CudaSolveStart& start) override {
    return device_.Do([&](Context&) { solve_->Begin(column, start); });
  }
  Result<double> Advance(std::span<const int32_t> limits, const kernels::CudaOnNorms& on_norms,
                         std::span<kernels::CudaSegment> segments) override {
    return device_.Make<double>(
        [&](Context&) { return solve_->Advance(limits.data(), on_norms, segments.data()); });
  }
  Status Restore(int32_t column, bool of_best) override {
    return device_.Do(
        [&](Context&) { of_best ? solve_->UseBest(column) : solve_->UseGuess(column); });
  }
  Status Download(std::span<double* const> x) override {
    return device_.Do([&](Context&) { solve_->Download(x.data()); });
  }

 private:
  Device& device_;
  const std::unique_ptr<Solve> solve_;
};

const Matrix& MatrixOf(const CudaMatrix& matrix);

class OurLayout final : public CudaLayout {
 public:
  OurLayout(Device& device, Operator op) : device_(device), op_(std::move(op)) {}

  Status Update(const CudaMatrix& a) override {
    return device_.Do([&](Context& context) {
      UpdateOperator(context, MatrixOf(a), op_);
      context.Synchronize();
    });
  }
  Status Apply(std::span<const double> x, std::span<double> y) const override {
    return device_.Do([&](Context& context) {
      const int64_t n = SizeOf(op_);
      const Buffer<double> from(context, n), to(context, n);
      from.CopyIn(x.data(), n);
      cuda::Apply(context, op_, from.get(), to.get());
      to.CopyOut(y.data(), n);
      context.Synchronize();
    });
  }
  Result<double> TimeProducts(int products) const override {
    return device_.Make<double>(
        [&](Context& context) { return cuda::TimeProducts(context, op_, products); });
  }
  int64_t BytesPerProduct() const override { return cuda::BytesPerProduct(op_); }

  int MostColumns(const CudaLayout* m, Method method) const override {
    const bool alone = method == Method::kGmres || OnChip(op_, OperatorOf(m)) != nullptr;
    return alone ? 1 : kMostColumns;
  }
  Made<CudaSolve> OpenSolve(const CudaSolveRequest& request) const override {
    return device_.New<CudaSolve>([&](Context& context) {
      const auto columns = static_cast<int>(request.b.size());
      if (columns > MostColumns(request.m, request.method)) {
        throw Failure(CudaFault::kError, "more columns than one solve takes");
      }
      const Factors m{OperatorOf(request.m), OperatorOf(request.then)};
      const RightHandSides rhs{columns, request.b.data(),
                               request.x0.empty() ? nullptr : request.x0.data()};
      return std::make_unique<OurSolve>(device_, MakeSolve(context, request, m, rhs));
    });
  }

 private:
  // Null: null.
  static const Operator* OperatorOf(const CudaLayout* layout) {
    return layout != nullptr ? &static_cast<const OurLayout*>(layout)->op_ : nullptr;
  }
  std::unique_ptr<Solve> MakeSolve(Context& context, const CudaSolveRequest& request,
                                   const Factors& m, const RightHandSides& rhs) const {
    switch (request.method) {
      case Method::kCg:
        return MakeCg(context, op_, m, rhs);
      case Method::kBicgstab:
        return MakeBicgstab(context, op_, m, rhs);
      case Method::kGmres:
        return MakeGmres(context, op_, m, request.restart, rhs);
      case Method::kAuto:
        break;
    }
    throw Failure(CudaFault::kError, "the device has no method AUTO");
  }

  Device& device_;
  Operator op_;
};

// Of a matrix, as MakeOperator takes it.
Made<CudaLayout> LayOutOn(Device& device, const PatternRef& pattern, const double* values,
                          Order order, bool fp32) {
  return device.New<CudaLayout>([&](Context& context) {
    return std::make_unique<OurLayout>(device, MakeOperator(context, pattern, values, order, fp32));
  });
}

class OurPattern final : public CudaPattern {
 public:
  OurPattern(Device& device, std::shared_ptr<const FsaiPattern> pattern)
      : arrays(std::move(pattern)), device_(device) {}

  Status Download(int64_t* ptr, int32_t* idx) const override {
    return device_.Do([&](Context& context) {
      context.Download({arrays->row_ptr.To(ptr, arrays->row_ptr.size()),
                        arrays->col_idx.To(idx, arrays->col_idx.size())});
    });
  }

  const std::shared_ptr<const FsaiPattern> arrays;

 private:
  Device& device_;
};

// Null: null.
const FsaiPattern* ArraysOf(const CudaPattern* pattern) {
  return pattern != nullptr ? static_cast<const OurPattern*>(pattern)->arrays.get() : nullptr;
}

class OurG final : public CudaG {
 public:
  OurG(Device& device, FsaiG g)
      : device_(device),
        pattern_(std::make_shared<const FsaiPattern>(
            FsaiPattern{std::move(g.row_ptr), std::move(g.col_idx)})),
        values_(std::move(g.values)),
        psi_ratio_(std::move(g.psi_ratio)) {}

  Status Download(int64_t* row_ptr, int32_t* col_idx, double* values,
                  double* psi_ratio) const override {
    return device_.Do([&](Context& context) {
      context.Download({pattern_->row_ptr.To(row_ptr, pattern_->row_ptr.size()),
                        pattern_->col_idx.To(col_idx, pattern_->col_idx.size()),
                        values_.To(values, values_.size()),
                        psi_ratio_.To(psi_ratio, psi_ratio_.size())});
    });
  }
  Status DownloadColumns(int64_t* col_ptr, int32_t* row_idx, double* values) const override {
    return device_.Do([&](Context& context) {
      const Matrix columns = Transpose(context, Transposed(), values_.size(), values_.get());
      context.Download({columns.col_ptr.To(col_ptr, columns.col_ptr.size()),
                        columns.row_idx.To(row_idx, columns.row_idx.size()),
                        columns.values.To(values, columns.values.size())});
    });
  }
  void Trim() override { psi_ratio_ = {}; }
  std::unique_ptr<CudaPattern> Pattern() const override {
    return std::make_unique<OurPattern>(device_, pattern_);
  }
  Made<CudaLayout> LayOut(bool transposed, bool fp32) const override {
    // G by rows is Gᵀ by columns.
    return LayOutOn(device_, Transposed(), values_.get(),
                    transposed ? Order::kColumns : Order::kRows, fp32);
  }

 private:
  // Row i of G as column i of Gᵀ.
  PatternRef Transposed() const {
    return {pattern_->row_ptr.size() - 1, pattern_->row_ptr.get(), pattern_->col_idx.get()};
  }

  Device& device_;
  const std::shared_ptr<const FsaiPattern> pattern_;
  Buffer<double> values_, psi_ratio_;
};

class OurSpaiM final : public CudaSpaiM {
 public:
  OurSpaiM(Device& device, const StaticSpaiPlan& plan, StaticSpaiResult result)
      : device_(device),
        plan_(plan),
        own_(plan.own),
        first_entry_(plan.first_entry),
        result_(std::move(result)) {}

  // Leaves small entries out where that can be done here.
  void Compact(Context& context, double post_filter) {
    figures.compacted = post_filter > 0 && plan_.whole() &&
                        CountHostColumns(context, result_) == 0 &&
                        CompactM(context, plan_, post_filter, result_);
    figures.nnz_m = figures.compacted ? result_.values.size() : plan_.entries;
  }

  Status Download(double* values, double* residual_norms, double* pivots,
                  uint8_t* flags) const override {
    return device_.Do([&](Context& context) {
      // Once trimmed it has its values alone.
      const int64_t first = own_.begin, columns = result_.flags.size() > 0 ? own_.end - first : 0;
      context.Download({result_.values.To(values, figures.nnz_m, first_entry_),
                        result_.residual_norms.To(residual_norms, columns, first),
                        result_.pivots.To(pivots, columns, first),
                        result_.flags.To(flags, columns, first)});
    });
  }
  Status DownloadPattern(int64_t* col_ptr, int32_t* row_idx) const override {
    return device_.Do([&](Context& context) {
      context.Download({result_.m_ptr.To(col_ptr, result_.m_ptr.size()),
                        result_.m_idx.To(row_idx, result_.m_idx.size())});
    });
  }
  void Trim() override {
    result_.residual_norms = {};
    result_.pivots = {};
    result_.flags = {};
  }
  Made<CudaLayout> LayOut(bool fp32) const override {
    if (!figures.compacted && !plan_.whole()) {
      return device_.Failed(CudaFault::kError, "some columns of M are no operator");
    }
    const PatternRef pattern =
        figures.compacted
            ? PatternRef{result_.m_ptr.size() - 1, result_.m_ptr.get(), result_.m_idx.get()}
            : plan_.pattern();
    return LayOutOn(device_, pattern, result_.values.get(), Order::kColumns, fp32);
  }

 private:
  Device& device_;
  const StaticSpaiPlan& plan_;
  const ColumnRange own_;
  const int64_t first_entry_;  // in result_.values
  StaticSpaiResult result_;
};

class OurSpaiPlan final : public CudaSpaiPlan {
 public:
  OurSpaiPlan(Device& device, StaticSpaiPlan plan) : device_(device), plan_(std::move(plan)) {
    figures.nnz_m = plan_.m.nnz;
    figures.first_entry = plan_.first_entry;
    figures.entries = plan_.entries;
    figures.groups = plan_.grouped ? plan_.n_groups : plan_.dia.nodes;
    figures.structures = plan_.grouped ? plan_.n_structures : 1;
    figures.host_groups = plan_.class_begin[kOtherClass] - plan_.class_begin[kHostClass];
    figures.device_bytes = plan_.device_bytes();
    figures.table_bytes = plan_.table_bytes;
    figures.in_waves = plan_.in_waves;
    figures.of_a = plan_.m.is_of_a();
  }

  Status DownloadPattern(int64_t* col_ptr, int32_t* row_idx) const override {
    return device_.Do([&](Context& context) {
      const ColumnRange& own = plan_.own;
      const int64_t pointers = own.end - own.begin + (own.end == plan_.n ? 1 : 0);
      const PatternRef m = plan_.pattern();
      context.Download(
          {{col_ptr, m.col_ptr + own.begin, static_cast<size_t>(pointers) * sizeof(int64_t)},
           {row_idx, m.row_idx + plan_.first_entry,
            static_cast<size_t>(plan_.entries) * sizeof(int32_t)}});
    });
  }

  Made<CudaSpaiM> Build(const CudaMatrix& a, const kernels::StaticSpaiOptions& options,
                        const kernels::Context& caller) override {
    return device_.New<CudaSpaiM>([&](Context& context) {
      context.arena->ResetPeak();
      Stopwatch watch(context);
      kernels::CudaBuildFigures figures_of_m;
      auto m = std::make_unique<OurSpaiM>(
          device_, plan_,
          cuda::Build(context, plan_, MatrixOf(a), options, Caller(caller, "build of static SPAI"),
                      figures_of_m));
      m->figures = figures_of_m;
      m->Compact(context, options.post_filter);
      m->figures.ms = watch.Stop();
      m->figures.peak_bytes = context.arena->peak();
      return m;
    });
  }

 private:
  Device& device_;
  StaticSpaiPlan plan_;
};

template <class Real>
CudaGrowth Grow(Device& device, const Matrix& a, const PatternView* initial,
                const kernels::DynamicSpaiOptions& options, const ColumnRange& columns,
                const Caller& caller) {
  Context& context = device.context;
  context.arena->ResetPeak();
  Stopwatch watch(context);
  GramInfo gram;
  auto rows = MakeNormalRows<Real>(context, a, caller, gram);
  watch.Mark();
  kernels::FsaiOptions as_rows;
  as_rows.k_max = options.max_steps;
  as_rows.s = options.per_step;
  as_rows.epsilon = options.tol * options.tol;
  as_rows.repeat_hash_bits = options.repeat_hash_bits;
  const int64_t most = options.max_column_nnz > 0 ? options.max_column_nnz : a.n;
  CudaGrowth growth;
  kernels::CudaGrowthFigures& figures = growth.figures;
  kernels::CudaFsaiFigures grown;
  fsai::ColumnPatterns made =
      fsai::GrowColumns<Real>(context, std::move(rows), initial, as_rows, most, columns.begin,
                              columns.end, caller, grown, figures.host_columns);
  figures.ms = watch.Stop();
  figures.gram_ms = watch.Marked();
  figures.peak_bytes = context.arena->peak();
  figures.log_ratios = std::move(grown.log_ratios);
  figures.nnz = grown.nnz;
  figures.waves = grown.waves;
  kernels::DynamicSpaiQuality& quality = figures.quality;
  quality.converged_columns = grown.quality.converged_rows;
  quality.nnz_column_max = grown.quality.nnz_row_max;
  quality.copied_columns = grown.quality.copied_rows;
  quality.slow_columns = grown.quality.slow_rows;
  quality.dependent_columns = grown.quality.not_spd_rows;
  quality.first_dependent = grown.quality.first_not_spd;
  quality.gram_nnz = gram.nnz;
  quality.flops = grown.quality.flops + gram.flops;
  growth.pattern =
      std::make_unique<OurPattern>(device, std::make_shared<const FsaiPattern>(FsaiPattern{
                                               std::move(made.col_ptr), std::move(made.row_idx)}));
  return growth;
}

class OurMatrix final : public CudaMatrix {
 public:
  OurMatrix(Device& device, Matrix a) : matrix(std::move(a)), device_(device) {}

  Status UploadValues(std::span<const double> values) override {
    return device_.Do(
        [&](Context& context) { cuda::UploadValues(context, values.data(), matrix); });
  }

  Made<CudaSpaiPlan> PlanStaticSpai(const CudaPatternRequest& request,
                                    kernels::LocalSolver local_solver,
                                    std::optional<IndexRange> columns,
                                    const kernels::Context& caller) override {
    return device_.New<CudaSpaiPlan>([&](Context& context) {
      const ColumnRange own = RangeOf(columns, matrix.n);
      context.arena->ResetPeak();
      Stopwatch watch(context);
      DevicePattern pattern =
          PatternOfM(context, request, Caller(caller, "the pattern of the preconditioner"));
      watch.Mark();
      auto plan = std::make_unique<OurSpaiPlan>(
          device_, MakePlan(context, matrix, std::move(pattern),
                            local_solver == kernels::LocalSolver::kQr, own));
      plan->figures.ms = watch.Stop();
      plan->figures.pattern_ms = watch.Marked();
      plan->figures.peak_bytes = context.arena->peak();
      return plan;
    });
  }

  Result<CudaGrowth> GrowDynamicSpai(const PatternView* initial,
                                     const kernels::DynamicSpaiOptions& options,
                                     std::optional<IndexRange> columns,
                                     const kernels::Context& caller) const override {
    return device_.Make<CudaGrowth>([&](Context&) {
      const auto grow = options.fp32_growth ? &Grow<float> : &Grow<double>;
      return grow(device_, matrix, initial, options, RangeOf(columns, matrix.n),
                  Caller(caller, "growth of dynamic SPAI"));
    });
  }

  Result<CudaFsaiBuild> BuildFsai(const CudaFsaiRequest& request,
                                  const kernels::Context& caller) const override {
    return device_.Make<CudaFsaiBuild>([&](Context& context) {
      const ColumnRange rows = RangeOf(request.rows, matrix.n);
      context.arena->ResetPeak();
      Stopwatch watch(context);
      CudaFsaiBuild build;
      kernels::CudaFsaiFigures& figures = build.figures;
      FsaiG g = cuda::BuildFsai(context, matrix, request, ArraysOf(request.there), rows.begin,
                                rows.end, Caller(caller, "build of FSAI"), figures);
      figures.ms = watch.Stop();
      figures.peak_bytes = context.arena->peak();
      figures.nnz = g.values.size();
      if (figures.fault == kernels::CudaFsaiFault::kNone) {
        build.g = std::make_unique<OurG>(device_, std::move(g));
      }
      return build;
    });
  }

  Made<CudaLayout> LayOut(bool symmetric, bool fp32) const override {
    return LayOutOn(device_, matrix.pattern(), matrix.values.get(),
                    symmetric ? Order::kBoth : Order::kColumns, fp32);
  }

  Matrix matrix;

 private:
  DevicePattern PatternOfM(Context& context, const CudaPatternRequest& request,
                           const Caller& caller) const {
    PatternRef there;
    int64_t nnz = 0;
    const FsaiPattern* const own = ArraysOf(request.base_there);
    if (own != nullptr) {
      there = {own->row_ptr.size() - 1, own->row_ptr.get(), own->col_idx.get()};
      nnz = own->col_idx.size();
      const PatternView* const base = request.base;
      if (there.n != matrix.n ||
          (base != nullptr && (there.n != base->n_cols || nnz != base->nnz()))) {
        throw Failure(CudaFault::kError, "a pattern on the device is not the one on the host");
      }
    }
    try {
      return MakePattern(context, matrix, request, own != nullptr ? &there : nullptr, nnz, caller);
    } catch (const PatternTooLarge& too_large) {
      throw Refusal(kernels::PatternTooLarge(too_large.nnz, request.limit));
    }
  }

  Device& device_;
};

const Matrix& MatrixOf(const CudaMatrix& matrix) {
  return static_cast<const OurMatrix&>(matrix).matrix;
}

class OurContext final : public CudaContext {
 public:
  OurContext(const kernels::DeviceInfo& gpu, int64_t memory_limit,
             kernels::CudaOnThreads on_threads, const kernels::CudaVariants& variants)
      : device_(gpu, memory_limit, std::move(on_threads), variants) {}

  int64_t used_bytes() const override { return device_.context.arena->used(); }
  bool lost() const override { return device_.lost; }

  Status Probe() override {
    const auto probe = [this] {
      Context& context = device_.context;
      context.Enter();
      const Buffer<int32_t> word(context, 1);
      word.Fill(1);
      int32_t back = 0;
      word.CopyOut(&back, 1);
      context.Synchronize();
      if (back != 0x01010101) {
        throw Failure(CudaFault::kDeviceLost, "the device returns wrong data");
      }
      return Status();
    };
    return Guard(probe, [this](CudaFault fault, const char* message) {
      const bool answers = fault == CudaFault::kOutOfMemory;
      return answers ? Status() : device_.Failed(CudaFault::kDeviceLost, message);
    });
  }

  Result<double> TimeCopy(int64_t bytes) override {
    return device_.Make<double>([&](Context& context) { return cuda::TimeCopy(context, bytes); });
  }

  Made<CudaMatrix> UploadMatrix(const PatternView& a, std::span<const double> values) override {
    return device_.New<CudaMatrix>([&](Context& context) {
      return std::make_unique<OurMatrix>(
          device_, cuda::UploadMatrix(context, a, values.empty() ? nullptr : values.data()));
    });
  }

  Made<CudaPattern> UploadPattern(const PatternView& rows) override {
    return device_.New<CudaPattern>([&](Context& context) {
      auto there = std::make_shared<const FsaiPattern>(cuda::UploadPattern(context, rows));
      context.Synchronize();
      return std::make_unique<OurPattern>(device_, std::move(there));
    });
  }

  Made<CudaLayout> LayOutDiagonal(std::span<const double> diagonal) override {
    return device_.New<CudaLayout>([&](Context& context) {
      const auto n = static_cast<int64_t>(diagonal.size());
      Buffer<double> own(context, n);
      own.CopyIn(diagonal.data(), n);
      context.Synchronize();
      return std::make_unique<OurLayout>(device_, Diagonal{std::move(own)});
    });
  }

 private:
  Device device_;
};

class OurBackend final : public kernels::CudaBackend {
 public:
  kernels::CudaListing ListDevices() override { return cuda::ListDevices(); }

  Made<CudaContext> OpenContext(const kernels::DeviceInfo& gpu, int64_t memory_limit,
                                kernels::CudaOnThreads on_threads,
                                const kernels::CudaVariants* variants) override {
    const auto open = [&]() -> Made<CudaContext> {
      return std::unique_ptr<CudaContext>(
          std::make_unique<OurContext>(gpu, memory_limit, std::move(on_threads),
                                       variants != nullptr ? *variants : tuning::kVariants));
    };
    return Guard(open, [](CudaFault, const char* message) {
      return Status(kernels::StatusCode::kUnavailable, "DEVICE_UNAVAILABLE", message);
    });
  }
};

}  // namespace
}  // namespace spaid::cuda

extern "C" __attribute__((visibility("default"))) const char* spaid_cuda_backend(
    const char* build_id, spaid::kernels::CudaBackend** backend) {
  static spaid::cuda::OurBackend ours;
  if (std::strcmp(build_id, spaid::kernels::kCudaBuildId) == 0) *backend = &ours;
  return spaid::kernels::kCudaBuildId;
}
