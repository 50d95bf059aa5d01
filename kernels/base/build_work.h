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

// Nanoseconds of a build: once, of each thing that BuildWork counts, and of the first entries,
// which the host of a GPU does not spread over its cores: so much more of each, up to a limit.
struct WorkRates {
  double fixed = 0, row = 0, entry = 0, gathered = 0, flop = 0;
  double first_entry = 0, first_most = 0;
  double nnz_a = 0;
  double serial = 0;  // share that more threads do not shorten
};
// One thread of the CPU (an AMD EPYC), and an H100 beside 16 cores of a Xeon, from A on the
// host to M there.
struct BuildRates {
  WorkRates cpu, gpu;
};

}  // namespace spaid::kernels
