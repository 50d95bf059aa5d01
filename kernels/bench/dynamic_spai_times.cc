// Predicted and measured times of dynamic SPAI, a line of text for each matrix and way:
//
//   spaid_dynamic_spai_times P27:40 circuit:50000 A.bin... [device=cpu|gpu] [seconds=1]
//
// From A on the host to M there, through the engine: of one thread of the CPU, by its own clock; of
// the first GPU, by the wall clock. Medians, of at least three builds within so many seconds, or
// of one where that takes longer. NAME:SIZE as in problems.h, with a v behind the name for varying
// coefficients; A.bin: matrix_file.h.
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
#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/spec.h"

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
    {"10x5 0.3", 0.3, 10, 5, false, true},
    {"10x2 0.3", 0.3, 10, 2, false, true},
    {"10x2 0.3 each", 0.3, 10, 2, false, false},
    {"5x3", 0, 5, 3, false, true},
    {"5x3 each", 0, 5, 3, false, false},
    {"5x3 each fp32", 0, 5, 3, true, false},
    {"29x1", 0, 29, 1, false, true},
    {"29x1 each", 0, 29, 1, false, false},
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

void Run(const Engine& engine, const std::string& name, double seconds,
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
    const auto more = [&] {
      return WallMs() < end || (times.size() < 3 && times[0] < 1e3 * seconds);
    };
    const auto build = [&] {
      const double start = clock();
      const auto plan = Must(engine.MakePlan(spec, a, nullptr, context));
      const BuildResult built = Must(plan->Build(spec, a, context));
      times.push_back(clock() - start);
      copied = built.quality.dynamic_spai->copied_columns;
      gram_nnz = built.quality.dynamic_spai->gram_nnz;
      nnz_m = built.preconditioner->matrix().nnz();
    };
    if (!gpus.empty()) {  // a device takes its memory with the first
      build();
      times.clear();
    }
    do {
      build();
    } while (more());
    const double measured = Median(times);
    const double predicted = gpus.empty() ? estimate.predicted_ms : estimate.predicted_device_ms;
    std::printf(
        "%-16s %-14s predicted %.4g measured %.4g ratio %.2f runs %zu n %lld nnz %lld nnz_m "
        "%lld gram_nnz %lld copied %lld estimate_ms %.4g\n",
        name.substr(name.rfind('/') + 1).c_str(), way.name, predicted, measured,
        predicted / measured, times.size(), static_cast<long long>(a.n_cols),
        static_cast<long long>(a.nnz()), static_cast<long long>(nnz_m),
        static_cast<long long>(gram_nnz), static_cast<long long>(copied), estimate_ms);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) {
  namespace bench = spaid::kernels::bench;
  std::vector<std::string> names;
  std::map<std::string, std::string> with{{"device", "cpu"}, {"seconds", "1"}};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t at = arg.find('=');
    if (at == std::string::npos) {
      names.push_back(arg);
    } else {
      with[arg.substr(0, at)] = arg.substr(at + 1);
    }
  }
  if (names.empty())
    bench::Die("usage: spaid_dynamic_spai_times NAME:SIZE|A.bin... [name=value]...");
  std::vector<std::shared_ptr<spaid::kernels::CudaDevice>> gpus;
  if (with["device"] == "gpu") {
    const auto& there = spaid::kernels::ListCudaDevices();
    if (!there.available) bench::Die("no GPU: " + there.status);
    gpus.push_back(bench::Must(spaid::kernels::CudaDevice::Open(there.devices[0], 0)));
  }
  const auto engine =
      gpus.empty() ? spaid::kernels::MakeCpuEngine() : spaid::kernels::MakeEngine(false, gpus);
  for (const std::string& name : names) {
    bench::Run(*engine, name, std::atof(with["seconds"].c_str()), gpus);
  }
  return 0;
}
