#include "client/cli/convergence_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "client/cli/byte_file.h"
#include "client/cli/output.h"
#include "client/cli/residual_series.h"
#include "client/cli/xml.h"

namespace spaid::cli {
namespace {

// In the SVG's own units.
constexpr double kHeight = 520, kLeft = 78, kTop = 80, kPlotWidth = 570, kPlotHeight = 346;
constexpr double kRight = kLeft + kPlotWidth, kBottom = kTop + kPlotHeight;
constexpr double kLabelMargin = 92, kLegendMargin = 236;  // right of the plot: without, with legend
constexpr double kLegendLine = 18;
constexpr size_t kTitleLength = 66, kLegendLength = 32;  // characters

constexpr const char* kInk = "#222222";
constexpr const char* kSoft = "#555555";
constexpr const char* kGrid = "#e4e4e4";
constexpr const char* kRest = "#b4b4b4";
// Okabe and Ito's, told apart by the colour-blind, too; without their yellow, which white swallows.
constexpr std::array<const char*, kPlotLegend> kColors = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8c6d46"};

// `content` is XML already; `more`: attributes.
std::string Text(double x, double y, std::string_view content, std::string_view more) {
  return "<text x=\"" + Coordinate(x) + "\" y=\"" + Coordinate(y) + "\" " + std::string(more) +
         ">" + std::string(content) + "</text>\n";
}

std::string Segment(double x0, double y0, double x1, double y1, std::string_view stroke,
                    std::string_view more = "") {
  return "<line x1=\"" + Coordinate(x0) + "\" y1=\"" + Coordinate(y0) + "\" x2=\"" +
         Coordinate(x1) + "\" y2=\"" + Coordinate(y1) + "\" stroke=\"" + std::string(stroke) +
         "\"" + std::string(more) + "/>\n";
}

class Drawing {
 public:
  explicit Drawing(const ConvergencePlot& plot) : plot_(plot) {
    std::vector<std::span<const Residual>> spans;
    for (const PlotCurve& curve : plot.curves) {
      spans.push_back(curve.history);
      if (!curve.history.empty()) last_ = std::max(last_, curve.history.back().iteration);
      if (!curve.end) continue;
      spans.emplace_back(&*curve.end, 1);
      last_ = std::max(last_, curve.end->iteration);
    }
    axis_ = MakeDecadeAxis(spans, plot.tolerance);
    width_ = kRight + (plot.curves.size() > 1 ? kLegendMargin : kLabelMargin);
  }

