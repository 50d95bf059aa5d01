// Set-up and solve times of every engine that AUTO may choose, and of AUTO itself, on matrix
// files: a JSON object for each on standard output, for auto_engine.py. b = A x with a seeded
// random x in [-1, 1], x0 = 0, relative residual 1e-7, at most 10000 iterations.
//
//   spaid_engine_times A... [threads=2] [seconds=2] [limit_s=60] [rhs=1] [device=cpu|gpu]
//                      [named=auto|cg|bicgstab|gmres] [only=NAME,NAME...]
//
// A is a file (matrix_file.h), or gallery:FAMILY:SIZE. `only`: engines by their names here.
// AUTO is the whole ladder, as the daemon's jobs climb it, with nothing learned.
// Runs of the engines alternate for about so many `seconds`; of each the fastest counts. An engine
// that does not converge within limit_s is run once. On the first GPU as the daemon does it: from A
// and b on the host to M and x there, A's way to the device with every solve.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/cuda_device.h"
#include "kernels/base/memory.h"
#include "kernels/base/parallel.h"
#include "kernels/bench/matrix_file.h"
#include "kernels/engine/build_result.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/first_rung.h"
#include "kernels/engine/ladder.h"
#include "kernels/engine/spec.h"
#include "kernels/engine/stall_watch.h"
#include "kernels/gallery/gallery.h"
#include "kernels/krylov/operators.h"

namespace spaid::kernels::bench {
namespace {

constexpr double kLongMs = 50;

const char* NameOf(EngineKind kind) { return TraitsOf(kind).name.data(); }

const char* NameOf(Method method) {
  return method == Method::kCg ? "cg" : method == Method::kGmres ? "gmres" : "bicgstab";
}

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kConverged:
      return "converged";
    case Outcome::kMaxIterations:
      return "max iterations";
    case Outcome::kStagnated:
      return "stagnated";
    case Outcome::kBreakdown:
      return "breakdown";
    case Outcome::kIndefinite:
      return "indefinite";
    case Outcome::kNonFinite:
      return "non-finite";
    case Outcome::kTimeLimit:
      return "time limit";
    case Outcome::kCancelled:
      return "cancelled";
  }
  return "?";
}

struct Candidate {
  std::string name;
  PreconditionerSpec spec;
  std::string chosen;       // by AUTO, in the end
  std::string reason;       // of AUTO, or of an error
  std::vector<Rung> rungs;  // of AUTO, where it climbed
  Method method = Method::kBicgstab;
  double predicted_ms = 0, setup_ms = 0, solve_ms = 0;  // of the fastest run
  SolveFigures figures;                                 // of that solve
  double resolve_ms = 0;                                // the shortest
  double total_ms = std::numeric_limits<double>::infinity();
  int runs = 0;
  bool failed = false;  // there is no M
  int64_t iterations = 0, nnz_m = 0;
  double residual = 0, kaporin = 0;
  Outcome outcome = Outcome::kCancelled;

  bool converged() const { return runs > 0 && outcome == Outcome::kConverged; }
};

struct Problem {
  const Engine& engine;
  const CscMatrix& a;
  const Diagnosis& diagnosis;
  const Array<double>& b;
  Method named;
  int threads;
  bool gpu;
  double limit_s;
};

void Fail(const Status& status, Candidate* c) {
  c->failed = true;
  c->reason = status.reason() + ": " + status.message();
}

// Solves on the device, where A goes once.
class SolvesThere {
 public:
  explicit SolvesThere(const Problem& of) : of_(of) {}

  Result<SolveResult> operator()(const Preconditioner* m, std::span<const double> b,
                                 std::span<const double> x0, const SolveOptions& options,
                                 const Context& context) {
    const auto start = Clock::now();
    if (a_ == nullptr) {
      auto a = of_.engine.Place(of_.a, context);
      if (!a.ok()) return a.status();
      a_ = *std::move(a);
    }
    double place_ms = MsSince(start);
    const PlaceM place_m = [&](Storage storage) {
      const auto placing = Clock::now();
      auto placed = of_.engine.Place(*m, storage, context, a_.get());
      place_ms += MsSince(placing);
      return placed;
    };
    auto solved = of_.engine.SolveOnDevice(of_.a, *a_, m, place_m, b, x0, options, context);
    if (solved.ok()) solved->figures.place_ms = place_ms;
    return solved;
  }

