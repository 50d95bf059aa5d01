// cuSPARSE as far as the yardsticks of solves call it, looked for when it is first called.
#pragma once

#define DISABLE_CUSPARSE_DEPRECATED  // csric02 and csrilu02 have no successors
#include <cusparse.h>

namespace spaid::kernels::bench {

struct Cusparse {
  decltype(&cusparseCreate) create = nullptr;
  decltype(&cusparseDestroy) destroy = nullptr;
  decltype(&cusparseGetProperty) property = nullptr;
  decltype(&cusparseSetStream) set_stream = nullptr;
  decltype(&cusparseCreateMatDescr) create_general = nullptr;
  decltype(&cusparseDestroyMatDescr) destroy_general = nullptr;
  decltype(&cusparseCreateCsric02Info) create_ic = nullptr;
  decltype(&cusparseDestroyCsric02Info) destroy_ic = nullptr;
  decltype(&cusparseDcsric02_bufferSize) ic_bytes = nullptr;
  decltype(&cusparseDcsric02_analysis) ic_analysis = nullptr;
  decltype(&cusparseDcsric02) ic = nullptr;
  decltype(&cusparseXcsric02_zeroPivot) ic_zero_pivot = nullptr;
  decltype(&cusparseCreateCsrilu02Info) create_ilu = nullptr;
  decltype(&cusparseDestroyCsrilu02Info) destroy_ilu = nullptr;
  decltype(&cusparseDcsrilu02_bufferSize) ilu_bytes = nullptr;
  decltype(&cusparseDcsrilu02_analysis) ilu_analysis = nullptr;
  decltype(&cusparseDcsrilu02) ilu = nullptr;
  decltype(&cusparseXcsrilu02_zeroPivot) ilu_zero_pivot = nullptr;
  decltype(&cusparseCreateCsr) create_csr = nullptr;
  decltype(&cusparseSpMatSetAttribute) set_attribute = nullptr;
  decltype(&cusparseDestroySpMat) destroy_csr = nullptr;
  decltype(&cusparseCreateDnVec) create_vector = nullptr;
  decltype(&cusparseDnVecSetValues) set_vector = nullptr;
  decltype(&cusparseDestroyDnVec) destroy_vector = nullptr;
  decltype(&cusparseSpSV_createDescr) create_solve = nullptr;
  decltype(&cusparseSpSV_destroyDescr) destroy_solve = nullptr;
  decltype(&cusparseSpSV_bufferSize) solve_bytes = nullptr;
  decltype(&cusparseSpSV_analysis) solve_analysis = nullptr;
  decltype(&cusparseSpSV_solve) solve = nullptr;
};

// Throws Failure where there is no libcusparse.so.12, or it lacks one of these.
const Cusparse& Library();

// Throws Failure unless `status` is success.
void CheckStatus(cusparseStatus_t status, const char* what);

// A handle of cuSPARSE's, freed at the end.
template <class T, class Destroy>
class Held {
 public:
  explicit Held(Destroy destroy) : destroy_(destroy) {}
  ~Held() {
    if (handle != nullptr) destroy_(handle);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  T handle = nullptr;

 private:
  const Destroy destroy_;
};

}  // namespace spaid::kernels::bench
