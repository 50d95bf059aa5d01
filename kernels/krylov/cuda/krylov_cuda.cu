#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/cuda/device.h"
#include "kernels/base/reasons.h"
#include "kernels/krylov/cuda/operator_on_device.h"
#include "kernels/krylov/cuda/run.h"
#include "kernels/krylov/krylov_cuda.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_device_estimate.h"
#include "kernels/krylov/solve_each.h"
#include "kernels/sparse/cuda/blocks.h"
#include "kernels/sparse/cuda/symmetry.h"
#include "kernels/sparse/reorder.h"

namespace spaid::kernels {

using cuda::Order;
using Placed = Result<std::shared_ptr<const CudaOperator>>;

namespace {

using cuda::OperatorOnDevice;
using cuda::UnknownOrder;

struct Parts {
  cuda::Operator op;
  std::optional<cuda::Operator> then = {};
  std::optional<UnknownOrder> order = {};  // found for it
};

// The order that an operator takes from the one beside it; null: its own.
std::shared_ptr<const UnknownOrder> OrderOf(const CudaOperator* beside) {
  return beside != nullptr ? cuda::There(*beside).unknowns : nullptr;
}

// Calls make(context, operator), which returns Parts.
template <class Make>
Placed Place(const std::shared_ptr<CudaDevice>& device, int64_t n, const CudaOperator* beside,
             const Make& make) {
  const auto made = std::make_shared<OperatorOnDevice>(device, n);
  made->unknowns = OrderOf(beside);
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& context) {
    const int64_t before = context.arena->used();
    Parts parts = make(context, *made);
    made->SetBytes(context.arena->used() - before);
    made->op = cuda::Keep(device, std::move(parts.op));
    if (parts.then) made->then = cuda::Keep(device, *std::move(parts.then));
    if (parts.order) made->unknowns = cuda::Keep(device, *std::move(parts.order));
  });
  if (!status.ok()) return status;
  return std::shared_ptr<const CudaOperator>(made);
}

// As MakeOperator, with the unknowns in this order; null: their own.
cuda::Operator MakeInOrder(cuda::Context& context, const cuda::PatternRef& pattern,
                           const double* values, Order order, bool fp32,
                           const UnknownOrder* unknowns) {
  if (unknowns == nullptr) return cuda::MakeOperator(context, pattern, values, order, fp32);
  const cuda::Matrix there = cuda::PermuteByRows(
      context, pattern, cuda::CountEntries(context, pattern), values, *unknowns);
  const Order turned = order == Order::kColumns ? Order::kRows
                       : order == Order::kRows  ? Order::kColumns
                                                : Order::kBoth;
  return cuda::MakeOperator(context, there.pattern(), there.values.get(), turned, fp32);
}

// Whether products with A would wait for the elements of x: it has many rows, more entries than
// stay in the second-level cache, and is scattered.
bool IsScattered(const cuda::Context& context, const CscView& a, int threads) {
  return a.n_cols > kFarRows &&
         a.nnz() * cuda::Csr<double>::kEntryBytes > context.variants.rows_bytes &&
         LookAtLocality(a, threads).scattered();
}

Status CheckStop(const Context& context) {
  const StopReason stopped = context.stop.Poll();
  return stopped == StopReason::kNone ? Status()
                                      : StopStatus(stopped, "laying the matrix out on the device");
}

}  // namespace

