#include "client/cli/residual_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "client/cli/output.h"
#include "client/cli/residual_series.h"

namespace spaid::cli {
namespace {

constexpr int kDotColumns = 2, kDotRows = 4;  // dots in a braille character

// Dots in braille characters.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  void Dot(int x, int y) {
    // The order of the dots in a braille character's code.
    constexpr std::array<std::array<uint8_t, kDotRows>, kDotColumns> kBits = {
        {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    At(x / kDotColumns, y / kDotRows) |=
        kBits[static_cast<size_t>(x % kDotColumns)][static_cast<size_t>(y % kDotRows)];
  }

  void Line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int k = 0; k <= steps; ++k) {
      const double way = static_cast<double>(k) / steps;
      Dot(x0 + static_cast<int>(std::lround(way * (x1 - x0))),
          y0 + static_cast<int>(std::lround(way * (y1 - y0))));
    }
  }

  bool Empty(int column, int row) { return At(column, row) == 0; }
  // U+2800 and the dots, in UTF-8.
  std::string Text(int column, int row) {
    const uint8_t dots = At(column, row);
    return {static_cast<char>(0xE2), static_cast<char>(0xA0 | (dots >> 6)),
            static_cast<char>(0x80 | (dots & 0x3F))};
  }

 private:
  uint8_t& At(int column, int row) {
    return cells_[static_cast<size_t>(row) * static_cast<size_t>(columns_) +
                  static_cast<size_t>(column)];
  }
  int columns_;
  std::vector<uint8_t> cells_;
};

// Text in pieces of one style each; neighbours of a style share their escape sequences.
class StyledLine {
 public:
  explicit StyledLine(bool color) : color_(color) {}
  void Add(const std::string& text, Style style) {
    if (style != style_) Flush();
    style_ = style;
    piece_ += text;
  }
  std::string Take() {
    Flush();
    // Blanks at the end are nothing to see.
    while (!line_.empty() && line_.back() == ' ') line_.pop_back();
    return std::move(line_);
  }

 private:
  void Flush() {
    line_ += Styled(piece_, style_, color_);
    piece_.clear();
  }
  bool color_;
  Style style_ = Style::kPlain;
  std::string piece_, line_;
};

void Plot(const ResidualTrack& track, const DecadeAxis& axis, int columns, Canvas& canvas) {
  const int width = columns * kDotColumns, height = kChartRows * kDotRows;
  const double last = std::max<double>(1, track.points().back().iteration);
  const double first = track.points().front().iteration;
  int x_before = -1, y_before = -1;
  for (const Residual& point : track.points()) {
    if (!std::isfinite(point.relative_residual)) {  // a gap
      x_before = -1;
      continue;
    }
    // A server may name iterations in any order: all of them stay inside.
    const double way =
        last > first ? std::clamp((point.iteration - first) / (last - first), 0.0, 1.0) : 0;
    const int x = static_cast<int>(std::lround(way * (width - 1)));
    const int y = static_cast<int>(std::lround(axis.Place(point.relative_residual) * (height - 1)));
    if (x_before < 0) {
      canvas.Dot(x, y);
    } else {
      canvas.Line(x_before, y_before, x, y);
    }
    x_before = x;
    y_before = y;
  }
}

int RowOf(const DecadeAxis& axis, double value) {
  const int dot = static_cast<int>(std::lround(axis.Place(value) * (kChartRows * kDotRows - 1)));
  return dot / kDotRows;
}

// Finds `size` free cells for the target's label at the left or right of the row; -1: there are
// none.
int LabelColumn(Canvas& canvas, int row, int columns, int size) {
  for (const int begin : {1, columns - size - 1}) {
    if (begin < 0 || begin + size > columns) continue;
    int column = begin;
    while (column < begin + size && canvas.Empty(column, row)) ++column;
    if (column == begin + size) return begin;
  }
  return -1;
}

}  // namespace

std::vector<std::string> ResidualChart(const ResidualTrack& track, int columns, bool color) {
  if (track.empty()) return {};
  columns = std::clamp(columns, kChartMinColumns, kChartMaxColumns) - 1;
  const std::span<const Residual> points = track.points();
  const DecadeAxis axis = MakeDecadeAxis({&points, 1}, track.target());

  std::array<std::string, kChartRows> labels;
  size_t margin = 0;
  for (const int power : DecadeTicks(axis, kChartRows / 2 + 1)) {
    const std::string text = "1e" + std::to_string(power);
    labels[static_cast<size_t>(RowOf(axis, std::pow(10.0, power)))] = text;
    margin = std::max(margin, text.size());
  }
  const int width = columns - static_cast<int>(margin) - 2;
  Canvas canvas(width, kChartRows);
  Plot(track, axis, width, canvas);

  const int target_row = axis.has_target ? RowOf(axis, track.target()) : -1;
  const std::string target_text = " asked for " + FormatResidual(track.target()) + " ";
  const auto target_size = static_cast<int>(target_text.size());
  const int label_at = target_row >= 0 ? LabelColumn(canvas, target_row, width, target_size) : -1;

  std::vector<std::string> lines;
  for (int row = 0; row < kChartRows; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    StyledLine line(color);
    line.Add(std::string(margin - label.size() + 1, ' ') + label + (label.empty() ? "│" : "┤"),
             Style::kDim);
    for (int column = 0; column < width; ++column) {
      if (!canvas.Empty(column, row)) {
        line.Add(canvas.Text(column, row), Style::kBold);
      } else if (row != target_row) {
        line.Add(" ", Style::kPlain);
      } else if (label_at >= 0 && column >= label_at && column < label_at + target_size) {
        line.Add({target_text[static_cast<size_t>(column - label_at)]}, Style::kWarn);
      } else {
        line.Add("┄", Style::kWarn);
      }
    }
    lines.push_back(line.Take());
  }

  StyledLine bottom(color);
  const std::string first = FormatCount(points.front().iteration);
  const std::string last = FormatCount(points.back().iteration);
  std::string rule;
  for (int k = static_cast<int>(first.size() + last.size()); k < width; ++k) rule += "─";
  bottom.Add(std::string(margin + 1, ' ') + "└" + first + rule + last, Style::kDim);
  lines.push_back(bottom.Take());
  lines.push_back(std::string(margin + 2, ' ') + track.Status(width, label_at < 0));
  return lines;
}

}  // namespace spaid::cli
