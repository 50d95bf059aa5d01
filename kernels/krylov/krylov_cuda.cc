#include "kernels/krylov/krylov_cuda.h"

#include <algorithm>

#include "kernels/krylov/cuda_run.h"
#include "kernels/krylov/operators.h"
#include "kernels/krylov/solve_each.h"

namespace spaid::kernels {

namespace {

// Calls make(api), which makes an object there, and says what it takes. The lock is held.
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
  const SpaidCudaCsc csc{a.n_cols, a.nnz(), a.col_ptr.data(), a.row_idx.data(), a.values.data()};
  const int32_t result =
      MakeThere(*device, &made->device_bytes_, [&](const SpaidCudaInterface& api) {
        CudaObject<SpaidCudaMatrix> matrix(device, &SpaidCudaInterface::free_matrix);
        matrix.locked = true;
        const int32_t uploaded =
            api.upload_matrix(device->context(), &csc, &matrix.object, message, sizeof(message));
        if (uploaded != kSpaidCudaOk) return uploaded;
        return api.operator_of_matrix(matrix.object, *symmetric ? 1 : 0, fp32 ? 1 : 0,
                                      &made->op_.object, message, sizeof(message));
      });
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
        return api.operator_of_m(m, fp32 ? 1 : 0, &made->op_.object, message, sizeof(message));
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
        return api.operator_of_diagonal(device->context(), n, diagonal.data(), &made->op_.object,
                                        message, sizeof(message));
      });
  if (result != kSpaidCudaOk) return device->Failed(result, message);
  return std::shared_ptr<const CudaOperator>(made);
}

int64_t SolveDeviceBytes(int64_t n, int64_t nnz_a, int64_t nnz_m, int64_t n_rhs) {
  // An entry by rows takes 12 bytes, 24 with the ends of slices at the worst; sorting one matrix by
  // rows takes 36 more of each of its entries, beside its columns. Vectors: those of BiCGSTAB, and
  // a diagonal M.
  constexpr int64_t kRows = 24, kSorting = 48, kSlack = 1 << 20;
  const int64_t vectors = 8 * (12 * krylov::ColumnsFor(n_rhs) + 4);
  return kRows * (nnz_a + nnz_m) + kSorting * std::max(nnz_a, nnz_m) + (vectors + 4 * 16) * n +
         kSlack;
}

Result<SolveResult> SolveCuda(const CudaOperator& a, const CudaOperator* m,
                              const CscView& a_on_host, std::span<const double> b,
                              std::span<const double> x0, const SolveOptions& options,
                              const Context& context, SolveCudaTimings* timings) {
  if (options.method != Method::kCg && options.method != Method::kBicgstab &&
      options.method != Method::kAuto) {
    return Status(StatusCode::kInvalidArgument, "METHOD_NOT_ON_DEVICE",
                  "CUDA devices have CG and BiCGSTAB; solve by this method on the CPU")
        .At("method");
  }
  SolveCudaTimings own;
  const auto lock = a.device()->Lock();
  krylov::Team team(a.n(), ResolveThreads(context.threads));
  int32_t most = kSpaidCudaMostColumns;  // that memory has been seen to have room for
  return krylov::SolveEach(
      ColumnOperator(a_on_host), m != nullptr ? m->n() : a.n(), b, x0, options, context, &team,
      kSpaidCudaMostColumns, [&](std::span<const krylov::Task> tasks) {
        while (!tasks.empty()) {
          const auto left = static_cast<int64_t>(tasks.size());
          const int32_t columns = std::min(krylov::ColumnsFor(left), most);
          const auto block = tasks.first(static_cast<size_t>(columns));
          krylov::CudaRun run(a, m, block, timings != nullptr ? timings : &own);
          Status status = run.Open();
          if (status.reason() == "DEVICE_OUT_OF_MEMORY" && columns > 1) {
            most = columns / 2;
            continue;
          }
          if (status.ok()) status = run.Conduct();
          if (!status.ok()) return status;
          tasks = tasks.subspan(block.size());
        }
        return Status();
      });
}

}  // namespace spaid::kernels
