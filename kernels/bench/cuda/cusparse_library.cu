#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "kernels/base/cuda/context.h"
#include "kernels/bench/cuda/cusparse_library.h"

namespace spaid::kernels::bench {

using cuda::Failure;

const Cusparse& Library() {
  static const Cusparse library = [] {
    void* const opened = dlopen("libcusparse.so.12", RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) throw Failure(CudaFault::kError, "no libcusparse.so.12");
    Cusparse made;
    const auto find = [opened](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(opened, name));
      if (function == nullptr) {
        throw Failure(CudaFault::kError, std::string("libcusparse.so.12 lacks ") + name);
      }
    };
    find(made.create, "cusparseCreate");
    find(made.destroy, "cusparseDestroy");
    find(made.property, "cusparseGetProperty");
    find(made.set_stream, "cusparseSetStream");
    find(made.create_general, "cusparseCreateMatDescr");
    find(made.destroy_general, "cusparseDestroyMatDescr");
    find(made.create_ic, "cusparseCreateCsric02Info");
    find(made.destroy_ic, "cusparseDestroyCsric02Info");
    find(made.ic_bytes, "cusparseDcsric02_bufferSize");
    find(made.ic_analysis, "cusparseDcsric02_analysis");
    find(made.ic, "cusparseDcsric02");
    find(made.ic_zero_pivot, "cusparseXcsric02_zeroPivot");
    find(made.create_ilu, "cusparseCreateCsrilu02Info");
    find(made.destroy_ilu, "cusparseDestroyCsrilu02Info");
    find(made.ilu_bytes, "cusparseDcsrilu02_bufferSize");
    find(made.ilu_analysis, "cusparseDcsrilu02_analysis");
    find(made.ilu, "cusparseDcsrilu02");
    find(made.ilu_zero_pivot, "cusparseXcsrilu02_zeroPivot");
    find(made.create_csr, "cusparseCreateCsr");
    find(made.set_attribute, "cusparseSpMatSetAttribute");
    find(made.destroy_csr, "cusparseDestroySpMat");
    find(made.create_vector, "cusparseCreateDnVec");
    find(made.set_vector, "cusparseDnVecSetValues");
    find(made.destroy_vector, "cusparseDestroyDnVec");
    find(made.create_solve, "cusparseSpSV_createDescr");
    find(made.destroy_solve, "cusparseSpSV_destroyDescr");
    find(made.solve_bytes, "cusparseSpSV_bufferSize");
    find(made.solve_analysis, "cusparseSpSV_analysis");
    find(made.solve, "cusparseSpSV_solve");
    return made;
  }();
  return library;
}

void CheckStatus(cusparseStatus_t status, const char* what) {
  if (status == CUSPARSE_STATUS_SUCCESS) return;
  throw Failure(CudaFault::kError, std::string(what) + ": cuSPARSE status " +
                                       std::to_string(static_cast<int>(status)));
}

}  // namespace spaid::kernels::bench
