// Solves of the fake engine whose iterations M decides.
#pragma once

#include "kernels/engine/engine.h"

namespace spaid::server {

// Solves for FakeEngine::solve: in 10 iterations where M is the inverse of A's diagonal, in c times
// as many where the worst entry of A M is c or 1 / c, each taking as much off the residual as the
// one before, and in no more than max_iterations.
kernels::SolveResult SolveByM(const kernels::Engine::SolveCase& c, const kernels::Context& context,
                              const kernels::Status& held, bool breaks);

}  // namespace spaid::server
