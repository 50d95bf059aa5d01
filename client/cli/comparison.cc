#include "client/cli/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "client/cli/convergence_plot.h"

namespace spaid::cli {
namespace {

template <class T>
bool Contains(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

double ResidualOf(const ComparedRow& row) {
  const double residual = row.solved->rhs.front().true_relative_residual;
  return std::isnan(residual) ? std::numeric_limits<double>::infinity() : residual;
}

// Multigrid scales A by it.
bool HasDiagonal(const Diagnosis& d) {
  return d.missing_diagonal.count == 0 && d.zero_diagonal.count == 0;
}

// CG needs a symmetric positive definite matrix; what can be seen of that without solving.
bool MayBePositiveDefinite(const Diagnosis& d) {
  return d.numerically_symmetric && HasDiagonal(d) && d.negative_diagonal.count == 0;
}

// Whether a method takes the matrix and the engine's M, and is worth a line; `indefinite` once CG
// has found the matrix to be so. An explicit M of a symmetric matrix is not symmetric, which
// neither CG nor MINRES takes.
bool Fits(Method method, const EngineTraits& engine, const Diagnosis& d, bool indefinite) {
  switch (method) {
    case Method::kCg:
      return engine.for_cg && MayBePositiveDefinite(d);
    case Method::kMinres:  // Jacobi of a diagonal that is not positive is no M for it
      return MayBePositiveDefinite(d) ? engine.for_cg && indefinite
                                      : d.numerically_symmetric && engine.engine == Engine::kNone;
    case Method::kIdr:
      return !d.numerically_symmetric;
    case Method::kAuto:
    case Method::kBicgstab:
    case Method::kGmres:
      break;
  }
  return true;
}

// Traits by the table of engines, but for a cycle that smooths more on one side.
EngineTraits TraitsOf(const PreconditionerSpec& spec) {
  EngineTraits traits = spaid::TraitsOf(spec.engine);
  if (traits.by_parts && spec.amg.pre_sweeps != spec.amg.post_sweeps) traits.for_cg = false;
  if (spec.petsc.symmetry == ParasailsSymmetry::kGeneral && spec.engine == Engine::kParasails) {
    traits.for_cg = false;
  }
  return traits;
}

// All but AUTO, those last that need a positive definite matrix.
std::vector<EngineTraits> Compared() {
  std::vector<EngineTraits> engines;
  for (const bool factored : {false, true}) {
    for (const EngineTraits& engine : kEngines) {
      if (engine.factored == factored && engine.engine != Engine::kAuto) engines.push_back(engine);
    }
  }
  return engines;
}

}  // namespace

bool EndsAll(const Error& error) {
  if (error.reason == "MAX_RUN") return false;  // --max-run is of one job, the next may be quicker
  return error.code == Code::kUnavailable || error.code == Code::kCancelled ||
         error.code == Code::kDeadlineExceeded || error.code == Code::kUnauthenticated ||
         error.code == Code::kPermissionDenied;
}

Expected<ComparedSystem> ReadSystem(Session& session, const CompareArgs& args) {
  ComparedSystem system;
  auto source = OpenMatrix(args.matrix, false);
  if (!source.ok()) return source.error();
  system.source = *std::move(source);
  auto base = ResolveSpec(session, system.source, args.engine);
  if (!base.ok()) return base.error();
  system.base = *std::move(base);
  return system;
}

std::optional<Error> StoreSystem(Session& session, const CompareArgs& args,
                                 ComparedSystem& system) {
  auto server = session.client.GetServerInfo(session.Call());
  if (!server.ok()) return server.error();
  system.server = *std::move(server);
  ProgressReporter reporter(session.progress_mode(), stderr);
  const MatrixSource& source = system.source;
  auto matrix = source.local
                    ? session.client.Upload(*source.local, source.label, session.Call({}, reporter))
                    : session.client.GetMatrix(source.handle, session.Call());
  reporter.Clear();
  if (!matrix.ok()) return matrix.error();
  system.matrix = *std::move(matrix);
  if (system.pattern_only) return std::nullopt;
  const int64_t n = system.matrix.n;
  auto b = MakeRhs(source, n, {.rhs = args.rhs, .seed = args.seed, .count = 1});
  if (!b.ok()) return b.error();
  if (static_cast<int64_t>(b->size()) != n) {
    return LocalError("RHS_COUNT", args.rhs + ": compare takes one right-hand side");
  }
  system.b = *std::move(b);
  return std::nullopt;
}

std::optional<Error> Comparison::Run() {
  std::vector<PreconditionerSpec> specs;
  for (const EngineTraits& engine : Compared()) {
    const bool builds = engine.engine != Engine::kNone;
    if (builds && !Contains(system_.server.engines, engine.engine)) continue;
    if (engine.factored && !MayBePositiveDefinite(system_.matrix.diagnosis)) continue;
    if (engine.by_parts && !HasDiagonal(system_.matrix.diagnosis)) continue;
    PreconditionerSpec spec = system_.base;
    spec.engine = engine.engine;
    if (!engine.has_power) {
      specs.push_back(spec);
      continue;
    }
    for (const int power : args_.powers) {
      spec.pattern_power = power;
      specs.push_back(spec);
    }
  }
  for (const PreconditionerSpec& spec : specs) {
    if (auto error = TryEngine(spec)) return error;
  }
  return std::nullopt;
}

std::optional<Error> Comparison::TryEngine(const PreconditionerSpec& spec) {
  ComparedRow row;
  row.spec = spec;
  std::string handle;
  if (spaid::TraitsOf(spec.engine).estimated) {
    auto estimate = session_.client.Estimate(system_.matrix.name, spec, session_.Call());
    if (!estimate.ok()) return Refused(std::move(row), estimate.error());
    if (estimate->predicted_ms > args_.max_setup_s * 1000) {
      row.skipped = "left out: set-up predicted to take " + FormatMs(estimate->predicted_ms) +
                    " (--max-setup)";
      rows_.push_back(std::move(row));
      return std::nullopt;
    }
  }
  if (spec.engine != Engine::kNone) {
    session_.Announce(EngineText(spec), reporter_);
    auto built = session_.client.Build(system_.matrix.name, spec, false,
                                       session_.Call(args_.limits, reporter_));
    reporter_.Clear();
    if (!built.ok()) return Refused(std::move(row), built.error());
    const PreconditionerInfo& m = built->preconditioner;
    handle = m.name;
    // The set-up time of the build that made it, also if it existed already.
    row.setup_ms = m.build_timings.setup_ms();
    row.nnz_ratio = m.quality.density;
    row.m = std::make_shared<const PreconditionerInfo>(m);
  }
  for (const Method method :
       {Method::kCg, Method::kMinres, Method::kBicgstab, Method::kIdr, Method::kGmres}) {
    if (!Contains(system_.server.methods, method) ||
        !Fits(method, TraitsOf(spec), system_.matrix.diagnosis, indefinite_)) {
      continue;
    }
    ComparedRow pair = row;
    pair.method = method;
    if (auto error = TryMethod(std::move(pair), handle)) return error;
  }
  return std::nullopt;
}

std::optional<Error> Comparison::TryMethod(ComparedRow row, const std::string& handle) {
  SolveOptions options = args_.options;
  options.engine = row.spec.engine;
  options.preconditioner = handle;
  options.method = *row.method;
  options.omit_solution = true;
  session_.Announce(EngineText(row.spec) + ", " + std::string(Name(*row.method)), reporter_);
  auto solved = session_.client.Solve(system_.matrix.name, system_.b, options,
                                      session_.Call(args_.limits, reporter_));
  reporter_.Clear();
  if (!solved.ok()) return Refused(std::move(row), solved.error());
  if (solved->rhs.empty()) return NoOutcome();
  row.solved = *std::move(solved);
  if (row.solved->rhs.front().outcome == Outcome::kIndefinite) indefinite_ = true;
  rows_.push_back(std::move(row));
  return std::nullopt;
}

std::optional<Error> Comparison::Refused(ComparedRow row, const Error& error) {
  if (EndsAll(error)) return error;
  row.error = error;
  rows_.push_back(std::move(row));
  return std::nullopt;
}

int Best(const ComparedRows& rows) {
  int best = -1;
  for (size_t k = 0; k < rows.size(); ++k) {
    if (rows[k].converged() && (best < 0 || rows[k].total_ms() < rows[best].total_ms())) {
      best = static_cast<int>(k);
    }
  }
  return best;
}

std::vector<const ComparedRow*> BestFirst(const ComparedRows& all) {
  std::vector<const ComparedRow*> rows;
  for (const ComparedRow& row : all) {
    if (row.solved) rows.push_back(&row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ComparedRow* a, const ComparedRow* b) {
    if (a->converged() != b->converged()) return a->converged();
    if (a->converged()) return a->total_ms() < b->total_ms();
    return ResidualOf(*a) < ResidualOf(*b);
  });
  return rows;
}

std::string TitleOf(const ComparedRow& row, const SolveOptions& options) {
  return EngineTitle(row.spec.engine, row.spec.pattern_power, row.spec.block_size) +
         (row.method ? ", " + MethodTitle(*row.method, options) : "");
}

}  // namespace spaid::cli
