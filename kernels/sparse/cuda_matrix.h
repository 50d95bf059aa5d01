// A matrix on a CUDA device, as libspaid_cuda.so holds it, and what can be made of it there. See
// kernels/base/cuda_backend.h for errors and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/cuda_backend.h"
#include "kernels/base/split.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/pattern.h"

namespace spaid::kernels {

enum class LocalSolver : int32_t;  // kernels/static_spai/local_solver.h
class CudaSpaiPlan;                // kernels/static_spai/cuda_spai.h
struct DynamicSpaiOptions;         // kernels/dynamic_spai/cuda_growth.h
struct CudaGrowth;
struct CudaFsaiRequest;  // kernels/fsai/cuda_fsai.h
struct CudaFsaiBuild;

// A pattern by rows of G or by columns of M.
class CudaPattern {
 public:
  virtual ~CudaPattern() = default;
  // One more pointers than rows (columns) of the pattern, from 0 on, and its indices.
  virtual Status Download(int64_t* ptr, int32_t* idx) const = 0;
};

// What M's pattern is made of beside A.
struct CudaPatternRequest {
  PatternOptions options;
  PatternLimit limit;                   // of its entries; 0: none
  std::span<const int32_t> match = {};  // n: the column matched to each row; empty: none is
  // What replaces A's pattern; null: nothing does. `base_there`: the same on the device, of all
  // columns; null: `base` is uploaded. With it, `base` may be null.
  const PatternView* base = nullptr;
  const CudaPattern* base_there = nullptr;
};

class CudaMatrix {
 public:
  virtual ~CudaMatrix() = default;

  // New values of all entries for a matrix whose pattern stays.
  virtual Status UploadValues(std::span<const double> values) = 0;

  // `columns` and `rows` below: what one of several devices makes of the whole M or G, at least
  // one; none: all of them. They get the bits that one device gives them, but where
  // static_spai_cuda.h says otherwise.

  // The plan of static SPAI, which this must outlive: where M has A's pattern, the plan has no copy
  // of it. A threshold reads A's values. Every column of A must have an entry. `local_solver`: of
  // the builds to come; where it is not QR, matrices of few diagonals get no plan for that until a
  // build asks for one. `columns`: that builds compute, with room for all of M all the same. Errors
  // besides: RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE; stop statuses.
  virtual Result<std::unique_ptr<CudaSpaiPlan>> PlanStaticSpai(const CudaPatternRequest& pattern,
                                                               LocalSolver local_solver,
                                                               std::optional<IndexRange> columns,
                                                               const Context& context) = 0;
  // Patterns of columns of M that dynamic SPAI grows. `initial`: of each column itself, then what
  // else it begins with, as that joins; null: itself. Every column of A must have a value other
  // than 0. Errors besides: RESOURCE_EXHAUSTED/GRAM_TOO_LARGE; stop statuses.
  virtual Result<CudaGrowth> GrowDynamicSpai(const PatternView* initial,
                                             const DynamicSpaiOptions& options,
                                             std::optional<IndexRange> columns,
                                             const Context& context) const = 0;
  // Rows of G. Errors besides: stop statuses.
  virtual Result<CudaFsaiBuild> BuildFsai(const CudaFsaiRequest& request,
                                          const Context& context) const = 0;
  // A copy, laid out for products. `symmetric`: A = Aᵀ entry by entry. `fp32`: values are stored in
  // fp32, and those beyond its range as infinities; arithmetic is fp64 all the same.
  virtual Result<std::unique_ptr<CudaLayout>> LayOut(bool symmetric, bool fp32) const = 0;
};

}  // namespace spaid::kernels
