// Defines the jobs of a load: matrices made before the clock starts, and the choices of each job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/spaid/client.h"
#include "client/load/mix.h"
#include "client/load/options.h"

namespace spaid::load {

struct Problem {
  std::string name;       // "poisson:16"
  CscMatrix a;            // values of scale 1
  std::vector<double> b;  // A x, x random in [-1, 1]; n times the right-hand sides
};

// One job, determined by the seed and its number alone.
struct Plan {
  size_t problem = 0, engine = 0;
  bool build = false;  // and no solve
  double scale = 1;    // factor on the values
};

// Thread-safe once made.
class Workload {
 public:
  // Makes the matrices of the mix. Errors: the gallery's.
  static Expected<Workload> Make(const LoadOptions& options);

  Plan PlanOf(int64_t job) const;
  // Returns a factor on the values that no other job has.
  static double ScaleOf(uint64_t seed, int64_t job);
  // Returns a number in [0, 1), another one for each job, independent of its plan.
  static double Random(uint64_t seed, int64_t job);

  const Problem& problem(size_t index) const { return problems_[index]; }
  Engine engine(size_t index) const { return engines_[index].first; }
  std::string Describe(const Plan& plan) const;  // "poisson:16 jacobi"

 private:
  explicit Workload(const LoadOptions& options);

  uint64_t seed_;
  int64_t variants_;
  double build_share_;
  std::vector<EngineShare> engines_;
  Picker problem_picker_, engine_picker_;
  std::vector<Problem> problems_;
};

}  // namespace spaid::load
