// M on the host: by columns, and laid out for products.
#include <memory>
#include <utility>

#include "kernels/engine/engine_parts.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {

Result<std::shared_ptr<const HostPreconditioner>> HostPreconditioner::Make(
    EngineKind kind, CscMatrix m, const Context& context, bool on_host, CscMatrix g_columns,
    ShownResult shown, Array<double> row_scaling) {
  std::shared_ptr<const CsrOperator> g;
  if (TraitsOf(kind).factored) {
    if (g_columns.n_cols == 0) {
      auto columns = Transpose(m, context);
      if (!columns.ok()) return columns.status();
      g_columns = *std::move(columns);
    }
    g = std::make_shared<CsrOperator>(
        CsrOperator::FromRows(std::exchange(m, std::move(g_columns)), context.threads));
  }
  std::shared_ptr<HostPreconditioner> made(new HostPreconditioner(kind, std::move(m)));
  made->shown_ = std::move(shown);
  made->row_scaling_ = std::move(row_scaling);
  // The layouts borrow from matrix_, which moves no more.
  if (g != nullptr) {
    made->rows_ = std::move(g);
    made->transposed_ = std::make_shared<CsrOperator>(
        CsrOperator::FromRows(CscView(made->matrix_), context.threads));
    made->factored_.emplace(made->rows_, made->transposed_);
  } else if (made->is_diagonal()) {
    made->diagonal_.emplace(made->matrix_.values);
  } else if (on_host) {
    if (Status status = made->MakeRows(context); !status.ok()) return status;
  } else {
    made->rows_bytes_ = CsrOperator::HostBytes(made->matrix_);
  }
  if (made->rows_ != nullptr) made->rows_bytes_ = made->rows_->host_bytes();
  made->shown_.Keep();
  return std::shared_ptr<const HostPreconditioner>(std::move(made));
}

std::shared_ptr<const HostPreconditioner> HostPreconditioner::Of(
    EngineKind kind, std::shared_ptr<const AmgHierarchy> hierarchy) {
  const int64_t n = hierarchy->n();
  CscMatrix none{.n_rows = n, .n_cols = n, .col_ptr = {}, .row_idx = {}, .values = {}};
  none.col_ptr.assign(static_cast<size_t>(n) + 1, 0);
  std::shared_ptr<HostPreconditioner> made(new HostPreconditioner(kind, std::move(none)));
  made->hierarchy_ = std::move(hierarchy);
  return made;
}

std::shared_ptr<const HostPreconditioner> HostPreconditioner::Over(
    EngineKind kind, int64_t n, bool for_cg, std::shared_ptr<const OverRanks> m) {
  CscMatrix none{.n_rows = n, .n_cols = n, .col_ptr = {}, .row_idx = {}, .values = {}};
  none.col_ptr.assign(static_cast<size_t>(n) + 1, 0);
  std::shared_ptr<HostPreconditioner> made(new HostPreconditioner(kind, std::move(none)));
  made->alone_over_ranks_ = std::move(m);
  made->for_cg_over_ranks_ = for_cg;
  return made;
}

Status HostPreconditioner::MakeRows(const Context& context) const {
  const std::lock_guard<std::mutex> lock(rows_mutex_);
  if (rows_ != nullptr) return {};
  auto rows = CsrOperator::FromColumns(matrix_, context);
  if (!rows.ok()) return rows.status();
  rows_ = std::make_shared<CsrOperator>(*std::move(rows));
  return {};
}

Result<const LinearOperator*> HostPreconditioner::Apply(const Context& context) const {
  if (hierarchy_) {
    const auto here = hierarchy_->OnHost(context);
    if (!here.ok()) return here.status();
    return *here;
  }
  if (diagonal_) return &*diagonal_;
  if (factored_) return &*factored_;
  if (Status status = MakeRows(context); !status.ok()) return status;
  return rows_.get();
}

int64_t HostPreconditioner::bytes_per_apply() const {
  if (hierarchy_) return hierarchy_->bytes_per_apply();
  if (diagonal_) return diagonal_->bytes_per_apply();
  return factored_ ? factored_->bytes_per_apply() : CsrOperator::BytesPerApply(matrix_);
}

std::unique_ptr<const LinearOperator> HostPreconditioner::InFp32(int threads) const {
  if (!factored_) return std::make_unique<CsrFloatOperator>(*rows_, threads);
  return std::make_unique<FactoredOperator>(
      std::make_shared<CsrFloatOperator>(*rows_, threads),
      std::make_shared<CsrFloatOperator>(*transposed_, threads));
}

void HostPreconditioner::Keep(std::shared_ptr<const BuiltOnDevice> copy) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(device_copy_, copy);  // what was there ends after the lock
}

void HostPreconditioner::Keep(std::shared_ptr<const OverRanks> copy) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::swap(ranks_copy_, copy);
}

void HostPreconditioner::DropDeviceCopy() const {
  Keep(std::shared_ptr<const BuiltOnDevice>());
  Keep(std::shared_ptr<const OverRanks>());
  if (hierarchy_) hierarchy_->DropDeviceCopy();
}

std::shared_ptr<const BuiltOnDevice> HostPreconditioner::device_copy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device_copy_;
}

std::shared_ptr<const OverRanks> HostPreconditioner::ranks_copy() const {
  if (alone_over_ranks_) return alone_over_ranks_;
  const std::lock_guard<std::mutex> lock(mutex_);
  return ranks_copy_;
}

Status HostPreconditioner::fits_fp32(int threads) const {
  std::call_once(fits_once_, [&] {
    // Which hardly any M is not; rows may be still to be made.
    if (AllFitFloat(matrix_.values, threads)) return;
    fits_fp32_ = CheckFitsFloat(matrix_, "column", threads);
    if (!fits_fp32_.ok()) return;
    fits_fp32_ = MakeRows(Context{.stop = {}, .progress = nullptr, .threads = threads});
    if (fits_fp32_.ok()) fits_fp32_ = CheckFitsFloat(rows_->rows(), "row", threads);
  });
  return fits_fp32_;
}

int64_t HostPreconditioner::device_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return (device_copy_ ? device_copy_->device_bytes : 0) +
         (ranks_copy_ ? ranks_copy_->bytes() : 0) + (hierarchy_ ? hierarchy_->device_bytes() : 0);
}

int64_t HostPreconditioner::host_bytes() const {
  // One of the vectors between the factors, from the start, so that this does not change.
  return static_cast<int64_t>(sizeof(HostPreconditioner)) + matrix_.bytes() + rows_bytes_ +
         (transposed_ ? transposed_->host_bytes() : 0) +
         (hierarchy_ ? hierarchy_->host_bytes() : 0) +
         static_cast<int64_t>(row_scaling_.size() * sizeof(double)) +
         (factored_ ? matrix_.n_cols * static_cast<int64_t>(sizeof(double)) : 0);
}

}  // namespace spaid::kernels
