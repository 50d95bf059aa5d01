// Makes the matrices of a level of smoothed aggregation on a device: the host's
// kernels/amg/prolongation.h and the diagonals of smoothers.h, with the host's bits.
//
//   RowMatrix f = FilterWeak(context, a, graph, of_node, near, least_left);
//   DeviceProlongation p = SmoothProlongation(context, std::move(f), tentative, coarse_near);
//   RowMatrix r = Transpose(context, p.p);
//   std::optional<RowMatrix> coarse = Galerkin(context, most_entries, r, a, p.p);
//
// Near-null vectors are device arrays, null: ones.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/amg/cuda/power_steps.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/node_products.h"
#include "kernels/sparse/cuda/products.h"

namespace spaid::cuda {

// The strong graph of a level, device arrays as in kernels::StrongGraph.
struct StrongRef {
  const int64_t* ptr = nullptr;         // n + 1
  const int32_t* neighbours = nullptr;  // ascending in each row
  const int32_t* leader = nullptr;      // -1: none
};

// Returns D_F⁻¹ A_F by rows: strong entries and the diagonal, weak entries added to that, as the
// host's FilterWeak does. `of_node`: aggregates, -1: none. Waits for the device once.
RowMatrix FilterWeak(Context& context, const RowMatrix& a, const StrongRef& graph,
                     const int32_t* of_node, const double* near_null, double least_left);

// The same where nothing goes to the diagonal: of nodes of several unknowns, or several near-null
// vectors. Waits for the device once.
RowMatrix FilterNodes(Context& context, const RowMatrix& a, const StrongRef& graph,
                      const int32_t* of_node, int block);

// Writes the values of FilterWeak's into `filtered`, whose pattern says which entries are strong.
// `a` has the pattern that it was made of. Does not wait.
void FilterWeakOn(Context& context, const RowMatrix& a, const double* near_null, double least_left,
                  RowMatrix& filtered);

// Returns the host's SpectralBound of a matrix with a diagonal of ones. The row sums have the
// host's bits; the power steps are summed in another order, in each run the same, so that the
// bound, which is rounded up to a multiple of 1/64, is the host's but where rounding crosses one of
// these. `values`: those of `rows`, or others on its pattern. Waits for the device.
double SpectralBound(Context& context, const PatternRef& rows, const double* values, double tight,
                     int steps);
// The same of the largest row sum that is known.
double RoundedBound(Context& context, double row_sums, double tight, const PowerFactor& a,
                    int steps);

struct DeviceProlongation {
  RowMatrix p;
  double rho = 0;
};
// Patterns of a smoothed P, without values.
struct KeptProlongation {
  RowMatrix filtered;  // D_F⁻¹ A_F
  RowMatrix p;
  bool is_cut = false;  // some rows had more aggregates
};
// Returns P = (I - ω D_F⁻¹ A_F) P0, ω = 4 / (3 ρ), of at most 12 aggregates a row, as the host's
// SmoothProlongation does. `tentative`: P0; `coarse_near`: its coarse vectors, `count` of them.
// `kept`: receives the patterns, of one; may be null. Waits for the device.
DeviceProlongation SmoothProlongation(Context& context, RowMatrix filtered,
                                      const RowMatrix& tentative, const double* coarse_near,
                                      int count = 1, KeptProlongation* kept = nullptr);
// The same of one vector on known patterns of other values, which `filtered` has; long rows keep
// the aggregates of before, where P is multiplied out once more. Waits for the device.
DeviceProlongation SmoothProlongationOn(Context& context, RowMatrix filtered,
                                        const RowMatrix& tentative, const double* coarse_near,
                                        const KeptProlongation& kept);

// Patterns of A P and R (A P), without values.
struct KeptGalerkin {
  RowMatrix ap;      // of no rows: it has more than MostProductEntries of A's, or was made in waves
  RowMatrix coarse;  // of which rows have no entries; of no rows: each has some
};
// Returns R (A P), with a one on the diagonal of rows without entries; nothing where it would have
// more than so many entries. Where A P would have more than `most_between`, or than half of the
// free memory has room for, it is made in waves (product_waves.h). `kept`: receives patterns, but
// that of the result; may be null. Waits for the device twice, or some times a wave.
std::optional<RowMatrix> Galerkin(Context& context, int64_t most_entries, const RowMatrix& r,
                                  const RowMatrix& a, const RowMatrix& p,
                                  int64_t most_between = INT64_MAX, KeptGalerkin* kept = nullptr);
// The same of other values; `result`: its pattern. Does not wait but where rows are too long for
// shared memory, or A P is not kept.
RowMatrix GalerkinOn(Context& context, const RowMatrix& r, const RowMatrix& a, const RowMatrix& p,
                     const KeptGalerkin& kept, const RowMatrix& result, int64_t most_between);
// The first of matrices by nodes; the nodes of the result are of no rows where it has rows that
// were without entries. *ap receives the nodes of A P.
std::optional<NodeProduct> Galerkin(Context& context, int64_t most_entries, const NodeMatrix& r,
                                    const NodeMatrix& a, const NodeMatrix& p, RowMatrix* ap);
// That of other values on known patterns of nodes. Nothing where these rows are too long for shared
// memory. Does not wait.
std::optional<NodeProduct> GalerkinOn(Context& context, const NodeMatrix& r, const NodeMatrix& a,
                                      const NodeMatrix& p, const RowMatrix& ap,
                                      const RowMatrix& coarse);

// Returns `factor` times 1 / a_ii, or with `l1` times 1 / Σ_j |a_ij| with the diagonal's sign; 0
// where that is 0. Does not wait.
Buffer<double> InverseDiagonal(Context& context, const RowMatrix& a, bool l1, double factor);

// Returns a bound on ρ(D⁻¹A), of Jacobi's and Chebyshev's smoothers; `inverse`: D⁻¹, of
// InverseDiagonal. Scratch: 8 bytes an entry. Waits for the device.
double SmootherRho(Context& context, const RowMatrix& a, const Buffer<double>& inverse);

// Returns the host's bound on ρ(G A Gᵀ), of the smoothers by factors, as SpectralBound rounded up;
// `gt`: Gᵀ by rows; `by_nodes`: A by nodes, or null. Scratch: PowerNorm's. Waits for the device.
double FactoredRho(Context& context, const RowMatrix& a, const NodeMatrix* by_nodes,
                   const RowMatrix& g, const RowMatrix& gt);

}  // namespace spaid::cuda
