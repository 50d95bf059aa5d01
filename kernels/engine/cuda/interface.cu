// The C interface of libspaid_cuda.so: the only place that catches the library's Failure.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "kernels/base/cuda/context.h"
#include "kernels/base/cuda/devices.h"
#include "kernels/base/cuda/variants_tuning.h"
#include "kernels/dynamic_spai/cuda/normal_rows.h"
#include "kernels/fsai/cuda/fsai.h"
#include "kernels/fsai/cuda/grow_columns.h"
#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/solve.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/pattern.h"
#include "kernels/sparse/cuda/transpose.h"
#include "kernels/static_spai/cuda/build.h"
#include "kernels/static_spai/cuda/plan.h"
#include "kernels/static_spai/cuda/post_filter.h"
#include "kernels/static_spai/local_solver.h"

using spaid::cuda::Check;
using spaid::cuda::Context;
using spaid::cuda::Failure;
using spaid::cuda::Order;
using spaid::cuda::Stopwatch;

struct SpaidCudaContext {
  Context context;
};
struct SpaidCudaMatrix {
  Context& context;
  spaid::cuda::Matrix matrix;
};
struct SpaidCudaPlan {
  Context& context;
  spaid::cuda::StaticSpaiPlan plan;
};
struct SpaidCudaSolve {
  std::unique_ptr<spaid::cuda::Solve> solve;
};
struct SpaidCudaM {
  Context& context;
  const spaid::cuda::StaticSpaiPlan& plan;
  spaid::cuda::StaticSpaiResult result;
  spaid::cuda::ColumnRange own;          // the plan's
  int64_t first_entry = 0, entries = 0;  // of result.values, in those columns
};
// By rows of G, or columns of M.
struct SpaidCudaPattern {
  Context& context;
  std::shared_ptr<const spaid::cuda::FsaiPattern> pattern;
};
struct SpaidCudaG {
  Context& context;
  std::shared_ptr<const spaid::cuda::FsaiPattern> pattern;
  spaid::cuda::Buffer<double> values, psi_ratio;

  // Row i of G as column i of Gᵀ.
  spaid::cuda::PatternRef transposed() const {
    return {pattern->row_ptr.size() - 1, pattern->row_ptr.get(), pattern->col_idx.get()};
  }
};
struct SpaidCudaOperator {
  Context& context;
  spaid::cuda::Operator op;
};

