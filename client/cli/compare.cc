// spaidctl compare
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/byte_file.h"
#include "client/cli/commands.h"
#include "client/cli/convergence_plot.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

using nlohmann::json;

// One line of the table.
struct Row {
  PreconditionerSpec spec;
  std::optional<Method> method;  // none: the engine itself did not work out
  std::optional<SolveResult> solved;
  std::optional<Error> error;  // refused, by the build or the solve
  std::string skipped;         // why it was not tried
  double setup_ms = 0;
  double nnz_ratio = 0;

  bool converged() const { return solved && solved->rhs.front().outcome == Outcome::kConverged; }
  double total_ms() const { return setup_ms + (solved ? solved->timings.solve_ms : 0); }
};

template <class T>
bool Contains(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Errors of one pair become its row; these end the whole comparison.
bool EndsAll(const Error& error) {
  return error.code == Code::kUnavailable || error.code == Code::kCancelled ||
         error.code == Code::kDeadlineExceeded || error.code == Code::kUnauthenticated ||
         error.code == Code::kPermissionDenied;
}

// CG needs a symmetric positive definite matrix; what can be seen of that without solving.
bool MayBePositiveDefinite(const Diagnosis& d) {
  return d.numerically_symmetric && d.missing_diagonal.count == 0 && d.zero_diagonal.count == 0 &&
         d.negative_diagonal.count == 0;
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

class Comparison {
 public:
  Comparison(Session& session, const CompareArgs& args, MatrixInfo matrix, std::vector<double> b,
             ProgressReporter& reporter)
      : session_(session),
        args_(args),
        matrix_(std::move(matrix)),
        b_(std::move(b)),
        reporter_(reporter) {}

  // Fills rows(); an error is one that ends all.
  std::optional<Error> Run(const PreconditionerSpec& base, const ServerInfo& server) {
    std::vector<PreconditionerSpec> specs;
    for (const EngineTraits& engine : Compared()) {
      const bool builds = engine.engine != Engine::kNone;
      if (builds && !Contains(server.engines, engine.engine)) continue;
      if (engine.factored && !MayBePositiveDefinite(matrix_.diagnosis)) continue;
      PreconditionerSpec spec = base;
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
      if (auto error = TryEngine(spec, server)) return error;
    }
    return std::nullopt;
  }

  const std::vector<Row>& rows() const { return rows_; }
  // Index of the quickest that converged; -1: none.
  int Best() const {
    int best = -1;
    for (size_t k = 0; k < rows_.size(); ++k) {
      if (rows_[k].converged() && (best < 0 || rows_[k].total_ms() < rows_[best].total_ms())) {
        best = static_cast<int>(k);
      }
    }
    return best;
  }

 private:
  std::optional<Error> TryEngine(const PreconditionerSpec& spec, const ServerInfo& server) {
    Row row;
    row.spec = spec;
    std::string handle;
    if (TraitsOf(spec.engine).approximate) {
      auto estimate = session_.client.Estimate(matrix_.name, spec, session_.Call());
      if (!estimate.ok()) return Refused(std::move(row), estimate.error());
      if (estimate->predicted_ms > args_.max_setup_s * 1000) {
        row.skipped = "left out: set-up predicted to take " + FormatMs(estimate->predicted_ms) +
                      " (--max-setup)";
        rows_.push_back(std::move(row));
        return std::nullopt;
      }
    }
    if (spec.engine != Engine::kNone) {
      Announce(EngineText(spec));
      auto built =
          session_.client.Build(matrix_.name, spec, false, session_.Call(args_.limits, reporter_));
      reporter_.Clear();
      if (!built.ok()) return Refused(std::move(row), built.error());
      const PreconditionerInfo& m = built->preconditioner;
      handle = m.name;
      // The set-up time of the build that made it, also if it existed already.
      row.setup_ms = m.build_timings.setup_ms();
      row.nnz_ratio = m.quality.density;
    }
    for (const Method method :
         {Method::kCg, Method::kMinres, Method::kBicgstab, Method::kIdr, Method::kGmres}) {
      if (!Contains(server.methods, method) ||
          !Fits(method, TraitsOf(spec.engine), matrix_.diagnosis, indefinite_)) {
        continue;
      }
      Row pair = row;
      pair.method = method;
      if (auto error = TryMethod(std::move(pair), handle)) return error;
    }
    return std::nullopt;
  }

  std::optional<Error> TryMethod(Row row, const std::string& handle) {
    SolveOptions options = args_.options;
    options.engine = row.spec.engine;
    options.preconditioner = handle;
    options.method = *row.method;
    options.omit_solution = true;
    Announce(EngineText(row.spec) + ", " + std::string(Name(*row.method)));
    auto solved =
        session_.client.Solve(matrix_.name, b_, options, session_.Call(args_.limits, reporter_));
    reporter_.Clear();
    if (!solved.ok()) return Refused(std::move(row), solved.error());
    if (solved->rhs.empty()) {
      Error error = LocalError("NO_OUTCOME", "the server ended the solve without an outcome");
      error.code = Code::kInternal;
      return error;
    }
    row.solved = *std::move(solved);
    if (row.solved->rhs.front().outcome == Outcome::kIndefinite) indefinite_ = true;
    rows_.push_back(std::move(row));
    return std::nullopt;
  }

  // One line for each step in a pipe; on a terminal the bar says it.
  void Announce(const std::string& step) {
    reporter_.SetPrefix(step + ": ");
    if (session_.progress_mode() == ProgressReporter::Mode::kLines) session_.out.Note(step);
  }

  std::optional<Error> Refused(Row row, const Error& error) {
    if (EndsAll(error)) return error;
    row.error = error;
    rows_.push_back(std::move(row));
    return std::nullopt;
  }

  Session& session_;
  const CompareArgs& args_;
  MatrixInfo matrix_;
  std::vector<double> b_;
  ProgressReporter& reporter_;
  std::vector<Row> rows_;
  bool indefinite_ = false;  // as a solve found
};

json RowJson(const Row& row) {
  json object = {
      {"engine", std::string(Name(row.spec.engine))},
      {"pattern_power",
       TraitsOf(row.spec.engine).has_power ? json(row.spec.pattern_power) : json(nullptr)},
      {"method", row.method ? json(std::string(Name(*row.method))) : json(nullptr)},
      {"setup_ms", row.setup_ms},
      {"nnz_ratio", row.nnz_ratio}};
  if (!row.skipped.empty()) object["skipped"] = row.skipped;
  if (row.error) object["error"] = ToJson(*row.error);
  if (row.solved) {
    const auto& rhs = row.solved->rhs.front();
    object["outcome"] = UpperSnake(Name(rhs.outcome));
    object["iterations"] = rhs.iterations;
    object["true_relative_residual"] = rhs.true_relative_residual;
    object["detail"] = rhs.detail;
    object["solve_ms"] = row.solved->timings.solve_ms;
    object["total_ms"] = row.total_ms();
    object["device"] = row.solved->device;
  }
  return object;
}

std::string RowsText(const Comparison& comparison, bool color) {
  using Align = Table::Align;
  Table table({{"engine", Align::kLeft},
               {"method", Align::kLeft},
               {"nnz ratio", Align::kRight},
               {"set-up", Align::kRight},
               {"iterations", Align::kRight},
               {"solve", Align::kRight},
               {"total", Align::kRight},
               {"residual", Align::kRight},
               {"outcome", Align::kLeft}});
  const int best = comparison.Best();
  for (size_t k = 0; k < comparison.rows().size(); ++k) {
    const Row& row = comparison.rows()[k];
    const std::string method(row.method ? Name(*row.method) : "");
    const std::string setup = row.spec.engine == Engine::kNone ? "-" : FormatMs(row.setup_ms);
    const std::string ratio =
        row.spec.engine == Engine::kNone ? "-" : FormatFixed(row.nnz_ratio, 2);
    if (!row.solved) {
      const std::string why =
          row.error ? row.error->reason + ": " + row.error->message : row.skipped;
      table.Add({EngineText(row.spec),
                 method,
                 "",
                 "",
                 "",
                 "",
                 "",
                 "",
                 {why, row.error ? Style::kBad : Style::kDim}});
      continue;
    }
    const auto& rhs = row.solved->rhs.front();
    const bool is_best = static_cast<int>(k) == best;
    const Style style = is_best ? Style::kGood : Style::kPlain;
    Style outcome_style = style;
    if (!row.converged()) outcome_style = Style::kBad;
    table.Add(
        {{EngineText(row.spec), style},
         {method, style},
         {ratio, style},
         {setup, style},
         {FormatCount(rhs.iterations), style},
         {FormatMs(row.solved->timings.solve_ms), style},
         {FormatMs(row.total_ms()), style},
         {FormatResidual(rhs.true_relative_residual), style},
         {UpperSnake(Name(rhs.outcome)) + (is_best ? "  <- best total" : ""), outcome_style}});
  }
  return table.Text(color);
}

// The quickest first: they are the ones to get a colour. Borrows the rows' histories.
ConvergencePlot PlotOf(const Comparison& comparison, const CompareArgs& args,
                       const MatrixInfo& matrix) {
  std::vector<const Row*> rows;
  for (const Row& row : comparison.rows()) {
    if (row.solved) rows.push_back(&row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
    if (a->converged() != b->converged()) return a->converged();
    return a->total_ms() < b->total_ms();
  });
  const auto title = [&](const Row& row) {
    return EngineTitle(row.spec.engine, row.spec.pattern_power, row.spec.block_size) + ", " +
           MethodTitle(*row.method, args.options);
  };
  ConvergencePlot plot;
  plot.title = args.matrix.matrix;
  plot.subtitle = "n = " + FormatCount(matrix.n) + "  ·  nnz = " + FormatCount(matrix.nnz) +
                  "  ·  preconditioners and methods compared, the quickest in all first";
  for (const Row* row : rows) {
    const SolveResult::Rhs& rhs = row->solved->rhs.front();
    plot.curves.push_back({.name = title(*row),
                           .history = rhs.history,
                           .end = Residual{.iteration = PlotIteration(rhs.iterations),
                                           .relative_residual = rhs.true_relative_residual}});
  }
  plot.caption = "nothing converged";
  if (const int best = comparison.Best(); best >= 0) {
    const Row& row = comparison.rows()[static_cast<size_t>(best)];
    const SolveResult::Rhs& rhs = row.solved->rhs.front();
    plot.caption = "Best: " + title(row) + ": " + FormatCount(rhs.iterations) +
                   " iterations, true relative residual " +
                   FormatResidual(rhs.true_relative_residual) + " (circle)" +
                   (row.setup_ms > 0 ? ", set-up " + FormatMs(row.setup_ms) : "") + ", solve " +
                   FormatMs(row.solved->timings.solve_ms);
  }
  plot.tolerance = args.options.rtol;
  return plot;
}

}  // namespace

ExitCode RunCompare(Session& session, const CompareArgs& args) {
  if (!args.plot.empty()) {
    if (auto error = ByteWriter::Check(args.plot)) return session.out.Fail(*error);
  }
  auto source = OpenMatrix(args.matrix, false);
  if (!source.ok()) return session.out.Fail(source.error());
  auto spec = ResolveSpec(session, args.engine);
  if (!spec.ok()) return session.out.Fail(spec.error());
  const Interrupt::Guard guard("cancelling the comparison");
  ProgressReporter reporter(session.progress_mode(), stderr, args.options.rtol);
  auto server = session.client.GetServerInfo(session.Call());
  if (!server.ok()) return session.out.Fail(server.error());
  auto matrix = source->local ? session.client.Upload(*source->local, source->label,
                                                      session.Call({}, reporter))
                              : session.client.GetMatrix(source->handle, session.Call());
  reporter.Clear();
  if (!matrix.ok()) return session.out.Fail(matrix.error());
  auto b = MakeRhs(*source, matrix->n, {.rhs = args.rhs, .seed = args.seed, .count = 1});
  if (!b.ok()) return session.out.Fail(b.error());
  if (static_cast<int64_t>(b->size()) != matrix->n) {
    return session.out.Fail(
        LocalError("RHS_COUNT", args.rhs + ": compare takes one right-hand side"));
  }
  source->local.reset();  // the server has it; the arrays are not needed any more

  const ProgressReporter::Mode mode = session.progress_mode();
  const bool lines = mode == ProgressReporter::Mode::kLines;
  ProgressReporter steps(lines ? ProgressReporter::Mode::kNone : mode, stderr, args.options.rtol);
  Comparison comparison(session, args, *matrix, *std::move(b), steps);
  if (auto error = comparison.Run(*spec, *server)) return session.out.Fail(*error);

  if (!args.plot.empty()) {
    const ConvergencePlot plot = PlotOf(comparison, args, *matrix);
    if (auto error = WritePlot(args.plot, plot)) return session.out.Fail(*error);
  }
  const int best = comparison.Best();
  if (session.out.json()) {
    json rows = json::array();
    for (const Row& row : comparison.rows()) rows.push_back(RowJson(row));
    json object = {{"command", "compare"},
                   {"matrix", args.matrix.matrix},
                   {"matrix_handle", matrix->name},
                   {"n", matrix->n},
                   {"nnz", matrix->nnz},
                   {"rhs", args.rhs},
                   {"rtol", args.options.rtol},
                   {"findings", matrix->diagnosis.findings},
                   {"rows", std::move(rows)},
                   {"best", best >= 0 ? json(best) : json(nullptr)}};
    if (!args.plot.empty()) object["plot_file"] = args.plot;
    session.out.PrintJson(object);
  } else {
    const bool color = session.out.color();
    std::string text = Styled(args.matrix.matrix, Style::kBold, color) + "   n " +
                       FormatCount(matrix->n) + "   nnz " + FormatCount(matrix->nnz) +
                       "   to |b - Ax| <= " + FormatResidual(args.options.rtol) + " |b|\n\n" +
                       RowsText(comparison, color);
    if (best < 0) {
      text += "\nNothing converged. What the matrix says:\n";
      for (const std::string& finding : matrix->diagnosis.findings)
        text += "  - " + Printable(finding) + "\n";
      if (matrix->diagnosis.findings.empty()) text += "  nothing remarkable\n";
    }
    if (!args.plot.empty()) text += "\nplot: " + args.plot + "\n";
    session.out.Print(text);
  }
  return session.out.Finish(best >= 0 ? ExitCode::kOk : ExitCode::kNotConverged);
}

}  // namespace spaid::cli
