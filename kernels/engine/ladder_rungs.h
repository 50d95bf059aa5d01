// The rungs of AUTO's ladder: what each is made of, and when the one below it is judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/ladder.h"
#include "kernels/engine/spec.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/sparse/scaling.h"

namespace spaid::kernels {

// Cycles of GMRES grow to this in the end (SolveOptions::basis_bytes).
inline constexpr int64_t kBasisBytes = int64_t{256} << 20;

// Entries of both factors of FSAI that ends soon (kLightAfsai), in a row, about.
inline constexpr double kLightEntries = 10;

// The makings of a rung.
struct PlannedRung {
  RungKind kind = RungKind::kBottom;
  PreconditionerSpec spec;  // kNone: nothing, or dense LU
  Method method = Method::kGmres;
  int64_t restart = 50, basis_bytes = 0;
  double worth = 0;  // the one below is judged after so many times what the set-up costs
  bool scaled = false, dense_lu = false;
  std::string name;
  std::optional<double> setup_ms = {};  // once it is predicted (SetupMs), with `estimate`
  BuildEstimate estimate = {};
};

// Returns true if methods for positive definite A come first.
bool TakenForPositive(const LadderCase& c);

// Returns the rungs over the bottom, from there up; multigrid among them where Fits may yet find
// that A does not suit it. `positive`: A is taken to be positive definite. `begun`: the rung that
// the ladder begins with; on a GPU multigrid stands before FSAI where a diagonal smooths, unless
// FSAI is begun with.
std::vector<PlannedRung> PlannedRungs(const LadderCase& c, bool positive,
                                      RungKind begun = RungKind::kBottom);

// Returns the place of the rung; where A has none such, of the first one above it.
size_t PlaceOf(const std::vector<PlannedRung>& rungs, RungKind kind);

// Whether multigrid may be a rung of it, by what costs nothing to know; and whether it is, by a
// look at A, which `c` keeps.
bool MaySuitAmg(const LadderCase& c);
AmgSuitability SuitsAmg(const LadderCase& c);

// Moves dense LU, if it is among the rungs behind `i`, before the rung there where that is dear and
// predicted to cost more: LU is certain to serve where it exists.
void PutLuBefore(size_t i, const Engine& engine, const LadderCase& c, const Context& context,
                 std::vector<PlannedRung>* rungs);

// Returns true if the rung has a place on this way: of MINRES and static SPAI only where A is not,
// or no more, taken to be positive definite, of CG only where it is; multigrid where A suits it.
bool Fits(const PlannedRung& rung, const LadderCase& c, bool positive);

// Has GMRES take what memory there is for its basis: cycles that grow, or over ranks long ones from
// the start.
void LengthenCycles(const LadderCase& c, PlannedRung* rung);

// Sets the rung's method and lengths.
void Apply(const PlannedRung& rung, const LadderCase& c, SolveOptions* options);

// Predicts the set-up for one thread, as iterations are: what is left and when shall not depend on
// threads. 0 and no estimate where there is nothing to build, or it cannot be said.
double SetupMs(const Engine& engine, const LadderCase& c, const Context& context,
               PlannedRung* rung);

// Returns when a rung of `nnz_m` stored entries (`parts`: a cycle's) is judged that `next` stands
// behind; null: nothing that is not tried yet. On a GPU CG by a diagonal is judged as soon as its
// pace tells how many iterations are still to come, and let pass where they cost less than FSAI or
// multigrid behind it.
StallWatch::Look LookAfter(const Engine& engine, const LadderCase& c, PlannedRung* next,
                           Method method, int64_t nnz_m, bool parts, const Context& context);

// Says what it is for people: "static SPAI of A matched and scaled, BiCGSTAB". `scaling`: null, or
// what A is scaled by.
std::string Told(const PlannedRung& rung, const Scaling* scaling);

}  // namespace spaid::kernels
