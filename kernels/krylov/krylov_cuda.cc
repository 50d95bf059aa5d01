#include "kernels/krylov/krylov_cuda.h"

#include <algorithm>

#include "kernels/base/reasons.h"
#include "kernels/krylov/cuda_run.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_each.h"
#include "kernels/sparse/csc_cuda.h"

namespace spaid::kernels {

namespace {

// Calls make(api), which makes an object there, and returns the device bytes it takes. The lock is
// held.
template <class Make>
int32_t MakeThere(CudaDevice& device, int64_t* bytes, const Make& make) {
  const int64_t before = device.api().used_bytes(device.context());
  const int32_t result = make(device.api());
  *bytes = device.api().used_bytes(device.context()) - before;
  return result;
}

}  // namespace

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfMatrix(
    const std::shared_ptr<CudaDevice>& device, const CscView& a, bool fp32,
    const Context& context) {
  const Result<bool> symmetric = IsExactlySymmetric(a, context);
  if (!symmetric.ok()) return symmetric.status();
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, a.n_cols));
  made->symmetric_ = *symmetric;
  const SpaidCudaCsc csc = CudaCsc(a);
  const int32_t result =
      MakeThere(*device, &made->device_bytes_, [&](const SpaidCudaInterface& api) {
        CudaObject<SpaidCudaMatrix> matrix(device, &SpaidCudaInterface::free_matrix);
        matrix.locked = true;
        const int32_t uploaded =
            api.upload_matrix(device->context(), &csc, &matrix.object, message, sizeof(message));
        if (uploaded != kSpaidCudaOk) return uploaded;
        return api.operator_of_matrix(matrix.object, *symmetric ? 1 : 0, fp32 ? 1 : 0,
                                      &made->op_->object, message, sizeof(message));
      });
  if (result != kSpaidCudaOk) return device->Failed(result, message);
  return std::shared_ptr<const CudaOperator>(made);
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
      return device->Failed(kSpaidCudaPlanMismatch,
                            "the operator's columns are its rows, those of the matrix are not");
    }
  }
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, a.n_cols));
  made->symmetric_ = old->symmetric_;
  made->device_bytes_ = old->device_bytes_;
  made->op_ = old->op_;
  const SpaidCudaCsc csc = CudaCsc(a);
  CudaObject<SpaidCudaMatrix> matrix(device, &SpaidCudaInterface::free_matrix);
  matrix.locked = true;
  const SpaidCudaInterface& api = device->api();
  int32_t result =
      api.upload_matrix(device->context(), &csc, &matrix.object, message, sizeof(message));
  if (result == kSpaidCudaOk) {
    result = api.update_operator(made->object(), matrix.object, message, sizeof(message));
  }
  if (result != kSpaidCudaOk) return device->Failed(result, message);
  return std::shared_ptr<const CudaOperator>(made);
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfM(
    const std::shared_ptr<CudaDevice>& device, const SpaidCudaM* m, int64_t n, bool fp32) {
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, n));
  const int32_t result =
      MakeThere(*device, &made->device_bytes_, [&](const SpaidCudaInterface& api) {
        return api.operator_of_m(m, fp32 ? 1 : 0, &made->op_->object, message, sizeof(message));
      });
  if (result != kSpaidCudaOk) return device->Failed(result, message);
  return std::shared_ptr<const CudaOperator>(made);
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfG(
    const std::shared_ptr<CudaDevice>& device, const SpaidCudaG* g, int64_t n, bool fp32) {
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, n));
  made->then_ = std::make_shared<Object>(device, &SpaidCudaInterface::free_operator);
  const int32_t result =
      MakeThere(*device, &made->device_bytes_, [&](const SpaidCudaInterface& api) {
        const int32_t first = api.operator_of_g(g, /*transposed=*/0, fp32 ? 1 : 0,
                                                &made->op_->object, message, sizeof(message));
        if (first != kSpaidCudaOk) return first;
        return api.operator_of_g(g, /*transposed=*/1, fp32 ? 1 : 0, &made->then_->object, message,
                                 sizeof(message));
      });
  if (result != kSpaidCudaOk) return device->Failed(result, message);
  return std::shared_ptr<const CudaOperator>(made);
}

Result<std::shared_ptr<const CudaOperator>> CudaOperator::OfDiagonal(
    const std::shared_ptr<CudaDevice>& device, std::span<const double> diagonal) {
  char message[kCudaMessageBytes] = "";
  const auto lock = device->Lock();
  const auto n = static_cast<int64_t>(diagonal.size());
  const std::shared_ptr<CudaOperator> made(new CudaOperator(device, n));
  const int32_t result =
      MakeThere(*device, &made->device_bytes_, [&](const SpaidCudaInterface& api) {
        return api.operator_of_diagonal(device->context(), n, diagonal.data(), &made->op_->object,
                                        message, sizeof(message));
      });
  if (result != kSpaidCudaOk) return device->Failed(result, message);
  return std::shared_ptr<const CudaOperator>(made);
}

int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs,
                         const SolveOptions& options) {
  // An entry by rows takes 12 bytes, 24 with the worst padding of slices; sorting one matrix by
  // rows takes 36 more of each of its entries at most, beside its columns. Vectors: those of
  // BiCGSTAB, and a diagonal M.
  constexpr int64_t kRows = 24, kSorting = 48, kSlack = 1 << 20;
  const int64_t vectors = 8 * (12 * krylov::ColumnsFor(options.method, n_rhs) + 4);
  // The layout for solves within shared memory (persistent_smem_csr.h): 10 bytes an entry, twice
  // that with the padding of slices, and the halo; at most the shared memory of all
  // multiprocessors.
  const auto on_chip = [n](int64_t nnz) {
    constexpr int64_t kEntry = 24, kRow = 8, kMost = 48 << 20;
    return std::min(kEntry * nnz + kRow * n, kMost);
  };
  const int64_t bytes = kRows * (nnz_a + nnz_m) + on_chip(nnz_a) + on_chip(nnz_m) +
                        kSorting * std::max(nnz_a, nnz_m) + (vectors + 4 * 16) * n + kSlack;
  if (options.method != Method::kGmres) return bytes;
  // The basis, columns of R, and partial sums of up to 512 blocks of threads for each product with
  // it.
  const auto columns = static_cast<double>(RestartLength(options, n)) + 1;
  const double basis = 8 * columns * (static_cast<double>(n) + 64 + columns / 2 + 512 + 8);
  constexpr double kMost = 9e18;
  return static_cast<int64_t>(std::min(kMost, static_cast<double>(bytes) + basis));
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
  int32_t most = a.device()->api().most_columns(a.object(), m != nullptr ? m->object() : nullptr,
                                                static_cast<int32_t>(options.method));
  auto result = krylov::SolveEach(
      ColumnOperator(a_on_host), m != nullptr ? m->n() : a.n(), b, x0, options, context, &team,
      kSpaidCudaMostColumns, [&](std::span<const krylov::Task> tasks) {
        if (Status s = krylov::CheckBasis(a.n(), options, usable); !s.ok()) return s;
        while (!tasks.empty()) {
          const auto left = static_cast<int64_t>(tasks.size());
          const int32_t columns = std::min(krylov::ColumnsFor(options.method, left), most);
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
