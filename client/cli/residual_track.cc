#include "client/cli/residual_track.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "client/cli/output.h"
#include "client/cli/residual_series.h"

namespace spaid::cli {
namespace {

constexpr size_t kMostPoints = 8192;
constexpr auto kRateStretch = std::chrono::seconds(3);
constexpr auto kShortestRate = std::chrono::milliseconds(250);
constexpr auto kMarkGap = std::chrono::milliseconds(20);
constexpr int kFewestPoints = 8;   // for a slope
constexpr double kSteadiness = 3;  // the most by which two slopes may differ
constexpr double kMostToGo = 1e9;  // beyond, it is as good as never

// The straight line through log10 of the residuals from iteration `from` on, by least squares.
struct Line {
  int count = 0;
  double slope = 0;    // decades an iteration
  double level = 0;    // at the last iteration
  double scatter = 0;  // standard deviation of the points from it
  double span = 0;     // iterations
};

Line Fit(std::span<const Residual> points, int32_t from) {
  Line line;
  const double last = points.back().iteration;
  double x_mean = 0, y_mean = 0, first = last;
  const auto each = [&](auto&& visit) {
    for (auto at = points.rbegin(); at != points.rend() && at->iteration >= from; ++at) {
      if (OnLogAxis(at->relative_residual)) {
        visit(at->iteration - last, std::log10(at->relative_residual));
      }
    }
  };
  each([&](double x, double y) {
    ++line.count;
    x_mean += x;
    y_mean += y;
    first = std::min(first, x + last);
  });
  if (line.count < kFewestPoints) return line;
  x_mean /= line.count;
  y_mean /= line.count;
  double xx = 0, xy = 0, yy = 0;
  each([&](double x, double y) {
    xx += (x - x_mean) * (x - x_mean);
    xy += (x - x_mean) * (y - y_mean);
    yy += (y - y_mean) * (y - y_mean);
  });
  if (xx > 0) line.slope = xy / xx;
  line.level = y_mean - line.slope * x_mean;
  line.scatter = std::sqrt(std::max(0.0, yy - line.slope * xy) / line.count);
  line.span = last - first;
  return line;
}

// Two digits are as much as an estimate is worth.
int64_t TwoDigits(double value) {
  const double unit = value < 100 ? 1 : std::pow(10.0, std::floor(std::log10(value)) - 1);
  return static_cast<int64_t>(std::llround(std::ceil(value / unit) * unit));
}

}  // namespace

void ResidualTrack::Clear() {
  points_.clear();
  marks_.clear();
  rhs_ = 0;
}

void ResidualTrack::Add(std::span<const Residual> residuals, Time now) {
  for (const Residual& residual : residuals) {
    const bool other = empty() || residual.rhs != rhs_;
    // The next ones begin where those before them are over.
    if (other && residual.iteration == 0 && !empty() && points().back().iteration > 0) Clear();
    if (other && (empty() || residual.iteration > points().back().iteration)) {
      rhs_ = residual.rhs;
      marks_.clear();
    }
    std::vector<Residual>& own = points_[residual.rhs];
    own.push_back(residual);
    if (own.size() > kMostPoints) own = Decimate(own, kMostPoints / 2);
  }
  if (empty()) return;
  const Mark mark{.time = now, .iteration = points().back().iteration};
  // Marks in quick succession become two: the first one, and the last one, which is replaced.
  if (marks_.size() > 1 && now - marks_[marks_.size() - 2].time < kMarkGap) {
    marks_.back() = mark;
  } else {
    marks_.push_back(mark);
  }
  while (marks_.size() > 2 && now - marks_.front().time > kRateStretch) marks_.pop_front();
}

double ResidualTrack::target() const {
  const auto at = static_cast<size_t>(rhs());
  return at < targets_.size() ? targets_[at] : 0;
}

std::optional<double> ResidualTrack::Rate() const {
  if (marks_.size() < 2) return std::nullopt;
  const auto time = marks_.back().time - marks_.front().time;
  const int32_t count = marks_.back().iteration - marks_.front().iteration;
  if (time < kShortestRate || count <= 0) return std::nullopt;
  return count / std::chrono::duration<double>(time).count();
}

std::optional<int64_t> ResidualTrack::ToGo() const {
  if (empty() || !OnLogAxis(target())) return std::nullopt;
  const int32_t last = points().back().iteration;
  const Line quarter = Fit(points(), last - last / 4), half = Fit(points(), last - last / 2);
  for (const Line& line : {quarter, half}) {
    const double fall = -line.slope * line.span;
    if (line.count < kFewestPoints || fall <= 0 || fall < line.scatter) return std::nullopt;
  }
  const double ratio = quarter.slope / half.slope;
  if (ratio > kSteadiness || ratio < 1 / kSteadiness) return std::nullopt;
  const double rest = (quarter.level - std::log10(target())) / -quarter.slope;
  if (!(rest > 0) || rest > kMostToGo) return std::nullopt;
  return TwoDigits(rest);
}

std::string ResidualTrack::Status(int columns, bool with_target) const {
  if (empty()) return "";
  std::vector<std::string> parts;
  if (rhs_count() > 1) {
    parts.push_back("right-hand side " + std::to_string(rhs() + 1) + " of " +
                    std::to_string(rhs_count()));
  }
  const Residual& last = points().back();
  parts.push_back("iteration " + FormatCount(last.iteration));
  parts.push_back("residual " + FormatResidual(last.relative_residual));
  if (with_target && OnLogAxis(target())) parts.push_back("asked for " + FormatResidual(target()));
  if (const auto rate = Rate()) {
    parts.push_back((*rate < 10 ? FormatFixed(*rate, 1) : FormatCount(std::llround(*rate))) +
                    " it/s");
  }
  if (const auto to_go = ToGo()) parts.push_back("about " + FormatCount(*to_go) + " to go");
  std::string text;
  for (const std::string& part : parts) {
    const std::string longer = text + (text.empty() ? "" : ", ") + part;
    if (static_cast<int>(longer.size()) > columns && !text.empty()) continue;
    text = longer;
  }
  return text.substr(0, static_cast<size_t>(std::max(0, columns)));
}

}  // namespace spaid::cli
