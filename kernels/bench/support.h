// What benchmarks share: matrices that are made once, and results that must be there.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "kernels/base/status.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// A matrix, and how it is made.
struct Problem {
  const char* name;
  CscMatrix (*make)();
};

// The matrix of a problem with `name` and `make()`, made by the first call. Not thread-safe.
template <class Problem>
const CscMatrix& Get(const Problem& problem) {
  static std::map<std::string, CscMatrix> made;
  auto [at, fresh] = made.try_emplace(problem.name);
  if (fresh) at->second = problem.make();
  return at->second;
}

// Ends the program with the status where there is no result.
template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "spaid_bench: %s\n", result.status().message().c_str());
    std::exit(1);
  }
  return *std::move(result);
}

}  // namespace spaid::kernels::bench
