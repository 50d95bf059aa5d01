#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "kernels/bench/cuda/cusparse_library.h"
#include "kernels/bench/cuda/factors.h"
#include "kernels/bench/cuda/loops.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/sparse/cuda/matrix.h"

namespace spaid::kernels::bench {
namespace {

using namespace spaid::cuda;
using cuda::Context;

struct Csr {
  std::vector<int32_t> ptr{0}, cols;
  std::vector<int32_t> from;  // of each entry, its place among the factors' values
};

// The entries (i, j) of the factors' pattern that `keep` keeps.
template <class Keep>
Csr Part(const CscView& by_rows, const Keep& keep) {
  Csr part;
  for (int64_t i = 0; i < by_rows.n_cols; ++i) {
    for (int64_t p = by_rows.col_ptr[i]; p < by_rows.col_ptr[i + 1]; ++p) {
      if (!keep(i, int64_t{by_rows.row_idx[p]})) continue;
      part.cols.push_back(by_rows.row_idx[p]);
      part.from.push_back(static_cast<int32_t>(p));
    }
    part.ptr.push_back(static_cast<int32_t>(part.cols.size()));
  }
  return part;
}

// `from` says the same places.
Csr Transposed(const Csr& a) {
  const size_t n = a.ptr.size() - 1;
  Csr t;
  t.ptr.assign(n + 1, 0);
  for (const int32_t j : a.cols) ++t.ptr[static_cast<size_t>(j) + 1];
  for (size_t j = 0; j < n; ++j) t.ptr[j + 1] += t.ptr[j];
  t.cols.resize(a.cols.size());
  t.from.resize(a.cols.size());
  std::vector<int32_t> next(t.ptr.begin(), t.ptr.end() - 1);
  for (size_t i = 0; i < n; ++i) {
    for (auto p = static_cast<size_t>(a.ptr[i]); p < static_cast<size_t>(a.ptr[i + 1]); ++p) {
      const auto at = static_cast<size_t>(next[static_cast<size_t>(a.cols[p])]++);
      t.cols[at] = static_cast<int32_t>(i);
      t.from[at] = a.from[p];
    }
  }
  return t;
}

template <class T>
Buffer<T> Upload(Context& context, const std::vector<T>& from) {
  Buffer<T> to(context, static_cast<int64_t>(from.size()));
  to.CopyIn(from.data(), to.size());
  context.Synchronize();
  return to;
}

// Rows on the device, the values elsewhere.
struct CsrThere {
  CsrThere(Context& context, const Csr& a)
      : n(static_cast<int64_t>(a.ptr.size()) - 1),
        nnz(static_cast<int64_t>(a.cols.size())),
        ptr(Upload(context, a.ptr)),
        cols(Upload(context, a.cols)) {}
  int64_t n, nnz;
  Buffer<int32_t> ptr, cols;
};

__global__ void GatherKernel(int64_t count, const int32_t* from, const double* values, double* to) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k < count) to[k] = values[from[k]];
}

void Gather(const Context& context, const Buffer<int32_t>& from, const Buffer<double>& values,
            const Buffer<double>& to) {
  GatherKernel<<<static_cast<unsigned>((from.size() + 255) / 256), 256, 0, context.stream>>>(
      from.size(), from.get(), values.get(), to.get());
  CheckLaunch("GatherKernel");
}

// y = T⁻¹ x with a triangle T.
class TriangularSolve {
 public:
  // The triangle of `a` that `fill` and `diagonal` say; its values may still change.
  TriangularSolve(Context& context, cusparseHandle_t handle, const CsrThere& a, double* values,
                  cusparseFillMode_t fill, cusparseDiagType_t diagonal,
                  cusparseOperation_t operation, double* any)
      : handle_(handle),
        operation_(operation),
        matrix_(Library().destroy_csr),
        x_(Library().destroy_vector),
        y_(Library().destroy_vector),
        solve_(Library().destroy_solve) {
    const Cusparse& library = Library();
    CheckStatus(library.create_csr(&matrix_.handle, a.n, a.n, a.nnz, a.ptr.get(), a.cols.get(),
                                   values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                   CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F),
                "cusparseCreateCsr");
    CheckStatus(
        library.set_attribute(matrix_.handle, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof(fill)),
        "cusparseSpMatSetAttribute");
    CheckStatus(library.set_attribute(matrix_.handle, CUSPARSE_SPMAT_DIAG_TYPE, &diagonal,
                                      sizeof(diagonal)),
                "cusparseSpMatSetAttribute");
    CheckStatus(library.create_vector(&x_.handle, a.n, any, CUDA_R_64F), "cusparseCreateDnVec");
    CheckStatus(library.create_vector(&y_.handle, a.n, any, CUDA_R_64F), "cusparseCreateDnVec");
    CheckStatus(library.create_solve(&solve_.handle), "cusparseSpSV_createDescr");
    size_t bytes = 0;
    CheckStatus(
        library.solve_bytes(handle_, operation_, &kOne, matrix_.handle, x_.handle, y_.handle,
                            CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT, solve_.handle, &bytes),
        "cusparseSpSV_bufferSize");
    scratch_ = Buffer<char>(context, static_cast<int64_t>(bytes));
  }

