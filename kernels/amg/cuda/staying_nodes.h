// Nodes that stay in the filtered row of a node. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/amg/cuda/prolongation.h"

namespace spaid::cuda {

// The nodes that stay in a node's row: the host's StrongRow, asked in any order.
class StayingNodes {
 public:
  __device__ StayingNodes(const StrongRef& graph, const int32_t* of_node, int64_t node)
      : begin_(graph.neighbours + graph.ptr[node]),
        end_(graph.neighbours + graph.ptr[node + 1]),
        node_(static_cast<int32_t>(node)),
        leader_(begin_ == end_ && of_node[node] >= 0 ? graph.leader[node] : -1) {}
  __device__ bool Stays(int32_t other) const {
    if (other == node_ || other == leader_) return true;
    const int32_t *low = begin_, *high = end_;
    while (low < high) {
      const int32_t* const middle = low + (high - low) / 2;
      if (*middle < other) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < end_ && *low == other;
  }

 private:
  const int32_t *begin_, *end_;
  int32_t node_, leader_;
};

}  // namespace spaid::cuda