 private:
  const Problem& of_;
  std::shared_ptr<const DeviceOperator> a_;
};

class NoSink final : public LadderSink {
 public:
  Status Enter(const std::string&, int64_t, double) override { return {}; }
  void OnRung(const Rung&) override {}
};

// `asked`: the caller's options.
LadderCase LadderOf(const Problem& of, const SolveOptions& asked, SolvesThere& there) {
  return {
      .a = of.a,
      .diagnosis = of.diagnosis,
      .b = of.b,
      .options = asked,
      .backend = of.gpu ? Backend::kCuda : Backend::kCpu,
      .threads = of.threads,
      .solve_there =
          of.gpu ? [&](const std::shared_ptr<const Preconditioner>& with, std::span<const double> b,
                       std::span<const double> x0, const SolveOptions& terms,
                       const Context& where) { return there(with.get(), b, x0, terms, where); }
                 : LadderSolve()};
}

Result<SolveResult> Climbed(Result<LadderResult> climbed, Candidate* c) {
  if (!climbed.ok()) return climbed.status();
  c->rungs = std::move(climbed->rungs);
  return std::move(climbed->solved);
}

// The solve with AUTO's bottom, and the rungs over it.
Result<SolveResult> SolveByLadder(const Problem& of, const LadderCase& ladder,
                                  const std::shared_ptr<const Preconditioner>& m, double setup_ms,
                                  const SolveOptions& options, const Context& context,
                                  SolvesThere& there, Candidate* c) {
  Rung first;
  first.engine = m != nullptr ? EngineKind::kJacobi : EngineKind::kNone;
  first.method = options.method;
  first.what = NameOf(first.engine);
  first.setup_ms = setup_ms;
  StallWatch watch(
      of.diagnosis.numerically_symmetric, options.rtol,
      [&] { return FirstLook(of.engine, ladder, first, context); },
      (options.max_iterations + 1) / 2, nullptr, context.stop);
  Context watched = context;
  watched.progress = &watch;
  watched.stop = watch.token();
  auto solved = of.gpu ? there(m.get(), of.b, {}, options, watched)
                       : of.engine.Solve(of.a, m.get(), of.b, {}, options, watched);
  if (!solved.ok() || !MayClimb(*solved)) return solved;
  first.solve_ms = solved->solve_ms;
  for (const RhsResult& rhs : solved->rhs) first.iterations += rhs.iterations;
  NoSink sink;
  return Climbed(Climb(of.engine, ladder, *std::move(solved), std::move(first), sink, context), c);
}

