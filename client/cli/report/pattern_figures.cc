// Spy plot and lengths.
#include <algorithm>
#include <array>
#include <cmath>

#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/svg.h"

namespace spaid::cli {
namespace {

constexpr double kWidth = 460, kHeight = 270, kLeft = 46, kRight = 450, kTop = 26, kBottom = 222;
constexpr int kGapsUpTo = 80;  // cells per side: entries stand apart

std::string Cells(const PatternRaster& raster, int shade) {
  const bool apart = raster.size <= kGapsUpTo;
  std::string d;
  for (int row = 0; row < raster.size; ++row) {
    for (int column = 0; column < raster.size;) {
      const auto has_shade = [&](int c) {
        return c < raster.size && raster.at(row, c) > 0 &&
               SpyShade(raster.at(row, c), raster.most) == shade;
      };
      int run = 0;
      while (has_shade(column + run) && (run == 0 || !apart)) ++run;
      if (run > 0) {
        d += "M" + std::to_string(column) + " " + std::to_string(row) + "h" +
             (apart ? ".86" : std::to_string(run));
      }
      column += std::max(run, 1);
    }
  }
  return d;
}

std::string BinText(const LengthBin& bin) {
  return bin.from == bin.to ? FormatCount(bin.from)
                            : FormatCount(bin.from) + "–" + FormatCount(bin.to);
}

}  // namespace

int SpyShade(int64_t count, int64_t most) {
  if (most <= 1) return kSpyShades - 1;
  const double share = std::log(static_cast<double>(count)) / std::log(static_cast<double>(most));
  return std::clamp(static_cast<int>(share * kSpyShades), 0, kSpyShades - 1);
}

std::string SpyFigure(const PatternRaster& raster) {
  const std::string size = std::to_string(raster.size);
  const bool apart = raster.size <= kGapsUpTo;
  std::string text = "<svg class=\"spy\" viewBox=\"0 0 " + size + " " + size +
                     "\" role=\"img\" aria-label=\"where the matrix has entries\">\n<g class=\"" +
                     (apart ? "dots" : "cells") + "\" transform=\"translate(" +
                     (apart ? "0.07 0.5" : "0 0.5") + ")\">\n";
  for (int shade = 0; shade < kSpyShades; ++shade) {
    const std::string d = Cells(raster, shade);
    if (!d.empty()) {
      text += "<path class=\"shade" + std::to_string(shade) + "\" d=\"" + d + "\"/>\n";
    }
  }
  return text + "</g></svg>\n";
}

bool ColumnsDiffer(const PatternLengths& lengths) {
  return std::any_of(lengths.bins.begin(), lengths.bins.end(),
                     [](const LengthBin& bin) { return bin.rows != bin.columns; });
}

std::string LengthFigure(const PatternLengths& lengths) {
  Svg svg(kWidth, kHeight, "how many rows have how many stored entries");
  int64_t most = 1;
  for (const LengthBin& bin : lengths.bins) most = std::max({most, bin.rows, bin.columns});
  // From half a row on, so that a single one can be seen.
  const double low = std::log10(0.5);
  const double high = std::max(1.0, std::ceil(std::log10(static_cast<double>(most))));
  const auto y = [&](double count) {
    return kBottom - (kBottom - kTop) * (std::log10(count) - low) / (high - low);
  };
  for (int power = 0; power <= static_cast<int>(high); ++power) {
    const double at = y(std::pow(10.0, power));
    svg.Line(kLeft, at, kRight, at, "grid");
    svg.Power(kLeft - 7, at + 4, power, Anchor::kEnd);
  }
  const bool both = ColumnsDiffer(lengths);
  const auto count = static_cast<double>(lengths.bins.size());
  const double slot = (kRight - kLeft) / count, bar = std::min(slot * (both ? 0.42 : 0.8), 40.0);
  const size_t step = (lengths.bins.size() + 7) / 8;
  for (size_t k = 0; k < lengths.bins.size(); ++k) {
    const LengthBin& bin = lengths.bins[k];
    const double middle = kLeft + slot * (static_cast<double>(k) + 0.5);
    const auto draw = [&](int64_t n, double from, const char* css) {
      if (n == 0) return;
      const double top = y(static_cast<double>(n));
      svg.Rect(from, top, bar, kBottom - top, css);
    };
    draw(bin.rows, both ? middle - bar : middle - bar / 2, "bar");
    if (both) draw(bin.columns, middle, "bar second");
    if (k % step == 0) svg.Text(middle, kBottom + 16, BinText(bin), Anchor::kMiddle);
  }
  svg.Line(kLeft, kBottom, kRight, kBottom, "axis");
  svg.Text(kLeft - 40, 14, both ? "rows and columns" : "rows", Anchor::kStart, "soft");
  svg.Text((kLeft + kRight) / 2, kHeight - 10, "stored entries", Anchor::kMiddle, "soft");
  return svg.Take();
}

}  // namespace spaid::cli
