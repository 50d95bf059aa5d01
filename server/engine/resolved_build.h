// A preconditioner that is asked for, on its way from the wire to the engine. Apart from the
// headers that use it, as it knows the options of all engines.
#pragma once

#include <string>

#include "kernels/engine/ladder.h"
#include "kernels/engine/spec.h"
#include "spaid/v1/preconditioner_spec.pb.h"

namespace spaid::server {

// A stored matrix that comes along with a spec, and what it is there for.
struct GivenMatrix {
  enum class As { kPattern, kNearNullSpace, kCoordinates };
  std::string handle;  // empty: none
  As as = As::kPattern;
};

// A spec as it was asked for, checked.
struct ParsedSpec {
  kernels::PreconditionerSpec spec;
  GivenMatrix given;
  bool regrow = false;  // by nothing that an earlier build grew, or scaled A by
  bool learned = true;  // AUTO: start at what solved the pattern before
};

// A spec on a matrix in which AUTO is decided.
struct ResolvedBuild {
  kernels::PreconditionerSpec spec;
  v1::PreconditionerSpec proto;  // the same, as the wire shows it
  v1::EngineChoice choice;
  // By fingerprints; empty of an estimate, and of kNone.
  std::string plan_key;     // pattern, given matrix, spec: what a plan depends on
  std::string content_key;  // matrix with values, given matrix, spec: what a result depends on
  bool regrow = false;      // on no cached plan; the one that it leaves is cached
  bool by_auto = false;     // AUTO chose it: a solve may climb on from it
  bool over_ranks = false;  // of a matrix that lies there alone
  bool for_gpu = false;     // AUTO's, for a solve on a GPU: built there if it can be
  // The rung that it is of (kernels/engine/ladder.h), where AUTO chose it. One that no engine
  // builds alone has spec kNone: the ladder makes what it takes.
  kernels::RungKind rung = kernels::RungKind::kBottom;
};

}  // namespace spaid::server
