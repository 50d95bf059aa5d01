// Decides whether a matrix has few diagonals, and makes the tables for it. A diagonal that the
// sample of kernels/sparse/cuda/offsets.h has missed (one of few entries) leaves the matrix to the
// general path.
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernels/base/cuda/scan_sort.h"
#include "kernels/static_spai/cuda/dia.h"
#include "kernels/static_spai/cuda/dia_tuning.h"
#include "kernels/static_spai/cuda/plan.h"

namespace spaid::cuda {
namespace {

// Index of `value` in the first `count` of a sorted list, −1: it is not there.
int32_t Find(const int32_t* list, int32_t count, int64_t value) {
  const int32_t* const at = std::lower_bound(list, list + count, value);
  return at != list + count && *at == value ? static_cast<int32_t>(at - list) : -1;
}

DiaTables MakeTables(const Offsets& a, const Offsets& m, int64_t nodes) {
  DiaTables tables;
  tables.diagonals = a.count;
  tables.offsets = m.count;
  std::copy_n(a.at, a.count, tables.a_offset);
  std::copy_n(m.at, m.count, tables.m_offset);
  for (int q = 0; q < m.count; ++q) {
    tables.target[q] = Find(a.at, a.count, -int64_t{m.at[q]});
  }
  // A difference that no two nodes have needs no diagonal: its `place` is 0, and is not read.
  std::vector<int32_t> products;
  for (int p = 0; p < m.count; ++p) {
    for (int q = 0; q <= p; ++q) {
      const int64_t difference = int64_t{m.at[p]} - m.at[q];
      if (difference < nodes) products.push_back(static_cast<int32_t>(difference));
    }
  }
  std::sort(products.begin(), products.end());
  products.erase(std::unique(products.begin(), products.end()), products.end());
  tables.products = static_cast<int32_t>(products.size());
  std::copy(products.begin(), products.end(), tables.b_offset);
  for (int p = 0; p < m.count; ++p) {
    for (int q = 0; q <= p; ++q) {
      const int32_t at = Find(tables.b_offset, tables.products, int64_t{m.at[p]} - m.at[q]);
      tables.place[p * (p + 1) / 2 + q] = static_cast<uint16_t>(std::max(at, 0));
    }
  }
  // Row c + a_offset[first] of column c is row (c + d) + a_offset[second] of column c + d.
  std::vector<std::pair<int32_t, uint16_t>> pairs;
  for (int first = 0; first < a.count; ++first) {
    for (int second = 0; second <= first; ++second) {
      const int32_t at =
          Find(tables.b_offset, tables.products, int64_t{a.at[first]} - a.at[second]);
      if (at >= 0) pairs.emplace_back(at, static_cast<uint16_t>(first | second << 8));
    }
  }
  std::vector<uint8_t> made(products.size(), 0);
  for (const auto& pair : pairs) made[static_cast<size_t>(pair.first)] = 1;
  for (size_t d = 0; d < made.size(); ++d) {
    if (made[d] == 0) pairs.emplace_back(static_cast<int32_t>(d), DiaTables::kNoPair);
  }
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size(); ++i) {
    tables.pair[i] = pairs[i].second;
    ++tables.pair_begin[pairs[i].first + 1];
  }
  for (int d = 0; d < tables.products; ++d) tables.pair_begin[d + 1] += tables.pair_begin[d];

  std::vector<std::pair<int64_t, uint32_t>> rows;
  for (int q = 0; q < m.count; ++q) {
    for (int d = 0; d < a.count; ++d) {
      rows.emplace_back(int64_t{m.at[q]} + a.at[d], static_cast<uint32_t>(q | d << 8));
    }
  }
  std::sort(rows.begin(), rows.end());
  tables.rows = static_cast<int32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool last = i + 1 == rows.size() || rows[i + 1].first != rows[i].first;
    tables.row[i] = rows[i].second | (last ? DiaTables::kLast : 0) |
                    (rows[i].first == 0 ? DiaTables::kTarget : 0);
  }
  return tables;
}

// Nodes of a range; 0: no range that pays fits the workspace that estimates count with.
int32_t RangeOf(const DiaPlan& plan, int64_t nnz_a) {
  using namespace dia_tuning;
  const int64_t square = int64_t{plan.node} * plan.node;
  const int64_t product_bytes = 8 * square * plan.products;
  const int64_t node_bytes = product_bytes + 8 * square * plan.offsets + plan.node;
  const int64_t work = WorkBytes(nnz_a);
  if (plan.nodes * node_bytes <= work) return std::min(plan.nodes, MostNodes(plan.slots()));
  const int64_t halo = int64_t{plan.highest} - plan.lowest;
  const int64_t range = (work - halo * product_bytes) / node_bytes;
  if (range < std::max<int64_t>(kLeastRange, halo / 2)) return 0;
  return static_cast<int32_t>(std::min<int64_t>(range, MostNodes(plan.slots())));
}