  // Once the values are there.
  void Analyse() {
    CheckStatus(Library().solve_analysis(handle_, operation_, &kOne, matrix_.handle, x_.handle,
                                         y_.handle, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT,
                                         solve_.handle, scratch_.get()),
                "cusparseSpSV_analysis");
  }

  void operator()(const double* x, double* y) const {
    const Cusparse& library = Library();
    CheckStatus(library.set_vector(x_.handle, const_cast<double*>(x)), "cusparseDnVecSetValues");
    CheckStatus(library.set_vector(y_.handle, y), "cusparseDnVecSetValues");
    CheckStatus(library.solve(handle_, operation_, &kOne, matrix_.handle, x_.handle, y_.handle,
                              CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT, solve_.handle),
                "cusparseSpSV_solve");
  }

 private:
  static constexpr double kOne = 1;
  const cusparseHandle_t handle_;
  const cusparseOperation_t operation_;
  Held<cusparseSpMatDescr_t, decltype(&cusparseDestroySpMat)> matrix_;
  Held<cusparseDnVecDescr_t, decltype(&cusparseDestroyDnVec)> x_, y_;
  Held<cusparseSpSVDescr_t, decltype(&cusparseSpSV_destroyDescr)> solve_;
  Buffer<char> scratch_;
};

// csric02 or csrilu02 of the values in place.
void Factorise(Context& context, cusparseHandle_t handle, const CsrThere& a,
               const Buffer<double>& values, const FactorOptions& options, FactorRun* run) {
  const Cusparse& library = Library();
  const auto n = static_cast<int>(a.n), nnz = static_cast<int>(a.nnz);
  const auto policy =
      options.levels ? CUSPARSE_SOLVE_POLICY_USE_LEVEL : CUSPARSE_SOLVE_POLICY_NO_LEVEL;
  Held<cusparseMatDescr_t, decltype(&cusparseDestroyMatDescr)> general(library.destroy_general);
  CheckStatus(library.create_general(&general.handle), "cusparseCreateMatDescr");
  const auto with = [&](auto& info, auto create, auto size, auto analysis, auto factorise,
                        auto zero_pivot) {
    CheckStatus(create(&info.handle), "the info of the factorisation");
    int bytes = 0, position = -1;
    CheckStatus(size(handle, n, nnz, general.handle, values.get(), a.ptr.get(), a.cols.get(),
                     info.handle, &bytes),
                "the buffer of the factorisation");
    const Buffer<char> scratch(context, bytes);
    const auto bad = [&] {
      const cusparseStatus_t status = zero_pivot(handle, info.handle, &position);
      if (status == CUSPARSE_STATUS_ZERO_PIVOT) run->bad_pivot = position;
      if (status != CUSPARSE_STATUS_ZERO_PIVOT) CheckStatus(status, "the zero pivot");
      return run->bad_pivot >= 0;
    };
    Stopwatch analysing(context);
    CheckStatus(analysis(handle, n, nnz, general.handle, values.get(), a.ptr.get(), a.cols.get(),
                         info.handle, policy, scratch.get()),
                "the analysis of the factorisation");
    run->analysis_ms += analysing.Stop();
    if (bad()) return;
    Stopwatch factorising(context);
    CheckStatus(factorise(handle, n, nnz, general.handle, values.get(), a.ptr.get(), a.cols.get(),
                          info.handle, policy, scratch.get()),
                "the factorisation");
    run->factor_ms += factorising.Stop();
    bad();
  };
  if (options.kind == FactorKind::kIc0) {
    Held<csric02Info_t, decltype(&cusparseDestroyCsric02Info)> info(library.destroy_ic);
    with(info, library.create_ic, library.ic_bytes, library.ic_analysis, library.ic,
         library.ic_zero_pivot);
  } else {
    Held<csrilu02Info_t, decltype(&cusparseDestroyCsrilu02Info)> info(library.destroy_ilu);
    with(info, library.create_ilu, library.ilu_bytes, library.ilu_analysis, library.ilu,
         library.ilu_zero_pivot);
  }
}

// Element (i, j) of what is stored by rows; 0: none.
double At(const Csr& a, const std::vector<double>& values, int64_t i, int64_t j) {
  const auto begin = a.cols.begin() + a.ptr[static_cast<size_t>(i)];
  const auto end = a.cols.begin() + a.ptr[static_cast<size_t>(i) + 1];
  const auto at = std::lower_bound(begin, end, static_cast<int32_t>(j));
  return at == end || *at != j ? 0 : values[static_cast<size_t>(at - a.cols.begin())];
}

