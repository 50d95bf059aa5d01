// Builds that 1, 2, ... CUDA devices share. `resident`: A on each device, pieces of M gathered in
// arrays of the host that are there, M's pattern from A's on the host where it is that, pieces of G
// on the first device; `whole`: from host to host through the engine.
// `rounds`: the pieces of more devices than there are, as many at once as there are; its time is
// that of the longest round, what all devices would take if no more than those were in each other's
// way. Nothing is registered where there is no device.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/parallel.h"
#include "kernels/base/split.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/problems.h"
#include "kernels/bench/support.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/spec.h"
#include "kernels/fsai/fsai_cuda.h"

namespace spaid::kernels::bench {
namespace {

const Problem kStatic[] = {
    {"P7_128", [] { return ConvectionDiffusion(128, 0); }},
    {"P27_100", [] { return Laplacian27(100); }},
    {"E80_60", [] { return Elasticity(60); }},
    {"circuit_300k", [] { return Circuit(300000, 12, 700); }},
};
// D A D of a random D: as definite as A, and no row repeats another.
CscMatrix Rescaled(CscMatrix a) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> scale(0.8, 1.25);
  std::vector<double> d(static_cast<size_t>(a.n_cols));
  for (double& one : d) one = scale(random);
  for (int64_t j = 0; j < a.n_cols; ++j) {
    const auto end = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j) + 1]);
    for (auto p = static_cast<size_t>(a.col_ptr[static_cast<size_t>(j)]); p < end; ++p) {
      a.values[p] *= d[static_cast<size_t>(a.row_idx[p])] * d[static_cast<size_t>(j)];
    }
  }
  return a;
}

// For aFSAI: with and without rows that repeat, "s" in random order.
struct Grown {
  Problem problem;
  Precision precision = Precision::kFp64;
};
const Grown kGrown[] = {
    {{"P7_128", [] { return ConvectionDiffusion(128, 0); }}, Precision::kFp32},
    {{"E80_60", [] { return Elasticity(60); }}, Precision::kFp32},
    {{"P7v_128", [] { return WithVaryingCoefficients(ConvectionDiffusion(128, 0)); }},
     Precision::kFp32},
    {{"P7v_128", [] { return WithVaryingCoefficients(ConvectionDiffusion(128, 0)); }}},
    {{"P27v_100", [] { return WithVaryingCoefficients(Laplacian27(100)); }}},
    {{"E80s_60", [] { return PermuteNodes(Elasticity(60), 3, 3 * 60 * 60 * 60); }}},
    {{"E80v_72", [] { return Rescaled(Elasticity(72)); }}},
    {{"P7v_160", [] { return WithVaryingCoefficients(ConvectionDiffusion(160, 0)); }}},
    {{"P27s_100", [] { return Scattered(Laplacian27(100), 1); }}},
    {{"graph_200k", [] { return Transposed(gallery::GraphLaplacian(200000)); }}},
};
// From where on splitting pays.
const Grown kGrownSmall[] = {
    {{"P7v_32", [] { return WithVaryingCoefficients(ConvectionDiffusion(32, 0)); }}},
    {{"P7_64", [] { return ConvectionDiffusion(64, 0); }}},
    {{"P7v_64", [] { return WithVaryingCoefficients(ConvectionDiffusion(64, 0)); }}},
    {{"P27v_50", [] { return WithVaryingCoefficients(Laplacian27(50)); }}},
    {{"E80v_12", [] { return Rescaled(Elasticity(12)); }}},
    {{"E80v_24", [] { return Rescaled(Elasticity(24)); }}},
    {{"E80v_40", [] { return Rescaled(Elasticity(40)); }}},
};
// Much arithmetic for each entry of M.
const Problem kSquared[] = {
    {"P7_64", [] { return ConvectionDiffusion(64, 0); }},
    {"P27_50", [] { return Laplacian27(50); }},
    {"circuit_50k", [] { return Circuit(50000, 12, 700); }},
};
// From where on splitting pays.
const Problem kSmall[] = {
    {"P7_32", [] { return ConvectionDiffusion(32, 0); }},
    {"P7_64", [] { return ConvectionDiffusion(64, 0); }},
    {"E80_12", [] { return Elasticity(12); }},
    {"E80_24", [] { return Elasticity(24); }},
    {"E80_40", [] { return Elasticity(40); }},
    {"circuit_50k", [] { return Circuit(50000, 12, 700); }},
};

