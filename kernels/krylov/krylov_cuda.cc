#include "kernels/krylov/krylov_cuda.h"

#include <algorithm>

#include "kernels/base/reasons.h"
#include "kernels/krylov/cuda_run.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_each.h"

namespace spaid::kernels {

Result<std::shared_ptr<CudaOperator>> CudaOperator::Make(const std::shared_ptr<CudaDevice>& device,
                                                         int64_t n, const MakeLayout& make,
                                                         const MakeLayout& then) {
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, n));
  const int64_t before = device->context().used_bytes();
  Status status = made->op_->Take(make());
  if (status.ok() && then != nullptr) {
    made->then_ = std::make_shared<Object>(device);
    status = made->then_->Take(then());
  }
  if (!status.ok()) {
    made->op_->object.reset();
    return status;
  }
  made->device_bytes_ = device->context().used_bytes() - before;
  return made;
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::Of(
    const std::shared_ptr<CudaDevice>& device, int64_t n, const MakeLayout& make,
    const MakeLayout& then) {
  const auto lock = device->Lock();
  auto made = Make(device, n, make, then);
  if (!made.ok()) return made.status();
  return std::shared_ptr<const CudaOperator>(*std::move(made));
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfMatrix(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, bool fp32,
    const Context& context) {
  const Result<bool> symmetric = IsExactlySymmetric(a, context);
  if (!symmetric.ok()) return symmetric.status();
  const auto lay_out = [&]() -> Result<std::unique_ptr<CudaLayout>> {
    const auto matrix = device->context().UploadMatrix(a, a.values);
    if (!matrix.ok()) return matrix.status();
    return (*matrix)->LayOut(*symmetric, fp32);
  };
  const auto lock = device->Lock();
  auto made = Make(device, a.n_cols, lay_out, nullptr);
  if (!made.ok()) return made.status();
  (*made)->symmetric_ = *symmetric;
  return std::shared_ptr<const CudaOperator>(*std::move(made));
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfFactors(
    const std::shared_ptr<CudaDevice>& device, const CscView& g, const CscView& g_transposed,
    bool fp32, const Context& context) {
  const auto first = OfMatrix(device, g, fp32, context);
  if (!first.ok()) return first.status();
  const auto then = OfMatrix(device, g_transposed, fp32, context);
  if (!then.ok()) return then.status();
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, g.n_cols));
  made->device_bytes_ = (*first)->device_bytes_ + (*then)->device_bytes_;
  made->op_ = (*first)->op_;
  made->then_ = (*then)->op_;
  return std::shared_ptr<const CudaOperator>(made);
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::WithValues(
    const std::shared_ptr<const CudaOperator>& old, const CscView& a, const Context& context) {
  const std::shared_ptr<CudaDevice>& device = old->device_;
  if (old->symmetric_) {
    const Result<bool> symmetric = IsExactlySymmetric(a, context);
    if (!symmetric.ok()) return symmetric.status();
    if (!*symmetric) {
      return CudaFailure(CudaFault::kPlanMismatch, device->info(),
                         "the operator's columns are its rows, those of the matrix are not");
    }
  }
  const auto lock = device->Lock();
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, a.n_cols));
  made->symmetric_ = old->symmetric_;
  made->device_bytes_ = old->device_bytes_;
  made->op_ = old->op_;
  const auto matrix = device->context().UploadMatrix(a, a.values);
  if (!matrix.ok()) return matrix.status();
  if (Status status = made->op_->object->Update(**matrix); !status.ok()) return status;
  return std::shared_ptr<const CudaOperator>(made);
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfDiagonal(
    const std::shared_ptr<CudaDevice>& device, std::span<const double> diagonal) {
  return Of(device, static_cast<int64_t>(diagonal.size()),
            [&] { return device->context().LayOutDiagonal(diagonal); });
}

int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                         const SolveOptions& options) {
  // An entry by rows takes 12 bytes, 24 with the ends of slices at the worst; sorting one matrix by
  // rows takes 36 more of each of its entries at most, beside its columns. Vectors: those of
  // BiCGSTAB, and a diagonal M.
  constexpr int64_t kRows = 24, kSorting = 48, kSlack = 1 << 20;
  const int64_t vectors = 8 * (12 * krylov::ColumnsFor(options.method, n_rhs) + 4);
  // The layout for solves on the chip (persistent_smem_csr.h): 10 bytes an entry, twice that with
  // the ends of slices, and the halo; no more than all multiprocessors have of shared memory.
  const auto on_chip = [n](int64_t nnz) {
    constexpr int64_t kEntry = 24, kRow = 8, kMost = 48 << 20;
    return std::min(kEntry * nnz + kRow * n, kMost);
  };
  const int64_t bytes = kRows * (nnz_a + nnz_m) + on_chip(nnz_a) + on_chip(nnz_m) +
                        kSorting * std::max(nnz_a, nnz_m) + (vectors + 4 * 16) * n + kSlack;
  if (options.method != Method::kGmres) return bytes;
  // The basis, columns of R, and what up to 512 blocks of threads leave of each product with it.
  const auto columns = static_cast<double>(RestartLength(options, n)) + 1;
  const double basis = 8 * columns * (static_cast<double>(n) + 64 + columns / 2 + 512 + 8);
  constexpr double kMost = 9e18;
  return static_cast<int64_t>(std::min(kMost, static_cast<double>(bytes) + basis));
}

Result<SolveResult> SolveCuda(const CudaOperator& a, const CudaOperator* m,
                              const CscView& a_on_host, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, SolveCudaTimings* timings) {
  SolveCudaTimings own;
  if (timings == nullptr) timings = &own;
  auto lock = a.device()->Lock();
  krylov::Team team(a.n(), ResolveThreads(context.threads));
  const auto usable = static_cast<double>(a.device()->memory_limit());
  // As many as a solve takes and memory has been seen to have room for.
  int most = a.layout().MostColumns(m != nullptr ? &m->layout() : nullptr, options.method);
  auto result = krylov::SolveEach(
      ColumnOperator(a_on_host), m != nullptr ? m->n() : a.n(), b, x0, options, context, &team,
      kMostCudaColumns, [&](std::span<const krylov::Task> tasks) {
        if (Status s = krylov::CheckBasis(a.n(), options, usable); !s.ok()) return s;
        while (!tasks.empty()) {
          const auto left = static_cast<int64_t>(tasks.size());
          const int columns = std::min(krylov::ColumnsFor(options.method, left), most);
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
