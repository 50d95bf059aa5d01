// A caller's wish: an engine, and the options of each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/amg/amg.h"
#include "kernels/amg/scaling.h"
#include "kernels/base/device.h"
#include "kernels/dynamic_spai/dynamic_spai.h"
#include "kernels/engine/engine_traits.h"
#include "kernels/fsai/fsai.h"
#include "kernels/krylov/krylov.h"
#include "kernels/mpi/petsc_options.h"
#include "kernels/sparse/scaling.h"
#include "kernels/static_spai/static_spai.h"

namespace spaid::kernels {

struct PreconditionerSpec {
  EngineKind engine = EngineKind::kAuto;
  StaticSpaiOptions static_spai = {};  // read for kStaticSpai, and for kAuto where that chooses it
  // kJacobi: M inverts the diagonal blocks of so many rows; 1: the diagonal. 1 .. kMaxBlockSize.
  int block_size = 1;
  // Read for kFsai and kAfsai, of which each reads its own; `adaptive` is set by the kind.
  FsaiOptions fsai = {};
  DynamicSpaiOptions dynamic_spai = {};  // read for kDynamicSpai
  AmgOptions amg = {};                   // read for kAmg
  PetscEngineOptions petsc = {};         // read for kParasails, kBoomeramg and kGamg
  // Read for kAmg and kGamg: near-null vectors, or coordinates; null: none. Immutable.
  std::shared_ptr<const NearNullArrays> near_null = nullptr;
  // M is that of A by way of S = D_r A Q D_c (scaled_plan.h). kMatching: not for M = GᵀG, nor for
  // Jacobi, of which kAuto is no matching either. kAuto for engine kAuto: the engine that it comes
  // to builds by A itself.
  ScalingMode scaling = ScalingMode::kNone;
  // Read for kAuto, and reset by Resolve: the method of the solve that M is for (kAuto: what
  // ResolveMethod makes of it).
  Method method = Method::kAuto;
  // Bounds M where the pattern is prescribed: a plan that comes to more entries is refused
  // (RESOURCE_EXHAUSTED/PATTERN_TOO_LARGE). 0: no limit. Not part of what a spec resolves to.
  int64_t max_nnz = 0;

  // visit(field of the wire's PreconditionerSpec, options) for each struct of options.
  template <class Self, class Visit>
  static void EachOptions(Self& self, Visit&& visit) {
    visit("static_spai", self.static_spai);
    visit("fsai", self.fsai);
    visit("dynamic_spai", self.dynamic_spai);
    visit("amg", self.amg);
    visit("petsc", self.petsc);
  }
};

// A spec in which nothing is AUTO any more (but local_solver, which is chosen per column).
struct ResolvedSpec {
  PreconditionerSpec spec;
  std::string reason;  // why AUTO chose so, in words and figures; empty where nothing was AUTO
};

// Whether time decides what a build becomes: then no two are the same.
bool TimeDecides(const PreconditionerSpec& spec);

// The form that its M has, or may have.
MForm FormOf(const PreconditionerSpec& spec);

// Whether its M is symmetric positive definite where A is: CG takes it.
bool ForCg(const PreconditionerSpec& spec);

}  // namespace spaid::kernels
