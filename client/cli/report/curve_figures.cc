// Convergence and quantiles.
#include <algorithm>
#include <cmath>

#include "client/cli/output.h"
#include "client/cli/report/figures.h"
#include "client/cli/report/svg.h"
#include "client/cli/residual_series.h"
#include "client/cli/xml.h"

namespace spaid::cli {
namespace {

constexpr double kWidth = 460, kHeight = 330, kLeft = 46, kRight = 436, kTop = 28, kBottom = 286;
constexpr int kTopPower = 2;  // a residual that grows further says no more
constexpr size_t kColouredPoints = 300, kGreyPoints = 60, kGreyCurves = 40;

// Round numbers from 0 to `last`, at most `most` of them (at least 2).
std::vector<double> RoundTicks(double last, int most) {
  double step = std::pow(10.0, std::floor(std::log10(last)) - 1);
  while (last / step + 1 > most) {
    for (const double factor : {2.0, 2.5, 2.0}) {
      step *= factor;
      if (last / step + 1 <= most) break;
    }
  }
  std::vector<double> ticks;
  for (int k = 0; k * step <= last * (1 + 1e-9); ++k) ticks.push_back(k * step);
  return ticks;
}

class CurveDrawing {
 public:
  CurveDrawing(std::span<const Curve> curves, CurveAxis axis, double tolerance)
      : curves_(curves),
        by_time_(axis == CurveAxis::kTime),
        tolerance_(tolerance),
        svg_(kWidth, kHeight,
             by_time_ ? "relative residuals over time" : "relative residuals over iterations") {
    std::vector<Residual> ends;
    std::vector<std::span<const Residual>> spans;
    for (const Curve& curve : curves) {
      spans.push_back(curve.history);
      ends.push_back({.relative_residual = curve.true_relative_residual});
    }
    spans.push_back(ends);
    decades_ = MakeDecadeAxis(spans, tolerance);
    decades_.top = std::max(std::min(decades_.top, kTopPower), decades_.bottom + 1);
    const auto coloured = curves.first(std::min(curves.size(), kColouredCurves));
    const bool any = std::any_of(coloured.begin(), coloured.end(),
                                 [](const Curve& curve) { return curve.converged; });
    for (const Curve& curve : coloured) {
      if (any && !curve.converged) continue;
      last_ = std::max(last_, At(curve, static_cast<double>(curve.iterations)));
    }
    if (!(last_ > 0) || !std::isfinite(last_)) last_ = 1;
  }

  std::string Draw() {
    Axes();
    // Grey ones below, the first ones on top.
    for (size_t k = std::min(curves_.size(), kGreyCurves); k-- > 0;) Draw(curves_[k], k);
    Ends();
    return svg_.Take();
  }

 private:
  // Iterations, or milliseconds.
  double At(const Curve& curve, double iteration) const {
    if (!by_time_) return iteration;
    const auto all = static_cast<double>(std::max<int64_t>(curve.iterations, 1));
    return curve.setup_ms + curve.iterate_ms * iteration / all;
  }
  double X(double at) const { return kLeft + (kRight - kLeft) * at / last_; }
  double Y(double value) const { return kTop + (kBottom - kTop) * decades_.Place(value); }

  void Axes() {
    for (const int power : DecadeTicks(decades_, 8)) {
      const double y =
          kTop + (kBottom - kTop) * (decades_.top - power) / (decades_.top - decades_.bottom);
      svg_.Line(kLeft, y, kRight, y, "grid");
      svg_.Power(kLeft - 7, y + 4, power, Anchor::kEnd);
    }
    const bool seconds = by_time_ && last_ >= 2000;
    const double unit = seconds ? 1000 : 1;
    if (by_time_) {
      const std::vector<double> ticks = RoundTicks(last_ / unit, 6);
      const int digits = ticks[1] >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(ticks[1])));
      for (const double tick : ticks) Tick(tick * unit, FormatFixed(tick, digits));
    } else {
      for (const int64_t tick : IterationTicks(static_cast<int64_t>(last_), 6)) {
        Tick(static_cast<double>(tick), FormatCount(tick));
      }
    }
    svg_.Line(kLeft, kBottom, kRight, kBottom, "axis");
    svg_.Text(6, 14, "‖b − Ax‖ / ‖b‖", Anchor::kStart, "soft");
    svg_.Text((kLeft + kRight) / 2, kHeight - 8,
              !by_time_ ? "iterations"
              : seconds ? "set-up and solve, in s"
                        : "set-up and solve, in ms",
              Anchor::kMiddle, "soft");
    if (!decades_.has_target) return;
    const double y = Y(tolerance_);
    svg_.Line(kLeft, y, kRight, y, "target");
    svg_.Line(kRight - 142, 10, kRight - 116, 10, "target");
    svg_.Text(kRight, 14, "asked for " + FormatResidual(tolerance_), Anchor::kEnd, "soft");
  }

  void Tick(double at, const std::string& text) {
    svg_.Line(X(at), kBottom, X(at), kBottom + 4, "axis");
    svg_.Text(X(at), kBottom + 17, text, Anchor::kMiddle);
  }

  static std::string StyleOf(size_t index) {
    return index < kColouredCurves ? "curve c" + std::to_string(index) : "curve rest";
  }