// Whether memory suffices for a build: the general path may need less.
bool HasRoom(const Context& context, const Matrix& a, int64_t nnz_m, const DiaPlan& plan) {
  const int64_t n = a.n, square = int64_t{plan.node} * plan.node;
  const int64_t halo = int64_t{plan.highest} - plan.lowest;
  const int64_t work =
      8 * square * plan.products * std::min<int64_t>(plan.nodes, plan.range + halo) +
      (8 * square * plan.offsets + plan.node) * plan.range;
  const int64_t by_diagonals = 8 * (int64_t{plan.diagonals} * plan.node * n + 2 * plan.nodes);
  const int64_t results = 8 * nnz_m + (3 * 8 + 1) * n;
  constexpr int64_t kRounding = 1 << 18;
  return work + by_diagonals + results + kRounding <=
         context.arena->limit() - context.arena->used();
}

// As FindOffsets, for full blocks; none, too, if they fill less than kLeastFill.
Offsets OffsetsOf(Context& context, const PatternRef& a, int64_t nnz, int limit, int& node) {
  const Offsets found = FindOffsets(context, a, /*whole=*/true, limit, node);
  const double room = static_cast<double>(found.count) * node * static_cast<double>(a.n);
  return static_cast<double>(nnz) < dia_tuning::kLeastFill * room ? Offsets{} : found;
}

bool TryNode(Context& context, const Matrix& a, const StaticSpaiPlan& plan, int node,
             DiaPlan& dia) {
  const int64_t n = a.n;
  const bool same = plan.m.is_of_a();
  const Offsets of_a =
      OffsetsOf(context, a.pattern(), a.nnz, same ? kMaxOffsets : kMaxDiagonals, node);
  dia.node = node;
  if (of_a.count == 0 || node == 0) return false;
  const Offsets of_m =
      same ? of_a : OffsetsOf(context, plan.pattern(), plan.m.nnz, kMaxOffsets, node);
  if (of_m.count == 0) return false;
  dia.nodes = static_cast<int32_t>(n / node);
  dia.diagonals = of_a.count;
  dia.offsets = of_m.count;
  dia.lowest = of_m.at[0];
  dia.highest = of_m.at[of_m.count - 1];
  if (node == 1 && dia.slots() > kMaxTeamSlots) return false;
  // Kernels address A by diagonals, and B, by 32 bits.
  if ((int64_t{of_a.count} * node + 1) * n > INT32_MAX) return false;
  dia.a_mask = Buffer<uint64_t>(context, dia.nodes);
  dia.m_mask = Buffer<uint32_t>(context, dia.nodes);
  uint32_t* const m_mask = dia.m_mask.get();
  const Buffer<int32_t> wrong(context, 1);
  wrong.Fill(0);
  FillMasks(context, a.pattern(), node, of_a, dia.a_mask.get(), same ? m_mask : nullptr,
            wrong.get());
  if (!same) FillMasks(context, plan.pattern(), node, of_m, nullptr, m_mask, wrong.get());
  // While these run.
  const DiaTables tables = MakeTables(of_a, of_m, dia.nodes);
  dia.products = tables.products;
  dia.pairs = tables.pair_begin[tables.products];
  const int64_t farthest = std::max(std::abs(int64_t{dia.lowest}), int64_t{dia.highest});
  if (farthest * tables.products * node * node > INT32_MAX) return false;
  dia.range = RangeOf(dia, a.nnz);
  if (dia.range == 0 || !HasRoom(context, a, plan.m.nnz, dia)) return false;
  dia.tables = Buffer<DiaTables>(context, 1);
  dia.tables.CopyIn(&tables, 1);
  return Read(context, wrong, 0) == 0;
}

}  // namespace

DiaPlan MakeDiaPlan(Context& context, const Matrix& a, const StaticSpaiPlan& plan) {
  DiaPlan dia;
  if (TryNode(context, a, plan, 0, dia)) return dia;
  if (dia.node > 1) {
    dia = {};
    if (TryNode(context, a, plan, 1, dia)) return dia;
  }
  return {};
}

int64_t DiaPlan::device_bytes() const {
  const auto bytes = [](const auto& buffer) {
    return Arena::Rounded(buffer.size() * static_cast<int64_t>(sizeof(*buffer.get())));
  };
  return bytes(tables) + bytes(a_mask) + bytes(m_mask);
}

}  // namespace spaid::cuda