void RunOnce(const Problem& of, Candidate* c) {
  StopSource stop;
  stop.SetTimeLimit(Clock::now() +
                    std::chrono::milliseconds(static_cast<int64_t>(1e3 * of.limit_s)));
  const Context context{.stop = stop.token(), .progress = nullptr, .threads = of.threads};
  const auto start = Clock::now();
  auto resolved = of.engine.Resolve(c->spec, of.a, of.diagnosis, nullptr, context);
  double resolve_ms = MsSince(start);
  if (!resolved.ok()) return Fail(resolved.status(), c);
  const PreconditionerSpec& spec = resolved->spec;
  const auto method = ResolveMethod(of.named, ForCg(spec), of.diagnosis);
  if (!method.ok()) return Fail(method.status(), c);
  const SolveOptions options{.method = *method, .rtol = 1e-7, .keep_history = false};
  SolveOptions asked = options;
  asked.method = of.named;
  SolvesThere there(of);
  const LadderCase ladder = LadderOf(of, asked, there);
  const bool by_auto = c->spec.engine == EngineKind::kAuto;
  const RungKind rung =
      by_auto && of.gpu ? FirstRung(of.engine, ladder, context) : RungKind::kBottom;
  resolve_ms = MsSince(start);
  std::shared_ptr<const Preconditioner> m;
  const auto setting_up = Clock::now();
  if (spec.engine != EngineKind::kNone && rung == RungKind::kBottom) {
    auto plan = of.engine.MakePlan(spec, of.a, nullptr, context);
    if (!plan.ok()) return Fail(plan.status(), c);
    auto built = (*plan)->Build(spec, of.a, context);
    if (!built.ok()) return Fail(built.status(), c);
    m = built->preconditioner;
    c->nnz_m = m->nnz();
    if (built->quality.fsai) c->kaporin = built->quality.fsai->kaporin;
  }
  const double setup_ms = MsSince(setting_up);
  const auto solving = Clock::now();
  NoSink sink;
  auto solved = rung != RungKind::kBottom
                    ? Climbed(ClimbFrom(of.engine, ladder, {}, rung, sink, context), c)
                : by_auto ? SolveByLadder(of, ladder, m, setup_ms, options, context, there, c)
                : of.gpu  ? there(m.get(), of.b, {}, options, context)
                          : of.engine.Solve(of.a, m.get(), of.b, {}, options, context);
  const double solve_ms = MsSince(solving);
  if (!solved.ok()) return Fail(solved.status(), c);
  const double total_ms = MsSince(start);
  // The one that took the most iterations, or did not end as it should.
  const RhsResult& rhs = *std::max_element(
      solved->rhs.begin(), solved->rhs.end(), [](const RhsResult& x, const RhsResult& y) {
        const auto rank = [](const RhsResult& r) {
          return std::pair(r.outcome != Outcome::kConverged, r.iterations);
        };
        return rank(x) < rank(y);
      });
  ++c->runs;
  c->method = *method;
  c->chosen = NameOf(c->rungs.empty() ? spec.engine : c->rungs.back().engine);
  c->reason = resolved->reason;
  c->iterations = rhs.iterations;
  c->outcome = rhs.outcome;
  c->residual = rhs.true_relative_residual;
  c->resolve_ms = c->runs == 1 ? resolve_ms : std::min(c->resolve_ms, resolve_ms);
  if (total_ms < c->total_ms) {
    c->total_ms = total_ms;
    c->setup_ms = setup_ms;
    c->solve_ms = solve_ms;
    c->figures = solved->figures;
  }
}

// Text of ours in a JSON string.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

void Print(const Candidate& c) {
  std::printf(
      "{\"engine\": \"%s\", \"method\": \"%s\", \"outcome\": %s, \"iterations\": %lld, "
      "\"residual\": %.3g, \"predicted_ms\": %.4g, \"setup_ms\": %.5g, \"solve_ms\": %.5g, "
      "\"place_ms\": %.4g, \"b_ms\": %.4g, \"iterate_ms\": %.5g, \"check_ms\": %.4g, "
      "\"x_ms\": %.4g, \"total_ms\": %.5g, \"runs\": %d, \"nnz_m\": %lld, \"kaporin\": %.6g",
      c.name.c_str(), NameOf(c.method), Quoted(c.failed ? "failed" : NameOf(c.outcome)).c_str(),
      static_cast<long long>(c.iterations), c.residual, c.predicted_ms, c.setup_ms, c.solve_ms,
      c.figures.place_ms, c.figures.host_to_device_ms, c.figures.iterate_ms, c.figures.check_ms,
      c.figures.device_to_host_ms, c.runs > 0 ? c.total_ms : 0.0, c.runs,
      static_cast<long long>(c.nnz_m), c.kaporin);
  if (c.spec.engine == EngineKind::kAuto) {
    std::printf(", \"chosen\": \"%s\", \"resolve_ms\": %.4g, \"rungs\": [", c.chosen.c_str(),
                c.resolve_ms);
    for (size_t i = 0; i < c.rungs.size(); ++i) {
      const Rung& rung = c.rungs[i];
      std::printf(
          "%s{\"what\": %s, \"left\": %s, \"iterations\": %lld, \"setup_ms\": %.5g, "
          "\"solve_ms\": %.5g}",
          i > 0 ? ", " : "", Quoted(rung.what).c_str(), Quoted(rung.left).c_str(),
          static_cast<long long>(rung.iterations), rung.setup_ms, rung.solve_ms);
    }
    std::printf("]");
  }
  if (!c.reason.empty()) std::printf(", \"reason\": %s", Quoted(c.reason).c_str());
  std::printf("}");
}