  // The part of the history that the axis holds, and the point behind it.
  std::span<const Residual> Seen(const Curve& curve) const {
    const auto beyond = std::find_if(
        curve.history.begin(), curve.history.end(),
        [&](const Residual& point) { return At(curve, point.iteration) > last_ * (1 + 1e-9); });
    const auto count = static_cast<size_t>(beyond - curve.history.begin());
    return curve.history.first(std::min(count + 1, curve.history.size()));
  }

  void Draw(const Curve& curve, size_t index) {
    const bool coloured = index < kColouredCurves;
    std::string line;
    size_t points = 0;
    const auto flush = [&] {
      if (points > 1) svg_.Polyline(line, StyleOf(index));
      line.clear();
      points = 0;
    };
    const auto add = [&](double x, double y) {
      line += (points++ == 0 ? "" : " ") + Coordinate(x) + "," + Coordinate(y);
    };
    double x = 0, y = 0;
    for (const Residual& point : Decimate(Seen(curve), coloured ? kColouredPoints : kGreyPoints)) {
      if (!std::isfinite(point.relative_residual)) {
        flush();
        continue;
      }
      const double next_x = X(At(curve, point.iteration)), next_y = Y(point.relative_residual);
      if (next_x > kRight + 0.01) {  // to the edge, no further
        if (points > 0 && x < kRight) {
          add(kRight, y + (next_y - y) * (kRight - x) / (next_x - x));
        }
        break;
      }
      add(x = next_x, y = next_y);
    }
    flush();
  }

  // Circles at the true residual, and numbers beside them that keep off each other.
  void Ends() {
    struct End {
      double x, y;
      size_t index;
    };
    std::vector<End> ends;
    for (size_t k = 0; k < std::min(curves_.size(), kColouredCurves); ++k) {
      const double value = curves_[k].true_relative_residual;
      if (!std::isfinite(value)) continue;
      const double x = X(At(curves_[k], static_cast<double>(curves_[k].iterations)));
      if (x <= kRight + 0.01) ends.push_back({x, Y(value), k});
    }
    std::sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.x < b.x; });
    std::vector<std::pair<double, double>> labels;
    for (const End& end : ends) {
      const std::string css = "c" + std::to_string(end.index);
      svg_.Circle(end.x, end.y, 3.2, "end " + css);
      double y = std::min(end.y + 15, kBottom - 3);
      const auto taken = [&](double at) {
        return std::any_of(labels.begin(), labels.end(), [&](const auto& label) {
          return std::abs(label.first - end.x) < 9 && std::abs(label.second - at) < 11;
        });
      };
      if (taken(y)) y = end.y - 7;
      while (taken(y)) y -= 11;
      labels.emplace_back(end.x, y);
      svg_.Text(end.x, y, std::to_string(end.index + 1), Anchor::kMiddle, "rank " + css);
    }
  }

  std::span<const Curve> curves_;
  bool by_time_;
  double tolerance_;
  DecadeAxis decades_;
  double last_ = 0;
  Svg svg_;
};

}  // namespace

std::string ConvergenceFigure(std::span<const Curve> curves, CurveAxis axis, double tolerance) {
  return CurveDrawing(curves, axis, tolerance).Draw();
}

std::string QuantileFigure(std::span<const QuantileRow> rows) {
  constexpr double kRow = 40;
  std::vector<Residual> points;
  for (const QuantileRow& row : rows) {
    for (const double value : row.quantiles) points.push_back({.relative_residual = value});
  }
  const std::span<const Residual> all = points;
  const DecadeAxis decades = MakeDecadeAxis({&all, 1}, 1);
  const double bottom = kRow * static_cast<double>(rows.size()) + 6, left = 12;
  const auto x = [&](double value) { return left + (kRight - left) * (1 - decades.Place(value)); };
  Svg svg(kWidth, bottom + 40, "quantiles of the residuals of M's columns");
  for (const int power : DecadeTicks(decades, 8)) {
    const double at = x(std::pow(10.0, power));
    svg.Line(at, 4, at, bottom, "grid");
    svg.Power(at, bottom + 17, power, Anchor::kMiddle);
  }
  double y = 0;
  for (const QuantileRow& row : rows) {
    svg.Text(left, y + 15, row.name);
    const double middle = y + 28;
    const std::vector<double>& q = row.quantiles;
    svg.Line(x(q[0]), middle, x(q[7]), middle, "whisker");
    svg.Line(x(q[1]), middle - 4, x(q[1]), middle + 4, "whisker");
    svg.Line(x(q[5]), middle - 4, x(q[5]), middle + 4, "whisker");
    svg.Rect(x(q[2]), middle - 6, std::max(x(q[4]) - x(q[2]), 1.0), 12, "box");
    svg.Line(x(q[3]), middle - 7, x(q[3]), middle + 7, "median");
    svg.Circle(x(q[6]), middle, 3, "end c1");
    svg.Circle(x(q[7]), middle, 3, "full c1");
    y += kRow;
  }
  svg.Line(left, bottom, kRight, bottom, "axis");
  svg.Text((left + kRight) / 2, bottom + 36, "‖A m − e‖, of each column m of M", Anchor::kMiddle,
           "soft");
  return svg.Take();
}

}  // namespace spaid::cli
