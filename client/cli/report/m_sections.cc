// The preconditioners: how good each M is, and what becomes of the spectrum.
#include <algorithm>
#include <cmath>

#include "client/cli/convergence_plot.h"
#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/html.h"
#include "client/cli/report/sections.h"

namespace spaid::cli {
namespace {

constexpr size_t kMostBuilt = 40;
constexpr size_t kMostWarnings = 30, kMostPlanes = 8, kQuantiles = 8;
constexpr double kRounding = 1e-10;  // of the largest magnitude, in an imaginary part
constexpr double kSeen = 0.02;       // of it, in one that is worth a drawing
constexpr char kFull[] = "<circle cx=\"7\" cy=\"7\" r=\"4\" class=\"full c0\"/>";
constexpr char kHollow[] = "<circle cx=\"7\" cy=\"7\" r=\"4\" class=\"end c0\"/>";
constexpr char kNegative[] = "<path d=\"M2 3h10l-5 9z\" class=\"full c1\"/>";

// One for each build, the first kMostBuilt.
std::vector<const PreconditionerInfo*> Built(const ComparedRows& rows) {
  std::vector<const PreconditionerInfo*> built;
  for (const ComparedRow& row : rows) {
    if (built.size() == kMostBuilt) break;
    if (row.m && std::find(built.begin(), built.end(), row.m.get()) == built.end()) {
      built.push_back(row.m.get());
    }
  }
  return built;
}

std::string TitleOf(const PreconditionerInfo& m) {
  return EngineTitle(m.spec.engine, m.spec.pattern_power, m.spec.block_size);
}

std::string Warnings(const std::vector<const PreconditionerInfo*>& built) {
  std::string text;
  size_t count = 0;
  for (const PreconditionerInfo* m : built) {
    for (const std::string& warning : m->quality.warnings) {
      if (++count > kMostWarnings) break;
      text += "<li>" + Foreign(TitleOf(*m)) + ": " + Foreign(warning) + "</li>\n";
    }
  }
  return text.empty() ? "" : Card("<h3>Warnings</h3><ul class=\"says\">\n" + text + "</ul>");
}

std::string QualityTable(const std::vector<const PreconditionerInfo*>& built) {
  const bool any_factor =
      std::any_of(built.begin(), built.end(), [](const auto* m) { return m->quality.fsai; });
  std::vector<std::string> heads = {"preconditioner", "#entries", "#of nnz(A)", "#memory",
                                    "#‖AM − I‖",      "#median",  "#99 %",      "#worst"};
  if (any_factor) heads.push_back("#Kaporin, of Jacobi's");
  HtmlTable table(heads);
  for (const PreconditionerInfo* m : built) {
    const Quality& q = m->quality;
    const bool measured = q.residual_quantiles.size() == kQuantiles;
    const auto quantile = [&](size_t k) {
      return measured ? FormatResidual(q.residual_quantiles[k]) : "–";
    };
    table.Row();
    table.Cell(Foreign(TitleOf(*m)), "name");
    table.Cell(FormatCount(m->nnz));
    table.Cell(FormatFixed(q.density, 2));
    table.Cell(FormatBytes(m->host_bytes));
    table.Cell(q.measured() ? FormatResidual(q.residual_frobenius) : "–");
    table.Cell(quantile(3));
    table.Cell(quantile(6));
    table.Cell(quantile(7));
    if (any_factor) table.Cell(q.fsai ? FormatFixed(q.fsai->kaporin, 4) : "–");
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

double Largest(const RitzValues& ritz) {
  return ritz.values.empty() ? 0 : std::abs(ritz.values.back().value);
}

double LargestImaginary(const RitzValues& ritz) {
  double most = 0;
  for (const RitzValue& v : ritz.values) most = std::max(most, std::abs(v.value.imag()));
  return most > kRounding * Largest(ritz) ? most : 0;
}

// With a mark where the value is on its way.
std::string MagnitudeOf(const RitzValue& v) {
  return (v.settled ? "" : "~ ") + FormatResidual(std::abs(v.value));
}

void AddFigures(HtmlTable& table, const RitzValues& ritz) {
  const std::vector<RitzValue>& values = ritz.values;
  if (values.empty()) {
    for (int k = 0; k < 5; ++k) table.Cell("–");
    return;
  }
  const double least = std::abs(values.front().value), imaginary = LargestImaginary(ritz);
  const bool settled = values.front().settled && values.back().settled;
  table.Cell(MagnitudeOf(values.front()));
  table.Cell(MagnitudeOf(values.back()));
  table.Cell(least > 0 ? (settled ? "" : "~ ") + FormatResidual(Largest(ritz) / least) : "–");
  table.Cell(imaginary > 0 ? FormatResidual(imaginary) : "–");
  table.Cell(FormatCount(std::count_if(values.begin(), values.end(),
                                       [](const RitzValue& v) { return v.value.real() < 0; })));
}

std::string SpectrumTable(const Report& report) {
  HtmlTable table({"preconditioner", "operator", "process", "#min |θ|", "#max |θ|", "#max / min",
                   "#max |Im θ|", "#Re θ &lt; 0", "steps"});
  for (const Spectrum& spectrum : report.spectra) {
    table.Row();
    table.Cell(Foreign(spectrum.name), "name");
    if (!spectrum.left_out.empty()) {
      table.Cell(Foreign(spectrum.left_out), "why", 8);
      continue;
    }
    table.Cell(Foreign(spectrum.operator_name), "name");
    table.Cell(spectrum.ritz.symmetric ? "Lanczos" : "Arnoldi");
    AddFigures(table, spectrum.ritz);
    table.Cell(RitzText(spectrum, report.ritz_options), "why");
  }
  return table.Take();
}

}  // namespace

std::string QualitySection(const Report& report) {
  const std::vector<const PreconditionerInfo*> built = Built(report.rows);
  if (built.empty()) return "";
  std::vector<QuantileRow> rows;
  for (const PreconditionerInfo* m : built) {
    const std::vector<double>& quantiles = m->quality.residual_quantiles;
    if (quantiles.size() == kQuantiles) rows.push_back({TitleOf(*m), quantiles});
  }
  std::string text =
      "<h2>How near each M is to the inverse</h2>\n<p class=\"soft\">Residuals of the columns of "
      "M, where the engine measures them; M = GᵀG of FSAI has Kaporin's number instead, which is "
      "the smaller the better.</p>\n" +
      QualityTable(built);
  text += "<div class=\"pair\">\n";
  if (!rows.empty()) {
    text += Figure("Residuals of columns", QuantileFigure(rows),
                   "<p class=\"note\">Box: the middle half, with the median; ticks: 10 and 90 %; "
                   "circles: 99 %, and the worst column, filled.</p>");
  }
  return text + Warnings(built) + "</div>\n";
}

std::string SpectrumSection(const Report& report) {
  if (report.spectra.empty()) return "";
  std::vector<SpectrumRow> rows, planes;
  for (const Spectrum& spectrum : report.spectra) {
    if (spectrum.ritz.values.empty()) continue;
    const double largest = Largest(spectrum.ritz);
    if (spectrum.of_a && largest > 0) {
      rows.push_back({"A, divided by " + FormatResidual(largest), &spectrum.ritz, largest});
    } else {
      rows.push_back({spectrum.of_a ? "A" : spectrum.name, &spectrum.ritz});
    }
    const bool has_plane = LargestImaginary(spectrum.ritz) > kSeen * largest;
    if (has_plane && planes.size() < kMostPlanes) {
      planes.push_back({spectrum.of_a ? "A" : spectrum.name, &spectrum.ritz});
    }
  }
  std::string text =
      "<h2>Spectrum before and after M</h2>\n<p class=\"soft\">Ritz values θ of at most " +
      FormatCount(report.ritz_options.steps) +
      " steps: an approximation of the spectrum, best at its ends. By Lanczos where the operator "
      "is symmetric, else by Arnoldi, from a random vector (seed " +
      std::to_string(report.ritz_options.seed) +
      "), computed by spaidctl. G A Gᵀ and √D A √D have the spectrum of M A, as A M has. "
      "“~”: not settled within these steps.</p>\n" +
      SpectrumTable(report);
  if (rows.empty()) return text;
  text += "<div class=\"pair top\">\n" +
          Figure("Magnitudes", MagnitudeFigure(rows),
                 "<div class=\"keys\">" +
                     Key(kFull,
                         "settled: the residual of the pair is below "
                         "10⁻³ |θ|") +
                     Key(kHollow, "not yet") + Key(kNegative, "negative real part") + "</div>");
  if (!planes.empty()) {
    text += "<div class=\"planes\">\n";
    for (const SpectrumRow& row : planes) text += Figure("", PlaneFigure(row), "");
    text += "</div>\n";
  }
  return text + "</div>\n";
}

}  // namespace spaid::cli
