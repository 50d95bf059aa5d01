// A preconditioner that is asked for, on its way from the wire to the engine. Apart from the
// headers that use it, as it knows the options of all engines.
#pragma once

#include <string>

#include "kernels/engine/spec.h"
#include "spaid/v1/preconditioner_spec.pb.h"

namespace spaid::server {

// A spec as it was asked for, checked.
struct ParsedSpec {
  kernels::PreconditionerSpec spec;
  std::string pattern_matrix;  // handle of the base pattern; empty: the engine's own
  bool regrow = false;         // of what grows: on no pattern that an earlier build grew
};

// A spec on a matrix in which AUTO is decided.
struct ResolvedBuild {
  kernels::PreconditionerSpec spec;
  v1::PreconditionerSpec proto;  // the same, as the wire shows it
  v1::EngineChoice choice;
  // By fingerprints; empty of an estimate, and of kNone.
  std::string plan_key;       // pattern, base pattern, spec: what a plan depends on
  std::string content_key;    // matrix with values, base pattern, spec: what a result depends on
  bool regrow = false;        // on no cached plan; the one that it leaves is cached
  bool auto_for_gpu = false;  // AUTO chose it by the costs of a GPU
  bool by_auto = false;   // AUTO chose it: a solve may climb on from it (kernels/engine/ladder.h)
  double iterations = 0;  // of a right-hand side, as AUTO predicts them; 0: it did not
};

}  // namespace spaid::server
