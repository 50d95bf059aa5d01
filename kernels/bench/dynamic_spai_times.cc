// Predicted and measured times of dynamic SPAI, a line of text for each matrix and way:
//
//   spaid_dynamic_spai_times P27:40 circuit:50000 A.bin... [device=cpu|gpu] [seconds=1] [counts=1]
//
// From A on the host to M there, through the engine: of one thread of the CPU, by its own clock; of
// the first GPU, by the wall clock. Medians, of at least three builds within so many seconds, or
// of one where that takes longer. NAME:SIZE as in problems.h, with a v behind the name for varying
// coefficients; A.bin: matrix_file.h. "copied": columns, of the build and as predicted. counts=1:
// what predictions are made of, and where the time went, to fit them to.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "kernels/base/cuda_device.h"
#include "kernels/bench/matrix_file.h"
#include "kernels/bench/problems.h"
#include "kernels/dynamic_spai/dynamic_spai_cuda.h"
#include "kernels/dynamic_spai/gram.h"
#include "kernels/dynamic_spai/growth_sample.h"
#include "kernels/engine/engine.h"
#include "kernels/sparse/transpose.h"

namespace spaid::kernels::bench {
namespace {

double WallMs() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ProcessorMs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

CscMatrix Make(const std::string& name) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return ReadMatrix(name);
  std::string kind = name.substr(0, colon);
  const int size = std::atoi(name.c_str() + colon + 1);
  const bool varying = kind.back() == 'v';
  if (varying) kind.pop_back();
  CscMatrix a = kind == "P7"         ? ConvectionDiffusion(size, 0)
                : kind == "P27"      ? Laplacian27(size)
                : kind == "E80"      ? Elasticity(size)
                : kind == "convdiff" ? ConvectionDiffusion(size, 400)
                : kind == "aniso"    ? Anisotropic(size, 1e-3, std::numbers::pi / 8)
                : kind == "circuit"  ? Circuit(size, 12, 700)
                                     : CscMatrix();
  if (a.n_cols == 0) Die("no such problem: " + name);
  return varying ? WithVaryingCoefficients(std::move(a)) : a;
}

struct Way {
  const char* name;
  double tol;
  int max_steps, per_step;
  bool fp32, copy;
};
constexpr Way kWays[] = {
    {"10x5 0.3", 0.3, 10, 5, false, true},       {"10x2 0.3", 0.3, 10, 2, false, true},
    {"10x2 0.3 each", 0.3, 10, 2, false, false}, {"5x3", 0, 5, 3, false, true},
    {"5x3 each", 0, 5, 3, false, false},         {"5x3 each fp32", 0, 5, 3, true, false},
    {"29x1", 0, 29, 1, false, true},             {"29x1 each", 0, 29, 1, false, false},
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) Die(result.status().message());
  return *std::move(result);
}

// Medians over builds, of each part.
class Times {
 public:
  void Add(const std::string& part, double ms) { all_[part].push_back(ms); }
  void Print() const {
    for (const auto& [part, values] : all_) std::printf(" %s %.4g", part.c_str(), Median(values));
  }

 private:
  std::map<std::string, std::vector<double>> all_;
};

void PrintCounts(const char* name, const GrowthCounts& c) {
  std::printf(
      " %s.columns %.5g %s.entries %.5g %s.steps %.5g %s.walked %.5g %s.candidates %.5g "
      "%s.searched %.5g %s.flops %.5g %s.local %.5g %s.solve_ns %.5g",
      name, c.columns, name, c.entries, name, c.steps, name, c.walked, name, c.candidates, name,
      c.searched, name, c.flops, name, c.local, name, c.solve_ns);
}

void Explain(const CscMatrix& a, const DynamicSpaiOptions& options,
             const std::vector<std::shared_ptr<CudaDevice>>& gpus) {
  const Pattern rows = Transpose(a.pattern());
  const PatternView by_rows = rows;
  Array<double> products(static_cast<size_t>(a.n_cols), 0.0);
  double sum = 0;
  for (int64_t j = 0; j < a.n_cols; ++j) {
    for (const int32_t l : a.pattern().column(j)) {
      products[static_cast<size_t>(j)] += static_cast<double>(by_rows.column(l).size());
    }
    sum += products[static_cast<size_t>(j)];
  }
  const double start = ProcessorMs();
  const GrowthSample sample =
      SampleGrowth(a, by_rows, products, nullptr, options, {.threads = 1});
  std::printf(" sample_ms %.4g sampled %zu sample_steps %.4g products %.5g", ProcessorMs() - start,
              sample.columns.size(), sample.steps, sum);
  PrintCounts("all", sample.all());
  PrintCounts("grown", sample.grown());
  Times times;
  const StaticSpaiOptions numbers = NumbersOf(options);
  for (int run = 0; run < 3; ++run) {
    if (gpus.empty()) {
      const Context context{.threads = 1};
      const double growing = ProcessorMs();
      Must(MakeGram(a, GramLimit(), context));
      const double made = ProcessorMs();
      const auto grown = Must(GrowDynamicSpai(a, nullptr, options, context));
      const double planning = ProcessorMs();
      const PatternView of_m = grown.m;
      const auto plan = Must(PlanStaticSpai(a, &of_m, numbers, context));
      Must(BuildStaticSpai(*plan, a, numbers, context));
      times.Add("gram_ms", made - growing);
      times.Add("growth_ms", planning - made - (made - growing));
      times.Add("numbers_ms", ProcessorMs() - planning);
      times.Add("true_flops", grown.quality.flops - 2 * sum);
      times.Add("true_entries", static_cast<double>(grown.m.nnz()));
    } else {
      DynamicSpaiCudaTimings timings;
      std::unique_ptr<SpaiOnDevice> there;
      const auto grown =
          Must(GrowDynamicSpaiCuda(gpus, a, nullptr, options, {}, &timings, &there));
      const PatternView of_m = grown.m;
      const double planning = WallMs();
      const auto plan =
          Must(PlanStaticSpaiCuda(gpus, a, &of_m, numbers, {}, nullptr, std::move(there)));
      const double building = WallMs();
      Must(BuildStaticSpaiCuda(*plan, a, numbers, {}));
      times.Add("up_ms", timings.host_to_device_ms);
      times.Add("gram_ms", timings.gram_ms);
      times.Add("growth_ms", timings.device_ms - timings.gram_ms);
      times.Add("down_ms", timings.device_to_host_ms);
      times.Add("host_ms", timings.host_ms);
      times.Add("plan_wall_ms", building - planning);
      times.Add("build_wall_ms", WallMs() - building);
      times.Add("slow", static_cast<double>(grown.quality.slow_columns));
      times.Add("host_columns", static_cast<double>(timings.host_columns));
      times.Add("true_flops", grown.quality.flops);
      times.Add("true_entries", static_cast<double>(grown.m.nnz()));
    }
  }
  times.Print();
}

