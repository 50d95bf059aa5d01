#include "kernels/amg/aggregation.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/parallel.h"
#include "kernels/sparse/make_rows.h"

namespace spaid::kernels {
namespace {

size_t Z(int64_t i) { return static_cast<size_t>(i); }

// Those of `nodes` that keep(node) is true of, in their order.
template <class Keep>
Array<int32_t> Filter(const Array<int32_t>& nodes, const Context& context, const Keep& keep) {
  const auto count = static_cast<int64_t>(nodes.size());
  std::vector<Array<int32_t>> kept(Z((count + kRowsOfOneThread - 1) / kRowsOfOneThread));
  ParallelFor(count, kRowsOfOneThread, context.threads, [&](int64_t begin, int64_t end, int) {
    Array<int32_t>& own = kept[Z(begin / kRowsOfOneThread)];
    for (int64_t k = begin; k < end; ++k) {
      if (keep(nodes[Z(k)])) own.push_back(nodes[Z(k)]);
    }
  });
  Array<int32_t> all;
  for (const auto& own : kept) all.insert(all.end(), own.begin(), own.end());
  return all;
}

// One greedy set of distance two, in rounds of two minima over neighbourhoods. Nodes that are not
// `open` are not there; others that are no candidates become no roots, and are walked over.
class RootFinder {
 public:
  RootFinder(const StrongGraph& graph, int level, const Context& context)
      : graph_(graph), level_(level), context_(context) {}

  // Returns 1 for roots.
  template <class Open, class Candidate>
  Result<Array<uint8_t>> Find(const Open& open, const Candidate& candidate) {
    // For each node: its key while it is undecided, kRoot, or kNone; and the least of those of the
    // node and its neighbours.
    Array<uint64_t> own(Z(graph_.n)), nearest(Z(graph_.n), kNone);
    ForRows(graph_.n, context_, [&](int64_t k) {
      const auto i = static_cast<int32_t>(k);
      own[Z(k)] = open(i) && candidate(i) ? AggregationKey(k, level_) : kNone;
    });
    Array<int32_t> nodes(Z(graph_.n));
    for (int64_t i = 0; i < graph_.n; ++i) nodes[Z(i)] = static_cast<int32_t>(i);
    nodes = Filter(nodes, context_, open);
    Array<int32_t> undecided =
        Filter(nodes, context_, [&](int32_t i) { return own[Z(i)] != kNone; });
    while (!undecided.empty()) {
      if (const StopReason stopped = context_.stop.Poll(); stopped != StopReason::kNone) {
        return StopStatus(stopped, "the aggregation");
      }
      Over(nodes, [&](int32_t i) { nearest[Z(i)] = Least(own, i); });
      nodes = Filter(nodes, context_,
                     [&](int32_t i) { return nearest[Z(i)] != kNone && nearest[Z(i)] != kRoot; });
      Over(undecided, [&](int32_t i) {
        const uint64_t least = Least(nearest, i);
        if (least == kRoot) {
          own[Z(i)] = kNone;
        } else if (least == own[Z(i)]) {
          own[Z(i)] = kRoot;
        }
      });
      undecided = Filter(undecided, context_,
                         [&](int32_t i) { return own[Z(i)] != kNone && own[Z(i)] != kRoot; });
    }
    Array<uint8_t> roots(Z(graph_.n));
    ForRows(graph_.n, context_, [&](int64_t i) { roots[Z(i)] = own[Z(i)] == kRoot; });
    return roots;
  }

 private:
  static constexpr uint64_t kRoot = 0, kNone = ~uint64_t{0};  // no key is either

  template <class Body>
  void Over(const Array<int32_t>& nodes, const Body& body) const {
    ForRows(static_cast<int64_t>(nodes.size()), context_, [&](int64_t k) { body(nodes[Z(k)]); });
  }
  uint64_t Least(const Array<uint64_t>& of, int32_t i) const {
    uint64_t least = of[Z(i)];
    for (const int32_t j : graph_.of(i)) least = std::min(least, of[Z(j)]);
    return least;
  }

