#include "client/load/workload.h"

#include "client/cli/gallery.h"
#include "kernels/gallery/gallery.h"

namespace spaid::load {
namespace {

// Steps of the scale: its products with small whole numbers are exact, so that columns which were
// alike stay so.
constexpr uint64_t kScales = uint64_t{1} << 20;

// Spreads (seed, job) over all 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mixed(uint64_t seed, int64_t job) {
  uint64_t z = seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(job) + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::vector<double> RightHandSides(const CscMatrix& a, int count, uint64_t seed) {
  gallery::Uniform uniform(seed);
  std::vector<double> b(static_cast<size_t>(a.n) * static_cast<size_t>(count), 0.0);
  for (int rhs = 0; rhs < count; ++rhs) {
    double* column_of_b = b.data() + static_cast<size_t>(rhs) * static_cast<size_t>(a.n);
    for (int64_t j = 0; j < a.n; ++j) {
      const double x = 2 * uniform() - 1;
      for (int64_t k = a.col_ptr[j]; k < a.col_ptr[j + 1]; ++k) {
        column_of_b[a.row_idx[k]] += a.values[k] * x;
      }
    }
  }
  return b;
}

}  // namespace

Workload::Workload(const LoadOptions& options)
    : seed_(options.seed),
      variants_(options.variants),
      build_share_(options.build_share),
      engines_(options.engines),
      problem_picker_(options.mix),
      engine_picker_(options.engines) {}

Expected<Workload> Workload::Make(const LoadOptions& options) {
  Workload workload(options);
  for (const auto& [name, weight] : options.mix) {
    auto a = cli::GenerateFromText(name);
    if (!a.ok()) return a.error();
    std::vector<double> b = RightHandSides(*a, options.rhs, options.seed);
    workload.problems_.push_back({name, *std::move(a), std::move(b)});
  }
  return workload;
}

double Workload::ScaleOf(uint64_t seed, int64_t job) {
  const uint64_t step = (Mixed(seed, -1) + static_cast<uint64_t>(job)) % kScales;
  return 1 + static_cast<double>(step) / static_cast<double>(kScales);
}

double Workload::Random(uint64_t seed, int64_t job) {
  return gallery::Uniform(Mixed(~seed, job))();
}

Plan Workload::PlanOf(int64_t job) const {
  gallery::Uniform uniform(Mixed(seed_, job));
  Plan plan;
  plan.problem = problem_picker_.Pick(uniform());
  plan.engine = engine_picker_.Pick(uniform());
  plan.build = uniform() < build_share_;
  const auto variant = static_cast<int64_t>(uniform() * static_cast<double>(variants_));
  plan.scale = ScaleOf(seed_, variants_ > 0 ? variant : job);
  return plan;
}

std::string Workload::Describe(const Plan& plan) const {
  return problems_[plan.problem].name + " " + std::string(Name(engine(plan.engine)));
}

}  // namespace spaid::load
