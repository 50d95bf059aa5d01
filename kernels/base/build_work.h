// The work of a build, counted before there is anything. kernels/engine/cost.h makes times of it.
#pragma once

namespace spaid::kernels {

struct BuildWork {
  double rows = 0;      // local problems: columns of M, rows of G
  double nnz_a = 0;     // entries of A
  double entries = 0;   // of M, or of G
  double gathered = 0;  // entries and indices that are read at scattered places
  double flops = 0;     // of dense local problems
  double longest = 0;   // unknowns of the largest one, which one thread solves
};

}  // namespace spaid::kernels