  const StrongGraph& graph_;
  const int level_;
  const Context& context_;
};

// Roots and their neighbours into `root_of`, which names an aggregate by its root.
template <class Open>
void TakeNeighbours(const StrongGraph& graph, const Array<uint8_t>& is_root, const Open& open,
                    const Context& context, Array<int32_t>& root_of) {
  ForRows(graph.n, context, [&](int64_t i) {
    if (!open(static_cast<int32_t>(i))) return;
    if (is_root[Z(i)] == 1) root_of[Z(i)] = static_cast<int32_t>(i);
    for (const int32_t j : graph.of(i)) {
      if (is_root[Z(j)] == 1) root_of[Z(i)] = j;
    }
  });
}

// The root whose aggregate i is coupled to most; -1: to none.
int32_t StrongestAggregate(const StrongGraph& graph, const Array<int32_t>& root_of, int64_t i) {
  const auto neighbours = graph.of(i);
  const auto weights = graph.weights_of(i);
  std::vector<std::pair<int32_t, double>> sums;
  for (size_t p = 0; p < neighbours.size(); ++p) {
    const int32_t root = root_of[Z(neighbours[p])];
    if (root < 0) continue;
    const auto at =
        std::find_if(sums.begin(), sums.end(), [&](const auto& s) { return s.first == root; });
    if (at == sums.end()) {
      sums.emplace_back(root, weights[p]);
    } else {
      at->second += weights[p];
    }
  }
  int32_t best = -1;
  double most = 0;
  for (const auto& [root, sum] : sums) {
    if (best < 0 || sum > most || (sum == most && root < best)) best = root, most = sum;
  }
  return best;
}

// Numbers the aggregates in the order of their smallest nodes.
Aggregates Number(const Array<int32_t>& root_of) {
  Aggregates made;
  made.of_node.assign(root_of.size(), -1);
  Array<int32_t> number(root_of.size(), -1);
  for (size_t i = 0; i < root_of.size(); ++i) {
    if (root_of[i] < 0) {
      ++made.isolated;
      continue;
    }
    int32_t& of_root = number[Z(root_of[i])];
    if (of_root < 0) of_root = static_cast<int32_t>(made.count++);
    made.of_node[i] = of_root;
  }
  return made;
}

}  // namespace

uint64_t AggregationKey(int64_t node, int level) {
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
  uint64_t x =
      static_cast<uint64_t>(node) + (static_cast<uint64_t>(level) << 40) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  // 31 bits of it, never zero and never all ones, over the node, which breaks ties.
  return (((x >> 33) + 1) << 32) | static_cast<uint64_t>(node);
}

Result<Aggregates> Aggregate(const StrongGraph& graph, int level, const Context& context) {
  return GuardMemory("the aggregation", [&]() -> Result<Aggregates> {
    RootFinder finder(graph, level, context);
    Array<int32_t> root_of(Z(graph.n), -1);
    // Nodes without neighbours are nobody's, and become no roots.
    const auto coupled = [&](int32_t i) { return !graph.of(i).empty(); };
    const auto all = [](int32_t) { return true; };
    auto roots = finder.Find(all, coupled);
    if (!roots.ok()) return roots.status();
    TakeNeighbours(graph, *roots, coupled, context, root_of);

    // Whether a node is left over is asked of the state before this phase.
    Array<uint8_t> left(Z(graph.n));
    ForRows(graph.n, context,
            [&](int64_t i) { left[Z(i)] = root_of[Z(i)] < 0 && coupled(static_cast<int32_t>(i)); });
    const auto is_left = [&](int32_t i) { return left[Z(i)] != 0; };
    roots = finder.Find(is_left, [&](int32_t i) {
      const auto neighbours = graph.of(i);
      const auto too = std::count_if(neighbours.begin(), neighbours.end(), is_left);
      return too >= 2 && 3 * too >= 2 * static_cast<std::ptrdiff_t>(neighbours.size());
    });
    if (!roots.ok()) return roots.status();
    TakeNeighbours(graph, *roots, is_left, context, root_of);

    Array<int32_t> joined(Z(graph.n));
    ForRows(graph.n, context, [&](int64_t i) {
      joined[Z(i)] = root_of[Z(i)] >= 0 ? root_of[Z(i)] : StrongestAggregate(graph, root_of, i);
    });
    ForRows(graph.n, context, [&](int64_t i) {
      const int32_t leader = graph.leader[Z(i)];
      root_of[Z(i)] = joined[Z(i)] < 0 && leader >= 0 ? joined[Z(leader)] : joined[Z(i)];
    });
    return Number(root_of);
  });
}

}  // namespace spaid::kernels
