// The rung of AUTO's ladder with which a solve on a GPU begins. There a set-up costs as much as
// some hundred iterations, and a look at what Jacobi brings as much as a set-up: so what Jacobi,
// FSAI and multigrid take is foretold by the size of A and a sample of it, before there is an
// iterate. On the CPU residuals decide alone (stall_watch.h).
//
//   const RungKind start = FirstRung(engine, c, context);
//   if (start == RungKind::kBottom) ... build and solve with that, under a StallWatch ...
//   else ClimbFrom(engine, c, {}, start, sink, context);
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/base/context.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/ladder.h"

namespace spaid::kernels {

inline constexpr double kNoRung = std::numeric_limits<double>::infinity();

// Holds what is known of a system before it is solved.
struct DeviceTerms {
  double n = 0, nnz = 0;
  int64_t n_rhs = 1;
  bool positive = true;  // for CG; else BiCGSTAB
  double decades = 7;    // by which the residual is to fall
  int block = 1;         // unknowns of a node
  // How far the rows of A, scaled to a diagonal of ones, are from those of the unit matrix, in some
  // entries that FSAI finds. Irregular: elements out of shape, directions that couple strongly;
  // even: FSAI finds nothing, as in wide rows of equal entries.
  enum class Rows { kEven, kRegular, kIrregular } rows = Rows::kRegular;
  bool uneven = false;                                     // the diagonal varies by decades
  double bottom_setup_ms = 0;                              // of Jacobi, on the host
  double fsai_setup_ms = kNoRung, amg_setup_ms = kNoRung;  // kNoRung: it is none
  double amg_entries = 0;                                  // of all levels

  bool irregular() const { return rows == Rows::kIrregular; }
};

// Milliseconds, set-ups included; what brings A to the device for a solve is not, as all do so.
struct RungTimes {
  double bottom_ms = 0, fsai_ms = kNoRung, amg_ms = kNoRung;
};

// Foretells them; within a factor of 2, mostly (docs/decisions/auto.md).
RungTimes ForetellTimes(const DeviceTerms& terms);

// Returns the rung of A's that is foretold to take least: kBottom (Jacobi), kLightAfsai or kAmg.
// kBottom, too, where `c.backend` is no GPU, A is over ranks, or the method is another than these
// rungs take. Not for a solve that begins at a guess, of which nobody knows how close it is. Looks
// at a sample of A only where Jacobi may take longer than a set-up, and at all of A (c.look) where
// multigrid is foretold to win and the sample is not clear. `context.device`: where that has no
// room to set multigrid up, it is none. kBottom where memory is short. Thread-safe.
RungKind FirstRung(const Engine& engine, const LadderCase& c, const Context& context);

}  // namespace spaid::kernels
