#include "kernels/amg/shared_matrix.h"

#include <cstddef>
#include <limits>

#include "kernels/sparse/make_rows.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

SharedMatrix Share(CscMatrix matrix) {
  auto pattern = std::make_shared<Pattern>(Pattern{.n_rows = matrix.n_rows,
                                                   .n_cols = matrix.n_cols,
                                                   .col_ptr = std::move(matrix.col_ptr),
                                                   .row_idx = std::move(matrix.row_idx)});
  return {.pattern = std::move(pattern), .values = std::move(matrix.values)};
}

Result<SharedMatrix> MultiplyUpTo(int64_t most_entries, const SharedMatrix& a,
                                  const SharedMatrix& b, KeptProduct& kept, const Context& context,
                                  RowOrder order) {
  return GuardMemory("a product of sparse matrices", [&]() -> Result<SharedMatrix> {
    if (kept.product != nullptr && kept.left == a.pattern && kept.right == b.pattern) {
      SharedMatrix made{.pattern = kept.product, .values = {}};
      made.values.resize(Z(made.pattern->nnz()));
      if (Status status = MultiplyOn(*made.pattern, a, b, context, made.values); !status.ok())
        return status;
      return made;
    }
    auto product = MultiplyUpTo(most_entries, CscView(a), CscView(b), context, order);
    if (!product.ok()) return product.status();
    if (!product->has_value()) return SharedMatrix();
    SharedMatrix made = Share(**std::move(product));
    kept = {.left = a.pattern, .right = b.pattern, .product = made.pattern};
    return made;
  });
}

Result<SharedMatrix> Multiply(const SharedMatrix& a, const SharedMatrix& b, KeptProduct& kept,
                              const Context& context, RowOrder order) {
  return MultiplyUpTo(std::numeric_limits<int64_t>::max(), a, b, kept, context, order);
}

SharedMatrix FillEmptyRows(SharedMatrix a, KeptFilling& kept) {
  const Pattern& before = *a.pattern;
  const auto is_empty = [&](int64_t i) { return before.col_ptr[Z(i) + 1] == before.col_ptr[Z(i)]; };
  int64_t empty = 0;
  for (int64_t i = 0; i < a.n(); ++i) empty += is_empty(i);
  if (empty == 0) return a;
  SharedMatrix filled;
  filled.values.reserve(a.values.size() + Z(empty));
  Pattern pattern{.n_rows = before.n_rows, .n_cols = before.n_cols, .col_ptr = {0}, .row_idx = {}};
  const bool known = kept.of == a.pattern;
  for (int64_t i = 0; i < a.n(); ++i) {
    const auto begin = before.col_ptr[Z(i)], end = before.col_ptr[Z(i) + 1];
    filled.values.insert(filled.values.end(), a.values.begin() + begin, a.values.begin() + end);
    if (is_empty(i)) filled.values.push_back(1);
    if (known) continue;
    const auto columns = before.row_idx.begin();
    pattern.row_idx.insert(pattern.row_idx.end(), columns + begin, columns + end);
    if (is_empty(i)) pattern.row_idx.push_back(static_cast<int32_t>(i));
    pattern.col_ptr.push_back(pattern.nnz());
  }
  if (!known) kept = {.of = a.pattern, .filled = std::make_shared<Pattern>(std::move(pattern))};
  filled.pattern = kept.filled;
  return filled;
}

Result<SharedMatrix> Transpose(const SharedMatrix& a, KeptTranspose& kept, const Context& context) {
  return GuardMemory("a transpose", [&]() -> Result<SharedMatrix> {
    const bool numbered = a.nnz() <= std::numeric_limits<int32_t>::max();
    if (!numbered) {
      auto whole = Transpose(CscView(a), context);
      if (!whole.ok()) return whole.status();
      return Share(*std::move(whole));
    }
    if (kept == nullptr || kept->of != a.pattern) {
      // Places travel as values.
      Array<double> places(a.values.size());
      ForRows(a.nnz(), context, [&](int64_t p) { places[Z(p)] = static_cast<double>(p); });
      auto turned = Transpose(CscView{PatternView(*a.pattern), places}, context);
      if (!turned.ok()) return turned.status();
      auto made = std::make_shared<Transposition>();
      made->of = a.pattern;
      made->from.resize(places.size());
      ForRows(a.nnz(), context,
              [&](int64_t p) { made->from[Z(p)] = static_cast<int32_t>(turned->values[Z(p)]); });
      turned->values = {};
      made->transpose = Share(*std::move(turned)).pattern;
      kept = std::move(made);
    }
    SharedMatrix made{.pattern = kept->transpose, .values = Array<double>(a.values.size())};
    ForRows(a.nnz(), context,
            [&](int64_t p) { made.values[Z(p)] = a.values[Z(kept->from[Z(p)])]; });
    return made;
  });
}

}  // namespace spaid::kernels
