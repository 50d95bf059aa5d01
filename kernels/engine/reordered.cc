#include "kernels/engine/reordered.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/engine/engine_parts.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kEntryBytes = sizeof(int32_t) + sizeof(double);

Array<double> InOrder(std::span<const double> v, const UnknownOrder& order) {
  Array<double> carried(v.size());
  for (size_t begin = 0; begin < v.size(); begin += order.size()) {
    for (size_t k = 0; k < order.size(); ++k) {
      carried[begin + k] = v[begin + static_cast<size_t>(order[k])];
    }
  }
  return carried;
}

std::vector<Array<double>> InOrder(const std::vector<Array<double>>& of,
                                   const UnknownOrder& order) {
  std::vector<Array<double>> carried;
  for (const Array<double>& v : of) carried.push_back(InOrder(v, order));
  return carried;
}

}  // namespace

Result<std::unique_ptr<const Reordered>> Reordered::Make(const CscView& a, const NullSpace* space,
                                                         std::shared_ptr<const UnknownOrder> order,
                                                         const Context& context) {
  std::unique_ptr<Reordered> made(new Reordered);
  auto permuted = PermuteSymmetric(a, *order, context);
  if (!permuted.ok()) return permuted.status();
  made->a_ = *std::move(permuted);
  if (space != nullptr) {
    const bool one = &space->left() == &space->right();
    made->space_ = std::make_shared<NullSpace>(
        made->a_, InOrder(space->right(), *order),
        one ? std::vector<Array<double>>() : InOrder(space->left(), *order), one, space->what());
  }
  made->order_ = std::move(order);
  return std::unique_ptr<const Reordered>(std::move(made));
}

int64_t Reordered::HostBytes(const CscView& a, const Preconditioner* m, int64_t vectors,
                             int threads) {
  const int64_t n = a.n_cols;
  // Pointers of A, of its transpose and of their union, counters of rows, marks and the order. The
  // transpose and the union have gone before P A Pᵀ comes, and take no more an entry.
  const auto counters = [&](int64_t nnz) {
    return 4 * n * std::clamp<int64_t>(nnz / std::max<int64_t>(1, n), 1, std::max(1, threads));
  };
  int64_t bytes = a.nnz() * kEntryBytes + 48 * n + counters(a.nnz()) + 8 * n * vectors;
  if (m != nullptr) {
    const int64_t nnz = m->matrix().nnz();
    bytes += 2 * nnz * kEntryBytes + 24 * n + counters(nnz);  // by columns and by rows
  }
  return bytes;
}

Array<double> Reordered::Carried(std::span<const double> vectors) const {
  return InOrder(vectors, *order_);
}

void Reordered::TakeBack(std::span<double> vectors) const {
  const size_t n = order_->size();
  Array<double> carried(n);
  for (size_t begin = 0; begin < vectors.size(); begin += n) {
    const std::span<double> v = vectors.subspan(begin, n);
    std::copy(v.begin(), v.end(), carried.begin());
    for (size_t k = 0; k < n; ++k) v[static_cast<size_t>((*order_)[k])] = carried[k];
  }
}

Result<std::shared_ptr<const Preconditioner>> Reordered::Of(const Preconditioner& m,
                                                            const Context& context) const {
  const auto* mine = dynamic_cast<const HostPreconditioner*>(&m);
  if (mine == nullptr || mine->form() == MForm::kParts) return NotOurs();
  auto columns = PermuteSymmetric(mine->matrix(), *order_, context);
  if (!columns.ok()) return columns.status();
  CscMatrix given = *std::move(columns), g_columns;
  if (mine->is_factor()) {
    auto rows = Transpose(given, context);
    if (!rows.ok()) return rows.status();
    g_columns = std::exchange(given, *std::move(rows));
  }
  auto made =
      HostPreconditioner::Make(mine->kind(), std::move(given), context, /*on_host=*/true,
                               std::move(g_columns), {}, InOrder(mine->row_scaling(), *order_));
  if (!made.ok()) return made.status();
  return std::shared_ptr<const Preconditioner>(*std::move(made));
}

}  // namespace spaid::kernels
