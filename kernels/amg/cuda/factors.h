// The smoothers ω Gᵀ G on a device: G by the engine of FSAI there (kernels/fsai/cuda), as the
// host's MakeSmoother takes the host's.
//
//   std::optional<SmootherFactor> made = MakeFactor(context, a, by_nodes, kind, options, caller);
#pragma once

#include <optional>

#include "kernels/amg/amg.h"
#include "kernels/base/cuda/caller.h"
#include "kernels/base/cuda/context.h"
#include "kernels/sparse/cuda/kept_patterns.h"
#include "kernels/sparse/cuda/node_products.h"

namespace spaid::cuda {

// Keeps what is known of G, or M of static SPAI by columns, for other values of A.
struct KeptFactor {
  RowMatrix pattern;  // of no rows: nothing, or M's is A's
  Transposition transposed;
};

struct SmootherFactor {
  // By rows, both; M and Mᵀ of static SPAI, where A is symmetric, else M alone.
  RowMatrix g, gt;
  double rho = 0, omega = 1;
  KeptFactor kept;  // where that was asked for

  // As Buffer's.
  void GoTo(Context& other);
};

// Makes G of a symmetric A with unit diagonal, `by_nodes` the same by nodes, or null; `kind`: kFsai
// or kAfsai. Patterns are the host's but for ties within rounding, values the host's to rounding.
// Nothing where that is the host's work: of an A without a positive diagonal or, by FSAI's
// tolerance, not symmetric, and of rows too long for the device. Waits for the device. Throws
// Failure, and Refusal where `caller` stops it.
std::optional<SmootherFactor> MakeFactor(Context& context, const RowMatrix& a,
                                         const NodeMatrix* by_nodes, kernels::SmootherKind kind,
                                         const kernels::AmgOptions& options, bool keeps,
                                         const Caller& caller);
// The same on the pattern of a G that was made before.
std::optional<SmootherFactor> MakeFactorOn(Context& context, const RowMatrix& a,
                                           const NodeMatrix* by_nodes, const KeptFactor& known,
                                           const kernels::AmgOptions& options,
                                           const Caller& caller);

}  // namespace spaid::cuda