namespace {

template <class Work>
int32_t Guard(char* message, size_t size, const Work& work) {
  const auto say = [&](const char* text) {
    if (message != nullptr && size > 0) std::snprintf(message, size, "%s", text);
  };
  try {
    work();
    return kSpaidCudaOk;
  } catch (const Failure& failure) {
    say(failure.what());
    return failure.result();
  } catch (const std::bad_alloc&) {
    say("out of host memory");
    return kSpaidCudaOutOfMemory;
  }
}

// All of n, unless there is a range.
SpaidCudaRange RangeOf(const SpaidCudaRange* range, int64_t n) {
  if (range == nullptr) return {0, n};
  if (range->begin < 0 || range->begin >= range->end || range->end > n) {
    throw Failure(kSpaidCudaError, "a range of columns is empty, or leads out of the matrix");
  }
  return *range;
}

int32_t OpenContext(int32_t ordinal, int64_t memory_limit, SpaidCudaOnThreads on_threads,
                    const SpaidCudaVariants* variants, SpaidCudaContext** context, char* message,
                    size_t size) {
  return Guard(message, size, [&] {
    *context = new SpaidCudaContext{
        Context(ordinal, memory_limit, on_threads,
                variants != nullptr ? *variants : spaid::cuda::tuning::kVariants)};
  });
}

void CloseContext(SpaidCudaContext* context) { delete context; }

int64_t UsedBytes(const SpaidCudaContext* context) { return context->context.arena->used(); }

int32_t Probe(SpaidCudaContext* context, char* message, size_t size) {
  return Guard(message, size, [&] {
    context->context.Enter();
    const spaid::cuda::Buffer<int32_t> word(context->context, 1);
    word.Fill(1);
    int32_t back = 0;
    word.CopyOut(&back, 1);
    context->context.Synchronize();
    if (back != 0x01010101) throw Failure(kSpaidCudaDeviceLost, "the device returns wrong data");
  });
}

int32_t TimeCopy(SpaidCudaContext* context, int64_t bytes, double* ms_median, char* message,
                 size_t size) {
  return Guard(message, size, [&] {
    context->context.Enter();
    *ms_median = spaid::cuda::TimeCopy(context->context, bytes);
  });
}

int32_t UploadMatrix(SpaidCudaContext* context, const SpaidCudaCsc* csc, SpaidCudaMatrix** matrix,
                     char* message, size_t size) {
  return Guard(message, size, [&] {
    context->context.Enter();
    *matrix =
        new SpaidCudaMatrix{context->context, spaid::cuda::UploadMatrix(context->context, *csc)};
  });
}

int32_t UploadValues(SpaidCudaMatrix* matrix, const double* values, char* message, size_t size) {
  return Guard(message, size, [&] {
    matrix->context.Enter();
    spaid::cuda::UploadValues(matrix->context, values, matrix->matrix);
  });
}

void FreeMatrix(SpaidCudaMatrix* matrix) { delete matrix; }

int32_t Plan(SpaidCudaMatrix* matrix, const SpaidCudaCsc* base, const SpaidCudaPattern* base_there,
             const SpaidCudaPatternOptions* options, int32_t local_solver,
             const SpaidCudaRange* columns, SpaidCudaPlan** plan, SpaidCudaPlanInfo* info,
             char* message, size_t size) {
  return Guard(message, size, [&] {
    Context& context = matrix->context;
    const SpaidCudaRange own_columns = RangeOf(columns, matrix->matrix.n);
    context.Enter();
    context.arena->ResetPeak();
    Stopwatch watch(context);
    const auto make_pattern = [&] {
      try {
        if (base_there == nullptr) {
          return spaid::cuda::MakePattern(context, matrix->matrix, base, nullptr, *options);
        }
        const spaid::cuda::FsaiPattern& own = *base_there->pattern;
        const spaid::cuda::PatternRef there{base->n, own.row_ptr.get(), own.col_idx.get()};
        if (own.row_ptr.size() != base->n + 1 || own.col_idx.size() != base->nnz) {
          throw Failure(kSpaidCudaError, "a pattern on the device is not the one on the host");
        }
        return spaid::cuda::MakePattern(context, matrix->matrix, base, &there, *options);
      } catch (const spaid::cuda::PatternTooLarge& too_large) {
        info->nnz_m = too_large.nnz;
        throw;
      }
    };
    spaid::cuda::DevicePattern pattern = make_pattern();
    watch.Mark();
    const bool by_qr = local_solver == static_cast<int32_t>(spaid::kernels::LocalSolver::kQr);
    auto made = std::make_unique<SpaidCudaPlan>(
        SpaidCudaPlan{context, spaid::cuda::MakePlan(context, matrix->matrix, std::move(pattern),
                                                     by_qr, {own_columns.begin, own_columns.end})});
    info->ms = watch.Stop();
    info->pattern_ms = watch.Marked();
    const spaid::cuda::StaticSpaiPlan& own = made->plan;
    info->nnz_m = own.m.nnz;
    info->first_entry = own.first_entry;
    info->entries = own.entries;
    info->groups = own.grouped ? own.n_groups : own.dia.nodes;
    info->structures = own.grouped ? own.n_structures : 1;
    info->host_groups =
        own.class_begin[spaid::cuda::kOtherClass] - own.class_begin[spaid::cuda::kHostClass];
    info->device_bytes = own.device_bytes();
    info->peak_bytes = context.arena->peak();
    info->table_bytes = own.table_bytes;
    info->in_waves = own.in_waves ? 1 : 0;
    info->of_a = own.m.is_of_a() ? 1 : 0;
    *plan = made.release();
  });
}

void FreePlan(SpaidCudaPlan* plan) { delete plan; }

template <class Real>
spaid::cuda::fsai::ColumnPatterns GrowColumns(Context& context, const spaid::cuda::Matrix& a,
                                              const SpaidCudaCsc* initial,
                                              const SpaidCudaDynamicOptions& options,
                                              const SpaidCudaRange& columns, Stopwatch& watch,
                                              SpaidCudaDynamicInfo& info) {
  spaid::cuda::GramInfo gram;
  const auto make = [&] {
    try {
      return spaid::cuda::MakeNormalRows<Real>(context, a, options, gram);
    } catch (const Failure&) {
      info.gram_nnz = gram.nnz;
      throw;
    }
  };
  auto rows = make();
  watch.Mark();
  auto grown = spaid::cuda::fsai::GrowColumns<Real>(context, std::move(rows), initial, options,
                                                    columns.begin, columns.end, info);
  info.gram_nnz = gram.nnz;
  info.flops += gram.flops;
  return grown;
}

int32_t GrowDynamicSpai(const SpaidCudaMatrix* matrix, const SpaidCudaCsc* initial,
                        const SpaidCudaDynamicOptions* options, const SpaidCudaRange* columns,
                        SpaidCudaPattern** grown, SpaidCudaDynamicInfo* info, char* message,
                        size_t size) {
  return Guard(message, size, [&] {
    Context& context = matrix->context;
    context.Enter();
    *info = {};
    const SpaidCudaRange own = RangeOf(columns, matrix->matrix.n);
    context.arena->ResetPeak();
    Stopwatch watch(context);
    const auto grow = options->fp32 != 0 ? &GrowColumns<float> : &GrowColumns<double>;
    auto made = grow(context, matrix->matrix, initial, *options, own, watch, *info);
    info->ms = watch.Stop();
    info->gram_ms = watch.Marked();
    info->peak_bytes = context.arena->peak();
    *grown = new SpaidCudaPattern{
        context, std::make_shared<const spaid::cuda::FsaiPattern>(
                     spaid::cuda::FsaiPattern{std::move(made.col_ptr), std::move(made.row_idx)})};
  });
}

int32_t DownloadGrown(const SpaidCudaPattern* grown, int64_t* col_ptr, int32_t* row_idx,
                      char* message, size_t size) {
  return Guard(message, size, [&] {
    grown->context.Enter();
    const spaid::cuda::FsaiPattern& own = *grown->pattern;
    grown->context.Download(
        {own.row_ptr.To(col_ptr, own.row_ptr.size()), own.col_idx.To(row_idx, own.col_idx.size())});
  });
}

int32_t DownloadPattern(const SpaidCudaPlan* plan, int64_t* col_ptr, int32_t* row_idx,
                        char* message, size_t size) {
  return Guard(message, size, [&] {
    plan->context.Enter();
    const spaid::cuda::StaticSpaiPlan& own = plan->plan;
    const int64_t pointers = own.own.end - own.own.begin + (own.own.end == own.n ? 1 : 0);
    const spaid::cuda::PatternRef m = own.pattern();
    plan->context.Download(
        {{col_ptr, m.col_ptr + own.own.begin, static_cast<size_t>(pointers) * sizeof(int64_t)},
         {row_idx, m.row_idx + own.first_entry,
          static_cast<size_t>(own.entries) * sizeof(int32_t)}});
  });
}

int32_t Build(SpaidCudaPlan* plan, const SpaidCudaMatrix* matrix,
              const SpaidCudaBuildOptions* options, SpaidCudaM** m, SpaidCudaBuildInfo* info,
              char* message, size_t size) {
  return Guard(message, size, [&] {
    Context& context = plan->context;
    context.Enter();
    context.arena->ResetPeak();
    *info = {};
    Stopwatch watch(context);
    auto made = std::make_unique<SpaidCudaM>(
        SpaidCudaM{context,
                   plan->plan,
                   spaid::cuda::Build(context, plan->plan, matrix->matrix, *options, *info),
                   {}});
    spaid::cuda::StaticSpaiResult& result = made->result;
    const bool compacted = options->post_filter > 0 && plan->plan.whole() &&
                           spaid::cuda::CountHostColumns(context, result) == 0 &&
                           spaid::cuda::CompactM(context, plan->plan, options->post_filter, result);
    info->compacted = compacted ? 1 : 0;
    made->own = plan->plan.own;
    made->first_entry = plan->plan.first_entry;
    made->entries = compacted ? result.values.size() : plan->plan.entries;
    info->nnz_m = made->entries;
    info->ms = watch.Stop();
    info->peak_bytes = context.arena->peak();
    *m = made.release();
  });
}

void FreeM(SpaidCudaM* m) { delete m; }

int32_t DownloadMPattern(const SpaidCudaM* m, int64_t* col_ptr, int32_t* row_idx, char* message,
                         size_t size) {
  return Guard(message, size, [&] {
    m->context.Enter();
    const spaid::cuda::StaticSpaiResult& result = m->result;
    m->context.Download({result.m_ptr.To(col_ptr, result.m_ptr.size()),
                         result.m_idx.To(row_idx, result.m_idx.size())});
  });
}

int32_t DownloadM(const SpaidCudaM* m, double* values, double* residual_norms, double* pivots,
                  uint8_t* flags, char* message, size_t size) {
  return Guard(message, size, [&] {
    m->context.Enter();
    const spaid::cuda::StaticSpaiResult& result = m->result;
    // Once trimmed it has its values alone.
    const int64_t first = m->own.begin, columns = result.flags.size() > 0 ? m->own.end - first : 0;
    m->context.Download({result.values.To(values, m->entries, m->first_entry),
                         result.residual_norms.To(residual_norms, columns, first),
                         result.pivots.To(pivots, columns, first),
                         result.flags.To(flags, columns, first)});
  });
}

void TrimM(SpaidCudaM* m) {
  m->result.residual_norms = {};
  m->result.pivots = {};
  m->result.flags = {};
}

int32_t UploadPattern(SpaidCudaContext* context, const SpaidCudaCsc* pattern,
                      SpaidCudaPattern** there, char* message, size_t size) {
  return Guard(message, size, [&] {
    context->context.Enter();
    *there = new SpaidCudaPattern{context->context,
                                  std::make_shared<const spaid::cuda::FsaiPattern>(
                                      spaid::cuda::UploadPattern(context->context, *pattern))};
    context->context.Synchronize();
  });
}

SpaidCudaPattern* PatternOfG(const SpaidCudaG* g) {
  return new SpaidCudaPattern{g->context, g->pattern};
}

void FreePattern(SpaidCudaPattern* there) { delete there; }

int32_t BuildFsai(const SpaidCudaMatrix* matrix, const SpaidCudaCsc* pattern,
                  const SpaidCudaPattern* there, const SpaidCudaFsaiOptions* options,
                  const SpaidCudaRange* rows, SpaidCudaG** g, SpaidCudaFsaiInfo* info,
                  char* message, size_t size) {
  return Guard(message, size, [&] {
    Context& context = matrix->context;
    context.Enter();
    const SpaidCudaRange own_rows = RangeOf(rows, matrix->matrix.n);
    context.arena->ResetPeak();
    Stopwatch watch(context);
    spaid::cuda::FsaiG made = spaid::cuda::BuildFsai(
        context, matrix->matrix, pattern, there != nullptr ? there->pattern.get() : nullptr,
        *options, own_rows.begin, own_rows.end, *info);
    info->ms = watch.Stop();
    info->peak_bytes = context.arena->peak();
    info->nnz = made.values.size();
    if (info->fault != kSpaidCudaFsaiNoFault) return;
    *g = new SpaidCudaG{context,
                        std::make_shared<const spaid::cuda::FsaiPattern>(spaid::cuda::FsaiPattern{
                            std::move(made.row_ptr), std::move(made.col_idx)}),
                        std::move(made.values), std::move(made.psi_ratio)};
  });
}

void FreeG(SpaidCudaG* g) { delete g; }

int32_t DownloadG(const SpaidCudaG* g, int64_t* row_ptr, int32_t* col_idx, double* values,
                  double* psi_ratio, char* message, size_t size) {
  return Guard(message, size, [&] {
    g->context.Enter();
    const spaid::cuda::FsaiPattern& pattern = *g->pattern;
    g->context.Download({pattern.row_ptr.To(row_ptr, pattern.row_ptr.size()),
                         pattern.col_idx.To(col_idx, pattern.col_idx.size()),
                         g->values.To(values, g->values.size()),
                         g->psi_ratio.To(psi_ratio, g->psi_ratio.size())});
  });
}

int32_t DownloadGColumns(const SpaidCudaG* g, int64_t* col_ptr, int32_t* row_idx, double* values,
                         char* message, size_t size) {
  return Guard(message, size, [&] {
    g->context.Enter();
    const spaid::cuda::Matrix columns =
        spaid::cuda::Transpose(g->context, g->transposed(), g->values.size(), g->values.get());
    g->context.Download({columns.col_ptr.To(col_ptr, columns.col_ptr.size()),
                         columns.row_idx.To(row_idx, columns.row_idx.size()),
                         columns.values.To(values, columns.values.size())});
  });
}

void TrimG(SpaidCudaG* g) { g->psi_ratio = {}; }

int32_t OperatorOfG(const SpaidCudaG* g, int32_t transposed, int32_t fp32, SpaidCudaOperator** op,
                    char* message, size_t size) {
  return Guard(message, size, [&] {
    Context& context = g->context;
    context.Enter();
    // G by rows is Gᵀ by columns.
    const Order order = transposed == 0 ? Order::kRows : Order::kColumns;
    *op = new SpaidCudaOperator{
        context,
        spaid::cuda::MakeOperator(context, g->transposed(), g->values.get(), order, fp32 != 0)};
  });
}

int32_t OperatorOfMatrix(const SpaidCudaMatrix* matrix, int32_t symmetric, int32_t fp32,
                         SpaidCudaOperator** op, char* message, size_t size) {
  return Guard(message, size, [&] {
    matrix->context.Enter();
    const spaid::cuda::Matrix& a = matrix->matrix;
    const Order order = symmetric != 0 ? Order::kBoth : Order::kColumns;
    *op = new SpaidCudaOperator{
        matrix->context,
        spaid::cuda::MakeOperator(matrix->context, a.pattern(), a.values.get(), order, fp32 != 0)};
  });
}

int32_t OperatorOfM(const SpaidCudaM* m, int32_t fp32, SpaidCudaOperator** op, char* message,
                    size_t size) {
  return Guard(message, size, [&] {
    m->context.Enter();
    const spaid::cuda::StaticSpaiResult& result = m->result;
    if (result.m_ptr.size() == 0 && !m->plan.whole()) {
      throw Failure(kSpaidCudaError, "some columns of M are no operator");
    }
    // Its own pattern, after compaction.
    const spaid::cuda::PatternRef pattern =
        result.m_ptr.size() > 0 ? spaid::cuda::PatternRef{result.m_ptr.size() - 1,
                                                          result.m_ptr.get(), result.m_idx.get()}
                                : m->plan.pattern();
    *op = new SpaidCudaOperator{m->context,
                                spaid::cuda::MakeOperator(m->context, pattern, result.values.get(),
                                                          Order::kColumns, fp32 != 0)};
  });
}

int32_t OperatorOfDiagonal(SpaidCudaContext* context, int64_t n, const double* diagonal,
                           SpaidCudaOperator** op, char* message, size_t size) {
  return Guard(message, size, [&] {
    context->context.Enter();
    spaid::cuda::Buffer<double> own(context->context, n);
    own.CopyIn(diagonal, n);
    context->context.Synchronize();
    *op = new SpaidCudaOperator{context->context, spaid::cuda::Diagonal{std::move(own)}};
  });
}

void FreeOperator(SpaidCudaOperator* op) { delete op; }

int32_t UpdateOperator(SpaidCudaOperator* op, const SpaidCudaMatrix* matrix, char* message,
                       size_t size) {
  return Guard(message, size, [&] {
    op->context.Enter();
    spaid::cuda::UpdateOperator(op->context, matrix->matrix, op->op);
    op->context.Synchronize();
  });
}

int32_t ApplyOperator(const SpaidCudaOperator* op, const double* x, double* y, char* message,
                      size_t size) {
  return Guard(message, size, [&] {
    Context& context = op->context;
    context.Enter();
    const int64_t n = spaid::cuda::SizeOf(op->op);
    const spaid::cuda::Buffer<double> from(context, n), to(context, n);
    from.CopyIn(x, n);
    spaid::cuda::Apply(context, op->op, from.get(), to.get());
    to.CopyOut(y, n);
    context.Synchronize();
  });
}

int32_t TimeOperator(const SpaidCudaOperator* op, int32_t products, double* ms_median,
                     int64_t* bytes_per_product, char* message, size_t size) {
  return Guard(message, size, [&] {
    op->context.Enter();
    *ms_median = spaid::cuda::TimeProducts(op->context, op->op, products);
    *bytes_per_product = spaid::cuda::BytesPerProduct(op->op);
  });
}

int32_t MostColumns(const SpaidCudaOperator* a, const SpaidCudaOperator* m, int32_t method) {
  constexpr int32_t kGmres = 3;
  const spaid::cuda::Operator* const with = m != nullptr ? &m->op : nullptr;
  const bool alone = method == kGmres || spaid::cuda::SmemLayout(a->op, with) != nullptr;
  return alone ? 1 : kSpaidCudaMostColumns;
}

int32_t OpenSolve(const SpaidCudaOperator* a, const SpaidCudaOperator* m,
                  const SpaidCudaOperator* then, int32_t method, int32_t restart, int32_t columns,
                  const double* const* b, const double* const* x0, SpaidCudaSolve** solve,
                  char* message, size_t size) {
  return Guard(message, size, [&] {
    a->context.Enter();
    if (columns > MostColumns(a, m, method)) {
      throw Failure(kSpaidCudaError, "more columns than one solve takes");
    }
    const spaid::cuda::Factors with{m != nullptr ? &m->op : nullptr,
                                    then != nullptr ? &then->op : nullptr};
    const spaid::cuda::RightHandSides rhs{columns, b, x0};
    std::unique_ptr<spaid::cuda::Solve> made;
    switch (method) {
      case 1:
        made = spaid::cuda::MakeCg(a->context, a->op, with, rhs);
        break;
      case 2:
        made = spaid::cuda::MakeBicgstab(a->context, a->op, with, rhs);
        break;
      case 3:
        made = spaid::cuda::MakeGmres(a->context, a->op, with, restart, rhs);
        break;
      default:
        throw Failure(kSpaidCudaError, "the device has no method " + std::to_string(method));
    }
    *solve = new SpaidCudaSolve{std::move(made)};
  });
}

void FreeSolve(SpaidCudaSolve* solve) { delete solve; }

int32_t TrueResidual(SpaidCudaSolve* solve, int32_t column, int32_t of_best, int32_t adopt,
                     double* norm, char* message, size_t size) {
  return Guard(message, size, [&] {
    solve->solve->context().Enter();
    *norm = solve->solve->TrueResidual(column, of_best != 0, adopt != 0);
  });
}

int32_t BeginSolve(SpaidCudaSolve* solve, int32_t column, const SpaidCudaSolveStart* start,
                   char* message, size_t size) {
  return Guard(message, size, [&] {
    solve->solve->context().Enter();
    solve->solve->Begin(column, *start);
  });
}

int32_t AdvanceSolve(SpaidCudaSolve* solve, const int32_t* limits,
                     const SpaidCudaSolveOptions* options, SpaidCudaSolveInfo* infos, double* ms,
                     char* message, size_t size) {
  return Guard(message, size, [&] {
    solve->solve->context().Enter();
    *ms = solve->solve->Advance(limits, *options, infos);
  });
}

int32_t RestoreSolve(SpaidCudaSolve* solve, int32_t column, int32_t of_best, char* message,
                     size_t size) {
  return Guard(message, size, [&] {
    solve->solve->context().Enter();
    if (of_best != 0) {
      solve->solve->UseBest(column);
    } else {
      solve->solve->UseGuess(column);
    }
  });
}

int32_t DownloadX(SpaidCudaSolve* solve, double* const* x, char* message, size_t size) {
  return Guard(message, size, [&] {
    solve->solve->context().Enter();
    solve->solve->Download(x);
  });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const SpaidCudaInterface* spaid_cuda_interface() {
  static const SpaidCudaInterface interface = {
      kSpaidCudaAbiVersion,
      sizeof(SpaidCudaInterface),
      &spaid::cuda::ListDevices,
      &OpenContext,
      &CloseContext,
      &UsedBytes,
      &Probe,
      &TimeCopy,
      &UploadMatrix,
      &UploadValues,
      &FreeMatrix,
      &GrowDynamicSpai,
      &DownloadGrown,
      &Plan,
      &FreePlan,
      &DownloadPattern,
      &Build,
      &FreeM,
      &DownloadMPattern,
      &DownloadM,
      &TrimM,
      &UploadPattern,
      &PatternOfG,
      &FreePattern,
      &BuildFsai,
      &FreeG,
      &DownloadG,
      &DownloadGColumns,
      &TrimG,
      &OperatorOfMatrix,
      &OperatorOfM,
      &OperatorOfG,
      &OperatorOfDiagonal,
      &FreeOperator,
      &UpdateOperator,
      &ApplyOperator,
      &TimeOperator,
      &MostColumns,
      &OpenSolve,
      &FreeSolve,
      &TrueResidual,
      &BeginSolve,
      &AdvanceSolve,
      &RestoreSolve,
      &DownloadX,
  };
  return &interface;
}
