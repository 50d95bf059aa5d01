// Preconditioners of hypre and PETSc by their names, with those of their options that are passed
// on; nothing of MPI or PETSc is named here.
#pragma once

#include <cstdint>

#include "kernels/base/option_range.h"

namespace spaid::kernels {

enum class PetscMethod { kParasails, kBoomeramg, kGamg };
// Kinds of A for ParaSails. kAuto is resolved by the engine.
enum class ParasailsSymmetry { kAuto, kGeneral, kSpd };
enum class BoomeramgCoarsening { kHmis, kPmis, kFalgout, kCljp };
enum class BoomeramgInterpolation { kExtended, kClassical, kDirect, kStandard, kMultipass };

// Each method reads its own; what is not here it has as PETSc does by default.
struct PetscEngineOptions {
  // ParaSails: M has the pattern of (A without entries below `threshold`)^(levels + 1), and loses
  // entries below `filter`, both after scaling.
  int levels = 1;
  double threshold = 0.1, filter = 0.1;
  ParasailsSymmetry symmetry = ParasailsSymmetry::kAuto;
  // BoomerAMG.
  double strong_threshold = 0.25;
  BoomeramgCoarsening coarsening = BoomeramgCoarsening::kHmis;
  BoomeramgInterpolation interpolation = BoomeramgInterpolation::kExtended;
  int interpolation_entries = 4;  // of a row of P, at most; 0: no limit
  int aggressive_levels = 0;      // from A's on
  int max_levels = 25;            // A's among them
  // GAMG.
  double drop_threshold = 0;
  int smooths = 1;  // of P

  template <class Self, class Visit>
  static void Fields(Self& self, Visit&& visit) {
    visit("levels", self.levels, OptionRange{0, 10});
    visit("threshold", self.threshold, kBelowOne);
    visit("filter", self.filter, kBelowOne);
    visit("symmetry", self.symmetry, UpTo(ParasailsSymmetry::kSpd));
    visit("strong_threshold", self.strong_threshold, kBelowOne);
    visit("coarsening", self.coarsening, UpTo(BoomeramgCoarsening::kCljp));
    visit("interpolation", self.interpolation, UpTo(BoomeramgInterpolation::kMultipass));
    visit("interpolation_entries", self.interpolation_entries, OptionRange{0, 100});
    visit("aggressive_levels", self.aggressive_levels, OptionRange{0, 25});
    visit("max_levels", self.max_levels, OptionRange{2, 50});
    visit("drop_threshold", self.drop_threshold, kBelowOne);
    visit("smooths", self.smooths, OptionRange{0, 3});
  }
};

// INVALID_ARGUMENT/BAD_PETSC_OPTION, with the field as clients know it.
inline Status CheckPetscOptions(const PetscEngineOptions& options) {
  return CheckRanges(options, "BAD_PETSC_OPTION");
}

// Figures that PETSc tells of GAMG; zeros of the others, which tell nothing.
struct PetscQuality {
  int levels = 0;                                       // A's among them
  double operator_complexity = 0, grid_complexity = 0;  // entries, and rows, of all over A's

  // visit(name, figure), by the names that clients know.
  template <class Visit>
  void Figures(Visit&& visit) const {
    visit("levels", levels);
    visit("operator_complexity", operator_complexity);
    visit("grid_complexity", grid_complexity);
  }
};

}  // namespace spaid::kernels