// `only`: their names, with commas between them; empty: all.
std::vector<Candidate> Candidates(const Diagnosis& d, bool gpu, const std::string& only) {
  std::vector<Candidate> all;
  const auto add = [&](const char* name, EngineKind kind) -> PreconditionerSpec& {
    Candidate& c = all.emplace_back();
    c.name = name;
    c.spec.engine = kind;
    return c.spec;
  };
  add("auto", EngineKind::kAuto);
  add("jacobi", EngineKind::kJacobi);
  add("static-spai", EngineKind::kStaticSpai).static_spai.pattern.ensure_row =
      d.zero_diagonal.count > 0;
  if (d.numerically_symmetric && d.zero_diagonal.count + d.negative_diagonal.count == 0) {
    add("fsai", EngineKind::kFsai);
    add("fsai p2", EngineKind::kFsai).fsai.power = 2;
    add("afsai", EngineKind::kAfsai);
    add("afsai 10", EngineKind::kAfsai).fsai.k_max = 10;
    PreconditionerSpec& light = add("afsai 3x3", EngineKind::kAfsai);
    light.fsai.k_max = light.fsai.s = 3;
    if (gpu) {
      add("afsai gain 1e-3", EngineKind::kAfsai).fsai.min_gain = 1e-3;
      add("afsai gain 1e-2", EngineKind::kAfsai).fsai.min_gain = 1e-2;
    }
  }
  if (d.zero_diagonal.count == 0) {
    add("amg", EngineKind::kAmg);
    add("amg l1-jacobi", EngineKind::kAmg).amg.smoother = SmootherKind::kL1Jacobi;
    add("amg chebyshev", EngineKind::kAmg).amg.smoother = SmootherKind::kChebyshev;
  }
  if (!only.empty()) {
    std::erase_if(all, [&](const Candidate& c) {
      return ("," + only + ",").find("," + c.name + ",") == std::string::npos;
    });
  }
  return all;
}

struct Settings {
  std::map<std::string, std::string> given;

  double Number(const char* name, double otherwise) const {
    const auto at = given.find(name);
    return at == given.end() ? otherwise : std::atof(at->second.c_str());
  }
  std::string Text(const char* name) const {
    const auto at = given.find(name);
    return at == given.end() ? "" : at->second;
  }
  bool Is(const char* name, const char* value) const { return Text(name) == value; }
};

// A of a file, or of the gallery.
CscMatrix MatrixOf(const std::string& name) {
  constexpr std::string_view kGallery = "gallery:";
  if (!name.starts_with(kGallery)) return ReadMatrix(name);
  const size_t colon = name.rfind(':');
  const std::string family = name.substr(kGallery.size(), colon - kGallery.size());
  const int64_t size = std::atoll(name.c_str() + colon + 1);
  for (const gallery::Family& f : gallery::Families()) {
    if (f.name != family || size < f.min_size || size > f.max_size) continue;
    gallery::Matrix made = f.make(size);
    CscMatrix a;
    a.n_rows = a.n_cols = made.n;
    a.col_ptr.assign(made.col_ptr.begin(), made.col_ptr.end());
    a.row_idx.assign(made.row_idx.begin(), made.row_idx.end());
    a.values.assign(made.values.begin(), made.values.end());
    return a;
  }
  Die("no matrix of the gallery: " + name);
}

