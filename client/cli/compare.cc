// spaidctl compare
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/byte_file.h"
#include "client/cli/commands.h"
#include "client/cli/comparison.h"
#include "client/cli/convergence_plot.h"
#include "client/cli/interrupt.h"
#include "client/cli/json.h"
#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

using nlohmann::json;

json RowJson(const ComparedRow& row) {
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
  const int best = Best(comparison.rows());
  for (size_t k = 0; k < comparison.rows().size(); ++k) {
    const ComparedRow& row = comparison.rows()[k];
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
  ConvergencePlot plot;
  plot.title = args.matrix.matrix;
  plot.subtitle = "n = " + FormatCount(matrix.n) + "  ·  nnz = " + FormatCount(matrix.nnz) +
                  "  ·  preconditioners and methods compared, the quickest in all first";
  for (const ComparedRow* row : BestFirst(comparison.rows())) {
    const SolveResult::Rhs& rhs = row->solved->rhs.front();
    plot.curves.push_back({.name = TitleOf(*row, args.options),
                           .history = rhs.history,
                           .end = Residual{.iteration = PlotIteration(rhs.iterations),
                                           .relative_residual = rhs.true_relative_residual}});
  }
  plot.caption = "nothing converged";
  if (const int best = Best(comparison.rows()); best >= 0) {
    const ComparedRow& row = comparison.rows()[static_cast<size_t>(best)];
    const SolveResult::Rhs& rhs = row.solved->rhs.front();
    plot.caption = "Best: " + TitleOf(row, args.options) + ": " + FormatCount(rhs.iterations) +
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
  auto system = ReadSystem(session, args);
  if (!system.ok()) return session.out.Fail(system.error());
  const Interrupt::Guard guard("cancelling the comparison");
  if (auto error = StoreSystem(session, args, *system)) return session.out.Fail(*error);
  system->source.local.reset();  // the server has it; the arrays are not needed any more

  ProgressReporter steps(session.step_progress_mode(), stderr, args.options.rtol);
  Comparison comparison(session, args, *system, steps);
  if (auto error = comparison.Run()) return session.out.Fail(*error);
  const MatrixInfo& matrix = system->matrix;

  if (!args.plot.empty()) {
    const ConvergencePlot plot = PlotOf(comparison, args, matrix);
    if (auto error = WritePlot(args.plot, plot)) return session.out.Fail(*error);
  }
  const int best = Best(comparison.rows());
  if (session.out.json()) {
    json rows = json::array();
    for (const ComparedRow& row : comparison.rows()) rows.push_back(RowJson(row));
    json object = {{"command", "compare"},
                   {"matrix", args.matrix.matrix},
                   {"matrix_handle", matrix.name},
                   {"n", matrix.n},
                   {"nnz", matrix.nnz},
                   {"rhs", args.rhs},
                   {"rtol", args.options.rtol},
                   {"findings", matrix.diagnosis.findings},
                   {"rows", std::move(rows)},
                   {"best", best >= 0 ? json(best) : json(nullptr)}};
    if (!args.plot.empty()) object["plot_file"] = args.plot;
    session.out.PrintJson(object);
  } else {
    const bool color = session.out.color();
    std::string text = Styled(args.matrix.matrix, Style::kBold, color) + "   n " +
                       FormatCount(matrix.n) + "   nnz " + FormatCount(matrix.nnz) +
                       "   to |b - Ax| <= " + FormatResidual(args.options.rtol) + " |b|\n\n" +
                       RowsText(comparison, color);
    if (best < 0) {
      text += "\nNothing converged. What the matrix says:\n";
      for (const std::string& finding : matrix.diagnosis.findings)
        text += "  - " + Printable(finding) + "\n";
      if (matrix.diagnosis.findings.empty()) text += "  nothing remarkable\n";
    }
    if (!args.plot.empty()) text += "\nplot: " + args.plot + "\n";
    session.out.Print(text);
  }
  return session.out.Finish(best >= 0 ? ExitCode::kOk : ExitCode::kNotConverged);
}

}  // namespace spaid::cli
