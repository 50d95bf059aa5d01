#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/krylov/cuda/operator.h"
#include "kernels/krylov/cuda/product_end.h"
#include "kernels/krylov/cuda/times.h"

namespace spaid::cuda {
namespace {

template <class T>
inline constexpr bool kIsDiagonal = std::is_same_v<std::decay_t<T>, Diagonal>;
template <class T>
inline constexpr bool kIsApplied = std::is_same_v<std::decay_t<T>, std::unique_ptr<const Applied>>;
template <class T>
inline constexpr bool kIsDia =
    std::is_same_v<std::decay_t<T>, Dia<double>> || std::is_same_v<std::decay_t<T>, Dia<float>>;

template <class Value>
Operator Make(Context& context, const PatternRef& pattern, const double* values, Order order) {
  const bool is_by_rows = order != Order::kColumns;
  const int64_t by_rows = CountEntries(context, pattern) * Csr<Value>::kEntryBytes;
  if (by_rows > context.variants.rows_bytes) {
    std::optional<Dia<Value>> dia = Dia<Value>::Make(context, pattern, values, order);
    if (dia.has_value()) return *std::move(dia);
    std::optional<Bsr<Value>> nodes = Bsr<Value>::Make(context, pattern, values, is_by_rows);
    if (nodes.has_value()) return *std::move(nodes);
  }
  return Csr<Value>(context, pattern, values, is_by_rows);
}

}  // namespace

Operator MakeOperator(Context& context, const PatternRef& pattern, const double* values,
                      Order order, bool fp32) {
  return fp32 ? Make<float>(context, pattern, values, order)
              : Make<double>(context, pattern, values, order);
}

void UpdateOperator(Context& context, const Matrix& matrix, Operator& op) {
  const PatternRef pattern = matrix.pattern();
  const double* const values = matrix.values.get();
  const bool updated = std::visit(
      [&](auto& own) -> bool {
        if constexpr (!kIsDiagonal<decltype(own)> && !kIsApplied<decltype(own)>) {
          if (own.n() == matrix.n && own.nnz() == matrix.nnz) {
            if constexpr (kIsDia<decltype(own)>) {
              return own.UpdateValues(context, pattern, values);
            } else {
              own.UpdateValues(context, pattern, values);
              return true;
            }
          }
        }
        throw Failure(CudaFault::kPlanMismatch, "the matrix has not the operator's pattern");
      },
      op);
  if (updated) return;
  const bool fp32 = std::holds_alternative<Dia<float>>(op);
  op = MakeOperator(context, pattern, values, Order::kColumns, fp32);
}

int64_t SizeOf(const Operator& op) {
  return std::visit(
      [](const auto& own) {
        if constexpr (kIsDiagonal<decltype(own)>) {
          return own.values.size();
        } else if constexpr (kIsApplied<decltype(own)>) {
          return own->n();
        } else {
          return own.n();
        }
      },
      op);
}

int64_t BytesPerProduct(const Operator& op) {
  return std::visit(
      [](const auto& own) {
        if constexpr (kIsDiagonal<decltype(own)>) {
          return 3 * own.values.size() * static_cast<int64_t>(sizeof(double));
        } else if constexpr (kIsApplied<decltype(own)>) {
          return own->traffic().matrices + own->traffic().vectors;
        } else {
          return own.bytes_per_product();
        }
      },
      op);
}

Traffic TrafficOf(const Operator& op) {
  if (const auto* applied = std::get_if<std::unique_ptr<const Applied>>(&op)) {
    return (*applied)->traffic();
  }
  const int64_t x_and_y = 2 * 8 * SizeOf(op);
  return {BytesPerProduct(op) - x_and_y, x_and_y};
}

const SmemCsr* SmemLayout(const Operator& a, const Operator* m) {
  const auto* rows = std::get_if<Csr<double>>(&a);
  if (rows == nullptr || (m != nullptr && !std::holds_alternative<Diagonal>(*m))) return nullptr;
  return rows->smem();
}

void Product(const Context& context, const Operator& op, const double* x, double* y,
             const AnyProductEnd& end) {
  std::visit(
      [&](const auto& own) {
        if constexpr (kIsDiagonal<decltype(own)>) {
          throw Failure(CudaFault::kError, "a product with sums by a diagonal");
        } else if constexpr (kIsApplied<decltype(own)>) {
          Product(context, *own, x, y, end);
        } else {
          Product(Branch{context.stream}, own, x, y, end);
        }
      },
      op);
}

void Apply(const Context& context, const Operator& op, const double* x, double* y) {
  if (const auto* diagonal = std::get_if<Diagonal>(&op)) {
    LaunchDiagonal(context, diagonal->values.size(), diagonal->values.get(), x, y);
    return;
  }
  const auto* applied = std::get_if<std::unique_ptr<const Applied>>(&op);
  WithColumns(applied != nullptr ? (*applied)->columns() : 1,
              [&](auto columns) { Product(context, op, x, y, ProductEnd<columns, 0>{}); });
}

double TimeProducts(Context& context, const Operator& op, int products) {
  const int64_t n = SizeOf(op);
  const Buffer<double> x(context, n), y(context, n);
  x.Fill(0x3f);  // 4.8e-4
  constexpr int kWarm = 3;
  for (int i = 0; i < kWarm; ++i) Apply(context, op, x.get(), y.get());
  context.Synchronize();

  // Launches that a stream takes without making the host wait.
  constexpr int kQueue = 100;
  products = std::max(products, 1);
  std::vector<double> ms;
  while (static_cast<int>(ms.size()) < products) {
    const int count = std::min(kQueue, products - static_cast<int>(ms.size()));
    const std::vector<double> some =
        TimeEach(context, count, [&](int) { Apply(context, op, x.get(), y.get()); });
    ms.insert(ms.end(), some.begin(), some.end());
  }
  std::nth_element(ms.begin(), ms.begin() + static_cast<int64_t>(ms.size() / 2), ms.end());
  return ms[ms.size() / 2];
}

}  // namespace spaid::cuda