void Run(const Engine& engine, const std::string& path, const Settings& with) {
  const CscMatrix a = MatrixOf(path);
  const int threads = ResolveThreads(static_cast<int>(with.Number("threads", 2)));
  const int rhs = static_cast<int>(with.Number("rhs", 1));
  const bool gpu = with.Is("device", "gpu");
  const auto diagnosing = Clock::now();
  const Diagnosis d = Diagnose(a, threads);
  const double diagnosis_ms = MsSince(diagnosing);
  std::mt19937_64 random(12345);
  const auto n = static_cast<size_t>(a.n_cols);
  Array<double> x(n), b(n * static_cast<size_t>(rhs));
  for (int k = 0; k < rhs; ++k) {
    for (double& v : x) v = 0x1.0p-52 * static_cast<double>(random() >> 11) - 1;
    ColumnOperator(a).Apply(x, std::span(b).subspan(static_cast<size_t>(k) * n, n), threads);
  }
  const Problem problem{.engine = engine,
                        .a = a,
                        .diagnosis = d,
                        .b = b,
                        .named = with.Is("named", "cg")         ? Method::kCg
                                 : with.Is("named", "bicgstab") ? Method::kBicgstab
                                 : with.Is("named", "gmres")    ? Method::kGmres
                                                                : Method::kAuto,
                        .threads = threads,
                        .gpu = gpu,
                        .limit_s = with.Number("limit_s", 60)};
  std::vector<Candidate> candidates = Candidates(d, gpu, with.Text("only"));
  for (Candidate& c : candidates) {
    const auto estimate = engine.Estimate(c.spec, a, nullptr, {.threads = threads});
    if (!estimate.ok()) continue;
    c.predicted_ms = gpu ? estimate->predicted_device_ms : estimate->predicted_ms;
  }
  if (gpu && !candidates.empty()) {  // what comes first there loads kernels
    Candidate first = candidates.front();
    RunOnce(problem, &first);
  }
  const auto start = Clock::now();
  const double seconds = with.Number("seconds", 2);
  for (int round = 0; round < 500; ++round) {
    double best = std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates) {
      if (c.converged()) best = std::min(best, c.total_ms);
    }
    // Back and forth: what ran before leaves its matrix and threads in the caches.
    for (size_t k = 0; k < candidates.size(); ++k) {
      Candidate& c = candidates[round % 2 == 0 ? k : candidates.size() - 1 - k];
      if (c.failed || (round > 0 && !c.converged())) continue;
      // What is far from the best is known well enough after some runs, or one that took long.
      const bool known = round > 2 || (round > 0 && c.total_ms > kLongMs);
      if (known && c.total_ms > 3 * best && round % 8 != 0) continue;
      RunOnce(problem, &c);
    }
    if (round >= 2 && MsSince(start) > 1e3 * seconds) break;
  }
  const size_t slash = path.rfind('/') + 1;
  const size_t end = path.ends_with(".bin") ? path.rfind('.') : path.size();
  std::printf(
      "{\"matrix\": %s, \"n\": %lld, \"nnz\": %lld, \"symmetric\": %s, "
      "\"negative_diagonal\": %lld, \"zero_diagonal\": %lld, \"not_dominant_rows\": %lld, "
      "\"zero_sum_rows\": %lld, \"max_column\": %lld, \"threads\": %d, \"rhs\": %d, "
      "\"device\": \"%s\", \"diagnosis_ms\": %.4g, \"engines\": [",
      Quoted(path.substr(slash, end - slash)).c_str(), static_cast<long long>(d.n),
      static_cast<long long>(d.nnz), d.numerically_symmetric ? "true" : "false",
      static_cast<long long>(d.negative_diagonal.count),
      static_cast<long long>(d.zero_diagonal.count),
      static_cast<long long>(d.not_dominant_rows.count),
      static_cast<long long>(d.zero_sum_rows.count), static_cast<long long>(d.max_column_entries),
      threads, rhs, gpu ? "gpu" : "cpu", diagnosis_ms);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0) std::printf(", ");
    Print(candidates[i]);
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

std::unique_ptr<Engine> MakeEngineOn(bool gpu) {
  if (!gpu) return MakeCpuEngine();
  const CudaDevices& there = ListCudaDevices();
  if (!there.available) Die("no GPU: " + there.status);
  auto opened = CudaDevice::Open(there.devices[0], 0);
  if (!opened.ok()) Die(opened.status().message());
  return MakeEngine(false, {*opened});
}

}  // namespace
}  // namespace spaid::kernels::bench

int main(int argc, char** argv) {
  namespace bench = spaid::kernels::bench;
  spaid::kernels::KeepFreedMemory();  // as the daemon does
  std::vector<std::string> files;
  bench::Settings with;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t at = arg.find('=');
    if (at == std::string::npos) {
      files.push_back(arg);
    } else {
      with.given[arg.substr(0, at)] = arg.substr(at + 1);
    }
  }
  if (files.empty()) bench::Die("usage: spaid_engine_times A... [name=value]...");
  const auto engine = bench::MakeEngineOn(with.Is("device", "gpu"));
  for (const std::string& file : files) bench::Run(*engine, file, with);
  return 0;
}
