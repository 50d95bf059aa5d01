// The result of a build, and how good it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/amg/amg.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/engine/engine.h"
#include "kernels/fsai/fsai.h"
#include "kernels/mpi/petsc_options.h"
#include "kernels/sparse/scaling.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

// Quality figures common to all engines; those an engine cannot know keep their defaults.
struct Quality : StaticSpaiQuality {
  std::optional<FsaiQuality> fsai;  // of kFsai and kAfsai: that, and `density`, are all they know
  std::optional<DynamicSpaiQuality> dynamic_spai;  // of kDynamicSpai, besides that of its numbers
  std::optional<AmgQuality> amg;                   // of kAmg: all that it knows
  std::optional<PetscQuality> petsc;               // of what hypre and PETSc make: all they tell
  bool pattern_reused = false;                     // on what an earlier build found (grows_pattern)
  // How A was scaled before M was made: kNone, kEquilibrate, kMatching. Figures are of A itself.
  ScalingMode scaling = ScalingMode::kNone;
  bool scaling_reused = false;        // its factors are an earlier build's, of other values
  std::vector<std::string> warnings;  // for people; one sentence each, with counts and cures

  // visit(field of the wire's BuildQuality, optional figures) for each engine's own.
  template <class Visit>
  void EachEngine(Visit&& visit) const {
    visit("fsai", fsai);
    visit("dynamic_spai", dynamic_spai);
    visit("amg", amg);
    visit("petsc", petsc);
  }

  // Columns of M, or rows of G, that something befell, by its name ("rescued"); zeros included, and
  // a name may come twice.
  std::vector<std::pair<std::string, int64_t>> Counts() const;
};

struct BuildResult {
  std::shared_ptr<const Preconditioner> preconditioner;
  Quality quality;
  // Set where a pattern grew, and was not cut short, or where values called for another scaling
  // than the plan's: a plan that builds on that, for new values; else null.
  std::shared_ptr<const Plan> grown;
  double build_ms = 0;  // all of it; `timings` says what it went into besides arithmetic
  DeviceTimings timings;
};

}  // namespace spaid::kernels
