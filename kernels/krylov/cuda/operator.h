// What a Krylov method multiplies by on a device: a matrix by diagonals or by rows, its values
// stored in fp64 or fp32, or a diagonal.
#pragma once

#include <cstdint>
#include <variant>

#include "kernels/base/cuda/context.h"
#include "kernels/krylov/cuda/bsr.h"
#include "kernels/krylov/cuda/csr.h"
#include "kernels/krylov/cuda/dia.h"
#include "kernels/sparse/cuda/matrix.h"
#include "kernels/sparse/cuda/transpose.h"

namespace spaid::cuda {

struct Diagonal {
  Buffer<double> values;
};

using Operator = std::variant<Rows<double>, Rows<float>, Dia<double>, Dia<float>, NodeRows<double>,
                              NodeRows<float>, Diagonal>;

// Of a canonical CSC on the device, whose columns are what `order` says: by diagonals where that
// moves fewer bytes (class Dia), by nodes where those have whole blocks (class NodeRows), unless it
// is small (CudaVariants); else by rows (class Rows).
Operator MakeOperator(Context& context, const PatternRef& pattern, const double* values,
                      Order order, bool fp32);
// The values of `matrix`, by columns, which has the operator's pattern. Throws
// CudaFault::kPlanMismatch where its size or number of entries is another, and for a diagonal.
// Where they are no longer symmetric and the operator held half of them, it is laid out anew
// beside; where there is no room for that (CudaFault::kOutOfMemory), its values are worth nothing.
void UpdateOperator(Context& context, const Matrix& matrix, Operator& op);

int64_t SizeOf(const Operator& op);           // n
int64_t BytesPerProduct(const Operator& op);  // that must move at the least

// A's layout for a solve that lives on the chip with it and M; null: it does not, since A does not
// fit, or M is explicit. `m` may be null.
const ChipRows* OnChip(const Operator& a, const Operator* m);

// y = A x on the context's stream; x and y on the device.
void Apply(const Context& context, const Operator& op, const double* x, double* y);

// The median of so many products, each alone, in milliseconds by the device's clock.
double TimeProducts(Context& context, const Operator& op, int products);

}  // namespace spaid::cuda
