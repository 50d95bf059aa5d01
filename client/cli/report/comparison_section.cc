// The table of all pairs, their curves, AUTO, and the commands that repeat them.
#include <algorithm>

#include "client/cli/convergence_plot.h"
#include "client/cli/describe.h"
#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/html.h"
#include "client/cli/report/repeat.h"
#include "client/cli/report/sections.h"

namespace spaid::cli {
namespace {

constexpr size_t kMostRows = 200, kMostRungs = 20, kMostCommands = 40;
constexpr size_t kMostCommand = 600;  // characters

std::string RhsText(const CompareArgs& args) {
  if (args.rhs == "ones") return "b = A·1";
  if (args.rhs == "random") {
    return "b = A x with x random in [−1, 1] (seed " + std::to_string(args.seed) + ")";
  }
  return "b of " + Foreign(args.rhs, 80);
}

// Lines break between the words of a command, not within them.
std::string Code(const std::string& command) {
  std::string text = "<code><span>";
  for (const char c : Foreign(command, kMostCommand)) {
    text += c == ' ' ? std::string("</span> <span>") : std::string(1, c);
  }
  return text + "</span></code>";
}

std::string Tag(Outcome outcome) {
  const bool good = outcome == Outcome::kConverged;
  return "<span class=\"tag " + std::string(good ? "good" : "bad") + "\">" +
         (good ? "converged" : UpperSnake(Name(outcome))) + "</span>";
}

std::string EngineName(const PreconditionerSpec& spec) {
  return EngineTitle(spec.engine, spec.pattern_power, spec.block_size);
}

// Rows without a solve, in the order in which they were tried.
std::vector<const ComparedRow*> Unsolved(const ComparedRows& all) {
  std::vector<const ComparedRow*> rows;
  for (const ComparedRow& row : all) {
    if (!row.solved) rows.push_back(&row);
  }
  return rows;
}

std::string ErrorText(const Error& error) {
  return Foreign(error.reason, 60) + ": " + Foreign(error.message);
}

bool OnSeveralDevices(const std::vector<const ComparedRow*>& solved) {
  return std::any_of(solved.begin(), solved.end(), [&](const ComparedRow* row) {
    return row->solved->device != solved.front()->solved->device;
  });
}

void AddSolved(HtmlTable& table, const ComparedRow& row, size_t rank, const SolveOptions& options) {
  const SolveResult::Rhs& rhs = row.solved->rhs.front();
  const bool none = row.spec.engine == Engine::kNone;
  table.Row(rank == 1 && row.converged() ? "best" : "");
  table.Cell(std::to_string(rank));
  table.Cell(Foreign(EngineName(row.spec)), "name");
  table.Cell(Foreign(MethodTitle(*row.method, options)), "name");
  table.Cell(FormatMs(row.total_ms()));
  table.Cell(FormatCount(rhs.iterations));
  table.Cell(Tag(rhs.outcome), "name");
  table.Cell(FormatResidual(rhs.true_relative_residual));
  table.Cell(none ? "–" : FormatMs(row.setup_ms));
  table.Cell(FormatMs(row.solved->timings.solve_ms));
  table.Cell(none ? "–" : FormatFixed(row.nnz_ratio, 2));
}

std::string ComparisonTable(const Report& report) {
  const std::vector<const ComparedRow*> solved = BestFirst(report.rows);
  const bool several = OnSeveralDevices(solved);
  std::vector<std::string> heads = {"#no.",        "preconditioner", "method",        "#total",
                                    "#iterations", "outcome",        "#‖b − Ax‖/‖b‖", "#set-up",
                                    "#solve",      "#nnz(M)/nnz(A)"};
  if (several) heads.emplace_back("device");
  HtmlTable table(heads);
  const std::vector<const ComparedRow*> unsolved = Unsolved(report.rows);
  size_t rank = 0;
  for (const ComparedRow* row : solved) {
    if (++rank > kMostRows) continue;
    AddSolved(table, *row, rank, report.args.options);
    if (several) table.Cell(Foreign(row->solved->device, 40));
  }
  for (const ComparedRow* row : unsolved) {
    if (++rank > kMostRows) break;
    table.Row();
    table.Cell("");
    table.Cell(Foreign(EngineName(row->spec)), "name");
    table.Cell(row->method ? Foreign(MethodTitle(*row->method, report.args.options)) : "", "name");
    table.Cell(row->error ? ErrorText(*row->error) : Foreign(row->skipped), "why", several ? 8 : 7);
  }
  std::string text = table.Take();
  const size_t all = solved.size() + unsolved.size();
  if (all > kMostRows) {
    text += "<p class=\"note\">And " + std::to_string(all - kMostRows) + " more, left out.</p>\n";
  }
  return text;
}

std::string Legend(const Report& report, const std::vector<const ComparedRow*>& rows) {
  std::string text = "<ol class=\"legend\">\n";
  for (size_t k = 0; k < std::min(rows.size(), kColouredCurves); ++k) {
    const ComparedRow& row = *rows[k];
    text += "<li><svg viewBox=\"0 0 26 8\" aria-hidden=\"true\"><path class=\"curve c" +
            std::to_string(k) + "\" d=\"M1 4h24\"/></svg><b>" + std::to_string(k + 1) +
            "</b><span>" + Foreign(TitleOf(row, report.args.options)) + "</span><small>" +
            FormatCount(row.solved->rhs.front().iterations) + " iterations, " +
            FormatMs(row.total_ms()) + "</small></li>\n";
  }
  return text + "</ol>\n";
}

std::string Curves(const Report& report) {
  const std::vector<const ComparedRow*> rows = BestFirst(report.rows);
  if (rows.empty()) return "";
  std::vector<Curve> curves;
  bool timed = false;
  for (const ComparedRow* row : rows) {
    const SolveResult::Rhs& rhs = row->solved->rhs.front();
    curves.push_back({.history = rhs.history,
                      .converged = row->converged(),
                      .iterations = rhs.iterations,
                      .true_relative_residual = rhs.true_relative_residual,
                      .setup_ms = row->setup_ms,
                      .iterate_ms = row->solved->figures.iterate_ms});
    timed = timed || row->solved->figures.iterate_ms > 0;
  }
  const double tolerance = report.args.options.rtol;
  std::string text = "<div class=\"pair\">\n" +
                     Figure("Residual over iterations",
                            ConvergenceFigure(curves, CurveAxis::kIterations, tolerance), "");
  if (timed) {
    text += Figure("Residual over time", ConvergenceFigure(curves, CurveAxis::kTime, tolerance),
                   "<p class=\"note\">A curve begins when its M is ready. Iterations are spread "
                   "evenly over the time that they took together.</p>");
  }
  text += "</div>\n";
  std::string note =
      "Circles: the true residual at the end. Axes end with the last curve in colour that "
      "converged, where any did, and at 10²; what goes on is cut.";
  if (rows.size() > kColouredCurves) {
    note = "In grey: the other " + std::to_string(rows.size() - kColouredCurves) + ". " + note;
  }
  return text + Card(Legend(report, rows) + "<p class=\"note\">" + note + "</p>");
}

double AutoMs(const SolveResult& solved) {
  if (solved.rungs.empty()) return solved.timings.setup_ms() + solved.timings.solve_ms;
  double ms = 0;
  for (const Rung& rung : solved.rungs) ms += rung.setup_ms + rung.solve_ms;
  return ms;
}

std::string RungTable(const SolveResult& solved) {
  HtmlTable table({"tried", "#iterations", "#‖b − Ax‖/‖b‖", "#set-up", "#solve", "left because"});
  for (size_t k = 0; k < std::min(solved.rungs.size(), kMostRungs); ++k) {
    const Rung& rung = solved.rungs[k];
    table.Row(rung.left.empty() ? "best" : "");
    table.Cell(Foreign(rung.what), "name");
    table.Cell(FormatCount(rung.iterations));
    table.Cell(FormatResidual(rung.relative_residual));
    table.Cell(FormatMs(rung.setup_ms));
    table.Cell(FormatMs(rung.solve_ms));
    table.Cell(rung.left.empty() ? "it solved the system" : Foreign(rung.left), "why");
  }
  return table.Take();
}

}  // namespace

std::string ComparisonSection(const Report& report) {
  if (report.system.pattern_only) return "";
  const SolveOptions& options = report.args.options;
  return "<h2>Preconditioners and methods compared</h2>\n<p class=\"soft\">" +
         RhsText(report.args) + "; to ‖b − Ax‖ ≤ " + FormatResidual(options.rtol) +
         " ‖b‖ in at most " + FormatCount(options.max_iterations) +
         " iterations. Ordered by total, the set-up of M and the solve; what did not converge, by "
         "residual.</p>\n" +
         ComparisonTable(report) + Curves(report);
}

std::string AutoSection(const Report& report) {
  if (report.system.pattern_only) return "";
  std::string text = "<h2>What engine auto does</h2>\n";
  if (report.auto_run.error) {
    return text + Card("<p class=\"bad\">" + ErrorText(*report.auto_run.error) + "</p>");
  }
  if (!report.auto_run.solved) return "";
  const SolveResult& solved = *report.auto_run.solved;
  const SolveResult::Rhs& rhs = solved.rhs.front();
  text += "<p>" + Tag(rhs.outcome) + " with " +
          Foreign(EngineTitle(solved.engine, 0, 1) + ", " +
                  MethodTitle(solved.method, report.args.options)) +
          ": " + FormatCount(rhs.iterations) +
          " iterations in all, ‖b − Ax‖/‖b‖ = " + FormatResidual(rhs.true_relative_residual) +
          ", " + FormatMs(AutoMs(solved)) + " with all set-ups.</p>\n";
  if (!solved.choice_reason.empty()) {
    text += "<p>What it began with, and why: " + Foreign(solved.choice_reason) + "</p>\n";
  }
  if (!rhs.detail.empty()) text += "<p class=\"soft\">" + Foreign(rhs.detail) + "</p>\n";
  if (solved.rungs.empty()) {
    const bool converged = rhs.outcome == Outcome::kConverged;
    return text + "<p class=\"soft\">It went on to nothing" +
           (converged ? ": the end was in sight with what it began with" : "") + ".</p>\n";
  }
  return text + RungTable(solved);
}

std::string RepeatSection(const Report& report) {
  if (report.system.pattern_only) return "";
  std::string text =
      "<h2>To repeat it</h2>\n<p class=\"soft\">With the daemon in SPAID_ADDRESS; numbers are the "
      "table's.";
  const std::string limit = MaxRunFlag(report.args.limits);
  if (!limit.empty()) text += " Each job was limited by " + Code(limit) + ", too.";
  text += "</p>\n<div class=\"card\"><ol class=\"commands\">\n";
  const auto add = [&](const std::string& title, const PreconditionerSpec& spec,
                       std::optional<Method> method) {
    text += "<li>" + Foreign(title) + Code(SolveCommand(report.args, spec, method)) + "</li>\n";
  };
  size_t count = 0;
  for (const ComparedRow* row : BestFirst(report.rows)) {
    if (++count > kMostCommands) break;
    add(TitleOf(*row, report.args.options), row->spec, row->method);
  }
  text += "</ol><ul class=\"commands\">\n";
  add("engine auto", report.auto_run.spec, std::nullopt);
  text += "</ul></div>\n";
  if (count > kMostCommands) {
    text += "<p class=\"note\">Those of later rows are alike.</p>\n";
  }
  return text;
}

}  // namespace spaid::cli
