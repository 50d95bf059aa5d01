// Shared by benchmarks: matrices that are made once or read from files, and results that must be
// there.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/bench/matrix_file.h"
#include "kernels/sparse/matrix.h"

namespace spaid::kernels::bench {

// A matrix, and how it is made.
struct Problem {
  std::string name;
  std::function<CscMatrix()> make;
};

// The files NAME.bin (matrix_file.h) of the folder that SPAID_BENCH_MATRICES names, by their names,
// which stay where they are; none where it is not set. Benchmarks of a device run on them, too.
inline const std::vector<Problem>& FileProblems() {
  static const std::vector<Problem> problems = [] {
    std::vector<Problem> found;
    const char* const folder = std::getenv("SPAID_BENCH_MATRICES");
    if (folder == nullptr) return found;
    std::error_code failed;
    for (const auto& file : std::filesystem::directory_iterator(folder, failed)) {
      if (file.path().extension() != ".bin") continue;
      found.push_back(
          {file.path().stem(), [path = file.path().string()] { return ReadMatrix(path); }});
    }
    if (failed) Die(std::string("cannot list SPAID_BENCH_MATRICES=") + folder);
    std::sort(found.begin(), found.end(),
              [](const Problem& x, const Problem& y) { return x.name < y.name; });
    return found;
  }();
  return problems;
}

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
