// Draws into an SVG that stands inside an HTML page, whose style sheet (style.h) gives colours by
// class.
#pragma once

#include <string>
#include <string_view>

namespace spaid::cli {

enum class Anchor { kStart, kMiddle, kEnd };

// Lengths are in the drawing's own units, of which the page shows about one per pixel. Texts are
// plain; they are escaped here.
class Svg {
 public:
  // `label` says in words what is drawn, for those who do not see it.
  Svg(double width, double height, std::string_view label);

  void Line(double x0, double y0, double x1, double y1, std::string_view css);
  void Rect(double x, double y, double width, double height, std::string_view css);
  void Circle(double x, double y, double radius, std::string_view css);
  void Path(std::string_view d, std::string_view css);
  void Polyline(std::string_view points, std::string_view css);
  void Text(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart,
            std::string_view css = "");
  // Writes 10 to the power.
  void Power(double x, double y, int power, Anchor anchor);

  std::string Take();

 private:
  std::string text_;
};

}  // namespace spaid::cli
