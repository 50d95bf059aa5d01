// Operators of the Krylov methods on a device: a matrix laid out by diagonals, by blocks or by
// rows, its values stored in fp64 or fp32; a diagonal; or what is applied by several launches.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/applied.h"
#include "kernels/krylov/cuda/bsr.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/dia.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {

struct Diagonal {
  Buffer<double> values;
};

using Operator = std::variant<Csr<double>, Csr<float>, Dia<double>, Dia<float>, Bsr<double>,
                              Bsr<float>, Diagonal, std::unique_ptr<const Applied>>;

// Lays out a canonical CSC on the device, whose columns are A's columns, rows or both (`order`): by
// diagonals where that moves fewer bytes (class Dia), by blocks where nodes have full ones (class
// Bsr), unless it is small (Variants); else by rows (class Csr).
Operator MakeOperator(Context& context, const PatternRef& pattern, const double* values,
                      Order order, bool fp32);
// Gives the operator the values of `matrix`, by columns, which has its pattern. Throws
// CudaFault::kPlanMismatch where the size or number of entries differs, and for what is no matrix.
// If the operator held half of a symmetric matrix and the values no longer are symmetric, it is
// laid out anew; where there is no memory for that (CudaFault::kOutOfMemory), its values are
// invalid.
void UpdateOperator(Context& context, const Matrix& matrix, Operator& op);

int64_t SizeOf(const Operator& op);           // n
int64_t BytesPerProduct(const Operator& op);  // of one column, that must move at the least
Traffic TrafficOf(const Operator& op);        // the same

// A's layout for solves within shared memory (persistent_smem.h); null: A does not fit, or M is
// explicit. `m` may be null.
const SmemCsr* SmemLayout(const Operator& a, const Operator* m);

// y = A x on the context's stream; x and y on the device: one vector each, or as many columns as
// what is no matrix has vectors for.
void Apply(const Context& context, const Operator& op, const double* x, double* y);

// The median time of so many products, each alone, in milliseconds by the device's clock.
double TimeProducts(Context& context, const Operator& op, int products);

}  // namespace spaid::cuda