Placed CudaOperator::OfMatrix(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                              bool fp32, const Context& context, const CudaOperator* beside) {
  if (Status status = CheckStop(context); !status.ok()) return status;
  return Place(device, a.n_cols, beside, [&](cuda::Context& there, OperatorOnDevice& made) {
    const cuda::Matrix matrix = cuda::UploadMatrix(there, a, a.values.data(), context.ahead);
    made.symmetric = cuda::IsExactlySymmetric(there, matrix.pattern(), matrix.values.get());
    std::optional<UnknownOrder> order;
    if (beside == nullptr && IsScattered(there, a, ResolveThreads(context.threads))) {
      const cuda::PatternRef pattern = matrix.pattern();
      order = cuda::FindOrder(there, pattern,
                              cuda::HasWholeBlocks(there, pattern, 3)   ? 3
                              : cuda::HasWholeBlocks(there, pattern, 2) ? 2
                                                                        : 1);
    }
    cuda::Operator op = MakeInOrder(there, matrix.pattern(), matrix.values.get(),
                                    made.symmetric ? Order::kBoth : Order::kColumns, fp32,
                                    order ? &*order : made.unknowns.get());
    return Parts{std::move(op), {}, std::move(order)};
  });
}

Placed CudaOperator::OfFactors(const std::shared_ptr<CudaDevice>& device, const CscView& g,
                               const CscView& g_transposed, bool fp32, const Context& context,
                               const CudaOperator* beside) {
  // Beside nothing the two would be in orders of their own.
  const OperatorOnDevice own_order(device, g.n_cols);
  if (beside == nullptr) beside = &own_order;
  const auto first = OfMatrix(device, g, fp32, context, beside);
  if (!first.ok()) return first.status();
  const auto then = OfMatrix(device, g_transposed, fp32, context, beside);
  if (!then.ok()) return then.status();
  const auto made = std::make_shared<OperatorOnDevice>(device, g.n_cols);
  made->SetBytes((*first)->device_bytes_ + (*then)->device_bytes_);
  made->op = cuda::There(**first).op;
  made->then = cuda::There(**then).op;
  made->unknowns = OrderOf(beside);
  return std::shared_ptr<const CudaOperator>(made);
}

Placed CudaOperator::WithValues(const std::shared_ptr<const CudaOperator>& old, const CscView& a,
                                const Context& context) {
  if (Status status = CheckStop(context); !status.ok()) return status;
  const std::shared_ptr<CudaDevice>& device = old->device_;
  const OperatorOnDevice& there = cuda::There(*old);
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& on) {
    cuda::Matrix matrix = cuda::UploadMatrix(on, a, a.values.data(), context.ahead);
    if (there.symmetric && !cuda::IsExactlySymmetric(on, matrix.pattern(), matrix.values.get())) {
      throw cuda::Failure(CudaFault::kPlanMismatch,
                          "the operator's columns are its rows, those of the matrix are not");
    }
    if (there.unknowns != nullptr) {
      if (matrix.n != there.n()) {
        throw cuda::Failure(CudaFault::kPlanMismatch, "the matrix has not the operator's pattern");
      }
      matrix = cuda::PermuteByRows(on, matrix.pattern(), matrix.nnz, matrix.values.get(),
                                   *there.unknowns);
      if (!there.symmetric) {
        matrix = cuda::Transpose(on, matrix.pattern(), matrix.nnz, matrix.values.get());
      }
    }
    cuda::UpdateOperator(on, matrix, *there.op);
    on.Synchronize();
  });
  if (!status.ok()) return status;
  return std::shared_ptr<const CudaOperator>(std::make_shared<OperatorOnDevice>(there));
}

Placed CudaOperator::OfBuilt(const BuiltOnDevice& built, bool fp32, const CudaOperator* beside) {
  return Place(built.device, built.n, beside, [&](cuda::Context& context, OperatorOnDevice& made) {
    const auto make = [&](Order order) {
      return MakeInOrder(context, {built.n, built.col_ptr, built.row_idx}, built.values, order,
                         fp32, made.unknowns.get());
    };
    if (!built.factor) return Parts{make(Order::kColumns)};
    // G by rows is Gᵀ by columns.
    Parts parts{make(Order::kRows)};
    parts.then = make(Order::kColumns);
    return parts;
  });
}

