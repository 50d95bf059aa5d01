// The frame of the page: head, what it comes to, and by whom it was made.
#include <string>

#include "client/cli/output.h"
#include "client/cli/printable.h"
#include "client/cli/report/html.h"
#include "client/cli/report/report.h"
#include "client/cli/report/sections.h"
#include "client/cli/report/style.h"
#include "client/cli/xml.h"

namespace spaid::cli {
namespace {

constexpr size_t kTitle = 80;  // characters
// The mark of the daemon's status page: a sparse pattern.
constexpr char kMark[] =
    "<svg class=\"mark\" viewBox=\"0 0 20 20\" aria-hidden=\"true\">"
    "<path d=\"M1 1h5v5H1zM7.5 7.5h5v5h-5zM14 14h5v5h-5z\"/>"
    "<path class=\"off\" d=\"M7.5 1h5v5h-5zM1 7.5h5v5H1zM14 7.5h5v5h-5zM7.5 14h5v5h-5z\"/></svg>";

// The file without its folders, which are nobody's business.
std::string NameOf(const std::string& matrix) {
  return matrix.substr(matrix.find_last_of('/') + 1);
}

std::string SymmetryText(const Report& report) {
  const Diagnosis& d = report.system.matrix.diagnosis;
  if (d.numerically_symmetric && !report.system.pattern_only) return "symmetric";
  return d.structurally_symmetric ? "symmetric pattern" : "not symmetric";
}

std::string Outcomes(const Report& report) {
  size_t solved = 0, converged = 0;
  for (const ComparedRow& row : report.rows) {
    solved += row.solved ? 1 : 0;
    converged += row.converged() ? 1 : 0;
  }
  return FormatCount(static_cast<int64_t>(converged)) + " of " +
         FormatCount(static_cast<int64_t>(solved)) + " pairs of preconditioner and method";
}

std::string Lead(const Report& report) {
  if (report.system.pattern_only) {
    return "The file has a pattern without values: it can be looked at, and nothing can be solved.";
  }
  const std::string target =
      " converged to ‖b − Ax‖ ≤ " + FormatResidual(report.args.options.rtol) + " ‖b‖. ";
  const int best = Best(report.rows);
  if (best < 0) return Outcomes(report) + target + "What the matrix says may tell why.";
  const ComparedRow& row = report.rows[static_cast<size_t>(best)];
  return Outcomes(report) + target + "The quickest in all: <b>" +
         Foreign(TitleOf(row, report.args.options)) + "</b>, " +
         FormatCount(row.solved->rhs.front().iterations) + " iterations, " +
         FormatMs(row.total_ms()) + " with its set-up, on " + Foreign(row.solved->device) + ".";
}

std::string Tiles(const Report& report) {
  const MatrixInfo& matrix = report.system.matrix;
  std::string text = "<div class=\"tiles\">\n" +
                     Tile("unknowns", FormatCount(matrix.n), SymmetryText(report)) +
                     Tile("stored entries", FormatCount(matrix.nnz),
                          FormatFixed(report.lengths.rows.mean, 1) + " a row, bandwidth " +
                              FormatCount(report.lengths.bandwidth));
  if (report.system.pattern_only) return text + "</div>\n";
  const int best = Best(report.rows);
  if (best >= 0) {
    const ComparedRow& row = report.rows[static_cast<size_t>(best)];
    text += Tile("quickest in all", FormatMs(row.total_ms()),
                 Foreign(TitleOf(row, report.args.options)));
  } else {
    text += Tile("quickest in all", "none", "nothing converged");
  }
  if (const auto& solved = report.auto_run.solved) {
    const auto& rhs = solved->rhs.front();
    text += Tile("engine auto",
                 rhs.outcome == Outcome::kConverged ? "converged" : UpperSnake(Name(rhs.outcome)),
                 "with " + std::string(TraitsOf(solved->engine).title) + ", " +
                     std::string(Name(solved->method)));
  }
  return text + "</div>\n";
}

std::string Origin(const Report& report) {
  std::string devices;
  for (const DeviceInfo& device : report.system.server.devices) {
    if (!device.in_use) continue;
    devices += (devices.empty() ? "" : "; ") + Foreign(device.name, 40) + ": " +
               Foreign(device.model, 80) +
               (device.threads > 0 ? ", " + std::to_string(device.threads) + " threads" : "");
    if (devices.size() > 2000) break;
  }
  return "<footer>Made by spaidctl " + Foreign(report.client_version, 40) + " on " +
         FormatTime(report.made) + " with spaid " + Foreign(report.system.server.version, 40) +
         (devices.empty() ? "" : " on " + devices) +
         ". Times are the server's, of one run each; they vary with what else it does.</footer>\n";
}

}  // namespace

std::string PageOf(const Report& report) {
  const std::string name = NameOf(report.args.matrix.matrix);
  return "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head>"
         "<meta charset=\"utf-8\"/>\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>" +
         EscapedEnd(Printable(name), kTitle) + " – spaid report</title>\n<style>" + kReportStyle +
         "</style></head>\n<body>\n<header><h1>" + kMark + "<span>" +
         EscapedEnd(Printable(name), kTitle) + "</span></h1>\n<p class=\"lead\">" + Lead(report) +
         "</p></header>\n<main>\n" + Tiles(report) + MatrixSection(report) +
         ComparisonSection(report) + AutoSection(report) + QualitySection(report) +
         SpectrumSection(report) + RepeatSection(report) + "</main>\n" + Origin(report) +
         "</body></html>\n";
}

}  // namespace spaid::cli
