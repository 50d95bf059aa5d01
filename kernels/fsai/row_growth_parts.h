// Shared by the two ways of growing a row. Internal to this room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/dense/simd.h"
#include "kernels/fsai/row_growth.h"

namespace spaid::kernels {

// Grows by doubling, keeps its contents, 64-byte aligned.
template <class T>
class Buffer {
 public:
  // At least n elements; those over `used` are undefined.
  T* Grow(int64_t n, int64_t used) {
    if (n <= size_) return data_;
    const int64_t size = std::max(n, 2 * size_);
    auto storage =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(size) * sizeof(T) + 64);
    const auto address = (reinterpret_cast<uintptr_t>(storage.get()) + 63) & ~uintptr_t{63};
    T* const data = reinterpret_cast<T*>(address);
    if (used > 0) std::memcpy(data, data_, static_cast<size_t>(used) * sizeof(T));
    storage_ = std::move(storage);
    size_ = size;
    return data_ = data;
  }
  T* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

// The matrix of a grower.
class GrowthMatrix {
 public:
  GrowthMatrix(const CscView& a, std::span<const double> diagonal, LackedColumns* lacked)
      : a_(a), diagonal_(diagonal), lacked_(lacked) {}
  explicit GrowthMatrix(GrowthColumns& made) : made_(&made) {}

  int64_t n_rows() const { return made_ == nullptr ? a_.n_rows : made_->n_rows(); }
  SPAID_INLINE GrowthColumn Column(int64_t j) const {
    if (made_ != nullptr) return made_->Column(j);
    if (lacked_ != nullptr) Ask(j);
    return {a_.column(j), a_.column_values(j)};
  }
  SPAID_INLINE double Diagonal(int64_t j) const {
    return made_ == nullptr ? diagonal_[static_cast<size_t>(j)] : 1;
  }

 private:
  // Rows of least-squares problems have columns behind those that may join.
  void Ask(int64_t j) const {
    if (j < std::ssize(lacked_->here) && lacked_->here[static_cast<size_t>(j)] == 0) {
      lacked_->asked.push_back(static_cast<int32_t>(j));
    }
  }

  CscView a_;
  std::span<const double> diagonal_;
  LackedColumns* lacked_ = nullptr;
  GrowthColumns* made_ = nullptr;
};

// Sorts by index; all indices are different.
void SortByIndex(std::vector<RowEntry>& entries);

// A row of G once its growth has ended: `entries` hold g̃ in the order of joining, `a_ip` A(i, p) of
// each; `limit`: a smaller ψ is not positive. Leaves row i of G in `entries`, and completes
// `outcome` and the last of `ratios`.
void FinishRow(int64_t i, double a_ii, double limit, double epsilon, bool fp32,
               std::span<const double> a_ip, std::vector<RowEntry>& entries,
               std::vector<double>& ratios, RowOutcome& outcome);

std::unique_ptr<RowGrower> MakeBlockGrower(const GrowthMatrix& a, const GrowthRules& rules);

}  // namespace spaid::kernels
