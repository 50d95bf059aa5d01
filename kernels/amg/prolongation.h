// The smoothed prolongation P = (I - ω D_F⁻¹ A_F) P0 of smoothed aggregation.
//
//   auto f = FilterWeak(a_rows, graph, aggregates, near_null, block, context);
//   auto p = SmoothProlongation(Share(*f), tentative, kept, context);
#pragma once

#include <cstdint>

#include "kernels/amg/aggregation.h"
#include "kernels/amg/shared_matrix.h"
#include "kernels/amg/strength.h"
#include "kernels/amg/tentative.h"
#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// D_F⁻¹ A_F by rows: strong entries and the diagonal, and of a node without strong neighbours that
// of its leader; its diagonal entry is 1. With one unknown a node weak entries go to the diagonal,
// each times B_j / B_i, so that A_F B = A B for the one near-null vector B, unless less than
// `least_left` of it would be left. Errors: stop statuses.
Result<CscMatrix> FilterWeak(const CscView& a_rows, const StrongGraph& graph,
                             const Aggregates& aggregates, const NearNull& near_null, int block,
                             double least_left, const Context& context);

// The same of other values, where `filtered` is the pattern of before: which entries are strong is
// its. A may have another pattern: entries that only one of the two has are not strong.
Result<SharedMatrix> FilterWeakOn(const SharedPattern& filtered, const CscView& a_rows,
                                  const NearNull& near_null, int block, double least_left,
                                  const Context& context);

// A bound on the spectral radius ρ of a matrix by rows with a diagonal of ones: max_i Σ_j |a_ij|
// where that is at most `tight`, else the lesser of it and 1.1 times what `steps` power steps find.
// Rounded up to a multiple of 1/64, so that the last bit of a norm changes nothing.
double SpectralBound(const CscView& rows, double tight, int steps, const Context& context);

// Patterns of P, and the aggregates that its long rows keep.
struct KeptProlongation {
  KeptProduct whole;
  SharedPattern cut;  // null: no row is long
};

struct Smoothed {
  SharedMatrix p;  // by rows
  double rho = 0;
};
// ω = 4 / (3 ρ). At most 12 aggregates a row: the largest, or those of before where `kept`, which
// is brought up to date, has them of the same factors; with the row's sum over the coarse vector
// where there is one column. Errors: stop statuses, RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
Result<Smoothed> SmoothProlongation(SharedMatrix filtered, const Tentative& tentative,
                                    KeptProlongation& kept, const Context& context);

}  // namespace spaid::kernels
