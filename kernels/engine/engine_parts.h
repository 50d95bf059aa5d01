// Shared by the engine's parts; nobody outside this room includes it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/result_sink.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/krylov/operators.h"
#include "kernels/mpi/ranks_device.h"
#include "kernels/sparse/built_on_device.h"

namespace spaid::kernels {

// M by columns as clients download it, and the layout that products want, made once.
class HostPreconditioner final : public Preconditioner {
 public:
  // `m`: M, or where the kind is `factored` G by rows (FsaiResult::g_rows), and `g_columns` the
  // same by columns, unless it has none. `on_host`: where products with M are wanted; if not, an
  // explicit M is laid out by rows when the host asks for them all the same. `shown`: M, whose
  // arrays stay where they are, to somebody. `row_scaling`: D_r, by whose rows M was made; empty:
  // none. Errors: stop statuses (the layout of an explicit M takes about a tenth of its build).
  static Result<std::shared_ptr<const HostPreconditioner>> Make(
      EngineKind kind, CscMatrix m, const Context& context, bool on_host, CscMatrix g_columns = {},
      ShownResult shown = {}, Array<double> row_scaling = {});
  // M of parts.
  static std::shared_ptr<const HostPreconditioner> Of(
      EngineKind kind, std::shared_ptr<const AmgHierarchy> hierarchy);
  // M that lies over the ranks alone. `for_cg`: as ForCg of its spec.
  static std::shared_ptr<const HostPreconditioner> Over(EngineKind kind, int64_t n, bool for_cg,
                                                        std::shared_ptr<const OverRanks> m);
  // A copy that a build left: on a GPU, or over the ranks.
  void Keep(std::shared_ptr<const BuiltOnDevice> copy) const;
  void Keep(std::shared_ptr<const OverRanks> copy) const;
  HostPreconditioner(const HostPreconditioner&) = delete;
  HostPreconditioner& operator=(const HostPreconditioner&) = delete;

  EngineKind kind() const override { return kind_; }
  const CscMatrix& matrix() const override { return matrix_; }
  int64_t host_bytes() const override;
  const AmgHierarchy* hierarchy() const override { return hierarchy_.get(); }
  int64_t nnz() const override {
    if (alone_over_ranks_) return alone_over_ranks_->nnz();
    return hierarchy_ ? hierarchy_->nnz() : matrix_.nnz();
  }
  bool for_cg() const override {
    if (hierarchy_) return hierarchy_->symmetric();
    return alone_over_ranks_ ? for_cg_over_ranks_ : Preconditioner::for_cg();
  }
  MForm form() const override {
    if (hierarchy_) return MForm::kParts;
    if (alone_over_ranks_) return MForm::kOverRanks;
    return row_scaling_.empty() ? MForm::kMatrix : MForm::kScaledRows;
  }
  std::shared_ptr<const OverRanks> over_ranks() const override { return alone_over_ranks_; }
  std::span<const double> row_scaling() const { return row_scaling_; }
  int64_t device_bytes() const override;
  void DropDeviceCopy() const override;
  // Multiplies by M on the host; lives as long as this. Errors: stop statuses, where rows are
  // still to be made.
  Result<const LinearOperator*> Apply(const Context& context) const;
  // Bytes that a product with M reads and writes.
  int64_t bytes_per_apply() const;
  // M is a diagonal, whose elements are the values of matrix().
  bool is_diagonal() const {
    return TraitsOf(kind_).may_be_diagonal && matrix_.nnz() == matrix_.n_cols;
  }
  // Numbers that a product with M reads of it; 0: those of a diagonal, which are kept in fp64.
  int64_t values_per_product() const {
    return is_diagonal() ? 0 : matrix_.nnz() * (factored_ ? 2 : 1);
  }
  const CscView& factor_rows() const { return rows_->rows(); }  // of G
  std::shared_ptr<const BuiltOnDevice> device_copy() const;
  std::shared_ptr<const OverRanks> ranks_copy() const;
  // CheckFitsFloat of matrix(), by columns and by rows; looked at once. Not of a diagonal.
  Status fits_fp32(int threads) const;
  // M with its values in fp32, on so many threads; borrows from this. Not of a diagonal, and after
  // Apply has not failed.
  std::unique_ptr<const LinearOperator> InFp32(int threads) const;

 private:
  HostPreconditioner(EngineKind kind, CscMatrix m) : kind_(kind), matrix_(std::move(m)) {}
  Status MakeRows(const Context& context) const;

  EngineKind kind_;
  CscMatrix matrix_;
  std::shared_ptr<const AmgHierarchy> hierarchy_;      // null: M is a matrix
  std::shared_ptr<const OverRanks> alone_over_ranks_;  // null: M is here
  bool for_cg_over_ranks_ = false;                     // that M
  Array<double> row_scaling_;
  ShownResult shown_;                         // until the layouts are made: they may fail
  std::optional<DiagonalOperator> diagonal_;  // of a diagonal M; borrows matrix_.values
  // Rows of any other M, or of G. Null until made; does not change then.
  mutable std::shared_ptr<const CsrOperator> rows_;
  mutable std::mutex rows_mutex_;  // held while they are made
  int64_t rows_bytes_ = 0;         // of those, at the most where they are made later
  std::shared_ptr<const CsrOperator> transposed_;  // Gᵀ; borrows matrix_
  std::optional<FactoredOperator> factored_;       // of the two
  mutable std::mutex mutex_;
  // M or G on a device; null: nowhere. Guarded by mutex_.
  mutable std::shared_ptr<const BuiltOnDevice> device_copy_;
  mutable std::shared_ptr<const OverRanks> ranks_copy_;  // the same over the ranks
  mutable std::once_flag fits_once_;
  mutable Status fits_fp32_;
};

// The devices that share a plan of this engine.
std::vector<int> DevicesFor(const EngineTraits& engine, const Context& context);
// UNAVAILABLE/DEVICE_LOST.
Status CheckNotLost(CudaDevice& gpu);

// copy_speed.cc: by so many threads; measured once for each number of them. Thread-safe.
double HostCopyBytesPerSecond(int threads);

std::string Figure(double value);  // "1.23e-08", for texts

// A is symmetric, and its diagonal positive.
bool MayBePositive(const Diagnosis& d);
// The first column that stores no entry; -1 where all do. O(n).
int64_t FirstEmptyColumn(const PatternView& a);
// INVALID_ARGUMENT/PRECONDITIONER_MISMATCH: it is none of this room's.
Status NotOurs();
// FAILED_PRECONDITION/PRECONDITIONER_NOT_SPD. `method`: CG or MINRES.
Status PreconditionerNotSpd(Method method);

}  // namespace spaid::kernels
