// The matrix: what it is, where it has entries, what the server says of it.
#include <cmath>

#include "client/cli/describe.h"
#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/html.h"
#include "client/cli/report/sections.h"

namespace spaid::cli {
namespace {

constexpr size_t kMostFindings = 20;

// Counts that a shade stands for; 0 to 0: none does.
std::string ShadeRange(int shade, int64_t most) {
  const auto first_of = [&](int s) {
    return std::pow(static_cast<double>(most), static_cast<double>(s) / kSpyShades);
  };
  auto low = static_cast<int64_t>(std::floor(first_of(shade))) - 1;
  while (low < 1 || SpyShade(low, most) < shade) ++low;
  int64_t high =
      shade + 1 == kSpyShades ? most : static_cast<int64_t>(std::ceil(first_of(shade + 1))) + 1;
  while (high > low && SpyShade(high, most) > shade) --high;
  if (SpyShade(low, most) != shade) return "";
  return low == high ? FormatCount(low) : FormatCount(low) + "–" + FormatCount(high);
}

std::string SpyNote(const PatternRaster& raster) {
  if (raster.size == raster.n) {
    return "<p class=\"note\">One square for each stored entry; row 0 is at the top.</p>";
  }
  std::string keys;
  for (int shade = 0; shade < kSpyShades; ++shade) {
    const std::string range =
        raster.most <= 1 && shade + 1 < kSpyShades ? "" : ShadeRange(shade, raster.most);
    if (range.empty()) continue;
    keys += Key("<rect width=\"14\" height=\"14\" class=\"shade" + std::to_string(shade) + "\"/>",
                range);
  }
  const int64_t cell = raster.n / raster.size, rest = raster.n % raster.size;
  return "<div class=\"keys\">" + keys + "</div><p class=\"note\">Stored entries in each of " +
         std::to_string(raster.size) + " × " + std::to_string(raster.size) + " squares, of " +
         FormatCount(cell) + (rest > 0 ? " or " + FormatCount(cell + 1) : "") +
         " rows and columns each; row 0 is at the top.</p>";
}

std::string FiguresText(const LengthFigures& f) {
  return FormatCount(f.least) + " to " + FormatCount(f.most) + ", median " + FormatCount(f.median) +
         ", mean " + FormatFixed(f.mean, 1);
}

std::string LengthNote(const PatternLengths& lengths) {
  const bool both = ColumnsDiffer(lengths);
  std::string text;
  if (both) {
    text = "<div class=\"keys\">" +
           Key("<rect width=\"14\" height=\"14\"/>", "rows: " + FiguresText(lengths.rows)) +
           Key("<rect width=\"14\" height=\"14\" class=\"second\"/>",
               "columns: " + FiguresText(lengths.columns)) +
           "</div>";
  } else {
    text = "<p class=\"note\">A row has " + FiguresText(lengths.rows) +
           " stored entries; columns have as many.</p>";
  }
  return text + "<p class=\"note\">The scale of counts is logarithmic.</p>";
}

std::string FactsOf(const Report& report) {
  MatrixInfo info = report.system.matrix;
  // The user's own path is in the commands, and in the title without its folders.
  if (info.label == report.system.source.label) info.label.clear();
  const Facts described = MatrixFacts(info);
  std::vector<Fact> facts;
  for (const Facts::Line& line : described.lines()) {
    const char* css = line.style == Style::kBad ? "bad" : line.style == Style::kWarn ? "warn" : "";
    facts.push_back({Foreign(line.name), Foreign(line.value), css});
  }
  return FactTable(facts);
}

std::string Findings(const Diagnosis& d) {
  if (d.findings.empty()) return "<p class=\"soft\">Nothing remarkable.</p>";
  std::string text = "<ul class=\"says\">\n";
  for (size_t k = 0; k < d.findings.size() && k < kMostFindings; ++k) {
    text += "<li>" + Foreign(d.findings[k]) + "</li>\n";
  }
  if (d.findings.size() > kMostFindings) {
    text += "<li>and " + std::to_string(d.findings.size() - kMostFindings) + " more</li>\n";
  }
  return text + "</ul>\n";
}

}  // namespace

std::string MatrixSection(const Report& report) {
  const MatrixInfo& info = report.system.matrix;
  return "<h2>The matrix</h2>\n<p class=\"soft\">Indices of rows and columns begin with 0.</p>\n"
         "<div class=\"pair\">\n" +
         Figure("Where it has entries", SpyFigure(report.raster), SpyNote(report.raster)) +
         Figure("Lengths of rows", LengthFigure(report.lengths), LengthNote(report.lengths)) +
         Card("<h3>What it is</h3>" + FactsOf(report)) +
         Card("<h3>What to know of it</h3>" + Findings(info.diagnosis)) + "</div>\n";
}

}  // namespace spaid::cli
