#include "kernels/engine/ladder_rungs.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "kernels/amg/smoothers.h"
#include "kernels/amg/suitability.h"
#include "kernels/engine/cost.h"
#include "kernels/engine/engine_parts.h"
#include "kernels/mpi/ranks_device.h"

namespace spaid::kernels {
namespace {

constexpr int64_t kRestart = 200;
constexpr int kShadowVectors = 8;  // of IDR: sturdier than fewer (docs/decisions/krylov.md)

// The one below a rung gets so many times what its set-up costs before it is judged: residuals of
// short recurrences may stand still for long, and what costs much need not be better. What costs
// little, and LU, which is certain, are tried sooner.
constexpr double kSooner = 1, kLater = 4;
// Iterations before a rung is judged behind which nothing new stands.
constexpr int64_t kLastLook = 400;

constexpr double kLightGain = 1e-2;
// Figures of one H200 (docs/decisions/auto.md). After kDeviceLook iterations of CG by the diagonal
// their pace is known. Where the end was not in sight then 2.3 to 3 times as many more came as were
// foretold, of which this counts on fewer; FSAI from there on took 0.24 to 0.31 of all of Jacobi's,
// and multigrid as long as kIterationsOfAmg of them.
constexpr int64_t kDeviceLook = 100;
constexpr double kLongerThanForetold = 1.5, kShareOfFsai = 0.3, kIterationsOfAmg = 135;

// Whether A may be negative definite; multigrid turns its sign.
bool MayBeNegative(const Diagnosis& d, int64_t n) {
  return d.numerically_symmetric && d.negative_diagonal.count == n;
}

PlannedRung Fsai(RungKind kind, Method method) {
  PlannedRung c;
  c.kind = kind;
  c.spec.engine = kind == RungKind::kFsai ? EngineKind::kFsai : EngineKind::kAfsai;
  c.method = method;
  c.worth = kind == RungKind::kFsai ? kSooner : kLater;
  c.name = kind == RungKind::kFsai ? "static FSAI" : "adaptive FSAI";
  return c;
}

PlannedRung LightAfsai(Method method) {
  PlannedRung c = Fsai(RungKind::kLightAfsai, method);
  c.spec.fsai.min_gain = kLightGain;
  c.worth = kSooner;
  c.name = "adaptive FSAI (min_gain " + Figure(kLightGain) + ")";
  return c;
}

PlannedRung Amg(Method method) {
  PlannedRung c;
  c.kind = RungKind::kAmg;
  c.spec.engine = EngineKind::kAmg;
  c.method = method;
  c.worth = kSooner;
  c.name = "multigrid";
  return c;
}

int64_t Longest(const Diagnosis& d) { return std::max(d.max_row_entries, d.max_column_entries); }

// Whether FSAI that ends soon stands before multigrid on a GPU: where that smooths by FSAI, too,
// its set-up takes longer, by that of FSAI at least.
bool LightFirst(const LadderCase& c, RungKind begun) {
  if (begun == RungKind::kLightAfsai) return true;
  return ChooseSmoother(SmootherKind::kAuto, /*symmetric=*/true, SuitsAmg(c).beta) !=
         SmootherKind::kL1Jacobi;
}

PlannedRung Minres() {
  PlannedRung c;
  c.kind = RungKind::kMinres;
  c.spec.engine = EngineKind::kNone;
  c.method = Method::kMinres;
  c.worth = kSooner;
  c.scaled = true;
  c.name = "no preconditioner";
  return c;
}

PlannedRung StaticSpai(const StaticSpaiOptions& options, Method method, int64_t restart) {
  PlannedRung c;
  c.kind = RungKind::kStaticSpai;
  c.spec.engine = EngineKind::kStaticSpai;
  c.spec.static_spai = options;
  c.method = method;
  c.restart = restart;
  c.worth = kSooner;
  c.scaled = true;
  c.name = "static SPAI";
  return c;
}

PlannedRung DynamicSpai(RungKind kind, double tol, int steps, Method method, int64_t restart) {
  PlannedRung c;
  c.kind = kind;
  c.spec.engine = EngineKind::kDynamicSpai;
  c.spec.dynamic_spai.tol = tol;
  c.spec.dynamic_spai.max_steps = steps;
  c.method = method;
  c.restart = restart;
  c.worth = kLater;
  c.scaled = true;
  c.name = "dynamic SPAI (tol " + Figure(tol) + ", " + std::to_string(steps) + " x " +
           std::to_string(c.spec.dynamic_spai.per_step) + ")";
  return c;
}

double ToDouble(int64_t x) { return static_cast<double>(x); }

// 2/3 n³ operations (kernels/dense/lu.h), on one core.
double DenseLuMs(int64_t n) {
  constexpr double kFlopsPerMs = 4e7;
  const double size = ToDouble(n);
  return 2.0 / 3 * size * size * size / kFlopsPerMs;
}

// Static SPAI's set-up by the size of A: 0.45 to 1.05 of what its local problems tell, 3 on nodes
// of three unknowns. To count these takes the host longer than a GPU takes for many iterations: 10
// ms on 10^4 points in random order, 2.6 s on 10^6.
double RoughSpaiMs(const LadderCase& c) {
  const double n = ToDouble(c.a.n_cols), nnz = ToDouble(c.nnz()), mean = nnz / std::max(n, 1.0);
  return BuildMs(TraitsOf(EngineKind::kStaticSpai).rates,
                 {.rows = n,
                  .nnz_a = nnz,
                  .entries = nnz,
                  .gathered = nnz * mean,
                  .flops = 2 * nnz * mean * mean},
                 /*threads=*/1);
}

}  // namespace

size_t PlaceOf(const std::vector<PlannedRung>& rungs, RungKind kind) {
  const auto place = [&](const auto& wanted) {
    return static_cast<size_t>(std::find_if(rungs.begin(), rungs.end(), wanted) - rungs.begin());
  };
  const size_t itself = place([&](const PlannedRung& rung) { return rung.kind == kind; });
  return itself < rungs.size() ? itself
                               : place([&](const PlannedRung& rung) { return rung.kind > kind; });
}

// A build is to be downloaded as one matrix, too: not for those.
bool MaySuitAmg(const LadderCase& c) {
  return c.over == nullptr && !c.ladder.to_build && c.diagnosis.zero_diagonal.count == 0 &&
         c.a.values.size() == c.a.row_idx.size() && MaySuitAmg(c.a, Longest(c.diagnosis));
}

AmgSuitability SuitsAmg(const LadderCase& c) {
  return MaySuitAmg(c) ? c.look->Of(c.a, Longest(c.diagnosis), c.threads) : AmgSuitability();
}

int64_t LadderCase::nnz() const { return over != nullptr ? over->nnz() : a.nnz(); }

bool TakenForPositive(const LadderCase& c) {
  const Method asked = c.options.method;
  return MayBePositive(c.diagnosis) && (asked == Method::kAuto || ForSymmetric(asked));
}

std::vector<PlannedRung> PlannedRungs(const LadderCase& c, bool positive, RungKind begun) {
  std::vector<PlannedRung> rungs;
  const Method asked = c.options.method;
  const bool free = asked == Method::kAuto;
  if (positive) {
    const Method method = free ? Method::kCg : asked;
    const bool on_gpu = c.backend == Backend::kCuda;
    if (MaySuitAmg(c)) rungs.push_back(Amg(method));
    rungs.push_back(on_gpu ? LightAfsai(method) : Fsai(RungKind::kFsai, method));
    if (on_gpu && rungs.size() == 2 && LightFirst(c, begun)) std::swap(rungs[0], rungs[1]);
    rungs.push_back(Fsai(RungKind::kAfsai, method));
  }
  const bool over = c.over != nullptr;
  // Behind rungs of CG, too, whose solves may find A indefinite.
  if (!over && c.diagnosis.numerically_symmetric && !c.ladder.to_build &&
      (free || asked == Method::kMinres)) {
    rungs.push_back(Minres());
  }
  if (ForSymmetric(asked)) return rungs;
  const int64_t restart = std::max(c.options.restart, kRestart);
  const Method method = free ? Method::kGmres : asked;
  if ((!c.diagnosis.numerically_symmetric || MayBeNegative(c.diagnosis, c.a.n_cols)) &&
      MaySuitAmg(c)) {
    // Before MINRES: an iteration of it is one of CG.
    rungs.insert(rungs.begin(), Amg(free ? Method::kBicgstab : asked));
  }
  rungs.push_back(StaticSpai(c.static_spai, free ? Method::kBicgstab : asked, restart));
  const Method sturdy = over ? Method::kGmres : Method::kIdr;
  rungs.push_back(DynamicSpai(RungKind::kDynamicSpai, 0.3, 10, free ? sturdy : asked, restart));
  rungs.push_back(DynamicSpai(RungKind::kLargeDynamicSpai, 0.1, 20, method, restart));
  if (over) {
    for (PlannedRung& rung : rungs) rung.scaled = false;
  }
  if (c.ladder.to_build) return rungs;
  if (!over && c.a.n_cols <= c.ladder.max_lu_n) {
    PlannedRung lu;
    lu.kind = RungKind::kDenseLu;
    lu.spec.engine = EngineKind::kNone;
    lu.method = method;
    lu.restart = c.options.restart;
    lu.worth = kSooner;
    lu.dense_lu = true;
    lu.name = "dense LU";
    rungs.push_back(std::move(lu));
  }
  if (method == Method::kGmres) {
    rungs.push_back(DynamicSpai(RungKind::kLongCycles, 0.1, 20, method, restart));
    rungs.back().scaled = !over;
    LengthenCycles(c, &rungs.back());
  }
  return rungs;
}

void LengthenCycles(const LadderCase& c, PlannedRung* rung) {
  rung->basis_bytes = std::max(kBasisBytes, c.options.basis_bytes);
  if (c.over == nullptr) return;
  SolveOptions options = c.options;
  options.restart = rung->restart;
  options.basis_bytes = std::exchange(rung->basis_bytes, 0);
  rung->restart = std::max<int64_t>(1, RestartLength(options, c.a.n_cols));
}

void PutLuBefore(size_t i, const Engine& engine, const LadderCase& c, const Context& context,
                 std::vector<PlannedRung>* rungs) {
  if (i >= rungs->size() || (*rungs)[i].worth != kLater) return;
  const auto at = rungs->begin() + static_cast<std::ptrdiff_t>(i);
  const auto lu = std::find_if(at, rungs->end(), [](const PlannedRung& r) { return r.dense_lu; });
  if (lu == rungs->end() || SetupMs(engine, c, context, &*at) <= DenseLuMs(c.a.n_cols)) return;
  std::rotate(at, lu, lu + 1);
}

bool Fits(const PlannedRung& rung, const LadderCase& c, bool positive) {
  switch (rung.kind) {
    case RungKind::kAmg:
      return (positive || rung.method != Method::kCg) && SuitsAmg(c).suits;
    case RungKind::kLightAfsai:
    case RungKind::kFsai:
    case RungKind::kAfsai:
      return positive || rung.method != Method::kCg;
    case RungKind::kMinres:
    case RungKind::kStaticSpai:
      return !positive;
    default:
      return true;
  }
}

double SetupMs(const Engine& engine, const LadderCase& c, const Context& context,
               PlannedRung* rung) {
  if (rung->setup_ms) return *rung->setup_ms;
  const int64_t n = c.a.n_cols;
  rung->setup_ms = 0;
  if (rung->dense_lu) {
    rung->estimate.host_bytes = 8 * n * (n + 16);
    rung->estimate.nnz_m = n * n;
    rung->setup_ms = DenseLuMs(n);
  } else if (rung->spec.engine != EngineKind::kNone) {
    Context by_one = context;
    by_one.threads = 1;
    by_one.progress = nullptr;
    PreconditionerSpec spec = rung->spec;
    if (spec.engine == EngineKind::kAmg && spec.amg.block_size == 0) {  // which takes long to find
      spec.amg.block_size = SuitsAmg(c).block;
    }
    if (const auto found = engine.Estimate(spec, c.a, nullptr, by_one); found.ok()) {
      rung->estimate = *found;
      const bool on_gpu = c.backend == Backend::kCuda && found->predicted_device_ms > 0;
      rung->setup_ms = on_gpu ? found->predicted_device_ms : found->predicted_ms;
    }
  }
  return *rung->setup_ms;
}

StallWatch::Look LookAfter(const Engine& engine, const LadderCase& c, PlannedRung* next,
                           Method method, int64_t nnz_m, bool parts, const Context& context) {
  if (next == nullptr || next->kind == RungKind::kLongCycles) return {kLastLook};
  const bool on_gpu = c.backend == Backend::kCuda;
  const bool spai = on_gpu && next->kind == RungKind::kStaticSpai;
  if (spai && parts) return {kLastLook};
  const double setup_ms = spai ? RoughSpaiMs(c) : SetupMs(engine, c, context, next);
  const int64_t n_rhs = static_cast<int64_t>(c.b.size()) / std::max<int64_t>(1, c.a.n_cols);
  SolveWork work{.method = method,
                 .n = ToDouble(c.a.n_cols),
                 .nnz_a = ToDouble(c.nnz()),
                 .nnz_m = ToDouble(nnz_m),
                 .parts = parts,
                 .n_rhs = n_rhs};
  const double iteration = IterationMs(work, c.backend, /*threads=*/1);
  const bool light = next->kind == RungKind::kLightAfsai;
  if (on_gpu && method == Method::kCg && nnz_m == 0 && (light || next->kind == RungKind::kAmg)) {
    work.nnz_m = kLightEntries * work.n;
    const double spared =
        iteration - (light ? kShareOfFsai * IterationMs(work, c.backend, /*threads=*/1) : 0);
    const double costs = setup_ms + (light ? 0 : kIterationsOfAmg * iteration);
    return {kDeviceLook, spared > 0 ? costs / spared / kLongerThanForetold : 1e9};
  }
  const double many = setup_ms * next->worth / std::max(iteration, 1e-6);
  return {std::max(StallWatch::kLeastLook, static_cast<int64_t>(std::min(many, 1e9)))};
}

StallWatch::Look FirstLook(const Engine& engine, const LadderCase& c, const Rung& first,
                           const Context& context) {
  const bool positive = TakenForPositive(c), parts = TraitsOf(first.engine).by_parts;
  std::vector<PlannedRung> rungs = PlannedRungs(c, positive);
  for (size_t i = PlaceOf(rungs, first.kind); i < rungs.size(); ++i) {
    if (rungs[i].kind == first.kind) continue;
    if (!Fits(rungs[i], c, positive)) continue;
    PutLuBefore(i, engine, c, context, &rungs);
    return LookAfter(engine, c, &rungs[i], first.method, first.nnz_m, parts, context);
  }
  const bool last = first.kind == RungKind::kBottom || first.kind == RungKind::kLongCycles;
  if (last) return {};
  return LookAfter(engine, c, nullptr, first.method, first.nnz_m, parts, context);
}

std::string Told(const PlannedRung& rung, const Scaling* scaling) {
  std::string what = rung.name;
  if (scaling != nullptr && !scaling->identity()) {
    what +=
        scaling->kind == ScalingMode::kMatching ? " of A matched and scaled" : " of A equilibrated";
  }
  what += ", ";
  switch (rung.method) {
    case Method::kCg:
      return what + "CG";
    case Method::kGmres:
      return what + "GMRES(" + std::to_string(rung.restart) +
             (rung.basis_bytes > 0 ? " and up)" : ")");
    case Method::kMinres:
      return what + "MINRES";
    case Method::kIdr:
      return what + "IDR";
    default:
      return what + "BiCGSTAB";
  }
}

void Apply(const PlannedRung& rung, const LadderCase& c, SolveOptions* options) {
  options->method = rung.method;
  options->restart = rung.restart;
  options->basis_bytes = rung.basis_bytes;
  if (c.options.method == Method::kAuto) options->shadow_vectors = kShadowVectors;
}

std::optional<RungTerms> TermsOf(RungKind kind, const LadderCase& given) {
  LadderCase c = given;
  if (kind == RungKind::kLightAfsai) c.backend = Backend::kCuda;  // where it was learned
  for (PlannedRung& rung : PlannedRungs(c, TakenForPositive(c))) {
    if (rung.kind != kind || (kind == RungKind::kAmg && !SuitsAmg(c).suits)) continue;
    RungTerms terms{std::move(rung.spec), c.options, std::move(rung.name)};
    Apply(rung, c, &terms.options);
    return terms;
  }
  return std::nullopt;
}

std::vector<PreconditionerSpec> SpecsOfRungs(const PreconditionerSpec& asked) {
  Diagnosis any;
  any.numerically_symmetric = true;
  const SolveOptions options;
  const LadderCase c{.a = {}, .diagnosis = any, .b = {}, .options = options};
  std::vector<PreconditionerSpec> specs = {{.engine = EngineKind::kJacobi}};
  for (const PlannedRung& rung : PlannedRungs(c, /*positive=*/true)) {
    if (rung.spec.engine == EngineKind::kNone || rung.kind == RungKind::kLongCycles) continue;
    specs.push_back(rung.spec);
    if (rung.spec.engine == EngineKind::kStaticSpai) {
      specs.back().static_spai = asked.static_spai;
    }
  }
  return specs;
}

}  // namespace spaid::kernels
