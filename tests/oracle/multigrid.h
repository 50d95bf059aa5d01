// Smoothed aggregation by its definition, sequential and dense: what kernels/amg does in rounds, on
// many threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/oracle/oracle.h"

namespace spaid::oracle {

// s_ij = -(σ_i â_ij + σ_j â_ji) / 2 of i != j, â scaled to unit diagonal; with more unknowns a node
// the Frobenius norms of the scaled blocks, of both the mean.
Dense Couplings(const Dense& a, int block);

struct Strong {
  Dense weight;                 // s_ij where i and j are strong, else 0
  std::vector<int64_t> leader;  // -1: none
};
Strong FindStrong(const Dense& couplings, double theta);

// Greedy: nodes in the order of their keys become roots, unless one is within distance two;
// `take_part` and `candidate` as in the second phase. Returns the root of each node's aggregate, or
// -1.
using Key = std::function<uint64_t(int64_t)>;
std::vector<int64_t> GreedyRoots(const Dense& weight, const Key& key,
                                 const std::vector<bool>& takes_part,
                                 const std::vector<bool>& candidate);
// All phases; numbered by the smallest node, -1: isolated.
std::vector<int64_t> Aggregate(const Strong& strong, const Key& key);

// 1 where i depends on j: s_ij > 0 and s_ij >= θ max_k s_ik.
Dense Dependences(const Dense& couplings, double theta);
// PMIS, greedy, largest key first: true of coarse unknowns.
std::vector<bool> SplitPmis(const Dense& depends, const Key& key);
// Weights of extended+i interpolation before any is left out: row i has those of the coarse
// unknowns that a fine i is interpolated from. `near`: without zeros.
Dense ExtendedInterpolation(const Dense& a, const Dense& depends, const std::vector<bool>& coarse,
                            const Vector& near, double least_left);

// Σ_k a_ik b_kj in ascending order of k, by fma.
Dense MultiplyInOrder(const Dense& a, const Dense& b);

}  // namespace spaid::oracle
