// Products of matrices whose rows and columns come in whole nodes, on a device: the index work is
// that of nodes, the values have the bits of Multiply (products.h).
//
//   auto a_nodes = ByNodes(context, a, 3, 3), p_nodes = ByNodes(context, p, 3, 6);
//   if (a_nodes && p_nodes) {
//     std::optional<NodeProduct> ap = MultiplyNodes(context, most, *a_nodes, *p_nodes);
//
// Patterns are those of products of the nodes' patterns, which are marked in shared memory where
// they have few columns. For values a few lanes have a node of C,
// with its sums in shared memory: they take one node of A's after another, each lane columns of
// B's, and all rows of A's node at once.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// A matrix of which every `rows` rows, from the first on, have the same columns, which are those of
// whole nodes of `columns`. The matrix itself and its values are borrowed.
struct NodeMatrix {
  RowMatrix nodes;  // a row for each node; without meaning in its values
  int rows = 1, columns = 1;
  const RowMatrix* of = nullptr;  // null: its values alone are there
  const double* values = nullptr;
};

// Returns that of a matrix; nothing where it is not like that. Waits for the device.
std::optional<NodeMatrix> ByNodes(Context& context, const RowMatrix& a, int rows, int columns);

struct NodeProduct {
  RowMatrix whole;
  RowMatrix nodes;  // of NodeMatrix
};

// Returns a matrix of that pattern of nodes, with room for values.
NodeProduct WithNodes(Context& context, RowMatrix nodes, int rows, int columns);

// Whether MultiplyNodes takes factors that share nodes of so many unknowns.
bool HasNodeProducts(int inner);

// Calls launch(block), an integral constant, of such a number.
template <class Launch>
void WithBlock(int block, const Launch& launch) {
  switch (block) {
    case 2:
      return launch(std::integral_constant<int, 2>{});
    case 3:
      return launch(std::integral_constant<int, 3>{});
    case 4:
      return launch(std::integral_constant<int, 4>{});
    default:
      return launch(std::integral_constant<int, 6>{});
  }
}

// Returns C = A B where it has no more than so many entries; nothing where it has more, or rows too
// long for shared memory while a factor has its values alone. `order`: of its nodes in a row. Waits
// for the device as MultiplyUpTo does. Throws Failure.
std::optional<NodeProduct> MultiplyNodes(Context& context, int64_t most_entries,
                                         const NodeMatrix& a, const NodeMatrix& b,
                                         RowOrder order = RowOrder::kAscending);

// The same of other values; `nodes`: the pattern of its nodes. Nothing where MultiplyNodes would
// have gone by single unknowns. Does not wait.
std::optional<NodeProduct> MultiplyNodesOn(Context& context, const NodeMatrix& a,
                                           const NodeMatrix& b, const RowMatrix& nodes);

// Returns Aᵀ; the nodes of A receive other values, those of the result tell which nodes of A they
// are. Waits for the device.
NodeProduct Transpose(Context& context, NodeMatrix& a);
// The same of other values; `turned`: the nodes of that result, with their values. Does not wait.
NodeProduct TransposeOn(Context& context, const NodeMatrix& a, const RowMatrix& turned);

// Returns the product by nodes, which it gives away; the matrix itself is borrowed.
NodeMatrix NodesOf(NodeProduct& product, int rows, int columns);

}  // namespace spaid::cuda