double FactorError(const CscView& by_rows, const Csr& pattern, const std::vector<double>& factors,
                   bool ic) {
  constexpr int64_t kSample = 200;
  double worst = 0;
  for (int64_t s = 0; s < kSample; ++s) {
    const int64_t i = s * (by_rows.n_cols - 1) / (kSample - 1);
    const int64_t begin = by_rows.col_ptr[i], end = by_rows.col_ptr[i + 1];
    double largest = 0, apart = 0;
    for (int64_t p = begin; p < end; ++p) {
      largest = std::max(largest, std::fabs(by_rows.values[p]));
      const int64_t j = by_rows.row_idx[p];
      if (ic && j > i) continue;
      double product = 0;
      for (int64_t k = 0; k <= std::min(i, j); ++k) {
        // The entries of row i alone.
        const auto at =
            std::lower_bound(by_rows.row_idx.begin() + begin, by_rows.row_idx.begin() + end, k);
        if (at == by_rows.row_idx.begin() + end) break;
        k = *at;
        if (k > std::min(i, j)) break;
        const double l = !ic && k == i ? 1 : At(pattern, factors, i, k);
        product += l * (ic ? At(pattern, factors, j, k) : At(pattern, factors, k, j));
      }
      apart = std::max(apart, std::fabs(product - by_rows.values[p]));
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

// What all runs share: the patterns there, and A's values.
struct Prepared {
  Prepared(Context& context, const CscView& by_rows, const FactorOptions& options)
      : ic(options.kind == FactorKind::kIc0),
        pattern(
            Part(by_rows, [&](int64_t i, int64_t j) { return !ic || !options.apart || j <= i; })),
        both(context, pattern) {
    std::vector<double> host(pattern.from.size());
    for (size_t k = 0; k < host.size(); ++k) {
      host[k] = by_rows.values[static_cast<size_t>(pattern.from[k])];
    }
    values = Upload(context, host);
    if (!options.apart) return;
    // The factorisation has L of IC(0) alone, at its own places, or both triangles at A's.
    Csr lower_host = pattern;
    if (ic) {
      for (size_t k = 0; k < host.size(); ++k) lower_host.from[k] = static_cast<int32_t>(k);
    } else {
      lower_host = Part(by_rows, [](int64_t i, int64_t j) { return j < i; });
    }
    const Csr upper_host =
        ic ? Transposed(lower_host) : Part(by_rows, [](int64_t i, int64_t j) { return j >= i; });
    lower = std::make_unique<CsrThere>(context, lower_host);
    upper = std::make_unique<CsrThere>(context, upper_host);
    from_lower = Upload(context, lower_host.from);
    from_upper = Upload(context, upper_host.from);
  }

  const bool ic;
  const Csr pattern;  // of the factorisation
  const CsrThere both;
  Buffer<double> values;                   // A's
  std::unique_ptr<CsrThere> lower, upper;  // apart
  Buffer<int32_t> from_lower, from_upper;
};

class Factors {
 public:
  // Not to be applied where `run` has a bad pivot then. `check`: fills factor_error, and looks for
  // pivots that are not finite.
  Factors(Context& context, const CscView& by_rows, const Prepared& prepared,
          const FactorOptions& options, bool check, FactorRun* run)
      : handle_(Library().destroy), values_(context, prepared.values.size()) {
    CheckStatus(Library().create(&handle_.handle), "cusparseCreate");
    CheckStatus(Library().set_stream(handle_.handle, context.stream), "cusparseSetStream");
    Check(cudaMemcpyAsync(values_.get(), prepared.values.get(),
                          static_cast<size_t>(values_.size()) * sizeof(double),
                          cudaMemcpyDeviceToDevice, context.stream),
          "cudaMemcpyAsync");
    Factorise(context, handle_.handle, prepared.both, values_, options, run);
    if (run->bad_pivot >= 0) return;
    const bool ic = prepared.ic;
    if (check) {
      std::vector<double> host(prepared.pattern.from.size());
      values_.CopyOut(host.data(), values_.size());
      context.Synchronize();
      for (int64_t i = 0; i < by_rows.n_cols; ++i) {
        if (std::isfinite(At(prepared.pattern, host, i, i))) continue;
        run->bad_pivot = i;
        return;
      }
      run->factor_error = FactorError(by_rows, prepared.pattern, host, ic);
    }
    middle_ = Buffer<double>(context, by_rows.n_cols);
    const auto make = [&](std::unique_ptr<TriangularSolve>& solve, const CsrThere& a,
                          const Buffer<double>& values, cusparseFillMode_t fill,
                          cusparseDiagType_t diagonal, cusparseOperation_t operation) {
      solve = std::make_unique<TriangularSolve>(context, handle_.handle, a, values.get(), fill,
                                                diagonal, operation, middle_.get());
    };
    const auto unit = ic ? CUSPARSE_DIAG_TYPE_NON_UNIT : CUSPARSE_DIAG_TYPE_UNIT;
    const auto other = CUSPARSE_DIAG_TYPE_NON_UNIT;
    constexpr auto kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE;
    if (options.apart) {
      lower_values_ = Buffer<double>(context, prepared.lower->nnz);
      upper_values_ = Buffer<double>(context, prepared.upper->nnz);
      Stopwatch parting(context);
      Gather(context, prepared.from_lower, values_, lower_values_);
      Gather(context, prepared.from_upper, values_, upper_values_);
      run->factor_ms += parting.Stop();
      make(forward_, *prepared.lower, lower_values_, CUSPARSE_FILL_MODE_LOWER, unit, kPlain);
      make(backward_, *prepared.upper, upper_values_, CUSPARSE_FILL_MODE_UPPER, other, kPlain);
    } else {
      make(forward_, prepared.both, values_, CUSPARSE_FILL_MODE_LOWER, unit, kPlain);
      make(backward_, prepared.both, values_,
           ic ? CUSPARSE_FILL_MODE_LOWER : CUSPARSE_FILL_MODE_UPPER, other,
           ic ? CUSPARSE_OPERATION_TRANSPOSE : kPlain);
    }
    Stopwatch analysing(context);
    forward_->Analyse();
    backward_->Analyse();
    run->analysis_ms += analysing.Stop();
  }

  void operator()(const double* r, double* z) const {
    (*forward_)(r, middle_.get());
    (*backward_)(middle_.get(), z);
  }

 private:
  Held<cusparseHandle_t, decltype(&cusparseDestroy)> handle_;
  Buffer<double> values_, lower_values_, upper_values_, middle_;
  std::unique_ptr<TriangularSolve> forward_, backward_;
};

std::vector<double> InverseDiagonal(const CscView& a) {
  std::vector<double> inverse(static_cast<size_t>(a.n_cols));
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (int64_t p = a.col_ptr[j]; p < a.col_ptr[j + 1]; ++p) {
      if (a.row_idx[p] == j) inverse[static_cast<size_t>(j)] = 1 / a.values[p];
    }
  }
  return inverse;
}

}  // namespace

std::string SolveByFactors(const CscView& by_columns, const CscView& by_rows, const double* b,
                           const FactorOptions& options, FactorRun* runs, int count) {
  try {
    Context context(0, 0, {});
    const Matrix a = UploadMatrix(context, by_columns, by_columns.values.data());
    const cuda::Csr<double> rows(context, a.pattern(), a.values.get(), options.cg);
    const Buffer<double> b_there = Upload(context, std::vector<double>(b, b + by_columns.n_cols));
    const Buffer<double> diagonal = Upload(context, InverseDiagonal(by_columns));
    std::unique_ptr<Prepared> prepared;
    if (options.kind != FactorKind::kDiagonal) {
      prepared = std::make_unique<Prepared>(context, by_rows, options);
    }
    double factor_error = 0;
    for (int i = -1; i < count; ++i) {  // the first warms up
      FactorRun run;
      std::unique_ptr<Factors> factors;
      Precondition m = [&](const double* r, double* z) {
        LaunchDiagonal(context, by_rows.n_cols, diagonal.get(), r, z);
      };
      if (prepared != nullptr) {
        factors = std::make_unique<Factors>(context, by_rows, *prepared, options, i < 0, &run);
        m = [&](const double* r, double* z) { (*factors)(r, z); };
      }
      if (i < 0) factor_error = run.factor_error;
      run.factor_error = factor_error;
      if (run.bad_pivot < 0) {
        const auto solve = options.cg ? CgLoop : BicgstabLoop;
        const LoopResult result =
            solve(context, rows, m, b_there.get(), options.rtol, options.max_iterations);
        run.solve_ms = result.ms;
        run.iterations = result.iterations;
        run.relative_residual = result.relative_residual;
      } else if (i < 0) {
        std::fill_n(runs, count, run);
        return {};
      }
      if (i >= 0) runs[i] = run;
    }
    return {};
  } catch (const Failure& failure) {
    return failure.what();
  }
}

std::string CusparseVersion() {
  try {
    std::string version;
    for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
      int value = 0;
      CheckStatus(Library().property(part, &value), "cusparseGetProperty");
      if (!version.empty()) version += ".";
      version += std::to_string(value);
    }
    return version;
  } catch (const Failure&) {
    return {};
  }
}

}  // namespace spaid::kernels::bench
