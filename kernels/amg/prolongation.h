// The smoothed prolongation P = (I - ω D_F⁻¹ A_F) P0 of smoothed aggregation.
//
//   auto f = FilterWeak(a_rows, graph, aggregates, near_null, block, context);
//   auto p = SmoothProlongation(*f, tentative, context);
#pragma once

#include <cstdint>

#include "kernels/amg/aggregation.h"
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

// A bound on the spectral radius ρ of a matrix by rows with a diagonal of ones: max_i Σ_j |a_ij|
// where that is at most `tight`, else the lesser of it and 1.1 times what `steps` power steps find.
// Rounded up to a multiple of 1/64, so that the last bit of a norm changes nothing.
double SpectralBound(const CscView& rows, double tight, int steps, const Context& context);

// ω = 4 / (3 ρ). At most 12 aggregates a row: the largest, with the row's sum over the coarse
// vector where there is one column. Errors: stop statuses, RESOURCE_EXHAUSTED/OUT_OF_MEMORY.
struct Smoothed {
  CscMatrix p;  // by rows
  double rho = 0;
};
Result<Smoothed> SmoothProlongation(const CscView& filtered, const Tentative& tentative,
                                    const Context& context);

}  // namespace spaid::kernels