using Opened = std::vector<std::shared_ptr<CudaDevice>>;

template <class Open>
Opened OpenAll(const Open& open) {
  Opened opened;
  for (const DeviceInfo& info : ListCudaDevices().devices) {
    auto device = open(info);
    OrDie(device.ok(), device.status().message().c_str());
    opened.push_back(*device);
  }
  return opened;
}

const Opened& Devices() {
  static const Opened devices =
      OpenAll([](const DeviceInfo& info) { return cuda::OpenDevice(info, 0); });
  return devices;
}

// By libspaid_cuda.so, as engines have them.
const Opened& DevicesOfEngine() {
  static const Opened devices =
      OpenAll([](const DeviceInfo& info) { return CudaDevice::Open(info, 0); });
  return devices;
}

struct Piece {
  std::shared_ptr<CudaDevice> device;
  IndexRange range;
  cuda::Matrix matrix = {};
  double ms = 0;       // of plan and build, by the device's clock
  double plan_ms = 0;  // of that, the plan
};

std::vector<Piece> Upload(const CscMatrix& a, size_t parts) {
  const double mean = static_cast<double>(a.nnz()) / static_cast<double>(a.n_cols);
  std::vector<Piece> pieces;
  for (const IndexRange& range : CutByColumns(parts, a.col_ptr.data(), a.n_cols, 1, mean, 0)) {
    Piece piece;
    piece.device = Devices()[pieces.size() % Devices().size()];
    piece.range = range;
    piece.matrix = cuda::UploadMatrix(There(*piece.device), a, a.values.data());
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Runs `once`, which returns wall milliseconds, and says what its pieces took.
template <class Once>
void Measure(benchmark::State& state, std::vector<Piece>& pieces, const Once& once) {
  for (int warm = 0; warm < 2; ++warm) once();
  std::vector<double> times;
  double longest = 0, shortest = 0, plan = 0;
  for (auto _ : state) {
    times.push_back(once());
    state.SetIterationTime(times.back() * 1e-3);
    const auto [least, most] = std::minmax_element(
        pieces.begin(), pieces.end(), [](const Piece& x, const Piece& y) { return x.ms < y.ms; });
    longest += most->ms;
    shortest += least->ms;
    plan += most->plan_ms;
  }
  std::sort(times.begin(), times.end());
  state.counters["median_ms"] = times[times.size() / 2];
  state.counters["device_ms"] = longest / static_cast<double>(times.size());
  state.counters["device_ms_least"] = shortest / static_cast<double>(times.size());
  state.counters["plan_ms"] = plan / static_cast<double>(times.size());
}

void OrDie(const Status& status) { bench::OrDie(status.ok(), status.message().c_str()); }

void RunStatic(benchmark::State& state, const Problem& problem, size_t parts) {
  const CscMatrix& a = Get(problem);
  std::vector<Piece> pieces = Upload(a, parts);
  const auto n = static_cast<size_t>(a.n_cols);
  CscMatrix m = a;  // of M's size and pattern; its pages are there
  std::vector<double> norms(n), pivots(n);
  std::vector<uint8_t> flags(n);
  Measure(state, pieces, [&] {
    const auto build = [&](Piece& piece) {
      const auto lock = piece.device->Lock();
      cuda::Context& context = There(*piece.device);
      PlanThere made = PlanSpaiThere(context, piece.matrix, {}, piece.range);
      const cuda::StaticSpaiPlan& plan = made.plan;
      const BuildThere built = BuildSpaiThere(context, made.plan, piece.matrix, {});
      bench::OrDie(plan.m.is_of_a(), "M has not the pattern of A");
      const int64_t first = piece.range.begin, columns = piece.range.size();
      context.Download(
          {built.m.values.To(m.values.data() + plan.first_entry, plan.entries, plan.first_entry),
           built.m.residual_norms.To(norms.data() + first, columns, first),
           built.m.pivots.To(pivots.data() + first, columns, first),
           built.m.flags.To(flags.data() + first, columns, first)});
      piece.ms = made.ms + built.ms;
      piece.plan_ms = made.ms;
      return Status();
    };
    const auto copy_pattern = [&](int64_t begin, int64_t end) {
      const auto pointers = std::span(a.col_ptr).subspan(begin, end + 1 - begin);
      const auto rows =
          std::span(a.row_idx).subspan(pointers.front(), pointers.back() - pointers.front());
      auto own_pointers = std::span(m.col_ptr).subspan(begin, pointers.size());
      auto own_rows = std::span(m.row_idx).subspan(pointers.front(), rows.size());
      const int threads = std::max(1, ResolveThreads(0) / 2);
      ParallelCopy(pointers, own_pointers, threads);
      ParallelCopy(rows, own_rows, threads);
      return Status();
    };
    double longest = 0;
    for (size_t first = 0; first < pieces.size(); first += Devices().size()) {
      const auto start = Clock::now();
      const size_t count = std::min(Devices().size(), pieces.size() - first);
      OrDie(AtOnce(count + 1, [&](size_t i) {  // as the engine does it
        return i == 0 ? copy_pattern(pieces[first].range.begin, pieces[first + count - 1].range.end)
                      : build(pieces[first + i - 1]);
      }));
      longest = std::max(longest, MsSince(start));
    }
    return longest;
  });
  state.counters["nnz_m"] = static_cast<double>(m.nnz());
}

double Median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// k_max 30, s 1, epsilon 1e-3, every row made. Its time is that from A on all devices to G on the
// first.
void RunGrown(benchmark::State& state, const Grown& grown, size_t parts) {
  const CscMatrix& a = Get(grown.problem);
  const auto plan = PlanFsaiCuda(std::span(Devices()).first(parts), a, nullptr, {});
  if (!plan.ok()) OrDie(plan.status());
  FsaiOptions options;
  options.adaptive = true;
  options.k_max = 30;
  options.epsilon = 1e-3;
  options.precision = grown.precision;
  options.repeat_hash_bits = 0;
  std::vector<double> there, grow, join, host, columns;
  int64_t nnz = 0;
  const auto once = [&] {
    FsaiCudaTimings timings;
    FsaiCudaOutputs outputs;
    const auto built = GrowFsaiCuda(**plan, nullptr, a, options, {}, &timings, &outputs);
    if (!built.ok()) OrDie(built.status());
    there.push_back(timings.build_ms + timings.join_ms);
    grow.push_back(timings.device_ms);
    join.push_back(timings.join_ms);
    host.push_back(there.back() + timings.device_to_host_ms);
    columns.push_back(timings.columns_ms);
    nnz = built->g_rows.nnz();
  };
  for (int warm = 0; warm < 2; ++warm) once();
  for (auto* times : {&there, &grow, &join, &host, &columns}) times->clear();
  for (auto _ : state) {
    once();
    state.SetIterationTime(there.back() * 1e-3);
  }
  state.counters["median_ms"] = Median(there);
  state.counters["device_ms"] = Median(grow);
  state.counters["join_ms"] = Median(join);
  state.counters["columns_ms"] = Median(columns);
  state.counters["host_ms"] = Median(host);  // to G, by rows and by columns, on the host
  state.counters["nnz_m"] = static_cast<double>(nnz);
}

// By default of its engine but for the precision of FSAI.
PreconditionerSpec SpecOf(EngineKind kind, int power = 1, Precision precision = Precision::kFp64) {
  PreconditionerSpec spec;
  spec.engine = kind;
  spec.static_spai.pattern.power = power;
  spec.fsai.precision = precision;
  return spec;
}

void RunWhole(benchmark::State& state, const Problem& problem, const PreconditionerSpec& spec,
              size_t parts) {
  const CscMatrix& a = Get(problem);
  const auto engine = MakeEngine(true, DevicesOfEngine());
  Context context{.device = 1};
  for (size_t i = 0; i < parts; ++i) context.devices.push_back(static_cast<int>(i) + 1);
  std::vector<double> times, up, down, assemble, place;
  const auto once = [&] {
    const auto start = Clock::now();
    const auto plan = engine->MakePlan(spec, a, nullptr, context);
    if (!plan.ok()) OrDie(plan.status());
    const auto built = (*plan)->Build(spec, a, context);
    if (!built.ok()) OrDie(built.status());
    times.push_back(MsSince(start));
    const auto placing = Clock::now();
    const auto placed = engine->Place(*built->preconditioner, Storage::kFp64, {.device = 1});
    if (!placed.ok()) OrDie(placed.status());
    place.push_back(MsSince(placing));
    up.push_back((*plan)->timings().host_to_device_ms + built->timings.host_to_device_ms);
    down.push_back((*plan)->timings().device_to_host_ms + built->timings.device_to_host_ms);
    assemble.push_back(built->timings.assemble_ms);
  };
  for (int warm = 0; warm < 2; ++warm) once();
  for (auto* all : {&times, &up, &down, &assemble, &place}) all->clear();
  for (auto _ : state) {
    once();
    state.SetIterationTime(times.back() * 1e-3);
  }
  state.counters["median_ms"] = Median(times);
  state.counters["host_to_device_ms"] = Median(up);
  state.counters["device_to_host_ms"] = Median(down);
  state.counters["assemble_ms"] = Median(assemble);
  state.counters["place_ms"] = Median(place);  // after that, for a solve on the first
  const auto estimate = engine->Estimate(spec, a, nullptr, {.threads = 16});
  if (!estimate.ok()) return;
  state.counters["predicted_ms"] = estimate->predicted_ms;  // by 16 threads of the CPU
  state.counters["predicted_device_ms"] = estimate->predicted_device_ms;
}

template <class Run>
void RegisterOne(const std::string& name, int iterations, size_t parts, const Run& run) {
  benchmark::RegisterBenchmark((name + std::to_string(parts)).c_str(),
                               [run, parts](benchmark::State& state) { run(state, parts); })
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime()
      ->Iterations(iterations);
}

// `rounds`: whether `run` takes more parts than there are devices.
template <class Run>
void Register(const std::string& name, int iterations, const Run& run, bool rounds = false) {
  const size_t devices = ListCudaDevices().devices.size();
  // The same problem on all numbers of devices, one after the other: problems are kept for that.
  size_t parts = 1;
  for (; parts <= devices; parts *= 2) RegisterOne(name + "/devices:", iterations, parts, run);
  if (rounds && devices > 1) RegisterOne(name + "/rounds/devices:", iterations, parts, run);
}

const bool kRegistered = [] {
  if (!ListCudaDevices().available) return false;
  for (const Problem& problem : kStatic) {
    const std::string name = std::string("Split/StaticSpai/") + problem.name;
    Register(
        name + "/resident", 9,
        [&](benchmark::State& state, size_t parts) { RunStatic(state, problem, parts); },
        /*rounds=*/true);
    Register(name + "/whole", 5, [&](benchmark::State& state, size_t parts) {
      RunWhole(state, problem, SpecOf(EngineKind::kStaticSpai), parts);
    });
  }
  for (const Grown& grown : kGrown) {
    const std::string name =
        "Split/Afsai/" + grown.problem.name + (grown.precision == Precision::kFp32 ? "/fp32" : "");
    Register(name + "/resident", 7,
             [&](benchmark::State& state, size_t parts) { RunGrown(state, grown, parts); });
    Register(name + "/whole", 5, [&](benchmark::State& state, size_t parts) {
      RunWhole(state, grown.problem, SpecOf(EngineKind::kAfsai, 1, grown.precision), parts);
    });
  }
  for (const Problem& problem : kSquared) {
    Register(std::string("Split/StaticSpai/") + problem.name + "/power:2/whole", 5,
             [&](benchmark::State& state, size_t parts) {
               RunWhole(state, problem, SpecOf(EngineKind::kStaticSpai, 2), parts);
             });
  }
  for (const Problem& problem : kSmall) {
    Register(std::string("SplitCrossover/StaticSpai/") + problem.name + "/whole", 15,
             [&](benchmark::State& state, size_t parts) {
               RunWhole(state, problem, SpecOf(EngineKind::kStaticSpai), parts);
             });
  }
  for (const Grown& grown : kGrownSmall) {
    Register(std::string("SplitCrossover/Afsai/") + grown.problem.name + "/whole", 15,
             [&](benchmark::State& state, size_t parts) {
               RunWhole(state, grown.problem, SpecOf(EngineKind::kAfsai, 1, grown.precision),
                        parts);
             });
  }
  return true;
}();

}  // namespace
}  // namespace spaid::kernels::bench
