// The preconditioners: how good each M is, and what becomes of the spectrum.
#include <algorithm>
#include <cmath>

#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/html.h"
#include "client/cli/report/sections.h"

namespace spaid::cli {
namespace {

constexpr size_t kMostWarnings = 30, kMostPlanes = 12, kQuantiles = 8;
constexpr char kFull[] = "<circle cx=\"7\" cy=\"7\" r=\"4\" class=\"full c0\"/>";
constexpr char kHollow[] = "<circle cx=\"7\" cy=\"7\" r=\"4\" class=\"end c0\"/>";
constexpr char kNegative[] = "<path d=\"M2 3h10l-5 9z\" class=\"full c1\"/>";

std::vector<const PreconditionerInfo*> Built(const Comparison& comparison) {
  std::vector<const PreconditionerInfo*> built;
  for (const ComparedRow& row : comparison.rows()) {
    if (row.m && std::find(built.begin(), built.end(), row.m.get()) == built.end()) {
      built.push_back(row.m.get());
    }
  }
  return built;
}

std::string Warnings(const std::vector<const PreconditionerInfo*>& built) {
  std::string text;
  size_t count = 0;
  for (const PreconditionerInfo* m : built) {
    for (const std::string& warning : m->quality.warnings) {
      if (++count > kMostWarnings) break;
      text += "<li>" + Foreign(EngineText(m->spec)) + ": " + Foreign(warning) + "</li>\n";
    }
  }
  return text.empty() ? "" : Card("<h3>Warnings</h3><ul class=\"says\">\n" + text + "</ul>");
}

std::string QualityTable(const std::vector<const PreconditionerInfo*>& built) {
  HtmlTable table({"preconditioner", "#entries", "#of nnz(A)", "#memory", "#‖AM − I‖", "#median",
                   "#99 %", "#worst", "#Kaporin number, of Jacobi's"});
  for (const PreconditionerInfo* m : built) {
    const Quality& q = m->quality;
    const bool measured = q.residual_quantiles.size() == kQuantiles;
    const auto quantile = [&](size_t k) {
      return measured ? FormatResidual(q.residual_quantiles[k]) : "–";
    };
    table.Row();
    table.Cell(Foreign(EngineText(m->spec)), "name");
    table.Cell(FormatCount(m->nnz));
    table.Cell(FormatFixed(q.density, 2));
    table.Cell(FormatBytes(m->host_bytes));
    table.Cell(q.fsai ? "–" : FormatResidual(q.residual_frobenius));
    table.Cell(quantile(3));
    table.Cell(quantile(6));
    table.Cell(quantile(7));
    table.Cell(q.fsai ? FormatFixed(q.fsai->kaporin, 4) : "–");
  }
  return table.Take();
}

std::string RitzText(const Spectrum& spectrum, const RitzOptions& options) {
  const RitzValues& ritz = spectrum.ritz;
  const std::string steps = FormatCount(ritz.steps);
  switch (ritz.end) {
    case RitzEnd::kSteps:
      break;
    case RitzEnd::kInvariant:
      return steps + ", then the Krylov space was invariant: eigenvalues to rounding";
    case RitzEnd::kMemory:
      return steps + ", as many as fit into " + FormatBytes(options.basis_bytes);
    case RitzEnd::kTime:
      return steps + ", as many as were made in " +
             FormatMs(std::chrono::duration<double, std::milli>(options.time_limit).count());
    case RitzEnd::kStopped:
      return steps + ", then it was stopped";
    case RitzEnd::kNotFinite:
      return steps + ", then numbers were not finite";
  }
  return steps;
}

std::string SpectrumTable(const Report& report) {
  HtmlTable table({"preconditioner", "operator", "process", "#min |θ|", "#max |θ|", "#max / min",
                   "#Re θ &lt; 0", "steps"});
  for (const Spectrum& spectrum : report.spectra) {
    table.Row();
    table.Cell(Foreign(spectrum.name), "name");
    if (!spectrum.left_out.empty()) {
      table.Cell(Foreign(spectrum.left_out), "why", 7);
      continue;
    }
    const std::vector<RitzValue>& values = spectrum.ritz.values;
    table.Cell(Foreign(spectrum.operator_name), "name");
    table.Cell(spectrum.ritz.symmetric ? "Lanczos" : "Arnoldi");
    const double least = values.empty() ? NAN : std::abs(values.front().value);
    const double most = values.empty() ? NAN : std::abs(values.back().value);
    table.Cell(values.empty() ? "–" : FormatResidual(least));
    table.Cell(values.empty() ? "–" : FormatResidual(most));
    table.Cell(!values.empty() && least > 0 ? FormatResidual(most / least) : "–");
    table.Cell(FormatCount(std::count_if(values.begin(), values.end(),
                                         [](const RitzValue& v) { return v.value.real() < 0; })));
    table.Cell(RitzText(spectrum, report.ritz_options), "why");
  }
  return table.Take();
}

}  // namespace

std::string QualitySection(const Report& report) {
  const std::vector<const PreconditionerInfo*> built = Built(report.comparison);
  if (built.empty()) return "";
  std::vector<QuantileRow> rows;
  for (const PreconditionerInfo* m : built) {
    const std::vector<double>& quantiles = m->quality.residual_quantiles;
    if (quantiles.size() == kQuantiles) rows.push_back({EngineText(m->spec), quantiles});
  }
  std::string text =
      "<h2>How near each M is to the inverse</h2>\n<p class=\"soft\">Residuals of the columns of "
      "M, where the engine measures them; M = GᵀG of FSAI has Kaporin's number instead, which is "
      "the smaller the better.</p>\n" +
      QualityTable(built);
  if (!rows.empty()) {
    text += Figure("Residuals of columns", QuantileFigure(rows),
                   "<p class=\"note\">Box: the middle half, with the median; ticks: 10 and 90 %; "
                   "circles: 99 %, and the worst column, filled.</p>",
                   "wide");
  }
  return text + Warnings(built);
}

std::string SpectrumSection(const Report& report) {
  if (report.spectra.empty()) return "";
  std::vector<SpectrumRow> rows, planes;
  for (const Spectrum& spectrum : report.spectra) {
    if (spectrum.ritz.values.empty()) continue;
    const std::string name = spectrum.name == spectrum.operator_name
                                 ? spectrum.name
                                 : spectrum.name + ": " + spectrum.operator_name;
    rows.push_back({name, &spectrum.ritz});
    if (IsComplex(spectrum.ritz) && planes.size() < kMostPlanes) planes.push_back(rows.back());
  }
  std::string text =
      "<h2>Spectrum before and after M</h2>\n<p class=\"soft\">Ritz values θ of at most " +
      FormatCount(report.ritz_options.steps) +
      " steps: an approximation of the spectrum, best at its ends. By Lanczos where the operator "
      "is symmetric, else by Arnoldi, from a random vector (seed " +
      std::to_string(report.ritz_options.seed) +
      "), computed by spaidctl. GAGᵀ and D½AD½ have the spectrum of MA, as AM has.</p>\n" +
      SpectrumTable(report);
  if (rows.empty()) return text;
  text += Figure("Magnitudes", MagnitudeFigure(rows),
                 "<div class=\"keys\">" +
                     Key(kFull,
                         "settled: the residual of the pair is below "
                         "10⁻³ |θ|") +
                     Key(kHollow, "not yet") + Key(kNegative, "negative real part") + "</div>",
                 "wide");
  if (planes.empty()) return text;
  text += "<div class=\"planes\">\n";
  for (const SpectrumRow& row : planes) text += Figure("", PlaneFigure(row), "");
  return text + "</div>\n";
}

}  // namespace spaid::cli
