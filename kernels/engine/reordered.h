// A system with its unknowns in an order that puts those that touch each other side by side: many
// products on the host then find their vectors in the cores' caches.
//
//   if (Reordered::Pays(a, threads)) {
//     auto order = ReverseCuthillMcKee(a, context);
//     auto there = Reordered::Make(a, null_space, std::make_shared<const UnknownOrder>(*order), c);
//     ... solves there->a() y = there->Carried(b) ...
//     there->TakeBack(y);  // x
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"
#include "kernels/krylov/null_space.h"
#include "kernels/sparse/matrix.h"
#include "kernels/sparse/reorder.h"

namespace spaid::kernels {

using UnknownOrder = Array<int32_t>;  // old index at each new place

// P A Pᵀ and what carries vectors, null spaces and preconditioners there. Immutable; thread-safe.
class Reordered {
 public:
  // Whether A is scattered (LookAtLocality). Milliseconds; of a small A none.
  static bool Pays(const CscView& a, int threads) {
    return a.n_cols > kFarRows && LookAtLocality(a, threads).scattered();
  }

  // `a`: square, canonical, with values; not borrowed. `space`: of A, or null. Errors: stop
  // statuses.
  static Result<std::unique_ptr<const Reordered>> Make(const CscView& a, const NullSpace* space,
                                                       std::shared_ptr<const UnknownOrder> order,
                                                       const Context& context);
  // Host bytes that finding the order, Make, Of(m) and so many vectors of n take at their peak, at
  // most. `m`: may be null.
  static int64_t HostBytes(const CscView& a, const Preconditioner* m, int64_t vectors, int threads);

  const CscMatrix& a() const { return a_; }
  // Null: there is none.
  const NullSpace* null_space() const { return space_.get(); }

  // P v of each of the vectors of n.
  Array<double> Carried(std::span<const double> vectors) const;
  // Becomes Pᵀ v of each.
  void TakeBack(std::span<double> vectors) const;
  // P M Pᵀ, of factors both. Errors: stop statuses; INVALID_ARGUMENT/PRECONDITIONER_MISMATCH.
  Result<std::shared_ptr<const Preconditioner>> Of(const Preconditioner& m,
                                                   const Context& context) const;

 private:
  Reordered() = default;
  CscMatrix a_;
  std::shared_ptr<const NullSpace> space_;
  std::shared_ptr<const UnknownOrder> order_;
};

}  // namespace spaid::kernels