  std::string Svg() {
    Head();
    Axes();
    // Grey ones below, the first ones on top.
    for (size_t k = plot_.curves.size(); k-- > 0;) Curve(plot_.curves[k], k);
    for (size_t k = plot_.curves.size(); k-- > 0;) End(plot_.curves[k], k);
    Tolerance();
    if (plot_.curves.size() > 1) Legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  double X(int64_t iteration) const {
    return kLeft + kPlotWidth * static_cast<double>(iteration) / static_cast<double>(last_);
  }
  double Y(double value) const { return kTop + kPlotHeight * axis_.Place(value); }
  static const char* ColorOf(size_t curve) { return curve < kPlotLegend ? kColors[curve] : kRest; }

  void Head() {
    const std::string size =
        " width=\"" + Coordinate(width_) + "\" height=\"" + Coordinate(kHeight) + "\"";
    svg_ =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\"" +
        size + " viewBox=\"0 0 " + Coordinate(width_) + " " + Coordinate(kHeight) +
        "\" role=\"img\" aria-labelledby=\"title desc\" font-family=\"system-ui, -apple-system, "
        "'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\" "
        "font-size=\"12\" fill=\"" +
        kInk + "\">\n<title id=\"title\">Convergence of " + Escaped(plot_.title) +
        "</title>\n<desc id=\"desc\">Relative residual over iterations. " +
        Escaped(plot_.subtitle) + ". " + Escaped(plot_.caption) + ".</desc>\n<rect" + size +
        " fill=\"#ffffff\"/>\n";
    svg_ +=
        Text(24, 32, EscapedEnd(plot_.title, kTitleLength), "font-size=\"17\" font-weight=\"600\"");
    const std::string soft = "fill=\"" + std::string(kSoft) + "\"";
    svg_ += Text(24, 54, Escaped(plot_.subtitle), soft);
    svg_ += Text(24, kHeight - 18, Escaped(plot_.caption), soft);
  }

  void Axes() {
    const std::string soft = "fill=\"" + std::string(kSoft) + "\"";
    if (axis_.top - axis_.bottom <= 3) {  // room for lines within a decade
      for (int power = axis_.bottom; power < axis_.top; ++power) {
        for (int digit = 2; digit <= 9; ++digit) {
          const double y = Y(digit * std::pow(10.0, power));
          svg_ += Segment(kLeft, y, kRight, y, "#f3f3f3");
        }
      }
    }
    for (const int power : DecadeTicks(axis_, 10)) {
      const double y = kTop + kPlotHeight * (axis_.top - power) / (axis_.top - axis_.bottom);
      svg_ += Segment(kLeft, y, kRight, y, kGrid);
      // A true minus sign, as wide as it should be.
      const std::string exponent = (power < 0 ? "−" : "") + std::to_string(std::abs(power));
      svg_ +=
          Text(kLeft - 9, y + 4.5, "10<tspan dy=\"-5\" font-size=\"9\">" + exponent + "</tspan>",
               "text-anchor=\"end\"");
    }
    for (const int64_t tick : IterationTicks(last_, 8)) {
      svg_ += Segment(X(tick), kTop, X(tick), kBottom, kGrid);
      svg_ += Segment(X(tick), kBottom, X(tick), kBottom + 5, kSoft);
      svg_ += Text(X(tick), kBottom + 19, FormatCount(tick), "text-anchor=\"middle\"");
    }
    svg_ += Segment(kLeft, kTop, kLeft, kBottom, kSoft);
    svg_ += Segment(kLeft, kBottom, kRight, kBottom, kSoft);
    svg_ += Text((kLeft + kRight) / 2, kBottom + 41, "iteration", "text-anchor=\"middle\" " + soft);
    const double middle = (kTop + kBottom) / 2;
    svg_ += Text(
        24, middle, "relative residual ‖b − Ax‖ / ‖b‖",
        "text-anchor=\"middle\" transform=\"rotate(-90 24 " + Coordinate(middle) + ")\" " + soft);
  }

  void Curve(const PlotCurve& curve, size_t index) {
    const size_t share = kPlotPoints / std::max<size_t>(plot_.curves.size(), 1);
    const std::vector<Residual> points =
        Decimate(curve.history, std::clamp<size_t>(share, 50, kPlotCurvePoints));
    const std::string color = ColorOf(index);
    const bool few = points.size() <= 40;
    std::string marks, line;
    size_t in_line = 0;
    const auto flush = [&] {
      if (in_line > 1) {
        svg_ += "<polyline fill=\"none\" stroke=\"" + color + "\" stroke-width=\"" +
                (index < kPlotLegend ? "1.8" : "1") +
                "\" stroke-linejoin=\"round\" stroke-linecap=\"round\" points=\"" + line + "\"/>\n";
      }
      in_line = 0;
      line.clear();
    };
    bool was_off = false;
    for (const Residual& point : points) {
      const double x = X(point.iteration), value = point.relative_residual;
      const bool finite = std::isfinite(value), off = !OnLogAxis(value);
      if (off && !was_off) marks += finite ? ZeroMark(x, color) : Cross(x, color);
      was_off = off;
      if (!finite) {
        flush();
        continue;
      }
      if (in_line > 0) line += ' ';
      line += Coordinate(x) + "," + Coordinate(Y(value));
      ++in_line;
      if (few && !off) marks += Circle(x, Y(value), 2.2, color, color);
    }
    flush();
    svg_ += marks;
  }

  void End(const PlotCurve& curve, size_t index) {
    if (!curve.end || index >= kPlotLegend || !std::isfinite(curve.end->relative_residual)) return;
    svg_ += Circle(X(curve.end->iteration), Y(curve.end->relative_residual), 4, ColorOf(index),
                   "#ffffff");
  }

  static std::string Circle(double x, double y, double radius, std::string_view stroke,
                            std::string_view fill) {
    return "<circle cx=\"" + Coordinate(x) + "\" cy=\"" + Coordinate(y) + "\" r=\"" +
           Coordinate(radius) + "\" stroke=\"" + std::string(stroke) +
           "\" stroke-width=\"1.6\" fill=\"" + std::string(fill) + "\"/>\n";
  }
  static std::string ZeroMark(double x, const std::string& color) {
    return "<path class=\"zero\" d=\"M" + Coordinate(x - 5) + " " + Coordinate(kBottom - 8) +
           "h10l-5 8z\" fill=\"" + color + "\"/>\n";
  }
  static std::string Cross(double x, const std::string& color) {
    return "<path class=\"not-finite\" d=\"M" + Coordinate(x - 5) + " " + Coordinate(kTop) +
           "l10 10m0 -10l-10 10\" fill=\"none\" stroke=\"" + color + "\" stroke-width=\"2\"/>\n";
  }

  // The label stands right of the plot, where no curve runs.
  void Tolerance() {
    if (!OnLogAxis(plot_.tolerance)) return;
    const std::string soft = "fill=\"" + std::string(kSoft) + "\"";
    const double y = axis_.has_target ? Y(plot_.tolerance) : kBottom - 18;
    if (axis_.has_target) {
      svg_ += Segment(kLeft, y, kRight, y, kSoft,
                      " stroke-width=\"1.4\" stroke-dasharray=\"7 4\" class=\"tolerance\"");
    }
    svg_ += Text(kRight + 10, y - 2, "tolerance", soft);
    // An arrow where it is too far below to be drawn.
    svg_ += Text(kRight + 10, y + 12,
                 (axis_.has_target ? "" : "↓ ") + FormatResidual(plot_.tolerance), soft);
  }

  void Legend() {
    const size_t named = std::min(plot_.curves.size(), kPlotLegend);
    const size_t rest = plot_.curves.size() - named;
    const double height = kLegendLine * static_cast<double>(named + (rest > 0 ? 1 : 0));
    // Away from the tolerance's label.
    const bool low = axis_.has_target && Y(plot_.tolerance) < kTop + kPlotHeight / 2;
    double y = (low ? kBottom - height : kTop) + kLegendLine / 2;
    for (size_t k = 0; k < named; ++k, y += kLegendLine) {
      svg_ += Segment(kRight + 16, y, kRight + 38, y, ColorOf(k), " stroke-width=\"2.4\"");
      svg_ += Text(kRight + 45, y + 4, EscapedEnd(plot_.curves[k].name, kLegendLength),
                   "font-size=\"11.5\"");
    }
    if (rest == 0) return;
    svg_ += Segment(kRight + 16, y, kRight + 38, y, kRest, " stroke-width=\"2.4\"");
    svg_ += Text(kRight + 45, y + 4, "and " + FormatCount(static_cast<int64_t>(rest)) + " more",
                 "font-size=\"11.5\" fill=\"" + std::string(kSoft) + "\"");
  }

  const ConvergencePlot& plot_;
  DecadeAxis axis_;
  int32_t last_ = 1;
  double width_ = 0;
  std::string svg_;
};

}  // namespace

std::string ConvergenceSvg(const ConvergencePlot& plot) { return Drawing(plot).Svg(); }

std::optional<Error> WritePlot(const std::string& path, const ConvergencePlot& plot) {
  auto writer = ByteWriter::Open(path);
  if (!writer.ok()) return writer.error();
  const std::string svg = ConvergenceSvg(plot);
  std::fwrite(svg.data(), 1, svg.size(), writer->file());
  return writer->Commit();
}

int32_t PlotIteration(int64_t iterations) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(iterations, 0, std::numeric_limits<int32_t>::max()));
}

std::string MethodTitle(Method method, const SolveOptions& options) {
  switch (method) {
    case Method::kCg:
      return "CG";
    case Method::kBicgstab:
      return "BiCGSTAB";
    case Method::kGmres:
      return "GMRES(" + std::to_string(options.restart) + (options.basis_bytes > 0 ? "+)" : ")");
    case Method::kMinres:
      return "MINRES";
    case Method::kIdr:
      return "IDR(" + std::to_string(options.shadow_vectors) + ")";
    case Method::kAuto:
      break;
  }
  return std::string(Name(method));
}

std::string EngineTitle(Engine engine, int pattern_power, int block_size) {
  const EngineTraits traits = TraitsOf(engine);
  std::string title(traits.title);
  if (traits.has_blocks && block_size > 1) title += ", blocks of " + std::to_string(block_size);
  if (traits.has_power && pattern_power > 0) title += ", p = " + std::to_string(pattern_power);
  return title;
}

std::string OutcomeTitle(Outcome outcome) {
  if (outcome == Outcome::kConverged) return "converged";
  return "not converged (" + UpperSnake(Name(outcome)) + ")";
}

}  // namespace spaid::cli
