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

namespace spaid::kernels {

using cuda::Order;
using Placed = Result<std::shared_ptr<const CudaOperator>>;

namespace {

struct Parts {
  cuda::Operator op;
  std::optional<cuda::Operator> then = {};
};

// Calls make(context), which returns Parts.
template <class Make>
Placed Place(const std::shared_ptr<CudaDevice>& device, int64_t n, bool symmetric,
             const Make& make) {
  const auto made = std::make_shared<cuda::OperatorOnDevice>(device, n);
  made->symmetric = symmetric;
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& context) {
    const int64_t before = context.arena->used();
    Parts parts = make(context);
    made->SetBytes(context.arena->used() - before);
    made->op = cuda::Keep(device, std::move(parts.op));
    if (parts.then) made->then = cuda::Keep(device, *std::move(parts.then));
  });
  if (!status.ok()) return status;
  return std::shared_ptr<const CudaOperator>(made);
}

}  // namespace

Placed CudaOperator::OfMatrix(const std::shared_ptr<CudaDevice>& device, const CscView& a,
                              bool fp32, const Context& context) {
  const Result<bool> symmetric = IsExactlySymmetric(a, context);
  if (!symmetric.ok()) return symmetric.status();
  return Place(device, a.n_cols, *symmetric, [&](cuda::Context& there) -> Parts {
    const cuda::Matrix matrix = cuda::UploadMatrix(there, a, a.values.data(), context.ahead);
    return {cuda::MakeOperator(there, matrix.pattern(), matrix.values.get(),
                               *symmetric ? Order::kBoth : Order::kColumns, fp32)};
  });
}

Placed CudaOperator::OfFactors(const std::shared_ptr<CudaDevice>& device, const CscView& g,
                               const CscView& g_transposed, bool fp32, const Context& context) {
  const auto first = OfMatrix(device, g, fp32, context);
  if (!first.ok()) return first.status();
  const auto then = OfMatrix(device, g_transposed, fp32, context);
  if (!then.ok()) return then.status();
  const auto made = std::make_shared<cuda::OperatorOnDevice>(device, g.n_cols);
  made->SetBytes((*first)->device_bytes_ + (*then)->device_bytes_);
  made->op = cuda::There(**first).op;
  made->then = cuda::There(**then).op;
  return std::shared_ptr<const CudaOperator>(made);
}

Placed CudaOperator::WithValues(const std::shared_ptr<const CudaOperator>& old, const CscView& a,
                                const Context& context) {
  const std::shared_ptr<CudaDevice>& device = old->device_;
  const cuda::OperatorOnDevice& there = cuda::There(*old);
  if (there.symmetric) {
    const Result<bool> symmetric = IsExactlySymmetric(a, context);
    if (!symmetric.ok()) return symmetric.status();
    if (!*symmetric) {
      return device->Failed(CudaFault::kPlanMismatch,
                            "the operator's columns are its rows, those of the matrix are not");
    }
  }
  const auto lock = device->Lock();
  const Status status = cuda::Guard(*device, [&](cuda::Context& on) {
    cuda::UpdateOperator(on, cuda::UploadMatrix(on, a, a.values.data(), context.ahead), *there.op);
    on.Synchronize();
  });
  if (!status.ok()) return status;
  return std::shared_ptr<const CudaOperator>(std::make_shared<cuda::OperatorOnDevice>(there));
}

Placed CudaOperator::OfBuilt(const BuiltOnDevice& built, bool fp32) {
  return Place(built.device, built.n, false, [&](cuda::Context& context) -> Parts {
    const auto make = [&](Order order) {
      return cuda::MakeOperator(context, {built.n, built.col_ptr, built.row_idx}, built.values,
                                order, fp32);
    };
    if (!built.factor) return {make(Order::kColumns)};
    // G by rows is Gᵀ by columns.
    Parts parts{make(Order::kRows)};
    parts.then = make(Order::kColumns);
    return parts;
  });
}

Placed CudaOperator::OfDiagonal(const std::shared_ptr<CudaDevice>& device,
                                std::span<const double> diagonal) {
  const auto n = static_cast<int64_t>(diagonal.size());
  return Place(device, n, false, [&](cuda::Context& context) -> Parts {
    cuda::Buffer<double> own(context, n);
    own.CopyIn(diagonal.data(), n);
    context.Synchronize();
    return {cuda::Diagonal{std::move(own)}};
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
