// M, or G of M = GᵀG, and products with it, in one thread: a rank of a parallel program has one
// core, and who has more has the arrays, too.
#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "client/c/last_error.h"
#include "client/c/objects.h"

using spaid::Code;
using spaid::CscMatrix;
using spaid::c::Fail;
using spaid::c::Guard;
using spaid::c::RequireAll;

namespace spaid::c {
namespace {

// y = A x, column by column.
void Multiply(const CscMatrix& a, const double* x, double* y) {
  std::fill_n(y, a.n, 0.0);
  for (int64_t column = 0; column < a.n; ++column) {
    const double factor = x[column];
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      y[a.row_idx[k]] += a.values[k] * factor;
    }
  }
}

// y = Aᵀ x. Where A is lower triangular, y may be x: entry j is made of x from j on.
void MultiplyTransposed(const CscMatrix& a, const double* x, double* y) {
  for (int64_t column = 0; column < a.n; ++column) {
    double sum = 0;
    for (int64_t k = a.col_ptr[column]; k < a.col_ptr[column + 1]; ++k) {
      sum += a.values[k] * x[a.row_idx[k]];
    }
    y[column] = sum;
  }
}

void Apply(const CscMatrix& m, int operation, const double* x, double* y) {
  const bool of_m = operation == SPAID_M || operation == SPAID_M_TRANSPOSED;
  if (m.is_factor && of_m) {  // symmetric
    Multiply(m, x, y);
    MultiplyTransposed(m, y, y);
  } else if (operation == SPAID_M || operation == SPAID_G) {
    Multiply(m, x, y);
  } else {
    MultiplyTransposed(m, x, y);
  }
}

int CheckOperation(const CscMatrix& m, int operation) {
  if (operation < SPAID_M || operation > SPAID_G_TRANSPOSED) {
    return Fail(Code::kInvalidArgument, "BAD_OPTION",
                "operation is " + std::to_string(operation) + "; take one of enum spaid_operation",
                "operation");
  }
  if (operation >= SPAID_G && !m.is_factor) {
    return Fail(
        Code::kFailedPrecondition, "NOT_A_FACTOR",
        "this preconditioner is M itself and has no G; apply SPAID_M, or build it by fsai or "
        "afsai",
        "operation");
  }
  return 0;
}

bool Overlap(const double* x, const double* y, size_t size) {
  return std::less<>()(x, y + size) && std::less<>()(y, x + size);
}

}  // namespace
}  // namespace spaid::c

int spaid_preconditioner_csc(const spaid_preconditioner* preconditioner, spaid_long* n,
                             const spaid_long** ptr, const int** idx, const double** values,
                             int* is_factor) {
  return Guard([&] {
    if (const int status = RequireAll({{"preconditioner", preconditioner}})) return status;
    const CscMatrix& m = *preconditioner->m;
    if (n != nullptr) *n = m.n;
    if (ptr != nullptr) *ptr = m.col_ptr.data();
    if (idx != nullptr) *idx = m.row_idx.data();
    if (values != nullptr) *values = m.values.data();
    if (is_factor != nullptr) *is_factor = m.is_factor;
    return 0;
  });
}

int spaid_apply(const spaid_preconditioner* preconditioner, int operation, int count,
                const double* x, double* y) {
  return Guard([&] {
    if (const int status = RequireAll({{"preconditioner", preconditioner}, {"x", x}, {"y", y}})) {
      return status;
    }
    const CscMatrix& m = *preconditioner->m;
    if (const int status = spaid::c::CheckOperation(m, operation)) return status;
    if (count < 1) {
      return Fail(Code::kInvalidArgument, "BAD_OPTION",
                  "count is " + std::to_string(count) + "; at least 1 is needed", "count");
    }
    if (spaid::c::Overlap(x, y, static_cast<size_t>(m.n) * static_cast<size_t>(count))) {
      return Fail(Code::kInvalidArgument, "BAD_OPTION",
                  "y overlaps x; products need a vector of their own", "y");
    }
    for (int k = 0; k < count; ++k) {
      spaid::c::Apply(m, operation, x + k * m.n, y + k * m.n);
    }
    return 0;
  });
}

void spaid_preconditioner_free(spaid_preconditioner* preconditioner) { delete preconditioner; }