void Run(const Engine& engine, const std::string& name, double seconds, bool counts,
         const std::vector<std::shared_ptr<CudaDevice>>& gpus) {
  const CscMatrix a = Make(name);
  const auto clock = gpus.empty() ? ProcessorMs : WallMs;
  for (const Way& way : kWays) {
    PreconditionerSpec spec;
    spec.engine = EngineKind::kDynamicSpai;
    DynamicSpaiOptions& options = spec.dynamic_spai;
    options.tol = way.tol;
    options.max_steps = way.max_steps;
    options.per_step = way.per_step;
    options.fp32_growth = way.fp32;
    if (!way.copy) options.repeat_hash_bits = 0;
    const Context context{.threads = gpus.empty() ? 1 : 0};
    const double asked = ProcessorMs();
    const BuildEstimate estimate = Must(engine.Estimate(spec, a, nullptr, {.threads = 1}));
    const double estimate_ms = ProcessorMs() - asked;
    std::vector<double> times;
    int64_t copied = 0, gram_nnz = 0, nnz_m = 0;
    const double end = WallMs() + 1e3 * seconds;
    const auto more = [&] { return WallMs() < end || (times.size() < 3 && times[0] < 1e3 * seconds); };
    if (!gpus.empty()) Must(engine.MakePlan(spec, a, nullptr, context));
    do {
      const double start = clock();
      const auto plan = Must(engine.MakePlan(spec, a, nullptr, context));
      const BuildResult built = Must(engine.Build(*plan, spec, a, context));
      times.push_back(clock() - start);
      copied = built.quality.dynamic_spai->copied_columns;
      gram_nnz = built.quality.dynamic_spai->gram_nnz;
      nnz_m = built.preconditioner->matrix().nnz();
    } while (more());
    const double measured = Median(times);
    const double predicted = gpus.empty() ? estimate.predicted_ms : estimate.predicted_device_ms;
    std::printf("%-16s %-14s predicted %.4g measured %.4g ratio %.2f runs %zu n %lld nnz %lld nnz_m "
                "%lld gram_nnz %lld copied %lld estimate_ms %.4g",
                name.substr(name.rfind('/') + 1).c_str(), way.name, predicted, measured,
                predicted / measured, times.size(), static_cast<long long>(a.n_cols),
                static_cast<long long>(a.nnz()), static_cast<long long>(nnz_m),
                static_cast<long long>(gram_nnz), static_cast<long long>(copied), estimate_ms);
    if (counts) Explain(a, options, gpus);
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) {
  namespace bench = spaid::kernels::bench;
  std::vector<std::string> names;
  std::map<std::string, std::string> with{{"device", "cpu"}, {"seconds", "1"}, {"counts", "0"}};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t at = arg.find('=');
    if (at == std::string::npos) {
      names.push_back(arg);
    } else {
      with[arg.substr(0, at)] = arg.substr(at + 1);
    }
  }
  if (names.empty()) bench::Die("usage: spaid_dynamic_spai_times NAME:SIZE|A.bin... [name=value]...");
  std::vector<std::shared_ptr<spaid::kernels::CudaDevice>> gpus;
  if (with["device"] == "gpu") {
    const auto& there = spaid::kernels::ListCudaDevices();
    if (!there.available) bench::Die("no GPU: " + there.status);
    gpus.push_back(bench::Must(spaid::kernels::CudaDevice::Open(there.devices[0], 0)));
  }
  const auto engine = gpus.empty() ? spaid::kernels::MakeCpuEngine()
                                   : spaid::kernels::MakeEngine(false, gpus);
  for (const std::string& name : names) {
    bench::Run(*engine, name, std::atof(with["seconds"].c_str()), with["counts"] == "1", gpus);
  }
  return 0;
}
