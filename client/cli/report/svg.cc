#include "client/cli/report/svg.h"

#include <cstdlib>
#include <utility>

#include "client/cli/xml.h"

namespace spaid::cli {
namespace {

std::string Attribute(std::string_view name, double value) {
  return " " + std::string(name) + "=\"" + Coordinate(value) + "\"";
}

std::string Class(std::string_view css) {
  return css.empty() ? "" : " class=\"" + std::string(css) + "\"";
}

const char* AnchorText(Anchor anchor) {
  switch (anchor) {
    case Anchor::kStart:
      break;
    case Anchor::kMiddle:
      return " text-anchor=\"middle\"";
    case Anchor::kEnd:
      return " text-anchor=\"end\"";
  }
  return "";
}

}  // namespace

Svg::Svg(double width, double height, std::string_view label)
    : text_("<svg viewBox=\"0 0 " + Coordinate(width) + " " + Coordinate(height) +
            "\" role=\"img\" aria-label=\"" + Escaped(label) + "\">\n") {}

void Svg::Line(double x0, double y0, double x1, double y1, std::string_view css) {
  text_ += "<line" + Attribute("x1", x0) + Attribute("y1", y0) + Attribute("x2", x1) +
           Attribute("y2", y1) + Class(css) + "/>\n";
}

void Svg::Rect(double x, double y, double width, double height, std::string_view css) {
  text_ += "<rect" + Attribute("x", x) + Attribute("y", y) + Attribute("width", width) +
           Attribute("height", height) + Class(css) + "/>\n";
}

void Svg::Circle(double x, double y, double radius, std::string_view css) {
  text_ += "<circle" + Attribute("cx", x) + Attribute("cy", y) + Attribute("r", radius) +
           Class(css) + "/>\n";
}

void Svg::Path(std::string_view d, std::string_view css) {
  text_ += "<path d=\"" + std::string(d) + "\"" + Class(css) + "/>\n";
}

void Svg::Polyline(std::string_view points, std::string_view css) {
  text_ += "<polyline points=\"" + std::string(points) + "\"" + Class(css) + "/>\n";
}

void Svg::Text(double x, double y, std::string_view text, Anchor anchor, std::string_view css) {
  text_ += "<text" + Attribute("x", x) + Attribute("y", y) + AnchorText(anchor) + Class(css) + ">" +
           Escaped(text) + "</text>\n";
}

void Svg::Power(double x, double y, int power, Anchor anchor) {
  // A true minus sign, as wide as it should be.
  const std::string exponent = (power < 0 ? "−" : "") + std::to_string(std::abs(power));
  text_ += "<text" + Attribute("x", x) + Attribute("y", y) + AnchorText(anchor) +
           ">10<tspan dy=\"-4.5\" font-size=\"9\">" + exponent + "</tspan></text>\n";
}

std::string Svg::Take() { return std::move(text_) + "</svg>\n"; }

}  // namespace spaid::cli