Placed CudaOperator::OfDiagonal(const std::shared_ptr<CudaDevice>& device,
                                std::span<const double> diagonal, const CudaOperator* beside) {
  const auto n = static_cast<int64_t>(diagonal.size());
  return Place(device, n, beside, [&](cuda::Context& context, OperatorOnDevice& made) {
    cuda::Buffer<double> own(context, n);
    own.CopyIn(diagonal.data(), n);
    if (made.unknowns != nullptr) {
      cuda::Buffer<double> carried(context, n);
      cuda::Carry(context, *made.unknowns, own.get(), carried.get());
      own = std::move(carried);
    }
    context.Synchronize();
    return Parts{cuda::Diagonal{std::move(own)}};
  });
}

int32_t MostColumns(const CudaOperator& a, const CudaOperator* m, Method method) {
  const cuda::Operator* const with = m != nullptr ? cuda::There(*m).op.get() : nullptr;
  const bool alone =
      method == Method::kGmres || cuda::SmemLayout(*cuda::There(a).op, with) != nullptr;
  return alone ? 1 : kMostCudaColumns;
}

Result<SolveResult> SolveCuda(const CudaOperator& a, const CudaOperator* m,
                              const CscView& a_on_host, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, SolveCudaTimings* timings) {
  if (const std::string_view why = HostAlone(options); !why.empty()) {
    return Status(StatusCode::kInvalidArgument, "HOST_ALONE",
                  std::string(why) + ", and not by a CUDA device")
        .At("method");
  }
  if (m != nullptr && m->order() != a.order()) {
    return a.device()->Failed(CudaFault::kPlanMismatch,
                              "the preconditioner is not in the order of the matrix's unknowns");
  }
  SolveCudaTimings own;
  if (timings == nullptr) timings = &own;
  auto lock = a.device()->Lock();
  krylov::Team team(a.n(), ResolveThreads(context.threads));
  const auto usable = static_cast<double>(a.device()->memory_limit());
  // Right-hand sides a block: as many as a solve takes, and as memory has proved to suffice for.
  int32_t most = MostColumns(a, m, options.method);
  auto result = krylov::SolveEach(
      ColumnOperator(a_on_host), m != nullptr ? m->n() : a.n(), b, x0, options, context, &team,
      kMostCudaColumns, [&](std::span<const krylov::Task> tasks) {
        if (Status s = krylov::CheckBasis(a.n(), options, usable); !s.ok()) return s;
        while (!tasks.empty()) {
          const auto left = static_cast<int64_t>(tasks.size());
          const int32_t columns = std::min(CudaColumnsFor(options.method, left), most);
          const auto block = tasks.first(static_cast<size_t>(columns));
          krylov::CudaRun run(a, m, block, &lock, timings);
          Status status = run.Open();
          if (status.reason() == reason::kDeviceOutOfMemory && columns > 1) {
            most = columns / 2;
            continue;
          }
          if (status.ok()) status = run.Conduct();
          if (!status.ok()) return status;
          tasks = tasks.subspan(block.size());
        }
        return Status();
      });
  if (!result.ok()) return result;
  SolveFigures& figures = result->figures;
  figures.host_to_device_ms = timings->host_to_device_ms;
  figures.iterate_ms = timings->iterate_ms;
  figures.check_ms = timings->check_ms;
  figures.device_to_host_ms = timings->device_to_host_ms;
  figures.bytes = timings->bytes;
  for (const RhsResult& rhs : result->rhs) figures.iterations += rhs.iterations;
  return result;
}

}  // namespace spaid::kernels

namespace spaid::cuda {

kernels::Result<std::shared_ptr<const kernels::CudaOperator>> PlaceApplied(
    const std::shared_ptr<kernels::CudaDevice>& device, int64_t n,
    const kernels::CudaOperator* beside, const MakeApplied& make) {
  return kernels::Place(device, n, beside, [&](Context& context, OperatorOnDevice& made) {
    return kernels::Parts{make(context, made.unknowns.get())};
  });
}

}  // namespace spaid::cuda
