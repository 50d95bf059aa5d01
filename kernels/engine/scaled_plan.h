// Builds M of A by way of S = D_r A Q D_c (kernels/sparse/scaling.h): the engine's own plan is for
// S and its M' ≈ S⁻¹, and M = Q D_c M' D_r is what comes out; of M = GᵀG, with D_r = D_c and no Q,
// G = G' D_r. Options of the engine (tolerances, thresholds, filters) are of M'; a user's pattern
// is M's; figures of columns are of A and M.
//
// The factors are the plan's. They serve other values as long as StillScales says so; where it does
// not, the build finds others, and leaves a plan with these (BuildResult::grown). On devices the
// engine's plan and builds run there, all else is the host's.
#pragma once

#include <memory>

#include "kernels/base/context.h"
#include "kernels/base/status.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/preconditioner_engine.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels {

// As PreconditionerEngine::MakePlan, of a spec whose scaling is not kNone. Where A needs no scaling
// its builds are those of the engine, to the last bit. Errors besides: FAILED_PRECONDITION/
// VALUES_NEEDED for a pattern alone; those of ChooseScaling. The plan's builds:
// FAILED_PRECONDITION/INVERSE_OUT_OF_RANGE. An index of an error, where columns are permuted, is
// S's, and the message says so.
Result<std::shared_ptr<const Plan>> MakeScaledPlan(const PreconditionerEngine& engine,
                                                   const PreconditionerSpec& spec, const CscView& a,
                                                   const PatternView* user_pattern, PlanFor of,
                                                   const Context& context);

// As PreconditionerEngine::Estimate, with all that scaling adds; the engine's own where there is
// none. Where columns may be permuted and `a` has values, the matching is made for it, as the
// pattern of S decides what a build takes; without values the figures are those of A's own pattern.
Result<BuildEstimate> EstimateScaled(const PreconditionerEngine& engine,
                                     const PreconditionerSpec& spec, const CscView& a,
                                     const PatternView* user_pattern, const Context& context);

}  // namespace spaid::kernels
