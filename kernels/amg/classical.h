// Classical coarsening: some of the unknowns are those of the coarse level, the others are
// interpolated from them.
//
//   Result<Pattern> s = FindDependences(couplings, 0.25, unknown_of, context);
//   Result<Aggregates> coarse = SplitPmis(*s, level, context);
//   Result<SharedMatrix> p = ExtendedInterpolation(a_rows, *s, *coarse, ones, 0.1, nullptr,
//   context);
//
// All matrices are by rows. The same bits for any number of threads.
#pragma once

#include <cstdint>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// The order in which unknowns become coarse: largest key first, by the unknowns that depend on one
// (from 2047 on all are alike), then by a hash of node and level. No two nodes of a level have the
// same.
uint64_t SplittingKey(int64_t dependents, int64_t node, int level);

// Splits unknowns by PMIS (De Sterck, Yang, Heys, SIAM J. Matrix Anal. Appl. 27 (2006) 1019): the
// coarse ones are an independent set, greedy in the order of their keys, and what depends on a
// coarse one is not coarse. `of_node` is the number of a coarse unknown, ascending, -1 of the
// others; `isolated` depend on nothing, and nothing depends on them. `depends`: row i has what i
// depends on. Errors: stop statuses, RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe.
Result<Aggregates> SplitPmis(const PatternView& depends, int level, const Context& context);

// The values of near-null vectors at the coarse unknowns.
NearNull Injected(const NearNull& near_null, const Aggregates& coarse);

// P by extended interpolation with the connection back to i, "extended+i" (De Sterck, Falgout,
// Nolting, Yang, Numer. Linear Algebra Appl. 15 (2008) 115, formula 9): from the coarse unknowns
// that i depends on, and those that its fine ones depend on; then the four largest of a row. A row
// of P times the coarse near-null vector is the fine one's wherever rows of A times it are zero;
// what is weak goes to the diagonal, unless less than `least_left` of it would be left.
// `near_null`: one vector. `kept`: the pattern of a P made before by the same dependences and
// splitting, which P has then; may be null. Scratch: for each thread 4 bytes a coarse unknown.
// Errors: stop statuses; RESOURCE_EXHAUSTED/OUT_OF_MEMORY. Thread-safe.
Result<SharedMatrix> ExtendedInterpolation(const CscView& a_rows, const PatternView& depends,
                                           const Aggregates& coarse, const NearNull& near_null,
                                           bool symmetric, double least_left,
                                           const SharedPattern& kept, const Context& context);

}  // namespace spaid::kernels
