#include "client/cli/solve_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/describe.h"
#include "client/cli/json.h"
#include "client/cli/output.h"
#include "client/cli/printable.h"

namespace spaid::cli {
namespace {

using nlohmann::json;

int64_t MostIterations(const SolveResult& result) {
  int64_t most = 0;
  for (const auto& rhs : result.rhs) most = std::max(most, rhs.iterations);
  return most;
}

// "(iterations 12 ms, checks 0.3 ms)", and what else there was.
std::string SolvePhases(const SolveFigures& f) {
  std::string text =
      "(iterations " + FormatMs(f.iterate_ms) + ", residual checks " + FormatMs(f.check_ms);
  if (f.place_ms > 0) text += ", layout of A and M " + FormatMs(f.place_ms);
  if (f.host_to_device_ms + f.device_to_host_ms > 0) {
    text += ", to the device " + FormatMs(f.host_to_device_ms) + ", back " +
            FormatMs(f.device_to_host_ms);
  }
  return text + ")";
}

std::string Speed(const SolveFigures& f) {
  std::string text = FormatCount(std::llround(std::clamp(f.iterations_per_second, 0.0, 1e15))) +
                     " iterations/s, " + FormatFixed(f.bytes_per_second * 1e-9, 2) + " GB/s";
  if (f.copy_bytes_per_second > 0) {
    text += ", " + FormatFixed(f.copy_share, 2) + " of a copy's " +
            FormatFixed(f.copy_bytes_per_second * 1e-9, 1);
  }
  return text;
}

// Says what AUTO would do the next time, and how one asks for something else.
void AddExplanation(Facts& facts, const SolveReport& s, bool converged) {
  const SolveResult& r = s.result;
  if (s.args.engine.engine != Engine::kAuto || r.choice_reason.empty()) {
    facts.Add("explained", "the engine was named: nothing was left to choose");
    return;
  }
  if (r.rungs.empty()) {
    facts.Add("went on to", "nothing: the end was in sight with what it began with");
  }
  std::string next = "at the bottom again";
  if (converged && s.args.engine.learned == Learned::kOn) {
    next = r.rungs.empty() ? "with the same" : "with " + r.rungs.back().what;
  }
  facts.Add("next time", "AUTO begins " + next +
                             (s.args.engine.learned == Learned::kOn
                                  ? " on this pattern; --learned=off begins at the bottom"
                                  : ": --learned=off learns nothing"));
}

}  // namespace

const SolveResult::Rhs& WorstRhs(const SolveResult& result) {
  return *std::max_element(result.rhs.begin(), result.rhs.end(), [](const auto& a, const auto& b) {
    const bool a_failed = a.outcome != Outcome::kConverged;
    const bool b_failed = b.outcome != Outcome::kConverged;
    if (a_failed != b_failed) return b_failed;
    return a.true_relative_residual < b.true_relative_residual;
  });
}

nlohmann::json SolveJson(const SolveReport& s) {
  const SolveResult& r = s.result;
  const SolveResult::Rhs& worst = WorstRhs(r);
  json object = {{"command", "solve"},
                 {"matrix", s.args.matrix.matrix},
                 {"matrix_handle", r.matrix},
                 {"n", s.n},
                 {"nnz", s.nnz},
                 {"outcome", UpperSnake(Name(worst.outcome))},
                 {"iterations", MostIterations(r)},
                 {"true_residual", worst.true_residual},
                 {"true_relative_residual", worst.true_relative_residual},
                 {"detail", worst.detail},
                 {"unreachable", worst.unreachable},
                 {"null_space", r.null_space},
                 {"rtol", s.args.options.rtol},
                 {"atol", s.args.options.atol},
                 {"engine", std::string(Name(r.engine))},
                 {"method", std::string(Name(r.method))},
                 {"choice_reason", r.choice_reason},
                 {"placement", r.placement},
                 {"m_placement", r.m_placement},
                 {"m_precision", r.m_precision ? std::string(Name(*r.m_precision)) : ""},
                 {"precision_reason", r.precision_reason},
                 {"figures", ToJson(r.figures)},
                 {"nnz_ratio", r.nnz_ratio},
                 {"preconditioner", r.preconditioner},
                 {"device", r.device},
                 {"job", r.job}};
  AddTimings(object, r.timings);
  json all = json::array();
  for (const auto& rhs : r.rhs) {
    json one = ToJson(static_cast<const JobInfo::RhsOutcome&>(rhs));
    if (s.args.history) {
      json history = json::array();
      for (const Residual& at : rhs.history)
        history.push_back({at.iteration, at.relative_residual});
      one["history"] = std::move(history);
    }
    all.push_back(std::move(one));
  }
  object["rhs"] = std::move(all);
  json rungs = json::array();
  for (const Rung& rung : r.rungs) rungs.push_back(ToJson(rung));
  object["rungs"] = std::move(rungs);
  object["reuse"] = r.reuse ? ToJson(*r.reuse) : json(nullptr);
  object["quality"] = r.quality ? ToJson(*r.quality) : json(nullptr);
  if (s.info) object["findings"] = s.info->diagnosis.findings;
  if (s.diagnosis_error) object["findings_error"] = ToJson(*s.diagnosis_error);
  if (!s.args.out.empty()) object["solution_file"] = s.args.out;
  if (!s.args.plot.empty()) object["plot_file"] = s.args.plot;
  return object;
}

std::string SolveText(const SolveReport& s, bool color) {
  const SolveResult& r = s.result;
  const SolveResult::Rhs& worst = WorstRhs(r);
  const bool converged = worst.outcome == Outcome::kConverged;
  std::string text = Styled(s.args.matrix.matrix, Style::kBold, color) + "   n " +
                     FormatCount(s.n) + "   nnz " + FormatCount(s.nnz) + "\n";
  text += Styled(UpperSnake(Name(worst.outcome)), converged ? Style::kGood : Style::kBad, color) +
          " after " + FormatCount(MostIterations(r)) +
          " iterations, |b - Ax| / |b| = " + FormatResidual(worst.true_relative_residual) +
          " (asked for " + FormatResidual(s.args.options.rtol) + ")\n";
  if (!worst.detail.empty()) text += Printable(worst.detail) + "\n";
  text += "\n";
  if (r.rhs.size() > 1) {
    Table table({{"rhs", Table::Align::kRight},
                 {"iterations", Table::Align::kRight},
                 {"residual", Table::Align::kRight},
                 {"outcome", Table::Align::kLeft}});
    for (size_t k = 0; k < r.rhs.size(); ++k) {
      const auto& rhs = r.rhs[k];
      table.Add({std::to_string(k),
                 FormatCount(rhs.iterations),
                 FormatResidual(rhs.true_relative_residual),
                 {UpperSnake(Name(rhs.outcome)),
                  rhs.outcome == Outcome::kConverged ? Style::kGood : Style::kBad}});
    }
    text += table.Text(color) + "\n";
  }
  Facts facts;
  const bool factor = TraitsOf(r.engine).factored;
  facts.Add("engine",
            std::string(Name(r.engine)) +
                (r.nnz_ratio > 0 ? (factor ? ", nnz(G) / nnz(A) = " : ", nnz(M) / nnz(A) = ") +
                                       FormatFixed(r.nnz_ratio, 2)
                                 : ""));
  if (!r.choice_reason.empty()) facts.Add("chosen", r.choice_reason);
  for (const Rung& rung : r.rungs) facts.Add(rung.left.empty() ? "solved by" : "tried", Told(rung));
  if (s.args.explain) AddExplanation(facts, s, converged);
  facts.Add("method", std::string(Name(r.method)));
  if (!r.null_space.empty()) {
    facts.Add("null space", r.null_space + ", projected out; unreachable of b: " +
                                FormatResidual(worst.unreachable));
  }
  if (r.m_precision) {
    facts.Add(factor ? "G stored" : "M stored", r.precision_reason.empty()
                                                    ? "in " + std::string(Name(*r.m_precision))
                                                    : r.precision_reason);
  }
  const Timings& t = r.timings;
  std::string setup = FormatMs(t.setup_ms());
  if (t.reused) {
    setup += "  (M was there already)";
  } else if (t.setup_ms() > 0) {
    setup += "  " + SetupPhases(t);
  }
  facts.Add("set-up", setup);
  facts.Add("solve", FormatMs(t.solve_ms) + "  " + SolvePhases(r.figures));
  if (r.figures.iterations_per_second > 0) facts.Add("speed", Speed(r.figures));
  facts.Add("total", FormatMs(t.total_ms) + "  (upload " + FormatMs(t.upload_ms) + ", queue " +
                         FormatMs(t.queue_ms) + ")");
  facts.Add("device", r.device);
  if (!r.placement.empty()) facts.Add("placed", r.placement);
  facts.Add("matrix", r.matrix);
  if (!r.preconditioner.empty()) facts.Add("M", r.preconditioner);
  if (r.reuse) facts.Add(std::string(Name(r.reuse->decision)), r.reuse->reason);
  if (!s.args.out.empty()) facts.Add("solution", s.args.out);
  if (!s.args.plot.empty()) facts.Add("plot", s.args.plot);
  text += facts.Text(color);
  if (r.quality) {
    for (const std::string& warning : r.quality->warnings) {
      text += "  " + Styled("warning: ", Style::kWarn, color) + Printable(warning) + "\n";
    }
  }
  if (!converged) {
    text += "\nWhat the matrix says:\n";
    if (s.diagnosis_error) {
      text += "  no diagnosis: " + Printable(s.diagnosis_error->message) + "\n";
    } else if (s.info && s.info->diagnosis.findings.empty()) {
      text +=
          "  nothing remarkable; try --pattern-power=2, another --method, or `spaidctl compare`\n";
    } else if (s.info) {
      for (const std::string& finding : s.info->diagnosis.findings)
        text += "  - " + Printable(finding) + "\n";
    }
  }
  return text;
}

ConvergencePlot SolvePlot(const SolveReport& s) {
  const SolveResult& r = s.result;
  const SolveResult::Rhs& worst = WorstRhs(r);
  ConvergencePlot plot;
  plot.title = s.args.matrix.matrix;
  // The power and the blocks are known here only of an M that was asked for by its spec.
  const int power = s.args.options.preconditioner.empty() ? s.args.engine.pattern_power : 0;
  const bool blocks =
      s.args.options.preconditioner.empty() && TraitsOf(s.args.engine.engine).has_blocks;
  plot.subtitle = "n = " + FormatCount(s.n) + "  ·  nnz = " + FormatCount(s.nnz) + "  ·  " +
                  MethodTitle(r.method, s.args.options) + ", " +
                  EngineTitle(r.engine, power, blocks ? s.args.engine.block_size : 1) + "  ·  " +
                  OutcomeTitle(worst.outcome);
  int64_t fewest = MostIterations(r);
  for (size_t k = 0; k < r.rhs.size(); ++k) {
    const SolveResult::Rhs& rhs = r.rhs[k];
    fewest = std::min(fewest, rhs.iterations);
    plot.curves.push_back({.name = "right-hand side " + std::to_string(k + 1),
                           .history = rhs.history,
                           .end = Residual{.rhs = static_cast<int32_t>(k),
                                           .iteration = PlotIteration(rhs.iterations),
                                           .relative_residual = rhs.true_relative_residual}});
  }
  const int64_t most = MostIterations(r);
  std::string iterations = FormatCount(most) + (most == 1 ? " iteration" : " iterations");
  if (fewest < most) iterations = FormatCount(fewest) + " to " + iterations;
  const bool several = r.rhs.size() > 1;
  if (several) {
    iterations =
        FormatCount(static_cast<int64_t>(r.rhs.size())) + " right-hand sides, " + iterations;
  }
  plot.caption = iterations + ", " + (several ? "worst true" : "true") + " relative residual " +
                 FormatResidual(worst.true_relative_residual) +
                 (several ? " (circles)" : " (circle)") +
                 (r.timings.setup_ms() > 0 ? ", set-up " + FormatMs(r.timings.setup_ms()) : "") +
                 ", solve " + FormatMs(r.timings.solve_ms);
  // With an absolute tolerance, right-hand sides of different |b| have different targets.
  if (!s.targets.empty()) plot.tolerance = *std::min_element(s.targets.begin(), s.targets.end());
  return plot;
}

}  // namespace spaid::cli
